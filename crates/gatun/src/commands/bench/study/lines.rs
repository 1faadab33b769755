//! A hash table of cache lines, the structure that the study of 2015 ended with: a line holds two or three
//! translations and the number of a further line. Half of the first lines' places are used.

use super::table::{BURST, Full, Key, Outside, Record, Table, scaled, touched};
use gatun_mem::hash::Hasher64;
use gatun_mem::{HugeVec, OutOfMemory, prefetch_read};
use zerocopy::FromZeros;

/// No further line: line 0 is somebody's first.
const NONE: u32 = 0;

#[derive(Clone, Copy, FromZeros)]
#[repr(C, align(64))]
struct Line<const ITEMS: usize> {
    items: [Record; ITEMS],
    next: u32,
}

const _: () = assert!(size_of::<Line<2>>() == 64 && size_of::<Line<3>>() == 64);

pub(super) struct Lines<const ITEMS: usize> {
    /// The first lines, then further ones.
    lines: HugeVec<Line<ITEMS>>,
    first: usize,
    used: usize,
    hasher: Hasher64,
}

impl<const ITEMS: usize> Lines<ITEMS> {
    fn first_lines(n: u32) -> usize {
        (n as usize * 2).div_ceil(ITEMS).max(1)
    }

    /// First lines and further ones: about every twelfth needs one.
    fn all_lines(n: u32) -> usize {
        let first = Self::first_lines(n);
        first + first / 6 + 64
    }

    fn find(&mut self, mut at: usize, key: Key) -> Option<&mut Record> {
        loop {
            let line = &self.lines[at];
            if let Some(i) = line.items.iter().position(|record| record.key() == key) {
                return Some(&mut self.lines[at].items[i]);
            }
            if line.next == NONE {
                return None;
            }
            at = line.next as usize;
        }
    }

    fn enter(&mut self, mut at: usize, key: Key, to: Outside, now: u32) -> Result<bool, Full> {
        loop {
            let line = &mut self.lines[at];
            for record in &mut line.items {
                if record.is_free() {
                    *record = Record::new(key, to, now);
                    return Ok(true);
                }
                if record.key() == key {
                    return Ok(false);
                }
            }
            if line.next == NONE {
                if self.used == self.lines.len() {
                    return Err(Full);
                }
                self.lines[at].next = self.used as u32;
                self.used += 1;
            }
            at = self.lines[at].next as usize;
        }
    }

    /// The keys' first lines, asked for.
    fn ask_for(&self, keys: impl Iterator<Item = Key>) -> [usize; BURST] {
        let mut places = [0; BURST];
        for (place, key) in places.iter_mut().zip(keys) {
            *place = scaled(key.hash(&self.hasher), self.first);
            prefetch_read(&self.lines, *place);
        }
        places
    }
}

impl<const ITEMS: usize> Table for Lines<ITEMS> {
    fn new(n: u32, hasher: Hasher64) -> Result<Self, OutOfMemory> {
        let first = Self::first_lines(n);
        Ok(Lines { lines: touched(Self::all_lines(n))?, first, used: first, hasher })
    }

    fn bytes(n: u32) -> u64 {
        (Self::all_lines(n) * size_of::<Line<ITEMS>>()) as u64
    }

    fn create(&mut self, key: Key, to: Outside, now: u32) -> Result<bool, Full> {
        let place = scaled(key.hash(&self.hasher), self.first);
        self.enter(place, key, to, now)
    }

    fn look_up(&mut self, key: Key, now: u32) -> Option<Outside> {
        let place = scaled(key.hash(&self.hasher), self.first);
        self.find(place, key).map(|record| record.seen(now))
    }

    fn create_burst(&mut self, new: &[(Key, Outside)], now: u32) -> Result<usize, Full> {
        let places = self.ask_for(new.iter().map(|&(key, _)| key));
        let mut entered = 0;
        for (&(key, to), place) in new.iter().zip(places) {
            entered += usize::from(self.enter(place, key, to, now)?);
        }
        Ok(entered)
    }

    fn look_up_burst(&mut self, keys: &[Key], now: u32, found: &mut [Option<Outside>]) {
        let places = self.ask_for(keys.iter().copied());
        for ((&key, place), found) in keys.iter().zip(places).zip(found) {
            *found = self.find(place, key).map(|record| record.seen(now));
        }
    }
}
