//! Stateful NAT64, the basic cases: a packet out and its answer back, for each protocol.

use super::common::*;
use gatun_nat::Verdict;
use gatun_wire::DropReason;
use std::net::IpAddr;

const SERVER6: &str = "2001:db8:64::c633:6407";

// proves: A61-20
#[test]
fn udp_goes_out_and_the_answer_comes_back() {
    let mut bed = Bed::nat64("2001:db8:64::/96");
    let out = bed.send(&udp6(CLIENT, 5000, SERVER6, 53, b"question"));
    let e = ends(out.forwarded());
    assert_eq!((e.src, e.dst, e.dport), (IpAddr::V4(v4("192.0.2.1")), v4(SERVER).into(), 53));
    let back = bed.send(&udp4(SERVER, 53, "192.0.2.1", e.sport, b"the answer"));
    let e = ends(back.forwarded());
    assert_eq!((e.src, e.dst), (v6(SERVER6).into(), v6(CLIENT).into()));
    assert_eq!((e.sport, e.dport), (53, 5000));
}

// proves: A61-20, R47-1
#[test]
fn a_second_destination_gets_the_same_outside_port() {
    let mut bed = Bed::nat64("2001:db8:64::/96");
    let a = ends(bed.send(&udp6(CLIENT, 5000, SERVER6, 53, b"a")).forwarded());
    let b = ends(bed.send(&udp6(CLIENT, 5000, "2001:db8:64::c633:6408", 123, b"b")).forwarded());
    assert_eq!((a.src, a.sport), (b.src, b.sport));
    assert_eq!(bed.nat.occupancy().sessions, 2);
    assert_eq!(bed.nat.occupancy().bindings, 1);
    for (server, port) in [(SERVER, 53), ("198.51.100.8", 123)] {
        let back = bed.send(&udp4(server, port, "192.0.2.1", a.sport, b"x"));
        assert_eq!(ends(back.forwarded()).dport, 5000);
    }
}

#[test]
fn tcp_opens_carries_data_and_all_prefix_lengths_work() {
    for (pool6, server6) in [
        ("2001:db8::/32", "2001:db8:c633:6407::"),
        ("2001:db8:100::/40", "2001:db8:1c6:3364:7::"),
        ("2001:db8:122::/48", "2001:db8:122:c633:64:700::"),
        ("2001:db8:122:300::/56", "2001:db8:122:3c6:33:6407::"),
        ("2001:db8:122:344::/64", "2001:db8:122:344:c6:3364:700::"),
        ("2001:db8:122:344::/96", "2001:db8:122:344::c633:6407"),
    ] {
        let mut bed = Bed::nat64(pool6);
        let client = "2001:beef::2";
        let syn = ends(bed.send(&tcp6(client, 40000, server6, 80, "S", b"")).forwarded());
        assert_eq!(syn.dst, IpAddr::V4(v4(SERVER)), "{pool6}");
        let synack = bed.send(&tcp4(SERVER, 80, "192.0.2.1", syn.sport, "SA", b""));
        assert_eq!(ends(synack.forwarded()).src, IpAddr::V6(v6(server6)), "{pool6}");
        bed.send(&tcp6(client, 40000, server6, 80, "A", b"GET /")).forwarded();
        bed.send(&tcp4(SERVER, 80, "192.0.2.1", syn.sport, "PA", &[7; 1000])).forwarded();
    }
}

// proves: A61-50
#[test]
fn echo_goes_out_with_another_identifier_and_comes_back_with_its_own() {
    let mut bed = Bed::nat64("2001:db8:64::/96");
    let out = ends(bed.send(&echo6(CLIENT, SERVER6, true, 77, b"ping")).forwarded());
    let back = bed.send(&echo4(SERVER, "192.0.2.1", false, out.sport, b"ping"));
    let e = ends(back.forwarded());
    assert_eq!((e.src, e.dst, e.sport), (v6(SERVER6).into(), v6(CLIENT).into(), 77));
}

// proves: A61-24
#[test]
fn udp_sessions_end_after_five_minutes_and_their_port_returns() {
    let mut bed = Bed::nat64("2001:db8:64::/96");
    let port = ends(bed.send(&udp6(CLIENT, 5000, SERVER6, 53, b"q")).forwarded()).sport;
    bed.pass_ms(299_000);
    assert_eq!(bed.nat.occupancy().sessions, 1);
    bed.pass_ms(10_000);
    assert_eq!(bed.nat.occupancy(), gatun_nat::Occupancy::default());
    let late = bed.send(&udp4(SERVER, 53, "192.0.2.1", port, b"late"));
    assert_eq!(late.verdict, Verdict::Drop(DropReason::NoBib));
}

// proves: A61-62, R47-9
#[test]
fn two_inside_hosts_talk_through_their_outside_addresses() {
    let mut bed = Bed::nat64("2001:db8:64::/64");
    let a = ends(
        bed.send(&udp6("2001:db8:1::a", 1111, "2001:db8:64:0:c6:3364:700::", 3478, b"stun")).forwarded(),
    );
    let b = ends(
        bed.send(&udp6("2001:db8:1::b", 2222, "2001:db8:64:0:c6:3364:700::", 3478, b"stun")).forwarded(),
    );
    // 192.0.2.1 embedded in the prefix.
    let t6 = "2001:db8:64:0:c0:2:100::";
    let over = bed.send(&udp6("2001:db8:1::a", 1111, t6, b.sport, b"hello"));
    let e = ends(over.forwarded());
    assert_eq!(e.src, IpAddr::V6(v6(t6)), "the external address");
    assert_eq!((e.sport, e.dst, e.dport), (a.sport, v6("2001:db8:1::b").into(), 2222));
    assert_eq!(over.bytes[7], 62, "hop limit falls by two");
    assert_eq!(bed.nat.counters().hairpinned.packets, 1);
}
#[test]
fn the_translator_answers_pings_to_itself() {
    let mut bed = Bed::nat64("2001:db8:64::/96");
    let six = bed.send(&echo6(CLIENT, OWN6, true, 9, b"are you there"));
    assert_eq!(six.verdict, Verdict::Reply(gatun_nat::Reply::Echo));
    assert_eq!(ends(&six.bytes).src, IpAddr::V6(v6(OWN6)));
    let four = bed.send(&echo4(SERVER, OWN4, true, 9, b"are you there"));
    assert_eq!(four.verdict, Verdict::Reply(gatun_nat::Reply::Echo));
    assert_eq!(ends(&four.bytes).dst, IpAddr::V4(v4(SERVER)));
}
