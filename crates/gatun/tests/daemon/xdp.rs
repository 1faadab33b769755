//! The daemon on network interfaces through AF_XDP, between kernel stacks with all offloads on.
//!
//! ```text
//!   client --- inside [ translator ] outside --- server 198.51.100.2
//!                          small \--- router --- server 203.0.113.2
//! ```
//! The translator's kernel has addresses on the same interfaces (.1), and Gatun has others (.64).

use crate::harness::{Daemon, counter, network, ping, tcp_copy};
use crate::processors::{are_several, assert_alone, mine};
use gatun_testkit::topology::{FAR, SERVER, SMALL_MTU};
use gatun_testkit::{Namespace, Process, Topology};
use rustix::process::Signal;
use std::process::Stdio;
use std::time::Duration;

pub(crate) const CONFIG: &str = r#"
[[port]]
name = "inside"
backend = "xdp"
device = "inside"
addresses = ["2001:db8:1::64/64", "100.64.0.64/24"]

[[port]]
name = "outside"
backend = "xdp"
device = "outside"
addresses = ["198.51.100.64/24"]

[[port]]
name = "small"
backend = "xdp"
device = "small"
addresses = ["10.64.1.64/24"]
routes = ["203.0.113.0/24 via 10.64.1.2"]

[[pool]]
prefixes = ["192.0.2.1", "198.51.100.65"]
[[nat64]]
pool6 = "2001:db8:64::/96"
[[nat44]]
inside = ["100.64.0.0/10"]
exempt = [{ prefixes = ["198.51.100.9"] }]
"#;

/// Like `in_lab`, if AF_XDP is possible: it needs root of the initial user namespace.
pub(crate) fn in_xdp_lab(test: &str, body: fn()) {
    gatun_testkit::run_test(test, || gatun_testkit::refusal_but_to_root("AF_XDP"), body);
}

pub(crate) fn xdp_network() -> Topology {
    let net = network();
    net.client.address("eth0", "100.64.0.2/24").unwrap();
    net.translator.address("inside", "100.64.0.1/24").unwrap();
    net.translator.address("small", "10.64.1.1/24").unwrap();
    net.router.address("near", "10.64.1.2/24").unwrap();
    // Behind the router, so that the router sends the error.
    for (host, device, mtu) in [
        (&net.translator, "small", 1500),
        (&net.router, "near", 1500),
        (&net.router, "far", SMALL_MTU),
        (&net.server, "eth1", SMALL_MTU),
    ] {
        host.ip(&format!("link set {device} mtu {mtu}")).unwrap();
    }
    for (host, route) in [
        (&net.client, "2001:db8:64::/96 via 2001:db8:1::64"),
        (&net.client, "default via 100.64.0.64"),
        (&net.server, "192.0.2.0/24 via 198.51.100.64"),
        (&net.router, "192.0.2.0/24 via 10.64.1.64"),
        (&net.router, "198.51.100.65 via 10.64.1.64"),
    ] {
        host.ip(&format!("route add {route}")).unwrap();
    }
    net
}

/// Waits until something holds.
pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    gatun_testkit::wait_until(what, Duration::from_secs(10), holds).unwrap();
}

fn has_program(host: &Namespace, device: &str) -> bool {
    host.run(&format!("ip -d link show {device}")).unwrap().contains("prog/xdp")
}

#[test]
fn nat64_and_nat44_carry_kernel_traffic_and_the_host_stays_reachable() {
    in_xdp_lab("xdp::nat64_and_nat44_carry_kernel_traffic_and_the_host_stays_reachable", || {
        let net = xdp_network();
        let daemon = Daemon::start(&net, CONFIG);
        assert!(
            daemon.stderr().contains("in the driver (native), packets are copied"),
            "{}",
            daemon.stderr()
        );
        // The first packet waits for the neighbour's MAC address.
        assert!(ping(&net.client, 3, SERVER, ""), "NAT64: {}", daemon.stderr());
        assert!(ping(&net.client, 3, "198.51.100.2", ""), "NAT44");
        assert!(ping(&net.client, 3, "198.51.100.2", "-s 4000"), "in pieces");
        assert!(ping(&net.client, 2, "100.64.0.64", "") && ping(&net.client, 2, "2001:db8:1::64", ""));
        tcp_copy(&net.client, &net.server, "TCP4-LISTEN:5001,reuseaddr", &format!("TCP6:[{SERVER}]:5001"));
        tcp_copy(&net.client, &net.server, "TCP4-LISTEN:5002,reuseaddr", "TCP4:198.51.100.2:5002");

        // Traceroute, and path MTU discovery.
        let hop = |target: &str, flags: &str| {
            let line = format!("-n -c 1 -W 2 {flags} {target}");
            let output =
                gatun_testkit::output(net.client.command("ping").args(line.split_whitespace())).unwrap();
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        assert!(hop(FAR, "-t 2").contains("From 2001:db8:64::a40:102 "), "{}", hop(FAR, "-t 2"));
        assert!(hop("203.0.113.2", "-t 2").contains("From 10.64.1.2 "), "{}", hop("203.0.113.2", "-t 2"));
        ping(&net.client, 1, FAR, "-M do -s 1452");
        let route = net.client.run(&format!("ip -6 route get {FAR}")).unwrap();
        assert!(route.contains(&format!("mtu {}", SMALL_MTU + 20)), "{route}");

        // Other packets on the same interfaces reach the kernel, also those of subscribers and exempt ones.
        tcp_copy(&net.server, &net.translator, "TCP4-LISTEN:5003,reuseaddr", "TCP4:198.51.100.1:5003");
        tcp_copy(&net.client, &net.translator, "TCP4-LISTEN:5004,reuseaddr", "TCP4:100.64.0.1:5004");
        tcp_copy(&net.client, &net.translator, "TCP6-LISTEN:5005,reuseaddr", "TCP6:[2001:db8:1::1]:5005");
        net.translator.address("outside", "198.51.100.9/32").unwrap();
        net.client.ip("route add 198.51.100.9 via 100.64.0.1").unwrap();
        assert!(ping(&net.client, 2, "198.51.100.9", ""), "exempt, and the kernel's");

        let ended = daemon.stop(Signal::TERM);
        assert!(counter(&ended.stdout, "checksums_finished") > 100, "{}", ended.stdout);
        assert!(!has_program(&net.translator, "inside"));
    });
}

/// Packets that the client's interface sent, and packets that it did not deliver to the other end. Gatun
/// counts drops of other interfaces as well.
fn cable(net: &Topology) -> (u64, u64) {
    let text = net.client.run("ip -j -s link show eth0").unwrap();
    let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
    let of = |what: &str| parsed[0]["stats64"]["tx"][what].as_u64().unwrap();
    (of("packets"), of("dropped"))
}

fn optional_counter(table: &str, row: &str) -> u64 {
    if table.contains(row) { counter(table, row) } else { 0 }
}

#[test]
fn every_lost_datagram_is_counted_by_reason() {
    in_xdp_lab("xdp::every_lost_datagram_is_counted_by_reason", || {
        const COUNT: u64 = 60_000;
        let net = xdp_network();
        let daemon = Daemon::start(&net, CONFIG);
        assert!(ping(&net.client, 1, SERVER, ""));
        // A datagram of one byte ends the stream.
        let receive = "import socket\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n\
             s.setsockopt(socket.SOL_SOCKET,33,64<<20)\ns.bind(('',5006))\ns.settimeout(8)\nn=0\nprint('up',flush=True)\n\
             while True:\n  d=s.recv(2000)\n  if len(d)==1: break\n  n+=1\nprint(n)";
        let mut command = net.server.command("python3");
        let receiver =
            Process::start(command.args(["-c", receive]).stdout(Stdio::piped()).stderr(Stdio::inherit()))
                .unwrap();
        until("a listener", || net.server.run("ss -Hlun").unwrap().contains(":5006 "));
        let before = cable(&net);
        let send = format!(
            "import socket,time\ns=socket.socket(socket.AF_INET6,socket.SOCK_DGRAM)\ns.connect(('{SERVER}',5006))\n\
             for i in range({COUNT}): s.send(b'x'*200)\ntime.sleep(1)\ns.send(b'x')"
        );
        let mut sender = Process::start(net.client.command("python3").args(["-c", &send])).unwrap();
        // A worker that is stopped for a while loses packets beyond the capacity of its rings.
        while cable(&net).0 < before.0 + 1_000 {
            assert!(sender.ended().is_none(), "the sender has sent too little");
        }
        daemon.process.signal(Signal::STOP).unwrap();
        std::thread::sleep(Duration::from_millis(150));
        daemon.process.signal(Signal::CONT).unwrap();
        let (status, output) = receiver.output(Duration::from_secs(20)).unwrap();
        assert!(status.success());
        assert!(sender.wait(Duration::from_secs(10)).unwrap().success());
        let received: u64 = output.trim().lines().last().unwrap().parse().unwrap();
        let snmp = net.server.run("nstat -asz UdpRcvbufErrors").unwrap();
        let socket_full: u64 = snmp.split_whitespace().nth(2).map_or(0, |n| n.parse().unwrap_or(0));
        let ended = daemon.stop(Signal::TERM);
        let rows = ["rx_no_frame", "rx_ring_full", "tx_full", "waiting_overflow", "waiting_failed"];
        let counted: u64 = rows.iter().map(|row| optional_counter(&ended.stdout, row)).sum();
        let dropped = counter(&ended.stdout, "dropped");
        let lost = COUNT - received;
        let explained = counted + dropped + socket_full + cable(&net).1 - before.1;
        assert_eq!(lost, explained, "{received} received, {socket_full} not read\n{}", ended.stdout);
        assert!(optional_counter(&ended.stdout, "rx_no_frame") > 0, "nothing was lost\n{}", ended.stdout);
    });
}

#[test]
fn a_second_daemon_is_refused_and_a_killed_one_leaves_nothing() {
    in_xdp_lab("xdp::a_second_daemon_is_refused_and_a_killed_one_leaves_nothing", || {
        let net = xdp_network();
        let daemon = Daemon::start(&net, CONFIG);
        assert!(has_program(&net.translator, "inside") && has_program(&net.translator, "small"));
        // No thread has a capability, except CAP_IPC_LOCK if root could not raise the limit of locked memory
        // (as in a container without CAP_SYS_RESOURCE).
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", daemon.process.id())).unwrap();
        let is_limited = !limits.lines().any(|l| l.starts_with("Max locked memory         unlimited"));
        let wanted = is_limited.then(|| ("links".to_owned(), 1 << 14));
        let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.process.id())).unwrap();
        let rights: Vec<(String, u64)> = tasks
            .map(|task| {
                let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
                let line =
                    |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).unwrap().trim().to_owned();
                (line("Name:"), u64::from_str_radix(&line("CapPrm:"), 16).unwrap())
            })
            .filter(|(_, rights)| *rights != 0)
            .collect();
        assert_eq!(rights, Vec::from_iter(wanted));
        let second = Daemon::spawn(&net, CONFIG, &[]).wait();
        assert!(!second.success);
        let wanted = "another gatun already runs on interface 'inside'";
        assert!(second.stderr.contains(wanted), "{}", second.stderr);
        assert!(ping(&net.client, 1, SERVER, ""), "the first goes on");
        daemon.process.signal(Signal::KILL).unwrap();
        let ended = daemon.wait();
        assert!(!ended.success);
        until("no program is left", || !has_program(&net.translator, "inside"));
        assert!(!has_program(&net.translator, "outside") && !has_program(&net.translator, "small"));
        let again = Daemon::start(&net, CONFIG);
        assert!(ping(&net.client, 1, SERVER, ""));
        again.stop(Signal::TERM);
    });
}

#[test]
fn an_interface_that_was_down_or_gone_recovers_with_its_sessions() {
    in_xdp_lab("xdp::an_interface_that_was_down_or_gone_recovers_with_its_sessions", || {
        let net = xdp_network();
        let daemon = Daemon::start(&net, CONFIG);
        assert!(ping(&net.client, 1, SERVER, ""));
        // By then, all start-up messages are logged.
        std::thread::sleep(Duration::from_secs(3));
        daemon.process.signal(Signal::USR1).unwrap();
        until("the counters are printed", || daemon.stdout().contains("announcements_sent"));
        let at_start = daemon.stdout();
        net.translator.ip("link set outside down").unwrap();
        until("it is said", || daemon.stderr().contains("interface outside: link is down"));
        assert!(!ping(&net.client, 1, SERVER, "-W 1"));
        net.translator.ip("link set outside up").unwrap();
        until("it is up", || daemon.stderr().contains("interface outside: link is up again"));
        until("a ping after it was down", || ping(&net.client, 1, SERVER, "-W 1"));

        net.translator.ip("link del inside").unwrap();
        until("it is said", || daemon.stderr().contains("interface inside: removed"));
        // A busy loop would use all of the time.
        let busy = |pid| -> u64 {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            stat.split_whitespace().skip(13).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
        };
        let before = busy(daemon.process.id());
        std::thread::sleep(Duration::from_millis(500));
        assert!(busy(daemon.process.id()) - before < 20, "the worker spins");
        net.client.connect("eth0", &net.translator, "inside").unwrap();
        // A new device has another MAC address.
        net.translator.ip("link set inside address 02:00:00:00:be:ef").unwrap();
        net.client.address("eth0", "2001:db8:1::2/64").unwrap();
        net.client.ip("route add 2001:db8:64::/96 via 2001:db8:1::64").unwrap();
        until("it is back", || daemon.stderr().contains("it is back"));
        until("a ping after it was gone", || ping(&net.client, 1, SERVER, "-W 1"));
        let neighbours = net.client.run("ip -6 neigh show 2001:db8:1::64").unwrap();
        assert!(neighbours.contains("lladdr 02:00:00:00:be:ef"), "{neighbours}");
        let ended = daemon.stop(Signal::TERM);
        let announced = |table| counter(table, "announcements_sent");
        assert!(announced(&ended.stdout[at_start.len()..]) > announced(&at_start), "{}", ended.stdout);
        assert!(counter(&ended.stdout, "tx_down") + optional_counter(&ended.stdout, "neighbour_failed") > 0);
    });
}

/// Two ports with two queues each, and a pool of two addresses.
const QUEUES: &str = r#"
[[port]]
backend = "xdp"
device = "inside"
queues = 2
addresses = ["2001:db8:1::64/64"]
[[port]]
backend = "xdp"
device = "outside"
queues = 2
addresses = ["198.51.100.64/24"]
[[pool]]
prefixes = ["192.0.2.1", "192.0.2.2"]
[[nat64]]
pool6 = "2001:db8:64::/96"
"#;

#[test]
fn two_workers_share_the_queues_and_hand_over_packets() {
    in_xdp_lab("xdp::two_workers_share_the_queues_and_hand_over_packets", || {
        let net = xdp_network();
        let spawned = Daemon::spawn(&net, QUEUES, &[]).wait();
        assert!(spawned.stderr.contains("receives on 1 queue, but gatun serves 2"), "{}", spawned.stderr);
        for (host, device) in [(&net.client, "inside"), (&net.server, "outside")] {
            net.translator.ip(&format!("link del {device}")).unwrap();
            let (two, name) = ("numrxqueues 2 numtxqueues 2", host.name());
            let line = format!("link add {device} {two} type veth peer name eth0 {two} netns {name}");
            net.translator.ip(&line).unwrap();
            net.translator.ip(&format!("link set {device} up")).unwrap();
            host.ip("link set eth0 up").unwrap();
        }
        net.client.address("eth0", "2001:db8:1::2/64").unwrap();
        net.client.ip("route add 2001:db8:64::/96 via 2001:db8:1::64").unwrap();
        net.server.address("eth0", "198.51.100.2/24").unwrap();
        net.server.ip("route add 192.0.2.0/24 via 198.51.100.64").unwrap();
        let daemon = Daemon::start(&net, QUEUES);
        assert!(daemon.stderr().contains("translating with 2 workers"), "{}", daemon.stderr());
        assert!(ping(&net.client, 5, SERVER, ""), "{}", daemon.stderr());
        let flows = format!(
            "import socket\nfor i in range(64): socket.socket(socket.AF_INET6,socket.SOCK_DGRAM).sendto(b'x',('{SERVER}',9))"
        );
        gatun_testkit::run(net.client.command("python3").args(["-c", &flows])).unwrap();
        for port in 5001..5003 {
            let listen = format!("TCP4-LISTEN:{port},reuseaddr");
            tcp_copy(&net.client, &net.server, &listen, &format!("TCP6:[{SERVER}]:{port}"));
        }
        // Reload both workers.
        let more = QUEUES.replace("\"192.0.2.2\"]", "\"192.0.2.2\", \"192.0.2.3\"]");
        let more = more.replace("[\"198.51.100.64/24\"]", "[\"198.51.100.64/24\", \"198.51.100.70/24\"]");
        daemon.reload(&more, "reload: done; ended: ");
        for _ in 0..8 {
            // The device chooses the queue of each flow.
            assert!(ping(&net.server, 1, "198.51.100.70", "") && ping(&net.client, 1, SERVER, ""));
        }
        // The device's hash ignores subscribers, so some of these flows arrive at the wrong worker.
        let ended = daemon.stop(Signal::TERM);
        assert!(counter(&ended.stdout, "handed to another worker, as received") > 0, "{}", ended.stdout);
    });
}

/// Three customers, each with 10.0.0.0/8 behind 10.0.0.1: on an interface, in a VLAN there, and on another
/// interface.
const CUSTOMERS: &str = r#"
[[port]]
name = "outside"
backend = "xdp"
device = "outside"
addresses = ["198.51.100.64/24"]
[[port]]
name = "first"
backend = "xdp"
device = "inside"
addresses = ["10.0.0.1/8"]
[[port]]
name = "second"
backend = "xdp"
device = "small"
addresses = ["10.0.0.1/8"]
[[port]]
name = "third"
backend = "xdp"
device = "inside"
vlan = 7
addresses = ["10.0.0.1/8"]
[[pool]]
name = "one"
prefixes = ["192.0.2.1"]
[[pool]]
name = "two"
prefixes = ["192.0.2.2"]
[[pool]]
name = "three"
prefixes = ["192.0.2.3"]
[[nat44]]
name = "first"
inside = "10.0.0.0/8"
ports = "first"
pool = "one"
[[nat44]]
name = "second"
inside = "10.0.0.0/8"
ports = "second"
pool = "two"
[[nat44]]
name = "third"
inside = "10.0.0.0/8"
ports = "third"
pool = "three"
"#;

/// Answers a number of datagrams, each with its source as seen by this host.
const WHO_AM_I: &str = "import socket
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.bind(('',5006)); s.settimeout(20)
for i in range(3):
  d,a=s.recvfrom(2000); s.sendto(a[0].encode(),a)";

/// Sends a datagram from 10.0.0.5 and prints the answer.
const ASK: &str = "import socket
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.bind(('10.0.0.5',4000)); s.settimeout(8)
s.sendto(b'?',('198.51.100.2',5006)); print(s.recv(99).decode())";

/// The same with frames of VLAN 7, because the kernel may lack VLANs: resolves 10.0.0.1 by ARP, sends,
/// answers ARP for 10.0.0.5, and prints the answer.
const ASK_IN_VLAN: &str = "import socket,struct
own=bytes([2,0,0,0,0,7]); s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW,socket.htons(3)); s.bind(('eth0',0))
s.setsockopt(263,8,1); s.settimeout(8); host=bytes([10,0,0,5]); gateway=bytes([10,0,0,1])
def send(dst,kind,body): s.send((dst+own+struct.pack('!HHH',0x8100,7,kind)+body).ljust(64,b'\\0'))
def arp(op,dst,target): send(dst,0x806,struct.pack('!HHBBH',1,0x800,6,4,op)+own+host+dst+target)
def total(b): n=sum(struct.unpack('!%dH'%(len(b)//2),b)); n=(n>>16)+(n&65535); return 65535-((n>>16)+n&65535)
arp(1,b'\\xff'*6,gateway)
while True:
  d,aux,_,_=s.recvmsg(2000,64)
  tags=[struct.unpack('IIIHHHH',c[2])[5] for c in aux if c[1]==8]
  kind=struct.unpack('!H',d[12:14])[0]
  if kind==0x8100: tags,kind,d=[struct.unpack('!H',d[14:16])[0]],struct.unpack('!H',d[16:18])[0],d[:12]+d[16:]
  if tags!=[7] or d[6:12]==own: continue
  if kind==0x806 and d[20:22]==b'\\0\\1' and d[38:42]==host: arp(2,d[6:12],gateway)
  if kind==0x806 and d[20:22]==b'\\0\\2' and d[28:32]==gateway:
    ip=struct.pack('!BBHHHBBH',0x45,0,29,1,0x4000,64,17,0)+host+bytes([198,51,100,2])
    send(d[6:12],0x800,ip[:10]+struct.pack('!H',total(ip))+ip[12:]+struct.pack('!HHHH',4000,5006,9,0)+b'?')
  if kind==0x800 and d[23]==17 and d[30:34]==host: print(d[42:14+struct.unpack('!H',d[16:18])[0]].decode()); break";

#[test]
fn customers_with_the_same_addresses_are_separated_by_interface_and_vlan() {
    in_xdp_lab("xdp::customers_with_the_same_addresses_are_separated_by_interface_and_vlan", || {
        let net = xdp_network();
        for (host, device) in [(&net.client, "eth0"), (&net.router, "near")] {
            host.ip(&format!("address flush dev {device}")).unwrap();
            host.address(device, "10.0.0.5/8").unwrap();
            host.ip("route replace default via 10.0.0.1").unwrap();
        }
        let daemon = Daemon::start(&net, CUSTOMERS);
        assert!(ping(&net.client, 3, "198.51.100.2", ""), "{}", daemon.stderr());
        assert!(ping(&net.router, 3, "198.51.100.2", ""), "{}", daemon.stderr());
        for (host, port) in [(&net.client, 5001), (&net.router, 5002)] {
            let (listen, connect) =
                (format!("TCP4-LISTEN:{port},reuseaddr"), format!("TCP4:198.51.100.2:{port}"));
            tcp_copy(host, &net.server, &listen, &connect);
        }
        let mut server = Process::start(net.server.command("python3").args(["-c", WHO_AM_I])).unwrap();
        until("a listener", || net.server.run("ss -Hlun").unwrap().contains(":5006 "));
        for (host, ask, public) in [
            (&net.client, ASK, "192.0.2.1"),
            (&net.router, ASK, "192.0.2.2"),
            (&net.client, ASK_IN_VLAN, "192.0.2.3"),
        ] {
            let seen = gatun_testkit::run(host.command("python3").args(["-c", ask])).unwrap();
            assert_eq!(seen.trim(), public, "{}", daemon.stderr());
        }
        assert!(server.wait(Duration::from_secs(10)).unwrap().success());
        let ended = daemon.stop(Signal::TERM);
        // Packets of each customer by rule, in both directions.
        assert!(
            counter(&ended.stdout, "nat44 first") > 1_000 && counter(&ended.stdout, "nat44 second") > 1_000
        );
        assert_eq!(counter(&ended.stdout, "nat44 third"), 1, "{}", ended.stdout);
    });
}

#[test]
fn a_worker_has_its_configured_processor_alone() {
    in_xdp_lab("xdp::a_worker_has_its_configured_processor_alone", || {
        if !are_several() {
            return;
        }
        let net = xdp_network();
        let first = mine()[0];
        let daemon = Daemon::start(&net, &format!("[workers]\ncores = [{first}]\n{CONFIG}"));
        assert!(ping(&net.client, 1, SERVER, ""), "{}", daemon.stderr());
        assert_alone(&daemon);
        daemon.stop(Signal::TERM);
    });
}
