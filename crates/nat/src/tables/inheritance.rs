//! Inherited sessions of another process that are not restored yet. They are found by subscriber, and by
//! public address and port.
//!
//! ```text
//!   by_subscriber[hash]      the newest record of such a subscriber    \
//!   at_outside[hash]         the newest record near such a public port  |  each part has its own lists;
//!   links[record]            the next older one of either list         /   they count its records from 1 on
//! ```
//! One walk over the records builds the lists, in about ten nanoseconds per record. Packets wait for nothing
//! else. Threads walk over the parts in parallel. A record that is restored, or cannot be, is cleared in
//! place, so that the next process does not find it again.

use super::session_file::{Renumbering, SavedSession, SavedSessions};
use crate::base::time::Instant;
use crate::tables::ports::reserved::Reservations;
use crate::tables::session::{Session, key};
use crate::tables::subscriber::SubscriberKey;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::ops::RangeInclusive;
use gatun_mem::hash::Hasher64;
use gatun_mem::{HugeVec, OutOfMemory, prefetch_read};

use crate::tables::restore_error::RestoreError;

/// Identity of a record: the number of its part, and its own number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InheritedId {
    part: u32,
    number: u32,
}

/// No record.
const NO_RECORD: u32 = 0;
/// End of a list. A record that is in no list has [`NO_RECORD`] after it.
const LAST: u32 = u32::MAX;
/// Number of records whose lists are prefetched together.
const GROUP: usize = 16;
/// Average number of records per list.
const SHARE: usize = 8;
/// Number of consecutive ports in one list, as a power of 2.
const NEAR: u32 = 6;

/// Sessions of a previous process, or part of them, with a mapping of its numbers to the current ones.
#[derive(Clone)]
pub struct InheritedSessions {
    /// Its records.
    pub records: SavedSessions,
    /// Mapping of its instance and prefix numbers to the engine's.
    pub numbers: Renumbering,
}

/// Filter for the sessions that belong to an engine.
#[derive(Clone, Copy)]
pub enum SessionFilter<'a> {
    /// All sessions.
    All,
    /// Sessions that the function accepts, by instance, inside and public address. With `unserved`, also the
    /// sessions of instances that no longer exist, to be refused and counted.
    Of {
        /// Returns whether a session belongs to the engine.
        is_own: &'a (dyn Fn(u8, Ipv6Addr, Ipv4Addr) -> bool + Sync),
        /// True to count the sessions of instances that no longer exist.
        unserved: bool,
    },
}

/// Progress of the restore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreProgress {
    /// Sessions that wait.
    pub left: u64,
    /// Sessions that are restored.
    pub restored: u64,
    /// Sessions that cannot be restored, in the order of [`RestoreError::ALL`].
    pub not: [u64; RestoreError::ALL.len()],
}

impl RestoreProgress {
    /// Counts further sessions that cannot be restored.
    fn count(&mut self, why: RestoreError, n: u64) {
        if let Some(count) = self.not.get_mut(why as usize) {
            *count += n;
        }
    }
}

impl core::ops::AddAssign for RestoreProgress {
    fn add_assign(&mut self, other: RestoreProgress) {
        self.left += other.left;
        self.restored += other.restored;
        self.not.iter_mut().zip(other.not).for_each(|(one, other)| *one += other);
    }
}

/// Finder of an engine's sessions among those of previous processes. Threads can search several parts at a
/// time.
#[derive(Clone, Copy)]
pub struct SessionFinder<'a> {
    /// Indexed by instance: length of a subscriber's inside network.
    pub(crate) subscriber_lens: &'a [u8],
    pub(crate) hasher: &'a Hasher64,
}

/// Part of the sessions of a previous process, with the engine's sessions in lists.
pub struct FoundSessions {
    inherited: InheritedSessions,
    by_subscriber: HugeVec<u32>,
    at_outside: HugeVec<u32>,
    links: HugeVec<[u32; 2]>,
    left: u64,
    not_served: u64,
}

/// All sessions that an engine has inherited and not yet restored.
pub(crate) struct Inheritance {
    parts: Vec<FoundSessions>,
    /// Record up to which all are restored.
    walked: InheritedId,
    /// Engine time at which the parts were read.
    read_at: Instant,
    progress: RestoreProgress,
}

impl SessionFinder<'_> {
    /// Returns the subscriber of an instance's inside address.
    fn subscriber(&self, instance: u8, inside: Ipv6Addr) -> Option<SubscriberKey> {
        let len = self.subscriber_lens.get(usize::from(instance))?;
        Some(SubscriberKey::of(instance, inside, *len))
    }

    /// Finds the sessions of `inherited` that belong to the engine.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no memory for the lists, or if there are more records than numbers.
    pub fn find(
        self,
        inherited: InheritedSessions,
        filter: &SessionFilter<'_>,
    ) -> Result<FoundSessions, OutOfMemory> {
        let records = inherited.records.len();
        if records >= LAST as usize {
            return Err(OutOfMemory { bytes: usize::MAX });
        }
        let lists = (records / SHARE).next_power_of_two();
        let (by_subscriber, at_outside) = (HugeVec::new(lists)?, HugeVec::new(lists)?);
        let links = HugeVec::new(records + 1)?;
        let mut found = FoundSessions { inherited, by_subscriber, at_outside, links, left: 0, not_served: 0 };
        for first in (0..records).step_by(GROUP) {
            found.enter_group(first, self, filter);
        }
        Ok(found)
    }
}

impl FoundSessions {
    #[inline]
    fn enter_group(&mut self, first: usize, finder: SessionFinder<'_>, filter: &SessionFilter<'_>) {
        let (mut lists, mut unserved) = ([None; GROUP], 0);
        for (number, lists) in (first..).zip(&mut lists) {
            if let Some(record) = self.inherited.records.session(number).filter(Session::is_whole) {
                *lists = self.lists_of(&record, finder, filter);
                unserved +=
                    u64::from(lists.is_none() && self.inherited.numbers.instance(record.instance).is_none());
            }
        }
        if matches!(filter, SessionFilter::All | SessionFilter::Of { unserved: true, .. }) {
            self.not_served += unserved;
        }
        for (number, lists) in (first + 1..).zip(lists) {
            lists.into_iter().for_each(|lists| self.enter(number, lists));
        }
    }

    /// Prefetches and returns the lists of a session; `None` if it does not belong to the engine.
    #[inline]
    fn lists_of(
        &self,
        record: &Session,
        finder: SessionFinder<'_>,
        filter: &SessionFilter<'_>,
    ) -> Option<[usize; 2]> {
        let instance = self.inherited.numbers.instance(record.instance)?;
        let (inside, outside) = (record.inside_addr(), record.outside());
        if let SessionFilter::Of { is_own, .. } = filter
            && !is_own(instance, inside, outside.0)
        {
            return None;
        }
        let subscriber = key::subscriber(finder.hasher, finder.subscriber(instance, inside)?);
        let lists =
            [list(&self.by_subscriber, subscriber), list(&self.at_outside, near(outside.0, outside.1))];
        prefetch_read(&self.by_subscriber, lists[0]);
        prefetch_read(&self.at_outside, lists[1]);
        Some(lists)
    }

    #[inline]
    fn enter(&mut self, number: usize, lists: [usize; 2]) {
        let n = number as u32;
        let links =
            [put_first(&mut self.by_subscriber, lists[0], n), put_first(&mut self.at_outside, lists[1], n)];
        if let Some(place) = self.links.get_mut(number) {
            *place = links;
        }
        self.left += 1;
    }

    /// Iterates over the waiting records of the list that begins with `at`, and skips cleared ones.
    fn along(&self, at: u32, list: usize) -> impl Iterator<Item = (u32, Session)> {
        let mut at = at;
        core::iter::from_fn(move || {
            while at != NO_RECORD && at != LAST {
                let number = at;
                at = self
                    .links
                    .get(number as usize)
                    .and_then(|links| links.get(list))
                    .copied()
                    .unwrap_or(LAST);
                if let Some(record) = self.waiting(number) {
                    return Some((number, record));
                }
            }
            None
        })
    }

    fn waiting(&self, number: u32) -> Option<Session> {
        self.inherited.records.session((number as usize).checked_sub(1)?)
    }

    fn near(&self, outside: (Ipv4Addr, u16)) -> impl Iterator<Item = (u32, Session)> {
        self.along(first(&self.at_outside, near(outside.0, outside.1)), 1)
    }
}

impl Inheritance {
    /// Creates an inheritance from the parts found, with the latest process first.
    pub(crate) fn new(parts: Vec<FoundSessions>, now: Instant) -> Inheritance {
        let mut progress =
            RestoreProgress { left: parts.iter().map(|part| part.left).sum(), ..RestoreProgress::default() };
        progress.count(RestoreError::NotServed, parts.iter().map(|part| part.not_served).sum());
        Inheritance { parts, walked: InheritedId { part: 0, number: 0 }, read_at: now, progress }
    }

    pub(crate) fn progress(&self) -> RestoreProgress {
        self.progress
    }

    /// Finds the sessions of a subscriber.
    pub(crate) fn of_subscriber(
        &self,
        subscriber: SubscriberKey,
        finder: SessionFinder<'_>,
        found: &mut Vec<InheritedId>,
    ) {
        let hash = key::subscriber(finder.hasher, subscriber);
        for (number, part) in (0..).zip(&self.parts) {
            let whose = |record: &Session| {
                let instance = part.inherited.numbers.instance(record.instance)?;
                finder.subscriber(instance, record.inside_addr())
            };
            let all = part.along(first(&part.by_subscriber, hash), 0);
            let its = all.filter(|(_, record)| whose(record) == Some(subscriber));
            found.extend(its.map(|(at, _)| InheritedId { part: number, number: at }));
        }
    }

    /// Returns the owners of a public address and port: instance and inside address of the sessions that use
    /// it.
    pub(crate) fn owners_at(&self, outside: (Ipv4Addr, u16)) -> impl Iterator<Item = (u8, Ipv6Addr)> {
        self.parts.iter().flat_map(move |part| {
            let its = part.near(outside).filter(move |(_, record)| record.outside() == outside);
            its.filter_map(|(_, record)| {
                Some((part.inherited.numbers.instance(record.instance)?, record.inside_addr()))
            })
        })
    }

    /// Finds the next records in the order of their numbers, until it has `some` or has looked at `budget`
    /// records. Returns whether these were the last ones.
    pub(crate) fn walk(&mut self, budget: usize, some: usize, found: &mut Vec<InheritedId>) -> bool {
        for _ in 0..budget {
            let Some(part) = self.parts.get(self.walked.part as usize) else { return true };
            let at = &mut self.walked;
            if at.number as usize + 1 >= part.links.len() {
                *at = InheritedId { part: at.part + 1, number: 0 };
                continue;
            }
            at.number += 1;
            let is_own = part.links.get(at.number as usize).is_some_and(|links| links[0] != NO_RECORD);
            if is_own && part.waiting(at.number).is_some() {
                found.push(*at);
                if found.len() == some {
                    return false;
                }
            }
        }
        false
    }

    /// Returns the session of a record with current numbers and time.
    ///
    /// # Errors
    ///
    /// Returns an error if the session no longer waits, or if its prefix no longer exists.
    pub(crate) fn session(&self, id: InheritedId, now: Instant) -> Result<SavedSession, RestoreError> {
        let part = self.parts.get(id.part as usize).ok_or(RestoreError::Exists)?;
        let record = part.waiting(id.number).ok_or(RestoreError::Exists)?;
        let since_ms = now.since_ms(self.read_at);
        let saved = SavedSession::of(&record, part.inherited.records.now().plus_ms(since_ms));
        part.inherited.numbers.translate(saved).ok_or(RestoreError::NotServed)
    }

    /// Returns a waiting record, with the current number of its instance.
    pub(crate) fn record(&self, id: InheritedId) -> Option<Session> {
        let part = self.parts.get(id.part as usize)?;
        let mut record = part.waiting(id.number)?;
        record.instance = part.inherited.numbers.instance(record.instance)?;
        Some(record)
    }

    /// Notes that a record is restored or cannot be, so that it no longer waits.
    pub(crate) fn settle(&mut self, id: InheritedId, became: Result<(), RestoreError>) {
        let (Some(part), Some(at)) =
            (self.parts.get_mut(id.part as usize), (id.number as usize).checked_sub(1))
        else {
            return;
        };
        if part.inherited.records.clear(at) {
            let progress = &mut self.progress;
            progress.left = progress.left.saturating_sub(1);
            match became {
                Ok(()) => progress.restored += 1,
                Err(why) => progress.count(why, 1),
            }
        }
    }
}

impl Reservations for Inheritance {
    fn has(&self, address: Ipv4Addr, ports: &RangeInclusive<u16>, transports: [bool; 3]) -> bool {
        let mut lists = ports.start() >> NEAR..=ports.end() >> NEAR;
        let is_there = |record: &Session| {
            record.outside().0 == address
                && ports.contains(&record.outside_port)
                && *record.transport().of(&transports)
        };
        lists.any(|list| {
            self.parts
                .iter()
                .any(|part| part.near((address, list << NEAR)).any(|(_, record)| is_there(&record)))
        })
    }
}

/// Returns the number of the list of a hash.
#[inline]
fn list(lists: &[u32], hash: u64) -> usize {
    hash as usize & lists.len().wrapping_sub(1)
}

fn first(lists: &[u32], hash: u64) -> u32 {
    lists.get(list(lists, hash)).copied().unwrap_or(NO_RECORD)
}

/// Puts a record at the head of a list, before the previous head.
#[inline]
fn put_first(lists: &mut [u32], list: usize, number: u32) -> u32 {
    let before = lists.get_mut(list).map_or(NO_RECORD, |head| core::mem::replace(head, number));
    if before == NO_RECORD { LAST } else { before }
}

/// Hash of a public port and its neighbours. Gatun itself has given out these ports, so the hash needs no
/// key.
fn near(address: Ipv4Addr, port: u16) -> u64 {
    let place = u64::from(u32::from(address)) << 16 | u64::from(port >> NEAR);
    place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24
}
