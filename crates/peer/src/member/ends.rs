//! Ended sessions whose ports wait for the other member.

use foldhash::fast::RandomState;
use gatun_nat::feed::{Flow, SessionId};
use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::net::Ipv4Addr;

/// Number of an end that is in no record of the stream yet.
const UNTOLD: u64 = u64::MAX;

/// Ended session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// Ends at a public port: one, as a rule.
#[derive(Debug)]
enum AtPort {
    One(Ended),
    More(Vec<Ended>),
}

impl AtPort {
    fn all(&self) -> &[Ended] {
        match self {
            AtPort::One(ended) => std::slice::from_ref(ended),
            AtPort::More(all) => all,
        }
    }

    fn all_mut(&mut self) -> &mut [Ended] {
        match self {
            AtPort::One(ended) => std::slice::from_mut(ended),
            AtPort::More(all) => all,
        }
    }

    /// Adds an end as the latest one, in place of an earlier one of the same session.
    fn put(&mut self, ended: Ended) {
        let is_same = |other: &Ended| (other.worker, other.id) == (ended.worker, ended.id);
        match self {
            AtPort::One(one) if is_same(one) => *one = ended,
            AtPort::One(one) => *self = AtPort::More(vec![*one, ended]),
            AtPort::More(all) => {
                all.retain(|other| !is_same(other));
                all.push(ended);
            }
        }
    }
}

/// Protocol, public address and port.
type Place = u64;

fn place(flow: &Flow) -> Place {
    let (address, port) = flow.outside;
    (flow.transport as u64) << 48 | u64::from(u32::from(address)) << 16 | u64::from(port)
}

fn address(place: Place) -> Ipv4Addr {
    Ipv4Addr::from((place >> 16) as u32)
}

/// Ended sessions, by their public port and in the order of their records.
#[derive(Debug, Default)]
pub(super) struct WaitingEnds {
    /// Each session that ends is added and taken out. With the standard hash and a look-up for each step,
    /// that was a third of the thread's time.
    by_port: HashMap<Place, AtPort, RandomState>,
    /// Ports of told ends, with the numbers of their groups, in the order of the stream. An end that has left
    /// or got another number meanwhile is not at its port with this one.
    told: VecDeque<(u64, Place)>,
    /// Those of acknowledged groups that are in shards which the acknowledgement was not about.
    deferred: Vec<(u64, Place)>,
    len: usize,
}

impl WaitingEnds {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn clear(&mut self) {
        *self = WaitingEnds::default();
    }

    /// Adds an end that the group with this number tells, or changes the number of one. Numbers grow.
    pub(super) fn add(&mut self, worker: usize, id: SessionId, number: Option<u64>) {
        let ended = Ended { number: number.unwrap_or(UNTOLD), worker, id };
        let key = place(&id.flow);
        match self.by_port.entry(key) {
            Entry::Vacant(free) => {
                free.insert(AtPort::One(ended));
                self.len += 1;
            }
            Entry::Occupied(mut there) => {
                let before = there.get().all().len();
                there.get_mut().put(ended);
                self.len = self.len + there.get().all().len() - before;
            }
        }
        if let Some(number) = number {
            self.told.push_back((number, key));
        }
    }

    /// No record tells these ends any more: the whole state will.
    pub(super) fn all_untold(&mut self) {
        self.told.clear();
        self.deferred.clear();
        let all = self.by_port.values_mut().flat_map(AtPort::all_mut);
        all.for_each(|ended| ended.number = UNTOLD);
    }

    /// No record tells the ends at some addresses any more.
    pub(super) fn untold_of(&mut self, is: impl Fn(Ipv4Addr) -> bool) {
        let some = self.by_port.iter_mut().filter(|(place, _)| is(address(**place)));
        some.flat_map(|(_, there)| there.all_mut()).for_each(|ended| ended.number = UNTOLD);
    }

    /// Takes the ends at some addresses out.
    pub(super) fn remove_of(&mut self, is: impl Fn(Ipv4Addr) -> bool) {
        self.by_port.retain(|place, _| !is(address(*place)));
        self.len = self.by_port.values().map(|there| there.all().len()).sum();
    }

    /// Takes the ends at some addresses out that no record tells.
    pub(super) fn remove_untold_of(&mut self, is: impl Fn(Ipv4Addr) -> bool) {
        let untold = self.by_port.values().flat_map(AtPort::all).filter(|ended| ended.is_untold());
        let over: Vec<Ended> = untold.filter(|ended| is(ended.id.flow.outside.0)).copied().collect();
        over.iter().for_each(|ended| self.remove(ended));
    }

    /// Takes the ends out that the groups up to a number tell, except those at addresses that the
    /// acknowledgement is not about.
    pub(super) fn take_until(&mut self, number: u64, is_out: impl Fn(Ipv4Addr) -> bool) -> Vec<Ended> {
        let mut taken = Vec::new();
        while let Some((told, key)) = self.told.pop_front_if(|(told, _)| *told <= number) {
            match is_out(address(key)) {
                true => self.deferred.push((told, key)),
                false => self.take(key, |ended| ended.number == told, &mut |ended| taken.push(ended)),
            }
        }
        taken
    }

    /// Takes the ends out that an acknowledgement was not about, unless it still is not.
    pub(super) fn take_deferred(&mut self, is_out: impl Fn(Ipv4Addr) -> bool) -> Vec<Ended> {
        let (kept, over): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.deferred).into_iter().partition(|(_, key)| is_out(address(*key)));
        self.deferred = kept;
        let mut taken = Vec::new();
        for (told, key) in over {
            self.take(key, |ended| ended.number == told, &mut |ended| taken.push(ended));
        }
        taken
    }

    /// Takes ends at a port out.
    fn take(&mut self, key: Place, is: impl Fn(&Ended) -> bool, with: &mut impl FnMut(Ended)) {
        let Entry::Occupied(mut there) = self.by_port.entry(key) else { return };
        let before = there.get().all().len();
        there.get().all().iter().filter(|ended| is(ended)).for_each(|ended| with(*ended));
        let left = match there.get_mut() {
            AtPort::One(ended) => usize::from(!is(ended)),
            AtPort::More(all) => {
                all.retain(|ended| !is(ended));
                all.len()
            }
        };
        if left == 0 {
            there.remove();
        }
        self.len -= before - left;
    }

    /// Takes an end out.
    pub(super) fn remove(&mut self, ended: &Ended) {
        self.take(place(&ended.id.flow), |other| other == ended, &mut |_| {});
    }

    /// Takes the ends of a flow out.
    pub(super) fn remove_flow(&mut self, flow: &Flow) {
        self.take(place(flow), |ended| ended.id.flow == *flow, &mut |_| {});
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
        self.by_port.get(&place(flow)).into_iter().flat_map(AtPort::all).copied()
    }
}
