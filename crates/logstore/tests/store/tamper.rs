//! Detection of changes to the log.

use crate::support::{Memory, block, config, faults, reader, records, start};
use gatun_logstore::{AllocationInForce, Disk, Options, Store};

/// Three sealed segments and a journal.
fn store() -> (Memory, Store) {
    let disk = Memory::new();
    let mut store = Store::open(Box::new(disk.clone()), Options::default(), 1).unwrap();
    store.mark(start(10));
    store.mark(config(10, "a", AllocationInForce::Random));
    for n in 0..4u16 {
        let at_ms = 100 * u64::from(n);
        store.append(&[block(at_ms, true, 8, n), block(at_ms + 50, false, 8, n)]);
        store.commit().unwrap();
        if n < 3 {
            store.seal().unwrap();
            store.maintain(at_ms).unwrap();
        }
    }
    (disk, store)
}

/// Returns true if verification finds neither faults nor doubts.
fn is_unchanged(disk: &Memory) -> bool {
    let v = reader(disk).verify(None).unwrap();
    v.faults.is_empty() && v.unknown.is_empty()
}

/// Returns true if a byte belongs to the last receipt, which a killed process may leave incomplete.
fn is_last_receipt(name: &str, at: usize, disk: &Memory) -> bool {
    let sequence = |slot: usize| disk.bytes_of(name)[96 * slot + 8..][..8].to_vec();
    name == "acknowledged" && (at / 96 == usize::from(sequence(1) > sequence(0)))
}

/// The files of a log as a daemon leaves them, including a carried-over file.
fn log_with_everything() -> Memory {
    let disk = Memory::new();
    let options = Options { retention_ms: Some(200), ..Options::default() };
    let mut store = Store::open(Box::new(disk.clone()), options, 1).unwrap();
    store.mark(start(10));
    store.mark(config(10, "a", AllocationInForce::Random));
    for n in 0..5u16 {
        let at_ms = 100 * u64::from(n) + 20;
        store.append(&[block(at_ms, true, 8 + n, n), block(at_ms + 50, false, 8, n)]);
        store.commit().unwrap();
        store.append(&[block(at_ms + 60, true, 20 + n, n)]);
        store.commit().unwrap();
        if n < 4 {
            store.seal().unwrap();
            store.maintain(at_ms).unwrap();
        }
    }
    let kinds = ["carried", "segment", "journal", "acknowledged"];
    let names = disk.names().unwrap();
    assert!(kinds.iter().all(|kind| names.iter().any(|name| name.ends_with(kind))), "{names:?}");
    disk
}

#[test]
fn any_changed_bit_is_a_fault_also_after_a_start() {
    let disk = log_with_everything();
    assert!(is_unchanged(&disk), "{:?}", reader(&disk).verify(None).unwrap());
    for name in disk.names().unwrap() {
        let whole = disk.bytes_of(&name);
        let is_last: Vec<bool> = (0..whole.len()).map(|at| is_last_receipt(&name, at, &disk)).collect();
        for bit in 0..8 * whole.len() {
            let mut changed = whole.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            disk.set(&name, changed);
            let v = reader(&disk).verify(None).unwrap();
            assert!(!is_unchanged(&disk), "{name}, bit {bit}: {v:?}");
            assert!(!v.faults.is_empty() || is_last[bit / 8], "{name}, bit {bit}: {v:?}");
        }
        disk.set(&name, whole);
    }
    assert!(is_unchanged(&disk));
    // Starts are slow: test some bytes of each file, with at least one in each of its parts.
    for name in disk.names().unwrap() {
        let len = disk.bytes_of(&name).len();
        for at in (0..len).step_by(7) {
            let disk = log_with_everything();
            let mut changed = disk.bytes_of(&name);
            let is_last = is_last_receipt(&name, at, &disk);
            changed[at] ^= 0x10;
            disk.set(&name, changed);
            for now_ms in [1_000, 2_000] {
                let mut store = Store::open(Box::new(disk.clone()), Options::default(), now_ms).unwrap();
                store.mark(start(now_ms));
                store.commit().unwrap();
                drop(store);
                let v = reader(&disk).verify(None).unwrap();
                // A damaged last receipt may stem from a killed process: the log keeps a note of it.
                let is_told = v.notes.iter().any(|note| note.contains("had no receipt"));
                let is_seen = !v.faults.is_empty() || is_last && is_told;
                assert!(is_seen, "{name}, byte {at}, start at {now_ms}: {v:?}");
            }
        }
    }
}

#[test]
fn a_truncated_or_extended_file_is_never_called_unchanged() {
    let disk = log_with_everything();
    for name in disk.names().unwrap() {
        let whole = disk.bytes_of(&name);
        for len in 0..whole.len() {
            disk.set(&name, whole[..len].to_vec());
            let v = reader(&disk).verify(None).unwrap();
            assert!(!is_unchanged(&disk), "{name}, {len} bytes: {v:?}");
            assert!(!v.faults.is_empty() || name == "acknowledged", "{name}, {len} bytes: {v:?}");
        }
        disk.set(&name, [&whole[..], &[0]].concat());
        assert!(!is_unchanged(&disk), "{name}");
        disk.set(&name, whole);
    }
    assert!(is_unchanged(&disk));
}

#[test]
fn removed_swapped_or_duplicated_files_are_never_called_unchanged() {
    let names = log_with_everything().names().unwrap();
    for name in &names {
        let mut disk = log_with_everything();
        disk.remove(name).unwrap();
        assert!(!faults(&disk).is_empty(), "{name} removed");
        for other in &names {
            let disk = log_with_everything();
            let (a, b) = (disk.bytes_of(name), disk.bytes_of(other));
            disk.set(name, b);
            disk.set(other, a);
            assert_eq!(is_unchanged(&disk), name == other, "{name} and {other} swapped");
        }
        let suffix = name.split('.').next_back().unwrap();
        let copies = (1..9).map(|n| format!("{n:012}.{suffix}"));
        for copy in copies.chain([format!("{name}.tmp"), format!("{name}.old"), format!("{name}.damaged-7")])
        {
            let mut disk = log_with_everything();
            if disk.names().unwrap().contains(&copy) {
                continue;
            }
            disk.append(&copy, &disk.bytes_of(name)).unwrap();
            assert!(!is_unchanged(&disk), "{name} copied to {copy}");
        }
    }
    let empty = Memory::new();
    assert!(!is_unchanged(&empty), "an empty directory may be a removed log");
}

#[test]
fn a_damaged_journal_head_loses_no_record() {
    let (disk, store) = store();
    drop(store);
    let name = "000000000004.journal";
    let all = records(&disk);
    let mut bytes = disk.bytes_of(name);
    bytes[20] ^= 4;
    disk.set(name, bytes);
    for start in [false, true] {
        if start {
            drop(Store::open(Box::new(disk.clone()), Options::default(), 2_000).unwrap());
        }
        let v = reader(&disk).verify(None).unwrap();
        assert_eq!((records(&disk), v.records), (all.clone(), 8), "{start}");
        assert!(v.faults.iter().any(|fault| fault.contains(name)), "{start}: {v:?}");
    }
}

#[test]
fn a_damaged_segment_loses_only_the_damaged_chunk() {
    let disk = Memory::new();
    let mut store = Store::open(Box::new(disk.clone()), Options::default(), 1).unwrap();
    let all: Vec<_> = (0..20_000u64).map(|n| block(n, true, (n % 250) as u16, (n / 100) as u16)).collect();
    store.append(&all);
    store.commit().unwrap();
    store.seal().unwrap();
    drop(store);
    let name = "000000000001.segment";
    let whole = disk.bytes_of(name);
    // A chunk, the marks or the index, and each field of the tail.
    for at in [100, whole.len() / 2, whole.len() - 400]
        .into_iter()
        .chain((whole.len() - 212..whole.len()).step_by(9))
        .chain([0, 8])
    {
        let mut changed = whole.clone();
        changed[at] ^= 2;
        disk.set(name, changed);
        let v = reader(&disk).verify(None).unwrap();
        assert!(v.records >= 20_000 - 4096, "byte {at}: {v:?}");
        assert!(records(&disk).len() >= 20_000 - 4096, "byte {at}");
    }
}

#[test]
fn a_missing_or_foreign_segment_is_a_fault_at_any_position() {
    for missing in ["000000000001.segment", "000000000002.segment", "000000000003.segment"] {
        let (mut disk, _store) = store();
        disk.remove(missing).unwrap();
        assert_eq!(faults(&disk).len(), 1, "{missing}: {:?}", faults(&disk));
        // Another store's segment of the same number, intact in itself.
        let (disk, _store) = store();
        let other = Memory::new();
        let mut begun = Store::open(Box::new(other.clone()), Options::default(), 1).unwrap();
        for n in 0..3 {
            begun.append(&[block(n, true, 9, 9)]);
            begun.commit().unwrap();
            begun.seal().unwrap();
        }
        disk.set(missing, other.bytes_of(missing));
        assert!(!faults(&disk).is_empty(), "{missing}");
    }
}

#[test]
fn a_removed_end_is_detected_by_the_last_hash() {
    let (mut disk, store) = store();
    let kept = store.status().head;
    let all = reader(&disk).verify(Some(kept)).unwrap();
    assert_eq!((all.anchor_found, all.faults.len(), all.head), (Some(true), 0, kept));
    drop(store);
    disk.remove("000000000004.journal").unwrap();
    disk.remove("000000000003.segment").unwrap();
    let cut = reader(&disk).verify(Some(kept)).unwrap();
    // Its own receipts also show it, unless they are rewritten.
    assert_eq!((cut.anchor_found, cut.faults.len()), (Some(false), 2), "{cut:?}");
}

#[test]
fn a_daemon_continues_after_damage_and_reports_the_kept_file() {
    let (disk, store) = store();
    drop(store);
    // Change the journal's first frame: the second one stays intact.
    let mut store = Store::open(Box::new(disk.clone()), Options::default(), 1).unwrap();
    for n in 0..3 {
        store.append(&[block(1_000 + n, true, 20 + n as u16, 1)]);
        store.commit().unwrap();
    }
    drop(store);
    let name = "000000000005.journal";
    let mut bytes = disk.bytes_of(name);
    bytes[150] ^= 1;
    disk.set(name, bytes);
    let before = records(&disk).len();
    let mut store = Store::open(Box::new(disk.clone()), Options::default(), 2_000).unwrap();
    let said = store.take_messages().join("\n");
    assert!(said.contains("changed at or near byte"), "{said}");
    assert!(disk.names().unwrap().contains(&format!("{name}.damaged-2000")));
    assert_eq!(records(&disk).len(), before, "frames that are whole are kept");
    let v = reader(&disk).verify(None).unwrap();
    assert!(v.faults.iter().any(|fault| fault.contains("damaged-2000")), "{v:?}");
    // The same for a damaged segment.
    drop(store);
    let name = "000000000002.segment";
    let mut bytes = disk.bytes_of(name);
    let last = bytes.len() - 40;
    bytes[last] ^= 1;
    disk.set(name, bytes);
    let mut store = Store::open(Box::new(disk.clone()), Options::default(), 3_000).unwrap();
    assert!(store.take_messages().join("\n").contains("000000000002.segment: its tail was changed"));
    store.commit().unwrap();
    let v = reader(&disk).verify(None).unwrap();
    let found = |fault: &&String| fault.starts_with("damage found on") && fault.contains("damaged-3000");
    assert_eq!(v.faults.iter().filter(found).count(), 1, "{v:?}");
}
