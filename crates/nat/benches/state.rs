//! Cost of the parts of the state: hash, index, ports. `cargo bench -p gatun-nat --bench state`

use gatun_mem::hash::Hasher64;
use gatun_nat::Instant as Clock;
use gatun_nat::index::Index;
use gatun_nat::plan::{Allocation, Blocks, Pool4, PoolRange, Transport};
use gatun_nat::pool4::{Holdings, Pool4State, PortRequest};
use gatun_nat::rng::Rng;
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: u32 = 4_000_000;
const BURST: usize = 64;

/// Nanoseconds per call of `f`, which is called `n` times. It is the time of the fastest slice, because other
/// processes share the machine.
fn ns(n: u32, mut f: impl FnMut(u32)) -> f64 {
    let slice = (n / 500).max(100) as usize;
    let mut best = f64::INFINITY;
    for first in (0..n).step_by(slice) {
        let last = n.min(first + slice as u32);
        let begin = Instant::now();
        (first..last).for_each(&mut f);
        best = best.min(begin.elapsed().as_nanos() as f64 / f64::from(last - first));
    }
    best
}

fn hashes() {
    for (name, hasher) in [("with AES", Hasher64::new([1; 4])), ("portable", Hasher64::portable([1; 4]))] {
        let one_by_one = ns(ROUNDS, |i| {
            black_box(hasher.hash4([1, black_box(i).into(), 3, 4]));
        });
        let mut last = 0;
        let chained = ns(ROUNDS, |_| last = hasher.hash4([1, last, 3, 4]));
        black_box(last);
        println!("hash {name}: {one_by_one:.1} ns, {chained:.1} ns where each waits for the last");
    }
}

/// Looks up entries in bursts of 64, each hashed and prefetched first, as the engine does.
fn index(entries: u32) {
    let hasher = Hasher64::new([2; 4]);
    let hash = |id: u32| hasher.hash4([id.into(), 0, 0, 0]);
    let mut index = Index::with_capacity(entries).unwrap();
    let insert = ns(entries, |id| index.insert(hash(id), id).unwrap());
    let mut rng = Rng::new([3; 4]);
    let picks: Vec<u32> = (0..ROUNDS).map(|_| rng.below(entries)).collect();
    let mut found = 0;
    let bursts = ROUNDS / BURST as u32;
    let find = ns(bursts, |n| {
        let burst = &picks[n as usize * BURST..][..BURST];
        let mut hashes = [0; BURST];
        for (h, &id) in hashes.iter_mut().zip(burst) {
            *h = hash(id);
            index.prefetch(*h);
        }
        for (&h, &id) in hashes.iter().zip(burst) {
            found += u32::from(index.find(h, |i| i == id).is_some());
        }
    }) / BURST as f64;
    assert_eq!(found, ROUNDS);
    let churn = ns(ROUNDS / 4, |i| {
        let id = picks[i as usize];
        index.remove(hash(id), id);
        index.insert(hash(id), id).unwrap();
    });
    println!("index of {entries}: find {find:.1} ns, insert {insert:.1} ns, remove + insert {churn:.1} ns");
}

/// Returns and takes a port of subscribers with 16 ports each, chosen at random.
fn ports(name: &str, allocation: &Allocation, addresses: u32, fill: f64) {
    const EACH: u32 = 16;
    let first = std::net::Ipv4Addr::new(10, 0, 0, 0);
    let last = std::net::Ipv4Addr::from(u32::from(first) + addresses - 1);
    let range = PoolRange { first, last, ports: (1024, 65_535), transports: [true; 3] };
    let plan = Pool4 { ranges: vec![range], allocation: allocation.clone(), ..Pool4::default() };
    let mut pool = Pool4State::new(&plan, true).unwrap();
    let mut rng = Rng::new([4; 4]);
    let total = pool.usage(Transport::Udp).total;
    let per_subscriber = match allocation {
        Allocation::Blocks(blocks) => u64::from(blocks.size),
        _ => u64::from(EACH),
    };
    let subscribers = (total as f64 * fill / per_subscriber as f64) as u32;
    let mut holdings = vec![Holdings::NONE; subscribers as usize];
    let now = Clock(1_000_000);
    let request = |subscriber: u32| PortRequest {
        transport: Transport::Udp,
        inside_port: 40_000,
        spread: u64::from(subscriber).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        subscriber,
        shard: 0,
        prefix: subscriber.into(),
        draws: [0; 2],
    };
    let mut given = Vec::new();
    let mut take = |pool: &mut Pool4State, holdings: &mut [Holdings], subscriber: u32| {
        let held = &mut holdings[subscriber as usize];
        let request = PortRequest { draws: [rng.next_u32(), rng.next_u32()], ..request(subscriber) };
        let grant = pool.allocate(&mut rng, now, &request, held).unwrap();
        if held.paired().is_none() {
            held.pair(grant.address_ix);
        }
        (subscriber, grant.address_ix, grant.port)
    };
    for subscriber in (0..subscribers).flat_map(|s| [s; EACH as usize]) {
        given.push(take(&mut pool, &mut holdings, subscriber));
    }
    let mut pick = Rng::new([5; 4]);
    let cost = ns(ROUNDS / 4, |_| {
        let which = pick.below(given.len() as u32) as usize;
        let (subscriber, ix, port) = given[which];
        pool.release(now, Transport::Udp, ix, port, Some(&mut holdings[subscriber as usize]));
        given[which] = take(&mut pool, &mut holdings, subscriber);
    });
    println!(
        "{name}, {addresses} addresses, {subscribers} subscribers with {EACH} ports: release + allocate {cost:.1} ns"
    );
}

fn main() {
    hashes();
    [1000, 10_000, 2_097_152].into_iter().for_each(index);
    let random = Allocation::default();
    for (addresses, fill) in [(1, 0.01), (1, 0.5), (1, 0.9), (64, 0.5), (64, 0.9)] {
        ports("random", &random, addresses, fill);
    }
    for size in [32, 256, 2048] {
        let blocks = Allocation::Blocks(Blocks { size, ..Blocks::default() });
        for addresses in [64, 2048] {
            ports(&format!("blocks of {size}"), &blocks, addresses, 0.5);
        }
    }
}
