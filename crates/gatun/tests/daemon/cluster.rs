//! Three nodes of a cluster between routers with BIRD, and three members of etcd: kill, restart, drain, and a
//! time without etcd.

use crate::harness::{CREATE, Daemon, gatun};
use crate::pair::{Numbered, Talk, kill, lab, socket};
use gatun_api::client::Client;
use gatun_api::types::{BackupPhase, Binding, Cluster, ClusterState, Page, Protocol};
#[cfg(feature = "xdp")]
use gatun_testkit::missing;
use gatun_testkit::pair::{TRACKED, Way};
use gatun_testkit::{EtcdMembers, EtcdPlace, PairNetwork, Process, echo, wait_until};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest wait for a condition: the machine may be busy.
const WAIT_MAX: Duration = Duration::from_secs(30);
pub(crate) const NODES: usize = 3;
pub(crate) const NAMES: [&str; NODES] = ["a", "b", "c"];
pub(crate) const SHARDS: usize = 8;
/// Hosts of the client: subscribers of all shards.
const HOSTS: u8 = 24;

/// Configuration of all nodes, with the number of one for its own files.
pub(crate) fn config(number: usize, more: &str) -> String {
    let node = |(name, n): (&&str, usize)| {
        format!(
            "[[cluster.nodes]]\nname = \"{name}\"\npeer = \"10.0.9.{n}:7465\"\ntunnel = \"10.0.8.{n}\"\napi = \"{}\"\n",
            socket(n - 1)
        )
    };
    let nodes: String = NAMES.iter().zip(1..).map(node).collect();
    let name = NAMES[number];
    format!(
        "[translator]\nown4 = \"10.9.9.9\"\n{CREATE}[[pool]]\nname = \"res\"\nprefixes = [\"192.0.2.0/28\"]\n\
         [[nat64]]\nname = \"lab\"\npool6 = \"2001:db8:64::/96\"\nsubscriber = \"/128\"\n\
         [state]\ndirectory = \"/run/gatun-{number}/state\"\n[api]\nlisten = \"unix:/run/gatun-{number}/api.sock\"\n\
         [log]\ndirectory = \"/run/gatun-{number}/log\"\n[announce]\nstall = \"2s\"\nreturn_after = \"500ms\"\n\
         [cluster]\nnode = \"{name}\"\ndirectory = \"/run/cluster/{name}\"\nshards = {SHARDS}\nlease = \"2s\"\n\
         hold = \"60s\"\nown_ports = 2_000\n{more}\
         etcd = [\"http://10.0.9.1:2379\", \"http://10.0.9.2:2379\", \"http://10.0.9.3:2379\"]\n{nodes}"
    )
}

pub(crate) fn client(number: usize) -> Client {
    Client::new(socket(number))
}

pub(crate) fn cluster(number: usize) -> Cluster {
    client(number).get("/v1/cluster").unwrap()
}

pub(crate) fn until(number: usize, what: &str, holds: impl Fn(&Cluster) -> bool) {
    let waited = wait_until(what, WAIT_MAX, || holds(&cluster(number)));
    assert!(waited.is_ok(), "{what}: node {number}: {:#?}", cluster(number));
}

/// Every shard has an owner and a ready backup, and no holder is in `without`.
pub(crate) fn is_whole(cluster: &Cluster, without: &[&str]) -> bool {
    let fits = |holder: &Option<String>| holder.as_deref().is_some_and(|name| !without.contains(&name));
    let is_ready = |phase: Option<BackupPhase>| phase == Some(BackupPhase::Ready);
    cluster.shards.len() == SHARDS
        && cluster.shards.iter().all(|one| fits(&one.owner) && fits(&one.backup) && is_ready(one.phase))
}

/// A node owns shards.
pub(crate) fn owns(cluster: &Cluster, name: &str) -> bool {
    cluster.shards.iter().any(|shard| shard.owner.as_deref() == Some(name))
}

/// Bindings of TCP at a node: inside ends by the public ones.
pub(crate) fn bindings(number: usize) -> BTreeMap<(Ipv4Addr, u16), (IpAddr, u16)> {
    let page: Page<Binding> = client(number).get("/v1/bindings?limit=10000").unwrap();
    let tcp = page.items.iter().filter(|binding| binding.protocol == Protocol::Tcp);
    tcp.map(|one| ((one.outside, one.outside_port), (one.inside, one.inside_port))).collect()
}

/// No public port has different inside ends at two nodes. Returns the number of ports.
pub(crate) fn no_port_twice(nodes: &[usize]) -> usize {
    let mut holders = BTreeMap::new();
    for number in nodes {
        for (outside, inside) in bindings(*number) {
            let holder = *holders.entry(outside).or_insert(inside);
            assert_eq!(holder, inside, "{outside:?} has two holders");
        }
    }
    holders.len()
}

pub(crate) fn hosts() -> Vec<String> {
    (0..HOSTS).map(|n| format!("2001:db8:1::1:{n:x}")).collect()
}

fn etcd(net: &PairNetwork) -> EtcdMembers<'_> {
    let place = |(host, n): (_, u8)| EtcdPlace {
        host: Some(host),
        client: ([10, 0, 9, n], 2379).into(),
        peer: ([10, 0, 9, n], 2380).into(),
    };
    EtcdMembers::start(net.boxes.iter().zip(1..).map(place).collect(), Path::new("/run/etcd")).unwrap()
}

pub(crate) fn start(net: &PairNetwork, number: usize) -> Daemon {
    Daemon::start_in(&net.boxes[number], &config(number, ""))
}

/// Three nodes that have all shards twice, and an echo server.
pub(crate) struct Nodes<'n> {
    pub(crate) daemons: Vec<Daemon>,
    etcd: EtcdMembers<'n>,
    _server: Process,
}

/// Makes the network, and the certificates.
pub(crate) fn network() -> PairNetwork {
    let made = gatun(["cluster", "init", "/run/cluster", "a", "b", "c"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let net = PairNetwork::with_boxes(NODES as u8).unwrap();
    for host in hosts() {
        net.client.address("eth0", &format!("{host}/64")).unwrap();
    }
    net
}

impl Nodes<'_> {
    pub(crate) fn start(net: &PairNetwork) -> Nodes<'_> {
        Nodes::start_by(net, &|number| start(net, number))
    }

    /// The same with daemons that the caller starts.
    pub(crate) fn start_by<'n>(net: &'n PairNetwork, start: &dyn Fn(usize) -> Daemon) -> Nodes<'n> {
        let etcd = etcd(net);
        let _server = echo(&net.server).unwrap();
        let daemons: Vec<Daemon> = (0..NODES).map(start).collect();
        for number in 0..NODES {
            until(number, "each node has shards", |cluster| {
                is_whole(cluster, &[]) && NAMES.iter().all(|name| owns(cluster, name))
            });
        }
        Nodes { daemons, etcd, _server }
    }

    /// Kills all members of etcd.
    pub(crate) fn stop_etcd(&mut self) {
        (0..NODES).for_each(|number| self.etcd.kill(number).unwrap());
    }

    /// Starts them again.
    pub(crate) fn start_etcd(&mut self) {
        (0..NODES).for_each(|number| self.etcd.start_member(number).unwrap());
        self.etcd.wait_ready().unwrap();
    }
}

#[test]
fn three_nodes_share_the_addresses_and_outlive_a_kill_a_drain_and_etcd() {
    lab("cluster::three_nodes_share_the_addresses_and_outlive_a_kill_a_drain_and_etcd", || {
        let net = network();
        let mut nodes = Nodes::start(&net);
        let status = gatun(["cluster", "status", "--socket", &socket(0)]);
        assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stdout));
        let talk = Talk::start_from(&net, 48, 20_000, &hosts());
        // Routes lead the packets of one host to one node, so most of them were redirected.
        let translates = (0..NODES).filter(|number| !bindings(*number).is_empty()).count();
        assert_eq!(translates, NODES);
        wait_until("each connection is at two nodes", WAIT_MAX, || {
            (0..NODES).map(|number| bindings(number).len()).sum::<usize>() == 2 * 48
        })
        .unwrap();
        assert_eq!(no_port_twice(&[0, 1, 2]), 48);

        // The log of one node has the port, and the question goes to all of them.
        let (address, port) = *bindings(2).keys().next().unwrap();
        let end = format!("{address}:{port}");
        let asked = socket(0);
        let question = |at: &str| gatun(["who", &end, "--protocol", "tcp", "--at", at, "--socket", &asked]);
        wait_until("a log has the holder", WAIT_MAX, || question("0s ago").status.success()).unwrap();
        let said = String::from_utf8(question("0s ago").stdout).unwrap();
        assert!(said.contains("[2001:db8:1::1:"), "{said}");
        assert!(
            ["this daemon:\n", "node b:\n", "node c:\n"].iter().all(|name| said.contains(name)),
            "{said}"
        );
        let holders = (0..NODES).filter(|number| {
            let alone = ["who", &end, "--protocol", "tcp", "--at", "0s ago", "--alone", "--socket"];
            gatun(alone.into_iter().chain([&socket(*number)[..]])).status.success()
        });
        assert!((1..NODES).contains(&holders.count()), "not every node knows the holder");
        assert_eq!(question("1h ago").status.code(), Some(3), "the logs begin later");

        let killed = Instant::now();
        kill(&mut nodes.daemons[0]);
        for number in [1, 2] {
            until(number, "the others have the shards of the dead node", |cluster| !owns(cluster, "a"));
        }
        eprintln!("shards of the dead node have other owners after {} ms", killed.elapsed().as_millis());
        let late = Talk::start_from(&net, 24, 21_000, &hosts());
        assert!(no_port_twice(&[1, 2]) >= 72);

        nodes.daemons[0] = start(&net, 0);
        for number in 0..NODES {
            until(number, "the node has shards again", |cluster| {
                is_whole(cluster, &[]) && owns(cluster, "a")
            });
        }
        assert_eq!(no_port_twice(&[0, 1, 2]), 72);

        let flow = Numbered::start(&net, 22_000);
        let drained = gatun(["cluster", "drain", "b", "--timeout", "30", "--socket", &socket(0)]);
        assert!(drained.status.success(), "{}", String::from_utf8_lossy(&drained.stderr));
        until(1, "the drained node has nothing", |cluster| cluster.held().next().is_none());
        until(0, "the others have all", |cluster| is_whole(cluster, &["b"]));
        let (sent, lost) = flow.end();
        assert!(sent > 100 && lost == 0, "{lost} of {sent} datagrams lost");
        let undrained = gatun(["cluster", "undrain", "b", "--socket", &socket(1)]);
        assert!(undrained.status.success(), "{}", String::from_utf8_lossy(&undrained.stderr));
        until(1, "it has shards again", |cluster| is_whole(cluster, &[]) && owns(cluster, "b"));

        nodes.stop_etcd();
        for number in 0..NODES {
            until(number, "it goes on without etcd", |cluster| cluster.state == ClusterState::WithoutEtcd);
        }
        // Longer than a lease: the nodes keep each other going.
        std::thread::sleep(Duration::from_secs(3));
        let without = Talk::start_from(&net, 24, 23_000, &hosts());
        assert!(
            (0..NODES).all(|number| cluster(number).held().all(|shard| shard.translates_for_ms.is_some()))
        );
        nodes.start_etcd();
        for number in 0..NODES {
            until(number, "it is registered again", |cluster| {
                cluster.state == ClusterState::Registered && is_whole(cluster, &[])
            });
        }
        [talk, late, without].into_iter().for_each(Talk::end);
        assert_eq!(no_port_twice(&[0, 1, 2]), 96);
    });
}

#[test]
fn a_node_whose_links_carry_nothing_gives_its_shards_away() {
    lab("cluster::a_node_whose_links_carry_nothing_gives_its_shards_away", || {
        let net = network();
        let tracked = format!("[announce]\ntracked_routes = {TRACKED:?}\n");
        let start = |number: usize| {
            Daemon::start_in(&net.boxes[number], &config(number, "").replace("[announce]\n", &tracked))
        };
        let _nodes = Nodes::start_by(&net, &start);
        let talk = Talk::start_from(&net, 48, 20_000, &hosts());
        wait_until("each connection is at two nodes", WAIT_MAX, || {
            (0..NODES).map(|number| bindings(number).len()).sum::<usize>() == 2 * 48
        })
        .unwrap();
        net.lose(0, Way::ToRouters, true).unwrap();
        until(1, "the others have the shards of the node", |cluster| is_whole(cluster, &["a"]));
        let late = Talk::start_from(&net, 24, 21_000, &hosts());
        net.lose(0, Way::ToRouters, false).unwrap();
        for number in 0..NODES {
            until(number, "the node has shards again", |cluster| {
                is_whole(cluster, &[]) && owns(cluster, "a")
            });
        }
        [talk, late].into_iter().for_each(Talk::end);
        assert_eq!(no_port_twice(&[0, 1, 2]), 72);
    });
}

/// Ports of a node on network interfaces, with Gatun's own addresses beside the kernel's. Packets to other
/// nodes go by a port of its own, whose address is that of the tunnel.
#[cfg(feature = "xdp")]
fn interfaces(number: usize) -> String {
    let n = number + 1;
    let port =
        |device: &str, more: &str| format!("[[port]]\nbackend = \"xdp\"\ndevice = \"{device}\"\n{more}");
    [
        port(
            "inside",
            &format!("addresses = [\"2001:db8:{n}0::64/64\"]\nroutes = [\"2001:db8:1::/64 via 2001:db8:{n}0::1\"]\n"),
        ),
        port(
            "outside",
            &format!("addresses = [\"10.1.{n}.2/24\"]\nroutes = [\"198.51.100.0/24 via 10.1.{n}.1\"]\n"),
        ),
        port("peer", &format!("addresses = [\"10.0.8.{n}/24\"]\n")),
    ]
    .concat()
}

/// Packets that a node has sent to other nodes.
#[cfg(feature = "xdp")]
fn redirected(number: usize) -> u64 {
    let status: gatun_api::types::Status = client(number).get("/v1/status").unwrap();
    assert!(status.packets_accounted, "{status:?}");
    status.redirected.packets
}

#[cfg(feature = "xdp")]
#[test]
fn owners_translate_packets_that_other_nodes_redirect_over_network_interfaces() {
    let test = "cluster::owners_translate_packets_that_other_nodes_redirect_over_network_interfaces";
    let refusal = || gatun_testkit::refusal_but_to_root("AF_XDP").or_else(|| missing(&[("bird", "bird2")]));
    gatun_testkit::run_test(test, refusal, || {
        let net = network();
        for (number, one) in net.boxes.iter().enumerate() {
            net.outside.address(one.name(), &format!("10.1.{}.1/24", number + 1)).unwrap();
        }
        let start = |number: usize| {
            Daemon::start_in(&net.boxes[number], &config(number, "").replace(CREATE, &interfaces(number)))
        };
        let mut nodes = Nodes::start_by(&net, &start);
        let talk = Talk::start_from(&net, 48, 20_000, &hosts());
        wait_until("each connection is at two nodes", WAIT_MAX, || {
            (0..NODES).map(|number| bindings(number).len()).sum::<usize>() == 2 * 48
        })
        .unwrap();
        // One node gets all packets from inside.
        let by_node = [0, 1, 2].map(redirected);
        assert!(by_node.iter().any(|count| *count > 100), "{by_node:?}");
        assert_eq!(no_port_twice(&[0, 1, 2]), 48);
        kill(&mut nodes.daemons[0]);
        for number in [1, 2] {
            until(number, "the others have the shards of the dead node", |cluster| !owns(cluster, "a"));
        }
        let late = Talk::start_from(&net, 24, 21_000, &hosts());
        nodes.daemons[0] = start(0);
        for number in 0..NODES {
            until(number, "the node has shards again", |cluster| {
                is_whole(cluster, &[]) && owns(cluster, "a")
            });
        }
        [talk, late].into_iter().for_each(Talk::end);
        assert_eq!(no_port_twice(&[0, 1, 2]), 72);
    });
}
