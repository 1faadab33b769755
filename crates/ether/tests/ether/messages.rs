//! Malformed, forged and foreign messages: each has exactly one fate and changes nothing else.

use crate::common::*;
use gatun_ether::{
    Answer, Consumed, Count as _, Dropped, EtherEvent, Foreign, Mac, NeighbourState, Received, Sent,
};
use std::net::{Ipv4Addr, Ipv6Addr};

fn drop(reason: Dropped) -> Received {
    Received::Drop(reason)
}

fn to_us(packet: &[u8]) -> Vec<u8> {
    frame(OUR_MAC, PEER_MAC, &[], 0x86dd, packet)
}

// proves: HM-21
#[test]
fn invalid_frames_are_dropped() {
    let mut host = Host::new(&settings());
    let whole = frame(OUR_MAC, PEER_MAC, &[], 0x0800, &udp4(PEER4, POOL4, b"x"));
    for len in 0..14 {
        assert_eq!(host.receive(&whole[..len]).0, drop(Dropped::Runt));
    }
    let tagged = frame(OUR_MAC, PEER_MAC, &[gatun_ether::Tag::customer(7)], 0x0800, &[]);
    for len in 14..18 {
        assert_eq!(host.receive(&tagged[..len]).0, drop(Dropped::Runt));
    }
    for source in [Mac::BROADCAST, Mac([0x01, 0, 0x5e, 0, 0, 1]), Mac([0; 6])] {
        let forged = frame(OUR_MAC, source, &[], 0x0800, &udp4(PEER4, POOL4, b"x"));
        assert_eq!(host.receive(&forged).0, drop(Dropped::SourceMac));
    }
    let looped = frame(Mac::BROADCAST, OUR_MAC, &[], 0x0806, &arp_body(1, OUR_MAC, OUR4, Mac([0; 6]), OUR4));
    assert_eq!(host.receive(&looped).0, drop(Dropped::Looped));
    // Looped by a device that writes its own MAC as the destination.
    let looped = frame(Mac::BROADCAST, PEER_MAC, &[], 0x0806, &arp_body(1, OUR_MAC, OUR4, Mac([0; 6]), OUR4));
    assert_eq!(host.receive(&looped).0, drop(Dropped::Looped));
    assert_eq!(host.ether.conflict(), None);
}

#[test]
fn a_packet_truncated_in_its_ip_header_goes_to_the_engine() {
    let mut host = Host::new(&settings());
    for (kind, packet) in [(0x0800, udp4(PEER4, OUR4, b"")), (0x86dd, udp6(PEER6, OUR6, b""))] {
        let addresses_end = if kind == 0x0800 { 20 } else { 40 };
        for len in 0..addresses_end {
            let (fate, rest) = host.receive(&frame(OUR_MAC, PEER_MAC, &[], kind, &packet[..len]));
            assert_eq!((fate, &rest[..]), (Received::Packet, &packet[..len]));
        }
    }
}

// proves: HM-3
#[test]
fn foreign_and_truncated_arp_is_dropped() {
    let mut host = Host::new(&settings());
    let good = arp_body(1, PEER_MAC, PEER4, Mac([0; 6]), OUR4);
    let send =
        |host: &mut Host, body: &[u8]| host.receive(&frame(Mac::BROADCAST, PEER_MAC, &[], 0x0806, body)).0;
    assert_eq!(send(&mut host, &good), Received::Reply(Answer::Arp));
    for len in 0..28 {
        assert_eq!(send(&mut host, &good[..len]), drop(Dropped::ArpMalformed), "{len}");
    }
    // Hardware, protocol, their lengths, operation.
    for (at, value) in [(1, 6), (3, 1), (4, 8), (4, 0), (5, 16), (5, 0), (6, 1), (7, 0), (7, 3), (7, 9)] {
        let mut bad = good.clone();
        bad[at] = value;
        assert_eq!(send(&mut host, &bad), drop(Dropped::ArpMalformed), "byte {at}");
    }
}

// proves: HM-3
#[test]
fn arp_from_invalid_senders_is_dropped() {
    let mut host = Host::new(&settings());
    for sender in ["127.0.0.1", "224.0.0.1", "255.255.255.255", "0.0.0.1"] {
        let request = arp_request(PEER_MAC, sender.parse().unwrap(), OUR4);
        assert_eq!(host.receive(&request).0, drop(Dropped::ArpAddress), "{sender}");
    }
    // A reply without sender is not a probe.
    assert_eq!(host.receive(&arp_reply(PEER_MAC, Ipv4Addr::UNSPECIFIED)).0, drop(Dropped::ArpAddress));
    // RFC 1812 3.3.2.
    for mac in [Mac::BROADCAST, Mac([0x33, 0x33, 0, 0, 0, 1]), Mac([0; 6])] {
        let body = arp_body(2, mac, PEER4, OUR_MAC, OUR4);
        assert_eq!(host.receive(&frame(OUR_MAC, PEER_MAC, &[], 0x0806, &body)).0, drop(Dropped::ArpAddress));
    }
}

// proves: HM-8
#[test]
fn invalid_neighbour_discovery_is_dropped_as_rfc_4861_7_1_requires() {
    let mut host = Host::new(&settings());
    let target = OUR6.octets();
    let body = |target: &[u8], options: &[u8]| [&[0; 4][..], target, options].concat();
    let group = group_of(OUR6);
    let with_mac = body(&target, &option(1, PEER_MAC));
    let nobody = Ipv6Addr::UNSPECIFIED;
    let far_group = "ff02::2".parse::<Ipv6Addr>().unwrap().octets();
    let cases = [
        ("hop limit", Dropped::NdpHopLimit, discovery_with(254, 135, 0, PEER6, group, &with_mac)),
        ("code", Dropped::NdpMalformed, discovery_with(255, 135, 1, PEER6, group, &with_mac)),
        (
            "target a group",
            Dropped::NdpMalformed,
            discovery_with(255, 135, 0, PEER6, group, &body(&far_group, &[])),
        ),
        (
            "from nobody, not to the group",
            Dropped::NdpMalformed,
            discovery_with(255, 135, 0, nobody, OUR6, &body(&target, &[])),
        ),
        (
            "from nobody, with a MAC",
            Dropped::NdpMalformed,
            discovery_with(255, 135, 0, nobody, group, &with_mac),
        ),
        ("from a group", Dropped::NdpMalformed, discovery_with(255, 135, 0, group, OUR6, &with_mac)),
        (
            "from loopback",
            Dropped::NdpMalformed,
            discovery_with(255, 135, 0, Ipv6Addr::LOCALHOST, OUR6, &with_mac),
        ),
        (
            "S to a group",
            Dropped::NdpMalformed,
            discovery(136, PEER6, "ff02::1".parse().unwrap(), SOLICITED, PEER6, &[]),
        ),
        ("advertisement from nobody", Dropped::NdpMalformed, discovery(136, nobody, OUR6, 0, PEER6, &[])),
        (
            "advertisement with a hop limit",
            Dropped::NdpHopLimit,
            discovery_with(64, 136, 0, PEER6, OUR6, &body(&PEER6.octets(), &[])),
        ),
    ];
    for (name, reason, packet) in cases {
        assert_eq!(host.receive(&to_us(&packet)).0, drop(reason), "{name}");
    }
    let good = discovery_with(255, 135, 0, PEER6, group, &with_mac);
    assert_eq!(host.receive(&to_us(&good)).0, Received::Reply(Answer::Advertisement));
    // Every byte that the checksum covers.
    for at in (8..24).chain(40..72) {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        let fate = host.receive(&to_us(&bad)).0;
        assert!(
            matches!(fate, Received::Drop(_) | Received::Foreign(_) | Received::Packet),
            "byte {at}: {fate:?}"
        );
    }
    // ICMP length below 24, and wrong lengths.
    for len in 0..24u8 {
        let mut short = good.clone();
        short[5] = len;
        let fate = host.receive(&to_us(&short)).0;
        assert_eq!(fate, drop(Dropped::NdpMalformed), "{len}");
        let fate = host.receive(&to_us(&good[..41 + usize::from(len)])).0;
        assert_eq!(fate, drop(Dropped::NdpMalformed), "cut to {len}");
    }
}

// proves: HM-9
#[test]
fn options_are_parsed_to_the_end_within_a_bound() {
    let mut host = Host::new(&settings());
    let group = group_of(OUR6);
    let mut fate = |options: &[u8]| host.receive(&to_us(&discovery(135, PEER6, group, 0, OUR6, options))).0;
    let nonce = [14, 1, 1, 2, 3, 4, 5, 6];
    let mac = option(1, PEER_MAC);
    let answered = Received::Reply(Answer::Advertisement);
    assert_eq!(fate(&[]), answered);
    assert_eq!(fate(&[&nonce[..], &mac].concat()), answered);
    assert_eq!(fate(&[&nonce.repeat(31)[..], &mac].concat()), answered, "32 options");
    assert_eq!(fate(&[&nonce.repeat(32)[..], &mac].concat()), drop(Dropped::NdpOptions), "33 options");
    assert_eq!(fate(&nonce.repeat(150)), drop(Dropped::NdpOptions));
    assert_eq!(fate(&[&[99, 3][..], &[0; 22], &mac].concat()), answered, "an unknown one of 24 bytes");
    assert_eq!(fate(&[&[99, 0][..], &[0; 6], &mac].concat()), drop(Dropped::NdpOptions), "of length zero");
    assert_eq!(fate(&[99, 2, 0, 0, 0, 0, 0, 0]), drop(Dropped::NdpOptions), "past the end");
    assert_eq!(fate(&[99]), drop(Dropped::NdpOptions), "cut off");
    assert_eq!(
        fate(&[1, 2, 2, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0]),
        drop(Dropped::NdpOptions),
        "no Ethernet MAC"
    );
    assert_eq!(fate(&option(1, Mac::BROADCAST)), drop(Dropped::NdpOptions));
    assert_eq!(fate(&[&mac[..], &option(1, OTHER_MAC)].concat()), answered, "the first of two MACs counts");
    let known: Vec<_> = host.ether.neighbours().filter_map(|n| n.mac).collect();
    assert_eq!(known, [PEER_MAC]);
}

// proves: HM-10
#[test]
fn a_reply_longer_than_its_solicitation_needs_room_after_the_frame() {
    let mut host = Host::new(&settings());
    let bare = to_us(&discovery(135, PEER6, OUR6, 0, OUR6, &[]));
    let (fate, reply) = host.receive(&bare);
    assert_eq!(fate, Received::Reply(Answer::Advertisement));
    assert_eq!((reply.len(), macs(&reply).0), (bare.len() + 8, PEER_MAC));
    assert_eq!(parse_discovery(&reply).option, Some((2, OUR_MAC)));
    for room in 0..8 {
        assert_eq!(host.receive_with_room(&bare, room).0, drop(Dropped::NoRoom));
    }
    // A message with very many options gets a reply of the usual length.
    let long = to_us(&discovery(135, PEER6, OUR6, 0, OUR6, &[14, 1, 0, 0, 0, 0, 0, 0].repeat(30)));
    assert_eq!(host.receive_with_room(&long, 0).1.len(), reply.len());
}

// proves: HM-13
#[test]
fn router_messages_are_neither_obeyed_nor_answered() {
    let mut host = Host::new(&settings());
    let all: Ipv6Addr = "ff02::1".parse().unwrap();
    let router: Ipv6Addr = "fe80::66".parse().unwrap();
    let routes_before = host.send(&udp6(POOL6, FAR6, b"x")).0;
    assert_eq!(routes_before, Sent::Held);
    for kind in [133, 134, 137] {
        let packet = discovery_with(255, kind, 0, router, all, &[&[64, 0, 7, 8][..], &[0; 36]].concat());
        for destination in [OUR_MAC, group_mac(all)] {
            let message = frame(destination, PEER_MAC, &[], 0x86dd, &packet);
            assert_eq!(host.receive(&message), (Received::Foreign(Foreign::Router), message));
        }
    }
    assert!(host.ether.neighbours().all(|n| n.address != ip("fe80::66")));
}

// proves: HM-4, HM-10, HM-14
#[test]
fn probes_for_our_addresses_are_answered() {
    let mut host = Host::new(&settings());
    // RFC 5227 2.1.1: an ARP probe has no sender.
    let (fate, reply) = host.receive(&arp_request(OTHER_MAC, Ipv4Addr::UNSPECIFIED, OUR4));
    assert_eq!(fate, Received::Reply(Answer::Arp));
    let arp = parse_arp(&reply);
    assert_eq!((arp.operation.0, arp.sender_mac, arp.sender_ipv4), (2, OUR_MAC.0, OUR4.octets()));
    let conflict = host.ether.conflict().unwrap();
    assert_eq!((conflict.port, conflict.address, conflict.mac), (0, OUR4.into(), OTHER_MAC));

    // RFC 4862 5.4.3; the answer goes to all nodes, not solicited (RFC 4861 7.2.4).
    let packet = discovery(135, Ipv6Addr::UNSPECIFIED, group_of(OUR6), 0, OUR6, &[]);
    let (fate, reply) = host.receive(&frame(group_mac(group_of(OUR6)), OTHER_MAC, &[], 0x86dd, &packet));
    assert_eq!(fate, Received::Reply(Answer::Advertisement));
    let all: Ipv6Addr = "ff02::1".parse().unwrap();
    assert_eq!(macs(&reply), (group_mac(all), OUR_MAC));
    let told = parse_discovery(&reply);
    assert_eq!((told.dst, told.flags, told.target), (all, 0xa0, OUR6));
    assert_eq!(host.ether.conflict().unwrap().address, OUR6);
    assert_eq!(host.ether.stats().events.of(EtherEvent::Conflict), 2);
    // A probe for another host's address is ignored.
    assert_eq!(
        host.receive(&arp_request(OTHER_MAC, Ipv4Addr::UNSPECIFIED, PEER4)).0,
        Received::Foreign(Foreign::ArpOther)
    );
    assert_eq!(host.ether.stats().events.of(EtherEvent::Conflict), 2);
}

// proves: HM-4
#[test]
fn claims_to_our_addresses_are_counted_and_defended_once_in_ten_seconds() {
    let claims = [
        arp_request(OTHER_MAC, OUR4, OUR4),
        arp_request(OTHER_MAC, OUR4, PEER4),
        arp_reply(OTHER_MAC, OUR4),
        advertisement(OTHER_MAC, OUR6, OVERRIDE),
        solicitation(OTHER_MAC, OUR6, POOL6),
        arp_reply(OTHER_MAC, POOL4),
    ];
    for claim in claims {
        let mut host = Host::new(&settings());
        let mut said = Vec::new();
        for _ in 0..250 {
            assert_eq!(host.receive(&claim).0, Received::Consumed(Consumed::Conflict));
            said.extend(host.run(100));
        }
        let times: Vec<_> = said.iter().map(|(at, _)| at - said[0].0).collect();
        assert_eq!(times, [0, 10_000, 20_000], "RFC 5227 2.4 c");
        assert_eq!(host.ether.conflict().unwrap().mac, OTHER_MAC);
        assert_eq!(host.ether.stats().events.of(EtherEvent::Conflict), 250);
        assert_eq!(
            host.ether.neighbours().filter(|n| n.mac.is_some()).count(),
            0,
            "no neighbour is learnt from it"
        );
        let address = host.ether.conflict().unwrap().address;
        match address {
            std::net::IpAddr::V4(a) => {
                let arp = parse_arp(&said[0].1);
                assert_eq!(
                    (arp.sender_ipv4, arp.target_ipv4, arp.sender_mac),
                    (a.octets(), a.octets(), OUR_MAC.0)
                );
            }
            std::net::IpAddr::V6(a) => assert_eq!(parse_discovery(&said[0].1).target, a),
        }
    }
}

// proves: HM-15
#[test]
fn malformed_pings_are_dropped_and_fragmented_ones_left_alone() {
    let mut host = Host::new(&settings());
    let good4 = ping4(PEER4, OUR4, b"payload");
    let good6 = ping6(PEER6, OUR6, b"payload");
    let four =
        |host: &mut Host, packet: &[u8]| host.receive(&frame(OUR_MAC, PEER_MAC, &[], 0x0800, packet)).0;
    let malformed = drop(Dropped::EchoMalformed);
    // A checksum finds every changed byte, or the packet is of another kind then.
    for at in 0..good4.len() {
        let mut bad = good4.clone();
        bad[at] ^= 1;
        assert_ne!(four(&mut host, &bad), Received::Reply(Answer::Echo4), "byte {at}");
    }
    for at in (4..7).chain(8..good6.len()) {
        let mut bad = good6.clone();
        bad[at] ^= 1;
        assert_ne!(host.receive(&to_us(&bad)).0, Received::Reply(Answer::Echo6), "byte {at}");
    }
    for len in 21..good4.len() {
        assert_eq!(four(&mut host, &good4[..len]), malformed, "{len}");
    }
    for len in 41..good6.len() {
        assert_eq!(host.receive(&to_us(&good6[..len])).0, malformed, "{len}");
    }
    for source in ["224.0.0.1", "0.0.0.0", "255.255.255.255", "127.0.0.1", "198.51.100.1"] {
        assert_eq!(four(&mut host, &ping4(source.parse().unwrap(), OUR4, b"x")), malformed, "{source}");
    }
    for source in ["ff02::1", "::", "::1", "2001:db8:1::1"] {
        let packet = ping6(source.parse().unwrap(), OUR6, b"x");
        assert_eq!(host.receive(&to_us(&packet)).0, malformed, "{source}");
    }
    let mut piece = good4;
    piece[6] = 0x20;
    assert_eq!(four(&mut host, &piece), Received::Foreign(Foreign::OwnAddress));
    // RFC 4443 4.2 only says SHOULD for pings to groups, and answering would make an amplifier.
    let to_all = ping6(PEER6, "ff02::1".parse().unwrap(), b"x");
    let group = frame(group_mac("ff02::1".parse().unwrap()), PEER_MAC, &[], 0x86dd, &to_all);
    assert_eq!(host.receive(&group).0, Received::Foreign(Foreign::Group));
}

// proves: HM-15
#[test]
fn padding_after_a_ping_is_ignored() {
    let mut host = Host::new(&settings());
    let padded = [&ping4(PEER4, OUR4, b"x")[..], &[0x77; 17]].concat();
    let (fate, reply) = host.receive(&frame(OUR_MAC, PEER_MAC, &[], 0x0800, &padded));
    assert_eq!((fate, reply.len()), (Received::Reply(Answer::Echo4), 14 + padded.len()));
    let sliced = etherparse::SlicedPacket::from_ethernet(&reply).unwrap();
    let Some(etherparse::TransportSlice::Icmpv4(icmp)) = sliced.transport else { panic!("ICMP") };
    assert_eq!(icmp.payload(), b"x");
    assert_eq!(icmp.checksum(), icmp.icmp_type().calc_checksum(icmp.payload()));
}

#[test]
fn forged_answers_that_move_a_neighbour_are_counted() {
    let mut host = Host::new(&settings());
    let _ = host.send(&udp4(POOL4, FAR4, b"x"));
    let _ = host.poll();
    let _ = host.receive(&arp_reply(PEER_MAC, GATEWAY4));
    let _ = host.poll();
    let _ = host.receive(&arp_reply(OTHER_MAC, GATEWAY4));
    assert_eq!(host.ether.stats().events.of(EtherEvent::NeighbourMoved), 1);
    // An unsolicited MAC is not trusted for long: the next packet starts solicitation at the new MAC.
    let gateway = host.ether.neighbours().find(|n| n.address == GATEWAY4).unwrap();
    assert_eq!(gateway.state, NeighbourState::Stale);
    let _ = host.send(&udp4(POOL4, FAR4, b"x"));
    let asked = host.run(5100);
    assert_eq!(macs(&asked[0].1).0, OTHER_MAC);
}
