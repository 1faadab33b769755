//! Which outside address and port a new binding may get: the engine chooses, this says whether it may.

use super::bib::{Binding, End4, End6, ICMP};
use super::{Model, Result};
use gatun_nat::plan::Pairing;
use gatun_wire::DropReason;
use std::net::Ipv4Addr;

/// How well a port suits: its class kept (RFC 4787 REQ-3), its parity kept (REQ-4), or just a port.
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

    /// The pool's addresses that have ports for a transport.
    fn addresses(&self, pool: usize, transport: usize) -> Vec<Ipv4Addr> {
        let mut all: Vec<Ipv4Addr> = Vec::new();
        for r in self.plan.pools[pool].ranges.iter().filter(|r| r.transports[transport]) {
            for a in u32::from(r.first)..=u32::from(r.last) {
                if !all.contains(&a.into()) {
                    all.push(a.into());
                }
            }
        }
        all
    }

    /// The ports of an address that nobody has, and where `sure` is not set, those that somebody may
    /// have no more.
    pub(super) fn free_ports(&self, pool: usize, transport: usize, a: Ipv4Addr, sure: bool) -> Vec<u16> {
        let mut free = Vec::new();
        for r in &self.plan.pools[pool].ranges {
            if !r.transports[transport] || a < r.first || r.last < a {
                continue;
            }
            for port in r.ports.0..=r.ports.1 {
                let taken = self.binding_outside(transport, (a, port));
                let is_free = taken.is_none_or(|b| !sure && self.may_be_gone(b));
                if is_free && !free.contains(&port) {
                    free.push(port);
                }
            }
        }
        free
    }

    /// Bindings that have a port which nobody has seen yet.
    fn unseen_ports(&self, transport: usize) -> usize {
        self.bindings.iter().filter(|b| b.outside.is_none() && b.transport == transport).count()
    }

    /// Whether an address surely has a port to give.
    fn has_port(&self, pool: usize, transport: usize, a: Ipv4Addr) -> bool {
        self.free_ports(pool, transport, a, true).len() > self.unseen_ports(transport)
    }

    fn fit(&self, pool: usize, transport: usize, inside: u16, port: u16) -> Fit {
        // Identifiers have no classes.
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

    /// A new binding with the outside address and port that the engine chose, if the rules allow them.
    /// `chosen` is `None` where no packet shows it.
    pub(super) fn bind(
        &mut self,
        instance: usize,
        transport: usize,
        inside: End6,
        chosen: Option<End4>,
        refused: Option<DropReason>,
    ) -> Result<usize> {
        let pool = self.plan.nat64[instance].pool;
        let addresses = self.addresses(pool, transport);
        if addresses.is_empty() {
            return Err(DropReason::PoolEmpty);
        }
        let subscriber = (instance, self.subscriber(instance, inside.0));
        let paired = self.paired.iter().find(|p| (p.0, p.1) == subscriber).map_or(vec![], |p| p.2.clone());
        // A subscriber of which all is over may be new by now.
        let forgotten = self.count(|owner| owner == subscriber).least.sessions == 0;
        let hard = self.plan.pools[pool].pairing == Pairing::Hard;
        let sure = |m: &Model, a| m.has_port(pool, transport, a);
        if refused == Some(DropReason::PortsExhausted) {
            let exhausted = match hard && !paired.is_empty() {
                true => paired.iter().any(|&a| !sure(self, a)),
                false => addresses.iter().all(|&a| !sure(self, a)),
            };
            if exhausted {
                return Err(DropReason::PortsExhausted);
            }
        }
        let there_is = |a: &Ipv4Addr| !self.free_ports(pool, transport, *a, false).is_empty();
        let any = match hard && !forgotten && !paired.is_empty() {
            true => paired.iter().any(there_is),
            false => addresses.iter().any(there_is),
        };
        if !any {
            return Err(DropReason::PortsExhausted);
        }
        if let Some(chosen) = chosen {
            // Whoever had it has gone.
            if let Some(taken) = self.binding_outside(transport, chosen)
                && self.may_be_gone(taken)
            {
                self.bury(taken);
            }
            let keep: &[Ipv4Addr] = if forgotten { &[] } else { &paired };
            if !self.may_choose(pool, transport, inside, chosen, keep, hard) {
                // No packet can come from there: whatever the caller makes of it is not what was seen.
                return Err(DropReason::StaticConflict);
            }
            if keep.contains(&chosen.0) && keep.iter().all(|&a| sure(self, a)) {
                self.paired.retain(|p| (p.0, p.1) != subscriber);
                self.paired.push((subscriber.0, subscriber.1, vec![chosen.0]));
            }
        }
        Ok(self.add_binding(instance, transport, inside, chosen))
    }

    fn may_choose(
        &self,
        pool: usize,
        transport: usize,
        inside: End6,
        chosen: End4,
        paired: &[Ipv4Addr],
        hard: bool,
    ) -> bool {
        let sure = |a| self.has_port(pool, transport, a);
        if !self.free_ports(pool, transport, chosen.0, false).contains(&chosen.1) {
            return false; // not the pool's, or somebody's
        }
        // RFC 6146 3.5.1.1, RFC 4787 REQ-2: the address it has already, as long as that has ports.
        let fits = |&a: &Ipv4Addr| chosen.0 == a || (!hard && !sure(a));
        if !paired.is_empty() && !paired.iter().any(fits) {
            return false;
        }
        // The best fit of which surely one is left, though bindings that nobody has seen may have some.
        let free = self.free_ports(pool, transport, chosen.0, true);
        let mut fits: Vec<Fit> = free.into_iter().map(|p| self.fit(pool, transport, inside.1, p)).collect();
        fits.sort_unstable();
        let best = fits.iter().rev().nth(self.unseen_ports(transport)).copied();
        best.is_none_or(|best| self.fit(pool, transport, inside.1, chosen.1) >= best)
    }

    /// A binding as it is; its subscriber keeps the address if it has none yet.
    pub(super) fn add_binding(
        &mut self,
        instance: usize,
        transport: usize,
        inside: End6,
        outside: Option<End4>,
    ) -> usize {
        self.bindings.push(Binding {
            instance,
            transport,
            inside,
            outside,
            fixed: false,
            sessions: Vec::new(),
        });
        if let Some((address, _)) = outside {
            self.pair(instance, inside, address);
        }
        self.bindings.len() - 1
    }

    /// A subscriber's first binding gives it its address.
    pub(super) fn pair(&mut self, instance: usize, inside: End6, address: Ipv4Addr) {
        let prefix = self.subscriber(instance, inside.0);
        let others = self.count(|owner| owner == (instance, prefix)).least.sessions;
        match self.paired.iter_mut().find(|p| (p.0, p.1) == (instance, prefix)) {
            Some(known) if others == 0 && !known.2.contains(&address) => known.2.push(address),
            Some(_) => {}
            None => self.paired.push((instance, prefix, vec![address])),
        }
    }
}
