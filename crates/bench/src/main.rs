//! `gatun-bench`: measures this machine, and shows Gatun at work on it. Every figure in the project's documents comes from
//! here. It is part of the repository; packages contain `gatun` alone.
#![forbid(unsafe_code)]

mod churn;
mod connections;
mod demo;
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

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[cfg(test)]
mod documented;

/// Counts allocations while packets are translated.
#[global_allocator]
static ALLOCATOR: gatun_mem::Counting<std::alloc::System> = gatun_mem::Counting(std::alloc::System);

/// Measures the engine on this machine, and shows Gatun at work.
#[derive(Debug, Parser)]
#[command(name = "gatun-bench", version, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
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
    /// Show Gatun at work between network namespaces of this machine
    Demo(demo::command::Args),
}

fn main() -> ExitCode {
    execute(Cli::parse().command).unwrap_or_else(|error| {
        eprintln!("gatun-bench: {error:#}");
        ExitCode::FAILURE
    })
}

/// # Errors
/// Where the engine cannot be built, what it makes is wrong, or the demo cannot run.
fn execute(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Engine(args) => engine::execute(&args)?,
        Command::Connections(args) => connections::execute(&args)?,
        Command::Scale(args) => scale::execute(&args)?,
        Command::Handover(args) => handover::execute(&args)?,
        Command::Restart(args) => restart::execute(&args)?,
        Command::Study(args) => study::execute(&args)?,
        Command::Demo(args) => return demo::command::execute(args),
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_grammar_contradicts_itself_nowhere() {
        Cli::command().debug_assert();
    }
}
