//! Records of the feed: selection, order and contents.

use crate::common::*;
use crate::*;
use gatun_nat::engine::BURST;
use gatun_nat::plan::{Allocation, Blocks, StaticBinding};
use gatun_nat::tcp_fsm::TcpState;
use gatun_nat::{ClearCursor, Extent, Verdict, inspect::Selection};
use gatun_wire::{HEADROOM, Packet};

#[test]
fn a_connection_is_reported_when_both_sides_have_sent_a_syn() {
    let mut bed = Bed::new(&both_kinds());
    let mut reader = attach(&mut bed, ESTABLISHED, 100);
    let port = {
        let out = bed.through(&tcp4(A, 4000, SERVER, 80, "S", b""));
        assert_eq!(changes(&mut reader), []);
        bed.through(&tcp4(SERVER, 80, T, out.sport, "SA", b""));
        out.sport
    };
    let told = sessions(&mut reader);
    let [session] = told[..] else { panic!("{told:?}") };
    assert_eq!((session.change, session.tcp), (SessionChange::Established, Some(TcpState::Established)));
    let flow = session.id.flow;
    assert_eq!(flow.inside, (v4(A).to_ipv6_mapped(), 4000));
    assert_eq!((flow.outside, flow.remote), ((v4(T), port), (v4(SERVER), 80)));
    assert_eq!((flow.transport, flow.instance), (Transport::Tcp, 1));
    assert_eq!((session.ownership, session.of_static), (Ownership::default(), false));
    assert!((7_440_000..=7_440_064).contains(&session.expires_ms), "{}", session.expires_ms);
    let subscriber = bed.nat.subscribers().get(session.subscriber).unwrap();
    assert_eq!(subscriber.key().prefix, u128::from(v4(A).to_ipv6_mapped()));
    // Data causes no record, nor does the end of an unmarked session.
    bed.through(&tcp4(A, 4000, SERVER, 80, "A", b"x"));
    bed.through(&tcp4(A, 4000, SERVER, 80, "FA", b""));
    assert_eq!(changes(&mut reader), []);
    // Session of an IPv6 host, with the number of its prefix.
    let out = bed.through(&tcp6(CLIENT, 4000, &behind(POOL6, SERVER), 80, "S", b""));
    bed.through(&tcp4(SERVER, 80, T, out.sport, "SA", b""));
    let told = sessions(&mut reader);
    assert_eq!((told[0].id.flow.instance, told[0].pool6, told[0].id.flow.inside.0), (0, 0, v6(CLIENT)));
}

#[test]
fn a_datagram_flow_is_reported_after_so_many_packets_of_either_side() {
    for packets in [0, 1, 2, 3, 9, 128, 255] {
        let mut bed = Bed::new(&both_kinds());
        let mut reader = attach(&mut bed, FeedPolicy { packets, ..ESTABLISHED }, 100);
        let port = datagram(&mut bed, A, 4000);
        let out6 = bed.through(&udp6(CLIENT, 4000, &behind(POOL6, SERVER), 53, b"x"));
        let mut sent = 1u16;
        let mut told = sessions(&mut reader);
        while told.is_empty() {
            assert!(sent < 200);
            match sent % 3 {
                0 => _ = bed.through(&udp4(SERVER, 53, T, port, b"y")),
                _ => _ = bed.through(&udp4(A, 4000, SERVER, 53, b"x")),
            }
            bed.through(&udp4(SERVER, 53, T, out6.sport, b"y"));
            sent += 1;
            told = sessions(&mut reader);
        }
        assert_eq!(sent, u16::from(packets).clamp(1, 128));
        assert_eq!(told.len(), 2, "of both kinds");
        assert!(told.iter().all(|s| s.change == SessionChange::Established && s.tcp.is_none()));
        for _ in 0..3 {
            bed.through(&udp4(A, 4000, SERVER, 53, b"x"));
        }
        assert_eq!(changes(&mut reader), [], "once");
    }
}

#[test]
fn a_connection_is_reported_after_so_many_packets_of_either_side() {
    for tcp_packets in [0, 1, 2, 7, 128, 255] {
        let mut bed = Bed::new(&both_kinds());
        let policy = FeedPolicy { tcp_packets, ..ESTABLISHED };
        let mut reader = attach(&mut bed, policy, 100);
        let port = connect(&mut bed, A, 4000, SERVER);
        let out6 = bed.through(&tcp6(CLIENT, 4000, &behind(POOL6, SERVER), 80, "S", b""));
        bed.through(&tcp4(SERVER, 80, T, out6.sport, "SA", b""));
        let mut sent = 0u16;
        let mut told = sessions(&mut reader);
        while told.is_empty() {
            assert!(sent < 200);
            assert_eq!(present(&bed, &policy), [], "not offered yet");
            match sent % 3 {
                0 => _ = bed.through(&tcp4(SERVER, 80, T, port, "A", b"y")),
                _ => _ = bed.through(&tcp4(A, 4000, SERVER, 80, "A", b"x")),
            }
            bed.through(&tcp4(SERVER, 80, T, out6.sport, "A", b"y"));
            sent += 1;
            told = sessions(&mut reader);
        }
        assert_eq!(sent, u16::from(tcp_packets).min(128));
        let established = |s: &SessionRecord| {
            (s.change, s.tcp) == (SessionChange::Established, Some(TcpState::Established))
        };
        assert!(told.len() == 2 && told.iter().all(established), "{told:?}");
        assert_eq!(present(&bed, &policy).len(), 2);
        bed.through(&tcp4(A, 4000, SERVER, 80, "A", b"x"));
        assert_eq!(changes(&mut reader), [], "once");
    }
}

#[test]
fn a_short_connection_is_never_reported_and_one_that_opens_again_is_counted_again() {
    let mut bed = Bed::new(&both_kinds());
    let mut reader = attach(&mut bed, FeedPolicy { tcp_packets: 4, ..ESTABLISHED }, 100);
    let data = tcp4(A, 4000, SERVER, 80, "A", b"x");
    let port = connect(&mut bed, A, 4000, SERVER);
    (0..3).for_each(|_| _ = bed.through(&data));
    bed.through(&tcp4(A, 4000, SERVER, 80, "FA", b""));
    bed.through(&tcp4(SERVER, 80, T, port, "FA", b""));
    (0..9).for_each(|_| _ = bed.through(&data));
    assert_eq!(changes(&mut reader), []);
    assert_eq!(connect(&mut bed, A, 4000, SERVER), port);
    (0..3).for_each(|_| _ = bed.through(&data));
    assert_eq!(changes(&mut reader), []);
    bed.through(&data);
    assert_eq!(changes(&mut reader), [SessionChange::Established]);
}

#[test]
fn packets_of_a_burst_are_counted_one_by_one_and_reported_in_their_order() {
    let mut bed = Bed::new(&both_kinds());
    let mut reader = attach(&mut bed, FeedPolicy { tcp_packets: 5, ..ESTABLISHED }, 1000);
    let mut packets = Vec::new();
    for host in [7, 3, 9] {
        let host = format!("10.0.0.{host}");
        (4000..4010).for_each(|port| _ = connect(&mut bed, &host, port, SERVER));
        let of = |port| tcp4(&host, port, SERVER, 80, "A", b"x");
        packets.extend((4000..4010).flat_map(|port| vec![of(port); 6]));
    }
    let mut buffers: Vec<Vec<u8>> =
        packets.iter().map(|p| [vec![0; HEADROOM].as_slice(), p].concat()).collect();
    let lens = packets.iter().map(Vec::len);
    let mut burst: Vec<Packet<'_>> =
        buffers.iter_mut().zip(lens).map(|(b, len)| Packet::new(b, HEADROOM, len).unwrap()).collect();
    let mut verdicts = [Verdict::Pass; BURST];
    for some in burst.chunks_mut(BURST) {
        assert_eq!(bed.nat.process(bed.now, some, &mut verdicts), some.len());
        assert!(verdicts[..some.len()].iter().all(|verdict| *verdict == Verdict::Forward));
    }
    let told = sessions(&mut reader);
    let hosts: Vec<u8> = told.iter().map(|s| s.id.flow.inside.0.octets()[15]).collect();
    assert_eq!(hosts, [[7; 10], [3; 10], [9; 10]].concat());
    assert!(told.iter().all(|s| s.change == SessionChange::Established));
}

#[test]
fn without_a_consumer_nothing_is_counted_and_a_later_one_finds_all_established() {
    let mut bed = Bed::new(&both_kinds());
    datagram(&mut bed, A, 4000);
    bed.through(&tcp4(A, 4001, SERVER, 80, "S", b""));
    connect(&mut bed, A, 4002, SERVER);
    let found = present(&bed, &ESTABLISHED);
    let ports: Vec<u16> = found.iter().map(|s| s.id.flow.inside.1).collect();
    assert_eq!(ports, [4000, 4002]);
    assert!(found.iter().all(|s| s.change == SessionChange::Established));
    let mut reader = attach(&mut bed, ESTABLISHED, 100);
    bed.through(&udp4(A, 4000, SERVER, 53, b"x"));
    assert_eq!(changes(&mut reader), []);
}

#[test]
fn flows_of_shared_ports_and_hairpins_are_never_established() {
    let mut plan = both_kinds();
    plan.pools[0].overload = vec![(Transport::Udp, 443)];
    let mut bed = Bed::new(&plan);
    let mut reader = attach(&mut bed, FeedPolicy { packets: 1, ..ESTABLISHED }, 100);
    let shared = udp4(A, 4000, SERVER, 443, b"x");
    (0..5).for_each(|_| _ = bed.through(&shared));
    let port = datagram(&mut bed, "10.0.0.6", 5000);
    assert_eq!(changes(&mut reader).len(), 1, "not the one of the shared port");
    for _ in 0..5 {
        // Sessions of the sender and of the receiver.
        bed.through(&udp4(A, 4001, T, port, b"x"));
    }
    assert_eq!(bed.nat.occupancy().sessions, 4);
    assert_eq!(changes(&mut reader), []);
    assert_eq!(present(&bed, &ESTABLISHED).len(), 1);
    let all = present(&bed, &FeedPolicy { sessions: SessionScope::All, ..ESTABLISHED });
    assert_eq!(all.iter().filter(|s| s.change == SessionChange::Opened).count(), 3);
    for session in all.iter().filter(|s| s.change == SessionChange::Opened) {
        assert_eq!(mark(&mut bed, session.id, Offload::Pending), CommandOutcome::Refused);
    }
}

#[test]
fn a_consumer_of_all_gets_beginnings_and_ends_with_bindings_and_blocks() {
    let mut plan = both_kinds();
    plan.pools[0].allocation = Allocation::Blocks(Blocks { size: 64, linger_ms: 0, ..Blocks::default() });
    let binding = StaticBinding {
        transport: Transport::Udp,
        inside: (v4(A).to_ipv6_mapped(), 5353),
        outside: (v4(T), 40_000),
    };
    plan.nat44[0].static_bindings = vec![binding];
    let mut bed = Bed::new(&plan);
    let policy = FeedPolicy { sessions: SessionScope::All, bindings: true, blocks: true, ..ESTABLISHED };
    let mut reader = attach(&mut bed, policy, 100);
    let port = datagram(&mut bed, A, 4000);
    bed.through(&udp4(SERVER, 999, T, 40_000, b"through the static binding"));
    bed.nat.clear(bed.now, &mut ClearCursor::default(), &Selection::default(), Extent::Session, 1000);
    let told: Vec<String> = records(&mut reader)
        .iter()
        .map(|record| match record {
            Record::Session(s) => format!("{:?} {} static {}", s.change, s.id.flow.outside.1, s.of_static),
            Record::Binding(b) => format!("binding {} {}", b.begins, b.outside.1),
            Record::Block(b) => {
                assert!((b.ports.0..=b.ports.1).contains(&port) && b.transports == [true; 3]);
                assert_eq!((b.subscriber, b.outside), (v4(A).to_ipv6_mapped(), v4(T)));
                format!("block {} {}", b.begins, b.ports.1 - b.ports.0)
            }
            other => format!("{other:?}"),
        })
        .collect();
    let expected = [
        "block true 63",
        &format!("binding true {port}"),
        &format!("Opened {port} static false"),
        "Opened 40000 static true",
        "block false 63",
        &format!("Ended {port} static false"),
        &format!("binding false {port}"),
        "Ended 40000 static true",
    ];
    assert_eq!(told, expected);
}

#[test]
fn lost_records_are_counted_and_a_walk_gives_what_they_said() {
    let mut bed = Bed::new(&both_kinds());
    let mut reader = attach(&mut bed, FeedPolicy { packets: 1, ..ESTABLISHED }, 8);
    (0..30).for_each(|n| _ = datagram(&mut bed, A, 4000 + n));
    assert_eq!(bed.nat.feed_lost(), 22);
    assert_eq!(records(&mut reader).len(), 8);
    bed.nat.expire(bed.now, 10);
    datagram(&mut bed, A, 5000);
    let (at, lost) = reader.next().unwrap();
    assert_eq!((at.number, lost), (30, Record::Lost(22)));
    assert_eq!(reader.next().unwrap().0.number, 30);
    // The stream continues during the walk, and the numbers tell which record is newer.
    let (mut cursor, mut found) = (FeedCursor::default(), Vec::with_capacity(100));
    let first = bed.nat.read_feed(&mut cursor, &ESTABLISHED, 20, &mut found).unwrap();
    datagram(&mut bed, A, 5001);
    assert_eq!((first.generation, first.number), (7, 31));
    assert_eq!(reader.next().unwrap().0, first, "newer than what the first slice has");
    while !cursor.is_done() {
        bed.nat.read_feed(&mut cursor, &ESTABLISHED, 20, &mut found);
    }
    assert_eq!(found.len(), 32, "each once");
}

#[test]
fn another_plan_is_reported() {
    let plan = both_kinds();
    let mut bed = Bed::new(&plan);
    let mut reader = attach(&mut bed, ESTABLISHED, 8);
    let mut other = plan.clone();
    other.limits.sessions_max = 1000;
    let mut change = gatun_nat::reconfigure::Change::prepare(&bed.nat.outline(), &plan, &other).unwrap();
    bed.nat.apply(bed.now, &mut change).unwrap();
    assert_eq!(records(&mut reader), [Record::PlanChanged]);
}

#[test]
fn a_detached_feed_comes_back_and_its_reader_knows() {
    let mut bed = Bed::new(&both_kinds());
    let reader = attach(&mut bed, ESTABLISHED, 8);
    let feed = bed.nat.attach_feed(None);
    assert!(feed.is_some() && !reader.is_abandoned());
    drop(feed);
    assert!(reader.is_abandoned() && bed.nat.attach_feed(None).is_none());
}
