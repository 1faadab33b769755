//! `gatun`: the daemon and the command line, thin over the other crates.
#![forbid(unsafe_code)]

mod cli;
mod commands;

use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let result = cli::Cli::parse().command.execute();
    result.unwrap_or_else(|error| {
        eprintln!("gatun: {error:#}");
        ExitCode::FAILURE
    })
}
