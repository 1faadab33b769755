//! What all structures of the study hold, and what is asked of them.

use gatun_mem::hash::Hasher64;
use gatun_mem::{HugeVec, OutOfMemory};
use zerocopy::FromZeros;

/// Packets that a structure may look at together, where it does.
pub(super) const BURST: usize = 64;

/// An inside IPv4 address, port and protocol: what a translation is found by. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(u64);

impl Key {
    pub(super) fn new(address: u32, port: u16, protocol: u8) -> Key {
        Key(u64::from(address) << 32 | u64::from(port) << 16 | u64::from(protocol))
    }

    pub(super) fn bits(self) -> u64 {
        self.0
    }

    /// Under a key that nobody can guess: the same for all structures that hash.
    #[inline(always)]
    pub(super) fn hash(self, hasher: &Hasher64) -> u64 {
        hasher.hash4([self.0, 0, 0, 0])
    }
}

/// The outside address and port that it is translated to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outside {
    pub(super) address: u32,
    pub(super) port: u16,
}

/// One translation, 20 bytes as in the study of 2015: inside, outside, when it was last seen, and flags.
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

    /// A packet of it has come: where that goes.
    #[inline(always)]
    pub(super) fn seen(&mut self, now: u32) -> Outside {
        self.seen = now;
        Outside { address: self.outside, port: self.outside_port }
    }
}

/// A structure has no room for another translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// A structure of the study.
pub(super) trait Table: Sized + Send {
    /// Room for `n` translations; all memory is there and touched, where the structure has its own.
    ///
    /// # Errors
    /// Where memory is short.
    fn new(n: u32, hasher: Hasher64) -> Result<Self, OutOfMemory>;

    /// Bytes that `n` translations take.
    fn bytes(n: u32) -> u64;

    /// The first packet of a translation: looks for it, and enters it where it is not there. `false` where it is.
    ///
    /// # Errors
    /// [`Full`].
    fn create(&mut self, key: Key, to: Outside, now: u32) -> Result<bool, Full>;

    /// A packet of a translation: where it goes; notes when.
    fn look_up(&mut self, key: Key, now: u32) -> Option<Outside>;

    /// As [`create`](Self::create) for up to [`BURST`] packets, where a structure asks for the memory of all of them
    /// first; how many were entered.
    ///
    /// # Errors
    /// [`Full`].
    fn create_burst(&mut self, new: &[(Key, Outside)], now: u32) -> Result<usize, Full> {
        let mut entered = 0;
        for &(key, to) in new {
            entered += usize::from(self.create(key, to, now)?);
        }
        Ok(entered)
    }

    /// As [`look_up`](Self::look_up) for up to [`BURST`] packets.
    fn look_up_burst(&mut self, keys: &[Key], now: u32, found: &mut [Option<Outside>]) {
        for (&key, found) in keys.iter().zip(found) {
            *found = self.look_up(key, now);
        }
    }
}

/// `n` zeroes whose pages are there already: page faults are no part of what is measured.
pub(super) fn touched<T: Copy + FromZeros>(n: usize) -> Result<HugeVec<T>, OutOfMemory> {
    let mut memory = HugeVec::new(n)?;
    memory.fill(T::new_zeroed());
    Ok(memory)
}

/// A hash as a number below `n`, without a division.
#[inline(always)]
pub(super) fn scaled(hash: u64, n: usize) -> usize {
    (((hash >> 32) * n as u64) >> 32) as usize
}

/// A hash table whose keys each have a place where the look-up begins.
pub(super) trait Places {
    /// How many there are.
    fn places(&self) -> usize;

    fn hasher(&self) -> &Hasher64;

    /// The record of a key, from its place on.
    fn find(&mut self, place: usize, key: Key) -> Option<&mut Record>;

    /// Enters a key that is not there; `false` where it is.
    fn enter(&mut self, place: usize, key: Key, to: Outside, now: u32) -> Result<bool, Full>;

    /// Asks for the memory of these places.
    fn prefetch(&self, places: &[usize]);

    #[inline]
    fn place(&self, key: Key) -> usize {
        scaled(key.hash(self.hasher()), self.places())
    }

    /// The keys' places, asked for.
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
