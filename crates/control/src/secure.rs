//! TLS certificate, key and tokens of the API.

use crate::tokens::{Tokens, sha256};
use gatun_api::hex;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

/// Bytes of each file.
const FILE_LEN_MAX: u64 = 1 << 20;

/// Paths of the certificate, the key and the tokens.
#[derive(Clone, Copy, Debug)]
pub struct Files<'p> {
    /// The certificate and its chain up to the root, in PEM.
    pub certificate: &'p Path,
    /// Its private key, in PEM.
    pub key: &'p Path,
    /// The tokens' hashes.
    pub tokens: &'p Path,
}

/// Contents of these files.
pub struct Secure {
    pub(crate) tls: Arc<ServerConfig>,
    pub(crate) tokens: Tokens,
    /// SHA-256 of the certificate; clients may pin it.
    pub fingerprint: String,
    /// Warnings about the files.
    pub warnings: Vec<String>,
}

impl Secure {
    /// Reads the files.
    ///
    /// # Errors
    /// Returns an error that names the unusable file and the remedy.
    pub fn load(files: &Files<'_>) -> Result<Secure, String> {
        let mut warnings = Vec::new();
        let (pem, _) = read(files.certificate)?;
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        let certificates =
            certificates.map_err(|error| format!("{}: {error}", files.certificate.display()))?;
        let Some(first) = certificates.first() else {
            let file = files.certificate.display();
            return Err(format!("{file}: no certificate in this file: `gatun token certificate` makes one"));
        };
        let fingerprint = hex::encode(&sha256(first));
        let (pem, mode) = read(files.key)?;
        let key = PrivateKeyDer::from_pem_slice(&pem)
            .map_err(|error| format!("{}: no private key: {error}", files.key.display()))?;
        if mode & 0o007 != 0 {
            let file = files.key.display();
            warnings.push(format!("every user of this host may read {file}: chmod o= {file}"));
        }
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let mut tls = builder
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| error.to_string())?
            .with_no_client_auth()
            .with_single_cert(certificates, key)
            .map_err(|error| {
                let (certificate, key) = (files.certificate.display(), files.key.display());
                format!("{certificate} and {key} do not belong together: {error}")
            })?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        // No TLS sessions are kept for resumption: a host that opens many connections takes no memory.
        tls.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        tls.send_tls13_tickets = 0;
        let (text, mode) = read(files.tokens)?;
        let name = files.tokens.display();
        let tokens: Result<Tokens, String> = match String::from_utf8(text) {
            Ok(text) => text.parse(),
            Err(_) => Err("not a text file".to_owned()),
        };
        let tokens = tokens.map_err(|why| format!("{name}: {why}"))?;
        if tokens.iter().next().is_none() {
            warnings.push(format!(
                "{name} has no token, so every client is refused; `gatun token add NAME` makes one"
            ));
        }
        if mode & 0o002 != 0 {
            warnings.push(format!("every user of this host may write {name}: chmod o= {name}"));
        }
        Ok(Secure { tls: Arc::new(tls), tokens, fingerprint, warnings })
    }
}

/// A file's bytes and mode.
fn read(path: &Path) -> Result<(Vec<u8>, u32), String> {
    let wrong = |error: io::Error| {
        let hint = match error.kind() {
            io::ErrorKind::NotFound => ": see `gatun token --help`",
            io::ErrorKind::PermissionDenied => ": the user that gatun runs as must be able to read it",
            _ => "",
        };
        format!("{}: {error}{hint}", path.display())
    };
    let file = File::open(path).map_err(wrong)?;
    let mode = file.metadata().map_err(wrong)?.mode();
    let mut bytes = Vec::new();
    file.take(FILE_LEN_MAX + 1).read_to_end(&mut bytes).map_err(wrong)?;
    match bytes.len() as u64 > FILE_LEN_MAX {
        true => Err(format!("{}: it is longer than {FILE_LEN_MAX} bytes", path.display())),
        false => Ok((bytes, mode)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::Role;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;

    struct Made {
        directory: PathBuf,
        files: [PathBuf; 3],
    }

    impl Made {
        fn new(name: &str) -> Made {
            let directory = std::env::temp_dir().join(format!("gatun-secure-{name}-{}", std::process::id()));
            fs::create_dir_all(&directory).unwrap();
            let files = ["crt", "key", "tokens"].map(|name| directory.join(name));
            let made = rcgen::generate_simple_self_signed(vec!["gatun.example".to_owned()]).unwrap();
            fs::write(&files[0], made.cert.pem()).unwrap();
            fs::write(&files[1], made.signing_key.serialize_pem()).unwrap();
            fs::set_permissions(&files[1], fs::Permissions::from_mode(0o600)).unwrap();
            let mut tokens = Tokens::default();
            tokens.add("ops", Role::Write).unwrap();
            fs::write(&files[2], tokens.to_string()).unwrap();
            Made { directory, files }
        }

        fn load(&self) -> Result<Secure, String> {
            let [certificate, key, tokens] = self.files.each_ref();
            Secure::load(&Files { certificate, key, tokens })
        }
    }

    impl Drop for Made {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }

    #[test]
    fn unusable_files_are_named_with_a_remedy() {
        let made = Made::new("files");
        let secure = made.load().unwrap();
        assert_eq!((secure.fingerprint.len(), secure.warnings.len()), (64, 0), "{:?}", secure.warnings);
        let other = Made::new("other");
        for (file, bytes, wanted) in [
            (0, b"".to_vec(), "crt: no certificate in this file: `gatun token certificate` makes one"),
            (0, fs::read(&other.files[0]).unwrap(), "do not belong together"),
            (0, b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec(), "crt"),
            (1, b"".to_vec(), "key: no private key"),
            (1, fs::read(&other.files[0]).unwrap(), "key: no private key"),
            (2, b"ops".to_vec(), "tokens: line 1: expected NAME ROLE HASH"),
            (2, b"\xff\xfe".to_vec(), "tokens: not a text file"),
            (2, vec![b'#'; FILE_LEN_MAX as usize + 1], "tokens: it is longer than"),
        ] {
            let before = fs::read(&made.files[file]).unwrap();
            fs::write(&made.files[file], bytes).unwrap();
            let why = made.load().err().unwrap_or_else(|| panic!("{wanted}: it is accepted"));
            assert!(why.contains(wanted), "{why}");
            fs::write(&made.files[file], before).unwrap();
        }
        for file in &made.files {
            let before = fs::read(file).unwrap();
            fs::remove_file(file).unwrap();
            let why = made.load().err().unwrap();
            assert!(why.contains("see `gatun token --help`"), "{why}");
            fs::write(file, before).unwrap();
        }
    }

    #[test]
    fn files_open_to_others_and_empty_ones_give_warnings() {
        let made = Made::new("modes");
        fs::set_permissions(&made.files[1], fs::Permissions::from_mode(0o644)).unwrap();
        fs::write(&made.files[2], "# nobody\n").unwrap();
        fs::set_permissions(&made.files[2], fs::Permissions::from_mode(0o666)).unwrap();
        let warnings = made.load().unwrap().warnings.join("\n");
        for wanted in ["may read", "may write", "has no token"] {
            assert!(warnings.contains(wanted), "{warnings}");
        }
    }
}
