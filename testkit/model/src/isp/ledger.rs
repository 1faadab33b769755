//! Ledger of the events: current and past owners of ports, and checks of all rules. Nothing here reads the
//! engine's state.

use super::plan::{BLOCK, BLOCKS_EACH, HOLD_MS, PORTS_EACH, SESSIONS_EACH};
use gatun_nat::{Event, EventKind};
use std::collections::HashMap;
use std::net::Ipv6Addr;

/// Instance, and first address of the subscriber.
pub(super) type Owner = (u8, u128);
/// Outside address, port, transport.
pub(super) type Outside = (u32, u16, u8);

/// An invariant with its numbers of checks and violations, and its first violation.
#[derive(Clone, Debug, Default)]
pub struct Invariant {
    /// Number of checks.
    pub checks: u64,
    /// Number of violations.
    pub broken: u64,
    /// Description of the first violation.
    pub first: Option<String>,
}

impl Invariant {
    /// Checks the invariant once.
    pub(super) fn hold(&mut self, holds: bool, what: impl FnOnce() -> String) {
        self.checks += 1;
        if !holds {
            self.broken += 1;
            self.first.get_or_insert_with(what);
        }
    }
}

/// Holdings of a subscriber, by the events.
#[derive(Clone, Copy, Debug, Default)]
struct Holding {
    sessions: u32,
    ports: [u32; 3],
    blocks: u16,
    address: Option<u32>,
}

/// A line of the block log.
#[derive(Clone, Copy, Debug)]
struct Line {
    from_ms: u64,
    to_ms: u64,
    owner: Owner,
}

/// The ledger.
#[derive(Default)]
pub(super) struct Ledger {
    bindings: HashMap<Outside, (u8, u128, u16)>,
    holdings: HashMap<Owner, Holding>,
    /// Owners of each block in order, by address and first port.
    blocks: HashMap<(u32, u16), Vec<Line>>,
    /// Live bindings in each block.
    in_block: HashMap<(u32, u16), u32>,
    /// Number of events by kind.
    pub(super) events: [u64; EventKind::ALL.len()],
    sessions: u64,
    /// No outside address and port has two owners at a time.
    pub(super) unshared: Invariant,
    /// Every port lies in a block of its subscriber.
    pub(super) in_own_block: Invariant,
    /// A subscriber has one public address.
    pub(super) paired: Invariant,
    /// Sessions, ports and blocks are within their limits.
    pub(super) quotas: Invariant,
    /// A released block goes to nobody else for two minutes.
    pub(super) held_down: Invariant,
    /// Only existing state ends, and blocks end only when empty.
    pub(super) in_order: Invariant,
}

impl Ledger {
    /// Records an event.
    pub(super) fn note(&mut self, e: &Event) {
        self.events[e.kind as usize] += 1;
        match e.kind {
            EventKind::BindingCreated => self.bound(e),
            EventKind::BindingDeleted => self.unbound(e),
            EventKind::SessionCreated | EventKind::SessionDeleted => self.session(e),
            EventKind::BlockAssigned => self.assigned(e),
            EventKind::BlockReleased => self.released(e),
            EventKind::EventsLost => self.in_order.hold(false, || format!("{} events were lost", e.value)),
            _ => {}
        }
    }

    /// Owner of an outside address and port now: instance, inside address and port.
    pub(super) fn who_has(&self, outside: Outside) -> Option<(u8, u128, u16)> {
        self.bindings.get(&outside).copied()
    }

    /// Owner of an outside address and port at a time, by the block log alone.
    pub(super) fn who_had(&self, address: u32, port: u16, at_ms: u64) -> Option<Owner> {
        let lines = self.blocks.get(&(address, port / BLOCK * BLOCK))?;
        lines.iter().find(|l| l.from_ms <= at_ms && at_ms < l.to_ms).map(|l| l.owner)
    }

    /// Expected numbers of sessions, bindings and subscribers.
    pub(super) fn occupancy(&self) -> (usize, usize, usize) {
        let has = |h: &&Holding| h.sessions > 0 || h.blocks > 0;
        (self.sessions as usize, self.bindings.len(), self.holdings.values().filter(has).count())
    }

    /// Number of owned blocks.
    pub(super) fn blocks_owned(&self) -> usize {
        self.holdings.values().map(|h| usize::from(h.blocks)).sum()
    }

    /// Numbers of ports of the subscribers that have some, ascending.
    pub(super) fn ports_of_subscribers(&self) -> Vec<u32> {
        let mut all: Vec<u32> =
            self.holdings.values().map(|h| h.ports.iter().sum()).filter(|&n| n > 0).collect();
        all.sort_unstable();
        all
    }

    fn bound(&mut self, e: &Event) {
        let (outside, owner) = (outside_of(e), owner_of(e));
        let inside = (e.instance, u128::from(e.inside()), e.inside_port);
        let before = self.bindings.insert(outside, inside);
        self.unshared.hold(before.is_none(), || format!("{e:?} belongs to {before:?}"));
        let block = (outside.0, outside.1 / BLOCK * BLOCK);
        let has = self.blocks.get(&block).and_then(|lines| lines.last());
        let own = has.is_some_and(|l| l.owner == owner && l.to_ms == u64::MAX);
        self.in_own_block.hold(own, || format!("{e:?} lies in the block of {has:?}"));
        *self.in_block.entry(block).or_default() += 1;
        let h = self.holdings.entry(owner).or_default();
        h.ports[usize::from(outside.2)] += 1;
        self.quotas.hold(h.ports.iter().sum::<u32>() <= PORTS_EACH, || format!("{h:?} after {e:?}"));
        let address = *h.address.get_or_insert(outside.0);
        self.paired.hold(address == outside.0, || format!("{h:?} got {e:?}"));
    }

    fn unbound(&mut self, e: &Event) {
        let outside = outside_of(e);
        let was = self.bindings.remove(&outside);
        let right = was == Some((e.instance, u128::from(e.inside()), e.inside_port));
        self.in_order.hold(right, || format!("{e:?} ended {was:?}"));
        if let Some(n) = self.in_block.get_mut(&(outside.0, outside.1 / BLOCK * BLOCK)) {
            *n = n.saturating_sub(1);
        }
        let h = self.holdings.entry(owner_of(e)).or_default();
        let ports = &mut h.ports[usize::from(outside.2)];
        *ports = ports.saturating_sub(1);
    }

    fn session(&mut self, e: &Event) {
        let h = self.holdings.entry(owner_of(e)).or_default();
        if e.kind == EventKind::SessionCreated {
            self.sessions += 1;
            h.sessions += 1;
            self.quotas.hold(h.sessions <= SESSIONS_EACH, || format!("{h:?} after {e:?}"));
        } else {
            self.in_order.hold(h.sessions > 0, || format!("{e:?} without a creation"));
            h.sessions = h.sessions.saturating_sub(1);
            self.sessions = self.sessions.saturating_sub(1);
            forget(h);
        }
    }

    fn assigned(&mut self, e: &Event) {
        let owner = (e.instance, u128::from(e.inside()));
        let lines = self.blocks.entry((u32::from(e.outside()), e.outside_port)).or_default();
        let last = lines.last().copied();
        self.unshared.hold(last.is_none_or(|l| l.to_ms <= e.at.0), || format!("{e:?} belongs to {last:?}"));
        let soon = |l: Line| l.owner != owner && e.at.0 < l.to_ms.saturating_add(u64::from(HOLD_MS));
        self.held_down.hold(!last.is_some_and(soon), || format!("{e:?} after {last:?}"));
        lines.push(Line { from_ms: e.at.0, to_ms: u64::MAX, owner });
        let h = self.holdings.entry(owner).or_default();
        h.blocks += 1;
        self.quotas.hold(h.blocks <= BLOCKS_EACH, || format!("{h:?} after {e:?}"));
    }

    fn released(&mut self, e: &Event) {
        let owner = (e.instance, u128::from(e.inside()));
        let block = (u32::from(e.outside()), e.outside_port);
        let used = self.in_block.get(&block).copied().unwrap_or(0);
        let line = self.blocks.get_mut(&block).and_then(|lines| lines.last_mut());
        let right = used == 0 && line.as_ref().is_some_and(|l| l.owner == owner && l.to_ms == u64::MAX);
        self.in_order.hold(right, || format!("{e:?} ended {line:?}, with {used} ports in use"));
        if let Some(line) = line {
            line.to_ms = e.at.0;
        }
        let h = self.holdings.entry(owner).or_default();
        h.blocks = h.blocks.saturating_sub(1);
        forget(h);
    }
}

/// A subscriber without sessions and blocks may get another address.
fn forget(h: &mut Holding) {
    if h.sessions == 0 && h.blocks == 0 {
        h.address = None;
    }
}

fn outside_of(e: &Event) -> Outside {
    let transport = e.transports().iter().position(|&on| on).unwrap_or(0) as u8;
    (u32::from(e.outside()), e.outside_port, transport)
}

/// Subscriber of an event's inside host: a /64, or an IPv4 address.
fn owner_of(e: &Event) -> Owner {
    let inside = e.inside();
    let prefix = match inside.to_ipv4_mapped() {
        Some(_) => u128::from(inside),
        None => u128::from(Ipv6Addr::from(u128::from(inside) >> 64 << 64)),
    };
    (e.instance, prefix)
}
