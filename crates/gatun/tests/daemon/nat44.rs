//! NAT44 between kernel stacks, compared with the kernel's masquerading.
//!
//! ```text
//!   client  100.64.0.2 --- translator --- server 198.51.100.2, and 203.0.113.2 behind the router
//!   client2 100.64.1.2 ---'   192.0.2.1
//! ```

use crate::harness::{CREATE, Daemon, counter, in_lab, network, succeeds, tcp_copy};
use gatun_testkit::topology::{PUBLIC, SMALL_MTU};
use gatun_testkit::{Namespace, Process, Topology};
use rustix::process::Signal;
use std::time::{Duration, Instant};

pub(crate) const NAT44: &str = r#"
[translator]
own4 = "192.0.2.14"
[[pool]]
prefixes = "192.0.2.1"
[[nat44]]
name = "lab"
inside = ["100.64.0.0/10"]
exempt = [{ prefixes = ["198.51.100.0/24"], protocol = "udp", ports = "9" }]
static = [
    { protocol = "tcp", inside = "100.64.0.2:5002", outside = "192.0.2.1:5002" },
    { protocol = "tcp", inside = "100.64.1.2:5004", outside = "192.0.2.1:5004" },
    { protocol = "udp", inside = "100.64.1.2:5003", outside = "192.0.2.1:5003" },
]
"#;

/// Lab network with private IPv4 for the client, and with a second client.
pub(crate) fn private() -> (Topology, Namespace) {
    let net = network();
    let second = Namespace::new("client2").unwrap();
    second.connect("eth0", &net.translator, "inside2").unwrap();
    for (client, device, subnet) in [(&net.client, "inside", 0), (&second, "inside2", 1)] {
        client.address("eth0", &format!("100.64.{subnet}.2/24")).unwrap();
        net.translator.address(device, &format!("100.64.{subnet}.1/24")).unwrap();
        client.ip(&format!("route add default via 100.64.{subnet}.1")).unwrap();
    }
    (net, second)
}

/// Sends packets from inside to the device; packets from the device follow the main table.
pub(crate) fn steer(net: &Topology) {
    // The translator's kernel is a router too. Its ICMP errors about packets from the device go into the
    // device and return, with an address of the kernel as source.
    net.translator.sysctl("net.ipv4.conf.nat64.accept_local", "1").unwrap();
    net.translator.steer_private().unwrap();
}

fn ping4(from: &Namespace, to: &str, flags: &str) -> String {
    let mut command = from.command("ping");
    command.args(["-4", "-n", "-c", "1", "-W", "2"]).args(flags.split_whitespace()).arg(to);
    let out = gatun_testkit::output(&mut command).unwrap();
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Sends a datagram; the other host answers with its payload and its source.
fn udp_exchange(from: &Namespace, to: &Namespace, listen: u16, target: &str) -> String {
    let serve = format!(
        "import socket\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\ns.bind(('',{listen}))\ns.settimeout(9)\nd,a=s.recvfrom(9000)\ns.sendto(d+b' from '+a[0].encode(),a)"
    );
    let mut server = Process::start(to.command("python3").args(["-c", &serve])).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while !to.run("ss -Hlun").unwrap().contains(&format!(":{listen} ")) {
        assert!(Instant::now() < deadline, "nobody listens on {listen}");
        std::thread::sleep(Duration::from_millis(10));
    }
    let ask = format!(
        "import socket\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\ns.settimeout(3)\ns.sendto(b'x'*3000,('{target}',{listen}))\nd,a=s.recvfrom(9000)\nprint(len(d),d[3000:].decode(),'by',a[0],a[1])"
    );
    let answer = gatun_testkit::run(from.command("python3").args(["-c", &ask])).unwrap();
    assert!(server.wait(Duration::from_secs(10)).unwrap().success());
    answer.trim().to_owned()
}

/// Observations of a user behind a translator, with `hops` hops between the client and the router.
fn observe(net: &Topology, hops: u32) -> Vec<(&'static str, String)> {
    let received = |out: &str| out.lines().find(|l| l.contains("received")).unwrap_or("").to_owned();
    let received = |out: String| received(&out).split(", time").next().unwrap_or("").to_owned();
    let mut seen = vec![
        ("ping", received(ping4(&net.client, "198.51.100.2", ""))),
        ("ping in pieces", received(ping4(&net.client, "198.51.100.2", "-s 4000"))),
        ("udp in pieces", udp_exchange(&net.client, &net.server, 5010, "198.51.100.2")),
    ];
    let out = ping4(&net.client, "203.0.113.2", &format!("-t {hops}"));
    let hop = out.lines().find(|l| l.contains("exceeded")).unwrap_or("");
    seen.push(("a hop of a traceroute", hop.split(" icmp_seq").next().unwrap_or("").to_owned()));
    let _ = ping4(&net.client, "203.0.113.2", "-M do -s 1472");
    let route = net.client.run("ip route get 203.0.113.2").unwrap();
    let mtu = route.split_whitespace().skip_while(|w| *w != "mtu").nth(1).unwrap_or("");
    seen.push(("the small link's MTU", mtu.to_owned()));
    let line = "import socket\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\ns.settimeout(3)\ns.connect(('198.51.100.2',5999))\ns.send(b'x')\ntry: s.recv(9)\nexcept Exception as e: print(type(e).__name__)";
    let refused = gatun_testkit::run(net.client.command("python3").args(["-c", line])).unwrap();
    seen.push(("a closed port", refused.trim().to_owned()));
    tcp_copy(&net.client, &net.server, "TCP4-LISTEN:5001,reuseaddr", "TCP4:198.51.100.2:5001");
    seen
}

// proves: R53-9, R47-12, R47-13, R55-4
#[test]
fn a_client_sees_what_it_sees_behind_the_kernels_masquerading() {
    in_lab("nat44::a_client_sees_what_it_sees_behind_the_kernels_masquerading", || {
        let (net, _) = private();
        let rules = "add table ip peer; add chain ip peer post { type nat hook postrouting priority 100; }; \
                     add rule ip peer post ip saddr 100.64.0.0/10 snat to 192.0.2.1";
        let has_peer = succeeds(std::process::Command::new("nft").arg("--version"));
        let peer = has_peer.then(|| {
            assert!(succeeds(net.translator.command("nft").arg(rules)));
            let seen = observe(&net, 2);
            assert!(succeeds(net.translator.command("nft").arg("delete table ip peer")));
            net.client.ip("route flush cache").unwrap();
            seen
        });

        let daemon = Daemon::start(&net, &format!("{CREATE}{NAT44}"));
        steer(&net);
        // The hops are the kernel, the translator, and the kernel again.
        let seen = observe(&net, 4);
        match peer {
            Some(peer) => assert_eq!(seen, peer),
            None => eprintln!("\n!!! NOT COMPARED WITH THE KERNEL'S MASQUERADING: there is no nft\n"),
        }
        assert_eq!(seen[2].1, "3015  from 192.0.2.1 by 198.51.100.2 5010");
        assert_eq!((&seen[3].1[..], &seen[4].1[..]), ("From 10.64.0.2", &SMALL_MTU.to_string()[..]));
        assert_eq!((&seen[0].1[..], &seen[5].1[..]), (&seen[1].1[..], "ConnectionRefusedError"));
        let ended = daemon.stop(Signal::TERM);
        assert!(counter(&ended.stdout, "forwarded, IPv4 to IPv4") > 100, "{}", ended.stdout);
    });
}

// proves: R47-9, R53-8, R68-6
#[test]
fn clients_meet_at_their_public_address_and_exempt_packets_pass() {
    in_lab("nat44::clients_meet_at_their_public_address_and_exempt_packets_pass", || {
        let (net, second) = private();
        let daemon = Daemon::start(&net, &format!("{CREATE}{NAT44}"));
        steer(&net);
        let answer = udp_exchange(&net.client, &second, 5003, PUBLIC);
        assert_eq!(answer, format!("3015  from {PUBLIC} by {PUBLIC} 5003"));
        tcp_copy(&net.client, &second, "TCP4-LISTEN:5004,reuseaddr", &format!("TCP4:{PUBLIC}:5004"));
        tcp_copy(&net.server, &net.client, "TCP4-LISTEN:5002,reuseaddr", &format!("TCP4:{PUBLIC}:5002"));
        let exempt = udp_exchange(&net.client, &net.server, 9, "198.51.100.2");
        assert_eq!(exempt, "3016  from 100.64.0.2 by 198.51.100.2 9");
        let ended = daemon.stop(Signal::TERM);
        assert!(counter(&ended.stdout, "of these hairpinned") > 100, "{}", ended.stdout);
        assert!(counter(&ended.stdout, "not for the translator") >= 1, "{}", ended.stdout);
    });
}
