//! The explicit address mapping table (RFC 7757 3).
//!
//! Each side has its own longest prefix match, so overlapping entries may give different results in the two
//! directions (RFC 7757 3.2 permits them; [`overlaps`] finds them).
//!
//! ```text
//!   by_v4: /32 -> buckets     one hash table per prefix length that occurs, tried longest first
//!          /24 -> buckets
//!   by_v6: /128 -> buckets
//!          /72  -> buckets
//!
//!   bucket: tag tag tag tag tag tag tag tag | slot slot slot slot slot slot slot slot
//!   tag:    seven bits of the key's hash, or empty                                      1 byte
//!   slot:   v6 prefix 16 | v4 prefix 4 | shift 1 | v4 suffix bits 1 | padding 2        24 bytes
//! ```
//! Tags are stored apart from slots. A million entries have 1.6 MB of tags per side, which fits a core's
//! cache. So an address without an entry (every Internet host behind pool6) rarely costs a line from memory,
//! and an address with an entry costs one. The slot holds the result itself. Tables are 5/8 full: an entry
//! costs [`BYTES_PER_ENTRY`], 1,000,000 of them 80 MB; the bits below are 8 KB.
//!
//! A bit for each /16 of IPv4 tells if any entry overlaps it. That bit alone separates most Internet hosts
//! from mapped ones, with any number of prefix lengths.
//!
//! The table is built once and never changes; a new configuration builds a new one.

use crate::base::plan::Eam;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_mem::{HugeVec, OutOfMemory, prefetch_read};
use zerocopy::FromZeros;

/// Memory per entry, both sides together.
pub const BYTES_PER_ENTRY: usize = 2 * 8 * (1 + size_of::<Slot>()) / ENTRIES_PER_BUCKET;

/// Average number of used slots per bucket, of eight.
const ENTRIES_PER_BUCKET: usize = 5;

/// Reason why entries do not make a table. Numbers are indices into the given list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EamtError {
    /// Both entries have the same IPv4 prefix.
    DuplicateV4 {
        /// The earlier entry.
        first: usize,
        /// The later one.
        second: usize,
    },
    /// Both entries have the same IPv6 prefix.
    DuplicateV6 {
        /// The earlier entry.
        first: usize,
        /// The later one.
        second: usize,
    },
    /// The IPv6 suffix is shorter than the IPv4 suffix, so it has no room for it (RFC 7757 3.2).
    SuffixTooShort {
        /// The entry.
        index: usize,
    },
    /// The tables do not fit into memory.
    OutOfMemory(OutOfMemory),
}

impl From<OutOfMemory> for EamtError {
    fn from(e: OutOfMemory) -> Self {
        EamtError::OutOfMemory(e)
    }
}

impl core::fmt::Display for EamtError {
    /// The messages count entries from 1.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match *self {
            EamtError::DuplicateV4 { first, second } => {
                write!(f, "mappings {} and {} have the same IPv4 prefix", first + 1, second + 1)
            }
            EamtError::DuplicateV6 { first, second } => {
                write!(f, "mappings {} and {} have the same IPv6 prefix", first + 1, second + 1)
            }
            EamtError::SuffixTooShort { index } => {
                write!(f, "mapping {}: the IPv6 suffix is shorter than the IPv4 suffix", index + 1)
            }
            EamtError::OutOfMemory(e) => e.fmt(f),
        }
    }
}

impl core::error::Error for EamtError {}

/// Explicit address mapping table.
#[derive(Debug, Default)]
pub struct Eamt {
    by_v4: Vec<Table>,
    by_v6: Vec<Table>,
    blocks: Blocks16,
    len: usize,
}

impl Eamt {
    /// Builds the table of `entries`, which may be in any order.
    ///
    /// # Errors
    ///
    /// Returns the first problem found.
    pub fn build(entries: &[Eam]) -> Result<Eamt, EamtError> {
        if let Some(index) = entries.iter().position(|e| 128 - e.v6.len.min(128) < 32 - e.v4.len.min(32)) {
            return Err(EamtError::SuffixTooShort { index });
        }
        let mut table = Eamt {
            by_v4: tables(entries.iter().map(|e| e.v4.len))?,
            by_v6: tables(entries.iter().map(|e| e.v6.len))?,
            blocks: Blocks16::of(entries),
            len: entries.len(),
        };
        for (second, e) in entries.iter().enumerate() {
            let slot = Slot::of(e);
            if !insert4(&mut table.by_v4, e.v4.len, slot) {
                let first = entries.iter().position(|o| o.v4 == e.v4).unwrap_or(second);
                return Err(EamtError::DuplicateV4 { first, second });
            }
            if !insert6(&mut table.by_v6, e.v6.len, slot) {
                let first = entries.iter().position(|o| o.v6 == e.v6).unwrap_or(second);
                return Err(EamtError::DuplicateV6 { first, second });
            }
        }
        Ok(table)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes allocated.
    pub fn memory_bytes(&self) -> usize {
        let tables = self.by_v4.iter().chain(&self.by_v6);
        tables.map(|t| t.tags.len() * (8 + 8 * size_of::<Slot>())).sum::<usize>()
            + size_of_val(&*self.blocks.0)
    }

    /// Returns the IPv6 address for an IPv4 address: the entry's IPv6 prefix, the IPv4 suffix, zeroes (RFC
    /// 7757 3.3.1).
    #[inline]
    pub fn v4_to_v6(&self, a: Ipv4Addr) -> Option<Ipv6Addr> {
        let bits = u32::from(a);
        if !self.blocks.may_hold(bits) {
            return None;
        }
        for t in &self.by_v4 {
            let key = bits & t.mask4;
            if let Some(slot) = t.find(hash4(key), |s| s.v4 == key) {
                return Some(slot.v6_of(bits));
            }
        }
        None
    }

    /// Returns the IPv4 address for an IPv6 address: the entry's IPv4 prefix and as many bits of the IPv6
    /// suffix as fit. It ignores the other bits (RFC 7757 3.3.2).
    #[inline]
    pub fn v6_to_v4(&self, a: Ipv6Addr) -> Option<Ipv4Addr> {
        let bits = u128::from(a);
        for t in &self.by_v6 {
            let key = halves(bits & t.mask6);
            if let Some(slot) = t.find(hash6(key), |s| s.v6 == key) {
                return Some(slot.v4_of(bits));
            }
        }
        None
    }

    /// Finds the most likely place of an IPv4 address and prefetches its slot.
    #[inline(always)]
    pub fn look4(&self, a: Ipv4Addr) -> TagLookup {
        if !self.blocks.may_hold(a.into()) {
            return TagLookup::ABSENT;
        }
        look(&self.by_v4, |t| hash4(u32::from(a) & t.mask4))
    }

    /// Finds the most likely place of an IPv6 address and prefetches its slot.
    #[inline(always)]
    pub fn look6(&self, a: Ipv6Addr) -> TagLookup {
        look(&self.by_v6, |t| hash6(halves(u128::from(a) & t.mask6)))
    }

    /// Same as [`v4_to_v6`](Self::v4_to_v6), for an address that has been looked up.
    #[inline(always)]
    pub(crate) fn v4_to_v6_at(&self, look: TagLookup, a: Ipv4Addr) -> Option<Ipv6Addr> {
        let bits = u32::from(a);
        match look.slot(&self.by_v4) {
            _ if look == TagLookup::ABSENT => None,
            Some((table, slot)) if slot.v4 == bits & table.mask4 => Some(slot.v6_of(bits)),
            _ => self.search_v4(a),
        }
    }

    /// Same as [`v6_to_v4`](Self::v6_to_v4), for an address that has been looked up.
    #[inline(always)]
    pub(crate) fn v6_to_v4_at(&self, look: TagLookup, a: Ipv6Addr) -> Option<Ipv4Addr> {
        let bits = u128::from(a);
        match look.slot(&self.by_v6) {
            _ if look == TagLookup::ABSENT => None,
            Some((table, slot)) if slot.v6 == halves(bits & table.mask6) => Some(slot.v4_of(bits)),
            _ => self.search_v6(a),
        }
    }

    /// Searches for the few addresses whose tag another address shares.
    #[cold]
    fn search_v4(&self, a: Ipv4Addr) -> Option<Ipv6Addr> {
        self.v4_to_v6(a)
    }

    #[cold]
    fn search_v6(&self, a: Ipv6Addr) -> Option<Ipv4Addr> {
        self.v6_to_v4(a)
    }

    /// Returns whether an entry covers an IPv4 address.
    #[inline(always)]
    pub fn covers_v4(&self, a: Ipv4Addr) -> bool {
        self.v4_to_v6_at(self.look4(a), a).is_some()
    }
}

/// Bit for each IPv4 /16 that entries touch; empty if there are no entries.
#[derive(Debug, Default)]
struct Blocks16(Vec<u64>);

impl Blocks16 {
    fn of(entries: &[Eam]) -> Blocks16 {
        if entries.is_empty() {
            return Blocks16::default();
        }
        let mut bits = alloc::vec![0u64; (1 << 16) / 64];
        for e in entries {
            let first = u32::from(e.v4.addr) & mask4(e.v4.len);
            for block in first >> 16..=(first | !mask4(e.v4.len)) >> 16 {
                if let Some(word) = bits.get_mut(block as usize / 64) {
                    *word |= 1 << (block % 64);
                }
            }
        }
        Blocks16(bits)
    }

    /// Returns whether an entry for an IPv4 address is possible.
    #[inline(always)]
    fn may_hold(&self, a: u32) -> bool {
        let word = self.0.get((a >> 22) as usize).copied().unwrap_or(0);
        word >> (a >> 16 & 63) & 1 == 1
    }
}

/// One entry. `shift` is the distance of the IPv4 suffix from the end of the IPv6 address.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
struct Slot {
    v6: [u64; 2],
    v4: u32,
    shift: u8,
    v4_suffix_bits: u8,
}

impl Slot {
    fn of(e: &Eam) -> Slot {
        let v4_suffix_bits = 32 - e.v4.len.min(32);
        Slot {
            v6: halves(u128::from(e.v6.addr) & mask6(e.v6.len)),
            v4: u32::from(e.v4.addr) & mask4(e.v4.len),
            shift: 128 - e.v6.len.min(128) - v4_suffix_bits,
            v4_suffix_bits,
        }
    }

    fn v6(&self) -> u128 {
        let [high, low] = self.v6;
        u128::from(high) << 64 | u128::from(low)
    }

    /// Returns the IPv6 address for an IPv4 address that the entry covers.
    #[inline(always)]
    fn v6_of(&self, v4: u32) -> Ipv6Addr {
        if self.v4_suffix_bits == 0 {
            return Ipv6Addr::from(self.v6());
        }
        let suffix = u128::from(v4 & self.v4_suffix_mask());
        Ipv6Addr::from(self.v6() | shl(suffix, self.shift))
    }

    /// Returns the IPv4 address for an IPv6 address that the entry covers.
    #[inline(always)]
    fn v4_of(&self, v6: u128) -> Ipv4Addr {
        if self.v4_suffix_bits == 0 {
            return Ipv4Addr::from(self.v4);
        }
        Ipv4Addr::from(self.v4 | shr(v6, self.shift) as u32 & self.v4_suffix_mask())
    }

    #[inline(always)]
    fn v4_suffix_mask(&self) -> u32 {
        !mask4(32 - self.v4_suffix_bits)
    }
}

/// Result of a look at the tags alone: no entry, a translation prefix, unknown without a search, or the most
/// likely place of the entry. It is one word, so that it stays in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagLookup(u64);

impl TagLookup {
    /// No entry covers the address.
    pub const ABSENT: TagLookup = TagLookup(u64::MAX);
    /// Only a search can tell.
    pub const UNKNOWN: TagLookup = TagLookup(u64::MAX - 1);
    /// First value that does not denote a slot.
    const NO_SLOT: u64 = 0xffff << 48;

    /// Makes a result for the translation prefix of this number, which is not in the table.
    #[inline(always)]
    pub(crate) const fn prefix(number: u16) -> TagLookup {
        TagLookup(TagLookup::NO_SLOT | number as u64)
    }

    /// Returns the number of the translation prefix, if any.
    #[inline(always)]
    pub(crate) fn prefix_number(self) -> Option<u16> {
        (self.0 & !0xffff == TagLookup::NO_SLOT).then_some(self.0 as u16)
    }

    /// Makes a result for the slot of the most likely entry. No entry with a longer prefix covers the
    /// address.
    fn at(table: u8, slot: usize) -> TagLookup {
        TagLookup(u64::from(table) << 48 | slot as u64)
    }

    #[inline(always)]
    fn slot(self, tables: &[Table]) -> Option<(&Table, &Slot)> {
        let table = tables.get((self.0 >> 48) as usize)?;
        Some((table, table.slots.as_flattened().get((self.0 & 0xffff_ffff_ffff) as usize)?))
    }
}

/// Looks at the tags of each table, longest prefixes first.
#[inline(always)]
fn look(tables: &[Table], hash: impl Fn(&Table) -> u64) -> TagLookup {
    for (number, table) in (0u8..).zip(tables) {
        let hash = hash(table);
        let home = table.home(hash);
        let tags = table.tags.get(home).copied().unwrap_or(0);
        let candidates = zero_bytes(tags ^ tag(hash));
        if candidates != 0 {
            let slot = home * 8 + candidates.trailing_zeros() as usize / 8;
            prefetch_read(table.slots.as_flattened(), slot);
            return TagLookup::at(number, slot);
        }
        if zero_bytes(tags) == 0 {
            return TagLookup::UNKNOWN;
        }
    }
    TagLookup::ABSENT
}

/// Error: bucket without a free slot. An entry that is not in it may be in the next one.
struct Full;

/// The entries of one prefix length, hashed to buckets of eight.
#[derive(Debug)]
struct Table {
    prefix_len: u8,
    mask4: u32,
    mask6: u128,
    /// One byte per slot: zero if it is empty, otherwise the [`tag`] of its key.
    tags: HugeVec<u64>,
    /// Eight for each element of `tags`.
    slots: HugeVec<[Slot; 8]>,
}

impl Table {
    /// Creates an empty table with room for `n` entries, at most 5/8 full.
    fn new(prefix_len: u8, n: usize) -> Result<Table, OutOfMemory> {
        let buckets = n / ENTRIES_PER_BUCKET + 1;
        let (mask4, mask6) = (mask4(prefix_len), mask6(prefix_len));
        Ok(Table { prefix_len, mask4, mask6, tags: HugeVec::new(buckets)?, slots: HugeVec::new(buckets)? })
    }

    /// Finds the slot that `is` accepts. A bucket that is not full ends the search, and there is always one.
    #[inline]
    fn find(&self, hash: u64, is: impl Fn(&Slot) -> bool) -> Option<&Slot> {
        let home = self.home(hash);
        match self.find_in(home, hash, &is) {
            Ok(found) => found,
            Err(Full) => self.find_further(home, hash, is),
        }
    }

    /// Finds the slot in one bucket. Returns an error if it is not there and the search has to go on.
    #[inline]
    fn find_in(&self, bucket: usize, hash: u64, is: impl Fn(&Slot) -> bool) -> Result<Option<&Slot>, Full> {
        let (Some(&tags), Some(slots)) = (self.tags.get(bucket), self.slots.get(bucket)) else {
            return Ok(None);
        };
        let mut candidates = zero_bytes(tags ^ tag(hash));
        while candidates != 0 {
            let slot = slots.get(candidates.trailing_zeros() as usize / 8).filter(|slot| is(slot));
            if slot.is_some() {
                return Ok(slot);
            }
            candidates &= candidates - 1;
        }
        if zero_bytes(tags) != 0 { Ok(None) } else { Err(Full) }
    }

    #[cold]
    fn find_further(&self, home: usize, hash: u64, is: impl Fn(&Slot) -> bool) -> Option<&Slot> {
        let others = (home + 1..self.tags.len()).chain(0..home);
        others.map(|bucket| self.find_in(bucket, hash, &is)).find_map(Result::ok).flatten()
    }

    /// Inserts a new entry at the first free slot from its home on.
    fn insert(&mut self, hash: u64, slot: Slot) {
        let home = self.home(hash);
        for bucket in (home..self.tags.len()).chain(0..home) {
            let (Some(tags), Some(slots)) = (self.tags.get_mut(bucket), self.slots.get_mut(bucket)) else {
                return;
            };
            let free = zero_bytes(*tags);
            if free != 0 {
                let at = free.trailing_zeros() & !7;
                *tags |= (tag(hash) & 0xff) << at;
                if let Some(place) = slots.get_mut(at as usize / 8) {
                    *place = slot;
                }
                return;
            }
        }
    }

    /// Returns the first bucket of the search for a hash, always inside the table.
    #[inline]
    fn home(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.tags.len() as u128) >> 64) as usize
    }
}

/// Returns the tag of a hash, never zero, in each byte of a word. It uses other bits than [`Table::home`].
#[inline]
fn tag(hash: u64) -> u64 {
    (hash & 0x7f | 0x80) * LOW_BITS
}

const LOW_BITS: u64 = 0x0101_0101_0101_0101;

/// Returns the high bit of each zero byte. Bytes above a zero byte may be reported too, so the lowest is
/// exact and the others are candidates.
#[inline]
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(LOW_BITS) & !word & (LOW_BITS << 7)
}

/// Creates empty tables for prefixes of these lengths, longest first.
fn tables(lengths: impl Iterator<Item = u8>) -> Result<Vec<Table>, OutOfMemory> {
    let mut count = [0usize; 129];
    for len in lengths {
        if let Some(c) = count.get_mut(usize::from(len)) {
            *c += 1;
        }
    }
    let present = count.iter().enumerate().rev().filter(|&(_, &n)| n > 0);
    present.map(|(len, &n)| Table::new(len as u8, n)).collect()
}

/// Inserts an entry into the table of its prefix length. Returns `false` if the key is there already.
fn insert4(tables: &mut [Table], prefix_len: u8, slot: Slot) -> bool {
    let hash = hash4(slot.v4);
    let table = tables.iter_mut().find(|t| t.prefix_len == prefix_len);
    table.is_some_and(|t| {
        t.find(hash, |s| s.v4 == slot.v4).is_none() && {
            t.insert(hash, slot);
            true
        }
    })
}

/// Same as [`insert4`], for the IPv6 side.
fn insert6(tables: &mut [Table], prefix_len: u8, slot: Slot) -> bool {
    let hash = hash6(slot.v6);
    let table = tables.iter_mut().find(|t| t.prefix_len == prefix_len);
    table.is_some_and(|t| {
        t.find(hash, |s| s.v6 == slot.v6).is_none() && {
            t.insert(hash, slot);
            true
        }
    })
}

/// Hashes a key. Keys come from the configuration, not from packets, so the hash needs no secret: a sender
/// can hit the longest probe sequence, but cannot create one.
#[inline]
fn hash4(key: u32) -> u64 {
    fold_multiply(u64::from(key) ^ 0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93)
}

#[inline]
fn hash6([high, low]: [u64; 2]) -> u64 {
    let mixed = fold_multiply(high ^ 0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93);
    fold_multiply(mixed ^ low, 0xa076_1d64_78bd_642f)
}

/// Combines the two halves of the 128-bit product.
#[inline]
fn fold_multiply(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

#[inline]
fn halves(v6: u128) -> [u64; 2] {
    [(v6 >> 64) as u64, v6 as u64]
}

#[inline]
fn mask4(len: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(len.min(32))).unwrap_or(0)
}

#[inline]
fn mask6(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len.min(128))).unwrap_or(0)
}

#[inline]
fn shl(v: u128, by: u8) -> u128 {
    v.checked_shl(u32::from(by)).unwrap_or(0)
}

#[inline]
fn shr(v: u128, by: u8) -> u128 {
    v.checked_shr(u32::from(by)).unwrap_or(0)
}

/// Entry inside another one, on one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Overlap {
    /// True for the IPv6 side.
    pub v6: bool,
    /// Index of the entry with the longer prefix, which wins for its addresses.
    pub inner: usize,
    /// Index of the entry with the next shorter prefix around it.
    pub outer: usize,
}

/// Lists the entries inside another one, at most `max`, each with the closest entry around it. The IPv4 side
/// comes first, in the order of addresses. The cost is that of sorting twice.
pub fn overlaps(entries: &[Eam], max: usize) -> Vec<Overlap> {
    let v4 = entries.iter().map(|e| (u128::from(u32::from(e.v4.addr)) << 96, e.v4.len));
    let v6 = entries.iter().map(|e| (u128::from(e.v6.addr), e.v6.len));
    let mut found = Vec::new();
    nested(v4.collect(), false, max, &mut found);
    nested(v6.collect(), true, max, &mut found);
    found
}

/// Finds nested prefixes. In the order of (address, length), a prefix comes after those that contain it, and
/// the open prefixes form a stack.
fn nested(prefixes: Vec<(u128, u8)>, v6: bool, max: usize, found: &mut Vec<Overlap>) {
    let mut order: Vec<(u128, u8, usize)> =
        prefixes.into_iter().enumerate().map(|(i, (bits, len))| (bits, len, i)).collect();
    order.sort_unstable();
    let mut open: Vec<(u128, u8, usize)> = Vec::new();
    for &(bits, len, inner) in &order {
        while open.pop_if(|&mut (o, olen, _)| (o ^ bits) & mask6(olen) != 0).is_some() {}
        if let Some(&(_, _, outer)) = open.last() {
            if found.len() >= max {
                return;
            }
            found.push(Overlap { v6, inner, outer });
        }
        open.push((bits, len, inner));
    }
}

#[cfg(test)]
mod tests;
