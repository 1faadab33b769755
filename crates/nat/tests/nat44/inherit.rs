//! Sessions of another engine that are restored while packets arrive.

use super::common::*;
use super::session_file::*;
use super::{A, B, POOL6, ROUTER, SERVER};
use gatun_nat::inspect::{Selection, SessionInfo};
use gatun_nat::plan::Transport;
use gatun_nat::session_file::{
    self, InheritedSessions, Ownership, Renumbering, RestoreError, RestoreProgress, SavedSession,
    SavedSessions, SessionFileError, SessionFilter,
};
use gatun_nat::tcp_fsm::TcpState;
use gatun_nat::{ClearCursor, EventKind, EventKinds, Extent, Instant, Plan, Verdict};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::collections::BTreeSet;
use std::fs::File;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Numbers of both instances, unchanged.
fn as_before() -> Renumbering {
    Renumbering { instances: vec![Some((0, vec![Some(0)])), Some((1, vec![]))] }
}

/// Returns the sessions in a file at the time of `bed`. They stay in the file.
fn inherited(file: &File, bed: &Bed) -> InheritedSessions {
    InheritedSessions {
        records: SavedSessions::read(fd(file), ZERO_MS + bed.now.0).unwrap(),
        numbers: as_before(),
    }
}

fn inherit(bed: &mut Bed, sources: impl IntoIterator<Item = InheritedSessions>, filter: &SessionFilter) {
    let found =
        sources.into_iter().map(|inherited| bed.nat.finder().find(inherited, filter).unwrap()).collect();
    bed.nat.inherit(bed.now, found);
}

/// Returns an engine with sessions, and their file.
fn lived(plan: &Plan) -> (Bed, File) {
    let file = file(plan);
    let mut bed = with_session_file(plan, &file, 1);
    live(&mut bed);
    (bed, file)
}

/// Returns another engine that inherits the sessions, with none restored yet.
fn heir(plan: &Plan, file_before: &File, before: &Bed) -> Bed {
    let mut after = with_session_file(plan, &file(plan), 9);
    after.now = Instant(77);
    inherit(&mut after, [inherited(file_before, before)], &SessionFilter::All);
    after
}

fn put_all_back(bed: &mut Bed) -> RestoreProgress {
    for _ in 0..100_000 {
        if bed.nat.restore_some(bed.now, 50) {
            assert!(!bed.nat.is_inheriting() && bed.nat.restore_some(bed.now, 50));
            assert!(bed.nat.take_finished().is_some() && bed.nat.take_finished().is_none());
            return bed.nat.progress();
        }
    }
    panic!("it never ends: {:?}", bed.nat.progress());
}

fn timeless(s: &SessionInfo) -> SessionInfo {
    SessionInfo { expires_ms: 0, ..*s }
}

fn back_of(s: &SessionInfo) -> Vec<u8> {
    let (remote, port) = (s.remote.0.to_string(), s.remote.1);
    let (outside, outside_port) = (s.outside.0.to_string(), s.outside.1);
    match s.transport {
        Transport::Tcp => tcp4(&remote, port, &outside, outside_port, "A", b"y"),
        Transport::Udp => udp4(&remote, port, &outside, outside_port, b"y"),
        Transport::Icmp => echo4(&remote, &outside, false, outside_port, b"y"),
    }
}

#[test]
fn all_sessions_are_restored_in_slices() {
    for plan in plans() {
        let (before, first) = lived(&plan);
        let had = sessions(&before.nat);
        let mut after = heir(&plan, &first, &before);
        assert!(after.nat.is_inheriting() && !after.nat.restore_some(after.now, 50));
        assert_eq!(after.nat.progress().left + after.nat.progress().restored, had.len() as u64);
        let progress = put_all_back(&mut after);
        assert_eq!(
            progress,
            RestoreProgress { left: 0, restored: had.len() as u64, ..RestoreProgress::default() }
        );
        assert_eq!(
            sessions(&after.nat).iter().map(timeless).collect::<Vec<_>>(),
            had.iter().map(timeless).collect::<Vec<_>>()
        );
        assert_eq!(after.nat.occupancy(), before.nat.occupancy());
    }
}

#[test]
fn the_first_packet_of_either_side_finds_its_session() {
    for plan in plans() {
        let (mut before, first) = lived(&plan);
        let had = sessions(&before.nat);
        let wanted: Vec<_> = had.iter().map(|s| both_ways(&mut before, s)).collect();
        for (n, s) in had.iter().enumerate().step_by(3) {
            // From inside, and from outside.
            let mut after = heir(&plan, &first, &before);
            assert_eq!(both_ways(&mut after, s), wanted[n], "{s:?}");
            let mut after = heir(&plan, &first, &before);
            assert_eq!(after.through(&back_of(s)), wanted[n].1, "{s:?}");
            assert!(after.nat.is_inheriting());
            put_all_back(&mut after);
            assert_eq!(sessions(&after.nat).len(), had.len(), "no further session was created");
        }
    }
}

#[test]
fn a_packet_restores_all_sessions_of_its_subscriber() {
    let plan = &plans()[0];
    let (before, first) = lived(plan);
    let mut after = heir(plan, &first, &before);
    let of_a = |bed: &Bed| sessions(&bed.nat).iter().filter(|s| s.inside.0.to_string() == mapped(A)).count();
    // A new flow of a host with other flows.
    let new = after.through(&udp4(A, 60_000, SERVER, 53, b"x"));
    assert!(of_a(&before) > 20);
    assert_eq!(of_a(&after), of_a(&before) + 1);
    assert_eq!(of_a(&after), sessions(&after.nat).len(), "no other session is restored");
    put_all_back(&mut after);
    let with_port = |s: &&SessionInfo| s.transport == Transport::Udp && s.outside.1 == new.sport;
    assert_eq!(sessions(&after.nat).iter().filter(with_port).count(), 1);
}

fn mapped(address: &str) -> String {
    v4(address).to_ipv6_mapped().to_string()
}

#[test]
fn ports_and_blocks_of_waiting_sessions_are_not_allocated() {
    for mut plan in plans() {
        // Few ports, so that every second one belongs to a waiting session.
        plan.pools[0].ranges[0].ports = (40_960, 40_960 + 2047);
        plan.nat64[0].static_bindings.clear();
        let (before, first) = lived(&plan);
        let had = sessions(&before.nat);
        let mut after = heir(&plan, &first, &before);
        let mut new = Vec::new();
        for n in 0..12u16 {
            for port in 0..40 {
                let host = format!("100.64.9.{n}");
                if after.send(&udp4(&host, 9000 + port, SERVER, 80, b"x")).verdict == Verdict::Forward {
                    new.push((host, 9000 + port));
                }
            }
        }
        assert!(new.len() >= 400, "{}", new.len());
        assert!(after.nat.is_inheriting());
        let progress = put_all_back(&mut after);
        assert_eq!(
            progress,
            RestoreProgress { left: 0, restored: had.len() as u64, ..RestoreProgress::default() }
        );
        assert_eq!(sessions(&after.nat).len(), had.len() + new.len());
    }
}

#[test]
fn a_drained_address_keeps_restored_sessions_and_gets_no_new_ones() {
    for plan in plans() {
        let (before, first) = lived(&plan);
        let had = sessions(&before.nat);
        let drained: BTreeSet<Ipv4Addr> = had.iter().map(|s| s.outside.0).collect();
        let mut after = heir(&plan, &first, &before);
        assert!(
            drained.iter().all(|&address| after.nat.drain(address)) && !after.nat.drain(v4("192.0.2.99"))
        );
        let progress = put_all_back(&mut after);
        assert_eq!(
            progress,
            RestoreProgress { left: 0, restored: had.len() as u64, ..RestoreProgress::default() }
        );
        assert_eq!(after.nat.occupancy(), before.nat.occupancy());
        let now_drained: BTreeSet<Ipv4Addr> =
            after.nat.pools().iter().flat_map(|pool| pool.drained()).collect();
        assert_eq!(now_drained, drained);
        // A host with other sessions there, and a new host.
        for host in [A, "100.64.9.1"] {
            after.send(&udp4(host, 61_000, SERVER, 53, b"x"));
        }
        let of_new = |s: &&SessionInfo| s.inside.1 == 61_000;
        assert!(sessions(&after.nat).iter().filter(of_new).all(|s| !drained.contains(&s.outside.0)));
        // Ports of ended sessions stay free, because the address is drained.
        let mut all = ClearCursor::default();
        while !all.is_done() {
            after.nat.clear(after.now, &mut all, &Selection::default(), Extent::Session, 1000);
        }
        after.pass_ms(1_000_000);
        for n in 0..50 {
            after.send(&udp4("100.64.9.2", 10_000 + n, SERVER, 53, b"x"));
        }
        assert!(sessions(&after.nat).iter().all(|s| !drained.contains(&s.outside.0)));
    }
}

#[test]
fn errors_find_the_host_of_the_quoted_packet() {
    let plan = &plans()[0];
    let (before, first) = lived(plan);
    let had = sessions(&before.nat);
    let is_udp = |s: &&SessionInfo| s.transport == Transport::Udp;
    let (six, four): (Vec<&SessionInfo>, Vec<&SessionInfo>) =
        had.iter().filter(is_udp).partition(|s| s.instance == 0);
    for s in [six[5], four[5]] {
        let mut after = heir(plan, &first, &before);
        let (outside, remote) = (s.outside.0.to_string(), s.remote.0.to_string());
        let sent = udp4(&outside, s.outside.1, &remote, s.remote.1, b"x");
        let error = error4(ROUTER, &outside, (3, 3, 0), &sent);
        assert_eq!(after.send(&error).verdict, Verdict::Forward, "{s:?}");
    }
    // Errors from inside, about packets from outside.
    let s = six[5];
    let mut after = heir(plan, &first, &before);
    let (host, remote) = (s.inside.0.to_string(), behind(POOL6, &s.remote.0.to_string()));
    let got = udp6(&remote, s.remote.1, &host, s.inside.1, b"x");
    let error = error6("2001:db8:1::ffff", &remote, (1, 4, 0), &got);
    assert_eq!(after.send(&error).verdict, Verdict::Forward);
    let s = four[5];
    let mut after = heir(plan, &first, &before);
    let (host, remote) = (s.inside.0.to_ipv4_mapped().unwrap().to_string(), s.remote.0.to_string());
    let got = udp4(&remote, s.remote.1, &host, s.inside.1, b"x");
    let error = error4("100.64.0.99", &remote, (3, 3, 0), &got);
    assert_eq!(after.send(&error).verdict, Verdict::Forward);
}

#[test]
fn hairpins_find_waiting_sessions() {
    let plan = &plans()[0];
    let (before, first) = lived(plan);
    let had = sessions(&before.nat);
    let of_b = had.iter().find(|s| s.inside.0.to_string() == mapped(B) && s.transport == Transport::Udp);
    let (outside, port) = of_b.unwrap().outside;
    let mut after = heir(plan, &first, &before);
    let got = after.through(&udp4(A, 61_000, &outside.to_string(), port, b"x"));
    assert_eq!((got.dst.to_string(), got.dport), (B.into(), of_b.unwrap().inside.1));
    let mut after = heir(plan, &first, &before);
    let to = behind(POOL6, &outside.to_string());
    let got = after.through(&udp6(NEIGHBOUR6, 61_000, &to, port, b"x"));
    assert_eq!((got.dst.to_string(), got.dport), (B.into(), of_b.unwrap().inside.1));
}

#[test]
fn each_session_is_in_exactly_one_file_at_any_time() {
    let plan = &plans()[1];
    let (before, first) = lived(plan);
    let had = sessions(&before.nat).len();
    let second = file(plan);
    let mut after = with_session_file(plan, &second, 9);
    let clock_ms = ZERO_MS + before.now.0;
    // While an engine writes to its records, no other process can take them over.
    assert_eq!(SavedSessions::take_over(fd(&first), clock_ms, 3).map(|_| ()), Err(SessionFileError::InUse));
    drop(before);
    let parts = SavedSessions::take_over(fd(&first), clock_ms, 3).unwrap();
    assert_eq!(parts.len(), 3);
    inherit(
        &mut after,
        parts.into_iter().map(|records| InheritedSessions { records, numbers: as_before() }),
        &SessionFilter::All,
    );
    let count = |file: &File| SavedSessions::read(fd(file), clock_ms).unwrap().sessions().count();
    loop {
        assert_eq!(count(&first) + count(&second), had);
        // The process is killed here. The next one has both files, and a session that was ended meanwhile
        // does not return.
        let mut last = with_session_file(plan, &file(plan), 10);
        let sources = [&second, &first].map(|file| InheritedSessions {
            records: SavedSessions::read(fd(file), clock_ms).unwrap(),
            numbers: as_before(),
        });
        inherit(&mut last, sources, &SessionFilter::All);
        assert_eq!(put_all_back(&mut last).restored, had as u64);
        if after.nat.restore_some(after.now, 300) {
            break;
        }
    }
    assert_eq!((count(&first), count(&second)), (0, had));
}

#[test]
fn engines_that_share_a_file_restore_each_session_once() {
    let plan = &plans()[0];
    let (before, first) = lived(plan);
    let had = sessions(&before.nat);
    let clock_ms = ZERO_MS + before.now.0;
    drop(before);
    let parts = SavedSessions::take_over(fd(&first), clock_ms, 2).unwrap();
    let heirs = [0, 1].map(|worker| {
        let is_own = move |_, inside: Ipv6Addr, _| u128::from(inside) as usize % 2 == worker;
        let filter = SessionFilter::Of { is_own: &is_own, unserved: worker == 0 };
        let mut heir = with_session_file(plan, &file(plan), 9);
        let parts = parts.iter().cloned().map(|records| InheritedSessions { records, numbers: as_before() });
        inherit(&mut heir, parts, &filter);
        heir
    });
    let restored = std::thread::scope(|scope| {
        let threads = heirs.map(|mut heir| scope.spawn(move || put_all_back(&mut heir)));
        threads.map(|thread| thread.join().unwrap().restored)
    });
    assert!(restored.iter().all(|&n| n > 0), "{restored:?}");
    assert_eq!(restored.iter().sum::<u64>(), had.len() as u64);
    drop(parts);
    assert_eq!(
        SavedSessions::read(fd(&first), clock_ms).unwrap().sessions().count(),
        0,
        "no session is left"
    );
}

#[test]
fn waiting_sessions_expire_and_each_reason_is_counted() {
    let plan = &plans()[0];
    let (before, first) = lived(plan);
    let had = sessions(&before.nat).len() as u64;
    let not = |progress: RestoreProgress, why: RestoreError| progress.not[why as usize];
    let mut after = heir(plan, &first, &before);
    after.now = after.now.plus_ms(1_000_000_000);
    let progress = put_all_back(&mut after);
    assert_eq!((progress.restored, not(progress, RestoreError::Expired)), (0, had));

    let mut fewer = plan.clone();
    fewer.limits.sessions_max = 100;
    let progress = put_all_back(&mut heir(&fewer, &first, &before));
    assert_eq!((progress.restored, not(progress, RestoreError::Full)), (100, had - 100));

    let mut after = with_session_file(plan, &file(plan), 9);
    let numbers = Renumbering { instances: vec![None, Some((1, vec![]))] };
    let records = SavedSessions::read(fd(&first), ZERO_MS + before.now.0).unwrap();
    inherit(&mut after, [InheritedSessions { records, numbers }], &SessionFilter::All);
    let progress = put_all_back(&mut after);
    assert!(progress.restored > 0 && not(progress, RestoreError::NotServed) > 0);
    assert_eq!(progress.restored + not(progress, RestoreError::NotServed), had);

    // Each of two engines takes its own sessions, and one of them counts those that belong to neither.
    let of_four = |instance: u8, _, _| instance == 1;
    let filter = SessionFilter::Of { is_own: &of_four, unserved: false };
    let mut after = with_session_file(plan, &file(plan), 9);
    inherit(&mut after, [inherited(&first, &before)], &filter);
    let of_44 = put_all_back(&mut after);
    assert!(sessions(&after.nat).iter().all(|s| s.instance == 1));
    assert_eq!((of_44.restored, of_44.not), (progress.restored, RestoreProgress::default().not));
}

#[test]
fn a_subscriber_restores_no_more_ports_than_its_counter_holds() {
    let mut plan = plans()[0].clone();
    plan.limits.sessions_max = 80_000;
    plan.nat64[0].static_bindings.clear();
    plan.pools = vec![pool("192.0.2.1", "192.0.2.2", (1, 65535))];
    let session = |n: u32| SavedSession {
        instance: 0,
        pool6: 0,
        transport: Transport::Udp,
        inside: (Ipv6Addr::from(0x2001_0db8 << 96 | u128::from(n)), 1000),
        outside: (if n < 40_000 { v4("192.0.2.1") } else { v4("192.0.2.2") }, 1 + (n % 40_000) as u16),
        remote: (v4(SERVER), 53),
        tcp: TcpState::Trans,
        expires_ms: 300_000,
        shares_port: false,
        ownership: Ownership::default(),
        replica: gatun_nat::session_file::Replica::None,
        quarantined: false,
    };
    let sessions: Vec<SavedSession> = (0..70_000).map(session).collect();
    let file = File::from(memfd_create("sessions", MemfdFlags::CLOEXEC).unwrap());
    ftruncate(&file, session_file::bytes_of(sessions.len())).unwrap();
    session_file::write(fd(&file), &sessions, 0).unwrap();
    let mut bed = Bed::new(&plan);
    let records = SavedSessions::read(fd(&file), 0).unwrap();
    inherit(&mut bed, [InheritedSessions { records, numbers: as_before() }], &SessionFilter::All);
    let progress = put_all_back(&mut bed);
    assert_eq!((progress.restored, progress.not[RestoreError::Full as usize]), (65_535, 70_000 - 65_535));
}

#[test]
fn a_plan_is_not_changed_before_all_sessions_are_restored() {
    use gatun_nat::reconfigure::ApplyError;
    let plan = &plans()[0];
    let (before, first) = lived(plan);
    let mut after = heir(plan, &first, &before);
    let outline = after.nat.outline();
    let mut change = gatun_nat::reconfigure::Change::prepare(&outline, plan, plan).unwrap();
    assert_eq!(after.nat.apply(after.now, &mut change), Err(ApplyError::Settling));
    put_all_back(&mut after);
    assert_eq!(after.nat.apply(after.now, &mut change), Ok(()));
}

#[test]
fn events_of_restored_sessions_wait_for_their_reader() {
    let mut plan = plans()[1].clone();
    (plan.events.ring_len, plan.events.state_ring_len) = (64, 64);
    let (before, first) = lived(&plan);
    let mut after = with_session_file(&plan, &file(&plan), 9);
    let mut events = after.nat.take_events().unwrap();
    let kinds = &mut std::collections::BTreeMap::new();
    inherit(&mut after, [inherited(&first, &before)], &SessionFilter::All);
    for _ in 0..100 {
        assert!(!after.nat.restore_some(after.now, 10_000), "no event has been read");
    }
    while !after.nat.restore_some(after.now, 10_000) {
        std::iter::from_fn(|| events.next()).for_each(|e| *kinds.entry(e.kind).or_insert(0) += 1);
    }
    std::iter::from_fn(|| events.next()).for_each(|e| *kinds.entry(e.kind).or_insert(0) += 1);
    assert_eq!(after.nat.events_lost(), 0);
    assert_eq!(kinds.len(), 2, "{kinds:?}");
    let statics = plan.nat64[0].static_bindings.len() as u64;
    assert_eq!(kinds[&gatun_nat::EventKind::BindingKept], after.nat.occupancy().bindings as u64 - statics);
}

#[test]
fn the_end_of_each_session_that_is_not_restored_is_reported_once() {
    let mut plan = plans()[1].clone();
    plan.events.kinds = EventKinds::NONE.with(EventKind::SessionDeleted);
    plan.events.ring_len = 64;
    let (before, first) = lived(&plan);
    let had = sessions(&before.nat);
    // Sessions in the form of events, without their remote ends.
    type Reported = (u8, [bool; 3], (Ipv6Addr, u16), (Ipv4Addr, u16));
    let of = |s: &SessionInfo| -> Reported {
        (s.instance, Transport::ALL.map(|t| t == s.transport), s.inside, s.outside)
    };
    let all_but = |these: &[SessionInfo]| -> Vec<Reported> {
        let mut left: Vec<Reported> = had.iter().map(of).collect();
        for gone in these.iter().map(of) {
            left.swap_remove(left.iter().position(|one| *one == gone).unwrap());
        }
        left.sort_unstable();
        left
    };
    let mut small = plan.clone();
    small.limits.sessions_max = 100;
    for (plan, later_ms) in [(&plan, 0), (&plan, 1_000_000_000), (&small, 0)] {
        let mut after = heir(plan, &first, &before);
        after.now = after.now.plus_ms(later_ms);
        let mut reader = after.nat.take_events().unwrap();
        assert!(
            later_ms == 0 || (0..9).all(|_| !after.nat.restore_some(after.now, 10_000)),
            "no event has been read"
        );
        let mut reported: Vec<Reported> = Vec::new();
        let mut is_over = false;
        while !is_over {
            is_over = after.nat.restore_some(after.now, 500);
            for event in std::iter::from_fn(|| reader.next()) {
                assert_eq!((event.kind, event.at), (EventKind::SessionDeleted, after.now));
                assert_eq!((event.remote_port, event.remote()), (0, Ipv4Addr::UNSPECIFIED));
                let (inside, outside) = (event.inside(), event.outside());
                let (inside, outside) = ((inside, event.inside_port), (outside, event.outside_port));
                reported.push((event.instance, event.transports(), inside, outside));
            }
        }
        reported.sort_unstable();
        let back = sessions(&after.nat);
        assert_eq!(after.nat.events_lost(), 0);
        assert_eq!(
            (reported.len() as u64, reported),
            (had.len() as u64 - after.nat.progress().restored, all_but(&back))
        );
        assert_eq!(back.len() == had.len(), later_ms == 0 && plan.limits.sessions_max > 100);
    }
}
