//! What the parts of the state cost: hash, index, ports. `cargo bench -p gatun-nat --bench state`

use gatun_mem::hash::Hasher64;
use gatun_nat::index::Index;
use gatun_nat::plan::{Pairing, Pool4, PoolRange, Transport};
use gatun_nat::pool4::Pool4State;
use gatun_nat::rng::Rng;
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: u32 = 4_000_000;
const BURST: usize = 64;

/// Nanoseconds per call of `f`, which is called `n` times: in the fastest slice, since others share the
/// machine.
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

/// Look-ups in bursts of 64, each hashed and prefetched first, as the engine does it.
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

fn ports(addresses: u32, fill: f64) {
    let first = std::net::Ipv4Addr::new(10, 0, 0, 0);
    let last = std::net::Ipv4Addr::from(u32::from(first) + addresses - 1);
    let range = PoolRange { first, last, ports: (1024, 65_535), transports: [true; 3] };
    let plan = Pool4 { name: String::new(), ranges: vec![range], pairing: Pairing::Soft, port_parity: false };
    let mut pool = Pool4State::new(&plan).unwrap();
    let mut rng = Rng::new([4; 4]);
    let total = pool.usage(Transport::Udp).total;
    let fill_to = (total as f64 * fill) as u64;
    let mut given = Vec::new();
    for i in 0..fill_to {
        let port = pool.allocate(&mut rng, Transport::Udp, Some(i as u32 % addresses), 0, 40_000).unwrap();
        given.push(port);
    }
    let cost = ns(ROUNDS / 4, |i| {
        let which = rng.below(given.len() as u32) as usize;
        let (ix, port) = given[which];
        pool.release(Transport::Udp, ix, port);
        let preferred = Some(i % addresses);
        given[which] = pool.allocate(&mut rng, Transport::Udp, preferred, 0, 40_000).unwrap();
    });
    println!(
        "{addresses} addresses, {:.1} % of the ports used: release + allocate {cost:.1} ns",
        fill * 100.0
    );
}

fn main() {
    hashes();
    [1000, 10_000, 2_097_152].into_iter().for_each(index);
    for fill in [0.01, 0.5, 0.9, 0.999] {
        ports(1, fill);
        ports(64, fill);
    }
}
