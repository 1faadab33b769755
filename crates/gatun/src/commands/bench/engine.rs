//! The engine alone: packets in RAM, in bursts, no I/O.
//!
//! A worker opens all its sessions, then translates rounds of packets of randomly chosen ones in both
//! directions, then lets them all expire. The packets lie in buffers as a backend's would; making and
//! checking them is outside the measured time, and every packet that comes out is checked in full.

use super::packets::{self, Flow44, Flows, Ring};
use super::plans;
use cpu_time::ThreadTime;
use gatun_nat::engine::BURST;
use gatun_nat::{Instant, Nat, Plan, Verdict};
use gatun_wire::Packet;
use serde::Serialize;
use std::net::Ipv4Addr;
use std::sync::Barrier;
use std::time::Duration;

/// What is translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// Stateless, hosts by explicit mappings, servers by the prefix
    Siit,
    /// Stateful, UDP, one binding a session
    Nat64,
    /// The same for private IPv4 hosts
    Nat44,
}

/// How ports are given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Allocation {
    /// One by one over the whole address
    Random,
    /// In blocks, at random within them
    Blocks,
}

/// `gatun bench engine`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Args {
    /// Stateless or stateful
    #[arg(long, value_enum, default_value = "nat64")]
    kind: Kind,
    /// Flows, of all workers together
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    sessions: u64,
    /// Inside hosts that the flows belong to, each with a /64 (siit: with a mapping)
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    subscribers: u64,
    /// Threads, each with an engine of its own and its share of the flows
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    workers: u64,
    /// Bytes of the frame on the wire: 18 of Ethernet and VLAN, which the engine does not see, and the
    /// IPv6 packet (the IPv4 one is 20 smaller)
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u64).range(66..=1518))]
    frame: u64,
    /// Packet buffers of a worker: the packets of a round
    #[arg(long, default_value_t = 16_384, value_parser = clap::value_parser!(u64).range(64..))]
    buffers: u64,
    /// Rounds in each direction; the figures are medians over them
    #[arg(long, default_value_t = 41, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// How the pool's ports are given out (nat64)
    #[arg(long, value_enum, default_value = "random")]
    allocation: Allocation,
    /// Ports of a block, a power of two; a subscriber gets as many blocks as its flows need
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u16).range(32..=16_384))]
    block_size: u16,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Ports of a block, where there are blocks.
    fn block_size(&self) -> Option<u16> {
        (self.allocation == Allocation::Blocks).then_some(self.block_size)
    }
}

/// The result. Times are nanoseconds of one worker's CPU time for one packet or session.
#[derive(Debug, Serialize)]
struct Report {
    kind: Kind,
    allocation: Allocation,
    sessions: u64,
    subscribers: u64,
    workers: u64,
    frame_bytes: u64,
    /// 6to4 (of NAT44, from inside), the median round.
    ns_outbound: f64,
    /// 4to6 (of NAT44, to inside), the median round.
    ns_inbound: f64,
    /// The first packet of a session, translated; the mean over all. None where there is no state.
    ns_new_session: Option<f64>,
    /// A session's end; the mean over all.
    ns_delete: Option<f64>,
    /// Memory that the engines came to use, over sessions: with few of them, their fixed parts count most.
    bytes_per_session: Option<f64>,
    /// By the counting allocator, over all measured packets.
    allocations_per_packet: f64,
    verified_packets: u64,
    cpu: String,
}

/// # Errors
/// Where the engine cannot be built, or a packet does not come out as it must.
pub(super) fn execute(args: &Args) -> anyhow::Result<()> {
    anyhow::ensure!(args.sessions >= args.workers, "fewer sessions than workers");
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
    println!("  6to4                   {:>10.1} ns/packet", r.ns_outbound);
    println!("  4to6                   {:>10.1} ns/packet", r.ns_inbound);
    println!("  new session            {:>10} ns", optional(r.ns_new_session));
    println!("  session's end          {:>10} ns", optional(r.ns_delete));
    println!("  memory                 {:>10} bytes/session", optional(r.bytes_per_session));
    println!("  allocations            {:>10.3} a packet", r.allocations_per_packet);
}

/// What one worker measured.
#[derive(Default)]
struct Measured {
    outbound_ns: Vec<f64>,
    inbound_ns: Vec<f64>,
    opening: Duration,
    closing: Duration,
    packets: u64,
    allocations: u64,
    verified: u64,
    resident_bytes: u64,
}

fn measure(args: &Args) -> anyhow::Result<Report> {
    let barrier = Barrier::new(usize::try_from(args.workers)?);
    let results: Vec<anyhow::Result<Measured>> = std::thread::scope(|scope| {
        let spawn = |w| {
            let barrier = &barrier;
            scope.spawn(move || Worker::new(args, w).and_then(|worker| worker.run(barrier)))
        };
        let threads: Vec<_> = (0..args.workers).map(spawn).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a worker panicked")))
        };
        threads.into_iter().map(join).collect()
    });
    let results = results.into_iter().collect::<anyhow::Result<Vec<Measured>>>()?;
    let total = |of: fn(&Measured) -> u64| results.iter().map(of).sum::<u64>();
    let per_session = |of: fn(&Measured) -> f64| {
        (args.kind != Kind::Siit).then(|| round(results.iter().map(of).sum::<f64>() / args.sessions as f64))
    };
    Ok(Report {
        kind: args.kind,
        allocation: args.allocation,
        sessions: args.sessions,
        subscribers: args.subscribers,
        workers: args.workers,
        frame_bytes: args.frame,
        ns_outbound: median(results.iter().flat_map(|m| m.outbound_ns.clone()).collect()),
        ns_inbound: median(results.iter().flat_map(|m| m.inbound_ns.clone()).collect()),
        ns_new_session: per_session(|m| m.opening.as_nanos() as f64),
        ns_delete: per_session(|m| m.closing.as_nanos() as f64),
        bytes_per_session: per_session(|m| m.resident_bytes as f64),
        allocations_per_packet: total(|m| m.allocations) as f64 / total(|m| m.packets).max(1) as f64,
        verified_packets: total(|m| m.verified),
        cpu: cpu_model(),
    })
}

/// One thread's engine, flows and packet buffers.
struct Worker<'a> {
    args: &'a Args,
    plan: Plan,
    seed: u64,
    flows: Flows,
    ring: Ring,
    /// The public address and port of each flow, as seen on its first packet.
    outside: Vec<(Ipv4Addr, u16)>,
    now: Instant,
    random: u64,
    measured: Measured,
}

impl<'a> Worker<'a> {
    fn new(args: &'a Args, number: u64) -> anyhow::Result<Self> {
        let share = |of: u64| of / args.workers + u64::from(number < of % args.workers);
        let count = share(args.sessions);
        let flows = Flows { count, subscribers: share(args.subscribers).clamp(1, count) };
        let plan = match args.kind {
            Kind::Nat64 => plans::nat64(flows, args.block_size())?,
            Kind::Nat44 => plans::nat44(flows, args.block_size())?,
            Kind::Siit => plans::siit(flows.subscribers)?,
        };
        Ok(Worker {
            args,
            plan,
            seed: number + 1,
            flows,
            ring: Ring::new(usize::try_from(args.buffers)?)?,
            outside: vec![(Ipv4Addr::BROADCAST, 0); usize::try_from(count)?],
            now: Instant(1_000),
            random: number,
            measured: Measured::default(),
        })
    }

    fn run(mut self, barrier: &Barrier) -> anyhow::Result<Measured> {
        let before = resident_bytes();
        let seed = std::array::from_fn(|i| packets::mix(self.seed * 4 + i as u64));
        let mut nat = Nat::new(&self.plan, seed).map_err(|error| anyhow::anyhow!("{}", error.0))?;
        barrier.wait();
        self.open(&mut nat)?;
        barrier.wait();
        // All threads grow at the same time: each counts its share of the process.
        self.measured.resident_bytes = resident_bytes().saturating_sub(before) / self.args.workers;
        for _ in 0..self.args.rounds {
            self.now = self.now.plus_ms(1);
            self.outbound(&mut nat)?;
            self.inbound(&mut nat)?;
        }
        if self.args.kind != Kind::Siit {
            self.close(&mut nat)?;
        }
        anyhow::ensure!(nat.counters().conserved(), "the counters do not add up: {:?}", nat.counters());
        Ok(self.measured)
    }

    /// Every flow's first packet, in a shuffled order.
    fn open(&mut self, nat: &mut Nat) -> anyhow::Result<()> {
        let mut first = 0;
        while first < self.flows.count {
            let n = self.args.buffers.min(self.flows.count - first);
            let chosen: Vec<u64> = (first..first + n).map(|k| self.flows.shuffled(k)).collect();
            let time = self.translate6(nat, &chosen)?;
            self.measured.opening += time;
            first += n;
        }
        Ok(())
    }

    fn outbound(&mut self, nat: &mut Nat) -> anyhow::Result<()> {
        let chosen = self.choose();
        let time = self.translate6(nat, &chosen)?;
        self.measured.outbound_ns.push(time.as_nanos() as f64 / chosen.len() as f64);
        Ok(())
    }

    fn inbound(&mut self, nat: &mut Nat) -> anyhow::Result<()> {
        let chosen = self.choose();
        let frame = self.args.frame as usize;
        let (flows, outside) = (self.flows, &self.outside);
        let is_nat44 = self.args.kind == Kind::Nat44;
        let mut packets = self.ring.fill(|i, out| match chosen.get(i) {
            Some(&flow) if is_nat44 => {
                packets::write44(flows.get44(flow).server, outside[flow as usize], frame, out)
            }
            Some(&flow) => packets::write4(&flows.get(flow), outside[flow as usize], frame, out),
            None => 0,
        });
        packets.truncate(chosen.len());
        let time = timed(nat, self.now, &mut packets, &mut self.measured)?;
        for (packet, &flow) in packets.iter().zip(&chosen) {
            let checked = match is_nat44 {
                true => packets::check44_back(packet.bytes(), &flows.get44(flow), frame),
                false => packets::check6(packet.bytes(), &flows.get(flow), frame),
            };
            checked.map_err(|e| anyhow::anyhow!("inbound, flow {flow}: {e}"))?;
            self.measured.verified += 1;
        }
        self.measured.inbound_ns.push(time.as_nanos() as f64 / chosen.len() as f64);
        Ok(())
    }

    /// One packet of each chosen flow from inside, checked, and the address and port it got noted.
    fn translate6(&mut self, nat: &mut Nat, chosen: &[u64]) -> anyhow::Result<Duration> {
        let frame = self.args.frame as usize;
        let flows = self.flows;
        let is_nat44 = self.args.kind == Kind::Nat44;
        let mut packets = self.ring.fill(|i, out| match chosen.get(i) {
            Some(&flow) if is_nat44 => {
                let Flow44 { inside, server } = flows.get44(flow);
                packets::write44(inside, server, frame, out)
            }
            Some(&flow) => packets::write6(&flows.get(flow), frame, out),
            None => 0,
        });
        packets.truncate(chosen.len());
        let time = timed(nat, self.now, &mut packets, &mut self.measured)?;
        for (packet, &i) in packets.iter().zip(chosen) {
            let got = match is_nat44 {
                true => packets::check44_out(packet.bytes(), &flows.get44(i), frame),
                false => packets::check4(packet.bytes(), &flows.get(i), frame),
            };
            let got = got.map_err(|e| anyhow::anyhow!("outbound, flow {i}: {e}"))?;
            let known = &mut self.outside[i as usize];
            anyhow::ensure!(known.1 == 0 || *known == got, "flow {i} had {known:?}, now {got:?}");
            *known = got;
            self.measured.verified += 1;
        }
        Ok(time)
    }

    /// Lets every session's time run out, and makes sure that none is left.
    fn close(&mut self, nat: &mut Nat) -> anyhow::Result<()> {
        const BUDGET: u64 = 256;
        self.now = self.now.plus_ms(10 * 60 * 1000);
        let start = ThreadTime::now();
        // The engine's sweep keeps a pace of its own by the clock: each call is given time for its whole
        // budget. One sweep looks at each record; a second one would find nothing to do.
        for _ in 0..2 * self.flows.count.div_ceil(BUDGET) + 2 {
            if nat.occupancy().sessions == 0 {
                break;
            }
            self.now = self.now.plus_ms(10_000);
            nat.expire(self.now, BUDGET as usize);
        }
        self.measured.closing += start.elapsed();
        let left = nat.occupancy();
        anyhow::ensure!(left.sessions == 0 && left.bindings == 0, "something outlived its time: {left:?}");
        Ok(())
    }

    /// A buffer's worth of flows, at random.
    fn choose(&mut self) -> Vec<u64> {
        let mut next = || {
            self.random = self.random.wrapping_add(1);
            let random = u128::from(packets::mix(self.random));
            ((random * u128::from(self.flows.count)) >> 64) as u64
        };
        (0..self.args.buffers).map(|_| next()).collect()
    }
}

/// Translates the packets in bursts: how long it took of the thread's own CPU time, so that what others do
/// on the machine meanwhile does not count, though their use of its caches still does. Each must be
/// forwarded.
fn timed(
    nat: &mut Nat,
    now: Instant,
    packets: &mut [Packet<'_>],
    m: &mut Measured,
) -> anyhow::Result<Duration> {
    let mut verdicts = [Verdict::Pass; BURST];
    let mut refused = None;
    let before = gatun_mem::count_allocations(true);
    let start = ThreadTime::now();
    for burst in packets.chunks_mut(BURST) {
        let done = nat.process(now, burst, &mut verdicts);
        let wrong = verdicts[..burst.len()].iter().find(|v| !matches!(v, Verdict::Forward));
        if done != burst.len() || wrong.is_some() {
            refused = refused.or(Some((done, wrong.copied())));
        }
    }
    let time = start.elapsed();
    m.allocations += gatun_mem::count_allocations(false).saturating_sub(before);
    m.packets += packets.len() as u64;
    match refused {
        None => Ok(time),
        Some((done, verdict)) => anyhow::bail!("{done} of a burst were taken; not forwarded: {verdict:?}"),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    round(values.get(values.len() / 2).copied().unwrap_or_default())
}

fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// Memory of this process that is in RAM, on huge pages that were set aside too.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kilobytes = |name| {
        let rest = status.lines().find_map(|line| line.strip_prefix(name))?;
        rest.split_whitespace().next()?.parse::<u64>().ok()
    };
    (kilobytes("VmRSS:").unwrap_or_default() + kilobytes("HugetlbPages:").unwrap_or_default()) * 1024
}

fn cpu_model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or("unknown".into(), |(_, name)| name.to_owned())
}
