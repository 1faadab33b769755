//! Marks and quarantined ports in the next process.

use crate::common::*;
use crate::*;
use gatun_mem::BorrowedFd;
use gatun_nat::plan::StaticBinding;
use gatun_nat::session_file::{
    InheritedSessions, Renumbering, RestoreProgress, SavedSessions, SessionFile, SessionFilter,
};
use gatun_nat::{Nat, SessionKey};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::os::fd::AsFd;

const ZERO_MS: u64 = 5_000_000;

/// File of an engine's sessions.
pub(crate) fn file(plan: &Plan) -> File {
    let fd = memfd_create("sessions", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&fd, SessionFile::bytes(plan)).unwrap();
    File::from(fd)
}

fn fd(file: &File) -> BorrowedFd<'_> {
    file.as_fd()
}

pub(crate) fn with_session_file(plan: &Plan, file: &File, seed: u64) -> Bed {
    let records = SessionFile::new(fd(file), plan, ZERO_MS).unwrap();
    Bed { nat: Nat::with_session_file(plan, [seed, 2, 3, 4], Some(records)).unwrap(), ..Bed::new(plan) }
}

/// Returns another engine that inherits the sessions in a file, at the same time.
pub(crate) fn heir_of(plan: &Plan, (left, before): (&File, &Bed), file: &File) -> Bed {
    let mut bed = with_session_file(plan, file, before.now.0 | 1);
    bed.now = before.now;
    let records = SavedSessions::read(fd(left), ZERO_MS + before.now.0).unwrap();
    let numbers = Renumbering { instances: vec![Some((0, vec![Some(0)])), Some((1, vec![]))] };
    let found = bed.nat.finder().find(InheritedSessions { records, numbers }, &SessionFilter::All).unwrap();
    bed.nat.inherit(bed.now, vec![found]);
    bed
}

fn put_all_back(bed: &mut Bed) -> RestoreProgress {
    while !bed.nat.restore_some(bed.now, 5) {}
    bed.nat.progress()
}

fn end(bed: &mut Bed, id: &SessionId) {
    let key = SessionKey {
        instance: id.flow.instance,
        transport: id.flow.transport,
        inside: id.flow.inside,
        remote: id.flow.remote,
    };
    assert_eq!(bed.nat.end_sessions(bed.now, &[key]), 1);
}

/// Returns a host with a binding of three sessions: the first is marked, the second is marked and has ended.
fn lived(plan: &Plan, file: &File) -> (Bed, Vec<SessionId>) {
    let mut bed = with_session_file(plan, file, 1);
    let mut reader = attach(&mut bed, FeedPolicy { packets: 1, ..ESTABLISHED }, 100);
    for server in ["198.51.100.1", "198.51.100.2", "198.51.100.3"] {
        bed.through(&udp4(A, 4000, server, 53, b"x"));
    }
    let ids: Vec<SessionId> = sessions(&mut reader).iter().map(|s| s.id).collect();
    mark(&mut bed, ids[0], Offload::Fast);
    mark(&mut bed, ids[1], Offload::Pending);
    end(&mut bed, &ids[1]);
    (bed, ids)
}

#[test]
fn a_session_with_a_mark_comes_back_with_it_though_its_time_was_up() {
    let plan = both_kinds();
    let (first, second) = (file(&plan), file(&plan));
    let (mut before, ids) = lived(&plan, &first);
    before.now = before.now.plus_ms(2 * UDP_MS);
    let mut after = heir_of(&plan, (&first, &before), &second);
    let mut reader = attach(&mut after, ESTABLISHED, 100);
    let progress = put_all_back(&mut after);
    assert_eq!((progress.restored, progress.not[0]), (2, 1), "the one without a mark is over");
    let told: Vec<_> = sessions(&mut reader).iter().map(|s| (s.change, s.id.flow, s.ownership)).collect();
    assert_eq!(told.len(), 2);
    let owned = |offload| Ownership { epoch: 5, offload };
    assert!(told.contains(&(SessionChange::Established, ids[0].flow, owned(Offload::Fast))), "{told:?}");
    assert!(told.contains(&(SessionChange::Ended, ids[1].flow, owned(Offload::Pending))), "{told:?}");
    // The engine asks about it, and the answer extends its lifetime.
    after.pass_ms(5_000);
    let asked = sessions(&mut reader);
    assert!(asked.iter().all(|s| (s.change, s.id.flow) == (SessionChange::Asked, ids[0].flow)));
    assert_eq!(order(&mut after, asked[0].id, Action::Seen([Some(100), None])), CommandOutcome::Done);
    after.pass_ms(UDP_MS - 10_000);
    assert_eq!((changes(&mut reader), after.nat.occupancy().sessions), (vec![], 1));
}

#[test]
fn a_quarantined_port_is_given_to_nobody_in_the_next_process_either() {
    let mut plan = both_kinds();
    plan.pools = vec![pool(T, T, (2000, 2003))];
    let (first, second, third) = (file(&plan), file(&plan), file(&plan));
    let (mut before, ids) = lived(&plan, &first);
    (0..3).for_each(|n| {
        if n != 1 {
            end(&mut before, &ids[n])
        }
    });
    assert_eq!((before.nat.occupancy().sessions, before.nat.occupancy().quarantined), (0, 2));
    let held = ids[0].flow.outside.1;
    let mut after = heir_of(&plan, (&first, &before), &second);
    // Both before and after it is restored.
    assert_ne!(datagram(&mut after, "10.0.0.6", 5000), held);
    assert_eq!(put_all_back(&mut after).restored, 2);
    assert_eq!((after.nat.occupancy().quarantined, after.nat.occupancy().bindings), (2, 1));
    (0..2).for_each(|n| assert_ne!(datagram(&mut after, "10.0.0.7", 6000 + n), held));
    let mut last = heir_of(&plan, (&second, &after), &third);
    put_all_back(&mut last);
    let drops = last.drops(gatun_wire::DropReason::PortsExhausted);
    last.send(&udp4("10.0.0.8", 7000, SERVER, 53, b"x"));
    assert_eq!(last.drops(gatun_wire::DropReason::PortsExhausted), drops + 1);
    let found = present(&last, &FeedPolicy::default());
    assert_eq!(found.len(), 2);
    for session in found {
        assert_eq!(session.change, SessionChange::Ended);
        assert_eq!(order(&mut last, session.id, Action::Released), CommandOutcome::Done);
    }
    assert_eq!(datagram(&mut last, "10.0.0.8", 7000), held);
}

#[test]
fn a_binding_comes_back_beside_the_quarantined_records_of_its_port_in_any_order() {
    for with_static in [false, true] {
        let mut plan = both_kinds();
        if with_static {
            let inside = (v4(A).to_ipv6_mapped(), 4000);
            let binding = StaticBinding { transport: Transport::Udp, inside, outside: (v4(T), 4000) };
            plan.nat44[0].static_bindings = vec![binding];
        }
        // The quarantined record is first, last, and between the others.
        for ended in 0..3 {
            let (first, second) = (file(&plan), file(&plan));
            let mut before = with_session_file(&plan, &first, 1);
            let mut reader = attach(&mut before, FeedPolicy { packets: 1, ..ESTABLISHED }, 100);
            for server in ["198.51.100.1", "198.51.100.2", "198.51.100.3"] {
                before.through(&udp4(A, 4000, server, 53, b"x"));
            }
            let ids: Vec<SessionId> = sessions(&mut reader).iter().map(|s| s.id).collect();
            mark(&mut before, ids[ended], Offload::Fast);
            end(&mut before, &ids[ended]);
            let mut after = heir_of(&plan, (&first, &before), &second);
            assert_eq!(put_all_back(&mut after).restored, 3);
            let there = after.nat.occupancy();
            assert_eq!((there.sessions, there.bindings, there.quarantined), (2, 1, 1));
            for (n, id) in ids.iter().enumerate() {
                let server = format!("198.51.100.{}", n + 1);
                let out = after.through(&udp4(A, 4000, &server, 53, b"x"));
                assert_eq!((out.sport, out.src), (id.flow.outside.1, v4(T).into()));
                after.through(&udp4(&server, 53, T, out.sport, b"y"));
            }
            assert_eq!(after.nat.occupancy().sessions, 3);
            let quarantined = present(&after, &FeedPolicy::default())[0].id;
            assert_eq!(order(&mut after, quarantined, Action::Released), CommandOutcome::Done);
            after.pass_ms(UDP_MS + 10_000);
            let there = after.nat.occupancy();
            assert_eq!((there.sessions, there.bindings), (0, usize::from(with_static)));
            assert_eq!((there.quarantined, there.subscribers), (0, 0));
        }
    }
}

#[test]
fn a_host_that_is_served_no_longer_leaves_its_port_quarantined() {
    let plan = both_kinds();
    let (first, second) = (file(&plan), file(&plan));
    let (before, ids) = lived(&plan, &first);
    let mut other = plan.clone();
    other.nat44[0].inside = vec![Net4::new(v4("10.9.0.0"), 16).unwrap()];
    let mut after = heir_of(&other, (&first, &before), &second);
    put_all_back(&mut after);
    assert_eq!((after.nat.occupancy().sessions, after.nat.occupancy().quarantined), (0, 2));
    let found = present(&after, &FeedPolicy::default());
    assert!(
        found.iter().all(|s| s.change == SessionChange::Ended && s.id.flow.outside == ids[0].flow.outside)
    );
}
