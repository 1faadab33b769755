//! Writes of records.

use super::{Coordination, Purpose};
use crate::policy::Change;
use crate::record::{NodeName, ShardRecord};
use crate::store::{Answer, Call, Put, Store, StoreError, Write};

/// Record that was written, and whose result is not known.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) record: ShardRecord<NodeName>,
    /// Revision of the record that it replaces.
    pub(super) base: i64,
    change: Option<Change>,
    /// Request without an answer.
    id: Option<u64>,
    again_ms: u64,
}

impl Pending {
    /// Record that the process before this one has written.
    pub(super) fn of_before(record: ShardRecord<NodeName>, base: i64) -> Pending {
        Pending { record, base, change: None, id: None, again_ms: 0 }
    }
}

/// Time until the next try, ms.
const AGAIN_MS: u64 = 100;

impl Coordination {
    /// Writes another record of a shard.
    pub(super) fn write(
        &mut self,
        now_ms: u64,
        store: &mut dyn Store,
        shard: u8,
        (change, record): (Change, ShardRecord<NodeName>),
    ) {
        let key = self.key("shards", &format!("{shard:03}"));
        let base = self.shards[usize::from(shard)].revision;
        let mut compares: Vec<_> = self.division_unchanged().into_iter().collect();
        if self.settings.rules.compare {
            compares.push((key.clone(), base));
        }
        let known = self.shards[usize::from(shard)].known.as_ref();
        let replaced = known.and_then(|known| match change {
            Change::Remove => known.other(&self.settings.me),
            _ => Some(&known.owner.node),
        });
        if let Some(node) = replaced.filter(|_| change.needs_absence() && self.settings.rules.absent)
            && self.gone_ms(now_ms, node).is_none()
        {
            let (_, named, _, _) = self.map.registration(node);
            compares.push((self.key("nodes", node), 0));
            compares.push((self.key("names", node), named));
        }
        let put = Put { key, value: record.to_string(), lease: 0 };
        let write = Write { compares, puts: vec![put], deletes: Vec::new() };
        let id = self.submit(now_ms, store, Purpose::Write(shard), Call::Write(write));
        let pending = Pending { record, base, change: Some(change), id: Some(id), again_ms: 0 };
        self.shards[usize::from(shard)].pending = Some(pending);
        self.version += 1;
    }

    /// Finds out the result of a write: once the present record is written again, the earlier write can not
    /// be done any more.
    pub(super) fn settle(&mut self, now_ms: u64, store: &mut dyn Store, shard: u8) {
        let one = &self.shards[usize::from(shard)];
        let Some(pending) = &one.pending else { return };
        if pending.id.is_some() || now_ms < pending.again_ms || !self.may_write() {
            return;
        }
        let base = pending.base;
        let Some(known) = one.known.clone() else {
            // The first record: reading tells whether it is there.
            self.shards[usize::from(shard)].pending = None;
            self.version += 1;
            self.read_again(now_ms, 0);
            return;
        };
        let key = self.key("shards", &format!("{shard:03}"));
        let put = Put { key: key.clone(), value: known.to_string(), lease: 0 };
        let mut compares = vec![(key, base)];
        compares.extend(self.division_unchanged());
        let write = Write { compares, puts: vec![put], deletes: Vec::new() };
        let id = self.submit(now_ms, store, Purpose::Write(shard), Call::Write(write));
        if let Some(pending) = &mut self.shards[usize::from(shard)].pending {
            (pending.id, pending.change) = (Some(id), None);
        }
    }

    pub(super) fn written(&mut self, now_ms: u64, shard: u8, id: u64, answer: Result<Answer, StoreError>) {
        self.version += 1;
        let one = &mut self.shards[usize::from(shard)];
        let Some(pending) = one.pending.as_mut().filter(|pending| pending.id == Some(id)) else { return };
        pending.id = None;
        pending.again_ms = now_ms + AGAIN_MS;
        let (change, record) = (pending.change, pending.record.clone());
        match answer {
            Ok(Answer::Written(true, revision)) => {
                let record = match change {
                    Some(_) => record,
                    // It was not done, and never will be.
                    None => one.known.clone().unwrap_or(record),
                };
                if revision > one.revision {
                    self.learn(shard, record.clone(), revision);
                }
                if let Some(change) = change {
                    self.note(now_ms, format!("shard {shard}: {change:?}: {record}"));
                }
            }
            // Somebody else has written, or the other node is registered again.
            Ok(_) => {
                if change.is_some() {
                    one.pending = None;
                } else {
                    self.read_again(now_ms, 0);
                }
            }
            Err(
                StoreError::Unreachable(_) | StoreError::Refused(_) | StoreError::Busy | StoreError::Ended,
            ) if change.is_some() => one.pending = None,
            Err(_) => {}
        }
    }
}
