//! `gatun peer init` and `gatun peer renew`: certificates of a pair of boxes.

use crate::commands::replacement::Replacement;
use crate::commands::{print_bytes, unix_seconds};
use anyhow::{Context as _, bail};
use gatun_api::types::days_until;
use gatun_peer::link::{Tls, TlsFiles};
use gatun_peer::tls::SERVER_NAME;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Validity of the members' certificates, days.
pub(crate) const MEMBER_DAYS: u32 = 825;
/// Validity of the authority's certificate, days.
const AUTHORITY_DAYS: u32 = 7_300;
const DAY: Duration = Duration::from_secs(86_400);

/// Commands by which the user of the service can read copied files, and nobody else.
pub(crate) const SERVICE_USER: &str = "\
If Gatun runs as a service, its user must own the files. As root, before the copy:
  install -d -o gatun -g gatun -m 700 /etc/gatun/peer
After the copy:
  chown -R gatun:gatun /etc/gatun
";

/// Arguments of `init`.
#[derive(Debug, clap::Args)]
pub(super) struct Init {
    /// Directory to create
    directory: PathBuf,
    /// Validity of the members' certificates
    #[arg(long, default_value_t = MEMBER_DAYS, value_parser = clap::value_parser!(u32).range(1..=7_300))]
    days: u32,
}

/// Arguments of `renew`.
#[derive(Debug, clap::Args)]
pub(super) struct Renew {
    /// Directory of the authority, as `init` has made it
    authority: PathBuf,
    /// Directories with the files of a member
    #[arg(required = true)]
    members: Vec<PathBuf>,
    /// Validity of the certificate
    #[arg(long, default_value_t = MEMBER_DAYS, value_parser = clap::value_parser!(u32).range(1..=7_300))]
    days: u32,
}

/// Files of a directory: the authority's certificate, the own one, and its key.
pub(crate) fn files(directory: &Path) -> TlsFiles {
    let of = |name: &str| directory.join(name);
    TlsFiles { authority: of("ca.pem"), certificate: of("certificate.pem"), key: of("key.pem") }
}

/// Creates the authority and the members' files, and says where they belong.
pub(super) fn init(args: &Init) -> anyhow::Result<()> {
    create(&args.directory, args.days)?;
    let directory = args.directory.display();
    let text = format!(
        "created {directory}/authority, {directory}/a and {directory}/b.\n\
         Copy the files of {directory}/a to /etc/gatun/peer of one box, those of {directory}/b to the other \
         one.\n{SERVICE_USER}\
         Keep {directory}/authority for `gatun peer renew`, where nobody else can read it.\n"
    );
    print_bytes(text.as_bytes())?;
    Ok(())
}

/// Creates the authority in `authority`, and the members' files in `a` and `b` of a new directory.
///
/// # Errors
/// Returns an error if the directory exists, or cannot be written.
pub(crate) fn create(directory: &Path, days: u32) -> anyhow::Result<()> {
    if directory.exists() {
        let directory = directory.display();
        bail!(
            "{directory} exists: choose another directory; `gatun peer renew` makes new certificates of an \
             authority"
        );
    }
    let key = KeyPair::generate().context("cannot generate a key")?;
    let params = authority(AUTHORITY_DAYS)?;
    let pem = params.self_signed(&key).context("cannot create a certificate")?.pem();
    let folder = folder(&directory.join("authority"))?;
    write(&folder.join("key.pem"), 0o600, &key.serialize_pem())?;
    write(&folder.join("ca.pem"), 0o644, &pem)?;
    let authority = Issuer::new(params, key);
    for member in ["a", "b"] {
        let folder = self::folder(&directory.join(member))?;
        write(&folder.join("ca.pem"), 0o644, &pem)?;
        issue(&authority, &folder, days)?;
    }
    Ok(())
}

/// Replaces certificates.
pub(super) fn renew(args: &Renew) -> anyhow::Result<()> {
    let read = |path: &Path| {
        fs::read_to_string(path)
            .with_context(|| format!("cannot read {}: `gatun peer init` makes it", path.display()))
    };
    let pem = read(&args.authority.join("ca.pem"))?;
    let path = args.authority.join("key.pem");
    let key =
        KeyPair::from_pem(&read(&path)?).with_context(|| format!("{}: no private key", path.display()))?;
    let authority = Issuer::new(self::authority(AUTHORITY_DAYS)?, key);
    for member in &args.members {
        let files = files(member);
        if read(&files.authority)? != pem {
            let ca = files.authority.display();
            bail!("{ca} is the certificate of another authority than that in {}", args.authority.display());
        }
        issue(&authority, member, args.days)?;
        let end = Tls::load(&files).map_err(anyhow::Error::msg)?.certificate_end;
        let days = days_until(end.try_into().unwrap_or(0), unix_seconds()).unwrap_or(0);
        let file = files.certificate.display();
        let text = format!("replaced {file}: valid for {days} days; the daemon uses it after a reload\n");
        print_bytes(text.as_bytes())?;
    }
    Ok(())
}

/// Parameters of the authority. A key signs in its name if it is the authority's key.
fn authority(days: u32) -> anyhow::Result<CertificateParams> {
    let mut params = params(Vec::new(), "Gatun pair authority", days)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    Ok(params)
}

fn params(names: Vec<String>, name: &str, days: u32) -> anyhow::Result<CertificateParams> {
    let mut params = CertificateParams::new(names).context("invalid name")?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    // The other box may have a slow clock.
    params.not_before = (SystemTime::now() - DAY).into();
    params.not_after = (SystemTime::now() + DAY * days).into();
    Ok(params)
}

/// Writes a new key and its certificate. The daemon reads neither before a reload.
fn issue(authority: &Issuer<'_, KeyPair>, directory: &Path, days: u32) -> anyhow::Result<()> {
    let key = KeyPair::generate().context("cannot generate a key")?;
    let mut params = params(vec![SERVER_NAME.to_owned()], "Gatun pair member", days)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.signed_by(&key, authority).context("cannot create a certificate")?;
    let files = files(directory);
    write(&files.key, 0o600, &key.serialize_pem())?;
    write(&files.certificate, 0o644, &certificate.pem())
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
