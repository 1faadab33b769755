//! Ended sessions whose ports wait for the other member.

use gatun_nat::feed::{Flow, SessionId};
use gatun_nat::plan::Transport;
use std::collections::{BTreeSet, HashMap};
use std::net::Ipv4Addr;

/// Number of an end that is in no record of the stream yet.
const UNTOLD: u64 = u64::MAX;

/// Ended session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ended {
    /// Number of the group that tells the other member.
    pub(super) number: u64,
    pub(super) worker: usize,
    pub(super) id: SessionId,
}

impl Ended {
    /// Returns whether no record tells of it.
    pub(super) fn is_untold(&self) -> bool {
        self.number == UNTOLD
    }
}

type Place = (Transport, (Ipv4Addr, u16));

/// Ended sessions, by the number of their record and by their public port.
#[derive(Debug, Default)]
pub(super) struct WaitingEnds {
    by_number: BTreeSet<Ended>,
    by_port: HashMap<Place, Vec<Ended>>,
}

fn place(flow: &Flow) -> Place {
    (flow.transport, flow.outside)
}

impl WaitingEnds {
    pub(super) fn len(&self) -> usize {
        self.by_number.len()
    }

    pub(super) fn clear(&mut self) {
        *self = WaitingEnds::default();
    }

    /// Adds an end that the group with this number tells, or changes the number of one.
    pub(super) fn add(&mut self, worker: usize, id: SessionId, number: Option<u64>) {
        let ended = Ended { number: number.unwrap_or(UNTOLD), worker, id };
        let there = self.by_port.entry(place(&id.flow)).or_default();
        if let Some(was) = there.iter().position(|other| (other.worker, other.id) == (worker, id)) {
            self.by_number.remove(&there.remove(was));
        }
        there.push(ended);
        self.by_number.insert(ended);
    }

    /// No record tells these ends any more: the whole state will.
    pub(super) fn all_untold(&mut self) {
        let all = std::mem::take(&mut self.by_number);
        self.by_number = all.into_iter().map(|ended| Ended { number: UNTOLD, ..ended }).collect();
        self.by_port.values_mut().flatten().for_each(|ended| ended.number = UNTOLD);
    }

    /// Takes the ends out that the groups up to a number tell.
    pub(super) fn take_until(&mut self, number: u64) -> Vec<Ended> {
        let mut taken = Vec::new();
        while let Some(first) = self.by_number.first().copied().filter(|ended| ended.number <= number) {
            self.remove(&first);
            taken.push(first);
        }
        taken
    }

    /// Takes an end out.
    pub(super) fn remove(&mut self, ended: &Ended) {
        self.by_number.remove(ended);
        let key = place(&ended.id.flow);
        if let Some(there) = self.by_port.get_mut(&key) {
            there.retain(|other| other != ended);
            if there.is_empty() {
                self.by_port.remove(&key);
            }
        }
    }

    /// Takes the ends of a flow out.
    pub(super) fn remove_flow(&mut self, flow: &Flow) {
        self.of_flow(flow).iter().for_each(|ended| self.remove(ended));
    }

    /// Returns the ends of a flow, the latest one last.
    pub(super) fn of_flow(&self, flow: &Flow) -> Vec<Ended> {
        self.at_port(flow).filter(|ended| ended.id.flow == *flow).collect()
    }

    /// Returns the ends of other inside hosts at the port of a flow.
    pub(super) fn of_others(&self, flow: &Flow) -> Vec<Ended> {
        self.at_port(flow).filter(|ended| ended.id.flow.inside != flow.inside).collect()
    }

    fn at_port(&self, flow: &Flow) -> impl Iterator<Item = Ended> {
        self.by_port.get(&place(flow)).into_iter().flatten().copied()
    }
}
