//! TLS 1.3 between the two members: each proves that the pair's own authority has signed its certificate.

use gatun_tls::Own;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ServerConfig};
use std::sync::Arc;

/// Name in the certificates of both members. Addresses and host names may change; the authority signs for
/// nobody else.
pub const SERVER_NAME: &str = "peer.gatun.internal";
const PROTOCOL: &[u8] = b"gatun-peer/1";

/// Returns the first certificate of a PEM file, in DER: the same one whatever the text around it.
///
/// # Errors
/// The file has no certificate.
pub fn first_certificate(pem: &[u8]) -> Result<Vec<u8>, String> {
    let certificate = CertificateDer::from_pem_slice(pem);
    certificate.map(|one| one.to_vec()).map_err(|error| format!("no certificate: {error}"))
}

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
        gatun_tls::server(self.authority, self.own(), PROTOCOL)
    }

    /// Returns the configuration of the side that connects.
    ///
    /// # Errors
    /// Names the unusable file.
    pub fn client(&self) -> Result<Arc<ClientConfig>, String> {
        gatun_tls::client(self.authority, Some(self.own()), PROTOCOL)
    }

    fn own(&self) -> Own<'_> {
        Own { certificate: self.certificate, key: self.key }
    }
}

/// Returns the name that the connecting side expects in the other's certificate.
pub fn server_name() -> ServerName<'static> {
    ServerName::DnsName(SERVER_NAME.try_into().unwrap_or_else(|_| unreachable!("a constant host name")))
}
