//! Arbitrary packets, at any time, into one engine with all features enabled. The fuzz targets and the replay
//! of their findings share this file.
//!
//! The input is a sequence of packets, each after four bytes:
//!
//! ```text
//!   0  repairs: 1 valid addresses, 2 valid lengths, 4 valid checksums, 8 the other direction, 16 a reply to
//!      the last translated packet, 32 end the burst here
//!   1  milliseconds since the previous packet, as a power of two (0: none)
//!   2  length of the packet, 16 bits
//! ```
//! Repaired packets get far into the engine; the others test the parser.

use gatun_nat::engine::BURST;
use gatun_nat::plan::*;
use gatun_nat::{Instant, Nat, Plan, Verdict};
use gatun_wire::{HEADROOM, Packet, Prefix64, checksum, proto};
use std::net::{Ipv4Addr, Ipv6Addr};

const BUFFER: usize = 4096;
const INSIDE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x100, 0, 0, 0, 0, 0);
const MAPPED: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x200, 0, 0, 0, 0, 0);
const STATEFUL6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0, 0);
const STATELESS6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x46, 0, 0, 0, 0, 0);
const POOL4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 0);
const INSIDE4: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 0);
const MAPPED4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);

/// Direction of packets that are not hairpinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    SixToFour,
    FourToSix,
}

fn net4(addr: Ipv4Addr, len: u8) -> Net4 {
    Net4::new(addr, len).expect("host bits are zero")
}

fn net6(addr: Ipv6Addr, len: u8) -> Net6 {
    Net6::new(addr, len).expect("host bits are zero")
}

fn pool6(addr: Ipv6Addr) -> Vec<Prefix64> {
    vec![Prefix64::new(addr, 96).expect("a prefix of RFC 6052")]
}

/// Two stateful instances that share a pool, and a stateless one, with tables so small that every limit is
/// reached.
fn plan(filtering: Filtering) -> Plan {
    let range = |ports, transports| PoolRange {
        first: POOL4,
        last: Ipv4Addr::from(u32::from(POOL4) + 3),
        ports,
        transports,
    };
    Plan {
        own4: Some(Ipv4Addr::new(203, 0, 113, 200)),
        pooled: Vec::new(),
        shards: None,
        sharding: None,
        own6: Some(Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1)),
        pools: vec![Pool4 {
            name: "pool".into(),
            ranges: vec![range((1024, 1055), [true, true, false]), range((0, 31), [false, false, true])],
            port_parity: true,
            ..Pool4::default()
        }],
        nat64: vec![Nat64 {
            name: "stateful".into(),
            pool6: pool6(STATEFUL6),
            sources: vec![net6(INSIDE, 48)],
            filtering,
            rst_during_fin: true,
            static_bindings: vec![StaticBinding {
                transport: Transport::Tcp,
                inside: (Ipv6Addr::from(u128::from(INSIDE) + 1), 80),
                outside: (POOL4, 1024),
            }],
            ..Nat64::default()
        }],
        nat44: vec![Nat44 {
            name: "private".into(),
            inside: vec![net4(INSIDE4, 16)],
            exempt: vec![Exemption { net: net4(MAPPED4, 15), transport: None, ports: None }],
            filtering,
            ..Nat44::default()
        }],
        siit: vec![Siit {
            name: "stateless".into(),
            pool6: pool6(STATELESS6),
            eamt: vec![Eam { v4: net4(MAPPED4, 24), v6: net6(MAPPED, 120) }],
            hairpin: Hairpin::Intrinsic,
            denylist4: vec![net4(Ipv4Addr::new(192, 0, 2, 128), 25)],
            icmp_pool4: vec![net4(Ipv4Addr::new(192, 0, 2, 16), 28)],
            icmp_pool6: vec![net6(Ipv6Addr::new(0x2001, 0xdb8, 0xeeee, 0, 0, 0, 0, 0), 64)],
            ..Siit::default()
        }],
        limits: Limits {
            sessions_max: 64,
            subscribers_max: 4,
            sessions_per_subscriber: 32,
            ports_per_subscriber: 24,
            syn_store_max: 4,
            fragment_entries_max: 8,
            fragment_bytes_max: 8192,
            fragments_per_source: 6,
            ..Limits::default()
        },
        events: EventPlan::default(),
        icmp: IcmpPolicy { rate: 10, burst: 4, suppressed: Vec::new(), ..IcmpPolicy::default() },
    }
}

/// Sends the input's packets to an engine and checks all output. Returns the number of translated packets.
pub(crate) fn run(way: Way, input: &[u8]) -> u64 {
    let [kind, packets @ ..] = input else { return 0 };
    let mut rest = packets;
    let filtering = if kind & 1 == 0 { Filtering::EndpointIndependent } else { Filtering::AddressDependent };
    let mut nat = Nat::new(&plan(filtering), [1, 2, 3, 4]).expect("the plan is right");
    let mut now = Instant(1_000);
    let mut last: Vec<u8> = Vec::new();
    while !rest.is_empty() {
        let mut buffers = Vec::new();
        while buffers.len() < BURST {
            let [mend, step, high, low, after @ ..] = rest else { break };
            let len = usize::from(u16::from_be_bytes([*high, *low]) % 2048).min(after.len());
            let (bytes, following) = after.split_at(len);
            rest = following;
            now = now.plus_ms((1u64 << (step % 28)) >> 1);
            buffers.push((mended(way, *mend, bytes, &last), mend & 4 != 0));
            if mend & 32 != 0 {
                break;
            }
        }
        if buffers.is_empty() {
            break;
        }
        burst(&mut nat, now, &mut buffers, &mut last);
    }
    nat.expire(now.plus_ms(1 << 40), 1 << 16);
    drain(&mut nat);
    assert!(nat.counters().conserved() && nat.conserved_by_instance(), "{:?}", nat.counters());
    nat.counters().forwarded.packets
}

fn burst(nat: &mut Nat, now: Instant, packets: &mut [(Vec<u8>, bool)], last: &mut Vec<u8>) {
    let mut memory = vec![0xa5u8; BUFFER * packets.len()];
    let mut burst: Vec<Packet<'_>> = Vec::new();
    for (buffer, (bytes, _)) in memory.chunks_exact_mut(BUFFER).zip(packets.iter()) {
        buffer[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(bytes);
        burst.extend(Packet::new(buffer, HEADROOM, bytes.len()));
    }
    let mut verdicts = vec![Verdict::Pass; burst.len()];
    let mut done = 0;
    // Fewer packets than given are processed only if the buffers for emitted packets are full.
    for _ in 0..=packets.len() {
        done += nat.process(now, &mut burst[done..], &mut verdicts[done..]);
        drain(nat);
        if done == packets.len() {
            break;
        }
    }
    assert_eq!(done, packets.len(), "the engine stopped taking packets");
    nat.expire(now, 16);
    drain(nat);
    for ((packet, verdict), (before, right)) in burst.iter().zip(&verdicts).zip(packets.iter()) {
        match verdict {
            Verdict::Forward => {
                check(packet.bytes(), *right && was_right(before));
                *last = packet.bytes().to_vec();
            }
            Verdict::Reply(_) => check(packet.bytes(), true),
            Verdict::Pass => assert_eq!(packet.bytes(), before, "passed, but changed"),
            Verdict::Redirect => panic!("redirected without a cluster"),
            Verdict::Drop(_) | Verdict::Held => {}
        }
    }
    assert!(nat.counters().conserved() && nat.conserved_by_instance(), "{:?}", nat.counters());
}

fn drain(nat: &mut Nat) {
    nat.drain_emitted(|emitted| check(emitted.packet.bytes(), false));
}

/// Checks an outgoing packet: version, lengths, the IPv4 header's checksum, and the transport's checksum if
/// it was correct on arrival.
fn check(packet: &[u8], transport: bool) {
    let (header, total) = match packet.first().map(|b| b >> 4) {
        Some(4) => (usize::from(packet[0] & 15) * 4, usize::from(word(packet, 2))),
        Some(6) => (40, 40 + usize::from(word(packet, 4))),
        other => panic!("version {other:?}"),
    };
    assert_eq!(total, packet.len(), "length field and length: {packet:02x?}");
    if packet[0] >> 4 == 4 {
        assert_eq!(checksum::sum(&packet[..header]), 0xffff, "IPv4 header: {packet:02x?}");
    }
    if transport {
        assert!(is_right(packet), "transport checksum: {packet:02x?}");
    }
}

/// Returns whether an incoming packet's transport checksum is known to be correct. It is unknown after
/// options or extension headers, and with padding: a wrong checksum leaves equally wrong.
fn was_right(packet: &[u8]) -> bool {
    let summed = [proto::TCP, proto::UDP, proto::ICMP, proto::ICMPV6];
    let total =
        if packet[0] >> 4 == 6 { 40 + usize::from(word(packet, 4)) } else { usize::from(word(packet, 2)) };
    plain(packet).is_some_and(|(_, protocol, _)| total == packet.len() && summed.contains(&protocol))
        && is_right(packet)
}

/// Returns whether the transport checksum after a plain IP header is correct. Returns true if there is none,
/// or if a fragment shows only a part.
fn is_right(packet: &[u8]) -> bool {
    let Some((at, protocol, addresses)) = plain(packet) else { return true };
    let l4 = &packet[at..];
    let pseudo = checksum::pseudo(addresses, l4.len() as u32, protocol);
    match protocol {
        proto::TCP | proto::UDP | proto::ICMPV6 => checksum::add(pseudo, checksum::sum(l4)) == 0xffff,
        proto::ICMP => checksum::sum(l4) == 0xffff,
        _ => true,
    }
}

/// Returns offset and number of the transport, and the addresses, of a packet without fragments and
/// extensions.
fn plain(packet: &[u8]) -> Option<(usize, u8, &[u8])> {
    match packet.first()? {
        0x45 if word(packet, 6) & 0x3fff == 0 => Some((20, *packet.get(9)?, packet.get(12..20)?)),
        b if b >> 4 == 6 => Some((40, *packet.get(6)?, packet.get(8..40)?)),
        _ => None,
    }
}

fn word(packet: &[u8], at: usize) -> u16 {
    packet.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]))
}

/// Returns the packet to send: the bytes as given, or with some fields repaired.
fn mended(way: Way, mend: u8, bytes: &[u8], last: &[u8]) -> Vec<u8> {
    let mut packet = bytes.to_vec();
    if mend & 16 != 0 && !last.is_empty() {
        packet = turned_round(last, bytes);
    }
    let six = (way == Way::SixToFour) != (mend & 8 != 0);
    let header = if six { 40 } else { 20 };
    if packet.len() < header {
        return packet;
    }
    if mend & 16 == 0 && mend & 7 != 0 {
        packet[0] = if six { 0x60 | packet[0] & 15 } else { 0x45 };
    }
    let six = packet[0] >> 4 == 6;
    if packet.len() < if six { 40 } else { 20 } {
        return packet;
    }
    if mend & 1 != 0 && mend & 16 == 0 {
        right_addresses(&mut packet, six);
    }
    if mend & 2 != 0 {
        let len = packet.len() as u16;
        let (at, value) = if six { (4, len - 40) } else { (2, len) };
        packet[at..at + 2].copy_from_slice(&value.to_be_bytes());
        right_udp_length(&mut packet);
    }
    if mend & 4 != 0 {
        right_checksums(&mut packet);
    }
    packet
}

/// Returns the answer to the last translated packet: addresses and ports exchanged, the first input byte as
/// TCP flags.
fn turned_round(last: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut packet = last.to_vec();
    let (at, size) = if packet[0] >> 4 == 6 { (8, 16) } else { (12, 4) };
    if let Some(addresses) = packet.get_mut(at..at + 2 * size) {
        addresses.rotate_left(size);
    }
    if let Some((l4, protocol, _)) = plain(last) {
        if matches!(protocol, proto::TCP | proto::UDP) && packet.len() >= l4 + 4 {
            packet[l4..l4 + 4].rotate_left(2);
        }
        if let (proto::TCP, Some(flags), Some(byte)) = (protocol, packet.get_mut(l4 + 13), bytes.first()) {
            *flags = *byte;
        }
    }
    packet
}

/// Sets addresses that belong to one of the instances, chosen by the bytes that were there.
fn right_addresses(packet: &mut [u8], six: bool) {
    let (choice, low) = (packet[if six { 8 } else { 12 }], packet[if six { 39 } else { 19 }]);
    if six {
        let server = 0x0808_0000 | u32::from(low & 3);
        let server = if choice & 4 != 0 { u32::from(POOL4) + u32::from(low & 3) } else { server };
        let (inside, prefix) = if choice & 1 == 0 { (INSIDE, STATEFUL6) } else { (MAPPED, STATELESS6) };
        let inside = Ipv6Addr::from(u128::from(inside) + u128::from(packet[23] & 3));
        packet[8..24].copy_from_slice(&inside.octets());
        let destination = Ipv6Addr::from(u128::from(prefix) | u128::from(server));
        packet[24..40].copy_from_slice(&destination.octets());
    } else if choice & 0x30 == 0x20 {
        let inside = Ipv4Addr::from(u32::from(INSIDE4) + u32::from(low >> 6));
        let server = if choice & 4 != 0 { POOL4 } else { Ipv4Addr::new(8, 8, 0, 0) };
        let server = Ipv4Addr::from(u32::from(server) + u32::from(low & 3));
        packet[12..16].copy_from_slice(&inside.octets());
        packet[16..20].copy_from_slice(&server.octets());
    } else {
        let inside = if choice & 1 == 0 { POOL4 } else { MAPPED4 };
        let inside = Ipv4Addr::from(u32::from(inside) + u32::from(low & 3));
        packet[12..16].copy_from_slice(&[8, 8, 0, choice >> 6]);
        packet[16..20].copy_from_slice(&inside.octets());
    }
}

fn right_udp_length(packet: &mut [u8]) {
    let Some((at, proto::UDP, _)) = plain(packet) else { return };
    let len = (packet.len() - at) as u16;
    if let Some(field) = packet.get_mut(at + 4..at + 6) {
        field.copy_from_slice(&len.to_be_bytes());
    }
}

fn right_checksums(packet: &mut [u8]) {
    if packet[0] == 0x45 {
        packet[10..12].fill(0);
        let header = !checksum::sum(&packet[..20]);
        packet[10..12].copy_from_slice(&header.to_be_bytes());
    }
    let Some((at, protocol, addresses)) = plain(packet) else { return };
    let field = match protocol {
        proto::TCP => 16,
        proto::UDP => 6,
        proto::ICMP | proto::ICMPV6 => 2,
        _ => return,
    };
    let len = (packet.len() - at) as u32;
    let pseudo = if protocol == proto::ICMP { 0 } else { checksum::pseudo(addresses, len, protocol) };
    let Some(place) = packet.get_mut(at + field..at + field + 2) else { return };
    place.fill(0);
    let value = match !checksum::add(pseudo, checksum::sum(&packet[at..])) {
        0 if protocol == proto::UDP => 0xffff,
        value => value,
    };
    packet[at + field..at + field + 2].copy_from_slice(&value.to_be_bytes());
}
