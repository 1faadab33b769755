//! `gatun bench`: measures this machine. Every figure in the project's documents comes from here.

mod churn;
mod connections;
mod driver;
mod engine;
mod handover;
mod measure;
mod packets;
mod plans;
mod plot;
mod restart;
mod scale;
mod study;

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
    /// RFC 9693's figures: establishment and tear-down rates, capacity, throughput at N connections
    Connections(connections::Args),
    /// What more sessions, more workers and a full pool cost
    Scale(scale::Args),
    /// What it costs that a packet comes in at another worker than the one that has its session
    Handover(handover::Args),
    /// How long an engine takes to go on with the sessions of one that was killed
    Restart(restart::Args),
    /// Which structure should hold the translations: linear search to cache lines, beside Gatun's own
    Study(study::Args),
}

/// # Errors
/// Where the engine cannot be built, or what it makes is wrong.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Engine(args) => engine::execute(&args)?,
        What::Connections(args) => connections::execute(&args)?,
        What::Scale(args) => scale::execute(&args)?,
        What::Handover(args) => handover::execute(&args)?,
        What::Restart(args) => restart::execute(&args)?,
        What::Study(args) => study::execute(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}
