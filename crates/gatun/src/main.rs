//! `gatun`: the daemon and the command line, thin over the other crates.
#![forbid(unsafe_code)]

mod cli;
mod commands;
mod daemon;
mod demo;
mod doctor;
mod offline;
mod pcapng;
mod replace;
mod show;
mod tables;

use clap::Parser as _;
use std::process::ExitCode;

/// `gatun bench` counts allocations; everything else leaves the count off.
#[global_allocator]
static ALLOCATOR: gatun_mem::Counting<std::alloc::System> = gatun_mem::Counting(std::alloc::System);

fn main() -> ExitCode {
    let result = cli::Cli::parse().command.execute();
    result.unwrap_or_else(|error| {
        eprintln!("gatun: {error:#}");
        ExitCode::FAILURE
    })
}
