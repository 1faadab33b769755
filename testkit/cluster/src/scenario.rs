//! Nodes, shards and bounds of a check.

use gatun_cluster::{ClusterRules, ClusterTiming};
use gatun_pair_model::ProcessState;
use gatun_peer::ownership::Timing;

/// Lengths of leases and waits, in ticks.
pub const TIMING: ClusterTiming =
    ClusterTiming { timing: Timing { lease_ms: 2, kernel_ms: 1, drift_ms: 1 }, hold_ms: 3 };

/// Greatest numbers of events in a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// Assigned, freed and kept ports.
    pub ports: u8,
    /// Changes of records.
    pub writes: u8,
    /// Writes that arrive late, or whose answer is lost.
    pub late: u8,
    /// Nodes that are killed, stopped or switched off.
    pub crashes: u8,
    /// Partitions between two nodes, or between a node and the coordinator.
    pub cuts: u8,
    /// Broken connections.
    pub breaks: u8,
    /// Connections that replace broken ones.
    pub connects: u8,
    /// Lost packets, and packets that overtake others.
    pub losses: u8,
    /// Promises that a holder asks the other one for.
    pub promises: u8,
    /// Words of the operator.
    pub words: u8,
    /// Ticks by which clocks are wrong.
    pub drift: u8,
}

impl Bounds {
    /// Bounds of `make pair-model`. Random walks lose a packet, too.
    pub const LARGE: Bounds = Bounds {
        ports: 2,
        writes: 3,
        late: 1,
        crashes: 2,
        cuts: 2,
        breaks: 1,
        connects: 3,
        losses: 0,
        promises: 1,
        words: 1,
        drift: 1,
    };

    /// No event.
    pub const NONE: Bounds = Bounds {
        ports: 0,
        writes: 0,
        late: 0,
        crashes: 0,
        cuts: 0,
        breaks: 0,
        connects: 2,
        losses: 0,
        promises: 0,
        words: 0,
        drift: 0,
    };
}

/// Model of some nodes and shards.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Number of nodes.
    pub nodes: u8,
    /// Owner and backup of each shard at the beginning.
    pub shards: Vec<[u8; 2]>,
    /// Rules in force.
    pub rules: ClusterRules,
    /// Bounds.
    pub bounds: Bounds,
    /// Number of ports that nodes assign: one of the shared range, then one of the second side's range, then
    /// one of the first side's.
    pub ports: u8,
    /// Ways in which a process ends.
    pub lives: &'static [ProcessState],
}

impl Scenario {
    /// Some nodes, one shard.
    pub fn new(nodes: u8, bounds: Bounds) -> Scenario {
        let lives = &[ProcessState::Stopped, ProcessState::Killed, ProcessState::Off];
        let (rules, shards) = (ClusterRules::default(), vec![[0, 1]]);
        Scenario { nodes, shards, rules, bounds, ports: 1, lives }
    }

    /// Some nodes, and two shards with different owners.
    pub fn two_shards(nodes: u8, bounds: Bounds) -> Scenario {
        Scenario {
            shards: vec![[0, 1], [1, nodes - 1 - u8::from(nodes == 2)]],
            ..Scenario::new(nodes, bounds)
        }
    }

    /// Each shard with all nodes. Shards share nothing but their nodes and the clock, and no shard changes
    /// these. So a promise that each shard keeps by itself is kept by all: the states of several shards need
    /// not be visited together.
    pub fn slices(&self) -> Vec<Scenario> {
        let slice = |shard: &[u8; 2]| Scenario { shards: vec![*shard], ..self.clone() };
        self.shards.iter().map(slice).collect()
    }

    /// The same with more ports.
    pub fn with_ports(self, ports: u8) -> Scenario {
        Scenario { ports, ..self }
    }

    /// The same with only some ways in which a process ends.
    pub fn with_lives(self, lives: &'static [ProcessState]) -> Scenario {
        Scenario { lives, ..self }
    }

    /// The same with other rules.
    pub fn with(self, rules: ClusterRules) -> Scenario {
        Scenario { rules, ..self }
    }
}
