//! A random order of flows, each once in every round, that takes no memory: a Feistel network over the numbers, walked
//! until it is within them.

use crate::flows::mix;

/// An order of the numbers below `count`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shuffle {
    count: u32,
    half_bits: u32,
    key: u64,
}

impl Shuffle {
    /// `count` is 1 at least.
    pub(crate) fn new(count: u32, seed: u64) -> Shuffle {
        let bits = u32::BITS - (count.max(2) - 1).leading_zeros();
        Shuffle { count: count.max(1), half_bits: bits.div_ceil(2), key: mix(seed) }
    }

    /// The number at `place` of round `round`.
    pub(crate) fn at(&self, round: u64, place: u32) -> u32 {
        let key = mix(self.key ^ round);
        let mut number = place;
        // Less than four times as many numbers as are within: a few steps on average, and an end, as a permutation's
        // cycle comes back to `place`, which is within.
        loop {
            number = self.step(number, key);
            if number < self.count {
                return number;
            }
        }
    }

    fn step(&self, number: u32, key: u64) -> u32 {
        let mask = (1u32 << self.half_bits) - 1;
        let (mut left, mut right) = (number >> self.half_bits, number & mask);
        for turn in 0..3 {
            let scrambled = mix(key.rotate_left(21 * turn) ^ u64::from(right));
            (left, right) = (right, left ^ (scrambled as u32 & mask));
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_has_every_number_once_and_another_order() {
        for count in [1, 2, 3, 100, 1 << 12, 5000] {
            let shuffle = Shuffle::new(count, 7);
            let round = |round| (0..count).map(|place| shuffle.at(round, place)).collect::<Vec<_>>();
            let (first, second) = (round(0), round(1));
            let mut sorted = first.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..count).collect::<Vec<_>>());
            assert!(count < 10 || first != second);
        }
    }

    #[test]
    fn neighbours_in_the_order_are_far_apart() {
        let count = 1 << 16;
        let shuffle = Shuffle::new(count, 1);
        let near = (1..count)
            .filter(|&place| shuffle.at(0, place).abs_diff(shuffle.at(0, place - 1)) < count / 64)
            .count();
        // Of a random order, 1 in 32.
        let expected = count as usize / 32;
        assert!((expected / 2..expected * 2).contains(&near), "{near}");
    }
}
