//! `gatun snapshot`: saves the sessions of a daemon to a file, and loads them for the next daemon, possibly
//! on another host.
//!
//! ```text
//!   {"gatun_snapshot": 1, "names": {...}, "sessions": N}      names of the numbers in sessions
//!   {"instance": 0, "inside": ["2001:db8::5", 1234], ...}     one per line
//! ```

use anyhow::{Context as _, anyhow, bail, ensure};
use gatun_daemon::state::{self, Directory, Names};
use gatun_daemon::tables::{counted, group};
use gatun_daemon::takeover;
use gatun_nat::plan::Transport;
use gatun_nat::session_file::{self, Ownership, SavedSession};
use gatun_nat::tcp_fsm::TcpState;
use gatun_nat::workers::WORKERS_MAX;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Version of the format.
const VERSION: u32 = 1;

const EXAMPLES: &str = "\
Examples:
  gatun snapshot save sessions.json      of the running daemon, or the last one
  gatun snapshot load sessions.json      before the next daemon starts
  gatun snapshot save - | ssh other gatun snapshot load -
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
    /// Save sessions to a file; the daemon keeps running
    Save(StateArgs),
    /// Load sessions for the next daemon, as far as its configuration allows
    Load(StateArgs),
}

#[derive(Debug, clap::Args)]
struct StateArgs {
    /// File; `-` is standard output or input
    file: PathBuf,
    /// State directory, as in `[state] directory`
    #[arg(long, value_name = "DIRECTORY", default_value = state::USUAL)]
    state: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Head {
    gatun_snapshot: u32,
    names: Names,
    sessions: usize,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    instance: u8,
    pool6: u8,
    protocol: String,
    inside: (Ipv6Addr, u16),
    outside: (Ipv4Addr, u16),
    remote: (Ipv4Addr, u16),
    state: String,
    expires_ms: u32,
    shares_port: bool,
}

/// # Errors
/// Returns an error if there is nothing to save, or if the snapshot is invalid.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        Command::Save(at) => save(&at)?,
        Command::Load(at) => load(&at)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn save(at: &StateArgs) -> anyhow::Result<()> {
    let sources = state::read(&at.state).map_err(|why| anyhow!("{why}"))?;
    let names = &sources.first().with_context(|| format!("{} is empty", at.state.display()))?.0;
    let mut sessions = Vec::new();
    let mut seen = HashSet::new();
    // A session that moves from an earlier process's files to the daemon's meanwhile is found twice, never
    // missed.
    for (of, files) in sources.iter().rev() {
        let numbers = takeover::numbers(&of.instances, &names.instances);
        for file in files {
            let kept = takeover::read(file).map_err(|why| anyhow!("{}: {why}", at.state.display()))?;
            let live = kept.sessions().filter(|saved| !saved.quarantined);
            let found = live.filter_map(|saved| numbers.translate(saved));
            let is_new = |s: &SavedSession| seen.insert((s.instance, s.transport as u8, s.inside, s.remote));
            match sources.len() {
                1 => sessions.extend(found),
                _ => sessions.extend(found.filter(is_new)),
            }
        }
    }
    let written = |out: &mut dyn Write| -> anyhow::Result<()> {
        let head = Head {
            gatun_snapshot: VERSION,
            names: Names { earlier: Vec::new(), ..names.clone() },
            sessions: sessions.len(),
        };
        let mut out = BufWriter::new(out);
        writeln!(out, "{}", serde_json::to_string(&head)?)?;
        for saved in &sessions {
            writeln!(out, "{}", serde_json::to_string(&Line::of(saved))?)?;
        }
        Ok(out.flush()?)
    };
    if at.file.as_os_str() == "-" {
        return written(&mut std::io::stdout().lock());
    }
    let cannot = || format!("cannot write {}", at.file.display());
    let mut file = File::create(&at.file).with_context(cannot)?;
    written(&mut file).with_context(cannot)?;
    file.sync_all().with_context(cannot)?;
    eprintln!("{} saved", counted(sessions.len() as u64, "session"));
    Ok(())
}

fn load(at: &StateArgs) -> anyhow::Result<()> {
    let (mut names, sessions) = match at.file.as_os_str() == "-" {
        true => parse("standard input", BufReader::new(std::io::stdin().lock()))?,
        false => {
            let file = File::open(&at.file).with_context(|| format!("cannot read {}", at.file.display()))?;
            parse(&at.file.display().to_string(), BufReader::new(file))?
        }
    };
    let n = sessions.len();
    names.workers = names.workers.max(1);
    // The next daemon distributes the sessions: the first worker holds all of them.
    let bytes = session_file::bytes_of(n) + (names.workers as u64 - 1) * session_file::bytes_of(0);
    let directory = hold(&at.state, bytes)?;
    let there = directory.names();
    names.generation = there.as_ref().map_or(0, |there| there.generation + 1);
    let now_ms = takeover::clock_ms();
    let written = (0..names.workers).try_for_each(|worker| {
        let some = if worker == 0 { &sessions[..] } else { &[] };
        let file = directory.new_records(names.generation, worker, session_file::bytes_of(some.len()))?;
        anyhow::Ok(session_file::write(file.as_fd(), some, now_ms)?)
    });
    if let Err(error) = written.and_then(|()| Ok(directory.set_names(&names)?)) {
        directory.remove_all_but(&there.unwrap_or_default());
        return Err(error.context("the snapshot was not loaded; nothing was changed"));
    }
    directory.remove_all_but(&names);
    eprintln!("{} loaded; the next gatun run restores them", counted(n as u64, "session"));
    Ok(())
}

fn hold(path: &Path, bytes: u64) -> anyhow::Result<Directory> {
    let opened = Directory::open(path, bytes, None);
    opened.map_err(|why| anyhow!("{why}; stop the daemon first"))
}

/// Parses a snapshot.
fn parse(name: &str, text: impl std::io::BufRead) -> anyhow::Result<(Names, Vec<SavedSession>)> {
    let mut lines = text.lines().enumerate();
    let (_, first) = lines.next().with_context(|| format!("{name} is empty"))?;
    let head: Head = serde_json::from_str(&first?).with_context(|| format!("{name}:1: not a snapshot"))?;
    if head.gatun_snapshot != VERSION {
        bail!(
            "{name}: unsupported snapshot version {} (this build reads version {VERSION})",
            head.gatun_snapshot
        );
    }
    let workers = head.names.workers;
    ensure!(
        workers <= WORKERS_MAX,
        "{name}:1: invalid snapshot: {}, at most {WORKERS_MAX} are possible",
        counted(workers as u64, "worker")
    );
    let mut sessions = Vec::new();
    for (number, line) in lines {
        let at = || format!("{name}:{}: not a session", number + 1);
        let line: Line = serde_json::from_str(&line.with_context(at)?).with_context(at)?;
        sessions.push(line.saved().with_context(at)?);
    }
    let (has, announced) = (sessions.len(), head.sessions);
    ensure!(
        has == announced,
        "{name}: {} expected, {} found: the file is truncated or was changed",
        counted(announced as u64, "session"),
        group(has as u64)
    );
    Ok((head.names, sessions))
}

impl Line {
    fn of(saved: &SavedSession) -> Line {
        Line {
            instance: saved.instance,
            pool6: saved.pool6,
            protocol: saved.transport.name().to_owned(),
            inside: saved.inside,
            outside: saved.outside,
            remote: saved.remote,
            state: saved.tcp.name().to_owned(),
            expires_ms: saved.expires_ms,
            shares_port: saved.shares_port,
        }
    }

    fn saved(self) -> anyhow::Result<SavedSession> {
        let transport = Transport::named(&self.protocol);
        let tcp = TcpState::ALL.into_iter().find(|state| state.name() == self.state);
        Ok(SavedSession {
            instance: self.instance,
            pool6: self.pool6,
            transport: transport.with_context(|| format!("unknown protocol {:?}", self.protocol))?,
            inside: self.inside,
            outside: self.outside,
            remote: self.remote,
            tcp: tcp.with_context(|| format!("unknown TCP state {:?}", self.state))?,
            expires_ms: self.expires_ms,
            shares_port: self.shares_port,
            // Epochs and fast paths are the other host's.
            ownership: Ownership::default(),
            replica: gatun_nat::session_file::Replica::None,
            quarantined: false,
        })
    }
}
