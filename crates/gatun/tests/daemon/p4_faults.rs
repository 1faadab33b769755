//! A P4 switch and its daemon, of which one or both are killed, and a second controller.

use crate::api::{SOCKET, curl};
use crate::dpdk::in_dpdk_lab;
use crate::fastpath::{counts, kill, numbered, show};
use crate::harness::{Daemon, gatun};
use crate::p4_offload::{
    CONFIG, arrived, is_accounted, is_up, network, number, sessions, start_switch, start_switch_with,
    translated, wait,
};
use gatun_testkit::{Process, Topology, echo};
use rustix::process::Signal;
use serde_json::Value;
use std::time::Duration;

/// State of the only switch.
fn edge() -> Value {
    show("offload")["switches"][0].clone()
}

fn kill_switch(mut switch: Process) {
    switch.signal(Signal::KILL).unwrap();
    switch.wait(Duration::from_secs(10)).unwrap();
}

/// Waits until the switch has the flow, and has translated packets of it.
fn is_in_the_switch(daemon: &Daemon) {
    wait("a session in the switch", daemon, || number(&edge(), "sessions") == 1);
    let before = translated();
    wait("its packets in the switch", daemon, || translated() > before + 100);
}

/// Starts a flow of numbered datagrams that goes on until it is stopped.
fn long_flow(net: &Topology) -> Process {
    numbered(net, "120", "20000")
}

/// Ends a flow that was not to be interrupted.
fn end(flow: Process, daemon: &Daemon) {
    flow.signal(Signal::TERM).unwrap();
    arrived(flow, daemon);
}

#[test]
fn a_killed_daemons_flow_goes_on_in_the_switch_and_is_taken_over() {
    in_dpdk_lab("p4_faults::a_killed_daemons_flow_goes_on_in_the_switch_and_is_taken_over", || {
        let net = network();
        let _switch = start_switch(&net);
        let mut daemon = Daemon::start(&net, CONFIG);
        is_up(&daemon);
        let _echo = echo(&net.server).unwrap();
        let flow = long_flow(&net);
        for _ in 0..3 {
            is_in_the_switch(&daemon);
            kill(daemon);
            // A flow that stops meanwhile loses half of its packets.
            std::thread::sleep(Duration::from_secs(3));
            daemon = Daemon::start(&net, CONFIG);
            daemon.says("restored 1 session of the previous process");
            is_up(&daemon);
            is_in_the_switch(&daemon);
            let (offload, switch) = (show("offload"), edge());
            assert_eq!((number(&offload, "adopted"), number(&switch, "sessions")), (1, 1), "{offload}");
            assert_eq!((number(&switch, "inserted"), number(&switch, "strays")), (0, 0), "{offload}");
        }
        end(flow, &daemon);
        is_accounted(&daemon);
        kill(daemon);

        // The sessions end with another pool: nothing of them is left in the switch.
        let other = CONFIG.replace("192.0.2.1", "192.0.2.9");
        let daemon = Daemon::start(&net, &other);
        is_up(&daemon);
        wait("the removal of both entries", &daemon, || number(&edge(), "strays") == 2);
        assert_eq!(sessions(), 0);
        let flow = long_flow(&net);
        is_in_the_switch(&daemon);
        end(flow, &daemon);
        is_accounted(&daemon);
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_switch_that_is_killed_gets_its_sessions_again() {
    in_dpdk_lab("p4_faults::a_switch_that_is_killed_gets_its_sessions_again", || {
        let net = network();
        let switch = start_switch(&net);
        let daemon = Daemon::start(&net, CONFIG);
        is_up(&daemon);
        let _echo = echo(&net.server).unwrap();
        let flow = long_flow(&net);
        is_in_the_switch(&daemon);
        kill_switch(switch);
        wait("the loss of the switch", &daemon, || {
            edge()["phase"] == "down" && number(&edge(), "unknown") == 1
        });
        assert!(show("status")["troubles"].to_string().contains("whose ports stay reserved"));
        let switch = start_switch(&net);
        is_up(&daemon);
        is_in_the_switch(&daemon);
        assert_eq!((number(&edge(), "inserted"), number(&edge(), "unknown")), (2, 0), "{}", edge());

        // The daemon is killed while the switch is gone.
        kill_switch(switch);
        wait("the loss of the switch", &daemon, || edge()["phase"] == "down");
        kill(daemon);
        let _switch = start_switch(&net);
        let daemon = Daemon::start(&net, CONFIG);
        daemon.says("restored 1 session of the previous process");
        is_up(&daemon);
        is_in_the_switch(&daemon);
        assert_eq!(number(&show("offload"), "adopted"), 0, "{}", show("offload"));
        flow.signal(Signal::TERM).unwrap();
        // Packets are lost while there is no switch.
        let (sent, back) = counts(flow);
        assert!(back > 0 && back < sent, "{sent} {back}");
        is_accounted(&daemon);
        daemon.stop(Signal::TERM);
    });
}

/// A second daemon, with ports that nobody is connected to.
const SECOND: &str = r#"
[api]
listen = "unix:/run/second.sock"
[state]
directory = "/run/second"
[dpdk]
huge_pages = "never"
[[port]]
name = "inside"
backend = "dpdk"
device = "net_null0,no-rx=1"
switch_port = 1
addresses = ["2001:db8:1::64/64"]
[[pool]]
prefixes = ["192.0.2.8"]
[[nat64]]
pool6 = "2001:db8:64::/96"
[[offload]]
kind = "p4runtime"
switches = ["edge at 127.0.0.1:9559"]
election = 9
"#;

#[test]
fn a_daemon_leaves_its_switch_to_another_controller_until_that_one_has_gone() {
    in_dpdk_lab(
        "p4_faults::a_daemon_leaves_its_switch_to_another_controller_until_that_one_has_gone",
        || {
            let net = network();
            let _switch = start_switch(&net);
            let daemon = Daemon::start(&net, CONFIG);
            is_up(&daemon);
            let _echo = echo(&net.server).unwrap();
            let flow = long_flow(&net);
            is_in_the_switch(&daemon);
            let second = Daemon::start(&net, SECOND);
            let seen_by_second = || {
                let shown = gatun(["show", "offload", "-o", "json", "--socket", "/run/second.sock"]);
                serde_json::from_slice::<Value>(&shown.stdout).unwrap()["switches"][0].clone()
            };
            wait("the other controller", &daemon, || edge()["phase"] == "standby");
            wait("the other controller in use", &second, || seen_by_second()["phase"] == "ready");
            daemon.says("switch edge: not in use: another controller is the primary");
            let troubles = show("status")["troubles"].to_string();
            assert!(troubles.contains("another controller is the primary"), "{troubles}");
            let metrics = curl(&format!("--unix-socket {SOCKET} http://localhost/metrics"));
            assert!(metrics.contains("gatun_offload_switch_standby{switch=\"edge\"} 1"), "{metrics}");
            // It does not compete.
            std::thread::sleep(Duration::from_secs(4));
            assert_eq!((edge()["phase"].as_str(), number(&edge(), "connections")), (Some("standby"), 1));
            assert_eq!(number(&seen_by_second(), "connections"), 1);
            assert_eq!(number(&edge(), "unknown"), 1, "the port stays reserved: {}", edge());

            kill(second);
            is_up(&daemon);
            is_in_the_switch(&daemon);
            assert_eq!(number(&edge(), "unknown"), 0);
            flow.signal(Signal::TERM).unwrap();
            counts(flow);
            is_accounted(&daemon);
            daemon.stop(Signal::TERM);
        },
    );
}

/// Configuration with a second switch, to which no host is connected.
fn two_switches() -> String {
    let spare = r#"
[[port]]
name = "spare"
backend = "dpdk"
device = "net_null0,no-rx=1"
switch = "spare"
switch_port = 1
addresses = ["2001:db8:2::64/64"]
"#;
    let two = CONFIG
        .replace("switch_port", "switch = \"edge\"\nswitch_port")
        .replace("9559\"]", "9559\", \"spare at 127.0.0.1:9560\"]");
    format!("{spare}{two}")
}

fn start_spare(net: &Topology) -> Process {
    start_switch_with(net, &["net_null0,no-rx=1"], &["--listen", "127.0.0.1:9560"])
}

#[test]
fn two_switches_have_the_same_sessions_and_one_of_them_may_fail() {
    in_dpdk_lab("p4_faults::two_switches_have_the_same_sessions_and_one_of_them_may_fail", || {
        let net = network();
        let _edge = start_switch(&net);
        let spare = start_spare(&net);
        let daemon = Daemon::start(&net, &two_switches());
        let both_have_one = || {
            let switches = show("offload")["switches"].clone();
            switches.as_array().unwrap().iter().all(|switch| number(switch, "sessions") == 1)
        };
        let phase = |n: usize| show("offload")["switches"][n]["phase"].clone();
        wait("both switches in use", &daemon, || phase(0) == "ready" && phase(1) == "ready");
        let _echo = echo(&net.server).unwrap();
        let flow = long_flow(&net);
        wait("a session in both switches", &daemon, both_have_one);
        kill_switch(spare);
        wait("the loss of a switch", &daemon, || phase(1) == "down");
        assert_eq!(show("offload")["state"], "on");
        is_in_the_switch(&daemon);
        // A removal waits for both, until one of them is declared gone.
        let cleared = gatun(["clear", "sessions", "--all", "--yes"]);
        assert!(cleared.status.success(), "{cleared:?}");
        wait("the removal from the first", &daemon, || number(&edge(), "deleted") == 1);
        assert_eq!(number(&show("offload"), "waiting"), 1, "{}", show("offload"));
        let gone = gatun(["offload", "gone", "spare"]);
        assert!(String::from_utf8_lossy(&gone.stdout).contains("1 session no longer wait"), "{gone:?}");
        wait("the next session of the flow", &daemon, || number(&edge(), "inserted") == 2);
        let _spare = start_spare(&net);
        wait("the session in both switches", &daemon, both_have_one);
        end(flow, &daemon);
        is_accounted(&daemon);
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_reload_does_not_wait_for_a_switch_that_hangs_and_says_so() {
    in_dpdk_lab("p4_faults::a_reload_does_not_wait_for_a_switch_that_hangs_and_says_so", || {
        let net = network();
        let switch = start_switch(&net);
        let daemon = Daemon::start(&net, CONFIG);
        is_up(&daemon);
        let _echo = echo(&net.server).unwrap();
        let flow = numbered(&net, "2", "20000");
        wait("a session in the switch", &daemon, || sessions() == 1);
        arrived(flow, &daemon);
        switch.signal(Signal::STOP).unwrap();
        let without = CONFIG.replace("name = \"lab\"", "name = \"lab\"\noffload = false");
        let said = daemon.reload(&without, "reload: done");
        assert!(
            said.contains("offload: a switch has had sessions that the new configuration excludes"),
            "{said}"
        );
        switch.signal(Signal::CONT).unwrap();
        wait("no session of the instance", &daemon, || sessions() == 0);
        is_accounted(&daemon);
        daemon.stop(Signal::TERM);
    });
}
