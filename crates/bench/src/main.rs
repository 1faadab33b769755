//! `gatun-bench`: measurements of the engine in RAM, quoted by the project's documents. It is part of the
//! repository; packages contain only `gatun`.
#![forbid(unsafe_code)]

mod churn;
mod connections;
mod driver;
mod engine;
mod handover;
mod measure;
mod packets;
mod peer;
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
    /// Cost of more sessions, more workers and a full pool
    Scale(scale::Args),
    /// Cost of packets that arrive at another worker than the one that has their session
    Handover(handover::Args),
    /// Time until an engine has the sessions of a killed one
    Restart(restart::Args),
    /// Cost of a pair of boxes that tell each other their sessions
    Peer(peer::Args),
    /// Data structures for translations: linear search to cache lines, and Gatun's own
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

/// Runs a command.
///
/// # Errors
/// Returns an error if the engine cannot be built, or its output is wrong.
fn execute(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Engine(args) => engine::execute(&args),
        Command::Connections(args) => connections::execute(&args),
        Command::Scale(args) => scale::execute(&args),
        Command::Handover(args) => handover::execute(&args),
        Command::Restart(args) => restart::execute(&args),
        Command::Peer(args) => peer::execute(&args),
        Command::Study(args) => study::execute(&args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_grammar_is_consistent() {
        Cli::command().debug_assert();
    }
}
