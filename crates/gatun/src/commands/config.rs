//! `gatun config`: shows, compares, applies and rolls back the configuration of a running daemon.

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
  gatun config diff new.toml                 preview it
  gatun config apply new.toml --confirm 60s  try it for 60 seconds
  gatun config confirm                       keep it
  gatun config rollback                      return to the previous one
  gatun config history
  gatun config show --revision 5f2c > old.toml

The daemon checks the whole configuration, compares it with the running one, and applies \
all of it between two packets or nothing. It then replaces its file as a whole; with \
--confirm, only once the configuration is confirmed: until then, a restart runs the \
previous configuration. If the running configuration is not the one that was compared, or if the \
file was edited meanwhile, nothing changes.

Exit status of diff: 0 if the configuration can be applied, 1 if not.
";

/// Digits of a revision that are shown.
const SHORT: usize = 12;
/// Maximum number of lines of one kind; further lines are counted.
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
    /// Show the running configuration, or an earlier one
    Show {
        /// Earlier configuration, by the beginning of its revision
        #[arg(long, value_name = "REVISION")]
        revision: Option<String>,
        /// Output format
        #[arg(long, short, value_enum, default_value = "table")]
        output: Output,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Preview a configuration: changes, sessions that end, restarts
    Diff {
        /// Configuration file; `-` is standard input [default: the daemon's file, on this host]
        file: Option<PathBuf>,
        /// Output format
        #[arg(long, short, value_enum, default_value = "table")]
        output: Output,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Apply a configuration to the running daemon and to its file
    Apply {
        /// Configuration file; `-` is standard input
        file: PathBuf,
        #[command(flatten)]
        options: ChangeOptions,
    },
    /// Keep the configuration that awaits confirmation
    Confirm {
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Return to the previous configuration, or to another one of the history
    Rollback {
        /// Configuration, by the beginning of its revision [default: the previous one]
        revision: Option<String>,
        #[command(flatten)]
        options: ChangeOptions,
    },
    /// List earlier configurations
    History {
        /// Output format
        #[arg(long, short, value_enum, default_value = "table")]
        output: Output,
        #[command(flatten)]
        daemon: Daemon,
    },
}

/// Options of a change.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ChangeOptions {
    /// Roll back unless it is confirmed within this time: 60s, 10m
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(crate) confirm: Option<u32>,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    pub(crate) daemon: Daemon,
}

/// # Errors
/// Returns an error if the daemon does not answer or refuses the request.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Show { revision, output, daemon } => show(&daemon.client()?, revision, output),
        Command::Diff { file, output, daemon } => diff(&daemon.client()?, file.as_deref(), output),
        Command::Apply { file, options } => {
            let client = options.daemon.client()?;
            apply(&client, read(&file)?, &file.display().to_string(), &options)
        }
        Command::Confirm { daemon } => confirm(&daemon.client()?),
        Command::Rollback { revision, options } => roll_back(&options.daemon.client()?, revision, &options),
        Command::History { output, daemon } => {
            let past: Vec<ConfigPast> = daemon.client()?.get("/v1/config/history")?;
            super::print_bytes(&show::all(&past, output)?)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Parses a time: a number of seconds, or one with the unit `s`, `m` or `h`.
fn seconds(text: &str) -> Result<u32, String> {
    let (number, unit) = match text.char_indices().find(|(_, c)| !c.is_ascii_digit()) {
        None => (text, 1),
        Some((at, 's')) if at + 1 == text.len() => (&text[..at], 1),
        Some((at, 'm')) if at + 1 == text.len() => (&text[..at], 60),
        Some((at, 'h')) if at + 1 == text.len() => (&text[..at], 3600),
        Some(_) => ("", 1),
    };
    let seconds = number.parse::<u32>().ok().and_then(|number| number.checked_mul(unit));
    seconds.filter(|s| (1..=86_400).contains(s)).ok_or_else(|| "expected a time from 1s to 24h".to_owned())
}

pub(crate) fn read(file: &Path) -> anyhow::Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
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
                eprintln!("gatun: not confirmed; rollback to revision {before} in {left} s");
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

/// Shows the preview, asks for confirmation, and applies a configuration.
fn apply(client: &Client, text: String, name: &str, options: &ChangeOptions) -> anyhow::Result<ExitCode> {
    let running: Config = client.get("/v1/config")?;
    let body = body(text)?;
    let plan = client.ask("POST", "/v1/config/plan", &body)?;
    match preview_and_ask(&plan, &running, (name, "Apply it?"), options)? {
        Decision::Yes => {}
        Decision::Nothing => return Ok(ExitCode::SUCCESS),
        Decision::No => return Ok(ExitCode::FAILURE),
    }
    let target = with_query("/v1/config/apply", &query(&running.revision, options));
    let done: ConfigApplied = client.ask("POST", &target, &body)?;
    tell(&done)
}

/// Answer to a request for confirmation.
pub(crate) enum Decision {
    Yes,
    No,
    /// There is nothing to do.
    Nothing,
}

/// Shows the plan for a configuration called `name`, and asks for confirmation.
///
/// # Errors
/// Returns an error if the plan cannot be applied, or if standard input is not a terminal.
pub(crate) fn preview_and_ask(
    plan: &ConfigPlan,
    running: &Config,
    (name, question): (&str, &str),
    options: &ChangeOptions,
) -> anyhow::Result<Decision> {
    eprint!("{}", in_words(plan, (&running.file, name)));
    if !plan.applicable {
        bail!("nothing has changed");
    }
    if plan.revision == plan.running {
        return Ok(Decision::Nothing);
    }
    if plan.running != running.revision {
        bail!("the configuration changed meanwhile; try again");
    }
    if !options.yes && !confirmed(question)? {
        eprintln!("gatun: nothing has changed");
        return Ok(Decision::No);
    }
    Ok(Decision::Yes)
}

pub(crate) fn query(revision: &str, options: &ChangeOptions) -> Vec<(&'static str, String)> {
    let confirm = options.confirm.map(|seconds| ("confirm_seconds", seconds.to_string()));
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
        format!("revision {} confirmed and written to {}\n", short(&done.revision), done.file).as_bytes(),
    )?;
    Ok(ExitCode::SUCCESS)
}

fn roll_back(client: &Client, to: Option<String>, options: &ChangeOptions) -> anyhow::Result<ExitCode> {
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
        match preview_and_ask(&plan, &running, (&name, "Roll back to it?"), options)? {
            Decision::Yes => {}
            Decision::Nothing => return Ok(ExitCode::SUCCESS),
            Decision::No => return Ok(ExitCode::FAILURE),
        }
    }
    let mut query = query(&running.revision, options);
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
        None => format!("revision {revision} is running and written to {file}; {ended}\n"),
        Some(seconds) => format!(
            "revision {revision} is running; {ended}\nrollback to revision {} in {seconds} s, or at a restart, unless confirmed: gatun config confirm\n",
            short(&done.before)
        ),
    };
    done.notes.iter().for_each(|note| text += &format!("{note}\n"));
    super::print_bytes(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// First digits of a revision.
fn short(revision: &str) -> &str {
    revision.get(..SHORT).unwrap_or(revision)
}

/// Text of a plan. `own` is the daemon's name of the configuration, and `name` the user's.
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
        let _ = writeln!(
            out,
            "no changes: {name} is the running configuration (revision {})",
            short(&plan.running)
        );
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
    list("ends:", &plan.ends);
    list("needs a restart, so `apply` is refused:", &plan.restarts);
    if plan.applicable && plan.changes.is_empty() && plan.ends.is_empty() {
        let _ = writeln!(out, "no changes except the text");
    }
    let mut figure = |what: &str, Figure { before, after }: &Figure| {
        if before != after {
            let _ = writeln!(out, "{what}: {} -> {}", Bytes(*before), Bytes(*after));
        }
    };
    figure("memory with full tables", &plan.memory_bytes);
    figure("log per day, at most", &plan.log_bytes_a_day);
    figure("events per day, at most", &plan.events_bytes_a_day);
    if plan.applicable {
        let _ = match (plan.sessions, plan.subscribers) {
            (Some(sessions @ 1..), Some(subscribers)) => writeln!(
                out,
                "would end {} of {} (at this moment)",
                counted(sessions, "session"),
                counted(subscribers, "subscriber")
            ),
            (Some(_), _) => writeln!(out, "would end no session"),
            (None, _) => writeln!(out, "the sessions that would end could not be counted in time"),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed_with_and_without_units() {
        assert_eq!(["60s", "10m", "24h", "5"].map(seconds), [Ok(60), Ok(600), Ok(86_400), Ok(5)]);
        for wrong in ["", "s", "0s", "25h", "1.5m", "1ms", "-3", "99999999999h"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
