//! `gatun-bench engine`: the engine alone, with packets in RAM, in bursts, without I/O.
//!
//! A worker opens all its sessions, translates rounds of packets of randomly chosen sessions in both
//! directions, lets all sessions expire, and opens them once more.

use super::churn;
use super::driver::{Cluster, Driver, Kind, Prepared, Setup, Tally};
use super::measure::{StartingLine, cpu_model, each, median, resident_bytes, round};
use super::packets::Flows;
use super::plans::{FeedScope, Logged, Ports};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// Allocation of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Allocation {
    /// Single ports, over the whole address
    Random,
    /// Blocks, with random ports in them
    Blocks,
}

const EXAMPLES: &str = "\
Examples:
  gatun-bench engine --sessions 2097152 --subscribers 131072
  gatun-bench engine --kind nat44 --sessions 2097152 --subscribers 131072 \\
    --pool-fill 100
  gatun-bench engine --sessions 2097152 --kills-per-second 70000 --json

On a busy machine, run it as `taskset --cpu-list 1 gatun-bench engine ...` to keep it on one core.
";

/// `gatun-bench engine`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Translation: stateless or stateful
    #[arg(long, value_enum, default_value = "nat64")]
    kind: Kind,
    /// Flows of all workers
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    sessions: u64,
    /// Inside hosts of the flows, each with a /64 (siit: with a mapping)
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    subscribers: u64,
    /// Threads, each with its own engine and its share of the flows
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    workers: u64,
    /// Bytes of a frame on the wire: 18 of Ethernet and VLAN, which the engine does not see, and the IPv6
    /// packet (the IPv4 packet is 20 bytes shorter)
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u64).range(66..=1518))]
    frame: u64,
    /// Packet buffers of a worker, and packets of a round
    #[arg(long, default_value_t = 16_384, value_parser = clap::value_parser!(u64).range(64..))]
    buffers: u64,
    /// Rounds in each direction; figures are medians over them
    #[arg(long, default_value_t = 41, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Allocation of the pool's ports (nat64, nat44)
    #[arg(long, value_enum, default_value = "random")]
    allocation: Allocation,
    /// Ports of a block, a power of two; a subscriber gets as many blocks as its flows need
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u16).range(32..=16_384))]
    block_size: u16,
    /// Share of the pool's ports in use once all sessions are open, percent (ignored with blocks)
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=100))]
    pool_fill: u64,
    /// Events that the engine logs to a ring, which is read between rounds; `log` is the production setting
    #[arg(long, value_enum, default_value = "log")]
    events: Logged,
    /// State feed with a consumer, whose records are read between the rounds
    #[arg(long, value_enum, default_value = "none")]
    feed: FeedScope,
    /// Packets of a UDP session until the feed reports it as established
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=128))]
    feed_packets: u8,
    /// Send replies from outside to the packets just sent from inside, in order; by default, packets of
    /// random sessions, whose memory is not in a cache
    #[arg(long)]
    replies: bool,
    /// Also measure rounds in which this many random sessions per second end and reopen with their next
    /// packet, alternating with rounds without churn
    #[arg(long, default_value_t = 0)]
    kills_per_second: u64,
    /// Also measure packets that another node of a cluster translates: they get the headers of the tunnel to
    /// it
    #[arg(long)]
    redirect: bool,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Setup of worker `number`.
    fn setup(&self, number: u64) -> Setup {
        let share = |of: u64| of / self.workers + u64::from(number < of % self.workers);
        let count = share(self.sessions);
        Setup {
            kind: self.kind,
            flows: Flows { count, subscribers: share(self.subscribers).clamp(1, count) },
            ports: Ports {
                block_size: (self.allocation == Allocation::Blocks).then_some(self.block_size),
                fill_percent: self.pool_fill,
            },
            frame: self.frame as usize,
            buffers: self.buffers,
            events: self.events,
            feed: self.feed.policy(self.feed_packets),
            seed: number + 1,
        }
    }

    fn is_stateful(&self) -> bool {
        self.kind != Kind::Siit
    }
}

/// Result. Times are nanoseconds of one worker's CPU time for one packet or session.
#[derive(Debug, Serialize)]
struct Report {
    kind: Kind,
    allocation: Allocation,
    sessions: u64,
    subscribers: u64,
    workers: u64,
    frame_bytes: u64,
    /// True if packets from outside were replies to the packets just sent.
    replies: bool,
    pool_fill_percent: u64,
    /// Logged events.
    logged: Logged,
    /// Number of events read.
    events: u64,
    /// Sessions on the state feed.
    feed: FeedScope,
    /// Records of the state feed read.
    records: u64,
    /// IPv6 to IPv4 (NAT44: from inside), median of the rounds.
    ns_outbound: f64,
    /// IPv4 to IPv6 (NAT44: to inside), median of the rounds.
    ns_inbound: f64,
    /// Packet from inside that another node translates, median of the rounds. `None` if not measured.
    ns_redirected: Option<f64>,
    /// Translation of a session's first packet, mean over all sessions. `None` without state.
    ns_new_session: Option<f64>,
    /// The same after all sessions have expired: the memory is already allocated.
    ns_new_session_again: Option<f64>,
    /// End of an expired session, mean over all sessions.
    ns_delete: Option<f64>,
    /// Memory of the engines divided by the number of sessions. With few sessions, it is mostly their fixed
    /// part.
    bytes_per_session: Option<f64>,
    /// Allocations counted by the allocator over all measured packets. Only with one worker, because it
    /// counts all threads.
    allocations_per_packet: Option<f64>,
    verified_packets: u64,
    /// Churn of the first worker. `None` if no sessions are ended.
    churn: Option<churn::Report>,
    cpu: String,
}

/// Runs `gatun-bench engine`.
///
/// # Errors
/// Returns an error if the engine cannot be built, or a translated packet is wrong.
pub(super) fn execute(args: &Args) -> anyhow::Result<()> {
    anyhow::ensure!(args.sessions >= args.workers, "fewer sessions than workers");
    anyhow::ensure!(!args.redirect || args.is_stateful(), "siit has no shards");
    anyhow::ensure!(args.kills_per_second == 0 || args.is_stateful(), "siit has no sessions to end");
    let report = measure(args)?;
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print_table(&report);
    }
    Ok(())
}

fn print_table(r: &Report) {
    let optional = |value: Option<f64>| value.map_or("-".into(), |v| format!("{v:.1}"));
    println!(
        "engine, {:?}, {} sessions of {} subscribers, {} workers",
        r.kind, r.sessions, r.subscribers, r.workers
    );
    println!("frames of {} bytes on {}, {} packets verified", r.frame_bytes, r.cpu, r.verified_packets);
    let logged = match r.logged {
        Logged::None => "no events",
        Logged::Log => "events of a configuration with [log]",
        Logged::All => "events of every kind",
    };
    println!("{logged}: {} read", r.events);
    if r.feed != FeedScope::None {
        println!("state feed: {} records read", r.records);
    }
    println!("  v6>v4                  {:>10.1} ns/packet", r.ns_outbound);
    println!("  v4>v6                  {:>10.1} ns/packet", r.ns_inbound);
    if r.ns_redirected.is_some() {
        println!("  to another node        {:>10} ns/packet", optional(r.ns_redirected));
    }
    println!("  new session            {:>10} ns", optional(r.ns_new_session));
    println!("    opened again         {:>10} ns", optional(r.ns_new_session_again));
    println!("  end of a session       {:>10} ns", optional(r.ns_delete));
    println!("  memory                 {:>10} bytes/session", optional(r.bytes_per_session));
    println!("  allocations            {:>10} per packet", optional(r.allocations_per_packet));
    if let Some(churn) = &r.churn {
        churn.print();
    }
}

/// Results of one worker.
#[derive(Default)]
struct Measured {
    outbound_ns: Vec<f64>,
    inbound_ns: Vec<f64>,
    redirected_ns: Vec<f64>,
    closing: Duration,
    reopening: Duration,
    churn: Option<churn::Report>,
    tally: Tally,
}

fn measure(args: &Args) -> anyhow::Result<Report> {
    let workers: Vec<u64> = (0..args.workers).collect();
    let prepared = each(workers, |number| Prepared::new(args.setup(number)))?;
    let line = Arc::new(StartingLine::new(args.workers));
    let before = resident_bytes();
    let opened = each(prepared, |prepared| {
        let mut driver = prepared.start(Arc::clone(&line))?;
        let opening: Duration = driver.open()?.iter().map(|&(time, _)| time).sum();
        Ok((driver, opening))
    })?;
    let resident = resident_bytes().saturating_sub(before);
    let opening: Duration = opened.iter().map(|&(_, time)| time).sum();
    let drivers = opened.into_iter().map(|(driver, _)| driver).collect();
    let mut results = each(drivers, |driver| rounds(args, driver))?;
    let total = |of: fn(&Tally) -> u64| results.iter().map(|m| of(&m.tally)).sum::<u64>();
    let per_session = |of_all: f64| args.is_stateful().then(|| round(of_all / args.sessions as f64));
    let closing: Duration = results.iter().map(|m| m.closing).sum();
    let reopening: Duration = results.iter().map(|m| m.reopening).sum();
    let all = |of: fn(&Measured) -> &Vec<f64>| round(median(results.iter().flat_map(of).copied().collect()));
    let allocations = total(|t| t.allocations) as f64 / total(|t| t.packets).max(1) as f64;
    Ok(Report {
        kind: args.kind,
        allocation: args.allocation,
        sessions: args.sessions,
        subscribers: args.subscribers,
        workers: args.workers,
        frame_bytes: args.frame,
        replies: args.replies,
        pool_fill_percent: args.pool_fill,
        logged: args.events,
        events: total(|t| t.events),
        feed: args.feed,
        records: total(|t| t.records),
        ns_outbound: all(|m| &m.outbound_ns),
        ns_inbound: all(|m| &m.inbound_ns),
        ns_redirected: args.redirect.then(|| all(|m| &m.redirected_ns)),
        ns_new_session: per_session(opening.as_nanos() as f64),
        ns_new_session_again: per_session(reopening.as_nanos() as f64),
        ns_delete: per_session(closing.as_nanos() as f64),
        bytes_per_session: per_session(resident as f64),
        allocations_per_packet: (args.workers == 1).then_some(allocations),
        verified_packets: total(|t| t.verified),
        churn: results.first_mut().and_then(|m| m.churn.take()),
        cpu: cpu_model(),
    })
}

/// Measures the rounds of one worker and the end of its sessions.
fn rounds(args: &Args, mut driver: Driver) -> anyhow::Result<Measured> {
    let mut measured = Measured::default();
    let cluster = args.redirect.then(|| Cluster::new(&args.setup(0))).transpose()?;
    let a_packet = |time: Duration, packets: &[u64]| time.as_nanos() as f64 / packets.len() as f64;
    for _ in 0..args.rounds {
        driver.now = driver.now.plus_ms(1);
        let chosen = driver.choose();
        let time = driver.outbound(&chosen, &[])?;
        measured.outbound_ns.push(a_packet(time, &chosen));
        let chosen = if args.replies { chosen } else { driver.choose() };
        let time = driver.inbound(&chosen, &[])?;
        measured.inbound_ns.push(a_packet(time, &chosen));
        if let Some(cluster) = &cluster {
            let time = driver.redirected(&chosen, cluster)?;
            measured.redirected_ns.push(a_packet(time, &chosen));
        }
    }
    if args.kills_per_second > 0 {
        measured.churn = Some(churn::measure(&mut driver, args.kills_per_second, args.rounds)?);
    }
    if args.is_stateful() {
        measured.closing = driver.expire_all()?;
        measured.reopening = driver.open()?.iter().map(|&(time, _)| time).sum();
    }
    measured.tally = driver.finish()?;
    Ok(measured)
}
