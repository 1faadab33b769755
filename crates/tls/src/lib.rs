//! TLS 1.3 between programs that know each other: each proves that an authority of one's own has signed its
//! certificate. Configurations come from PEM files, and faults are told in words.
#![forbid(unsafe_code)]

mod directory;
mod fault;

pub use directory::{Directory, read};
pub use fault::Fault;

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::sync::Arc;

/// Certificate of a program and its private key, in PEM.
#[derive(Clone, Copy)]
pub struct Own<'p> {
    /// Certificate, and those between it and the authority.
    pub certificate: &'p [u8],
    /// Private key.
    pub key: &'p [u8],
}

/// Returns the configuration of a side that accepts connections, and a certificate of `authority` from each
/// client. `protocol` is the only one that it speaks.
///
/// # Errors
/// Names the unusable part.
pub fn server(authority: &[u8], own: Own<'_>, protocol: &[u8]) -> Result<Arc<ServerConfig>, String> {
    let provider = Arc::new(default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots(authority)?, provider.clone());
    let verifier = verifier.build().map_err(|error| format!("authority: {error}"))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| error.to_string())?
        .with_client_cert_verifier(verifier)
        .with_single_cert(own.certificates()?, own.key()?)
        .map_err(unmatched)?;
    config.alpn_protocols = vec![protocol.to_vec()];
    // No sessions are kept for resumption: a host that opens many connections takes no memory.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Returns the configuration of a side that connects. It has a certificate if the server asks for one.
///
/// # Errors
/// Names the unusable part.
pub fn client(authority: &[u8], own: Option<Own<'_>>, protocol: &[u8]) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(roots(authority)?, provider.clone());
    let verifier = verifier.build().map_err(|error| format!("authority: {error}"))?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| error.to_string())?
        .with_webpki_verifier(verifier);
    let mut config = match own {
        Some(own) => builder.with_client_auth_cert(own.certificates()?, own.key()?).map_err(unmatched)?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

fn unmatched(error: rustls::Error) -> String {
    format!("certificate and key do not belong together: {error}")
}

fn roots(authority: &[u8]) -> Result<Arc<RootCertStore>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority) {
        let certificate = certificate.map_err(|error| format!("authority: {error}"))?;
        roots.add(certificate).map_err(|error| format!("authority: {error}"))?;
    }
    if roots.is_empty() {
        Err("authority: no certificate in this file".to_owned())
    } else {
        Ok(Arc::new(roots))
    }
}

impl Own<'_> {
    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(self.certificate).collect();
        certificates.map_err(|error| format!("certificate: {error}"))
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, String> {
        PrivateKeyDer::from_pem_slice(self.key).map_err(|error| format!("no private key: {error}"))
    }
}
