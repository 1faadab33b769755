//! Ended sessions whose ports wait for the other member.

use foldhash::fast::RandomState;
use gatun_nat::feed::{Flow, SessionId};
use std::collections::VecDeque;
use std::hash::BuildHasher as _;
use std::iter;
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
    /// True if a walk has told that its flow has a session again. Later ends of the flow count.
    pub(super) is_replaced: bool,
}

impl Ended {
    /// Returns whether no record tells of it.
    pub(super) fn is_untold(&self) -> bool {
        self.number == UNTOLD
    }
}

/// Protocol, public address and port.
type Place = u64;

fn place(flow: &Flow) -> Place {
    let (address, port) = flow.outside;
    (flow.transport as u64) << 48 | u64::from(u32::from(address)) << 16 | u64::from(port)
}

/// No slot.
const NONE: u32 = u32::MAX;
/// Smallest number of chains.
const CHAINS_MIN: usize = 64;

/// End in a slot.
#[derive(Debug)]
struct Waiting {
    ended: Ended,
    /// Number of ends that were added before.
    order: u64,
    /// Next slot of its chain.
    next: u32,
}

impl Waiting {
    fn place(&self) -> Place {
        place(&self.ended.id.flow)
    }

    fn address(&self) -> Ipv4Addr {
        self.ended.id.flow.outside.0
    }
}

/// Ended sessions, by their public port and in the order of their records: one at a port, as a rule.
///
/// Each session that ends is added and taken out, so both are cheap: an end stays in its slot, and the next
/// one gets the slot that was freed last, whose memory is in the cache. The index has four bytes for each
/// end, and each step touches one of its cache lines.
#[derive(Debug, Default)]
pub(super) struct WaitingEnds {
    slots: Vec<Option<Waiting>>,
    free: Vec<u32>,
    /// First slots of the chains: ends whose places have the same hash. There are as many chains as slots, or
    /// more, and a power of two.
    chains: Vec<u32>,
    hasher: RandomState,
    /// Slots of told ends, with the numbers of their groups, in the order of the stream. An end that has left
    /// or got another number meanwhile is not in its slot with this one.
    told: VecDeque<(u64, u32)>,
    /// Those of acknowledged groups that are in shards which the acknowledgement was not about.
    deferred: Vec<(u64, u32)>,
    added: u64,
}

impl WaitingEnds {
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn clear(&mut self) {
        *self = WaitingEnds::default();
    }

    /// Adds an end that the group with this number tells, or changes the number of one. Numbers grow.
    pub(super) fn add(&mut self, worker: usize, id: SessionId, number: Option<u64>) {
        self.add_ended(worker, id, number, false);
    }

    /// The same for an end whose flow had a session again when a walk came to it.
    pub(super) fn add_replaced(&mut self, worker: usize, id: SessionId, number: Option<u64>) {
        self.add_ended(worker, id, number, true);
    }

    fn add_ended(&mut self, worker: usize, id: SessionId, number: Option<u64>, is_replaced: bool) {
        let place = place(&id.flow);
        let ended = Ended { number: number.unwrap_or(UNTOLD), worker, id, is_replaced };
        let order = self.added;
        self.added += 1;
        let same = self.at(place, |other| (other.worker, other.id) == (worker, id)).next();
        let slot = match same {
            Some(slot) => {
                let next = self.next(slot);
                self.slots[slot as usize] = Some(Waiting { ended, order, next });
                slot
            }
            None => self.insert(place, ended, order),
        };
        if let Some(number) = number {
            self.told.push_back((number, slot));
        }
    }

    /// Puts an end into a free slot, and into its chain.
    fn insert(&mut self, place: Place, ended: Ended, order: u64) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        if self.slots.len() > self.chains.len() {
            self.grow();
        }
        let chain = self.chain(place);
        let next = std::mem::replace(&mut self.chains[chain], slot);
        self.slots[slot as usize] = Some(Waiting { ended, order, next });
        slot
    }

    /// Doubles the number of chains.
    fn grow(&mut self) {
        let len = (self.chains.len() * 2).max(CHAINS_MIN);
        self.chains.clear();
        self.chains.resize(len, NONE);
        for slot in 0..self.slots.len() {
            let Some(place) = self.slots[slot].as_ref().map(Waiting::place) else { continue };
            let chain = self.chain(place);
            let next = std::mem::replace(&mut self.chains[chain], slot as u32);
            if let Some(waiting) = &mut self.slots[slot] {
                waiting.next = next;
            }
        }
    }

    /// Number of the chain of a place. There has to be one.
    fn chain(&self, place: Place) -> usize {
        self.hasher.hash_one(place) as usize & (self.chains.len() - 1)
    }

    /// Slot behind one of a chain.
    fn next(&self, slot: u32) -> u32 {
        self.slots[slot as usize].as_ref().map_or(NONE, |waiting| waiting.next)
    }

    /// Iterates over the slots of the ends at a port that satisfy a condition.
    fn at(&self, place: Place, is: impl Fn(&Ended) -> bool) -> impl Iterator<Item = u32> {
        let first = if self.chains.is_empty() { NONE } else { self.chains[self.chain(place)] };
        let some = |slot: u32| (slot != NONE).then_some(slot);
        iter::successors(some(first), move |slot| some(self.next(*slot))).filter(move |slot| {
            let waiting = self.slots[*slot as usize].as_ref();
            waiting.is_some_and(|waiting| waiting.place() == place && is(&waiting.ended))
        })
    }

    /// No record tells these ends any more: the whole state will.
    pub(super) fn all_untold(&mut self) {
        self.told.clear();
        self.deferred.clear();
        self.untold_of(|_| true);
    }

    /// No record tells the ends at some addresses any more.
    pub(super) fn untold_of(&mut self, is: impl Fn(Ipv4Addr) -> bool) {
        let some = self.slots.iter_mut().flatten().filter(|waiting| is(waiting.address()));
        some.for_each(|waiting| waiting.ended.number = UNTOLD);
    }

    /// Takes the ends at some addresses out.
    pub(super) fn remove_of(&mut self, is: impl Fn(Ipv4Addr) -> bool) {
        self.remove_where(|waiting| is(waiting.address()));
    }

    /// Takes the ends at some addresses out that no record tells.
    pub(super) fn remove_untold_of(&mut self, is: impl Fn(Ipv4Addr) -> bool) {
        self.remove_where(|waiting| waiting.ended.is_untold() && is(waiting.address()));
    }

    fn remove_where(&mut self, is: impl Fn(&Waiting) -> bool) {
        for slot in 0..self.slots.len() as u32 {
            if self.slots[slot as usize].as_ref().is_some_and(&is) {
                self.take(slot);
            }
        }
    }

    /// Takes the ends out that the groups up to a number tell, except those at addresses that the
    /// acknowledgement is not about.
    pub(super) fn take_until(&mut self, number: u64, is_out: impl Fn(Ipv4Addr) -> bool) -> Vec<Ended> {
        let mut taken = Vec::new();
        while let Some(told) = self.told.pop_front_if(|(told, _)| *told <= number) {
            taken.extend(self.take_told(told, &is_out));
        }
        taken
    }

    /// Takes the ends out that an acknowledgement was not about, unless it still is not.
    pub(super) fn take_deferred(&mut self, is_out: impl Fn(Ipv4Addr) -> bool) -> Vec<Ended> {
        let deferred = std::mem::take(&mut self.deferred);
        deferred.into_iter().filter_map(|told| self.take_told(told, &is_out)).collect()
    }

    /// Takes the end out that an acknowledged group tells, or defers it. `None` if it is not in its slot with
    /// the group's number.
    fn take_told(&mut self, (number, slot): (u64, u32), is_out: impl Fn(Ipv4Addr) -> bool) -> Option<Ended> {
        let waiting = self.slots[slot as usize].as_ref().filter(|waiting| waiting.ended.number == number)?;
        if is_out(waiting.address()) {
            self.deferred.push((number, slot));
            return None;
        }
        self.take(slot)
    }

    /// Takes the end in a slot out.
    fn take(&mut self, slot: u32) -> Option<Ended> {
        let Waiting { ended, next, .. } = self.slots[slot as usize].take()?;
        let chain = self.chain(place(&ended.id.flow));
        let mut before = self.chains[chain];
        if before == slot {
            self.chains[chain] = next;
        }
        while before != slot && before != NONE {
            match &mut self.slots[before as usize] {
                Some(waiting) if waiting.next == slot => {
                    waiting.next = next;
                    break;
                }
                waiting => before = waiting.as_ref().map_or(NONE, |waiting| waiting.next),
            }
        }
        self.free.push(slot);
        Some(ended)
    }

    /// Takes an end out.
    pub(super) fn remove(&mut self, ended: &Ended) {
        self.remove_at(&ended.id.flow, |other| other == ended);
    }

    /// Takes the ends of a flow out.
    pub(super) fn remove_flow(&mut self, flow: &Flow) {
        self.remove_at(flow, |ended| ended.id.flow == *flow);
    }

    fn remove_at(&mut self, flow: &Flow, is: impl Fn(&Ended) -> bool) {
        let slots: Vec<u32> = self.at(place(flow), is).collect();
        for slot in slots {
            self.take(slot);
        }
    }

    /// Returns the ends of a flow, the latest one last.
    pub(super) fn of_flow(&self, flow: &Flow) -> Vec<Ended> {
        self.ends_at(flow, |ended| ended.id.flow == *flow)
    }

    /// Returns the ends of other inside hosts at the port of a flow.
    pub(super) fn of_others(&self, flow: &Flow) -> Vec<Ended> {
        self.ends_at(flow, |ended| ended.id.flow.inside != flow.inside)
    }

    fn ends_at(&self, flow: &Flow, is: impl Fn(&Ended) -> bool) -> Vec<Ended> {
        let slots = self.at(place(flow), is);
        let mut all: Vec<&Waiting> = slots.filter_map(|slot| self.slots[slot as usize].as_ref()).collect();
        all.sort_by_key(|waiting| (!waiting.ended.is_replaced, waiting.order));
        all.into_iter().map(|waiting| waiting.ended).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatun_nat::plan::Transport;

    fn session(port: u16, record: u32) -> SessionId {
        let flow = Flow {
            inside: ("2001:db8::1".parse().unwrap(), 1000),
            outside: (Ipv4Addr::new(192, 0, 2, 1), port),
            remote: (Ipv4Addr::new(198, 51, 100, 1), 443),
            transport: Transport::Tcp,
            instance: 0,
        };
        SessionId { record, flow }
    }

    fn records(ends: &[Ended]) -> Vec<u32> {
        ends.iter().map(|ended| ended.id.record).collect()
    }

    #[test]
    fn an_end_leaves_with_the_number_of_its_last_record() {
        let mut ends = WaitingEnds::default();
        ends.add(0, session(5000, 1), Some(1));
        ends.add(0, session(5001, 2), Some(1));
        // It ends again: the earlier acknowledgement is not about that.
        ends.add(0, session(5000, 1), Some(3));
        ends.add(0, session(5000, 9), None);
        assert_eq!((ends.len(), records(&ends.of_flow(&session(5000, 0).flow))), (3, vec![1, 9]));
        assert_eq!(records(&ends.take_until(2, |_| false)), [2]);
        // The slot of record 2 has another end now.
        ends.add(0, session(5002, 4), Some(3));
        assert_eq!(records(&ends.take_until(3, |_| false)), [1, 4]);
        assert_eq!((ends.len(), ends.slots.len()), (1, 3));
        ends.remove_untold_of(|_| true);
        assert_eq!((ends.len(), ends.take_until(9, |_| false).len()), (0, 0));
    }

    #[test]
    fn many_ends_are_found_and_leave_in_any_order() {
        let mut ends = WaitingEnds::default();
        let both = |port: u16| [session(port, u32::from(port)), session(port, u32::from(port) + 70_000)];
        for port in 1..=2_000 {
            both(port).into_iter().for_each(|id| ends.add(0, id, Some(u64::from(port))));
        }
        for port in (1..=2_000).filter(|port| port % 3 == 0) {
            assert_eq!(records(&ends.of_flow(&session(port, 0).flow)), both(port).map(|id| id.record));
            ends.remove(&ends.of_flow(&session(port, 0).flow)[0]);
            assert_eq!(records(&ends.of_flow(&session(port, 0).flow)), [u32::from(port) + 70_000]);
        }
        assert_eq!(ends.len(), 4_000 - 666);
        assert_eq!(ends.take_until(1_000, |_| false).len(), 2_000 - 333);
        for port in 1..=2_000 {
            let left = match (port <= 1_000, port % 3) {
                (true, _) => 0,
                (false, 0) => 1,
                (false, _) => 2,
            };
            assert_eq!(ends.of_flow(&session(port, 0).flow).len(), left, "{port}");
        }
        // Slots are used again.
        ends.add(0, session(5, 5), Some(3_000));
        assert_eq!(
            (ends.take_until(3_000, |_| false).len(), ends.len(), ends.slots.len()),
            (1_668, 0, 4_000)
        );
    }

    #[test]
    fn an_end_before_a_session_that_a_walk_has_told_is_not_the_latest() {
        let mut ends = WaitingEnds::default();
        ends.add(0, session(5000, 1), Some(1));
        ends.add(0, session(5000, 2), Some(2));
        ends.add_replaced(0, session(5000, 1), Some(3));
        assert_eq!(records(&ends.of_flow(&session(5000, 0).flow)), [1, 2]);
        assert_eq!(records(&ends.take_until(2, |_| false)), [2]);
        assert_eq!(records(&ends.take_until(3, |_| false)), [1]);
    }

    #[test]
    fn an_acknowledgement_that_is_not_about_an_address_takes_its_ends_later() {
        let mut ends = WaitingEnds::default();
        ends.add(0, session(5000, 1), Some(1));
        ends.add(0, session(5001, 2), Some(2));
        assert!(ends.take_until(2, |_| true).is_empty());
        ends.remove_flow(&session(5000, 0).flow);
        ends.add(0, session(5003, 3), Some(3));
        assert!(ends.take_deferred(|_| true).is_empty());
        assert_eq!(records(&ends.take_deferred(|_| false)), [2]);
        assert_eq!(records(&ends.take_until(3, |_| false)), [3]);
    }
}
