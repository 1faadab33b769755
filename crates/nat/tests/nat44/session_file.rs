//! Sessions that outlive their engine, as after a kill of its process.

use super::common::*;
use super::{A, B, OTHER, POOL6, SERVER, both_kinds};
use gatun_mem::BorrowedFd;
use gatun_nat::inspect::{Selection, SessionCursor, SessionInfo};
use gatun_nat::plan::{Allocation, Blocks, EventPlan, Filtering, StaticBinding, Transport};
use gatun_nat::session_file::{
    LAYOUT, Offload, Ownership, RestoreError, SavedSession, SavedSessions, SessionFile, SessionFileError,
};
use gatun_nat::tcp_fsm::TcpState;
use gatun_nat::{EventKind, EventKinds, Instant, Nat, Plan, Verdict};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

pub(crate) const HOST6: &str = "2001:db8:1::2";
pub(crate) const NEIGHBOUR6: &str = "2001:db8:1::3";
/// Clock reading at the start of the first engine.
pub(crate) const ZERO_MS: u64 = 5_000_000;

pub(crate) fn file(plan: &Plan) -> File {
    let fd = memfd_create("sessions", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&fd, SessionFile::bytes(plan)).unwrap();
    File::from(fd)
}

pub(crate) fn fd(file: &File) -> BorrowedFd<'_> {
    file.as_fd()
}

pub(crate) fn with_session_file(plan: &Plan, file: &File, seed: u64) -> Bed {
    let records = SessionFile::new(fd(file), plan, ZERO_MS).unwrap();
    Bed { nat: Nat::with_session_file(plan, [seed, 2, 3, 4], Some(records)).unwrap(), ..Bed::new(plan) }
}

/// Returns the sessions in a file `later_ms` after the time of `bed`.
fn saved(file: &File, bed: &Bed, later_ms: u64) -> Vec<SavedSession> {
    let records = SavedSessions::read(fd(file), ZERO_MS + bed.now.0 + later_ms).unwrap();
    records.sessions().collect()
}

pub(crate) fn sessions(nat: &Nat) -> Vec<SessionInfo> {
    let (mut at, mut all) = (SessionCursor::default(), Vec::new());
    while !at.done {
        let mut some = Vec::with_capacity(100);
        nat.read_sessions(&mut at, &Selection::default(), 1000, &mut some);
        all.extend(some);
    }
    all.sort_by_key(|s| (s.instance, s.transport as u8, s.inside, s.remote));
    all
}

/// Plans with each kind of port allocation.
pub(crate) fn plans() -> Vec<Plan> {
    let blocks = Blocks { size: 64, per_subscriber: 8, linger_ms: 60_000, ..Blocks::default() };
    let with = |change: &dyn Fn(&mut Plan)| {
        let mut plan = both_kinds();
        plan.limits.sessions_max = 2000;
        plan.limits.subscribers_max = 500;
        plan.nat64[0].subscriber_len = 64;
        let binding = |inside, outside: u16| StaticBinding {
            transport: Transport::Udp,
            inside,
            outside: (v4("192.0.2.1"), outside),
        };
        plan.nat64[0].static_bindings = vec![binding((v6(HOST6), 53), 53)];
        let kinds = EventKind::ALL.iter().fold(EventKinds::NONE, |kinds, &kind| kinds.with(kind));
        plan.events = EventPlan { kinds, ..EventPlan::default() };
        change(&mut plan);
        plan
    };
    vec![
        with(&|_| ()),
        with(&|plan| plan.pools[0].allocation = Allocation::Blocks(blocks)),
        with(&|plan| plan.pools[0].overload = vec![(Transport::Udp, 443), (Transport::Tcp, 443)]),
        with(&|plan| {
            plan.nat64[0].filtering = Filtering::AddressDependent;
            plan.nat44[0].filtering = Filtering::AddressDependent;
        }),
    ]
}

/// Opens sessions of all protocols: some share bindings, some ports.
pub(crate) fn live(bed: &mut Bed) {
    let remote6 = |n: u32| behind(POOL6, &remote(n));
    for n in 0..40 {
        let port = 4000 + n as u16 / 3;
        bed.through(&udp6(HOST6, port, &remote6(n), 53, b"x"));
        bed.through(&udp6(HOST6, 53, &remote6(n), 5353, b"x"));
        bed.through(&udp6(NEIGHBOUR6, 5000 + n as u16, &remote6(n), 443, b"x"));
        bed.through(&udp4(if n % 2 == 0 { A } else { B }, port, &remote(n), 443, b"x"));
        bed.through(&tcp6(HOST6, port, &remote6(n), 80, "S", b""));
        bed.through(&echo6(HOST6, &remote6(n), true, port, b"x"));
        bed.through(&echo4(A, &remote(n), true, port, b"x"));
        let out = bed.through(&tcp4(B, port, &remote(n), 80, "S", b""));
        bed.through(&tcp4(&remote(n), 80, &out.src.to_string(), out.sport, "SA", b""));
        if n % 4 == 0 {
            bed.through(&tcp4(B, port, &remote(n), 80, "FA", b""));
        }
    }
}

pub(crate) fn remote(n: u32) -> String {
    format!("198.51.100.{}", 10 + n)
}

/// Sends a packet of a session from inside, and its answer. Returns both translations.
pub(crate) fn both_ways(bed: &mut Bed, s: &SessionInfo) -> (Ends, Ends) {
    let (inside, port) = (s.inside.0, s.inside.1);
    let (remote, remote_port) = (s.remote.0.to_string(), s.remote.1);
    let (outside, outside_port) = (s.outside.0.to_string(), s.outside.1);
    let out = match (s.transport, inside.to_ipv4_mapped()) {
        (Transport::Tcp, Some(a)) => tcp4(&a.to_string(), port, &remote, remote_port, "A", b"x"),
        (Transport::Udp, Some(a)) => udp4(&a.to_string(), port, &remote, remote_port, b"x"),
        (Transport::Icmp, Some(a)) => echo4(&a.to_string(), &remote, true, port, b"x"),
        (Transport::Tcp, None) => {
            tcp6(&inside.to_string(), port, &behind(POOL6, &remote), remote_port, "A", b"x")
        }
        (Transport::Udp, None) => udp6(&inside.to_string(), port, &behind(POOL6, &remote), remote_port, b"x"),
        (Transport::Icmp, None) => echo6(&inside.to_string(), &behind(POOL6, &remote), true, port, b"x"),
    };
    let back = match s.transport {
        Transport::Tcp => tcp4(&remote, remote_port, &outside, outside_port, "A", b"y"),
        Transport::Udp => udp4(&remote, remote_port, &outside, outside_port, b"y"),
        Transport::Icmp => echo4(&remote, &outside, false, outside_port, b"y"),
    };
    (bed.through(&out), bed.through(&back))
}

#[test]
fn every_session_continues_in_the_next_engine_with_few_events() {
    for plan in plans() {
        let first = file(&plan);
        let mut before = with_session_file(&plan, &first, 1);
        live(&mut before);
        let had = sessions(&before.nat);
        assert!(had.len() > 280, "{}", had.len());

        let second = file(&plan);
        let mut after = with_session_file(&plan, &second, 9);
        after.now = Instant(77);
        let mut events = after.nat.take_events().unwrap();
        while events.next().is_some() {}
        for saved in saved(&first, &before, 0) {
            assert_eq!(after.nat.restore(after.now, &saved), Ok(()), "{saved:?}");
            assert_eq!(after.nat.restore(after.now, &saved), Err(RestoreError::Exists));
        }
        // A log reader gets events for restored state only.
        let told: Vec<EventKind> = std::iter::from_fn(|| events.next()).map(|e| e.kind).collect();
        let blocks =
            after.nat.pool_stats().filter_map(|pool| pool.blocks).map(|blocks| blocks.owned).sum::<u64>();
        assert_eq!(told.iter().filter(|&&kind| kind == EventKind::BlockKept).count() as u64, blocks);
        assert!(told.contains(&EventKind::BindingKept));
        assert!(told.iter().all(|kind| [EventKind::BlockKept, EventKind::BindingKept].contains(kind)));
        let has = sessions(&after.nat);
        let timeless = |s: &SessionInfo| SessionInfo { expires_ms: 0, ..*s };
        assert_eq!(has.len(), had.len());
        for (has, had) in has.iter().zip(&had) {
            assert!(has.expires_ms.abs_diff(had.expires_ms) <= 200, "{has:?}, {had:?}");
            assert_eq!(timeless(has), timeless(had));
        }
        assert_eq!(after.nat.occupancy(), before.nat.occupancy());
        for transport in [Transport::Tcp, Transport::Udp, Transport::Icmp] {
            assert_eq!(after.nat.pools()[0].usage(transport), before.nat.pools()[0].usage(transport));
        }
        // The third engine takes them over from the second one.
        let third = file(&plan);
        let mut last = with_session_file(&plan, &third, 10);
        for saved in saved(&second, &after, 0) {
            assert_eq!(last.nat.restore(last.now, &saved), Ok(()));
        }
        for s in &had {
            let wanted = both_ways(&mut before, s);
            assert_eq!(both_ways(&mut after, s), wanted, "{s:?}");
            assert_eq!(both_ways(&mut last, s), wanted, "{s:?}");
        }
        assert_eq!(sessions(&last.nat).len(), had.len(), "no further session was created");
        // All ports return.
        after.pass_ms(10_000_000);
        after.pass_ms(300_000);
        assert_eq!(after.nat.occupancy().sessions, 0);
        assert_eq!(after.nat.pools()[0].usage(Transport::Tcp).used, 0);
    }
}

#[test]
fn new_bindings_take_no_port_of_an_old_one() {
    for plan in plans() {
        let first = file(&plan);
        let mut before = with_session_file(&plan, &first, 1);
        live(&mut before);
        let mut after = with_session_file(&plan, &file(&plan), 9);
        for saved in saved(&first, &before, 0) {
            after.nat.restore(after.now, &saved).unwrap();
        }
        let had = sessions(&after.nat);
        for n in 0..100 {
            let new = after.through(&udp4("100.64.9.9", 9000 + n, SERVER, 80, b"x"));
            let taken = |s: &&SessionInfo| s.transport == Transport::Udp && s.outside.1 == new.sport;
            assert!(had.iter().find(taken).is_none(), "port {}", new.sport);
        }
    }
}

#[test]
fn sessions_against_a_changed_plan_are_not_restored_for_a_reason() {
    let plan = &plans()[1];
    let first = file(plan);
    let mut before = with_session_file(plan, &first, 1);
    live(&mut before);
    let reasons = |plan: &Plan, later_ms: u64| {
        let mut after = with_session_file(plan, &file(plan), 9);
        let all = saved(&first, &before, later_ms);
        let mut why: Vec<RestoreError> =
            all.iter().filter_map(|s| after.nat.restore(after.now, s).err()).collect();
        assert!(after.nat.occupancy().sessions + why.len() == all.len());
        let subscribers = after.nat.occupancy().subscribers;
        assert!(subscribers <= after.nat.occupancy().sessions, "no subscriber stays without a session");
        why.sort();
        why.dedup();
        why
    };
    assert_eq!(reasons(plan, 0), []);
    assert_eq!(reasons(plan, 1_000_000_000), [RestoreError::Expired]);
    let with = |change: &dyn Fn(&mut Plan)| {
        let mut plan = plan.clone();
        change(&mut plan);
        reasons(&plan, 0)
    };
    assert_eq!(with(&|plan| plan.limits.sessions_max = 100), [RestoreError::Full]);
    assert_eq!(with(&|plan| plan.limits.subscribers_max = 1), [RestoreError::Full]);
    let elsewhere = |plan: &mut Plan| {
        plan.nat64[0].static_bindings.clear();
        plan.pools[0].ranges[0].first = v4("192.0.2.7");
        plan.pools[0].ranges[0].last = v4("192.0.2.7");
    };
    assert_eq!(with(&elsewhere), [RestoreError::NotInPool]);
    assert_eq!(with(&|plan| plan.nat44.clear()), [RestoreError::NotServed]);
    let others = |plan: &mut Plan| plan.nat44[0].inside = vec![super::net("10.0.0.0", 8)];
    assert_eq!(with(&others), [RestoreError::NotServed]);
    assert_eq!(
        with(
            &|plan| plan.nat64[0].sources = vec![gatun_nat::plan::Net6::new(v6("2001:db8:2::"), 48).unwrap()]
        ),
        [RestoreError::NotServed]
    );
    // An expired session is not restored, so an outside host cannot use it.
    let mut after = with_session_file(plan, &file(plan), 9);
    let over = SavedSession { expires_ms: 0, ..saved(&first, &before, 0)[0] };
    assert_eq!(after.nat.restore(after.now, &over), Err(RestoreError::Expired));
    let back = udp4(&over.remote.0.to_string(), over.remote.1, "192.0.2.1", over.outside.1, b"y");
    assert_ne!(after.send(&back).verdict, Verdict::Forward);
}

#[test]
fn a_half_written_record_is_ignored() {
    let plan = &plans()[0];
    let first = file(plan);
    let mut bed = with_session_file(plan, &first, 1);
    bed.through(&udp4(A, 4000, SERVER, 53, b"x"));
    bed.through(&udp4(A, 4000, OTHER, 53, b"x"));
    // This is after record number zero and the record of the static binding.
    let second = (2 << 20) + 3 * 64;
    let mut record = [0; 64];
    first.read_exact_at(&mut record, second).unwrap();
    assert_eq!(saved(&first, &bed, 0).len(), 2);
    for at in [0, 15, 16, 20, 23, 24, 29, 53, 54, 60] {
        let mut torn = record;
        torn[at] ^= 0x40;
        first.write_all_at(&torn, second).unwrap();
        assert_eq!(saved(&first, &bed, 0).len(), 1, "byte {at}");
    }
    first.write_all_at(&record, second).unwrap();
    assert_eq!(saved(&first, &bed, 0).len(), 2);
    assert!(saved(&first, &bed, 0).iter().all(|s| s.tcp == TcpState::Established));
}

#[test]
fn sessions_of_the_previous_layout_are_restored() {
    for plan in plans() {
        let first = file(&plan);
        let mut bed = with_session_file(&plan, &first, 1);
        live(&mut bed);
        let had = saved(&first, &bed, 0);
        // Layout 1 had a byte for each of two flags, and an unused one, at the place of flags and epoch.
        first.write_all_at(&1u32.to_ne_bytes(), 8).unwrap();
        let mut shared = 0;
        for at in (2 << 20..SessionFile::bytes(&plan)).step_by(64) {
            let mut flags = [0; 3];
            first.read_exact_at(&mut flags, at + 57).unwrap();
            let [shares_port, of_static] = [flags[0] & 1, flags[0] >> 1 & 1];
            shared += usize::from(shares_port);
            first.write_all_at(&[shares_port, of_static, 0], at + 57).unwrap();
        }
        assert_eq!(shared > 0, !plan.pools[0].overload.is_empty());
        assert_eq!(saved(&first, &bed, 0), had);
        drop(bed.nat);
        let parts = SavedSessions::take_over(fd(&first), ZERO_MS, 2).unwrap();
        assert_eq!(parts.iter().map(|part| part.sessions().count()).sum::<usize>(), had.len());
    }
}

#[test]
fn the_ownership_of_a_session_is_restored() {
    let plan = &plans()[0];
    let first = file(plan);
    let mut bed = with_session_file(plan, &first, 1);
    bed.through(&udp4(A, 4000, SERVER, 53, b"x"));
    let new = saved(&first, &bed, 0)[0];
    assert_eq!(new.ownership, Ownership::default());
    for offload in [Offload::Engine, Offload::Pending, Offload::Fast, Offload::Draining] {
        let ownership = Ownership { epoch: 0xfffe, offload };
        let next = file(plan);
        let mut after = with_session_file(plan, &next, 9);
        after.nat.restore(after.now, &SavedSession { ownership, ..new }).unwrap();
        assert_eq!(saved(&next, &after, 0)[0].ownership, ownership);
        assert_eq!(saved(&next, &after, 0)[0].shares_port, new.shares_port);
        // A packet does not change the ownership.
        after.through(&udp4(A, 4000, SERVER, 53, b"x"));
        assert_eq!(saved(&next, &after, 0)[0].ownership, ownership);
    }
}

#[test]
fn a_file_of_an_unknown_layout_is_refused() {
    let plan = &plans()[0];
    let first = file(plan);
    let bed = with_session_file(plan, &first, 1);
    let read = || SavedSessions::read(fd(&first), bed.now.0).map(|_| ());
    assert_eq!(read(), Ok(()));
    let edited = |at: u64, bytes: &[u8]| {
        let mut was = vec![0; bytes.len()];
        first.read_exact_at(&mut was, at).unwrap();
        first.write_all_at(bytes, at).unwrap();
        let result = read();
        first.write_all_at(&was, at).unwrap();
        result
    };
    assert_eq!(edited(0, b"x"), Err(SessionFileError::NotOurs));
    for has in [0, LAYOUT + 1] {
        assert_eq!(edited(8, &has.to_ne_bytes()), Err(SessionFileError::Layout { has }));
    }
    assert_eq!(edited(12, &65u32.to_ne_bytes()), Err(SessionFileError::Layout { has: LAYOUT }));
    assert_eq!(edited(16, &u64::MAX.to_ne_bytes()), Err(SessionFileError::Short));
    assert_eq!(edited(16, &100_000u64.to_ne_bytes()), Err(SessionFileError::Short));
    let empty = memfd_create("empty", MemfdFlags::CLOEXEC).unwrap();
    assert_eq!(SavedSessions::read(empty.as_fd(), 0).map(|_| ()), Err(SessionFileError::NotOurs));
    assert!(SessionFile::new(empty.as_fd(), plan, 0).is_err());
}
