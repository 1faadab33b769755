//! `gatun-bench restart`: time until an engine has the sessions of a killed one.

use super::driver::{Kind, Prepared, Setup};
use super::measure::{StartingLine, cpu_model, median, progress, round};
use super::packets::Flows;
use super::plans::{Logged, Ports};
use anyhow::ensure;
use serde::Serialize;
use std::sync::Arc;

const EXAMPLES: &str = "\
Examples:
  gatun-bench restart --sessions 2097152 --subscribers 131072
  gatun-bench restart --kind nat44 --blocks --json
";

/// `gatun-bench restart`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Kind of the sessions
    #[arg(long, value_enum, default_value = "nat64")]
    kind: Kind,
    /// Sessions
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    sessions: u64,
    /// Subscribers of the sessions
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    subscribers: u64,
    /// Allocate the pool's ports in blocks
    #[arg(long)]
    blocks: bool,
    /// Number of restarts; figures are medians over them
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    kind: Kind,
    blocks: bool,
    sessions: u64,
    subscribers: u64,
    /// Time from opening the killed engine's file until the new engine could translate for any session.
    found_ms: f64,
    /// Time until all sessions were in the new engine's tables, without packets meanwhile.
    take_over_ms: f64,
    ns_session: f64,
    /// Packets that the new engines translated with the sessions' previous addresses and ports.
    verified_packets: u64,
    cpu: String,
}

/// Runs `gatun-bench restart`.
///
/// # Errors
/// Returns an error if memory is short, or a session is missing.
pub(super) fn execute(args: &Args) -> anyhow::Result<()> {
    ensure!(args.kind != Kind::Siit, "siit has no sessions");
    let setup = Setup {
        kind: args.kind,
        flows: Flows { count: args.sessions, subscribers: args.subscribers },
        ports: Ports { block_size: args.blocks.then_some(256), ..Ports::default() },
        frame: 128,
        buffers: 16_384,
        events: Logged::None,
        feed: None,
        seed: 1,
    };
    let mut driver = Prepared::new(setup)?.start(Arc::new(StartingLine::new(1)))?;
    let bar = progress(args.rounds, "restarts");
    let (mut file, ..) = driver.start_again(None)?;
    driver.open()?;
    let (mut founds, mut times) = (Vec::new(), Vec::new());
    for round in 1..=args.rounds {
        let (next, found, time) = driver.start_again(Some(&file))?;
        ensure!(driver.nat.occupancy().sessions as u64 == args.sessions, "sessions are missing");
        driver.validate_all()?;
        founds.push(found.as_secs_f64() * 1e3);
        times.push(time.as_secs_f64() * 1e3);
        file = next;
        bar.set_position(round);
    }
    bar.finish_and_clear();
    let take_over_ms = median(times);
    let report = Report {
        kind: args.kind,
        blocks: args.blocks,
        sessions: args.sessions,
        subscribers: args.subscribers,
        found_ms: round(median(founds)),
        take_over_ms: round(take_over_ms),
        ns_session: round(take_over_ms * 1e6 / args.sessions as f64),
        verified_packets: driver.finish()?.verified,
        cpu: cpu_model(),
    };
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
        return Ok(());
    }
    println!(
        "restart, {:?}, {} sessions of {} subscribers",
        report.kind, report.sessions, report.subscribers
    );
    println!("on {}, {} packets verified", report.cpu, report.verified_packets);
    println!("  translates after       {:>10.1} ms", report.found_ms);
    println!("  all restored after     {:>10.1} ms", report.take_over_ms);
    println!("    per session          {:>10.1} ns", report.ns_session);
    Ok(())
}
