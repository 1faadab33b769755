//! `gatun`: the command line.
#![forbid(unsafe_code)]

mod cli;
mod commands;
mod doctor;
mod offline;
mod show;

use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    if gatun_daemon::is_network_helper() {
        return gatun_daemon::serve_as_network_helper();
    }
    let result = cli::Cli::parse().command.execute();
    result.unwrap_or_else(|error| {
        eprintln!("gatun: {error:#}");
        ExitCode::FAILURE
    })
}
