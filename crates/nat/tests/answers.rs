//! Drops that have to be answered by RFC 7915 4.4 and 5.4, in both directions, and the key that disables each
//! answer.

mod common;

use common::*;
use gatun_nat::plan::{Eam, Net4, Net6, Plan, Siit};
use gatun_nat::{Reply, Verdict};
use gatun_wire::DropReason;
use gatun_wire::rfc7915::ZeroChecksum;

const WKP: &str = "64:ff9b::/96";
const PRIVATE: &str = "10.1.2.3";
const PUBLIC: &str = "9.9.9.9";
/// IPv4 address that is mapped to an IPv6 host.
const MAPPED: &str = "8.8.4.4";
const MAPPED6: &str = "2001:db8:5::1";

/// Stateless plan with the well-known prefix that drops datagrams without checksum.
fn stateless() -> Plan {
    let v6_side = Net6::new(v6(MAPPED6), 128).unwrap();
    let mut siit = Siit {
        name: "mapped".into(),
        pool6: vec![prefix(WKP)],
        eamt: vec![Eam { v4: Net4::new(v4(MAPPED), 32).unwrap(), v6: v6_side }],
        ..Siit::default()
    };
    siit.settings.udp_zero_checksum = ZeroChecksum::Drop;
    Plan { own4: Some(v4(OWN4)), own6: Some(v6(OWN6)), siit: vec![siit], ..Plan::default() }
}

/// Stateful plan with the same prefix, and a static binding for packets from outside.
fn stateful() -> Plan {
    let mut plan = plan_with(WKP);
    let udp = gatun_nat::plan::Transport::Udp;
    plan.nat64[0].static_bindings = vec![static_binding(udp, (CLIENT, 53), ("192.0.2.1", 53))];
    plan.nat64[0].settings.udp_zero_checksum = ZeroChecksum::Drop;
    plan
}

fn without_checksum(mut packet: Vec<u8>) -> Vec<u8> {
    let at = if packet[0] >> 4 == 4 { 26 } else { 46 };
    packet[at..at + 2].fill(0);
    packet
}

/// Plan, packet, drop reason, and the type and code of the answer.
type Case = (Plan, Vec<u8>, DropReason, (u8, u8));

fn cases() -> Vec<Case> {
    use DropReason::*;
    let (six, four) = ((1, 1), (3, 13));
    let computes = |mut plan: Plan| {
        plan.siit[0].settings.udp_zero_checksum = ZeroChecksum::Compute;
        plan
    };
    let udp = |to: &str| udp4(PUBLIC, 5000, to, 53, &[7; 16]);
    vec![
        (stateless(), udp6(MAPPED6, 5000, &behind(WKP, PRIVATE), 53, b"x"), WellKnownNonGlobal, six),
        (stateless(), udp4(PRIVATE, 5000, MAPPED, 53, b"x"), WellKnownNonGlobal, four),
        (stateful(), udp6(CLIENT, 5000, &behind(WKP, PRIVATE), 53, b"x"), WellKnownNonGlobal, six),
        (stateful(), udp4(PRIVATE, 5000, "192.0.2.1", 53, b"x"), WellKnownNonGlobal, four),
        (stateless(), udp6(MAPPED6, 5000, "2001:db8:bad::1", 53, b"x"), DestinationNotPool6, six),
        (stateful(), udp6(CLIENT, 5000, "2001:db8:bad::1", 53, b"x"), DestinationNotPool6, six),
        (stateless(), without_checksum(udp(MAPPED)), ZeroUdpChecksum, four),
        (stateful(), without_checksum(udp("192.0.2.1")), ZeroUdpChecksum, four),
        (
            computes(stateless()),
            with_flags4(without_checksum(udp(MAPPED)), 0x2000),
            FragmentZeroChecksum,
            four,
        ),
    ]
}

// proves: A79-39, A79-74
#[test]
fn drops_that_an_rfc_wants_answered_are_answered_and_one_key_switches_each_off() {
    for (mut plan, packet, reason, kind) in cases() {
        let out = Bed::new(&plan).send(&packet);
        assert_eq!(out.verdict, Verdict::Reply(Reply::Error(reason)), "{packet:02x?}");
        assert_eq!((icmp_type(&out.bytes), quote(&out.bytes)), (kind, &packet[..]));
        plan.icmp.suppressed = vec![reason];
        assert_eq!(Bed::new(&plan).send(&packet).verdict, Verdict::Drop(reason));
    }
}

/// No ICMP error answers an ICMP error (RFC 4443 2.4 e, RFC 1812 4.3.2.7).
#[test]
fn an_error_that_is_dropped_for_such_a_reason_is_not_answered() {
    let about = udp6("2001:db8:bad::1", 53, MAPPED6, 5000, b"x");
    let error = error6(MAPPED6, "2001:db8:bad::1", (1, 4, 0), &about);
    let dropped = Verdict::Drop(DropReason::DestinationNotPool6);
    assert_eq!(Bed::new(&stateless()).send(&error).verdict, dropped);
    let error = error4(PRIVATE, MAPPED, (3, 3, 0), &udp4(MAPPED, 5000, PRIVATE, 53, b"x"));
    assert!(matches!(Bed::new(&stateless()).send(&error).verdict, Verdict::Drop(_)));
}
