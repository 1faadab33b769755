//! Cost of the log: writes records of port blocks and asks for owners of ports.
//!
//! ```text
//! cargo run --release -p gatun-logstore --example measure_log -- DIRECTORY [RECORDS]
//! ```
//! 131,072 subscribers on 2,048 public addresses allocate and free blocks of 256 ports for half a year, each
//! for some hours. Every answer is compared with the records.

use gatun_logstore::time::Span;
use gatun_logstore::{
    AllocationInForce, Directory, Hash, InstanceInForce, Mark, Options, PlanInForce, PoolInForce,
    RangeInForce, Reader, Record, RecordKind, Store,
};
use std::error::Error;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Instant;

const BEGIN_MS: u64 = 1_767_225_600_000;
const SPAN_MS: u64 = 180 * 86_400_000;
const ADDRESSES: u64 = 2_048;
const BLOCKS: u64 = 252;
const SUBSCRIBERS: u64 = 131_072;
/// Records per write.
const BATCH: usize = 4_096;
const QUESTIONS: usize = 1_000;

/// Pseudo-random numbers, the same each time (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % n
    }
}

/// Holder of each block: the subscriber and the start of the holding.
type Held = Vec<Option<(u64, u64)>>;

fn record(place: usize, (subscriber, at_ms): (u64, u64), kind: RecordKind) -> Record {
    let (address, slot) = (place as u64 / BLOCKS, 4 + place as u64 % BLOCKS);
    Record {
        at_ms,
        kind,
        transports: 7,
        instance: 0,
        pool: 0,
        outside: Ipv4Addr::from(0xc612_0000 + address as u32),
        first: (slot * 256) as u16,
        last: (slot * 256 + 255) as u16,
        inside: (0x2001_0db8u128 << 96 | u128::from(subscriber) << 64).into(),
        inside_port: 0,
    }
}

fn plan() -> PlanInForce {
    let first = Ipv4Addr::from(0xc612_0000);
    let last = Ipv4Addr::from(0xc612_0000 + ADDRESSES as u32 - 1);
    let range = RangeInForce { first, last, ports: (1024, 65_535), transports: [true; 3] };
    let allocation = AllocationInForce::Blocks { size: 256 };
    let pool = PoolInForce { name: "res".to_owned(), allocation, ranges: vec![range] };
    let instance =
        InstanceInForce { name: "cgn".to_owned(), pool: 0, subscriber_len: 64, static_bindings: Vec::new() };
    PlanInForce { instances: vec![instance], pools: vec![pool], siit: Vec::new() }
}

/// A question, and the expected subscriber.
type Question = (Record, u64, u64);

fn write(directory: &Path, records: u64, random: &mut Random) -> Result<Vec<Question>, Box<dyn Error>> {
    let disk = Directory::to_write(directory)?;
    let mut store = Store::open(Box::new(disk), Options::default(), BEGIN_MS)?;
    store.mark(Mark::Start { at_ms: BEGIN_MS, version: "measure".to_owned(), keeps_state: false });
    store.mark(Mark::Config { at_ms: BEGIN_MS, hash: Hash::of(&[b"measure"]), plan: Box::new(plan()) });
    let mut held: Held = vec![None; (ADDRESSES * BLOCKS) as usize];
    let (mut batch, mut questions) = (Vec::with_capacity(BATCH), Vec::new());
    let began = Instant::now();
    for n in 0..records {
        let at_ms = BEGIN_MS + n * SPAN_MS / records;
        let place = random.below(ADDRESSES * BLOCKS) as usize;
        match held[place].take() {
            None => {
                let holding = (random.below(SUBSCRIBERS), at_ms);
                held[place] = Some(holding);
                batch.push(record(place, holding, RecordKind::BlockAssigned));
            }
            Some((subscriber, since)) => {
                let ended = record(place, (subscriber, at_ms), RecordKind::BlockReleased);
                if at_ms > since && random.below(records / QUESTIONS as u64 / 2 + 1) == 0 {
                    questions.push((ended, since + random.below(at_ms - since), subscriber));
                }
                batch.push(ended);
            }
        }
        if batch.len() >= BATCH {
            store.append(&batch);
            store.commit()?;
            store.maintain(at_ms)?;
            batch.clear();
        }
    }
    store.append(&batch);
    store.commit()?;
    let (status, took) = (store.status(), began.elapsed().as_secs_f64());
    println!(
        "{} records in {} segments, {:.1} MB: {:.2} bytes a record; {:.0} records a second, each commit on disk",
        status.records,
        status.segments,
        status.bytes as f64 / 1e6,
        status.bytes as f64 / status.records as f64,
        status.records as f64 / took
    );
    Ok(questions)
}

fn ask(directory: &Path, questions: &[Question], random: &mut Random) -> Result<(), Box<dyn Error>> {
    let mut times = Vec::new();
    for (record, at_ms, subscriber) in questions {
        let began = Instant::now();
        let reader = Reader::open(Box::new(Directory::to_read(directory)))?;
        let port = record.first + random.below(256) as u16;
        let answer = reader.who(record.outside, port, Span { from_ms: *at_ms, precision_ms: 1 }, None);
        times.push(began.elapsed());
        let expected = format!("2001:db8:{:x}:{:x}::/64", subscriber >> 16, subscriber & 0xffff);
        let expected: std::net::Ipv6Addr = expected.trim_end_matches("/64").parse()?;
        let found = answer.holders.iter().find(|h| h.certain).and_then(|h| h.subscriber.as_deref());
        if found != Some(&format!("{expected}/64")) || answer.holders.len() != 1 {
            return Err(format!("{expected} had it at {at_ms}, not {answer:?}").into());
        }
    }
    times.sort_unstable();
    let of = |part: usize| times.get(times.len() * part / 100).map_or(0.0, |t| t.as_secs_f64() * 1e3);
    println!(
        "who: {} answers, all right; {:.1} ms at the median, {:.1} ms for 99 of 100, {:.1} ms at most (opening the log included)",
        times.len(),
        of(50),
        of(99),
        times.last().map_or(0.0, |t| t.as_secs_f64() * 1e3)
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("usage: measure DIRECTORY [RECORDS]")?;
    let records: u64 = arguments.next().map_or(Ok(100_000_000), |n| n.replace('_', "").parse())?;
    let (directory, mut random) = (Path::new(&directory), Random(1));
    let questions = write(directory, records, &mut random)?;
    ask(directory, &questions, &mut random)?;
    let began = Instant::now();
    let verified = Reader::open(Box::new(Directory::to_read(directory)))?.verify(None)?;
    println!("verify: {} faults, {:.1} s", verified.faults.len(), began.elapsed().as_secs_f64());
    Ok(())
}
