//! Kill or power failure at every file operation: each acknowledged record is there once, unchanged.

use crate::support::{ENDINGS, Memory, block, config, faults, reader, records, start};
use gatun_logstore::time::Span;
use gatun_logstore::{AllocationInForce, Options, Record, Result, Store};

const SMALL: Options =
    Options { segment_records: 6, segment_ms: 1_000_000, retention_ms: None, size_max: None };

/// A daemon's life. Acknowledged records go to `acknowledged`. Two blocks are held all the time.
fn live(disk: &Memory, options: Options, acknowledged: &mut Vec<Record>) -> Result<()> {
    let mut store = Store::open(Box::new(disk.clone()), options, 1)?;
    store.mark(start(10));
    store.mark(config(10, "a", AllocationInForce::Blocks { size: 256 }));
    let mut commit = |store: &mut Store, now_ms, records: &[Record]| {
        store.append(records);
        store.commit()?;
        acknowledged.extend_from_slice(records);
        store.maintain(now_ms)
    };
    commit(&mut store, 20, &[block(20, true, 4, 4), block(20, true, 5, 5)])?;
    for n in 0..12 {
        let at_ms = 100 + 10 * u64::from(n);
        commit(&mut store, at_ms, &[block(at_ms, true, 8, n), block(at_ms + 5, false, 8, n)])?;
    }
    Ok(())
}

/// Operations of a whole life.
fn operations(options: Options) -> u64 {
    let disk = Memory::new();
    live(&disk, options, &mut Vec::new()).unwrap();
    disk.operations()
}

// proves: LOG-4
#[test]
fn a_crash_at_any_operation_loses_no_acknowledged_record_and_duplicates_none() {
    let count = operations(SMALL);
    assert!(count > 60, "{count} operations");
    for at in 0..count {
        for ending in ENDINGS {
            let (disk, mut acknowledged) = (Memory::new(), Vec::new());
            disk.fail(at, u64::MAX);
            live(&disk, SMALL, &mut acknowledged).unwrap_err();
            let left = disk.after(ending);
            // No daemon has repaired the log yet: at most, a change of its end is in doubt.
            let found = faults(&left);
            assert_eq!(found, Vec::<String>::new(), "at {at}, {ending:?}, before the next start");
            let mut store = Store::open(Box::new(left.clone()), SMALL, 1_000).unwrap();
            let (found, case) = (records(&left), format!("at {at}, {ending:?}"));
            // The last write may be there without an acknowledgement.
            assert!(found.starts_with(&acknowledged), "{case}: {acknowledged:?}\n{found:?}");
            assert!(found.len() <= acknowledged.len() + 2, "{case}");
            assert_eq!(faults(&left), Vec::<String>::new(), "{case}");
            store.mark(start(1_000));
            store.append(&[block(1_010, true, 8, 77)]);
            store.commit().unwrap();
            store.seal().unwrap();
            assert_eq!(records(&left).len(), found.len() + 1, "{case}");
            assert_eq!(faults(&left), Vec::<String>::new(), "{case}");
        }
    }
}

#[test]
fn a_crash_while_segments_are_removed_keeps_block_holders() {
    let options = Options { retention_ms: Some(40), ..SMALL };
    let count = operations(options);
    assert!(count > operations(SMALL), "segments were removed");
    for at in 0..count {
        for ending in ENDINGS {
            let (disk, mut acknowledged) = (Memory::new(), Vec::new());
            disk.fail(at, u64::MAX);
            live(&disk, options, &mut acknowledged).unwrap_err();
            let left = disk.after(ending);
            let mut store = Store::open(Box::new(left.clone()), options, 1_000).unwrap();
            let case = format!("at {at}, {ending:?}");
            assert_eq!(faults(&left), Vec::<String>::new(), "{case}");
            let asked = Span { from_ms: 225, precision_ms: 1 };
            let answer = reader(&left).who("192.0.2.1".parse().unwrap(), 5 * 256 + 7, asked, None);
            if !acknowledged.is_empty() {
                assert_eq!(answer.holders.len(), 1, "{case}: {answer:?}");
                assert_eq!(answer.holders[0].subscriber.as_deref(), Some("2001:db8:5::/64"), "{case}");
            }
            // All records exceed the retention and are removed; the two blocks stay.
            store.maintain(10_000).unwrap();
            assert_eq!(faults(&left), Vec::<String>::new(), "{case}");
            let again = reader(&left).who("192.0.2.1".parse().unwrap(), 5 * 256 + 7, asked, None);
            assert_eq!(again.holders.len(), answer.holders.len(), "{case}: {again:?}");
        }
    }
}

#[test]
fn a_full_disk_loses_no_pending_record() {
    let count = operations(SMALL);
    for at in 3..count {
        let (disk, mut told) = (Memory::new(), Vec::new());
        let mut store = Store::open(Box::new(disk.clone()), SMALL, 1).unwrap();
        store.mark(start(10));
        disk.fail(at, at + 9);
        for n in 0..30u16 {
            let record = block(u64::from(n) + 20, n % 2 == 0, 8, n / 2);
            store.append(&[record]);
            told.push(record);
            let _ = store.commit();
            let _ = store.maintain(50);
        }
        store.commit().unwrap();
        store.maintain(50).unwrap();
        assert_eq!(records(&disk), told, "from operation {at} on");
        assert_eq!(faults(&disk), Vec::<String>::new(), "from operation {at} on");
        drop(store);
        let store = Store::open(Box::new(disk.clone()), SMALL, 1).unwrap();
        assert_eq!(records(&disk), told, "from operation {at} on");
        assert_eq!(store.status().records, told.len() as u64);
    }
}
