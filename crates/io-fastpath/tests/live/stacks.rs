//! Properties that only whole kernel stacks show: path MTU, ECN, hop limits, local traffic, flow labels, segment
//! sizes.

use super::*;

/// Sends with the hop limits 1 to 4 from an established flow, and prints who answered, or `echo`.
const HOPS: &str = r#"
import select, socket, struct, sys, time
six = ':' in sys.argv[1]
s = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM); s.connect((sys.argv[1], 7000))
s.setsockopt(*((41, 25) if six else (0, 11)), 1)
begin = time.monotonic(); got = 0
while got < 30 and time.monotonic() < begin + 20:
    s.send(b'%4d' % got + bytes(20))
    if select.select([s], [], [], 1)[0]: s.recv(100); got += 1
assert got == 30
def answer(hops):
    s.setsockopt(*((41, 16) if six else (0, 2)), hops)
    # Linux queues an ICMP error and sets the socket's error after that: it may be here when the queue is empty again.
    try: s.send(b'hops' + bytes(20))
    except OSError: s.send(b'hops' + bytes(20))
    p = select.poll(); p.register(s, select.POLLIN | select.POLLERR)
    begin = time.monotonic()
    while time.monotonic() < begin + 5:
        for _, event in p.poll(1000):
            if not event & select.POLLERR:
                s.recv(100); return 'echo'
            try: _, control, _, _ = s.recvmsg(100, 1000, 0x2000)
            except BlockingIOError: s.getsockopt(1, 4); continue
            e = control[0][2]; kind = e[5]
            at = e[24:40] if six else e[20:24]
            return '%d %s' % (kind, socket.inet_ntop(s.family, at))
    return 'nothing'
print(', '.join(answer(hops) for hops in (1, 2, 3, 4)))
"#;

/// Echoes datagrams on port 7001 with the TOS that they came with.
const SERVE_TOS: &str = r#"
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', 7001)); s.setsockopt(0, 13, 1)
while True:
    b, c, _, a = s.recvmsg(100, 100)
    tos = c[0][2][0]
    s.setsockopt(0, 1, tos); s.sendto(b + bytes([tos]), a)
"#;

/// Sends datagrams with each traffic class, and checks that they arrive and come back with it.
const TOS: &str = r#"
import socket, sys
six = ':' in sys.argv[1]
s = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM); s.connect((sys.argv[1], 7001))
s.settimeout(10); s.setsockopt(*((41, 66) if six else (0, 13)), 1)
for tos in [0, 1, 2, 3, 0xb8, 0xba] * 20:
    s.setsockopt(*((41, 67) if six else (0, 1)), tos)
    s.send(b'tos')
    b, c, _, _ = s.recvmsg(100, 100)
    back = c[0][2][0]
    assert (b[3], back) == (tos, tos), 'sent %d, arrived %d, came back %d' % (tos, b[3], back)
"#;

/// Sends datagrams and a stream. Prints, by protocol, the flow labels of the packets that arrived, and
/// whether packets were sent with one; then whether enough arrived.
const LABELS: &str = r#"
import socket, struct, sys
p = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3)); p.bind(('eth0', 3))
p.setsockopt(socket.SOL_SOCKET, 33, 1 << 23); p.setblocking(False)
server = socket.inet_pton(socket.AF_INET6, sys.argv[1])
names, arrived, labelled, count = {6: 'tcp', 17: 'udp'}, {}, set(), {}
def look():
    while True:
        try: b, a = p.recvfrom(40)
        except BlockingIOError: return
        if a[1] != 0x86dd: continue
        label, name = struct.unpack('!I', b[:4])[0] & 0xfffff, names.get(b[6])
        if name and b[8:24] == server:
            arrived.setdefault(name, set()).add(label); count[name] = count.get(name, 0) + 1
        if name and b[24:40] == server and label: labelled.add(name)
u = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); u.connect((sys.argv[1], 7000)); u.settimeout(10)
for n in range(300): u.send(b'%100d' % n); assert u.recv(200) == b'%100d' % n; look()
c = socket.create_connection((sys.argv[1], 7000), 10); c.settimeout(20)
n = 2000000; c.sendall(b'%16d' % n)
sent = got = 0
while sent < n: sent += c.send(bytes(min(1 << 16, n - sent))); look()
while got < n + 64: got += len(c.recv(1 << 16)); look()
print([(name, sorted(arrived[name]), name in labelled) for name in ('udp', 'tcp')], min(count.values()) > 50)
"#;

/// Prints the segment size of a connection.
const SEGMENT: &str = r#"
import socket, sys
c = socket.create_connection((sys.argv[1], 7000), 10); c.sendall(b'%16d' % 1 + b'x'); c.recv(65)
print(c.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG))
"#;

const SERVERS: [(u8, &str); 2] = [(0, NAT64_SERVER), (1, SERVER)];

fn start() -> (Net, Process, Middle) {
    let net = Net::new(ClientLink::Plain);
    let server = serve(&net);
    for setting in ["net.ipv4.icmp_ratelimit=0", "net.ipv6.icmp.ratelimit=0"] {
        run(Command::new("sysctl").args(["-qw", setting])).unwrap();
    }
    let middle = Middle::start(None, None);
    // Source of the kernel's ICMP errors to the pool: not an inside address. NAT44 leaves it as it is.
    run(Command::new("ip").args("address add 203.0.113.1/32 dev gatun0".split_whitespace())).unwrap();
    run(Command::new("sysctl").args(["-qw", "net.ipv4.conf.gatun0.accept_local=1"])).unwrap();
    (net, server, middle)
}

/// Runs `traffic`, and returns the packets that the program has translated meanwhile.
fn hits_of(middle: &Middle, instance: u8, traffic: impl FnOnce()) -> u64 {
    let before = middle.packets_of(Some(instance), Reason::Hit);
    traffic();
    middle.packets_of(Some(instance), Reason::Hit) - before
}

#[test]
fn a_hop_limit_at_its_end_has_the_same_answers_as_without_the_program() {
    in_lab("stacks::a_hop_limit_at_its_end_has_the_same_answers_as_without_the_program", || {
        let (net, _server, middle) = start();
        for (instance, to) in SERVERS {
            let mut with = String::new();
            let hits = hits_of(&middle, instance, || {
                with = run(&mut python(&net.client, HOPS, &[to])).unwrap();
            });
            assert!(hits > 10, "{to}: {hits} hits; {:?}", middle.counters());
            middle.control().set_lease(KernelTime(0));
            let without = run(&mut python(&net.client, HOPS, &[to])).unwrap();
            middle.control().renew_lease(Duration::from_secs(600));
            assert_eq!(with, without, "{to}");
            assert!(with.trim().ends_with("echo") && !with.contains("nothing"), "{to}: {with}");
        }
        assert!(middle.packets_of(None, Reason::HopLimit) > 0);
    });
}

#[test]
fn a_smaller_mtu_on_the_way_is_found_by_the_sender() {
    in_lab("stacks::a_smaller_mtu_on_the_way_is_found_by_the_sender", || {
        let (net, _server, middle) = start();
        run(Command::new("ip").args("link set out0 mtu 1400".split_whitespace())).unwrap();
        for (instance, to, learnt) in [(0, NAT64_SERVER, "mtu 1420"), (1, SERVER, "mtu 1400")] {
            let hits = hits_of(&middle, instance, || stream(&net, to, 2_000_000));
            assert!(hits > 100, "{to}: {hits} hits; {:?}", middle.counters());
            let route = net.client.run(&format!("ip route get {to}")).unwrap();
            assert!(route.contains(learnt), "{to}: {route}");
        }
    });
}

#[test]
fn traffic_classes_and_congestion_marks_pass_both_ways() {
    in_lab("stacks::traffic_classes_and_congestion_marks_pass_both_ways", || {
        let (net, _server, middle) = start();
        let _echo = Process::start(&mut python(&net.server, SERVE_TOS, &[])).unwrap();
        let listens = || net.server.run("ss -Hlnu").is_ok_and(|sockets| sockets.contains(":7001 "));
        gatun_testkit::wait_until("the server", Duration::from_secs(60), listens).unwrap();
        for (instance, to) in SERVERS {
            let hits = hits_of(&middle, instance, || {
                run(&mut python(&net.client, TOS, &[to])).unwrap();
            });
            assert!(hits > 50, "{to}: {hits} hits; {:?}", middle.counters());
        }
        // A router behind the program marks every packet of a connection that negotiated ECN.
        for host in [&net.client, &net.server] {
            host.sysctl("net.ipv4.tcp_ecn", "1").unwrap();
        }
        let rules = "add table ip t
            add chain ip t f { type filter hook forward priority 0; }
            add rule ip t f oif out0 ip ecn ect0 ip ecn set ce";
        run(Command::new("nft").arg(rules)).unwrap();
        for (instance, to) in SERVERS {
            let hits = hits_of(&middle, instance, || stream(&net, to, 500_000));
            assert!(hits > 20, "{to}: {hits} hits; {:?}", middle.counters());
        }
        let counters = net.server.run("cat /proc/net/netstat").unwrap();
        let mut lines = counters.lines().filter_map(|line| line.strip_prefix("IpExt: "));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let marked = names.split(' ').zip(values.split(' ')).find(|(name, _)| *name == "InCEPkts").unwrap();
        assert!(marked.1.parse::<u64>().unwrap() > 0, "{marked:?}");
    });
}

#[test]
fn traffic_of_the_translators_own_host_is_translated() {
    in_lab("stacks::traffic_of_the_translators_own_host_is_translated", || {
        let (_net, _server, middle) = start();
        let own = |script: &str, arguments: &[&str]| {
            run(Command::new("python3").args(["-c", script, NAT64_SERVER]).args(arguments)).unwrap()
        };
        let hits = hits_of(&middle, 0, || {
            own(STREAM, &["2000000"]);
        });
        assert!(hits > 100, "{hits} hits; {:?}", middle.counters());
        let hits = hits_of(&middle, 0, || assert_eq!(own(NUMBERED, &["500", "1000", "1"]).trim(), "500 0"));
        assert!(hits > 500, "{hits} hits; {:?}", middle.counters());
    });
}

#[test]
fn flow_labels_and_segment_sizes_are_those_of_the_engine() {
    in_lab("stacks::flow_labels_and_segment_sizes_are_those_of_the_engine", || {
        let (net, _server, middle) = start();
        for (labels, is_labelled) in [("0", "False"), ("1", "True"), ("3", "True")] {
            net.client.sysctl("net.ipv6.auto_flowlabels", labels).unwrap();
            let labels_of = || run(&mut python(&net.client, LABELS, &[NAT64_SERVER])).unwrap();
            let mut with = String::new();
            let hits = hits_of(&middle, 0, || with = labels_of());
            assert!(hits > 300, "flow labels {labels}: {hits} hits; {:?}", middle.counters());
            middle.control().set_lease(KernelTime(0));
            let mut without = String::new();
            let hits = hits_of(&middle, 0, || without = labels_of());
            middle.control().renew_lease(Duration::from_secs(600));
            assert_eq!((hits, &with), (0, &without), "flow labels {labels}");
            // RFC 7915 4.1: zero, whatever label the client has sent.
            let expected = format!("[('udp', [0], {is_labelled}), ('tcp', [0], {is_labelled})] True");
            assert_eq!(with.trim(), expected, "flow labels {labels}");
        }
        // 1,500 bytes less the headers and 12 bytes of options.
        for (to, size) in [(NAT64_SERVER, 1428), (SERVER, 1448)] {
            let said = run(&mut python(&net.client, SEGMENT, &[to])).unwrap();
            assert_eq!(said.trim(), size.to_string(), "{to}");
        }
        let lost = [Some(0), Some(1), None]
            .map(|row| [Reason::TooLarge, Reason::Refused].map(|reason| middle.packets_of(row, reason)));
        assert_eq!(lost, [[0; 2]; 3]);
    });
}

/// The senders send single packets, and the translator's devices join them to super-packets.
fn joined_on_receipt(features: &str) {
    let (net, _server, middle) = start();
    for host in [&net.client, &net.server] {
        host.run("ethtool -K eth0 tso off gso off").unwrap();
    }
    for device in ["in0", "out0"] {
        let features = features.split(' ');
        run(Command::new("ethtool").args(["-K", device]).args(features)).unwrap();
    }
    for (instance, to) in SERVERS {
        let hits = hits_of(&middle, instance, || stream(&net, to, 4_000_000));
        assert!(hits > 100, "{to}: {hits} hits; {:?}", middle.counters());
    }
    let dropped = [Some(0), Some(1)].map(|row| middle.packets_of(row, Reason::Dropped));
    assert_eq!(dropped, [0; 2]);
}

#[test]
fn packets_that_the_receiving_device_has_joined_pass() {
    in_lab("stacks::packets_that_the_receiving_device_has_joined_pass", || joined_on_receipt("gro on"));
}

#[test]
fn packets_that_the_receiving_device_has_joined_as_a_list_pass() {
    in_lab("stacks::packets_that_the_receiving_device_has_joined_as_a_list_pass", || {
        joined_on_receipt("gro on rx-gro-list on");
    });
}

/// Packets that the reverse-path filter has dropped.
fn filtered() -> u64 {
    let counters = std::fs::read_to_string("/proc/net/netstat").unwrap();
    let mut lines = counters.lines().filter_map(|line| line.strip_prefix("TcpExt: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let found = names.split(' ').zip(values.split(' ')).find(|(name, _)| *name == "IPReversePathFilter");
    found.unwrap().1.parse().unwrap()
}

#[test]
fn the_reverse_path_filter_treats_translated_packets_as_without_the_program() {
    in_lab("stacks::the_reverse_path_filter_treats_translated_packets_as_without_the_program", || {
        let (net, _server, middle) = start();
        for device in ["in0", "out0", "gatun0"] {
            let setting = format!("net.ipv4.conf.{device}.rp_filter=1");
            run(Command::new("sysctl").args(["-qw", &setting])).unwrap();
        }
        traffic(&net, &middle);
        assert_eq!(filtered(), 0);
        // With marks instead of an interface, the kernel does not know that the way to the server is the device: the
        // filter takes the answers to private hosts, whoever has translated them, and no others.
        let rules = "add table ip t
            add chain ip t p { type filter hook prerouting priority mangle; }
            add rule ip t p iif in0 meta mark set 1";
        run(Command::new("nft").arg(rules)).unwrap();
        for line in ["rule add fwmark 1 lookup 100", "rule del iif in0 lookup 100"] {
            run(Command::new("ip").args(line.split_whitespace())).unwrap();
        }
        let hits = hits_of(&middle, 0, || {
            assert_eq!(numbered(&net, NAT64_SERVER, 100, 1000), (100, 0));
        });
        assert!(hits > 0 && filtered() == 0, "{hits} hits, {} packets filtered", filtered());
        for (is_fast, taken) in [(true, 100), (false, 200)] {
            let hits = hits_of(&middle, 1, || {
                assert_eq!(numbered(&net, SERVER, 100, 1000), (0, 0));
            });
            assert_eq!((hits > 0, filtered()), (is_fast, taken));
            middle.control().set_lease(KernelTime(0));
        }
    });
}
