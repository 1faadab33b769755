//! One history through engine and model.

use super::change::changed;
use super::forge::{cut, error, forge, router4, router6, twisted};
use super::history::{Flood, Form, Op, Proto, Target};
use super::universe::{HOST_PORTS, OWN4, OWN6, POOLS, REMOTE_PORTS, host, host4, remote, universe};
use crate::coverage::Coverage;
use crate::model::{Model, Seen};
use gatun_nat::counters::Counters;
use gatun_nat::event::EventKinds;
use gatun_nat::plan::Transport;
use gatun_nat::reconfigure::{Change, Refused};
use gatun_nat::{BURST, EventReader, Instant, Nat, Plan, Verdict};
use gatun_wire::{DropReason, HEADROOM, Packet};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const BUFFER: usize = 4096;
const LATELY: usize = 8;
/// Time for a sweep to look at every record: twice its round, and some.
const SETTLE_MS: i64 = 4_100;

/// Longer than any life or wait.
const LONG_MS: i64 = 1 << 33;

/// A difference between engine and model.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The step that showed it.
    pub step: usize,
    /// What differs.
    pub what: String,
}

/// What a history without a difference has reached.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The engine's counters at the end.
    pub counters: Counters,
    /// What the model has seen.
    pub coverage: Coverage,
}

/// Runs a history in a universe. `seed` is the engine's.
///
/// # Errors
/// The first difference.
pub fn run(world: u64, seed: u64, ops: &[Op]) -> Result<Outcome, Failure> {
    let plan = universe(world);
    let mut pair = match Pair::new(&plan, seed, world) {
        Ok(pair) => pair,
        Err(what) => return Err(Failure { step: 0, what }),
    };
    for (step, op) in ops.iter().enumerate() {
        pair.step(op).map_err(|what| Failure { step, what })?;
    }
    let end = ops.len();
    pair.flush().map_err(|what| Failure { step: end, what })?;
    pair.settle().map_err(|what| Failure { step: end, what })?;
    pair.end().map_err(|what| Failure { step: end, what })?;
    Ok(Outcome { counters: pair.nat.counters().clone(), coverage: pair.model.coverage })
}

/// Engine and model, and what both were given.
pub(super) struct Pair {
    /// What the engine was made for, and what it has now.
    first: Plan,
    plan: Plan,
    pub(super) nat: Nat,
    events: Option<EventReader>,
    /// The same engine without events, now and then: they change nothing else.
    silent: Option<Nat>,
    pub(super) model: Model,
    pub(super) now: i64,
    /// Packets of a burst.
    burst: usize,
    pub(super) waiting: Vec<Vec<u8>>,
    /// What the last flush did: of use where there are several.
    pub(super) handled: Vec<(Vec<u8>, Seen)>,
    received: VecDeque<Vec<u8>>,
    /// Forwarded lately, as they came out: IPv4, IPv6.
    sent: [VecDeque<Vec<u8>>; 2],
    memory: Vec<u8>,
}

impl Pair {
    pub(super) fn new(plan: &Plan, seed: u64, world: u64) -> Result<Self, String> {
        let mut nat = Nat::new(plan, [seed, 2, 3, 4]).map_err(|e| format!("the plan is refused: {e}"))?;
        let silent = match world % 4 {
            0 => Some(
                Nat::new(&silent(plan), [seed, 2, 3, 4]).map_err(|e| format!("the plan is refused: {e}"))?,
            ),
            _ => None,
        };
        Ok(Pair {
            first: plan.clone(),
            plan: plan.clone(),
            events: nat.take_events(),
            silent,
            nat,
            burst: [4, 2, 4, 32][(world / 4 % 4) as usize],
            model: Model::new(plan),
            now: 1_000_000,
            waiting: Vec::new(),
            handled: Vec::new(),
            received: VecDeque::new(),
            sent: Default::default(),
            memory: vec![0xa5; BUFFER * BURST],
        })
    }

    /// It is one of several.
    pub(super) fn is_worker(&mut self, number: usize, of: usize) {
        let all = [Some(&mut self.nat), self.silent.as_mut()];
        all.into_iter().flatten().for_each(|nat| nat.set_worker(number, of));
    }

    pub(super) fn step(&mut self, op: &Op) -> Result<(), String> {
        match *op {
            Op::Clock { ms } => {
                self.flush()?;
                self.now = self.now.saturating_add(ms).max(0);
                return Ok(());
            }
            Op::Expire { budget } => {
                self.flush()?;
                return self.expire(budget as usize);
            }
            Op::Settle => {
                self.flush()?;
                return self.settle();
            }
            Op::Flush => return self.flush(),
            Op::Reload { seed } => {
                self.flush()?;
                return self.reload(seed);
            }
            _ => {}
        }
        let packets = self.packets_in_pieces(op);
        self.waiting.extend(packets);
        // Names of bindings are looked up before a burst.
        if self.waiting.len() >= self.burst { self.flush() } else { Ok(()) }
    }

    pub(super) fn packets_in_pieces(&self, op: &Op) -> Vec<Vec<u8>> {
        let packets = self.packets(op);
        match op.form().and_then(|form| form.cut) {
            Some(how) => packets.iter().flat_map(|packet| cut(packet, &how)).collect(),
            None => packets,
        }
    }

    /// The packets of a step.
    fn packets(&self, op: &Op) -> Vec<Vec<u8>> {
        match *op {
            Op::Clock { .. } | Op::Expire { .. } | Op::Settle | Op::Flush | Op::Reload { .. } => Vec::new(),
            Op::Again { back, twist } => match self.received.get(usize::from(back)) {
                Some(packet) => vec![twisted(packet.clone(), twist)],
                None => Vec::new(),
            },
            Op::Error { inside, about, kind, code, word, router, keep, form } => {
                self.error(inside, about, (kind, code, word), router, keep, &form)
            }
            Op::Out { proto, host: h, port, remote: r, rport, form } => {
                let (from, to) = self.through(form.door, h, remote(r));
                let ports = (host_port(port), REMOTE_PORTS[usize::from(rport) % 3]);
                vec![forge(proto, from, to, ports, &form)]
            }
            Op::Ping { inside, host: h, form } => {
                let (from, to) = match (inside, form.door % 2) {
                    (true, 0) => (host(h).into(), OWN6.into()),
                    (true, _) => self.through(form.door, h, OWN4),
                    (false, _) => (remote(h).into(), OWN4.into()),
                };
                vec![forge(Proto::Echo(form.ttl % 8 != 0), from, to, (7, 0), &form)]
            }
            Op::Flood { flood, proto, door, host: h, remote: r, first, packets } => {
                let each = |n: u8| self.of_flood(flood, proto, (door, h, r), first, n);
                (0..packets).map(each).collect()
            }
            Op::Hairpin { proto, host: h, port, target, form } => {
                let (address, t) = self.outside(proto, target);
                let (from, to) = self.through(form.door, h, address);
                vec![forge(proto, from, to, (host_port(port), t), &form)]
            }
            Op::In { proto, target, remote: r, rport, form } => {
                let (address, t) = self.outside(proto, target);
                let from = IpAddr::V4(remote(r));
                let ports = match proto {
                    Proto::Echo(_) | Proto::Icmp(_) => (t, 0),
                    _ => (REMOTE_PORTS[usize::from(rport) % 3], t),
                };
                vec![forge(proto, from, address.into(), ports, &form)]
            }
        }
    }

    /// A host behind a door, and how it writes to an IPv4 address through it.
    fn through(&self, door: u8, h: u8, to: Ipv4Addr) -> (IpAddr, IpAddr) {
        let prefixes: Vec<_> = self.plan.nat64.iter().flat_map(|n| &n.pool6).collect();
        let door = usize::from(door) % (prefixes.len() + self.plan.nat44.len());
        match prefixes.get(door) {
            Some(prefix) => (host(h).into(), prefix.embed(to).into()),
            None => (host4(door - prefixes.len(), h).into(), to.into()),
        }
    }

    fn of_flood(&self, flood: Flood, proto: Proto, (door, h, r): (u8, u8, u8), first: u16, n: u8) -> Vec<u8> {
        let port = first.wrapping_add(n.into());
        let form = &Form { door, ..Form::PLAIN };
        let (from, to) = self.through(door, if flood == Flood::Hosts { n } else { h }, remote(r));
        match flood {
            Flood::Ports => forge(proto, from, to, (port, REMOTE_PORTS[0]), form),
            Flood::Scan => forge(proto, from, to, (HOST_PORTS[0], port), form),
            Flood::Hosts => forge(proto, from, to, (first, REMOTE_PORTS[0]), form),
            Flood::FromOutside => {
                let to = Ipv4Addr::from(u32::from(POOLS[usize::from(h) % POOLS.len()]) + u32::from(h % 2));
                let ports = if matches!(proto, Proto::Echo(_)) { (port, 0) } else { (REMOTE_PORTS[0], port) };
                forge(proto, remote(r).into(), to.into(), ports, form)
            }
        }
    }

    fn outside(&self, proto: Proto, target: Target) -> (Ipv4Addr, u16) {
        self.known_target(proto, target).unwrap_or((POOLS[0], 1021))
    }

    /// The outside address and port that a step names, if they are known here.
    pub(super) fn known_target(&self, proto: Proto, target: Target) -> Option<(Ipv4Addr, u16)> {
        match target {
            Target::Port { address, port } => {
                let first = POOLS[usize::from(address / 3) % POOLS.len()];
                Some((Ipv4Addr::from(u32::from(first) + u32::from(address % 3)), port))
            }
            Target::Of { door, host: h, port } => {
                let transport = match proto {
                    Proto::Tcp(_) => 0,
                    Proto::Udp | Proto::UdpZero => 1,
                    _ => 2,
                };
                let inside: Ipv6Addr = match self.through(door, h, POOLS[0]).0 {
                    IpAddr::V4(a) => a.to_ipv6_mapped(),
                    IpAddr::V6(a) => a,
                };
                self.model.outside_of(transport, (inside, host_port(port)))
            }
        }
    }

    fn error(
        &self,
        inside: bool,
        about: u8,
        (kind, code, word): (u8, u8, u32),
        router: u8,
        keep: u16,
        form: &Form,
    ) -> Vec<Vec<u8>> {
        let Some(packet) = self.sent[usize::from(inside)].get(usize::from(about)) else { return Vec::new() };
        let quote = &packet[..packet.len().min(keep.into()).min(1200)];
        let header = if inside { 40 } else { 20 };
        if packet.len() < header {
            return Vec::new();
        }
        let (src, dst): (IpAddr, IpAddr) = if inside {
            let address = |at: usize| -> IpAddr {
                let octets: [u8; 16] = packet[at..at + 16].try_into().unwrap_or_default();
                octets.into()
            };
            (if router < 4 { address(24) } else { router6(router).into() }, address(8))
        } else {
            let address = |at: usize| -> IpAddr {
                let octets: [u8; 4] = packet[at..at + 4].try_into().unwrap_or_default();
                octets.into()
            };
            (if router < 4 { address(16) } else { router4(router).into() }, address(12))
        };
        // Extensions (RFC 4884) are the wire layer's matter, and its oracle's: none here.
        let word = match (inside, kind) {
            (true, 1 | 3) => word & 0x00ff_ffff,
            (false, 3 | 11 | 12) => word & 0xff00_ffff,
            _ => word,
        };
        vec![error(src, dst, kind, code, word, quote, form)]
    }

    /// Gives what waits to the engine as one burst, and to the model.
    pub(super) fn flush(&mut self) -> Result<(), String> {
        self.handled.clear();
        while !self.waiting.is_empty() {
            let mut packets = std::mem::take(&mut self.waiting);
            let rest = packets.split_off(packets.len().min(BURST));
            let (seen, left) = self.burst(&packets)?;
            self.model.at(self.now as u64);
            self.hear();
            for (packet, seen) in packets.iter().zip(&seen) {
                self.model.packet(packet, seen).map_err(|said| {
                    format!(
                        "packet    {}\nengine    {:?} {}\n  emitted {}\nmodel     {:?} {}\n  emitted {}\n{:?}\n{}",
                        hex(packet),
                        seen.verdict,
                        hex(&seen.bytes),
                        all_hex(&seen.emitted),
                        said.verdict,
                        said.bytes.as_deref().map_or("(no bytes)".into(), hex),
                        all_hex(&said.emitted),
                        self.model.has_heard_all(),
                        self.model.describe(),
                    )
                })?;
                self.remember(packet, seen);
            }
            self.waiting = packets.split_off(packets.len() - left);
            self.waiting.extend(rest);
            self.agree()?;
        }
        Ok(())
    }

    fn hear(&mut self) {
        let Pair { events: Some(events), model, .. } = self else { return };
        model.hear(std::iter::from_fn(|| events.next()));
    }

    /// Runs a burst through the engine; gives how many packets it left.
    fn burst(&mut self, packets: &[Vec<u8>]) -> Result<(Vec<Seen>, usize), String> {
        let now = Instant(self.now as u64);
        let (seen, left) = run_burst(&mut self.nat, &mut self.memory, now, packets);
        if let Some(silent) = &mut self.silent {
            let (also, _) = run_burst(silent, &mut self.memory, now, packets);
            if also != seen {
                return Err(format!("without events: {also:?}, and with them: {seen:?}"));
            }
        }
        Ok((seen, left))
    }

    fn remember(&mut self, packet: &[u8], seen: &Seen) {
        self.received.push_front(packet.to_vec());
        self.received.truncate(LATELY);
        self.handled.push((packet.to_vec(), seen.clone()));
        if seen.verdict == Verdict::Forward {
            for out in std::iter::once(&seen.bytes).chain(&seen.emitted) {
                let lately = &mut self.sent[usize::from(out[0] >> 4 == 6)];
                lately.push_front(out.clone());
                lately.truncate(LATELY);
            }
        }
    }

    fn expire(&mut self, budget: usize) -> Result<(), String> {
        self.sweep(budget)?;
        self.agree()
    }

    fn sweep(&mut self, budget: usize) -> Result<(), String> {
        let now = Instant(self.now as u64);
        let mut emitted = Vec::new();
        self.nat.expire(now, budget);
        self.nat.drain_emitted(|e| emitted.push(e.packet.bytes().to_vec()));
        if let Some(silent) = &mut self.silent {
            silent.expire(now, budget);
            silent.drain_emitted(|_| ());
        }
        self.model.at(self.now as u64);
        self.hear();
        self.model.expired(budget, &emitted).map_err(|said| {
            format!(
                "expire({budget})\nengine emitted {}\nmodel  emitted {}",
                all_hex(&emitted),
                all_hex(&said)
            )
        })
    }

    fn reload(&mut self, seed: u64) -> Result<(), String> {
        self.change_to(changed(&self.first, &self.plan, seed))
    }

    /// Whether the engine that runs could have another plan.
    pub(super) fn may_change_to(&self, new: &Plan) -> Result<bool, String> {
        Ok(change_of(&self.nat, &self.plan, new)?.is_some())
    }

    /// Gives both another plan, and lets the engine end what may not stay.
    pub(super) fn change_to(&mut self, new: Plan) -> Result<(), String> {
        let old = self.plan.clone();
        let now = Instant(self.now as u64);
        // What a running engine cannot do, or nobody.
        let Some(mut change) = change_of(&self.nat, &old, &new)? else { return Ok(()) };
        self.nat.apply(now, &mut change).map_err(|e| format!("not now: {e:?}"))?;
        if let Some(other) = &mut self.silent
            && let Some(mut change) = change_of(other, &silent(&old), &silent(&new))?
        {
            other.apply(now, &mut change).map_err(|e| format!("not now: {e:?}"))?;
        }
        self.plan = new;
        self.model.at(self.now as u64);
        self.hear();
        self.model.reload(&self.plan);
        while self.nat.is_settling() {
            self.sweep(usize::MAX)?;
        }
        let model = self.model.has_settled().map_err(|what| format!("{what}\n{}", self.model.describe()))?;
        let engine = self.nat.settled();
        if (engine.sessions, engine.blocks) != model {
            return Err(format!("by the change: engine {engine:?}, model {model:?}"));
        }
        self.agree()?;
        self.agree_on_subscribers()
    }

    /// Lets the sweep look at everything, and asks for what should have ended.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        self.expire(usize::MAX)?;
        let since = self.model.now_ms();
        for _ in 0..2 {
            self.now += SETTLE_MS;
            self.expire(usize::MAX)?;
        }
        self.model.swept(since)?;
        self.agree_on_subscribers()
    }

    /// Silence until every life and wait is over: all that is not configured is gone, and every port is back.
    pub(super) fn end(&mut self) -> Result<(), String> {
        // A probe, its answer's time, lingering, hold-down: one after the other.
        for _ in 0..5 {
            self.now = self.now.saturating_add(LONG_MS);
            self.settle()?;
        }
        let there = self.nat.occupancy();
        let fixed = |n: usize, b: usize| n + b;
        let of64 = self.plan.nat64.iter().map(|n| n.static_bindings.len()).fold(0, fixed);
        let fixed = self.plan.nat44.iter().map(|n| n.static_bindings.len()).fold(of64, fixed);
        if (there.sessions, there.bindings, there.subscribers, there.held_syns) != (0, fixed, 0, 0) {
            return Err(format!("after a long silence there is still {there:?}"));
        }
        if self.nat.counters().held != 0 {
            return Err(format!("after a long silence {} packets are held", self.nat.counters().held));
        }
        for pool in self.nat.pools() {
            let Some(blocks) = pool.block_usage() else { continue };
            if (blocks.owned, blocks.lingering, blocks.held) != (0, 0, 0) {
                return Err(format!("after a long silence blocks are still {blocks:?}"));
            }
        }
        Ok(())
    }

    /// Counters, gauges and events.
    fn agree(&mut self) -> Result<(), String> {
        self.model.has_heard_all().map_err(|what| format!("{what}\n{}", self.model.describe()))?;
        let (engine, model) = (self.nat.counters(), self.model.counters());
        if let Some(what) = difference(engine, model) {
            return Err(format!("{what}\n{}", self.model.describe()));
        }
        if !engine.conserved() {
            return Err(format!("packets are lost: {engine:?}"));
        }
        let (engine, model) = (self.nat.occupancy(), self.model.occupancy());
        if engine != model {
            return Err(format!("occupancy: engine {engine:?}, model {model:?}\n{}", self.model.describe()));
        }
        for (n, pool) in self.nat.pools().iter().enumerate() {
            for transport in Transport::ALL {
                let usage = pool.usage(transport);
                let model = self.model.pool_usage(n, transport as usize);
                if (usage.used, usage.total) != model {
                    return Err(format!("pool {n} {transport:?}: engine {usage:?}, model {model:?}"));
                }
            }
            let model = self.model.block_usage(n);
            if let Some(engine) = pool.block_usage()
                && engine != model
            {
                return Err(format!("blocks of pool {n}: engine {engine:?}, model {model:?}"));
            }
        }
        Ok(())
    }

    /// What each subscriber has.
    fn agree_on_subscribers(&self) -> Result<(), String> {
        let all = self.nat.subscribers();
        let mut engine: Vec<_> = (0..all.high())
            .filter_map(|id| all.get(id))
            .map(|s| (usize::from(s.key().instance), s.key().prefix, s.sessions, s.ports.map(u32::from)))
            .collect();
        engine.sort_unstable();
        let model = self.model.holdings();
        if engine != model {
            return Err(format!("subscribers: engine {engine:x?}, model {model:x?}"));
        }
        Ok(())
    }
}

/// Runs a burst through an engine; gives how many packets it left.
fn run_burst(nat: &mut Nat, memory: &mut [u8], now: Instant, packets: &[Vec<u8>]) -> (Vec<Seen>, usize) {
    let mut burst: Vec<Packet<'_>> = Vec::with_capacity(packets.len());
    for (buffer, bytes) in memory.chunks_exact_mut(BUFFER).zip(packets) {
        let len = bytes.len().min(BUFFER - HEADROOM);
        buffer[HEADROOM..HEADROOM + len].copy_from_slice(&bytes[..len]);
        burst.extend(Packet::new(buffer, HEADROOM, len));
    }
    let mut verdicts = vec![Verdict::Pass; burst.len()];
    let done = nat.process(now, &mut burst, &mut verdicts);
    let seen = burst.iter().zip(verdicts).take(done);
    let mut seen: Vec<Seen> =
        seen.map(|(p, verdict)| Seen { verdict, bytes: p.bytes().to_vec(), emitted: Vec::new() }).collect();
    nat.drain_emitted(|e| seen[e.after].emitted.push(e.packet.bytes().to_vec()));
    (seen, packets.len() - done)
}

/// The same plan without events.
fn silent(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    plan.events.kinds = EventKinds::NONE;
    plan
}

/// What makes an engine that of another plan, where a running one can be.
fn change_of(nat: &Nat, old: &Plan, new: &Plan) -> Result<Option<Change>, String> {
    match Change::prepare(&nat.outline(), old, new) {
        Ok(change) => Ok(Some(change)),
        Err(Refused::Restart(_)) => Ok(None),
        Err(Refused::Build(e)) => Err(format!("the other plan is refused: {e}")),
    }
}

fn host_port(n: u8) -> u16 {
    HOST_PORTS[usize::from(n) % HOST_PORTS.len()]
}

/// The first counter that differs.
fn difference(engine: &Counters, model: &Counters) -> Option<String> {
    let pairs = [
        ("rx", engine.rx, model.rx),
        ("forwarded", engine.forwarded, model.forwarded),
        ("passed", engine.passed, model.passed),
        ("replied", engine.replied, model.replied),
        ("dropped", engine.dropped, model.dropped),
        ("hairpinned", engine.hairpinned, model.hairpinned),
        ("translated 6to4", engine.translated[0], model.translated[0]),
        ("translated 4to6", engine.translated[1], model.translated[1]),
        ("translated 4to4", engine.translated[2], model.translated[2]),
    ];
    for (name, e, m) in pairs {
        if e != m {
            return Some(format!("counter {name}: engine {e:?}, model {m:?}"));
        }
    }
    for way in 0..3 {
        for &reason in DropReason::ALL {
            let (e, m) = (engine.drops[way][reason as usize], model.drops[way][reason as usize]);
            if e != m {
                return Some(format!("drops[{way}][{}]: engine {e:?}, model {m:?}", reason.name()));
            }
        }
    }
    let numbers = [
        ("held", engine.held, model.held),
        ("echo_replies", engine.echo_replies, model.echo_replies),
        ("icmp_errors_sent", engine.icmp_errors_sent, model.icmp_errors_sent),
        ("icmp_errors_limited", engine.icmp_errors_limited, model.icmp_errors_limited),
        ("icmp_errors_suppressed", engine.icmp_errors_suppressed, model.icmp_errors_suppressed),
        ("fragments_made", engine.fragments_made, model.fragments_made),
        ("probes_sent", engine.probes_sent, model.probes_sent),
    ];
    let differs = numbers.into_iter().find(|(_, e, m)| e != m);
    differs.map(|(name, e, m)| format!("counter {name}: engine {e}, model {m}"))
}

fn hex(bytes: &[u8]) -> String {
    let shown: String = bytes.iter().take(160).map(|b| format!("{b:02x}")).collect();
    let more = if bytes.len() > 160 { "..." } else { "" };
    format!("{} bytes {shown}{more}", bytes.len())
}

fn all_hex(all: &[Vec<u8>]) -> String {
    if all.is_empty() {
        return "nothing".into();
    }
    all.iter().map(|p| hex(p)).collect::<Vec<_>>().join("\n          ")
}
