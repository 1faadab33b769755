//! Checks of a node of a cluster: etcd, other nodes, shards, configurations, certificate, ways of packets.

use super::Finding;
use super::peer::{certificate, clocks};
use super::sample::{Counted, PACKETS_MIN, sample};
use gatun_api::client::Client;
use gatun_api::types::{Cluster, ClusterNode, ClusterState, Pool, RevisionStage, Status};
use gatun_config::{ClusterNode as Node, Config};
use gatun_netlink::Prefix;
use gatun_netlink::query::{RouteResult, way_to};
use gatun_wire::text::{counted, group};

const CHECK: &str = "cluster";
const STATUS: &str = "gatun cluster status";
/// Share of redirected packets among those from outside, as a divisor: a tenth makes these packets an eighth
/// more expensive (decision 0108). A smaller share may be by design: hairpinned packets to hosts of other
/// nodes.
const REDIRECTED_SHARE: u64 = 10;

/// Findings about `[cluster]`, if the configuration has it and the daemon runs.
pub(super) fn examine(client: &Client, config: &Config) -> Vec<Finding> {
    let (Some(section), Ok(cluster)) = (&config.cluster, client.get::<Cluster>("/v1/cluster")) else {
        return Vec::new();
    };
    let mut findings = of_state(&cluster);
    findings.extend(misrouted(client));
    let others = section.nodes.iter().filter(|node| cluster.node.as_ref() != Some(&node.name));
    findings.extend(others.filter_map(|node| lost(config, node)));
    findings.extend(unannounced(config));
    findings
}

/// Findings about the state of the cluster.
fn of_state(cluster: &Cluster) -> Vec<Finding> {
    let mut findings = vec![state(cluster)];
    findings.extend(etcd(cluster));
    findings.extend(nodes(cluster));
    let faults = cluster.nodes.iter().filter_map(ClusterNode::clock_fault);
    findings.extend(faults.map(|fault| clocks(CHECK, &fault)));
    findings.extend(shards(cluster));
    findings.extend(revisions(cluster));
    let renew =
        "gatun cluster renew AUTHORITY NODE /etc/gatun/cluster, then reload: see docs/how-to/cluster.md";
    findings.extend(cluster.certificate_end_s.map(|end| certificate((CHECK, "of this node"), end, renew)));
    findings
}

/// Finding about a configuration by which routers do not learn which node has which addresses.
fn unannounced(config: &Config) -> Option<Finding> {
    let what = "no [announce]: routers do not learn which node has which public addresses";
    let fix = "[announce]: see docs/how-to/announce.md";
    config.announce.is_none().then(|| Finding::note(CHECK, what, fix))
}

/// Finding about a node to whose tunnel address no route leads: of the kernel behind a TUN device, of a port
/// on an Ethernet.
fn lost(config: &Config, node: &Node) -> Option<Finding> {
    let (to, via) = (node.tunnel, node.peer.ip());
    let ethernet = || config.ports.iter().filter_map(|port| Some((port, port.ethernet.as_ref()?)));
    let (has_way, fix) = match ethernet().next() {
        None => {
            let by_kernel = matches!(way_to(to), Ok(RouteResult::By(_)));
            (by_kernel, format!("ip route add {to} via {via}"))
        }
        Some(_) => {
            let host = Prefix { addr: to, len: if to.is_ipv4() { 32 } else { 128 } };
            let by_port = ethernet().any(|(port, ethernet)| {
                ethernet.routes.iter().any(|route| route.to.contains(to))
                    || port.addresses.iter().any(|&(addr, len)| Prefix { addr, len }.contains(host))
            });
            (by_port, format!("\"{host} via ROUTER\" in `routes` of a [[port]]"))
        }
    };
    let what = format!("no route to {to}, the tunnel address of node {}", node.name);
    (!has_way).then(|| Finding::wrong(CHECK, what, fix))
}

/// Packets from outside that have arrived at this node.
#[derive(Clone, Copy)]
struct OutsidePackets {
    /// Sent to the owners of their shards.
    redirected: u64,
    /// Translated here, those that other nodes have redirected included.
    translated: u64,
}

impl OutsidePackets {
    fn read(client: &Client) -> Option<OutsidePackets> {
        let redirected = client.get::<Status>("/v1/status").ok()?.redirected_outside;
        let pools = client.get::<Vec<Pool>>("/v1/pools").ok()?;
        let translated = pools.iter().map(|pool| pool.inbound.packets).sum();
        Some(OutsidePackets { redirected, translated })
    }
}

impl Counted for OutsidePackets {
    /// Right routes lead no packet past its owner, and the doctor need not wait.
    fn may_matter(&self) -> bool {
        self.redirected > 0
    }

    fn since(self, before: &OutsidePackets) -> OutsidePackets {
        OutsidePackets {
            redirected: self.redirected.saturating_sub(before.redirected),
            translated: self.translated.saturating_sub(before.translated),
        }
    }
}

/// Finding about routes that lead packets to another node than their owner. Routers know the owner of a
/// public address by its route, but not the shard of a subscriber. So only packets from outside count
/// (decision 0108): of those from inside, (N - 1)/N have to be redirected.
fn misrouted(client: &Client) -> Option<Finding> {
    past_owner(sample(|| OutsidePackets::read(client))?)
}

fn past_owner(OutsidePackets { redirected, translated }: OutsidePackets) -> Option<Finding> {
    let all = redirected.saturating_add(translated);
    if redirected < PACKETS_MIN || redirected < all / REDIRECTED_SHARE {
        return None;
    }
    let what = format!(
        "routes lead packets past the owner of their address: of {} packets from outside in a second, this \
         node redirected {}",
        group(all),
        group(redirected)
    );
    let fix = "let routers prefer the routes in `table` of [announce] to those in `backup_table`, and have \
               no other routes to pools: see docs/how-to/cluster.md";
    Some(Finding::note(CHECK, what, fix))
}

fn state(cluster: &Cluster) -> Finding {
    let why = cluster.reason.as_ref().map_or_else(String::new, |why| format!(": {why}"));
    match cluster.state {
        ClusterState::Registered if cluster.reason.is_some() => Finding::wrong(
            CHECK,
            format!("the other nodes get no sessions{why}"),
            "repair what the reason says",
        ),
        ClusterState::Registered => {
            let held = counted(cluster.held().count() as u64, "shard");
            Finding::ok(CHECK, format!("this node is registered, and has {held}"))
        }
        ClusterState::WithoutEtcd => {
            let what = "this node goes on without etcd: nothing moves, and nobody joins";
            Finding::wrong(CHECK, what, "repair etcd")
        }
        ClusterState::Double => Finding::wrong(
            CHECK,
            "another box has the name of this node: this one translates nothing",
            "give one of them another name: `node` in [cluster], or `gatun run --node NAME`",
        ),
        ClusterState::Stopped => {
            Finding::wrong(CHECK, format!("this node does nothing for the cluster{why}"), "restart gatun")
        }
        ClusterState::Waiting | ClusterState::Off | ClusterState::Other => {
            Finding::wrong(CHECK, format!("this node translates nothing{why}"), STATUS)
        }
    }
}

fn etcd(cluster: &Cluster) -> Option<Finding> {
    let (error, ms) = (cluster.etcd_error.as_ref()?, cluster.etcd_failed_ms?);
    let what = format!("etcd has failed for {} s: {error}", ms / 1_000);
    Some(Finding::wrong(CHECK, what, "start etcd, and compare `etcd` of [cluster], and firewalls"))
}

fn nodes(cluster: &Cluster) -> Vec<Finding> {
    let away = cluster.away().map(|node| {
        let fix = "start it; if it will not come back, gatun cluster gone NODE";
        Finding::wrong(CHECK, format!("node {} is away", node.name), fix)
    });
    let connections = cluster.nodes.iter().filter_map(|node| Some((node, node.connection.as_ref()?)));
    let faults = connections.filter_map(|(node, connection)| {
        let why = connection.reason.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        match connection.connected_for_ms {
            _ if !connection.differences.is_empty() => {
                let keys = connection.differences.join(", ");
                let what = format!("the configuration differs from that of node {}: {keys}", node.name);
                Some(Finding::wrong(CHECK, what, "use the same file at all nodes, and reload"))
            }
            None if node.is_registered => Some(Finding::wrong(
                CHECK,
                format!("not connected to node {}{why}", node.name),
                "compare `peer` of [[cluster.nodes]], and firewalls",
            )),
            _ => None,
        }
    });
    away.chain(faults).collect()
}

fn shards(cluster: &Cluster) -> Option<Finding> {
    let shards = |count: usize| counted(count as u64, "shard");
    match (cluster.orphans().count(), cluster.unbacked().count()) {
        (0, 0) => None,
        (0, unbacked) => {
            let what = format!("{} without a backup that has all sessions", shards(unbacked));
            Some(Finding::note(CHECK, what, "gatun cluster shards"))
        }
        (orphans, _) => {
            let what =
                format!("{} without a holder that is here: nobody can know their ports", shards(orphans));
            let fix = "start one of their holders; if both will not come back, gatun cluster gone NODE";
            Some(Finding::wrong(CHECK, what, fix))
        }
    }
}

/// Nodes that do not run the configuration of the cluster. On trial, each node has its turn.
fn revisions(cluster: &Cluster) -> Vec<Finding> {
    let is_trial = cluster.configuration.as_ref().is_none_or(|one| one.stage == RevisionStage::Trial);
    let one = |node: &ClusterNode| {
        let why = node.revision.as_ref().and_then(|one| one.reason.as_ref());
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        let what = format!("node {} does not run the configuration of the cluster{why}", node.name);
        Finding::wrong(CHECK, what, "repair what the reason says, or gatun cluster apply FILE")
    };
    cluster.differing().filter(|_| !is_trial).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;
    use gatun_api::types::{
        BackupPhase, ClusterConfiguration, ClusterShard, NodeConnection, NodeRevision, PeerCounters,
        ShardPart,
    };

    #[test]
    fn faults_of_a_cluster_are_named_with_their_repair() {
        let of = |state, reason: Option<&str>| {
            let cluster = Cluster { state, reason: reason.map(str::to_owned), ..Cluster::default() };
            super::state(&cluster)
        };
        assert_eq!(of(ClusterState::Registered, None).state, State::Ok);
        assert!(of(ClusterState::Registered, Some("disk full")).what.ends_with(": disk full"));
        assert_eq!(of(ClusterState::WithoutEtcd, None).state, State::Wrong);
        assert!(of(ClusterState::Double, None).fix.unwrap().contains("--node NAME"));
        let mut cluster = Cluster { etcd_error: Some("no answer".into()), ..Cluster::default() };
        cluster.etcd_failed_ms = Some(3_000);
        assert!(etcd(&cluster).unwrap().what.contains("failed for 3 s: no answer"));
        let connection = NodeConnection {
            address: String::new(),
            connected_for_ms: None,
            reason: Some("refused".into()),
            shards: 0,
            differences: Vec::new(),
            clock_difference_ms: Some(1_000),
            counters: PeerCounters::default(),
        };
        let node = |name: &str, is_registered, connection| ClusterNode {
            name: name.to_owned(),
            is_this: name == "a",
            is_configured: true,
            weight: 1,
            is_registered,
            connection,
            ..ClusterNode::default()
        };
        cluster.nodes =
            vec![node("a", true, None), node("b", true, Some(connection.clone())), node("c", false, None)];
        let said: Vec<_> = nodes(&cluster).into_iter().map(|finding| finding.what).collect();
        assert_eq!(said, ["node c is away", "not connected to node b: refused"]);
        cluster.nodes[1].connection =
            Some(NodeConnection { differences: vec!["pool.p".into()], ..connection });
        cluster.nodes[1].connection.as_mut().unwrap().clock_difference_ms = Some(-4_000);
        assert!(nodes(&cluster)[1].what.ends_with("that of node b: pool.p"));
        let current = |stage| ClusterConfiguration {
            number: 2,
            before: None,
            stage,
            seconds_left: None,
            needs_confirmation: false,
            changed_by: String::new(),
            reason: None,
        };
        let differs = NodeRevision { number: Some(1), is_trial: false, differs: true, reason: None };
        cluster.nodes[1].revision = Some(differs);
        cluster.configuration = Some(current(RevisionStage::Trial));
        assert!(revisions(&cluster).is_empty());
        cluster.configuration = Some(current(RevisionStage::Confirmed));
        assert!(revisions(&cluster)[0].what.starts_with("node b does not run"));
        let shard = |backup: &str, phase| ClusterShard {
            number: 0,
            addresses: Vec::new(),
            epoch: 1,
            owner: Some("c".into()),
            backup: Some(backup.into()),
            phase: Some(phase),
            part: ShardPart::None,
            assigns: false,
            translates_for_ms: None,
            is_synced: false,
        };
        assert!(shards(&cluster).is_none());
        cluster.shards = vec![shard("b", BackupPhase::Filling)];
        assert_eq!(shards(&cluster).unwrap().state, State::Note);
        cluster.shards = vec![shard("d", BackupPhase::Ready)];
        assert!(shards(&cluster).unwrap().fix.unwrap().contains("gatun cluster gone"));

        // Each of them is looked for.
        cluster.certificate_end_s = Some(1);
        let said: Vec<_> = of_state(&cluster).into_iter().map(|finding| finding.what).collect();
        let parts = [
            "this node translates nothing",
            "etcd has failed",
            "node c is away",
            "differs from that of node b",
            "the clocks differ: the clock of node b is 4.0 s behind that of this node",
            "1 shard without a holder",
            "node b does not run",
            "the certificate of this node has ended",
        ];
        assert_eq!(said.len(), parts.len(), "{said:?}");
        assert!(said.iter().zip(parts).all(|(what, part)| what.contains(part)), "{said:?}");
    }

    /// Configuration of two nodes, with these lines before the cluster.
    fn config(port: &str) -> Config {
        let node = |n: u8| {
            format!(
                "[[cluster.nodes]]\nname = \"{n}\"\npeer = \"10.0.9.{n}:7465\"\ntunnel = \"10.0.8.{n}\"\n"
            )
        };
        let text = format!(
            "[translator]\nown4 = \"10.9.9.9\"\n{port}\n[[pool]]\nprefixes = \"192.0.2.0/28\"\n\
             [[nat64]]\npool6 = \"2001:db8:64::/96\"\n\
             [cluster]\nnode = \"1\"\netcd = \"http://10.0.9.1:2379\"\n{}{}",
            node(1),
            node(2)
        );
        gatun_config::load_str(&text, "test").map_err(|report| report.to_string()).unwrap().0
    }

    #[test]
    fn packets_from_outside_that_routes_lead_past_their_owner_are_noted() {
        let of = |redirected, translated| past_owner(OutsidePackets { redirected, translated });
        let finding = of(2_000, 1_000).unwrap();
        assert_eq!(finding.state, State::Note);
        assert!(
            finding.what.contains("of 3,000 packets from outside in a second, this node redirected 2,000")
        );
        assert!(finding.fix.unwrap().contains("prefer the routes in `table` of [announce]"));
        // All packets of a node without shards, and the share and the number from which packets count.
        assert!(of(100, 0).is_some() && of(100, 900).is_some());
        assert!(of(99, 0).is_none() && of(1_000, 9_100).is_none() && of(0, 5_000).is_none());
        // Earlier packets do not count.
        let before = OutsidePackets { redirected: 70_000, translated: 10 };
        let now = OutsidePackets { redirected: 70_099, translated: 20 };
        let since = now.since(&before);
        assert_eq!((since.redirected, since.translated), (99, 10));
    }

    #[test]
    fn a_cluster_without_announced_routes_is_noted() {
        assert!(unannounced(&config("")).unwrap().what.contains("no [announce]"));
        assert!(unannounced(&config("[announce]")).is_none());
    }

    #[test]
    fn routes_of_ethernet_ports_lead_to_the_other_nodes() {
        let found = |addresses: &str, routes: &str| {
            let config = config(&format!(
                "[[port]]\nbackend = \"xdp\"\ndevice = \"eth1\"\naddresses = [\"{addresses}\"]\n\
                 routes = [\"{routes}\"]"
            ));
            lost(&config, &config.cluster.as_ref().unwrap().nodes[1])
        };
        let finding = found("10.1.0.1/24", "10.2.0.0/16 via 10.1.0.2").unwrap();
        assert_eq!(
            (finding.state, &finding.what[..]),
            (State::Wrong, "no route to 10.0.8.2, the tunnel address of node 2")
        );
        assert!(finding.fix.unwrap().starts_with("\"10.0.8.2/32 via ROUTER\""));
        assert!(found("10.1.0.1/24", "10.0.8.0/24 via 10.1.0.2").is_none());
        assert!(found("10.0.8.1/24", "10.2.0.0/16 via 10.0.8.7").is_none());
    }
}
