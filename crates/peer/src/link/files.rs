//! Certificates of a member, read from files.

use super::validity::not_after;
use crate::tls::Identity;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Remedy for a file that does not exist.
const MISSING: &str = "`gatun peer init` makes the certificates of a pair";

/// Paths of PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate of the pair's authority.
    pub authority: PathBuf,
    /// Own certificate.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Configuration of TLS for both sides of a connection.
#[derive(Clone)]
pub struct Tls {
    pub(super) server: Arc<ServerConfig>,
    pub(super) client: Arc<ClientConfig>,
    /// End of the own certificate, or of the authority's if that is earlier, seconds since 1970.
    pub certificate_end: i64,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// Names the unusable file.
    pub fn load(files: &TlsFiles) -> Result<Tls, String> {
        let TlsFiles { authority, certificate, key } = files;
        let read = |path: &Path| gatun_tls::read(path, MISSING);
        let [authority_pem, chain, key] = [read(authority)?, read(certificate)?, read(key)?];
        let identity = Identity { authority: &authority_pem, certificate: &chain, key: &key };
        let own = CertificateDer::from_pem_slice(&chain)
            .map_err(|error| format!("{}: no certificate: {error}", certificate.display()))?;
        let end = |certificate: &[u8], file: &Path| {
            not_after(certificate).ok_or_else(|| format!("{}: a certificate without an end", file.display()))
        };
        let issuer = CertificateDer::from_pem_slice(&authority_pem)
            .map_err(|error| format!("{}: no certificate: {error}", authority.display()))?;
        let certificate_end = end(&own, certificate)?.min(end(&issuer, authority)?);
        Ok(Tls { server: identity.server()?, client: identity.client()?, certificate_end })
    }
}
