//! UDP datagrams that are coalesced for the kernel (`udp_gro`).

use crate::harness::{CREATE, Daemon, NAT64, counter, in_lab, network};
use gatun_testkit::topology::{CLIENT, SERVER};
use gatun_testkit::{Process, Topology, wait_until};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Alternating datagrams of two flows, and some of a third one with checksums made by the script. `burst`
/// yields port, length, and whether the checksum is correct. The datagrams that each end expects follow from
/// it.
const COMMON: &str = r#"
import socket, struct, sys, os, time
def burst():
    lengths = [1200]*30 + [700] + [300]*20 + [1]*10 + [1400]*40 + [1399, 1400, 1400, 3, 3, 2, 3] + [9]*70
    for i, length in enumerate(lengths):
        yield 7001 + i % 2, length, True
        if i % 5 == 0:
            yield 7003, 500, i % 25 != 0
def payload(number, length):
    return (struct.pack('!H', number) * (length // 2 + 1))[:length]
def sockets(family):
    made = {}
    for port in (7001, 7002):
        s = socket.socket(family, socket.SOCK_DGRAM)
        s.setsockopt(socket.SOL_SOCKET, 33, 1 << 22)  # SO_RCVBUFFORCE
        s.settimeout(10)
        s.bind(('', port))
        made[port] = s
    return made
def raw(source, to, port, data, right):
    s = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_UDP)
    header = struct.pack('!HHHH', port, 7003, 8 + len(data), 0)
    whole = socket.inet_pton(socket.AF_INET6, source) + socket.inet_pton(socket.AF_INET6, to)
    whole += struct.pack('!II', 8 + len(data), 17) + header + data + bytes(len(data) % 2)
    total = sum(struct.unpack('!%dH' % (len(whole) // 2), whole))
    while total >> 16: total = (total & 0xffff) + (total >> 16)
    check = (~total & 0xffff) or 0xffff
    s.sendto(header[:6] + struct.pack('!H', check if right else check ^ 0x0100) + data, (to, 0))
def hear(s, port, other):
    expected = [payload(n, length) for n, (p, length, _) in enumerate(burst()) if p == port]
    heard = [s.recvfrom(9000) for _ in expected]
    assert [data for data, _ in heard] == expected, (other, port)
    return heard[0][1]
def go(name):
    while not os.path.exists('/run/' + name): time.sleep(0.01)
"#;

/// Sends the datagrams, and expects the same ones from the other end.
const INSIDE: &str = r#"
s = sockets(socket.AF_INET6)
go('up')
for number, (port, length, right) in enumerate(burst()):
    data = payload(number, length)
    if port == 7003: raw('CLIENT', 'SERVER', port, data, right)
    else: s[port].sendto(data, ('SERVER', 7003))
open('/run/sent-up', 'w')
for port in s: hear(s[port], port, 'from the server')
"#;

const OUTSIDE: &str = r#"
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 33, 1 << 22)
s.settimeout(10)
s.bind(('', 7003))
open('/run/listens', 'w')
heard, ways = {}, {}
expected = {p: [payload(n, length) for n, (q, length, right) in enumerate(burst()) if q == p and right] for p in (7001, 7002, 7003)}
first = {data: port for port in expected for data in expected[port]}
for _ in range(sum(map(len, expected.values()))):
    data, way = s.recvfrom(9000)
    heard.setdefault(way, []).append(data)
for way, all in heard.items():
    port = max(expected, key=lambda p: all == expected[p])
    assert all == expected[port], (way, len(all))
    ways[port] = way
assert len(ways) == 3
open('/run/heard-up', 'w')
go('down')
for number, (port, length, _) in enumerate(burst()):
    if port in ways and port != 7003: s.sendto(payload(number, length), ways[port])
open('/run/sent-down', 'w')
"#;

/// Flow on a link: length, Don't Fragment and checksum validity of each datagram, as reported by tshark.
type Flow = Vec<String>;

/// Flows at both ends, on links where the kernel has to segment and checksum in software.
struct Seen {
    up: Vec<Flow>,
    down: Vec<Flow>,
    output: String,
}

fn exchange(net: &Topology, udp_gro: bool) -> Seen {
    for name in ["up", "down", "listens", "sent-up", "sent-down", "heard-up", "up.pcap", "down.pcap"] {
        let _ = fs::remove_file(format!("/run/{name}"));
    }
    let daemon = Daemon::start(net, &format!("{CREATE}udp_gro = {udp_gro}\n{NAT64}"));
    let captures = [(&net.server, "up"), (&net.client, "down")].map(|(host, way)| {
        let line = format!(
            "-i eth0 -Q in -U -s 2000 -B 16384 --immediate-mode -w /run/{way}.pcap udp portrange 7001-7003"
        );
        Process::start(host.command("tcpdump").args(line.split_whitespace())).unwrap()
    });
    ["up.pcap", "down.pcap"].iter().for_each(|name| exists(name));
    let script = |text: &str| format!("{COMMON}{}", text.replace("CLIENT", CLIENT).replace("SERVER", SERVER));
    let mut ends = [(&net.server, OUTSIDE), (&net.client, INSIDE)]
        .map(|(host, text)| Process::start(host.command("python3").args(["-c", &script(text)])).unwrap());
    exists("listens");
    for way in ["up", "down"] {
        // Datagrams sent meanwhile wait for the daemon, and then arrive in bursts.
        daemon.process.signal(Signal::STOP).unwrap();
        fs::write(format!("/run/{way}"), "").unwrap();
        exists(&format!("sent-{way}"));
        daemon.process.signal(Signal::CONT).unwrap();
        if way == "up" {
            exists("heard-up");
        }
    }
    for end in &mut ends {
        assert!(end.wait(Duration::from_secs(20)).unwrap().success());
    }
    for capture in captures {
        capture.stop().unwrap();
    }
    let output = daemon.stop(Signal::TERM).stdout;
    Seen { up: flows("up"), down: flows("down"), output }
}

fn exists(name: &str) {
    let path = format!("/run/{name}");
    wait_until(name, Duration::from_secs(10), || Path::new(&path).exists()).unwrap();
}

/// Flows of a capture without values that differ from run to run: outside ports, and identifications, which
/// are unique in a flow.
fn flows(capture: &str) -> Vec<Flow> {
    let line = format!(
        "-r /run/{capture}.pcap -o ip.check_checksum:TRUE -o udp.check_checksum:TRUE -T fields -E separator=| \
         -e udp.srcport -e udp.dstport -e ip.id -e ip.flags.df -e udp.length -e udp.checksum.status \
         -e ip.checksum.status -e ip.ttl -e ipv6.hlim"
    );
    let text = gatun_testkit::run(Command::new("tshark").args(line.split_whitespace())).unwrap();
    let mut flows: BTreeMap<(&str, &str), Flow> = BTreeMap::new();
    let mut ids = BTreeSet::new();
    for line in text.lines() {
        let [from, to, id, rest] = line.splitn(4, '|').collect::<Vec<_>>()[..] else { panic!("{line}") };
        flows.entry((from, to)).or_default().push(rest.to_owned());
        let is_atomic = id.is_empty() || rest.starts_with('1') || rest.starts_with("True");
        assert!(is_atomic || ids.insert((from, to, id)), "twice: {line}");
    }
    let mut flows: Vec<Flow> = flows.into_values().collect();
    flows.sort();
    flows
}

#[test]
fn coalesced_datagrams_arrive_like_single_ones() {
    in_lab("udp_gro::coalesced_datagrams_arrive_like_single_ones", || {
        let net = network();
        for device in ["inside", "outside"] {
            net.translator.run(&format!("ethtool -K {device} tx off tso off gso off")).unwrap();
        }
        let (alone, together) = (exchange(&net, false), exchange(&net, true));
        assert_eq!((alone.up.len(), alone.down.len()), (3, 2));
        assert!(alone.up == together.up, "{:?}\n{:?}", alone.up, together.up);
        assert!(alone.down == together.down, "{:?}\n{:?}", alone.down, together.down);
        assert!(!alone.output.contains("udp_gro"), "{}", alone.output);
        for seen in [&alone, &together] {
            assert!(seen.output.contains("accounted for"), "{}", seen.output);
        }
        let all = together.up.iter().chain(&together.down).map(Vec::len).sum::<usize>() as u64;
        let joined = counter(&together.output, "udp_gro_joined");
        assert!(joined > all / 2 && joined < all, "{joined} of {all}: {}", together.output);
        assert!(!together.output.contains("udp_gro_refused"), "{}", together.output);
    });
}
