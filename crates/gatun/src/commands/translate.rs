//! `gatun translate`: translates a capture file.

use std::process::ExitCode;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// # Errors
/// Always, so far.
pub(crate) fn execute(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("`gatun translate` is not in this version yet")
}
