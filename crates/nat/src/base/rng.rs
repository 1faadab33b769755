//! Random numbers that an observer of earlier ones cannot foretell: ports must be hard to guess
//! (RFC 6056 3.2, RFC 6888 REQ-15, RFC 7857 9).
//!
//! ChaCha with 8 rounds, its block counter running from zero under the seed as key; 64 bytes at a time.

/// A stream of random numbers.
#[derive(Clone)]
pub struct Rng {
    key: [u32; 8],
    counter: u64,
    block: [u32; 16],
    /// Words of `block` already given.
    used: usize,
}

const BLOCK_WORDS: usize = 16;
const ROUNDS: usize = 8;

impl Rng {
    /// The stream of `seed`, which nobody must be able to guess. The same seed gives the same stream.
    pub fn new(seed: [u64; 4]) -> Self {
        let [a, b, c, d] = seed.map(|w| [w as u32, (w >> 32) as u32]);
        let key = [a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]];
        Rng { key, counter: 0, block: [0; BLOCK_WORDS], used: BLOCK_WORDS }
    }

    /// 32 random bits.
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        if self.used >= BLOCK_WORDS {
            self.refill();
        }
        let word = self.block.get(self.used).copied().unwrap_or(0);
        self.used += 1;
        word
    }

    /// A number below `n`, every one as likely as every other; 0 where `n` is 0.
    #[inline]
    pub fn below(&mut self, n: u32) -> u32 {
        // Lemire's method: the high half of a product, redrawn in the few cases that would favour some.
        let mut product = u64::from(self.next_u32()) * u64::from(n);
        if (product as u32) < n {
            let unfair = n.wrapping_neg().checked_rem(n).unwrap_or(0);
            while (product as u32) < unfair {
                product = u64::from(self.next_u32()) * u64::from(n);
            }
        }
        (product >> 32) as u32
    }

    #[cold]
    fn refill(&mut self) {
        self.block = chacha(&self.key, self.counter);
        self.counter = self.counter.wrapping_add(1);
        self.used = 0;
    }
}

impl core::fmt::Debug for Rng {
    /// Without the key.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Rng").finish_non_exhaustive()
    }
}

/// Four words of the state: one of each of a quarter round's operands for each of four rounds.
type Row = [u32; 4];

fn chacha(key: &[u32; 8], counter: u64) -> [u32; BLOCK_WORDS] {
    let [a, b, c, d, e, f, g, h] = *key;
    let start: [Row; 4] = [
        [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574],
        [a, b, c, d],
        [e, f, g, h],
        [counter as u32, (counter >> 32) as u32, 0, 0],
    ];
    let mut rows = start;
    for _ in 0..ROUNDS / 2 {
        quarters(&mut rows);
        // The diagonals become columns, and columns again.
        let [_, b, c, d] = &mut rows;
        (*b, *c, *d) = (turned(*b, 1), turned(*c, 2), turned(*d, 3));
        quarters(&mut rows);
        let [_, b, c, d] = &mut rows;
        (*b, *c, *d) = (turned(*b, 3), turned(*c, 2), turned(*d, 1));
    }
    let mut block = [0; BLOCK_WORDS];
    let sums = rows.iter().flatten().zip(start.iter().flatten()).map(|(x, start)| x.wrapping_add(*start));
    block.iter_mut().zip(sums).for_each(|(word, sum)| *word = sum);
    block
}

#[inline(always)]
fn turned(mut row: Row, by: usize) -> Row {
    row.rotate_left(by);
    row
}

/// A quarter round in each column (RFC 8439 2.1).
#[inline(always)]
fn quarters(rows: &mut [Row; 4]) {
    let [a, b, c, d] = rows;
    for (((a, b), c), d) in a.iter_mut().zip(b).zip(c).zip(d) {
        *a = a.wrapping_add(*b);
        *d = (*d ^ *a).rotate_left(16);
        *c = c.wrapping_add(*d);
        *b = (*b ^ *c).rotate_left(12);
        *a = a.wrapping_add(*b);
        *d = (*d ^ *a).rotate_left(8);
        *c = c.wrapping_add(*d);
        *b = (*b ^ *c).rotate_left(7);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{RngCore, SeedableRng};
    use std::vec;

    #[test]
    fn the_stream_is_that_of_another_chacha8() {
        for seed in [[0; 4], [1, 2, 3, u64::MAX]] {
            let mut bytes = [0; 32];
            for (to, word) in bytes.chunks_exact_mut(8).zip(seed) {
                to.copy_from_slice(&word.to_le_bytes());
            }
            let mut other = ChaCha8Rng::from_seed(bytes);
            let mut ours = Rng::new(seed);
            for _ in 0..10_000 {
                assert_eq!(ours.next_u32(), other.next_u32());
            }
        }
    }

    #[test]
    fn numbers_below_a_bound_are_equally_likely() {
        let mut rng = Rng::new([7; 4]);
        for n in [1u32, 2, 3, 10, 63, 1000] {
            let draws = 1000 * n;
            let mut seen = vec![0u32; n as usize];
            for _ in 0..draws {
                seen[rng.below(n) as usize] += 1;
            }
            let chi2: f64 = seen.iter().map(|&s| (f64::from(s) - 1000.0).powi(2) / 1000.0).sum();
            let freedom = f64::from(n - 1);
            assert!(chi2 <= freedom + 5.0 * (2.0 * freedom).sqrt(), "n {n}: {chi2}");
        }
    }

    #[test]
    fn a_bound_that_does_not_divide_the_range_is_not_favoured_at_its_low_end() {
        // Without the redraw, numbers below 2^31 would come twice as often as those above.
        let n = 3 << 30;
        let mut rng = Rng::new([9; 4]);
        let low = (0..30_000).filter(|_| rng.below(n) < 1 << 30).count();
        assert!((9_500..10_500).contains(&low), "{low}");
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.below(1), 0);
    }
}
