//! `gatun-bench`: measurements of the engine in RAM, which the project's documents quote. It is part of the repository;
//! packages contain `gatun` alone.
#![forbid(unsafe_code)]

mod churn;
mod connections;
mod driver;
mod engine;
mod handover;
mod measure;
mod packets;
mod plans;
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

/// Measures the engine on this machine
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
}

fn main() -> ExitCode {
    match execute(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gatun-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// # Errors
/// If the engine cannot be built, or its output is wrong.
fn execute(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Engine(args) => engine::execute(&args),
        Command::Connections(args) => connections::execute(&args),
        Command::Scale(args) => scale::execute(&args),
        Command::Handover(args) => handover::execute(&args),
        Command::Restart(args) => restart::execute(&args),
        Command::Study(args) => study::execute(&args),
    }
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
