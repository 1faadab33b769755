//! `gatun man`: manual pages for packages.

use crate::cli::Cli;
use anyhow::Context as _;
use clap::CommandFactory as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory for gatun.1, gatun-run.1, ...; created if it does not exist
    dir: PathBuf,
}

/// Writes a page for each command.
///
/// # Errors
/// The directory cannot be written to.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    let context = || format!("cannot write manual pages into {}", args.dir.display());
    std::fs::create_dir_all(&args.dir).with_context(context)?;
    clap_mangen::generate_to(Cli::command(), &args.dir).with_context(context)?;
    Ok(ExitCode::SUCCESS)
}
