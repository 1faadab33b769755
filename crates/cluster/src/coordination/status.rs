//! State of the cluster, for operators and metrics.

use super::{Coordination, Order};
use crate::record::{NodeName, ShardRecord};
use crate::store::StoreError;

/// Event of the cluster, as this node saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterEvent {
    /// Time, ms.
    pub at_ms: u64,
    /// Text.
    pub text: String,
}

/// Node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// Name.
    pub name: NodeName,
    /// True if the configuration has it.
    pub is_configured: bool,
    /// True if it is registered.
    pub is_registered: bool,
    /// Time since it was seen to be absent, ms.
    pub absent_ms: Option<u32>,
    /// True if it gives its shards away.
    pub is_drained: bool,
    /// True if the operator has said that it is off.
    pub is_gone: bool,
}

/// Shard of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardStatus {
    /// Record, as this node knows it.
    pub record: Option<ShardRecord<NodeName>>,
    /// Task of this node.
    pub order: Order,
    /// Grows when everything of before has to be dropped.
    pub seat: u64,
    /// Grows with another holder beside this node.
    pub relation: u64,
}

/// Events that are kept for the caller.
const EVENTS_MAX: usize = 1_000;

impl Coordination {
    pub(super) fn note(&mut self, at_ms: u64, text: String) {
        // The same trouble again and again is one event.
        if self.events.iter().rev().take(16).any(|event| event.text == text) {
            return;
        }
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(ClusterEvent { at_ms, text });
    }

    /// Takes the events since the last call, at most 1,000.
    pub fn take_events(&mut self) -> Vec<ClusterEvent> {
        self.events.drain(..).collect()
    }

    /// Returns the nodes, in the order of their names.
    pub fn nodes(&self, now_ms: u64) -> Vec<NodeStatus> {
        let mut names: Vec<NodeName> = self.map.names().cloned().collect();
        names.extend(self.settings.nodes.iter().map(|one| one.node.clone()));
        names.sort();
        names.dedup();
        let one = |name: NodeName| NodeStatus {
            is_configured: self.knows(&name),
            is_registered: self.map.is_registered(&name),
            absent_ms: self.map.absent_ms(now_ms, &name),
            is_drained: self.map.is_drained(&name),
            is_gone: self.map.gone_ms(now_ms, &name).is_some(),
            name,
        };
        names.into_iter().map(one).collect()
    }

    /// Returns the state of a shard.
    pub fn shard(&self, shard: u8) -> ShardStatus {
        let one = &self.shards[usize::from(shard)];
        let (record, order) = (one.known.clone(), one.order);
        ShardStatus { record, order, seat: one.seat, relation: one.relation }
    }

    /// Returns whether a node is registered, as this one knows it.
    pub fn is_registered(&self, node: &NodeName) -> bool {
        self.map.is_registered(node)
    }

    /// Returns whether another box has this node's name.
    pub fn is_double(&self) -> bool {
        self.registration.is_double
    }

    /// Returns an error of etcd, unless the same has worked since.
    pub fn error(&self) -> Option<&StoreError> {
        self.errors.first()
    }
}
