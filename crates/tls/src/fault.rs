//! Reasons why a handshake fails, for operators.

use rustls::{AlertDescription, CertificateError, Error};
use std::fmt;

/// Reason why a handshake failed. "It" is the other side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Its certificate is not from an authority of this side.
    ForeignAuthority,
    /// Its certificate has expired.
    Expired,
    /// Its certificate is not valid yet.
    NotYetValid,
    /// Its certificate has other names.
    OtherName,
    /// It refuses the certificate of this side, which is not from its authority.
    RefusesAuthority,
    /// It refuses the certificate of this side, which has expired or is not valid yet.
    RefusesExpired,
    /// It has no certificate.
    NoCertificate,
    /// It asks for a certificate, and this side has none.
    CertificateRequired,
    /// It speaks no TLS, or an earlier version only.
    NotTls,
    /// It speaks another protocol within TLS.
    OtherProtocol,
    /// Another reason, as the library words it.
    Other(String),
}

impl From<&Error> for Fault {
    fn from(error: &Error) -> Fault {
        match error {
            Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
                Fault::ForeignAuthority
            }
            Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. },
            ) => Fault::Expired,
            Error::InvalidCertificate(
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
            ) => Fault::NotYetValid,
            Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            ) => Fault::OtherName,
            Error::AlertReceived(AlertDescription::UnknownCA | AlertDescription::DecryptError) => {
                Fault::RefusesAuthority
            }
            Error::AlertReceived(AlertDescription::CertificateExpired) => Fault::RefusesExpired,
            Error::AlertReceived(AlertDescription::CertificateRequired) => Fault::CertificateRequired,
            Error::NoCertificatesPresented => Fault::NoCertificate,
            Error::AlertReceived(AlertDescription::NoApplicationProtocol) | Error::NoApplicationProtocol => {
                Fault::OtherProtocol
            }
            Error::AlertReceived(AlertDescription::ProtocolVersion)
            | Error::PeerIncompatible(_)
            | Error::InvalidMessage(_)
            | Error::InappropriateMessage { .. } => Fault::NotTls,
            other => Fault::Other(other.to_string()),
        }
    }
}

impl Fault {
    /// Fault within an error of a connection. `None`: the connection has another one.
    pub fn of(error: &std::io::Error) -> Option<Fault> {
        error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()).map(Fault::from)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::ForeignAuthority => "its certificate is not from an authority of ca.pem",
            Fault::Expired => "its certificate has expired",
            Fault::NotYetValid => "its certificate is not valid yet: check the clocks",
            Fault::OtherName => "its certificate has another name",
            Fault::RefusesAuthority => "it refuses our certificate, which is not from its authority",
            Fault::RefusesExpired => {
                "it refuses our certificate, which has expired or is not valid yet: check the clocks"
            }
            Fault::NoCertificate => "it has no certificate",
            Fault::CertificateRequired => "it asks for a certificate, and we have none",
            Fault::NotTls => "it does not speak TLS 1.3",
            Fault::OtherProtocol => "it speaks another protocol within TLS",
            Fault::Other(text) => text,
        })
    }
}
