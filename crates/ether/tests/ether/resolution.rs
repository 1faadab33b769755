//! Address resolution and packet exchange between two hosts on a link.

use crate::common::*;
use gatun_ether::{Answer, Consumed, Foreign, Mac, NeighbourState, Received, Sent, Unsent};
use std::net::Ipv6Addr;

// proves: HM-21
#[test]
fn a_received_packet_begins_with_its_ip_header() {
    let mut host = Host::new(&settings());
    for (kind, packet) in [(0x0800, udp4(PEER4, POOL4, b"x")), (0x86dd, udp6(PEER6, POOL6, b"x"))] {
        let padded = [&packet[..], &[0; 17]].concat();
        let (fate, rest) = host.receive(&frame(OUR_MAC, PEER_MAC, &[], kind, &padded));
        assert_eq!((fate, rest), (Received::Packet, padded));
    }
}

// proves: HM-6
#[test]
fn a_packet_to_an_unknown_host_waits_for_arp() {
    let mut host = Host::new(&settings());
    let packets: Vec<_> = (0..3u8).map(|i| udp4(POOL4, PEER4, &[i; 20])).collect();
    for packet in &packets {
        assert_eq!(host.send(packet).0, Sent::Held);
    }
    let asked = host.poll();
    assert_eq!(asked.len(), 1);
    assert_eq!(macs(&asked[0]), (Mac::BROADCAST, OUR_MAC));
    assert_eq!(asked[0].len(), 60, "padded to the shortest frame");
    let arp = parse_arp(&asked[0]);
    assert_eq!((arp.operation.0, arp.sender_mac, arp.target_mac), (1, OUR_MAC.0, [0; 6]));
    assert_eq!((arp.sender_ipv4, arp.target_ipv4), (OUR4.octets(), PEER4.octets()));

    assert_eq!(host.receive(&arp_reply(PEER_MAC, PEER4)).0, Received::Consumed(Consumed::ArpReply));
    assert!(host.ether.due_ms() <= host.now_ms, "pending packets are due");
    let released = host.poll();
    let expected: Vec<_> = packets.iter().map(|p| frame(PEER_MAC, OUR_MAC, &[], 0x0800, p)).collect();
    assert_eq!(released, expected, "in order");
    let (fate, sent) = host.send(&packets[0]);
    assert_eq!((fate, &sent), (Sent::Frame { device: DEVICE }, &expected[0]));
    let stats = host.ether.stats();
    assert_eq!((stats.sent, stats.released, stats.waiting, stats.to_send), (1, 3, 0, 4));
}

// proves: HM-6, HM-11
#[test]
fn the_same_with_neighbour_discovery() {
    let mut host = Host::new(&settings());
    let packet = udp6(POOL6, PEER6, b"hello");
    assert_eq!(host.send(&packet).0, Sent::Held);
    let asked = host.poll();
    assert_eq!(asked.len(), 1);
    let group = group_of(PEER6);
    assert_eq!(macs(&asked[0]), (group_mac(group), OUR_MAC));
    let local: Ipv6Addr = "fe80::ff:fe00:1".parse().unwrap();
    let expected =
        Discovery { kind: 135, src: local, dst: group, flags: 0, target: PEER6, option: Some((1, OUR_MAC)) };
    assert_eq!(parse_discovery(&asked[0]), expected);

    let answer = advertisement(PEER_MAC, PEER6, SOLICITED | OVERRIDE);
    assert_eq!(host.receive(&answer).0, Received::Consumed(Consumed::Advertisement));
    assert_eq!(host.poll(), [frame(PEER_MAC, OUR_MAC, &[], 0x86dd, &packet)]);
    let reports: Vec<_> = host.ether.neighbours().filter(|n| n.mac.is_some()).collect();
    assert_eq!(reports.len(), 1);
    assert_eq!((reports[0].address, reports[0].state), (PEER6.into(), NeighbourState::Reachable));
}

// proves: HM-19
#[test]
fn packets_off_the_link_go_to_the_next_hop() {
    let mut host = Host::new(&settings());
    assert_eq!(host.send(&udp4(POOL4, FAR4, b"x")).0, Sent::Held);
    assert_eq!(host.send(&udp6(POOL6, FAR6, b"x")).0, Sent::Held);
    let asked = host.poll();
    assert_eq!(parse_arp(&asked[0]).target_ipv4, GATEWAY4.octets());
    assert_eq!(parse_discovery(&asked[1]).target, GATEWAY6);
    let _ = host.receive(&arp_reply(PEER_MAC, GATEWAY4));
    let _ = host.receive(&advertisement(OTHER_MAC, GATEWAY6, SOLICITED | OVERRIDE));
    let released: Vec<_> = host.poll().iter().map(|f| macs(f).0).collect();
    assert_eq!(released, [PEER_MAC, OTHER_MAC]);
}

// proves: HM-1, HM-10
#[test]
fn solicitations_for_our_addresses_are_answered() {
    let mut host = Host::new(&settings());
    for target in [OUR4, ENGINE4, POOL4] {
        let (fate, reply) = host.receive(&arp_request(PEER_MAC, PEER4, target));
        assert_eq!(fate, Received::Reply(Answer::Arp));
        assert_eq!(macs(&reply), (PEER_MAC, OUR_MAC));
        let arp = parse_arp(&reply);
        assert_eq!((arp.operation.0, arp.sender_mac, arp.target_mac), (2, OUR_MAC.0, PEER_MAC.0));
        assert_eq!((arp.sender_ipv4, arp.target_ipv4), (target.octets(), PEER4.octets()));
    }
    for target in [OUR6, POOL6, "fe80::ff:fe00:1".parse().unwrap()] {
        let (fate, reply) = host.receive(&solicitation(PEER_MAC, PEER6, target));
        assert_eq!(fate, Received::Reply(Answer::Advertisement));
        assert_eq!(macs(&reply), (PEER_MAC, OUR_MAC));
        // Router, solicited, override.
        let expected =
            Discovery { kind: 136, src: target, dst: PEER6, flags: 0xe0, target, option: Some((2, OUR_MAC)) };
        assert_eq!(parse_discovery(&reply), expected);
    }
    assert_eq!(host.receive(&arp_request(PEER_MAC, PEER4, GATEWAY4)).0, Received::Foreign(Foreign::ArpOther));
    assert_eq!(host.receive(&solicitation(PEER_MAC, PEER6, FAR6)).0, Received::Foreign(Foreign::NdpOther));
}

// proves: HM-15
#[test]
fn pings_are_answered_except_those_to_the_engine() {
    let mut host = Host::new(&settings());
    for len in [0, 1, 56, 1400] {
        let payload: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let request = frame(OUR_MAC, PEER_MAC, &[], 0x0800, &ping4(FAR4, OUR4, &payload));
        let (fate, reply) = host.receive(&request);
        assert_eq!(fate, Received::Reply(Answer::Echo4));
        assert_eq!(macs(&reply), (PEER_MAC, OUR_MAC));
        let sliced = etherparse::SlicedPacket::from_ethernet(&reply).unwrap();
        let Some(etherparse::NetSlice::Ipv4(ip)) = sliced.net else { panic!("IPv4") };
        let header = ip.header().to_header();
        assert_eq!((header.source, header.destination), (OUR4.octets(), FAR4.octets()));
        assert_eq!((header.time_to_live, header.header_checksum), (64, header.calc_header_checksum()));
        let Some(etherparse::TransportSlice::Icmpv4(icmp)) = sliced.transport else { panic!("ICMP") };
        assert_eq!((icmp.type_u8(), icmp.code_u8(), icmp.payload()), (0, 0, &payload[..]));
        assert_eq!(icmp.bytes5to8(), [0, 77, 0, 1]);
        assert_eq!(icmp.checksum(), icmp.icmp_type().calc_checksum(icmp.payload()));

        let request = frame(OUR_MAC, PEER_MAC, &[], 0x86dd, &ping6(PEER6, OUR6, &payload));
        let (fate, reply) = host.receive(&request);
        assert_eq!(fate, Received::Reply(Answer::Echo6));
        assert_eq!(macs(&reply), (PEER_MAC, OUR_MAC));
        let sliced = etherparse::SlicedPacket::from_ethernet(&reply).unwrap();
        let Some(etherparse::NetSlice::Ipv6(ip)) = sliced.net else { panic!("IPv6") };
        let header = ip.header().to_header();
        assert_eq!((header.source, header.destination), (OUR6.octets(), PEER6.octets()));
        assert_eq!(header.hop_limit, 64);
        let Some(etherparse::TransportSlice::Icmpv6(icmp)) = sliced.transport else { panic!("ICMPv6") };
        assert_eq!((icmp.type_u8(), icmp.code_u8(), icmp.payload()), (129, 0, &payload[..]));
        assert!(icmp.is_checksum_valid(header.source, header.destination));
    }
    let to_engine = ping4(PEER4, ENGINE4, b"x");
    let (fate, rest) = host.receive(&frame(OUR_MAC, PEER_MAC, &[], 0x0800, &to_engine));
    assert_eq!((fate, rest), (Received::Packet, to_engine), "the engine answers for its own addresses");
}

// proves: HM-21
#[test]
fn foreign_frames_are_left_to_the_kernel_unchanged() {
    let mut host = Host::new(&settings());
    let ssh = udp4(PEER4, OUR4, b"not a ping");
    let cases = [
        (frame(OTHER_MAC, PEER_MAC, &[], 0x0800, &ssh), Foreign::OtherMac),
        (frame(OUR_MAC, PEER_MAC, &[], 0x0800, &ssh), Foreign::OwnAddress),
        (frame(OUR_MAC, PEER_MAC, &[], 0x86dd, &udp6(PEER6, OUR6, b"x")), Foreign::OwnAddress),
        (frame(Mac::BROADCAST, PEER_MAC, &[], 0x0800, &udp4(PEER4, POOL4, b"x")), Foreign::Group),
        (frame(OUR_MAC, PEER_MAC, &[], 0x88cc, &[0; 50]), Foreign::OtherType),
        (frame(OUR_MAC, PEER_MAC, &[gatun_ether::Tag::customer(5)], 0x0800, &ssh), Foreign::OtherVlan),
    ];
    for (sent, reason) in cases {
        let (fate, rest) = host.receive(&sent);
        assert_eq!((fate, rest), (Received::Foreign(reason), sent));
    }
}

// proves: HM-19, HM-20
#[test]
fn packets_without_a_route_are_dropped_with_the_reason() {
    let mut settings = settings();
    settings.ports[0].routes.clear();
    let mut host = Host::new(&settings);
    let cases = [
        (udp4(POOL4, FAR4, b"x"), Unsent::NoRoute),
        (udp6(POOL6, FAR6, b"x"), Unsent::NoRoute),
        (udp4(POOL4, OUR4, b"x"), Unsent::ToOurselves),
        (udp4(POOL4, POOL4, b"x"), Unsent::ToOurselves),
        (udp6(POOL6, OUR6, b"x"), Unsent::ToOurselves),
        (udp4(POOL4, "198.51.100.255".parse().unwrap(), b"x"), Unsent::Broadcast),
        (udp4(POOL4, "198.51.100.0".parse().unwrap(), b"x"), Unsent::Broadcast),
        (udp4(POOL4, PEER4, &[0; 1473]), Unsent::TooLarge),
        (vec![0x50; 60], Unsent::NotIp),
        (udp4(POOL4, PEER4, b"x")[..19].to_vec(), Unsent::NotIp),
        (vec![], Unsent::NotIp),
    ];
    for (packet, reason) in cases {
        assert_eq!(host.send(&packet).0, Sent::Drop(reason));
    }
    let mut with_default = Host::new(&crate::common::settings());
    for packet in [
        udp4(POOL4, "224.0.0.5".parse().unwrap(), b"x"),
        udp4(POOL4, "255.255.255.255".parse().unwrap(), b"x"),
        udp6(POOL6, "ff02::1".parse().unwrap(), b"x"),
        udp6(POOL6, "::ffff:8.8.8.8".parse().unwrap(), b"x"),
        udp6(POOL6, "fe80::fe".parse().unwrap(), b"x"),
    ] {
        assert_eq!(with_default.send(&packet).0, Sent::Drop(Unsent::NoRoute));
    }
}
