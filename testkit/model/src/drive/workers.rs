//! Several workers, each with a model (decision 0061). The steering distributes packets, a packet to another
//! worker's public address is handed over to it, and all workers together behave like one translator.

use super::Outcome;
use super::change::changed;
use super::compare::{Failure, Pair};
use super::history::Op;
use super::universe::{POOLS, universe};
use crate::coverage::Coverage;
use crate::model::{Observed, RealmPacket};
use gatun_nat::plan::{Allocation, Pool4};
use gatun_nat::reconfigure::Refused;
use gatun_nat::workers::{Shares, Steering};
use gatun_nat::{Plan, Reply, Verdict};
use gatun_wire::DropReason;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Maximum hand-overs of a packet: a hairpin between two hosts takes one, its answer another.
const HANDED_ON_MAX: usize = 8;

/// Runs a history through the workers of a universe; `None` if workers cannot share it.
///
/// # Errors
/// Returns the first difference.
pub fn run(world: u64, seed: u64, ops: &[Op]) -> Result<Option<Outcome>, Failure> {
    let plan = shared_universe(world);
    let workers = 2 + (world % 2) as usize;
    let Ok(shares) = Shares::new(&plan, workers, [seed, 5, 6, 7]) else { return Ok(None) };
    let failure = |step| move |what| Failure { step, what };
    let mut group = WorkerGroup::new(plan, shares, seed, world).map_err(failure(0))?;
    for (step, op) in ops.iter().enumerate() {
        group.step(op).map_err(failure(step))?;
    }
    group.end().map_err(failure(ops.len()))?;
    let mut all = Outcome::default();
    for pair in &group.pairs {
        let counters = pair.nat.counters();
        all.counters.rx += counters.rx;
        for (sums, way) in all.counters.drops.iter_mut().zip(&counters.drops) {
            sums.iter_mut().zip(way).for_each(|(sum, n)| *sum += *n);
        }
        all.coverage.add(&pair.model.coverage);
    }
    all.coverage.add(&group.coverage);
    Ok(Some(all))
}

/// A universe whose pools have an address for each worker, and no formula.
fn shared_universe(world: u64) -> Plan {
    let mut plan = universe(world);
    for (n, pool) in plan.pools.iter_mut().enumerate() {
        if let Allocation::Deterministic(formula) = &pool.allocation {
            pool.allocation = Allocation::Blocks(formula.blocks);
        }
        widen(pool, POOLS[n], 5);
    }
    plan
}

fn widen(pool: &mut Pool4, first: Ipv4Addr, addresses: u32) {
    for range in &mut pool.ranges {
        range.last = Ipv4Addr::from(u32::from(first) + addresses - 1);
    }
}

struct WorkerGroup {
    /// Plan that the workers were made for; `plan` is their current one.
    first: Plan,
    plan: Plan,
    pairs: Vec<Pair<'static>>,
    steering: Steering,
    coverage: Coverage,
    /// Worker that forges the next packet, and gets packets that any worker may have.
    turn: usize,
}

impl WorkerGroup {
    fn new(plan: Plan, shares: Shares, seed: u64, world: u64) -> Result<Self, String> {
        let workers = shares.plans.len();
        let mut pairs = Vec::new();
        for (n, plan) in shares.plans.iter().enumerate() {
            let mut pair = Pair::new(plan, seed.wrapping_add(n as u64), world)?;
            pair.is_worker(n, workers);
            pairs.push(pair);
        }
        let (first, steering) = (plan.clone(), shares.steering);
        Ok(WorkerGroup { first, plan, pairs, steering, coverage: Coverage::default(), turn: 0 })
    }

    fn step(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::Reload { seed } => return self.reload(*seed),
            Op::Clock { .. } | Op::Expire { .. } | Op::Settle | Op::Flush => {
                self.flush()?;
                for pair in &mut self.pairs {
                    pair.step(op)?;
                }
                return self.agree();
            }
            _ => {}
        }
        self.turn += 1;
        let forger = self.forger(op);
        for packet in self.pairs[forger].packets_in_pieces(op) {
            let owner = self.steering.owner(&packet.bytes, packet.realm).unwrap_or(forger);
            self.pairs[owner].waiting.push(packet);
        }
        if self.pairs.iter().any(|pair| pair.waiting.len() >= 4) { self.flush() } else { Ok(()) }
    }

    /// Gives another plan to all workers, or to none.
    fn reload(&mut self, seed: u64) -> Result<(), String> {
        self.flush()?;
        let mut new = changed(&self.first, &self.plan, seed);
        for (n, pool) in
            new.pools.iter_mut().enumerate().filter(|(n, p)| p.ranges != self.plan.pools[*n].ranges)
        {
            widen(pool, POOLS[n], 3 + (seed % 6) as u32);
        }
        // The model does not cover sessions that end because their subscriber moves to another worker.
        for (new, old) in new.nat64.iter_mut().zip(&self.plan.nat64) {
            new.static_bindings.clone_from(&old.static_bindings);
        }
        for (new, old) in new.nat44.iter_mut().zip(&self.plan.nat44) {
            new.static_bindings.clone_from(&old.static_bindings);
        }
        let shares = match Shares::after(&self.steering, &new) {
            Ok(shares) => shares,
            Err(Refused::Restart(_)) => {
                self.coverage.mark("running workers refuse a plan");
                return Ok(());
            }
            Err(Refused::Build(e)) => return Err(format!("the other plan is refused: {e}")),
        };
        for (pair, plan) in self.pairs.iter().zip(&shares.plans) {
            if !pair.may_change_to(plan)? {
                return Ok(());
            }
        }
        for (pair, plan) in self.pairs.iter_mut().zip(shares.plans) {
            pair.change_to(plan)?;
        }
        (self.plan, self.steering) = (new, shares.steering);
        self.coverage.mark("workers change together");
        self.agree()
    }

    /// The worker that knows the binding of a step, otherwise the one whose turn it is.
    fn forger(&self, op: &Op) -> usize {
        let turn = self.turn % self.pairs.len();
        let (Op::In { proto, target, .. } | Op::Hairpin { proto, target, .. }) = op else { return turn };
        self.pairs.iter().position(|pair| pair.known_target(*proto, *target).is_some()).unwrap_or(turn)
    }

    /// Gives the workers their waiting packets, and those that they hand over to each other.
    fn flush(&mut self) -> Result<(), String> {
        for _ in 0..HANDED_ON_MAX {
            for n in 0..self.pairs.len() {
                self.pairs[n].flush()?;
                for (packet, seen) in std::mem::take(&mut self.pairs[n].handled) {
                    self.is_nobody_elses(n, &packet, &seen)?;
                    self.hand_on(n, &seen);
                }
            }
            if self.pairs.iter().all(|pair| pair.waiting.is_empty()) {
                break;
            }
        }
        self.agree()
    }

    /// Hands over packets that a worker sent to a public address of another one.
    fn hand_on(&mut self, from: usize, seen: &Observed) {
        for packet in seen.sent() {
            if let Some(owner) = self.steering.owner_after(&packet.bytes)
                && owner != from
            {
                self.coverage.mark("a packet is handed over to another worker");
                self.pairs[owner].waiting.push(packet);
            }
        }
    }

    /// Checks that no other worker has state for a packet that this worker has none for.
    fn is_nobody_elses(&self, worker: usize, packet: &RealmPacket, seen: &Observed) -> Result<(), String> {
        let (Verdict::Drop(reason) | Verdict::Reply(Reply::Error(reason))) = seen.verdict else {
            return Ok(());
        };
        use DropReason::*;
        if !matches!(reason, NoBib | NoSession | NonSynClosed | IcmpErrorNoState | NotInPool) {
            return Ok(());
        }
        for (n, other) in self.pairs.iter().enumerate().filter(|(n, _)| *n != worker) {
            let mut model = other.model.clone();
            if let Err(said) = model.packet(packet, seen)
                && said.verdict == Verdict::Forward
            {
                return Err(format!(
                    "worker {worker} has {reason:?} for {packet:x?}, which worker {n} knows"
                ));
            }
        }
        Ok(())
    }

    /// Checks all workers together: each subscriber, inside end and outside end belongs to one worker (RFC
    /// 4787 REQ-1, REQ-2, RFC 6888 REQ-4).
    fn agree(&self) -> Result<(), String> {
        let (mut subscribers, mut outside) = (BTreeMap::new(), BTreeMap::new());
        for (n, pair) in self.pairs.iter().enumerate() {
            for (instance, prefix, ..) in pair.model.holdings() {
                if let Some(other) = subscribers.insert((instance, prefix), n) {
                    return Err(format!("workers {other} and {n} have subscriber {prefix:x} of {instance}"));
                }
            }
            for (instance, inside, at) in pair.model.ends() {
                let owner = pair.model.subscriber_of(instance, inside);
                if let Some(other) = subscribers.get(&owner).filter(|other| **other != n) {
                    return Err(format!("worker {n} has a binding of {inside} of worker {other}"));
                }
                if let Some(other) = outside.insert(at, n) {
                    return Err(format!("workers {other} and {n} have {at:?}"));
                }
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        self.flush()?;
        for pair in &mut self.pairs {
            pair.settle()?;
            pair.end()?;
        }
        self.agree()
    }
}
