//! Interface and records of all structures of the study.

use gatun_mem::hash::Hasher64;
use gatun_mem::{HugeVec, OutOfMemory};
use zerocopy::FromZeros;

/// Largest number of packets that a structure processes together.
pub(super) const BURST: usize = 64;

/// Inside IPv4 address, port and protocol: the key of a translation. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(u64);

impl Key {
    pub(super) fn new(address: u32, port: u16, protocol: u8) -> Key {
        Key(u64::from(address) << 32 | u64::from(port) << 16 | u64::from(protocol))
    }

    pub(super) fn bits(self) -> u64 {
        self.0
    }

    /// Hash with a secret key: the same for all structures that hash.
    #[inline(always)]
    pub(super) fn hash(self, hasher: &Hasher64) -> u64 {
        hasher.hash4([self.0, 0, 0, 0])
    }
}

/// Outside address and port of a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outside {
    pub(super) address: u32,
    pub(super) port: u16,
}

/// Translation in 20 bytes, as in the study of 2015: inside, outside, time of the last packet, and flags.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub(super) struct Record {
    key: [u32; 2],
    outside: u32,
    outside_port: u16,
    pub(super) flags: u16,
    seen: u32,
}

const _: () = assert!(size_of::<Record>() == 20);

impl Record {
    pub(super) fn new(key: Key, to: Outside, now: u32) -> Record {
        let halves = [(key.0 >> 32) as u32, key.0 as u32];
        Record { key: halves, outside: to.address, outside_port: to.port, flags: 0, seen: now }
    }

    #[inline(always)]
    pub(super) fn key(&self) -> Key {
        Key(u64::from(self.key[0]) << 32 | u64::from(self.key[1]))
    }

    pub(super) fn is_free(&self) -> bool {
        self.key == [0; 2]
    }

    /// Notes the time of a packet. Returns the outside endpoint.
    #[inline(always)]
    pub(super) fn seen(&mut self, now: u32) -> Outside {
        self.seen = now;
        Outside { address: self.outside, port: self.outside_port }
    }
}

/// Error: a structure has no room for another translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// A structure of the study.
pub(super) trait Table: Sized + Send {
    /// Creates a structure for `n` translations. If it allocates its own memory, all of it is touched.
    ///
    /// # Errors
    /// Returns an error if memory is short.
    fn new(n: u32, hasher: Hasher64) -> Result<Self, OutOfMemory>;

    /// Memory of `n` translations in bytes.
    fn bytes(n: u32) -> u64;

    /// Processes the first packet of a translation: looks for it and inserts it if it is missing. Returns
    /// false if it exists.
    ///
    /// # Errors
    /// [`Full`], if there is no room.
    fn create(&mut self, key: Key, to: Outside, now: u32) -> Result<bool, Full>;

    /// Processes a further packet of a translation: notes the time and returns the outside endpoint.
    fn look_up(&mut self, key: Key, now: u32) -> Option<Outside>;

    /// Like [`create`](Self::create) for up to [`BURST`] packets; a structure may prefetch the memory of all
    /// of them. Returns the number of inserted translations.
    ///
    /// # Errors
    /// [`Full`], if there is no room.
    fn create_burst(&mut self, new: &[(Key, Outside)], now: u32) -> Result<usize, Full> {
        let mut entered = 0;
        for &(key, to) in new {
            entered += usize::from(self.create(key, to, now)?);
        }
        Ok(entered)
    }

    /// Like [`look_up`](Self::look_up) for up to [`BURST`] packets.
    fn look_up_burst(&mut self, keys: &[Key], now: u32, found: &mut [Option<Outside>]) {
        for (&key, found) in keys.iter().zip(found) {
            *found = self.look_up(key, now);
        }
    }
}

/// Allocates `n` zeros and touches their pages: page faults are not part of the measurement.
pub(super) fn touched<T: Copy + FromZeros>(n: usize) -> Result<HugeVec<T>, OutOfMemory> {
    let mut memory = HugeVec::new(n)?;
    memory.fill(T::new_zeroed());
    Ok(memory)
}

/// Scales a hash to a number below `n` without a division.
#[inline(always)]
pub(super) fn scaled(hash: u64, n: usize) -> usize {
    (((hash >> 32) * n as u64) >> 32) as usize
}

/// Hash table in which each key has a bucket where the look-up begins.
pub(super) trait Places {
    /// Number of buckets.
    fn places(&self) -> usize;

    fn hasher(&self) -> &Hasher64;

    /// Finds the record of a key, from its bucket on.
    fn find(&mut self, place: usize, key: Key) -> Option<&mut Record>;

    /// Inserts a missing key. Returns false if it exists.
    fn enter(&mut self, place: usize, key: Key, to: Outside, now: u32) -> Result<bool, Full>;

    /// Prefetches the memory of these buckets.
    fn prefetch(&self, places: &[usize]);

    #[inline]
    fn place(&self, key: Key) -> usize {
        scaled(key.hash(self.hasher()), self.places())
    }

    /// Computes the keys' buckets and prefetches them.
    #[inline]
    fn ask_for(&self, keys: impl Iterator<Item = Key>) -> [usize; BURST] {
        let mut places = [0; BURST];
        let mut count = 0;
        for (place, key) in places.iter_mut().zip(keys) {
            *place = self.place(key);
            count += 1;
        }
        self.prefetch(&places[..count]);
        places
    }

    #[inline]
    fn enter_all(&mut self, new: &[(Key, Outside)], now: u32) -> Result<usize, Full> {
        let places = self.ask_for(new.iter().map(|&(key, _)| key));
        let mut entered = 0;
        for (&(key, to), place) in new.iter().zip(places) {
            entered += usize::from(self.enter(place, key, to, now)?);
        }
        Ok(entered)
    }

    #[inline]
    fn find_all(&mut self, keys: &[Key], now: u32, found: &mut [Option<Outside>]) {
        let places = self.ask_for(keys.iter().copied());
        for ((&key, place), found) in keys.iter().zip(places).zip(found) {
            *found = self.find(place, key).map(|record| record.seen(now));
        }
    }
}
