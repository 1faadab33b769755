//! A node that is killed and loses its state: it joins as a new box, with nothing of its former life.

use crate::cluster::{Nodes, bindings, hosts, is_whole, network, no_port_twice, owns, start, until};
use crate::harness::gatun;
use crate::pair::{Talk, kill, lab, socket};
use gatun_api::types::{Cluster, ClusterState};
use gatun_testkit::wait_until;
use std::time::Duration;

/// Longest wait for a condition: the machine may be busy.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Directory of the state of the first node.
const STATE: &str = "/run/gatun-0/state";

/// Random number of the state directory of the first node.
fn instance() -> String {
    let text = std::fs::read_to_string(format!("{STATE}/cluster.json")).unwrap_or_default();
    let (_, rest) = text.split_once("\"instance\":\"").unwrap_or_default();
    rest.split('"').next().unwrap_or_default().to_owned()
}

/// Every connection is at two nodes, and no port has two users.
fn until_twice(connections: usize) {
    let all = || (0..3).map(|number| bindings(number).len()).sum::<usize>();
    let waited = wait_until("each connection is at two nodes", WAIT_MAX, || all() == 2 * connections);
    assert!(waited.is_ok(), "{} bindings of {connections} connections", all());
    assert_eq!(no_port_twice(&[0, 1, 2]), connections);
}

#[test]
fn a_node_that_loses_its_state_joins_again_with_nothing_of_its_former_life() {
    lab("cluster_state::a_node_that_loses_its_state_joins_again_with_nothing_of_its_former_life", || {
        let net = network();
        let mut nodes = Nodes::start(&net);
        let talk = Talk::start_from(&net, 48, 20_000, &hosts());
        until_twice(48);
        let is_back = |cluster: &Cluster| {
            cluster.state == ClusterState::Registered && is_whole(cluster, &[]) && owns(cluster, "a")
        };

        // While its lease lasts, its records name it as the owner. Later, others own its shards.
        for is_late in [false, true] {
            let former = instance();
            assert!(!former.is_empty());
            kill(&mut nodes.daemons[0]);
            if is_late {
                for number in [1, 2] {
                    until(number, "the others have the shards", |cluster| !owns(cluster, "a"));
                }
            }
            // The directory itself may be a mount point.
            for file in std::fs::read_dir(STATE).unwrap() {
                std::fs::remove_file(file.unwrap().path()).unwrap();
            }
            nodes.daemons[0] = start(&net, 0);
            (0..3).for_each(|number| until(number, "the node has shards again", is_back));
            assert_ne!(instance(), former, "the new box says that it is the former one");
            let log = nodes.daemons[0].stdout();
            assert!(!log.contains("restored") && !log.contains("saved sessions"), "{log}");
            let events = gatun(["cluster", "events", "--socket", &socket(0)]);
            let events = String::from_utf8_lossy(&events.stdout).into_owned();
            assert!(!events.contains("older record") && !events.contains("lost data"), "{events}");
            until_twice(48);
        }
        let late = Talk::start_from(&net, 24, 21_000, &hosts());
        [talk, late].into_iter().for_each(Talk::end);
        until_twice(72);
    });
}
