//! Path MTUs and the kernel fast path: packets that are too large for their path are the engine's.

use crate::fastpath::{FASTPATH, config, packets, show, wait};
use crate::harness::{Daemon, SIIT, in_lab, network};
use gatun_testkit::topology::FAR;
use gatun_testkit::{Process, Topology};
use rustix::process::Signal;
use std::process::Stdio;
use std::time::Duration;

/// Sends datagrams of a size from a port, one per millisecond.
const SEND: &str = "
import socket, sys, time
to, port, count, size = sys.argv[1], *map(int, sys.argv[2:])
u = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
u.bind(('', port))
for _ in range(count):
    try: u.sendto(b'x' * size, (to, 7777))
    except OSError: pass
    time.sleep(0.001)
";

/// Counts datagrams of 1,200 bytes until one of 3 bytes arrives.
const COUNT: &str = "
import socket
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
u.bind(('', 7777))
count = 0
while (length := len(u.recv(2000))) != 3: count += length == 1200
print(count)
";

/// Payload of the largest datagram for which an IPv6 host needs no path MTU, rounded down.
const LARGE: u32 = 1200;

fn send(net: &Topology, port: u16, count: u32, size: u32) {
    let arguments = [port.into(), count, size].map(|number| number.to_string());
    let [port, count, size] = arguments.each_ref().map(String::as_str);
    gatun_testkit::run(&mut net.client.python(SEND, &[FAR, port, count, size])).unwrap();
}

/// Datagrams that Gatun has cut into fragments.
fn fragments() -> u64 {
    let counters = show("counters");
    let made = counters.as_array().unwrap().iter().find(|counter| counter["name"] == "fragments_made");
    made.unwrap_or_else(|| panic!("{counters}"))["value"].as_u64().unwrap()
}

/// The path behind the router becomes smaller than IPv6 knows. The engine learns it from the router's
/// message, cuts large datagrams, and the fast path continues with the small ones. `packets` are those that
/// it has "translated", or given to the engine as "too_large".
pub(crate) fn a_path_becomes_smaller(net: &Topology, packets: fn(&str) -> u64) {
    let send = |port, count, size| send(net, port, count, size);
    let wait = |what: &str, is: &dyn Fn() -> bool| wait(what, 20, is);
    let mut command = net.server.python(COUNT, &[]);
    let server = Process::start(command.stdout(Stdio::piped())).unwrap();
    let is_open = || net.server.run("ss -Hlun").unwrap().contains(":7777 ");
    gatun_testkit::wait_until("the server", Duration::from_secs(5), is_open).unwrap();
    // On a busy machine, a burst can be over before its session is in the fast path.
    wait("small datagrams in the fast path", &|| {
        send(5151, 50, 100);
        packets("translated") > 20
    });
    let before = packets("translated");
    send(5151, 100, LARGE);
    wait("large datagrams in the fast path", &|| packets("translated") >= before + 100);
    assert_eq!((packets("too_large"), fragments()), (0, 0), "a large one left the fast path");
    net.router.ip("link set far mtu 1000").unwrap();
    // It is translated with DF, so the router does not cut it.
    send(5151, 1, 1350);
    wait("the path MTU in the fast path", &|| {
        send(5151, 1, LARGE);
        packets("too_large") > 0
    });
    let (too_large, translated, cut) = (packets("too_large"), packets("translated"), fragments());
    send(5151, 100, LARGE);
    wait("large datagrams in the engine", &|| packets("too_large") >= too_large + 100);
    assert_eq!(fragments(), cut + 100, "a further fragment of each");
    send(5151, 50, 100);
    wait("small datagrams in the fast path", &|| packets("translated") >= translated + 50);
    // A flow that begins afterwards.
    let (too_large, translated) = (packets("too_large"), packets("translated"));
    wait("small datagrams of another flow", &|| {
        send(5152, 50, 100);
        packets("translated") > translated + 20
    });
    send(5152, 100, LARGE);
    wait("large datagrams of another flow", &|| packets("too_large") >= too_large + 90);
    send(5152, 1, 3);
    let (_, counted) = server.output(Duration::from_secs(10)).unwrap();
    assert!(counted.trim().parse::<u32>().unwrap() >= 300, "{counted}");
}

fn by_the_kernel(config: &str) {
    let net = network();
    let daemon = Daemon::start(&net, config);
    a_path_becomes_smaller(&net, packets);
    daemon.stop(Signal::TERM);
}

#[test]
fn packets_too_large_for_a_learnt_path_are_cut_by_the_engine() {
    in_lab("fastpath_paths::packets_too_large_for_a_learnt_path_are_cut_by_the_engine", || {
        by_the_kernel(&config());
    });
}

#[test]
fn stateless_packets_too_large_for_a_learnt_path_are_cut_by_the_engine() {
    in_lab("fastpath_paths::stateless_packets_too_large_for_a_learnt_path_are_cut_by_the_engine", || {
        let port = "[[port]]\ndevice = \"nat64\"\nqueues = 1\n";
        by_the_kernel(&format!("{port}{FASTPATH}{SIIT}"));
    });
}
