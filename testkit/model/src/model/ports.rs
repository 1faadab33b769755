//! Rules for the outside address and port of a new binding: the engine chooses, and the model checks the
//! choice. This module has pools that assign single ports; [`super::blocks`] has the others.

use super::bib::Binding;
use super::blocks::PoolBlocks;
use super::ends::{End4, End6, ICMP, TCP};
use super::rules::Rules;
use super::subscribers::Owner;
use super::time::session_end;
use super::{Model, Result};
use gatun_nat::Plan;
use gatun_nat::plan::{Allocation, Filtering, HoldDown, Pairing, Pool4};
use gatun_wire::DropReason;
use std::collections::VecDeque;
use std::net::Ipv4Addr;

/// Choice: maximum number of hold-down settings in use at a time, the current one included.
const TERMS_MAX: usize = 4;

/// State of a pool beyond the plan and the bindings.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    pub(super) blocks: PoolBlocks,
    /// Held-down ports with transport and end (RFC 6888 REQ-8). Those of earlier settings come first.
    waits: Vec<VecDeque<(usize, End4, u64)>>,
    /// Held ports. Choice: a port that a static binding took out of hold-down, and that is held down again,
    /// is free at the end of the first wait.
    held_ports: Vec<(usize, End4)>,
    /// True if ports and blocks are held down at all (RFC 6888 REQ-8 C).
    pub(super) holds: bool,
}

pub(super) fn pools(plan: &Plan) -> Vec<Pool> {
    let rules = super::rules::all(plan);
    let pool = |n: usize| Pool {
        blocks: PoolBlocks::new(&plan.pools[n]),
        holds: holds(&rules, n),
        waits: vec![VecDeque::new()],
        ..Pool::default()
    };
    (0..plan.pools.len()).map(pool).collect()
}

/// RFC 6888 REQ-8 C.
fn holds(rules: &[Rules], pool: usize) -> bool {
    rules.iter().any(|r| r.pool == pool && r.filtering == Filtering::EndpointIndependent)
}

/// Hold-down of the single ports of a pool.
fn hold_down(pool: &Pool4, holds: bool) -> HoldDown {
    match &pool.allocation {
        Allocation::Random(terms) if holds => *terms,
        _ => HoldDown::default(),
    }
}

impl Pool {
    fn held_ports(&self, transport: usize) -> impl Iterator<Item = End4> + '_ {
        self.held_ports.iter().filter(move |h| h.0 == transport).map(|h| h.1)
    }

    fn end_wait(&mut self, (transport, outside, _): (usize, End4, u64)) {
        self.held_ports.retain(|h| *h != (transport, outside));
    }

    /// Frees held ports of removed addresses. Choice: such ports are free immediately, like the blocks
    /// there.
    pub(super) fn forget_left(&mut self, has: impl Fn(Ipv4Addr) -> bool) {
        self.waits.iter_mut().for_each(|queue| queue.retain(|wait| has(wait.1.0)));
        self.held_ports.retain(|held| has(held.1.0));
    }

    /// Changes the settings for ports released from now on. Choice: ports held by much older settings are
    /// free.
    pub(super) fn change_terms(&mut self, old: &Pool4, new: &Pool4, rules: &[Rules], number: usize) {
        let before = hold_down(old, self.holds);
        self.holds = holds(rules, number);
        if hold_down(new, self.holds) != before {
            self.waits.push(VecDeque::new());
            if self.waits.len() > TERMS_MAX {
                self.waits.remove(0).into_iter().for_each(|wait| self.end_wait(wait));
            }
        }
    }
}

/// Fit of a port: class kept (RFC 4787 REQ-3), class and parity kept (REQ-4), or any port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    Any,
    Class,
    ClassAndParity,
}

impl Model {
    pub(super) fn pool_has(&self, pool: usize, transport: usize, a: Ipv4Addr, port: u16) -> bool {
        self.plan.pools[pool].ranges.iter().any(|r| {
            r.transports[transport] && r.first <= a && a <= r.last && r.ports.0 <= port && port <= r.ports.1
        })
    }

    pub(super) fn gives_blocks(&self, pool: usize) -> bool {
        !matches!(self.plan.pools[pool].allocation, Allocation::Random(_))
    }

    /// Number of ports that a pool may assign.
    pub(super) fn ports_total(&self, pool: usize, transport: usize) -> u64 {
        if self.gives_blocks(pool) {
            return self.block_ports_total(pool, transport);
        }
        let ranges = self.plan.pools[pool].ranges.iter().filter(|r| r.transports[transport]);
        let each = |r: &gatun_nat::plan::PoolRange| {
            let addresses = u64::from(u32::from(r.last) - u32::from(r.first)) + 1;
            addresses * (u64::from(r.ports.1 - r.ports.0) + 1)
        };
        ranges.map(each).sum()
    }

    /// Numbers of used ports and of all ports of a pool.
    pub fn pool_usage(&self, pool: usize, transport: usize) -> (u64, u64) {
        (self.ports_used(pool, transport), self.ports_total(pool, transport))
    }

    /// Number of ports that are bound, or held down singly.
    pub(super) fn ports_used(&self, pool: usize, transport: usize) -> u64 {
        let bound = self.bindings.iter().filter(|b| b.transport == transport).map(|b| b.outside);
        let mut used: Vec<End4> = bound.chain(self.pools[pool].held_ports(transport)).collect();
        used.sort_unstable();
        used.dedup();
        used.retain(|&outside| match self.gives_blocks(pool) {
            true => self.block_at(pool, transport, outside).is_some_and(|n| !self.is_barred_block(pool, n)),
            false => self.pool_has(pool, transport, outside.0, outside.1),
        });
        used.len() as u64
    }

    /// Ports of an address that are neither bound nor held down.
    fn free_ports(&self, pool: usize, transport: usize, a: Ipv4Addr) -> Vec<u16> {
        let bound = self.bindings.iter().filter(|b| b.transport == transport).map(|b| b.outside);
        let held = self.pools[pool].held_ports(transport);
        let taken: Vec<u16> = bound.chain(held).filter(|o| o.0 == a).map(|o| o.1).collect();
        let ranges = self.plan.pools[pool].ranges.iter();
        let here = ranges.filter(|r| r.transports[transport] && r.first <= a && a <= r.last);
        here.flat_map(|r| r.ports.0..=r.ports.1).filter(|p| !taken.contains(p)).collect()
    }

    /// Addresses of the pool with a free port.
    fn open_addresses(&self, pool: usize, transport: usize) -> Vec<Ipv4Addr> {
        let mut all: Vec<Ipv4Addr> = Vec::new();
        for r in self.plan.pools[pool].ranges.iter().filter(|r| r.transports[transport]) {
            all.extend((u32::from(r.first)..=u32::from(r.last)).map(Ipv4Addr::from));
        }
        all.sort_unstable();
        all.dedup();
        all.retain(|&a| !self.free_ports(pool, transport, a).is_empty());
        all
    }

    fn fit(&self, pool: usize, transport: usize, inside: u16, port: u16) -> Fit {
        // ICMP identifiers have no classes.
        if transport == ICMP {
            return Fit::ClassAndParity;
        }
        let class = !self.plan.pools[pool].port_class || (inside < 1024) == (port < 1024);
        let parity = !self.plan.pools[pool].port_parity || inside % 2 == port % 2;
        match (class, parity) {
            (true, true) => Fit::ClassAndParity,
            (true, false) => Fit::Class,
            _ => Fit::Any,
        }
    }

    /// Outside address and port of a new binding: the port that a held SYN was sent to, if allowed (A61-40),
    /// otherwise the engine's choice, which is checked.
    pub(super) fn choose(
        &mut self,
        owner: Owner,
        transport: usize,
        inside: End6,
        wanted: Option<End4>,
    ) -> Result<End4> {
        let pool = self.rules[owner.0].pool;
        if self.gives_blocks(pool) {
            return self.choose_in_block(owner, transport, inside.1, wanted);
        }
        // A change may have removed the port from the pool since the SYN was held.
        if let Some(wanted) = wanted.filter(|w| self.pool_has(pool, transport, w.0, w.1)) {
            return Ok(wanted);
        }
        if self.ports_total(pool, transport) == 0 {
            return Err(DropReason::PoolEmpty);
        }
        let open = self.open_addresses(pool, transport);
        let paired = self.subscribers.iter().find(|s| s.owner == owner).and_then(|s| s.paired);
        // RFC 6146 3.5.1.1, RFC 4787 REQ-2: the subscriber's address, as long as it has free ports.
        let allowed = match paired {
            Some(a) if open.contains(&a) => vec![a],
            Some(_) if self.plan.pools[pool].pairing == Pairing::Hard => vec![],
            _ => open,
        };
        if allowed.is_empty() {
            let held = self.pools[pool].waits.iter().any(|queue| !queue.is_empty());
            return Err(if held { DropReason::HoldDownAll } else { DropReason::PortsExhausted });
        }
        let Some(chosen) = self.chosen() else {
            self.object(format!("the engine assigned no port, but {allowed:?} have free ones"));
            return Err(DropReason::PortsExhausted);
        };
        let free = self.free_ports(pool, transport, chosen.0);
        let fit = |port| self.fit(pool, transport, inside.1, port);
        let best = free.iter().map(|&p| fit(p)).max();
        if !allowed.contains(&chosen.0) || !free.contains(&chosen.1) || Some(fit(chosen.1)) != best {
            self.object(format!(
                "{chosen:?} was assigned to inside port {}; allowed {allowed:?}, best fit {best:?}, free {free:?}",
                inside.1
            ));
        }
        Ok(chosen)
    }

    /// Returns a port to its pool or block, or holds it down (RFC 6888 REQ-8).
    pub(super) fn port_is_back(&mut self, owner: Owner, b: &Binding) {
        let pool = self.rules[b.instance].pool;
        let Allocation::Random(HoldDown { ms, ports_max }) = self.plan.pools[pool].allocation else {
            return self.port_of_block_is_back(owner, b);
        };
        // RFC 6888 REQ-8 A: the engine follows TCP connections to their end, so they need no hold-down.
        let now = self.now;
        let p = &mut self.pools[pool];
        if b.transport == TCP || !p.holds || ms == 0 || ports_max == 0 {
            return p.held_ports.retain(|h| *h != (b.transport, b.outside));
        }
        let Some(queue) = p.waits.last_mut() else { return };
        let pushed_out = if queue.len() >= ports_max as usize { queue.pop_front() } else { None };
        queue.push_back((b.transport, b.outside, session_end(now, ms)));
        if let Some(oldest) = pushed_out {
            p.end_wait(oldest);
        }
        p.held_ports.push((b.transport, b.outside));
    }

    /// Ends hold-downs that are over, at most `budget` of each kind and pool.
    pub(super) fn expire_ports(&mut self, budget: usize) {
        let now = self.now;
        for pool in 0..self.pools.len() {
            self.end_lingering(pool, budget);
            let p = &mut self.pools[pool];
            for _ in 0..budget {
                let oldest = p.waits.iter_mut().find(|queue| !queue.is_empty());
                match oldest.and_then(|queue| queue.pop_front_if(|h| h.2 <= now)) {
                    Some(over) => p.end_wait(over),
                    None => break,
                }
            }
            p.blocks.end_hold_downs(now, budget);
        }
    }
}
