//! Certificates in a directory.

use crate::Own;
use rustls::{ClientConfig, ServerConfig};
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Longest file, bytes.
const FILE_LEN_MAX: u64 = 1 << 20;

/// Directory with `ca.pem`, the authority of the other side, and the own `certificate.pem` and `key.pem`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    /// Directory with this path.
    pub fn new(path: impl Into<PathBuf>) -> Directory {
        Directory { path: path.into() }
    }

    /// Reads the configuration of a side that accepts connections.
    ///
    /// # Errors
    /// Names the unusable file.
    pub fn server(&self, protocol: &[u8]) -> Result<Arc<ServerConfig>, String> {
        let [authority, certificate, key] =
            ["ca.pem", "certificate.pem", "key.pem"].map(|name| self.read(name));
        let (authority, certificate, key) = (authority?, certificate?, key?);
        let own = Own { certificate: &certificate, key: &key };
        crate::server(&authority, own, protocol).map_err(|why| self.wrong(&why))
    }

    /// Reads the configuration of a side that connects. Without `certificate.pem` it has no certificate.
    ///
    /// # Errors
    /// Names the unusable file.
    pub fn client(&self, protocol: &[u8]) -> Result<Arc<ClientConfig>, String> {
        let authority = self.read("ca.pem")?;
        if !self.path.join("certificate.pem").exists() {
            return crate::client(&authority, None, protocol).map_err(|why| self.wrong(&why));
        }
        let (certificate, key) = (self.read("certificate.pem")?, self.read("key.pem")?);
        let own = Own { certificate: &certificate, key: &key };
        crate::client(&authority, Some(own), protocol).map_err(|why| self.wrong(&why))
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, String> {
        read(&self.path.join(name), "")
    }

    fn wrong(&self, why: &str) -> String {
        format!("{}: {why}", self.path.display())
    }
}

/// Reads a file of PEM. `missing` is a remedy for a file that does not exist.
///
/// # Errors
/// Names the file and the reason.
pub fn read(path: &Path, missing: &str) -> Result<Vec<u8>, String> {
    let wrong = |error: io::Error| {
        let hint = match error.kind() {
            ErrorKind::NotFound if !missing.is_empty() => format!(": {missing}"),
            ErrorKind::PermissionDenied => ": the user that gatun runs as must be able to read it".to_owned(),
            _ => String::new(),
        };
        format!("{}: {error}{hint}", path.display())
    };
    let mut bytes = Vec::new();
    File::open(path).map_err(wrong)?.take(FILE_LEN_MAX + 1).read_to_end(&mut bytes).map_err(wrong)?;
    match bytes.len() as u64 > FILE_LEN_MAX {
        true => Err(format!("{}: it is longer than {FILE_LEN_MAX} bytes", path.display())),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use std::fs;

    struct Made(PathBuf);

    impl Drop for Made {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    impl Made {
        fn new(name: &str) -> Made {
            let path = std::env::temp_dir().join(format!("gatun-tls-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            let mut params = CertificateParams::new(vec![]).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
            let key = KeyPair::generate().unwrap();
            let certificate = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
            let certificate = certificate.signed_by(&key, &authority).unwrap();
            fs::write(path.join("ca.pem"), authority.pem()).unwrap();
            fs::write(path.join("certificate.pem"), certificate.pem()).unwrap();
            fs::write(path.join("key.pem"), key.serialize_pem()).unwrap();
            Made(path)
        }

        fn both(&self) -> [Result<(), String>; 2] {
            let directory = Directory::new(&self.0);
            [directory.server(b"h2").map(drop), directory.client(b"h2").map(drop)]
        }
    }

    #[test]
    fn unusable_files_are_named() {
        let (made, other) = (Made::new("files"), Made::new("other"));
        assert_eq!(made.both(), [Ok(()), Ok(())]);
        for (file, bytes, wanted) in [
            ("ca.pem", b"".to_vec(), "authority: no certificate in this file"),
            ("ca.pem", vec![b'#'; FILE_LEN_MAX as usize + 1], "ca.pem: it is longer than"),
            ("certificate.pem", fs::read(other.0.join("certificate.pem")).unwrap(), "do not belong together"),
            ("key.pem", b"".to_vec(), "no private key"),
        ] {
            let before = fs::read(made.0.join(file)).unwrap();
            fs::write(made.0.join(file), bytes).unwrap();
            for why in made.both() {
                let why = why.unwrap_err();
                assert!(why.contains(wanted) && why.contains("gatun-tls-files"), "{why}");
            }
            fs::write(made.0.join(file), before).unwrap();
        }
    }

    #[test]
    fn only_a_client_does_without_a_certificate() {
        let made = Made::new("missing");
        fs::remove_file(made.0.join("certificate.pem")).unwrap();
        let [server, client] = made.both();
        assert!(server.unwrap_err().contains("certificate.pem: No such file"));
        assert_eq!(client, Ok(()));
        fs::remove_file(made.0.join("ca.pem")).unwrap();
        assert!(made.both().iter().all(|result| result.as_ref().unwrap_err().contains("ca.pem")));
        let path = made.0.join("ca.pem");
        assert!(read(&path, "make one").unwrap_err().ends_with(": make one"));
    }
}
