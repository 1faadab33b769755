//! TLS 1.3 between the two members: each proves that the pair's own authority has signed its certificate.

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::sync::Arc;

/// Name in the certificates of both members. Addresses and host names may change; the authority signs for
/// nobody else.
pub const SERVER_NAME: &str = "peer.gatun.internal";
const PROTOCOL: &[u8] = b"gatun-peer/1";

/// Files of a member, in PEM.
#[derive(Clone, Copy)]
pub struct Identity<'p> {
    /// Certificate of the pair's authority.
    pub authority: &'p [u8],
    /// Own certificate.
    pub certificate: &'p [u8],
    /// Its private key.
    pub key: &'p [u8],
}

impl Identity<'_> {
    /// Returns the configuration of the side that accepts connections.
    ///
    /// # Errors
    /// Names the unusable file.
    pub fn server(&self) -> Result<Arc<ServerConfig>, String> {
        let provider = Arc::new(default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(self.roots()?, provider.clone());
        let verifier = verifier.build().map_err(|error| format!("authority: {error}"))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| error.to_string())?
            .with_client_cert_verifier(verifier)
            .with_single_cert(self.certificates()?, self.key()?)
            .map_err(|error| format!("certificate and key do not belong together: {error}"))?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    /// Returns the configuration of the side that connects.
    ///
    /// # Errors
    /// Names the unusable file.
    pub fn client(&self) -> Result<Arc<ClientConfig>, String> {
        let provider = Arc::new(default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(self.roots()?, provider.clone());
        let verifier = verifier.build().map_err(|error| format!("authority: {error}"))?;
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| error.to_string())?
            .with_webpki_verifier(verifier)
            .with_client_auth_cert(self.certificates()?, self.key()?)
            .map_err(|error| format!("certificate and key do not belong together: {error}"))?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Arc::new(config))
    }

    fn roots(&self) -> Result<Arc<RootCertStore>, String> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(self.authority) {
            let certificate = certificate.map_err(|error| format!("authority: {error}"))?;
            roots.add(certificate).map_err(|error| format!("authority: {error}"))?;
        }
        if roots.is_empty() {
            Err("authority: no certificate in this file".to_owned())
        } else {
            Ok(Arc::new(roots))
        }
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(self.certificate).collect();
        certificates.map_err(|error| format!("certificate: {error}"))
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, String> {
        PrivateKeyDer::from_pem_slice(self.key).map_err(|error| format!("no private key: {error}"))
    }
}

/// Returns the name that the connecting side expects in the other's certificate.
pub fn server_name() -> ServerName<'static> {
    ServerName::DnsName(SERVER_NAME.try_into().unwrap_or_else(|_| unreachable!("a constant host name")))
}
