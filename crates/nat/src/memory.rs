//! How much memory an engine's tables take when they are full.
//!
//! Tables are mapped when the engine is built, and their pages taken when they are first touched. What is
//! said here is all of it: what a machine has to have.

use crate::Plan;
use crate::bib::{Tables, holds};
use crate::event::Event;
use crate::fragment::Fragments;
use crate::path_mtu::Paths;
use crate::pool4::{Pool4State, PoolError};
use crate::stateful::fragments::Memo;
use crate::subscriber::Subscribers;
use crate::syn_store::SynStore;
use alloc::vec::Vec;

/// Bytes by table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableBytes {
    /// Sessions and bindings, with the indexes that find them.
    pub sessions: u64,
    /// Subscribers.
    pub subscribers: u64,
    /// Each pool's outside table and ports.
    pub pools: Vec<u64>,
    /// Held SYNs.
    pub syns: u64,
    /// What is known of paths.
    pub paths: u64,
    /// Fragmented packets and held fragments.
    pub fragments: u64,
    /// Events that wait to be read.
    pub events: u64,
}

impl TableBytes {
    /// Of one engine for `plan`, without stateless mappings, which engines share.
    ///
    /// # Errors
    /// Where a pool contradicts itself.
    pub fn of(plan: &Plan) -> Result<TableBytes, PoolError> {
        // Where nobody wants any, no page of the ring is ever touched.
        let events = if plan.events.kinds.is_empty() { 0 } else { u64::from(plan.events.ring_len) };
        let mut bytes = TableBytes { events: events * size_of::<Event>() as u64, ..TableBytes::default() };
        bytes.paths = Paths::bytes(plan.limits.path_mtus_max);
        if !plan.is_stateful() {
            return Ok(bytes);
        }
        let limits = &plan.limits;
        bytes.sessions = Tables::record_bytes(plan);
        bytes.subscribers = Subscribers::bytes(limits.subscribers_max);
        bytes.syns = SynStore::bytes(limits.syn_store_max);
        bytes.fragments = Fragments::<Memo>::bytes(limits);
        for (at, pool) in plan.pools.iter().enumerate() {
            bytes.pools.push(Pool4State::bytes(pool, holds(plan, at))?);
        }
        Ok(bytes)
    }

    /// All together.
    pub fn total(&self) -> u64 {
        let pools: u64 = self.pools.iter().sum();
        self.sessions + self.subscribers + pools + self.syns + self.paths + self.fragments + self.events
    }
}
