//! Nodes at which packets get lost: they say so under their leases. Packets of their shards go to the other
//! holder at once, and the shards to other nodes later.

use super::{Coordination, Purpose};
use crate::record::NodeName;
use crate::store::{Answer, Call, Put, Store, StoreError, Write};

/// Kind of the keys.
pub(super) const KIND: &str = "broken";
/// Time until the next try, ms.
const AGAIN_MS: u64 = 100;

/// State of this node for the others.
#[derive(Debug, Default)]
pub(super) struct Broken {
    is_broken: bool,
    is_asked: bool,
    again_ms: u64,
}

impl Coordination {
    /// Has the other nodes know whether packets get lost at this one.
    pub fn set_broken(&mut self, is_broken: bool) {
        self.broken.is_broken = is_broken;
    }

    /// Returns whether packets get lost at a node, as it says.
    pub fn is_broken(&self, node: &NodeName) -> bool {
        self.map.broken_since(node).is_some()
    }

    /// Returns whether a node has been broken for so long that its shards move. A short fault moves none.
    pub(super) fn is_long_broken(&self, now_ms: u64, node: &NodeName) -> bool {
        let lease_ms = u64::from(self.settings.timing.timing.lease_ms);
        self.map.broken_since(node).is_some_and(|since| now_ms >= since + lease_ms)
    }

    /// Writes or deletes the key of this node, if it is not as it should be.
    pub(super) fn keep_broken(&mut self, now_ms: u64, store: &mut dyn Store) {
        let one = &self.broken;
        let is_known = one.is_broken == self.is_broken(&self.settings.me);
        let Some(lease) = self.lease().filter(|_| self.may_write()) else { return };
        if is_known || one.is_asked || now_ms < one.again_ms {
            return;
        }
        let key = self.key(KIND, &self.settings.me);
        let write = match one.is_broken {
            true => Write { puts: vec![Put { key, value: "1".to_owned(), lease }], ..Write::default() },
            false => Write { deletes: vec![key], ..Write::default() },
        };
        self.broken.is_asked = true;
        self.submit(now_ms, store, Purpose::Broken, Call::Write(write));
    }

    /// The write was answered. The map tells its result.
    pub(super) fn broken_answered(&mut self, now_ms: u64, _: &Result<Answer, StoreError>) {
        (self.broken.is_asked, self.broken.again_ms) = (false, now_ms + AGAIN_MS);
    }
}
