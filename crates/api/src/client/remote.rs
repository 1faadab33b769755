//! Daemon on another host: TLS 1.3 over TCP, a certificate trusted by its issuer or its hash, and a token.

use crate::hex;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::fmt;
use std::io;
use std::net::ToSocketAddrs as _;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Longest time for a TCP connection to one address.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Default port.
const PORT: u16 = 8443;

/// Reason to trust a server's certificate.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Certificates in PEM, one of which signed it; it must be valid now and have the host's name.
    Roots(Vec<u8>),
    /// Its SHA-256; nothing else is checked.
    Fingerprint(Fingerprint),
}

/// SHA-256 of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl FromStr for Fingerprint {
    type Err = String;

    /// Parses 64 hexadecimal digits, with or without colons.
    fn from_str(text: &str) -> Result<Fingerprint, String> {
        let hash = hex::decode_hash(&text.replace(':', ""));
        hash.map(Fingerprint)
            .ok_or_else(|| "expected the SHA-256 of a certificate: 64 hexadecimal digits".to_owned())
    }
}

/// Host and port of a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    host: String,
    port: u16,
    name: ServerName<'static>,
}

impl FromStr for Server {
    type Err = String;

    /// Parses `https://HOST`, with or without `:PORT`.
    fn from_str(url: &str) -> Result<Server, String> {
        let wrong = || format!("invalid server `{url}`: expected https://HOST:PORT");
        let place = url.strip_prefix("https://").ok_or_else(wrong)?;
        let place = place.strip_suffix('/').unwrap_or(place);
        let (host, rest) = match place.strip_prefix('[') {
            Some(place) => place.split_once(']').ok_or_else(wrong)?,
            None => place.split_at(place.find(':').unwrap_or(place.len())),
        };
        let port = match rest.strip_prefix(':') {
            Some(port) => port.parse().map_err(|_| wrong())?,
            None if rest.is_empty() => PORT,
            None => return Err(wrong()),
        };
        let name = ServerName::try_from(host.to_owned()).map_err(|_| wrong())?;
        Ok(Server { host: host.to_owned(), port, name })
    }
}

impl Server {
    /// `HOST:PORT`, as in a Host header.
    pub(super) fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "https://{}", self.authority())
    }
}

/// Server, token and TLS settings.
#[derive(Clone)]
pub(super) struct Remote {
    pub(super) server: Server,
    pub(super) token: String,
    tls: Arc<ClientConfig>,
}

impl fmt::Debug for Remote {
    /// Formats without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Remote {
    pub(super) fn new(server: Server, token: &str, trust: &Trust) -> Result<Remote, String> {
        let token = token.trim();
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("invalid token: use one that `gatun token add` printed".to_owned());
        }
        let provider = Arc::new(default_provider());
        let verifier: Arc<dyn ServerCertVerifier> = match trust {
            Trust::Roots(pem) => verifier_by(pem, Arc::clone(&provider))?,
            Trust::Fingerprint(fingerprint) => {
                Arc::new(ByFingerprint { fingerprint: *fingerprint, provider: Arc::clone(&provider) })
            }
        };
        let builder = ClientConfig::builder_with_provider(provider);
        let tls = builder
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        Ok(Remote { server, token: token.to_owned(), tls: Arc::new(tls) })
    }

    /// Connects, up to the end of the TLS handshake, which may take `handshake_max`.
    pub(super) async fn connect(&self, handshake_max: Duration) -> io::Result<TlsStream<TcpStream>> {
        let mut last = io::ErrorKind::NotFound.into();
        // The look-up of the name blocks this thread, which has nothing else to do.
        for address in (&self.server.host[..], self.server.port).to_socket_addrs()? {
            match timeout(CONNECT_MAX, TcpStream::connect(address)).await.unwrap_or_else(|e| Err(e.into())) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    let tls = TlsConnector::from(Arc::clone(&self.tls));
                    return timeout(handshake_max, tls.connect(self.server.name.clone(), stream)).await?;
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

fn verifier_by(pem: &[u8], provider: Arc<CryptoProvider>) -> Result<Arc<dyn ServerCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate =
            certificate.map_err(|error| format!("invalid PEM, no certificate can be read: {error}"))?;
        // A system's collection may contain unusable ones.
        let _ = roots.add(certificate);
    }
    match roots.is_empty() {
        true => Err("no certificate found in the PEM file".to_owned()),
        false => match WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build() {
            Ok(verifier) => Ok(verifier),
            Err(error) => Err(error.to_string()),
        },
    }
}

/// Accepts one certificate by its hash, regardless of its contents; the handshake proves that the server has
/// its key.
#[derive(Debug)]
struct ByFingerprint {
    fingerprint: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ByFingerprint {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let hash = ring::digest::digest(&ring::digest::SHA256, certificate);
        match hash.as_ref() == self.fingerprint.0 {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.3 is required".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_an_https_url_with_or_without_port() {
        for (url, shown) in [
            ("https://gatun.example", "https://gatun.example:8443"),
            ("https://gatun.example:443/", "https://gatun.example:443"),
            ("https://192.0.2.1:9", "https://192.0.2.1:9"),
            ("https://[2001:db8::1]", "https://[2001:db8::1]:8443"),
            ("https://[::1]:1", "https://[::1]:1"),
        ] {
            assert_eq!(url.parse::<Server>().unwrap().to_string(), shown);
        }
        for wrong in [
            "http://a",
            "a:1",
            "https://",
            "https://a:b",
            "https://a:1/path",
            "https://[::1",
            "https://::1:1",
        ] {
            assert!(wrong.parse::<Server>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_fingerprint_may_have_colons() {
        let plain = "00ff".repeat(16);
        let colons: Vec<_> = (0..32).map(|n| if n % 2 == 0 { "00" } else { "FF" }).collect();
        assert_eq!(plain.parse::<Fingerprint>(), colons.join(":").parse::<Fingerprint>());
        for wrong in ["", "00", &format!("{plain}00"), &format!("{}g", &plain[1..])] {
            assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn invalid_tokens_and_roots_without_certificate_are_refused() {
        let server: Server = "https://gatun.example".parse().unwrap();
        let trust = Trust::Fingerprint(Fingerprint([0; 32]));
        assert!(Remote::new(server.clone(), "gatun_1\n", &trust).is_ok());
        for wrong in ["", " ", "a b", "a\r\nx: y", "é"] {
            assert!(Remote::new(server.clone(), wrong, &trust).is_err(), "{wrong}");
        }
        for pem in ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "x"] {
            let why = Remote::new(server.clone(), "t", &Trust::Roots(pem.into())).unwrap_err();
            assert!(why.contains("no certificate"), "{why}");
        }
    }
}
