//! `gatun-bench peer`: cost of a pair of boxes that tell each other their sessions.
//!
//! Both boxes are in this process, with the threads of the daemon: workers with their engines, and a member
//! each. The members are connected over TCP and TLS on loopback. Only the workers' devices are memory.

mod boxes;
mod certificates;
mod source;
mod steady;
mod sync;

use super::measure::cpu_model;
use super::packets::Flows;
use super::plans::{self, Ports};
use boxes::Setup;
use certificates::Certificates;
use gatun_nat::Plan;
use serde::Serialize;

const EXAMPLES: &str = "\
Examples:
  gatun-bench peer
  gatun-bench peer --part steady --per-second 50000 --json
";

/// Parts of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Both
    All,
    /// All sessions to an empty box
    Sync,
    /// Sessions that begin and end
    Steady,
}

/// `gatun-bench peer`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Part of the measurement
    #[arg(long, value_enum, default_value = "all")]
    part: Part,
    /// Sessions that an empty box gets
    #[arg(long, default_value_t = 2_097_152, value_parser = clap::value_parser!(u64).range(1_000..))]
    sessions: u64,
    /// Subscribers of the sessions
    #[arg(long, default_value_t = 131_072, value_parser = clap::value_parser!(u64).range(16..=4_194_304))]
    subscribers: u64,
    /// Workers of each box
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    workers: u64,
    /// Packets that each worker gets during a synchronisation, per second; 0 means as many as it takes
    #[arg(long, default_value_t = 0)]
    packets: u64,
    /// Seconds of packets before a synchronisation, and after it
    #[arg(long, default_value_t = 2.0)]
    packets_s: f64,
    /// New sessions per second
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    per_second: u64,
    /// Lifetime of a session in seconds, from its only packet on
    #[arg(long, default_value_t = 4.0)]
    lifetime_s: f64,
    /// Seconds of new sessions that are measured, after as many have ended as begin
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Records for which the ring between an engine and its member has room
    #[arg(long, default_value_t = 65_536, value_parser = clap::value_parser!(u64).range(64..=16_777_216))]
    ring: u64,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Results.
#[derive(Debug, Serialize)]
struct Report {
    workers: u64,
    sync: Option<sync::Report>,
    steady: Option<steady::Report>,
    cpu: String,
}

impl Args {
    /// Setup of all boxes of a part. `sessions` is the room of the tables.
    fn common(&self, sessions: u64, lifetime_s: Option<f64>) -> anyhow::Result<Setup> {
        let flows = Flows { count: sessions, subscribers: self.subscribers.min(sessions) };
        let mut plan: Plan = plans::nat64(flows, Ports::default())?;
        // Hashes do not distribute subscribers evenly, and each worker needs an address.
        for range in plan.pools.iter_mut().flat_map(|pool| &mut pool.ranges) {
            range.last = (u32::from(range.last) + self.workers as u32).into();
        }
        plan.limits.sessions_max += if self.workers > 1 { plan.limits.sessions_max / 4 } else { 0 };
        plan.limits.sessions_per_subscriber *= 4;
        plan.limits.ports_per_subscriber *= 4;
        if let (Some(lifetime_s), Some(instance)) = (lifetime_s, plan.nat64.first_mut()) {
            instance.timeouts.udp_ms = (lifetime_s * 1e3) as u32;
        }
        let (workers, ring) = (self.workers as usize, self.ring as usize);
        Ok(Setup { plan, flows, workers, ring, certificates: Certificates::new()? })
    }
}

/// Runs `gatun-bench peer`.
///
/// # Errors
/// Returns an error if memory is short, or a session is lost.
pub(super) fn execute(args: &Args) -> anyhow::Result<()> {
    let report = Report {
        workers: args.workers,
        sync: (args.part != Part::Steady).then(|| sync::measure(args)).transpose()?,
        steady: (args.part != Part::Sync).then(|| steady::measure(args)).transpose()?,
        cpu: cpu_model(),
    };
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
        return Ok(());
    }
    println!("pair of boxes, nat64, workers of each: {}, on {}", report.workers, report.cpu);
    report.sync.iter().for_each(sync::Report::print);
    report.steady.iter().for_each(steady::Report::print);
    Ok(())
}
