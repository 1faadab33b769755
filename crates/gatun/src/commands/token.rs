//! `gatun token`: who may ask a daemon over TCP (`[api] listen_tls`), and the certificate it is known by.

use anyhow::{Context as _, anyhow, bail};
use gatun_control::secure::{Files, Secure};
use gatun_control::tokens::{Role, Tokens};
use gatun_daemon::replace;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
};
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  gatun token certificate gatun.example 2001:db8::1    a certificate of our own, for names and addresses
  gatun token add grafana                              prints a token that may read
  gatun token add noc --write                          and one that may change things
  gatun token remove noc

The daemon reads the files at its start and at each reload: systemctl reload gatun.
Elsewhere, the token in a file:
  gatun show status --server https://gatun.example:8443 --token-file token --fingerprint HASH
";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Make a token for somebody, and print it; only its hash is kept
    Add(Add),
    /// Say who has one, and what it allows
    List(File),
    /// Take somebody's away
    Remove(Remove),
    /// Make a certificate that signs itself, and its key
    Certificate(Certificate),
}

#[derive(Debug, clap::Args)]
struct File {
    /// The file that `tokens` in the daemon's `api` section says
    #[arg(long, value_name = "FILE", default_value = "/etc/gatun/tokens")]
    file: PathBuf,
}

#[derive(Debug, clap::Args)]
struct Add {
    /// Whose it is: a person or a program, for the log
    name: String,
    /// It may read and nothing else, which is so where nothing is said
    #[arg(long, conflicts_with_all = ["write", "audit"])]
    read_only: bool,
    /// It may change things, and see what packets hold
    #[arg(long)]
    write: bool,
    /// It may ask the log who had a port at a time (`gatun who --at`), and change nothing
    #[arg(long, conflicts_with = "write")]
    audit: bool,
    #[command(flatten)]
    file: File,
}

#[derive(Debug, clap::Args)]
struct Remove {
    /// Whose
    name: String,
    #[command(flatten)]
    file: File,
}

#[derive(Debug, clap::Args)]
struct Certificate {
    /// Names and addresses by which clients reach the daemon
    #[arg(required = true)]
    hosts: Vec<String>,
    /// Where the certificate is to be; an older one is replaced with `--force` alone
    #[arg(long, value_name = "FILE", default_value = "/etc/gatun/api.crt")]
    certificate: PathBuf,
    /// Where its key is to be
    #[arg(long, value_name = "FILE", default_value = "/etc/gatun/api.key")]
    key: PathBuf,
    /// How long it is good
    #[arg(long, default_value_t = 825, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,
    /// Replace what is there
    #[arg(long)]
    force: bool,
}

/// # Errors
/// What cannot be read or written.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Add(args) => add(&args)?,
        What::List(args) => list(&args)?,
        What::Remove(args) => remove(&args)?,
        What::Certificate(args) => certificate(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn add(args: &Add) -> anyhow::Result<()> {
    let role = match (args.write, args.audit) {
        (true, _) => Role::Write,
        (_, true) => Role::Audit,
        _ => Role::Read,
    };
    let mut secret = String::new();
    change(&args.file.file, |tokens| {
        secret = tokens.add(&args.name, role).map_err(|why| anyhow!(why))?;
        Ok(())
    })?;
    eprintln!(
        "{} may {}, once the daemon has read {} again (systemctl reload gatun). This is shown once:",
        args.name,
        role.name(),
        args.file.file.display()
    );
    super::print_bytes(format!("{secret}\n").as_bytes())?;
    Ok(())
}

fn list(args: &File) -> anyhow::Result<()> {
    let tokens = read(&args.file)?;
    let mut text = String::new();
    for token in tokens.iter() {
        writeln!(text, "{} {}", token.name, token.role.name())?;
    }
    super::print_bytes(text.as_bytes())?;
    Ok(())
}

fn remove(args: &Remove) -> anyhow::Result<()> {
    change(&args.file.file, |tokens| match tokens.remove(&args.name) {
        true => Ok(()),
        false => bail!("{} has no token: `gatun token list` says who has", args.name),
    })?;
    eprintln!("once the daemon has read it again, that token is none any more (systemctl reload gatun)");
    Ok(())
}

fn read(file: &Path) -> anyhow::Result<Tokens> {
    let text = fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
    text.parse().map_err(|why| anyhow!("{}: {why}", file.display()))
}

/// Writes the file anew with what `edit` makes of it, at once; the new file has the old one's owner and mode.
fn change(file: &Path, edit: impl FnOnce(&mut Tokens) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let old = match fs::metadata(file) {
        Ok(old) => Some(old),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error).with_context(|| format!("{} cannot be read", file.display())),
    };
    let mode = old.as_ref().map_or(0o640, |old| old.mode() & 0o777);
    let new = New::begin(file, mode)?;
    // Only now: whoever is at work on it at the same time has made the new file first.
    let mut tokens = if old.is_some() { read(file)? } else { Tokens::default() };
    edit(&mut tokens)?;
    if let Some(old) = &old
        && (old.uid(), old.gid()) != new.owner()?
    {
        fchown(&new.file, Some(old.uid()), Some(old.gid())).context("its owner cannot be kept")?;
    }
    new.finish(tokens.to_string().as_bytes())
}

/// A file that takes another's place when it is whole, and is not there before.
struct New<'p> {
    path: PathBuf,
    place: &'p Path,
    file: fs::File,
    is_done: bool,
}

impl<'p> New<'p> {
    fn begin(place: &'p Path, mode: u32) -> anyhow::Result<New<'p>> {
        let mut name = place.file_name().context("that is no file")?.to_owned();
        name.push(".new");
        let path = place.with_file_name(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path);
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                let path = path.display();
                anyhow!(
                    "{path} is there: another `gatun token` is at work, or was interrupted: then remove it"
                )
            }
            _ => anyhow!("{} cannot be written: {error}", path.display()),
        })?;
        super::give_to_owner_of_directory(&file, &path);
        Ok(New { path, place, file, is_done: false })
    }

    fn owner(&self) -> io::Result<(u32, u32)> {
        let metadata = self.file.metadata()?;
        Ok((metadata.uid(), metadata.gid()))
    }

    fn finish(mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let written = replace::fill(&self.file, bytes);
        let moved = written.and_then(|()| replace::take_place(&self.path, self.place));
        moved.with_context(|| format!("{} cannot be written", self.place.display()))?;
        self.is_done = true;
        Ok(())
    }
}

impl Drop for New<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn certificate(args: &Certificate) -> anyhow::Result<()> {
    for file in [&args.certificate, &args.key] {
        if !args.force && file.exists() {
            bail!(
                "{} is there already: --force replaces it, and clients will have to know the new one",
                file.display()
            );
        }
    }
    let mut params = CertificateParams::new(args.hosts.clone()).context("that is no name of a host")?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, args.hosts.first().map_or("gatun", String::as_str));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    // A clock that is a little slow is no reason to be refused.
    let now = std::time::SystemTime::now();
    let day = std::time::Duration::from_secs(86_400);
    params.not_before = (now - day).into();
    params.not_after = (now + day * args.days).into();
    let key = KeyPair::generate().context("no key can be made")?;
    let made = params.self_signed(&key).context("no certificate can be made")?;
    New::begin(&args.key, 0o600)?.finish(key.serialize_pem().as_bytes())?;
    New::begin(&args.certificate, 0o644)?.finish(made.pem().as_bytes())?;
    let (certificate, key) = (args.certificate.display(), args.key.display());
    let fingerprint = fingerprint(args).unwrap_or_default();
    let text = format!(
        "{certificate} and {key} are made.\nSHA-256 {fingerprint}\n\nIn the daemon's configuration:\n\n[api]\nlisten_tls = \"[::]:8443\"\ncertificate = \"{certificate}\"\nkey = \"{key}\"\ntokens = \"/etc/gatun/tokens\"\n"
    );
    super::print_bytes(text.as_bytes())?;
    Ok(())
}

/// As the daemon will tell it.
fn fingerprint(args: &Certificate) -> Option<String> {
    let files = Files { certificate: &args.certificate, key: &args.key, tokens: Path::new("/dev/null") };
    Secure::load(&files).ok().map(|secure| secure.fingerprint)
}
