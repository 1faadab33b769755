//! Sessions, bindings, blocks and subscribers, read in slices, and ended by a filter.

use super::common::*;
use super::{OTHER, OTHER6, POOL6, SERVER6, T};
use gatun_nat::inspect::{BindingInfo, BlockInfo, PortCursor, Selection, SessionCursor, SessionInfo};
use gatun_nat::plan::{Allocation, Blocks, EventPlan, HoldDown, Net4, Net6, Transport};
use gatun_nat::report::SubscriberStats;
use gatun_nat::tcp_fsm::TcpState;
use gatun_nat::{ClearCursor, Cleared, EventKind, EventKinds, Extent, Nat, Plan};
use std::collections::{BTreeMap, BTreeSet};

const ALL: Selection = Selection {
    instance: None,
    pool: None,
    transport: None,
    inside: None,
    inside_port: None,
    outside: None,
    outside_port: None,
    remote: None,
    remote_port: None,
};

/// Reads all sessions in slices of this budget, into lists with room for a few.
fn sessions_by(nat: &Nat, which: &Selection, budget: usize) -> Vec<SessionInfo> {
    let (mut at, mut all) = (SessionCursor::default(), Vec::new());
    while !at.done {
        let mut some = Vec::with_capacity(7);
        nat.read_sessions(&mut at, which, budget, &mut some);
        assert_eq!(some.capacity(), 7, "nothing is allocated");
        all.extend(some);
    }
    all
}

fn sessions(nat: &Nat, which: &Selection) -> Vec<SessionInfo> {
    let all = sessions_by(nat, which, 1000);
    assert_eq!(all, sessions_by(nat, which, 1), "slices of one record give the same result");
    all
}

fn bindings(nat: &Nat, which: &Selection) -> Vec<BindingInfo> {
    let read = |budget| {
        let (mut at, mut all) = (PortCursor::default(), Vec::new());
        while !at.done {
            let mut some = Vec::with_capacity(5);
            nat.read_bindings(&mut at, which, budget, &mut some);
            assert_eq!(some.capacity(), 5, "nothing is allocated");
            all.extend(some);
        }
        all
    };
    let all = read(1000);
    assert_eq!(all, read(1));
    all
}

fn blocks(nat: &Nat, which: &Selection) -> Vec<BlockInfo> {
    let (mut at, mut all) = (PortCursor::default(), Vec::new());
    while !at.done {
        let mut some = Vec::with_capacity(2);
        nat.read_blocks(&mut at, which, 3, &mut some);
        all.extend(some);
    }
    all
}

fn subscribers(nat: &Nat, which: &Selection) -> Vec<SubscriberStats> {
    let (mut next, mut all) = (Some(0), Vec::new());
    while let Some(from) = next {
        let mut some = Vec::with_capacity(2);
        next = nat.read_subscribers(from, which, 3, &mut some);
        all.extend(some);
    }
    all
}

fn host(address: &str) -> Net6 {
    Net6::new(v6(address), 128).unwrap()
}

fn net4(address: &str, len: u8) -> Net4 {
    Net4::new(v4(address), len).unwrap()
}

/// Opens a TCP, a UDP and an ICMP session for each of hosts 0 to 4, and one more remote host for host 0.
fn some_traffic(bed: &mut Bed) {
    for n in 0..5 {
        let client = format!("2001:db8:1:{n}::2");
        bed.through(&udp6(&client, 5000, SERVER6, 53, b"x"));
        bed.through(&tcp6(&client, 6000, SERVER6, 443, "S", b""));
        bed.through(&echo6(&client, SERVER6, true, 77, b"x"));
    }
    bed.through(&udp6("2001:db8:1:0::2", 5000, OTHER6, 5353, b"x"));
}

#[test]
fn every_session_is_read_once_with_both_ends_state_and_time_left() {
    let mut bed = Bed::nat64(POOL6);
    some_traffic(&mut bed);
    bed.pass_ms(1_000);
    let all = sessions(&bed.nat, &ALL);
    assert_eq!(all.len(), 16);
    let tcp =
        all.iter().find(|s| s.transport == Transport::Tcp && s.inside.0 == v6("2001:db8:1:3::2")).unwrap();
    assert_eq!((tcp.inside.1, tcp.remote, tcp.outside.0), (6000, (v4("198.51.100.7"), 443), v4(T)));
    assert_eq!((tcp.tcp, tcp.instance, tcp.pool), (Some(TcpState::V6Init), 0, 0));
    assert_eq!((tcp.of_static, tcp.shares_port), (false, false));
    let udp = all.iter().find(|s| s.transport == Transport::Udp).unwrap();
    assert_eq!(udp.tcp, None);
    let five_minutes = 300_000 - 1_000;
    assert!((five_minutes..five_minutes + 64).contains(&udp.expires_ms), "{udp:?}");
    // A packet with the reported endpoints finds its session.
    let back = bed.through(&udp4("198.51.100.7", udp.remote.1, T, udp.outside.1, b"x"));
    assert_eq!((back.dst, back.dport), (udp.inside.0.into(), udp.inside.1));
}

#[test]
fn a_selection_matches_all_of_its_conditions() {
    let mut bed = Bed::nat64(POOL6);
    some_traffic(&mut bed);
    let port = sessions(&bed.nat, &ALL)[0].outside.1;
    let net = |s: &str, len| Some(Net6::new(v6(s), len).unwrap());
    for (which, wanted) in [
        (ALL, 16),
        (Selection { transport: Some(Transport::Udp), ..ALL }, 6),
        (Selection { transport: Some(Transport::Icmp), inside: net("2001:db8:1:4::2", 128), ..ALL }, 1),
        (Selection { inside: net("2001:db8:1:4::", 64), ..ALL }, 3),
        (Selection { inside: net("2001:db8:1::", 48), ..ALL }, 16),
        (Selection { inside: net("2001:db8:2::", 48), ..ALL }, 0),
        (Selection { inside_port: Some(6000), ..ALL }, 5),
        (Selection { outside: Some(net4(T, 32)), outside_port: Some(port), ..ALL }, 2),
        (Selection { outside: Some(net4("192.0.2.2", 32)), ..ALL }, 0),
        (Selection { remote: Some(net4(OTHER, 32)), ..ALL }, 1),
        (Selection { remote: Some(net4("198.51.100.0", 24)), remote_port: Some(443), ..ALL }, 5),
        (Selection { instance: Some(1), ..ALL }, 0),
        (Selection { pool: Some(0), instance: Some(0), ..ALL }, 16),
        (Selection { pool: Some(1), ..ALL }, 0),
    ] {
        assert_eq!(sessions(&bed.nat, &which).len(), wanted, "{which:?}");
    }
}

#[test]
fn bindings_are_read_in_the_order_of_their_public_ends() {
    let mut plan = plan_with(POOL6);
    plan.pools = vec![pool(T, "192.0.2.3", (1, 65535))];
    plan.nat64[0].static_bindings = vec![static_binding(Transport::Tcp, (CLIENT, 443), ("192.0.2.2", 443))];
    let mut bed = Bed::new(&plan);
    some_traffic(&mut bed);
    let all = bindings(&bed.nat, &ALL);
    assert_eq!(all.len(), 16, "15 of hosts, and the one of the configuration");
    let order: Vec<_> = all.iter().map(|b| (b.outside.0, b.transport as u8, b.outside.1)).collect();
    assert!(order.is_sorted(), "{order:?}");
    let statics: Vec<_> = all.iter().filter(|b| b.is_static).collect();
    assert_eq!(statics.len(), 1);
    assert_eq!((statics[0].outside, statics[0].sessions), ((v4("192.0.2.2"), 443), 0));
    let busy = Selection { inside: Some(host("2001:db8:1:0::2")), transport: Some(Transport::Udp), ..ALL };
    let busy = bindings(&bed.nat, &busy);
    assert_eq!((busy.len(), busy[0].sessions, busy[0].has_more), (1, 2, false));
    let (outside, outside_port) = (Some(net4(&busy[0].outside.0.to_string(), 32)), Some(busy[0].outside.1));
    let found = bindings(&bed.nat, &Selection { outside, outside_port, ..ALL });
    assert_eq!(found, busy, "found again by its public end");
    // A binding with very many sessions delays nothing.
    for n in 0..40 {
        bed.through(&udp6(CLIENT, 9, &behind(POOL6, &format!("198.51.101.{n}")), 53, b"x"));
    }
    let many = &bindings(&bed.nat, &Selection { inside_port: Some(9), ..ALL })[0];
    assert_eq!((many.sessions, many.has_more), (16, true));
}

#[test]
fn a_walk_returns_lasting_sessions_once_while_others_come_and_go() {
    let mut bed = Bed::nat64(POOL6);
    let staying: BTreeSet<u16> = (1..2000).filter(|n| n % 3 == 0).collect();
    for port in 1..2000 {
        bed.through(&udp6(CLIENT, port, SERVER6, 53, b"x"));
    }
    let (mut by_record, mut by_port) = (BTreeMap::new(), BTreeMap::new());
    let (mut sessions_at, mut bindings_at) = (SessionCursor::default(), PortCursor::default());
    let mut step = 0u16;
    while !(sessions_at.done && bindings_at.done) {
        let (mut some, mut others) = (Vec::with_capacity(50), Vec::with_capacity(50));
        bed.nat.read_sessions(&mut sessions_at, &ALL, 40, &mut some);
        bed.nat.read_bindings(&mut bindings_at, &ALL, 400, &mut others);
        some.iter().for_each(|s| *by_record.entry(s.inside.1).or_insert(0) += 1);
        others.iter().for_each(|b| *by_port.entry(b.inside.1).or_insert(0) += 1);
        // One session ends, another one takes its record, perhaps with its port.
        step += 1;
        let gone = (step * 7) % 2000;
        if !staying.contains(&gone) {
            let which = Selection { inside_port: Some(gone), ..ALL };
            clear_all(&mut bed, &which, Extent::Session, 10_000);
        }
        bed.through(&udp6(CLIENT, 10_000 + step, SERVER6, 53, b"x"));
    }
    for met in [by_record, by_port] {
        assert!(staying.iter().all(|port| met.get(port) == Some(&1)), "{met:?}");
    }
}

#[test]
fn port_blocks_are_read_with_their_owners() {
    let mut plan = plan_with(POOL6);
    plan.pools = vec![pool(T, "192.0.2.2", (1024, 1279))];
    let terms = Blocks { size: 64, per_subscriber: 2, linger_ms: 60_000, ..Blocks::default() };
    plan.pools[0].allocation = Allocation::Blocks(terms);
    plan.nat64[0].subscriber_len = 64;
    let mut bed = Bed::new(&plan);
    for n in 0..5 {
        bed.through(&udp6(&format!("2001:db8:1:{n}::2"), 5000, SERVER6, 53, b"x"));
    }
    let all = blocks(&bed.nat, &ALL);
    assert_eq!(all.len(), 5);
    let owners: BTreeSet<Net6> = all.iter().map(|b| b.owner.1).collect();
    let wanted = (0..5).map(|n| Net6::new(v6(&format!("2001:db8:1:{n}::")), 64).unwrap());
    assert_eq!(owners, wanted.collect());
    for session in sessions(&bed.nat, &ALL) {
        let of = Selection { inside: Some(Net6::new(session.inside.0, 128).unwrap()), ..ALL };
        let block = blocks(&bed.nat, &of)[0];
        assert!((block.ports.0..=block.ports.1).contains(&session.outside.1));
        assert_eq!((block.outside, block.transports), (session.outside.0, [true; 3]));
        assert_eq!(block.ports.1 - block.ports.0, 63);
        let by_port = Selection { outside: Some(net4(&block.outside.to_string(), 32)), ..ALL };
        let by_port = Selection { outside_port: Some(session.outside.1), ..by_port };
        assert_eq!(blocks(&bed.nat, &by_port), [block]);
        assert_eq!(subscribers(&bed.nat, &of).len(), 1);
    }
    assert_eq!(subscribers(&bed.nat, &ALL).len(), 5);
    assert!(subscribers(&bed.nat, &Selection { instance: Some(1), ..ALL }).is_empty());
}

/// Ends all matching sessions in slices of this budget.
fn clear_all(bed: &mut Bed, which: &Selection, extent: Extent, budget: usize) -> Cleared {
    let (mut at, mut all) = (ClearCursor::default(), Cleared::default());
    while !at.is_done() {
        let some = bed.nat.clear(bed.now, &mut at, which, extent, budget);
        assert!(some.sessions <= 1 + budget as u64 / 8, "{some:?} for {budget}");
        all.sessions += some.sessions;
        all.bindings += some.bindings;
        assert!(bed.nat.conserved_by_instance());
    }
    all
}

// proves: LOG-3
#[test]
fn cleared_sessions_are_counted_and_reported_and_return_their_ports() {
    for budget in [1, 9, 500] {
        let mut plan = plan_with(POOL6);
        let kinds = EventKinds::NONE.with(EventKind::SessionDeleted).with(EventKind::BindingDeleted);
        plan.events = EventPlan { kinds, ..EventPlan::default() };
        let mut bed = Bed::new(&plan);
        let mut reader = bed.nat.take_events().unwrap();
        some_traffic(&mut bed);
        let which = Selection { transport: Some(Transport::Udp), ..ALL };
        assert_eq!(
            clear_all(&mut bed, &which, Extent::Session, budget),
            Cleared { sessions: 6, bindings: 5 }
        );
        let left = bed.nat.occupancy();
        assert_eq!((left.sessions, left.bindings), (10, 10));
        assert_eq!(bed.nat.counters().sessions_cleared, 6);
        assert_eq!(bed.nat.pools()[0].usage(Transport::Udp).used, 0);
        let told: Vec<EventKind> = std::iter::from_fn(|| reader.next()).map(|event| event.kind).collect();
        let of = |kind| told.iter().filter(|&&told| told == kind).count();
        assert_eq!((of(EventKind::SessionDeleted), of(EventKind::BindingDeleted), told.len()), (6, 5, 11));
        // A host that continues to send gets a new session at once.
        bed.through(&udp6("2001:db8:1:0::2", 5000, SERVER6, 53, b"x"));
    }
}

#[test]
fn a_port_of_a_cleared_binding_is_held_down_as_any_other() {
    let mut plan = plan_with(POOL6);
    plan.pools = vec![pool(T, T, (2000, 2999))];
    plan.pools[0].allocation = Allocation::Random(HoldDown { ms: 60_000, ports_max: 100 });
    let mut bed = Bed::new(&plan);
    bed.through(&udp6(CLIENT, 5000, SERVER6, 53, b"x"));
    assert_eq!(clear_all(&mut bed, &ALL, Extent::Session, 64).sessions, 1);
    let held: Vec<u64> = bed.nat.pool_stats().map(|pool| pool.ports_held).collect();
    assert_eq!(held, [1]);
}

#[test]
fn clearing_a_binding_ends_all_its_sessions_but_keeps_a_static_one() {
    for budget in [1, 20, 1000] {
        let mut plan = plan_with(POOL6);
        plan.nat64[0].static_bindings = vec![static_binding(Transport::Udp, (CLIENT, 700), (T, 700))];
        let mut bed = Bed::new(&plan);
        for n in 0..60 {
            let remote = behind(POOL6, &format!("198.51.101.{n}"));
            bed.through(&udp6(CLIENT, 5000, &remote, 53, b"x"));
            bed.through(&udp6(CLIENT, 5001, &remote, 54, b"x"));
            bed.through(&udp6(CLIENT, 700, &remote, 53, b"x"));
        }
        let which = Selection { remote: Some(net4("198.51.101.30", 32)), remote_port: Some(53), ..ALL };
        assert!(!which.is_of_bindings() && ALL.is_of_bindings());
        let cleared = clear_all(&mut bed, &which, Extent::Binding, budget);
        assert_eq!(cleared, Cleared { sessions: 120, bindings: 1 });
        let left = bed.nat.occupancy();
        assert_eq!((left.sessions, left.bindings), (60, 2), "the other host's, and the static binding");
        assert!(sessions(&bed.nat, &ALL).iter().all(|s| s.inside.1 == 5001));
        assert_eq!(bed.through(&udp4(OTHER, 53, T, 700, b"x")).dport, 700);
    }
}

#[test]
fn a_shared_port_is_read_and_its_flows_are_cleared_one_by_one() {
    let mut plan: Plan = plan_with(POOL6);
    plan.pools[0].overload = vec![(Transport::Udp, 443)];
    let mut bed = Bed::new(&plan);
    for n in 0..20 {
        let remote = behind(POOL6, &format!("198.51.101.{n}"));
        bed.through(&udp6(CLIENT, 5000 + n, &remote, 443, b"x"));
    }
    let all = bindings(&bed.nat, &ALL);
    assert_eq!((all.len(), all[0].is_shared, all[0].sessions, all[0].has_more), (1, true, 16, true));
    assert!(sessions(&bed.nat, &ALL).iter().all(|s| s.shares_port));
    assert_eq!(clear_all(&mut bed, &ALL, Extent::Binding, 100), Cleared::default());
    let one = Selection { inside_port: Some(5003), ..ALL };
    assert_eq!(clear_all(&mut bed, &one, Extent::Session, 100).sessions, 1);
    assert_eq!(bed.nat.occupancy().sessions, 19);
    assert_eq!(clear_all(&mut bed, &ALL, Extent::Session, 100).sessions, 19);
    assert_eq!(bed.nat.pools()[0].usage(Transport::Udp).used, 0);
}
