//! ICMP errors: outer and inner addresses, RFC 6791's sources, hairpins.

use super::*;
use etherparse::{Icmpv4Header, Ipv4Header};

/// Checks the ICMPv4 checksum, and the header checksums outside and inside.
fn assert_icmpv4_sums(packet: &[u8]) {
    let (outer, rest) = Ipv4Header::from_slice(packet).unwrap();
    assert_eq!(outer.header_checksum, outer.calc_header_checksum());
    let (icmp, inner) = Icmpv4Header::from_slice(rest).unwrap();
    assert_eq!(icmp.checksum, icmp.icmp_type.calc_checksum(inner));
    let (ip, _) = Ipv4Header::from_slice(inner).unwrap();
    assert_eq!(ip.header_checksum, ip.calc_header_checksum());
}

// proves: A79-8
#[test]
fn the_outer_source_of_an_icmpv4_error_may_be_illegal() {
    let state = with(|_| ());
    let (host6, host4) = (a6("2001:db8:a::a"), a4("198.51.100.1"));
    let (far6, far4) = (a6("2001:db8:64::192.0.2.33"), a4("192.0.2.33"));
    for router in MARTIANS4 {
        let given = packet4(a4(router), host4, 64, &unreachable(packet4(host4, far4, 1, &udp())));
        let source = prefix("2001:db8:64::/96").embed(a4(router));
        let expected = packet6(source, host6, 63, &unreachable(packet6(host6, far6, 1, &udp())));
        expect(&state, &given, &expected, false);
    }
}

#[test]
fn an_icmpv6_error_about_a_packet_from_outside_is_translated_inside_and_out() {
    let state = with(|_| ());
    let (host6, host4) = (a6("2001:db8:a::a"), a4("198.51.100.1"));
    let (far6, far4) = (a6("2001:db8:64::192.0.2.33"), a4("192.0.2.33"));
    for load in [udp(), Message::echo(true, 0xbeef, &[1; 9]), Message::tcp(1, 2, "", &[])] {
        let given = packet6(host6, far6, 64, &port_unreachable(packet6(far6, host6, 5, &load)));
        let expected = packet4(host4, far4, 63, &port_unreachable(packet4(far4, host4, 5, &load)));
        // The identification of the inner packet is no longer known.
        let (mut got, step) = run(&state, &given).unwrap();
        let mut expected = expected;
        for packet in [&mut got, &mut expected] {
            packet[22..24].fill(0); // ICMP checksum, of the identification too
            packet[28 + 4..28 + 6].fill(0); // identification
            packet[28 + 10..28 + 12].fill(0); // header checksum
        }
        assert_eq!(got, expected);
        assert_eq!(step, Step::Forward { whole: Whole::Yes, hairpinned: false });
        let (got, _) = run(&state, &given).unwrap();
        assert_icmpv4_sums(&got);
    }
}

// proves: A79-73
#[test]
fn an_icmpv6_error_from_a_router_without_translation_gets_a_source_from_the_pool() {
    let pool = vec![net4("203.0.113.16/29"), net4("203.0.113.32/32")];
    let sources = |state: &SiitState, hop_limit: u8| -> Vec<Ipv4Addr> {
        let from = |n: u16| {
            let router = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, n, 0, 0, 0, 1);
            let (host6, far6) = (a6("2001:db8:a::a"), a6("2001:db8:64::192.0.2.33"));
            let error = unreachable(packet6(far6, host6, 1, &udp()));
            let (got, _) = run(state, &packet6(router, far6, hop_limit, &error)).unwrap();
            assert_icmpv4_sums(&got);
            Ipv4Header::from_slice(&got).unwrap().0.source.into()
        };
        (0..200).map(from).collect()
    };
    let in_pool = |a: &Ipv4Addr| pool.iter().any(|n| n.contains(*a));

    let hash = with(|p| p.icmp_pool4 = pool.clone());
    let first = sources(&hash, 64);
    assert!(first.iter().all(in_pool));
    assert_eq!(first, sources(&hash, 9), "one router, one address");
    let used: std::collections::BTreeSet<_> = first.iter().collect();
    assert_eq!(used.len(), 9, "200 routers use every address");
    // Another engine at another time chooses the same addresses.
    assert_eq!(first, sources(&with(|p| p.icmp_pool4 = pool.clone()), 64));

    let distance = with(|p| {
        p.icmp_pool4 = pool.clone();
        p.icmp_pool4_mode = IcmpPoolMode::HopLimit;
    });
    let nine: std::collections::BTreeSet<_> = (50..59).map(|hop| sources(&distance, hop)[0]).collect();
    assert_eq!(nine.len(), 9, "nine distances, nine addresses");
    assert!(nine.iter().all(in_pool));
    assert!(sources(&distance, 64).windows(2).all(|w| w[0] == w[1]), "one distance, one address");

    let own = SiitState::new(&plan(), Some(a4("203.0.113.1")), None).unwrap();
    assert!(sources(&own, 64).iter().all(|a| *a == a4("203.0.113.1")), "no pool: the own address");
}

// proves: A79-73
#[test]
fn an_error_of_an_untranslatable_router_needs_a_pool_or_an_own_address() {
    let state = with(|_| ());
    let (host6, far6) = (a6("2001:db8:a::a"), a6("2001:db8:64::192.0.2.33"));
    let error = unreachable(packet6(far6, host6, 1, &udp()));
    refuse(&state, &packet6(a6("2001:db8:ffff::1"), far6, 64, &error), DropReason::NoEam);
}

#[test]
fn an_icmpv4_error_from_a_router_without_translation_gets_an_ipv6_source() {
    let (host6, host4) = (a6("2001:db8:a::a"), a4("198.51.100.1"));
    let (far6, far4) = (a6("64:ff9b::8.8.8.8"), a4("8.8.8.8"));
    let given = packet4(a4("10.0.0.1"), host4, 64, &unreachable(packet4(host4, far4, 1, &udp())));
    let inner = packet6(host6, far6, 1, &udp());
    let expected = |source: &str| packet6(a6(source), host6, 63, &unreachable(inner.clone()));
    let well_known = |p: &mut plan::Siit| p.pool6 = vec![Prefix64::WELL_KNOWN];

    refuse(&with(well_known), &given, DropReason::WellKnownNonGlobal);
    let wide = with(|p| {
        well_known(p);
        p.icmp_pool6 = vec![net6("2001:db8:6791::/64")];
    });
    expect(&wide, &given, &expected("2001:db8:6791::10.0.0.1"), false);
    let narrow = with(|p| {
        well_known(p);
        p.icmp_pool6 = vec![net6("2001:db8:6791::7/128")];
    });
    expect(&narrow, &given, &expected("2001:db8:6791::7"), false);
    let mut plan = plan();
    well_known(&mut plan);
    let own = SiitState::new(&plan, None, Some(a6("2001:db8::1"))).unwrap();
    expect(&own, &given, &expected("2001:db8::1"), false);
}

#[test]
fn an_error_whose_inner_packet_has_no_translation_is_refused() {
    let state = with(|p| p.pool6.clear());
    let (a, b) = (a6("2001:db8:a::a"), a6("2001:db8:b::b"));
    let error = unreachable(packet6(a6("2001:db8:ffff::1"), a, 1, &udp()));
    refuse(&state, &packet6(a, b, 64, &error), DropReason::IcmpInnerUntranslatable);
    let (a, b) = (a4("198.51.100.1"), a4("198.51.100.2"));
    let error = unreachable(packet4(a, a4("192.0.2.1"), 1, &udp()));
    refuse(&state, &packet4(b, a, 64, &error), DropReason::IcmpInnerUntranslatable);
}

// proves: A77-6, A77-8
#[test]
fn a_simple_hairpins_error_comes_back_with_the_inner_destination_embedded() {
    let state = with(|p| p.hairpin = Hairpin::Simple);
    for load in [udp(), Message::tcp(1, 2, "", &[3; 5])] {
        // B has got pool6:A4 -> B6 and answers.
        let given = packet6(B6, embedded(A4), 64, &port_unreachable(packet6(embedded(A4), B6, 9, &load)));
        let (between, _) = run(&state, &given).unwrap();
        assert_icmpv4_sums(&between);
        assert_eq!(between[12..20], [B4.octets(), A4.octets()].concat());
        assert_eq!(between[28 + 12..28 + 20], [A4.octets(), B4.octets()].concat());
        let expected = packet6(embedded(B4), A6, 62, &port_unreachable(packet6(A6, embedded(B4), 9, &load)));
        expect(&state, &between, &expected, false);
    }
}

// proves: A77-7, A77-8
#[test]
fn an_error_about_an_intrinsic_hairpin_is_hairpinned() {
    let state = with(|_| ());
    for load in [udp(), Message::tcp(1, 2, "", &[3; 5])] {
        let inner = packet6(embedded(A4), B6, 9, &load);
        let answer = packet6(A6, embedded(B4), 9, &load);
        let given = packet6(B6, embedded(A4), 64, &port_unreachable(inner.clone()));
        let expected = packet6(embedded(B4), A6, 62, &port_unreachable(answer.clone()));
        expect(&state, &given, &expected, true);
        // The error comes from a router on the path to B, which has no translation.
        let state = SiitState::new(&plan(), Some(a4("203.0.113.1")), None).unwrap();
        let given = packet6(a6("2001:db8:ffff::1"), embedded(A4), 64, &unreachable(inner));
        let expected = packet6(embedded(a4("203.0.113.1")), A6, 62, &unreachable(answer));
        expect(&state, &given, &expected, true);
    }
}

// proves: A77-8
#[test]
fn an_intrinsic_hairpin_gives_what_a_simple_one_gives_with_the_router_in_between() {
    let intrinsic = with(|_| ());
    let simple = with(|p| p.hairpin = Hairpin::Simple);
    let mut packets: Vec<Vec<u8>> = each_message().iter().map(|l| packet6(A6, embedded(B4), 64, l)).collect();
    packets.push(packet6(A6, embedded(B4), 64, &Message::Udp { src: 1, dst: 2, payload: vec![0x77; 1400] }));
    packets.push(packet6(B6, embedded(A4), 64, &unreachable(packet6(embedded(A4), B6, 1, &udp()))));
    let long = Message::Udp { src: 1, dst: 2, payload: vec![0x77; 300] };
    let too_big =
        Message::Icmp { v4: (3, 4, 1280), v6: (2, 0, 1300), body: packet6(embedded(A4), B6, 1, &long) };
    packets.push(packet6(B6, embedded(A4), 64, &too_big));
    packets.push(fragment6(A6, embedded(B4), 64, 0, true, &[1; 48]));
    packets.push(fragment6(A6, embedded(B4), 64, 48, false, &[2; 31]));
    for given in packets {
        let (between, _) = run(&simple, &given).unwrap();
        let (expected, _) = run(&simple, &between).unwrap();
        let (got, step) = run(&intrinsic, &given).unwrap();
        assert_eq!(got, expected);
        assert!(matches!(step, Step::Forward { whole: Whole::Yes, hairpinned: true }));
    }
}

// proves: A77-8
#[test]
fn a_hairpin_that_would_end_on_its_second_hop_is_refused_before_the_first() {
    let state = with(|_| ());
    let error = port_unreachable(packet6(embedded(A4), B6, 9, &udp()));
    for hop_limit in [0, 1, 2] {
        refuse(&state, &packet6(A6, embedded(B4), hop_limit, &udp()), DropReason::TtlExceeded);
        refuse(&state, &packet6(B6, embedded(A4), hop_limit, &error), DropReason::TtlExceeded);
    }
    expect(&state, &packet6(A6, embedded(B4), 3, &udp()), &packet6(embedded(A4), B6, 1, &udp()), true);
}
