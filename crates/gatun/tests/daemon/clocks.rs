//! A box of a pair, and a node of a cluster, whose wall clock is a day ahead: others name it, and nothing
//! else changes. A library of the program `faketime` shifts the wall clock of a process.

use crate::cluster::{self, Nodes};
use crate::harness::{Daemon, in_lab_with, program};
use crate::pair::{
    Numbered, PUBLIC, STANDBY, Talk, certificates, config, kill, peer, start, until, until_synced,
};
use crate::pair_tools::{at, metrics};
use gatun_api::types::PeerState;
use gatun_testkit::{Namespace, PairNetwork, echo, missing};

/// Shift of the clock, as faketime has it, and in ms.
const AHEAD: (&str, i64) = ("+86400", 86_400_000);
/// Largest error of the difference, ms.
const ERROR_MS: u64 = 500;

fn lab(test: &str, body: fn()) {
    in_lab_with(test, || missing(&[("bird", "bird2"), ("faketime", "faketime")]), body);
}

/// Starts a daemon with another wall clock, and the monotonic clocks of the host.
fn start_ahead(host: &Namespace, config: &str) -> Daemon {
    let mut command = host.command(program());
    // The dynamic linker replaces $LIB.
    command.env("LD_PRELOAD", "/usr/$LIB/faketime/libfaketime.so.1");
    command.env("FAKETIME", AHEAD.0).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    Daemon::start_by(command, config, &[])
}

/// True if a difference is this one.
fn is_about(difference_ms: Option<i64>, ahead_ms: i64) -> bool {
    difference_ms.is_some_and(|ms| ms.abs_diff(ahead_ms) <= ERROR_MS)
}

#[test]
fn a_box_of_a_pair_whose_clock_is_off_is_named_and_goes_on() {
    lab("clocks::a_box_of_a_pair_whose_clock_is_off_is_named_and_goes_on", || {
        certificates(STANDBY.pki);
        let net = PairNetwork::new().unwrap();
        let _server = echo(&net.server).unwrap();
        let (mut first, mut second) = (start(&net, 0, STANDBY), start(&net, 1, STANDBY));
        until_synced();
        for number in 0..2 {
            until(number, "the clocks are the same", |peer| is_about(peer.clock_difference_ms, 0));
            assert!(!at(&net, number, "peer status").1.contains("clock"));
            assert!(!at(&net, number, "doctor").1.contains("clock"));
        }
        net.wait_until_used(0, PUBLIC).unwrap();
        let talk = Talk::start(&net, 20, 20_000);
        kill(&mut second);
        let _second = start_ahead(&net.boxes[1], &config(1, STANDBY));
        until_synced();
        until(0, "b is ahead", |peer| is_about(peer.clock_difference_ms, AHEAD.1));
        until(1, "a is behind", |peer| is_about(peer.clock_difference_ms, -AHEAD.1));
        for (number, other, way) in [(0, "b (", " s ahead of"), (1, "a (", " s behind")] {
            let (status, said) = at(&net, number, "peer status");
            assert_eq!(status, 0, "{said}");
            let line = said.lines().find(|line| line.starts_with("the clock of ")).unwrap();
            assert!(line.contains(other) && line.contains(way), "{line}");
            assert!(at(&net, number, "show status").1.contains(line), "{line}");
            let (status, said) = at(&net, number, "doctor");
            assert!(
                status == 1 && said.contains(&format!("WRONG peer: the clocks differ: {line}")),
                "{said}"
            );
            assert!(said.contains("fix: set both clocks by NTP"), "{said}");
        }
        let of = |number| {
            let text = metrics(number);
            let value =
                text.lines().find_map(|line| line.strip_prefix("gatun_peer_clock_difference_seconds "));
            value.unwrap().parse::<f64>().unwrap()
        };
        assert!((of(0) - 86_400.0).abs() < 1.0 && (of(1) + 86_400.0).abs() < 1.0, "{} {}", of(0), of(1));

        // The box whose clock is off has all connections, and is as good as the other one.
        let flow = Numbered::start(&net, 22_000);
        until(1, "it has the flow", |peer| peer.counters.sessions_received > 20);
        kill(&mut first);
        net.wait_until_used(1, PUBLIC).unwrap();
        until(1, "the other box is away", |peer| peer.state == PeerState::Alone);
        assert_eq!(peer(1).clock_difference_ms, None);
        assert!(!at(&net, 1, "peer status").1.contains("clock"));
        talk.end();
        let (sent, lost) = flow.end();
        assert!(sent > 100 && lost * 2 < sent, "{lost} of {sent} datagrams lost");
    });
}

#[test]
fn a_node_of_a_cluster_whose_clock_is_off_is_named_by_the_others() {
    lab("clocks::a_node_of_a_cluster_whose_clock_is_off_is_named_by_the_others", || {
        let net = cluster::network();
        let _nodes = Nodes::start_by(&net, &|number| match number {
            1 => start_ahead(&net.boxes[1], &cluster::config(1, "")),
            _ => cluster::start(&net, number),
        });
        let known = |number: usize, of: &str, ahead_ms| {
            cluster::until(number, "the difference of the clocks", |cluster| {
                let node = cluster.nodes.iter().find(|node| node.name == of).unwrap();
                let connection = node.connection.as_ref().unwrap();
                is_about(connection.clock_difference_ms, ahead_ms)
            });
        };
        known(0, "b", AHEAD.1);
        known(0, "c", 0);
        known(1, "a", -AHEAD.1);
        known(1, "c", -AHEAD.1);
        known(2, "a", 0);
        known(2, "b", AHEAD.1);
        for number in [0, 2] {
            let (status, said) = at(&net, number, "cluster status");
            assert_eq!(status, 0, "{said}");
            let lines: Vec<_> = said.lines().filter(|line| line.contains("clock")).collect();
            let begin = "the clock of node b is 86";
            assert!(lines.len() == 1 && lines[0].starts_with(begin), "{said}");
            assert!(
                at(&net, number, "doctor").1.contains(&format!("WRONG cluster: the clocks differ: {begin}"))
            );
            let metric = "\ngatun_cluster_node_clock_difference_seconds{node=\"b\"} 86";
            assert!(metrics(number).contains(metric));
        }
        let flow = Numbered::start(&net, 22_000);
        let talk = Talk::start_from(&net, 20, 20_000, &cluster::hosts());
        talk.end();
        let (sent, lost) = flow.end();
        assert!(sent > 100 && lost == 0, "{lost} of {sent} datagrams lost");
    });
}
