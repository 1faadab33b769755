//! Facts about a node's shards, for its coordination.

use super::Node;
use crate::coordination::{Holdings, RelationFacts};
use crate::record::NodeName;

/// Facts about all shards at one moment.
pub(super) struct Facts(Vec<(RelationFacts, bool, bool)>);

impl Facts {
    pub(super) fn new(now_ms: u64, node: &Node) -> Facts {
        Facts(node.numbers().map(|shard| node.facts(now_ms, shard)).collect())
    }
}

impl Holdings for Facts {
    fn relation(&self, shard: u8, _other: &NodeName) -> RelationFacts {
        self.0[usize::from(shard)].0
    }

    fn has_state(&self, shard: u8) -> bool {
        self.0[usize::from(shard)].1
    }

    fn has_dropped(&self, shard: u8) -> bool {
        self.0[usize::from(shard)].2
    }
}

impl Node {
    /// Returns the relation to the other holder, and whether this node has, or has dropped, the shard's
    /// state.
    fn facts(&self, now_ms: u64, shard: u8) -> (RelationFacts, bool, bool) {
        let state = &self.shards[usize::from(shard)];
        let shared = self.shared(shard);
        let relation = RelationFacts {
            is_connected: shared.is_joined,
            is_away: !shared.is_joined && now_ms >= state.joined_ms + self.away_ms,
            is_synced: shared.is_synced && shared.is_reserved,
            is_told: shared.is_told && state.is_lowered(),
        };
        (relation, state.has_state, state.has_dropped)
    }
}
