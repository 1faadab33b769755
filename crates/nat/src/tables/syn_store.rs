//! Unsolicited SYNs from outside, or from an inside host through a hairpin. They are held for six seconds
//! (RFC 6146 3.5.2.2, RFC 5382 REQ-4).
//!
//! An immediate answer would reset a simultaneous open whose other SYN is still on its way. If the inside
//! host opens a connection to the same remote end in time, the held SYN is dropped silently and its outside
//! address is used ([`SynStore::take`]). Otherwise the sender gets an ICMP error that quotes it
//! ([`SynStore::pop_expired`]).
//!
//! All memory is taken at construction. Entries are chained by a keyed hash of the remote address, and the
//! chain also gives the number of SYNs per source. No source may hold more than a sixteenth of the store.

use crate::base::time::Instant;
use crate::base::time::SteadyClock;
use core::net::Ipv4Addr;
use gatun_mem::hash::Hasher64;
use gatun_mem::{Footprint, HugeVec, OutOfMemory};
use gatun_wire::DropReason;

/// Number of bytes stored of a SYN: two IPv4 headers with all options take 120, an IPv6 packet without
/// extensions 100.
const KEPT_BYTES: usize = 192;

/// Marks the absence of an entry; entries are numbered from 1.
const NONE: u32 = 0;

/// An IPv4 address and a port.
type Endpoint = (Ipv4Addr, u16);

/// Held SYN that has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredSyn<'a> {
    /// Its destination.
    pub outside: Endpoint,
    /// Its sender.
    pub remote: Endpoint,
    /// Realm of its sender.
    pub realm: u8,
    /// Its first bytes, from the IP header on, as received.
    pub bytes: &'a [u8],
    /// Its length as received, in bytes.
    pub original_len: usize,
}

#[derive(Clone, Copy, zerocopy::FromZeros)]
#[repr(C, align(64))]
struct HeldSyn {
    deadline_ms: u64,
    original_len: u64,
    outside_addr: u32,
    remote_addr: u32,
    outside_port: u16,
    remote_port: u16,
    kept: u16,
    realm: u8,
    /// Neighbours in order of arrival; in a free entry, `newer` is the next free one.
    older: u32,
    newer: u32,
    /// The next entry with the same hash.
    chain: u32,
    bytes: [u8; KEPT_BYTES],
}

impl HeldSyn {
    fn outside(&self) -> Endpoint {
        (self.outside_addr.into(), self.outside_port)
    }

    fn remote(&self) -> Endpoint {
        (self.remote_addr.into(), self.remote_port)
    }
}

/// Store of held SYNs.
pub struct SynStore {
    /// Entry 0 is not used.
    entries: HugeVec<HeldSyn>,
    /// First entries of the chains; a power of two of them.
    heads: HugeVec<u32>,
    hasher: Hasher64,
    oldest: u32,
    newest: u32,
    free: u32,
    len: usize,
    per_source_max: usize,
    clock: SteadyClock,
}

impl SynStore {
    /// Creates a store with room for `max` SYNs.
    ///
    /// # Errors
    /// Returns an error if memory is short.
    pub fn new(max: u32, hasher: Hasher64) -> Result<Self, OutOfMemory> {
        let max = max.min(u32::MAX / 2);
        let mut entries = HugeVec::<HeldSyn>::new(max as usize + 1)?;
        for (number, entry) in entries.iter_mut().enumerate().skip(1) {
            entry.newer = if number < max as usize { number as u32 + 1 } else { NONE };
        }
        Ok(SynStore {
            entries,
            heads: HugeVec::new((max as usize * 2).next_power_of_two())?,
            hasher,
            oldest: NONE,
            newest: NONE,
            free: if max > 0 { 1 } else { NONE },
            len: 0,
            per_source_max: (max as usize / 16).max(4),
            clock: SteadyClock::default(),
        })
    }

    /// Memory use of [`SynStore::new`].
    pub fn footprint(max: u32) -> Footprint {
        let max = max.min(u32::MAX / 2) as usize;
        HugeVec::<HeldSyn>::footprint(max + 1) + HugeVec::<u32>::footprint((max * 2).next_power_of_two())
    }

    /// Current number of held SYNs.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether another SYN from an address can be held.
    pub(crate) fn has_room_for(&self, remote: Ipv4Addr) -> bool {
        let chain = self.chain(remote).filter_map(|number| self.entry(number));
        let from_source = chain.filter(|entry| entry.remote().0 == remote).count();
        from_source < self.per_source_max && self.free != NONE
    }

    /// Returns whether the store is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Holds a SYN from `remote` to `outside` until `until`. Returns `false` if one is held already: a
    /// retransmission changes nothing, and the first copy keeps its deadline.
    ///
    /// # Errors
    ///
    /// [`DropReason::SynStoreFull`], also if only this source has too many.
    pub fn store(
        &mut self,
        now: Instant,
        until: Instant,
        packet: &[u8],
        outside: Endpoint,
        remote: Endpoint,
        realm: u8,
    ) -> Result<bool, DropReason> {
        let mut from_source = 0;
        for number in self.chain(remote.0) {
            let Some(e) = self.entry(number) else { break };
            if e.remote() == remote && e.outside() == outside {
                return Ok(false);
            }
            from_source += usize::from(e.remote().0 == remote.0);
        }
        if from_source >= self.per_source_max || self.free == NONE {
            return Err(DropReason::SynStoreFull);
        }
        let deadline = self.clock.at(now).plus_ms(until.since_ms(now));
        let number = self.append(deadline, packet, outside, remote);
        if let Some(entry) = self.entry_mut(number) {
            entry.realm = realm;
        }
        Ok(true)
    }

    /// Returns the destination of the oldest SYN from `remote` whose outside address and port `pick` accepts.
    pub fn find(&self, remote: Endpoint, pick: impl FnMut(Endpoint) -> bool) -> Option<Endpoint> {
        self.entry(self.oldest_from(remote, pick)?).map(HeldSyn::outside)
    }

    /// Takes a SYN because the inside host opens a connection to `remote`. Removes the oldest SYN from
    /// `remote` whose outside address and port `pick` accepts. Returns these and its length in bytes.
    pub fn take(
        &mut self,
        remote: Endpoint,
        pick: impl FnMut(Endpoint) -> bool,
    ) -> Option<(Endpoint, usize)> {
        let number = self.oldest_from(remote, pick)?;
        let entry = self.entry(number)?;
        let found = (entry.outside(), entry.original_len as usize);
        self.remove(number);
        Some(found)
    }

    fn oldest_from(&self, remote: Endpoint, mut pick: impl FnMut(Endpoint) -> bool) -> Option<u32> {
        // The chain has the newest first, so the last match is the oldest.
        self.chain(remote.0)
            .filter(|&n| self.entry(n).is_some_and(|e| e.remote() == remote && pick(e.outside())))
            .last()
    }

    /// Forgets the oldest SYN if its time is up, and returns it. SYNs leave in the order in which they came:
    /// a SYN with a shorter time waits for an earlier one with a longer time.
    pub fn pop_expired(&mut self, now: Instant) -> Option<StoredSyn<'_>> {
        let now = self.clock.at(now);
        let number = self.oldest;
        if self.entry(number)?.deadline_ms > now.0 {
            return None;
        }
        self.remove(number);
        // Its bytes stay in place until it is used again.
        let e = self.entries.get(number as usize)?;
        Some(StoredSyn {
            outside: e.outside(),
            remote: e.remote(),
            realm: e.realm,
            bytes: e.bytes.get(..usize::from(e.kept))?,
            original_len: e.original_len as usize,
        })
    }

    fn entry(&self, number: u32) -> Option<&HeldSyn> {
        self.entries.get(number as usize).filter(|_| number != NONE)
    }

    fn entry_mut(&mut self, number: u32) -> Option<&mut HeldSyn> {
        self.entries.get_mut(number as usize).filter(|_| number != NONE)
    }

    fn bucket(&self, address: Ipv4Addr) -> usize {
        let hash = self.hasher.hash4([u32::from(address).into(), 0, 0, 5 << 32]);
        hash as usize & (self.heads.len() - 1)
    }

    /// Iterates over the entries that share a hash with `address`, the newest first.
    fn chain(&self, address: Ipv4Addr) -> impl Iterator<Item = u32> {
        let mut number = self.heads.get(self.bucket(address)).copied().unwrap_or(NONE);
        core::iter::from_fn(move || {
            let this = number;
            number = self.entry(this)?.chain;
            Some(this)
        })
    }

    /// Fills the first free entry; the caller ensures that there is one. Returns its number.
    fn append(&mut self, deadline: Instant, packet: &[u8], outside: Endpoint, remote: Endpoint) -> u32 {
        let (number, bucket, newest) = (self.free, self.bucket(remote.0), self.newest);
        let chain = self.heads.get(bucket).copied().unwrap_or(NONE);
        let Some(e) = self.entry_mut(number) else { return NONE };
        let next_free = e.newer;
        e.deadline_ms = deadline.0;
        e.original_len = packet.len() as u64;
        (e.outside_addr, e.outside_port) = (outside.0.into(), outside.1);
        (e.remote_addr, e.remote_port) = (remote.0.into(), remote.1);
        (e.older, e.newer, e.chain) = (newest, NONE, chain);
        let kept = packet.len().min(KEPT_BYTES);
        e.kept = kept as u16;
        e.bytes.iter_mut().zip(packet).for_each(|(to, from)| *to = *from);
        match self.entry_mut(newest) {
            Some(before) => before.newer = number,
            None => self.oldest = number,
        }
        self.newest = number;
        self.free = next_free;
        if let Some(head) = self.heads.get_mut(bucket) {
            *head = number;
        }
        self.len += 1;
        number
    }

    /// Frees an entry that is in use.
    fn remove(&mut self, number: u32) {
        let Some(&HeldSyn { older, newer, chain, remote_addr, .. }) = self.entry(number) else { return };
        match self.entry_mut(older) {
            Some(e) => e.newer = newer,
            None => self.oldest = newer,
        }
        match self.entry_mut(newer) {
            Some(e) => e.older = older,
            None => self.newest = older,
        }
        let before = self.chain(remote_addr.into()).take_while(|&n| n != number).last();
        let bucket = self.bucket(remote_addr.into());
        match before {
            Some(n) => self.entry_mut(n).map(|e| e.chain = chain),
            None => self.heads.get_mut(bucket).map(|head| *head = chain),
        };
        let free = self.free;
        if let Some(e) = self.entry_mut(number) {
            e.newer = free;
        }
        self.free = number;
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::vec;
    use std::vec::Vec;

    const SIX_SECONDS: u64 = 6_000;

    fn store_of(max: u32) -> SynStore {
        SynStore::new(max, Hasher64::new([1, 2, 3, 4])).unwrap()
    }

    fn remote(host: u32, port: u16) -> Endpoint {
        (Ipv4Addr::from(0xc633_6400 + host), port)
    }

    fn outside(port: u16) -> Endpoint {
        ("192.0.2.1".parse().unwrap(), port)
    }

    fn hold(s: &mut SynStore, at: u64, to: Endpoint, from: Endpoint) -> Result<bool, DropReason> {
        s.store(Instant(at), Instant(at).plus_ms(SIX_SECONDS), &[0x45; 60], to, from, 0)
    }

    // proves: A61-40, R53-4
    #[test]
    fn a_held_syn_comes_out_after_six_seconds_and_not_before() {
        let mut s = store_of(10);
        let packet: Vec<u8> = (0..=255).collect();
        assert_eq!(s.store(Instant(1000), Instant(7000), &packet, outside(80), remote(1, 5), 3), Ok(true));
        assert_eq!(s.pop_expired(Instant(6999)), None);
        let expected = StoredSyn {
            outside: outside(80),
            remote: remote(1, 5),
            realm: 3,
            bytes: &packet[..KEPT_BYTES],
            original_len: 256,
        };
        assert_eq!(s.pop_expired(Instant(7000)), Some(expected));
        assert_eq!(s.pop_expired(Instant(7000)), None);
        assert!(s.is_empty());
    }

    #[test]
    fn bytes_of_a_longer_packet_do_not_show_behind_a_shorter_one() {
        let mut s = store_of(1);
        for packet in [vec![0xa5; 100], vec![0x5a; 40], vec![]] {
            s.store(Instant(0), Instant(0), &packet, outside(80), remote(1, 5), 0).unwrap();
            assert_eq!(s.pop_expired(Instant(0)).unwrap().bytes, packet);
        }
    }

    // proves: A61-40
    #[test]
    fn a_retransmission_is_not_held_twice_and_does_not_prolong() {
        let mut s = store_of(10);
        assert_eq!(hold(&mut s, 0, outside(80), remote(1, 5)), Ok(true));
        assert_eq!(hold(&mut s, 1000, outside(80), remote(1, 5)), Ok(false));
        assert_eq!(hold(&mut s, 1000, outside(81), remote(1, 5)), Ok(true));
        assert_eq!(hold(&mut s, 1000, outside(80), remote(1, 6)), Ok(true));
        assert_eq!(s.len(), 3);
        assert!(s.pop_expired(Instant(6000)).is_some());
        assert!(s.pop_expired(Instant(6000)).is_none());
    }

    // proves: A61-40, A61-41
    #[test]
    fn an_opening_from_inside_takes_the_oldest_matching_syn_silently() {
        let mut s = store_of(10);
        for port in [80, 81, 82] {
            hold(&mut s, u64::from(port), outside(port), remote(1, 5)).unwrap();
        }
        hold(&mut s, 90, outside(83), remote(1, 6)).unwrap();
        assert_eq!(s.take(remote(2, 5), |_| true), None);
        assert_eq!(s.take(remote(1, 5), |to| to.1 == 83), None, "the SYN is from another port");
        assert_eq!(s.take(remote(1, 5), |to| to.1 > 80), Some((outside(81), 60)));
        assert_eq!(s.take(remote(1, 5), |_| true), Some((outside(80), 60)));
        assert_eq!(s.take(remote(1, 5), |_| true), Some((outside(82), 60)));
        assert_eq!(s.take(remote(1, 5), |_| true), None);
        assert_eq!(s.len(), 1);
    }

    // proves: A61-40
    #[test]
    fn a_flood_is_bounded_and_one_source_cannot_fill_the_store() {
        let mut s = store_of(160);
        let held = |s: &mut SynStore, host| {
            (0..500).filter(|&p| hold(s, 0, outside(p), remote(host, p)) == Ok(true)).count()
        };
        assert_eq!(held(&mut s, 0), 10);
        assert_eq!(hold(&mut s, 0, outside(80), remote(1, 80)), Ok(true), "other sources still find room");
        let more: usize = (1..100).map(|host| held(&mut s, host)).sum();
        assert_eq!(more, 149);
        assert_eq!(s.len(), 160);
        assert_eq!(hold(&mut s, 0, outside(80), remote(1000, 80)), Err(DropReason::SynStoreFull));
        assert!(s.pop_expired(Instant(SIX_SECONDS)).is_some());
        assert_eq!(hold(&mut s, SIX_SECONDS, outside(80), remote(1000, 80)), Ok(true));
        assert_eq!(hold(&mut store_of(0), 0, outside(80), remote(0, 80)), Err(DropReason::SynStoreFull));
    }

    #[test]
    fn a_clock_that_jumps_back_neither_keeps_nor_hurries_a_syn() {
        let mut s = store_of(10);
        hold(&mut s, 1_000_000, outside(80), remote(1, 5)).unwrap();
        assert!(s.pop_expired(Instant(1_002_000)).is_none());
        assert!(s.pop_expired(Instant(50)).is_none());
        hold(&mut s, 60, outside(81), remote(1, 5)).unwrap();
        assert!(s.pop_expired(Instant(50 + 3999)).is_none());
        assert_eq!(s.pop_expired(Instant(50 + 4000)).unwrap().outside, outside(80));
        assert!(s.pop_expired(Instant(60 + 5999)).is_none());
        assert_eq!(s.pop_expired(Instant(60 + 6000)).unwrap().outside, outside(81));
        hold(&mut s, u64::MAX, outside(80), remote(1, 5)).unwrap();
        assert!(s.pop_expired(Instant(u64::MAX)).is_some());
    }

    proptest! {
        #[test]
        fn syn_store_agrees_with_a_queue(
            ops in prop::collection::vec((0..4u8, 0..3u32, 0..3u16, 0..3u16, 0..2_500u64), 0..300),
        ) {
            let mut s = store_of(8);
            let mut model: VecDeque<(u64, Endpoint, Endpoint)> = VecDeque::new();
            let mut now = 0;
            for (op, host, from_port, to_port, later) in ops {
                let (from, to) = (remote(host, from_port), outside(to_port));
                match op {
                    0 | 1 => {
                        let known = model.iter().any(|&(_, t, f)| (t, f) == (to, from));
                        let of_source = model.iter().filter(|m| m.2.0 == from.0).count();
                        let expected = if known {
                            Ok(false)
                        } else if of_source >= 4 || model.len() == 8 {
                            Err(DropReason::SynStoreFull)
                        } else {
                            model.push_back((now + SIX_SECONDS, to, from));
                            Ok(true)
                        };
                        prop_assert_eq!(hold(&mut s, now, to, from), expected);
                    }
                    2 => {
                        let fits = |m: &(u64, Endpoint, Endpoint)| m.2 == from && m.1.1 >= to_port;
                        let expected = model.iter().position(fits).and_then(|i| model.remove(i));
                        let taken = s.take(from, |o| o.1 >= to_port);
                        prop_assert_eq!(taken, expected.map(|m| (m.1, 60)));
                    }
                    _ => {
                        now += later;
                        let due = model.front().is_some_and(|m| m.0 <= now);
                        let expected = if due { model.pop_front() } else { None };
                        let popped = s.pop_expired(Instant(now)).map(|e| (e.outside, e.remote));
                        prop_assert_eq!(popped, expected.map(|m| (m.1, m.2)));
                    }
                }
                prop_assert_eq!(s.len(), model.len());
            }
        }
    }
}
