//! A reload while a fast path has flows.

use crate::common::*;
use crate::*;
use gatun_nat::plan::{Allocation, Blocks, EventPlan, StaticBinding};
use gatun_nat::reconfigure::{ApplyError, Change};
use gatun_nat::{EventKind, EventKinds};

fn apply(bed: &mut Bed, old: &Plan, new: &Plan) -> Result<(), ApplyError> {
    let mut change = Change::prepare(&bed.nat.outline(), old, new).unwrap();
    bed.nat.apply(bed.now, &mut change)
}

/// Does everything that needs no time to pass.
fn settle(bed: &mut Bed) {
    for _ in 0..100 {
        bed.nat.expire(bed.now, 64);
    }
}

fn two_addresses() -> Plan {
    let mut plan = both_kinds();
    plan.pools = vec![pool("192.0.2.1", "192.0.2.2", (2048, 2048 + 255))];
    plan
}

fn binding(inside: u16, outside: u16) -> StaticBinding {
    StaticBinding {
        transport: Transport::Udp,
        inside: (v4(A).to_ipv6_mapped(), inside),
        outside: (v4(T), outside),
    }
}

#[test]
fn a_reload_that_ends_flows_is_over_when_the_fast_path_has_released_them() {
    for blocks in [false, true] {
        let mut plan = two_addresses();
        let kinds = EventKinds::NONE.with(EventKind::BlockReleased).with(EventKind::SessionDeleted);
        plan.events = EventPlan { kinds, ..EventPlan::default() };
        if blocks {
            plan.pools[0].allocation = Allocation::Blocks(Blocks { size: 64, ..Blocks::default() });
        }
        let mut fewer = plan.clone();
        fewer.pools[0].ranges[0].last = v4(T);
        let mut bed = Bed::new(&plan);
        let mut events = bed.nat.take_events().unwrap();
        let mut reader = attach(&mut bed, FeedPolicy { packets: 1, ..ESTABLISHED }, 1000);
        for n in 1..=6 {
            (0..4).for_each(|port| _ = datagram(&mut bed, &format!("10.0.0.{n}"), 4000 + port));
        }
        let all = sessions(&mut reader);
        all.iter().for_each(|s| assert_eq!(mark(&mut bed, s.id, Offload::Fast), CommandOutcome::Done));
        let gone: Vec<_> = all.iter().filter(|s| s.id.flow.outside.0 != v4(T)).collect();
        assert!(!gone.is_empty() && gone.len() < 24);

        apply(&mut bed, &plan, &fewer).unwrap();
        settle(&mut bed);
        // All end at once; waiting costs no processor time.
        assert_eq!(bed.nat.settled().sessions, gone.len() as u64);
        assert_eq!(bed.nat.occupancy().quarantined, gone.len());
        let told: Vec<_> = std::iter::from_fn(|| events.next()).map(|e| e.kind).collect();
        assert_eq!(told, vec![EventKind::SessionDeleted; gone.len()], "no block yet");
        assert!(bed.nat.is_settling() && bed.nat.expire(bed.now, 64) > 0);
        assert_eq!(
            apply(&mut bed, &fewer, &plan),
            Err(ApplyError::Settling),
            "the address may not come back"
        );
        for session in &gone {
            assert!(bed.nat.is_settling());
            assert_eq!(order(&mut bed, session.id, Action::Released), CommandOutcome::Done);
        }
        settle(&mut bed);
        assert!(!bed.nat.is_settling());
        let told: Vec<_> = std::iter::from_fn(|| events.next()).map(|e| e.kind).collect();
        assert_eq!(told.contains(&EventKind::BlockReleased), blocks);
        apply(&mut bed, &fewer, &plan).unwrap();
        settle(&mut bed);
        assert!(!bed.nat.is_settling(), "the others do not concern it");
        assert_eq!(bed.nat.occupancy().sessions, 24 - gone.len());
    }
}

#[test]
fn hosts_that_are_served_no_longer_are_waited_for_too() {
    let plan = both_kinds();
    let (mut bed, mut reader, id) = marked(&plan, Offload::Fast);
    let mut other = plan.clone();
    other.nat44[0].inside = vec![Net4::new(v4("10.9.0.0"), 16).unwrap()];
    apply(&mut bed, &plan, &other).unwrap();
    settle(&mut bed);
    assert_eq!((bed.nat.occupancy().sessions, bed.nat.is_settling()), (0, true));
    assert!(
        records(&mut reader)
            .iter()
            .any(|r| matches!(r, Record::Session(s) if s.change == SessionChange::Ended))
    );
    order(&mut bed, id, Action::Released);
    settle(&mut bed);
    assert!(!bed.nat.is_settling());
}

#[test]
fn a_static_binding_goes_after_the_flows_of_its_port() {
    for allocation in [Allocation::default(), Allocation::Blocks(Blocks { size: 64, ..Blocks::default() })] {
        let mut with = two_addresses();
        with.pools[0].allocation = allocation;
        let without = with.clone();
        with.nat44[0].static_bindings = vec![binding(5353, 2100), binding(5354, 2101)];
        let mut bed = Bed::new(&with);
        let mut reader = attach(&mut bed, FeedPolicy { packets: 1, ..ESTABLISHED }, 1000);
        bed.through(&udp4(SERVER, 53, T, 2100, b"x"));
        let id = sessions(&mut reader)[0].id;
        mark(&mut bed, id, Offload::Fast);
        apply(&mut bed, &with, &without).unwrap();
        settle(&mut bed);
        assert_eq!((bed.nat.occupancy().sessions, bed.nat.occupancy().quarantined), (0, 1));
        assert!(bed.nat.is_settling() && bed.nat.expire(bed.now, 64) > 0);
        order(&mut bed, id, Action::Released);
        settle(&mut bed);
        assert_eq!((bed.nat.is_settling(), bed.nat.occupancy().bindings), (false, 0));
        let usage = bed.nat.pools()[0].usage(Transport::Udp);
        assert_eq!((usage.used, usage.total), (0, 512));
    }
}

#[test]
fn a_static_binding_comes_after_the_flows_of_its_port() {
    for allocation in [Allocation::default(), Allocation::Blocks(Blocks { size: 64, ..Blocks::default() })] {
        let mut plan = two_addresses();
        plan.pools[0].ranges[0].last = v4(T);
        plan.pools[0].allocation = allocation;
        let (mut bed, _reader, id) = marked(&plan, Offload::Fast);
        let mut with = plan.clone();
        with.nat44[0].static_bindings = vec![binding(5353, id.flow.outside.1)];
        apply(&mut bed, &plan, &with).unwrap();
        settle(&mut bed);
        assert_eq!((bed.nat.occupancy().sessions, bed.nat.occupancy().bindings), (0, 0));
        assert!(bed.nat.is_settling() && bed.nat.expire(bed.now, 64) > 0);
        order(&mut bed, id, Action::Released);
        settle(&mut bed);
        assert_eq!((bed.nat.is_settling(), bed.nat.settled().static_bindings_refused), (false, 0));
        bed.through(&udp4(SERVER, 53, T, id.flow.outside.1, b"x"));
    }
}

#[test]
fn a_reload_that_ends_nothing_waits_for_nobody() {
    let plan = both_kinds();
    let (mut bed, _reader, id) = marked(&plan, Offload::Fast);
    let key = gatun_nat::SessionKey {
        instance: 1,
        transport: transport(&id),
        inside: id.flow.inside,
        remote: id.flow.remote,
    };
    assert_eq!(bed.nat.end_sessions(bed.now, &[key]), 1);
    let mut other = plan.clone();
    other.limits.sessions_max = 1000;
    apply(&mut bed, &plan, &other).unwrap();
    settle(&mut bed);
    assert_eq!((bed.nat.is_settling(), bed.nat.occupancy().quarantined), (false, 1));
}
