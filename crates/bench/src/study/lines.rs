//! Hash table of cache lines, the result of the study of 2015: a line holds two or three translations and the
//! number of a further line. Half of the slots in first lines are used.

use super::table::{Full, Key, Outside, Places, Record, Table, touched};
use gatun_mem::hash::Hasher64;
use gatun_mem::{HugeVec, OutOfMemory, prefetch_read};
use zerocopy::FromZeros;

/// No further line: line 0 is always a first line.
const NONE: u32 = 0;

#[derive(Clone, Copy, FromZeros)]
#[repr(C, align(64))]
struct Line<const ITEMS: usize> {
    items: [Record; ITEMS],
    next: u32,
}

const _: () = assert!(size_of::<Line<2>>() == 64 && size_of::<Line<3>>() == 64);

pub(super) struct Lines<const ITEMS: usize> {
    /// First lines, then further ones.
    lines: HugeVec<Line<ITEMS>>,
    first: usize,
    used: usize,
    hasher: Hasher64,
}

impl<const ITEMS: usize> Lines<ITEMS> {
    fn first_lines(n: u32) -> usize {
        (n as usize * 2).div_ceil(ITEMS).max(1)
    }

    /// Number of first and further lines: about every twelfth first line needs a further one.
    fn all_lines(n: u32) -> usize {
        let first = Self::first_lines(n);
        first + first / 6 + 64
    }
}

impl<const ITEMS: usize> Places for Lines<ITEMS> {
    fn places(&self) -> usize {
        self.first
    }

    fn hasher(&self) -> &Hasher64 {
        &self.hasher
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

    fn prefetch(&self, places: &[usize]) {
        places.iter().for_each(|&place| prefetch_read(&self.lines, place));
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
        self.enter(self.place(key), key, to, now)
    }

    fn look_up(&mut self, key: Key, now: u32) -> Option<Outside> {
        self.find(self.place(key), key).map(|record| record.seen(now))
    }

    fn create_burst(&mut self, new: &[(Key, Outside)], now: u32) -> Result<usize, Full> {
        self.enter_all(new, now)
    }

    fn look_up_burst(&mut self, keys: &[Key], now: u32, found: &mut [Option<Outside>]) {
        self.find_all(keys, now, found);
    }
}
