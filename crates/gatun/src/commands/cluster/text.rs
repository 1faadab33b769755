//! State of a cluster as text.

use crate::commands::colour;
use gatun_api::types::{
    BackupPhase, Cluster, ClusterEvents, ClusterNode, ClusterRevision, ClusterShard, ClusterState,
    RevisionStage, ShardPart, Urgency,
};
use gatun_daemon::tables::{counted, table};
use gatun_logstore::time;

/// Words for a daemon without `[cluster]`.
pub(super) const NO_CLUSTER: &str = "no cluster: there is no [cluster] in the configuration\n";

/// Line about this node. `None` without `[cluster]`.
pub(crate) fn summary(cluster: &Cluster) -> Option<String> {
    let (name, node) = (cluster.name.as_ref()?, cluster.node.as_ref()?);
    let of = |part: ShardPart| cluster.shards.iter().filter(|shard| shard.part == part).count() as u64;
    let (owned, backed) = (counted(of(ShardPart::Owner), "shard"), of(ShardPart::Backup));
    let what = match cluster.state {
        ClusterState::Registered => format!("owns {owned}, backs up {backed}"),
        ClusterState::WithoutEtcd => format!("goes on WITHOUT etcd, owns {owned}, backs up {backed}"),
        ClusterState::Waiting => "translates NOTHING".to_owned(),
        ClusterState::Double => "translates NOTHING: another box has its name".to_owned(),
        ClusterState::Stopped => "does NOTHING for the cluster".to_owned(),
        ClusterState::Off | ClusterState::Other => cluster.state.to_string(),
    };
    let here = cluster.nodes.iter().filter(|node| node.is_registered).count();
    Some(format!(
        "node {node} of {name}: {what}; {here} of {} here",
        counted(cluster.nodes.len() as u64, "node")
    ))
}

/// State of the nodes.
pub(super) fn status(cluster: &Cluster) -> String {
    let Some(summary) = summary(cluster) else { return NO_CLUSTER.to_owned() };
    let mut text = format!("{summary}\n");
    text += &cluster.reason.iter().map(|why| format!("reason: {why}\n")).collect::<String>();
    if let (Some(error), Some(ms)) = (&cluster.etcd_error, cluster.etcd_failed_ms) {
        text += &format!("etcd: failed for {} s: {error}\n", ms / 1_000);
    }
    text += &configuration(cluster);
    let mut rows =
        table(["node", "state", "revision", "owned", "backed", "connection", "sessions sent", "received"]);
    for node in &cluster.nodes {
        let (sent, received) = node.connection.as_ref().map_or_else(Default::default, |one| {
            let counters = &one.counters;
            (counters.sessions_told.to_string(), counters.sessions_received.to_string())
        });
        rows.add_row([
            node.name.clone(),
            state(node),
            revision(node),
            node.owned.to_string(),
            node.backed.to_string(),
            connection(node),
            sent,
            received,
        ]);
    }
    text += &format!("{rows}\n");
    for (node, connection) in cluster.nodes.iter().filter_map(|node| Some((node, node.connection.as_ref()?)))
    {
        let differs = |key: &String| format!("differs from node {}: {key}\n", node.name);
        text += &connection.differences.iter().map(differs).collect::<String>();
    }
    for fault in cluster.nodes.iter().filter_map(ClusterNode::clock_fault) {
        text += &format!("{fault}\n");
    }
    let (unbacked, orphans) = (cluster.unbacked().count() as u64, cluster.orphans().count() as u64);
    if orphans > 0 {
        text += &format!(
            "{} without a holder that is here: see `gatun cluster shards`; for a node that will not come back, \
             `gatun cluster gone NODE`\n",
            counted(orphans, "shard")
        );
    }
    text += &match unbacked {
        0 if cluster.shards.iter().all(|shard| shard.owner.is_some()) => {
            "each shard has an owner and a backup\n".to_owned()
        }
        0 => String::new(),
        n => format!("{} without a backup that has all sessions\n", counted(n, "shard")),
    };
    text
}

/// Line about the configuration, and one for each node that does not run it.
fn configuration(cluster: &Cluster) -> String {
    let Some(current) = &cluster.configuration else { return String::new() };
    let (number, by) = (current.number, &current.changed_by);
    let what = match current.stage {
        RevisionStage::Trial if current.needs_confirmation => {
            let left = current.seconds_left.unwrap_or(0);
            format!("on trial by {by}; all nodes return in {left} s unless confirmed: gatun cluster confirm")
        }
        RevisionStage::Trial => format!("the nodes apply it one after the other, by {by}"),
        RevisionStage::Confirmed => format!("confirmed by {by}"),
        RevisionStage::Withdrawn => {
            let why = current.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            let to = current.before.map_or("their own".to_owned(), |before| before.to_string());
            format!("withdrawn by {by}, the nodes run {to}{why}")
        }
        RevisionStage::Other => String::new(),
    };
    let mut text = format!("configuration revision {number}: {what}\n");
    if current.stage != RevisionStage::Trial {
        for node in cluster.differing() {
            let why = node.revision.as_ref().and_then(|one| one.reason.as_ref());
            let why = why.map(|why| format!(": {why}")).unwrap_or_default();
            let line = format!("node {} runs ANOTHER configuration{why}", node.name);
            text += &format!("{}\n", colour::line(Urgency::Bad, &line));
        }
    }
    text
}

/// Revision of a node.
fn revision(node: &ClusterNode) -> String {
    let Some(revision) = &node.revision else { return String::new() };
    let number = revision.number.map_or("unknown".to_owned(), |number| number.to_string());
    match (revision.is_trial, revision.differs) {
        (true, _) => format!("{number}, on trial"),
        (false, true) => format!("{number}, DIFFERS"),
        (false, false) => number,
    }
}

/// Names of registered nodes that do not run a revision yet.
pub(super) fn late(cluster: &Cluster, number: u64) -> Vec<&str> {
    let is_late = |node: &&ClusterNode| {
        let runs = |one: &gatun_api::types::NodeRevision| one.number == Some(number) && one.reason.is_none();
        node.takes_revisions() && !node.revision.as_ref().is_some_and(runs)
    };
    cluster.nodes.iter().filter(is_late).map(|node| &node.name[..]).collect()
}

/// Configuration revisions, one a line.
pub(super) fn revisions(kept: &[ClusterRevision]) -> String {
    if kept.is_empty() {
        return "no configuration was applied by `gatun cluster apply` yet\n".to_owned();
    }
    let mut rows = table(["revision", "applied at", "by", "asked node", "bytes", "outcome", "runs at"]);
    for one in kept {
        rows.add_row([
            one.number.to_string(),
            one.applied_at.clone(),
            one.applied_by.clone(),
            one.asked_node.clone(),
            one.bytes.to_string(),
            one.outcome.clone(),
            one.nodes.join(" "),
        ]);
    }
    format!("{rows}\n")
}

fn state(node: &ClusterNode) -> String {
    let this = if node.is_this { " (this node)" } else { "" };
    let what = match node.absent_ms {
        _ if node.is_gone => "gone".to_owned(),
        _ if node.is_registered && node.is_drained => "drained".to_owned(),
        _ if node.is_registered => "here".to_owned(),
        Some(ms) => format!("AWAY for {} s", ms / 1_000),
        None => "AWAY".to_owned(),
    };
    let unknown = if node.is_configured { "" } else { ", not in this configuration" };
    format!("{what}{unknown}{this}")
}

fn connection(node: &ClusterNode) -> String {
    match &node.connection {
        None => String::new(),
        Some(one) => match (one.connected_for_ms, &one.reason) {
            (Some(ms), _) => format!("for {} s", ms / 1_000),
            (None, Some(why)) => format!("NO: {why}"),
            (None, None) => "NO".to_owned(),
        },
    }
}

/// Shards, one a line.
pub(super) fn shards(cluster: &Cluster) -> String {
    if cluster.name.is_none() {
        return NO_CLUSTER.to_owned();
    }
    let mut rows = table(["shard", "owner", "backup", "state", "epoch", "this node", "addresses"]);
    for shard in &cluster.shards {
        let name = |of: &Option<String>| of.clone().unwrap_or_else(|| "-".to_owned());
        rows.add_row([
            shard.number.to_string(),
            name(&shard.owner),
            name(&shard.backup),
            shard.phase.map_or_else(|| "-".to_owned(), |phase| phase.to_string()),
            shard.epoch.to_string(),
            part(shard).to_owned(),
            shard.addresses.join(" "),
        ]);
    }
    format!("{rows}\n")
}

fn part(shard: &ClusterShard) -> &'static str {
    match (shard.part, shard.translates_for_ms) {
        (ShardPart::None | ShardPart::Other, _) => "",
        (_, None) => "has it, translates NOTHING",
        (ShardPart::Owner, _) if shard.assigns => "assigns all ports",
        (ShardPart::Owner, _) => "assigns own ports only",
        (ShardPart::Backup, _) if shard.phase == Some(BackupPhase::Ready) && !shard.is_synced => {
            "is sent sessions"
        }
        (ShardPart::Backup, _) => "backs it up",
    }
}

/// Events, one a line.
pub(super) fn events(events: &ClusterEvents) -> String {
    events.events.iter().map(|event| format!("{} {}\n", time::rfc3339(event.at_ms), event.what)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatun_api::types::{ClusterConfiguration, ClusterEvent, NodeConnection, NodeRevision, PeerCounters};

    fn cluster() -> Cluster {
        let node = |name: &str, is_registered, connection| ClusterNode {
            name: name.to_owned(),
            is_this: name == "a",
            is_configured: true,
            weight: 1,
            is_registered,
            absent_ms: (!is_registered).then_some(7_500),
            owned: 1,
            connection,
            ..ClusterNode::default()
        };
        let connection = NodeConnection {
            address: "10.0.0.2:7465".into(),
            connected_for_ms: None,
            reason: Some("cannot connect".into()),
            shards: 0,
            differences: vec!["pool.res.ports".into()],
            clock_difference_ms: Some(2_500),
            counters: PeerCounters { sessions_told: 12, ..PeerCounters::default() },
        };
        let shard = |number, owner: &str, phase, part| ClusterShard {
            number,
            addresses: vec![format!("192.0.2.{number}")],
            epoch: 4,
            owner: Some(owner.to_owned()),
            backup: Some("b".to_owned()),
            phase: Some(phase),
            part,
            assigns: part == ShardPart::Owner,
            translates_for_ms: Some(100).filter(|_| part != ShardPart::None),
            is_synced: true,
        };
        Cluster {
            state: ClusterState::Registered,
            name: Some("edge".into()),
            node: Some("a".into()),
            nodes: vec![node("a", true, None), node("b", false, Some(connection))],
            shards: vec![
                shard(0, "a", BackupPhase::Ready, ShardPart::Owner),
                shard(1, "b", BackupPhase::Filling, ShardPart::None),
            ],
            ..Cluster::default()
        }
    }

    #[test]
    fn the_status_names_what_is_wrong() {
        let text = status(&cluster());
        for part in [
            "node a of edge: owns 1 shard, backs up 0; 1 of 2 nodes here\n",
            "here (this node)",
            "AWAY for 7 s",
            "NO: cannot connect",
            "differs from node b: pool.res.ports\n",
            "\nthe clock of node b is 2.5 s ahead of that of this node\n",
            "1 shard without a holder that is here",
            "gatun cluster gone NODE",
            "1 shard without a backup that has all sessions\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let mut well = cluster();
        well.nodes[1].is_registered = true;
        well.nodes[1].connection.as_mut().unwrap().clock_difference_ms = Some(-900);
        assert!(!status(&well).contains("clock"));
        well.shards[1].phase = Some(BackupPhase::Ready);
        assert!(status(&well).ends_with("each shard has an owner and a backup\n"));
        well.state = ClusterState::WithoutEtcd;
        (well.etcd_error, well.etcd_failed_ms) = (Some("no answer".into()), Some(3_000));
        let text = status(&well);
        assert!(
            text.contains("goes on WITHOUT etcd") && text.contains("failed for 3 s: no answer"),
            "{text}"
        );
        assert_eq!(status(&Cluster::default()), NO_CLUSTER);
    }

    #[test]
    fn the_status_names_nodes_that_run_another_configuration() {
        let mut one = cluster();
        assert!(!status(&one).contains("configuration"), "there is no revision");
        one.nodes[1].is_registered = true;
        let of = |number, differs| NodeRevision { number, is_trial: false, differs, reason: None };
        one.nodes[0].revision = Some(of(Some(13), false));
        let reason = Some("cannot be written".to_owned());
        one.nodes[1].revision = Some(NodeRevision { reason, ..of(Some(12), true) });
        one.configuration = Some(ClusterConfiguration {
            number: 13,
            before: Some(12),
            stage: RevisionStage::Confirmed,
            seconds_left: None,
            needs_confirmation: true,
            changed_by: "uid 0".to_owned(),
            reason: None,
        });
        let text = status(&one);
        assert!(text.contains("configuration revision 13: confirmed by uid 0\n"), "{text}");
        assert!(text.contains("node b runs ANOTHER configuration: cannot be written\n"), "{text}");
        assert!(text.contains("12, DIFFERS"), "{text}");
        assert_eq!(late(&one, 13), ["b"]);
        // A node that is away takes it when it is back.
        one.nodes[1].is_registered = false;
        assert!(!status(&one).contains("ANOTHER"));
        assert_eq!(late(&one, 13), [""; 0]);
    }

    #[test]
    fn shards_and_events_are_lists() {
        let text = shards(&cluster());
        assert!(text.contains("assigns all ports") && text.contains("192.0.2.1"), "{text}");
        let list =
            ClusterEvents { events: vec![ClusterEvent { at_ms: 1_000, what: "node b is away".into() }] };
        assert_eq!(events(&list), "1970-01-01T00:00:01.000Z node b is away\n");
    }
}
