//! Members, shards and bounds of a check.

use gatun_peer::ownership::{Rules, Timing};

/// Lengths of leases and waits, in ticks.
pub const TIMING: Timing = Timing { lease_ms: 2, kernel_ms: 1, drift_ms: 1 };

/// State of a node's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProcessState {
    /// It runs.
    Alive,
    /// It does nothing, and will go on.
    Stopped,
    /// It has ended, and its state is kept.
    Killed,
    /// It has ended, and its state is lost.
    Off,
}

/// Greatest numbers of events in a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// Assigned, freed and kept ports.
    pub ports: u8,
    /// Changes of ownership by a member, and of the configuration.
    pub changes: u8,
    /// Epochs that the coordinator grants.
    pub grants: u8,
    /// Members that are killed, stopped or switched off.
    pub crashes: u8,
    /// Partitions between two members, or between a member and the coordinator.
    pub cuts: u8,
    /// Broken connections.
    pub breaks: u8,
    /// Connections that replace broken ones.
    pub connects: u8,
    /// Lost packets and messages, and packets that overtake others.
    pub losses: u8,
    /// Promises that an owner asks its backup for.
    pub promises: u8,
    /// Ticks by which clocks are wrong.
    pub drift: u8,
}

impl Bounds {
    /// Bounds of `make pair-model`.
    pub const LARGE: Bounds = Bounds {
        ports: 3,
        changes: 1,
        grants: 2,
        crashes: 2,
        cuts: 2,
        breaks: 1,
        connects: 6,
        losses: 1,
        promises: 1,
        drift: 1,
    };
}

/// Model of some shards.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Number of nodes.
    pub nodes: u8,
    /// Nodes of the two members of each shard.
    pub shards: Vec<[u8; 2]>,
    /// True for a cluster with a coordinator, false for a pair.
    pub is_cluster: bool,
    /// Rules in force.
    pub rules: Rules,
    /// Bounds.
    pub bounds: Bounds,
    /// Records that an outbound log keeps.
    pub log: u8,
    /// Number of ports that members assign: one of the shared range, then one of the
    /// second member's range, then one of the first member's.
    pub ports: u8,
    /// Ways in which a process ends.
    pub lives: &'static [ProcessState],
}

impl Scenario {
    /// Two nodes, one shard.
    pub fn pair(bounds: Bounds) -> Scenario {
        // A pair has no leases: there, a process that stops differs in nothing from a slow one.
        let lives = &[ProcessState::Killed, ProcessState::Off];
        let (rules, shards) = (Rules::default(), vec![[0, 1]]);
        Scenario { nodes: 2, shards, is_cluster: false, rules, bounds, log: 2, ports: 3, lives }
    }

    /// Two nodes, each of which owns one shard and backs the other.
    pub fn two_shards(bounds: Bounds) -> Scenario {
        Scenario { shards: vec![[0, 1], [1, 0]], ..Scenario::pair(bounds) }
    }

    /// Two nodes and a coordinator, one shard.
    pub fn cluster(bounds: Bounds) -> Scenario {
        let lives = &[ProcessState::Stopped, ProcessState::Killed, ProcessState::Off];
        Scenario { is_cluster: true, lives, ..Scenario::pair(bounds) }
    }

    /// Three nodes and a coordinator, two shards; one node is a member of both.
    pub fn three_nodes(bounds: Bounds) -> Scenario {
        Scenario { nodes: 3, shards: vec![[0, 1], [1, 2]], ..Scenario::cluster(bounds) }
    }

    /// One shard with its two nodes. Shards share nothing but the lives and partitions of their nodes, and
    /// the clock, and no shard changes these. So a promise that each shard keeps by itself is kept by all:
    /// the states of several shards need not be visited together.
    pub fn slice(&self) -> Scenario {
        Scenario { nodes: 2, shards: vec![[0, 1]], ..self.clone() }
    }

    /// The same with another length of the log.
    pub fn with_log(self, log: u8) -> Scenario {
        Scenario { log, ..self }
    }

    /// The same with fewer ports.
    pub fn with_ports(self, ports: u8) -> Scenario {
        Scenario { ports, ..self }
    }

    /// The same with other rules.
    pub fn with(self, rules: Rules) -> Scenario {
        Scenario { rules, ..self }
    }
}
