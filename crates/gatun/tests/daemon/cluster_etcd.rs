//! An etcd that answers slowly, refuses, or has lost data, while connections go on: real members, and a proxy
//! between them and the nodes.

use crate::cluster::{
    NAMES, NODES, bindings, client, cluster, config, hosts, is_whole, network, no_port_twice, owns, until,
};
use crate::harness::{Daemon, gatun};
use crate::pair::{Numbered, Talk, kill, lab, socket};
use gatun_api::types::{Cluster, ClusterState};
use gatun_testkit::{EtcdMembers, EtcdPlace, PairNetwork, Process, Proxy, ProxyMode, echo, run, wait_until};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// Longest wait for a condition: the machine may be busy.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Longer than a lease of the nodes.
const LEASE_OVER: Duration = Duration::from_secs(3);
/// Address of etcd, and its ports: that of the proxy, those of the member, and those of one with old data.
const ADDRESS: [u8; 4] = [10, 0, 9, 1];
const PORTS: [u16; 5] = [2379, 12_379, 12_380, 22_379, 22_380];

/// Three nodes whose only way to etcd is a proxy.
struct Lab<'n> {
    net: &'n PairNetwork,
    daemons: Vec<Daemon>,
    proxy: Proxy,
    etcd: EtcdMembers<'n>,
    _server: Process,
}

fn start(net: &PairNetwork, number: usize) -> Daemon {
    let all = "etcd = [\"http://10.0.9.1:2379\", \"http://10.0.9.2:2379\", \"http://10.0.9.3:2379\"]";
    let text = config(number, "");
    assert!(text.contains(all), "{text}");
    Daemon::start_in(&net.boxes[number], &text.replace(all, "etcd = [\"http://10.0.9.1:2379\"]"))
}

impl Lab<'_> {
    fn start(net: &PairNetwork) -> Lab<'_> {
        let [of_proxy, client, peer, ..] = PORTS.map(|port| (ADDRESS, port).into());
        let place = EtcdPlace { host: Some(&net.boxes[0]), client, peer };
        let etcd = EtcdMembers::start(vec![place], Path::new("/run/etcd")).unwrap();
        let proxy = Proxy::start(Some(&net.boxes[0]), of_proxy, client).unwrap();
        let _server = echo(&net.server).unwrap();
        let daemons = (0..NODES).map(|number| start(net, number)).collect();
        let lab = Lab { net, daemons, proxy, etcd, _server };
        lab.until_each("each node has shards", is_well);
        lab
    }

    fn until_each(&self, what: &str, holds: impl Fn(&Cluster) -> bool) {
        (0..NODES).for_each(|number| until(number, what, &holds));
    }

    /// Each node goes on without etcd, says why, and has said it among the events.
    fn until_each_says(&self, why: &str) {
        self.until_each(&format!("it goes on without etcd: {why}"), |cluster| {
            let error = cluster.etcd_error.as_deref().unwrap_or_default();
            cluster.state == ClusterState::WithoutEtcd && error.contains(why)
        });
        for number in 0..NODES {
            let said = || events(number).contains(why);
            wait_until("an event says why", WAIT_MAX, said).unwrap_or_else(|_| panic!("{}", events(number)));
        }
        let status = gatun(["cluster", "status", "--socket", &socket(0)]);
        let text = String::from_utf8_lossy(&status.stdout).into_owned();
        assert!(text.contains("WITHOUT etcd") && text.contains(why), "{text}");
    }

    /// All is as before, without anybody's help.
    fn until_well(&self) {
        self.until_each("etcd is used again", is_well);
    }
}

/// The node is registered, and each shard has its holders.
fn is_well(cluster: &Cluster) -> bool {
    let all_own = NAMES.iter().all(|name| owns(cluster, name));
    cluster.state == ClusterState::Registered
        && cluster.etcd_error.is_none()
        && all_own
        && is_whole(cluster, &[])
}

fn events(number: usize) -> String {
    let said = gatun(["cluster", "events", "--socket", &socket(number)]);
    String::from_utf8_lossy(&said.stdout).into_owned()
}

/// Owners of all shards, as a node knows them.
fn owners(number: usize) -> Vec<Option<String>> {
    cluster(number).shards.into_iter().map(|shard| shard.owner).collect()
}

/// Connections of before go on, others begin, and no port has two users. Longer than a lease. Returns those
/// that have begun.
fn goes_on(net: &PairNetwork, first: u16) -> Talk {
    let flow = Numbered::start(net, first + 500);
    std::thread::sleep(LEASE_OVER);
    let talk = Talk::start_from(net, 24, first, &hosts());
    let (sent, lost) = flow.end();
    assert!(sent > 1_000 && lost == 0, "{lost} of {sent} datagrams lost");
    let is_held = |cluster: &Cluster| cluster.held().all(|shard| shard.translates_for_ms.is_some());
    assert!((0..NODES).all(|number| is_held(&cluster(number))));
    no_port_twice(&[0, 1, 2]);
    talk
}

#[test]
fn an_etcd_that_is_slow_silent_or_refuses_stops_no_traffic_and_is_named() {
    lab("cluster_etcd::an_etcd_that_is_slow_silent_or_refuses_stops_no_traffic_and_is_named", || {
        let net = network();
        let mut lab = Lab::start(&net);
        let mut talks = vec![Talk::start_from(&net, 48, 20_000, &hosts())];

        // Slow, but in time: nothing moves.
        let before = owners(0);
        lab.proxy.set(ProxyMode::Delay(Duration::from_millis(60)));
        talks.push(goes_on(&net, 21_000));
        assert_eq!(owners(0), before);

        let faults = [
            (ProxyMode::Delay(Duration::from_secs(2)), "no answer in time"),
            (ProxyMode::Silent, "no answer in time"),
            (ProxyMode::Refuse, "etcd"),
        ];
        for ((mode, why), first) in faults.into_iter().zip([23_000, 25_000, 27_000]) {
            lab.proxy.set(mode);
            lab.until_each_says(why);
            talks.push(goes_on(&net, first));
            assert_eq!(owners(0), before, "{mode:?}: a shard has moved");
            lab.proxy.set(ProxyMode::Pass);
            lab.until_well();
        }

        // It answers, with errors: suddenly it demands a password.
        lab.etcd.demand_password("secret").unwrap();
        lab.proxy.set(ProxyMode::Refuse);
        lab.proxy.set(ProxyMode::Pass);
        lab.until_each_says("etcd refuses");
        let drained = gatun(["cluster", "drain", "b", "--timeout", "5", "--socket", &socket(0)]);
        assert!(!drained.status.success());
        talks.push(goes_on(&net, 29_000));
        assert_eq!(owners(0), before, "a shard has moved");
        lab.etcd.control(0, &["auth", "disable"]).unwrap();
        lab.until_well();
        for number in 0..NODES {
            let said = || events(number).contains("etcd answers again");
            wait_until("the end of the fault is an event", WAIT_MAX, said).unwrap();
        }
        talks.into_iter().for_each(Talk::end);
        no_port_twice(&[0, 1, 2]);
    });
}

/// Starts a member with the data of a backup. It has the number of the member that the backup is of.
fn start_restored(net: &PairNetwork, backup: &str) -> Process {
    let host = &net.boxes[0];
    let [_, _, peer, client, other] = PORTS.map(|port| format!("http://10.0.9.1:{port}"));
    let member = ["--name", "etcd-0", "--initial-advertise-peer-urls", &peer];
    let (all, data) = (format!("etcd-0={peer}"), ["--data-dir", "/run/etcd-restored"]);
    let all = ["--initial-cluster", &all];
    let mut restore = host.command("etcdctl");
    restore.env("ETCDCTL_API", "3").args(["snapshot", "restore", backup]).args(member).args(all).args(data);
    run(&mut restore).unwrap();
    let mut etcd = host.command("etcd");
    etcd.args(member).args(all).args(data).args(["--advertise-client-urls", &client]);
    etcd.args(["--listen-client-urls", &client, "--listen-peer-urls", &other]);
    let etcd = Process::start(etcd.stdout(Stdio::null()).stderr(Stdio::null())).unwrap();
    let is_there = || {
        let mut ask = host.command("etcdctl");
        run(ask.env("ETCDCTL_API", "3").args(["--endpoints", &client, "endpoint", "health"])).is_ok()
    };
    wait_until("the restored member answers", WAIT_MAX, is_there).unwrap();
    etcd
}

#[test]
fn an_etcd_with_old_data_changes_nothing_also_for_a_node_that_restarts() {
    lab("cluster_etcd::an_etcd_with_old_data_changes_nothing_also_for_a_node_that_restarts", || {
        let net = network();
        let mut lab = Lab::start(&net);
        let talk = Talk::start_from(&net, 48, 20_000, &hosts());
        lab.etcd.control(0, &["snapshot", "save", "/run/etcd-backup"]).unwrap();
        // Each shard gets other holders.
        for what in ["drain", "undrain"] {
            let done = gatun(["cluster", what, "b", "--socket", &socket(0)]);
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        }
        lab.until_well();
        let _restored = start_restored(&net, "/run/etcd-backup");
        let before = owners(0);

        lab.proxy.lead_to((ADDRESS, PORTS[3]).into());
        lab.until_each_says("etcd has lost data");
        let second = goes_on(&net, 23_000);
        kill(&mut lab.daemons[2]);
        lab.daemons[2] = start(lab.net, 2);
        until(2, "the new process refuses the old data, too", |cluster| {
            let error = cluster.etcd_error.as_deref().unwrap_or_default();
            error.contains("etcd has lost data")
                && cluster.held().all(|shard| shard.translates_for_ms.is_some())
        });
        let third = goes_on(&net, 25_000);
        assert_eq!(owners(0), before, "a shard has moved");

        lab.proxy.lead_to((ADDRESS, PORTS[1]).into());
        lab.until_well();
        [talk, second, third].into_iter().for_each(Talk::end);
        assert!(no_port_twice(&[0, 1, 2]) >= bindings(0).len());
        let _: Cluster = client(0).get("/v1/cluster").unwrap();
    });
}

#[test]
fn a_shard_of_an_unknown_node_is_named_and_goes_to_its_backup() {
    lab("cluster_etcd::a_shard_of_an_unknown_node_is_named_and_goes_to_its_backup", || {
        let net = network();
        let lab = Lab::start(&net);
        let talk = Talk::start_from(&net, 48, 20_000, &hosts());
        let all = lab.etcd.control(0, &["get", "/gatun/", "--prefix"]).unwrap();
        let mut lines = all.lines().skip_while(|line| !line.ends_with("/shards/000"));
        let (key, record) = (lines.next().unwrap(), lines.next().unwrap());
        let (epoch, rest) = record.split_once("owner=").unwrap();
        let (_, rest) = rest.split_once('@').unwrap();
        lab.etcd.control(0, &["put", key, &format!("{epoch}owner=ghost@{rest}")]).unwrap();
        for number in 0..NODES {
            let said = || events(number).contains("shard 0: \"ghost\" is no node of this configuration");
            wait_until("an event says so", WAIT_MAX, said).unwrap_or_else(|_| panic!("{}", events(number)));
        }
        let second = goes_on(&net, 21_000);
        // Another backup follows after the hold: until then, the unknown node may come back.
        lab.until_each("the backup owns the shard", |cluster| {
            cluster.shards.iter().all(|shard| shard.owner.as_deref().is_some_and(|owner| owner != "ghost"))
        });
        [talk, second].into_iter().for_each(Talk::end);
        no_port_twice(&[0, 1, 2]);
    });
}
