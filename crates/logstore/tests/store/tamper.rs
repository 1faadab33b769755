//! Whoever changes the log is found out.

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

#[test]
fn any_changed_byte_of_any_file_is_a_fault() {
    let (disk, _store) = store();
    assert_eq!(faults(&disk), Vec::<String>::new());
    for name in disk.names().unwrap() {
        let whole = disk.bytes_of(&name);
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            disk.set(&name, changed);
            let v = reader(&disk).verify(None).unwrap();
            // The end of the journal may be a write that goes on; nothing that was acknowledged is so.
            let is_seen = !v.faults.is_empty() || name.ends_with("journal") && v.records < 8;
            assert!(is_seen, "{name}, byte {at}: {v:?}");
        }
        disk.set(&name, whole);
    }
    assert_eq!(faults(&disk), Vec::<String>::new());
}

#[test]
fn a_file_that_is_missing_or_of_another_store_is_a_fault_wherever_it_stood() {
    for missing in ["000000000001.segment", "000000000002.segment", "000000000003.segment"] {
        let (mut disk, _store) = store();
        disk.remove(missing).unwrap();
        assert_eq!(faults(&disk).len(), 1, "{missing}: {:?}", faults(&disk));
        // Another store's segment of the same number, whole in itself.
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
fn the_end_cut_off_is_seen_by_whoever_has_kept_the_last_hash() {
    let (mut disk, store) = store();
    let kept = store.status().head;
    let all = reader(&disk).verify(Some(kept)).unwrap();
    assert_eq!((all.anchor_found, all.faults.len(), all.head), (Some(true), 0, kept));
    drop(store);
    disk.remove("000000000004.journal").unwrap();
    disk.remove("000000000003.segment").unwrap();
    let cut = reader(&disk).verify(Some(kept)).unwrap();
    assert_eq!((cut.anchor_found, cut.faults.len()), (Some(false), 1));
}

#[test]
fn a_daemon_goes_on_after_damage_keeps_the_file_and_says_so() {
    let (disk, store) = store();
    drop(store);
    // In the journal's first frame: the second one is whole.
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
    let said = store.take_said().join("\n");
    assert!(said.contains("it was changed since it was written") && said.contains("damaged-2000"), "{said}");
    assert!(disk.names().unwrap().contains(&format!("{name}.damaged-2000")));
    assert_eq!(records(&disk).len(), before, "frames that are whole are kept");
    let v = reader(&disk).verify(None).unwrap();
    assert!(v.notes.iter().any(|note| note.contains("damage was found")), "{v:?}");
    // A damaged segment, too.
    drop(store);
    let name = "000000000002.segment";
    let mut bytes = disk.bytes_of(name);
    let last = bytes.len() - 40;
    bytes[last] ^= 1;
    disk.set(name, bytes);
    let mut store = Store::open(Box::new(disk.clone()), Options::default(), 3_000).unwrap();
    assert!(store.take_said().join("\n").contains("000000000002.segment: its end was changed"));
    store.commit().unwrap();
    let v = reader(&disk).verify(None).unwrap();
    assert!(v.faults.iter().any(|fault| fault.contains("are missing")), "{v:?}");
}
