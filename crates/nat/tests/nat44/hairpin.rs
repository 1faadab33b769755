//! Hairpins: RFC 4787 REQ-9, RFC 5382 REQ-8, RFC 5508 REQ-7, RFC 7857 12; between kinds, too.

use super::common::*;
use super::{A, B, POOL6, SERVER, T, both_kinds, filtered, plan44};
use gatun_nat::plan::Filtering;
use gatun_nat::{Plan, Verdict};
use gatun_wire::DropReason;

// proves: R47-9, R53-8, R55-7
#[test]
fn inside_hosts_meet_at_their_public_addresses_and_see_nothing_else_of_each_other() {
    let mut bed = Bed::new(&plan44());
    let b = bed.through(&udp4(B, 2222, SERVER, 9, b"x")).sport;
    let out = bed.send(&udp4(A, 1111, T, b, b"hello"));
    let a = ends(out.forwarded()).sport;
    assert_eq!(out.forwarded(), with_hops(udp4(T, a, B, 2222, b"hello"), 62));
    let back = bed.send(&udp4(B, 2222, T, a, b"hi"));
    assert_eq!(back.forwarded(), with_hops(udp4(T, b, A, 1111, b"hi"), 62));

    let b = bed.through(&tcp4(B, 80, SERVER, 9, "S", b"")).sport;
    let out = bed.send(&tcp4(A, 1111, T, b, "S", b""));
    let a = ends(out.forwarded()).sport;
    assert_eq!(out.forwarded(), with_hops(tcp4(T, a, B, 80, "S", b""), 62));
    let back = bed.send(&tcp4(B, 80, T, a, "SA", b""));
    assert_eq!(back.forwarded(), with_hops(tcp4(T, b, A, 1111, "SA", b""), 62));
    // Echo messages have one identifier, that of their sender: RFC 5508 REQ-7 requires hairpins of them only
    // without port translation.
    assert_eq!(bed.nat.counters().hairpinned.packets, 4);
}

// proves: R47-9, R47-8
#[test]
fn a_hairpin_is_filtered_as_if_it_came_from_outside() {
    for filtering in [Filtering::AddressDependent, Filtering::AddressAndPortDependent] {
        let mut plan = filtered(filtering);
        plan.pools = vec![pool("192.0.2.1", "192.0.2.2", (1, 65535))];
        let mut bed = Bed::new(&plan);
        let b = bed.through(&udp4(B, 2222, SERVER, 9, b"x"));
        let (tb, b) = (b.src.to_string(), b.sport);
        let refused = bed.send(&udp4(A, 1111, &tb, b, b"x")).verdict;
        assert!(matches!(
            refused,
            Verdict::Drop(DropReason::AddressDependentFilter | DropReason::AddressPortDependentFilter)
        ));
        let a = bed.through(&udp4(A, 1111, SERVER, 9, b"x"));
        let _ = bed.send(&udp4(B, 2222, &a.src.to_string(), a.sport, b"x"));
        bed.through(&udp4(A, 1111, &tb, b, b"x"));
    }
}

// proves: R55-7, R78-13
#[test]
fn an_error_about_a_hairpinned_packet_reaches_its_sender() {
    let mut bed = Bed::new(&plan44());
    let b = bed.through(&udp4(B, 2222, SERVER, 9, b"x")).sport;
    let sent = udp4(A, 1111, T, b, b"hello");
    let delivered = bed.send(&sent).forwarded().to_vec();
    let out = bed.send(&error4(B, T, (3, 3, 0), &delivered));
    let mut wanted = with_hops(error4(T, A, (3, 3, 0), &with_hops(sent, 62)), 62);
    wanted[4..6].copy_from_slice(&out.forwarded()[4..6]);
    wanted[10..12].copy_from_slice(&out.forwarded()[10..12]);
    assert_eq!(out.forwarded(), wanted);
}

#[test]
fn a_hairpin_needs_two_hops() {
    let mut bed = Bed::new(&plan44());
    let b = bed.through(&udp4(B, 2222, SERVER, 9, b"x")).sport;
    let out = bed.send(&with_hops(udp4(A, 1111, T, b, b"x"), 2));
    assert_eq!(icmp_type(&out.bytes), (11, 0));
    bed.through(&with_hops(udp4(A, 1111, T, b, b"x"), 3));
}

/// Plans with both kinds of instances, on one pool or on two.
fn plans() -> [Plan; 2] {
    let shared = both_kinds();
    let mut apart = both_kinds();
    apart.pools = vec![pool(T, T, (1, 65535)), pool("192.0.2.9", "192.0.2.9", (1, 65535))];
    apart.nat44[0].pool = 1;
    [shared, apart]
}

// proves: R47-9, R53-8
#[test]
fn hosts_of_both_kinds_share_addresses_and_meet_there() {
    for plan in plans() {
        let mut bed = Bed::new(&plan);
        let six = bed.through(&udp6(CLIENT, 6666, &behind(POOL6, SERVER), 9, b"x"));
        let four = bed.through(&udp4(A, 4444, SERVER, 9, b"x"));
        // Each host gets its own answers, by its binding.
        let (t6, t4) = (six.src.to_string(), four.src.to_string());
        let e = bed.through(&udp4(SERVER, 9, &t6, six.sport, b"x"));
        assert_eq!((e.dst, e.dport), (v6(CLIENT).into(), 6666));
        let e = bed.through(&udp4(SERVER, 9, &t4, four.sport, b"x"));
        assert_eq!((e.dst, e.dport), (v4(A).into(), 4444));
        // From IPv4 inside to IPv6 inside, and back.
        let out = bed.send(&udp4(A, 4444, &t6, six.sport, b"hello"));
        let from = behind(POOL6, &t4);
        assert_eq!(out.forwarded(), with_hops(udp6(&from, four.sport, CLIENT, 6666, b"hello"), 62));
        let out = bed.send(&udp6(CLIENT, 6666, &from, four.sport, b"hi"));
        let mut wanted = with_hops(udp4(&t6, six.sport, A, 4444, b"hi"), 62);
        let got = out.forwarded();
        wanted[4..8].copy_from_slice(&got[4..8]);
        wanted[10..12].copy_from_slice(&got[10..12]);
        assert_eq!(got, wanted);
        let c = bed.nat.counters();
        assert_eq!(c.translated.map(|t| t.packets), [2, 1, 3]);
        assert_eq!(c.hairpinned.packets, 2);
    }
}

/// Makes a TCP segment of an inside host to a public port, in the host's family.
fn syn_to(host: &str, port: u16, to4: &str, to_port: u16, flags: &str) -> Vec<u8> {
    match host.contains(':') {
        true => tcp6(host, port, &behind(POOL6, to4), to_port, flags, b""),
        false => tcp4(host, port, to4, to_port, flags, b""),
    }
}

// proves: R53-2, R53-4, R53-8
#[test]
fn hosts_of_one_kind_or_both_punch_holes_through_strict_filters() {
    for filtering in [Filtering::AddressDependent, Filtering::AddressAndPortDependent] {
        for (first, second) in [(A, B), (A, CLIENT), (CLIENT, A), (CLIENT, "2001:db8:1::3")] {
            for mut plan in plans() {
                plan.nat44[0].filtering = filtering;
                plan.nat64[0].filtering = filtering;
                plan.icmp.suppressed.clear();
                let mut bed = Bed::new(&plan);
                // Each host learns its public address from a server and sends it to the other host.
                let one = bed.through(&syn_to(first, 1111, SERVER, 9, "S"));
                let two = bed.through(&syn_to(second, 2222, SERVER, 9, "S"));
                let (t1, t2) = (one.src.to_string(), two.src.to_string());
                let name = format!("{filtering:?}: {first} and {second}");
                let out = bed.send(&syn_to(first, 1111, &t2, two.sport, "S"));
                assert_eq!(out.verdict, Verdict::Held, "{name}");
                bed.pass_ms(3_000);
                let met = bed.through(&syn_to(second, 2222, &t1, one.sport, "S"));
                assert_eq!((met.dst, met.dport), (first.parse().unwrap(), 1111), "{name}");
                assert_eq!(bed.nat.occupancy().held_syns, 0, "{name}");
                let met = bed.through(&syn_to(first, 1111, &t2, two.sport, "SA"));
                assert_eq!((met.dst, met.dport), (second.parse().unwrap(), 2222), "{name}");
                bed.through(&syn_to(second, 2222, &t1, one.sport, "SA"));
                bed.pass_ms(7_000_000);
                assert_eq!(bed.nat.counters().icmp_errors_sent, 0, "{name}");
                bed.through(&syn_to(first, 1111, &t2, two.sport, "A"));
                bed.through(&syn_to(second, 2222, &t1, one.sport, "A"));
            }
        }
    }
}

// proves: R53-4, R53-8
#[test]
fn a_hairpins_syn_that_nobody_answers_is_answered_in_its_senders_family_after_six_seconds() {
    for (host, peer) in [(A, B), (A, CLIENT), (CLIENT, A)] {
        for mut plan in plans() {
            plan.nat44[0].filtering = Filtering::AddressAndPortDependent;
            plan.nat64[0].filtering = Filtering::AddressAndPortDependent;
            plan.icmp.suppressed.clear();
            let mut bed = Bed::new(&plan);
            let there = bed.through(&syn_to(peer, 2222, SERVER, 9, "S"));
            let syn = syn_to(host, 1111, &there.src.to_string(), there.sport, "S");
            assert_eq!(bed.send(&syn).verdict, Verdict::Held);
            assert_eq!(bed.pass_ms(5_999), Vec::<Vec<u8>>::new());
            let sent = bed.pass_ms(1);
            let [error] = &sent[..] else { panic!("{sent:02x?}") };
            let (kind, source) = match host.contains(':') {
                true => ((1, 4), behind(POOL6, &there.src.to_string())),
                false => ((3, 3), there.src.to_string()),
            };
            assert_eq!((icmp_type(error), quote(error)), (kind, &syn[..]));
            let e = ends(error);
            assert_eq!((e.src, e.dst), (source.parse().unwrap(), host.parse().unwrap()));
        }
    }
}

// proves: R78-13, R55-7
#[test]
fn errors_between_kinds_reach_the_sender_in_its_own_family() {
    for plan in plans() {
        let mut bed = Bed::new(&plan);
        let six = bed.through(&udp6(CLIENT, 6666, &behind(POOL6, SERVER), 9, b"x"));
        let four = bed.through(&udp4(A, 4444, SERVER, 9, b"x"));
        let (t6, t4) = (six.src.to_string(), four.src.to_string());
        let delivered = bed.send(&udp4(A, 4444, &t6, six.sport, b"hello")).forwarded().to_vec();
        let out = bed.send(&error6(CLIENT, &behind(POOL6, &t4), (1, 4, 0), &delivered));
        let got = out.forwarded();
        assert_eq!((icmp_type(got), ends(got).dst), ((3, 3), v4(A).into()));
        let inner = ends(quote(got));
        assert_eq!((inner.src, inner.sport, inner.dport), (v4(A).into(), 4444, six.sport));

        let sent = udp6(CLIENT, 6666, &behind(POOL6, &t4), four.sport, b"hi");
        let delivered = bed.send(&sent).forwarded().to_vec();
        let out = bed.send(&error4(A, &t6, (3, 3, 0), &delivered));
        let got = out.forwarded();
        assert_eq!((icmp_type(got), ends(got).dst), ((1, 4), v6(CLIENT).into()));
        let inner = ends(quote(got));
        assert_eq!((inner.src, inner.sport, inner.dport), (v6(CLIENT).into(), 6666, four.sport));
    }
}

// proves: R47-9
#[test]
fn a_hairpin_heeds_the_mtu_of_its_receivers_link() {
    let mut plan = both_kinds();
    plan.nat64[0].settings.mtu6 = 1400;
    let mut bed = Bed::new(&plan);
    let six = bed.through(&udp6(CLIENT, 2222, &behind(POOL6, SERVER), 9, b"x")).sport;
    let four = bed.through(&udp4(B, 2222, SERVER, 9, b"x")).sport;
    // From a private IPv4 host to an IPv6 host, where the packet is 20 bytes larger. With DF, the sender gets
    // an error.
    let fits = with_flags4(udp4(A, 1111, T, six, &[7; 1352]), 0x4000);
    assert_eq!(bed.send(&fits).forwarded().len(), 1400);
    let too_big = with_flags4(udp4(A, 1111, T, six, &[7; 1353]), 0x4000);
    let told = bed.send(&too_big);
    assert_eq!(told.verdict, Verdict::Reply(gatun_nat::Reply::Error(DropReason::TooBig4)));
    assert_eq!((icmp_type(&told.bytes), &told.bytes[26..28]), ((3, 4), &1380u16.to_be_bytes()[..]));
    // Without DF, the packet is fragmented.
    let cut = bed.send(&with_flags4(too_big, 0));
    assert_eq!((cut.verdict, cut.emitted.len()), (Verdict::Forward, 1));
    assert!(cut.bytes.len() <= 1280 && cut.emitted[0].len() <= 1280);
    // From an IPv6 host to an IPv6 host, and to an IPv4 one, whose link takes 1500.
    let other = "2001:db8:1::3";
    let told = bed.send(&udp6(other, 1111, &behind(POOL6, T), six, &[7; 1353]));
    assert_eq!(told.verdict, Verdict::Reply(gatun_nat::Reply::Error(DropReason::TooBig6)));
    assert_eq!((icmp_type(&told.bytes), &told.bytes[44..48]), ((2, 0), &1400u32.to_be_bytes()[..]));
    assert_eq!(bed.send(&udp6(other, 1111, &behind(POOL6, T), four, &[7; 1472])).forwarded().len(), 1500);
    let told = bed.send(&udp6(other, 1111, &behind(POOL6, T), four, &[7; 1473]));
    assert_eq!((icmp_type(&told.bytes), &told.bytes[44..48]), ((2, 0), &1520u32.to_be_bytes()[..]));
    // The error has no MTU for a packet that is dropped for another reason.
    let ended = bed.send(&with_hops(udp4(A, 1111, T, six, b"x"), 1)).bytes;
    assert_eq!((icmp_type(&ended), &ended[24..28]), ((11, 0), &[0; 4][..]));
}
