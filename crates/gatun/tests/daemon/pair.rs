//! Two boxes that have each other's sessions: kill, restart, release, a split network, take-over.
//!
//! The network is that of `failover`: routers learn by BGP which box translates.

use crate::harness::{CREATE, Daemon, in_lab_with};
use gatun_api::client::{Client, Error};
use gatun_api::types::{Binding, Drop, Instance, Page, Peer, PeerMember, PeerState, Protocol};
use gatun_testkit::pair::SERVER;
use gatun_testkit::{Namespace, PairNetwork, Process, echo, missing, wait_until};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// Longest wait for a condition: the machine may be busy.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// One of the public addresses.
pub(crate) const PUBLIC: &str = "192.0.2.1";
/// Ports at each end of an address that belong to one box.
const OWN_PORTS: u16 = 2_000;

/// Opens connections from one port on, each from one of some hosts. Sends a line through each again and
/// again, after the echo of the previous one, until a file exists. Writes "ready" when each has an echo.
/// Prints the number of connections that had an echo at the end, and the longest time without one, ms.
const TALK: &str = "
import os, socket, select, sys, time
server, count, first, stop, hosts = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5:]
host = lambda port: hosts[port % len(hosts)] if hosts else ''
open_one = lambda port: socket.create_connection((server, 7777), timeout=20, source_address=(host(port), port))
made = [open_one(first + n) for n in range(count)]
wanted, heard, last = {}, {}, {}
for s in made: s.sendall(b'12345678'); wanted[s] = 8; heard[s] = 0; last[s] = time.monotonic()
longest, ready, ending, broken = 0.0, False, None, 0
while made:
    now = time.monotonic()
    if ending is None and os.path.exists(stop): ending, final = now + 10, set()
    if ending is not None and (now > ending or len(final) == len(made)): break
    for s in select.select(made, [], [], 0.1)[0]:
        try: got = s.recv(64)
        except OSError: got = b''
        if not got: made.remove(s); broken += 1; continue
        wanted[s] -= len(got)
        if wanted[s]: continue
        now = time.monotonic(); longest = max(longest, now - last[s]); last[s] = now
        heard[s] += 1; wanted[s] = 8
        if ending is not None: final.add(s)
        time.sleep(0.001)
        try: s.sendall(b'12345678')
        except OSError: made.remove(s); broken += 1
    if not ready and all(heard.values()): ready = True; open(stop + '.ready', 'w').close()
print(len(final) if ending else 0, broken, int(longest * 1000), flush=True)
";

/// Connections that talk.
pub(crate) struct Talk {
    process: Process,
    stop: String,
    count: u32,
}

impl Talk {
    pub(crate) fn start(net: &PairNetwork, count: u32, first: u16) -> Talk {
        Talk::start_from(net, count, first, &[])
    }

    /// Starts connections from these addresses of the client.
    pub(crate) fn start_from(net: &PairNetwork, count: u32, first: u16, hosts: &[String]) -> Talk {
        Talk::start_at(&net.client, count, first, hosts)
    }

    /// The same of a client in another network.
    pub(crate) fn start_at(client: &Namespace, count: u32, first: u16, hosts: &[String]) -> Talk {
        let stop = format!("/run/talk-{first}");
        let (number, port) = (count.to_string(), first.to_string());
        let mut arguments = vec![SERVER, &number, &port, &stop];
        arguments.extend(hosts.iter().map(String::as_str));
        let process = Process::start(client.python(TALK, &arguments).stdout(Stdio::piped())).unwrap();
        let ready = format!("{stop}.ready");
        wait_until("all connections have an echo", WAIT_MAX, || Path::new(&ready).exists()).unwrap();
        Talk { process, stop, count }
    }

    /// Every connection still has echoes.
    pub(crate) fn end(self) {
        std::fs::write(&self.stop, "").unwrap();
        let (status, said) = self.process.output(WAIT_MAX).unwrap();
        assert!(status.success(), "{said}");
        let numbers: Vec<u32> = said.split_whitespace().map(|word| word.parse().unwrap()).collect();
        assert_eq!(numbers[..2], [self.count, 0], "{said}");
        eprintln!("longest time without an echo: {} ms", numbers[2]);
    }
}

/// Sends a numbered datagram each millisecond until a file exists. Prints the number of datagrams, and the
/// number of those that came back.
const NUMBERED: &str = "
import os, socket, sys, threading, time
server, port, stop = sys.argv[1], int(sys.argv[2]), sys.argv[3]
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
s.bind(('', port)); s.connect((server, 7777)); s.settimeout(0.2)
back, sent, end = set(), 0, [None]
def receive():
    while end[0] is None or time.monotonic() < end[0] and len(back) < sent:
        try: back.add(int(s.recv(64)))
        except TimeoutError: pass
receiver = threading.Thread(target=receive); receiver.start()
while not os.path.exists(stop):
    for n in range(20): s.send(b'%d' % sent); sent += 1; time.sleep(0.001)
    if len(back) > 100: open(stop + '.ready', 'a').close()
end[0] = time.monotonic() + 10
receiver.join()
print(sent, len(back), flush=True)
";

/// Flow of numbered datagrams.
pub(crate) struct Numbered {
    process: Process,
    stop: String,
}

impl Numbered {
    pub(crate) fn start(net: &PairNetwork, port: u16) -> Numbered {
        let stop = format!("/run/numbered-{port}");
        let arguments = [SERVER, &port.to_string(), &stop];
        let process = Process::start(net.client.python(NUMBERED, &arguments).stdout(Stdio::piped())).unwrap();
        let ready = format!("{stop}.ready");
        wait_until("datagrams come back", WAIT_MAX, || Path::new(&ready).exists()).unwrap();
        Numbered { process, stop }
    }

    /// Number of datagrams, and of lost ones.
    pub(crate) fn end(self) -> (u64, u64) {
        std::fs::write(&self.stop, "").unwrap();
        let (status, said) = self.process.output(WAIT_MAX).unwrap();
        assert!(status.success(), "{said}");
        let numbers: Vec<u64> = said.split_whitespace().map(|word| word.parse().unwrap()).collect();
        (numbers[0], numbers[0] - numbers[1])
    }
}

/// Packet I/O of the boxes. Builds without a backend do not use all of them.
#[derive(Clone, Copy, PartialEq)]
#[allow(dead_code)]
enum Io {
    Tun,
    Xdp,
    /// DPDK, with packet sockets on the network interfaces.
    Dpdk,
}

/// Settings that vary between tests.
#[derive(Clone, Copy)]
pub(crate) struct Variant<'v> {
    mode: &'v str,
    /// Number of workers.
    queues: u32,
    /// Public addresses.
    pool: &'v str,
    /// Directory of the certificates.
    pub(crate) pki: &'v str,
    io: Io,
    /// Further lines of the file.
    more: &'v str,
}

pub(crate) const STANDBY: Variant<'_> = Variant {
    mode: "active-standby",
    queues: 1,
    pool: "192.0.2.0/30",
    pki: "/run/pki",
    io: Io::Tun,
    more: "",
};

/// Ports of a box. On network interfaces, Gatun has addresses of its own beside the kernel's.
fn ports(number: usize, variant: Variant<'_>) -> String {
    let n = number + 1;
    let (head, backend, [inside, outside]) = match variant.io {
        Io::Tun => return format!("{CREATE}queues = {}\n", variant.queues),
        Io::Xdp => ("", "xdp", ["inside", "outside"]),
        Io::Dpdk => (
            "[dpdk]\nhuge_pages = \"never\"\n",
            "dpdk",
            ["net_af_packet0,iface=inside", "net_af_packet1,iface=outside"],
        ),
    };
    format!(
        "{head}[[port]]\nbackend = \"{backend}\"\ndevice = \"{inside}\"\naddresses = [\"2001:db8:{n}0::64/64\"]\n\
         routes = [\"2001:db8:1::/64 via 2001:db8:{n}0::1\"]\n\
         [[port]]\nbackend = \"{backend}\"\ndevice = \"{outside}\"\naddresses = [\"10.1.{n}.2/24\"]\n\
         routes = [\"198.51.100.0/24 via 10.1.{n}.1\"]\n"
    )
}

pub(crate) fn config(number: usize, variant: Variant<'_>) -> String {
    let Variant { mode, pool, pki, more, .. } = variant;
    let ports = ports(number, variant);
    let (member, other) = (["a", "b"][number], 2 - number);
    format!(
        "{ports}[[pool]]\nname = \"res\"\nprefixes = [\"{pool}\"]\n\
         [[nat64]]\nname = \"lab\"\npool6 = \"2001:db8:64::/96\"\n\
         [state]\ndirectory = \"/run/gatun-{number}/state\"\n[api]\nlisten = \"unix:/run/gatun-{number}/api.sock\"\n\
         [announce]\nstall = \"2s\"\nreturn_after = \"500ms\"\n\
         [peer]\nmember = \"{member}\"\nmode = \"{mode}\"\nlisten = \"10.0.9.{}:7464\"\nconnect = \"10.0.9.{other}:7464\"\n\
         directory = \"{pki}/{member}\"\nown_ports = {OWN_PORTS}\ndead_after = \"3s\"\n{more}",
        number + 1
    )
}

pub(crate) fn certificates(directory: &str) {
    let made = crate::harness::gatun(["peer", "init", directory]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

pub(crate) fn start(net: &PairNetwork, number: usize, variant: Variant<'_>) -> Daemon {
    Daemon::start_in(&net.boxes[number], &config(number, variant))
}

/// Socket of the API of a box.
pub(crate) fn socket(number: usize) -> String {
    format!("/run/gatun-{number}/api.sock")
}

pub(crate) fn client(number: usize) -> Client {
    Client::new(socket(number))
}

pub(crate) fn peer(number: usize) -> Peer {
    client(number).get("/v1/peer").unwrap()
}

pub(crate) fn until(number: usize, what: &str, holds: impl Fn(&Peer) -> bool) {
    let waited = wait_until(what, WAIT_MAX, || holds(&peer(number)));
    assert!(waited.is_ok(), "{what}: box {number}: {:?}", peer(number));
}

pub(crate) fn until_synced() {
    for number in 0..2 {
        until(number, "both have the same sessions", |peer| peer.state == PeerState::Synced);
    }
}

/// Owner of each shard, as a box knows it.
fn owners(number: usize) -> Vec<PeerMember> {
    peer(number).shards.iter().map(|shard| shard.owner).collect()
}

fn ask(number: usize, what: &str) -> Result<Peer, String> {
    client(number).ask("POST", &format!("/v1/peer/{what}"), b"").map_err(|error| match error {
        Error::Refused(_, problem) => problem.error,
        other => other.to_string(),
    })
}

/// Bindings of TCP: public ends by the inside port.
fn bindings(number: usize) -> BTreeMap<u16, (Ipv4Addr, u16)> {
    let page: Page<Binding> = client(number).get("/v1/bindings?limit=10000").unwrap();
    let tcp = page.items.iter().filter(|binding| binding.protocol == Protocol::Tcp);
    tcp.map(|binding| (binding.inside_port, (binding.outside, binding.outside_port))).collect()
}

/// Both boxes have the bindings of these inside ports, and the same ones.
fn until_equal(ports: std::ops::Range<u16>) -> BTreeMap<u16, (Ipv4Addr, u16)> {
    let of = |number: usize| {
        let all = bindings(number);
        all.into_iter().filter(|(port, _)| ports.contains(port)).collect::<BTreeMap<_, _>>()
    };
    let waited = wait_until("equal bindings", WAIT_MAX, || of(0).len() == ports.len() && of(0) == of(1));
    assert!(waited.is_ok(), "{:?}\n{:?}", of(0), of(1));
    of(0)
}

/// No public port has different inside ports at the boxes.
fn no_port_twice() {
    let mut holders = BTreeMap::new();
    for (inside, outside) in bindings(0).into_iter().chain(bindings(1)) {
        let holder = *holders.entry(outside).or_insert(inside);
        assert_eq!(holder, inside, "{outside:?} has two holders: {:?}\n{:?}", bindings(0), bindings(1));
    }
}

pub(crate) fn kill(daemon: &mut Daemon) {
    daemon.process.signal(Signal::KILL).unwrap();
    daemon.process.wait(Duration::from_secs(10)).unwrap();
}

/// Two boxes with the same sessions, and an echo server.
struct Pair {
    net: PairNetwork,
    _server: Process,
    boxes: [Daemon; 2],
}

impl Pair {
    /// Starts the boxes, and waits until both have the same sessions.
    fn start(variant: Variant<'_>) -> Pair {
        certificates(variant.pki);
        let net = PairNetwork::new().unwrap();
        let _server = echo(&net.server).unwrap();
        let boxes = [0, 1].map(|number| start(&net, number, variant));
        until_synced();
        Pair { net, _server, boxes }
    }

    /// Starts the boxes, and waits until packets take the first one.
    fn in_use(variant: Variant<'_>) -> Pair {
        let pair = Pair::start(variant);
        pair.net.wait_until_used(0, PUBLIC).unwrap();
        pair
    }
}

pub(crate) fn lab(test: &str, body: fn()) {
    in_lab_with(test, || missing(&[("bird", "bird2")]), body);
}

#[test]
fn connections_go_on_through_the_other_box_after_a_kill_and_after_a_restart() {
    lab("pair::connections_go_on_through_the_other_box_after_a_kill_and_after_a_restart", || {
        let Pair { net, boxes: [mut first, _second], _server } = Pair::in_use(STANDBY);
        assert_eq!([owners(0), owners(1)], [[PeerMember::A], [PeerMember::A]]);
        let talk = Talk::start(&net, 20, 20_000);
        let before = until_equal(20_000..20_020);
        kill(&mut first);
        net.wait_until_used(1, PUBLIC).unwrap();
        let late = Talk::start(&net, 5, 21_000);
        let other = bindings(1);
        assert!(before.iter().all(|(inside, outside)| other.get(inside) == Some(outside)), "{other:?}");
        // The box that backs the addresses has no right to others than its own ports.
        for inside in 21_000..21_005 {
            assert!(other[&inside].1 > u16::MAX - OWN_PORTS, "{other:?}");
        }
        let first = start(&net, 0, STANDBY);
        until_synced();
        first.says("peer: both boxes have the same sessions");
        net.wait_until_used(0, PUBLIC).unwrap();
        let after = until_equal(20_000..20_020);
        assert_eq!(before, after);
        until_equal(21_000..21_005);
        no_port_twice();
        talk.end();
        late.end();
    });
}

#[test]
fn a_release_loses_no_packet_and_the_other_box_opens_new_connections() {
    lab("pair::a_release_loses_no_packet_and_the_other_box_opens_new_connections", || {
        let Pair { net, boxes: _boxes, _server } = Pair::in_use(STANDBY);
        assert!(ask(1, "release").unwrap_err().contains("does not own"), "the backup has nothing to release");
        let (flow, talk) = (Numbered::start(&net, 22_000), Talk::start(&net, 20, 20_000));
        ask(0, "release").unwrap();
        for number in 0..2 {
            until(number, "b owns the addresses", |peer| peer.shards[0].owner == PeerMember::B);
        }
        net.wait_until_used(1, PUBLIC).unwrap();
        let late = Talk::start(&net, 20, 21_000);
        let all = until_equal(20_000..20_020).into_iter().chain(until_equal(21_000..21_020));
        let ports: BTreeSet<_> = all.map(|(_, outside)| outside).collect();
        assert_eq!(ports.len(), 40, "{ports:?}");
        // The owner's ports, without the other box's own ones.
        assert!(bindings(1).range(21_000..21_020).all(|(_, outside)| outside.1 >= 1024 + OWN_PORTS));
        let (sent, lost) = flow.end();
        assert!(sent > 100 && lost == 0, "{lost} of {sent} datagrams lost");
        talk.end();
        late.end();
    });
}

#[test]
fn boxes_that_have_lost_each_other_never_assign_a_port_twice() {
    lab("pair::boxes_that_have_lost_each_other_never_assign_a_port_twice", || {
        let Pair { net, boxes: _boxes, _server } = Pair::in_use(STANDBY);
        let common = Talk::start(&net, 10, 20_000);
        until_equal(20_000..20_010);
        net.boxes[0].ip("link set peer down").unwrap();
        for number in 0..2 {
            until(number, "it is alone", |peer| peer.state == PeerState::Alone);
        }
        let of_first = Talk::start(&net, 10, 21_000);
        net.cut(0, false).unwrap();
        net.wait_until_used(1, PUBLIC).unwrap();
        let of_second = Talk::start(&net, 10, 22_000);
        let [first, second] = [0, 1].map(bindings);
        let last_of_first = u16::MAX - OWN_PORTS;
        assert!(first.range(21_000..21_010).all(|(_, outside)| outside.1 <= last_of_first), "{first:?}");
        assert!(second.range(22_000..22_010).all(|(_, outside)| outside.1 > last_of_first), "{second:?}");
        assert_eq!((first.range(21_000..).count(), second.range(21_000..).count()), (10, 10));
        no_port_twice();
        net.cut(0, true).unwrap();
        net.boxes[0].ip("link set peer up").unwrap();
        until_synced();
        net.wait_until_used(0, PUBLIC).unwrap();
        for ports in [20_000..20_010, 21_000..21_010, 22_000..22_010] {
            until_equal(ports);
        }
        no_port_twice();
        for talk in [common, of_first, of_second] {
            talk.end();
        }
    });
}

#[test]
fn an_operator_declares_a_dead_box_gone_and_the_other_one_owns_all() {
    lab("pair::an_operator_declares_a_dead_box_gone_and_the_other_one_owns_all", || {
        // Who takes over waits for the kernel of the other box.
        let variant = Variant { more: "[fastpath]\nkernel = \"auto\"\nlease = \"2s\"\n", ..STANDBY };
        let Pair { net, boxes: [mut first, second], _server } = Pair::in_use(variant);
        let talk = Talk::start(&net, 10, 20_000);
        until_equal(20_000..20_010);
        assert!(ask(1, "takeover").unwrap_err().contains("the peer is connected"));
        kill(&mut first);
        until(1, "it is alone", |peer| peer.state == PeerState::Alone);
        assert!(ask(1, "release").unwrap_err().contains("not connected"));
        let waits = ask(1, "takeover").unwrap().takeover_in_ms.unwrap();
        assert!((1_000..=2_100).contains(&waits), "{waits} ms");
        until(1, "it owns all", |peer| peer.peer_gone && peer.shards[0].owner == PeerMember::B);
        second.says("peer: declared gone");
        net.wait_until_used(1, PUBLIC).unwrap();
        let late = Talk::start(&net, 30, 21_000);
        let shared = bindings(1);
        let shared = shared.range(21_000..).filter(|(_, outside)| outside.1 <= u16::MAX - OWN_PORTS);
        assert!(shared.count() > 0, "ports of the shared range: {:?}", bindings(1));
        // With its sessions, the dead box has to stay quiet.
        let mut first = start(&net, 0, variant);
        until(0, "it is refused", |peer| {
            let why = peer.reason.as_ref();
            peer.state == PeerState::Waiting && why.is_some_and(|why| why.contains("declared this peer gone"))
        });
        net.wait_until_used(1, PUBLIC).unwrap();
        kill(&mut first);
        // A start without its sessions, as after a start of the machine.
        std::fs::remove_file("/run/gatun-0/state/names.json").unwrap();
        let _first = start(&net, 0, variant);
        until_synced();
        assert_eq!([owners(0), owners(1)], [[PeerMember::B], [PeerMember::B]]);
        until_equal(20_000..20_010);
        until_equal(21_000..21_030);
        no_port_twice();
        talk.end();
        late.end();
    });
}

#[test]
fn a_box_without_a_fitting_peer_says_why_and_traffic_goes_on() {
    lab("pair::a_box_without_a_fitting_peer_says_why_and_traffic_goes_on", || {
        certificates("/run/other-pki");
        let Pair { net, boxes: [first, mut second], _server } = Pair::in_use(STANDBY);
        let talk = Talk::start(&net, 10, 20_000);
        let reason = |what: &str| {
            until(0, what, |peer| {
                peer.state == PeerState::Alone && peer.reason.as_ref().is_some_and(|why| why.contains(what))
            });
        };
        kill(&mut second);
        reason("Connection refused");
        first.says("peer: not connected: ");
        let limits = Variant { more: "[limits]\nsubscribers_max = 1000\n", ..STANDBY };
        let mut second = start(&net, 1, limits);
        reason("limits.subscribers_max");
        assert_eq!(peer(0).differences, ["limits.subscribers_max"]);
        second.says("the configurations differ: limits.subscribers_max");
        kill(&mut second);
        let strange = Variant { pki: "/run/other-pki", ..STANDBY };
        let mut second = start(&net, 1, strange);
        reason("certificate");
        second.says("certificate");
        let late = Talk::start(&net, 10, 21_000);
        kill(&mut second);
        let _second = start(&net, 1, STANDBY);
        until_synced();
        until_equal(20_000..20_010);
        until_equal(21_000..21_010);
        talk.end();
        late.end();
    });
}

#[test]
fn a_reload_of_one_box_is_shown_and_a_box_that_is_refused_is_not_gone() {
    lab("pair::a_reload_of_one_box_is_shown_and_a_box_that_is_refused_is_not_gone", || {
        let Pair { net, boxes: [first, second], _server } = Pair::start(STANDBY);
        let limits = Variant { more: "[limits]\nsubscribers_max = 1000\n", ..STANDBY };
        second.reload(&config(1, limits), "reload: done");
        for number in 0..2 {
            until(number, "the difference is shown", |peer| {
                peer.differences == ["limits.subscribers_max"] && peer.state == PeerState::Synced
            });
        }
        net.boxes[0].ip("link set peer down").unwrap();
        for number in 0..2 {
            until(number, "it is alone", |peer| peer.state == PeerState::Alone);
        }
        net.boxes[0].ip("link set peer up").unwrap();
        until(1, "the difference is the reason", |peer| {
            let why = peer.reason.as_ref();
            why.is_some_and(|why| why.contains("the configurations differ: limits.subscribers_max"))
        });
        let refused = ask(1, "takeover").unwrap_err();
        assert!(
            refused.contains("the peer answers") && refused.contains("configurations differ"),
            "{refused}"
        );
        second.reload(&config(1, STANDBY), "reload: done");
        until_synced();
        for (number, daemon) in [first, second].iter().enumerate() {
            assert_eq!(peer(number).differences, [""; 0]);
            let log = daemon.stderr();
            // Refused greetings are no connections.
            assert_eq!(log.matches("peer: connected to ").count(), 2, "{log}");
            assert!(!log.contains("peer: connected to  ("), "the name is missing: {log}");
        }
    });
}

#[test]
fn connections_go_on_while_a_box_is_stopped() {
    lab("pair::connections_go_on_while_a_box_is_stopped", || {
        let Pair { net, boxes: [first, _second], _server } = Pair::in_use(STANDBY);
        let talk = Talk::start(&net, 10, 20_000);
        until_equal(20_000..20_010);
        first.process.signal(Signal::STOP).unwrap();
        net.wait_until_used(1, PUBLIC).unwrap();
        until(1, "the silent peer is noticed", |peer| peer.state == PeerState::Alone);
        let late = Talk::start(&net, 10, 21_000);
        first.process.signal(Signal::CONT).unwrap();
        net.wait_until_used(0, PUBLIC).unwrap();
        until_synced();
        until_equal(20_000..20_010);
        until_equal(21_000..21_010);
        no_port_twice();
        talk.end();
        late.end();
    });
}

/// Translated packets of a box, and those that it dropped because its peer may have their ports.
fn translated_and_fenced(number: usize) -> (u64, u64) {
    let instances: Vec<Instance> = client(number).get("/v1/instances").unwrap();
    let drops: Vec<Drop> = client(number).get("/v1/drops").unwrap();
    let fenced = drops.iter().find(|one| one.reason == "shard_fenced").unwrap();
    let translated = instances.iter().map(|one| one.outbound.packets + one.inbound.packets).sum();
    (translated, fenced.six_to_four.packets)
}

/// A box is stopped, and not dead: an operator who declares it gone is wrong. It goes on, and has packets.
#[test]
fn a_stopped_box_that_was_declared_gone_translates_nothing() {
    lab("pair::a_stopped_box_that_was_declared_gone_translates_nothing", || {
        let Pair { net, boxes: [first, second], _server } = Pair::in_use(STANDBY);
        let talk = Talk::start(&net, 10, 20_000);
        until_equal(20_000..20_010);
        first.process.signal(Signal::STOP).unwrap();
        net.wait_until_used(1, PUBLIC).unwrap();
        until(1, "the silent peer is noticed", |peer| peer.state == PeerState::Alone);
        ask(1, "takeover").unwrap();
        until(1, "it owns all", |peer| peer.peer_gone && peer.shards[0].owner == PeerMember::B);
        let late = Talk::start(&net, 30, 21_000);
        // Packets of the box itself take its routes, whatever the other routers use.
        let ping = "ping -q -c 50 -i 0.02 -W 1 2001:db8:64::198.51.100.2";
        let pinging =
            Process::start(net.boxes[0].command("sh").args(["-c", ping]).stdout(Stdio::null())).unwrap();
        first.process.signal(Signal::CONT).unwrap();
        until(0, "it is refused", |peer| {
            let why = peer.reason.as_ref();
            peer.state == PeerState::Waiting && why.is_some_and(|why| why.contains("declared this peer gone"))
        });
        drop(pinging.output(WAIT_MAX));
        let (translated, fenced) = translated_and_fenced(0);
        assert!(fenced > 0, "no packet met the fence");
        first.says("this box was stopped for");
        let again = gatun_testkit::output(net.boxes[0].command("sh").args(["-c", ping])).unwrap();
        let said = String::from_utf8_lossy(&again.stdout).into_owned();
        assert!(said.contains(" 0 received"), "{said}");
        assert_eq!(translated_and_fenced(0), (translated, fenced + 50));
        second.says("peer: declared gone");
        talk.end();
        late.end();
    });
}

/// A port that goes to another host does so in two changes, each at both boxes.
#[test]
fn a_static_binding_moves_to_another_host_in_two_steps_at_both_boxes() {
    lab("pair::a_static_binding_moves_to_another_host_in_two_steps_at_both_boxes", || {
        let with = |host: &str| {
            format!(
                "static = [{{ protocol = \"tcp\", inside = \"[{host}]:80\", outside = \"{PUBLIC}:80\" }}]\n"
            )
        };
        let (old, new) = (with("2001:db8:1::5"), with("2001:db8:1::6"));
        let key = "nat64.lab.static".to_owned();
        let file = |number: usize, binding: &str| {
            let text = config(number, STANDBY);
            text.replacen("[state]", &format!("{binding}[state]"), 1)
        };
        let Pair { net: _net, boxes: [first, second], _server } = Pair::start(STANDBY);
        for (number, daemon) in [&first, &second].into_iter().enumerate() {
            daemon.reload(&file(number, &old), "reload: done");
        }
        let refused = first.reload(&file(0, &new), "nothing has changed");
        assert!(refused.contains("tcp 192.0.2.1:80 would go to another host"), "{refused}");
        first.reload(&file(0, ""), "reload: done");
        until(1, "the difference is told", |peer| peer.differences.contains(&key));
        let refused = first.reload(&file(0, &new), "nothing has changed");
        assert!(refused.contains("the peer still has another `nat64.lab.static`"), "{refused}");
        second.reload(&file(1, ""), "reload: done");
        until(0, "both are equal", |peer| peer.differences.is_empty());
        first.reload(&file(0, &new), "reload: done");
        until(1, "the difference is told", |peer| peer.differences.contains(&key));
        second.reload(&file(1, &new), "reload: done");
        until(0, "both are equal", |peer| peer.differences.is_empty());
    });
}

#[test]
fn each_box_of_an_active_pair_owns_half_and_backs_the_other_half() {
    lab("pair::each_box_of_an_active_pair_owns_half_and_backs_the_other_half", || {
        let variant = Variant { mode: "active-active", queues: 2, ..STANDBY };
        let Pair { net, boxes: [mut first, _second], _server } = Pair::start(variant);
        assert_eq!([owners(0), owners(1)], [[PeerMember::A, PeerMember::B]; 2]);
        // Each of the two workers has an address of either box.
        let addresses = peer(0).shards.into_iter().map(|shard| shard.addresses).collect::<Vec<_>>();
        assert_eq!(addresses, [["192.0.2.0", "192.0.2.2"], ["192.0.2.1", "192.0.2.3"]]);
        let used = |address: &str| net.used(&net.outside, address);
        wait_until("the router uses both boxes", WAIT_MAX, || {
            [used("192.0.2.0"), used("192.0.2.1"), used("192.0.2.2"), used("192.0.2.3")]
                == [Some(0), Some(1), Some(0), Some(1)]
        })
        .unwrap();
        wait_until("the router of the client", WAIT_MAX, || net.used(&net.inside, SERVER).is_some()).unwrap();
        let at = net.used(&net.inside, SERVER).unwrap();
        let talk = Talk::start(&net, 10, 20_000);
        let all = until_equal(20_000..20_010);
        let is_own = |address: &Ipv4Addr| usize::from(address.octets()[3] % 2) == at;
        assert!(all.values().all(|(address, _)| is_own(address)), "box {at}: {all:?}");
        kill(&mut first);
        wait_until("the router uses the other box", WAIT_MAX, || {
            used("192.0.2.0") == Some(1) && net.used(&net.inside, SERVER) == Some(1)
        })
        .unwrap();
        let late = Talk::start(&net, 10, 21_000);
        let _first = start(&net, 0, variant);
        until_synced();
        until_equal(20_000..20_010);
        until_equal(21_000..21_010);
        no_port_twice();
        ask(0, "release").unwrap();
        for number in 0..2 {
            until(number, "b owns all", |peer| peer.shards.iter().all(|shard| shard.owner == PeerMember::B));
        }
        talk.end();
        late.end();
    });
}

#[test]
fn addresses_come_by_reloads_unless_ports_would_change_their_owner() {
    lab("pair::addresses_come_by_reloads_unless_ports_would_change_their_owner", || {
        let Pair { net, boxes, _server } = Pair::in_use(STANDBY);
        let talk = Talk::start(&net, 10, 20_000);
        let other = Variant { mode: "active-active", ..STANDBY };
        let refused = boxes[0].reload(&config(0, other), "nothing has changed");
        assert!(refused.contains("needs a restart: [peer]"), "{refused}");
        let wide = Variant { pool: "192.0.2.0/29", ..STANDBY };
        for (number, daemon) in boxes.iter().enumerate() {
            daemon.reload(&config(number, wide), "reload: done");
        }
        let late = Talk::start(&net, 10, 21_000);
        until_equal(21_000..21_010);
        let addresses = peer(1).shards.remove(0).addresses;
        assert_eq!(addresses, ["192.0.2.0-192.0.2.7"]);
        let [mut first, _second] = boxes;
        kill(&mut first);
        net.wait_until_used(1, PUBLIC).unwrap();
        let _first = start(&net, 0, wide);
        until_synced();
        until_equal(20_000..20_010);
        until_equal(21_000..21_010);
        no_port_twice();
        talk.end();
        late.end();
    });
}

#[test]
fn a_reload_that_moves_an_address_to_the_other_box_is_refused() {
    lab("pair::a_reload_that_moves_an_address_to_the_other_box_is_refused", || {
        let half = Variant { mode: "active-active", ..STANDBY };
        let Pair { net: _net, boxes, _server } = Pair::start(half);
        let wide = Variant { pool: "192.0.2.0/29", ..half };
        let refused = boxes[0].reload(&config(0, wide), "nothing has changed");
        assert!(refused.contains("[peer]: the ports or the owner of 192.0.2."), "{refused}");
    });
}

/// Plays a kill, a restart and a release of the first of two boxes that have their ports on network interfaces.
#[cfg(any(feature = "xdp", feature = "dpdk"))]
fn go_on_over_interfaces(io: Io) {
    certificates(STANDBY.pki);
    let net = PairNetwork::new().unwrap();
    let _server = echo(&net.server).unwrap();
    for (number, one) in net.boxes.iter().enumerate() {
        net.outside.address(one.name(), &format!("10.1.{}.1/24", number + 1)).unwrap();
        if io == Io::Dpdk {
            // The kernel receives what packet sockets do, and would answer that it has no route.
            one.ip("route add blackhole default").unwrap();
            one.ip("-6 route add blackhole default").unwrap();
        }
    }
    let variant = Variant { io, ..STANDBY };
    let mut first = start(&net, 0, variant);
    let _second = start(&net, 1, variant);
    assert_eq!(first.stderr().contains("driver net_af_packet"), io == Io::Dpdk, "{}", first.stderr());
    until_synced();
    net.wait_until_used(0, PUBLIC).unwrap();
    let talk = Talk::start(&net, 10, 20_000);
    let before = until_equal(20_000..20_010);
    let established = Talk::start(&net, 5, 22_000);
    until_equal(22_000..22_005);
    kill(&mut first);
    net.wait_until_used(1, PUBLIC).unwrap();
    established.end();
    let _first = start(&net, 0, variant);
    until_synced();
    net.wait_until_used(0, PUBLIC).unwrap();
    assert_eq!(until_equal(20_000..20_010), before);
    ask(0, "release").unwrap();
    net.wait_until_used(1, PUBLIC).unwrap();
    let late = Talk::start(&net, 10, 21_000);
    until_equal(21_000..21_010);
    no_port_twice();
    talk.end();
    late.end();
}

#[cfg(feature = "xdp")]
#[test]
fn connections_over_network_interfaces_go_on_through_the_other_box() {
    let test = "pair::connections_over_network_interfaces_go_on_through_the_other_box";
    let refusal = || gatun_testkit::refusal_but_to_root("AF_XDP").or_else(|| missing(&[("bird", "bird2")]));
    gatun_testkit::run_test(test, refusal, || go_on_over_interfaces(Io::Xdp));
}

#[cfg(feature = "dpdk")]
#[test]
fn connections_over_dpdk_devices_go_on_through_the_other_box() {
    let test = "pair::connections_over_dpdk_devices_go_on_through_the_other_box";
    let is_missing = || missing(&[("bird", "bird2")]);
    crate::dpdk::in_dpdk_lab_with(test, is_missing, || go_on_over_interfaces(Io::Dpdk));
}
