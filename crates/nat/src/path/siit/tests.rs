//! Packets in, packets out, compared on every byte. The testkit builds the expected packets.

mod errors;

use super::*;
use crate::base::plan::{Eam, IcmpPoolMode, Net4, Net6};
use gatun_testkit::packet::{Message, V4, V6};
use gatun_wire::{HEADROOM, Offload, Prefix64};
use proptest::prelude::*;
use std::string::String;
use std::vec;
use std::vec::Vec;

const ID: u16 = 0x4d4d;

fn a4(s: &str) -> Ipv4Addr {
    s.parse().unwrap()
}

fn a6(s: &str) -> Ipv6Addr {
    s.parse().unwrap()
}

fn net4(s: &str) -> Net4 {
    let (a, len) = s.split_once('/').unwrap();
    Net4::new(a4(a), len.parse().unwrap()).unwrap()
}

fn net6(s: &str) -> Net6 {
    let (a, len) = s.split_once('/').unwrap();
    Net6::new(a6(a), len.parse().unwrap()).unwrap()
}

fn prefix(s: &str) -> Prefix64 {
    let (a, len) = s.split_once('/').unwrap();
    Prefix64::new(a6(a), len.parse().unwrap()).unwrap()
}

fn eam(v4: &str, v6: &str) -> Eam {
    Eam { v4: net4(v4), v6: net6(v6) }
}

/// Two mapped hosts A and B, a mapped network, one prefix.
fn plan() -> plan::Siit {
    plan::Siit {
        name: String::from("test"),
        pool6: vec![prefix("2001:db8:64::/96")],
        eamt: vec![
            eam("198.51.100.1/32", "2001:db8:a::a/128"),
            eam("198.51.100.2/32", "2001:db8:b::b/128"),
            eam("198.51.100.64/26", "2001:db8:c::/64"),
        ],
        hairpin: Hairpin::Intrinsic,
        ..plan::Siit::default()
    }
}

fn with(change: impl FnOnce(&mut plan::Siit)) -> SiitState {
    let mut plan = plan();
    change(&mut plan);
    SiitState::new(&plan, None, None).unwrap()
}

fn udp() -> Message {
    Message::udp(4660, 53, &(0..33).collect::<Vec<u8>>())
}

fn each_message() -> [Message; 6] {
    [
        udp(),
        Message::tcp(80, 50_000, "", &(0..99).collect::<Vec<u8>>()),
        Message::echo(true, 0xbeef, &[0x5a; 17]),
        Message::echo(false, 0xbeef, &[]),
        Message::Raw { proto: 132, bytes: vec![7; 31] },
        Message::Raw { proto: 47, bytes: vec![9; 44] },
    ]
}

fn packet6(src: Ipv6Addr, dst: Ipv6Addr, hop_limit: u8, message: &Message) -> Vec<u8> {
    V6 { hop_limit, ..V6::new(src, dst) }.packet(message)
}

/// IPv4 header as the translator creates it: without DF up to 1260 bytes.
fn header4(src: Ipv4Addr, dst: Ipv4Addr, ttl: u8) -> V4 {
    V4 { id: ID, df: false, ttl, ..V4::new(src, dst) }
}

fn packet4(src: Ipv4Addr, dst: Ipv4Addr, ttl: u8, message: &Message) -> Vec<u8> {
    header4(src, dst, ttl).packet(message)
}

/// Translates a packet. On `Err`, its bytes must be unchanged.
fn run(state: &SiitState, bytes: &[u8]) -> Result<(Vec<u8>, Step), DropReason> {
    let mut buf = vec![0xa5; HEADROOM + bytes.len() + 64];
    buf[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(bytes);
    let mut packet = Packet::new(&mut buf, HEADROOM, bytes.len()).unwrap();
    let result = if bytes[0] >> 4 == 6 {
        let view = Ipv6View::parse(bytes).unwrap();
        state.six_to_four(&mut packet, &view, view.l4(bytes).unwrap(), ID)
    } else {
        let view = Ipv4View::parse(bytes).unwrap();
        state.four_to_six(&mut packet, &view, view.l4(bytes).unwrap())
    };
    match result {
        Ok(step) => Ok((packet.bytes().to_vec(), step)),
        Err(reason) => {
            assert_eq!(packet.bytes(), bytes, "{}: the bytes are no longer those received", reason.name());
            Err(reason)
        }
    }
}

#[track_caller]
fn expect(state: &SiitState, given: &[u8], expected: &[u8], hairpinned: bool) {
    let (got, step) = run(state, given).unwrap();
    assert_eq!(got, expected, "\n got {got:02x?}\nwant {expected:02x?}");
    assert_eq!(step, Step::Forward { whole: Whole::Yes, hairpinned });
}

#[track_caller]
fn refuse(state: &SiitState, given: &[u8], reason: DropReason) {
    assert_eq!(run(state, given).unwrap_err(), reason);
}

// proves: A77-1, A77-2, A77-4, A79-22
#[test]
fn a_mapped_host_and_an_embedded_one_talk_both_ways_with_every_protocol() {
    let state = with(|_| ());
    let (mapped6, mapped4) = (a6("2001:db8:a::a"), a4("198.51.100.1"));
    let (other6, other4) = (a6("2001:db8:64::192.0.2.33"), a4("192.0.2.33"));
    for load in each_message() {
        let given = packet6(mapped6, other6, 64, &load);
        expect(&state, &given, &packet4(mapped4, other4, 63, &load), false);
        let given = packet4(other4, mapped4, 64, &load);
        expect(&state, &given, &packet6(other6, mapped6, 63, &load), false);
    }
}

// proves: A52-4, A77-2
#[test]
fn bits_behind_the_address_are_ignored_in_prefixes_and_mappings() {
    let state = with(|p| p.pool6 = vec![prefix("2001:db8:122::/48")]);
    let given =
        packet6(a6("2001:db8:c:0:7fff:ffff:1:2"), a6("2001:db8:122:c000:2:21aa:bbcc:ddee"), 9, &udp());
    let expected = packet4(a4("198.51.100.95"), a4("192.0.2.33"), 8, &udp());
    expect(&state, &given, &expected, false);
    // Generated addresses have zeroes there.
    let given = packet4(a4("192.0.2.33"), a4("198.51.100.95"), 9, &udp());
    let expected = packet6(a6("2001:db8:122:c000:2:2100::"), a6("2001:db8:c:0:7c00::"), 8, &udp());
    expect(&state, &given, &expected, false);
}

// proves: A52-5
#[test]
fn the_well_known_prefix_does_not_stand_for_private_addresses() {
    let strict = with(|p| p.pool6 = vec![Prefix64::WELL_KNOWN]);
    let lax = with(|p| {
        p.pool6 = vec![Prefix64::WELL_KNOWN];
        p.wkp_non_global = true;
    });
    let host6 = a6("2001:db8:a::a");
    let host4 = a4("198.51.100.1");
    for private in ["10.0.0.1", "192.168.255.254", "100.64.0.1", "192.0.2.1"] {
        let (v4, v6) = (a4(private), Prefix64::WELL_KNOWN.embed(a4(private)));
        refuse(&strict, &packet6(host6, v6, 64, &udp()), DropReason::WellKnownNonGlobal);
        refuse(&strict, &packet6(v6, host6, 64, &udp()), DropReason::WellKnownNonGlobal);
        refuse(&strict, &packet4(v4, host4, 64, &udp()), DropReason::WellKnownNonGlobal);
        refuse(&strict, &packet4(host4, v4, 64, &udp()), DropReason::WellKnownNonGlobal);
        expect(&lax, &packet6(host6, v6, 64, &udp()), &packet4(host4, v4, 63, &udp()), false);
        expect(&lax, &packet4(v4, host4, 64, &udp()), &packet6(v6, host6, 63, &udp()), false);
    }
    let (v4, v6) = (a4("8.8.8.8"), a6("64:ff9b::8.8.8.8"));
    expect(&strict, &packet6(host6, v6, 64, &udp()), &packet4(host4, v4, 63, &udp()), false);
    expect(&strict, &packet4(v4, host4, 64, &udp()), &packet6(v6, host6, 63, &udp()), false);
}

// proves: A52-6
#[test]
fn other_prefixes_stand_for_private_addresses() {
    for p in ["64:ff9b:1::/48", "2001:db8:64::/96", "2001:db8::/32"] {
        let state = with(|plan| plan.pool6 = vec![prefix(p)]);
        let (v4, v6) = (a4("10.1.2.3"), prefix(p).embed(a4("10.1.2.3")));
        let given = packet6(a6("2001:db9::1"), v6, 64, &udp());
        refuse(&state, &given, DropReason::NoEam);
        let given = packet4(v4, a4("198.51.100.1"), 64, &udp());
        expect(&state, &given, &packet6(v6, a6("2001:db8:a::a"), 63, &udp()), false);
    }
}

// proves: A52-8
#[test]
fn of_several_prefixes_the_longest_wins_and_the_first_makes_addresses() {
    let state = with(|p| {
        p.pool6 = vec![prefix("2001:db8::/32"), prefix("2001:db8:64::/96"), prefix("2001:db8:64::/64")];
        p.eamt = vec![eam("198.51.100.1/32", "2001:db9::a/128")];
    });
    let host = a6("2001:db9::a");
    for (dst, expected) in [
        ("2001:db8:64::192.0.2.33", "192.0.2.33"),
        ("2001:db8:64::c0:2:2100:0", "192.0.2.33"),
        ("2001:db8:c000:221::", "192.0.2.33"),
    ] {
        let given = packet6(host, a6(dst), 64, &udp());
        let expected = packet4(a4("198.51.100.1"), a4(expected), 63, &udp());
        expect(&state, &given, &expected, false);
    }
    let given = packet4(a4("192.0.2.33"), a4("198.51.100.1"), 64, &udp());
    expect(&state, &given, &packet6(a6("2001:db8:c000:221::"), host, 63, &udp()), false);
}

// proves: A77-4
#[test]
fn an_address_with_neither_mapping_nor_prefix_is_refused_by_name() {
    let state = with(|p| p.pool6.clear());
    let (host6, host4) = (a6("2001:db8:a::a"), a4("198.51.100.1"));
    refuse(&state, &packet6(host6, a6("2001:db8:ffff::1"), 64, &udp()), DropReason::DestinationNotPool6);
    refuse(&state, &packet6(a6("2001:db8:ffff::1"), host6, 64, &udp()), DropReason::NoEam);
    refuse(&state, &packet4(host4, a4("192.0.2.1"), 64, &udp()), DropReason::NotInPool);
    refuse(&state, &packet4(a4("192.0.2.1"), host4, 64, &udp()), DropReason::NoEam);
    assert!(state.claims6(host6) && !state.claims6(a6("2001:db8:ffff::1")));
    assert!(state.claims4(host4) && !state.claims4(a4("192.0.2.1")));
    let state = with(|_| ());
    assert!(state.claims6(a6("2001:db8:64::1")) && state.claims4(a4("192.0.2.1")));
    assert!(state.maps4(host4) && !state.maps4(a4("192.0.2.1")));
}

// proves: A77-4
#[test]
fn a_mapping_beats_a_prefix() {
    let state = with(|p| p.eamt = vec![eam("198.51.100.1/32", "2001:db8:64::c000:221/128")]);
    let given = packet6(a6("2001:db8:64::192.0.2.7"), a6("2001:db8:64::192.0.2.33"), 64, &udp());
    expect(&state, &given, &packet4(a4("192.0.2.7"), a4("198.51.100.1"), 63, &udp()), false);
}

#[test]
fn the_denylist_beats_mappings_and_prefixes_on_both_sides() {
    let state = with(|p| {
        p.denylist4 = vec![net4("198.51.100.64/26"), net4("203.0.113.0/24")];
        p.denylist6 = vec![net6("2001:db8:b::/48")];
    });
    let (host6, host4) = (a6("2001:db8:a::a"), a4("198.51.100.1"));
    for (v6, v4) in [
        ("2001:db8:c:0:400::", "198.51.100.65"),
        ("2001:db8:64::203.0.113.9", "203.0.113.9"),
        ("2001:db8:b::b", "198.51.100.2"),
    ] {
        refuse(&state, &packet6(a6(v6), host6, 64, &udp()), DropReason::Denylist);
        refuse(&state, &packet6(host6, a6(v6), 64, &udp()), DropReason::Denylist);
        refuse(&state, &packet4(a4(v4), host4, 64, &udp()), DropReason::Denylist);
        refuse(&state, &packet4(host4, a4(v4), 64, &udp()), DropReason::Denylist);
    }
    let given = packet6(host6, a6("2001:db8:64::192.0.2.9"), 64, &udp());
    expect(&state, &given, &packet4(host4, a4("192.0.2.9"), 63, &udp()), false);
}

const MARTIANS4: [&str; 6] =
    ["0.0.0.0", "127.0.0.1", "169.254.1.1", "224.0.0.1", "239.255.255.255", "255.255.255.255"];

// proves: A79-8
#[test]
fn illegal_addresses_are_dropped_in_both_directions() {
    let state = with(|_| ());
    let (host6, host4) = (a6("2001:db8:a::a"), a4("198.51.100.1"));
    for martian in MARTIANS4 {
        let (v4, v6) = (a4(martian), prefix("2001:db8:64::/96").embed(a4(martian)));
        refuse(&state, &packet4(v4, host4, 64, &udp()), DropReason::SourceMartian);
        refuse(&state, &packet4(host4, v4, 64, &udp()), DropReason::DestinationMartian);
        refuse(&state, &packet6(v6, host6, 64, &udp()), DropReason::SourceMartian);
        refuse(&state, &packet6(host6, v6, 64, &udp()), DropReason::DestinationMartian);
    }
    let all = with(|p| p.eamt = vec![eam("198.51.100.1/32", "::/0")]);
    for martian in ["::", "::1", "fe80::1", "ff02::1"] {
        refuse(&all, &packet6(a6(martian), host6, 64, &udp()), DropReason::SourceMartian);
        refuse(&all, &packet6(host6, a6(martian), 64, &udp()), DropReason::DestinationMartian);
    }
}

/// Error of a router about `inner`: unreachable, no route (ICMPv6 1/0, ICMPv4 3/1 and 3/0).
fn unreachable(inner: Vec<u8>) -> Message {
    Message::Icmp { v4: (3, 1, 0), v6: (1, 0, 0), body: inner }
}

/// Answer of B, whose port is closed, to the sender of `inner`.
fn port_unreachable(inner: Vec<u8>) -> Message {
    Message::Icmp { v4: (3, 3, 0), v6: (1, 4, 0), body: inner }
}

fn fragment6(src: Ipv6Addr, dst: Ipv6Addr, hop_limit: u8, offset: u16, more: bool, data: &[u8]) -> Vec<u8> {
    V6 { hop_limit, fragment: Some((offset, more, ID.into())), ..V6::new(src, dst) }.raw(17, data)
}

fn fragment4(src: Ipv4Addr, dst: Ipv4Addr, ttl: u8, offset: u16, more: bool, data: &[u8]) -> Vec<u8> {
    V4 { offset, mf: more, ..header4(src, dst, ttl) }.raw(17, data)
}

// proves: A79-13, A79-54
#[test]
fn fragments_are_translated_one_by_one_in_any_order() {
    let state = with(|_| ());
    let (mapped6, mapped4) = (a6("2001:db8:a::a"), a4("198.51.100.1"));
    let (other6, other4) = (a6("2001:db8:64::192.0.2.33"), a4("192.0.2.33"));
    let whole = Message::Udp { src: 1, dst: 2, payload: (0..100).collect() };
    let (l6, l4) = (packet6(mapped6, other6, 64, &whole), packet4(mapped4, other4, 64, &whole));
    let (l6_back, l4_back) = (packet6(other6, mapped6, 64, &whole), packet4(other4, mapped4, 64, &whole));
    for (at, more) in [(64, true), (0, true), (104, false)] {
        let cut = |l4: &[u8]| l4[at..l4.len().min(at + 40)].to_vec();
        let (offset, data6, data4) = (at as u16, cut(&l6[40..]), cut(&l4[20..]));
        let given = fragment6(mapped6, other6, 64, offset, more, &data6);
        expect(&state, &given, &fragment4(mapped4, other4, 63, offset, more, &data4), false);
        let (data6, data4) = (cut(&l6_back[40..]), cut(&l4_back[20..]));
        let given = fragment4(other4, mapped4, 64, offset, more, &data4);
        expect(&state, &given, &fragment6(other6, mapped6, 63, offset, more, &data6), false);
    }
}

// Hairpins. A is 198.51.100.1 = 2001:db8:a::a, B is 198.51.100.2 = 2001:db8:b::b.
const A6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xa, 0, 0, 0, 0, 0xa);
const B6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xb, 0, 0, 0, 0, 0xb);
const A4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const B4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);

fn embedded(v4: Ipv4Addr) -> Ipv6Addr {
    prefix("2001:db8:64::/96").embed(v4)
}

// proves: A77-6, A77-8
#[test]
fn a_simple_hairpin_comes_back_with_its_source_embedded() {
    let state = with(|p| p.hairpin = Hairpin::Simple);
    for load in each_message() {
        for (from6, from4, to6, to4) in [(A6, A4, B6, B4), (B6, B4, A6, A4)] {
            let between = packet4(from4, to4, 63, &load);
            expect(&state, &packet6(from6, embedded(to4), 64, &load), &between, false);
            expect(&state, &between, &packet6(embedded(from4), to6, 62, &load), false);
        }
    }
    // The source is embedded only if both ends are mapped.
    let given = packet4(A4, a4("192.0.2.1"), 64, &udp());
    expect(&state, &given, &packet6(A6, embedded(a4("192.0.2.1")), 63, &udp()), false);
}

// proves: A77-7, A77-8
#[test]
fn an_intrinsic_hairpin_takes_two_hops() {
    let state = with(|_| ());
    for load in each_message() {
        for (from6, from4, to6, to4) in [(A6, A4, B6, B4), (B6, B4, A6, A4)] {
            let expected = packet6(embedded(from4), to6, 62, &load);
            expect(&state, &packet6(from6, embedded(to4), 64, &load), &expected, true);
        }
    }
}

// proves: A77-7
#[test]
fn packets_that_are_no_hairpins_leave_as_ipv4() {
    // A packet directly to the mapped host uses its mapping: no embedded destination.
    let state = with(|_| ());
    expect(&state, &packet6(A6, B6, 64, &udp()), &packet4(A4, B4, 63, &udp()), false);
    let off = with(|p| p.hairpin = Hairpin::Off);
    expect(&off, &packet6(A6, embedded(B4), 64, &udp()), &packet4(A4, B4, 63, &udp()), false);
    expect(&off, &packet4(A4, B4, 64, &udp()), &packet6(A6, B6, 63, &udp()), false);
}

// proves: A77-7, A52-8
#[test]
fn with_several_prefixes_the_answer_comes_from_the_address_that_was_written_to() {
    let second = prefix("2001:db8:65::/96");
    let state = with(|p| p.pool6.push(second));
    let given = packet6(A6, second.embed(B4), 64, &udp());
    expect(&state, &given, &packet6(second.embed(A4), B6, 62, &udp()), true);
}

// proves: A77-8, A52-5
#[test]
fn a_hairpin_refused_for_its_addresses_or_size_leaves_its_bytes() {
    let state = with(|p| p.pool6 = vec![Prefix64::WELL_KNOWN]);
    let given = packet6(A6, Prefix64::WELL_KNOWN.embed(B4), 64, &udp());
    refuse(&state, &given, DropReason::WellKnownNonGlobal);
    let state = with(|p| p.denylist6 = vec![net6("2001:db8:b::b/128")]);
    refuse(&state, &packet6(A6, embedded(B4), 64, &udp()), DropReason::Denylist);
    let state = with(|p| p.settings.mtu6 = 1280);
    let large = Message::Udp { src: 1, dst: 2, payload: vec![0; 1233] };
    refuse(&state, &packet6(A6, embedded(B4), 64, &large), DropReason::TooBig6);
    let fits = Message::Udp { src: 1, dst: 2, payload: vec![0; 1232] };
    expect(&state, &packet6(A6, embedded(B4), 64, &fits), &packet6(embedded(A4), B6, 62, &fits), true);
}

/// Sum of a pseudo-header for TCP, not complemented, as a device expects it in the checksum field.
fn partial_tcp_sum(src: Ipv6Addr, dst: Ipv6Addr, len: u32) -> u16 {
    gatun_wire::checksum::pseudo(&[src.octets(), dst.octets()].concat(), len, 6)
}

// proves: A77-8
#[test]
fn a_super_packet_is_hairpinned_as_one_packet_with_its_checksum_left_to_the_device() {
    let state = with(|_| ());
    let load = Message::tcp(80, 50_000, "", &[0x42; 20_000]);
    let mut given = packet6(A6, embedded(B4), 64, &load);
    let (checksum_at, tcp_len) = (40 + 16, given.len() as u32 - 40);
    given[checksum_at..checksum_at + 2]
        .copy_from_slice(&partial_tcp_sum(A6, embedded(B4), tcp_len).to_be_bytes());
    let mut expected = packet6(embedded(A4), B6, 62, &load);
    expected[checksum_at..checksum_at + 2]
        .copy_from_slice(&partial_tcp_sum(embedded(A4), B6, tcp_len).to_be_bytes());

    let offload = Offload {
        checksum: gatun_wire::Checksum::Partial { start: 40, offset: 16 },
        segmentation: gatun_wire::Segmentation::Tcp { size: 1_400, ecn: true },
    };
    let mut buf = vec![0xa5; HEADROOM + given.len()];
    buf[HEADROOM..].copy_from_slice(&given);
    let mut packet = Packet::with_offload(&mut buf, HEADROOM, given.len(), offload).unwrap();
    let view = Ipv6View::parse(&given).unwrap();
    let step = state.six_to_four(&mut packet, &view, view.l4(&given).unwrap(), ID).unwrap();
    assert_eq!(step, Step::Forward { whole: Whole::Yes, hairpinned: true });
    assert_eq!(packet.offload, offload);
    assert_eq!(packet.bytes(), expected);
}

/// A packet of the hairpin's matrix, damaged.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let which = any::<prop::sample::Index>();
    let damage = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (which, damage, any::<bool>(), any::<prop::sample::Index>()).prop_map(|(which, damage, cut, len)| {
        let loads = each_message();
        let mut all: Vec<Vec<u8>> = loads.iter().map(|l| packet6(A6, embedded(B4), 64, l)).collect();
        all.extend(
            loads
                .iter()
                .map(|l| packet6(B6, embedded(A4), 64, &unreachable(packet6(embedded(A4), B6, 9, l)))),
        );
        all.push(fragment6(A6, embedded(B4), 64, 0, true, &[1; 48]));
        all.push(fragment6(A6, embedded(B4), 64, 48, false, &[2; 31]));
        let mut bytes = which.get(&all).clone();
        let damaged_len = bytes.len();
        for (at, value) in damage {
            // Addresses stay the same, so that the packet stays a hairpin.
            let at = at.index(damaged_len);
            if !(8..40).contains(&at) {
                bytes[at] = value;
            }
        }
        if cut {
            bytes.truncate(len.index(damaged_len).max(40));
            let payload = (bytes.len() - 40) as u16;
            bytes[4..6].copy_from_slice(&payload.to_be_bytes());
        }
        fix_icmp_checksum(&mut bytes);
        bytes
    })
}

/// Corrects the outer checksum, so that damage passes its check.
fn fix_icmp_checksum(bytes: &mut [u8]) {
    if bytes[6] == 58 && bytes.len() >= 44 {
        bytes[42..44].fill(0);
        let pseudo = gatun_wire::checksum::pseudo(&bytes[8..40], bytes.len() as u32 - 40, 58);
        let sum = !gatun_wire::checksum::add(pseudo, gatun_wire::checksum::sum(&bytes[40..]));
        bytes[42..44].copy_from_slice(&sum.to_be_bytes());
    }
}

proptest! {
    // proves: A77-8
    #[test]
    fn a_damaged_hairpin_is_refused_untouched_or_hairpinned_but_never_lost_halfway(bytes in damaged()) {
        let state = with(|_| ());
        let Ok(view) = Ipv6View::parse(&bytes) else { return Ok(()) };
        if view.l4(&bytes).is_err() {
            return Ok(());
        }
        // `run` checks that a refused packet's bytes are those received.
        // An error about an undamaged packet that was no hairpin leaves as IPv4.
        if let Ok((_, step)) = run(&state, &bytes) {
            prop_assert!(matches!(step, Step::Forward { .. }), "{:?}", step);
        }
    }
}
