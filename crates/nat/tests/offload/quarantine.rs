//! Ports of ended sessions whose flows a fast path may have.

use crate::common::*;
use crate::*;
use gatun_nat::inspect::{PortCursor, Selection};
use gatun_nat::plan::{Allocation, Blocks, EventPlan, Filtering, StaticBinding};
use gatun_nat::{ClearCursor, Event, EventKind, EventKinds, Extent, SessionKey, Verdict};
use gatun_wire::DropReason;

fn key(id: &SessionId) -> SessionKey {
    SessionKey {
        instance: id.flow.instance,
        transport: id.flow.transport,
        inside: id.flow.inside,
        remote: id.flow.remote,
    }
}

fn clear(bed: &mut Bed) {
    let mut at = ClearCursor::default();
    while !at.is_done() {
        bed.nat.clear(bed.now, &mut at, &Selection::default(), Extent::Session, 1000);
    }
}

fn bindings(bed: &Bed) -> usize {
    let (mut at, mut found) = (PortCursor::default(), Vec::with_capacity(1000));
    while !at.done {
        bed.nat.read_bindings(&mut at, &Selection::default(), 100_000, &mut found);
    }
    assert_eq!(found.len(), bed.nat.occupancy().bindings);
    found.len()
}

/// Plan with four ports.
fn few_ports() -> Plan {
    let mut plan = both_kinds();
    plan.pools = vec![pool(T, T, (2000, 2003))];
    plan
}

#[test]
fn the_port_of_an_ended_session_is_given_to_nobody_until_its_release() {
    for offload in [Offload::Pending, Offload::Fast, Offload::Draining] {
        let (mut bed, mut reader, id) =
            marked(&few_ports(), if offload == Offload::Draining { Offload::Fast } else { offload });
        mark(&mut bed, id, offload);
        clear(&mut bed);
        let ended = sessions(&mut reader);
        assert_eq!(
            (ended[0].change, ended[0].id, ended[0].ownership.offload),
            (SessionChange::Ended, id, offload)
        );
        let there = bed.nat.occupancy();
        assert_eq!((there.sessions, there.bindings, there.quarantined, bindings(&bed)), (0, 0, 1, 0));
        let port = id.flow.outside.1;
        // No packet from outside finds the port, and no host gets it, its own one included.
        let back = bed.send(&udp4(SERVER, 53, T, port, b"y")).verdict;
        assert_eq!(back, Verdict::Drop(DropReason::NoBib));
        let mut ports: Vec<u16> = (0..3).map(|n| datagram(&mut bed, A, 4000 + n)).collect();
        assert!(!ports.contains(&port), "{ports:?}");
        let more = udp4("10.0.0.9", 4009, SERVER, 53, b"x");
        assert_eq!(bed.drops(DropReason::PortsExhausted), 0);
        bed.send(&more);
        assert_eq!(bed.drops(DropReason::PortsExhausted), 1);
        assert_eq!(order(&mut bed, id, Action::Released), CommandOutcome::Done);
        assert_eq!(bed.nat.occupancy().quarantined, 0);
        ports.push(bed.through(&more).sport);
        assert!(ports.contains(&port));
    }
}

#[test]
fn a_binding_lives_on_with_its_other_sessions_and_its_port_until_all_are_released() {
    for filtering in [Filtering::EndpointIndependent, Filtering::AddressDependent] {
        let mut plan = few_ports();
        plan.nat44[0].filtering = filtering;
        let mut bed = Bed::new(&plan);
        let mut reader = attach(&mut bed, FeedPolicy { packets: 1, ..ESTABLISHED }, 100);
        let servers = ["198.51.100.1", "198.51.100.2", "198.51.100.3", "198.51.100.4"];
        let to = |bed: &mut Bed, server: &str, port| bed.through(&udp4(A, 4000, server, port, b"x")).sport;
        let port = to(&mut bed, servers[0], 53);
        for server in servers {
            (53..56).for_each(|remote| assert_eq!(to(&mut bed, server, remote), port));
        }
        let told = sessions(&mut reader);
        assert_eq!(told.len(), 12);
        for session in told.iter().step_by(2) {
            mark(&mut bed, session.id, Offload::Fast);
        }
        // The order removes first, last and middle records.
        let order_of_ends = [0, 11, 4, 6, 1, 2, 10, 3, 9, 8, 5];
        for (n, &at) in order_of_ends.iter().enumerate() {
            assert_eq!(bed.nat.end_sessions(bed.now, &[key(&told[at].id)]), 1);
            assert_eq!(bed.nat.occupancy().sessions, 11 - n);
            assert_eq!(bindings(&bed), 1);
            // The last record is still there, and new sessions use the binding.
            let left = told[7].id.flow.remote;
            bed.through(&udp4(&left.0.to_string(), left.1, T, port, b"y"));
            assert_eq!(to(&mut bed, "198.51.100.77", 100 + n as u16), port);
            let new = SessionKey { remote: (v4("198.51.100.77"), 100 + n as u16), ..key(&told[7].id) };
            assert_eq!(bed.nat.end_sessions(bed.now, &[new]), 1);
        }
        assert_eq!(bed.nat.occupancy().quarantined, 6);
        assert_eq!(order(&mut bed, told[4].id, Action::Released), CommandOutcome::Done);
        bed.nat.end_sessions(bed.now, &[key(&told[7].id)]);
        assert_eq!((bindings(&bed), bed.nat.occupancy().quarantined), (0, 5));
        let ports: Vec<u16> = (0..3).map(|n| datagram(&mut bed, "10.0.0.6", 5000 + n)).collect();
        assert!(!ports.contains(&port));
        for at in [10, 0, 8, 2, 6] {
            assert_eq!(bed.nat.pools()[0].usage(Transport::Udp).used, 4);
            assert_eq!(order(&mut bed, told[at].id, Action::Released), CommandOutcome::Done);
        }
        assert_eq!(bed.nat.occupancy().quarantined, 0);
        assert_eq!(datagram(&mut bed, "10.0.0.7", 5000), port);
    }
}

#[test]
fn its_subscriber_keeps_port_block_and_address_and_the_log_says_when_it_gives_them_back() {
    let mut plan = both_kinds();
    plan.pools[0].allocation = Allocation::Blocks(Blocks { size: 64, linger_ms: 0, ..Blocks::default() });
    let kinds = EventKind::ALL.iter().fold(EventKinds::NONE, |kinds, &kind| kinds.with(kind));
    plan.events = EventPlan { kinds, ..EventPlan::default() };
    let (mut bed, _reader, id) = marked(&plan, Offload::Fast);
    let mut events = bed.nat.take_events().unwrap();
    let mut told =
        || -> Vec<EventKind> { std::iter::from_fn(|| events.next()).map(|e: Event| e.kind).collect() };
    use EventKind::*;
    assert_eq!(told(), [BlockAssigned, BindingCreated, SessionCreated]);
    clear(&mut bed);
    assert_eq!(told(), [SessionDeleted, BindingDeleted]);
    let subscriber = || bed.nat.subscribers().get(0).map(|s| (s.sessions, s.ports, s.holdings.blocks()));
    assert_eq!(subscriber(), Some((0, [0, 1, 0], [1, 0, 0])));
    bed.pass_ms(600_000);
    assert_eq!(told(), []);
    order(&mut bed, id, Action::Released);
    assert_eq!(told(), [BlockReleased]);
    assert_eq!(bed.nat.occupancy(), Default::default());
}

#[test]
fn a_closed_connection_keeps_its_port_until_the_release_though_its_time_is_over() {
    let mut bed = Bed::new(&both_kinds());
    let mut reader = attach(&mut bed, ESTABLISHED, 1000);
    let port = connect(&mut bed, A, 4000, SERVER);
    let id = sessions(&mut reader)[0].id;
    mark(&mut bed, id, Offload::Fast);
    bed.through(&tcp4(A, 4000, SERVER, 80, "FA", b""));
    bed.through(&tcp4(SERVER, 80, T, port, "FA", b""));
    bed.pass_ms(500_000);
    assert_eq!(bed.nat.occupancy().sessions, 1, "asked for, as any with a mark");
    assert!(changes(&mut reader).contains(&SessionChange::Asked));
    order(&mut bed, id, Action::Released);
    bed.pass_ms(5_000);
    assert_eq!(bed.nat.occupancy(), Default::default());
}

#[test]
fn a_static_binding_stays_and_its_port_is_never_its_subscribers() {
    let mut plan = few_ports();
    let binding = StaticBinding {
        transport: Transport::Udp,
        inside: (v4(A).to_ipv6_mapped(), 5353),
        outside: (v4(T), 2001),
    };
    plan.nat44[0].static_bindings = vec![binding];
    let mut bed = Bed::new(&plan);
    let mut reader = attach(&mut bed, FeedPolicy { packets: 1, ..ESTABLISHED }, 100);
    for server in ["198.51.100.1", "198.51.100.2"] {
        bed.through(&udp4(server, 53, T, 2001, b"x"));
    }
    let told = sessions(&mut reader);
    told.iter().for_each(|s| assert_eq!(mark(&mut bed, s.id, Offload::Fast), CommandOutcome::Done));
    clear(&mut bed);
    let there = bed.nat.occupancy();
    assert_eq!((there.sessions, there.bindings, there.quarantined, there.subscribers), (0, 1, 2, 0));
    // Other sessions begin and end meanwhile.
    for n in 0..6 {
        bed.through(&udp4("198.51.100.1", 53 + n % 3, T, 2001, b"x"));
        bed.through(&udp4(A, 5353, "198.51.100.3", 53, b"x"));
    }
    assert_eq!(bed.nat.occupancy().sessions, 4);
    clear(&mut bed);
    let again = sessions(&mut reader).len();
    assert!(again > 4, "{again}");
    told.iter().for_each(|s| assert_eq!(order(&mut bed, s.id, Action::Released), CommandOutcome::Done));
    let there = bed.nat.occupancy();
    assert_eq!((there.bindings, there.quarantined, there.subscribers), (1, 0, 0));
    bed.through(&udp4("198.51.100.9", 53, T, 2001, b"x"));
}

#[test]
fn a_flow_that_begins_again_may_wait_beside_its_like_that_has_ended() {
    let (mut bed, mut reader, first) = marked(&both_kinds(), Offload::Fast);
    let mut kept = vec![first];
    for _ in 0..5 {
        clear(&mut bed);
        assert_eq!(changes(&mut reader), [SessionChange::Ended]);
        datagram(&mut bed, A, 4000);
        let id = sessions(&mut reader)[0].id;
        assert!(kept.iter().all(|other| other.record != id.record && other.flow.outside != id.flow.outside));
        mark(&mut bed, id, Offload::Fast);
        kept.push(id);
    }
    assert_eq!(bed.nat.occupancy().quarantined, 5);
    kept.iter().for_each(|&id| assert_eq!(order(&mut bed, id, Action::Released), CommandOutcome::Done));
    clear(&mut bed);
    assert_eq!(bed.nat.occupancy(), Default::default());
}

#[test]
fn quarantined_records_fill_the_table_but_go_with_their_release() {
    let mut plan = both_kinds();
    plan.limits.sessions_max = 4;
    plan.limits.sessions_reserved = 0;
    let mut bed = Bed::new(&plan);
    let mut reader = attach(&mut bed, FeedPolicy { packets: 1, ..ESTABLISHED }, 10_000);
    let mut held = Vec::new();
    // The table has 4 sessions and the records for static bindings: then it is full.
    while bed.send(&udp4(A, 4000, SERVER, 53, b"x")).verdict == Verdict::Forward {
        let id = sessions(&mut reader)[0].id;
        mark(&mut bed, id, Offload::Fast);
        held.push(id);
        clear(&mut bed);
        records(&mut reader);
    }
    assert!(held.len() > 200, "{}", held.len());
    assert!(bed.drops(DropReason::SessionTableFull) > 0);
    held.iter().for_each(|&id| assert_eq!(order(&mut bed, id, Action::Released), CommandOutcome::Done));
    assert_eq!(bed.nat.occupancy(), Default::default());
    datagram(&mut bed, A, 4000);
}
