//! Real traffic through the daemon.

use crate::harness::{CREATE, Daemon, NAT64, SIIT, counter, in_lab, network, ping, succeeds, tcp_copy};
use gatun_testkit::Process;
use gatun_testkit::topology::{FAR, PUBLIC, SERVER, SMALL_MTU};
use rustix::process::Signal;
use std::time::Duration;

#[test]
fn pings_cross_in_both_directions_and_the_translator_answers_its_own() {
    in_lab("traffic::pings_cross_in_both_directions_and_the_translator_answers_its_own", || {
        let net = network();
        let daemon = Daemon::start(&net, &format!("{CREATE}{SIIT}"));
        assert!(ping(&net.client, 5, SERVER, ""), "from IPv6 to IPv4");
        assert!(ping(&net.server, 5, PUBLIC, ""), "from IPv4 to IPv6");
        assert!(ping(&net.client, 5, SERVER, "-s 1400"), "near the MTU");
        let ended = daemon.stop(Signal::TERM);
        assert!(counter(&ended.stdout, "forwarded, IPv6 to IPv4") >= 15, "{}", ended.stdout);
        assert!(counter(&ended.stdout, "forwarded, IPv4 to IPv6") >= 15, "{}", ended.stdout);
    });
}

/// Sends ten datagrams to each form of an own address. The kernel routes all of them back to the device.
#[test]
fn a_datagram_to_an_own_address_is_answered_once_without_a_loop() {
    in_lab("traffic::a_datagram_to_an_own_address_is_answered_once_without_a_loop", || {
        let net = network();
        let daemon = Daemon::start(&net, &format!("{CREATE}{SIIT}"));
        let is_refused = "import socket,sys
to=sys.argv[1]
for n in range(10):
  s=socket.socket(socket.AF_INET6 if ':' in to else socket.AF_INET,socket.SOCK_DGRAM)
  s.settimeout(5)
  s.connect((to,9))
  s.send(b'x')
  try: s.recv(9); sys.exit('an answer')
  except ConnectionRefusedError: pass
";
        for (host, own) in [
            (&net.server, "192.0.2.14"),
            (&net.client, "2001:db8:ffff::1"),
            (&net.client, "2001:db8:64::c000:20e"),
        ] {
            gatun_testkit::run(host.command("python3").args(["-c", is_refused, own])).unwrap();
        }
        assert!(ping(&net.client, 2, "2001:db8:64::c000:20e", "") && ping(&net.server, 2, "192.0.2.14", ""));
        let ended = daemon.stop(Signal::TERM);
        let row = ended.stdout.lines().find(|line| line.contains("own_udp")).unwrap_or_default();
        let cells: Vec<&str> =
            row.split(['│', '┆', '|']).map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert_eq!(cells[..3], ["own_udp", "20", "10"], "{}", ended.stdout);
        assert_eq!(counter(&ended.stdout, "ICMP errors sent"), 30, "{}", ended.stdout);
        assert_eq!(counter(&ended.stdout, "echo replies"), 4, "{}", ended.stdout);
        for way in ["forwarded, IPv6 to IPv4", "forwarded, IPv4 to IPv6"] {
            assert_eq!(counter(&ended.stdout, way), 0, "{}", ended.stdout);
        }
    });
}

/// A Time Exceeded that quotes only a header, followed by an extension (RFC 4884). ICMPv6 pads the quote to
/// 128 bytes, so the packet grows from 64 to 192 bytes.
#[test]
fn an_error_that_grows_by_128_bytes_arrives() {
    in_lab("traffic::an_error_that_grows_by_128_bytes_arrives", || {
        let net = network();
        let daemon = Daemon::start(&net, &format!("{CREATE}{SIIT}"));
        let hears = "import socket
s=socket.socket(socket.AF_INET6,socket.SOCK_RAW,socket.IPPROTO_ICMPV6); s.settimeout(10)
print('up',flush=True)
while True:
  d=s.recv(999)
  if d[0]==3: break
assert len(d)==8+128+16 and d[4]==16 and d[-16]==0x20, d.hex()
";
        let out = std::path::Path::new("/run/hears");
        let mut command = net.client.command("python3");
        command.args(["-c", hears]).stdout(std::fs::File::create(out).unwrap());
        let mut client = Process::start(&mut command).unwrap();
        let is_up = || std::fs::read(out).is_ok_and(|said| !said.is_empty());
        gatun_testkit::wait_until("the client's socket", Duration::from_secs(10), is_up).unwrap();
        let says = "import socket,struct
def sum(b):
  t=0
  for n in struct.unpack('>%dH'%(len(b)//2),b): t+=n
  while t>0xffff: t=(t&0xffff)+(t>>16)
  return 0xffff-t
ip=struct.pack('>BBHHHBBH4s4s',0x45,0,20,1,0,1,132,0,socket.inet_aton('192.0.2.1'),socket.inet_aton('198.51.100.2'))
ip=ip[:10]+struct.pack('>H',sum(ip))+ip[12:]
extension=b'\\x20\\0\\x12\\x34\\0\\x0c\\1\\1'+b'12345678'
icmp=struct.pack('>BBHBBH',11,0,0,0,5,0)+ip+extension
icmp=icmp[:2]+struct.pack('>H',sum(icmp))+icmp[4:]
socket.socket(socket.AF_INET,socket.SOCK_RAW,socket.IPPROTO_ICMP).sendto(icmp,('192.0.2.1',0))
";
        gatun_testkit::run(net.server.command("python3").args(["-c", says])).unwrap();
        assert!(client.wait(Duration::from_secs(15)).unwrap().success(), "{}", daemon.stdout());
        let ended = daemon.stop(Signal::TERM);
        assert_eq!(counter(&ended.stdout, "forwarded, IPv4 to IPv6"), 1, "{}", ended.stdout);
        assert!(!ended.stdout.contains("no_headroom"), "{}", ended.stdout);
    });
}

#[test]
fn tcp_super_packets_with_unfinished_checksums_cross_both_ways_unharmed() {
    in_lab("traffic::tcp_super_packets_with_unfinished_checksums_cross_both_ways_unharmed", || {
        let net = network();
        let daemon = Daemon::start(&net, &format!("{CREATE}{SIIT}"));
        tcp_copy(&net.client, &net.server, "TCP4-LISTEN:5001,reuseaddr", &format!("TCP6:[{SERVER}]:5001"));
        tcp_copy(&net.server, &net.client, "TCP6-LISTEN:5002,reuseaddr", &format!("TCP4:{PUBLIC}:5002"));
        let ended = daemon.stop(Signal::TERM);
        let received = counter(&ended.stdout, "super-packets received");
        // 40 MB in super-packets of up to 64 KB; single segments would be 28,000 packets.
        assert!(received > 100, "{}", ended.stdout);
        assert!(counter(&ended.stdout, "forwarded, IPv6 to IPv4") < 20_000, "{}", ended.stdout);
        assert_eq!(received, counter(&ended.stdout, "super-packets sent"), "{}", ended.stdout);
    });
}

#[test]
fn tcp_crosses_without_offloads_too() {
    in_lab("traffic::tcp_crosses_without_offloads_too", || {
        let net = network();
        let daemon = Daemon::start(&net, &format!("{CREATE}offload = false\n{SIIT}"));
        tcp_copy(&net.client, &net.server, "TCP4-LISTEN:5001,reuseaddr", &format!("TCP6:[{SERVER}]:5001"));
        let ended = daemon.stop(Signal::TERM);
        assert_eq!(counter(&ended.stdout, "super-packets received"), 0, "{}", ended.stdout);
    });
}

#[test]
fn udp_datagrams_cross_both_ways_in_order_and_whole() {
    in_lab("traffic::udp_datagrams_cross_both_ways_in_order_and_whole", || {
        let net = network();
        let daemon = Daemon::start(&net, &format!("{CREATE}{SIIT}"));
        for (version, from, to, target) in
            [("", &net.client, &net.server, SERVER), ("6", &net.server, &net.client, PUBLIC)]
        {
            let script = format!(
                "import socket,sys\ns=socket.socket(socket.AF_INET{version},socket.SOCK_DGRAM)\ns.settimeout(5)\ns.bind(('',5003))\nprint('up',flush=True)\nfor i in range(200):\n  d,_=s.recvfrom(9000)\n  assert d==bytes([i])*(i*7), i\n"
            );
            let mut receiver =
                gatun_testkit::Process::start(to.command("python3").args(["-c", &script])).unwrap();
            let is_up = || {
                let sockets =
                    gatun_testkit::output(to.command("ss").args(["-Huln", "sport = :5003"])).unwrap();
                !sockets.stdout.is_empty()
            };
            gatun_testkit::wait_until("the receiver", Duration::from_secs(10), is_up).unwrap();
            let script = format!(
                "import socket,time\na=socket.getaddrinfo('{target}',5003,type=socket.SOCK_DGRAM)[0]\ns=socket.socket(a[0],socket.SOCK_DGRAM)\nfor i in range(200):\n  s.sendto(bytes([i])*(i*7),a[4]); time.sleep(0.001)\n"
            );
            gatun_testkit::run(from.command("python3").args(["-c", &script])).unwrap();
            assert!(receiver.wait(Duration::from_secs(10)).unwrap().success(), "to {target}");
        }
        daemon.stop(Signal::TERM);
    });
}

// proves: A79-70
#[test]
fn a_small_link_on_the_ipv4_side_is_found_by_the_ipv6_host() {
    in_lab("traffic::a_small_link_on_the_ipv4_side_is_found_by_the_ipv6_host", || {
        let net = network();
        let daemon = Daemon::start(&net, &format!("{CREATE}{SIIT}"));
        assert!(ping(&net.client, 1, FAR, ""));
        // The first IPv6 packet of 1500 bytes is answered with Packet Too Big, and the kernel learns the MTU.
        ping(&net.client, 2, FAR, "-M do -s 1452");
        let route = net.client.run(&format!("ip -6 route get {FAR}")).unwrap();
        let expected = format!("mtu {}", SMALL_MTU + 20);
        assert!(route.contains(&expected), "{expected} in {route}");
        let largest = SMALL_MTU + 20 - 48;
        assert!(ping(&net.client, 2, FAR, &format!("-M do -s {largest}")));
        assert!(!ping(&net.client, 1, FAR, &format!("-M do -s {}", largest + 1)));
        daemon.stop(Signal::TERM);
    });
}

/// The router has a link with MTU 905 and does not fragment: it drops packets that it may not refuse.
#[test]
fn a_path_that_carries_less_than_an_ipv6_host_sends_is_heeded_for_it() {
    in_lab("traffic::a_path_that_carries_less_than_an_ipv6_host_sends_is_heeded_for_it", || {
        let net = network();
        net.router.ip("link set far mtu 905").unwrap();
        net.server.ip("link set eth1 mtu 905").unwrap();
        let rules = "table ip t { chain c { type filter hook forward priority 0; oifname far meta length > 905 drop; }; }";
        gatun_testkit::run(net.router.command("nft").arg(rules)).unwrap();
        let daemon = Daemon::start(&net, &format!("{CREATE}{NAT64}"));
        let script = "import socket\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.bind(('203.0.113.2',5004))\nwhile 1:\n  d,a=s.recvfrom(9999); s.sendto(b'%d'%len(d),a)";
        let _server = Process::start(net.server.command("python3").args(["-c", script])).unwrap();
        let arrives = |bytes: usize| {
            let script = format!(
                "import socket\ns=socket.socket(socket.AF_INET6,socket.SOCK_DGRAM); s.settimeout(1); s.sendto(bytes({bytes}),('{FAR}',5004))\nassert s.recv(99)==b'{bytes}'"
            );
            succeeds(net.client.command("python3").args(["-c", &script]))
        };
        // 1280 bytes: an IPv6 sender cannot be told a smaller MTU.
        assert!((0..5).any(|_| arrives(400)) && !arrives(1232));
        // The router reports 905, the client gets 1280, and the translator remembers 905.
        assert!(!ping(&net.client, 1, FAR, "-M do -s 1300"));
        let route = net.client.run(&format!("ip -6 route get {FAR}")).unwrap();
        assert!(route.contains("mtu 1280"), "{route}");
        assert!(arrives(1232));
        // The rule would count a super-packet as one packet.
        net.router.run("nft flush ruleset").unwrap();
        tcp_copy(&net.client, &net.server, "TCP4-LISTEN:5001,reuseaddr", &format!("TCP6:[{FAR}]:5001"));
        let ended = daemon.stop(Signal::TERM);
        assert_eq!(counter(&ended.stdout, "path MTUs below 1,260 bytes reported"), 1, "{}", ended.stdout);
    });
}

#[test]
fn two_workers_share_a_stateless_device() {
    in_lab("traffic::two_workers_share_a_stateless_device", || {
        let net = network();
        let daemon = Daemon::start(&net, &format!("{CREATE}queues = 2\n{SIIT}"));
        assert!(daemon.stderr().contains("translating with 2 workers"), "{}", daemon.stderr());
        tcp_copy(&net.client, &net.server, "TCP4-LISTEN:5001,reuseaddr", &format!("TCP6:[{SERVER}]:5001"));
        for _ in 0..8 {
            assert!(ping(&net.client, 2, SERVER, "") && ping(&net.server, 2, PUBLIC, ""));
        }
        daemon.stop(Signal::TERM);
    });
}

/// Two hosts of the client's network also reach each other at their public addresses.
// proves: R47-1, A61-62
#[test]
fn two_workers_share_a_stateful_device() {
    in_lab("traffic::two_workers_share_a_stateful_device", || {
        let net = network();
        let pool = "[[pool]]\nprefixes = [\"192.0.2.1\", \"192.0.2.2\"]\n[[nat64]]\npool6 = \"2001:db8:64::/96\"\nsubscriber = \"/128\"\n";
        let statics = "static = [\n\
            { protocol = \"tcp\", inside = \"[2001:db8:1::10]:5002\", outside = \"192.0.2.1:5002\" },\n\
            { protocol = \"tcp\", inside = \"[2001:db8:1::11]:5003\", outside = \"192.0.2.2:5003\" },\n]\n";
        let daemon = Daemon::start(&net, &format!("{CREATE}queues = 2\n{pool}{statics}"));
        assert!(daemon.stderr().contains("translating with 2 workers"), "{}", daemon.stderr());
        let hosts: Vec<String> = (0x10..0x20).map(|n| format!("2001:db8:1::{n:x}")).collect();
        for host in &hosts {
            net.client.address("eth0", &format!("{host}/64")).unwrap();
        }
        // Duplicate address detection.
        std::thread::sleep(Duration::from_secs(2));
        // Fragmented datagrams in both directions.
        let serve = "import socket\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\ns.bind(('',5010))\ns.settimeout(30)\nwhile True:\n d,a=s.recvfrom(9000)\n s.sendto(d,a)";
        let server = Process::start(net.server.command("python3").args(["-c", serve])).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        for host in &hosts {
            assert!(ping(&net.client, 2, SERVER, &format!("-I {host}")), "{host}");
            let ask = format!(
                "import socket\ns=socket.socket(socket.AF_INET6,socket.SOCK_DGRAM)\ns.bind(('{host}',0))\ns.settimeout(5)\ns.sendto(b'x'*3000,('{SERVER}',5010))\nprint(len(s.recvfrom(9000)[0]))"
            );
            let answer = gatun_testkit::run(net.client.command("python3").args(["-c", &ask])).unwrap();
            assert_eq!(answer.trim(), "3000", "{host}");
        }
        drop(server);
        for host in &hosts[..6] {
            let connect = format!("TCP6:[{SERVER}]:5001,bind=[{host}]");
            tcp_copy(&net.client, &net.server, "TCP4-LISTEN:5001,reuseaddr", &connect);
        }
        tcp_copy(&net.server, &net.client, "TCP6-LISTEN:5002,reuseaddr", "TCP4:192.0.2.1:5002");
        tcp_copy(&net.server, &net.client, "TCP6-LISTEN:5003,reuseaddr", "TCP4:192.0.2.2:5003");
        // Between the subscribers of both workers, in both directions.
        let connect = "TCP6:[2001:db8:64::c000:202]:5003,bind=[2001:db8:1::10]";
        tcp_copy(&net.client, &net.client, "TCP6-LISTEN:5003,reuseaddr", connect);
        let ended = daemon.stop(Signal::TERM);
        assert!(counter(&ended.stdout, "handed to another worker, as received") > 10, "{}", ended.stdout);
        assert!(counter(&ended.stdout, "handed to another worker, translated") > 10, "{}", ended.stdout);
        assert!(ended.stdout.contains("every packet received is accounted for"), "{}", ended.stdout);
    });
}

#[test]
fn stateful_tcp_crosses_outward_and_inward_by_a_static_binding() {
    in_lab("traffic::stateful_tcp_crosses_outward_and_inward_by_a_static_binding", || {
        let net = network();
        let daemon = Daemon::start(&net, &format!("{CREATE}{NAT64}"));
        assert!(daemon.stderr().contains("translating with 1 worker,"), "{}", daemon.stderr());
        assert!(ping(&net.client, 5, SERVER, ""));
        assert!(ping(&net.client, 3, SERVER, "-s 3000"), "in three pieces each way");
        tcp_copy(&net.client, &net.server, "TCP4-LISTEN:5001,reuseaddr", &format!("TCP6:[{SERVER}]:5001"));
        tcp_copy(&net.server, &net.client, "TCP6-LISTEN:5002,reuseaddr", &format!("TCP4:{PUBLIC}:5002"));
        // A datagram to a port without a binding.
        let line = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 22222))";
        gatun_testkit::run(net.server.command("python3").args(["-c", line])).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let ended = daemon.stop(Signal::TERM);
        assert!(ended.stdout.contains("no_bib"), "{}", ended.stdout);
    });
}
