//! Addresses that are translated, addresses that are not, and the translator's own (RFC 6146 3.4, 3.5, RFC
//! 6052).

use super::common::*;
use super::{OTHER, POOL6, PREFIXES, SERVER6, T};
use gatun_nat::plan::{Net6, Transport};
use gatun_nat::{Plan, Reply, Verdict};
use gatun_wire::DropReason;

const WKP: &str = "64:ff9b::/96";

fn dropped(reason: DropReason) -> Verdict {
    Verdict::Drop(reason)
}

fn refused(reason: DropReason) -> Verdict {
    Verdict::Reply(Reply::Error(reason))
}

// proves: A61-1, A61-3
#[test]
fn packets_without_an_instance_are_passed_and_counted() {
    let mut bed = Bed::nat64(POOL6);
    let out = bed.send(&udp6(CLIENT, 5000, "2001:db8:77::1", 53, b"x"));
    assert_eq!(out.verdict, refused(DropReason::DestinationNotPool6));
    let out = bed.send(&udp4(SERVER, 53, "192.0.2.2", 5000, b"x"));
    assert_eq!(out.verdict, dropped(DropReason::NotInPool));
    assert_eq!(bed.nat.occupancy(), Default::default());
}

// proves: A61-2
#[test]
fn a_source_inside_any_prefix_is_dropped_silently() {
    let mut plan = plan_with(POOL6);
    let mut second = nat64("2001:db8:65::/96");
    second.pool6.push(prefix("2001:db8:66::/64"));
    plan.nat64.push(second);
    for source in [OTHER, "10.0.0.1"].map(|a| behind(POOL6, a)).into_iter().chain([
        behind("2001:db8:65::/96", OTHER),
        behind("2001:db8:66::/64", OTHER),
        "2001:db8:66::ff".into(),
    ]) {
        let mut bed = Bed::new(&plan);
        let quoted = udp6(SERVER6, 53, CLIENT, 5000, b"x");
        for packet in [
            udp6(&source, 5000, SERVER6, 53, b"x"),
            tcp6(&source, 5000, SERVER6, 53, "S", b"x"),
            echo6(&source, SERVER6, true, 53, b"x"),
            error6(&source, SERVER6, (1, 4, 0), &quoted),
            other6(&source, SERVER6, 132),
        ] {
            assert_eq!(bed.send(&packet).verdict, dropped(DropReason::SourceInPool6), "{source}");
        }
        assert_eq!(bed.nat.occupancy(), Default::default());
    }
}

// proves: A79-8
#[test]
fn martians_are_dropped_silently_and_make_no_state() {
    let mut bed = Bed::nat64(POOL6);
    for source in ["fe80::1", "::1", "::", "ff02::1"] {
        for packet in [udp6(source, 5000, SERVER6, 53, b"x"), other6(source, SERVER6, 132)] {
            assert_eq!(bed.send(&packet).verdict, dropped(DropReason::SourceMartian), "{source}");
        }
    }
    for destination in ["0.0.0.0", "127.0.0.1", "169.254.1.1", "224.0.0.1", "255.255.255.255"] {
        let out = bed.send(&udp6(CLIENT, 5000, &behind(POOL6, destination), 53, b"x"));
        assert_eq!(out.verdict, dropped(DropReason::DestinationMartian), "{destination}");
    }
    assert_eq!(bed.nat.occupancy(), Default::default());
    let port = bed.through(&udp6(CLIENT, 5000, SERVER6, 53, b"x")).sport;
    for source in ["0.0.0.0", "127.0.0.1", "169.254.1.1", "224.0.0.1", "255.255.255.255"] {
        let out = bed.send(&udp4(source, 53, T, port, b"x"));
        assert_eq!(out.verdict, dropped(DropReason::SourceMartian), "{source}");
    }
    assert_eq!(bed.nat.occupancy().sessions, 1);
}

#[test]
fn only_listed_sources_are_served_and_others_get_an_error() {
    let mut plan = plan_with(POOL6);
    plan.nat64[0].sources =
        vec![Net6::new(v6("2001:db8:1::"), 64).unwrap(), Net6::new(v6("2001:db8:2::7"), 128).unwrap()];
    let mut bed = Bed::new(&plan);
    for source in ["2001:db8:1::1", "2001:db8:1:0:ffff::", "2001:db8:2::7"] {
        bed.through(&udp6(source, 5000, SERVER6, 53, b"x"));
    }
    for source in ["2001:db8:1:1::1", "2001:db8:2::8", "2001:db8::1"] {
        let packet = udp6(source, 5000, SERVER6, 53, b"x");
        let out = bed.send(&packet);
        assert_eq!(out.verdict, refused(DropReason::SourceNotAllowed), "{source}");
        assert_eq!((icmp_type(&out.bytes), quote(&out.bytes)), ((1, 5), &packet[..]));
    }
    assert_eq!(bed.nat.occupancy().sessions, 3);
}

// proves: A52-5
#[test]
fn the_well_known_prefix_stands_for_no_private_address_in_either_direction() {
    let global = "8.8.8.8";
    let mut plan = plan_with(WKP);
    plan.nat64[0].static_bindings = vec![static_binding(Transport::Udp, (CLIENT, 9), (T, 9))];
    for private in ["10.1.2.3", "192.168.0.1", "172.16.0.1", "100.64.0.1", "198.51.100.7", "240.0.0.1"] {
        for allowed in [false, true] {
            plan.nat64[0].wkp_non_global = allowed;
            let mut bed = Bed::new(&plan);
            bed.through(&udp6(CLIENT, 5000, &behind(WKP, global), 53, b"x"));
            bed.through(&udp4(global, 53, T, 9, b"x"));
            let out = bed.send(&udp6(CLIENT, 5000, &behind(WKP, private), 53, b"x"));
            let inbound = bed.send(&udp4(private, 53, T, 9, b"x"));
            if allowed {
                assert_eq!(ends(out.forwarded()).dst, v4(private));
                assert_eq!(ends(inbound.forwarded()).src, v6(&behind(WKP, private)));
                continue;
            }
            assert_eq!(out.verdict, refused(DropReason::WellKnownNonGlobal), "{private}");
            assert_eq!(icmp_type(&out.bytes), (1, 1));
            // No error goes to 240/4 (RFC 1812 4.3.2.7).
            let answers = if private == "240.0.0.1" { dropped } else { refused };
            assert_eq!(inbound.verdict, answers(DropReason::WellKnownNonGlobal), "{private}");
            assert!(private == "240.0.0.1" || icmp_type(&inbound.bytes) == (3, 13));
            assert_eq!(bed.nat.occupancy().sessions, 2);
        }
    }
}

// proves: A52-5
#[test]
fn a_private_host_is_shown_behind_the_first_prefix_that_may_stand_for_it() {
    let (mid, last) = ("2001:db8:65::/96", "2001:db8:66::/96");
    let mut plan = plan_with(WKP);
    plan.nat64[0].pool6.extend([prefix(mid), prefix(last)]);
    plan.nat64[0].static_bindings = vec![
        static_binding(Transport::Udp, (CLIENT, 9), (T, 9)),
        static_binding(Transport::Tcp, (CLIENT, 80), (T, 80)),
    ];
    let mut bed = Bed::new(&plan);
    let source = |e: Ends| e.src.to_string();
    for (remote, shown) in [("8.8.8.8", WKP), ("10.1.2.3", mid), ("198.51.100.7", mid)] {
        let expected = v6(&behind(shown, remote)).to_string();
        assert_eq!(source(bed.through(&udp4(remote, 53, T, 9, b"x"))), expected);
        assert_eq!(source(bed.through(&tcp4(remote, 53, T, 80, "A", b"no session"))), expected);
        assert_eq!(source(bed.through(&tcp4(remote, 53, T, 80, "S", b""))), expected);
        // An answer to the address that it seemed to come from reaches it.
        let answer = bed.through(&udp6(CLIENT, 9, &expected, 53, b"x"));
        assert_eq!((answer.dst, answer.sport), (v4(remote).into(), 9));
    }
    // A binding keeps its prefix if the prefix may represent the address.
    let port = bed.through(&udp6(CLIENT, 5000, &behind(last, "10.1.2.3"), 53, b"x")).sport;
    let other = bed.through(&udp4("10.9.9.9", 53, T, port, b"x"));
    assert_eq!(source(other), v6(&behind(last, "10.9.9.9")).to_string());
}

// proves: A52-5
#[test]
fn a_session_through_another_prefix_does_not_open_the_well_known_one() {
    let mut plan = plan_with(POOL6);
    plan.nat64[0].pool6.push(prefix(WKP));
    let mut bed = Bed::new(&plan);
    let port = bed.through(&udp6(CLIENT, 5000, &behind(POOL6, "10.1.2.3"), 53, b"x")).sport;
    let out = bed.send(&udp6(CLIENT, 5000, &behind(WKP, "10.1.2.3"), 53, b"x"));
    assert_eq!(out.verdict, refused(DropReason::WellKnownNonGlobal));
    let back = bed.through(&udp4("10.1.2.3", 53, T, port, b"x"));
    assert_eq!(back.src, v6(&behind(POOL6, "10.1.2.3")), "as before");
}

// proves: A52-6
#[test]
fn other_prefixes_stand_for_private_addresses() {
    for pool6 in [POOL6, "64:ff9b:1::/48", "64:ff9b:1:fffe::/96"] {
        let mut bed = Bed::nat64(pool6);
        let port = bed.through(&udp6(CLIENT, 5000, &behind(pool6, "10.1.2.3"), 53, b"x")).sport;
        bed.through(&udp4("10.1.2.3", 53, T, port, b"x"));
        bed.through(&udp4("192.168.7.7", 53, T, port, b"x"));
    }
}

// proves: A52-3, A52-4
#[test]
fn suffix_bits_are_ignored_on_receipt_and_zero_on_the_way_back() {
    let client = "2001:beef::2";
    for pool6 in PREFIXES {
        let mut bed = Bed::nat64(pool6);
        let plain = behind(pool6, SERVER);
        let len = pool6.split_once('/').unwrap().1.parse::<u32>().unwrap();
        // All bits without a meaning, including bits 64 to 71.
        let meaningful = [(0, len), (len, if len > 32 && len < 96 { len + 40 } else { len + 32 })];
        let mut suffix = u128::MAX;
        for (from, to) in meaningful {
            for bit in from..to {
                suffix &= !(1 << (127 - bit));
            }
        }
        if len < 96 {
            suffix |= 0xff << 56;
        }
        let odd = std::net::Ipv6Addr::from(u128::from(v6(&plain)) | suffix).to_string();
        for (sport, dst) in [(5000, &plain), (5000, &odd), (6000, &odd), (6000, &plain)] {
            let e = bed.through(&udp6(client, sport, dst, 53, b"odd"));
            assert_eq!(e.dst, v4(SERVER), "{pool6} {dst}");
            let back = bed.through(&udp4(SERVER, 53, T, e.sport, b"odd"));
            assert_eq!((back.src, back.dport), (v6(&plain).into(), sport), "{pool6}");
            let e = bed.through(&tcp6(client, sport, dst, 53, "S", b"odd"));
            bed.through(&tcp4(SERVER, 53, T, e.sport, "SA", b""));
            bed.through(&tcp6(client, sport, dst, 80, "A", b"by the binding, without a session"));
            bed.through(&echo6(client, dst, true, sport, b"odd"));
        }
        assert_eq!(bed.nat.occupancy().sessions, 6, "{pool6}: the suffix makes no other session");
    }
}

// proves: A52-8
#[test]
fn of_several_prefixes_the_longest_counts_and_answers_come_from_the_one_used() {
    let mut plan = plan_with("2001:db8:122::/48");
    plan.nat64[0].pool6.push(prefix("2001:db8:122:344::/96"));
    plan.nat64[0].pool6.push(prefix("2001:db8:65::/96"));
    let mut bed = Bed::new(&plan);
    let client = "2001:beef::2";
    for pool6 in ["2001:db8:122::/48", "2001:db8:122:344::/96", "2001:db8:65::/96", "2001:db8:122::/48"] {
        // The same within one session, which then changes its prefix.
        for sport in [5000, 6000] {
            let e = bed.through(&udp6(client, sport, &behind(pool6, SERVER), 53, b"x"));
            assert_eq!(e.dst, v4(SERVER), "{pool6}");
            let back = bed.through(&udp4(SERVER, 53, T, e.sport, b"x"));
            assert_eq!(back.src, v6(&behind(pool6, SERVER)), "{pool6}");
        }
    }
    assert_eq!(bed.nat.occupancy().bindings, 2);
}

// proves: A61-4
#[test]
fn other_protocols_are_refused_with_the_error_of_their_side() {
    for proto in [132u8, 47, 50, 33, 136, 59] {
        let mut bed = Bed::nat64(POOL6);
        let packet = other6(CLIENT, SERVER6, proto);
        let out = bed.send(&packet);
        assert_eq!(out.verdict, refused(DropReason::UnsupportedProtocol), "{proto}");
        assert_eq!((icmp_type(&out.bytes), quote(&out.bytes)), ((1, 4), &packet[..]));
        assert_eq!(out.bytes[8..24], v6(OWN6).octets());
        if proto == 59 {
            continue;
        }
        let packet = other4(SERVER, T, proto);
        let out = bed.send(&packet);
        assert_eq!(out.verdict, refused(DropReason::UnsupportedProtocol), "{proto}");
        assert_eq!((icmp_type(&out.bytes), quote(&out.bytes)), ((3, 2), &packet[..]));
        assert_eq!(out.bytes[12..16], v4(OWN4).octets());
        assert_eq!(bed.nat.occupancy(), Default::default());
    }
    let mut plan = plan_with(POOL6);
    plan.icmp.suppressed.push(DropReason::UnsupportedProtocol);
    let mut bed = Bed::new(&plan);
    assert_eq!(bed.send(&other6(CLIENT, SERVER6, 132)).verdict, dropped(DropReason::UnsupportedProtocol));
    assert_eq!(bed.send(&other4(SERVER, T, 132)).verdict, dropped(DropReason::UnsupportedProtocol));
    assert_eq!(bed.nat.counters().icmp_errors_suppressed, 2);
}

// proves: ICMP4-other
#[test]
fn igmp_is_for_one_link_and_dropped_silently() {
    let mut bed = Bed::nat64(POOL6);
    let out = bed.send(&other4(SERVER, T, 2));
    assert_eq!(out.verdict, dropped(DropReason::IcmpSingleHop));
}

// proves: A79-5, A79-59
#[test]
fn the_last_hop_ends_here_with_time_exceeded_and_no_state() {
    let mut bed = Bed::nat64(POOL6);
    for hops in [0, 1] {
        let packet = with_hops(udp6(CLIENT, 5000, SERVER6, 53, b"x"), hops);
        let out = bed.send(&packet);
        assert_eq!(out.verdict, refused(DropReason::TtlExceeded));
        assert_eq!((icmp_type(&out.bytes), quote(&out.bytes)), ((3, 0), &packet[..]));
        assert_eq!(out.bytes[8..24], v6(OWN6).octets());
        assert_eq!(bed.nat.occupancy(), Default::default());
    }
    let port = bed.through(&with_hops(udp6(CLIENT, 5000, SERVER6, 53, b"x"), 2)).sport;
    for hops in [0, 1] {
        let packet = with_hops(udp4("203.0.113.1", 53, T, port, b"x"), hops);
        let out = bed.send(&packet);
        assert_eq!(out.verdict, refused(DropReason::TtlExceeded));
        assert_eq!((icmp_type(&out.bytes), quote(&out.bytes)), ((11, 0), &packet[..]));
        assert_eq!(out.bytes[12..16], v4(OWN4).octets());
        assert_eq!(bed.nat.occupancy().sessions, 1);
    }
    let back = bed.send(&with_hops(udp4(SERVER, 53, T, port, b"x"), 2));
    assert_eq!(back.forwarded()[7], 1);
}

// proves: A79-5
#[test]
fn a_port_that_no_pool_range_has_is_no_hop_of_a_traceroute() {
    let mut plan = plan_with(POOL6);
    plan.pools = vec![pool(T, T, (1024, 65535))];
    let mut bed = Bed::new(&plan);
    for hops in [0, 1, 64] {
        for packet in [udp4(SERVER, 9, T, 53, b"x"), tcp4(SERVER, 9, T, 53, "S", b"")] {
            let out = bed.send(&with_hops(packet, hops));
            assert_eq!(out.verdict, dropped(DropReason::NotInPool), "TTL {hops}");
        }
        let fragment = with_flags4(with_hops(udp4(SERVER, 9, T, 53, b"fragment"), hops), 0x2000);
        assert_eq!(bed.send(&fragment).verdict, dropped(DropReason::NotInPool), "TTL {hops}");
    }
    for packet in [udp4(SERVER, 9, T, 33434, b"x"), tcp4(SERVER, 9, T, 33434, "S", b"")] {
        assert_eq!(bed.send(&with_hops(packet, 1)).verdict, refused(DropReason::TtlExceeded));
    }
    assert_eq!(bed.nat.occupancy(), Default::default());
}

// proves: A79-62, A79-10, R47-13
#[test]
fn too_large_packets_are_answered_with_the_mtu_of_the_other_side() {
    let mut plan = plan_with(POOL6);
    plan.nat64[0].settings.mtu4 = 1400;
    plan.nat64[0].settings.mtu6 = 1300;
    let mut bed = Bed::new(&plan);
    let fits = bed.send(&udp6(CLIENT, 5000, SERVER6, 53, &[7; 1400 - 28]));
    assert_eq!(fits.forwarded().len(), 1400);
    let port = ends(&fits.bytes).sport;
    let packet = udp6(CLIENT, 5000, SERVER6, 53, &[7; 1400 - 27]);
    let out = bed.send(&packet);
    assert_eq!(out.verdict, refused(DropReason::TooBig6));
    assert_eq!((icmp_type(&out.bytes), &out.bytes[44..48]), ((2, 0), &1420u32.to_be_bytes()[..]));
    assert_eq!((out.bytes.len(), quote(&out.bytes)), (1280, &packet[..1280 - 48]));

    const DF: u16 = 0x4000;
    let df = |payload: usize| with_flags4(udp4(SERVER, 53, T, port, &vec![7; payload]), DF);
    assert_eq!(bed.send(&df(1280 - 28)).forwarded().len(), 1300);
    let packet = df(1281 - 28);
    let out = bed.send(&packet);
    assert_eq!(out.verdict, refused(DropReason::TooBig4));
    assert_eq!((icmp_type(&out.bytes), &out.bytes[24..28]), ((3, 4), &1280u32.to_be_bytes()[..]));
    assert_eq!((out.bytes.len(), quote(&out.bytes)), (576, &packet[..576 - 28]));
}

// proves: A79-11, R47-13
#[test]
fn without_df_a_large_packet_from_outside_arrives_in_fragments_and_in_order() {
    let mut bed = Bed::nat64(POOL6);
    let port = bed.through(&udp6(CLIENT, 5000, SERVER6, 53, b"x")).sport;
    let payload: Vec<u8> = (0..3000).map(|i| i as u8).collect();
    let packet = with_flags4(udp4(SERVER, 53, T, port, &payload), 0);
    let out = bed.send(&packet);
    let mut pieces = vec![out.forwarded().to_vec()];
    pieces.extend(out.emitted);
    let mut data = Vec::new();
    for (i, piece) in pieces.iter().enumerate() {
        assert!(piece.len() <= 1280);
        assert_eq!((piece[6], piece[40]), (44, 17));
        let field = u16::from_be_bytes([piece[42], piece[43]]);
        assert_eq!(usize::from(field & !7), data.len(), "offset of piece {i}");
        assert_eq!(field & 1 == 1, i + 1 < pieces.len(), "more fragments after piece {i}");
        data.extend(&piece[48..]);
    }
    assert_eq!(data[8..], payload);
    let mut whole = udp6(SERVER6, 53, CLIENT, 5000, &payload);
    whole.splice(40.., data);
    check(&whole);
}

#[test]
fn errors_made_here_are_limited_in_rate() {
    let mut plan = plan_with(POOL6);
    plan.icmp.rate = 10;
    plan.icmp.burst = 3;
    let mut bed = Bed::new(&plan);
    let packet = with_hops(udp6(CLIENT, 5000, SERVER6, 53, b"x"), 1);
    let burst = |bed: &mut Bed| {
        let verdicts: Vec<Verdict> = (0..10).map(|_| bed.send(&packet).verdict).collect();
        verdicts.iter().filter(|v| matches!(v, Verdict::Reply(_))).count()
    };
    assert_eq!(burst(&mut bed), 3);
    bed.pass_ms(200);
    assert_eq!(burst(&mut bed), 2);
    assert_eq!(bed.nat.counters().icmp_errors_limited, 15);
    assert_eq!(bed.nat.counters().dropped.packets, 15);
    assert_eq!(bed.drops(DropReason::TtlExceeded), 20);
}

/// Counts those of these packets that were answered with an error.
fn errors(bed: &mut Bed, packets: impl Iterator<Item = Vec<u8>>) -> usize {
    packets.map(|p| bed.send(&p).verdict).filter(|v| matches!(v, Verdict::Reply(Reply::Error(_)))).count()
}

#[test]
fn a_flood_of_errors_leaves_packet_too_big_for_other_hosts() {
    let mut bed = Bed::nat64(POOL6);
    let dying = |host: &str| with_hops(udp6(host, 5000, SERVER6, 53, b"x"), 1);
    let large = |host: &str| udp6(host, 5000, SERVER6, 53, &[0; 1480]);
    // One host, with the default limits.
    assert_eq!(
        errors(&mut bed, (0..10_000).map(|_| dying(CLIENT))),
        38,
        "a quarter of its 50 is reserved for Packet Too Big"
    );
    assert_eq!(errors(&mut bed, (0..20).map(|_| large("2001:db8:2::2"))), 20);
    assert_eq!(errors(&mut bed, (0..20).map(|_| large(CLIENT))), 12, "its own bucket has a reserve too");
    // More hosts than the limit of all errors allows: the reserve is for Packet Too Big.
    assert!(errors(&mut bed, (0..400).map(|n| dying(&format!("2001:db8:3::{n:x}")))) < 200);
    assert_eq!(errors(&mut bed, (0..20).map(|_| large("2001:db8:4::2"))), 20);
    // Errors refused by a bucket are counted separately, and never as sent.
    let counters = bed.nat.counters();
    assert_eq!(counters.icmp_errors_sent, counters.replied.packets);
    assert_eq!(counters.icmp_errors_limited_per_source, 10_000 - 38 + 20 - 12);
    let limited = counters.icmp_errors_limited + counters.icmp_errors_limited_per_source;
    assert_eq!(limited, counters.dropped.packets);
    assert_eq!(bed.drops(DropReason::TooBig6), 60);
}

#[test]
fn a_flood_from_one_address_outside_starves_no_other_host_outside() {
    let mut bed = Bed::nat64(POOL6);
    let port = bed.through(&udp6(CLIENT, 5000, SERVER6, 53, b"x")).sport;
    let large = |from: &str| with_flags4(udp4(from, 53, T, port, &[0; 1472]), 0x4000);
    assert_eq!(errors(&mut bed, (0..1_000).map(|_| large("203.0.113.9"))), 50);
    assert_eq!(errors(&mut bed, (0..20).map(|_| large(SERVER))), 20);
}

#[test]
fn hosts_of_one_subscriber_share_their_rate_of_errors() {
    let mut plan = plan_with(POOL6);
    plan.nat64[0].subscriber_len = 56;
    let mut bed = Bed::new(&plan);
    let large = |net: u32, n: u32| udp6(&format!("2001:db8:5:{net:x}::{n:x}"), 5000, SERVER6, 53, &[0; 1480]);
    assert_eq!(errors(&mut bed, (0..100).map(|n| large(n, n + 1))), 50);
    assert_eq!(errors(&mut bed, (0..20).map(|n| large(0x100, n))), 20);
}

fn own_inside_pools() -> Plan {
    let mut plan = plan_with(POOL6);
    plan.own4 = Some(v4(T));
    plan.own6 = Some(v6("2001:db8:64::ffff:1"));
    plan
}

#[test]
fn own_addresses_answer_pings_also_inside_the_pool_and_the_prefix() {
    let mut bed = Bed::new(&own_inside_pools());
    let out = bed.send(&echo6(CLIENT, "2001:db8:64::ffff:1", true, 7, b"own6"));
    assert_eq!(out.verdict, Verdict::Reply(Reply::Echo));
    assert_eq!(out.bytes, echo6("2001:db8:64::ffff:1", CLIENT, false, 7, b"own6"));
    // `own4`, through the prefix.
    let own = behind(POOL6, T);
    let out = bed.send(&echo6(CLIENT, &own, true, 7, b"own4"));
    assert_eq!(out.verdict, Verdict::Reply(Reply::Echo));
    assert_eq!(out.bytes, echo6(&own, CLIENT, false, 7, b"own4"));
    let out = bed.send(&echo4(SERVER, T, true, 7, b"own4"));
    assert_eq!(out.verdict, Verdict::Reply(Reply::Echo));
    let e = ends(&out.bytes);
    assert_eq!((e.src, e.dst, icmp_type(&out.bytes)), (v4(T).into(), v4(SERVER).into(), (0, 0)));
    assert_eq!(bed.nat.counters().echo_replies, 3);
    assert_eq!(bed.nat.occupancy(), Default::default());
    // The address still belongs to the pool.
    let id = bed.through(&echo6(CLIENT, SERVER6, true, 9, b"out")).sport;
    assert_eq!(bed.through(&echo4(SERVER, T, false, id, b"back")).dport, 9);
}

#[test]
fn errors_come_from_own_addresses_also_inside_the_pool_and_the_prefix() {
    let mut bed = Bed::new(&own_inside_pools());
    let out = bed.send(&with_hops(udp6(CLIENT, 5000, SERVER6, 53, b"x"), 1));
    assert_eq!(out.bytes[8..24], v6("2001:db8:64::ffff:1").octets());
    let out = bed.send(&with_hops(udp4(SERVER, 53, T, 5000, b"x"), 1));
    assert_eq!(out.bytes[12..16], v4(T).octets());
}

#[test]
fn a_ping_that_claims_to_come_from_a_multicast_group_is_not_answered() {
    let mut plan = plan_with(POOL6);
    (plan.own4, plan.own6) = (Some(v4(T)), Some(v6("2001:db8:ffff::1")));
    let mut bed = Bed::new(&plan);
    let own4_behind_prefix = behind(POOL6, T);
    for packet in [
        echo6("ff0e::1", "2001:db8:ffff::1", true, 7, b"x"),
        echo6("ff0e::1", &own4_behind_prefix, true, 7, b"x"),
        echo4("224.0.0.9", T, true, 7, b"x"),
        echo4("255.255.255.255", T, true, 7, b"x"),
    ] {
        assert_eq!(bed.send(&packet).verdict, Verdict::Drop(DropReason::SourceMartian));
    }
}
