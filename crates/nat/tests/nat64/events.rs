//! Events of sessions, bindings, port blocks, quotas and pools, and the data that they leave out.

use super::common::*;
use super::{OTHER6, POOL6, SERVER6, T};
use gatun_nat::event::Gauge;
use gatun_nat::plan::{Allocation, Blocks, EventPlan};
use gatun_nat::{Event, EventKind, EventKinds, EventReader, Plan, Reply, Verdict};
use gatun_wire::DropReason;
use std::collections::BTreeMap;
use std::net::Ipv6Addr;

fn client(n: u32) -> String {
    format!("2001:db8:1:{n:x}::1")
}

fn all() -> EventKinds {
    EventKind::ALL.iter().fold(EventKinds::NONE, |kinds, &kind| kinds.with(kind))
}

/// Plan with two addresses with four blocks of 64 ports each. A subscriber is a /64, and all events are
/// reported.
fn plan() -> Plan {
    let mut plan = plan_with(POOL6);
    plan.pools = vec![pool("192.0.2.1", "192.0.2.2", (1024, 1279))];
    let blocks = Blocks { size: 64, per_subscriber: 1, linger_ms: 60_000, ..Blocks::default() };
    plan.pools[0].allocation = Allocation::Blocks(blocks);
    plan.nat64[0].subscriber_len = 64;
    plan.events = EventPlan { kinds: all(), ..EventPlan::default() };
    plan
}

fn bed(plan: &Plan) -> (Bed, EventReader) {
    let mut bed = Bed::new(plan);
    let reader = bed.nat.take_events().expect("events are wanted");
    (bed, reader)
}

fn read(reader: &mut EventReader) -> Vec<Event> {
    std::iter::from_fn(|| reader.next()).collect()
}

fn kinds(events: &[Event]) -> Vec<EventKind> {
    events.iter().map(|e| e.kind).collect()
}

// proves: R68-16, R68-12, PBA-1, LOG-3
#[test]
fn session_events_have_inside_outside_and_time_but_no_destination() {
    use EventKind::*;
    let (mut bed, mut reader) = bed(&plan());
    let out = bed.through(&udp6(&client(7), 3000, SERVER6, 53, b"x"));
    bed.through(&udp6(&client(7), 3000, OTHER6, 53, b"x"));
    bed.through(&udp6(&client(7), 3000, OTHER6, 53, b"x"));
    let events = read(&mut reader);
    assert_eq!(kinds(&events), [BlockAssigned, BindingCreated, SessionCreated, SessionCreated]);
    let first = out.sport & !63;
    let block = &events[0];
    assert_eq!(
        (block.outside(), block.outside_port, block.outside_last),
        (v4("192.0.2.1"), first, first + 63)
    );
    assert_eq!(block.inside(), v6("2001:db8:1:7::"), "the subscriber");
    assert_eq!((block.transports(), block.instance, block.pool), ([true; 3], 0, 0));
    for e in &events[1..] {
        assert_eq!((e.inside(), e.inside_port), (v6(&client(7)), 3000));
        assert_eq!((e.outside(), e.outside_port, e.outside_last), (block.outside(), out.sport, out.sport));
        assert_eq!((e.transports(), e.at), ([false, true, false], bed.now));
        assert_eq!((e.remote(), e.remote_port), (v4("0.0.0.0"), 0));
    }
    bed.pass_ms(305_000);
    let events = read(&mut reader);
    assert_eq!(kinds(&events), [SessionDeleted, SessionDeleted, BindingDeleted]);
    assert_eq!((events[2].outside_port, events[2].inside_port), (out.sport, 3000));
    bed.pass_ms(61_000);
    let events = read(&mut reader);
    assert_eq!(kinds(&events), [BlockReleased]);
    let e = &events[0];
    assert_eq!((e.inside(), e.outside_port, e.outside_last), (v6("2001:db8:1:7::"), first, first + 63));
    assert_eq!(bed.nat.events_lost(), 0);
}

// proves: LOG-3
#[test]
fn events_have_destinations_if_configured() {
    let mut plan = plan();
    plan.events.destinations = true;
    plan.events.kinds = EventKinds::NONE.with(EventKind::SessionCreated).with(EventKind::BindingCreated);
    let (mut bed, mut reader) = bed(&plan);
    bed.through(&tcp6(&client(1), 3000, SERVER6, 443, "S", b""));
    let events = read(&mut reader);
    assert_eq!(kinds(&events), [EventKind::BindingCreated, EventKind::SessionCreated]);
    assert_eq!((events[0].remote(), events[0].remote_port), (v4("0.0.0.0"), 0), "a binding has none");
    assert_eq!((events[1].remote(), events[1].remote_port), (v4(SERVER), 443));
}

// proves: R68-14
#[test]
fn with_blocks_a_day_of_a_subscriber_is_a_record_or_two_a_block() {
    let mut plan = plan();
    plan.events.kinds = EventKinds::FEW;
    let (mut bed, mut reader) = bed(&plan);
    for round in 0..40u16 {
        for n in 0..50 {
            bed.through(&udp6(&client(3), 2000 + round * 50 + n, SERVER6, 53, b"x"));
        }
        // Sessions end, the block lingers, and is used again.
        bed.pass_ms(310_000);
    }
    assert_eq!(kinds(&read(&mut reader)), [EventKind::BlockAssigned]);
}

// proves: R68-11
#[test]
fn quotas_and_exhausted_pools_are_reported_but_not_for_each_packet() {
    let mut plan = plan();
    plan.events.kinds = EventKinds::NONE.with(EventKind::QuotaHit).with(EventKind::PoolExhausted);
    let (mut bed, mut reader) = bed(&plan);
    (0..300).for_each(|p| drop(bed.send(&udp6(&client(1), 2000 + p, SERVER6, 53, b"x"))));
    let events = read(&mut reader);
    assert_eq!(kinds(&events), [EventKind::QuotaHit]);
    assert_eq!(
        (events[0].reason, events[0].inside()),
        (Some(DropReason::SubscriberBlockQuota), v6("2001:db8:1:1::"))
    );
    assert_eq!(bed.drops(DropReason::SubscriberBlockQuota), 300 - 64);
    (2..60).for_each(|n| drop(bed.send(&tcp6(&client(n), 2000, SERVER6, 80, "S", b""))));
    let events = read(&mut reader);
    assert_eq!(kinds(&events), [EventKind::PoolExhausted]);
    assert_eq!((events[0].reason, events[0].pool), (Some(DropReason::BlockNone), 0));
    assert_eq!(events[0].transports(), [true, false, false]);
    bed.now = bed.now.plus_ms(11_000);
    bed.send(&udp6(&client(1), 1999, SERVER6, 53, b"x"));
    bed.send(&tcp6(&client(99), 2000, SERVER6, 80, "S", b""));
    assert_eq!(kinds(&read(&mut reader)), [EventKind::QuotaHit, EventKind::PoolExhausted]);
}

#[test]
fn thresholds_are_reported_in_both_directions_with_hysteresis() {
    let mut plan = plan_with(POOL6);
    plan.pools = vec![pool(T, T, (2000, 2099))];
    plan.limits.sessions_max = 1_000;
    plan.events = EventPlan {
        kinds: EventKinds::NONE.with(EventKind::ThresholdHigh).with(EventKind::ThresholdLow),
        threshold: 90,
        ..EventPlan::default()
    };
    let (mut bed, mut reader) = bed(&plan);
    for n in 0..100 {
        bed.through(&udp6(&client(n), 3000, SERVER6, 53, b"x"));
        let told = kinds(&read(&mut reader));
        assert_eq!(told, if n == 89 { vec![EventKind::ThresholdHigh] } else { vec![] }, "{n}");
    }
    bed.pass_ms(310_000);
    let events = read(&mut reader);
    assert_eq!(kinds(&events), [EventKind::ThresholdLow]);
    assert_eq!((events[0].value, events[0].total, events[0].gauge), (79, 100, Some(Gauge::PoolPorts)));
}

#[test]
fn the_session_that_fills_a_table_reports_its_threshold() {
    let mut plan = plan_with(POOL6);
    plan.limits.sessions_max = 10;
    let kinds = EventKinds::NONE.with(EventKind::ThresholdHigh);
    plan.events = EventPlan { kinds, threshold: 100, ..EventPlan::default() };
    let (mut bed, mut reader) = bed(&plan);
    for n in 0..9 {
        bed.through(&udp6(&client(n), 3000, SERVER6, 53, b"x"));
    }
    assert_eq!(read(&mut reader), []);
    bed.through(&udp6(&client(9), 3000, SERVER6, 53, b"x"));
    let events = read(&mut reader);
    let sessions = events.iter().find(|e| e.gauge == Some(Gauge::Sessions)).expect("it is full");
    assert_eq!((sessions.value, sessions.total), (10, 10));
}

// proves: LOG-4
#[test]
fn a_slow_reader_gets_the_number_of_lost_events_and_packets_do_not_wait() {
    let mut plan = plan();
    plan.pools = vec![pool(T, T, (1024, 65_535))];
    plan.events.ring_len = 100;
    let (mut bed, mut reader) = bed(&plan);
    for n in 0..1000 {
        bed.through(&udp6(&client(n), 3000, SERVER6, 53, b"x"));
    }
    // Bindings have their own ring: sessions do not displace them.
    assert_eq!(bed.nat.events_lost(), 900);
    let told = read(&mut reader);
    assert_eq!(told.iter().filter(|event| event.kind == EventKind::BindingCreated).count(), 1000);
    assert_eq!(told.len(), 1100);
    bed.nat.expire(bed.now, 10);
    let events = read(&mut reader);
    assert_eq!(kinds(&events), [EventKind::EventsLost]);
    assert_eq!(events[0].value, 900);
}

// proves: LOG-5
#[test]
fn creation_and_deletion_events_balance() {
    let mut plan = plan();
    plan.limits.sessions_max = 50;
    plan.limits.sessions_per_subscriber = 20;
    let (mut bed, mut reader) = bed(&plan);
    let mut live: BTreeMap<(Ipv6Addr, u16, [bool; 3]), i32> = BTreeMap::new();
    let mut blocks: BTreeMap<(std::net::Ipv4Addr, u16), i32> = BTreeMap::new();
    let (mut sessions, mut most) = (0, 0);
    for round in 0..400u32 {
        let port = 3000 + (round % 37) as u16;
        let to = if round % 5 == 0 { OTHER6 } else { SERVER6 };
        let packet = match round % 3 {
            0 => udp6(&client(round % 9), port, to, 53, b"x"),
            1 => tcp6(&client(round % 9), port, to, 80, "S", b""),
            _ => echo6(&client(round % 9), to, true, port, b"x"),
        };
        let verdict = bed.send(&packet).verdict;
        assert!(matches!(verdict, Verdict::Forward | Verdict::Drop(_) | Verdict::Reply(Reply::Error(_))));
        if round % 50 == 49 {
            bed.pass_ms(70_000);
        }
        for e in read(&mut reader) {
            match e.kind {
                EventKind::SessionCreated => sessions += 1,
                EventKind::SessionDeleted => sessions -= 1,
                EventKind::BindingCreated => {
                    *live.entry((e.inside(), e.inside_port, e.transports())).or_default() += 1
                }
                EventKind::BindingDeleted => {
                    *live.entry((e.inside(), e.inside_port, e.transports())).or_default() -= 1
                }
                EventKind::BlockAssigned => *blocks.entry((e.outside(), e.outside_port)).or_default() += 1,
                EventKind::BlockReleased => *blocks.entry((e.outside(), e.outside_port)).or_default() -= 1,
                _ => {}
            }
        }
        assert!(live.values().chain(blocks.values()).all(|n| (0..=1).contains(n)));
        let occupancy = bed.nat.occupancy();
        assert_eq!(occupancy.sessions, sessions as usize);
        assert_eq!(occupancy.bindings as i32, live.values().sum::<i32>());
        let owned = bed.nat.pools()[0].block_usage().unwrap().owned;
        assert_eq!(owned as i32, blocks.values().sum::<i32>());
        most = most.max(sessions);
    }
    assert_eq!(most, 50, "the table was full");
}

// proves: LOG-4
#[test]
fn clearing_a_million_sessions_loses_no_event_with_a_reader() {
    const SESSIONS: u32 = 1_000_000;
    let mut plan = plan();
    plan.pools = vec![pool(T, T, (1024, 65_535))];
    plan.pools[0].ranges[0].last = (u32::from(plan.pools[0].ranges[0].first) + 31).into();
    plan.limits.sessions_max = SESSIONS + 10;
    plan.limits.subscribers_max = SESSIONS + 10;
    let (mut bed, mut reader) = bed(&plan);
    let mut counts = BTreeMap::<EventKind, u32>::new();
    let mut next_number = 0;
    let mut drain = |reader: &mut EventReader, most: usize| {
        for (event, at) in std::iter::from_fn(|| reader.next_numbered()).take(most) {
            *counts.entry(event.kind).or_default() += 1;
            if let Some(at) = at {
                assert_eq!(at.number, next_number, "no gap");
                next_number += 1;
            }
        }
        counts.clone()
    };
    for n in 0..SESSIONS {
        bed.forward_unchecked(&udp6(&client(n & 0xffff), 3000 + (n >> 16) as u16, SERVER6, 53, b"x"));
        drain(&mut reader, usize::MAX);
    }
    assert!(bed.nat.conserved_by_instance() && bed.nat.conserved_by_address());
    let mut at = gatun_nat::ClearCursor::default();
    let all = gatun_nat::inspect::Selection::default();
    // The reader takes less at a time than a walk without regard for the reader would end.
    while !at.is_done() {
        bed.nat.clear(bed.now, &mut at, &all, gatun_nat::Extent::Session, 1 << 20);
        drain(&mut reader, 30_000);
    }
    let counts = drain(&mut reader, usize::MAX);
    let ended = [EventKind::SessionDeleted, EventKind::BindingDeleted].map(|kind| counts.get(&kind).copied());
    assert_eq!(ended, [Some(SESSIONS), Some(SESSIONS)]);
    assert_eq!((counts.get(&EventKind::EventsLost), bed.nat.events_lost()), (None, 0));
}
