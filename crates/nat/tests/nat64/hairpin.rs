//! Hairpins: packets from inside to inside through outside addresses (RFC 6146 3.8, RFC 4787 REQ-9, RFC 5382
//! REQ-8, RFC 5508 REQ-7).

use super::common::*;
use super::{POOL6, PREFIXES, T};
use gatun_nat::plan::{Filtering, Transport};
use gatun_nat::{Plan, Reply, Verdict};
use gatun_wire::DropReason;

const A: &str = "2001:beef::a";
const B: &str = "2001:beef::b";
const STUN: &str = "203.0.113.3";
const T2: &str = "192.0.2.2";

/// Makes a UDP binding and returns its outside port.
fn bind(bed: &mut Bed, pool6: &str, host: &str, port: u16) -> u16 {
    bed.through(&udp6(host, port, &behind(pool6, STUN), 3478, b"who am I")).sport
}

/// One pool address for each of A and B. A static binding determines that of B.
fn two_addresses() -> Plan {
    let mut plan = plan_with(POOL6);
    plan.pools = vec![pool(T, T2, (1, 65535))];
    plan
}

// proves: A61-62, A61-63, R47-9
#[test]
fn udp_goes_and_comes_back_with_external_source_behind_every_prefix_length() {
    for pool6 in PREFIXES {
        let mut bed = Bed::nat64(pool6);
        let a = bind(&mut bed, pool6, A, 1111);
        let b = bind(&mut bed, pool6, B, 2222);
        let t6 = behind(pool6, T);
        let out = bed.send(&udp6(A, 1111, &t6, b, b"hello"));
        let expected = with_hops(udp6(&t6, a, B, 2222, b"hello"), 62);
        assert_eq!(out.forwarded(), expected, "{pool6}");
        let out = bed.send(&udp6(B, 2222, &t6, a, b"good morning"));
        assert_eq!(out.forwarded(), with_hops(udp6(&t6, b, A, 1111, b"good morning"), 62), "{pool6}");
        assert_eq!(bed.nat.counters().hairpinned.packets, 2);
        // An empty and an odd payload.
        for payload in [&b""[..], &[0xff; 301]] {
            let out = bed.send(&udp6(A, 1111, &t6, b, payload));
            assert_eq!(out.forwarded(), with_hops(udp6(&t6, a, B, 2222, payload), 62), "{pool6}");
        }
    }
}

// proves: A61-63, R53-8
#[test]
fn tcp_opens_through_a_hairpin_behind_every_prefix_length() {
    for pool6 in PREFIXES {
        let mut bed = Bed::nat64(pool6);
        let t6 = behind(pool6, T);
        let b = bed.through(&tcp6(B, 80, &behind(pool6, STUN), 9, "S", b"")).sport;
        let syn = bed.through(&tcp6(A, 1111, &t6, b, "S", b""));
        assert_eq!((syn.src, syn.dst, syn.dport), (v6(&t6).into(), v6(B).into(), 80), "{pool6}");
        let a = syn.sport;
        let answer = bed.through(&tcp6(B, 80, &t6, a, "SA", b""));
        assert_eq!((answer.src, answer.sport, answer.dport), (v6(&t6).into(), b, 1111));
        bed.through(&tcp6(A, 1111, &t6, b, "A", b""));
        let out = bed.send(&tcp6(A, 1111, &t6, b, "PA", b"GET /"));
        assert_eq!(out.forwarded(), with_hops(tcp6(&t6, a, B, 80, "PA", b"GET /"), 62));
        // Both halves are established.
        bed.pass_ms(7_000_000);
        bed.through(&tcp6(B, 80, &t6, a, "PA", b"200 OK"));
    }
}

// proves: A61-63, A61-41, R53-2, R53-8
#[test]
fn tcp_opens_simultaneously_through_a_hairpin() {
    use Filtering::*;
    for filtering in [EndpointIndependent, AddressDependent, AddressAndPortDependent] {
        let mut plan = plan_with(POOL6);
        plan.nat64[0].filtering = filtering;
        let mut bed = Bed::new(&plan);
        let t6 = behind(POOL6, T);
        let a = bed.through(&tcp6(A, 1111, &behind(POOL6, STUN), 9, "S", b"")).sport;
        let b = bed.through(&tcp6(B, 2222, &behind(POOL6, STUN), 9, "S", b"")).sport;
        // With address-dependent filtering, the first SYN is not admitted; it waits, and permits the other
        // one.
        let first = bed.send(&tcp6(A, 1111, &t6, b, "S", b""));
        let strict = filtering != EndpointIndependent;
        assert_eq!(first.verdict, if strict { Verdict::Held } else { Verdict::Forward });
        bed.pass_ms(5_000);
        if strict {
            let again = bed.send(&tcp6(A, 1111, &t6, b, "S", b""));
            assert_eq!(again.verdict, Verdict::Drop(DropReason::SynHeldAlready));
        }
        bed.through(&tcp6(B, 2222, &t6, a, "S", b""));
        assert_eq!(bed.nat.occupancy().held_syns, 0);
        bed.through(&tcp6(A, 1111, &t6, b, "SA", b""));
        bed.through(&tcp6(B, 2222, &t6, a, "SA", b""));
        bed.pass_ms(7_000_000);
        bed.through(&tcp6(A, 1111, &t6, b, "PA", b"data"));
        bed.through(&tcp6(B, 2222, &t6, a, "PA", b"data"));
        assert_eq!(bed.nat.counters().icmp_errors_sent, 0);
    }
}

// proves: A61-64
#[test]
fn address_dependent_filtering_holds_for_hairpins_behind_every_prefix_length() {
    for pool6 in PREFIXES {
        let mut plan = plan_with(pool6);
        plan.nat64[0].filtering = Filtering::AddressDependent;
        // The peer has the other address, so that a session with the own address does not admit it.
        plan.pools = vec![pool(T, T2, (1, 65535))];
        plan.nat64[0].static_bindings = vec![static_binding(Transport::Udp, (B, 2222), (T2, 2222))];
        let mut bed = Bed::new(&plan);
        // A gets an address of the pool. The test reads it from the packet.
        let e = bed.through(&udp6(A, 1111, &behind(pool6, STUN), 3478, b"x"));
        let std::net::IpAddr::V4(ta) = e.src else { panic!() };
        let t6 = behind(pool6, T2);
        let filtered = Verdict::Drop(DropReason::AddressDependentFilter);
        assert_eq!(bed.send(&udp6(A, 1111, &t6, 2222, b"x")).verdict, filtered, "{pool6}");
        // B contacts A's address, on any port.
        let ta6 = prefix(pool6).embed(ta).to_string();
        let _ = bed.send(&udp6(B, 2222, &ta6, 9, b"x"));
        bed.through(&udp6(A, 1111, &t6, 2222, b"x"));
    }
}

// proves: A61-63, R55-7
#[test]
fn echo_reaches_an_inside_host_whose_identifier_is_its_own() {
    // An echo message has one identifier, so the sender's outside identifier must be the receiver's. It is,
    // because each address has only one identifier.
    let mut plan = two_addresses();
    plan.pools[0].ranges[0].ports = (7, 7);
    plan.nat64[0].static_bindings = vec![static_binding(Transport::Icmp, (B, 99), (T2, 7))];
    let mut bed = Bed::new(&plan);
    let out = bed.send(&echo6(A, &behind(POOL6, T2), true, 5, b"ping"));
    assert_eq!(out.forwarded(), with_hops(echo6(&behind(POOL6, T), B, true, 99, b"ping"), 62));
    let out = bed.send(&echo6(B, &behind(POOL6, T), false, 99, b"ping"));
    assert_eq!(out.forwarded(), with_hops(echo6(&behind(POOL6, T2), A, false, 5, b"ping"), 62));
}

// proves: A61-63
#[test]
fn a_host_that_sends_to_its_own_outside_address_hears_itself_once() {
    let mut bed = Bed::nat64(POOL6);
    let a = bind(&mut bed, POOL6, A, 1111);
    let t6 = behind(POOL6, T);
    let out = bed.send(&udp6(A, 1111, &t6, a, b"me"));
    assert_eq!(out.forwarded(), with_hops(udp6(&t6, a, A, 1111, b"me"), 62));
    assert!(out.emitted.is_empty());
    // The translated packet is not hairpinned again.
    let again = bed.send(out.forwarded());
    assert_eq!(again.verdict, Verdict::Reply(Reply::Error(DropReason::DestinationNotPool6)));
}

// proves: A61-63, A61-2
#[test]
fn own_packets_that_return_are_dropped() {
    let mut bed = Bed::nat64(POOL6);
    let out = bed.send(&udp6(A, 1111, &behind(POOL6, STUN), 53, b"x"));
    let port = ends(out.forwarded()).sport;
    assert_eq!(bed.send(&out.bytes).verdict, Verdict::Drop(DropReason::NotInPool));
    let back = bed.send(&udp4(STUN, 53, T, port, b"x"));
    let again = bed.send(back.forwarded());
    assert_eq!(again.verdict, Verdict::Reply(Reply::Error(DropReason::DestinationNotPool6)));
    let looped = udp6(&behind(POOL6, STUN), 53, &behind(POOL6, T), port, b"x");
    assert_eq!(bed.send(&looped).verdict, Verdict::Drop(DropReason::SourceInPool6));
}

// proves: A61-64, A61-23
#[test]
fn a_hairpin_to_no_binding_is_dropped() {
    let mut bed = Bed::nat64(POOL6);
    for packet in [udp6(A, 1111, &behind(POOL6, T), 9, b"x"), echo6(B, &behind(POOL6, T2), true, 9, b"x")] {
        let out = bed.send(&packet);
        // 192.0.2.2 is not a pool address, so that echo request leaves for outside.
        let expected = if out.verdict == Verdict::Forward { continue } else { DropReason::NoBib };
        assert_eq!(out.verdict, Verdict::Drop(expected));
    }
    assert_eq!(bed.nat.counters().hairpinned.packets, 0);
    assert!(bed.pass_ms(10_000).is_empty());
}

// proves: R53-4, R53-8, A61-64
#[test]
fn the_syn_of_a_hairpin_is_answered_after_six_seconds_and_not_before() {
    use Filtering::*;
    for (pool6, filtering) in PREFIXES.iter().zip([EndpointIndependent, AddressDependent].iter().cycle()) {
        let mut plan = plan_with(pool6);
        plan.nat64[0].filtering = *filtering;
        plan.icmp.suppressed.clear();
        let mut bed = Bed::new(&plan);
        let t6 = behind(pool6, T);
        // To a binding whose filter does not admit it, and to an unbound port.
        let bound = bed.through(&tcp6(B, 2222, &behind(pool6, STUN), 9, "S", b"")).sport;
        let to = if *filtering == EndpointIndependent { bound ^ 1 } else { bound };
        let syn = tcp6(A, 1111, &t6, to, "S", b"");
        assert_eq!(bed.send(&syn).verdict, Verdict::Held, "{pool6}");
        assert!(bed.pass_ms(5_999).is_empty());
        let sent = bed.pass_ms(1);
        assert_eq!(sent, [error6(&t6, A, (1, 4, 0), &syn)], "{pool6}");
        assert_eq!(bed.drops(DropReason::SynExpired), 1);
        let counters = bed.nat.counters();
        assert_eq!((counters.held, counters.replied.packets, counters.icmp_errors_sent), (0, 1, 1));
        assert!(bed.pass_ms(20_000).is_empty());
    }
}

// proves: R53-4, R53-8, A61-40
#[test]
fn a_host_without_a_binding_that_answers_the_syn_of_a_hairpin_gets_the_port_it_was_sent_to() {
    let mut bed = Bed::nat64(POOL6);
    let t6 = behind(POOL6, T);
    assert_eq!(bed.send(&tcp6(A, 1111, &t6, 7000, "S", b"")).verdict, Verdict::Held);
    let a = bed.through(&tcp6(A, 1111, &behind(POOL6, STUN), 9, "S", b"")).sport;
    let out = bed.through(&tcp6(B, 2222, &t6, a, "S", b""));
    assert_eq!((out.sport, out.dst, out.dport), (7000, v6(A).into(), 1111));
    bed.through(&tcp6(A, 1111, &t6, 7000, "SA", b""));
    assert_eq!(bed.drops(DropReason::SynWasAnswered), 1);
    assert!(bed.pass_ms(7_000).is_empty());
    bed.pass_ms(7_000_000);
    bed.through(&tcp6(B, 2222, &t6, a, "PA", b"data"));
}

// proves: R53-4
#[test]
fn without_external_tcp_the_syn_of_a_hairpin_is_dropped_silently() {
    let mut plan = plan_with(POOL6);
    plan.nat64[0].external_tcp = false;
    plan.icmp.suppressed.clear();
    let mut bed = Bed::new(&plan);
    let bound = bed.through(&tcp6(B, 2222, &behind(POOL6, STUN), 9, "S", b"")).sport;
    for port in [bound, bound ^ 1] {
        let out = bed.send(&tcp6(A, 1111, &behind(POOL6, T), port, "S", b""));
        assert_eq!(out.verdict, Verdict::Drop(DropReason::ExternalSynPolicy));
    }
    assert!(bed.pass_ms(10_000).is_empty());
}

#[test]
fn a_hairpin_needs_two_hops() {
    let mut bed = Bed::nat64(POOL6);
    let b = bind(&mut bed, POOL6, B, 2222);
    let t6 = behind(POOL6, T);
    bind(&mut bed, POOL6, A, 1111);
    for hops in [1, 2] {
        let packet = with_hops(udp6(A, 1111, &t6, b, b"x"), hops);
        let out = bed.send(&packet);
        assert_eq!(out.verdict, Verdict::Reply(Reply::Error(DropReason::TtlExceeded)));
        assert_eq!((icmp_type(&out.bytes), quote(&out.bytes)), ((3, 0), &packet[..]));
    }
    assert_eq!(bed.send(&with_hops(udp6(A, 1111, &t6, b, b"x"), 3)).forwarded()[7], 1);
}

// proves: A61-63, R78-13, R55-7
#[test]
fn an_error_about_a_hairpinned_packet_reaches_its_sender_behind_every_prefix_length() {
    for pool6 in PREFIXES {
        let mut bed = Bed::nat64(pool6);
        let t6 = behind(pool6, T);
        let b = bind(&mut bed, pool6, B, 2222);
        let tcp_b = bed.through(&tcp6(B, 80, &behind(pool6, STUN), 9, "S", b"")).sport;
        for packet in [
            udp6(A, 1111, &t6, b, b"is anybody there?"),
            udp6(A, 1112, &t6, b, &[0x5a; 1201]),
            tcp6(A, 1113, &t6, tcp_b, "S", b""),
        ] {
            let arrived = bed.send(&packet);
            let quoted = &arrived.forwarded()[..arrived.bytes.len().min(1232)];
            let error = error6(B, &t6, (1, 4, 0), quoted);
            let out = bed.send(&error);
            let got = out.forwarded().to_vec();
            assert_eq!((icmp_type(&got), got[7]), ((1, 4), 62), "{pool6}");
            assert_eq!(got[8..24], v6(&t6).octets(), "from the peer's outside address");
            assert_eq!(got[24..40], v6(A).octets());
            let original = with_hops(packet.clone(), 62);
            assert_eq!(quote(&got), &original[..quote(&got).len()], "{pool6}: what A has sent");
            assert_eq!(quote(&got).len(), quoted.len(), "{pool6}: nothing of the quotation is lost");
        }
        assert_eq!(bed.nat.counters().hairpinned.packets, 6);
    }
}

// proves: A61-62, A61-63
#[test]
fn an_error_about_a_hairpinned_packet_comes_from_the_prefix_that_the_sender_wrote_to() {
    let other = "2001:db8:65::/96";
    let mut plan = plan_with(POOL6);
    plan.nat64[0].pool6.push(prefix(other));
    let mut bed = Bed::new(&plan);
    let b = bind(&mut bed, POOL6, B, 2222);
    // A's binding has a session behind the first prefix; this packet uses the second one.
    bind(&mut bed, POOL6, A, 1111);
    let packet = udp6(A, 1111, &behind(other, T), b, b"x");
    let arrived = bed.send(&packet).forwarded().to_vec();
    let seen_by_b = behind(POOL6, T);
    let out = bed.send(&error6(B, &seen_by_b, (1, 4, 0), &arrived));
    assert_eq!(out.forwarded()[8..24], v6(&behind(other, T)).octets());
    assert_eq!(quote(&out.bytes), with_hops(packet, 62));
}

// proves: A61-63, R55-7
#[test]
fn an_error_about_a_hairpinned_echo_reaches_its_sender() {
    let mut plan = two_addresses();
    plan.pools[0].ranges[0].ports = (7, 7);
    plan.nat64[0].static_bindings = vec![static_binding(Transport::Icmp, (B, 99), (T2, 7))];
    let mut bed = Bed::new(&plan);
    let request = echo6(A, &behind(POOL6, T2), true, 5, b"ping");
    let arrived = bed.send(&request);
    let error = error6(B, &behind(POOL6, T), (1, 1, 0), arrived.forwarded());
    let out = bed.send(&error);
    let expected = error6(&behind(POOL6, T2), A, (1, 1, 0), &with_hops(request, 62));
    assert_eq!(out.forwarded(), with_hops(expected, 62));
}

#[test]
fn an_error_about_no_hairpin_is_dropped_and_untouched() {
    let mut bed = Bed::nat64(POOL6);
    let t6 = behind(POOL6, T);
    let b = bind(&mut bed, POOL6, B, 2222);
    // B reports a packet from an outside port that is not bound.
    let quoted = udp6(&t6, b ^ 1, B, 2222, b"x");
    let out = bed.send(&error6(B, &t6, (1, 4, 0), &quoted));
    assert_eq!(out.verdict, Verdict::Drop(DropReason::IcmpErrorNoState));
}

#[test]
fn a_hairpin_between_instances_uses_each_sides_prefix() {
    let other = "2001:db8:65::/64";
    let mut plan = plan_with(POOL6);
    plan.pools.push(pool("198.18.0.1", "198.18.0.1", (1, 65535)));
    let mut second = nat64(other);
    second.pool = 1;
    plan.nat64.push(second);
    let mut bed = Bed::new(&plan);
    let b = bind(&mut bed, other, B, 2222);
    let packet = udp6(A, 1111, &behind(POOL6, "198.18.0.1"), b, b"x");
    let out = bed.send(&packet);
    let e = ends(out.forwarded());
    assert_eq!((e.src, e.dst), (v6(&behind(other, T)).into(), v6(B).into()));
    let back = bed.send(&udp6(B, 2222, &behind(other, T), e.sport, b"y"));
    let back = ends(back.forwarded());
    assert_eq!((back.src, back.dst), (v6(&behind(POOL6, "198.18.0.1")).into(), v6(A).into()));
    assert_eq!((back.sport, back.dport), (b, 1111));
    let error = bed.send(&error6(B, &behind(other, T), (1, 4, 0), &out.bytes));
    let e = error.forwarded();
    assert_eq!(e[8..24], v6(&behind(POOL6, "198.18.0.1")).octets());
    assert_eq!(quote(e), with_hops(packet, 62));
}

#[test]
fn a_datagram_without_checksum_through_a_hairpin_gets_one_or_is_dropped_as_configured() {
    use gatun_wire::rfc7915::ZeroChecksum;
    for (setting, passes) in [(ZeroChecksum::Compute, true), (ZeroChecksum::Drop, false)] {
        let mut plan = plan_with(POOL6);
        plan.nat64[0].settings.udp_zero_checksum = setting;
        let mut bed = Bed::new(&plan);
        let b = bind(&mut bed, POOL6, B, 2222);
        let mut packet = udp6(A, 1111, &behind(POOL6, T), b, b"tunnel");
        packet[46..48].fill(0);
        let out = bed.send_any(&packet);
        match passes {
            true => assert_eq!(ends(out.forwarded()).dport, 2222),
            false => {
                assert_eq!(out.verdict, Verdict::Drop(DropReason::ZeroUdpChecksum));
                assert_eq!(bed.drops(DropReason::ZeroUdpChecksum), 1);
            }
        }
    }
}
