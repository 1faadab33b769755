//! `gatun-bench peer`: cost of a pair of boxes that tell each other their sessions.
//!
//! Both boxes are in this process, with the threads of the daemon: workers with their engines, and a member
//! each. The members are connected over TCP and TLS on loopback. Only the workers' devices are memory.

mod boxes;
mod certificates;
mod figures;
mod source;
mod steady;
mod sync;
mod takeover;

use super::measure::{cpu_model, progress};
use super::packets::Flows;
use super::plans::{self, Ports};
use boxes::Setup;
use certificates::Certificates;
use figures::RunFigures;
use gatun_nat::Plan;
use serde::Serialize;

const EXAMPLES: &str = "\
Examples:
  gatun-bench peer
  gatun-bench peer --part steady --per-second 50000 --json
  gatun-bench peer --part takeover --sizes 1024,2097152 --runs 1
";

/// Parts of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// All parts
    All,
    /// All sessions to an empty box
    Sync,
    /// Sessions that begin and end
    Steady,
    /// Take-over of the sessions of a box that is off, and planned hand-over
    Takeover,
}

/// `gatun-bench peer`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Part of the measurement
    #[arg(long, value_enum, default_value = "all")]
    part: Part,
    /// Runs of each part: figures are medians
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
    /// Sessions that an empty box gets
    #[arg(long, default_value_t = 2_097_152, value_parser = clap::value_parser!(u64).range(1_000..))]
    sessions: u64,
    /// Sessions of the other box at a take-over, one after the other
    #[arg(long, value_delimiter = ',', default_values_t = [1_024, 131_072, 2_097_152],
          value_parser = clap::value_parser!(u64).range(1_000..))]
    sizes: Vec<u64>,
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

/// Results of a run.
#[derive(Debug, Serialize)]
struct Run {
    #[serde(skip_serializing_if = "Option::is_none")]
    sync: Option<sync::Report>,
    #[serde(skip_serializing_if = "Option::is_none")]
    steady: Option<steady::Report>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    takeover: Vec<takeover::Report>,
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

impl Run {
    fn measure(args: &Args) -> anyhow::Result<Run> {
        let has = |part| args.part == Part::All || args.part == part;
        let sizes = if has(Part::Takeover) { &args.sizes[..] } else { &[] };
        Ok(Run {
            sync: has(Part::Sync).then(|| sync::measure(args)).transpose()?,
            steady: has(Part::Steady).then(|| steady::measure(args)).transpose()?,
            takeover: sizes.iter().map(|size| takeover::measure(args, *size)).collect::<Result<_, _>>()?,
        })
    }
}

/// Runs `gatun-bench peer`.
///
/// # Errors
/// Returns an error if memory is short, or a session is lost.
pub(super) fn execute(args: &Args) -> anyhow::Result<()> {
    let (mut runs, bar) = (Vec::new(), progress(args.runs, "runs"));
    for _ in 0..args.runs {
        runs.push(serde_json::to_value(Run::measure(args)?)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let figures = RunFigures::of(&runs);
    // The goals are for this load.
    let has_goals = (args.workers, args.sessions, args.per_second) == (1, 2_097_152, 100_000);
    if args.json {
        println!("{}", figures.json((args.workers, has_goals), args.runs, &cpu_model()));
        return Ok(());
    }
    println!("pair of boxes, nat64, workers of each: {}, on {}", args.workers, cpu_model());
    figures.print(has_goals, args.runs);
    Ok(())
}
