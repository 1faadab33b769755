//! `gatun man`: the manual pages, for packages.

use crate::cli::Cli;
use anyhow::Context as _;
use clap::CommandFactory as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory for gatun.1, gatun-run.1, ...; made if it does not exist
    dir: PathBuf,
}

/// Writes one page a command.
///
/// # Errors
/// Where the directory cannot be written to.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    let whose = || format!("cannot write manual pages into {}", args.dir.display());
    std::fs::create_dir_all(&args.dir).with_context(whose)?;
    clap_mangen::generate_to(Cli::command(), &args.dir).with_context(whose)?;
    Ok(ExitCode::SUCCESS)
}
