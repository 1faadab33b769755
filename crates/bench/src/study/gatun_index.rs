//! Gatun's own table: the engine's index of tags and record numbers ([`gatun_nat::index::Index`] itself, not
//! a copy), and records of a whole cache line, like the engine's sessions.

use super::table::{BURST, Full, Key, Outside, Record, Table, touched};
use gatun_mem::hash::Hasher64;
use gatun_mem::{HugeVec, OutOfMemory, prefetch_read};
use gatun_nat::index::Index;
use zerocopy::FromZeros;

/// Record with the size of a session.
#[derive(Clone, Copy, FromZeros)]
#[repr(C, align(64))]
struct Session {
    record: Record,
}

pub(super) struct GatunIndex {
    index: Index,
    sessions: HugeVec<Session>,
    used: u32,
    hasher: Hasher64,
}

impl GatunIndex {
    #[inline(always)]
    fn find(&mut self, hash: u64, key: Key) -> Option<&mut Record> {
        let sessions = &self.sessions;
        let is_it = |id: u32| sessions.get(id as usize).is_some_and(|session| session.record.key() == key);
        let id = self.index.find(hash, is_it)?;
        Some(&mut self.sessions[id as usize].record)
    }

    #[inline(always)]
    fn enter(&mut self, hash: u64, key: Key, to: Outside, now: u32) -> Result<bool, Full> {
        if self.find(hash, key).is_some() {
            return Ok(false);
        }
        let session = self.sessions.get_mut(self.used as usize).ok_or(Full)?;
        session.record = Record::new(key, to, now);
        self.index.insert(hash, self.used).map_err(|_| Full)?;
        self.used += 1;
        Ok(true)
    }

    /// Hashes the keys and prefetches their lines of the index.
    #[inline(always)]
    fn ask_for(&self, keys: impl Iterator<Item = Key>) -> [u64; BURST] {
        let mut hashes = [0; BURST];
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = key.hash(&self.hasher);
            self.index.prefetch(*hash);
        }
        hashes
    }
}

impl Table for GatunIndex {
    fn new(n: u32, hasher: Hasher64) -> Result<Self, OutOfMemory> {
        let mut own =
            GatunIndex { index: Index::with_capacity(n)?, sessions: touched(n as usize)?, used: 0, hasher };
        // Using the index once touches its pages.
        for i in 0..n {
            let hash = Key::new(i, 0, 0).hash(&own.hasher);
            if own.index.insert(hash, i).is_ok() {
                own.index.remove(hash, i);
            }
        }
        Ok(own)
    }

    fn bytes(n: u32) -> u64 {
        Index::footprint(n).bytes + u64::from(n) * size_of::<Session>() as u64
    }

    fn create(&mut self, key: Key, to: Outside, now: u32) -> Result<bool, Full> {
        self.enter(key.hash(&self.hasher), key, to, now)
    }

    fn look_up(&mut self, key: Key, now: u32) -> Option<Outside> {
        self.find(key.hash(&self.hasher), key).map(|record| record.seen(now))
    }

    fn create_burst(&mut self, new: &[(Key, Outside)], now: u32) -> Result<usize, Full> {
        let hashes = self.ask_for(new.iter().map(|&(key, _)| key));
        let mut entered = 0;
        for (&(key, to), hash) in new.iter().zip(hashes) {
            entered += usize::from(self.enter(hash, key, to, now)?);
        }
        Ok(entered)
    }

    fn look_up_burst(&mut self, keys: &[Key], now: u32, found: &mut [Option<Outside>]) {
        let hashes = self.ask_for(keys.iter().copied());
        for &hash in &hashes[..keys.len().min(BURST)] {
            if let Some(id) = self.index.candidate(hash) {
                prefetch_read(&self.sessions, id as usize);
            }
        }
        for ((&key, hash), found) in keys.iter().zip(hashes).zip(found) {
            *found = self.find(hash, key).map(|record| record.seen(now));
        }
    }
}
