//! ICMP errors through a mapping, in both directions (RFC 6146 3.4 and 3.6, RFC 5508 4).

use super::common::*;
use super::{OTHER, POOL6, SERVER6, T};
use gatun_nat::Verdict;
use gatun_nat::plan::{IcmpErrorSource, Net6};
use gatun_wire::DropReason;

const ROUTER: &str = "203.0.113.254";
/// A router inside, between the translator and the client.
const ROUTER6: &str = "2001:db8:9::1";

/// One packet of each protocol from the client to the server, large enough that a quotation is truncated.
fn outbound() -> Vec<Vec<u8>> {
    vec![
        udp6(CLIENT, 5000, SERVER6, 53, b"an odd question"),
        udp6(CLIENT, 5001, SERVER6, 53, &[0x3c; 1001]),
        tcp6(CLIENT, 5000, SERVER6, 80, "S", b""),
        tcp6(CLIENT, 5001, SERVER6, 80, "S", &[0xc3; 700]),
        echo6(CLIENT, SERVER6, true, 5000, b"ping"),
        echo6(CLIENT, SERVER6, true, 5001, &[1; 600]),
    ]
}

fn dropped(reason: DropReason) -> Verdict {
    Verdict::Drop(reason)
}

// proves: A61-5, R55-4, R55-10, R47-12, R53-9, A79-34
#[test]
fn an_error_from_outside_quotes_what_the_inside_host_has_sent() {
    for packet in outbound() {
        let mut bed = Bed::nat64(POOL6);
        let sent = bed.send(&packet).forwarded().to_vec();
        let out = bed.send(&error4(SERVER, T, (3, 3, 0), &sent));
        // Compares all bytes: the quotation is the packet as sent, except for the hop that was counted
        // before.
        let expected = error6(SERVER6, CLIENT, (1, 4, 0), &with_hops(packet.clone(), 63));
        assert_eq!(out.forwarded(), with_hops(expected, 63), "{packet:02x?}");
    }
}

// proves: A61-5, A79-37, R55-4
#[test]
fn eight_bytes_of_the_transport_header_are_enough() {
    for packet in outbound() {
        let mut bed = Bed::nat64(POOL6);
        let sent = bed.send(&packet).forwarded().to_vec();
        for cut in [28, 29, 32, 40] {
            let quoted = &sent[..cut.min(sent.len())];
            let out = bed.send(&error4(ROUTER, T, (11, 0, 0), quoted));
            let expected = with_hops(packet.clone(), 63);
            let got = out.forwarded();
            assert_eq!(icmp_type(got), (3, 0));
            let inner = &quote(got)[..quoted.len() + 20];
            // A truncated TCP checksum cannot be compared.
            assert_eq!(inner, &expected[..inner.len()], "{cut}: {packet:02x?}");
        }
        for cut in [0, 19, 20, 27] {
            let out = bed.send(&error4(ROUTER, T, (11, 0, 0), &sent[..cut]));
            assert_eq!(out.verdict, dropped(DropReason::IcmpInnerShort), "{cut}");
        }
    }
}

// proves: A61-60, R55-10
#[test]
fn a_router_on_the_path_is_the_error_source_unless_configured_otherwise() {
    let cases = [
        (POOL6, ROUTER, IcmpErrorSource::Router, ROUTER),
        (POOL6, ROUTER, IcmpErrorSource::InnerDestination, "8.8.8.8"),
        (POOL6, "10.0.0.1", IcmpErrorSource::Router, "10.0.0.1"),
        ("64:ff9b::/96", "9.9.9.9", IcmpErrorSource::Router, "9.9.9.9"),
        // The well-known prefix must not represent a private router (RFC 6052 3.1).
        ("64:ff9b::/96", "10.0.0.1", IcmpErrorSource::Router, "8.8.8.8"),
        // The same for a router with an illegal address.
        (POOL6, "0.0.0.0", IcmpErrorSource::Router, "8.8.8.8"),
        (POOL6, "127.0.0.1", IcmpErrorSource::Router, "8.8.8.8"),
    ];
    for (pool6, router, source, shown) in cases {
        let mut plan = plan_with(pool6);
        plan.nat64[0].icmp_error_source = source;
        let mut bed = Bed::new(&plan);
        let packet = udp6(CLIENT, 5000, &behind(pool6, "8.8.8.8"), 53, b"x");
        let sent = bed.send(&packet).forwarded().to_vec();
        let out = bed.send(&error4(router, T, (11, 0, 0), &sent));
        let expected = error6(&behind(pool6, shown), CLIENT, (3, 0, 0), &with_hops(packet, 63));
        assert_eq!(out.forwarded(), with_hops(expected, 63), "{router} {source:?}");
    }
}

// proves: A79-30
#[test]
fn fragmentation_needed_reports_the_mtu_to_the_inside_host() {
    let mut bed = Bed::nat64(POOL6);
    let packet = udp6(CLIENT, 5000, SERVER6, 53, &[7; 1400]);
    let sent = bed.send(&packet).forwarded().to_vec();
    for (said, told) in [(1400, 1420u32), (1500, 1500), (9000, 1500), (1000, 1280)] {
        let out = bed.send(&error4(ROUTER, T, (3, 4, said), &sent[..548]));
        let got = out.forwarded();
        assert_eq!((icmp_type(got), &got[44..48]), ((2, 0), &told.to_be_bytes()[..]));
        assert_eq!(quote(got)[40..], packet[40..568]);
    }
}

// proves: A61-5, R55-5
#[test]
fn an_error_from_the_inside_host_quotes_what_the_outside_host_has_sent() {
    let mut bed = Bed::nat64(POOL6);
    let udp = bed.through(&udp6(CLIENT, 5000, SERVER6, 53, b"x")).sport;
    let tcp = bed.through(&tcp6(CLIENT, 5000, SERVER6, 80, "S", b"")).sport;
    let id = bed.through(&echo6(CLIENT, SERVER6, true, 5000, b"x")).sport;
    for (packet, router) in [
        (udp4(SERVER, 53, T, udp, b"an odd answer"), CLIENT),
        (udp4(SERVER, 53, T, udp, b"an odd answer"), ROUTER6),
        (tcp4(SERVER, 80, T, tcp, "SA", b""), CLIENT),
        (tcp4(SERVER, 80, T, tcp, "PA", &[9; 301]), ROUTER6),
        (echo4(SERVER, T, false, id, b"pong"), CLIENT),
        (echo4(SERVER, T, true, id, b"ping"), ROUTER6),
    ] {
        let arrived = bed.send(&packet).forwarded().to_vec();
        let out = bed.send(&error6(router, SERVER6, (1, 4, 0), &arrived));
        let got = out.forwarded();
        // All bytes of the quotation, except identification and DF, which IPv6 does not carry.
        let mut original = with_hops(packet.clone(), 63);
        original[4..8].copy_from_slice(&quote(got)[4..8]);
        original[10..12].copy_from_slice(&quote(got)[10..12]);
        assert_eq!(quote(got), original);
        assert_eq!(etherparse::Ipv4Header::from_slice(quote(got)).unwrap().0.calc_header_checksum(), {
            u16::from_be_bytes([quote(got)[10], quote(got)[11]])
        });
        assert_eq!((icmp_type(got), got[8]), ((3, 3), 63));
        assert_eq!((&got[12..16], &got[16..20]), (&v4(T).octets()[..], &v4(SERVER).octets()[..]));
    }
}

// proves: A61-61
#[test]
fn an_error_from_inside_comes_from_the_address_that_its_own_binding_has() {
    let mut plan = plan_with(POOL6);
    plan.pools = vec![pool("192.0.2.1", "192.0.2.8", (1024, 65_535))];
    let mut bed = Bed::new(&plan);
    let mut addresses = std::collections::BTreeSet::new();
    for n in 1..=32 {
        let host = format!("2001:db8:1::{n:x}");
        let e = bed.through(&udp6(&host, 5000, SERVER6, 53, b"x"));
        let (std::net::IpAddr::V4(t), port) = (e.src, e.sport) else { panic!("{e:?}") };
        let arrived = bed.send(&udp4(SERVER, 53, &t.to_string(), port, &[7; 1200])).forwarded().to_vec();
        // The sender may be the host, or a router without a binding and without an IPv4 address.
        for (from, error, expected) in [
            (host.as_str(), (1, 4, 0), (3, 3)),
            (ROUTER6, (3, 0, 0), (11, 0)),
            (ROUTER6, (2, 0, 1400), (3, 4)),
        ] {
            let out = bed.send(&error6(from, SERVER6, error, &arrived[..1200]));
            let got = out.forwarded();
            assert_eq!((icmp_type(got), &got[12..16]), (expected, &t.octets()[..]), "{from}");
            assert_eq!(got[16..20], v4(SERVER).octets());
        }
        addresses.insert(t);
    }
    assert!(addresses.len() > 4, "bindings of several addresses: {addresses:?}");
}

// proves: A79-70
#[test]
fn a_router_before_the_host_may_send_packet_too_big_from_any_source() {
    let mut plan = plan_with(POOL6);
    plan.nat64[0].sources = vec![Net6::new(v6("2001:db8:1::"), 64).unwrap()];
    let mut bed = Bed::new(&plan);
    let port = bed.through(&udp6(CLIENT, 5000, SERVER6, 53, b"x")).sport;
    let arrived = bed.send(&udp4(SERVER, 53, T, port, &[7; 1200])).forwarded().to_vec();
    let out = bed.send(&error6(ROUTER6, SERVER6, (2, 0, 1400), &arrived[..1232]));
    let got = out.forwarded();
    assert_eq!((icmp_type(got), &got[24..28]), ((3, 4), &1380u32.to_be_bytes()[..]));
    assert_eq!(got[12..16], v4(T).octets());
    assert!(got.len() <= 576);
}

// proves: A61-5, R55-4, R55-5
#[test]
fn errors_about_packets_of_no_binding_are_dropped() {
    let mut bed = Bed::nat64(POOL6);
    let port = bed.through(&udp6(CLIENT, 5000, SERVER6, 53, b"x")).sport;
    let nothing = dropped(DropReason::IcmpErrorNoState);
    for quoted in [
        udp4(T, port ^ 1, SERVER, 53, b"x"),
        tcp4(T, port, SERVER, 53, "S", b"x"),
        echo4(T, SERVER, true, port, b"x"),
        udp4(OTHER, port, SERVER, 53, b"x"),
    ] {
        assert_eq!(bed.send(&error4(ROUTER, T, (3, 3, 0), &quoted)).verdict, nothing);
    }
    for quoted in [
        udp6(SERVER6, 53, CLIENT, 5001, b"x"),
        tcp6(SERVER6, 53, CLIENT, 5000, "S", b"x"),
        echo6(SERVER6, CLIENT, false, 5000, b"x"),
        udp6(SERVER6, 53, "2001:db8:1::3", 5000, b"x"),
    ] {
        assert_eq!(bed.send(&error6(CLIENT, SERVER6, (1, 4, 0), &quoted)).verdict, nothing);
    }
    // The quoted packet did not come through the translator.
    let quoted = udp6("2001:db8:77::1", 53, CLIENT, 5000, b"x");
    let out = bed.send(&error6(CLIENT, SERVER6, (1, 4, 0), &quoted));
    assert_eq!(out.verdict, dropped(DropReason::IcmpInnerUntranslatable));
    // The error goes to a host that did not send the quoted packet.
    let quoted = udp6(SERVER6, 53, CLIENT, 5000, b"x");
    let out = bed.send(&error6(CLIENT, &behind(POOL6, OTHER), (1, 4, 0), &quoted));
    assert_eq!(out.verdict, nothing);
    assert_eq!(bed.nat.counters().icmp_errors_sent, 0, "an error is never answered");
}

// proves: A61-51, R55-6, R47-12, R53-10
#[test]
fn errors_neither_make_nor_extend_nor_end_anything() {
    for (packet, lifetime_ms) in [
        (udp6(CLIENT, 5000, SERVER6, 53, b"x"), 300_000),
        (tcp6(CLIENT, 5000, SERVER6, 80, "S", b"x"), 240_000),
        (echo6(CLIENT, SERVER6, true, 5000, b"x"), 60_000),
    ] {
        let mut bed = Bed::nat64(POOL6);
        let sent = bed.send(&packet).forwarded().to_vec();
        let there = bed.nat.occupancy();
        for _ in 0..5 {
            bed.pass_ms(lifetime_ms / 6);
            for kind in [(3, 3, 0), (3, 1, 0), (3, 13, 0), (11, 0, 0), (3, 4, 1300)] {
                bed.send(&error4(ROUTER, T, kind, &sent)).forwarded();
            }
            assert_eq!(bed.nat.occupancy(), there, "nothing ends");
        }
        // The session is as alive as before...
        let port = ends(&sent).sport;
        bed.pass_ms(lifetime_ms / 6 - 500);
        let flags = |p: &Ends| (p.sport, p.dport);
        let e = ends(&sent);
        let back = match packet[6] {
            17 => udp4(SERVER, 53, T, port, b"x"),
            6 => tcp4(SERVER, 80, T, port, "A", b"x"),
            _ => echo4(SERVER, T, false, port, b"x"),
        };
        assert_eq!(flags(&e).0, port);
        bed.through(&back);

        // ... and ends as without the errors.
        let mut bed = Bed::nat64(POOL6);
        let sent = bed.send(&packet).forwarded().to_vec();
        bed.pass_ms(lifetime_ms - 1_000);
        bed.send(&error4(ROUTER, T, (3, 3, 0), &sent)).forwarded();
        bed.pass_ms(6_000);
        assert_eq!(bed.nat.occupancy(), Default::default());
        let late = bed.send(&error4(ROUTER, T, (3, 3, 0), &sent));
        assert_eq!(late.verdict, dropped(DropReason::IcmpErrorNoState));
    }
}

// proves: R55-6, R78-8, A61-51
#[test]
fn errors_from_inside_do_not_extend_a_session() {
    let mut bed = Bed::nat64(POOL6);
    let port = bed.through(&udp6(CLIENT, 5000, SERVER6, 53, b"x")).sport;
    let arrived = bed.send(&udp4(SERVER, 53, T, port, b"x")).forwarded().to_vec();
    bed.pass_ms(299_000);
    bed.send(&error6(CLIENT, SERVER6, (1, 4, 0), &arrived)).forwarded();
    bed.pass_ms(6_000);
    assert_eq!(bed.nat.occupancy(), Default::default());
}

// proves: R55-3
#[test]
fn sums_of_the_message_and_of_the_quoted_header_are_verified_and_no_others() {
    let mut bed = Bed::nat64(POOL6);
    let sent = bed.send(&udp6(CLIENT, 5000, SERVER6, 53, b"question")).forwarded().to_vec();
    let good = error4(ROUTER, T, (3, 3, 0), &sent);
    let mut bad = good.clone();
    bad[22] ^= 1;
    assert_eq!(bed.send(&bad).verdict, dropped(DropReason::BadL4Checksum));
    let mut quoted = sent.clone();
    quoted[8] ^= 7; // TTL: a wrong header sum, right beneath the error's own
    let out = bed.send(&error4(ROUTER, T, (3, 3, 0), &quoted));
    assert_eq!(out.verdict, dropped(DropReason::BadL3Checksum));
    let mut quoted = sent.clone();
    quoted[26] ^= 0x55; // the UDP checksum
    bed.send(&error4(ROUTER, T, (3, 3, 0), &quoted)).forwarded();
    bed.send(&good).forwarded();

    let port = ends(&sent).sport;
    let arrived = bed.send(&udp4(SERVER, 53, T, port, b"answer")).forwarded().to_vec();
    let mut bad = error6(CLIENT, SERVER6, (1, 4, 0), &arrived);
    bad[42] ^= 1;
    assert_eq!(bed.send(&bad).verdict, dropped(DropReason::BadL4Checksum));
}

#[test]
fn an_error_about_an_error_is_dropped() {
    let mut bed = Bed::nat64(POOL6);
    let sent = bed.send(&udp6(CLIENT, 5000, SERVER6, 53, b"question")).forwarded().to_vec();
    let error = error4(T, SERVER, (3, 3, 0), &sent);
    let out = bed.send(&error4(ROUTER, T, (11, 0, 0), &error));
    assert_eq!(out.verdict, dropped(DropReason::IcmpDoubleError));
}

#[test]
fn an_error_at_its_last_hop_ends_silently() {
    let mut bed = Bed::nat64(POOL6);
    let sent = bed.send(&udp6(CLIENT, 5000, SERVER6, 53, b"question")).forwarded().to_vec();
    let out = bed.send(&with_hops(error4(ROUTER, T, (3, 3, 0), &sent), 1));
    assert_eq!(out.verdict, dropped(DropReason::TtlExceeded));
    let arrived = udp6(SERVER6, 53, CLIENT, 5000, b"answer");
    let out = bed.send(&with_hops(error6(CLIENT, SERVER6, (1, 4, 0), &arrived), 1));
    assert_eq!(out.verdict, dropped(DropReason::TtlExceeded));
}
