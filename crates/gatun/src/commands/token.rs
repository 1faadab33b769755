//! `gatun token`: manages tokens for API access over TCP (`[api] listen_tls`), and the API's certificate.

use super::replacement::Replacement;
use anyhow::{Context as _, anyhow, bail};
use gatun_control::secure::{Files, Secure};
use gatun_control::tokens::{Role, Tokens};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  gatun token certificate gatun.example 2001:db8::1
  gatun token add grafana          print a token that may read
  gatun token add noc --write      print a token that may make changes
  gatun token remove noc

The daemon reads the files at start and at each reload (systemctl reload gatun). On \
another host, with the token in a file:
  gatun show status --server https://gatun.example:8443 --token-file token \\
    --fingerprint HASH
";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Create a token and print it; only its hash is stored
    Add(Add),
    /// List tokens and their roles
    List(File),
    /// Remove a token
    Remove(Remove),
    /// Create a self-signed certificate and its key
    Certificate(Certificate),
}

#[derive(Debug, clap::Args)]
struct File {
    /// Token file, as in `[api] tokens`
    #[arg(long, value_name = "FILE", default_value = "/etc/gatun/tokens")]
    file: PathBuf,
}

#[derive(Debug, clap::Args)]
struct Add {
    /// Name of the owner, a person or a program, for the log
    name: String,
    /// Allow reading only (default)
    #[arg(long, conflicts_with_all = ["write", "audit"])]
    read_only: bool,
    /// Allow changes and packet traces
    #[arg(long)]
    write: bool,
    /// Allow questions to the port log (`gatun who --at`), but no changes
    #[arg(long, conflicts_with = "write")]
    audit: bool,
    #[command(flatten)]
    file: File,
}

#[derive(Debug, clap::Args)]
struct Remove {
    /// Name of the owner
    name: String,
    #[command(flatten)]
    file: File,
}

#[derive(Debug, clap::Args)]
struct Certificate {
    /// Host names and addresses of the daemon
    #[arg(required = true)]
    hosts: Vec<String>,
    /// Certificate file to create
    #[arg(long, value_name = "FILE", default_value = "/etc/gatun/api.crt")]
    certificate: PathBuf,
    /// Key file to create
    #[arg(long, value_name = "FILE", default_value = "/etc/gatun/api.key")]
    key: PathBuf,
    /// Validity
    #[arg(long, default_value_t = 825, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,
    /// Replace existing files
    #[arg(long)]
    force: bool,
}

/// # Errors
/// Returns an error if a file cannot be read or written.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        Command::Add(args) => add(&args)?,
        Command::List(args) => list(&args)?,
        Command::Remove(args) => remove(&args)?,
        Command::Certificate(args) => certificate(&args)?,
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
        "{} may {} after the daemon has reloaded {} (systemctl reload gatun). The token is shown only once:",
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
        false => bail!("no token of {} found; see `gatun token list`", args.name),
    })?;
    eprintln!("the token is valid until the daemon reloads (systemctl reload gatun)");
    Ok(())
}

fn read(file: &Path) -> anyhow::Result<Tokens> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    text.parse().map_err(|why| anyhow!("{}: {why}", file.display()))
}

/// Replaces the file atomically with an edited one of the same owner and mode.
fn change(file: &Path, edit: impl FnOnce(&mut Tokens) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let old = match fs::metadata(file) {
        Ok(old) => Some(old),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
    };
    let mode = old.as_ref().map_or(0o640, |old| old.mode() & 0o777);
    let new = Replacement::begin(file, mode)?;
    // Read only now: a concurrent `gatun token` would have created the new file first.
    let mut tokens = if old.is_some() { read(file)? } else { Tokens::default() };
    edit(&mut tokens)?;
    if let Some(old) = &old {
        new.keep_owner(old)?;
    }
    new.finish(tokens.to_string().as_bytes())
}

fn certificate(args: &Certificate) -> anyhow::Result<()> {
    for file in [&args.certificate, &args.key] {
        if !args.force && file.exists() {
            bail!(
                "{} exists: pass --force to replace it; clients must then trust the new one",
                file.display()
            );
        }
    }
    let mut params = CertificateParams::new(args.hosts.clone()).context("invalid host name")?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, args.hosts.first().map_or("gatun", String::as_str));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    // Clients with a slow clock should accept it.
    let now = std::time::SystemTime::now();
    let day = std::time::Duration::from_secs(86_400);
    params.not_before = (now - day).into();
    params.not_after = (now + day * args.days).into();
    let key = KeyPair::generate().context("cannot generate a key")?;
    let made = params.self_signed(&key).context("cannot create a certificate")?;
    Replacement::begin(&args.key, 0o600)?.finish(key.serialize_pem().as_bytes())?;
    Replacement::begin(&args.certificate, 0o644)?.finish(made.pem().as_bytes())?;
    let (certificate, key) = (args.certificate.display(), args.key.display());
    let fingerprint = fingerprint(args).unwrap_or_default();
    let text = format!(
        "created {certificate} and {key}.\nSHA-256 {fingerprint}\n\nIn the daemon's configuration:\n\n[api]\nlisten_tls = \"[::]:8443\"\ncertificate = \"{certificate}\"\nkey = \"{key}\"\ntokens = \"/etc/gatun/tokens\"\n"
    );
    super::print_bytes(text.as_bytes())?;
    Ok(())
}

/// Fingerprint, as the daemon logs it.
fn fingerprint(args: &Certificate) -> Option<String> {
    let files = Files { certificate: &args.certificate, key: &args.key, tokens: Path::new("/dev/null") };
    Secure::load(&files).ok().map(|secure| secure.fingerprint)
}
