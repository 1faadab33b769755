//! Answers about past times.

use crate::support::{Memory, block, config, reader, start, subscriber};
use gatun_logstore::time::{Span, rfc3339};
use gatun_logstore::{
    AllocationInForce, Answer, Disk, Evidence, Mark, Options, Outcome, Record, RecordKind, SiitInForce, Store,
};

const BLOCKS: AllocationInForce = AllocationInForce::Blocks { size: 256 };

fn open(disk: &Memory) -> Store {
    Store::open(Box::new(disk.clone()), Options::default(), 1).unwrap()
}

fn ask(disk: &Memory, port: u16, at_ms: u64) -> Answer {
    reader(disk).who("192.0.2.1".parse().unwrap(), port, Span { from_ms: at_ms, precision_ms: 1 }, None)
}

/// Subscribers that held the port; true if certain.
fn holders(answer: &Answer) -> Vec<(String, bool)> {
    answer.holders.iter().map(|h| (h.subscriber.clone().unwrap_or_default(), h.certain)).collect()
}

fn of(n: u16, certain: bool) -> Vec<(String, bool)> {
    vec![(format!("{}/64", subscriber(n)), certain)]
}

// proves: R68-16
#[test]
fn a_block_has_its_holder_from_assignment_to_release() {
    let (disk, now) = (Memory::new(), 1_700_000_000_000);
    let mut store = open(&disk);
    store.mark(start(now));
    store.mark(config(now, "home", BLOCKS));
    store.append(&[block(now + 100_000, true, 8, 1), block(now + 200_000, false, 8, 1)]);
    store.append(&[block(now + 500_000, true, 8, 2), block(now + 500_000, true, 9, 3)]);
    store.commit().unwrap();
    for sealed in [false, true] {
        let ask = |port, ms| ask(&disk, port, now + ms);
        for port in [8 * 256, 8 * 256 + 255] {
            assert_eq!(holders(&ask(port, 99_999)), []);
            assert_eq!(holders(&ask(port, 100_000)), of(1, true));
            assert_eq!(holders(&ask(port, 199_999)), of(1, true));
            assert_eq!(holders(&ask(port, 200_000)), []);
            assert_eq!(holders(&ask(port, 500_000)), of(2, true));
        }
        assert_eq!(holders(&ask(9 * 256, 500_000)), of(3, true));
        assert_eq!(holders(&ask(10 * 256, 500_000)), []);
        let answer = ask(8 * 256, 150_000);
        let holder = &answer.holders[0];
        assert_eq!((holder.instance.as_deref(), holder.pool.as_deref()), (Some("home"), Some("res")));
        assert_eq!(
            (&holder.from, &holder.to),
            (&Some(rfc3339(now + 100_000)), &Some(rfc3339(now + 200_000)))
        );
        assert_eq!(
            (holder.by, &holder.protocols[..]),
            (Evidence::Block, &gatun_nat::plan::Transport::ALL[..])
        );
        assert_eq!((answer.pool.as_deref(), answer.caveats.len()), (Some("res"), 0), "{answer:?}");
        // Holders within half a minute are reported too.
        assert_eq!(ask(8 * 256, 230_000).near[0].subscriber, Some(format!("{}/64", subscriber(1))));
        assert!(ask(8 * 256, 260_000).near.is_empty());
        // A second may be any of its milliseconds.
        let second = Span { from_ms: now + 99_500, precision_ms: 1000 };
        let answer = reader(&disk).who("192.0.2.1".parse().unwrap(), 8 * 256, second, None);
        assert_eq!(holders(&answer), of(1, false));
        if !sealed {
            store.seal().unwrap();
        }
    }
}

#[test]
fn a_killed_daemon_leaves_an_interval_and_a_stopped_one_an_end() {
    let disk = Memory::new();
    let mut store = open(&disk);
    store.mark(start(10));
    store.mark(config(10, "home", BLOCKS));
    store.append(&[block(100, true, 8, 1)]);
    store.mark(Mark::Alive { at_ms: 70_000 });
    store.commit().unwrap();
    drop(store);
    let mut store = open(&disk);
    store.mark(start(90_000));
    store.append(&[block(95_000, true, 9, 2)]);
    store.mark(Mark::Stop { at_ms: 99_000 });
    store.commit().unwrap();
    drop(store);
    let mut store = open(&disk);
    store.mark(start(200_000));
    store.commit().unwrap();
    assert_eq!(holders(&ask(&disk, 8 * 256, 60_000)), of(1, true));
    let between = ask(&disk, 8 * 256, 80_000);
    assert_eq!(holders(&between), of(1, false));
    let said = between.holders[0].end.as_deref().unwrap();
    assert!(said.contains("between 1970-01-01T00:01:10.000Z and 1970-01-01T00:01:30.000Z"), "{said}");
    assert_eq!(holders(&ask(&disk, 8 * 256, 90_000)), []);
    assert_eq!(holders(&ask(&disk, 9 * 256, 98_999)), of(2, true));
    let stopped = ask(&disk, 9 * 256, 150_000);
    assert_eq!(holders(&stopped), []);
    assert!(stopped.caveats[0].contains("no translator was running"), "{stopped:?}");
}

/// Record of a block restored from the previous daemon.
fn kept(at_ms: u64, number: u16, n: u16) -> Record {
    Record { kind: RecordKind::BlockKept, ..block(at_ms, true, number, n) }
}

#[test]
fn a_daemon_continues_only_the_holdings_it_records_as_restored() {
    for retention_ms in [None, Some(1)] {
        let disk = Memory::new();
        let mut store = open(&disk);
        store.mark(start(10));
        store.mark(config(10, "home", BLOCKS));
        store.append(&[block(100, true, 8, 1), block(200, true, 9, 2), block(300, true, 10, 3)]);
        store.mark(Mark::Alive { at_ms: 70_000 });
        store.commit().unwrap();
        drop(store);
        let options = Options { retention_ms, ..Options::default() };
        let mut store = Store::open(Box::new(disk.clone()), options, 1).unwrap();
        store.mark(Mark::Start { at_ms: 90_000, version: "2".into(), keeps_state: true });
        // No record mentions the third block; the previous daemon had no record of the fourth.
        store.append(&[kept(90_000, 8, 1), kept(90_000, 9, 2), kept(90_000, 11, 4)]);
        store.append(&[block(95_000, false, 9, 2), block(96_000, true, 10, 5)]);
        store.commit().unwrap();
        if retention_ms.is_some() {
            store.maintain(80_000_000_000).unwrap();
            drop(store);
            let mut next = Store::open(Box::new(disk.clone()), options, 1).unwrap();
            next.mark(Mark::Alive { at_ms: 97_000 });
            next.commit().unwrap();
            next.maintain(90_000_000_000).unwrap();
            assert_eq!(next.status().segments, 0, "all are removed, and open holdings are carried over");
        }
        let whole = retention_ms.is_none();
        let ask = |block: u16, at_ms| holders(&ask(&disk, block * 256, at_ms));
        assert_eq!(ask(8, 80_000), of(1, true), "held across the restart without a gap");
        assert_eq!(ask(8, 97_000), of(1, true));
        assert_eq!(ask(11, 97_000), of(4, true));
        assert_eq!(ask(9, 97_000), []);
        assert_eq!(ask(10, 97_000), of(5, true));
        if whole {
            assert_eq!(ask(9, 94_999), of(2, true));
            assert_eq!(ask(10, 60_000), of(3, true));
            assert_eq!(ask(10, 80_000), of(3, false), "it ended at some time between the two daemons");
            assert_eq!(ask(10, 90_001), [], "it ended before another subscriber got it");
        }
    }
}

#[test]
fn unwritten_holdings_of_one_daemon_continue_in_the_next() {
    let disk = Memory::new();
    let mut store = open(&disk);
    store.mark(start(10));
    store.mark(config(10, "home", BLOCKS));
    store.append(&[block(100, true, 8, 1), block(150, true, 9, 2), block(160, false, 9, 2)]);
    store.append(&[block(170, true, 9, 2)]);
    store.commit().unwrap();
    let next = |disk: &Memory| Store::open(Box::new(disk.clone()), Options::default(), 1).unwrap();
    for at_ms in [20_000, 30_000] {
        // Kill it before it has written records of the blocks.
        drop(store);
        store = next(&disk);
        store.mark(Mark::Start { at_ms, version: "2".into(), keeps_state: true });
        store.commit().unwrap();
    }
    store.append(&[kept(30_100, 8, 1), kept(30_100, 9, 2)]);
    store.commit().unwrap();
    for at_ms in [300, 15_000, 25_000, 30_050, 31_000] {
        assert_eq!(holders(&ask(&disk, 8 * 256, at_ms)), of(1, true), "{at_ms}");
        assert_eq!(holders(&ask(&disk, 9 * 256, at_ms)), of(2, true), "{at_ms}");
    }
    assert_eq!(holders(&ask(&disk, 9 * 256, 165)), []);
    drop(store);
    store = next(&disk);
    store.mark(start(40_000));
    store.commit().unwrap();
    assert_eq!(holders(&ask(&disk, 8 * 256, 50_000)), [], "a start without state ends all holdings");
}

#[test]
fn a_release_by_another_subscriber_ends_both_holdings() {
    let disk = Memory::new();
    let mut store = open(&disk);
    store.mark(start(10));
    store.mark(config(10, "home", BLOCKS));
    store.append(&[block(100, true, 8, 1), block(500, false, 8, 2)]);
    store.commit().unwrap();
    let mut all = holders(&ask(&disk, 8 * 256, 300));
    all.sort();
    assert_eq!(all, [of(1, false), of(2, false)].concat());
    assert_eq!(holders(&ask(&disk, 8 * 256, 600)), []);
}

// proves: R74-1
#[test]
fn deterministic_ports_use_the_configuration_of_that_time() {
    let deterministic = |network: &str| AllocationInForce::Deterministic {
        inside: vec![(network.parse().unwrap(), 62)],
        subscriber_len: 64,
        overflow_per_address: 0,
        size: 1024,
    };
    let disk = Memory::new();
    let mut store = open(&disk);
    store.mark(start(10));
    store.mark(config(10, "old", deterministic("2001:db8:a::")));
    store.mark(config(5_000_000, "new", deterministic("2001:db8:b::")));
    store.commit().unwrap();
    store.seal().unwrap();
    // The third block of 1024 ports of the first address, from port 1024 on.
    let ask = |ms| {
        reader(&disk).who(
            "192.0.2.0".parse().unwrap(),
            3 * 1024 + 5,
            Span { from_ms: ms, precision_ms: 1 },
            None,
        )
    };
    for (at_ms, name, network) in
        [(1_000, "old", "2001:db8:a:2::/64"), (6_000_000, "new", "2001:db8:b:2::/64")]
    {
        let answer = ask(at_ms);
        assert_eq!(holders(&answer), [(network.to_owned(), true)]);
        let holder = &answer.holders[0];
        assert_eq!((holder.by, holder.ports), (Evidence::Configuration, (3 * 1024, 4 * 1024 - 1)));
        assert_eq!(holder.instance.as_deref(), Some(name));
        let hash = answer.configuration.unwrap().hash;
        assert_eq!(hash, gatun_logstore::Hash::of(&[name.as_bytes()]));
    }
    assert_eq!(ask(1_000).holders[0].to, Some(rfc3339(5_000_000)));
    assert!(ask(5).holders.is_empty());
}

#[test]
fn a_binding_and_a_block_of_another_size_are_both_found() {
    let disk = Memory::new();
    let mut store = open(&disk);
    store.mark(start(10));
    store.mark(config(10, "home", AllocationInForce::Random));
    let binding = |at_ms, kind, transports, port, host: &str| Record {
        at_ms,
        kind,
        transports,
        instance: 0,
        pool: 0,
        outside: "192.0.2.1".parse().unwrap(),
        first: port,
        last: port,
        inside: host.parse().unwrap(),
        inside_port: 4711,
    };
    store.append(&[
        binding(100, RecordKind::BindingCreated, 1, 2050, "2001:db8::7"),
        binding(100, RecordKind::BindingCreated, 2, 2050, "::ffff:10.0.0.8"),
        block(100, true, 8, 1),
    ]);
    store.append(&[Record { first: 2000, last: 2100, ..block(100, true, 0, 3) }]);
    store.append(&[binding(5_000, RecordKind::BindingDeleted, 1, 2050, "2001:db8::7")]);
    store.commit().unwrap();
    store.seal().unwrap();
    let answer = ask(&disk, 2050, 200);
    let mut found: Vec<_> = answer
        .holders
        .iter()
        .map(|h| (h.inside.map(|a| a.to_string()), h.ports, h.protocols.len()))
        .collect();
    found.sort();
    let host = |address: &str| Some(address.to_owned());
    assert_eq!(
        found,
        [
            (None, (2000, 2100), 3),
            (None, (2048, 2303), 3),
            (host("10.0.0.8"), (2050, 2050), 1),
            (host("2001:db8::7"), (2050, 2050), 1)
        ]
    );
    assert_eq!(ask(&disk, 2050, 6_000).holders.len(), 3);
}

// proves: LOG-4
#[test]
fn answers_report_losses_that_may_concern_them() {
    let disk = Memory::new();
    let mut store = open(&disk);
    store.mark(start(10));
    store.mark(config(10, "home", BLOCKS));
    store.append(&[block(1_000, true, 8, 1)]);
    store.mark(Mark::Lost { at_ms: 500_000, events: 12 });
    store.append(&[block(900_000, true, 8, 2)]);
    store.commit().unwrap();
    let answer = ask(&disk, 8 * 256, 600_000);
    assert_eq!(holders(&answer), of(1, false), "its release is missing");
    assert!(answer.caveats[0].contains("12 events"), "{answer:?}");
    let answer = ask(&disk, 8 * 256, 900_000);
    assert_eq!((holders(&answer), answer.caveats.len()), (of(2, true), 0));
    let late = ask(&disk, 8 * 256, 2_000_000);
    assert_eq!(late.outcome, Outcome::Unknown);
    assert!(late.unknown[0].contains("the log ends before"), "{late:?}");
}

/// The outcome at a time, and the reasons.
fn outcome(disk: &Memory, port: u16, at_ms: u64) -> (Outcome, String) {
    let answer = ask(disk, port, at_ms);
    (answer.outcome, answer.unknown.join("; "))
}

/// Three segments of some minutes each. Block 8 changes hands in the second one, block 9 is held from the
/// first to the third, block 10 is assigned in the second.
fn three_segments() -> Memory {
    let disk = Memory::new();
    let mut store = open(&disk);
    store.mark(start(100_000));
    store.mark(config(100_000, "home", BLOCKS));
    let steps: [&[Record]; 3] = [
        &[block(200_000, true, 8, 1), block(210_000, true, 9, 2)],
        &[block(300_000, false, 8, 1), block(310_000, true, 8, 3), block(320_000, true, 10, 4)],
        &[block(400_000, false, 8, 3), block(410_000, false, 9, 2), block(420_000, true, 10, 4)],
    ];
    for records in steps {
        store.append(records);
        store.commit().unwrap();
        store.seal().unwrap();
        store.maintain(1).unwrap();
    }
    store.mark(Mark::Alive { at_ms: 500_000 });
    store.commit().unwrap();
    disk
}

#[test]
fn nobody_is_answered_only_with_proof() {
    let disk = three_segments();
    let expected = [
        (8, 50_000, Outcome::Unknown),
        (8, 150_000, Outcome::Nobody),
        (8, 250_000, Outcome::Who),
        (8, 305_000, Outcome::Nobody),
        (8, 350_000, Outcome::Who),
        (8, 450_000, Outcome::Nobody),
        (8, 500_001, Outcome::Unknown),
        (11, 300_000, Outcome::Nobody),
    ];
    for (block, at_ms, expected) in expected {
        let (outcome, why) = outcome(&disk, block * 256, at_ms);
        assert_eq!(outcome, expected, "block {block} at {at_ms}: {why}");
        assert_eq!(why.is_empty(), expected != Outcome::Unknown, "{why}");
    }
    assert!(outcome(&disk, 8 * 256, 50_000).1.contains("the log begins at"));
}

#[test]
fn a_damaged_or_missing_segment_makes_only_its_time_unknown() {
    let name = "000000000002.segment";
    for how in ["chunk", "tail", "all of it", "missing", "found at a start"] {
        let mut disk = three_segments();
        let mut bytes = disk.bytes_of(name);
        match how {
            "chunk" => bytes[20] ^= 1,
            "missing" => disk.remove(name).unwrap(),
            _ => bytes.iter_mut().skip(if how == "tail" { 20 } else { 0 }).for_each(|byte| *byte ^= 0x55),
        }
        if how != "missing" {
            disk.set(name, bytes);
        }
        if how == "found at a start" {
            drop(open(&disk));
        }
        let why = |block: u16, at_ms| {
            let (outcome, why) = outcome(&disk, block * 256, at_ms);
            assert_eq!(outcome, Outcome::Unknown, "{how}: block {block} at {at_ms}");
            why
        };
        // Before the damage and after the next record, all is known.
        assert_eq!(
            outcome(&disk, 8 * 256, 150_000).0,
            Outcome::Nobody,
            "{how}: {:?}",
            ask(&disk, 2048, 150_000)
        );
        assert_eq!(outcome(&disk, 8 * 256, 205_000).0, Outcome::Who, "{how}");
        assert_eq!(outcome(&disk, 8 * 256, 450_000).0, Outcome::Nobody, "{how}");
        assert_eq!(outcome(&disk, 10 * 256, 430_000).0, Outcome::Who, "{how}");
        if how == "chunk" {
            // The index lists the ports of a chunk: this one is not among them.
            assert_eq!(outcome(&disk, 11 * 256, 315_000).0, Outcome::Nobody);
            why(9, 315_000);
            continue;
        }
        // Another block, without a record after the damage.
        let reason = why(11, 315_000);
        assert!(reason.contains(name) && reason.contains("cannot be answered"), "{how}: {reason}");
        why(11, 450_000);
        // Another holder in between is possible.
        why(9, 315_000);
        assert_eq!(outcome(&disk, 9 * 256, 405_000).0, Outcome::Who, "{how}: its release proves it");
        why(8, 315_000);
    }
}

#[test]
fn a_truncated_journal_makes_the_time_after_it_unknown() {
    let disk = Memory::new();
    let mut store = open(&disk);
    store.mark(start(100));
    store.mark(config(100, "home", BLOCKS));
    for n in 1..4u64 {
        store.append(&[block(n * 1000, true, 7 + n as u16, 1)]);
        store.commit().unwrap();
    }
    drop(store);
    let whole = disk.bytes_of("000000000001.journal");
    assert_eq!(outcome(&disk, 10 * 256, 2_500).0, Outcome::Nobody);
    for cut in [1, 200, whole.len() - 200] {
        disk.set("000000000001.journal", whole[..whole.len() - cut].to_vec());
        let (outcome, why) = outcome(&disk, 10 * 256, 3_000);
        assert_eq!(outcome, Outcome::Unknown, "{cut} bytes cut: {why}");
    }
}

#[test]
fn time_without_a_daemon_is_nobody_and_time_of_a_kill_is_unknown() {
    let disk = Memory::new();
    for (start_ms, stops) in [(1_000, true), (200_000, false), (400_000, true)] {
        let mut store = open(&disk);
        store.mark(start(start_ms));
        store.mark(config(start_ms, "home", BLOCKS));
        if stops {
            store.mark(Mark::Stop { at_ms: start_ms + 50_000 });
        }
        store.mark(Mark::Alive { at_ms: start_ms + 50_000 });
        store.commit().unwrap();
    }
    assert_eq!(outcome(&disk, 2048, 100_000).0, Outcome::Nobody);
    assert!(ask(&disk, 2048, 100_000).caveats[0].contains("no translator was running"));
    let (killed, why) = outcome(&disk, 2048, 300_000);
    assert!(killed == Outcome::Unknown && why.contains("was killed"), "{why}");
}

#[test]
fn a_mapped_address_gives_its_host() {
    let disk = Memory::new();
    let mut store = open(&disk);
    store.mark(start(10));
    let Mark::Config { at_ms, hash, mut plan } = config(10, "home", BLOCKS) else { unreachable!() };
    let eamt = [("203.0.113.0", 24, "2001:db8:5::", 120), ("203.0.113.200", 32, "2001:db8::5", 128)];
    let eamt = eamt.map(|(v4, len4, v6, len6)| ((v4.parse().unwrap(), len4), (v6.parse().unwrap(), len6)));
    plan.siit = vec![SiitInForce { name: "dc".into(), pool6: Vec::new(), eamt: eamt.to_vec() }];
    store.mark(Mark::Config { at_ms, hash, plan });
    store.mark(Mark::Alive { at_ms: 5_000 });
    store.commit().unwrap();
    let ask = |address: &str| {
        let at = Span { from_ms: 1_000, precision_ms: 1 };
        reader(&disk).who(address.parse().unwrap(), 80, at, None)
    };
    for (address, host) in [("203.0.113.200", "2001:db8::5"), ("203.0.113.7", "2001:db8:5::7")] {
        let answer = ask(address);
        assert_eq!((answer.outcome, answer.holders.len()), (Outcome::Who, 1), "{answer:?}");
        let holder = &answer.holders[0];
        assert_eq!((holder.by, holder.instance.as_deref()), (Evidence::Mapping, Some("dc")));
        assert_eq!(holder.inside.map(|inside| inside.to_string()).as_deref(), Some(host));
    }
    assert_eq!(ask("203.0.112.200").outcome, Outcome::Nobody);
}
