//! `gatun man`: manual pages for packages.

use anyhow::Context as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory for gatun.1, gatun-run.1, ..., gatun.toml.5; created if it does not exist
    dir: PathBuf,
}

/// Writes a page for each command, and gatun.toml(5).
///
/// # Errors
/// Returns an error if the directory cannot be written.
pub(crate) fn execute(args: Args, command: clap::Command) -> anyhow::Result<ExitCode> {
    let context = || format!("cannot write manual pages into {}", args.dir.display());
    std::fs::create_dir_all(&args.dir).with_context(context)?;
    clap_mangen::generate_to(command, &args.dir).with_context(context)?;
    let file = args.dir.join("gatun.toml.5");
    std::fs::write(file, gatun_config::manual_page(env!("CARGO_PKG_VERSION"))).with_context(context)?;
    Ok(ExitCode::SUCCESS)
}
