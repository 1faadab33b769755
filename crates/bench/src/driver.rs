//! Driver of an engine, with its flows and packet buffers, for all commands of the bench.
//!
//! Packets lie in buffers like a backend's. They are written and checked outside the measured time. Every
//! translated packet is checked in full.

use super::measure::StartingLine;
use super::packets::{self, Flow44, Flows, Ring};
use super::plans::{self, Logged, Ports};
use cpu_time::ThreadTime;
use gatun_nat::engine::BURST;
use gatun_nat::feed::{self, FeedPolicy, FeedReader};
use gatun_nat::plan::Transport;
use gatun_nat::redirect::{Tunnel, TunnelNode};
use gatun_nat::session_file::{
    InheritedSessions, Renumbering, RestoreError, SavedSessions, SessionFile, SessionFilter,
};
use gatun_nat::workers::{Shares, Steering};
use gatun_nat::{EventReader, Instant, Nat, Plan, SessionKey, Verdict};
use gatun_wire::{DropReason, Packet, vxlan};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use serde::Serialize;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Number of sessions that are ended together, between two bursts.
const ENDED_AT_A_TIME: usize = 64;
/// Number of records examined by one call of the sweep, as by a worker between two bursts.
const SWEEP_BUDGET: u64 = 256;
/// Number of saved records examined by one call when sessions are restored.
const RESTORE_AT_ONCE: usize = 4096;

/// Kind of translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// Stateless: mappings for hosts, the prefix for servers
    Siit,
    /// Stateful, UDP, one binding per session
    Nat64,
    /// Like nat64, for private IPv4 hosts
    Nat44,
}

/// Setup of a driver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) kind: Kind,
    pub(super) flows: Flows,
    pub(super) ports: Ports,
    /// Bytes of a frame on the wire.
    pub(super) frame: usize,
    /// Packets of a round.
    pub(super) buffers: u64,
    /// Logged events.
    pub(super) events: Logged,
    /// Records of the state feed, if it has a consumer.
    pub(super) feed: Option<FeedPolicy>,
    /// Seed of the hashes and of all random choices.
    pub(super) seed: u64,
}

impl Setup {
    /// Plan of the engine.
    ///
    /// # Errors
    /// Returns an error if no plan can serve so many flows.
    pub(super) fn plan(&self) -> anyhow::Result<Plan> {
        let mut plan = match self.kind {
            Kind::Nat64 => plans::nat64(self.flows, self.ports)?,
            Kind::Nat44 => plans::nat44(self.flows, self.ports)?,
            Kind::Siit => plans::siit(self.flows.subscribers)?,
        };
        if self.events != Logged::None {
            plans::log(&mut plan, self.events, self.ports, self.buffers)?;
        }
        Ok(plan)
    }

    /// Writes a packet from inside for each chosen flow.
    fn outbound(self, chosen: &[u64]) -> impl FnMut(usize, &mut [u8]) -> usize {
        let Setup { flows, frame, kind, .. } = self;
        move |i, out| match chosen.get(i) {
            Some(&flow) if kind == Kind::Nat44 => {
                let Flow44 { inside, server } = flows.get44(flow);
                packets::write44(inside, server, frame, out)
            }
            Some(&flow) => packets::write6(&flows.get(flow), frame, out),
            None => 0,
        }
    }
}

/// Buffers and notes without an engine, so that the engine's memory can be measured separately.
pub(super) struct Prepared {
    setup: Setup,
    ring: Ring,
    outside: Vec<(Ipv4Addr, u16)>,
}

impl Prepared {
    /// Allocates buffers and notes.
    ///
    /// # Errors
    /// Returns an error if memory is short.
    pub(super) fn new(setup: Setup) -> anyhow::Result<Self> {
        let outside = vec![(Ipv4Addr::BROADCAST, 0); usize::try_from(setup.flows.count)?];
        Ok(Prepared { setup, ring: Ring::new(usize::try_from(setup.buffers)?)?, outside })
    }

    /// Adds an engine without sessions.
    ///
    /// # Errors
    /// Returns an error if the engine cannot be built.
    pub(super) fn start(self, line: Arc<StartingLine>) -> anyhow::Result<Driver> {
        let Prepared { setup, ring, outside } = self;
        let plan = setup.plan()?;
        let seed = std::array::from_fn(|i| packets::mix(setup.seed * 4 + i as u64));
        let mut nat = Nat::new(&plan, seed).map_err(|error| anyhow::anyhow!("{}", error.0))?;
        let events = nat.take_events().filter(|_| setup.events != Logged::None);
        let (now, random) = (Instant(1_000), setup.seed << 40);
        let feed = setup.feed.map(|policy| {
            // Enough for all records between two reads.
            let (feed, reader) = feed::channel(policy, 4 * setup.buffers as usize, 0);
            nat.attach_feed(Some(Box::new(feed)));
            reader
        });
        Ok(Driver { setup, ring, outside, nat, events, feed, line, now, random, tally: Tally::default() })
    }
}

/// Counters of a driver.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// Measured packets.
    pub(super) packets: u64,
    /// Allocations of all threads during the translation.
    pub(super) allocations: u64,
    /// Checked packets.
    pub(super) verified: u64,
    /// Events read.
    pub(super) events: u64,
    /// Records of the state feed read.
    pub(super) records: u64,
}

/// Engine, flows and packet buffers of one thread.
pub(super) struct Driver {
    setup: Setup,
    ring: Ring,
    /// Public address and port of each flow, as seen on its first packet; port 0 without a session.
    outside: Vec<(Ipv4Addr, u16)>,
    pub(super) nat: Nat,
    events: Option<EventReader>,
    feed: Option<FeedReader>,
    line: Arc<StartingLine>,
    pub(super) now: Instant,
    random: u64,
    pub(super) tally: Tally,
}

impl Driver {
    pub(super) fn flows(&self) -> Flows {
        self.setup.flows
    }

    /// Sends the first packet of every flow, in shuffled order. Returns the time and the number of packets of
    /// each set of buffers.
    pub(super) fn open(&mut self) -> anyhow::Result<Vec<(Duration, u64)>> {
        let (count, shuffle) = (self.setup.flows.count, self.setup.flows.shuffle());
        let mut times = Vec::new();
        let mut first = 0;
        while first < count {
            let n = self.setup.buffers.min(count - first);
            let chosen: Vec<u64> = (first..first + n).map(|k| shuffle.at(k)).collect();
            times.push((self.outbound(&chosen, &[])?, n));
            first += n;
        }
        Ok(times)
    }

    /// Opens sessions in shuffled order until the first one is refused. Returns the number of open sessions.
    pub(super) fn open_until_refused(&mut self) -> anyhow::Result<u64> {
        let (Setup { flows, frame, kind, buffers, .. }, shuffle) = (self.setup, self.setup.flows.shuffle());
        let mut first = 0;
        while first < flows.count {
            let n = buffers.min(flows.count - first);
            let mut packets = self.ring.fill(|i, out| match shuffle.at(first + i as u64) {
                _ if i as u64 >= n => 0,
                flow if kind == Kind::Nat44 => {
                    let Flow44 { inside, server } = flows.get44(flow);
                    packets::write44(inside, server, frame, out)
                }
                flow => packets::write6(&flows.get(flow), frame, out),
            });
            packets.truncate(n as usize);
            let mut verdicts = [Verdict::Pass; BURST];
            for burst in packets.chunks_mut(BURST) {
                anyhow::ensure!(self.nat.process(self.now, burst, &mut verdicts) == burst.len());
                let opened =
                    verdicts[..burst.len()].iter().take_while(|v| matches!(v, Verdict::Forward)).count();
                first += opened as u64;
                if opened < burst.len() {
                    return Ok(first);
                }
            }
        }
        Ok(first)
    }

    /// UDP ports of the pool.
    pub(super) fn udp_ports(&self) -> u64 {
        self.nat.pools().first().map_or(0, |pool| pool.usage(Transport::Udp).total)
    }

    /// Replaces the line at which this driver waits for others.
    pub(super) fn set_line(&mut self, line: Arc<StartingLine>) {
        self.line = line;
    }

    /// Replaces the flows, for a test of refusals.
    #[cfg(test)]
    pub(super) fn offer(&mut self, flows: Flows) {
        self.setup.flows = flows;
    }

    /// Sends one packet of each chosen flow from inside, checks it, and notes its public address and port.
    /// Sessions of `ends` are ended between the bursts, within the measured time.
    pub(super) fn outbound(&mut self, chosen: &[u64], ends: &[u64]) -> anyhow::Result<Duration> {
        let Setup { flows, frame, kind, .. } = self.setup;
        let ends = self.forget(ends);
        let mut packets = self.ring.fill(self.setup.outbound(chosen));
        packets.truncate(chosen.len());
        self.line.wait();
        let time = timed(&mut self.nat, self.now, &mut packets, &ends, &mut self.tally)?;
        for (packet, &i) in packets.iter().zip(chosen) {
            let got = match kind {
                Kind::Nat44 => packets::check44_out(packet.bytes(), &flows.get44(i), frame),
                _ => packets::check4(packet.bytes(), &flows.get(i), frame),
            };
            let got = got.map_err(|e| anyhow::anyhow!("outbound, flow {i}: {e}"))?;
            let known = &mut self.outside[i as usize];
            anyhow::ensure!(known.1 == 0 || *known == got, "flow {i} had {known:?}, now {got:?}");
            *known = got;
            self.tally.verified += 1;
        }
        self.read_events();
        Ok(time)
    }

    /// Has one packet of each chosen flow from inside redirected to another node, and checks it.
    pub(super) fn redirected(&mut self, chosen: &[u64], cluster: &Cluster) -> anyhow::Result<Duration> {
        let is_v6 = self.setup.kind != Kind::Nat44;
        let mut originals = Ring::new(chosen.len())?;
        let originals = originals.fill(self.setup.outbound(chosen));
        let mut packets = self.ring.fill(self.setup.outbound(chosen));
        packets.truncate(chosen.len());
        self.line.wait();
        let time = timed_redirect(&mut self.nat, self.now, &mut packets, cluster)?;
        for (packet, original) in packets.iter_mut().zip(originals) {
            let mut expected = original.bytes().to_vec();
            vxlan::take_hop(&mut expected, is_v6);
            let sender = vxlan::sender(packet.bytes());
            vxlan::decapsulate(packet).map_err(|why| anyhow::anyhow!("{}", why.name()))?;
            anyhow::ensure!(
                packet.bytes() == expected && sender == Some(cluster.tunnel.own()),
                "a wrong packet"
            );
            self.tally.verified += 1;
        }
        Ok(time)
    }

    /// Sends one packet to each chosen flow from outside and checks it. `ends` as in
    /// [`outbound`](Self::outbound).
    pub(super) fn inbound(&mut self, chosen: &[u64], ends: &[u64]) -> anyhow::Result<Duration> {
        let Setup { flows, frame, kind, .. } = self.setup;
        let ends = self.forget(ends);
        let outside = &self.outside;
        let mut packets = self.ring.fill(|i, out| match chosen.get(i) {
            Some(&flow) if kind == Kind::Nat44 => {
                packets::write44(flows.get44(flow).server, outside[flow as usize], frame, out)
            }
            Some(&flow) => packets::write4(&flows.get(flow), outside[flow as usize], frame, out),
            None => 0,
        });
        packets.truncate(chosen.len());
        self.line.wait();
        let time = timed(&mut self.nat, self.now, &mut packets, &ends, &mut self.tally)?;
        for (packet, &flow) in packets.iter().zip(chosen) {
            let checked = match kind {
                Kind::Nat44 => packets::check44_back(packet.bytes(), &flows.get44(flow), frame),
                _ => packets::check6(packet.bytes(), &flows.get(flow), frame),
            };
            checked.map_err(|e| anyhow::anyhow!("inbound, flow {flow}: {e}"))?;
            self.tally.verified += 1;
        }
        self.read_events();
        Ok(time)
    }

    /// Checks that one more session than the table holds is refused and changes nothing.
    pub(super) fn refuse_one_more(&mut self) -> anyhow::Result<()> {
        let Setup { flows, frame, kind, .. } = self.setup;
        let before = self.nat.occupancy().sessions;
        let mut packets = self.ring.fill(|i, out| match (i, kind) {
            (0, Kind::Nat44) => {
                let Flow44 { inside, server } = flows.get44(flows.count);
                packets::write44(inside, server, frame, out)
            }
            (0, _) => packets::write6(&flows.get(flows.count), frame, out),
            _ => 0,
        });
        let mut verdicts = [Verdict::Pass];
        self.nat.process(self.now, &mut packets[..1], &mut verdicts);
        let [verdict] = verdicts;
        let after = self.nat.occupancy().sessions;
        let full = Verdict::Drop(DropReason::SessionTableFull);
        anyhow::ensure!(verdict == full && before == after, "{verdict:?} with {after} sessions");
        Ok(())
    }

    /// Replaces the engine by a new one that restores the sessions in `file`. Returns the file of the new
    /// engine's sessions, the time until it could translate for them, and the time until all were restored.
    pub(super) fn start_again(
        &mut self,
        file: Option<&OwnedFd>,
    ) -> anyhow::Result<(OwnedFd, Duration, Duration)> {
        let plan = self.setup.plan()?;
        let next = memfd_create("sessions", MemfdFlags::CLOEXEC)?;
        ftruncate(&next, SessionFile::bytes(&plan))?;
        let file_of_sessions = SessionFile::new(next.as_fd(), &plan, 0)?;
        let seed = std::array::from_fn(|i| self.random + i as u64);
        self.random += 4;
        let with_session_file = Nat::with_session_file(&plan, seed, Some(file_of_sessions));
        self.nat = with_session_file.map_err(|error| anyhow::anyhow!("{}", error.0))?;
        self.events = self.nat.take_events().filter(|_| self.setup.events != Logged::None);
        let start = ThreadTime::now();
        let mut found = Duration::ZERO;
        if let Some(file) = file {
            let records = SavedSessions::take_over(file.as_fd(), self.now.0, 1)
                .map_err(|why| anyhow::anyhow!("{why}"))?;
            let prefixes = |prefixes: usize| (0..prefixes).map(|n| u8::try_from(n).ok()).collect();
            let of64 = plan.nat64.iter().map(|nat| prefixes(nat.pool6.len()));
            let all = of64.chain(plan.nat44.iter().map(|_| Vec::new()));
            let numbers = Renumbering { instances: (0..).zip(all).map(Some).collect() };
            let inherited =
                records.into_iter().map(|records| InheritedSessions { records, numbers: numbers.clone() });
            let parts = inherited.map(|inherited| self.nat.finder().find(inherited, &SessionFilter::All));
            let parts = parts.collect::<Result<_, _>>()?;
            self.nat.inherit(self.now, parts);
            found = start.elapsed();
            while !self.nat.restore_some(self.now, RESTORE_AT_ONCE) {
                self.read_events();
            }
            if let Some(why) = self.nat.progress().not.iter().position(|n| *n > 0) {
                anyhow::bail!("a session {}", RestoreError::ALL[why].help());
            }
        }
        Ok((next, found, start.elapsed()))
    }

    /// Sends a packet from outside for every session and checks it (validation phase of RFC 9693).
    pub(super) fn validate_all(&mut self) -> anyhow::Result<()> {
        let mut first = 0;
        while first < self.setup.flows.count {
            let n = self.setup.buffers.min(self.setup.flows.count - first);
            let chosen: Vec<u64> = (first..first + n).collect();
            self.inbound(&chosen, &[])?;
            first += n;
        }
        Ok(())
    }

    /// Ends the sessions of `flows` on request, some at a time. Returns the time.
    pub(super) fn end(&mut self, flows: &[u64]) -> anyhow::Result<Duration> {
        let keys = self.forget(flows);
        let start = ThreadTime::now();
        let ended: usize = keys.chunks(BURST).map(|some| self.nat.end_sessions(self.now, some)).sum();
        let time = start.elapsed();
        self.read_events();
        anyhow::ensure!(ended == flows.len(), "{ended} of {} sessions were ended", flows.len());
        Ok(time)
    }

    /// Lets every session expire and checks that none is left. Returns the time.
    pub(super) fn expire_all(&mut self) -> anyhow::Result<Duration> {
        // The ring has room for the events of so many calls.
        const CALLS: u64 = 8;
        self.now = self.now.plus_ms(10 * 60 * 1000);
        let mut time = Duration::ZERO;
        // The sweep is paced by the clock: each call gets time for its whole budget. One sweep examines each
        // record, and a second one finds nothing.
        for _ in 0..2 * self.setup.flows.count.div_ceil(SWEEP_BUDGET * CALLS) + 2 {
            if self.nat.occupancy().sessions == 0 {
                break;
            }
            let start = ThreadTime::now();
            for _ in 0..CALLS {
                self.now = self.now.plus_ms(10_000);
                self.nat.expire(self.now, SWEEP_BUDGET as usize);
            }
            time += start.elapsed();
            self.read_events();
        }
        let left = self.nat.occupancy();
        anyhow::ensure!(left.sessions == 0 && left.bindings == 0, "sessions or bindings are left: {left:?}");
        // Port blocks linger, are held down, and are then free again.
        for _ in 0..3 {
            self.now = self.now.plus_ms(10 * 60 * 1000);
            self.nat.expire(self.now, usize::MAX);
            self.read_events();
        }
        self.outside.fill((Ipv4Addr::BROADCAST, 0));
        Ok(time)
    }

    /// Checks the counters and returns the tally.
    ///
    /// # Errors
    /// Returns an error if the counters do not add up, or an event was lost.
    pub(super) fn finish(self) -> anyhow::Result<Tally> {
        let counters = self.nat.counters();
        anyhow::ensure!(counters.conserved(), "the counters do not add up: {counters:?}");
        anyhow::ensure!(self.nat.events_lost() == 0, "{} events were lost", self.nat.events_lost());
        Ok(self.tally)
    }

    /// Chooses a random flow for each buffer.
    pub(super) fn choose(&mut self) -> Vec<u64> {
        (0..self.setup.buffers).map(|_| self.any()).collect()
    }

    /// Chooses a random flow.
    pub(super) fn any(&mut self) -> u64 {
        self.random = self.random.wrapping_add(1);
        packets::below(self.setup.flows.count, packets::mix(self.random))
    }

    /// Notes that flows will have no session. Returns their keys.
    fn forget(&mut self, flows: &[u64]) -> Vec<SessionKey> {
        flows.iter().for_each(|&flow| self.outside[flow as usize].1 = 0);
        flows.iter().map(|&flow| self.key(flow)).collect()
    }

    fn key(&self, flow: u64) -> SessionKey {
        let (inside, remote) = match self.setup.kind {
            Kind::Nat44 => {
                let Flow44 { inside, server } = self.setup.flows.get44(flow);
                ((inside.0.to_ipv6_mapped(), inside.1), server)
            }
            _ => {
                let flow = self.setup.flows.get(flow);
                (flow.inside, flow.server)
            }
        };
        SessionKey { instance: 0, transport: Transport::Udp, inside, remote }
    }

    fn read_events(&mut self) {
        if let Some(reader) = &mut self.events {
            while reader.next().is_some() {
                self.tally.events += 1;
            }
        }
        if let Some(reader) = &mut self.feed {
            while reader.next().is_some() {
                self.tally.records += 1;
            }
        }
    }
}

/// Another node of a cluster, which translates everything.
pub(super) struct Cluster {
    steering: Steering,
    tunnel: Tunnel,
}

impl Cluster {
    /// Creates the steering of a plan with one shard.
    ///
    /// # Errors
    /// The plan cannot be divided.
    pub(super) fn new(setup: &Setup) -> anyhow::Result<Cluster> {
        let plan = Plan { shards: Some(1), ..setup.plan()? };
        let shares = Shares::new(&plan, 1, [7; 4]).map_err(|error| anyhow::anyhow!("{}", error.0))?;
        let node = |name: &str, last: u8| {
            let address = Ipv4Addr::new(198, 18, 0, last).into();
            TunnelNode { name: name.into(), address }
        };
        let tunnel = Tunnel::new(0, vec![node("a", 1), node("b", 2)], vxlan::PORT, 1, 1600);
        let tunnel = tunnel.map_err(|error| anyhow::anyhow!("{}", error.0))?;
        Ok(Cluster { steering: shares.steering, tunnel })
    }
}

/// Finds the shards of packets, and redirects the packets. Returns the CPU time of the thread.
#[inline(never)]
fn timed_redirect(
    nat: &mut Nat,
    now: Instant,
    packets: &mut [Packet<'_>],
    cluster: &Cluster,
) -> anyhow::Result<Duration> {
    let start = ThreadTime::now();
    let mut redirected = 0;
    for packet in &mut *packets {
        let is_ours = cluster.steering.part_of(packet.bytes(), 0) == Some(0);
        let verdict = nat.redirect(now, packet, &cluster.tunnel, 1);
        nat.drain_emitted(|_| {});
        redirected += usize::from(is_ours && verdict == Verdict::Redirect);
    }
    let time = start.elapsed();
    anyhow::ensure!(redirected == packets.len(), "{redirected} of {} packets", packets.len());
    Ok(time)
}

/// Translates packets in bursts, all of which must be forwarded. Sessions of `ends` are ended between the
/// bursts. Returns the CPU time of the thread, so that other programs do not count, except for their use of
/// the caches.
#[inline(never)]
fn timed(
    nat: &mut Nat,
    now: Instant,
    packets: &mut [Packet<'_>],
    ends: &[SessionKey],
    tally: &mut Tally,
) -> anyhow::Result<Duration> {
    let mut verdicts = [Verdict::Pass; BURST];
    let mut refused = None;
    let (mut groups, mut ended) = (ends.chunks(ENDED_AT_A_TIME), 0);
    let every = (packets.len() / BURST / groups.len().max(1)).max(1);
    let before = gatun_mem::count_allocations(true);
    let start = ThreadTime::now();
    for (i, burst) in packets.chunks_mut(BURST).enumerate() {
        if i % every == 0 {
            ended += groups.next().map_or(0, |group| nat.end_sessions(now, group));
        }
        let done = nat.process(now, burst, &mut verdicts);
        let wrong = verdicts[..burst.len()].iter().find(|v| !matches!(v, Verdict::Forward));
        if done != burst.len() || wrong.is_some() {
            refused = refused.or(Some((done, wrong.copied())));
        }
    }
    ended += groups.map(|group| nat.end_sessions(now, group)).sum::<usize>();
    let time = start.elapsed();
    tally.allocations += gatun_mem::count_allocations(false).saturating_sub(before);
    tally.packets += packets.len() as u64;
    anyhow::ensure!(ended == ends.len(), "{ended} of {} sessions were ended", ends.len());
    match refused {
        None => Ok(time),
        Some((done, verdict)) => {
            anyhow::bail!("{done} packets of a burst were processed; not forwarded: {verdict:?}")
        }
    }
}
