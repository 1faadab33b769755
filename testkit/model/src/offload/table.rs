//! The table of a fast path: entries that survive every process.

use super::switch::ModelSwitch;
use gatun_nat::counters::{Count, Traffic};
use gatun_nat::feed::Flow;
use gatun_nat::plan::Transport;
use gatun_offload::{EntryUse, OffloadedFlow, Refusal, Removal, Target};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

/// Source, destination and protocol of a packet.
pub(super) type Key = ((IpAddr, u16), (IpAddr, u16), Transport);

/// An entry.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) flow: OffloadedFlow,
    /// Use since it was last taken.
    pub(super) traffic: Traffic,
    /// Times of the last packets by direction, at first of the installation; ms.
    pub(super) seen: [u64; 2],
    /// True if it has translated packets from inside.
    pub(super) is_used: bool,
    pub(super) is_closing: bool,
    pub(super) is_pending: bool,
    /// True if it never had a session.
    pub(super) is_stray: bool,
}

/// State of the table.
#[derive(Default)]
pub(super) struct Entries {
    pub(super) now: u64,
    pub(super) lease_until: u64,
    pub(super) epoch: u16,
    pub(super) capacity: u32,
    pub(super) all: BTreeMap<u64, Entry>,
    pub(super) next: u64,
    /// Number of flows that are refused from now on.
    pub(super) refusals: u8,
    /// Packets translated, and those of them that a manager has taken.
    pub(super) translated: u64,
    pub(super) taken: u64,
    /// Packets that came after the lease had expired.
    pub(super) unleased: u64,
    /// Switches. If there are any, they translate instead of the table.
    pub(super) switches: Vec<ModelSwitch>,
    /// True once packets may have been counted by a switch that lost its counters, or its controller.
    pub(super) is_uncounted: bool,
    /// Times of the last packets from inside, of removed entries.
    pub(super) last: BTreeMap<Flow, u64>,
}

/// Record of an entry that never had a session.
pub(super) const STRAY: u32 = 1_000_000;

/// The manager's access to the table.
#[derive(Clone)]
pub(super) struct Table(pub(super) Rc<RefCell<Entries>>);

/// Packets of a flow from inside.
pub(super) fn outbound(of: &OffloadedFlow) -> Key {
    let flow = &of.session.flow;
    let inside = match of.remote6 {
        Some(_) => IpAddr::V6(flow.inside.0),
        None => flow.inside.0.to_canonical(),
    };
    let remote = of.remote6.map_or(IpAddr::V4(flow.remote.0), IpAddr::V6);
    ((inside, flow.inside.1), (remote, flow.remote.1), flow.transport)
}

/// Packets of a flow to the inside.
pub(super) fn inbound(of: &OffloadedFlow) -> Key {
    let flow = &of.session.flow;
    let to = (IpAddr::V4(flow.outside.0), flow.outside.1);
    ((IpAddr::V4(flow.remote.0), flow.remote.1), to, flow.transport)
}

impl Entry {
    fn outbound(&self) -> Key {
        outbound(&self.flow)
    }

    fn inbound(&self) -> Key {
        inbound(&self.flow)
    }

    fn take(&mut self, now: u64) -> EntryUse {
        EntryUse {
            traffic: std::mem::take(&mut self.traffic),
            seen_ago: self.seen.map(|seen| Duration::from_millis(now - seen)),
            is_closing: self.is_closing,
            is_pending: self.is_pending,
        }
    }
}

impl Entries {
    /// Translates a packet, if an entry has its flow. `ends` is true for SYN, FIN and RST.
    pub(super) fn translate(&mut self, key: &Key, bytes: u64, ends: bool) -> bool {
        if !self.switches.is_empty() {
            return self.translate_in_switch(key, bytes, ends);
        }
        let direction = |entry: &Entry| match key {
            key if *key == entry.outbound() => Some(0),
            key if *key == entry.inbound() => Some(1),
            _ => None,
        };
        let found = self.all.values_mut().find_map(|entry| direction(entry).map(|at| (entry, at)));
        let Some((entry, direction)) = found else { return false };
        if self.now >= self.lease_until || entry.flow.epoch != self.epoch {
            self.unleased += 1;
            return false;
        }
        entry.is_closing |= ends;
        if entry.is_closing || entry.is_pending {
            return false;
        }
        let count = Count { packets: 1, bytes };
        match direction {
            0 => entry.traffic.outbound += count,
            _ => entry.traffic.inbound += count,
        }
        entry.seen[direction] = self.now;
        entry.is_used |= direction == 0;
        self.translated += 1;
        true
    }

    /// Flows that packets may be translated by, and whether they never had a session.
    pub(super) fn flows(&self) -> Vec<(OffloadedFlow, bool)> {
        let of_table = self.all.values().map(|entry| (entry.flow, entry.is_stray));
        let of_switches = self.switches.iter().flat_map(ModelSwitch::flows);
        of_table.chain(of_switches.map(|flow| (*flow, flow.session.record == STRAY))).collect()
    }

    fn place(&mut self, flow: &OffloadedFlow) -> Result<u64, Refusal> {
        if self.refusals > 0 {
            self.refusals -= 1;
            return Err(match self.refusals % 2 {
                0 => Refusal::Crowded,
                _ => Refusal::Other("refused".into()),
            });
        }
        if self.all.len() >= self.capacity as usize {
            return Err(Refusal::Full);
        }
        let entry = Entry {
            flow: *flow,
            traffic: Traffic::default(),
            seen: [self.now; 2],
            is_used: false,
            is_closing: false,
            is_pending: true,
            is_stray: false,
        };
        let (out, back) = (entry.outbound(), entry.inbound());
        if self.all.values().any(|other| other.outbound() == out || other.inbound() == back) {
            return Err(Refusal::Exists);
        }
        Ok(self.insert(entry))
    }

    pub(super) fn insert(&mut self, entry: Entry) -> u64 {
        self.next += 1;
        self.all.insert(self.next, entry);
        self.next
    }
}

impl Target for Table {
    type Id = u64;

    fn capacity(&self) -> u32 {
        self.0.borrow().capacity
    }

    fn install(&mut self, flows: &[OffloadedFlow], placed: &mut Vec<Result<u64, Refusal>>) {
        let mut entries = self.0.borrow_mut();
        placed.extend(flows.iter().map(|flow| entries.place(flow)));
    }

    fn remove(&mut self, ids: &[u64], removals: &mut Vec<Removal>) {
        let mut entries = self.0.borrow_mut();
        let now = entries.now;
        for id in ids {
            let Some(mut entry) = entries.all.remove(id) else {
                removals.push(Removal::Missing);
                continue;
            };
            if entry.is_used {
                entries.last.insert(entry.flow.session.flow, entry.seen[0]);
            }
            entries.taken += entry.traffic.total().packets;
            removals.push(Removal::Removed(entry.take(now)));
        }
    }

    fn take_use(&mut self, ids: &[u64], used: &mut Vec<Option<EntryUse>>) {
        let mut entries = self.0.borrow_mut();
        let now = entries.now;
        for id in ids {
            let taken = entries.all.get_mut(id).map(|entry| entry.take(now));
            entries.taken += taken.map_or(0, |used| used.traffic.total().packets);
            used.push(taken);
        }
    }

    fn entries(&mut self, each: &mut dyn FnMut(u64, &OffloadedFlow)) {
        self.0.borrow().all.iter().for_each(|(id, entry)| each(*id, &entry.flow));
    }

    fn renew_lease(&mut self, time: Duration) {
        let mut entries = self.0.borrow_mut();
        entries.lease_until = entries.now + time.as_millis() as u64;
    }
}
