//! Conditions that need attention, for `status`, `top`, `doctor` and the web page.

use crate::{ExportFigures, LogFigures, StoreFigures};
use gatun_api::types::{
    Cluster, ClusterNode, ClusterState, Part, Peer, PeerState, RENEW_DAYS, RevisionStage, Trouble, Urgency,
    days_until,
};
use gatun_wire::text::{counted, group};

/// Time for which etcd may fail before that is a trouble: an election takes some seconds, ms.
const ETCD_FAILED_MS: u64 = 10_000;

/// Consequence of clocks that differ.
const CLOCKS: &str = "`gatun who` may name another subscriber";

/// Lists the troubles of a daemon with so many workers, the worst first. `others` holds troubles that are
/// already known.
pub(crate) fn of(
    workers: usize,
    (silent, packets_accounted): (usize, bool),
    figures: &LogFigures,
    others: Vec<Trouble>,
) -> Vec<Trouble> {
    let mut found = others;
    let mut add = |urgency, part, what: String| found.push(Trouble { urgency, part, what });
    if silent > 0 {
        let (of, verb) = (counted(workers as u64, "worker"), if silent == 1 { "does" } else { "do" });
        let what = format!("{silent} of {of} {verb} not answer: the figures are incomplete");
        add(Urgency::Bad, Part::Workers, what);
    } else if !packets_accounted {
        let what = "some packets are not accounted for: this is a defect, please report it";
        add(Urgency::Bad, Part::Account, what.to_owned());
    }
    figures.store.iter().for_each(|store| of_log(store, &mut add));
    figures.exports.iter().for_each(|export| of_export(export, &mut add));
    found.sort_by_key(|trouble| trouble.urgency);
    found
}

/// Lists the troubles of a pair of boxes. `now_s` is the time, seconds since 1970.
pub(crate) fn of_peer(peer: &Peer, now_s: u64) -> Vec<Trouble> {
    let mut found = Vec::new();
    let mut add = |urgency, what: String| found.push(Trouble { urgency, part: Part::Peer, what });
    let why = peer.reason.as_ref().map_or_else(String::new, |why| format!(": {why}"));
    match peer.state {
        PeerState::Waiting => {
            let what = "this box waits for the sessions of the other box of the pair, and assigns no ports";
            add(Urgency::Bad, format!("{what}{why}"));
        }
        PeerState::Alone if peer.peer_gone => {
            add(
                Urgency::Warning,
                "the other box of the pair is declared gone: nothing backs this one".to_owned(),
            );
        }
        PeerState::Alone => add(Urgency::Bad, format!("the other box of the pair is not connected{why}")),
        _ if peer.reason.is_some() => {
            add(Urgency::Bad, format!("the other box of the pair gets no sessions{why}"));
        }
        _ => {}
    }
    if !peer.differences.is_empty() {
        let keys = peer.differences.join(", ");
        add(Urgency::Warning, format!("the configurations of both boxes of the pair differ: {keys}"));
    }
    let clock = peer.clock_fault();
    clock.into_iter().for_each(|fault| add(Urgency::Warning, format!("{fault}: {CLOCKS}")));
    let what = "the certificate of the pair";
    found.extend(of_certificate(peer.certificate_end_s, now_s, (Part::Peer, what, "gatun peer renew")));
    found
}

/// Trouble of a certificate that ends soon.
fn of_certificate(
    end_s: Option<u64>,
    now_s: u64,
    (part, whose, command): (Part, &str, &str),
) -> Option<Trouble> {
    let (urgency, end) = match days_until(end_s?, now_s) {
        None => (Urgency::Bad, "has ended".to_owned()),
        Some(days) if days < RENEW_DAYS => (Urgency::Warning, format!("ends in {}", counted(days, "day"))),
        Some(_) => return None,
    };
    Some(Trouble { urgency, part, what: format!("{whose} {end}: use `{command}`") })
}

/// Lists the troubles of a node of a cluster. `now_s` is the time, seconds since 1970.
pub(crate) fn of_cluster(cluster: &Cluster, now_s: u64) -> Vec<Trouble> {
    if cluster.state == ClusterState::Off {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut add = |urgency, what: String| found.push(Trouble { urgency, part: Part::Cluster, what });
    let why = cluster.reason.as_ref().map_or_else(String::new, |why| format!(": {why}"));
    match cluster.state {
        ClusterState::Waiting => add(Urgency::Bad, format!("this node translates nothing{why}")),
        ClusterState::Double => add(Urgency::Bad, "another box has the name of this node".to_owned()),
        ClusterState::Stopped => add(Urgency::Bad, format!("this node does nothing for the cluster{why}")),
        _ if cluster.reason.is_some() => {
            add(Urgency::Bad, format!("the other nodes get no sessions{why}"));
        }
        _ => {}
    }
    if let (Some(error), Some(ms)) = (&cluster.etcd_error, cluster.etcd_failed_ms)
        && ms >= ETCD_FAILED_MS
    {
        let what = format!("etcd has failed for {} s: {error}; nothing can move", ms / 1_000);
        add(Urgency::Bad, what);
    }
    for node in cluster.away() {
        let ms = node.absent_ms.map_or_else(String::new, |ms| format!(" for {} s", ms / 1_000));
        add(Urgency::Bad, format!("node {} is away{ms}", node.name));
    }
    let shards = |count: usize| counted(count as u64, "shard");
    match (cluster.orphans().count(), cluster.unbacked().count()) {
        (0, 0) => {}
        (0, unbacked) => {
            let what = format!("{} without a backup that has all sessions", shards(unbacked));
            add(Urgency::Warning, what);
        }
        (orphans, _) => add(Urgency::Bad, format!("{} without a holder that is here", shards(orphans))),
    }
    let connections = cluster.nodes.iter().filter_map(|node| Some((node, node.connection.as_ref()?)));
    for (node, connection) in connections {
        if !connection.differences.is_empty() {
            let keys = connection.differences.join(", ");
            add(Urgency::Bad, format!("the configuration differs from that of node {}: {keys}", node.name));
        } else if node.is_registered && connection.connected_for_ms.is_none() {
            let why = connection.reason.as_ref().map_or_else(String::new, |why| format!(": {why}"));
            add(Urgency::Warning, format!("node {} is not connected{why}", node.name));
        }
    }
    for fault in cluster.nodes.iter().filter_map(ClusterNode::clock_fault) {
        add(Urgency::Warning, format!("{fault}: {CLOCKS}"));
    }
    // On trial, each node has its turn.
    if cluster.configuration.as_ref().is_some_and(|one| one.stage != RevisionStage::Trial) {
        for node in cluster.differing() {
            let why = node.revision.as_ref().and_then(|one| one.reason.as_ref());
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            add(
                Urgency::Bad,
                format!("node {} does not run the configuration of the cluster{why}", node.name),
            );
        }
    }
    let what = (Part::Cluster, "the certificate of this node", "gatun cluster renew");
    found.extend(of_certificate(cluster.certificate_end_s, now_s, what));
    found
}

fn of_log(store: &StoreFigures, add: &mut impl FnMut(Urgency, Part, String)) {
    if let Some(error) = &store.error {
        let waiting = counted(store.waiting, "record");
        add(Urgency::Bad, Part::Log, format!("the log cannot be written: {error}; {waiting} waiting"));
    }
    if store.lost > 0 {
        let events = counted(store.lost, "event");
        add(Urgency::Warning, Part::Log, format!("the log has lost {events} since the start"));
    }
}

fn of_export(export: &ExportFigures, add: &mut impl FnMut(Urgency, Part, String)) {
    let ExportFigures { name, lost, waiting, .. } = export;
    if !export.is_connected && (*waiting > 0 || export.spooled_bytes > 0) {
        let what = format!("collector {name} does not accept events: {} waiting in memory", group(*waiting));
        add(Urgency::Warning, Part::Export, what);
    }
    if *lost > 0 {
        let events = counted(*lost, "event");
        add(Urgency::Warning, Part::Export, format!("collector {name} has missed {events} since the start"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_S: u64 = 86_400;

    #[test]
    fn a_pair_that_does_not_work_is_a_trouble() {
        let of = |peer: &Peer| {
            let found = of_peer(peer, 20 * DAY_S);
            found.into_iter().map(|trouble| (trouble.urgency, trouble.what)).collect::<Vec<_>>()
        };
        assert_eq!(of(&Peer::default()), []);
        let mut peer =
            Peer { state: PeerState::Synced, certificate_end_s: Some(40 * DAY_S), ..Peer::default() };
        assert_eq!(of(&peer), []);
        peer.state = PeerState::Alone;
        peer.reason = Some("connection refused".into());
        let what = "the other box of the pair is not connected: connection refused";
        assert_eq!(of(&peer), [(Urgency::Bad, what.to_owned())]);
        peer.peer_gone = true;
        assert_eq!(of(&peer)[0].0, Urgency::Warning);
        peer.state = PeerState::Waiting;
        assert!(of(&peer)[0].1.contains("assigns no ports"));
        peer.state = PeerState::Syncing;
        peer.reason = Some("disk full".into());
        assert_eq!(of(&peer)[0].1, "the other box of the pair gets no sessions: disk full");
        let clock = Peer { state: PeerState::Synced, clock_difference_ms: Some(-3_000), ..Peer::default() };
        let what = "the clock of the other box is 3.0 s behind that of this box: \
                    `gatun who` may name another subscriber";
        assert_eq!(of(&clock), [(Urgency::Warning, what.to_owned())]);
        let mut peer =
            Peer { state: PeerState::Synced, certificate_end_s: Some(21 * DAY_S), ..Peer::default() };
        peer.differences = vec!["workers".into()];
        let texts: Vec<_> = of(&peer).into_iter().map(|(_, what)| what).collect();
        let keys = "the configurations of both boxes of the pair differ: workers";
        let end = "the certificate of the pair ends in 1 day: use `gatun peer renew`";
        assert_eq!(texts, [keys, end]);
        peer.certificate_end_s = Some(19 * DAY_S);
        assert_eq!(of(&peer)[1].0, Urgency::Bad);
    }

    #[test]
    fn a_cluster_that_does_not_work_is_a_trouble() {
        use gatun_api::types::{
            BackupPhase, ClusterNode, ClusterShard, NodeConnection, PeerCounters, ShardPart,
        };
        let of = |cluster: &Cluster| {
            let found = of_cluster(cluster, 20 * DAY_S);
            found.into_iter().map(|trouble| (trouble.urgency, trouble.what)).collect::<Vec<_>>()
        };
        assert_eq!(of(&Cluster::default()), []);
        let connection = NodeConnection {
            address: "10.0.0.2:7465".into(),
            connected_for_ms: Some(5),
            reason: None,
            shards: 1,
            differences: Vec::new(),
            clock_difference_ms: Some(-1_000),
            counters: PeerCounters::default(),
        };
        let node = |name: &str, connection| ClusterNode {
            name: name.to_owned(),
            is_this: name == "a",
            is_configured: true,
            weight: 1,
            is_registered: true,
            owned: 1,
            connection,
            ..ClusterNode::default()
        };
        let shard = ClusterShard {
            number: 0,
            addresses: Vec::new(),
            epoch: 1,
            owner: Some("a".into()),
            backup: Some("b".into()),
            phase: Some(BackupPhase::Ready),
            part: ShardPart::Owner,
            assigns: true,
            translates_for_ms: Some(9),
            is_synced: true,
        };
        let well = Cluster {
            state: ClusterState::Registered,
            nodes: vec![node("a", None), node("b", Some(connection))],
            shards: vec![shard],
            ..Cluster::default()
        };
        assert_eq!(of(&well), []);
        let mut cluster = well.clone();
        cluster.state = ClusterState::WithoutEtcd;
        (cluster.etcd_error, cluster.etcd_failed_ms) = (Some("no answer".into()), Some(9_999));
        assert_eq!(of(&cluster), []);
        cluster.etcd_failed_ms = Some(12_000);
        let what = "etcd has failed for 12 s: no answer; nothing can move";
        assert_eq!(of(&cluster), [(Urgency::Bad, what.to_owned())]);
        let mut cluster = well.clone();
        cluster.nodes[1].connection.as_mut().unwrap().clock_difference_ms = Some(86_400_000);
        let what = "the clock of node b is 86400 s ahead of that of this node: \
                    `gatun who` may name another subscriber";
        assert_eq!(of(&cluster), [(Urgency::Warning, what.to_owned())]);
        let mut cluster = well.clone();
        cluster.nodes[1].connection.as_mut().unwrap().connected_for_ms = None;
        assert_eq!(of(&cluster), [(Urgency::Warning, "node b is not connected".to_owned())]);
        cluster.nodes[1].connection.as_mut().unwrap().differences = vec!["pool.res.ports".into()];
        assert!(of(&cluster)[0].1.ends_with("that of node b: pool.res.ports"));
        (cluster.nodes[1].is_registered, cluster.nodes[1].absent_ms) = (false, Some(7_000));
        cluster.nodes[1].connection = None;
        cluster.shards[0].phase = Some(BackupPhase::Filling);
        let bad = (Urgency::Bad, "node b is away for 7 s".to_owned());
        let warning = (Urgency::Warning, "1 shard without a backup that has all sessions".to_owned());
        assert_eq!(of(&cluster), [bad, warning]);
        cluster.nodes[0].is_registered = false;
        assert!(of(&cluster).iter().any(|(_, what)| what == "1 shard without a holder that is here"));
        let mut cluster = well;
        (cluster.state, cluster.reason) = (ClusterState::Waiting, Some("it waits for etcd".into()));
        assert_eq!(
            of(&cluster),
            [(Urgency::Bad, "this node translates nothing: it waits for etcd".to_owned())]
        );
        (cluster.state, cluster.reason) = (ClusterState::Registered, None);
        cluster.certificate_end_s = Some(21 * DAY_S);
        assert!(of(&cluster)[0].1.contains("ends in 1 day: use `gatun cluster renew`"));
    }

    #[test]
    fn troubles_name_their_cause_and_the_worst_is_first() {
        let well = StoreFigures { is_writable: true, records: 9, ..StoreFigures::default() };
        let taken =
            ExportFigures { name: "siem".into(), is_connected: true, sent: 5, ..ExportFigures::default() };
        let figures = LogFigures { exports: vec![taken.clone()], store: Some(well.clone()) };
        assert_eq!(of(2, (0, true), &figures, Vec::new()), []);
        // Before the first write after a start, nothing has failed.
        let starting = LogFigures { store: Some(StoreFigures::default()), ..LogFigures::default() };
        assert_eq!(of(1, (0, true), &starting, Vec::new()), []);
        let full = StoreFigures {
            error: Some("No space left on device (os error 28)".into()),
            is_writable: false,
            waiting: 1234,
            lost: 1,
            ..well
        };
        let away = ExportFigures { is_connected: false, waiting: 7, lost: 2, ..taken };
        let figures = LogFigures { exports: vec![away], store: Some(full) };
        let found = of(3, (1, false), &figures, Vec::new());
        let texts: Vec<_> = found.iter().map(|t| (t.urgency, t.part, &t.what[..])).collect();
        assert_eq!(
            texts,
            [
                (Urgency::Bad, Part::Workers, "1 of 3 workers does not answer: the figures are incomplete"),
                (
                    Urgency::Bad,
                    Part::Log,
                    "the log cannot be written: No space left on device (os error 28); 1,234 records waiting"
                ),
                (Urgency::Warning, Part::Log, "the log has lost 1 event since the start"),
                (
                    Urgency::Warning,
                    Part::Export,
                    "collector siem does not accept events: 7 waiting in memory"
                ),
                (Urgency::Warning, Part::Export, "collector siem has missed 2 events since the start"),
            ]
        );
        let found = of(1, (0, false), &LogFigures::default(), Vec::new());
        assert_eq!((found.len(), found[0].part), (1, Part::Account));
    }
}
