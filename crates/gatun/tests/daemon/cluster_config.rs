//! One configuration for all nodes of a cluster: applied under traffic, on trial, refused, and without etcd.

use crate::cluster::{Nodes, client, cluster, config, network, until};
use crate::harness::{Daemon, gatun, program};
use crate::pair::{Numbered, kill, lab, socket};
use gatun_api::types::{Cluster, ClusterRevision, ClusterState, Config, RevisionStage};
use gatun_testkit::{OWN_FILES, PairNetwork, make_own_files, own_files_view, wait_until};
use std::fs;
use std::process::Output;
use std::time::Duration;

const WAIT_MAX: Duration = Duration::from_secs(30);
const NAMES: [&str; 3] = ["a", "b", "c"];

/// Configuration of all nodes: each finds its own files in [`OWN_FILES`].
pub(crate) fn shared(more: &str) -> String {
    let own = |name: &str| format!("{OWN_FILES}/{name}");
    let changes =
        [("node = \"a\"\n", String::new()), ("/run/gatun-0/", own("")), ("/run/cluster/a", own("files"))];
    let text = changes.iter().fold(config(0, ""), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    });
    format!("{text}{more}")
}

/// Text with another lifetime of UDP sessions.
pub(crate) fn minutes(minutes: u32) -> String {
    shared(&format!("[timeouts]\nudp = \"{minutes}m\"\n"))
}

pub(crate) fn start(net: &PairNetwork, number: usize, text: &str) -> Daemon {
    let (own, name) = (format!("/run/gatun-{number}"), NAMES[number]);
    make_own_files(&own, &format!("/run/cluster/{name}")).unwrap();
    let [first, more @ ..] = own_files_view(&own);
    let mut command = net.boxes[number].command(&first);
    command.args(more).arg(program());
    Daemon::start_by(command, text, &["--node", name])
}

fn running(number: usize) -> Config {
    client(number).get("/v1/config").unwrap()
}

fn apply(number: usize, text: &str, more: &[&str]) -> Output {
    let file = format!("/run/apply-{number}.toml");
    fs::write(&file, text).unwrap();
    let (socket, file) = (socket(number), &file[..]);
    gatun(["cluster", "apply", file, "--yes", "--socket", &socket].into_iter().chain(more.iter().copied()))
}

pub(crate) fn applied(number: usize, text: &str, more: &[&str]) {
    let done = apply(number, text, more);
    assert!(done.status.success(), "{}", words(&done));
}

pub(crate) fn words(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// All nodes run a text, and have it in their files.
fn all_run(nodes: &Nodes<'_>, text: &str) {
    for (number, daemon) in nodes.daemons.iter().enumerate() {
        let is_so = || running(number).text == text && fs::read_to_string(daemon.file()).unwrap() == text;
        let waited = wait_until("the node runs the text", WAIT_MAX, is_so);
        assert!(waited.is_ok(), "node {number}: {:#?}", cluster(number));
    }
}

fn is_at(cluster: &Cluster, number: u64, stage: RevisionStage) -> bool {
    cluster.configuration.as_ref().is_some_and(|one| (one.number, one.stage) == (number, stage))
        && cluster.differing().next().is_none()
}

#[test]
fn a_revision_is_applied_at_all_nodes_under_traffic_confirmed_rolled_back_and_refused() {
    lab(
        "cluster_config::a_revision_is_applied_at_all_nodes_under_traffic_confirmed_rolled_back_and_refused",
        || {
            let net = network();
            let nodes = Nodes::start_by(&net, &|number| start(&net, number, &shared("")));
            let flow = Numbered::start(&net, 22_000);
            applied(1, &minutes(4), &[]);
            all_run(&nodes, &minutes(4));
            applied(0, &minutes(3), &["--confirm", "60s"]);
            assert!(running(2).text == minutes(3) && running(2).unconfirmed.is_some());
            let confirmed = gatun(["cluster", "confirm", "--socket", &socket(2)]);
            assert!(confirmed.status.success(), "{}", words(&confirmed));
            all_run(&nodes, &minutes(3));
            let (sent, lost) = flow.end();
            assert!(sent > 100 && lost == 0, "{lost} of {sent} datagrams lost");
            until(1, "the second revision is confirmed", |one| is_at(one, 2, RevisionStage::Confirmed));

            // Nobody confirms it.
            applied(0, &minutes(2), &["--confirm", "3s"]);
            all_run(&nodes, &minutes(3));
            until(2, "the third revision is withdrawn", |one| is_at(one, 3, RevisionStage::Withdrawn));

            // It changes the division, or one node cannot take it: nothing changes anywhere.
            let refused = apply(0, &shared("").replace("own_ports = 2_000", "own_ports = 1_000"), &[]);
            assert!(
                !refused.status.success() && words(&refused).contains("[cluster]"),
                "{}",
                words(&refused)
            );
            fs::write(nodes.daemons[1].file(), "by hand").unwrap();
            let refused = apply(0, &minutes(1), &[]);
            let said = words(&refused);
            assert!(!refused.status.success() && said.contains("node b: "), "{said}");
            assert!(said.contains("has changed since the daemon read it"), "{said}");
            fs::write(nodes.daemons[1].file(), minutes(3)).unwrap();
            all_run(&nodes, &minutes(3));
            assert_eq!(cluster(0).configuration.unwrap().number, 3);

            let kept: Vec<ClusterRevision> = client(2).get("/v1/cluster/revisions").unwrap();
            let of: Vec<_> =
                kept.iter().map(|one| (one.number, one.nodes.len(), &one.asked_node[..])).collect();
            assert_eq!(of, [(3, 0, "a"), (2, 3, "a"), (1, 0, "b")]);
            assert!(kept[0].outcome.contains("not confirmed"), "{kept:?}");
            // Two operators at once: one of them gets words.
            let texts = [minutes(5), minutes(6)];
            let results: Vec<Output> = std::thread::scope(|scope| {
                let one = |number: usize| {
                    let text = &texts[number];
                    scope.spawn(move || apply(number, text, &["--confirm", "60s"]))
                };
                let both = [one(0), one(1)];
                both.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let good: Vec<usize> = (0..2).filter(|number| results[*number].status.success()).collect();
            let said: Vec<String> = results.iter().map(words).collect();
            assert_eq!(good.len(), 1, "{said:?}");
            let confirmed = gatun(["cluster", "confirm", "--socket", &socket(1)]);
            assert!(confirmed.status.success(), "{}", words(&confirmed));
            all_run(&nodes, &texts[good[0]]);
            // The text of an earlier revision.
            let back = gatun(["cluster", "apply", "--revision", "1", "--yes", "--socket", &socket(0)]);
            assert!(back.status.success(), "{}", words(&back));
            all_run(&nodes, &minutes(4));
        },
    );
}

/// A public port goes to another host in two revisions. A node that was down may take both at once.
#[test]
fn a_static_binding_comes_and_moves_to_another_host_in_two_revisions() {
    lab("cluster_config::a_static_binding_comes_and_moves_to_another_host_in_two_revisions", || {
        let net = network();
        let with = |host: u8| {
            let inside = format!("inside = \"[2001:db8:1::{host}]:80\"");
            let binding =
                format!("static = [{{ protocol = \"tcp\", {inside}, outside = \"192.0.2.1:80\" }}]\n");
            shared("").replace("subscriber = ", &format!("{binding}subscriber = "))
        };
        let mut nodes = Nodes::start_by(&net, &|number| start(&net, number, &shared("")));
        applied(0, &with(5), &[]);
        all_run(&nodes, &with(5));
        let said = words(&apply(0, &with(6), &[]));
        assert!(said.contains("tcp 192.0.2.1:80 would go to another host"), "{said}");
        kill(&mut nodes.daemons[2]);
        until(0, "the dead node is away", |one| one.away().next().is_some());
        applied(0, &shared(""), &[]);
        applied(1, &with(6), &[]);
        nodes.daemons[2] = start(&net, 2, &with(5));
        all_run(&nodes, &with(6));
    });
}

#[test]
fn nodes_without_etcd_end_a_trial_and_start_from_their_files_and_follow_it_later() {
    lab(
        "cluster_config::nodes_without_etcd_end_a_trial_and_start_from_their_files_and_follow_it_later",
        || {
            let net = network();
            let mut nodes = Nodes::start_by(&net, &|number| start(&net, number, &shared("")));
            applied(0, &minutes(4), &[]);
            all_run(&nodes, &minutes(4));

            // A node that is down takes the revision at its return.
            let last = fs::read_to_string(nodes.daemons[2].file()).unwrap();
            kill(&mut nodes.daemons[2]);
            until(0, "the dead node is away", |one| one.away().next().is_some());
            applied(0, &minutes(3), &[]);
            nodes.daemons[2] = start(&net, 2, &last);
            assert_eq!(last, minutes(4));
            all_run(&nodes, &minutes(3));
            until(2, "the nodes agree", |one| is_at(one, 2, RevisionStage::Confirmed));

            // etcd ends during a trial: each node returns by itself.
            applied(0, &minutes(2), &["--confirm", "8s"]);
            assert!((0..3).all(|number| running(number).text == minutes(2)));
            nodes.stop_etcd();
            all_run(&nodes, &minutes(3));
            for number in 0..3 {
                until(number, "it goes on without etcd", |one| one.state == ClusterState::WithoutEtcd);
            }
            let refused = apply(1, &minutes(1), &[]);
            assert!(!refused.status.success() && words(&refused).contains("etcd"), "{}", words(&refused));

            // A node starts without etcd, from its last revision.
            let last = fs::read_to_string(nodes.daemons[1].file()).unwrap();
            kill(&mut nodes.daemons[1]);
            nodes.daemons[1] = start(&net, 1, &last);
            assert_eq!(running(1).text, minutes(3));
            nodes.start_etcd();
            for number in 0..3 {
                until(number, "the trial is withdrawn", |one| is_at(one, 3, RevisionStage::Withdrawn));
            }
            all_run(&nodes, &minutes(3));
        },
    );
}
