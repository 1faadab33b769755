//! Unsolicited SYNs from outside, which wait six seconds (RFC 6146 3.5.2.2, RFC 5382 REQ-4).

use super::common::*;
use super::{OTHER6, POOL6, SERVER6, T};
use gatun_nat::plan::Filtering;
use gatun_nat::{Plan, Reply, Verdict};
use gatun_wire::DropReason;

const PORT: u16 = 7000;

fn syn() -> Vec<u8> {
    tcp4(SERVER, 80, T, PORT, "S", b"")
}

/// Checks the ICMP error that reports an unanswered `syn`.
fn is_unreachable(error: &[u8], syn: &[u8]) {
    let mut expected = error4(T, SERVER, (3, 3, 0), syn);
    expected[1] = 0xc0; // internetwork control
    expected[4..6].copy_from_slice(&error[4..6]); // any identification
    let expected = with_flags4(expected, 0);
    assert_eq!(error, expected, "{error:02x?}");
}

fn address_dependent() -> Plan {
    let mut plan = plan_with(POOL6);
    plan.nat64[0].filtering = Filtering::AddressDependent;
    plan
}

// proves: T61-CLOSED, T61-V4_INIT, R53-4
#[test]
fn a_syn_to_no_binding_is_answered_after_six_seconds_and_not_before() {
    let mut bed = Bed::nat64(POOL6);
    assert_eq!(bed.send(&syn()).verdict, Verdict::Held);
    assert_eq!((bed.nat.occupancy().held_syns, bed.nat.occupancy().sessions), (1, 0));
    assert!(bed.pass_ms(5_999).is_empty());
    let sent = bed.pass_ms(1);
    assert_eq!(sent.len(), 1);
    is_unreachable(&sent[0], &syn());
    let counters = bed.nat.counters();
    assert_eq!((counters.held, counters.replied.packets, counters.icmp_errors_sent), (0, 1, 1));
    assert_eq!(bed.drops(DropReason::SynExpired), 1);
    assert!(bed.pass_ms(20_000).is_empty());
    assert_eq!(bed.nat.occupancy(), Default::default());
}

// proves: A61-40, A61-41, R53-2, R53-4
#[test]
fn a_syn_from_inside_within_six_seconds_gets_the_port_of_the_held_syn() {
    let mut bed = Bed::nat64(POOL6);
    assert_eq!(bed.send(&syn()).verdict, Verdict::Held);
    bed.pass_ms(5_500);
    let out = bed.through(&tcp6(CLIENT, 5000, SERVER6, 80, "S", b""));
    assert_eq!((out.src, out.sport), (v4(T).into(), PORT));
    assert_eq!(bed.drops(DropReason::SynWasAnswered), 1);
    assert_eq!((bed.nat.occupancy().held_syns, bed.nat.counters().held), (0, 0));
    // Both SYNs have arrived: the connection is established, with its lifetime.
    assert!(bed.pass_ms(7_430_000).is_empty(), "no ICMP error, no probe");
    assert_eq!(bed.through(&tcp4(SERVER, 80, T, PORT, "SA", b"")).dport, 5000);
    bed.through(&tcp6(CLIENT, 5000, SERVER6, 80, "A", b""));
}

// proves: R53-4
#[test]
fn a_held_syn_stays_if_the_syn_from_inside_is_refused() {
    let mut plan = plan_with(POOL6);
    plan.limits.ports_per_subscriber = 1;
    let mut bed = Bed::new(&plan);
    bed.through(&udp6(CLIENT, 4000, SERVER6, 53, b"the one port"));
    assert_eq!(bed.send(&syn()).verdict, Verdict::Held);
    let out = bed.send(&tcp6(CLIENT, 5000, SERVER6, 80, "S", b""));
    assert_eq!(out.verdict, Verdict::Reply(Reply::Error(DropReason::SubscriberPortQuota)));
    assert_eq!(bed.nat.occupancy().held_syns, 1);
    is_unreachable(&bed.pass_ms(6_000)[0], &syn());
}

// proves: R53-4, T61-V4_INIT
#[test]
fn a_held_syn_ends_silently_after_its_copy_has_passed() {
    let mut bed = Bed::nat64(POOL6);
    assert_eq!(bed.send(&syn()).verdict, Verdict::Held);
    assert_eq!(bed.send(&tcp4("203.0.113.9", 80, T, PORT, "S", b"")).verdict, Verdict::Held);
    // The inside host answers another SYN and has the port now. A copy of the first SYN finds a binding.
    let other = behind(POOL6, "203.0.113.9");
    assert_eq!(bed.through(&tcp6(CLIENT, 5000, &other, 80, "S", b"")).sport, PORT);
    bed.through(&syn());
    assert_eq!(bed.nat.occupancy().held_syns, 0);
    bed.through(&tcp6(CLIENT, 5000, SERVER6, 80, "SA", b""));
    assert!(bed.pass_ms(7_000).is_empty(), "no error about a connection that is open");
}

// proves: A61-40
#[test]
fn a_held_syn_matches_only_its_own_remote_endpoint_and_protocol() {
    let mut bed = Bed::nat64(POOL6);
    assert_eq!(bed.send(&syn()).verdict, Verdict::Held);
    bed.through(&tcp6(CLIENT, 5000, OTHER6, 80, "S", b""));
    bed.through(&tcp6(CLIENT, 5001, SERVER6, 81, "S", b""));
    bed.through(&udp6(CLIENT, 5002, SERVER6, 80, b""));
    assert_eq!(bed.nat.occupancy().held_syns, 1);
    assert_eq!(bed.pass_ms(6_500).len(), 1);
}

// proves: T61-V4_INIT, R53-4
#[test]
fn a_syn_that_comes_again_while_it_is_held_is_silently_dropped() {
    let mut plan = plan_with(POOL6);
    plan.icmp.suppressed.clear();
    let mut bed = Bed::new(&plan);
    assert_eq!(bed.send(&syn()).verdict, Verdict::Held);
    for _ in 0..3 {
        bed.pass_ms(1_000);
        let out = bed.send(&syn());
        assert!(matches!(out.verdict, Verdict::Drop(_)), "no answer before six seconds: {out:?}");
    }
    assert_eq!(bed.nat.occupancy().held_syns, 1);
    // The deadline of the first copy stays.
    assert_eq!(bed.pass_ms(3_000).len(), 1);
    assert!(bed.pass_ms(10_000).is_empty());
}

// proves: T61-V4_INIT, T61-CLOSED, R53-3, R53-4, A61-40
#[test]
fn address_dependent_filtering_holds_the_syn_of_a_stranger() {
    let mut bed = Bed::new(&address_dependent());
    let port = bed.through(&tcp6(CLIENT, 5000, OTHER6, 80, "S", b"")).sport;
    let stranger = tcp4(SERVER, 80, T, port, "S", b"");
    assert_eq!(bed.send(&stranger).verdict, Verdict::Held);
    bed.pass_ms(1_000);
    let again = bed.send(&stranger);
    assert!(matches!(again.verdict, Verdict::Drop(_)), "its copy does not let it in: {again:?}");
    assert_eq!(bed.nat.occupancy().sessions, 1);
    let sent = bed.pass_ms(5_000);
    assert_eq!(sent.len(), 1);
    is_unreachable(&sent[0], &stranger);

    // After the inside host has sent to it, the remote host is admitted.
    assert_eq!(bed.send(&stranger).verdict, Verdict::Held);
    assert_eq!(bed.through(&tcp6(CLIENT, 5000, SERVER6, 80, "S", b"")).sport, port);
    assert!(bed.pass_ms(20_000).is_empty());
    bed.through(&tcp4(SERVER, 80, T, port, "SA", b""));
    // Another port of a known address is admitted.
    bed.through(&tcp4(SERVER, 8080, T, port, "S", b""));
}

// proves: A61-40
#[test]
fn a_full_store_drops_silently_counts_and_harms_nobody() {
    let mut plan = plan_with(POOL6);
    plan.limits.syn_store_max = 8;
    let mut bed = Bed::new(&plan);
    let from = |n: u8| tcp4(&format!("203.0.113.{n}"), 80, T, PORT, "S", b"");
    for n in 1..=8 {
        assert_eq!(bed.send(&from(n)).verdict, Verdict::Held);
    }
    assert_eq!(bed.send(&from(9)).verdict, Verdict::Drop(DropReason::SynStoreFull));
    let port = bed.through(&tcp6(CLIENT, 5000, SERVER6, 80, "S", b"")).sport;
    bed.through(&tcp4(SERVER, 80, T, port, "SA", b""));
    assert_eq!(bed.pass_ms(6_500).len(), 8);
    assert_eq!(bed.send(&from(9)).verdict, Verdict::Held, "there is room again");
}

// proves: R53-4
#[test]
fn by_policy_a_held_syn_ends_without_an_answer() {
    let mut plan = plan_with(POOL6);
    plan.icmp.suppressed.push(DropReason::SynExpired);
    let mut bed = Bed::new(&plan);
    assert_eq!(bed.send(&syn()).verdict, Verdict::Held);
    assert!(bed.pass_ms(10_000).is_empty());
    let counters = bed.nat.counters();
    assert_eq!((counters.held, counters.dropped.packets, counters.icmp_errors_suppressed), (0, 1, 1));
    assert_eq!(bed.nat.occupancy().held_syns, 0);
}

#[test]
fn answers_to_held_syns_are_rate_limited_too() {
    let mut plan = plan_with(POOL6);
    plan.icmp.rate = 1;
    plan.icmp.burst = 2;
    let mut bed = Bed::new(&plan);
    for n in 1..=5 {
        let syn = tcp4(&format!("203.0.113.{n}"), 80, T, PORT, "S", b"");
        assert_eq!(bed.send(&syn).verdict, Verdict::Held);
    }
    assert_eq!(bed.pass_ms(6_000).len(), 2);
    let counters = bed.nat.counters();
    assert_eq!((counters.held, counters.dropped.packets, counters.icmp_errors_limited), (0, 3, 3));
}
