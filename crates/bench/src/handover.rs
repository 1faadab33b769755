//! `gatun-bench handover`: cost of packets that arrive at another worker than the one that has their session.
//!
//! Two workers run as in the daemon, each on its own processor, with the exchange between them; only their
//! device is memory. In turn, each receives only its own packets, and only the other's: the worst steering,
//! in which every packet is copied into a ring, and out of it on another processor.

use super::measure::{cpu_model, median, progress, round};
use super::packets::{self, Flows, LAYER_2, STRIDE};
use super::plans::{self, Ports};
use anyhow::{Context as _, ensure};
use gatun_io::{BURST_MAX, Backend, Handler, Stats, Transmit, Waker};
use gatun_nat::Nat;
use gatun_nat::workers::Shares;
use gatun_wire::{HEADROOM, Packet};
use gatun_worker::exchange::exchange;
use gatun_worker::{Clock, Handle, Snapshot, Worker};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  gatun-bench handover
  gatun-bench handover --sessions 2097152 --subscribers 131072 --json
";

/// `gatun-bench handover`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Sessions of both workers
    #[arg(long, default_value_t = 131_072, value_parser = clap::value_parser!(u64).range(64..=67_108_864))]
    sessions: u64,
    /// Subscribers of the sessions
    #[arg(long, default_value_t = 8_192, value_parser = clap::value_parser!(u64).range(16..=4_194_304))]
    subscribers: u64,
    /// Bytes of a frame
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u64).range(84..=1518))]
    frame: u64,
    /// Packets that each worker receives in a round
    #[arg(long, default_value_t = 250_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    packets: u64,
    /// Rounds of each kind; figures are medians, and those of the shortest rounds, in which no other program
    /// used a processor
    #[arg(long, default_value_t = 41, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Results.
#[derive(Debug, Serialize)]
struct Report {
    sessions: u64,
    frame: u64,
    /// Packets of each worker.
    packets_per_round: u64,
    /// Time of a worker for a packet it received, if all are its own.
    ns_own: f64,
    ns_handed_over: f64,
    /// Difference of both times.
    ns_more: f64,
    /// The same figures for the shortest round of each kind.
    ns_own_least: f64,
    ns_handed_over_least: f64,
    ns_more_least: f64,
    /// Packets given to the other worker.
    handed_over: u64,
    cpu: String,
}

const WORKERS: usize = 2;
/// Largest number of packets in flight per worker: fewer than a ring holds, so that none is lost.
const WINDOW: u64 = 512;
/// Longest time of a round. After it, something is wrong.
const ROUND_MAX: Duration = Duration::from_secs(120);

/// Owner of the packets that a worker receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Steered {
    Right = 0,
    Wrong = 1,
}

/// State shared by the workers and the measuring thread.
#[derive(Default)]
struct SharedState {
    /// Lanes, by worker.
    lanes: [WorkerState; WORKERS],
}

/// State of one worker, on its own cache lines, because two workers write to the board all the time.
#[derive(Default)]
#[repr(align(128))]
struct WorkerState {
    /// Packets to receive so far, and their table in the lowest bit.
    order: AtomicU64,
    /// Packets sent so far.
    sent: AtomicU64,
    /// Packets that were wrong.
    wrong: AtomicU64,
}

/// Device that repeats the packets of a table and discards the sent ones.
struct Source {
    worker: usize,
    board: Arc<SharedState>,
    /// Packets in sequence: of its own subscribers, and of the other's.
    tables: [Vec<u8>; 2],
    /// Position of the next packet in each table.
    next: [usize; 2],
    len: usize,
    buffers: Vec<u8>,
    given: u64,
    sink: Sink,
}

#[derive(Default)]
struct Sink {
    sent: u64,
    wrong: u64,
    len: usize,
    stats: Stats,
}

impl Transmit for Sink {
    fn forward(&mut self, _index: usize, packet: &mut Packet<'_>) {
        self.send(packet);
    }

    fn send(&mut self, packet: &mut Packet<'_>) {
        let bytes = packet.bytes();
        let is_right = bytes.len() == self.len && bytes.first() == Some(&0x45);
        self.wrong += u64::from(!is_right);
        self.sent += 1;
        self.stats.tx_packets += 1;
        self.stats.tx_bytes += bytes.len() as u64;
    }
}

impl Source {
    /// Number of packets that may be received now, and their table.
    fn due(&self) -> (usize, usize) {
        let order = self.board.lanes[self.worker].order.load(Ordering::Acquire);
        let (total, table) = (order >> 1, (order & 1) as usize);
        // The owner of a packet sends it.
        let sender = if table == Steered::Right as usize { self.worker } else { WORKERS - 1 - self.worker };
        let sent = self.board.lanes[sender].sent.load(Ordering::Acquire);
        let room = WINDOW.saturating_sub(self.given.saturating_sub(sent));
        let due = (total - self.given).min(room).min(BURST_MAX as u64);
        (due as usize, table)
    }
}

impl Backend for Source {
    fn name(&self) -> &str {
        "memory"
    }

    fn receive(&mut self, handle: &mut Handler<'_>) -> io::Result<usize> {
        let lane = &self.board.lanes[self.worker];
        lane.sent.store(self.sink.sent, Ordering::Release);
        lane.wrong.store(self.sink.wrong, Ordering::Relaxed);
        let (count, table) = self.due();
        if count == 0 {
            return Ok(0);
        }
        let Source { tables, next, len, buffers, sink, .. } = self;
        let (from, next) = (&tables[table], &mut next[table]);
        let mut burst: arrayvec::ArrayVec<Packet<'_>, BURST_MAX> = arrayvec::ArrayVec::new();
        for buffer in buffers.chunks_exact_mut(STRIDE).take(count) {
            let packet = &from[*next..*next + *len];
            *next = if *next + 2 * *len <= from.len() { *next + *len } else { 0 };
            buffer[HEADROOM..HEADROOM + *len].copy_from_slice(packet);
            burst.extend(Packet::new(buffer, HEADROOM, *len));
        }
        self.given += count as u64;
        sink.stats.rx_packets += count as u64;
        sink.stats.rx_bytes += (count * *len) as u64;
        handle(&mut burst, sink);
        Ok(count)
    }

    fn transmit(&mut self) -> &mut dyn Transmit {
        &mut self.sink
    }

    /// Returns immediately, like a driver that polls without a pause.
    fn wait(&mut self, _waker: &Waker, _timeout: Option<Duration>) -> io::Result<()> {
        std::hint::spin_loop();
        Ok(())
    }

    fn stats(&self) -> Stats {
        self.sink.stats.clone()
    }
}

/// Two running workers.
struct Bed {
    board: Arc<SharedState>,
    handles: Vec<Handle>,
    threads: Vec<JoinHandle<(Snapshot, Option<io::Error>)>>,
    /// Packets that each worker was ordered to receive so far.
    ordered: u64,
    /// Largest number of flows of a worker.
    flows_max: u64,
}

impl Bed {
    fn start(args: &Args) -> anyhow::Result<Bed> {
        let flows = Flows { count: args.sessions, subscribers: args.subscribers };
        let mut plan = plans::nat64(flows, Ports::default())?;
        for range in plan.pools.iter_mut().flat_map(|pool| &mut pool.ranges) {
            // Hashes are not evenly distributed, and each worker needs an address.
            range.last = Ipv4Addr::from(u32::from(range.last) + WORKERS as u32);
        }
        let shares = Shares::new(&plan, WORKERS, [7; 4]).map_err(|error| anyhow::anyhow!("{}", error.0))?;
        let steering = Arc::new(shares.steering);
        let len = args.frame as usize - LAYER_2;
        let mut tables = [Vec::new(), Vec::new()];
        let (shuffle, mut packet) = (flows.shuffle(), vec![0u8; STRIDE]);
        for k in 0..flows.count {
            packets::write6(&flows.get(shuffle.at(k)), args.frame as usize, &mut packet);
            let owner = steering.owner(&packet[..len], 0).context("a packet without an owner")?;
            tables[owner].extend_from_slice(&packet[..len]);
        }
        ensure!(tables.iter().all(|table| !table.is_empty()), "one worker has all subscribers");
        let (board, clock) = (Arc::new(SharedState::default()), Clock::new());
        let flows_max = tables.iter().map(|table| table.len() / len).max().unwrap_or(0) as u64;
        let mut bed = Bed { board, handles: vec![], threads: vec![], ordered: 0, flows_max };
        let cores = processors();
        let exchanges = exchange(WORKERS, &steering)?;
        for (worker, (plan, exchange)) in shares.plans.iter().zip(exchanges).enumerate() {
            let nat =
                Nat::new(plan, [worker as u64 + 1; 4]).map_err(|error| anyhow::anyhow!("{}", error.0))?;
            let source = Source {
                worker,
                board: Arc::clone(&bed.board),
                tables: [tables[worker].clone(), tables[WORKERS - 1 - worker].clone()],
                next: [0; 2],
                len,
                buffers: vec![0; BURST_MAX * STRIDE],
                given: 0,
                sink: Sink { len: len - 20, ..Sink::default() },
            };
            let (worker, handle) = Worker::sharing(nat, Box::new(source), clock, exchange);
            let core = cores.get(bed.threads.len() % cores.len().max(1)).copied();
            bed.threads.push(std::thread::spawn(move || {
                stay_on(core);
                worker.run()
            }));
            bed.handles.push(handle);
        }
        Ok(bed)
    }

    /// Gives this many packets to each worker and waits until all are sent. Returns the time.
    fn round(&mut self, steered: Steered, packets: u64) -> anyhow::Result<Duration> {
        self.ordered += packets;
        let begin = Instant::now();
        for lane in &self.board.lanes {
            lane.order.store(self.ordered << 1 | steered as u64, Ordering::Release);
        }
        while self.board.lanes.iter().any(|lane| lane.sent.load(Ordering::Acquire) < self.ordered) {
            ensure!(begin.elapsed() < ROUND_MAX, "packets are missing: were they refused?");
            std::thread::sleep(Duration::from_micros(50));
        }
        let wrong: u64 = self.board.lanes.iter().map(|lane| lane.wrong.load(Ordering::Relaxed)).sum();
        ensure!(wrong == 0, "{wrong} packets were translated wrongly");
        Ok(begin.elapsed())
    }

    /// Ends the workers and returns the sum of their counters.
    fn stop(self) -> anyhow::Result<Snapshot> {
        self.handles.iter().for_each(Handle::stop);
        let mut total = Snapshot::default();
        for thread in self.threads {
            let (snapshot, error) = thread.join().map_err(|_| anyhow::anyhow!("a worker panicked"))?;
            ensure!(
                error.is_none() && snapshot.conserved(),
                "a worker's counters do not add up: {snapshot:?}"
            );
            total += &snapshot;
        }
        Ok(total)
    }
}

fn processors() -> Vec<usize> {
    let set = sched_getaffinity(None);
    set.map(|set| (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()).unwrap_or_default()
}

fn stay_on(core: Option<usize>) {
    if let Some(core) = core {
        let mut set = CpuSet::new();
        set.set(core);
        // If pinning fails, the figures are worse, but still valid.
        let _ = sched_setaffinity(None, &set);
    }
}

/// Runs `gatun-bench handover`.
///
/// # Errors
/// Returns an error if memory is short, there is only one processor, or a packet is lost.
pub(super) fn execute(args: &Args) -> anyhow::Result<()> {
    ensure!(processors().len() >= WORKERS, "two workers need two processors");
    let report = measure(args)?;
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
        return Ok(());
    }
    println!("hand-over, nat64, {} sessions, frames of {} bytes, two workers", report.sessions, report.frame);
    println!("on {}, {} packets handed over, none lost", report.cpu, report.handed_over);
    println!("                                      median     least");
    for (what, median, least) in [
        ("a packet at its own worker", report.ns_own, report.ns_own_least),
        ("a packet at the other worker", report.ns_handed_over, report.ns_handed_over_least),
        ("  difference", report.ns_more, report.ns_more_least),
    ] {
        println!("  {what:30} {median:>8.1} ns {least:>6.1} ns");
    }
    Ok(())
}

fn measure(args: &Args) -> anyhow::Result<Report> {
    let mut bed = Bed::start(args)?;
    let bar = progress(args.rounds, "rounds");
    // Opens all sessions before the measurement.
    bed.round(Steered::Right, bed.flows_max)?;
    let (mut own, mut handed) = (Vec::new(), Vec::new());
    for done in 1..=args.rounds {
        for (steered, times) in [(Steered::Right, &mut own), (Steered::Wrong, &mut handed)] {
            let time = bed.round(steered, args.packets)?;
            times.push(time.as_nanos() as f64 / args.packets as f64);
        }
        bar.set_position(done);
    }
    bar.finish_and_clear();
    let total = bed.stop()?;
    let lost = total.worker.handed.before_lost;
    let expected = WORKERS as u64 * args.rounds * args.packets;
    ensure!(lost == 0 && total.worker.handed.before == expected, "{:?}", total.worker.handed);
    let least = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
    let [ns_own_least, ns_handed_over_least] = [least(&own), least(&handed)];
    let (ns_own, ns_handed_over) = (median(own), median(handed));
    Ok(Report {
        sessions: args.sessions,
        frame: args.frame,
        packets_per_round: args.packets,
        ns_own: round(ns_own),
        ns_handed_over: round(ns_handed_over),
        ns_more: round(ns_handed_over - ns_own),
        ns_own_least: round(ns_own_least),
        ns_handed_over_least: round(ns_handed_over_least),
        ns_more_least: round(ns_handed_over_least - ns_own_least),
        handed_over: expected,
        cpu: cpu_model(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_is_handed_to_the_other_worker_and_sent() {
        if processors().len() < WORKERS {
            return;
        }
        let args =
            Args { sessions: 4096, subscribers: 256, frame: 128, packets: 10_000, rounds: 2, json: false };
        let report = measure(&args).unwrap();
        assert_eq!(report.handed_over, 40_000);
        assert!(report.ns_own > 0.0 && report.ns_handed_over > 0.0);
    }
}
