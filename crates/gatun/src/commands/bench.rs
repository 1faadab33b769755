//! `gatun bench`: measures this machine. Every figure in the project's documents comes from here.

mod engine;
mod packets;
mod plans;

use std::process::ExitCode;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// The engine alone: packets in RAM, bursts of 64, no I/O, every packet verified
    Engine(engine::Args),
}

/// # Errors
/// Where the engine cannot be built, or what it makes is wrong.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Engine(args) => engine::execute(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}
