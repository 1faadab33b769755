//! Sessions ended on request: the state that ends with them, the state that stays, and the events.

use super::common::*;
use super::{OTHER, OTHER6, POOL6, SERVER6, T};
use gatun_nat::plan::{EventPlan, Filtering, Transport};
use gatun_nat::{EventKind, EventKinds, SessionKey, Verdict};
use gatun_wire::DropReason;

fn udp(port: u16, remote: &str) -> SessionKey {
    SessionKey {
        instance: 0,
        transport: Transport::Udp,
        inside: (v6(CLIENT), port),
        remote: (v4(remote), 53),
    }
}

#[test]
fn an_ended_session_returns_its_port_and_the_next_packet_opens_another() {
    let mut bed = Bed::nat64(POOL6);
    let port = bed.through(&udp6(CLIENT, 5000, SERVER6, 53, b"x")).sport;
    assert!(bed.nat.end_session(bed.now, &udp(5000, SERVER)));
    let left = bed.nat.occupancy();
    assert_eq!((left.sessions, left.bindings, left.subscribers), (0, 0, 0));
    assert_eq!(bed.nat.pools()[0].usage(Transport::Udp).used, 0, "the port is back");
    let back = bed.send(&udp4(SERVER, 53, T, port, b"x"));
    assert!(matches!(back.verdict, Verdict::Drop(_) | Verdict::Reply(_)), "{back:?}");
    bed.through(&udp6(CLIENT, 5000, SERVER6, 53, b"x"));
    assert_eq!(bed.nat.occupancy().sessions, 1);
    assert_eq!(bed.nat.counters().sessions_cleared, 1);
}

#[test]
fn sessions_that_differ_from_the_key_stay() {
    let mut bed = Bed::nat64(POOL6);
    bed.through(&udp6(CLIENT, 5000, SERVER6, 53, b"x"));
    let right = udp(5000, SERVER);
    let wrong = [
        SessionKey { instance: 1, ..right },
        SessionKey { transport: Transport::Tcp, ..right },
        SessionKey { inside: (v6("2001:db8:1::3"), 5000), ..right },
        SessionKey { inside: (v6(CLIENT), 5001), ..right },
        SessionKey { remote: (v4(OTHER), 53), ..right },
        SessionKey { remote: (v4(SERVER), 54), ..right },
    ];
    assert_eq!(bed.nat.end_sessions(bed.now, &wrong), 0);
    assert_eq!(bed.nat.occupancy().sessions, 1);
    // The same key twice ends one session.
    assert_eq!(bed.nat.end_sessions(bed.now, &[right, right]), 1);
    assert!(!bed.nat.end_session(bed.now, &right));
    assert_eq!(bed.nat.counters().sessions_cleared, 1);
}

#[test]
fn a_binding_ends_with_its_last_session_in_any_order() {
    for (first, second) in [(SERVER, OTHER), (OTHER, SERVER)] {
        for filtering in [Filtering::EndpointIndependent, Filtering::AddressDependent] {
            let mut plan = plan_with(POOL6);
            plan.nat64[0].filtering = filtering;
            let mut bed = Bed::new(&plan);
            let port = bed.through(&udp6(CLIENT, 5000, SERVER6, 53, b"x")).sport;
            bed.through(&udp6(CLIENT, 5000, OTHER6, 53, b"x"));
            assert!(bed.nat.end_session(bed.now, &udp(5000, first)));
            let back = bed.through(&udp4(second, 53, T, port, b"x"));
            assert_eq!((back.dst, back.dport), (v6(CLIENT).into(), 5000));
            if filtering == Filtering::AddressDependent {
                let verdict = bed.send(&udp4(first, 53, T, port, b"x")).verdict;
                assert_eq!(verdict, Verdict::Drop(DropReason::AddressDependentFilter));
            }
            assert_eq!((bed.nat.occupancy().sessions, bed.nat.occupancy().bindings), (1, 1));
            assert!(bed.nat.end_session(bed.now, &udp(5000, second)));
            assert_eq!((bed.nat.occupancy().sessions, bed.nat.occupancy().bindings), (0, 0));
        }
    }
}

#[test]
fn a_static_binding_stays_when_its_sessions_are_ended() {
    let mut plan = plan_with(POOL6);
    plan.nat64[0].static_bindings = vec![static_binding(Transport::Udp, (CLIENT, 5000), (T, 5000))];
    let mut bed = Bed::new(&plan);
    bed.through(&udp4(SERVER, 53, T, 5000, b"x"));
    assert!(bed.nat.end_session(bed.now, &udp(5000, SERVER)));
    assert_eq!((bed.nat.occupancy().sessions, bed.nat.occupancy().bindings), (0, 1));
    assert_eq!(bed.through(&udp4(SERVER, 53, T, 5000, b"x")).dport, 5000);
}

// proves: LOG-3
#[test]
fn thousands_of_sessions_end_at_once_with_an_event_each() {
    const PORTS: std::ops::Range<u16> = 2000..5000;
    let mut plan = plan_with(POOL6);
    let kinds = EventKinds::NONE.with(EventKind::SessionDeleted).with(EventKind::BindingDeleted);
    plan.events = EventPlan { kinds, ..EventPlan::default() };
    let mut bed = Bed::new(&plan);
    let mut reader = bed.nat.take_events().unwrap();
    for port in PORTS {
        bed.through(&udp6(CLIENT, port, SERVER6, 53, b"x"));
    }
    let keys: Vec<SessionKey> = PORTS.map(|port| udp(port, SERVER)).collect();
    assert_eq!(bed.nat.end_sessions(bed.now, &keys), PORTS.len());
    assert_eq!(bed.nat.occupancy().sessions, 0);
    for port in PORTS {
        let (session, binding) = (reader.next().unwrap(), reader.next().unwrap());
        assert_eq!((session.kind, session.inside_port), (EventKind::SessionDeleted, port));
        assert_eq!((binding.kind, binding.inside_port), (EventKind::BindingDeleted, port));
        assert_eq!((session.inside(), session.at), (v6(CLIENT), bed.now));
    }
    assert_eq!(reader.next(), None);
}
