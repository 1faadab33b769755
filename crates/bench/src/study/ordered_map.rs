//! The standard library's `BTreeMap`, today's usual choice of a tree.

use super::table::{Full, Key, Outside, Table};
use gatun_mem::OutOfMemory;
use gatun_mem::hash::Hasher64;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

struct Translation {
    to: Outside,
    seen: u32,
}

pub(super) struct OrderedMap {
    map: BTreeMap<Key, Translation>,
    room: usize,
}

impl Table for OrderedMap {
    fn new(n: u32, _: Hasher64) -> Result<Self, OutOfMemory> {
        Ok(OrderedMap { map: BTreeMap::new(), room: n as usize })
    }

    /// Approximation: leaves hold eleven entries and are two thirds full on average.
    fn bytes(n: u32) -> u64 {
        let leaf = 11 * (size_of::<Key>() + size_of::<Translation>()) as u64 + 16;
        u64::from(n) * leaf * 3 / (2 * 11)
    }

    fn create(&mut self, key: Key, to: Outside, now: u32) -> Result<bool, Full> {
        let full = self.map.len() >= self.room;
        match self.map.entry(key) {
            Entry::Occupied(_) => Ok(false),
            Entry::Vacant(_) if full => Err(Full),
            Entry::Vacant(entry) => {
                entry.insert(Translation { to, seen: now });
                Ok(true)
            }
        }
    }

    fn look_up(&mut self, key: Key, now: u32) -> Option<Outside> {
        let translation = self.map.get_mut(&key)?;
        translation.seen = now;
        Some(translation.to)
    }
}
