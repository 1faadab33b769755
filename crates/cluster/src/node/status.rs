//! State of a node, for operators and metrics.

use super::Node;
use crate::coordination::{ConfigurationStatus, NodeStatus, Order};
use crate::record::{NodeName, Part, ShardRecord};
use crate::store::StoreError;
use gatun_nat::ShardSet;
use gatun_peer::member::PairCounters;
use gatun_peer::wire::KeyDifference;

/// State of a node and, as far as it knows, of its cluster.
#[derive(Clone, Debug)]
pub struct ClusterStatus {
    /// Shards.
    pub shards: Vec<HeldShard>,
    /// All nodes, in the order of their names.
    pub nodes: Vec<NodeStatus>,
    /// Relations to the other nodes, in the order of [`Node::names`].
    pub members: Vec<MemberStatus>,
    /// Error of etcd, unless the same has worked since.
    pub error: Option<StoreError>,
    /// True if another box has this node's name.
    pub is_double: bool,
    /// Difference between the division of this node and that of the cluster, which keeps it from taking part.
    pub difference: Option<String>,
    /// Configuration of the cluster.
    pub configuration: ConfigurationStatus,
}

/// Shard, as the node knows it.
#[derive(Clone, Debug)]
pub struct HeldShard {
    /// Record.
    pub record: Option<ShardRecord<NodeName>>,
    /// Part of this node.
    pub part: Part,
    /// Its task.
    pub order: Order,
    /// True if it has the shard's state.
    pub has_state: bool,
    /// True if it is connected to the other holder.
    pub is_connected: bool,
    /// True if both holders have acknowledged each other's whole state.
    pub is_synced: bool,
    /// True if it assigns shared ports now.
    pub may_assign: bool,
    /// Time for which it translates without another sign, ms.
    pub translate_ms: u64,
}

/// Relation to another node.
#[derive(Clone, Debug)]
pub struct MemberStatus {
    /// Name.
    pub name: NodeName,
    /// True if both have accepted each other's greetings on the present connection.
    pub is_open: bool,
    /// Differences of the configurations.
    pub differences: Vec<KeyDifference>,
    /// Ms by which its wall clock is ahead of this node's; negative if it is behind.
    pub clock_difference_ms: Option<i64>,
    /// Common shards whose changes both tell each other.
    pub shards: ShardSet,
    /// Counters.
    pub counters: PairCounters,
}

impl Node {
    /// Returns the state.
    pub fn status(&self, now_ms: u64) -> ClusterStatus {
        ClusterStatus {
            shards: self.numbers().map(|shard| self.held(now_ms, shard)).collect(),
            nodes: self.coordination.nodes(now_ms),
            members: (0..self.others.len()).map(|number| self.member_status(number)).collect(),
            error: self.coordination.error().cloned(),
            is_double: self.coordination.is_double(),
            difference: self.coordination.difference(),
            configuration: self.coordination.configuration(now_ms),
        }
    }

    fn held(&self, now_ms: u64, shard: u8) -> HeldShard {
        let (status, rights) = (self.coordination.shard(shard), self.coordination.rights(shard));
        let (state, shared) = (&self.shards[usize::from(shard)], self.shared(shard));
        HeldShard {
            record: status.record,
            part: rights.part,
            order: status.order,
            has_state: state.has_state,
            is_connected: shared.is_joined,
            is_synced: shared.is_synced,
            may_assign: state.may_assign(now_ms),
            translate_ms: state.translate_ms(now_ms),
        }
    }

    fn member_status(&self, number: usize) -> MemberStatus {
        let other = &self.others[number];
        let is_joined = |shard: &u8| other.member.shared(*shard).is_joined;
        MemberStatus {
            name: other.name.clone(),
            is_open: other.member.exchange.is_established(),
            differences: other.member.exchange.differences().to_vec(),
            clock_difference_ms: other.member.exchange.clock_difference_ms(),
            shards: self.numbers().filter(is_joined).collect(),
            counters: other.member.counters(),
        }
    }
}
