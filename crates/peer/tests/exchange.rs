//! Two exchanges, and the bytes between them.
#![allow(missing_docs)]

mod support;

use gatun_nat::feed::BlockRecord;
use gatun_nat::standby::ClosedFlow;
use gatun_peer::ownership::{Authority, Epoch, Member, Rules, Standing};
use gatun_peer::wire::{
    ConfigKey, Exchange, Frame, Hello, KeyDifference, PeerRecord, Received, SessionState, WireError, decode,
};
use support::{Pair, session, session_end, settings};

fn records(received: &[Received]) -> Vec<PeerRecord> {
    let all = received.iter().filter_map(|one| match one {
        Received::Records(records) => Some(records.records.clone()),
        _ => None,
    });
    all.flatten().collect()
}

fn block(begins: bool) -> PeerRecord {
    PeerRecord::Block(BlockRecord {
        begins,
        instance: 1,
        subscriber: "100.64.0.1".parse::<std::net::Ipv4Addr>().unwrap().to_ipv6_mapped(),
        outside: [192, 0, 2, 1].into(),
        ports: (1024, 1279),
        transports: [true, false, true],
    })
}

#[test]
fn records_arrive_in_their_order_and_are_acknowledged_after_their_answers() {
    let mut pair = Pair::connected();
    let sent = [
        PeerRecord::Session(session(1, true)),
        PeerRecord::Session(session(2, false)),
        PeerRecord::SessionEnd(session_end(1)),
        PeerRecord::SessionClosed(ClosedFlow::of(&session(2, true).flow)),
        PeerRecord::Session(brief(3, 0)),
        PeerRecord::Session(brief(4, 7)),
        block(true),
        PeerRecord::Standing { shard: 1, epoch: Epoch { number: 7, owner: Member::Second }, revision: 99 },
    ];
    let number = sent.map(|record| pair.sides[0].push(pair.now_ms, record).unwrap())[0];
    assert!(pair.pass().iter().all(Vec::is_empty), "they wait for others");
    pair.now_ms += 5;
    let [_, received] = pair.pass();
    assert_eq!(records(&received), sent);
    let [acknowledged, _] = pair.pass();
    assert_eq!(acknowledged, [], "the receiver has not handled them yet");
    pair.sides[1].answer_all();
    let [acknowledged, _] = pair.pass();
    assert_eq!(acknowledged, [Received::Acknowledged(number)]);
}

#[test]
fn a_broken_connection_continues_with_what_was_lost_and_with_nothing_twice() {
    let mut pair = Pair::connected();
    pair.sides[0].push(pair.now_ms, block(true));
    pair.now_ms += 5;
    let [_, received] = pair.pass();
    assert_eq!(records(&received).len(), 1);
    // Lost on the way, and made without a connection.
    pair.sides[0].push(pair.now_ms, PeerRecord::Session(session(1, true)));
    pair.now_ms += 5;
    pair.sides[0].turn(pair.now_ms);
    pair.sides.iter_mut().for_each(|side| side.close(5));
    pair.sides[0].push(pair.now_ms, PeerRecord::Session(session(2, true)));
    pair.connect();
    pair.pass();
    let [_, received] = pair.pass();
    let wanted = [session(1, true), session(2, true)].map(PeerRecord::Session);
    assert_eq!(records(&received), wanted);
    assert!(!pair.sides[0].needs_walk());
}

#[test]
fn another_process_gets_the_whole_state_and_a_full_log_does_too() {
    let mut pair = Pair::connected();
    pair.sides[1] = Exchange::new(settings(Member::Second, 77));
    pair.connect();
    pair.pass();
    assert!(pair.sides[0].needs_walk() && pair.sides[1].needs_walk());
    assert_eq!(pair.sides[0].push(pair.now_ms, block(true)), None, "the walk will contain it");
    pair.walk();
    // Without a connection, the log fills.
    pair.sides.iter_mut().for_each(|side| side.close(5));
    for _ in 0..100 {
        pair.sides[0].push(pair.now_ms, block(false));
        pair.now_ms += 5;
        pair.sides[0].turn(pair.now_ms);
    }
    pair.connect();
    pair.pass();
    assert!(pair.sides[0].needs_walk() && !pair.sides[1].needs_walk());
}

#[test]
fn no_end_is_acknowledged_before_the_whole_state_is() {
    let mut pair = Pair::connected();
    pair.sides[1] = Exchange::new(settings(Member::Second, 77));
    pair.connect();
    pair.pass();
    pair.sides[0].push(pair.now_ms, PeerRecord::StateBegins);
    pair.sides[1].push(pair.now_ms, PeerRecord::StateBegins);
    let end = pair.sides[1].push(pair.now_ms, PeerRecord::StateEnds).unwrap();
    pair.now_ms += 5;
    pair.pass();
    pair.sides.iter_mut().for_each(Exchange::answer_all);
    let [first, second] = pair.pass();
    assert_eq!((first, second), (vec![], vec![]), "the first one is still walking");
    pair.sides[0].push(pair.now_ms, PeerRecord::StateEnds);
    pair.now_ms += 5;
    // The acknowledgement follows the end of the state.
    let [_, second] = pair.pass();
    assert!(
        matches!(&second[..], [Received::Records(_), Received::Acknowledged(n)] if *n == end),
        "{second:?}"
    );
}

/// A session without its lifetime.
fn brief(n: u32, pool6: u8) -> SessionState {
    SessionState { lifetime_ms: None, pool6, ..session(n, true) }
}

#[test]
fn a_session_takes_sixty_bytes_at_most_with_its_end() {
    let mut pair = Pair::connected();
    let count = 10_000u32;
    let before = pair.bytes[0];
    for n in 0..count {
        pair.sides[0].push(pair.now_ms, PeerRecord::Session(brief(n, 0)));
        let closed = PeerRecord::SessionClosed(ClosedFlow::of(&session(n, true).flow));
        pair.sides[0].push(pair.now_ms, closed);
        pair.sides[0].push(pair.now_ms, PeerRecord::SessionEnd(session_end(n)));
        // 100,000 sessions a second, in groups of 5 ms.
        if n % 100 == 0 {
            pair.now_ms += 1;
            pair.sides[0].turn(pair.now_ms);
        }
    }
    pair.now_ms += 5;
    let [_, received] = pair.pass();
    assert_eq!(records(&received).len(), 3 * count as usize);
    let bytes = (pair.bytes[0] - before) as f64 / f64::from(count);
    println!("{bytes:.2} bytes for each TCP session of an IPv6 host, with its close and its end");
    assert!(bytes <= 60.0, "{bytes} bytes");
}

#[test]
fn differences_of_the_configurations_are_reported_by_key() {
    let key = |name: &str, hash| ConfigKey { name: name.to_owned(), hash };
    let mut pair = Pair::new();
    pair.sides[0].set_keys(vec![key("a.same", 1), key("b.value", 1), key("c.here", 1)]);
    pair.sides[1].set_keys(vec![key("a.same", 1), key("b.value", 2), key("d.there", 1)]);
    pair.connect();
    let [received, _] = pair.pass();
    let [Received::Hello { differences, is_settled, .. }] = &received[..] else { panic!("{received:?}") };
    assert_eq!((pair.sides[0].peer_name(), *is_settled), ("second", true));
    let text = |name: &str| name.to_owned();
    assert_eq!(
        *differences,
        [
            KeyDifference::Value(text("b.value")),
            KeyDifference::Here(text("c.here")),
            KeyDifference::There(text("d.there"))
        ]
    );
}

#[test]
fn a_configuration_that_changes_is_compared_again_and_the_connection_goes_on() {
    let key = |hash| vec![ConfigKey { name: "limits.max".to_owned(), hash }];
    let mut pair = Pair::connected();
    pair.sides.iter_mut().for_each(|side| side.set_keys(key(1)));
    for _ in 0..2 {
        pair.pass();
    }
    assert!(pair.sides.iter().all(|side| side.differences().is_empty()));
    pair.sides[1].set_keys(key(2));
    pair.pass();
    pair.pass();
    for side in &pair.sides {
        assert_eq!(side.differences(), [KeyDifference::Value("limits.max".into())]);
        assert!(side.is_open());
    }
    pair.sides[0].push(pair.now_ms, block(true)).unwrap();
    pair.now_ms += 5;
    assert_eq!(records(&pair.pass()[1]), [block(true)]);
    pair.sides[0].set_keys(key(2));
    pair.pass();
    assert!(pair.sides.iter().all(|side| side.differences().is_empty()));
    // As many keys as fit, behind other frames.
    let name = |n: usize| format!("{n:0200}");
    let many: Vec<ConfigKey> = (0..4_000).map(|n| ConfigKey { name: name(n), hash: 1 }).collect();
    pair.sides[0].push(pair.now_ms, block(true)).unwrap();
    pair.now_ms += 5;
    pair.sides[0].set_keys(many);
    pair.pass();
    assert!(pair.sides[1].differences().len() > 200 && pair.sides[1].is_open());
}

#[test]
fn a_member_of_another_layout_and_the_same_member_are_refused_in_words() {
    let refuse = |hello: Hello| {
        let mut exchange = Exchange::new(settings(Member::First, 1));
        exchange.open(0, true);
        let (mut bytes, mut received) = (vec![], vec![]);
        Frame::Hello(hello).put(&mut bytes);
        let error = exchange.receive(0, &bytes, &mut received).unwrap_err();
        let mut output = vec![];
        exchange.take_output(&mut output);
        let (_, len) = decode(&output).unwrap().unwrap();
        let (last, _) = decode(&output[len..]).unwrap().unwrap();
        assert_eq!(last, Frame::Refused(error.to_string()));
        error
    };
    let newer = Hello { layouts: (7, 8), ..Hello::new(Member::Second, "newer", 2) };
    assert_eq!(refuse(newer), WireError::Layouts { lowest: 7, highest: 8, own: (2, 6) });
    let same = Hello::new(Member::First, "same", 2);
    assert!(matches!(refuse(same), WireError::SameMember(_)));
    // A newer build that still knows this layout is accepted.
    let mut exchange = Exchange::new(settings(Member::First, 1));
    exchange.open(0, true);
    let mut bytes = vec![];
    Frame::Hello(Hello { layouts: (1, 9), ..Hello::new(Member::Second, "next", 2) }).put(&mut bytes);
    exchange.receive(0, &bytes, &mut vec![]).unwrap();
    assert!(exchange.is_open());
}

#[test]
fn texts_of_the_peer_have_no_control_characters() {
    let key = ConfigKey { name: "k\u{7}".into(), hash: 1 };
    let hello = Hello { keys: vec![key], ..Hello::new(Member::Second, "a\u{1b}[2Jb", 2) };
    let mut exchange = Exchange::new(settings(Member::First, 1));
    exchange.open(0, true);
    let (mut bytes, mut received) = (vec![], vec![]);
    Frame::Hello(hello).put(&mut bytes);
    exchange.receive(0, &bytes, &mut received).unwrap();
    let [Received::Hello { differences, .. }] = &received[..] else { panic!("{received:?}") };
    assert_eq!(exchange.peer_name(), "a\u{fffd}[2Jb");
    assert_eq!(*differences, [KeyDifference::There("k\u{fffd}".into())]);
    let mut bytes = vec![];
    Frame::Refused("no\r\nmore".into()).put(&mut bytes);
    let error = exchange.receive(0, &bytes, &mut received).unwrap_err();
    assert_eq!(error, WireError::Refused("no\u{fffd}\u{fffd}more".into()));
}

#[test]
fn an_epoch_after_the_last_one_is_refused_and_never_made() {
    let put = |number| {
        let epoch = Epoch { number, owner: Member::First };
        let records = vec![PeerRecord::Standing { shard: 0, epoch, revision: 1 }];
        let mut bytes = vec![];
        Frame::Records(gatun_peer::wire::Records { number: 1, seen: 0, records }).put(&mut bytes);
        bytes
    };
    assert_eq!(decode(&put(u32::MAX)), Err(WireError::Malformed("impossible epoch")));
    assert!(decode(&put(Epoch::NUMBER_MAX)).is_ok());
    let epoch = Epoch { number: Epoch::NUMBER_MAX, owner: Member::First };
    let mut standing = Standing {
        me: Member::First,
        epoch,
        is_settled: true,
        peer_is_gone: false,
        authority: Authority::Pair,
    };
    assert_eq!(standing.release(&Rules::default()), None);
    standing.seize();
    assert_eq!(standing.epoch, epoch);
}

#[test]
fn a_greeting_that_is_refused_establishes_nothing() {
    let mut pair = Pair::new();
    pair.connect();
    pair.pass();
    assert!(pair.sides.iter().all(|side| side.is_open() && !side.is_established()));
    pair.sides[0].accept_greeting(pair.now_ms);
    pair.pass();
    assert!(pair.sides.iter().all(|side| !side.is_established()), "the second one has not accepted yet");
    pair.sides[1].accept_greeting(pair.now_ms);
    pair.pass();
    assert!(pair.sides.iter().all(Exchange::is_established));
}

#[test]
fn a_missing_or_replayed_record_is_noticed() {
    let frame = |number| {
        let mut bytes = vec![];
        let records = gatun_peer::wire::Records { number, seen: 0, records: vec![PeerRecord::StateBegins] };
        Frame::Records(records).put(&mut bytes);
        let records = gatun_peer::wire::Records { number: number + 1, seen: 0, records: vec![block(true)] };
        Frame::Records(records).put(&mut bytes);
        bytes
    };
    let mut exchange = Pair::connected().sides.into_iter().next().unwrap();
    let mut received = vec![];
    exchange.receive(0, &frame(10), &mut received).unwrap();
    assert_eq!(records(&received).len(), 2);
    exchange.receive(0, &frame(10), &mut received).unwrap();
    assert_eq!(records(&received).len(), 2, "a replay changes nothing");
    let mut bytes = vec![];
    let gap = gatun_peer::wire::Records { number: 13, seen: 0, records: vec![block(false)] };
    Frame::Records(gap).put(&mut bytes);
    let error = exchange.receive(0, &bytes, &mut received).unwrap_err();
    assert_eq!(error, WireError::Gap { expected: 12, received: 13 });
}

#[test]
fn cut_and_changed_frames_are_errors_and_never_a_panic() {
    let mut pair = Pair::connected();
    let all = [
        PeerRecord::Session(session(1, true)),
        PeerRecord::Session(session(2, false)),
        PeerRecord::SessionEnd(session_end(3)),
        block(true),
        PeerRecord::Standing { shard: 0, epoch: Epoch { number: 1, owner: Member::First }, revision: 5 },
    ];
    for record in all {
        pair.sides[0].push(pair.now_ms, record).unwrap();
    }
    pair.now_ms += 5;
    pair.sides[0].turn(pair.now_ms);
    let mut bytes = vec![];
    pair.sides[0].take_output(&mut bytes);
    for len in 0..bytes.len() {
        assert_eq!(decode(&bytes[..len]), Ok(None), "{len} bytes are not whole");
        // The same bytes as a shorter frame.
        if len > 5 {
            let mut cut = bytes[..len].to_vec();
            cut[..4].copy_from_slice(&(len as u32 - 4).to_be_bytes());
            let records = decode(&cut).map(|found| found.map(|(frame, _)| frame));
            assert!(!matches!(&records, Ok(Some(Frame::Records(r))) if r.records.len() == all.len()));
        }
    }
    for place in 0..bytes.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut changed = bytes.clone();
            changed[place] = value;
            let _ = decode(&changed);
        }
    }
    assert_eq!(decode(&[0xff; 64]), Err(WireError::Length(0xffff_ffff)));
    assert_eq!(decode(&[0, 0, 0, 0, 0]), Err(WireError::Length(0)));
}
