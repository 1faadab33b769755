//! Chunk: 256 ports of one transport, with the used ones marked, in one cache line. A block of ports is one
//! or more consecutive chunks, or the beginning of one if it is smaller.

use super::{EVEN, Parity};
use crate::base::rng::Rng;

/// Ports of a chunk.
pub(crate) const PORTS: usize = 256;

const WORDS: usize = PORTS / 64;

/// All zeroes means that no port is used.
#[derive(Clone, Copy, Debug, zerocopy::FromZeros)]
#[repr(C, align(64))]
pub(crate) struct Chunk {
    words: [u64; WORDS],
    /// Number of used ports.
    pub(crate) used: u32,
    /// Nonzero if its ports are not for subscribers. They are not counted then.
    pub(crate) barred: u32,
}

const _: () = assert!(size_of::<Chunk>() == 64);

impl Chunk {
    /// Marks a port as used. Returns `false` if it is used already.
    #[inline]
    pub(crate) fn take(&mut self, at: usize) -> bool {
        let Some(word) = self.words.get_mut(at / 64) else { return false };
        let bit = 1 << (at % 64);
        let free = *word & bit == 0;
        *word |= bit;
        self.used += u32::from(free);
        free
    }

    /// Marks a port as free. Returns `false` if it is free already.
    #[inline]
    pub(crate) fn give_back(&mut self, at: usize) -> bool {
        let Some(word) = self.words.get_mut(at / 64) else { return false };
        let bit = 1 << (at % 64);
        let used = *word & bit != 0;
        *word &= !bit;
        self.used -= u32::from(used);
        used
    }

    /// Returns the first used port from `from` on.
    pub(crate) fn next_used(&self, from: usize) -> Option<usize> {
        let mut mask = !((1u64 << (from % 64)) - 1);
        for (n, word) in self.words.iter().enumerate().skip(from / 64) {
            let used = word & mask;
            mask = u64::MAX;
            if used != 0 {
                return Some(n * 64 + used.trailing_zeros() as usize);
            }
        }
        None
    }

    #[inline]
    pub(crate) fn is_free(&self, at: usize) -> bool {
        self.words.get(at / 64).is_some_and(|w| w & (1 << (at % 64)) == 0)
    }
}

/// Returns a random free port of a block of `1 << shift` ports, as its place in the block. Each free port has
/// the same probability (RFC 6888 REQ-15). The port has the wanted parity; `None` if no such port is free.
///
/// While many are free, a draw or two finds one. Otherwise it finds one by counting. Both are uniform.
#[inline]
pub(crate) fn random_free(chunks: &[Chunk], shift: u32, parity: Parity, rng: &mut Rng) -> Option<usize> {
    let size = 1usize << shift;
    let used: u32 = chunks.iter().map(|c| c.used).sum();
    if used as usize >= size {
        return None;
    }
    let mut random = rng.next_u32();
    for _ in 0..(32 / shift.max(1)).min(4) {
        let drawn = random as usize & (size - 1);
        random = random.checked_shr(shift).unwrap_or(0);
        let at = match parity {
            Parity::Any => drawn,
            Parity::Even => drawn & !1,
            Parity::Odd => drawn | 1,
        };
        if chunks.get(at / PORTS).is_some_and(|c| c.is_free(at % PORTS)) {
            return Some(at);
        }
    }
    counted_off(chunks, size, parity, rng)
}

/// Same by counting, for blocks that are nearly full.
#[inline(never)]
fn counted_off(chunks: &[Chunk], size: usize, parity: Parity, rng: &mut Rng) -> Option<usize> {
    let mask = match parity {
        Parity::Even => EVEN,
        Parity::Odd => !EVEN,
        Parity::Any => u64::MAX,
    };
    let words = || chunks.iter().flat_map(|c| c.words).take(size.div_ceil(64));
    // A block of less than a word's ports uses the first bits of the word.
    let free = |word: u64| !word & mask & (u64::MAX >> (64 - size.min(64)));
    let mut rank = match words().map(|w| free(w).count_ones()).sum() {
        0 => return None,
        all => rng.below(all),
    };
    for (n, word) in words().enumerate() {
        let mut bits = free(word);
        if rank >= bits.count_ones() {
            rank -= bits.count_ones();
            continue;
        }
        for _ in 0..rank {
            bits &= bits.wrapping_sub(1);
        }
        return Some(n * 64 + bits.trailing_zeros() as usize);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;
    use zerocopy::FromZeros;

    fn block(shift: u32) -> Vec<Chunk> {
        vec![Chunk::new_zeroed(); (1usize << shift).div_ceil(PORTS)]
    }

    fn take(chunks: &mut [Chunk], at: usize) -> bool {
        chunks[at / PORTS].take(at % PORTS)
    }

    // proves: R68-13, PBA-1
    #[test]
    fn every_port_of_a_block_of_any_size_is_given_once() {
        let mut rng = Rng::new([1; 4]);
        for shift in 5..=14 {
            for first in [Parity::Any, Parity::Even, Parity::Odd] {
                let mut chunks = block(shift);
                let mut seen = vec![false; 1 << shift];
                let mut take_all = |parity, count| {
                    for _ in 0..count {
                        let at = random_free(&chunks, shift, parity, &mut rng).unwrap();
                        assert!(!core::mem::replace(&mut seen[at], true), "{at} twice");
                        assert!(take(&mut chunks, at));
                        assert!(parity == Parity::Any || (at % 2 == 1) == (parity == Parity::Odd));
                    }
                    assert_eq!(random_free(&chunks, shift, parity, &mut rng), None);
                };
                if first != Parity::Any {
                    take_all(first, 1 << (shift - 1));
                    take_all(Parity::Any, 1 << (shift - 1));
                } else {
                    take_all(Parity::Any, 1 << shift);
                }
                assert!(seen.iter().all(|s| *s));
            }
        }
    }

    /// Chi-square of `counts` against equal shares, as deviations from what chance gives.
    fn deviations(counts: &[u32]) -> f64 {
        let each = f64::from(counts.iter().sum::<u32>()) / counts.len() as f64;
        let chi2: f64 = counts.iter().map(|&c| (f64::from(c) - each).powi(2) / each).sum();
        let freedom = (counts.len() - 1) as f64;
        (chi2 - freedom) / (2.0 * freedom).sqrt()
    }

    // proves: R68-15, R78-10, PBA-1
    #[test]
    fn each_free_port_of_a_block_is_as_likely_as_every_other_at_any_fill() {
        let mut rng = Rng::new([2; 4]);
        for used in [0usize, 1, 128, 200, 240, 250] {
            let mut chunks = block(8);
            // Consecutive ports are used, as an attacker would use them.
            (0..used).for_each(|at| assert!(take(&mut chunks, at)));
            let mut counts = vec![0u32; 256 - used];
            for _ in 0..500 * counts.len() {
                counts[random_free(&chunks, 8, Parity::Any, &mut rng).unwrap() - used] += 1;
            }
            assert!(deviations(&counts).abs() < 5.0, "{used} used: {}", deviations(&counts));
        }
    }

    // proves: R68-15
    #[test]
    fn one_port_says_nothing_about_the_next() {
        let mut rng = Rng::new([3; 4]);
        let chunks = block(8);
        let mut pairs = vec![0u32; 32 * 32];
        let mut last = random_free(&chunks, 8, Parity::Any, &mut rng).unwrap();
        for _ in 0..200_000 {
            let next = random_free(&chunks, 8, Parity::Any, &mut rng).unwrap();
            pairs[last / 8 * 32 + next / 8] += 1;
            last = next;
        }
        assert!(deviations(&pairs).abs() < 5.0, "{}", deviations(&pairs));
    }

    #[test]
    fn a_port_is_taken_and_given_back_once() {
        let mut chunk = Chunk::new_zeroed();
        assert!(chunk.take(255) && !chunk.take(255) && !chunk.take(256));
        assert_eq!(chunk.used, 1);
        assert!(chunk.give_back(255) && !chunk.give_back(255) && !chunk.give_back(256));
        assert_eq!(chunk.used, 0);
    }
}
