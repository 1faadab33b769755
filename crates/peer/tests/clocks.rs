//! Difference between the wall clocks of both boxes, as each member learns it.
#![allow(missing_docs)]

mod support;

use gatun_peer::ownership::Member;
use gatun_peer::wire::{Exchange, Frame, LAYOUTS, Received, Settings, decode};
use support::{Pair, settings};

const DAY_MS: i64 = 86_400_000;
/// Wall clock of the first box when the monotonic one begins.
const WALL_MS: u64 = 1_777_000_000_000;
/// More than the interval of questions.
const ASK_AGAIN_MS: u64 = 5_001;

/// Tells both sides their wall clocks: the second one's is ahead.
fn set_clocks(pair: &mut Pair, ahead_ms: i64) {
    let wall_ms = WALL_MS + pair.now_ms;
    pair.sides[0].set_wall_clock(pair.now_ms, wall_ms);
    pair.sides[1].set_wall_clock(pair.now_ms, wall_ms.checked_add_signed(ahead_ms).unwrap());
}

/// Connected sides, which have accepted each other, and whose clocks differ.
fn connected(of_second: Settings, ahead_ms: i64) -> Pair {
    let mut pair = Pair::new();
    pair.sides[1] = Exchange::new(of_second);
    pair.connect();
    pair.walk();
    set_clocks(&mut pair, ahead_ms);
    pair.sides.iter_mut().for_each(|side| side.accept_greeting(pair.now_ms));
    pair
}

fn differences(pair: &Pair) -> [Option<i64>; 2] {
    [pair.sides[0].clock_difference_ms(), pair.sides[1].clock_difference_ms()]
}

/// Moves what a side has to say now to the other one, which gets it after some time.
fn carry(pair: &mut Pair, from: usize, delay_ms: u64) -> Vec<Received> {
    let (mut bytes, mut received) = (vec![], vec![]);
    pair.sides[from].turn(pair.now_ms);
    pair.sides[from].take_output(&mut bytes);
    pair.now_ms += delay_ms;
    pair.sides[1 - from].receive(pair.now_ms, &bytes, &mut received).unwrap();
    received
}

#[test]
fn each_box_learns_how_much_the_clock_of_the_other_one_is_ahead() {
    for ahead_ms in [0, 3_000, -2 * DAY_MS, DAY_MS] {
        let mut pair = connected(settings(Member::Second, 2), ahead_ms);
        (0..4).for_each(|_| drop(pair.pass()));
        assert_eq!(differences(&pair), [Some(ahead_ms), Some(-ahead_ms)]);
        // A clock that was set is noticed at the next question.
        pair.now_ms += ASK_AGAIN_MS;
        set_clocks(&mut pair, 40);
        (0..3).for_each(|_| drop(pair.pass()));
        assert_eq!(differences(&pair), [Some(40), Some(-40)]);
        pair.sides.iter_mut().for_each(|side| side.close(pair.now_ms));
        assert_eq!(differences(&pair), [None, None], "nobody tells it");
    }
}

#[test]
fn a_late_answer_changes_the_difference_by_half_of_its_way_at_most() {
    let mut pair = connected(settings(Member::Second, 2), DAY_MS);
    (0..4).for_each(|_| drop(pair.pass()));
    pair.now_ms += ASK_AGAIN_MS;
    set_clocks(&mut pair, DAY_MS);
    carry(&mut pair, 0, 100);
    carry(&mut pair, 1, 700);
    let [Some(difference_ms), _] = differences(&pair) else { panic!("{:?}", differences(&pair)) };
    assert_eq!(DAY_MS - difference_ms, 300, "the way back took 600 ms longer");

    // An answer that comes after more than a second is not used, and the next one is.
    pair.now_ms += ASK_AGAIN_MS;
    set_clocks(&mut pair, 2 * DAY_MS);
    carry(&mut pair, 0, 1);
    carry(&mut pair, 1, 1_000);
    assert_eq!(differences(&pair)[0], Some(difference_ms));
    pair.now_ms += ASK_AGAIN_MS;
    carry(&mut pair, 0, 0);
    carry(&mut pair, 1, 1_000);
    assert_eq!(differences(&pair)[0], Some(2 * DAY_MS - 500));
}

#[test]
fn answers_to_no_question_and_absurd_clocks_do_no_harm() {
    let mut pair = connected(settings(Member::Second, 2), 0);
    (0..4).for_each(|_| drop(pair.pass()));
    let mut told = |asked_ms, wall_ms| {
        let mut bytes = vec![];
        Frame::TimeTold { asked_ms, wall_ms }.put(&mut bytes);
        pair.sides[0].receive(pair.now_ms, &bytes, &mut vec![]).unwrap();
        pair.sides[0].clock_difference_ms().unwrap()
    };
    assert_eq!([told(0, u64::MAX), told(u64::MAX, 0), told(pair.now_ms, 7)], [0; 3]);
    pair.now_ms += ASK_AGAIN_MS;
    pair.sides[1].set_wall_clock(pair.now_ms, u64::MAX);
    (0..3).for_each(|_| drop(pair.pass()));
    let [Some(first), Some(second)] = differences(&pair) else { panic!("{:?}", differences(&pair)) };
    assert!(first > 0 && second < 0, "{first} {second}");
}

#[test]
fn a_box_of_a_former_layout_is_asked_nothing_and_stays_connected() {
    let former = Settings { layouts: (2, *LAYOUTS.end() - 1), ..settings(Member::Second, 2) };
    let mut pair = connected(former, DAY_MS);
    let mut kinds = 0;
    for _ in 0..200 {
        pair.now_ms += 100;
        let mut bytes = vec![];
        pair.sides[0].turn(pair.now_ms);
        pair.sides[0].take_output(&mut bytes);
        pair.sides[1].receive(pair.now_ms, &bytes, &mut vec![]).unwrap();
        let mut rest = &bytes[..];
        while let Some((frame, len)) = decode(rest).unwrap() {
            assert!(!matches!(frame, Frame::TimeAsked(_) | Frame::TimeTold { .. }), "{frame:?}");
            (rest, kinds) = (&rest[len..], kinds + 1);
        }
        carry(&mut pair, 1, 0);
    }
    assert!(kinds >= 200, "{kinds} signs of life");
    assert!(pair.sides.iter().all(Exchange::is_established));
    assert_eq!(differences(&pair), [None, None]);
}
