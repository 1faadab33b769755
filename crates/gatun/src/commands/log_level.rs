//! `gatun log-level`: shows and sets the log level of a running daemon.

use super::ask::Daemon;
use gatun_api::paths::with_query;
use gatun_api::types::{LogLevel, LogLevelSetting};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Levels:
  error   failures
  info    also changes: configuration, links, cleared sessions (default)
  debug   also each API request, and the duration of each step of a reload

The level applies until the daemon stops. Gatun never logs packets: see `gatun trace`.
";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// New level: error, info or debug; without it, print the current one
    level: Option<LogLevel>,
    #[command(flatten)]
    daemon: Daemon,
}

/// # Errors
/// Returns an error if the daemon does not answer or refuses the request.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    let client = args.daemon.client()?;
    let is: LogLevelSetting = match args.level {
        None => client.get("/v1/log-level")?,
        Some(level) => {
            client.ask("POST", &with_query("/v1/log-level", &[("level", level.to_string())]), &[])?
        }
    };
    super::print_bytes(format!("{}\n", is.level).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
