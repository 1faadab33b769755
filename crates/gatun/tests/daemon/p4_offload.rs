//! A daemon that controls a P4 switch, between kernel stacks:
//!
//! ```text
//!   client - inside | gatun p4 switch | outside - server
//!                          cpu1
//!                           |
//!                          cpu0
//!                        gatun run
//! ```

use crate::dpdk::{in_dpdk_lab, silence, silent_network};
use crate::fastpath::{counts, numbered, show};
use crate::fastpath_paths::a_path_becomes_smaller;
use crate::harness::{Daemon, gatun, tcp_copy};
use crate::p4::{root, switch};
use gatun_testkit::topology::SERVER;
use gatun_testkit::{Process, Topology, echo, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

pub(crate) const CONFIG: &str = r#"
[dpdk]
huge_pages = "never"
[[port]]
name = "inside"
backend = "dpdk"
device = "net_af_packet0,iface=cpu0"
switch_port = 1
addresses = ["2001:db8:1::64/64"]
[[port]]
name = "outside"
backend = "dpdk"
device = "net_af_packet0,iface=cpu0"
switch_port = 2
addresses = ["198.51.100.64/24"]
[[pool]]
prefixes = ["192.0.2.1"]
[[nat64]]
name = "lab"
pool6 = "2001:db8:64::/96"
[[offload]]
kind = "p4runtime"
switches = ["edge at 127.0.0.1:9559"]
udp_packets = 3
"#;

/// The network, with a link between the switch and the daemon.
pub(crate) fn network() -> Topology {
    let net = silent_network();
    // A switch changes checksums by their difference, so they have to be there.
    for host in [&net.client, &net.server] {
        host.run("ethtool -K eth0 tx off").unwrap();
    }
    net.connect_switch().unwrap();
    net
}

/// Ports of the switch, and the argument of its port to the daemon.
pub(crate) const PORTS: [&str; 2] = ["net_af_packet0,iface=inside", "net_af_packet1,iface=outside"];
pub(crate) const CONTROLLER_PORT: [&str; 2] = ["--controller-port", "net_af_packet2,iface=cpu1"];

/// Starts the switch, and waits for its server.
pub(crate) fn start_switch(net: &Topology) -> Process {
    start_switch_with(net, &PORTS, &CONTROLLER_PORT)
}

/// Starts a switch with these ports and further arguments, with room for 4,096 sessions.
pub(crate) fn start_switch_with(net: &Topology, ports: &[&str], arguments: &[&str]) -> Process {
    start_switch_for(net, ports, arguments, 4096)
}

/// Starts a switch with these ports, further arguments, and room for a number of sessions.
pub(crate) fn start_switch_for(net: &Topology, ports: &[&str], arguments: &[&str], room: usize) -> Process {
    let log = "/run/switch.log";
    let mut command = net.translator.command(env!("CARGO_BIN_EXE_gatun"));
    let program = root().join("p4/gatun.spec");
    command.args(switch(Path::new(&program), ports)).args(arguments);
    for (table, size) in [("flows6", room), ("flows4", 2 * room)] {
        command.args(["--size", &format!("gatun_lookup_{table}={size}")]);
    }
    command.stdout(fs::File::create(log).unwrap()).stderr(Stdio::inherit());
    let process = Process::start(&mut command).unwrap();
    let is_up = || fs::read_to_string(log).unwrap().contains("P4Runtime on");
    wait_until("the switch", Duration::from_secs(60), is_up).unwrap();
    process
}

pub(crate) fn wait(what: &str, daemon: &Daemon, is: impl Fn() -> bool) {
    let waited = wait_until(what, Duration::from_secs(20), is);
    assert!(waited.is_ok(), "{what}: {} {}\n{}", show("offload"), show("status"), daemon.stderr());
}

pub(crate) fn number(of: &Value, name: &str) -> u64 {
    of[name].as_u64().unwrap_or_else(|| panic!("no {name} in {of}"))
}

pub(crate) fn sessions() -> u64 {
    number(&show("offload"), "sessions")
}

pub(crate) fn translated() -> u64 {
    number(&show("offload"), "packets")
}

/// Packets that the first switch gave to Gatun for a reason.
fn given_to_gatun(reason: &str) -> u64 {
    let counters = show("offload")["switches"][0]["to_controller"].clone();
    let found = counters.as_array().unwrap().iter().find(|counter| counter["name"] == reason).cloned();
    found.map_or(0, |counter| number(&counter, "value"))
}

pub(crate) fn is_up(daemon: &Daemon) {
    wait("the switch in use", daemon, || show("offload")["state"] == "on");
}

/// Waits for the end of a flow. Returns the numbers of datagrams sent and returned.
pub(crate) fn arrived(flow: Process, daemon: &Daemon) -> (u64, u64) {
    let (sent, back) = counts(flow);
    // On a busy machine, a packet socket between the processes can overflow.
    assert!(back * 100 >= sent * 90 && sent > 100, "{sent} {back} {}", daemon.stderr());
    (sent, back)
}

/// Waits until the switch's packets are in every count.
pub(crate) fn is_accounted(daemon: &Daemon) {
    wait("every packet in the counts", daemon, || {
        let (status, instances) = (show("status"), show("instances"));
        let packets_of = |value: &Value| number(value, "packets");
        let each = instances.as_array().unwrap().iter();
        let sum: u64 = each.map(|i| packets_of(&i["outbound"]) + packets_of(&i["inbound"])).sum();
        status["packets_accounted"] == true
            && packets_of(&status["offloaded"]) == translated()
            && sum == packets_of(&status["forwarded"])
    });
}

#[test]
fn flows_move_into_a_switch_and_out_of_it() {
    in_dpdk_lab("p4_offload::flows_move_into_a_switch_and_out_of_it", || {
        let net = network();
        let _switch = start_switch(&net);
        let daemon = Daemon::start(&net, CONFIG);
        is_up(&daemon);
        let _echo = echo(&net.server).unwrap();
        let flow = numbered(&net, "3", "20000");
        wait("a session in the switch", &daemon, || sessions() == 1);
        let explained = gatun(["explain", "[2001:db8:1::2]:20000", &format!("[{SERVER}]:7777"), "udp"]);
        let explained = String::from_utf8(explained.stdout).unwrap();
        assert!(explained.contains("switch edge has translated its packets for "), "{explained}");
        let top = String::from_utf8(gatun(["top", "--once"]).stdout).unwrap();
        assert!(top.contains("switch edge  ready, 1 session") && top.contains("in the switches"), "{top}");
        let (sent, back) = arrived(flow, &daemon);
        // Nearly all packets of both directions.
        wait("packets of the switch", &daemon, || translated() > (sent + back) * 8 / 10);
        tcp_copy(&net.client, &net.server, "TCP4-LISTEN:5001,reuseaddr", &format!("TCP6:[{SERVER}]:5001"));
        is_accounted(&daemon);
        // FINs, and packets of sessions that begin.
        wait("counters of the program", &daemon, || {
            given_to_gatun("tcp_flags") > 0 && given_to_gatun("no_entry") > 0
        });
        let cleared = gatun(["clear", "sessions", "--all", "--yes"]);
        assert!(cleared.status.success(), "{cleared:?}");
        wait("no session in the switch", &daemon, || sessions() == 0);
        is_accounted(&daemon);
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_trace_says_which_switch_had_the_session_before() {
    in_dpdk_lab("p4_offload::a_trace_says_which_switch_had_the_session_before", || {
        let net = network();
        let _switch = start_switch(&net);
        let daemon = Daemon::start(&net, CONFIG);
        is_up(&daemon);
        let _echo = echo(&net.server).unwrap();
        let flow = numbered(&net, "20", "20000");
        wait("a session in the switch", &daemon, || sessions() == 1 && translated() > 0);
        let traced = gatun(["trace", "--inside", "2001:db8:1::2", "--port", "20000", "--count", "20"]);
        assert!(traced.status.success(), "{traced:?}");
        let traced = String::from_utf8(traced.stdout).unwrap();
        let says = traced.matches("switch edge translated its packets for ").count();
        assert!(says >= 20 && traced.contains("until the trace began"), "{traced}");
        wait("the session in the switch again", &daemon, || sessions() == 1);
        flow.signal(Signal::TERM).unwrap();
        arrived(flow, &daemon);
        daemon.stop(Signal::TERM);
    });
}

/// Port of the switch to the router.
const SMALL: &str = r#"
[[port]]
name = "small"
backend = "dpdk"
device = "net_af_packet0,iface=cpu0"
switch_port = 3
addresses = ["10.64.0.1/30"]
routes = ["203.0.113.0/24 via 10.64.0.2"]
"#;

/// A number of packets, once no more are counted: the daemon reads counters every two seconds.
fn settled(of: &str) -> u64 {
    let read = || if of == "translated" { translated() } else { given_to_gatun(of) };
    let mut before = read();
    loop {
        std::thread::sleep(Duration::from_millis(2500));
        let now = read();
        if now == before {
            return now;
        }
        before = now;
    }
}

#[test]
fn packets_too_large_for_a_learnt_path_are_cut_by_the_engine() {
    in_dpdk_lab("p4_offload::packets_too_large_for_a_learnt_path_are_cut_by_the_engine", || {
        let net = network();
        silence(&net, "small");
        net.router.run("ethtool -K near tx off tso off gso off gro off").unwrap();
        let ports =
            ["net_af_packet0,iface=inside", "net_af_packet1,iface=outside", "net_af_packet3,iface=small"];
        let _switch = start_switch_with(&net, &ports, &CONTROLLER_PORT);
        let daemon = Daemon::start(&net, &format!("{SMALL}{CONFIG}"));
        is_up(&daemon);
        a_path_becomes_smaller(&net, settled);
        is_accounted(&daemon);
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_reload_switches_off_and_on_and_another_program_is_refused_in_words() {
    in_dpdk_lab("p4_offload::a_reload_switches_off_and_on_and_another_program_is_refused_in_words", || {
        let net = network();
        let _switch = start_switch(&net);
        let daemon = Daemon::start(&net, CONFIG);
        is_up(&daemon);
        let _echo = echo(&net.server).unwrap();
        let flow = numbered(&net, "4", "20000");
        wait("a session in the switch", &daemon, || sessions() == 1);
        let (without, _) = CONFIG.split_once("[[offload]]").unwrap();
        let said = daemon.reload(without, "reload: done");
        assert!(said.contains("[[offload]]: off"), "{said}");
        wait("no session in the switch", &daemon, || sessions() == 0 && show("offload")["state"] == "off");
        daemon.reload(CONFIG, "reload: done");
        wait("a session in the switch", &daemon, || sessions() == 1);
        arrived(flow, &daemon);
        let out = CONFIG.replace("name = \"lab\"", "name = \"lab\"\noffload = false");
        daemon.reload(&out, "reload: done");
        wait("no session of the instance", &daemon, || sessions() == 0);
        let said =
            daemon.reload(&CONFIG.replace("udp_packets = 3", "udp_packets = 4"), "nothing has changed");
        assert!(said.contains("needs a restart: [[offload]]"), "{said}");
        is_accounted(&daemon);
        daemon.stop(Signal::TERM);

        let tests = root().join("crates/p4-server/tests");
        let other = format!(
            "{CONFIG}p4info = \"{0}/switch.p4info.txt\"\nprogram_file = \"{0}/switch.spec\"\n",
            tests.canonicalize().unwrap().display()
        );
        let daemon = Daemon::start(&net, &other);
        wait("a refusal", &daemon, || {
            show("offload")["why"].as_str().is_some_and(|why| why.contains("does not run Gatun's program"))
        });
        assert!(show("status")["troubles"].to_string().contains("switch edge is not in use"));
        daemon.stop(Signal::TERM);
    });
}
