//! Hash table with a linked list per bucket, with as many buckets as translations.

use super::table::{Full, Key, Outside, Places, Record, Table, touched};
use gatun_mem::hash::Hasher64;
use gatun_mem::{HugeVec, OutOfMemory, prefetch_read};
use zerocopy::FromZeros;

/// No node. Nodes count from 1.
const NONE: u32 = 0;

#[derive(Clone, Copy, FromZeros)]
#[repr(C)]
struct Node {
    record: Record,
    next: u32,
}

pub(super) struct ChainedTable {
    heads: HugeVec<u32>,
    nodes: HugeVec<Node>,
    used: u32,
    hasher: Hasher64,
}

impl Places for ChainedTable {
    fn places(&self) -> usize {
        self.heads.len()
    }

    fn hasher(&self) -> &Hasher64 {
        &self.hasher
    }

    fn find(&mut self, place: usize, key: Key) -> Option<&mut Record> {
        let mut at = self.heads[place];
        while at != NONE {
            let node = &self.nodes[at as usize];
            if node.record.key() == key {
                return Some(&mut self.nodes[at as usize].record);
            }
            at = node.next;
        }
        None
    }

    fn enter(&mut self, place: usize, key: Key, to: Outside, now: u32) -> Result<bool, Full> {
        if self.find(place, key).is_some() {
            return Ok(false);
        }
        let new = self.used + 1;
        let next = self.heads[place];
        *self.nodes.get_mut(new as usize).ok_or(Full)? = Node { record: Record::new(key, to, now), next };
        self.heads[place] = new;
        self.used = new;
        Ok(true)
    }

    fn prefetch(&self, places: &[usize]) {
        places.iter().for_each(|&place| prefetch_read(&self.heads, place));
        for &place in places {
            prefetch_read(&self.nodes, self.heads[place] as usize);
        }
    }
}

impl Table for ChainedTable {
    fn new(n: u32, hasher: Hasher64) -> Result<Self, OutOfMemory> {
        let nodes = touched(n as usize + 1)?;
        Ok(ChainedTable { heads: touched(n as usize)?, nodes, used: 0, hasher })
    }

    fn bytes(n: u32) -> u64 {
        u64::from(n) * (size_of::<u32>() + size_of::<Node>()) as u64
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
