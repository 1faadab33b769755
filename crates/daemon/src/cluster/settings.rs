//! Settings of the node and of its exchanges with others, and their memory.

use super::ClusterSettings;
use gatun_cluster::coordination::CoordinationSettings;
use gatun_cluster::node::{NodeSettings, exchange_settings};
use gatun_cluster::record::NodeName;
use gatun_cluster::target::Candidate;
use gatun_cluster::{ClusterRules, ClusterTiming};
use gatun_config::ClusterNode;
use gatun_peer::member::AddressRange;
use gatun_peer::ownership::Timing;
use gatun_peer::wire::{ConfigKey, Exchange};

/// Records that wait for the members, per worker and member.
pub(super) const RING: usize = 65_536;
/// Bytes of a record that waits for a member.
const RECORD: u64 = 96;
/// Groups of records, of up to 32 KiB each, that the logs of all members keep together, and that of one at
/// least and at most.
const LOGS: (usize, usize, usize) = (1_024, 64, 512);
/// Memory of a member's group, of what waits to be sent, and of received records, bytes.
const GROUP: u64 = 32 << 10;
const BUFFERS: u64 = 32 << 20;
/// Interval of tries of sessions that contradict own ones, ms.
const AGAIN_MS: u64 = 1_000;
/// Least difference of the clocks of two boxes over a hold, ms, and its share of the hold.
const DRIFT_MS: (u32, u32) = (100, 2_000);
/// Shards that get other holders at one time.
const MOVES_MAX: usize = 4;

/// Bytes of memory of a node, by the numbers of workers and nodes.
pub(crate) fn memory_bytes(workers: usize, nodes: usize) -> u64 {
    let (workers, others) = (workers as u64, nodes.saturating_sub(1) as u64);
    let queues = workers * (others + 1) * RING as u64 * RECORD;
    let streams = others * (BUFFERS + log_max(nodes) as u64 * GROUP);
    workers * gatun_nat::feed::memory_bytes(RING) + queues + streams
}

/// Groups of records that the log of each member keeps.
fn log_max(nodes: usize) -> usize {
    let (all, least, most) = LOGS;
    (all / nodes.saturating_sub(1).max(1)).clamp(least, most)
}

/// Exchanges with the other nodes.
pub(super) fn exchanges(
    node: &ClusterSettings,
    process: u64,
    keys: &[ConfigKey],
) -> Vec<(NodeName, Exchange)> {
    let me: NodeName = node.own().name[..].into();
    let exchange = |other: &ClusterNode| {
        let other: NodeName = other.name[..].into();
        let mut settings = exchange_settings(&me, &other, process, keys.to_vec());
        settings.log_max = log_max(node.cluster.nodes.len());
        (other, Exchange::new(settings))
    };
    node.others().map(exchange).collect()
}

pub(super) fn node_settings(
    node: &ClusterSettings,
    instance: String,
    addresses: Vec<AddressRange>,
) -> NodeSettings {
    let cluster = &node.cluster;
    let (least, share) = DRIFT_MS;
    let drift_ms = least.max(cluster.hold_ms / share);
    let timing = Timing { lease_ms: cluster.lease_ms, kernel_ms: 0, drift_ms };
    let candidate = |node: &ClusterNode| Candidate {
        node: node.name[..].into(),
        name: node.name.clone(),
        weight: node.weight,
    };
    NodeSettings {
        coordination: CoordinationSettings {
            cluster: cluster.name.clone(),
            me: node.own().name[..].into(),
            nodes: cluster.nodes.iter().map(candidate).collect(),
            instance,
            shards: cluster.shards,
            timing: ClusterTiming { timing, hold_ms: cluster.hold_ms },
            moves_max: MOVES_MAX,
            rules: ClusterRules::default(),
        },
        addresses,
        own_ports: cluster.own_ports,
        away_ms: cluster.away_after_ms.into(),
        again_ms: AGAIN_MS,
    }
}
