//! Certificates of a pair, in a directory that is removed at the end.

use gatun_peer::link::TlsFiles;
use gatun_peer::ownership::Member;
use gatun_peer::tls::SERVER_NAME;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::fs;
use std::path::PathBuf;

/// Authority of a pair.
pub(super) struct Certificates {
    authority: CertifiedIssuer<'static, KeyPair>,
    directory: PathBuf,
}

impl Certificates {
    pub(super) fn new() -> anyhow::Result<Certificates> {
        let mut params = CertificateParams::new(vec![])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let directory = std::env::temp_dir().join(format!("gatun-bench-peer-{}", std::process::id()));
        fs::create_dir_all(&directory)?;
        Ok(Certificates { authority, directory })
    }

    /// Files of a member.
    pub(super) fn files(&self, me: Member) -> anyhow::Result<TlsFiles> {
        let key = KeyPair::generate()?;
        let certificate =
            CertificateParams::new(vec![SERVER_NAME.to_owned()])?.signed_by(&key, &*self.authority)?;
        let write = |name: &str, text: &str| {
            let path = self.directory.join(format!("{name}-{me:?}.pem"));
            fs::write(&path, text).map(|()| path)
        };
        Ok(TlsFiles {
            authority: write("ca", &self.authority.pem())?,
            certificate: write("certificate", &certificate.pem())?,
            key: write("key", &key.serialize_pem())?,
        })
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}
