//! A switch with room for a few sessions: the busiest flows get it, and refusals are counted.

use crate::api::{SOCKET, curl};
use crate::dpdk::in_dpdk_lab;
use crate::fastpath::{counts, numbered, show};
use crate::harness::{Daemon, gatun};
use crate::p4_offload::{
    CONFIG, CONTROLLER_PORT, PORTS, is_accounted, is_up, network, number, sessions, start_switch_for, wait,
};
use gatun_testkit::topology::SERVER;
use gatun_testkit::{Process, Topology, echo};
use rustix::process::Signal;
use std::process::Stdio;
use std::time::Duration;

/// Sessions that the switch has room for.
const ROOM: usize = 16;

/// Twice as many flows as there is room, ten packets a second each, until SIGTERM. Prints how many were sent
/// and how many came back.
const SLOW: &str = "
import select, signal, socket, sys, time
all = []
for port in range(32):
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.bind(('', 30000 + port)); all.append(s)
goes_on, sent, back = True, 0, 0
def stop(*_):
    global goes_on
    goes_on = False
signal.signal(signal.SIGTERM, stop)
def receive(seconds):
    global back
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        for s in select.select(all, [], [], left)[0]:
            s.recvfrom(100); back += 1
while goes_on:
    for s in all:
        s.sendto(b'slow', (sys.argv[1], 7777)); sent += 1
    receive(0.1)
receive(1)
print(sent, back)
";

fn slow_flows(net: &Topology) -> Process {
    let mut command = net.client.python(SLOW, &[SERVER]);
    Process::start(command.stdout(Stdio::piped())).unwrap()
}

fn offload(name: &str) -> u64 {
    number(&show("offload"), name)
}

/// Returns whether the switch translates the flow of a port.
fn is_in_the_switch(port: &str) -> bool {
    let explained =
        gatun(["explain", &format!("[2001:db8:1::2]:{port}"), &format!("[{SERVER}]:7777"), "udp"]);
    String::from_utf8_lossy(&explained.stdout).contains("switch edge has translated its packets")
}

#[test]
fn the_busiest_flows_get_the_places_of_a_full_switch_and_refusals_are_counted() {
    in_dpdk_lab(
        "p4_limits::the_busiest_flows_get_the_places_of_a_full_switch_and_refusals_are_counted",
        || {
            let net = network();
            let _switch = start_switch_for(&net, &PORTS, &CONTROLLER_PORT, ROOM);
            let daemon = Daemon::start(&net, CONFIG);
            is_up(&daemon);
            let _echo = echo(&net.server).unwrap();
            let slow = slow_flows(&net);
            wait("a full switch", &daemon, || sessions() == ROOM as u64);
            wait("refusals", &daemon, || offload("refused_full") >= ROOM as u64);
            // The program's description has more room than the switch.
            assert_eq!(offload("sessions_max"), ROOM as u64, "{}", show("offload"));
            // The slow flows are as busy as each other: none takes another one's place.
            std::thread::sleep(Duration::from_secs(8));
            assert_eq!((sessions(), offload("removed")), (ROOM as u64, 0), "{}", show("offload"));

            // About a thousand packets a second.
            let busy = ["20000", "20001"].map(|port| numbered(&net, "60", port));
            for port in ["20000", "20001"] {
                wait("a busy flow in the switch", &daemon, || is_in_the_switch(port));
            }
            // The state is published once a second.
            wait("places taken from slow flows", &daemon, || offload("removed") >= 2);
            assert!(sessions() <= ROOM as u64, "{}", show("offload"));
            let metrics = curl(&format!("--unix-socket {SOCKET} http://localhost/metrics"));
            let refused = metrics
                .lines()
                .find(|line| line.starts_with("gatun_offload_refused") && line.contains("full"));
            let refused = refused.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
            assert!(refused.is_some_and(|n| n >= ROOM as f64), "{metrics}");
            let shown = String::from_utf8(gatun(["show", "offload"]).stdout).unwrap();
            assert!(shown.contains("(full)"), "{shown}");

            // Whoever translates them, packets of all flows arrive.
            for flow in busy.into_iter().chain([slow]) {
                flow.signal(Signal::TERM).unwrap();
                let (sent, back) = counts(flow);
                assert!(back * 100 >= sent * 90 && sent > 100, "{sent} {back} {}", daemon.stderr());
            }
            is_accounted(&daemon);
            daemon.stop(Signal::TERM);
        },
    );
}
