//! `gatun-bench scale`: cost of growth: ten times the sessions, a second worker, a pool filled up to its last
//! port, and the memory of a session in a full pool.
//!
//! Compared cases are measured in turn, round by round in one run, so that a drifting machine does not
//! decide. The aims next to the figures are the project's own; nothing enforces them.

use super::driver::{Driver, Kind, Prepared, Setup};
use super::measure::{
    StartingLine, available_bytes, cpu_model, each, median, progress, resident_bytes, round,
};
use super::packets::Flows;
use super::plans::{Logged, PORTS_PER_ADDRESS, Ports};
use anyhow::Context as _;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, CellAlignment, Table};
use gatun_testkit::plot::count;
use serde::Serialize;
use std::sync::Arc;

/// Packets of a round.
const BUFFERS: u64 = 16_384;
/// Sessions per subscriber.
const EACH: u64 = 16;
/// Ports of a block, if the pool has blocks.
const BLOCK: u16 = 256;
/// Approximate bytes of a session and the bench's notes of it, to know if they fit the memory.
const SESSION_BYTES: u64 = 160;
/// Memory that is left for other programs.
const SPARE_BYTES: u64 = 3 << 30;

const EXAMPLES: &str = "\
Examples:
  gatun-bench scale                    a minute or two
  gatun-bench scale --kind nat44 --largest 1000000 --json
  gatun-bench scale --quick            seconds
";

/// `gatun-bench scale`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Kind of translation: nat64 or nat44
    #[arg(long, value_enum, default_value = "nat64")]
    kind: Kind,
    /// Sessions of the largest engine; the others have a tenth, a hundredth and so on, down to a thousand
    /// [default: 10000000, quick: 10000]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1_000..=100_000_000))]
    largest: Option<u64>,
    /// Largest number of workers, each with its own engine and core [default: number of cores, quick: 2]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=256))]
    workers: Option<u64>,
    /// Sessions of a worker, and those whose memory is measured, sixteen per subscriber [default: 2097152,
    /// quick: 20000]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1_000..=67_108_864))]
    sessions: Option<u64>,
    /// Public addresses of the pool whose ports are used up
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=256))]
    addresses: u64,
    /// Rounds of packets in each direction
    #[arg(long, default_value_t = 41, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Few sessions and packets: takes seconds, shows that the command works; its figures are rough
    #[arg(long)]
    quick: bool,
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
}

impl Args {
    fn setup(&self, sessions: u64, ports: Ports, seed: u64) -> Setup {
        let each = match ports.block_size {
            Some(size) => size.into(),
            None => EACH,
        };
        Setup {
            kind: self.kind,
            flows: Flows { count: sessions, subscribers: (sessions / each).max(1) },
            ports,
            frame: 128,
            buffers: BUFFERS,
            events: Logged::None,
            feed: None,
            seed,
        }
    }

    fn rounds(&self) -> u64 {
        if self.quick { self.rounds.min(5) } else { self.rounds }
    }

    fn sessions(&self) -> u64 {
        self.sessions.unwrap_or(if self.quick { 20_000 } else { 2_097_152 })
    }

    /// Sizes by factors of ten, the smallest first.
    fn sizes(&self) -> Vec<u64> {
        let largest = self.largest.unwrap_or(if self.quick { 10_000 } else { 10_000_000 });
        let mut sizes: Vec<u64> =
            std::iter::successors(Some(largest), |n| Some(n / 10)).take_while(|&n| n >= 1_000).collect();
        sizes.reverse();
        sizes
    }

    /// Numbers of workers: 1, 2, 4 and so on, and the largest one.
    fn worker_counts(&self) -> Vec<u64> {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
        let most = self.workers.unwrap_or(if self.quick { 2 } else { cores });
        std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|&n| n < most).chain([most]).collect()
    }
}

/// Times of an engine with this many sessions.
#[derive(Clone, Debug, Serialize)]
struct Size {
    sessions: u64,
    ns_outbound: f64,
    ns_inbound: f64,
    /// Time of a packet divided by that of the next smaller engine, over both directions. `None` for the
    /// smallest.
    times_the_smaller: Option<f64>,
}

/// Throughput of several workers at the same time.
#[derive(Clone, Debug, Serialize)]
struct Workers {
    workers: u64,
    /// Sum over all workers and both directions.
    packets_per_second: f64,
    /// Ratio to one worker.
    times_one: f64,
}

/// Usable ports of a pool.
#[derive(Clone, Debug, Serialize)]
struct PoolUse {
    allocation: &'static str,
    ports: u64,
    /// Ports allocated before the first packet was refused.
    usable_percent: f64,
}

/// All results.
#[derive(Debug, Serialize)]
struct Report {
    cpu: String,
    kind: Kind,
    sizes: Vec<Size>,
    workers: Vec<Workers>,
    sessions_per_worker: u64,
    pools: Vec<PoolUse>,
    /// Resident memory including reserved huge pages, divided by the number of sessions, with a full pool.
    bytes_per_session: f64,
    verified_packets: u64,
}

/// Runs `gatun-bench scale`.
///
/// # Errors
/// Returns an error if an engine cannot be built, or a translated packet is wrong.
pub(super) fn execute(args: &Args) -> anyhow::Result<()> {
    anyhow::ensure!(args.kind != Kind::Siit, "siit has neither sessions nor ports");
    let all: u64 = args.sizes().iter().sum();
    let together = args.sessions() * args.worker_counts().last().copied().unwrap_or(1);
    let needed = all.max(together) * SESSION_BYTES;
    let enough = needed + SPARE_BYTES <= available_bytes();
    anyhow::ensure!(enough, "needs {} MB of memory: lower --largest or --sessions", needed >> 20);
    let mut verified_packets = 0;
    // Memory is measured first, before anything else is touched.
    let bytes_per_session = memory(args)?;
    let sizes = sizes(args, &mut verified_packets).context("sizes")?;
    let workers = workers(args, &mut verified_packets).context("workers")?;
    let pools =
        [None, Some(BLOCK)].map(|block| pool(args, block)).into_iter().collect::<anyhow::Result<_>>()?;
    let report = Report {
        cpu: cpu_model(),
        kind: args.kind,
        sizes,
        workers,
        sessions_per_worker: args.sessions(),
        pools,
        bytes_per_session,
        verified_packets,
    };
    match args.json {
        true => println!("{}", serde_json::to_string(&report)?),
        false => report.print(),
    }
    Ok(())
}

/// Creates an engine and opens all its sessions.
fn opened(setup: Setup) -> anyhow::Result<Driver> {
    let mut driver = Prepared::new(setup)?.start(Arc::new(StartingLine::new(1)))?;
    driver.open()?;
    Ok(driver)
}

/// Measures the bytes of a session in a pool whose ports are all used.
fn memory(args: &Args) -> anyhow::Result<f64> {
    let full = Ports { block_size: None, fill_percent: 100 };
    let prepared = Prepared::new(args.setup(args.sessions(), full, 1))?;
    let before = resident_bytes();
    let mut driver = prepared.start(Arc::new(StartingLine::new(1)))?;
    driver.open()?;
    let resident = resident_bytes().saturating_sub(before);
    driver.finish()?;
    Ok(round(resident as f64 / args.sessions() as f64))
}

/// Runs a round in each direction. Returns nanoseconds per packet.
fn turn(driver: &mut Driver) -> anyhow::Result<[f64; 2]> {
    driver.now = driver.now.plus_ms(1);
    let a_packet = |time: std::time::Duration, n: usize| time.as_nanos() as f64 / n as f64;
    let chosen = driver.choose();
    let outbound = driver.outbound(&chosen, &[])?;
    let back = driver.choose();
    let inbound = driver.inbound(&back, &[])?;
    Ok([a_packet(outbound, chosen.len()), a_packet(inbound, back.len())])
}

/// Measures engines of all sizes, one round of each in turn.
fn sizes(args: &Args, verified: &mut u64) -> anyhow::Result<Vec<Size>> {
    let sizes = args.sizes();
    let bar = progress(sizes.len() as u64 + args.rounds(), "sessions");
    let open = |&n: &u64| {
        bar.set_message(format!("opening {n}"));
        bar.inc(1);
        opened(args.setup(n, Ports::default(), 1))
    };
    let mut drivers = sizes.iter().map(open).collect::<anyhow::Result<Vec<_>>>()?;
    bar.set_message("in turn");
    // By size, then by round.
    let mut times: Vec<Vec<[f64; 2]>> = vec![Vec::new(); sizes.len()];
    for _ in 0..args.rounds() {
        for (driver, times) in drivers.iter_mut().zip(&mut times) {
            times.push(turn(driver)?);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    for driver in drivers {
        *verified += driver.finish()?.verified;
    }
    let direction = |i: usize, d: usize| round(median(times[i].iter().map(|both| both[d]).collect()));
    let over_smaller = |i: usize| {
        let pairs = times[i].iter().zip(&times[i - 1]);
        round(median(pairs.map(|(large, small)| (large[0] + large[1]) / (small[0] + small[1])).collect()))
    };
    let report = |(i, &sessions): (usize, &u64)| Size {
        sessions,
        ns_outbound: direction(i, 0),
        ns_inbound: direction(i, 1),
        times_the_smaller: (i > 0).then(|| over_smaller(i)),
    };
    Ok(sizes.iter().enumerate().map(report).collect())
}

/// Measures one worker alone and several at the same time, in turn.
fn workers(args: &Args, verified: &mut u64) -> anyhow::Result<Vec<Workers>> {
    let counts = args.worker_counts();
    let most = counts.last().copied().unwrap_or(1);
    let bar = progress(args.rounds() + 1, "workers");
    bar.set_message(format!("opening {} sessions each", args.sessions()));
    let mut drivers =
        each((1..=most).collect(), |seed| opened(args.setup(args.sessions(), Ports::default(), seed)))?;
    bar.set_message("in turn");
    // By count, then by round: packets per second of all workers.
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); counts.len()];
    for _ in 0..args.rounds() {
        for (&count, rates) in counts.iter().zip(&mut rates) {
            let idle = drivers.split_off(count as usize);
            let line = Arc::new(StartingLine::new(count));
            let done = each(drivers, |mut driver| {
                driver.set_line(Arc::clone(&line));
                let [outbound, inbound] = turn(&mut driver)?;
                Ok((driver, 2e9 / (outbound + inbound)))
            })?;
            rates.push(done.iter().map(|one| one.1).sum());
            drivers = done.into_iter().map(|one| one.0).chain(idle).collect();
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    for driver in drivers {
        *verified += driver.finish()?.verified;
    }
    let report = |(i, &workers): (usize, &u64)| Workers {
        workers,
        packets_per_second: median(rates[i].clone()).round(),
        times_one: round(median(rates[i].iter().zip(&rates[0]).map(|(all, one)| all / one).collect())),
    };
    Ok(counts.iter().enumerate().map(report).collect())
}

/// Measures the share of a pool's ports that are allocated before the first refusal. With blocks, subscribers
/// use all of theirs.
fn pool(args: &Args, block_size: Option<u16>) -> anyhow::Result<PoolUse> {
    let ports = args.addresses * PORTS_PER_ADDRESS;
    let setup = args.setup(ports, Ports { block_size, fill_percent: 100 }, 1);
    let mut driver = Prepared::new(setup)?.start(Arc::new(StartingLine::new(1)))?;
    let total = driver.udp_ports();
    anyhow::ensure!(total >= ports, "the pool has {total} ports, not {ports}");
    let given = driver.open_until_refused()?;
    let usable_percent = round(given as f64 * 100.0 / total as f64);
    let allocation = if block_size.is_some() { "blocks" } else { "random" };
    Ok(PoolUse { allocation, ports: total, usable_percent })
}

impl Report {
    fn print(&self) {
        println!(
            "{}, {:?}, 128-byte frames in RAM, {} packets verified",
            self.cpu, self.kind, self.verified_packets
        );
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED).set_header(["what", "figure", "", "aim"]);
        let mut row = |what: String, figure: String, ratio: String, aim: &str| {
            let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
            table.add_row([Cell::new(what), right(figure), right(ratio), Cell::new(aim)]);
        };
        for size in &self.sizes {
            let both = (size.ns_outbound + size.ns_inbound) / 2.0;
            let ratio = size.times_the_smaller.map_or(String::new(), |ratio| format!("{ratio:.2} times"));
            let aim = if ratio.is_empty() { "" } else { "at most 2 times for 10 times the sessions" };
            row(
                format!("{} sessions", count(size.sessions as f64)),
                format!("{both:.1} ns/packet"),
                ratio,
                aim,
            );
        }
        for w in &self.workers {
            let what =
                format!("{} workers, {} sessions each", w.workers, count(self.sessions_per_worker as f64));
            let figure = format!("{:.2} M packets/s", w.packets_per_second / 1e6);
            let aim = if w.workers == 2 { "at least 1.9 times one worker's" } else { "" };
            row(what, figure, format!("{:.2} times", w.times_one), aim);
        }
        for pool in &self.pools {
            let what = format!("{} of {} ports before the first refusal", pool.allocation, pool.ports);
            row(what, format!("{:.2} %", pool.usable_percent), String::new(), "at least 95 %");
        }
        let what = format!("memory, {} sessions, full pool", count(self.sessions_per_worker as f64));
        let aim = "at most 100, with two million or more";
        row(what, format!("{:.1} bytes/session", self.bytes_per_session), String::new(), aim);
        println!("{table}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &[&str]) -> Args {
        Line::parse_from(std::iter::once(&"scale").chain(line)).args
    }

    #[test]
    fn sizes_grow_by_ten_up_to_the_largest() {
        assert_eq!(args(&["--largest", "65536"]).sizes(), [6_553, 65_536]);
        assert_eq!(args(&["--quick"]).sizes(), [1_000, 10_000]);
    }

    #[test]
    fn nearly_all_ports_of_a_pool_are_usable_before_the_first_failure() {
        for kind in ["nat64", "nat44"] {
            let args = args(&["--kind", kind, "--addresses", "2"]);
            for block in [None, Some(64), Some(BLOCK), Some(1024)] {
                let used = pool(&args, block).unwrap();
                assert!(used.usable_percent >= 95.0, "{kind}, {block:?}: {used:?}");
                assert!(used.ports >= 2 * PORTS_PER_ADDRESS);
            }
        }
    }

    #[test]
    fn a_refusal_ends_the_measurement() {
        let args = args(&[]);
        // A pool of one address, and twice as many flows as it has ports.
        let ports = Ports { block_size: None, fill_percent: 100 };
        let setup = args.setup(PORTS_PER_ADDRESS, ports, 1);
        let more = Flows { count: 2 * PORTS_PER_ADDRESS, ..setup.flows };
        let mut driver = Prepared::new(setup).unwrap().start(Arc::new(StartingLine::new(1))).unwrap();
        driver.offer(more);
        assert_eq!(driver.open_until_refused().unwrap(), PORTS_PER_ADDRESS);
    }
}
