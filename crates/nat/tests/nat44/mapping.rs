//! Mappings: RFC 4787 4, RFC 5382 4, RFC 6888, RFC 6864.

use super::common::*;
use super::{A, B, OTHER, SERVER, T, net, plan44};
use gatun_nat::Verdict;
use gatun_nat::plan::{Exemption, Pairing, Transport};
use gatun_wire::DropReason;
use std::collections::BTreeSet;
use std::net::IpAddr;

// proves: R47-1, R53-1, R55-1, R68-1, R78-5
#[test]
fn one_inside_endpoint_has_one_outside_endpoint_for_every_destination() {
    let mut bed = Bed::new(&plan44());
    let servers: Vec<String> = (1..=20).map(|n| format!("203.0.113.{n}")).collect();
    let first = |bed: &mut Bed, packet: &[u8]| bed.through(packet).sport;
    let udp = first(&mut bed, &udp4(A, 5000, SERVER, 53, b"x"));
    let tcp = first(&mut bed, &tcp4(A, 5000, SERVER, 80, "S", b""));
    let id = first(&mut bed, &echo4(A, SERVER, true, 5000, b"x"));
    for s in &servers {
        let out = bed.send(&udp4(A, 5000, s, 53, b"x"));
        assert_eq!(out.forwarded(), with_hops(udp4(T, udp, s, 53, b"x"), 63));
        let out = bed.send(&tcp4(A, 5000, s, 80, "S", b"data"));
        assert_eq!(out.forwarded(), with_hops(tcp4(T, tcp, s, 80, "S", b"data"), 63));
        let out = bed.send(&echo4(A, s, true, 5000, b"x"));
        assert_eq!(out.forwarded(), with_hops(echo4(T, s, true, id, b"x"), 63));
    }
    assert_eq!((bed.nat.occupancy().bindings, bed.nat.occupancy().sessions), (3, 63));
    for s in &servers {
        let back = bed.send(&udp4(s, 53, T, udp, b"answer"));
        assert_eq!(back.forwarded(), with_hops(udp4(s, 53, A, 5000, b"answer"), 63));
        let back = bed.send(&tcp4(s, 80, T, tcp, "SA", b""));
        assert_eq!(back.forwarded(), with_hops(tcp4(s, 80, A, 5000, "SA", b""), 63));
        let back = bed.send(&echo4(s, T, false, id, b"x"));
        assert_eq!(back.forwarded(), with_hops(echo4(s, A, false, 5000, b"x"), 63));
    }
    assert_eq!(bed.nat.counters().translated[2].packets, 63 + 60);
    assert_eq!(bed.nat.counters().forwarded.packets, 63 + 60);
}

// proves: R47-3, R53-7, R68-13
#[test]
fn no_two_endpoints_share_a_port_until_the_last_one_is_given_and_then_none_is_taken_away() {
    let mut plan = plan44();
    plan.pools = vec![pool(T, T, (2000, 2099))];
    let mut bed = Bed::new(&plan);
    let host = |n: u32| format!("100.64.1.{n}");
    let mut given = BTreeSet::new();
    for n in 0..100 {
        // At a fill of 99 percent, the mapping is still endpoint-independent, paired and unshared.
        let e = bed.through(&udp4(&host(n), 7000, SERVER, 53, b"x"));
        assert!(given.insert(e.sport), "{} twice", e.sport);
        assert_eq!(bed.through(&udp4(&host(n), 7000, OTHER, 53, b"x")).sport, e.sport);
    }
    let out = bed.send(&udp4(A, 7000, SERVER, 53, b"x"));
    assert_eq!(out.verdict, Verdict::Reply(gatun_nat::Reply::Error(DropReason::PortsExhausted)));
    for n in 0..100 {
        bed.through(&udp4(&host(n), 7000, SERVER, 53, b"x"));
    }
}

// proves: R47-3, R47-4, R78-9
#[test]
fn ports_keep_their_class_and_if_configured_their_parity() {
    let mut plan = plan44();
    plan.pools[0].port_parity = true;
    let mut bed = Bed::new(&plan);
    for port in (100..1000).step_by(51).chain((1024..60_000).step_by(3001)) {
        let e = bed.through(&udp4(A, port, SERVER, 53, b"x"));
        assert_eq!((e.sport < 1024, e.sport % 2), (port < 1024, port % 2), "{port} -> {}", e.sport);
    }
}

// proves: R47-2, R68-2, R78-4
#[test]
fn a_host_keeps_one_public_address_and_hard_pairing_drops_rather_than_break_it() {
    for (pairing, kept) in [(Pairing::Soft, false), (Pairing::Hard, true)] {
        let mut plan = plan44();
        plan.pools = vec![pool("192.0.2.1", "192.0.2.4", (2000, 2009))];
        plan.pools[0].pairing = pairing;
        let mut bed = Bed::new(&plan);
        let address = bed.through(&udp4(A, 1, SERVER, 53, b"x")).src;
        for port in 2..=10 {
            assert_eq!(bed.through(&udp4(A, port, SERVER, 53, b"x")).src, address);
            assert_eq!(bed.through(&tcp4(A, port, SERVER, 80, "S", b"")).src, address);
        }
        let eleventh = bed.send(&udp4(A, 11, SERVER, 53, b"x"));
        let dropped = Verdict::Reply(gatun_nat::Reply::Error(DropReason::PortsExhausted));
        assert_eq!(eleventh.verdict, if kept { dropped } else { Verdict::Forward });
        if !kept {
            assert_ne!(ends(&eleventh.bytes).src, address);
        }
    }
}

// proves: R68-4, R68-5, R68-11
#[test]
fn a_subscriber_at_a_limit_gets_an_error_and_keeps_its_sessions() {
    let mut plan = plan44();
    plan.limits.ports_per_subscriber = 3;
    plan.limits.sessions_per_subscriber = 5;
    let mut bed = Bed::new(&plan);
    for port in 1..=3 {
        bed.through(&udp4(A, port, SERVER, 53, b"x"));
    }
    let refused = udp4(A, 4, SERVER, 53, b"x");
    let out = bed.send(&refused);
    let reason = DropReason::SubscriberPortQuota;
    assert_eq!(out.verdict, Verdict::Reply(gatun_nat::Reply::Error(reason)));
    assert_eq!((icmp_type(&out.bytes), quote(&out.bytes)), ((3, 1), &refused[..]));
    // More sessions on existing ports, up to the limit.
    bed.through(&udp4(A, 1, OTHER, 53, b"x"));
    bed.through(&udp4(A, 2, OTHER, 53, b"x"));
    let out = bed.send(&udp4(A, 3, OTHER, 53, b"x"));
    assert_eq!(icmp_type(&out.bytes), (3, 1));
    assert_eq!(bed.drops(DropReason::SubscriberSessionQuota), 1);
    // Other subscribers are not affected, and nothing is evicted.
    bed.through(&udp4(B, 1, SERVER, 53, b"x"));
    for port in 1..=3 {
        bed.through(&udp4(A, port, SERVER, 53, b"x"));
    }
    assert_eq!(bed.nat.occupancy().sessions, 6);
}

// proves: R68-4
#[test]
fn a_subscriber_with_a_network_is_one_subscriber() {
    let mut plan = plan44();
    plan.limits.ports_per_subscriber = 3;
    plan.nat44[0].subscriber_len = 24;
    let mut bed = Bed::new(&plan);
    for n in 1..=3 {
        bed.through(&udp4(&format!("100.64.7.{n}"), 1, SERVER, 53, b"x"));
    }
    let out = bed.send(&udp4("100.64.7.4", 1, SERVER, 53, b"x"));
    assert_eq!(icmp_type(&out.bytes), (3, 1));
    bed.through(&udp4("100.64.8.1", 1, SERVER, 53, b"x"));
}

// proves: R68-6
#[test]
fn packets_to_exempt_destinations_pass_as_they_are() {
    let mut plan = plan44();
    plan.nat44[0].exempt = vec![
        Exemption { net: net("198.51.100.8", 32), transport: None, ports: None },
        Exemption { net: net("198.51.100.7", 32), transport: Some(Transport::Udp), ports: Some((53, 53)) },
    ];
    let mut bed = Bed::new(&plan);
    let exempt = [
        udp4(A, 5000, OTHER, 1, b"x"),
        tcp4(A, 5000, OTHER, 80, "S", b""),
        echo4(A, OTHER, true, 7, b"x"),
        other4(A, OTHER, 47),
        udp4(A, 5000, SERVER, 53, b"x"),
        // Between inside hosts.
        udp4(A, 5000, B, 53, b"x"),
        // Answers to them.
        udp4(OTHER, 1, A, 5000, b"x"),
        udp4(SERVER, 53, A, 5000, b"x"),
    ];
    for packet in &exempt {
        assert_eq!(bed.send(packet).verdict, Verdict::Pass);
    }
    assert_eq!(bed.nat.counters().passed.packets, exempt.len() as u64);
    assert_eq!(bed.through(&udp4(A, 5000, SERVER, 54, b"x")).src, IpAddr::V4(v4(T)));
    assert_eq!(bed.through(&tcp4(A, 5000, SERVER, 53, "S", b"")).src, IpAddr::V4(v4(T)));
    assert_eq!(bed.send(&udp4(SERVER, 54, A, 5000, b"x")).verdict, Verdict::Drop(DropReason::NotInPool));
}

// proves: R78-11
#[test]
fn identifications_of_many_hosts_do_not_meet_at_one_destination() {
    let mut bed = Bed::new(&plan44());
    let mut seen = BTreeSet::new();
    for round in 0..50 {
        for n in 0..100 {
            // Without DF. Every host counts its packets from zero.
            let mut packet = udp4(&format!("100.64.1.{n}"), 7000, SERVER, 53, b"x");
            packet[4..6].copy_from_slice(&u16::to_be_bytes(round));
            let packet = with_flags4(packet, 0);
            let out = bed.send(&packet);
            assert!(seen.insert([out.forwarded()[4], out.forwarded()[5]]));
        }
    }
    // The identification of an atomic datagram has no meaning and stays the same (RFC 6864 4.1).
    let mut packet = udp4(A, 7000, SERVER, 53, b"x");
    packet[4..6].copy_from_slice(&[0xab, 0xcd]);
    let packet = with_flags4(packet, 0x4000);
    assert_eq!(bed.send(&packet).forwarded()[4..8], [0xab, 0xcd, 0x40, 0]);
}

#[test]
fn packets_without_an_instance_are_dropped_and_answered() {
    let mut bed = Bed::new(&plan44());
    let to = |dst: &str| udp4(A, 5000, dst, 53, b"x");
    for dst in ["127.0.0.1", "224.0.0.5", "255.255.255.255", "0.0.0.1", "169.254.1.1"] {
        assert_eq!(bed.send(&to(dst)).verdict, Verdict::Drop(DropReason::DestinationMartian), "{dst}");
    }
    // From an address that is neither inside nor a remote host of a session.
    let stranger = udp4("10.9.9.9", 5000, SERVER, 53, b"x");
    assert_eq!(bed.send(&stranger).verdict, Verdict::Drop(DropReason::NotInPool));
    let out = bed.send(&other4(A, SERVER, 47));
    assert_eq!(icmp_type(&out.bytes), (3, 2));
    assert_eq!(bed.nat.occupancy(), Default::default());
    // At the last hop, the translator answers.
    let out = bed.send(&with_hops(udp4(A, 5000, SERVER, 53, b"x"), 1));
    assert_eq!((icmp_type(&out.bytes), ends(&out.bytes).src), ((11, 0), v4(OWN4).into()));
}

#[test]
fn the_translator_itself_answers_pings_from_inside() {
    let mut bed = Bed::new(&plan44());
    let out = bed.send(&echo4(A, OWN4, true, 77, b"hello"));
    assert_eq!(out.verdict, Verdict::Reply(gatun_nat::Reply::Echo));
    assert_eq!(out.bytes[20..], echo4(OWN4, A, false, 77, b"hello")[20..]);
}
