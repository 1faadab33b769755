//! `gatun config`: the configuration of a running daemon, shown, compared, changed, and changed back.

use super::ask::Daemon;
use super::confirmed;
use crate::show::{self, Output};
use anyhow::{Context as _, bail};
use gatun_api::client::Client;
use gatun_api::paths::with_query;
use gatun_api::types::{
    Config, ConfigApplied, ConfigPast, ConfigPlan, ConfigProblem, ConfigText, Figure, Severity,
};
use gatun_config::Bytes;
use gatun_daemon::tables::{counted, group};
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  gatun config diff new.toml                    what would happen
  gatun config apply new.toml --confirm 60s     try it: without a confirmation, all is as before after 60 s
  gatun config confirm                          keep it
  gatun config rollback                         back to the configuration before
  gatun config history
  gatun config show --revision 5f2c > old.toml

A configuration is checked as a whole, compared with the one that runs, and put in place between two packets,
or not at all. The daemon's file is replaced as a whole, too; with --confirm when it is confirmed: until then, a
restart runs the one before. Where another configuration runs than was looked at, or the file was changed by
hand meanwhile, nothing happens.

Exit code of diff: 0 where it could be applied, 1 where it could not.
";

/// Revisions are shown by so many digits.
const SHORT: usize = 12;
/// Lines of one kind that are shown; more are counted.
const LINES_MAX: usize = 40;

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show the configuration that runs, or one that ran before
    Show {
        /// One that ran before, by the beginning of its revision
        #[arg(long, value_name = "REVISION")]
        revision: Option<String>,
        /// How
        #[arg(long, short, value_enum, default_value = "table")]
        output: Output,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Say what would happen if a configuration were applied
    Diff {
        /// The configuration; - for standard input; the daemon's own file, of this host, where nothing is said
        file: Option<PathBuf>,
        /// How
        #[arg(long, short, value_enum, default_value = "table")]
        output: Output,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Put a configuration in place, in the running daemon and in its file
    Apply {
        /// The configuration; - for standard input
        file: PathBuf,
        #[command(flatten)]
        how: How,
    },
    /// Keep the configuration that waits for that
    Confirm {
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Go back to the configuration before, or to another one of the history
    Rollback {
        /// Which one, by the beginning of its revision
        revision: Option<String>,
        #[command(flatten)]
        how: How,
    },
    /// List configurations that ran before
    History {
        /// How
        #[arg(long, short, value_enum, default_value = "table")]
        output: Output,
        #[command(flatten)]
        daemon: Daemon,
    },
}

/// Options of a change.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct How {
    /// Go back by itself unless `gatun config confirm` comes within this time: 60s, 10m
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    confirm: Option<u32>,
    /// Do not ask whether what would happen is meant
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    pub(crate) daemon: Daemon,
}

/// # Errors
/// If the daemon does not answer or refuses.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Show { revision, output, daemon } => show(&daemon.client()?, revision, output),
        Command::Diff { file, output, daemon } => diff(&daemon.client()?, file.as_deref(), output),
        Command::Apply { file, how } => {
            let client = how.daemon.client()?;
            apply(&client, read(&file)?, &file.display().to_string(), &how)
        }
        Command::Confirm { daemon } => confirm(&daemon.client()?),
        Command::Rollback { revision, how } => roll_back(&how.daemon.client()?, revision, &how),
        Command::History { output, daemon } => {
            let past: Vec<ConfigPast> = daemon.client()?.get("/v1/config/history")?;
            super::print_bytes(&show::all(&past, output)?)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Seconds, with `s`, `m`, `h` or nothing behind.
fn seconds(text: &str) -> Result<u32, String> {
    let (number, unit) = match text.char_indices().find(|(_, c)| !c.is_ascii_digit()) {
        None => (text, 1),
        Some((at, 's')) if at + 1 == text.len() => (&text[..at], 1),
        Some((at, 'm')) if at + 1 == text.len() => (&text[..at], 60),
        Some((at, 'h')) if at + 1 == text.len() => (&text[..at], 3600),
        Some(_) => ("", 1),
    };
    let seconds = number.parse::<u32>().ok().and_then(|number| number.checked_mul(unit));
    seconds.filter(|s| (1..=86_400).contains(s)).ok_or_else(|| "write a time from 1s to 24h".to_owned())
}

fn read(file: &Path) -> anyhow::Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("standard input cannot be read")?;
        return Ok(text);
    }
    std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))
}

pub(crate) fn body(text: String) -> anyhow::Result<Vec<u8>> {
    Ok(serde_json::to_vec(&ConfigText { text })?)
}

fn show(client: &Client, revision: Option<String>, output: Output) -> anyhow::Result<ExitCode> {
    let query: Vec<_> = revision.into_iter().map(|revision| ("revision", revision)).collect();
    let config: Config = client.get(&with_query("/v1/config", &query))?;
    match output {
        Output::Table => {
            if let Some(waits) = &config.unconfirmed {
                let (left, before) = (waits.seconds_left, short(&waits.before));
                eprintln!("gatun: not confirmed: in {left} s, revision {before} comes back");
            }
            super::print_bytes(config.text.as_bytes())?;
        }
        output => super::print_bytes(&show::one(&config, output)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn diff(client: &Client, file: Option<&Path>, output: Output) -> anyhow::Result<ExitCode> {
    let (text, name) = match file {
        Some(file) => (read(file)?, file.display().to_string()),
        None => {
            let file = client.get::<Config>("/v1/config")?.file;
            (read(Path::new(&file))?, file)
        }
    };
    let plan: ConfigPlan = client.ask("POST", "/v1/config/plan", &body(text)?)?;
    let own = client.get::<Config>("/v1/config")?.file;
    match output {
        Output::Table => super::print_bytes(in_words(&plan, (&own, &name)).as_bytes())?,
        output => super::print_bytes(&show::as_json(&plan, output)?)?,
    }
    Ok(if plan.applicable { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Says what would happen, and asks whether that is meant; then has it done.
fn apply(client: &Client, text: String, name: &str, how: &How) -> anyhow::Result<ExitCode> {
    let running: Config = client.get("/v1/config")?;
    let body = body(text)?;
    let plan = client.ask("POST", "/v1/config/plan", &body)?;
    match is_meant(&plan, &running, (name, "Apply it?"), how)? {
        Meant::Yes => {}
        Meant::Nothing => return Ok(ExitCode::SUCCESS),
        Meant::No => return Ok(ExitCode::FAILURE),
    }
    let target = with_query("/v1/config/apply", &query(&running.revision, how));
    let done: ConfigApplied = client.ask("POST", &target, &body)?;
    tell(&done)
}

/// Answer to a request for confirmation.
pub(crate) enum Meant {
    Yes,
    No,
    /// There is nothing to do.
    Nothing,
}

/// Shows the plan for a configuration called `name`, and asks.
///
/// # Errors
/// A plan that cannot be applied, or nobody who could be asked.
pub(crate) fn is_meant(
    plan: &ConfigPlan,
    running: &Config,
    (name, question): (&str, &str),
    how: &How,
) -> anyhow::Result<Meant> {
    eprint!("{}", in_words(plan, (&running.file, name)));
    if !plan.applicable {
        bail!("nothing has changed");
    }
    if plan.revision == plan.running {
        return Ok(Meant::Nothing);
    }
    if plan.running != running.revision {
        bail!("the configuration changed meanwhile; try again");
    }
    if !how.yes && !confirmed(question)? {
        eprintln!("gatun: nothing has changed");
        return Ok(Meant::No);
    }
    Ok(Meant::Yes)
}

pub(crate) fn query(revision: &str, how: &How) -> Vec<(&'static str, String)> {
    let confirm = how.confirm.map(|seconds| ("confirm_seconds", seconds.to_string()));
    std::iter::once(("revision", revision.to_owned())).chain(confirm).collect()
}

fn confirm(client: &Client) -> anyhow::Result<ExitCode> {
    let running: Config = client.get("/v1/config")?;
    if running.unconfirmed.is_none() {
        bail!("no configuration awaits confirmation");
    }
    let query = [("revision", running.revision)];
    let done: ConfigApplied = client.ask("POST", &with_query("/v1/config/confirm", &query), &[])?;
    super::print_bytes(
        format!("{} is written: revision {} stays\n", done.file, short(&done.revision)).as_bytes(),
    )?;
    Ok(ExitCode::SUCCESS)
}

fn roll_back(client: &Client, to: Option<String>, how: &How) -> anyhow::Result<ExitCode> {
    let running: Config = client.get("/v1/config")?;
    if running.unconfirmed.is_none() {
        let to = match &to {
            Some(to) => to.clone(),
            None => {
                let past: Vec<ConfigPast> = client.get("/v1/config/history")?;
                past.first().context("no previous configuration is known")?.revision.clone()
            }
        };
        let before: Config = client.get(&with_query("/v1/config", &[("revision", to.clone())]))?;
        let name = format!("revision {}", short(&before.revision));
        let plan = client.ask("POST", "/v1/config/plan", &body(before.text)?)?;
        match is_meant(&plan, &running, (&name, "Go back to it?"), how)? {
            Meant::Yes => {}
            Meant::Nothing => return Ok(ExitCode::SUCCESS),
            Meant::No => return Ok(ExitCode::FAILURE),
        }
    }
    let mut query = query(&running.revision, how);
    query.extend(to.map(|to| ("to", to)));
    let done: ConfigApplied = client.ask("POST", &with_query("/v1/config/rollback", &query), &[])?;
    tell(&done)
}

/// Summary of an applied change.
pub(crate) fn tell(done: &ConfigApplied) -> anyhow::Result<ExitCode> {
    let ended = format!(
        "ended: {}, {}, {}",
        counted(done.sessions, "session"),
        counted(done.bindings, "binding"),
        counted(done.blocks, "port block")
    );
    let (revision, file) = (short(&done.revision), &done.file);
    let mut text = match done.confirm_within_seconds {
        None => format!("revision {revision} runs, and is in {file}; {ended}\n"),
        Some(seconds) => format!(
            "revision {revision} runs; {ended}\nrevision {} comes back in {seconds} s, and with a restart, unless: gatun config confirm\n",
            short(&done.before)
        ),
    };
    done.notes.iter().for_each(|note| text += &format!("{note}\n"));
    super::print_bytes(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// The beginning of a revision.
fn short(revision: &str) -> &str {
    revision.get(..SHORT).unwrap_or(revision)
}

/// A plan for people. `own` is the daemon's name of the configuration, and `name` the user's.
fn in_words(plan: &ConfigPlan, (own, name): (&str, &str)) -> String {
    let mut out = String::new();
    // Writing to a String does not fail.
    for problem in &plan.problems {
        let ConfigProblem { severity, file, line, column, message, help } = problem;
        let file = if file == own { name } else { file };
        let kind = if *severity == Severity::Error { "error" } else { "warning" };
        let _ = writeln!(out, "{file}:{line}:{column}: {kind}: {message}");
        if let Some(help) = help {
            let _ = writeln!(out, "    help: {help}");
        }
    }
    if plan.revision == plan.running && !plan.revision.is_empty() {
        let _ = writeln!(out, "nothing changes: {name} is what runs (revision {})", short(&plan.running));
        return out;
    }
    let mut list = |title: &str, lines: &[String]| {
        if lines.is_empty() {
            return;
        }
        let _ = writeln!(out, "{title}");
        for line in lines.iter().take(LINES_MAX) {
            let _ = writeln!(out, "  {line}");
        }
        if lines.len() > LINES_MAX {
            let _ = writeln!(out, "  ... and {} more", group((lines.len() - LINES_MAX) as u64));
        }
    };
    list("changes:", &plan.changes);
    list("these end:", &plan.ends);
    list("needs a restart, so that nothing of it can be applied:", &plan.restarts);
    if plan.applicable && plan.changes.is_empty() && plan.ends.is_empty() {
        let _ = writeln!(out, "nothing changes but the text");
    }
    let mut figure = |what: &str, Figure { before, after }: &Figure| {
        if before != after {
            let _ = writeln!(out, "{what}: {} -> {}", Bytes(*before), Bytes(*after));
        }
    };
    figure("memory when all is full", &plan.memory_bytes);
    figure("log a day, at most", &plan.log_bytes_a_day);
    figure("events a day, at most", &plan.events_bytes_a_day);
    if plan.applicable {
        let _ = match (plan.sessions, plan.subscribers) {
            (Some(sessions @ 1..), Some(subscribers)) => writeln!(
                out,
                "this ends {} of {} (as of now)",
                counted(sessions, "session"),
                counted(subscribers, "subscriber")
            ),
            (Some(_), _) => writeln!(out, "this ends no session"),
            (None, _) => writeln!(out, "the number of sessions that end could not be counted in time"),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        assert_eq!(["60s", "10m", "24h", "5"].map(seconds), [Ok(60), Ok(600), Ok(86_400), Ok(5)]);
        for wrong in ["", "s", "0s", "25h", "1.5m", "1ms", "-3", "99999999999h"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
