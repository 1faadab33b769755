//! A cluster's operation beside its usual faults: two boxes with one name, a node that never comes back, a
//! reload under traffic, and etcd with TLS and a user.

use crate::cluster::{Nodes, SHARDS, bindings, client, cluster, config, hosts, is_whole, network, until};
use crate::harness::{Daemon, gatun};
use crate::pair::{Numbered, Talk, kill, lab, socket};
use gatun_api::types::{ClusterShard, ClusterState};
use gatun_testkit::{EtcdMembers, EtcdPlace, EtcdTls, wait_until};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustix::process::Signal;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

/// Length of a node's hold in these tests.
const HOLD: Duration = Duration::from_secs(60);

#[test]
fn a_lost_node_a_double_name_and_a_reload_end_no_connection_of_the_others() {
    lab("cluster_faults::a_lost_node_a_double_name_and_a_reload_end_no_connection_of_the_others", || {
        let net = network();
        let mut nodes = Nodes::start(&net);
        let talk = Talk::start_from(&net, 48, 20_000, &hosts());
        wait_until("each connection is at two nodes", Duration::from_secs(30), || {
            (0..3).map(|number| bindings(number).len()).sum::<usize>() == 2 * 48
        })
        .unwrap();

        // New certificates are used after the reload, and the connections of the nodes stay.
        let made = |number: usize| {
            let nodes = cluster(number).nodes;
            let connections = nodes.iter().filter_map(|node| node.connection.as_ref());
            (cluster(number).certificate_end_s, connections.map(|one| one.counters.connections).sum::<u64>())
        };
        let before = [0, 1, 2].map(made);
        for node in ["a", "b", "c"] {
            let renewed = gatun(["cluster", "renew", "/run/cluster/authority", node, "--days", "10"]);
            assert!(renewed.status.success(), "{}", String::from_utf8_lossy(&renewed.stderr));
        }
        let flow = Numbered::start(&net, 22_000);
        for (number, daemon) in nodes.daemons.iter().enumerate() {
            let other = format!("{}[timeouts]\nudp = \"4m\"\n", config(number, ""));
            daemon.reload(&other, "reload: done");
        }
        let (sent, lost) = flow.end();
        assert!(sent > 100 && lost == 0, "{lost} of {sent} datagrams lost");
        until(0, "the configurations are the same again", |cluster| {
            let connections = cluster.nodes.iter().filter_map(|node| node.connection.as_ref());
            is_whole(cluster, &[])
                && connections.clone().count() == 2
                && connections.into_iter().all(|one| one.differences.is_empty())
        });

        for (number, (end, connections)) in before.into_iter().enumerate() {
            until(number, "the new certificate is in use", |cluster| cluster.certificate_end_s < end);
            assert_eq!(made(number).1, connections);
        }

        // A living node is not gone.
        let gone = || gatun(["cluster", "gone", "a", "--yes", "--socket", &socket(2)]);
        let refused = gone();
        assert!(!refused.status.success());
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains("so it is not off"), "{said}");
        kill(&mut nodes.daemons[0]);
        let killed = std::time::Instant::now();
        until(2, "etcd has no registration of the dead node", |cluster| {
            cluster.nodes.iter().any(|node| node.name == "a" && !node.is_registered)
        });
        wait_until("the word about the node is taken", Duration::from_secs(30), || gone().status.success())
            .unwrap();
        for number in [1, 2] {
            until(number, "nobody waits for the dead node", |cluster| is_whole(cluster, &["a"]));
        }
        assert!(killed.elapsed() < HOLD);

        // The box of the dead node gets the name of a living one, and listens at an address of its own.
        let changes = [
            ("node = \"a\"", "node = \"b\""),
            ("/run/cluster/a", "/run/cluster/b"),
            ("10.0.9.2:7465", "10.0.9.1:7466"),
        ];
        let named = changes.iter().fold(config(0, ""), |text, (from, to)| text.replace(from, to));
        net.boxes[0].ip("route del 10.0.8.2/32").unwrap();
        let double = Daemon::start_in(&net.boxes[0], &named);
        until(0, "the box knows of the other one with its name", |cluster| {
            cluster.state == ClusterState::Double
        });
        assert!(cluster(0).held().next().is_none() || bindings(0).is_empty());
        let said = gatun(["cluster", "status", "--socket", &socket(0)]);
        assert!(!said.status.success());
        assert_eq!(cluster(1).state, ClusterState::Registered);
        let health: gatun_api::types::Health = client(0).get("/v1/health").unwrap();
        assert!(!health.healthy && health.tables.iter().all(|table| table.routes == 0), "{health:?}");
        drop(double);
        talk.end();
        assert_eq!(cluster(1).shards.len(), SHARDS);
    });
}

/// An authority, and a certificate by it for an address: `ca.pem`, `certificate.pem` and `key.pem`.
fn certificates(directory: &str, address: &str) {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![address.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    std::fs::create_dir_all(directory).unwrap();
    let files = [
        ("ca.pem", authority.pem()),
        ("certificate.pem", certificate.pem()),
        ("key.pem", key.serialize_pem()),
    ];
    for (name, text) in files {
        std::fs::write(Path::new(directory).join(name), text).unwrap();
    }
}

/// Passwords of etcd, the right one and another one.
const PASSWORDS: [&str; 2] = ["Passw0rd-right", "Passw0rd-wrong"];

#[test]
fn a_node_uses_an_etcd_with_certificates_and_a_password_and_says_which_one_is_wrong() {
    lab(
        "cluster_faults::a_node_uses_an_etcd_with_certificates_and_a_password_and_says_which_one_is_wrong",
        || {
            const ADDRESS: &str = "10.0.9.1";
            let net = network();
            certificates("/run/etcd-files", ADDRESS);
            certificates("/run/other-files", ADDRESS);
            let file = |name: &str| Path::new("/run/etcd-files").join(name);
            let tls = EtcdTls {
                authority: file("ca.pem"),
                certificate: file("certificate.pem"),
                key: file("key.pem"),
            };
            let address = |port| format!("{ADDRESS}:{port}").parse().unwrap();
            let place = EtcdPlace { host: Some(&net.boxes[0]), client: address(2379), peer: address(2380) };
            let mut etcd = EtcdMembers::start_secure(vec![place], Path::new("/run/etcd"), tls).unwrap();
            etcd.demand_password(PASSWORDS[0]).unwrap();
            for (name, word) in [("right", PASSWORDS[0]), ("wrong", PASSWORDS[1])] {
                std::fs::write(format!("/run/password-{name}"), word).unwrap();
            }
            let endpoints =
                "etcd = [\"http://10.0.9.1:2379\", \"http://10.0.9.2:2379\", \"http://10.0.9.3:2379\"]";
            let config = |files: &str, password: &str| {
                let text = config(0, "");
                assert!(text.contains(endpoints));
                let keys = format!(
                    "etcd = [\"{}\"]\netcd_directory = \"{files}\"\netcd_user = \"root\"\n\
                 etcd_password_file = \"/run/password-{password}\"",
                    etcd.endpoints()[0]
                );
                text.replace(endpoints, &keys)
            };
            let waits = |files: &str, password: &str, expected: &str| {
                let daemon = Daemon::start_in(&net.boxes[0], &config(files, password));
                until(0, expected, |cluster| {
                    let why = cluster.reason.as_deref().unwrap_or_default();
                    cluster.state == ClusterState::Waiting && why.contains(expected)
                });
                no_secrets(&daemon);
                daemon.stop(Signal::TERM);
            };
            waits("/run/etcd-files", "wrong", "authentication failed");
            waits("/run/other-files", "right", "certificate");
            let daemon = Daemon::start_in(&net.boxes[0], &config("/run/etcd-files", "right"));
            until(0, "it owns all shards", |cluster| {
                let own = |shard: &ClusterShard| shard.owner.as_deref() == Some("a");
                cluster.state == ClusterState::Registered && cluster.shards.iter().all(own)
            });
            no_secrets(&daemon);
        },
    );
}

/// Logs, API and commands of the first node show neither a password of etcd nor a private key.
fn no_secrets(daemon: &Daemon) {
    let key = |file: &str| std::fs::read_to_string(file).unwrap();
    let keys = ["/run/cluster/a/key.pem", "/run/etcd-files/key.pem", "/run/other-files/key.pem"].map(key);
    let lines = keys.iter().map(|key| key.lines().find(|line| !line.starts_with("-----")).unwrap());
    let asked =
        ["config show", "show status -o json", "cluster status", "cluster status -o json", "cluster events"];
    let said = asked.map(|words| {
        let socket = socket(0);
        let output = gatun(words.split(' ').chain(["--socket", &socket]));
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    });
    let mut metrics = String::new();
    client(0).open("GET", "/metrics", &[]).unwrap().read_to_string(&mut metrics).unwrap();
    let secrets: Vec<&str> = PASSWORDS.into_iter().chain(lines).chain(["PRIVATE"]).collect();
    for text in said.into_iter().chain([daemon.stderr(), metrics]) {
        assert!(text.len() > 10, "{text}");
        assert!(secrets.iter().all(|secret| !text.contains(secret)), "{text}");
    }
}
