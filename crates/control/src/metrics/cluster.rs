//! Metrics of a cluster. All except `cluster_wanted` have values only with `[cluster]`.

use super::kinds::{counter, gauge};
use super::read::{seconds, signed_seconds};
use super::{Metric, Samples, View};
use gatun_api::types::{Cluster, ClusterNode, ClusterState, PeerCounters, ShardPart};
use std::fmt::Display;

const NODE: &[&str] = &["node"];

/// Metrics of the own node, and of the cluster as it knows it.
pub(super) const CLUSTER: &[Metric] = &[
    gauge(
        "cluster_wanted",
        &[],
        |v, s| s.add(&[], u64::from(v.scrape.cluster.state != ClusterState::Off)),
        "1 if the configuration has `[cluster]`.",
    ),
    gauge(
        "cluster_registered",
        &[],
        |v, s| value(v, s, |cluster| u64::from(cluster.state == ClusterState::Registered)),
        "1 if this node is registered at etcd; otherwise `gatun cluster status` has the reason.",
    ),
    gauge(
        "cluster_etcd_failed_seconds",
        &[],
        |v, s| {
            if v.scrape.cluster.state != ClusterState::Off {
                s.add(&[], seconds(v.scrape.cluster.etcd_failed_ms.unwrap_or(0)));
            }
        },
        "Seconds since etcd has failed, 0 while it answers.",
    ),
    gauge(
        "cluster_shards",
        &[],
        |v, s| value(v, s, |cluster| cluster.shards.len() as u64),
        "Shards of the cluster.",
    ),
    gauge(
        "cluster_owned_shards",
        &[],
        |v, s| value(v, s, |cluster| parts(cluster, ShardPart::Owner)),
        "Shards that this node owns.",
    ),
    gauge(
        "cluster_backed_shards",
        &[],
        |v, s| value(v, s, |cluster| parts(cluster, ShardPart::Backup)),
        "Shards that this node backs up.",
    ),
    gauge(
        "cluster_assigning_shards",
        &[],
        |v, s| value(v, s, |cluster| cluster.held().filter(|shard| shard.assigns).count() as u64),
        "Owned shards whose ports this node may assign now.",
    ),
    gauge(
        "cluster_unbacked_shards",
        &[],
        |v, s| value(v, s, |cluster| cluster.unbacked().count() as u64),
        "Shards without a backup that has all sessions, as this node knows them.",
    ),
    gauge(
        "cluster_orphan_shards",
        &[],
        |v, s| value(v, s, |cluster| cluster.orphans().count() as u64),
        "Shards with no registered holder, as this node knows them.",
    ),
    gauge(
        "cluster_node_registered",
        NODE,
        // One that was removed from the configuration is not missed.
        |v, s| of_nodes(v, s, |node| node.is_configured.then_some(u64::from(node.is_registered))),
        "1 if the node, which the configuration has, is registered at etcd.",
    ),
    gauge(
        "cluster_node_drained",
        NODE,
        |v, s| of_nodes(v, s, |node| Some(u64::from(node.is_drained))),
        "1 if an operator has the node give its shards away.",
    ),
    gauge(
        "cluster_node_connected",
        NODE,
        |v, s| {
            let is_open = |node: &ClusterNode| Some(node.connection.as_ref()?.connected_for_ms.is_some());
            of_nodes(v, s, |node| is_open(node).map(u64::from));
        },
        "1 if this node is connected to the other one.",
    ),
    gauge(
        "cluster_node_config_differences",
        NODE,
        |v, s| of_nodes(v, s, |node| Some(node.connection.as_ref()?.differences.len() as u64)),
        "Keys of the configuration that differ from the other node's.",
    ),
    gauge(
        "cluster_node_clock_difference_seconds",
        NODE,
        |v, s| {
            let difference = |node: &ClusterNode| node.connection.as_ref()?.clock_difference_ms;
            of_nodes(v, s, |node| difference(node).map(signed_seconds));
        },
        "Seconds by which the other node's clock is ahead of this one's, negative if it is behind.",
    ),
    gauge(
        "cluster_revision",
        &[],
        |v, s| v.scrape.cluster.configuration.iter().for_each(|one| s.add(&[], one.number)),
        "Number of the latest configuration revision of the cluster.",
    ),
    gauge(
        "cluster_node_revision",
        NODE,
        |v, s| of_nodes(v, s, |node| node.revision.as_ref()?.number),
        "Number of the configuration revision that the node runs, as it has told last.",
    ),
    gauge(
        "cluster_node_revision_difference",
        NODE,
        |v, s| {
            let differs = |node: &ClusterNode| Some(u64::from(node.revision.as_ref()?.differs));
            of_nodes(v, s, |node| differs(node).filter(|_| node.takes_revisions()));
        },
        "1 if the node, which is registered, does not run the text of the cluster's configuration revision.",
    ),
    gauge(
        "cluster_certificate_end_seconds",
        &[],
        |v, s| v.scrape.cluster.certificate_end_s.into_iter().for_each(|end| s.add(&[], end)),
        "Time at which the certificate of this node or of the authority ends, seconds since 1970.",
    ),
    counter(
        "cluster_sent_sessions",
        NODE,
        |v, s| counters(v, s, |all| all.sessions_told),
        "Sessions that the other node was told of, those of whole states included.",
    ),
    counter(
        "cluster_received_sessions",
        NODE,
        |v, s| counters(v, s, |all| all.sessions_received),
        "Sessions of the other node that were accepted or confirmed.",
    ),
    counter(
        "cluster_refused_sessions",
        NODE,
        |v, s| counters(v, s, |all| all.refused.iter().map(|reason| reason.value).sum()),
        "Sessions of the other node that were refused.",
    ),
    counter(
        "cluster_lost_records",
        NODE,
        |v, s| counters(v, s, |all| all.records_lost),
        "Records of the engines that were lost because too many waited; the state was sent again.",
    ),
    counter(
        "cluster_connections",
        NODE,
        |v, s| counters(v, s, |all| all.connections),
        "Connections to the other node on which both have greeted.",
    ),
    gauge(
        "cluster_waiting_ends",
        NODE,
        |v, s| counters(v, s, |all| all.ends_waiting),
        "Ended sessions whose ports wait for the other node.",
    ),
    gauge(
        "cluster_waiting_records",
        NODE,
        |v, s| counters(v, s, |all| all.records_waiting),
        "Records of the other node that wait for the engines.",
    ),
];

fn value(v: &View<'_>, s: &mut Samples<'_>, read: impl Fn(&Cluster) -> u64) {
    let cluster = &v.scrape.cluster;
    if cluster.state != ClusterState::Off {
        s.add(&[], read(cluster));
    }
}

fn parts(cluster: &Cluster, part: ShardPart) -> u64 {
    cluster.shards.iter().filter(|shard| shard.part == part).count() as u64
}

fn of_nodes<T: Display>(v: &View<'_>, s: &mut Samples<'_>, read: impl Fn(&ClusterNode) -> Option<T>) {
    for node in &v.scrape.cluster.nodes {
        read(node).into_iter().for_each(|value| s.add(&[&node.name], value));
    }
}

fn counters(v: &View<'_>, s: &mut Samples<'_>, read: fn(&PeerCounters) -> u64) {
    of_nodes(v, s, |node| Some(read(&node.connection.as_ref()?.counters)));
}
