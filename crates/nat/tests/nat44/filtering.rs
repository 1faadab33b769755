//! Filtering: RFC 4787 5, RFC 5382 REQ-3 and REQ-4, RFC 7857 6.

use super::common::*;
use super::{A, B, OTHER, SERVER, T, both_kinds, filtered, plan44};
use gatun_nat::plan::Filtering::{AddressAndPortDependent, AddressDependent, EndpointIndependent};
use gatun_nat::plan::{StaticBinding, Transport};
use gatun_nat::{Reply, Verdict};
use gatun_wire::DropReason;

const ADF: Verdict = Verdict::Drop(DropReason::AddressDependentFilter);
const APDF: Verdict = Verdict::Drop(DropReason::AddressPortDependentFilter);

// proves: R47-8, R53-3, R68-7, R78-6
#[test]
fn each_filter_admits_its_remote_hosts() {
    for (filtering, same_address, stranger) in [
        (EndpointIndependent, Verdict::Forward, Verdict::Forward),
        (AddressDependent, Verdict::Forward, ADF),
        (AddressAndPortDependent, APDF, APDF),
    ] {
        let mut bed = Bed::new(&filtered(filtering));
        let udp = bed.through(&udp4(A, 5000, SERVER, 53, b"x")).sport;
        let tcp = bed.through(&tcp4(A, 5000, SERVER, 80, "S", b"")).sport;
        bed.through(&udp4(SERVER, 53, T, udp, b"x"));
        bed.through(&tcp4(SERVER, 80, T, tcp, "SA", b""));
        assert_eq!(bed.send(&udp4(SERVER, 54, T, udp, b"x")).verdict, same_address, "{filtering:?}");
        assert_eq!(bed.send(&udp4(OTHER, 53, T, udp, b"x")).verdict, stranger, "{filtering:?}");
        assert_eq!(bed.send(&tcp4(SERVER, 81, T, tcp, "A", b"")).verdict, same_address, "{filtering:?}");
        assert_eq!(bed.send(&tcp4(OTHER, 80, T, tcp, "A", b"")).verdict, stranger, "{filtering:?}");
        // A contact by UDP does not admit TCP.
        bed.through(&udp4(A, 5000, OTHER, 80, b"x"));
        assert_eq!(bed.send(&tcp4(OTHER, 80, T, tcp, "A", b"")).verdict, stranger, "{filtering:?}");
    }
}

// proves: R47-8
#[test]
fn nat64_has_address_and_port_dependent_filtering() {
    let mut plan = both_kinds();
    plan.nat64[0].filtering = AddressAndPortDependent;
    let mut bed = Bed::new(&plan);
    let port = bed.through(&udp6(CLIENT, 5000, &behind(super::POOL6, SERVER), 53, b"x")).sport;
    bed.through(&udp4(SERVER, 53, T, port, b"x"));
    assert_eq!(bed.send(&udp4(SERVER, 54, T, port, b"x")).verdict, APDF);
    let echo = bed.through(&echo6(CLIENT, &behind(super::POOL6, SERVER), true, 9, b"x")).sport;
    bed.through(&echo4(SERVER, T, true, echo, b"x"));
    assert_eq!(bed.send(&echo4(OTHER, T, true, echo, b"x")).verdict, APDF);
}

// proves: R53-4
#[test]
fn an_unsolicited_syn_waits_six_seconds_and_only_then_is_answered() {
    for plan in [plan44(), filtered(AddressDependent), filtered(AddressAndPortDependent)] {
        let mut bed = Bed::new(&plan);
        let bound = bed.through(&tcp4(A, 5000, SERVER, 80, "S", b"")).sport;
        let port = if plan.nat44[0].filtering == EndpointIndependent { bound ^ 1 } else { bound };
        let syn = tcp4(OTHER, 4000, T, port, "S", b"");
        assert_eq!(bed.send(&syn).verdict, Verdict::Held);
        assert_eq!(bed.pass_ms(5_900), Vec::<Vec<u8>>::new());
        let sent = bed.pass_ms(1_500);
        assert_eq!(sent.len(), 1);
        assert_eq!((icmp_type(&sent[0]), quote(&sent[0])), ((3, 3), &syn[..]));
    }
}

// proves: R53-4, R53-2
#[test]
fn an_outbound_syn_drops_the_held_one_silently_and_gets_its_port() {
    let mut bed = Bed::new(&filtered(AddressAndPortDependent));
    let port = bed.through(&tcp4(A, 5000, SERVER, 80, "S", b"")).sport;
    assert_eq!(bed.send(&tcp4(OTHER, 4000, T, port, "S", b"")).verdict, Verdict::Held);
    assert_eq!(bed.through(&tcp4(A, 5000, OTHER, 4000, "S", b"")).sport, port);
    bed.through(&tcp4(OTHER, 4000, T, port, "SA", b""));
    bed.through(&tcp4(A, 5000, OTHER, 4000, "SA", b""));
    assert_eq!(bed.pass_ms(20_000), Vec::<Vec<u8>>::new());
    assert_eq!(bed.nat.counters().icmp_errors_sent, 0);
    // The connection is established: it still exists two hours later.
    bed.pass_ms(7_200_000);
    bed.through(&tcp4(OTHER, 4000, T, port, "PA", b"data"));
}

// proves: R53-4
#[test]
fn a_policy_without_connections_from_outside_is_silent() {
    let mut plan = plan44();
    plan.nat44[0].external_tcp = false;
    plan.icmp.suppressed.clear(); // as a configuration file without `suppress` has it
    let mut bed = Bed::new(&plan);
    let port = bed.through(&tcp4(A, 5000, SERVER, 80, "S", b"")).sport;
    for syn in [
        tcp4(OTHER, 4000, T, port, "S", b""),
        tcp4(OTHER, 4000, T, port ^ 1, "S", b""),
        // A fragment, and a SYN of an inside host.
        with_flags4(tcp4(OTHER, 4000, T, port, "S", b"data"), 0x2000),
        tcp4(B, 4000, T, port, "S", b""),
    ] {
        let out = bed.send(&syn);
        assert_eq!(out.verdict, Verdict::Drop(DropReason::ExternalSynPolicy));
    }
    assert_eq!(bed.pass_ms(10_000), Vec::<Vec<u8>>::new());
    bed.through(&tcp4(SERVER, 80, T, port, "SA", b""));
}

// proves: R53-2
#[test]
fn a_static_binding_lets_connections_in_from_outside() {
    let mut plan = plan44();
    let inside = (v4(A).to_ipv6_mapped(), 80);
    plan.nat44[0].static_bindings =
        vec![StaticBinding { transport: Transport::Tcp, inside, outside: (v4(T), 8080) }];
    let mut bed = Bed::new(&plan);
    let syn = bed.send(&tcp4(OTHER, 4000, T, 8080, "S", b""));
    assert_eq!(syn.forwarded(), with_hops(tcp4(OTHER, 4000, A, 80, "S", b""), 63));
    let answer = bed.send(&tcp4(A, 80, OTHER, 4000, "SA", b""));
    assert_eq!(answer.forwarded(), with_hops(tcp4(T, 8080, OTHER, 4000, "SA", b""), 63));
    let again = bed.send(&tcp4(A, 80, OTHER, 4001, "A", b""));
    assert_eq!(again.forwarded(), with_hops(tcp4(T, 8080, OTHER, 4001, "A", b""), 63), "through the binding");
}

#[test]
fn packets_that_open_nothing_need_a_binding() {
    let mut bed = Bed::new(&plan44());
    let out = bed.send(&tcp4(A, 5000, SERVER, 80, "A", b""));
    assert_eq!(out.verdict, Verdict::Drop(DropReason::NonSynClosed));
    assert_eq!(bed.send(&echo4(A, SERVER, false, 7, b"")).verdict, Verdict::Drop(DropReason::NoSession));
    for flags in ["SF", "SR", "FPU"] {
        let out = bed.send(&tcp4(A, 5000, SERVER, 80, flags, b""));
        assert_eq!(out.verdict, Verdict::Drop(DropReason::TcpInvalidFlags), "{flags}");
    }
    assert_eq!(bed.nat.occupancy(), Default::default());
}

// proves: R55-11
#[test]
fn echo_can_be_switched_off() {
    let mut plan = plan44();
    plan.nat44[0].icmp_queries = false;
    let mut bed = Bed::new(&plan);
    let out = bed.send(&echo4(A, SERVER, true, 7, b""));
    assert!(!matches!(out.verdict, Verdict::Forward | Verdict::Reply(Reply::Echo)));
    assert_eq!(bed.drops(DropReason::IcmpUnknownType), 1);
}
