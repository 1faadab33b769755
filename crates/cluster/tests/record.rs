//! Text of a record.
#![allow(missing_docs)]

use gatun_cluster::record::{Backup, NodeName, Part, Phase, Seat, ShardRecord};

fn record(text: &str) -> ShardRecord<NodeName> {
    text.parse().unwrap()
}

#[test]
fn a_record_survives_its_text() {
    for text in [
        "epoch=1 owner=a@1",
        "epoch=7 owner=a@3 backup=b@7 phase=ready",
        "epoch=2 owner=b@1 backup=a@2 phase=leaving",
    ] {
        assert_eq!(record(text).to_string(), text);
    }
    let seat = |name: &str, since| Seat { node: name.into(), since };
    let backup = Some(Backup { seat: seat("b", 2), phase: Phase::Filling });
    let expected = ShardRecord { epoch: 2, owner: seat("a", 1), backup };
    assert_eq!(record("backup=b@2 epoch=2 phase=filling owner=a@1"), expected);
}

#[test]
fn impossible_records_are_refused_in_words() {
    for (text, why) in [
        ("", "no epoch"),
        ("epoch=0 owner=a", "no epoch"),
        ("epoch=4294967295 owner=a", "no epoch"),
        ("epoch=1", "no owner"),
        ("epoch=1 owner=@1", "no owner"),
        ("epoch=1 owner=a", "no owner"),
        ("epoch=1 owner=a@2", "no owner"),
        ("epoch=1 owner=a@1 backup=b@1", "an impossible backup"),
        ("epoch=1 owner=a@1 backup=b phase=ready", "an impossible backup"),
        ("epoch=1 owner=a@1 phase=ready", "an impossible backup"),
        ("epoch=1 owner=a@1 backup=a@1 phase=ready", "an impossible backup"),
        ("epoch=1 owner=a@1 backup=b@1 phase=half", "an unknown phase \"half\""),
        ("epoch=1 owner=a@1 owner=b@1", "an unknown or second field \"owner\""),
        ("epoch=1 owner=a@1 color=red", "an unknown or second field \"color\""),
        ("owner", "a field \"owner\""),
        (&"x".repeat(513), "a record of more than 512 bytes"),
    ] {
        let error = text.parse::<ShardRecord<NodeName>>().unwrap_err().to_string();
        assert!(error.starts_with(why), "{text:?}: {error}");
    }
}

#[test]
fn each_node_finds_its_part_and_the_other_holder() {
    let record = record("epoch=9 owner=a@3 backup=b@7 phase=ready");
    let [a, b, c]: [NodeName; 3] = ["a".into(), "b".into(), "c".into()];
    assert_eq!(
        [&a, &b, &c].map(|node| record.part(node)),
        [Part::Owner, Part::Backup(Phase::Ready), Part::None]
    );
    assert_eq!(
        [&a, &b, &c].map(|node| record.other(node).cloned()),
        [Some(b.clone()), Some(a.clone()), None]
    );
    assert_eq!([&a, &b, &c].map(|node| record.since(node)), [Some(3), Some(7), None]);
}
