//! Comparison of engine and model over one history.

use super::beside::Beside;
use super::change::changed;
use super::history::Op;
use super::universe::universe;
use crate::coverage::Coverage;
use crate::model::{Model, Observed, RealmPacket};
use gatun_nat::counters::Counters;
use gatun_nat::event::EventKinds;
use gatun_nat::plan::Transport;
use gatun_nat::reconfigure::{Change, Refused};
use gatun_nat::{BURST, EventReader, Instant, Nat, Plan, Verdict};
use gatun_wire::{DropReason, HEADROOM, Packet};
use std::collections::VecDeque;

const BUFFER: usize = 4096;
const LATELY: usize = 8;
/// Time in which a sweep visits every record: twice its period, with a margin.
const SETTLE_MS: i64 = 4_100;

/// Longer than any lifetime or wait.
const LONG_MS: i64 = 1 << 33;

/// A difference between engine and model.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Step that showed the difference.
    pub step: usize,
    /// The difference.
    pub what: String,
}

/// Result of a history without a difference.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The engine's counters at the end.
    pub counters: Counters,
    /// Coverage by the model.
    pub coverage: Coverage,
}

/// Runs a history in a universe; `seed` is the engine's.
///
/// # Errors
/// Returns the first difference.
pub fn run(world: u64, seed: u64, ops: &[Op]) -> Result<Outcome, Failure> {
    run_pair(world, seed, ops, None)
}

/// Runs a history with `beside`. Engine and model are compared as by [`run`], and get one packet at a time.
///
/// # Errors
/// Returns the first difference.
pub fn run_beside(world: u64, ops: &[Op], beside: &mut dyn Beside) -> Result<Outcome, Failure> {
    run_pair(world, world, ops, Some(beside))
}

/// Runs a history, perhaps with another translator.
fn run_pair(world: u64, seed: u64, ops: &[Op], beside: Option<&mut dyn Beside>) -> Result<Outcome, Failure> {
    let plan = universe(world);
    let mut pair = match Pair::new(&plan, seed, world) {
        Ok(pair) => pair,
        Err(what) => return Err(Failure { step: 0, what }),
    };
    pair.beside = beside;
    for (step, op) in ops.iter().enumerate() {
        pair.step(op).map_err(|what| Failure { step, what })?;
    }
    let end = ops.len();
    pair.flush().map_err(|what| Failure { step: end, what })?;
    pair.settle().map_err(|what| Failure { step: end, what })?;
    pair.end().map_err(|what| Failure { step: end, what })?;
    Ok(Outcome { counters: pair.nat.counters().clone(), coverage: pair.model.coverage })
}

/// Engine and model of one plan, with their inputs.
pub(super) struct Pair<'a> {
    /// Plan that the engine was made for; `plan` is its current one.
    first: Plan,
    pub(super) plan: Plan,
    pub(super) nat: Nat,
    events: Option<EventReader>,
    /// The same engine without events, in some universes: events change nothing else.
    silent: Option<Nat>,
    pub(super) model: Model,
    pub(super) now: i64,
    /// Packets in a burst.
    burst: usize,
    pub(super) waiting: Vec<RealmPacket>,
    /// Packets and results of the last flush, for a run with several workers.
    pub(super) handled: Vec<(RealmPacket, Observed)>,
    pub(super) received: VecDeque<RealmPacket>,
    /// Packets forwarded lately, as they came out: IPv4, IPv6.
    pub(super) sent: [VecDeque<RealmPacket>; 2],
    memory: Vec<u8>,
    /// Gets each packet before the engine.
    beside: Option<&'a mut dyn Beside>,
}

impl Pair<'_> {
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
            beside: None,
        })
    }

    /// Makes this engine worker `number` of `of`.
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
        // A step names bindings, which are looked up before the burst.
        if self.waiting.len() >= self.burst { self.flush() } else { Ok(()) }
    }

    /// Gives the waiting packets to the engine as one burst, and to the model.
    pub(super) fn flush(&mut self) -> Result<(), String> {
        self.handled.clear();
        while !self.waiting.is_empty() {
            let mut packets = std::mem::take(&mut self.waiting);
            let most = if self.beside.is_some() { 1 } else { BURST };
            let rest = packets.split_off(packets.len().min(most));
            if let (Some(beside), [packet]) = (&mut self.beside, &packets[..]) {
                beside.before(&self.nat, &self.plan, Instant(self.now as u64), packet);
            }
            let (seen, left) = self.burst(&packets)?;
            self.model.at(self.now as u64);
            self.hear();
            for (packet, seen) in packets.iter().zip(&seen) {
                self.model.packet(packet, seen).map_err(|said| {
                    format!(
                        "packet    {} from realm {}\nengine    {:?} to realm {} {}\n  emitted {}\nmodel     {:?} to realm {:?} {}\n  emitted {}\n{:?}\n{}",
                        hex(&packet.bytes),
                        packet.realm,
                        seen.verdict,
                        seen.realm,
                        hex(&seen.bytes),
                        all_hex(&seen.emitted),
                        said.verdict,
                        said.realm,
                        said.bytes.as_deref().map_or("(no bytes)".into(), hex),
                        all_hex(&said.emitted),
                        self.model.has_heard_all(),
                        self.model.describe(),
                    )
                })?;
                if let Some(beside) = &mut self.beside {
                    beside.after(packet, seen)?;
                }
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

    /// Runs a burst through the engine; returns the results and the number of unprocessed packets.
    fn burst(&mut self, packets: &[RealmPacket]) -> Result<(Vec<Observed>, usize), String> {
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

    fn remember(&mut self, packet: &RealmPacket, seen: &Observed) {
        self.received.push_front(packet.clone());
        self.received.truncate(LATELY);
        self.handled.push((packet.clone(), seen.clone()));
        if seen.verdict == Verdict::Forward {
            for out in seen.sent() {
                let lately = &mut self.sent[usize::from(out.bytes[0] >> 4 == 6)];
                lately.push_front(out);
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
        self.nat.drain_emitted(|e| emitted.push(in_realm(&e.packet)));
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

    /// Returns true if the running engine accepts another plan.
    pub(super) fn may_change_to(&self, new: &Plan) -> Result<bool, String> {
        Ok(change_of(&self.nat, &self.plan, new)?.is_some())
    }

    /// Gives another plan to both, and lets the engine end what the plan does not allow.
    pub(super) fn change_to(&mut self, new: Plan) -> Result<(), String> {
        let old = self.plan.clone();
        let now = Instant(self.now as u64);
        // A change that a running engine refuses is skipped.
        let Some(mut change) = change_of(&self.nat, &old, &new)? else { return Ok(()) };
        self.nat.apply(now, &mut change).map_err(|e| format!("the change is refused now: {e:?}"))?;
        if let Some(other) = &mut self.silent
            && let Some(mut change) = change_of(other, &silent(&old), &silent(&new))?
        {
            other.apply(now, &mut change).map_err(|e| format!("the change is refused now: {e:?}"))?;
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
            return Err(format!("ended by the change: engine {engine:?}, model {model:?}"));
        }
        self.agree()?;
        self.agree_on_subscribers()
    }

    /// Lets the sweep visit every record, and checks that everything due has ended.
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

    /// Waits until every lifetime is over: only configured bindings remain, and every port is free.
    pub(super) fn end(&mut self) -> Result<(), String> {
        // One round each: the probe, its wait, lingering, hold-down.
        for _ in 0..5 {
            self.now = self.now.saturating_add(LONG_MS);
            self.settle()?;
        }
        let there = self.nat.occupancy();
        let fixed = |n: usize, b: usize| n + b;
        let of64 = self.plan.nat64.iter().map(|n| n.static_bindings.len()).fold(0, fixed);
        let fixed = self.plan.nat44.iter().map(|n| n.static_bindings.len()).fold(of64, fixed);
        if (there.sessions, there.bindings, there.subscribers, there.held_syns) != (0, fixed, 0, 0) {
            return Err(format!("left after a long silence: {there:?}"));
        }
        if self.nat.counters().held != 0 {
            return Err(format!("{} packets are held after a long silence", self.nat.counters().held));
        }
        for pool in self.nat.pools() {
            let Some(blocks) = pool.block_usage() else { continue };
            if (blocks.owned, blocks.lingering, blocks.held) != (0, 0, 0) {
                return Err(format!("blocks left after a long silence: {blocks:?}"));
            }
        }
        Ok(())
    }

    /// Compares counters, gauges and events.
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

    /// Compares the sessions and ports of each subscriber.
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

/// Runs a burst through an engine; returns the results and the number of unprocessed packets.
fn run_burst(
    nat: &mut Nat,
    memory: &mut [u8],
    now: Instant,
    packets: &[RealmPacket],
) -> (Vec<Observed>, usize) {
    let mut burst: Vec<Packet<'_>> = Vec::with_capacity(packets.len());
    for (buffer, RealmPacket { realm, bytes }) in memory.chunks_exact_mut(BUFFER).zip(packets) {
        let len = bytes.len().min(BUFFER - HEADROOM);
        buffer[HEADROOM..HEADROOM + len].copy_from_slice(&bytes[..len]);
        let mut packet = Packet::new(buffer, HEADROOM, len);
        packet.iter_mut().for_each(|packet| packet.realm = *realm);
        burst.extend(packet);
    }
    let mut verdicts = vec![Verdict::Pass; burst.len()];
    let done = nat.process(now, &mut burst, &mut verdicts);
    let seen = burst.iter().zip(verdicts).take(done);
    let of = |(p, verdict): (&Packet<'_>, _)| {
        let RealmPacket { realm, bytes } = in_realm(p);
        Observed { verdict, realm, bytes, emitted: Vec::new() }
    };
    let mut seen: Vec<Observed> = seen.map(of).collect();
    nat.drain_emitted(|e| seen[e.after].emitted.push(in_realm(&e.packet)));
    (seen, packets.len() - done)
}

fn in_realm(packet: &Packet<'_>) -> RealmPacket {
    RealmPacket { realm: packet.realm, bytes: packet.bytes().to_vec() }
}

/// The same plan, without events.
fn silent(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    plan.events.kinds = EventKinds::NONE;
    plan
}

/// The change to another plan; `None` if a running engine refuses it.
fn change_of(nat: &Nat, old: &Plan, new: &Plan) -> Result<Option<Change>, String> {
    match Change::prepare(&nat.outline(), old, new) {
        Ok(change) => Ok(Some(change)),
        Err(Refused::Restart(_)) => Ok(None),
        Err(Refused::Build(e)) => Err(format!("the other plan is refused: {e}")),
    }
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
        ("translated v6>v4", engine.translated[0], model.translated[0]),
        ("translated v4>v6", engine.translated[1], model.translated[1]),
        ("translated v4>v4", engine.translated[2], model.translated[2]),
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
        (
            "icmp_errors_limited_per_source",
            engine.icmp_errors_limited_per_source,
            model.icmp_errors_limited_per_source,
        ),
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

fn all_hex(all: &[RealmPacket]) -> String {
    if all.is_empty() {
        return "nothing".into();
    }
    all.iter()
        .map(|p| format!("to realm {}: {}", p.realm, hex(&p.bytes)))
        .collect::<Vec<_>>()
        .join("\n          ")
}
