//! State of a node that outlives its process, and writes to the coordinator that wait until it is saved.

use super::Node;
use crate::coordination::SavedRecord;
use crate::record::{NodeName, ShardRecord};
use crate::store::{Call, Reply, Request, Store};

/// State of a node that outlives its process, if the sessions do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedNode {
    /// One for each shard.
    pub shards: Vec<SavedShard>,
    /// Number of the coordinator, and the revision of its data that the node knew.
    pub seen: Option<(u64, i64)>,
}

/// State of a shard that outlives the node's process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedShard {
    /// Record, as the node knew it.
    pub record: Option<ShardRecord<NodeName>>,
    /// Record that was written without a known result, and the revision of the one that it replaces.
    pub pending: Option<(ShardRecord<NodeName>, i64)>,
    /// True if the node had the shard's state.
    pub has_state: bool,
    /// True if it may have had mappings that the other holder does not know, but may own the shard.
    pub is_unsure: bool,
    /// True if a former holder's knowledge, or that of a holder without state, was not forgotten yet.
    pub needs_forget: bool,
}

impl SavedShard {
    pub(super) fn record(&self) -> SavedRecord {
        SavedRecord { record: self.record.clone(), pending: self.pending.clone() }
    }
}

/// Writes that wait until the standing is saved: the next process must know of each.
#[derive(Debug, Default)]
pub(super) struct HeldStore {
    waiting: Vec<Request>,
    is_saved: bool,
}

impl HeldStore {
    /// Hands over the writes that have waited, if the standing is saved.
    pub(super) fn release(&mut self, store: &mut dyn Store) {
        if self.is_saved {
            self.waiting.drain(..).for_each(|request| store.submit(request));
        }
    }

    /// Returns the store for a turn.
    pub(super) fn around<'a>(&'a mut self, store: &'a mut dyn Store, is_unsaved: bool) -> Waiting<'a> {
        self.is_saved &= !is_unsaved;
        Waiting { held: self, store }
    }
}

/// Store whose writes of records wait.
pub(super) struct Waiting<'a> {
    held: &'a mut HeldStore,
    store: &'a mut dyn Store,
}

impl Store for Waiting<'_> {
    fn submit(&mut self, request: Request) {
        let is_record = |call: &Call| match call {
            Call::Write(write) => write.puts.iter().any(|put| put.key.contains("/shards/")),
            _ => false,
        };
        match is_record(&request.call) {
            true => {
                // It changes what has to be saved.
                self.held.is_saved = false;
                self.held.waiting.push(request);
            }
            false => self.store.submit(request),
        }
    }

    fn poll(&mut self) -> Option<Reply> {
        self.store.poll()
    }
}

impl Node {
    /// Returns the standing if it has changed. It has to be saved before anything is sent to other nodes.
    /// Writes to the coordinator wait for [`note_saved`](Self::note_saved).
    pub fn take_unsaved(&mut self) -> Option<SavedNode> {
        let version = (self.coordination.version(), self.version);
        if version == self.taken {
            return None;
        }
        self.taken = version;
        self.held.is_saved = false;
        let shards = (0..=u8::MAX).zip(&self.shards).map(|(shard, state)| {
            let SavedRecord { record, pending } = self.coordination.saved(shard);
            let (has_state, is_unsure, needs_forget) = state.saved();
            SavedShard { record, pending, has_state, is_unsure, needs_forget }
        });
        Some(SavedNode { shards: shards.collect(), seen: self.coordination.seen() })
    }

    /// The latest standing is saved.
    pub fn note_saved(&mut self) {
        self.held.is_saved = self.taken == (self.coordination.version(), self.version);
    }
}
