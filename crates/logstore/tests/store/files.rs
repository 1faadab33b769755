//! The store in real files.

use crate::support::{block, start};
use gatun_logstore::{Directory, Entry, LogError, Mark, Options, Reader, Store};
use std::path::PathBuf;

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("gatun-logstore-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Place(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_directory_has_one_writer_and_any_number_of_readers() {
    let place = Place::new("writer");
    let open = || Directory::to_write(&place.0);
    let mut store = Store::open(Box::new(open().unwrap()), Options::default(), 1).unwrap();
    let refused = open().err().unwrap();
    assert!(refused.to_string().contains("another process writes"), "{refused}");
    store.mark(start(5));
    store.append(&[block(10, true, 8, 1)]);
    store.commit().unwrap();
    let read = || Reader::open(Box::new(Directory::to_read(&place.0))).unwrap().verify(None).unwrap();
    assert_eq!((read().records, read().faults.len()), (1, 0));
    store.seal().unwrap();
    store.maintain(10).unwrap();
    assert_eq!((read().records, read().segments), (1, 1));
    drop(store);
    Store::open(Box::new(open().unwrap()), Options::default(), 1).unwrap();
}

#[test]
fn a_record_of_a_block_takes_at_most_12_bytes() {
    let place = Place::new("bytes");
    let disk = Directory::to_write(&place.0).unwrap();
    let mut store = Store::open(Box::new(disk), Options::default(), 1).unwrap();
    // 64 addresses, 252 blocks of 256 ports each; 20,000 subscribers at random hold one for minutes to hours.
    let mut seed = 1u64;
    let mut random = move |n: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % n
    };
    let mut events = Vec::new();
    for n in 0..100_000u64 {
        let (address, slot) = (random(64) as u32, 4 + random(252) as u16);
        let (from, held) = (1_700_000_000_000 + n * 40 + random(40), 60_000 + random(7_200_000));
        let outside = (0xc633_6400 + address).into();
        let subscriber = random(20_000) as u16;
        for (at_ms, begins) in [(from, true), (from + held, false)] {
            events.push(gatun_logstore::Record { outside, ..block(at_ms, begins, slot, subscriber) });
        }
    }
    events.sort_by_key(|record| record.at_ms);
    events.chunks(500).for_each(|some| {
        store.append(some);
        store.commit().unwrap();
    });
    store.seal().unwrap();
    store.maintain(0).unwrap();
    let status = store.status();
    let each = status.bytes as f64 / status.records as f64;
    assert!(each <= 12.0, "{each} bytes a record");
}

#[test]
fn marks_are_shown_among_the_records_of_their_process() {
    let place = Place::new("marks");
    let open = |at_ms| {
        let disk = Directory::to_write(&place.0).unwrap();
        Store::open(Box::new(disk), Options::default(), at_ms).unwrap()
    };
    let mut store = open(1);
    // The clock of events may be a millisecond behind that of marks.
    store.mark(start(10));
    store.append(&[block(9, true, 8, 1), block(30, true, 9, 2)]);
    store.mark(Mark::Asked { at_ms: 20, by: "a".into(), question: "b".into(), outcome: "who".into() });
    store.commit().unwrap();
    // A file is full while its process runs.
    store.seal().unwrap();
    store.append(&[block(40, false, 8, 1)]);
    store.mark(Mark::Stop { at_ms: 40 });
    store.commit().unwrap();
    drop(store);
    let mut store = open(50);
    store.mark(start(50));
    store.append(&[block(50, true, 8, 3)]);
    store.commit().unwrap();
    let mut shown = Vec::new();
    let each = |entry: Entry<'_>| {
        shown.push(match entry {
            Entry::Record(record, _) => ("record", record.at_ms),
            Entry::Mark(Mark::Start { at_ms, .. }) => ("start", *at_ms),
            Entry::Mark(Mark::Stop { at_ms }) => ("stop", *at_ms),
            Entry::Mark(mark) => ("mark", mark.at_ms()),
        });
        Ok::<(), LogError>(())
    };
    Reader::open(Box::new(Directory::to_read(&place.0))).unwrap().show((0, u64::MAX), each).unwrap();
    let expected = [
        ("start", 10),
        ("record", 9),
        ("mark", 20),
        ("record", 30),
        ("record", 40),
        ("stop", 40),
        ("start", 50),
        ("record", 50),
    ];
    assert_eq!(shown, expected);
}
