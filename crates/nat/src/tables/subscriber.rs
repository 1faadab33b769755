//! Subscribers: the unit of pairing and quotas. Each IPv6 prefix with state has one record.

use crate::base::counters::{Traffic, TrafficTotals};
use crate::base::index::Index;
use crate::base::plan::Limits;
use crate::base::time::Instant;
use crate::tables::pool4::Holdings;
use alloc::boxed::Box;
use gatun_mem::hash::Hasher64;
use gatun_mem::{Footprint, HugeVec, OutOfMemory, WrappingTable, prefetch_read};
use gatun_wire::DropReason;

pub use crate::base::subscriber_key::SubscriberKey;

/// No record.
const NONE: u32 = u32::MAX;

/// State of a subscriber: one cache line.
#[derive(Clone, Copy, Debug, zerocopy::FromZeros)]
#[repr(C, align(64))]
pub struct Subscriber {
    prefix: [u64; 2],
    /// Current sessions; in a free record, the number of the next free one.
    pub sessions: u32,
    /// Its public address and port blocks.
    pub holdings: Holdings,
    /// Current ports, by transport.
    pub ports: [u16; 3],
    instance: u8,
    flags: u8,
    /// Time of the last quota event, in units of [`QUOTA_EVENT_EVERY_MS`], from 1 on.
    quota_event_at: u32,
    /// Time at which its next session is due under its rate limit, ns.
    due_ns: u64,
}

/// Minimum time between two quota events of a subscriber.
const QUOTA_EVENT_EVERY_MS: u64 = 10_000;

const _: () = assert!(size_of::<Subscriber>() == 64);

impl Subscriber {
    /// Identity of the subscriber.
    pub fn key(&self) -> SubscriberKey {
        let prefix = u128::from(self.prefix[0]) << 64 | u128::from(self.prefix[1]);
        SubscriberKey { prefix, instance: self.instance }
    }

    /// Creates a subscriber without sessions and ports.
    pub(crate) fn new(key: SubscriberKey) -> Subscriber {
        Subscriber {
            prefix: [(key.prefix >> 64) as u64, key.prefix as u64],
            sessions: 0,
            holdings: Holdings::NONE,
            ports: [0; 3],
            instance: key.instance,
            flags: LIVE,
            quota_event_at: 0,
            due_ns: 0,
        }
    }

    fn is_live(&self) -> bool {
        self.flags & LIVE != 0
    }

    /// Current ports of all protocols together.
    pub fn ports_total(&self) -> u32 {
        self.ports.iter().map(|&n| u32::from(n)).sum()
    }

    /// Returns whether the rate limit allows another session now, and counts it if so.
    ///
    /// It is a token bucket in one number: each session moves the time at which the bucket is full again.
    pub(crate) fn admit(&mut self, now: Instant, limits: &Limits) -> bool {
        let Some(each_ns) = 1_000_000_000u64.checked_div(limits.session_rate_per_subscriber.into()) else {
            return true;
        };
        let now_ns = now.0.saturating_mul(1_000_000);
        let burst_ns = each_ns.saturating_mul(limits.session_burst_per_subscriber.max(1).into());
        let due_ns = self.due_ns.max(now_ns).saturating_add(each_ns);
        let admitted = due_ns - now_ns <= burst_ns;
        if admitted {
            self.due_ns = due_ns;
        }
        admitted
    }

    /// Returns whether a quota event is due, and blocks further ones for some time.
    pub(crate) fn notify_quota(&mut self, now: Instant) -> bool {
        let at = (now.0 / QUOTA_EVENT_EVERY_MS) as u32 + 1;
        core::mem::replace(&mut self.quota_event_at, at) != at
    }
}

/// The record is in use.
const LIVE: u8 = 1;
/// The subscriber has refusals.
const REFUSED: u8 = 2;

/// Sessions that a subscriber was refused, by the limit that it had reached. They are kept as long as it has
/// state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, zerocopy::FromZeros)]
#[repr(C)]
pub struct Refusals {
    /// `limits.sessions_per_subscriber`.
    pub sessions: u32,
    /// `limits.session_rate_per_subscriber`.
    pub rate: u32,
    /// `limits.ports_per_subscriber`, of all protocols or one.
    pub ports: u32,
    /// Its pool's blocks per subscriber.
    pub blocks: u32,
}

impl Refusals {
    /// Returns the counter for a drop reason that is the subscriber's own limit.
    fn of(&mut self, reason: DropReason) -> Option<&mut u32> {
        match reason {
            DropReason::SubscriberSessionQuota => Some(&mut self.sessions),
            DropReason::SubscriberRate => Some(&mut self.rate),
            DropReason::SubscriberPortQuota => Some(&mut self.ports),
            DropReason::SubscriberBlockQuota => Some(&mut self.blocks),
            _ => None,
        }
    }
}

/// Table of subscribers. A subscriber's number stays the same as long as it has sessions or ports.
pub struct Subscribers {
    records: HugeVec<Subscriber>,
    /// Indexed by number; touched only for subscribers with refusals.
    refusals: HugeVec<Refusals>,
    /// Packets and bytes, indexed by number, for subscribers with state.
    traffic: WrappingTable<TrafficTotals>,
    by_instance: Box<[u32; 256]>,
    index: Index,
    hasher: Hasher64,
    /// Records below this number have been used at some time.
    fresh: u32,
    /// Head of the list of free records below `fresh`.
    free: u32,
    /// Maximum number of subscribers, at most the number of records.
    max: u32,
}

impl Subscribers {
    /// Creates a table with room for `max` subscribers.
    ///
    /// # Errors
    /// Returns an error if memory is short.
    pub fn new(max: u32, hasher: Hasher64) -> Result<Self, OutOfMemory> {
        let n = max.min(NONE - 1) as usize;
        Ok(Subscribers {
            records: HugeVec::new(n)?,
            refusals: HugeVec::new(n)?,
            traffic: WrappingTable::new(n)?,
            by_instance: Box::new([0; 256]),
            index: Index::with_capacity(max)?,
            hasher,
            fresh: 0,
            free: NONE,
            max,
        })
    }

    /// Memory use of [`Subscribers::new`].
    pub fn footprint(max: u32) -> Footprint {
        let n = max.min(NONE - 1) as usize;
        HugeVec::<Subscriber>::footprint(n)
            + HugeVec::<Refusals>::footprint(n)
            + WrappingTable::<TrafficTotals>::footprint(n)
            + Index::footprint(max)
    }

    /// Capacity of the table.
    pub fn made_for(&self) -> u32 {
        u32::try_from(self.records.len()).unwrap_or(u32::MAX)
    }

    /// Sets the maximum number of subscribers; existing ones stay.
    pub fn set_max(&mut self, max: u32) {
        self.max = max;
    }

    /// Returns whether there is a record for another subscriber.
    pub(crate) fn has_room(&self) -> bool {
        let next = if (self.free as usize) < self.records.len() { self.free } else { self.fresh };
        self.index.len() < self.max as usize && (next as usize) < self.records.len()
    }

    /// Number of subscribers with a record.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Returns the number of a subscriber, if it has a record.
    pub fn find(&self, key: SubscriberKey) -> Option<u32> {
        self.find_by(self.hash(key), key)
    }

    #[inline]
    fn find_by(&self, hash: u64, key: SubscriberKey) -> Option<u32> {
        self.index.find(hash, |id| self.is(id, key))
    }

    /// Returns whether a number belongs to this subscriber.
    #[inline]
    pub(crate) fn is(&self, id: u32, key: SubscriberKey) -> bool {
        self.get(id).is_some_and(|r| r.key() == key)
    }

    /// Returns the number of a subscriber, and creates it if it is new. A new one has no sessions, no ports,
    /// and no address yet.
    ///
    /// # Errors
    /// [`DropReason::SubscriberTableFull`].
    pub fn find_or_insert(&mut self, key: SubscriberKey) -> Result<u32, DropReason> {
        self.find_or_insert_by(self.hash(key), key)
    }

    /// Same as [`find_or_insert`](Self::find_or_insert), with a known hash.
    #[inline]
    pub(crate) fn find_or_insert_by(&mut self, hash: u64, key: SubscriberKey) -> Result<u32, DropReason> {
        match self.find_by(hash, key) {
            Some(id) => Ok(id),
            None => self.insert(hash, key),
        }
    }

    #[inline(never)]
    fn insert(&mut self, hash: u64, key: SubscriberKey) -> Result<u32, DropReason> {
        if self.index.len() >= self.max as usize {
            return Err(DropReason::SubscriberTableFull);
        }
        let recycled = self.records.get(self.free as usize).map(|r| r.sessions);
        let id = if recycled.is_some() { self.free } else { self.fresh };
        let record = self.records.get_mut(id as usize).ok_or(DropReason::SubscriberTableFull)?;
        self.index.insert(hash, id).map_err(|_| DropReason::SubscriberTableFull)?;
        *record = Subscriber::new(key);
        *self.traffic.at_mut(id as usize) = TrafficTotals::default();
        match recycled {
            Some(next) => self.free = next,
            None => self.fresh += 1,
        }
        if let Some(n) = self.by_instance.get_mut(usize::from(key.instance)) {
            *n += 1;
        }
        Ok(id)
    }

    /// Returns a subscriber by its number.
    #[inline]
    pub fn get(&self, id: u32) -> Option<&Subscriber> {
        self.records.get(id as usize).filter(|r| r.is_live())
    }

    /// Mutable version of [`get`](Self::get).
    #[inline]
    pub fn get_mut(&mut self, id: u32) -> Option<&mut Subscriber> {
        self.records.get_mut(id as usize).filter(|r| r.is_live())
    }

    /// Upper bound of the numbers of subscribers. A walk over all of them calls [`Subscribers::get`] for each
    /// number, some at a time.
    pub fn high(&self) -> u32 {
        self.fresh
    }

    /// Number of subscribers of one instance with a record.
    pub fn of_instance(&self, instance: u8) -> u32 {
        self.by_instance.get(usize::from(instance)).copied().unwrap_or(0)
    }

    /// Refusals of a subscriber.
    pub fn refusals(&self, id: u32) -> Refusals {
        let refused = self.get(id).is_some_and(|s| s.flags & REFUSED != 0);
        self.refusals.get(id as usize).filter(|_| refused).copied().unwrap_or_default()
    }

    /// Returns the mark of the subscriber that has this number now. It distinguishes the subscriber from a
    /// later one with the same number.
    pub(crate) fn mark(&self, id: u32) -> Option<u32> {
        self.get(id).map(|record| self.hash(record.key()) as u32)
    }

    /// Packets and bytes of a subscriber since its record was created.
    pub fn traffic(&self, id: u32) -> Traffic {
        self.get(id).map_or(Traffic::default(), |_| self.traffic.at(id as usize).traffic())
    }

    /// Returns the counters of a session's subscriber for further counting. `id` must be the number of a
    /// session's subscriber; any other number may return the counters of another one.
    #[inline(always)]
    pub(crate) fn traffic_mut(&mut self, id: u32) -> &mut TrafficTotals {
        self.traffic.at_mut(id as usize)
    }

    /// Prefetches the counters of a session's subscriber.
    #[inline(always)]
    pub(crate) fn prefetch_traffic(&self, id: u32) {
        self.traffic.prefetch(id as usize);
    }

    /// Counts a refusal to a subscriber. Returns `false` if the reason is not a limit of the subscriber.
    #[cold]
    pub(crate) fn refused(&mut self, id: u32, reason: DropReason) -> bool {
        let Some(record) = self.records.get_mut(id as usize) else { return false };
        let Some(count) = self.refusals.get_mut(id as usize).and_then(|r| r.of(reason)) else { return false };
        *count = count.saturating_add(1);
        record.flags |= REFUSED;
        true
    }

    /// Prefetches the index line of the subscriber with this hash.
    #[inline]
    pub(crate) fn prefetch_index(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// Returns the number of the subscriber that most likely has this hash.
    #[inline]
    pub(crate) fn candidate(&self, hash: u64) -> Option<u32> {
        self.index.candidate(hash)
    }

    /// Prefetches the line of a subscriber's record.
    #[inline]
    pub fn prefetch(&self, id: u32) {
        prefetch_read(&self.records, id as usize);
    }

    /// Frees the record of a subscriber without sessions, ports and port blocks. Returns whether it did.
    pub fn release_if_idle(&mut self, id: u32) -> bool {
        let Some(record) = self.get(id) else { return false };
        if record.sessions > 0 || record.ports != [0; 3] || record.holdings.blocks() != [0; 3] {
            return false;
        }
        let (key, refused) = (record.key(), record.flags & REFUSED != 0);
        self.index.remove(self.hash(key), id);
        if let Some(n) = self.by_instance.get_mut(usize::from(key.instance)) {
            *n -= 1;
        }
        if refused && let Some(refusals) = self.refusals.get_mut(id as usize) {
            *refusals = Refusals::default();
        }
        if let Some(record) = self.records.get_mut(id as usize) {
            record.flags = 0;
            record.sessions = self.free;
            self.free = id;
        }
        true
    }

    /// Hash of a subscriber for the index.
    #[inline]
    pub(crate) fn hash(&self, key: SubscriberKey) -> u64 {
        self.hasher.hash4([(key.prefix >> 64) as u64, key.prefix as u64, u64::from(key.instance), 4 << 32])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::vec::Vec;

    fn table(max: u32) -> Subscribers {
        Subscribers::new(max, Hasher64::new([1, 2, 3, 4])).unwrap()
    }

    fn key(n: u32) -> SubscriberKey {
        // Neighbours differ only in their lowest bits, their highest bits, or the instance.
        let prefix = u128::from(n / 6) << 64 | u128::from(n / 2 % 3);
        SubscriberKey { prefix, instance: (n % 2) as u8 }
    }

    #[test]
    fn a_new_subscriber_has_nothing_and_keeps_what_it_gets() {
        let mut table = table(10);
        let id = table.find_or_insert(key(1)).unwrap();
        let new = table.get_mut(id).unwrap();
        assert_eq!((new.sessions, new.ports, new.holdings.paired(), new.key()), (0, [0; 3], None, key(1)));
        new.holdings.pair(0);
        new.sessions = 3;
        assert_eq!(table.find_or_insert(key(1)), Ok(id));
        assert_eq!(table.find(key(1)), Some(id));
        assert_eq!(table.get(id).unwrap().holdings.paired(), Some(0));
        assert_ne!(
            table.find_or_insert(key(0)),
            Ok(id),
            "the subscriber of another instance is a different one"
        );
        table.prefetch(id);
        table.prefetch(u32::MAX);
    }

    #[test]
    fn a_full_table_refuses_new_subscribers_until_one_is_idle() {
        let mut table = table(1000);
        let ids: Vec<u32> = (0..1000).map(|n| table.find_or_insert(key(n)).unwrap()).collect();
        assert_eq!(table.find_or_insert(key(1000)), Err(DropReason::SubscriberTableFull));
        assert_eq!(table.find_or_insert(key(5)), Ok(ids[5]), "existing subscribers stay");
        table.get_mut(ids[7]).unwrap().sessions = 1;
        table.get_mut(ids[8]).unwrap().ports[2] = 1;
        assert!(!table.release_if_idle(ids[7]) && !table.release_if_idle(ids[8]));
        assert!(table.release_if_idle(ids[9]));
        assert!(!table.release_if_idle(ids[9]) && table.get(ids[9]).is_none());
        assert_eq!(table.find_or_insert(key(1000)), Ok(ids[9]));
        assert_eq!(table.get(ids[9]).unwrap().key(), key(1000));
        assert_eq!(table.len(), 1000);
    }

    // proves: R68-4, R68-5
    #[test]
    fn sessions_are_admitted_at_a_rate_and_some_at_once() {
        let limits = Limits {
            session_rate_per_subscriber: 100,
            session_burst_per_subscriber: 20,
            ..Limits::default()
        };
        let mut table = table(1);
        let id = table.find_or_insert(key(0)).unwrap();
        let s = table.get_mut(id).unwrap();
        let mut admitted = |ms| (0..50).filter(|_| s.admit(Instant(ms), &limits)).count();
        assert_eq!(admitted(1_000_000), 20);
        assert_eq!([admitted(1_000_005), admitted(1_000_010), admitted(1_000_100)], [0, 1, 9]);
        assert_eq!(admitted(9_000_000), 20, "the bucket holds no more");
        let in_a_second: usize = (0..1000).map(|ms| admitted(9_000_001 + ms)).sum();
        assert_eq!(in_a_second, 100);
        assert!((0..10_000).all(|_| s.admit(Instant(0), &Limits::default())), "no limit");
    }

    #[test]
    fn a_quota_event_is_made_once_in_ten_seconds() {
        let mut table = table(1);
        let id = table.find_or_insert(key(0)).unwrap();
        let s = table.get_mut(id).unwrap();
        let events: Vec<u64> = (0..60).map(|s| s * 500).filter(|&ms| s.notify_quota(Instant(ms))).collect();
        assert_eq!(events, [0, 10_000, 20_000]);
    }

    #[test]
    fn unused_numbers_are_harmless() {
        let mut none = table(0);
        assert_eq!(none.find_or_insert(key(0)), Err(DropReason::SubscriberTableFull));
        assert!(none.get(0).is_none() && none.get_mut(u32::MAX).is_none() && !none.release_if_idle(u32::MAX));
        assert!(table(5).get(0).is_none());
    }

    proptest! {
        #[test]
        fn subscribers_agree_with_a_map(ops in prop::collection::vec((0..3u8, 0..40u32), 0..400)) {
            let mut table = table(24);
            let mut model: BTreeMap<SubscriberKey, u32> = BTreeMap::new();
            for (op, n) in ops {
                match (op, model.get(&key(n)).copied()) {
                    (0, known) => match table.find_or_insert(key(n)) {
                        Ok(id) => {
                            prop_assert!(known.is_none_or(|k| k == id));
                            prop_assert!(known.is_some() || model.values().all(|&other| other != id));
                            model.insert(key(n), id);
                        }
                        Err(_) => prop_assert!(known.is_none() && model.len() == 24),
                    },
                    (1, Some(id)) => table.get_mut(id).unwrap().sessions ^= 1,
                    (2, Some(id)) => {
                        let idle = table.get(id).unwrap().sessions == 0;
                        prop_assert_eq!(table.release_if_idle(id), idle);
                        if idle {
                            model.remove(&key(n));
                        }
                    }
                    _ => prop_assert_eq!(table.find(key(n)), None),
                }
                prop_assert_eq!(table.len(), model.len());
                prop_assert!(model.iter().all(|(&k, &id)| table.find(k) == Some(id)));
            }
        }
    }
}
