//! Marks, reports of seen packets, credits, and the question before an end.

use crate::common::*;
use crate::*;
use gatun_nat::counters::{Count, Traffic};
use gatun_nat::inspect::{Selection, SessionCursor};
use gatun_nat::{Verdict, feed::Flow};
use gatun_wire::{HEADROOM, Packet};

/// Advances time in steps of a second, so that the sweep visits every record.
fn pass(bed: &mut Bed, ms: u64) {
    bed.pass_ms(ms);
}

#[test]
fn a_mark_needs_the_session_that_was_named() {
    let mut bed = Bed::new(&both_kinds());
    let mut reader = attach(&mut bed, FeedPolicy { packets: 1, ..ESTABLISHED }, 100);
    datagram(&mut bed, A, 4000);
    let id = sessions(&mut reader)[0].id;
    let elsewhere = [
        SessionId { record: id.record + 1, ..id },
        SessionId { record: u32::MAX, ..id },
        SessionId { record: 0, ..id },
        SessionId { flow: Flow { instance: 0, ..id.flow }, ..id },
        SessionId { flow: Flow { transport: Transport::Tcp, ..id.flow }, ..id },
        SessionId { flow: Flow { inside: (id.flow.inside.0, 1), ..id.flow }, ..id },
        SessionId { flow: Flow { outside: (id.flow.outside.0, 1), ..id.flow }, ..id },
        SessionId { flow: Flow { remote: (id.flow.remote.0, 1), ..id.flow }, ..id },
    ];
    for other in elsewhere {
        assert_eq!(mark(&mut bed, other, Offload::Pending), CommandOutcome::Gone, "{other:?}");
        assert_eq!(order(&mut bed, other, Action::Released), CommandOutcome::Gone);
    }
    for (offload, outcome) in [
        (Offload::Engine, CommandOutcome::Refused),
        (Offload::Draining, CommandOutcome::Refused),
        (Offload::Pending, CommandOutcome::Done),
        (Offload::Fast, CommandOutcome::Done),
        (Offload::Draining, CommandOutcome::Done),
        (Offload::Engine, CommandOutcome::Refused),
    ] {
        assert_eq!(mark(&mut bed, id, offload), outcome, "{offload:?}");
    }
    let found = present(&bed, &FeedPolicy::default());
    assert_eq!(found[0].ownership, Ownership { epoch: 5, offload: Offload::Draining });
    assert_eq!(order(&mut bed, id, Action::Released), CommandOutcome::Done);
    assert_eq!(order(&mut bed, id, Action::Released), CommandOutcome::Refused);
    assert_eq!(present(&bed, &FeedPolicy::default()), [], "nobody asks for it without a mark");
}

#[test]
fn a_connection_that_is_not_established_gets_no_mark() {
    let mut bed = Bed::new(&both_kinds());
    let policy = FeedPolicy { sessions: SessionScope::All, ..ESTABLISHED };
    let mut reader = attach(&mut bed, policy, 100);
    bed.through(&tcp4(A, 4000, SERVER, 80, "S", b""));
    datagram(&mut bed, A, 4000);
    for session in sessions(&mut reader) {
        assert_eq!(session.change, SessionChange::Opened);
        assert_eq!(mark(&mut bed, session.id, Offload::Pending), CommandOutcome::Refused, "{session:?}");
    }
}

#[test]
fn a_session_from_an_exempt_host_gets_no_mark() {
    let mut plan = both_kinds();
    let net = Net4::new(v4("203.0.113.9"), 32).unwrap();
    plan.nat44[0].exempt = vec![Exemption { net, transport: Some(Transport::Udp), ports: Some((53, 53)) }];
    let mut bed = Bed::new(&plan);
    let mut reader = attach(&mut bed, FeedPolicy { packets: 1, ..ESTABLISHED }, 100);
    let port = datagram(&mut bed, A, 4000);
    // The host may send to the public port, but the answers pass untranslated.
    for from in [53, 54] {
        bed.through(&udp4("203.0.113.9", from, T, port, b"x"));
    }
    assert_eq!(bed.send(&udp4(A, 4000, "203.0.113.9", 53, b"x")).verdict, Verdict::Pass);
    assert_eq!(bed.through(&udp4(A, 4000, "203.0.113.9", 54, b"x")).sport, port);
    let outcomes: Vec<_> = sessions(&mut reader)
        .iter()
        .map(|session| (session.id.flow.remote, mark(&mut bed, session.id, Offload::Pending)))
        .collect();
    let remote = |address, port| (v4(address), port);
    let wanted = [
        (remote(SERVER, 53), CommandOutcome::Done),
        (remote("203.0.113.9", 53), CommandOutcome::Refused),
        (remote("203.0.113.9", 54), CommandOutcome::Done),
    ];
    assert_eq!(outcomes, wanted);
}

#[test]
fn closing_is_reported_for_a_mark_alone_and_so_is_its_opening_again() {
    let mut bed = Bed::new(&both_kinds());
    let mut reader = attach(&mut bed, ESTABLISHED, 100);
    let port = connect(&mut bed, A, 4000, SERVER);
    let id = sessions(&mut reader)[0].id;
    bed.through(&tcp4(A, 4000, SERVER, 80, "R", b""));
    assert_eq!(changes(&mut reader), []);
    bed.through(&tcp4(A, 4000, SERVER, 80, "A", b"x"));
    assert_eq!(changes(&mut reader), [SessionChange::Established]);
    assert_eq!(mark(&mut bed, id, Offload::Fast), CommandOutcome::Done);
    bed.through(&tcp4(SERVER, 80, T, port, "FA", b""));
    assert_eq!(changes(&mut reader), [SessionChange::Closing]);
    bed.through(&tcp4(A, 4000, SERVER, 80, "FA", b""));
    assert_eq!(changes(&mut reader), [], "once");
    assert_eq!(present(&bed, &ESTABLISHED)[0].change, SessionChange::Closing);
    assert_eq!(
        order(&mut bed, id, Action::Seen([Some(0), None])),
        CommandOutcome::Refused,
        "it is to end soon"
    );
}

#[test]
fn a_session_is_offered_again_after_as_many_packets_as_the_consumer_asks_for() {
    let mut bed = Bed::new(&both_kinds());
    let mut reader = attach(&mut bed, FeedPolicy { packets: 1, ..ESTABLISHED }, 100);
    let port = connect(&mut bed, A, 4000, SERVER);
    datagram(&mut bed, A, 4000);
    let ids: Vec<SessionId> = sessions(&mut reader).iter().map(|session| session.id).collect();
    for (given, packets) in [(0, 1), (1, 1), (2, 2), (128, 128), (255, 128)] {
        for &id in &ids {
            assert_eq!(order(&mut bed, id, Action::Count(given)), CommandOutcome::Done);
            assert_eq!(order(&mut bed, id, Action::Count(given)), CommandOutcome::Refused, "it counts");
            assert_eq!(mark(&mut bed, id, Offload::Pending), CommandOutcome::Refused);
        }
        assert_eq!(present(&bed, &ESTABLISHED), []);
        for n in 1..=packets {
            assert_eq!(changes(&mut reader), [], "{n} of {packets}");
            bed.through(&tcp4(SERVER, 80, T, port, "A", b"x"));
            bed.through(&udp4(A, 4000, SERVER, 53, b"x"));
        }
        assert_eq!(changes(&mut reader), [SessionChange::Established; 2]);
        assert_eq!(present(&bed, &ESTABLISHED).len(), 2);
    }
    for &id in &ids {
        assert_eq!(mark(&mut bed, id, Offload::Fast), CommandOutcome::Done);
        assert_eq!(order(&mut bed, id, Action::Count(9)), CommandOutcome::Refused, "it has a mark");
        assert_eq!(order(&mut bed, id, Action::Released), CommandOutcome::Done);
        assert_eq!(order(&mut bed, id, Action::Count(9)), CommandOutcome::Done);
    }
    // The connection closes while it counts.
    bed.through(&tcp4(A, 4000, SERVER, 80, "FA", b""));
    (0..20).for_each(|_| _ = bed.through(&tcp4(A, 4000, SERVER, 80, "A", b"x")));
    assert_eq!(changes(&mut reader), []);
    let other = SessionId { record: ids[0].record + 100, ..ids[0] };
    assert_eq!(order(&mut bed, other, Action::Count(1)), CommandOutcome::Gone);
}

#[test]
fn lists_and_explanations_show_the_mark() {
    let (mut bed, _reader, id) = marked(&both_kinds(), Offload::Fast);
    datagram(&mut bed, A, 4001);
    let (mut at, mut found) = (SessionCursor::default(), Vec::with_capacity(10));
    while !at.done {
        bed.nat.read_sessions(&mut at, &Selection::default(), 1000, &mut found);
    }
    let marks: Vec<_> = found.iter().map(|s| (s.inside.1, s.is_offloaded)).collect();
    assert_eq!(marks, [(4000, true), (4001, false)]);
    for bytes in [udp4(A, 4000, SERVER, 53, b"x"), udp4(SERVER, 53, T, id.flow.outside.1, b"x")] {
        let mut buf = [vec![0; HEADROOM], bytes].concat();
        let len = buf.len() - HEADROOM;
        let explained = bed.nat.explain(&mut Packet::new(&mut buf, HEADROOM, len).unwrap());
        let session = explained.session.expect("the session of the packet");
        assert_eq!((session.is_offloaded, session.inside.1), (true, 4000));
    }
}

#[test]
fn a_session_with_a_mark_is_asked_for_and_ends_only_after_its_release() {
    let (mut bed, mut reader, id) = marked(&both_kinds(), Offload::Fast);
    pass(&mut bed, UDP_MS - 5_000);
    assert_eq!(changes(&mut reader), []);
    pass(&mut bed, 30_000);
    let asked = changes(&mut reader);
    assert!(asked.iter().all(|&change| change == SessionChange::Asked), "{asked:?}");
    assert!((5..=8).contains(&asked.len()), "once in four seconds: {}", asked.len());
    assert_eq!(bed.nat.occupancy().sessions, 1);
    // The packet is late, but it finds the session.
    bed.through(&udp4(SERVER, 53, T, id.flow.outside.1, b"y"));
    assert_eq!(bed.nat.occupancy().sessions, 1);
    assert_eq!(order(&mut bed, id, Action::Released), CommandOutcome::Done);
    pass(&mut bed, 5_000);
    assert_eq!((bed.nat.occupancy().sessions, bed.nat.occupancy().quarantined), (0, 0));
    assert_eq!(bed.nat.pool_stats().next().unwrap().ports_held, 0);
    assert_eq!(changes(&mut reader), [], "the consumer has given it up");
}

#[test]
fn a_packet_that_finds_a_late_session_with_a_mark_keeps_its_port() {
    for outbound in [true, false] {
        let (mut bed, _reader, id) = marked(&both_kinds(), Offload::Fast);
        bed.now = bed.now.plus_ms(2 * UDP_MS);
        let port = id.flow.outside.1;
        if outbound {
            assert_eq!(bed.through(&udp4(A, 4000, SERVER, 53, b"x")).sport, port);
        } else {
            bed.through(&udp4(SERVER, 53, T, port, b"y"));
        }
        assert_eq!(bed.nat.occupancy().sessions, 1);
        // A packet from inside extends the lifetime; one from outside does not (RFC 4787 REQ-6).
        assert_eq!(order(&mut bed, id, Action::Released), CommandOutcome::Done);
        pass(&mut bed, 5_000);
        assert_eq!(bed.nat.occupancy().sessions, usize::from(outbound));
    }
}

#[test]
fn a_released_connection_gets_its_probe_before_it_ends() {
    let mut bed = Bed::new(&both_kinds());
    let mut reader = attach(&mut bed, ESTABLISHED, 1000);
    connect(&mut bed, A, 4000, SERVER);
    let id = sessions(&mut reader)[0].id;
    mark(&mut bed, id, Offload::Fast);
    bed.now = bed.now.plus_ms(7_440_100);
    assert_eq!(bed.pass_ms(5_000).len(), 0, "no probe while a fast path may have seen it");
    assert!(!changes(&mut reader).is_empty());
    order(&mut bed, id, Action::Released);
    assert_eq!(bed.pass_ms(5_000).len(), 1, "the probe");
    assert_eq!(bed.nat.counters().probes_sent, 1);
    bed.pass_ms(250_000);
    assert_eq!(bed.nat.occupancy().sessions, 0);
}

#[test]
fn what_a_fast_path_has_seen_extends_a_life_as_a_packet_would_have() {
    for inbound_refresh in [false, true] {
        let mut plan = both_kinds();
        plan.nat44[0].inbound_refresh = inbound_refresh;
        let left_ms = |bed: &Bed| i64::from(present(bed, &ESTABLISHED)[0].expires_ms);
        for (seen, life_ms) in [
            ([Some(10_000), None], 290_000),
            ([Some(10_000), Some(1_000)], if inbound_refresh { 299_000 } else { 290_000 }),
            ([None, Some(10_000)], if inbound_refresh { 290_000 } else { 100_000 }),
            // The fast path's packet is older than the engine's own.
            ([Some(250_000), None], 100_000),
            ([None, None], 100_000),
            ([Some(u32::MAX), Some(u32::MAX)], 100_000),
        ] {
            let (mut bed, _reader, id) = marked(&plan, Offload::Pending);
            bed.now = bed.now.plus_ms(200_000);
            assert_eq!(order(&mut bed, id, Action::Seen(seen)), CommandOutcome::Done);
            let left_ms = left_ms(&bed);
            assert!((life_ms..life_ms + 64).contains(&left_ms), "{seen:?}: {left_ms}");
        }
        // The lifetime has expired already.
        let (mut bed, mut reader, id) = marked(&plan, Offload::Fast);
        pass(&mut bed, UDP_MS + 20_000);
        assert!(!changes(&mut reader).is_empty());
        order(&mut bed, id, Action::Seen([Some(500), None]));
        pass(&mut bed, UDP_MS - 5_000);
        assert_eq!(changes(&mut reader), [], "as good as new");
        assert!(bed.nat.occupancy().sessions == 1 && left_ms(&bed) < 5_000);
    }
    let (mut bed, _reader, id) = marked(&both_kinds(), Offload::Fast);
    order(&mut bed, id, Action::Released);
    assert_eq!(order(&mut bed, id, Action::Seen([Some(0), None])), CommandOutcome::Refused);
}

#[test]
fn credited_packets_count_wherever_the_engine_would_have_counted_them() {
    let count = |packets, bytes| Count { packets, bytes };
    let traffic = Traffic { outbound: count(10, 1_000), inbound: count(20, 30_000) };
    for six in [false, true] {
        let mut bed = Bed::new(&both_kinds());
        let mut reader = attach(&mut bed, FeedPolicy { packets: 1, ..ESTABLISHED }, 100);
        match six {
            false => _ = datagram(&mut bed, A, 4000),
            true => _ = bed.through(&udp6(CLIENT, 4000, &behind(POOL6, SERVER), 53, b"x")),
        }
        let session = sessions(&mut reader)[0];
        let before = bed.nat.counters().clone();
        let rows = |bed: &Bed| {
            let instance = bed.nat.instance_stats().nth(usize::from(session.id.flow.instance)).unwrap();
            let pool = bed.nat.pool_stats().next().unwrap().counters.traffic;
            let address = bed.nat.address_stats(0, 0..1).next().unwrap().traffic;
            let subscriber = bed.nat.subscribers().traffic(session.subscriber);
            let instance =
                Traffic { outbound: instance.counters.outbound, inbound: instance.counters.inbound };
            [instance, pool, address, subscriber]
        };
        let had = rows(&bed);
        mark(&mut bed, session.id, Offload::Fast);
        assert_eq!(order(&mut bed, session.id, Action::Credit(traffic)), CommandOutcome::Done);
        for (now, had) in rows(&bed).into_iter().zip(had) {
            assert_eq!(
                (now.outbound.less(had.outbound), now.inbound.less(had.inbound)),
                (count(10, 1_000), count(20, 30_000))
            );
        }
        let now = bed.nat.counters();
        assert_eq!(
            (now.rx.less(before.rx), now.forwarded.less(before.forwarded)),
            (count(30, 31_000), count(30, 31_000))
        );
        let translated = |n: usize| now.translated[n].less(before.translated[n]).packets;
        assert_eq!([translated(0), translated(1), translated(2)], if six { [10, 20, 0] } else { [0, 0, 30] });
        // `send` checks that all counters agree.
        bed.send(&udp4(A, 4000, SERVER, 53, b"x"));
    }
}

#[test]
fn credit_for_an_ended_session_counts_until_its_release() {
    let (mut bed, _reader, id) = marked(&both_kinds(), Offload::Fast);
    let one = Traffic { outbound: Count { packets: 1, bytes: 28 }, inbound: Count::default() };
    bed.nat.end_sessions(
        bed.now,
        &[gatun_nat::SessionKey {
            instance: 1,
            transport: Transport::Udp,
            inside: id.flow.inside,
            remote: id.flow.remote,
        }],
    );
    let before = bed.nat.counters().rx;
    assert_eq!(order(&mut bed, id, Action::Credit(one)), CommandOutcome::Done);
    assert_eq!(order(&mut bed, id, Action::Seen([Some(0), Some(0)])), CommandOutcome::Gone);
    assert_eq!(mark(&mut bed, id, Offload::Fast), CommandOutcome::Gone);
    assert_eq!(order(&mut bed, id, Action::Released), CommandOutcome::Done);
    assert_eq!(order(&mut bed, id, Action::Credit(one)), CommandOutcome::Gone);
    assert_eq!(bed.nat.counters().rx.less(before), one.outbound);
    assert!(
        bed.nat.conserved_by_instance() && bed.nat.conserved_by_address() && bed.nat.counters().conserved()
    );
}

#[test]
fn a_full_ring_asks_later() {
    let mut bed = Bed::new(&both_kinds());
    let mut reader = attach(&mut bed, FeedPolicy { packets: 1, ..ESTABLISHED }, 8);
    (0..8).for_each(|n| _ = datagram(&mut bed, A, 4000 + n));
    let told = sessions(&mut reader);
    for session in &told {
        assert_eq!(mark(&mut bed, session.id, Offload::Fast), CommandOutcome::Done);
    }
    (0..6).for_each(|n| _ = datagram(&mut bed, A, 5000 + n));
    pass(&mut bed, UDP_MS + 20_000);
    assert_eq!(bed.nat.feed_lost(), 0, "a question that does not fit is not asked");
    let asked = changes(&mut reader).iter().filter(|&&change| change == SessionChange::Asked).count();
    assert_eq!((asked, bed.nat.occupancy().sessions), (2, 8));
    pass(&mut bed, 5_000);
    assert_eq!(changes(&mut reader).len(), 8);
}

#[test]
fn all_are_released_when_no_fast_path_has_any() {
    let mut bed = Bed::new(&both_kinds());
    let mut reader = attach(&mut bed, FeedPolicy { packets: 1, ..ESTABLISHED }, 100);
    (0..20).for_each(|n| _ = datagram(&mut bed, A, 4000 + n));
    for session in sessions(&mut reader).iter().take(15) {
        mark(&mut bed, session.id, Offload::Fast);
    }
    let key = |id: &SessionId| gatun_nat::SessionKey {
        instance: 1,
        transport: transport(id),
        inside: id.flow.inside,
        remote: id.flow.remote,
    };
    let some: Vec<_> = present(&bed, &FeedPolicy::default()).iter().take(5).map(|s| key(&s.id)).collect();
    assert_eq!(bed.nat.end_sessions(bed.now, &some), 5);
    assert_eq!(bed.nat.occupancy().quarantined, 5);
    let (mut at, mut released) = (FeedCursor::default(), 0);
    while !at.is_done() {
        released += bed.nat.release_all(bed.now, &mut at, 4);
    }
    assert_eq!((released, bed.nat.occupancy().quarantined), (15, 0));
    assert_eq!(present(&bed, &FeedPolicy::default()), []);
    pass(&mut bed, UDP_MS + 10_000);
    assert_eq!(bed.nat.occupancy(), Default::default());
    assert_eq!(bed.send(&udp4(A, 4000, SERVER, 53, b"x")).verdict, Verdict::Forward);
}
