//! Kernel fast path at network interfaces (XDP).

use crate::fastpath::{FASTPATH, counts, kill, numbered, sessions, show, wait};
use crate::harness::{CREATE, Daemon, NAT64, gatun, in_lab, network, program};
use gatun_testkit::{Topology, echo};
use rustix::process::Signal;
use std::time::Duration;

/// Sum over the instances of the packets that were translated at the interfaces.
fn translated_by_xdp() -> u64 {
    let fastpath = show("fastpath");
    let instances = fastpath["instances"].as_array().unwrap().iter();
    instances.map(|instance| instance["xdp_translated"].as_u64().unwrap()).sum()
}

fn config(interfaces: &str) -> String {
    format!("{CREATE}{FASTPATH}xdp = {interfaces}\n{NAT64}")
}

/// The hosts take frames that a program sends, and finish checksums themselves.
fn prepare(net: &Topology) {
    for host in [&net.client, &net.server] {
        host.run("ethtool -K eth0 gro on tx off").unwrap();
    }
}

#[test]
fn sessions_are_translated_at_interfaces_and_a_killed_daemons_flow_loses_no_packet() {
    in_lab(
        "fastpath_xdp::sessions_are_translated_at_interfaces_and_a_killed_daemons_flow_loses_no_packet",
        || {
            let net = network();
            prepare(&net);
            let _server = echo(&net.server);
            let config = config("[\"inside\", \"outside\"]");
            let mut daemon = Daemon::start(&net, &config);
            daemon.says("kernel fast path: attached to inside by XDP");
            let flow = numbered(&net, "6", "5151");
            for _ in 0..2 {
                let before = translated_by_xdp();
                wait("the flow at the interfaces", 5, || {
                    sessions() == 1 && translated_by_xdp() > before + 300
                });
                kill(daemon);
                std::thread::sleep(Duration::from_millis(300));
                daemon = Daemon::start(&net, &config);
                daemon.says("1 session of the previous process stay");
            }
            let (sent, back) = counts(flow);
            assert!(sent > 1000 && sent == back, "{back} of {sent}");
            assert!(translated_by_xdp() > sent, "{}", show("fastpath"));
            // This daemon's counters do not have the packets of those before it.
            wait("the packets in the counters", 5, || {
                let status = show("status");
                status["packets_accounted"] == true && status["offloaded"]["packets"].as_u64().unwrap() > 0
            });
            let doctor = gatun(["doctor"]);
            let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
            assert!(doctor.contains("the kernel translates at outside by XDP"), "{doctor}");
            daemon.stop(Signal::TERM);
            let links = net.translator.run("ip -d link show").unwrap();
            assert!(!links.contains("prog/xdp"), "{links}");
        },
    );
}

#[test]
fn an_interface_without_xdp_is_named_and_a_left_program_is_detached() {
    in_lab("fastpath_xdp::an_interface_without_xdp_is_named_and_a_left_program_is_detached", || {
        let net = network();
        let daemon = Daemon::start(&net, &config("[\"inside\", \"missing\"]"));
        daemon.says("kernel fast path: no XDP at missing: attaching the program: there is no such interface");
        let interfaces = show("fastpath")["xdp"].clone();
        assert_eq!(interfaces[0]["attached"], true, "{interfaces}");
        assert_eq!(interfaces[1]["attached"], false, "{interfaces}");
        let doctor = gatun(["doctor"]);
        let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
        assert!(doctor.contains("no XDP at missing"), "{doctor}");
        let file = daemon.file();
        kill(daemon);
        let has_program = || net.translator.run("ip -d link show inside").unwrap().contains("prog/xdp");
        assert!(has_program());
        let mut command = net.translator.command(program());
        let detached =
            gatun_testkit::output(command.args(["fastpath", "detach", file.to_str().unwrap()])).unwrap();
        assert!(detached.status.success(), "{detached:?}");
        wait_until_gone(has_program);
    });
}

#[test]
fn packets_to_an_interface_that_cannot_send_take_the_other_way() {
    in_lab("fastpath_xdp::packets_to_an_interface_that_cannot_send_take_the_other_way", || {
        let net = network();
        prepare(&net);
        net.client.run("ethtool -K eth0 gro off").unwrap();
        let _server = echo(&net.server);
        let daemon = Daemon::start(&net, &config("[\"inside\", \"outside\"]"));
        let interfaces = show("fastpath")["xdp"].clone();
        if gatun_testkit::linux() < (6, 3) {
            // The kernel does not tell what drivers can do.
            assert!(interfaces[0]["attached"] == true && interfaces[0]["why"].is_null(), "{interfaces}");
            return;
        }
        daemon.says("kernel fast path: attached to inside by XDP, but it does not send frames");
        assert!(interfaces[0]["attached"] == true && interfaces[1]["why"].is_null(), "{interfaces}");
        let doctor = String::from_utf8(gatun(["doctor"]).stdout).unwrap();
        assert!(doctor.contains("XDP at inside: it does not send frames"), "{doctor}");
        let flow = numbered(&net, "3", "5151");
        wait("packets to the server at the interface", 5, || translated_by_xdp() > 300);
        let (sent, back) = counts(flow);
        assert!(sent > 1000 && sent == back, "{back} of {sent}");
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn an_interface_that_comes_back_has_the_program_again() {
    in_lab("fastpath_xdp::an_interface_that_comes_back_has_the_program_again", || {
        let net = network();
        net.translator.run("ip link add spare type veth peer name other").unwrap();
        let daemon = Daemon::start(&net, &config("[\"inside\", \"spare\"]"));
        daemon.says("kernel fast path: attached to spare by XDP");
        let is_attached = || show("fastpath")["xdp"][1]["attached"] == true;
        let has_program =
            |name: &str| net.translator.run(&format!("ip -d link show {name}")).unwrap().contains("prog/xdp");
        assert!(is_attached() && has_program("spare"));
        net.translator.run("ip link del spare").unwrap();
        wait("the report", 5, || !is_attached());
        daemon.says("kernel fast path: no XDP at spare: ");
        net.translator.run("ip link add spare type veth peer name other").unwrap();
        wait("the program", 20, is_attached);
        daemon.says("kernel fast path: attached to spare by XDP again");
        assert!(has_program("spare") && has_program("inside"));
        assert_eq!(show("fastpath")["attached_again"], 1);
        daemon.stop(Signal::TERM);
        assert!(!has_program("spare") && !has_program("inside"));
    });
}

/// Prints the source addresses of the frames at eth0 that are from or to a UDP port, each once.
const SOURCES: &str = "
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)); s.bind(('eth0', 0)); s.settimeout(10)
port, at, outgoing, found, count = int(sys.argv[1]).to_bytes(2, 'big'), int(sys.argv[2]), 4, set(), 0
while count < 200:
    frame, about = s.recvfrom(2048)
    if about[2] != outgoing and frame[at:at + 2] == port:
        found.add(frame[6:12].hex(':')); count += 1
print(*sorted(found))
";

#[test]
fn new_mac_addresses_of_interfaces_reach_the_program() {
    in_lab("fastpath_xdp::new_mac_addresses_of_interfaces_reach_the_program", || {
        let net = network();
        prepare(&net);
        let _server = echo(&net.server);
        let daemon = Daemon::start(&net, &config("[\"inside\", \"outside\"]"));
        let flow = numbered(&net, "60", "5151");
        wait("packets at the interfaces", 5, || translated_by_xdp() > 300);
        let macs = ["02:00:00:00:64:01", "02:00:00:00:64:02"];
        for (interface, mac) in ["inside", "outside"].iter().zip(macs) {
            net.translator.ip(&format!("link set {interface} address {mac}")).unwrap();
        }
        // The hosts ask for the new addresses.
        for host in [&net.client, &net.server] {
            host.ip("neigh flush dev eth0").unwrap();
        }
        let before = translated_by_xdp();
        wait("packets to the new addresses", 10, || translated_by_xdp() > before + 1000);
        // Frames to the client have the port behind an IPv6 header, others behind an IPv4 header.
        for (host, at, mac) in [(&net.client, "54", macs[0]), (&net.server, "36", macs[1])] {
            let said = gatun_testkit::run(&mut host.python(SOURCES, &["7777", at])).unwrap();
            assert_eq!(said.trim(), mac);
        }
        flow.signal(Signal::TERM).unwrap();
        counts(flow);
        daemon.stop(Signal::TERM);
    });
}

/// The kernel detaches a link some time after its last file and pin are gone.
fn wait_until_gone(has_program: impl Fn() -> bool) {
    gatun_testkit::wait_until("no program", Duration::from_secs(5), || !has_program()).unwrap();
}
