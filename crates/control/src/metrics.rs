//! Metrics for Prometheus. One list has every name and its meaning; the scraped text and the reference page
//! (docs/reference/metrics.md) are made from it. Names are stable.

mod cluster;
mod fast_paths;
mod kinds;
mod list;
mod peer;
mod read;

use crate::conversion::Names;
use crate::subscriber_totals::{BOUNDS, Distribution, SubscriberTotals};
use crate::{Facts, LogFigures};
use cluster::CLUSTER;
use fast_paths::FAST_PATHS;
use gatun_worker::Snapshot;
use list::METRICS;
use peer::PEER;
use std::fmt::Write as _;
use std::sync::Arc;

/// Input of a scrape.
pub(crate) struct Scrape {
    pub(crate) version: &'static str,
    pub(crate) uptime_seconds: u64,
    pub(crate) facts: Arc<Facts>,
    /// Counters by worker; `None` for a worker that does not answer.
    pub(crate) workers: Vec<Option<Snapshot>>,
    pub(crate) figures: LogFigures,
    pub(crate) fastpath: gatun_api::types::FastPath,
    pub(crate) offload: gatun_api::types::Offload,
    pub(crate) health: gatun_api::types::Health,
    pub(crate) peer: gatun_api::types::Peer,
    pub(crate) cluster: gatun_api::types::Cluster,
    /// Clients refused over TCP, if it is configured: reason and number.
    pub(crate) clients_refused: Vec<(&'static str, u64)>,
    /// `None` if a worker does not answer.
    pub(crate) subscribers: Option<Subscribers>,
}

/// Subscribers' figures, and the names of their instances.
pub(crate) struct Subscribers {
    pub(crate) names: Names,
    pub(crate) totals: SubscriberTotals,
}

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Only grows.
    Counter,
    /// Grows and shrinks.
    Gauge,
    /// Buckets of current values, which shrink as well.
    Histogram,
}

impl Kind {
    /// Returns the type's name; OpenMetrics has a type for histograms that shrink.
    fn name(self, openmetrics: bool) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram if openmetrics => "gaugehistogram",
            Kind::Histogram => "histogram",
        }
    }
}

/// A metric. Its name lacks the prefix `gatun_`, and a counter's name the suffix `_total`.
struct Metric {
    name: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    help: &'static str,
    read: fn(&View<'_>, &mut Samples<'_>),
}

/// A scrape and its sums.
struct View<'s> {
    scrape: &'s Scrape,
    total: Snapshot,
}

impl View<'_> {
    fn workers(&self) -> impl Iterator<Item = (String, &Snapshot)> {
        let numbered = self.scrape.workers.iter().enumerate();
        numbered.filter_map(|(number, snapshot)| Some((number.to_string(), snapshot.as_ref()?)))
    }
}

/// Writer of a metric's values.
struct Samples<'t> {
    text: &'t mut String,
    name: String,
    labels: &'static [&'static str],
    openmetrics: bool,
}

impl Samples<'_> {
    /// A distribution's buckets, sum and count.
    fn distribution(&mut self, distribution: &Distribution) {
        let (sum, count) = if self.openmetrics { ("gsum", "gcount") } else { ("sum", "count") };
        let bounds = BOUNDS.iter().map(u64::to_string).chain(["+Inf".to_owned()]);
        let mut all = 0;
        for (bound, value) in bounds.zip(distribution.cumulative()) {
            let _ = writeln!(self.text, "{}_bucket{{le=\"{bound}\"}} {value}", self.name);
            all = value;
        }
        let _ = writeln!(self.text, "{}_{sum} {}\n{}_{count} {all}", self.name, distribution.sum, self.name);
    }

    /// Adds a value with the values of its labels, in the labels' order.
    fn add(&mut self, values: &[&str], value: impl std::fmt::Display) {
        debug_assert_eq!(values.len(), self.labels.len(), "{}", self.name);
        self.text.push_str(&self.name);
        for (n, (label, text)) in self.labels.iter().zip(values).enumerate() {
            self.text.push(if n == 0 { '{' } else { ',' });
            let _ = write!(self.text, "{label}=\"");
            for c in text.chars() {
                match c {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    c => self.text.push(c),
                }
            }
            self.text.push('"');
        }
        if !values.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

/// All metrics.
fn all() -> impl Iterator<Item = &'static Metric> {
    METRICS.iter().chain(FAST_PATHS).chain(PEER).chain(CLUSTER)
}

/// The text of a scrape.
pub(crate) fn render(scrape: &Scrape, openmetrics: bool) -> String {
    let mut total = Snapshot::default();
    scrape.workers.iter().flatten().for_each(|snapshot| total += snapshot);
    let view = View { scrape, total };
    let mut text = String::with_capacity(64 << 10);
    for metric in all() {
        let family = format!("gatun_{}", metric.name);
        let name = match metric.kind {
            Kind::Counter => format!("{family}_total"),
            Kind::Gauge | Kind::Histogram => family.clone(),
        };
        let of = if openmetrics { &family } else { &name };
        let kind = metric.kind.name(openmetrics);
        let _ = writeln!(text, "# HELP {of} {}\n# TYPE {of} {kind}", metric.help);
        let labels = metric.labels;
        (metric.read)(&view, &mut Samples { text: &mut text, name, labels, openmetrics });
    }
    if openmetrics {
        text.push_str("# EOF\n");
    }
    text
}

/// The reference page, in Markdown.
pub fn reference() -> String {
    let mut page = "# Metrics\n\n\
        `GET /metrics` on the API's socket, and on TCP if `[metrics] listen` is set. This page is generated from the code; names are\n\
        stable. Counters start at zero with the process. Packets are those that the translator sees (a super-packet counts as\n\
        one); bytes count from the IP header. A worker that does not answer within two seconds has `gatun_worker_up` 0 and is\n\
        missing from everything else.\n\n\
        | metric | type | labels | meaning |\n|---|---|---|---|\n"
        .to_owned();
    for metric in all() {
        let end = if metric.kind == Kind::Counter { "_total" } else { "" };
        let kind = metric.kind.name(false);
        let labels = metric.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        let _ = writeln!(page, "| `gatun_{}{end}` | {kind} | {labels} | {} |", metric.name, metric.help);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ExportFigures, StoreFigures};

    fn scrape() -> Scrape {
        let facts = Facts { sessions_max: 7, subscribers_max: 8, ..Facts::default() };
        let workers = vec![Some(Snapshot { backend_name: "a\"b\\".into(), ..Snapshot::default() }), None];
        let export = ExportFigures { name: "siem".into(), sent: 5, lost: 2, ..ExportFigures::default() };
        let store = Some(StoreFigures { records: 9, ..StoreFigures::default() });
        let figures = LogFigures { exports: vec![export], store };
        Scrape {
            version: "1.2.3",
            uptime_seconds: 5,
            facts: Arc::new(facts),
            workers,
            figures,
            fastpath: gatun_api::types::FastPath::default(),
            offload: gatun_api::types::Offload::default(),
            health: gatun_api::types::Health::default(),
            peer: pair(),
            cluster: gatun_api::types::Cluster::default(),
            clients_refused: vec![("role", 3)],
            subscribers: Some(Subscribers { names: Names::default(), totals: SubscriberTotals::default() }),
        }
    }

    fn pair() -> gatun_api::types::Peer {
        use gatun_api::types::{Peer, PeerMember, PeerShard, PeerState};
        let shard = |owner| PeerShard { owner, epoch: 3, addresses: vec!["192.0.2.1".to_owned()] };
        Peer {
            state: PeerState::Syncing,
            member: Some(PeerMember::B),
            connected_for_ms: Some(1_500),
            shards: vec![shard(PeerMember::A), shard(PeerMember::B)],
            clock_difference_ms: Some(-1_250),
            certificate_end_s: Some(1_777_000_000),
            ..Peer::default()
        }
    }

    #[test]
    fn a_pair_has_values_and_a_single_box_only_says_that_it_is_none() {
        let mut scrape = scrape();
        let text = render(&scrape, false);
        for line in [
            "gatun_peer_wanted 1",
            "gatun_peer_connected 1",
            "gatun_peer_connected_seconds 1.500",
            "gatun_peer_settled 1",
            "gatun_peer_synced 0",
            "gatun_peer_shard_owned{shard=\"0\"} 0",
            "gatun_peer_shard_owned{shard=\"1\"} 1",
            "gatun_peer_shard_epoch{shard=\"1\"} 3",
            "gatun_peer_clock_difference_seconds -1.250",
            "gatun_peer_certificate_end_seconds 1777000000",
        ] {
            assert!(text.contains(&format!("\n{line}\n")), "{line}: {text}");
        }
        scrape.peer = gatun_api::types::Peer::default();
        let text = render(&scrape, false);
        let values: Vec<_> = text.lines().filter(|line| line.starts_with("gatun_peer_")).collect();
        assert_eq!(values, ["gatun_peer_wanted 0"]);
    }

    #[test]
    fn a_cluster_has_values_and_a_single_box_only_says_that_it_is_none() {
        use gatun_api::types::{
            BackupPhase, Cluster, ClusterConfiguration, ClusterNode, ClusterShard, ClusterState,
            NodeConnection, NodeRevision, PeerCounters, RevisionStage, ShardPart,
        };
        let node = |name: &str, is_registered| ClusterNode {
            name: name.to_owned(),
            is_this: name == "a",
            is_configured: true,
            weight: 1,
            is_registered,
            ..ClusterNode::default()
        };
        let shard = |number, owner: &str, part, phase| ClusterShard {
            number,
            addresses: Vec::new(),
            epoch: 1,
            owner: Some(owner.to_owned()),
            backup: Some("c".to_owned()),
            phase,
            part,
            assigns: part == ShardPart::Owner,
            translates_for_ms: None,
            is_synced: false,
        };
        let mut scrape = scrape();
        scrape.cluster = Cluster {
            state: ClusterState::WithoutEtcd,
            etcd_failed_ms: Some(2_500),
            nodes: vec![
                node("a", true),
                node("b", false),
                node("c", false),
                ClusterNode { is_configured: false, ..node("removed", false) },
            ],
            shards: vec![
                shard(0, "a", ShardPart::Owner, Some(BackupPhase::Ready)),
                shard(1, "b", ShardPart::None, Some(BackupPhase::Filling)),
            ],
            ..Cluster::default()
        };
        let of = |number, differs| NodeRevision { number, is_trial: false, differs, reason: None };
        scrape.cluster.nodes[0].revision = Some(of(Some(12), true));
        // It is away.
        scrape.cluster.nodes[1].revision = Some(of(Some(11), true));
        scrape.cluster.nodes[1].connection = Some(NodeConnection {
            address: String::new(),
            connected_for_ms: Some(1),
            reason: None,
            shards: 2,
            differences: Vec::new(),
            clock_difference_ms: Some(86_400_000),
            counters: PeerCounters { records_waiting: 7, ..PeerCounters::default() },
        });
        scrape.cluster.configuration = Some(ClusterConfiguration {
            number: 13,
            before: Some(12),
            stage: RevisionStage::Confirmed,
            seconds_left: None,
            needs_confirmation: false,
            changed_by: String::new(),
            reason: None,
        });
        let text = render(&scrape, false);
        for line in [
            "gatun_cluster_revision 13",
            "gatun_cluster_node_revision{node=\"b\"} 11",
            "gatun_cluster_node_revision_difference{node=\"a\"} 1",
            "gatun_cluster_node_clock_difference_seconds{node=\"b\"} 86400.000",
            "gatun_cluster_wanted 1",
            "gatun_cluster_registered 0",
            "gatun_cluster_etcd_failed_seconds 2.500",
            "gatun_cluster_owned_shards 1",
            "gatun_cluster_assigning_shards 1",
            "gatun_cluster_unbacked_shards 1",
            "gatun_cluster_orphan_shards 1",
            "gatun_cluster_node_registered{node=\"a\"} 1",
            "gatun_cluster_node_registered{node=\"b\"} 0",
            "gatun_cluster_waiting_records{node=\"b\"} 7",
        ] {
            assert!(text.contains(&format!("\n{line}\n")), "{line}: {text}");
        }
        assert!(!text.contains("gatun_cluster_node_registered{node=\"removed\"}"), "{text}");
        assert!(!text.contains("gatun_cluster_node_revision_difference{node=\"b\"}"), "{text}");
        scrape.cluster = Cluster::default();
        let text = render(&scrape, false);
        let values: Vec<_> = text.lines().filter(|line| line.starts_with("gatun_cluster_")).collect();
        assert_eq!(values, ["gatun_cluster_wanted 0"]);
    }

    #[test]
    fn every_metric_is_written_once_with_its_help_and_type() {
        let mut names: Vec<&str> = all().map(|metric| metric.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all().count());
        let scrape = scrape();
        let text = render(&scrape, false);
        for metric in all() {
            let end = if metric.kind == Kind::Counter { "_total" } else { "" };
            let named = format!("# TYPE gatun_{}{end} ", metric.name);
            assert_eq!(text.matches(&named).count(), 1, "{named}");
        }
        assert!(
            text.contains("gatun_worker_up{worker=\"0\"} 1\ngatun_worker_up{worker=\"1\"} 0\n"),
            "{text}"
        );
        assert!(
            text.contains(r#"gatun_device_packets_total{worker="0",device="a\"b\\",direction="sent"} 0"#),
            "{text}"
        );
        assert!(text.contains("gatun_drops_total{direction=\"v6>v4\",reason=\"no_bib\"} 0\n"));
        assert!(text.contains("gatun_export_lost_events_total{export=\"siem\"} 2\n"), "{text}");
        assert!(text.contains("gatun_log_records 9\n") && text.contains("gatun_log_writable 0\n"), "{text}");
        assert!(text.contains("gatun_api_clients_refused_total{reason=\"role\"} 3\n"), "{text}");
        let buckets = "gatun_subscriber_sessions_bucket{le=\"+Inf\"} 0\ngatun_subscriber_sessions_sum 0\n";
        assert!(text.contains(buckets), "{text}");
        assert!(text.contains("gatun_sessions_max 7\n") && !text.contains("# EOF"));
        let open = render(&scrape, true);
        assert!(open.ends_with("# EOF\n") && open.contains("# TYPE gatun_drops counter\n"), "{open}");
    }

    #[test]
    fn the_reference_page_is_as_published() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/metrics.md");
        if std::env::var_os("GATUN_BLESS").is_some() {
            std::fs::write(path, reference()).unwrap();
        }
        let published = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(published, reference(), "GATUN_BLESS=1 writes it anew");
    }

    /// Runs promtool and asserts that it finds no fault.
    fn promtool(args: &[&str], input: &str) {
        use std::io::Write as _;
        use std::process::{Command, Stdio};
        let Some(promtool) = gatun_testkit::find_program("promtool") else {
            return gatun_testkit::skip("the program `promtool` is missing (Debian: prometheus)");
        };
        let run = Command::new(promtool).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut run = run.unwrap();
        run.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = run.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    #[test]
    fn promtool_accepts_the_metrics() {
        promtool(&["check", "metrics"], &render(&scrape(), false));
    }

    #[test]
    fn alerts_fire_and_name_existing_metrics() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/prometheus/");
        promtool(&["test", "rules", &format!("{directory}alerts_test.yml")], "");
        let alerts = std::fs::read_to_string(format!("{directory}alerts.yml")).unwrap();
        let cases = std::fs::read_to_string(format!("{directory}alerts_test.yml")).unwrap();
        let cases: Vec<&str> = cases.split("- alertname: ").skip(1).collect();
        for alert in alerts.split("- alert: ").skip(1).map(|alert| alert.split_whitespace().next().unwrap()) {
            let fires =
                |case: &&str| case.split_whitespace().next() == Some(alert) && case.contains("exp_labels");
            assert!(cases.iter().any(fires), "no case of alerts_test.yml lets {alert} fire");
        }
        let text = render(&scrape(), false);
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let used = alerts.split(|c| !is_name(c)).filter(|word| word.starts_with("gatun_"));
        for name in used {
            assert!(text.contains(&format!("# TYPE {name} ")), "there is no {name}");
        }
    }

    /// Collects every PromQL expression of a dashboard.
    fn expressions(value: &serde_json::Value, found: &mut Vec<String>) {
        match value {
            serde_json::Value::Array(all) => all.iter().for_each(|one| expressions(one, found)),
            serde_json::Value::Object(fields) => {
                found.extend(fields.get("expr").and_then(|expr| expr.as_str()).map(str::to_owned));
                fields.values().for_each(|one| expressions(one, found));
            }
            _ => {}
        }
    }

    #[test]
    fn the_dashboards_queries_are_valid_and_name_existing_metrics() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/grafana/gatun.json");
        let board: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let mut all = Vec::new();
        expressions(&board, &mut all);
        assert!(all.len() > 40, "{}", all.len());
        let text = render(&scrape(), false);
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let mut rules = "groups:\n  - name: dashboard\n    rules:\n".to_owned();
        for (n, expr) in all.iter().enumerate() {
            for name in expr.split(|c| !is_name(c)).filter(|word| word.starts_with("gatun_")) {
                let name = name.strip_suffix("_bucket").unwrap_or(name);
                assert!(text.contains(&format!("# TYPE {name} ")), "there is no {name}: {expr}");
            }
            // Replace Grafana's variables as Grafana does.
            let plain =
                expr.replace("$__rate_interval", "2m").replace("$job", "gatun").replace("$host", "a:1");
            assert!(!plain.contains('$'), "{expr}");
            let quoted = serde_json::Value::from(plain);
            let _ = writeln!(rules, "      - record: dashboard:{n}\n        expr: {quoted}");
        }
        let file = std::env::temp_dir().join(format!("gatun-dashboard-{}.yml", std::process::id()));
        std::fs::write(&file, rules).unwrap();
        promtool(&["check", "rules", file.to_str().unwrap()], "");
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn the_dashboard_has_a_row_for_each_group_of_metrics() {
        let board: serde_json::Value =
            serde_json::from_str(include_str!("../../../packaging/grafana/gatun.json")).unwrap();
        let panels = board["panels"].as_array().unwrap();
        let rows: Vec<_> =
            panels.iter().filter(|panel| panel["type"] == "row").map(|row| &row["title"]).collect();
        for wanted in [
            "Traffic",
            "Drops",
            "Sessions",
            "Subscribers",
            "Pools",
            "Instances",
            "Workers",
            "Ports",
            "Log and collectors",
            "Kernel fast path",
            "P4 switches",
            "Health and announced routes",
            "Pair of boxes",
        ] {
            assert!(rows.iter().any(|row| *row == wanted), "{wanted}");
        }
        // Panels do not overlap.
        let mut taken = std::collections::BTreeSet::new();
        let mut ids = std::collections::BTreeSet::new();
        for panel in panels {
            let at = |name: &str| panel["gridPos"][name].as_u64().unwrap();
            assert!(at("x") + at("w") <= 24, "{panel}");
            for (x, y) in
                (at("x")..at("x") + at("w")).flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y)))
            {
                assert!(taken.insert((x, y)), "{panel}");
            }
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        }
        // Metrics of each kind are shown.
        let text = board.to_string();
        for metric in all().filter(|metric| !metric.labels.is_empty()) {
            let group = metric.name.split('_').next().unwrap();
            assert!(
                group == "api" || group == "build" || text.contains(&format!("gatun_{group}_")),
                "{group}"
            );
        }
    }
}
