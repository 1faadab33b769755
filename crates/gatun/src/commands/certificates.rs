//! Certificates of an authority of one's own: of a pair of boxes, and of the nodes of a cluster.

use super::replacement::Replacement;
use super::{print_bytes, unix_seconds};
use anyhow::{Context as _, bail};
use gatun_api::types::days_until;
use gatun_peer::link::{Tls, TlsFiles};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Validity of certificates, days.
pub(crate) const MEMBER_DAYS: u32 = 825;
/// Validity of the authority's certificate, days.
const AUTHORITY_DAYS: u32 = 7_300;
const DAY: Duration = Duration::from_secs(86_400);
/// Days before its creation from which a certificate is valid: the clock of another box may be that late, as
/// after a start without the network's time.
const EARLY_DAYS: u32 = 7;

/// Name of the directory of the authority.
pub(crate) const AUTHORITY: &str = "authority";

/// Owners of certificates.
pub(crate) struct Owners {
    /// Command with `init` and `renew`.
    pub(crate) command: &'static str,
    /// Common name of the authority.
    pub(crate) authority: &'static str,
    /// Common name of the others.
    pub(crate) member: &'static str,
}

/// Files of a directory: the authority's certificate, the own one, and its key.
pub(crate) fn files(directory: &Path) -> TlsFiles {
    let of = |name: &str| directory.join(name);
    TlsFiles { authority: of("ca.pem"), certificate: of("certificate.pem"), key: of("key.pem") }
}

/// Commands by which the user of the service can read copied files, and nobody else.
pub(crate) fn service_user(directory: &str) -> String {
    format!(
        "If Gatun runs as a service, its user must own the files. As root, before the copy:\n  \
         install -d -o gatun -g gatun -m 700 {directory}\n\
         After the copy:\n  chown -R gatun:gatun /etc/gatun\n"
    )
}

/// Authority that signs certificates.
pub(crate) struct Authority {
    owners: &'static Owners,
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate, PEM.
    pem: String,
    directory: PathBuf,
}

impl Authority {
    /// Creates an authority in `authority` of a new directory.
    ///
    /// # Errors
    /// Returns an error if the directory exists, or cannot be written.
    pub(crate) fn create(owners: &'static Owners, directory: &Path) -> anyhow::Result<Authority> {
        if directory.exists() {
            bail!(
                "{} exists: choose another directory; `{} renew` makes new certificates of an authority",
                directory.display(),
                owners.command
            );
        }
        let key = KeyPair::generate().context("cannot generate a key")?;
        let params = owners.authority()?;
        let pem = params.self_signed(&key).context("cannot create a certificate")?.pem();
        let directory = folder(&directory.join(AUTHORITY))?;
        write(&directory.join("key.pem"), 0o600, &key.serialize_pem())?;
        write(&directory.join("ca.pem"), 0o644, &pem)?;
        Ok(Authority { owners, issuer: Issuer::new(params, key), pem, directory })
    }

    /// Reads an authority.
    ///
    /// # Errors
    /// Returns an error if its files cannot be read.
    pub(crate) fn read(owners: &'static Owners, directory: &Path) -> anyhow::Result<Authority> {
        let pem = owners.read(&directory.join("ca.pem"))?;
        let path = directory.join("key.pem");
        let key = KeyPair::from_pem(&owners.read(&path)?)
            .with_context(|| format!("{}: no private key", path.display()))?;
        let issuer = Issuer::new(owners.authority()?, key);
        Ok(Authority { owners, issuer, pem, directory: directory.to_owned() })
    }

    /// Creates the files of a member in a new directory. `name` is the name in its certificate.
    ///
    /// # Errors
    /// Returns an error if the directory exists, or cannot be written.
    pub(crate) fn add(&self, directory: &Path, name: &str, days: u32) -> anyhow::Result<()> {
        if directory.exists() {
            let command = self.owners.command;
            bail!("{} exists: `{command} renew` replaces its certificate", directory.display());
        }
        let directory = folder(directory)?;
        write(&directory.join("ca.pem"), 0o644, &self.pem)?;
        self.issue(&directory, name, days)
    }

    /// Replaces the certificate and the key of a member, and says so.
    ///
    /// # Errors
    /// Returns an error if the member has another authority, or a file cannot be written.
    pub(crate) fn renew(&self, directory: &Path, name: &str, days: u32) -> anyhow::Result<()> {
        let files = files(directory);
        if self.owners.read(&files.authority)? != self.pem {
            let (ca, own) = (files.authority.display(), self.directory.display());
            bail!("{ca} is the certificate of another authority than that in {own}");
        }
        self.issue(directory, name, days)?;
        let end = Tls::load(&files).map_err(anyhow::Error::msg)?.certificate_end;
        let days = days_until(end.try_into().unwrap_or(0), unix_seconds()).unwrap_or(0);
        let file = files.certificate.display();
        let text = format!("replaced {file}: valid for {days} days; the daemon uses it after a reload\n");
        print_bytes(text.as_bytes())?;
        Ok(())
    }

    /// Writes a new key and its certificate. The daemon reads neither before a reload.
    fn issue(&self, directory: &Path, name: &str, days: u32) -> anyhow::Result<()> {
        let key = KeyPair::generate().context("cannot generate a key")?;
        let mut params = params(vec![name.to_owned()], self.owners.member, days)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer).context("cannot create a certificate")?;
        let files = files(directory);
        write(&files.key, 0o600, &key.serialize_pem())?;
        write(&files.certificate, 0o644, &certificate.pem())
    }
}

impl Owners {
    /// Parameters of the authority. A key signs in its name if it is the authority's key.
    fn authority(&self) -> anyhow::Result<CertificateParams> {
        let mut params = params(Vec::new(), self.authority, AUTHORITY_DAYS)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Ok(params)
    }

    fn read(&self, path: &Path) -> anyhow::Result<String> {
        fs::read_to_string(path)
            .with_context(|| format!("cannot read {}: `{} init` makes it", path.display(), self.command))
    }
}

fn params(names: Vec<String>, name: &str, days: u32) -> anyhow::Result<CertificateParams> {
    let mut params = CertificateParams::new(names).context("invalid name")?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = (SystemTime::now() - DAY * EARLY_DAYS).into();
    params.not_after = (SystemTime::now() + DAY * days).into();
    Ok(params)
}

fn folder(path: &Path) -> anyhow::Result<PathBuf> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.with_context(|| format!("cannot create {}", path.display()))?;
    Ok(path.to_owned())
}

/// Writes a file. One that it replaces keeps its mode and its owner, so that the daemon's user can read it.
fn write(path: &Path, mode: u32, text: &str) -> anyhow::Result<()> {
    let old = fs::metadata(path).ok();
    let new = Replacement::begin(path, old.as_ref().map_or(mode, |old| old.mode() & 0o777))?;
    if let Some(old) = &old {
        new.keep_owner(old)?;
    }
    new.finish(text.as_bytes())
}
