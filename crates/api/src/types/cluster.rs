//! Nodes and shards of a cluster.

use super::peer::{PeerCounters, clocks_differ};
use crate::schema::{structs, words};

words! {
    /// State of a node of a cluster.
    pub enum ClusterState {
        /// Not configured.
        Off = "off",
        /// It translates nothing: it waits for etcd, or for another holder of a shard.
        Waiting = "waiting",
        /// It is registered at etcd.
        Registered = "registered",
        /// It goes on without etcd, as long as its hold lasts or another holder promises it.
        WithoutEtcd = "without-etcd",
        /// Another box has the node's name: this one waits.
        Double = "double",
        /// Its thread has stopped after a fault.
        Stopped = "stopped",
    }

    /// Part of this node in a shard.
    pub enum ShardPart {
        /// It owns the shard: it assigns all ports.
        Owner = "owner",
        /// It backs the shard up: it knows its sessions, and assigns own ports.
        Backup = "backup",
        /// Other nodes have the shard.
        None = "none",
    }

    /// State of the backup of a shard.
    pub enum BackupPhase {
        /// It may lack sessions, or is away.
        Filling = "filling",
        /// It has all sessions, and takes the shard over if the owner fails.
        Ready = "ready",
        /// Another node will be the backup.
        Leaving = "leaving",
    }

    /// Progress of a configuration revision.
    pub enum RevisionStage {
        /// The nodes apply it one after the other, and return to the previous one unless it is confirmed.
        Trial = "trial",
        /// It is the configuration of the cluster.
        Confirmed = "confirmed",
        /// The nodes return to the previous one.
        Withdrawn = "withdrawn",
    }
}

// `words!` defines the enum, without this trait.
#[allow(clippy::derivable_impls)]
impl Default for ClusterState {
    fn default() -> Self {
        ClusterState::Off
    }
}

structs! {
    /// Connection of this node to another one.
    pub struct NodeConnection {
        /// Address and port of the other node.
        pub address: String,
        /// Milliseconds since the connection was opened; none without a connection.
        pub connected_for_ms: Option<u64>,
        /// Reason why there is no connection.
        pub reason: Option<String>,
        /// Shards that both nodes have.
        pub shards: u64,
        /// Keys of the configuration that differ from the other node's.
        pub differences: Vec<String>,
        /// Milliseconds by which the clock of the other node is ahead of this one's, negative if it is
        /// behind, with an error of half a second at most; none without a connection.
        pub clock_difference_ms: Option<i64>,
        /// Counters.
        pub counters: PeerCounters,
    }

    /// Configuration that a node runs, as it has told last.
    pub struct NodeRevision {
        /// Number of the revision; none if it is unknown.
        pub number: Option<u64>,
        /// True if the node returns to the previous one unless it is confirmed.
        pub is_trial: bool,
        /// True if the node does not run the text of the cluster's revision.
        pub differs: bool,
        /// Reason why it does not run it.
        pub reason: Option<String>,
    }

    /// Configuration revision that the nodes should run.
    pub struct ClusterConfiguration {
        /// Number.
        pub number: u64,
        /// Number of the previous one; none if there is none.
        pub before: Option<u64>,
        /// Progress.
        pub stage: RevisionStage,
        /// Seconds left of its trial.
        pub seconds_left: Option<u64>,
        /// True if an operator must confirm it; false if it is confirmed once all nodes have it.
        pub needs_confirmation: bool,
        /// Operator or node that has changed the stage.
        pub changed_by: String,
        /// Reason of the stage.
        pub reason: Option<String>,
    }

    /// Configuration revision that is kept at etcd.
    pub struct ClusterRevision {
        /// Number.
        pub number: u64,
        /// Time when it was applied, RFC 3339.
        pub applied_at: String,
        /// Operator who applied it.
        pub applied_by: String,
        /// Node that the operator asked.
        pub asked_node: String,
        /// Length of its text in bytes.
        pub bytes: u64,
        /// SHA-256 of its text.
        pub sha256: String,
        /// Its stage, who has changed it, and why.
        pub outcome: String,
        /// Nodes that run it.
        pub nodes: Vec<String>,
    }

    /// Node of a cluster.
    #[derive(Default)]
    pub struct ClusterNode {
        /// Name.
        pub name: String,
        /// True for the node that answers.
        pub is_this: bool,
        /// True if its configuration names the node.
        pub is_configured: bool,
        /// Relative number of shards that it gets.
        pub weight: u32,
        /// True if it is registered at etcd.
        pub is_registered: bool,
        /// Milliseconds since it was seen to be absent.
        pub absent_ms: Option<u64>,
        /// True if an operator has it give its shards away.
        pub is_drained: bool,
        /// True if an operator has declared it gone.
        pub is_gone: bool,
        /// Shards that it owns.
        pub owned: u64,
        /// Shards that it backs up.
        pub backed: u64,
        /// Address of its API, as its configuration has it.
        pub api: Option<String>,
        /// Connection to it; none for this node.
        pub connection: Option<NodeConnection>,
        /// Configuration that it runs; none before the first `gatun cluster apply`.
        pub revision: Option<NodeRevision>,
    }

    /// Shard of a cluster, as this node knows it.
    pub struct ClusterShard {
        /// Number.
        pub number: u32,
        /// Public addresses, as ADDRESS or FIRST-LAST.
        pub addresses: Vec<String>,
        /// Number of changes of the owner and of the backup; 0 before the shard has an owner.
        pub epoch: u64,
        /// Owner.
        pub owner: Option<String>,
        /// Backup.
        pub backup: Option<String>,
        /// State of the backup.
        pub phase: Option<BackupPhase>,
        /// Part of this node.
        pub part: ShardPart,
        /// True if this node assigns all ports now.
        pub assigns: bool,
        /// Milliseconds for which this node may translate without another sign; none if it may not.
        pub translates_for_ms: Option<u64>,
        /// True if the other holder has the same sessions.
        pub is_synced: bool,
    }

    /// State of this node, and the cluster as it knows it.
    #[derive(Default)]
    pub struct Cluster {
        /// State.
        pub state: ClusterState,
        /// Reason why it waits, or why it sends nothing.
        pub reason: Option<String>,
        /// Name of the cluster; none without `[cluster]`.
        pub name: Option<String>,
        /// Name of this node.
        pub node: Option<String>,
        /// Error of etcd, if the last request has failed.
        pub etcd_error: Option<String>,
        /// Milliseconds since etcd has failed.
        pub etcd_failed_ms: Option<u64>,
        /// Configuration revision; none before the first `gatun cluster apply`.
        pub configuration: Option<ClusterConfiguration>,
        /// Nodes, by name.
        pub nodes: Vec<ClusterNode>,
        /// Shards, by number.
        pub shards: Vec<ClusterShard>,
        /// Seconds from 1970 until the own certificate or the authority's ends.
        pub certificate_end_s: Option<u64>,
    }

    /// Event of a cluster, as this node saw it.
    pub struct ClusterEvent {
        /// Milliseconds since 1970.
        pub at_ms: u64,
        /// Description in a sentence.
        pub what: String,
    }

    /// Latest events of a cluster, the oldest first.
    #[derive(Default)]
    pub struct ClusterEvents {
        /// Events.
        pub events: Vec<ClusterEvent>,
    }
}

impl ClusterNode {
    /// Difference between its clock and that of this node in words, if it is more than a second.
    pub fn clock_fault(&self) -> Option<String> {
        let relation = clocks_differ(self.connection.as_ref()?.clock_difference_ms)?;
        Some(format!("the clock of node {} is {relation} that of this node", self.name))
    }

    /// Returns whether it has to run the cluster's configuration: it is one of its nodes, and registered.
    pub fn takes_revisions(&self) -> bool {
        self.is_configured && self.is_registered
    }
}

impl Cluster {
    /// Shards that this node has a part in.
    pub fn held(&self) -> impl Iterator<Item = &ClusterShard> {
        self.shards.iter().filter(|shard| shard.part != ShardPart::None)
    }

    /// Shards whose owner has no backup that could take them over.
    pub fn unbacked(&self) -> impl Iterator<Item = &ClusterShard> {
        self.shards.iter().filter(|shard| shard.owner.is_some() && shard.phase != Some(BackupPhase::Ready))
    }

    /// Shards whose holders are all not registered: nobody can claim them.
    pub fn orphans(&self) -> impl Iterator<Item = &ClusterShard> {
        let is_here = |name: &String| self.nodes.iter().any(|node| node.name == *name && node.is_registered);
        self.shards.iter().filter(move |shard| {
            let mut holders = shard.owner.iter().chain(&shard.backup);
            shard.owner.is_some() && !holders.any(is_here)
        })
    }

    /// Nodes of the configuration that are registered and do not run the text of the cluster's revision.
    pub fn differing(&self) -> impl Iterator<Item = &ClusterNode> {
        let differs = |node: &&ClusterNode| node.revision.as_ref().is_some_and(|revision| revision.differs);
        self.nodes.iter().filter(|node| node.takes_revisions()).filter(differs)
    }

    /// Nodes of the configuration that are not registered, and are not drained or gone by an operator's word.
    pub fn away(&self) -> impl Iterator<Item = &ClusterNode> {
        self.nodes.iter().filter(|node| {
            node.is_configured && !node.is_registered && !node.is_gone && !node.is_this && !node.is_drained
        })
    }

    /// Returns whether a node has no part in any shard.
    pub fn is_empty(&self, node: &str) -> bool {
        let is_node = |holder: &Option<String>| holder.as_deref() == Some(node);
        !self.shards.iter().any(|shard| is_node(&shard.owner) || is_node(&shard.backup))
    }
}
