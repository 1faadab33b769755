//! `gatun run`: translates packets until told to stop.

use std::process::ExitCode;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// # Errors
/// Always, so far.
pub(crate) fn execute(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("`gatun run` is not in this version yet")
}
