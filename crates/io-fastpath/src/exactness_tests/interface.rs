//! The program at network interfaces (XDP), in a network namespace of the test's thread with routes to
//! everywhere.

use super::*;
use crate::layout::XdpPort;
use crate::{program, sys};
use aya::maps::Map;
use aya::programs::{TestRun as _, TestRunOptions};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::cell::Cell;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Command;
use std::sync::OnceLock;

const LOOPBACK: u32 = 1;
/// Ethernet address of the next hop.
const NEXT_HOP: [u8; 6] = [2, 0, 0, 0, 0, 9];
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;

/// Interface that the routes lead to.
#[derive(Clone, Copy)]
struct Out {
    index: u32,
    mac: [u8; 6],
}

/// Network namespace of the tests.
static SHARED: OnceLock<(Out, OwnedFd)> = OnceLock::new();

thread_local! {
    /// Interface of the network namespace that the thread is in.
    static NETWORK: Cell<Option<Out>> = const { Cell::new(None) };
}

/// Bytes behind a packet in a frame, which the network stack removes.
pub(super) fn padding(at: At, packet: &[u8]) -> usize {
    let word = |at: usize| packet.get(at..at + 2).map_or(0, |b| usize::from(b[0]) << 8 | usize::from(b[1]));
    let len = match (at, packet.first().map(|byte| byte >> 4)) {
        (At::Interface, Some(4)) => word(2),
        (At::Interface, Some(6)) => 40 + word(4),
        _ => packet.len(),
    };
    packet.len().saturating_sub(len)
}

fn command(line: &str) {
    let (program, arguments) = line.split_once(' ').unwrap();
    gatun_testkit::run(Command::new(program).args(arguments.split(' '))).unwrap();
}

/// Makes a network namespace, and enters it.
fn network() -> Out {
    // SAFETY: the thread shares no files with others that depend on the network namespace.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }.unwrap();
    for line in [
        "sysctl -qw net.ipv4.ip_forward=1",
        "sysctl -qw net.ipv6.conf.all.forwarding=1",
        "ip link add x0 mtu 9000 type veth peer name x1",
        "ip link set lo up",
        "ip link set x0 up",
        "ip link set x1 up",
        "ip address add 10.255.0.1/24 dev x0",
        "ip address add 2001:db8:ff::1/64 dev x0 nodad",
        "ip route add default via 10.255.0.2",
        "ip -6 route add default via 2001:db8:ff::2",
        "ip neigh add 10.255.0.2 lladdr 02:00:00:00:00:09 dev x0 nud permanent",
        "ip neigh add 2001:db8:ff::2 lladdr 02:00:00:00:00:09 dev x0 nud permanent",
        // The program is not there.
        "ip address add 10.254.0.1/24 dev x1",
        "ip neigh add 10.254.0.2 lladdr 02:00:00:00:00:08 dev x1 nud permanent",
    ] {
        command(line);
    }
    let link = gatun_netlink::query::link("x0").unwrap().unwrap();
    Out { index: link.index, mac: link.mac.unwrap() }
}

/// Enters the network namespace of all tests, unless the thread is in its own, and lets the program have its
/// interfaces.
pub(super) fn enter_network(ebpf: &aya::Ebpf) {
    let enter = || {
        let (out, file) = SHARED.get_or_init(|| {
            let out = network();
            (out, std::fs::File::open("/proc/thread-self/ns/net").unwrap().into())
        });
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        *out
    };
    let out = NETWORK.get().unwrap_or_else(enter);
    NETWORK.set(Some(out));
    set_ports(ebpf, out, [u32::MAX; 2]);
}

/// BPF_PROG_TEST_RUN gives the packets to the loopback interface.
fn set_ports(ebpf: &aya::Ebpf, out: Out, asked: [u32; 2]) {
    let Some(Map::HashMap(map)) = ebpf.map("xdp_ports") else { panic!("no map of interfaces") };
    let own = <[u8; 6]>::try_from(&MAC[..6]).unwrap();
    for (index, mac) in [(LOOPBACK, own), (out.index, out.mac)] {
        // The time of the last packet for the neighbours is in the future, so that none is passed for them.
        let asked = asked.map(|word| word >> 2);
        let port = XdpPort { mac, cannot_send: 0, device: out.index, more: 0, asked };
        sys::update(map.fd(), &index, &port).unwrap();
    }
}

/// Result on a frame, in the words of the device's hook.
pub(super) fn run(ebpf: &mut aya::Ebpf, frame: &[u8]) -> (u32, Vec<u8>, u32) {
    let mut out = vec![0; frame.len() + 100];
    let options =
        TestRunOptions { data_in: Some(frame), data_out: Some(&mut out), ..TestRunOptions::default() };
    let result = program::xdp(ebpf).unwrap().test_run(options).unwrap();
    out.truncate(result.data_size_out as usize);
    let packet = out.split_off(14);
    match result.return_value {
        XDP_REDIRECT => {
            let network = NETWORK.get().unwrap();
            assert_eq!(out[..12], [NEXT_HOP, network.mac].concat());
            let is_six = packet[0] >> 4 == 6;
            assert_eq!(out[12..], if is_six { [0x86, 0xdd] } else { [8, 0] });
            (TRANSLATED, packet, 0)
        }
        XDP_PASS => (PASSED, packet, 5),
        other => (other, packet, 0),
    }
}

fn pair() -> Pair {
    let settings = Settings::default();
    Pair::of(At::Interface, &plan(well_known(), settings), well_known(), settings)
}

/// A plain packet of each kind of session, from inside and to the inside.
fn established(pair: &mut Pair) -> Vec<(Made, Vec<u8>)> {
    let mut packets = Vec::new();
    for (port, (private, tcp)) in (0u8..).zip([(false, false), (false, true), (true, false), (true, true)]) {
        let made = Made { private, tcp, port, ..PLAIN };
        let outside = open_session(pair, made);
        for outbound in [true, false] {
            let made = Made { outbound, ..made };
            packets.push((made, made.bytes(&pair.prefix, outside)));
        }
    }
    pair.reconcile();
    packets
}

#[test]
fn without_a_next_hop_at_a_listed_interface_the_network_stack_has_the_packet() {
    if let Some(why) = refusal() {
        return gatun_testkit::skip(&why);
    }
    // It changes routes.
    NETWORK.set(Some(network()));
    let mut pair = pair();
    let all = established(&mut pair);
    let translates = |pair: &mut Pair| {
        let before = pair.packets_of(Reason::NoNextHop);
        let count = all.iter().filter(|(made, packet)| pair.compare(made, packet).unwrap().0).count();
        (count, pair.packets_of(Reason::NoNextHop) - before)
    };
    assert_eq!(translates(&mut pair), (8, 0));
    // An unresolved neighbour, no route, a route to an interface without the program.
    for (change, back) in [
        (
            "ip neigh del 10.255.0.2 dev x0",
            "ip neigh add 10.255.0.2 lladdr 02:00:00:00:00:09 dev x0 nud permanent",
        ),
        ("ip route del default", "ip route add default via 10.255.0.2"),
        ("ip route replace default via 10.254.0.2", "ip route replace default via 10.255.0.2"),
    ] {
        command(change);
        // Of eight packets, two become IPv6 packets.
        assert_eq!(translates(&mut pair), (2, 6), "{change}");
        command(back);
        assert_eq!(translates(&mut pair), (8, 0), "{back}");
    }
    command("sysctl -qw net.ipv6.conf.all.forwarding=0");
    assert_eq!(translates(&mut pair), (6, 2));
    command("sysctl -qw net.ipv6.conf.all.forwarding=1");
    command("ip route replace default via 10.255.0.2 mtu lock 600");
    let large = Made { outbound: true, payload: 700, ..PLAIN };
    let bytes = large.bytes(&pair.prefix, (POOL, 0));
    assert!(!pair.compare(&large, &bytes).unwrap().0);
    assert_eq!(pair.packets_of(Reason::TooLarge), 1);
}

#[test]
fn a_frame_for_another_host_or_with_a_checksum_for_a_device_stays_as_it_is() {
    if let Some(why) = refusal() {
        return gatun_testkit::skip(&why);
    }
    let mut pair = pair();
    for (made, packet) in established(&mut pair) {
        let ethertype = if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
        let mut frame = [&MAC[..], &ethertype, &packet].concat();
        assert_eq!(run(&mut pair.kernel.ebpf, &frame).0, TRANSLATED);
        frame[5] ^= 1;
        assert_eq!(run(&mut pair.kernel.ebpf, &frame), (PASSED, packet.clone(), 5));
        // In a VLAN.
        let tagged = [&MAC[..], &[0x81, 0, 0, 7], &ethertype, &packet].concat();
        assert_eq!(run(&mut pair.kernel.ebpf, &tagged).0, PASSED);
        let l3 = if packet[0] >> 4 == 4 { 20 } else { 40 };
        let at = l3 + if made.tcp { 16 } else { 6 };
        let addresses = if l3 == 20 { 12..20 } else { 8..40 };
        let len = (packet.len() - l3) as u32;
        let partial = checksum::pseudo(&packet[addresses], len, made.protocol());
        let mut packet = packet;
        packet[at..at + 2].copy_from_slice(&partial.to_be_bytes());
        let before = pair.packets_of(Reason::NoChecksum);
        assert!(!pair.compare(&made, &packet).unwrap().0);
        assert_eq!(pair.packets_of(Reason::NoChecksum) - before, 1);
    }
}

#[test]
fn once_a_second_the_network_stack_sends_a_packet_itself() {
    if let Some(why) = refusal() {
        return gatun_testkit::skip(&why);
    }
    let mut pair = pair();
    let (made, packet) = established(&mut pair).remove(0);
    let out = NETWORK.get().unwrap();
    set_ports(&pair.kernel.ebpf, out, [0; 2]);
    let results = [(); 4].map(|()| pair.compare(&made, &packet).unwrap().0);
    assert_eq!(results, [false, true, true, true]);
    std::thread::sleep(Duration::from_millis(1050));
    let results = [(); 2].map(|()| pair.compare(&made, &packet).unwrap().0);
    assert_eq!((results, pair.packets_of(Reason::Neighbour)), ([false, true], 2));
}

#[test]
fn packets_of_a_session_arrive_with_one_hop_limit_whichever_way_they_take() {
    if let Some(why) = refusal() {
        return gatun_testkit::skip(&why);
    }
    let mut pair = pair();
    let packets = established(&mut pair);
    // As in production: the stack decrements the hop limit before and behind the device.
    let flows: Vec<Flow> = pair.kernel.table.iter().map(|(_, flow)| flow).collect();
    pair.kernel = Loaded::as_in_production(At::Interface);
    pair.kernel.table.set_instance(0, Instance::nat64(&Settings::default())).unwrap();
    pair.kernel.table.set_instance(1, Instance::nat44(1500)).unwrap();
    pair.install(&flows);
    for (made, _) in packets {
        for ttl in [2, 3, 4, 64] {
            let outside = flows.iter().find(|flow| flow.inside_port == made.client().1).unwrap().outside;
            let bytes = Made { ttl, ..made }.bytes(&pair.prefix, outside);
            let (result, sent, _) = pair.run(&bytes, 0);
            assert_eq!(result == TRANSLATED, ttl > 3, "{made:?} {ttl}");
            if result == TRANSLATED {
                assert_eq!(sent[if sent[0] >> 4 == 4 { 8 } else { 7 }], ttl - 3);
            }
        }
    }
    assert_eq!(pair.packets_of(Reason::HopLimit), 16);
}
