//! `gatun log`: verifies and prints the port log, with or without a running daemon.

use anyhow::{Context as _, anyhow, bail};
use gatun_config::LOG_DIRECTORY;
use gatun_daemon::tables::counted;
use gatun_logstore::time::{Span, parse, rfc3339, since_1970_ms};
use gatun_logstore::{Directory, Entry, Hash, LogError, Mark, PlanInForce, Reader, Record, Verification};
use gatun_nat::plan::Transport;
use serde_json::json;
use std::io::{BufWriter, ErrorKind, Write};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

const EXAMPLES: &str = "\
Examples:
  gatun log verify
  gatun log verify --anchor 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b82...
  gatun log show --from 2026-01-31 --to 2026-02-01 --outside 203.0.113.7

`verify` reads every byte. Each file contains the SHA-256 of the previous file, and \
receipts record how far the last file was written. To detect a log that was rewritten \
as a whole, pass a hash that was kept elsewhere (the daemon logs each): --anchor.

Exit status of `verify`:
  0  unchanged
  1  FAULT: the log was changed or damaged, now or earlier
  3  UNKNOWN: the log cannot be read, or a killed process or a change damaged it
";

/// Location of the log.
#[derive(Debug, clap::Args)]
pub(crate) struct StoreArgs {
    /// Directory of the log, as in `[log] directory`
    #[arg(long, value_name = "DIRECTORY", default_value = LOG_DIRECTORY)]
    store: PathBuf,
}

impl StoreArgs {
    /// # Errors
    /// Returns an error if there is no log, or if it cannot be read.
    pub(crate) fn open(&self) -> anyhow::Result<Reader> {
        let directory = self.store.display();
        if !self.store.is_dir() {
            bail!(
                "{directory}: no log found; pass --store DIRECTORY, or enable one with [log] in the configuration"
            );
        }
        Reader::open(Box::new(Directory::to_read(&self.store)))
            .with_context(|| format!("cannot read the log in {directory}"))
    }
}

/// Parses a time of the command line.
///
/// # Errors
/// Returns the accepted forms if the text is not a time.
pub(crate) fn time(text: &str) -> Result<Span, String> {
    parse(text, since_1970_ms(SystemTime::now()))
}

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Check that the log is unchanged
    Verify(VerifyArgs),
    /// Print records, one JSON object per line
    Show(ShowArgs),
}

#[derive(Debug, clap::Args)]
struct VerifyArgs {
    /// Hash noted earlier that must be part of the chain
    #[arg(long, value_name = "SHA-256")]
    anchor: Option<Hash>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, clap::Args)]
struct ShowArgs {
    /// First time
    #[arg(long, value_parser = time)]
    from: Option<Span>,
    /// Last time
    #[arg(long, value_parser = time)]
    to: Option<Span>,
    /// Public address
    #[arg(long, value_name = "ADDRESS")]
    outside: Option<Ipv4Addr>,
    #[command(flatten)]
    store: StoreArgs,
}

/// # Errors
/// Returns an error if the log cannot be read.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        Command::Verify(args) => Ok(or_unknown(verify(&args))),
        Command::Show(args) => show(&args),
    }
}

/// Exit status if the log cannot tell.
pub(crate) const UNKNOWN: u8 = 3;

/// Exit status of a question. Without an answer the truth is unknown: exit status 1 is an answer.
pub(crate) fn or_unknown(answer: anyhow::Result<ExitCode>) -> ExitCode {
    answer.unwrap_or_else(|error| {
        eprintln!("gatun: UNKNOWN: {error:#}");
        ExitCode::from(UNKNOWN)
    })
}

/// Attempts to read a log while its last write is in progress, and the time between them.
const READS: usize = 4;
const READ_AGAIN: Duration = Duration::from_millis(300);

fn verify(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let mut verification = args.store.open()?.verify(args.anchor)?;
    for _ in 1..READS {
        if verification.unknown.is_empty() || !verification.faults.is_empty() {
            break;
        }
        std::thread::sleep(READ_AGAIN);
        verification = args.store.open()?.verify(args.anchor)?;
    }
    let text = match args.json {
        true => format!("{:#}\n", serde_json::to_value(&verification)?),
        false => report(&verification),
    };
    super::print_bytes(text.as_bytes())?;
    Ok(match (verification.faults.is_empty(), verification.unknown.is_empty()) {
        (true, true) => ExitCode::SUCCESS,
        (true, false) => ExitCode::from(UNKNOWN),
        (false, _) => ExitCode::FAILURE,
    })
}

fn report(v: &Verification) -> String {
    let times = v.times_ms.map_or_else(
        || "empty".to_owned(),
        |(first, last)| format!("from {} to {}", rfc3339(first), rfc3339(last)),
    );
    let (records, segments) = (counted(v.records, "record"), counted(v.segments, "sealed file"));
    let mut out = format!("{records} in {segments} and the current one, {times}\n");
    for note in &v.notes {
        out += &format!("note: {note}\n");
    }
    for fault in &v.faults {
        out += &format!("FAULT: {fault}\n");
    }
    for unknown in &v.unknown {
        out += &format!("UNKNOWN: {unknown}\n");
    }
    if let Some(hash) = v.last_sealed {
        out += &format!("last sealed file: SHA-256 {hash}\n");
    }
    out += &match (v.faults.len(), v.unknown.is_empty()) {
        (0, true) => format!("unchanged; head {}\n", v.head),
        (0, false) => {
            format!("UNKNOWN whether the end was changed; no fault before it; head {}\n", v.head)
        }
        (n, _) => format!("{}: the log was changed or damaged\n", counted(n as u64, "fault")),
    };
    out
}

/// Reason to stop printing.
enum ShowError {
    Log(LogError),
    Output(std::io::Error),
}

impl From<LogError> for ShowError {
    fn from(error: LogError) -> ShowError {
        ShowError::Log(error)
    }
}

fn show(args: &ShowArgs) -> anyhow::Result<ExitCode> {
    let span = (args.from.map_or(0, |from| from.from_ms), args.to.map_or(u64::MAX, |to| to.from_ms));
    let reader = args.store.open()?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let each = |entry: Entry<'_>| {
        let line = match entry {
            Entry::Record(r, _) if args.outside.is_some_and(|outside| outside != r.outside) => return Ok(()),
            Entry::Mark(_) if args.outside.is_some() => return Ok(()),
            Entry::Record(record, plan) => line_of_record(record, plan),
            Entry::Mark(mark) => line_of_mark(mark),
        };
        writeln!(out, "{line}").map_err(ShowError::Output)
    };
    let shown = reader.show(span, each);
    let flushed = out.flush().map_err(ShowError::Output);
    match shown.and_then(|damage| flushed.map(|()| damage)) {
        Ok(damage) if !damage.is_empty() => {
            damage.iter().for_each(|damage| eprintln!("FAULT: {damage}"));
            Ok(ExitCode::FAILURE)
        }
        Err(ShowError::Log(error)) => Err(anyhow!(error)),
        Err(ShowError::Output(error)) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Names of the instance and the pool come from the configuration of that time; `null` if the log lacks it.
fn line_of_record(r: &Record, plan: Option<&PlanInForce>) -> String {
    let instance = plan.and_then(|plan| Some(&plan.instances.get(usize::from(r.instance))?.name));
    let pool = plan.and_then(|plan| Some(&plan.pools.get(usize::from(r.pool))?.name));
    let protocols: Vec<&str> = Transport::of_bits(r.transports).map(Transport::name).collect();
    let inside = r.inside.to_ipv4_mapped().map_or_else(|| r.inside.to_string(), |v4| v4.to_string());
    let mut line = json!({
        "time": rfc3339(r.at_ms), "event": r.kind.name(), "protocols": protocols, "outside": r.outside,
        "inside": inside, "instance": instance, "pool": pool,
    });
    if let Some(line) = line.as_object_mut() {
        match r.kind.is_block() {
            true => drop(line.insert("outside_ports".to_owned(), json!([r.first, r.last]))),
            false => {
                line.insert("outside_port".to_owned(), json!(r.first));
                line.insert("inside_port".to_owned(), json!(r.inside_port));
            }
        }
    }
    line.to_string()
}

fn line_of_mark(mark: &Mark) -> String {
    let mut line = json!({ "time": rfc3339(mark.at_ms()) });
    if let (Some(line), Ok(serde_json::Value::Object(fields))) =
        (line.as_object_mut(), serde_json::to_value(mark))
    {
        line.extend(fields.into_iter().filter(|(name, _)| name != "at_ms"));
    }
    line.to_string()
}
