//! Stateless instances in a P4 switch, between kernel stacks.

use crate::dpdk::in_dpdk_lab;
use crate::fastpath::{counts, kill, numbered, show};
use crate::harness::{Daemon, SIIT, gatun};
use crate::p4_offload::{
    CONFIG, arrived, is_accounted, is_up, network, number, start_switch, translated, wait,
};
use gatun_testkit::topology::SERVER;
use gatun_testkit::{Process, Topology, echo};
use rustix::process::Signal;
use std::time::Duration;

/// Ports, switch and a stateless instance instead of the pool and NAT64.
fn config(more: &str) -> String {
    let (ports, rest) = CONFIG.split_once("[[pool]]").unwrap();
    let (_, offload) = rest.split_once("[[offload]]").unwrap();
    let siit = SIIT.replace("[[siit]]\n", &format!("[[siit]]\nname = \"lab\"\n{more}"));
    format!("{ports}{siit}[[offload]]{offload}")
}

/// The same with a mapping of another host only.
fn other_mapping() -> String {
    config("").replace("2001:db8:1::2", "2001:db8:1::99")
}

/// Packets that the switch has counted for stateless instances since the start of the daemon.
fn by_the_switch() -> u64 {
    number(&show("offload")["switches"][0], "stateless_packets")
}

fn mappings() -> u64 {
    number(&show("offload"), "mappings")
}

/// Packets of the instance, by the engine's counters.
fn of_instance() -> u64 {
    let instance = &show("instances")[0];
    number(&instance["outbound"], "packets") + number(&instance["inbound"], "packets")
}

fn goes_on_in_the_switch(daemon: &Daemon) {
    let before = by_the_switch();
    wait("packets of the mapping in the switch", daemon, || by_the_switch() > before + 300);
}

fn goes_on_in_the_engine(daemon: &Daemon) {
    let (before, switch) = (of_instance(), by_the_switch());
    wait("packets of the mapping in the engine", daemon, || of_instance() > before + 300);
    assert_eq!(by_the_switch(), switch, "{}", show("offload"));
}

/// A flow of a mapping that the switch translates.
struct InSwitch {
    net: Topology,
    _switch: Process,
    daemon: Daemon,
    _echo: Process,
    flow: Process,
}

impl InSwitch {
    fn start() -> InSwitch {
        let net = network();
        let _switch = start_switch(&net);
        let daemon = Daemon::start(&net, &config(""));
        is_up(&daemon);
        let _echo = echo(&net.server).unwrap();
        let flow = numbered(&net, "120", "20000");
        goes_on_in_the_switch(&daemon);
        InSwitch { net, _switch, daemon, _echo, flow }
    }
}

#[test]
fn a_mapping_is_translated_in_the_switch_and_counted_and_can_be_left_out() {
    in_dpdk_lab(
        "p4_stateless::a_mapping_is_translated_in_the_switch_and_counted_and_can_be_left_out",
        || {
            let InSwitch { net: _net, _switch, daemon, _echo, flow } = InSwitch::start();
            assert_eq!(mappings(), 1);
            let said =
                |arguments: &[&str]| String::from_utf8(gatun(arguments.iter().copied()).stdout).unwrap();
            let explained = said(&["explain", "[2001:db8:1::2]:20000", &format!("[{SERVER}]:7777"), "udp"]);
            assert!(
                explained.contains("switch edge translates plain packets of this instance"),
                "{explained}"
            );
            let traced = said(&["trace", "--port", "20000", "--count", "10"]);
            let says = "switch edge translated plain packets of this instance until the trace began";
            assert!(traced.matches(says).count() >= 10, "{traced}");
            goes_on_in_the_switch(&daemon);
            daemon.reload(&config("offload = false\n"), "reload: done");
            assert_eq!(mappings(), 0);
            goes_on_in_the_engine(&daemon);
            daemon.reload(&config(""), "reload: done");
            goes_on_in_the_switch(&daemon);
            end(flow, &daemon);
            is_accounted(&daemon);
            wait("every packet of the switch credited", &daemon, || translated() == by_the_switch());
            daemon.stop(Signal::TERM);
        },
    );
}

fn end(flow: Process, daemon: &Daemon) {
    flow.signal(Signal::TERM).unwrap();
    arrived(flow, daemon);
}

#[test]
fn a_removed_mapping_leaves_the_switch_before_the_reload_is_done() {
    in_dpdk_lab("p4_stateless::a_removed_mapping_leaves_the_switch_before_the_reload_is_done", || {
        let InSwitch { net: _net, _switch, daemon, _echo, flow } = InSwitch::start();
        daemon.reload(&other_mapping(), "reload: done");
        let (last, dropped) = (by_the_switch(), number(&show("status")["dropped"], "packets"));
        // The flow has gone on: the engine has dropped it.
        wait("packets without a mapping", &daemon, || {
            number(&show("status")["dropped"], "packets") > dropped + 2000
        });
        assert_eq!(by_the_switch(), last, "{}", show("offload"));
        flow.signal(Signal::TERM).unwrap();
        let (sent, back) = counts(flow);
        assert!(back > 0 && back < sent, "{sent} {back}");
        is_accounted(&daemon);
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn mappings_of_a_killed_daemon_stay_in_the_switch_until_the_next_one_has_others() {
    in_dpdk_lab(
        "p4_stateless::mappings_of_a_killed_daemon_stay_in_the_switch_until_the_next_one_has_others",
        || {
            let InSwitch { net, _switch, daemon, _echo, flow } = InSwitch::start();
            kill(daemon);
            std::thread::sleep(Duration::from_secs(2));
            let daemon = Daemon::start(&net, &config(""));
            is_up(&daemon);
            goes_on_in_the_switch(&daemon);
            end(flow, &daemon);
            is_accounted(&daemon);
            kill(daemon);

            let daemon = Daemon::start(&net, &other_mapping());
            is_up(&daemon);
            let flow = numbered(&net, "3", "20000");
            let (sent, back) = counts(flow);
            assert!(back == 0 && sent > 100, "{sent} {back}");
            assert_eq!((mappings(), by_the_switch()), (1, 0));
            daemon.stop(Signal::TERM);
        },
    );
}
