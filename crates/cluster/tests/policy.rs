//! Ways of a shard to its target, without a network: each node acts on the same record in turn.
#![allow(missing_docs)]

use gatun_cluster::policy::{Change, Facts, Next, next};
use gatun_cluster::record::{Part, Phase, ShardRecord};
use gatun_cluster::target::Target;
use gatun_cluster::transitions::{Absence, create};
use gatun_cluster::{ClusterRules, ClusterTiming};
use gatun_peer::ownership::Timing;

const TIMING: ClusterTiming =
    ClusterTiming { timing: Timing { lease_ms: 3_000, kernel_ms: 500, drift_ms: 100 }, hold_ms: 60_000 };

/// A node that never answers, and the time for which it has not.
type Dead = Option<(u8, u32)>;

fn facts<'a>(
    me: &'a u8,
    target: &'a Target<u8>,
    record: Option<&ShardRecord<u8>>,
    dead: Dead,
) -> Facts<'a, u8> {
    let other = record.and_then(|record| record.other(me).copied().or(Some(record.owner.node)));
    let absent_ms = dead.filter(|(node, _)| other == Some(*node)).map(|(_, ms)| ms);
    Facts {
        me,
        target: Some(target),
        absence: Absence { absent_ms, ..Absence::default() },
        is_other_here: absent_ms.is_none(),
        is_other_away: absent_ms.is_some_and(|ms| ms > 1_000),
        is_synced: absent_ms.is_none(),
        has_right: true,
        has_state: true,
        is_told: true,
        has_dropped: true,
        may_move: true,
    }
}

/// Lets all living nodes act until nothing changes. Returns the changes.
fn settle(record: &mut Option<ShardRecord<u8>>, target: &Target<u8>, dead: Dead) -> Vec<Change> {
    let mut changes = vec![];
    let is_dead = |node: u8| dead.is_some_and(|(one, _)| one == node);
    for _ in 0..30 {
        for me in (0..4u8).filter(|node| !is_dead(*node)) {
            let facts = facts(&me, target, record.as_ref(), dead);
            let rules = ClusterRules::default();
            if let Next::Write(change, new) =
                next((&rules, &TIMING), record.as_ref(), &facts, &|node| !is_dead(*node))
            {
                changes.push(change);
                *record = Some(new);
            }
        }
    }
    changes
}

fn reached(record: &Option<ShardRecord<u8>>) -> (u8, Option<(u8, Phase)>) {
    let record = record.as_ref().unwrap();
    (record.owner.node, record.backup.as_ref().map(|backup| (backup.seat.node, backup.phase)))
}

#[test]
fn a_shard_reaches_each_target_from_each_other_one() {
    let targets: Vec<_> = (0..4u8)
        .flat_map(|first| (0..4).filter(move |second| *second != first).map(move |second| (first, second)))
        .map(|(first, second)| Target { first, second: Some(second) })
        .collect();
    for from in &targets {
        for to in &targets {
            let mut record = None;
            settle(&mut record, from, None);
            assert_eq!(reached(&record), (from.first, from.second.map(|node| (node, Phase::Ready))));
            let changes = settle(&mut record, to, None);
            assert_eq!(
                reached(&record),
                (to.first, to.second.map(|node| (node, Phase::Ready))),
                "{from:?} {to:?}"
            );
            assert!(changes.len() <= 12, "{from:?} to {to:?} takes {changes:?}");
            assert!(settle(&mut record, to, None).is_empty(), "it goes on changing");
        }
    }
}

#[test]
fn a_dead_owner_is_replaced_after_the_margin_and_its_seat_after_the_hold() {
    let target = Target { first: 0, second: Some(1) };
    let mut record = None;
    settle(&mut record, &target, None);
    assert!(settle(&mut record, &target, Some((0, 599))).is_empty(), "the margin is not over");
    assert_eq!(settle(&mut record, &target, Some((0, 600))), [Change::Claim]);
    assert_eq!(reached(&record), (1, Some((0, Phase::Filling))));
    let without = Target { first: 1, second: Some(2) };
    assert!(settle(&mut record, &without, Some((0, 60_599))).is_empty(), "the hold is not over");
    assert_eq!(
        settle(&mut record, &without, Some((0, 60_600))),
        [Change::Remove, Change::ChooseBackup, Change::Ready]
    );
}

#[test]
fn a_backup_that_is_not_ready_waits_for_the_end_of_the_hold() {
    let mut record = Some(create(0));
    record = Some(gatun_cluster::transitions::choose_backup(record.as_ref().unwrap(), &0, 1).unwrap());
    let target = Target { first: 0, second: Some(1) };
    assert!(settle(&mut record, &target, Some((0, 60_599))).is_empty());
    settle(&mut record, &Target { first: 1, second: None }, Some((0, 60_600)));
    assert_eq!(record.unwrap().part(&1), Part::Owner);
}

#[test]
fn a_dead_backup_loses_its_claim_at_once_and_its_seat_after_the_hold() {
    let target = Target { first: 0, second: Some(1) };
    let mut record = None;
    settle(&mut record, &target, None);
    assert_eq!(settle(&mut record, &target, Some((1, 2_000))), [Change::NotReady]);
    let without = Target { first: 0, second: Some(2) };
    assert!(settle(&mut record, &without, Some((1, 60_599))).is_empty());
    settle(&mut record, &without, Some((1, 60_600)));
    assert_eq!(reached(&record), (0, Some((2, Phase::Ready))));
}

#[test]
fn a_promise_keeps_its_giver_from_a_claim() {
    let record = gatun_cluster::transitions::choose_backup(&create(0u8), &0, 1).unwrap();
    let rules = ClusterRules::default();
    let record = gatun_cluster::transitions::ready(&rules, &record, &0, (true, true)).unwrap();
    let absent = Absence { absent_ms: Some(600), ..Absence::default() };
    let claim =
        |absence: Absence| gatun_cluster::transitions::claim((&rules, &TIMING), &record, &1, &absence);
    assert!(claim(absent).is_some());
    assert!(claim(Absence { promised_claim_ms: 1, ..absent }).is_none());
    let word = Absence { gone_ms: Some(600), promised_claim_ms: 9, ..Absence::default() };
    assert!(claim(word).is_some(), "the operator's word needs no lease");
}

/// Returns the next write of a node without state, if the other holder is dead for some time.
fn without_state(record: &ShardRecord<u8>, me: u8, dead: Dead) -> Option<(Change, ShardRecord<u8>)> {
    let target = Target { first: 1, second: Some(2) };
    let facts = Facts { has_state: false, ..facts(&me, &target, Some(record), dead) };
    match next((&ClusterRules::default(), &TIMING), Some(record), &facts, &|_| true) {
        Next::Write(change, new) => Some((change, new)),
        _ => None,
    }
}

#[test]
fn a_backup_without_state_waits_for_the_end_of_the_hold() {
    let mut record = None;
    settle(&mut record, &Target { first: 1, second: Some(2) }, None);
    let record = record.unwrap();
    assert_eq!(record.phase(), Some(Phase::Ready));
    assert_eq!(without_state(&record, 2, Some((1, 30_000))), None);
    assert_eq!(without_state(&record, 2, Some((1, 90_000))).map(|(change, _)| change), Some(Change::Take));
}

#[test]
fn an_owner_without_state_removes_a_dead_backup() {
    let record = create(1);
    let target = Target { first: 1, second: Some(2) };
    let facts = facts(&1, &target, Some(&record), None);
    let chosen = next((&ClusterRules::default(), &TIMING), Some(&record), &facts, &|_| true);
    let Next::Write(Change::ChooseBackup, record) = chosen else { panic!("{chosen:?}") };
    assert_eq!(without_state(&record, 1, Some((2, 30_000))), None);
    let (change, record) = without_state(&record, 1, Some((2, 90_000))).unwrap();
    assert_eq!((change, record.backup), (Change::Remove, None));
}
