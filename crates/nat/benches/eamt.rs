//! Cost of building an EAMT of a million host mappings and of lookups in it.
//! `cargo bench -p gatun-nat --bench eamt`

use gatun_nat::eamt::{BYTES_PER_ENTRY, Eamt};
use gatun_nat::plan::{Eam, Net4, Net6};
use std::hint::black_box;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Instant;

const LOOKUPS: usize = 4_000_000;

/// A small generator, so that addresses are in random order.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) ^ (z >> 31)
    }
}

fn entries(n: usize) -> Vec<Eam> {
    let host = |i: usize| {
        let i = i as u32;
        Eam {
            v4: Net4::new(Ipv4Addr::from(0x0b00_0000 + i), 32).unwrap(),
            v6: Net6::new(Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(i) << 64 | 1), 128).unwrap(),
        }
    };
    (0..n).map(host).collect()
}

fn per_lookup(mut f: impl FnMut(usize)) -> f64 {
    let begin = Instant::now();
    (0..LOOKUPS).for_each(&mut f);
    begin.elapsed().as_nanos() as f64 / LOOKUPS as f64
}

fn main() {
    println!("{BYTES_PER_ENTRY} bytes an entry");
    for n in [1_000, 10_000, 100_000, 1_000_000] {
        let list = entries(n);
        let begin = Instant::now();
        let table = Eamt::build(&list).unwrap();
        let build_ms = begin.elapsed().as_secs_f64() * 1e3;

        let mut random = Random(1);
        let picks: Vec<usize> = (0..LOOKUPS).map(|_| random.next() as usize % n).collect();
        let v4: Vec<Ipv4Addr> = picks.iter().map(|&i| list[i].v4.addr).collect();
        let v6: Vec<Ipv6Addr> = picks.iter().map(|&i| list[i].v6.addr).collect();
        let other4: Vec<Ipv4Addr> = picks.iter().map(|&i| Ipv4Addr::from(0x6000_0000 + i as u32)).collect();
        let other6: Vec<Ipv6Addr> = picks
            .iter()
            .map(|&i| Ipv6Addr::from((0x64_ff9b_u128 << 96) | (i as u128 * 2_654_435_761)))
            .collect();

        let hit4 = per_lookup(|i| assert!(black_box(table.v4_to_v6(v4[i])).is_some()));
        let hit6 = per_lookup(|i| assert!(black_box(table.v6_to_v4(v6[i])).is_some()));
        let miss4 = per_lookup(|i| assert!(black_box(table.v4_to_v6(other4[i])).is_none()));
        let miss6 = per_lookup(|i| assert!(black_box(table.v6_to_v4(other6[i])).is_none()));
        // Same as in the engine: a burst is prefetched, then looked up.
        let burst4 = per_lookup(|i| {
            if i % 64 == 0 {
                v4[i..LOOKUPS.min(i + 64)].iter().for_each(|a| _ = table.look4(*a));
            }
            assert!(black_box(table.v4_to_v6(v4[i])).is_some());
        });
        let burst6 = per_lookup(|i| {
            if i % 64 == 0 {
                v6[i..LOOKUPS.min(i + 64)].iter().for_each(|a| _ = table.look6(*a));
            }
            assert!(black_box(table.v6_to_v4(v6[i])).is_some());
        });
        println!(
            "{n:>8} entries: build {build_ms:6.1} ms, found 4->6 {hit4:5.1} ns, 6->4 {hit6:5.1} ns, \
             in bursts {burst4:5.1} and {burst6:5.1} ns, \
             not found 4->6 {miss4:5.1} ns, 6->4 {miss6:5.1} ns"
        );
    }
}
