//! Index from a keyed hash to a record number. A look-up costs one cache line per packet.
//!
//! ```text
//! bucket, 64 bytes, one cache line:
//!   0  tags (10 x u16)        12 bits of the hash, 4 bits of distance from home
//!  20  used (u16)             which slots hold something
//!  22  passed (u16)           how many entries had to go past this bucket because it was full
//!  24  ids (10 x u32)         numbers of records
//! ```
//! An entry lies in its home bucket (from the hash's upper half). If that bucket is full, the entry lies in
//! one of the next buckets, and `passed` counts it. Removing an entry moves an entry that had passed its
//! bucket back into the free slot. There are no tombstones, so the table does not degrade over time. With at
//! most half of the slots used, 99.5 % of the entries lie at home, and 98.6 % of the look-ups that find
//! nothing end there.
//!
//! The record has the key, so the caller compares keys. Hashes must be keyed. Otherwise a client could fill a
//! bucket and its neighbours, and insertions there would fail at the bound on the distance from home.

use gatun_mem::{Footprint, HugeVec, OutOfMemory, find16, prefetch_read};

const SLOTS: usize = 10;
/// Used slots of a bucket, on average, when the table is at its capacity.
const USED_MEAN: u32 = 5;
/// Number of buckets that an entry may lie in, its home included.
const PROBE_MAX: usize = 1 << DISTANCE_BITS;
/// Bits of a tag for the distance of an entry from its home, in buckets.
const DISTANCE_BITS: u32 = 4;

/// Error: an entry has no free slot within its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

#[derive(Clone, Copy, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(C, align(64))]
struct Bucket {
    tags: [u16; SLOTS],
    used: u16,
    passed: u16,
    ids: [u32; SLOTS],
}

const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    /// Returns a bit for every used slot with this tag.
    #[inline(always)]
    fn matches(&self, tag: u16) -> u16 {
        // The comparison covers the bytes after the tags too; `used` masks their bits.
        let words: &[[u16; 32]; 1] = zerocopy::transmute_ref!(self);
        words.as_flattened().first_chunk().map_or(0, |head| find16(head, tag)) & self.used
    }

    fn free_slot(&self) -> Option<usize> {
        let slot = self.used.trailing_ones() as usize;
        (slot < SLOTS).then_some(slot)
    }

    #[inline(always)]
    fn id(&self, slot: usize) -> u32 {
        self.ids.get(slot).copied().unwrap_or(0)
    }

    fn put(&mut self, slot: usize, tag: u16, id: u32) {
        if let (Some(t), Some(i)) = (self.tags.get_mut(slot), self.ids.get_mut(slot)) {
            (*t, *i) = (tag, id);
            self.used |= 1 << slot;
        }
    }

    fn clear(&mut self, slot: usize) {
        self.used &= !(1 << slot);
    }

    /// Returns slot and tag of an entry that lies at least `distance` buckets from its home.
    fn far_from_home(&self, distance: usize) -> Option<(usize, u16)> {
        let mut used = slots(self.used).filter_map(|slot| Some((slot, *self.tags.get(slot)?)));
        used.find(|&(_, tag)| usize::from(tag) % PROBE_MAX >= distance)
    }
}

/// Iterates over the slots of a bit mask.
#[inline(always)]
fn slots(mut mask: u16) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let slot = (mask != 0).then(|| mask.trailing_zeros() as usize);
        mask &= mask.wrapping_sub(1);
        slot
    })
}

/// Hash index. It may contain the same hash, and the same number, more than once.
pub struct Index {
    buckets: HugeVec<Bucket>,
    len: usize,
}

impl Index {
    /// Creates an index for `n` entries. It takes 12.8 bytes per entry.
    ///
    /// # Errors
    ///
    /// Returns an error if memory is short.
    pub fn with_capacity(n: u32) -> Result<Index, OutOfMemory> {
        Ok(Index { buckets: HugeVec::new(Self::buckets(n))?, len: 0 })
    }

    /// Memory use of [`Index::with_capacity`].
    pub fn footprint(n: u32) -> Footprint {
        HugeVec::<Bucket>::footprint(Self::buckets(n))
    }

    fn buckets(n: u32) -> usize {
        n.div_ceil(USED_MEAN).max(2) as usize
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Prefetches the line that a look-up of `hash` will read.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        prefetch_read(&self.buckets, self.home(hash));
    }

    /// Returns the first entry at home that may match, so that its record can be prefetched.
    #[inline(always)]
    pub fn candidate(&self, hash: u64) -> Option<u32> {
        let bucket = self.buckets.get(self.home(hash))?;
        slots(bucket.matches(tag(hash, 0))).next().map(|slot| bucket.id(slot))
    }

    /// Finds the entry of this hash for which `eq` holds. The code that is not inlined gets a copy of `eq`,
    /// so that the compared values may stay in registers.
    #[inline(always)]
    pub fn find(&self, hash: u64, eq: impl Fn(u32) -> bool + Copy) -> Option<u32> {
        let bucket = self.buckets.get(self.home(hash))?;
        for slot in slots(bucket.matches(tag(hash, 0))) {
            let id = bucket.id(slot);
            if eq(id) {
                return Some(id);
            }
        }
        if bucket.passed == 0 { None } else { self.find_further(hash, eq) }
    }

    #[cold]
    fn find_further(&self, hash: u64, eq: impl Fn(u32) -> bool) -> Option<u32> {
        let at = self.locate(hash, eq, 1)?;
        self.buckets.get(at.bucket).map(|b| b.id(at.slot))
    }

    /// Inserts an entry without a check for an equal one.
    ///
    /// # Errors
    ///
    /// Returns an error if all buckets within the bound are full. With keyed hashes and no more entries than
    /// the capacity, this does not happen.
    #[inline]
    pub fn insert(&mut self, hash: u64, id: u32) -> Result<(), Full> {
        let home = self.home(hash);
        match self.buckets.get_mut(home).map(|b| (b.free_slot(), b)) {
            Some((Some(slot), bucket)) => {
                bucket.put(slot, tag(hash, 0), id);
                self.len += 1;
                Ok(())
            }
            _ => self.insert_further(home, hash, id),
        }
    }

    #[cold]
    fn insert_further(&mut self, home: usize, hash: u64, id: u32) -> Result<(), Full> {
        let found = self.way(home, 1).zip(1..).find_map(|(b, distance)| {
            let slot = self.buckets.get(b)?.free_slot()?;
            Some((distance, b, slot))
        });
        let (distance, bucket, slot) = found.ok_or(Full)?;
        self.change_passed(home, distance, |passed| passed.saturating_add(1));
        if let Some(b) = self.buckets.get_mut(bucket) {
            b.put(slot, tag(hash, distance), id);
        }
        self.len += 1;
        Ok(())
    }

    /// Removes the entry of this hash and number. Returns `false` if there is none.
    #[inline]
    pub fn remove(&mut self, hash: u64, id: u32) -> bool {
        let home = self.home(hash);
        if let Some(bucket) = self.buckets.get_mut(home)
            && bucket.passed == 0
        {
            let Some(slot) = slots(bucket.matches(tag(hash, 0))).find(|&slot| bucket.id(slot) == id) else {
                return false;
            };
            bucket.clear(slot);
            self.len -= 1;
            return true;
        }
        self.remove_further(hash, id)
    }

    #[cold]
    fn remove_further(&mut self, hash: u64, id: u32) -> bool {
        let Some(at) = self.locate(hash, |i| i == id, 0) else { return false };
        self.change_passed(self.home(hash), at.distance, |passed| passed.saturating_sub(1));
        if let Some(b) = self.buckets.get_mut(at.bucket) {
            b.clear(at.slot);
        }
        self.len -= 1;
        let mut hole = Some((at.bucket, at.slot));
        // Every step moves on to a later bucket, so there is at most one round.
        for _ in 0..self.buckets.len() {
            hole = hole.and_then(|(bucket, slot)| self.pull_back(bucket, slot));
            if hole.is_none() {
                break;
            }
        }
        true
    }

    /// Moves an entry that had passed a bucket into the free slot of that bucket. Returns the slot that the
    /// move frees.
    fn pull_back(&mut self, bucket: usize, slot: usize) -> Option<(usize, usize)> {
        let mut past = bucket;
        for (i, from) in self.way(bucket, 1).enumerate() {
            if self.buckets.get(past)?.passed == 0 {
                return None;
            }
            let distance = i + 1;
            let b = self.buckets.get_mut(from)?;
            if let Some((old_slot, old_tag)) = b.far_from_home(distance) {
                let id = b.id(old_slot);
                b.clear(old_slot);
                self.buckets.get_mut(bucket)?.put(slot, old_tag - distance as u16, id);
                self.change_passed(bucket, distance, |passed| passed.saturating_sub(1));
                return Some((from, old_slot));
            }
            past = from;
        }
        None
    }

    /// Changes the number of an entry. Returns `false` if there is no entry of this hash and number.
    pub fn replace(&mut self, hash: u64, old: u32, new: u32) -> bool {
        let Some(at) = self.locate(hash, |i| i == old, 0) else { return false };
        if let Some(b) = self.buckets.get_mut(at.bucket) {
            b.put(at.slot, tag(hash, at.distance), new);
        }
        true
    }

    #[inline(always)]
    fn home(&self, hash: u64) -> usize {
        // This scales the upper 32 bits to the number of buckets, because the tag uses the lower ones. It
        // needs no division and works for any number of buckets.
        (((hash >> 32) * self.buckets.len() as u64) >> 32) as usize
    }

    /// Iterates over the buckets where an entry of this home may lie, from the `skip`th on.
    fn way(&self, home: usize, skip: usize) -> impl Iterator<Item = usize> + use<> {
        let n = self.buckets.len();
        (skip..PROBE_MAX.min(n)).map(move |d| if home + d < n { home + d } else { home + d - n })
    }

    /// Locates the entry of this hash for which `eq` holds, at least `skip` buckets from home.
    fn locate(&self, hash: u64, eq: impl Fn(u32) -> bool, skip: usize) -> Option<IndexSlot> {
        for (i, bucket) in self.way(self.home(hash), skip).enumerate() {
            let b = self.buckets.get(bucket)?;
            let distance = i + skip;
            if let Some(slot) = slots(b.matches(tag(hash, distance))).find(|&slot| eq(b.id(slot))) {
                return Some(IndexSlot { bucket, slot, distance });
            }
            if b.passed == 0 {
                return None;
            }
        }
        None
    }

    /// Changes the `passed` count of the first `distance` buckets from `home` on.
    fn change_passed(&mut self, home: usize, distance: usize, change: impl Fn(u16) -> u16) {
        for bucket in self.way(home, 0).take(distance) {
            if let Some(b) = self.buckets.get_mut(bucket) {
                b.passed = change(b.passed);
            }
        }
    }
}

struct IndexSlot {
    bucket: usize,
    slot: usize,
    distance: usize,
}

#[inline(always)]
fn tag(hash: u64, distance: usize) -> u16 {
    (hash as u16) << DISTANCE_BITS | distance as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::vec;
    use std::vec::Vec;

    fn random_hash(rng: &mut Rng) -> u64 {
        u64::from(rng.next_u32()) << 32 | u64::from(rng.next_u32())
    }

    /// Share of the entries that lie at home.
    fn at_home(index: &Index, hashes: &[u64]) -> f64 {
        let home = |&&h: &&u64| index.buckets[index.home(h)].matches(tag(h, 0)) != 0;
        hashes.iter().filter(home).count() as f64 / hashes.len() as f64
    }

    /// Returns whether no entry has passed a bucket that has room.
    fn compact(index: &Index) -> bool {
        index.buckets.iter().all(|b| b.passed == 0 || b.free_slot().is_none())
    }

    #[test]
    fn a_full_table_keeps_99_of_100_entries_on_their_first_line() {
        let n = 200_000;
        let mut rng = Rng::new([3; 4]);
        let mut index = Index::with_capacity(n).unwrap();
        let hashes: Vec<u64> = (0..n).map(|_| random_hash(&mut rng)).collect();
        for (id, &hash) in hashes.iter().enumerate() {
            index.insert(hash, id as u32).unwrap();
        }
        assert_eq!(index.len(), n as usize);
        for (id, &hash) in hashes.iter().enumerate() {
            assert_eq!(index.find(hash, |i| i == id as u32), Some(id as u32));
        }
        assert!(at_home(&index, &hashes) > 0.99, "{}", at_home(&index, &hashes));
        let ends_at_home = |_| index.buckets[index.home(random_hash(&mut rng))].passed == 0;
        let misses = (0..n).map(ends_at_home).filter(|&b| b).count() as f64 / f64::from(n);
        assert!(misses > 0.98, "{misses}");
        let wrong: usize =
            hashes.iter().filter(|&&h| index.candidate(h).is_some_and(|id| hashes[id as usize] != h)).count();
        assert!(wrong < 1000, "{wrong} of {n} candidates are another's");
    }

    #[test]
    fn churn_does_not_degrade_a_full_table() {
        let n = 20_000u32;
        let mut rng = Rng::new([4; 4]);
        let mut index = Index::with_capacity(n).unwrap();
        let mut hashes: Vec<u64> = (0..n).map(|_| random_hash(&mut rng)).collect();
        hashes.iter().zip(0..).for_each(|(&h, id)| index.insert(h, id).unwrap());
        for _ in 0..50 * n {
            let id = rng.below(n);
            let new = random_hash(&mut rng);
            assert!(index.remove(hashes[id as usize], id));
            index.insert(new, id).unwrap();
            hashes[id as usize] = new;
        }
        assert!(at_home(&index, &hashes) > 0.99);
        assert!(compact(&index));
        hashes.iter().zip(0..).for_each(|(&h, id)| assert!(index.remove(h, id)));
        assert!(index.is_empty());
        assert!(index.buckets.iter().all(|b| b.used == 0 && b.passed == 0), "no entry is left");
    }

    #[test]
    fn a_small_table_holds_its_capacity_for_any_hashes() {
        for n in [0u32, 1, 2, 5, 9, 10, 50, 80] {
            let mut index = Index::with_capacity(n).unwrap();
            for id in 0..n {
                index.insert(0xffff_ffff_0000_0000, id).unwrap();
            }
            for id in 0..n {
                assert_eq!(index.find(0xffff_ffff_0000_0000, |i| i == id), Some(id));
            }
        }
    }

    #[test]
    fn equal_hashes_only_fail_the_insertion() {
        let mut index = Index::with_capacity(100_000).unwrap();
        let full = (0..1000).find(|&id| index.insert(42 << 32, id).is_err());
        assert_eq!(full, Some((SLOTS * PROBE_MAX) as u32));
        assert_eq!(index.len(), SLOTS * PROBE_MAX);
        index.insert(1 << 63, 5000).unwrap();
        assert_eq!(index.find(1 << 63, |_| true), Some(5000));
        for id in 0..(SLOTS * PROBE_MAX) as u32 {
            assert!(index.remove(42 << 32, id));
        }
        assert_eq!(index.find(42 << 32, |_| true), None);
        assert!(index.insert(42 << 32, 7).is_ok());
    }

    #[derive(Clone, Debug)]
    enum Op {
        Insert(u8),
        Remove(u8),
        Replace(u8),
        Find(u8),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            3 => any::<u8>().prop_map(Op::Insert),
            2 => any::<u8>().prop_map(Op::Remove),
            1 => any::<u8>().prop_map(Op::Replace),
            2 => any::<u8>().prop_map(Op::Find),
        ]
    }

    proptest! {
        /// Four homes and two tags for all keys: buckets overflow, wrap round, and share tags.
        #[test]
        fn index_agrees_with_a_map(ops in prop::collection::vec(op(), 0..600)) {
            let mut index = Index::with_capacity(150).unwrap();
            let mut model: BTreeMap<u8, u32> = BTreeMap::new();
            let mut keys: Vec<u8> = vec![];
            let high = [0u64, 1 << 62, 3 << 62, 0xffff_ffff << 32];
            let hash = |k: u8| high[k as usize % 4] | u64::from(k / 4 % 2);
            for op in ops {
                // A number is the index of its key in `keys`.
                match op {
                    Op::Insert(k) if !model.contains_key(&k) => {
                        let id = keys.len() as u32;
                        keys.push(k);
                        prop_assert!(index.insert(hash(k), id).is_ok());
                        model.insert(k, id);
                    }
                    Op::Insert(_) => {}
                    Op::Remove(k) => match model.remove(&k) {
                        Some(id) => {
                            prop_assert!(index.remove(hash(k), id));
                            prop_assert!(!index.remove(hash(k), id));
                        }
                        None => prop_assert!(!index.remove(hash(k), u32::MAX)),
                    },
                    Op::Replace(k) => if let Some(id) = model.get_mut(&k) {
                        let new = keys.len() as u32;
                        keys.push(k);
                        prop_assert!(index.replace(hash(k), *id, new));
                        prop_assert!(!index.replace(hash(k), *id, new));
                        *id = new;
                    },
                    Op::Find(k) => {
                        let found = index.find(hash(k), |id| keys[id as usize] == k);
                        prop_assert_eq!(found, model.get(&k).copied());
                    }
                }
                prop_assert_eq!(index.len(), model.len());
                prop_assert!(compact(&index));
            }
            for (&k, &id) in &model {
                prop_assert_eq!(index.find(hash(k), |i| keys[i as usize] == k), Some(id));
            }
        }
    }
}
