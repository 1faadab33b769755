//! `gatun log-level`: how much a running daemon writes to its standard error.

use super::ask::Daemon;
use gatun_api::paths::with_query;
use gatun_api::types::{LogLevel, Logged};
use std::process::ExitCode;

const EXAMPLES: &str = "\
  error   what has failed
  info    and what has changed: the configuration, links, what was ended, by whom (as it is at the start)
  debug   and each request to the API, and how long the steps of a change take

It holds until the daemon ends. Packets have no lines: see `gatun trace`.
";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The level from now on: error, info or debug; where nothing is said, the one that holds is shown
    level: Option<LogLevel>,
    #[command(flatten)]
    daemon: Daemon,
}

/// # Errors
/// Why the daemon does not answer.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    let client = args.daemon.client()?;
    let is: Logged = match args.level {
        None => client.get("/v1/log-level")?,
        Some(level) => {
            client.ask("POST", &with_query("/v1/log-level", &[("level", level.to_string())]), &[])?
        }
    };
    super::print_bytes(format!("{}\n", is.level).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
