//! Linear search over an array of translations.
//!
//! Keys are stored separately and densely, so that a scan reads nothing else and compares several keys at a
//! time.

use super::table::{Full, Key, Outside, Record, Table, touched};
use gatun_mem::hash::Hasher64;
use gatun_mem::{HugeVec, OutOfMemory};

/// Number of keys compared without a branch in between.
const TOGETHER: usize = 16;

pub(super) struct LinearProbing {
    keys: HugeVec<u64>,
    records: HugeVec<Record>,
    len: usize,
}

impl LinearProbing {
    fn position(&self, key: Key) -> Option<usize> {
        let wanted = key.bits();
        let (groups, rest) = self.keys[..self.len].as_chunks::<TOGETHER>();
        for (i, group) in groups.iter().enumerate() {
            if group.iter().fold(false, |hit, &k| hit | (k == wanted)) {
                return group.iter().position(|&k| k == wanted).map(|at| i * TOGETHER + at);
            }
        }
        rest.iter().position(|&k| k == wanted).map(|at| groups.len() * TOGETHER + at)
    }
}

impl Table for LinearProbing {
    fn new(n: u32, _: Hasher64) -> Result<Self, OutOfMemory> {
        Ok(LinearProbing { keys: touched(n as usize)?, records: touched(n as usize)?, len: 0 })
    }

    fn bytes(n: u32) -> u64 {
        u64::from(n) * (size_of::<u64>() + size_of::<Record>()) as u64
    }

    fn create(&mut self, key: Key, to: Outside, now: u32) -> Result<bool, Full> {
        if self.position(key).is_some() {
            return Ok(false);
        }
        *self.keys.get_mut(self.len).ok_or(Full)? = key.bits();
        self.records[self.len] = Record::new(key, to, now);
        self.len += 1;
        Ok(true)
    }

    fn look_up(&mut self, key: Key, now: u32) -> Option<Outside> {
        let at = self.position(key)?;
        Some(self.records[at].seen(now))
    }
}
