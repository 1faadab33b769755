//! Virtual reassembly: fragments of a datagram are translated in the same way as the first one (RFC 6146
//! 3.4), in any order of arrival, without assembling the datagram.
//!
//! ```text
//!              first()                                  last piece seen
//!   (none) ------------------> KNOWN  later: translated ---------------> (none)
//!     | later()                 ^
//!     v                         | first(), then release() gives the held ones
//!   WAITING  later: held -------'
//!     | collect(): the first fragment's checksum needs all data: UDP without checksum (RFC 7915 4.5),
//!     |            a ping that is or becomes IPv6
//!     v
//!   COLLECTING  all held until the datagram is complete, then release() with their sum
//!
//!   an overlap, too many fragments, no room, a refused first fragment: REFUSED, all held ones dropped,
//!   until the time is up
//! ```
//! Invariants:
//! - memory is taken once; a flood of fragments fills it and is counted, and neither evicts existing entries
//!   nor affects packets that are not fragments;
//! - datagrams without an accepted first fragment take at most three quarters of the table, so that senders
//!   in order with a session find room during a flood by others;
//! - no source has more than its share; each followed datagram and each held packet counts as one;
//! - every held packet ends once: [`Fragments::release`] returns it or [`Fragments::take_ended`] reports it.
//!
//! Cost per datagram: about 650 bytes of record (including its `M`), 60 of indices and sources. Held bytes
//! take 512-byte chunks.

mod pieces;
mod slots;
mod sources;
#[cfg(test)]
mod tests;

use crate::base::counters::{Count, Direction};
use crate::base::index::Index;
use crate::base::plan::Limits;
use crate::base::time::Instant;
use alloc::vec::Vec;
use gatun_mem::hash::Hasher64;
use gatun_mem::{Footprint, OutOfMemory};
use gatun_wire::{DropReason, FragmentInfo, Ipv4View, Ipv6View, Packet, checksum};
use pieces::{Fit, Pieces};
use slots::Slots;
use sources::Sources;

/// Identity of a fragment's datagram (RFC 6146 3.4), and its instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    src: u128,
    dst: u128,
    id: u32,
    instance: u16,
    proto: u8,
    direction: Direction,
}

impl Key {
    fn is_v6(&self) -> bool {
        self.direction == Direction::SixToFour
    }
}

/// Fragment: its datagram, its place in the datagram, its size.
#[derive(Clone, Copy, Debug)]
pub struct Fragment {
    key: Key,
    /// Source of the quota: the address, or its subscriber.
    source: u128,
    info: FragmentInfo,
    /// Bytes before the datagram's part.
    header_len: u32,
    /// Bytes with headers, without padding.
    total_len: u32,
}

impl Fragment {
    fn new(key: Key, info: FragmentInfo, l4_offset: u16, total_len: u32) -> Fragment {
        Fragment { key, source: key.src, info, header_len: l4_offset.into(), total_len }
    }

    /// Describes an IPv4 fragment; `None` for other packets. `instance` distinguishes translators that share
    /// a table.
    pub fn of4(instance: u16, view: &Ipv4View) -> Option<Fragment> {
        let info = view.fragment?;
        let (src, dst) = (u32::from(view.src).into(), u32::from(view.dst).into());
        let direction = Direction::FourToSix;
        let key = Key { src, dst, id: info.id, instance, proto: view.proto, direction };
        Some(Self::new(key, info, view.l4_offset, view.total_len))
    }

    /// Same as [`of4`](Self::of4), for a packet that stays IPv4.
    pub fn of44(instance: u16, view: &Ipv4View) -> Option<Fragment> {
        let mut fragment = Self::of4(instance, view)?;
        fragment.key.direction = Direction::FourToFour;
        Some(fragment)
    }

    /// Describes an IPv6 fragment; `None` for other packets and for an atomic fragment (RFC 6946: it is
    /// processed on its own).
    pub fn of6(instance: u16, view: &Ipv6View) -> Option<Fragment> {
        let info = view.fragment.filter(|f| !f.is_atomic())?;
        let (src, dst) = (view.src.into(), view.dst.into());
        let direction = Direction::SixToFour;
        let key = Key { src, dst, id: info.id, instance, proto: view.proto, direction };
        Some(Self::new(key, info, view.l4_offset, view.total_len))
    }

    /// Counts the fragment for a subscriber. All addresses of a subscriber are one source.
    pub fn counted_for(self, subscriber: u128) -> Fragment {
        Fragment { source: subscriber, ..self }
    }

    /// Returns the bytes of the datagram in this fragment.
    ///
    /// # Errors
    ///
    /// Returns `bad_len` if the fragment has no data or reaches beyond 65,535 bytes (RFC 8200 4.5, RFC 791
    /// 3.2). Returns it also if a fragment other than the last does not end at a multiple of 8 bytes.
    fn payload_len(&self) -> Result<u16, DropReason> {
        let len = self.total_len.saturating_sub(self.header_len);
        let ends = u32::from(self.info.offset) + len;
        if len == 0 || (self.info.more && !len.is_multiple_of(8)) || ends > 65_535 {
            return Err(DropReason::BadLength);
        }
        Ok(len as u16)
    }
}

/// Action for a fragment that is not the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum FragmentAction<M> {
    /// Translate it in the same way as the first one.
    Known(M),
    /// The table keeps a copy.
    Held,
    /// The table keeps a copy, and the datagram is now complete: call [`Fragments::release`].
    Complete,
    /// Drop it.
    Drop(DropReason),
}

/// Held packet that is released.
#[derive(Debug)]
pub struct Released<'a, M> {
    /// The packet as it was received, with headroom.
    pub packet: Packet<'a>,
    /// Its place in the datagram.
    pub info: FragmentInfo,
    /// Memo of the first fragment.
    pub memo: M,
    /// Data of a collected datagram that the first fragment needs for its checksum.
    pub datagram: Option<Datagram>,
}

/// A complete datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Bytes of transport header and data.
    pub len: u32,
    /// Their one's complement sum, without pseudo-header.
    pub sum: u16,
}

/// Held packets that were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Direction of the packets.
    pub direction: Direction,
    /// Instance, as given to [`Fragment::of4`] and similar functions.
    pub instance: u16,
    /// Reason for the drop.
    pub reason: DropReason,
    /// Number of packets, and their bytes as received.
    pub count: Count,
}

/// Datagrams whose fragments are followed. `M` describes the translation of a first fragment.
pub struct Fragments<M> {
    index: Index,
    entries: Vec<StoredDatagram<M>>,
    free: Vec<u32>,
    slots: Slots,
    sources: Sources,
    hasher: Hasher64,
    per_source_max: u32,
    /// Datagrams without an accepted first fragment, and their bound.
    unaccepted: u32,
    unaccepted_max: u32,
    held: u64,
    /// Drops that are not reported yet, at most one per datagram, because none is reopened between two
    /// calls.
    ended: Vec<Ended>,
    /// Record where the next sweep begins.
    cursor: usize,
}

#[derive(Clone, Copy)]
struct StoredDatagram<M> {
    key: Key,
    hash: u64,
    deadline: Instant,
    state: DatagramState<M>,
    pieces: Pieces,
    /// Held packets in the order of their offsets.
    held_head: u32,
    held_count: u32,
    /// Sum of the data in the held packets.
    sum: u16,
    source: u32,
}

#[derive(Clone, Copy, Debug)]
enum DatagramState<M> {
    Free,
    Waiting,
    Known(M),
    Collecting(M),
    Refused(DropReason),
}

impl<M> DatagramState<M> {
    /// Returns whether a first fragment was accepted.
    fn accepted(&self) -> bool {
        matches!(self, DatagramState::Known(_) | DatagramState::Collecting(_))
    }
}

impl<M: Copy> Fragments<M> {
    /// Creates an empty table and takes all its memory. `seed` must not be guessable.
    ///
    /// # Errors
    ///
    /// Returns an error if memory is short.
    pub fn new(limits: &Limits, seed: [u64; 4]) -> Result<Self, OutOfMemory> {
        let n = limits.fragment_entries_max;
        let key = Key { src: 0, dst: 0, id: 0, instance: 0, proto: 0, direction: Direction::SixToFour };
        let empty = StoredDatagram {
            key,
            hash: 0,
            deadline: Instant(0),
            state: DatagramState::Free,
            pieces: Pieces::NONE,
            held_head: slots::NONE,
            held_count: 0,
            sum: 0,
            source: 0,
        };
        let (direction, reason, count) = (key.direction, DropReason::BadLength, Count::default());
        let nothing = Ended { direction, instance: 0, reason, count };
        // The write makes the kernel provide the memory now. Memory that is only reserved may be missing
        // later.
        let mut ended = alloc::vec![nothing; n as usize];
        ended.clear();
        Ok(Fragments {
            index: Index::with_capacity(n)?,
            entries: alloc::vec![empty; n as usize],
            free: (0..n).rev().collect(),
            slots: Slots::new(limits.fragment_bytes_max as usize)?,
            sources: Sources::new(n)?,
            hasher: Hasher64::new(seed),
            per_source_max: limits.fragments_per_source,
            unaccepted: 0,
            unaccepted_max: n - n / 4,
            held: 0,
            ended,
            cursor: 0,
        })
    }

    /// Memory use of [`Fragments::new`].
    pub fn footprint(limits: &Limits) -> Footprint {
        let n = limits.fragment_entries_max;
        let each = size_of::<StoredDatagram<M>>() + size_of::<u32>() + size_of::<Ended>();
        Index::footprint(n)
            + Footprint::of_bytes(u64::from(n) * each as u64)
            + Slots::footprint(limits.fragment_bytes_max as usize)
            + Sources::footprint(n)
    }

    /// Sets the share of each source. A source that has more keeps it.
    pub fn set_per_source_max(&mut self, per_source_max: u32) {
        self.per_source_max = per_source_max;
    }

    /// Packets held at this moment.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Datagrams followed at this moment.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns whether no datagram is followed.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Notes that a first fragment is translated as `memo` describes. Returns the number of waiting fragments
    /// of its datagram. If there are any, send the first fragment and call [`release`](Self::release).
    ///
    /// # Errors
    ///
    /// Returns an error if the first fragment is to be dropped: `frag_overlap`, `frag_too_many`, `frag_mem`,
    /// `bad_len`, or the reason for which its datagram was refused before.
    pub fn first(
        &mut self,
        now: Instant,
        fragment: &Fragment,
        lifetime_ms: u32,
        memo: M,
    ) -> Result<u32, DropReason> {
        let at = self.note(now, fragment, lifetime_ms, DatagramState::Known(memo))?;
        Ok(self.entry(at).map_or(0, |e| e.held_count))
    }

    /// Holds a first fragment until its whole datagram has arrived, because its checksum, or the length that
    /// the checksum covers, cannot be computed before. Returns `true` if the datagram is complete: call
    /// [`release`](Self::release).
    ///
    /// # Errors
    ///
    /// Same as [`first`](Self::first).
    pub fn collect(
        &mut self,
        now: Instant,
        fragment: &Fragment,
        lifetime_ms: u32,
        packet: &Packet<'_>,
        memo: M,
    ) -> Result<bool, DropReason> {
        let at = self.note(now, fragment, lifetime_ms, DatagramState::Collecting(memo))?;
        self.hold(at, fragment, packet)?;
        Ok(self.entry(at).is_some_and(|e| e.pieces.complete()))
    }

    /// Notes that a first fragment was dropped. The other fragments of its datagram, held or still to come,
    /// are then useless (`frag_orphan`).
    pub fn refuse(&mut self, now: Instant, fragment: &Fragment, lifetime_ms: u32) {
        let reason = DropReason::FragmentOrphan;
        match self.find(now, &fragment.key) {
            Some(at) => self.poison(at, reason),
            // Without room for the refusal, the other fragments wait until they time out, which does no
            // further harm.
            None => drop(self.open(now, fragment, lifetime_ms, DatagramState::Refused(reason))),
        }
    }

    /// Returns the action for a fragment that is not the first.
    pub fn later(
        &mut self,
        now: Instant,
        fragment: &Fragment,
        lifetime_ms: u32,
        packet: &Packet<'_>,
    ) -> FragmentAction<M> {
        let at = match self.note(now, fragment, lifetime_ms, DatagramState::Waiting) {
            Ok(at) => at,
            Err(reason) => return FragmentAction::Drop(reason),
        };
        let Some(entry) = self.entry(at) else { return FragmentAction::Drop(DropReason::FragmentMemory) };
        let complete = entry.pieces.complete();
        match entry.state {
            DatagramState::Known(memo) => {
                if complete && entry.held_count == 0 {
                    self.close(at);
                }
                FragmentAction::Known(memo)
            }
            state => match self.hold(at, fragment, packet) {
                Ok(()) if complete && state.accepted() => FragmentAction::Complete,
                Ok(()) => FragmentAction::Held,
                Err(reason) => FragmentAction::Drop(reason),
            },
        }
    }

    /// Releases the held fragments of a datagram, in the order of offsets, if its first fragment was
    /// accepted. A collected datagram must also be complete.
    pub fn release(&mut self, now: Instant, fragment: &Fragment, mut give: impl FnMut(Released<'_, M>)) {
        let Some(at) = self.find(now, &fragment.key) else { return };
        let Some(entry) = self.entries.get_mut(at as usize) else { return };
        let complete = entry.pieces.complete();
        let (memo, datagram) = match entry.state {
            DatagramState::Known(memo) => (memo, None),
            DatagramState::Collecting(memo) if complete => {
                (memo, Some(Datagram { len: entry.pieces.total(), sum: entry.sum }))
            }
            _ => return,
        };
        let (source, mut head) = (entry.source, entry.held_head);
        (entry.held_head, entry.held_count) = (slots::NONE, 0);
        while let Some(&slots::Held { info, next, .. }) = self.slots.get(head) {
            self.held -= 1;
            self.sources.remove(source, 1);
            if let Some(packet) = self.slots.take(head) {
                give(Released { packet, info, memo, datagram });
            }
            head = next;
        }
        if complete {
            self.close(at);
        }
    }

    /// Ends expired datagrams. Examines `budget` records.
    pub fn expire(&mut self, now: Instant, budget: usize) {
        for _ in 0..budget.min(self.entries.len()) {
            self.cursor = if self.cursor + 1 < self.entries.len() { self.cursor + 1 } else { 0 };
            let at = self.cursor as u32;
            let due = |e: &StoredDatagram<M>| !matches!(e.state, DatagramState::Free) && now >= e.deadline;
            if self.entry(at).is_some_and(due) {
                self.drop_held(at, DropReason::FragmentTimeout);
                self.close(at);
            }
        }
    }

    /// Reports the held packets dropped since the last call.
    pub fn take_ended(&mut self, mut tell: impl FnMut(Ended)) {
        self.ended.drain(..).for_each(&mut tell);
    }

    /// Records dropped packets without an allocation: adds them to the last entry of their kind.
    fn note_ended(&mut self, ended: Ended) {
        let same = |e: &&mut Ended| {
            (e.direction, e.instance, e.reason) == (ended.direction, ended.instance, ended.reason)
        };
        match self.ended.last_mut().filter(same) {
            Some(last) => last.count += ended.count,
            None => self.ended.push(ended),
        }
    }

    /// Notes a fragment: finds its datagram or opens it in `state`, checks if it fits, and accepts the
    /// datagram if `state` says so.
    fn note(
        &mut self,
        now: Instant,
        fragment: &Fragment,
        lifetime_ms: u32,
        state: DatagramState<M>,
    ) -> Result<u32, DropReason> {
        let len = fragment.payload_len()?;
        let at = match self.find(now, &fragment.key) {
            Some(at) => at,
            None => self.open(now, fragment, lifetime_ms, state)?,
        };
        let entry = self.entries.get_mut(at as usize).ok_or(DropReason::FragmentMemory)?;
        if let DatagramState::Refused(reason) = entry.state {
            return Err(reason);
        }
        let refusal = match entry.pieces.insert(fragment.info.offset, len, fragment.info.more) {
            Fit::New => {
                if state.accepted() && !entry.state.accepted() {
                    entry.state = state;
                    self.unaccepted -= 1;
                }
                return Ok(at);
            }
            // RFC 8200 4.5 lets exact duplicates be dropped without harm to the others.
            Fit::Duplicate => return Err(DropReason::FragmentOverlap),
            Fit::Overlap => DropReason::FragmentOverlap, // RFC 5722 drops the whole datagram.
            Fit::TooMany => DropReason::FragmentTooMany,
        };
        self.poison(at, refusal);
        Err(refusal)
    }

    fn find(&mut self, now: Instant, key: &Key) -> Option<u32> {
        let hash = self.hash(key);
        let at = self.index.find(hash, |at| self.entry(at).is_some_and(|e| e.key == *key))?;
        if self.entry(at)?.deadline > now {
            return Some(at);
        }
        self.drop_held(at, DropReason::FragmentTimeout);
        self.close(at);
        None
    }

    /// Opens a new datagram.
    fn open(
        &mut self,
        now: Instant,
        fragment: &Fragment,
        lifetime_ms: u32,
        state: DatagramState<M>,
    ) -> Result<u32, DropReason> {
        let key = fragment.key;
        let hash = self.hash(&key);
        let at = *self.free.last().ok_or(DropReason::FragmentMemory)?;
        if !state.accepted() && self.unaccepted >= self.unaccepted_max {
            return Err(DropReason::FragmentMemory);
        }
        let from = fragment.source;
        let source_hash = self.hasher.hash4([(from >> 64) as u64, from as u64, key.is_v6().into(), 0]);
        let source = self.sources.add((from, key.is_v6()), source_hash, self.per_source_max);
        let source = source.ok_or(DropReason::FragmentTooMany)?;
        let entry = self.entries.get_mut(at as usize).ok_or(DropReason::FragmentMemory)?;
        if self.index.insert(hash, at).is_err() {
            self.sources.remove(source, 1);
            return Err(DropReason::FragmentMemory);
        }
        self.free.pop();
        self.unaccepted += u32::from(!state.accepted());
        *entry = StoredDatagram {
            key,
            hash,
            deadline: now.plus_ms(lifetime_ms.into()),
            state,
            pieces: Pieces::NONE,
            held_head: slots::NONE,
            held_count: 0,
            sum: 0,
            source,
        };
        Ok(at)
    }

    /// Stores a copy in its place among the held packets.
    ///
    /// # Errors
    ///
    /// Returns `frag_too_many` or `frag_mem`. The datagram can no longer be completed and is refused.
    fn hold(&mut self, at: u32, fragment: &Fragment, packet: &Packet<'_>) -> Result<(), DropReason> {
        let Some(entry) = self.entries.get_mut(at as usize) else { return Err(DropReason::FragmentMemory) };
        if !self.sources.add_to(entry.source, self.per_source_max) {
            self.poison(at, DropReason::FragmentTooMany);
            return Err(DropReason::FragmentTooMany);
        }
        let Some(new) = self.slots.store(packet.bytes(), fragment.info, packet.offload) else {
            self.sources.remove(entry.source, 1);
            self.poison(at, DropReason::FragmentMemory);
            return Err(DropReason::FragmentMemory);
        };
        // Offsets are multiples of 8, so only the last part can have an odd length. So the sums of the parts
        // can be added.
        let part = fragment.header_len as usize..fragment.total_len as usize;
        let part = packet.bytes().get(part).unwrap_or_default();
        entry.sum = checksum::add(entry.sum, checksum::sum(part));
        entry.held_count += 1;
        self.held += 1;
        link_in(&mut self.slots, &mut entry.held_head, new, fragment.info.offset);
        Ok(())
    }

    /// Drops the held packets of a datagram and refuses its further fragments until its time is up.
    fn poison(&mut self, at: u32, reason: DropReason) {
        self.drop_held(at, reason);
        if let Some(entry) = self.entries.get_mut(at as usize) {
            self.unaccepted += u32::from(entry.state.accepted());
            entry.state = DatagramState::Refused(reason);
        }
    }

    fn drop_held(&mut self, at: u32, reason: DropReason) {
        let Some(entry) = self.entries.get_mut(at as usize) else { return };
        let Key { direction, instance, .. } = entry.key;
        let mut count = Count::default();
        let mut head = entry.held_head;
        while let Some(held) = self.slots.get(head) {
            count.add(held.len as usize);
            let next = held.next;
            self.slots.release(head);
            head = next;
        }
        (entry.held_head, entry.held_count) = (slots::NONE, 0);
        self.sources.remove(entry.source, count.packets as u32);
        self.held -= count.packets;
        if count.packets > 0 {
            self.note_ended(Ended { direction, instance, reason, count });
        }
    }

    /// Removes a datagram without held packets.
    fn close(&mut self, at: u32) {
        let Some(entry) = self.entries.get_mut(at as usize) else { return };
        self.unaccepted -= u32::from(!entry.state.accepted());
        entry.state = DatagramState::Free;
        self.sources.remove(entry.source, 1);
        if self.index.remove(entry.hash, at) {
            self.free.push(at);
        }
    }

    fn entry(&self, at: u32) -> Option<&StoredDatagram<M>> {
        self.entries.get(at as usize)
    }

    fn hash(&self, key: &Key) -> u64 {
        let halves = |a: u128| [(a >> 64) as u64, a as u64];
        let ([s1, s2], [d1, d2]) = (halves(key.src), halves(key.dst));
        let rest = u64::from(key.id) << 32
            | u64::from(key.instance) << 16
            | u64::from(key.proto) << 8
            | key.direction as u64;
        self.hasher.hash4([self.hasher.hash4([s1, s2, d1, d2]), rest, 0, 0])
    }
}

/// Inserts a held packet into a datagram's list, after those with a lower offset.
fn link_in(slots: &mut Slots, head: &mut u32, new: u32, offset: u16) {
    let mut before = None;
    let mut at = *head;
    while let Some(held) = slots.get(at).filter(|h| h.info.offset < offset) {
        before = Some(at);
        at = held.next;
    }
    if let Some(held) = slots.get_mut(new) {
        held.next = at;
    }
    match before.and_then(|b| slots.get_mut(b)) {
        Some(b) => b.next = new,
        None => *head = new,
    }
}
