//! Certificates of a test, in directories that are removed with it.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
    date_time_ymd,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Year in which certificates end that are valid.
pub(crate) const VALID: i32 = 2_080;

/// OpenSSL takes a certificate whose subject is its issuer's for one that has signed itself.
fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Authority {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.distinguished_name = named("authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Writes a certificate for a host, and its key.
    pub(crate) fn issue(&self, folder: &Path, host: &str, end: i32) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        params.distinguished_name = named(host);
        params.not_before = date_time_ymd(2_000, 1, 1);
        params.not_after = date_time_ymd(end, 1, 1);
        fs::write(folder.join("certificate.pem"), params.signed_by(&key, &*self.0).unwrap().pem()).unwrap();
        fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
    }

    /// Directory with this authority and a certificate for a host.
    pub(crate) fn folder(&self, host: &str, end: i32) -> Folder {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("gatun-p4-tls-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("ca.pem"), self.0.pem()).unwrap();
        self.issue(&path, host, end);
        Folder(path)
    }
}

pub(crate) struct Folder(pub(crate) PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
