//! Certificates of a pair, in files.
#![allow(missing_docs, dead_code, unreachable_pub)]

use gatun_peer::link::TlsFiles;
use gatun_peer::tls::{Identity, SERVER_NAME};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Files of a member.
    pub fn files(&self) -> Files {
        self.ending(2_080)
    }

    pub fn expired(&self) -> Files {
        self.ending(2_020)
    }

    /// Files with a certificate that is not valid yet.
    pub fn early(&self) -> Files {
        self.between(2_079, 2_080)
    }

    /// Files with a certificate that ends in this year.
    pub fn ending(&self, year: i32) -> Files {
        self.between(2_000, year)
    }

    /// Files of a box with a name of its own.
    pub fn named(&self, name: &str) -> Files {
        self.issue(name, 2_000, 2_080)
    }

    fn between(&self, begin: i32, end: i32) -> Files {
        self.issue(SERVER_NAME, begin, end)
    }

    fn issue(&self, name: &str, begin: i32, end: i32) -> Files {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = date_time_ymd(begin, 1, 1);
        params.not_after = date_time_ymd(end, 1, 1);
        let certificate = params.signed_by(&key, &*self.0).unwrap();
        let (certificate, key) = (certificate.pem(), key.serialize_pem());
        Files { authority: self.pem(), certificate, key, directory: Directory::new() }
    }
}

pub struct Files {
    pub authority: String,
    pub certificate: String,
    pub key: String,
    pub directory: Directory,
}

impl Files {
    pub fn identity<T>(&self, with: impl FnOnce(&Identity<'_>) -> T) -> T {
        with(&Identity {
            authority: self.authority.as_bytes(),
            certificate: self.certificate.as_bytes(),
            key: self.key.as_bytes(),
        })
    }

    /// Writes the files.
    pub fn paths(&self) -> TlsFiles {
        let write = |name: &str, text: &str| {
            let path = self.directory.0.join(name);
            fs::write(&path, text).unwrap();
            path
        };
        TlsFiles {
            authority: write("authority.pem", &self.authority),
            certificate: write("certificate.pem", &self.certificate),
            key: write("key.pem", &self.key),
        }
    }

    /// Writes other files in their place.
    pub fn replace(&self, other: &Files) {
        fs::write(self.directory.0.join("certificate.pem"), &other.certificate).unwrap();
        fs::write(self.directory.0.join("key.pem"), &other.key).unwrap();
    }

    pub fn spoil(&self) {
        fs::write(self.directory.0.join("certificate.pem"), "no certificate").unwrap();
    }
}

/// Directory that is removed at the end.
pub struct Directory(PathBuf);

impl Directory {
    fn new() -> Directory {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("gatun-link-{}-{n}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
