//! A random order of flows, each once in every round, without memory: a Feistel network over a power of
//! four, applied again until the number is in range.

use crate::traffic::flows::mix;

/// Rounds of the Feistel network.
const TURNS: u32 = 3;

/// An order of the numbers below `count`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shuffle {
    count: u32,
    half_bits: u32,
    key: u64,
}

impl Shuffle {
    /// Makes an order; `count` is at least 1.
    pub(crate) fn new(count: u32, seed: u64) -> Shuffle {
        let bits = u32::BITS - (count.max(2) - 1).leading_zeros();
        Shuffle { count: count.max(1), half_bits: bits.div_ceil(2), key: mix(seed) }
    }

    /// The number at `place` of round `round`.
    pub(crate) fn at(&self, round: u64, place: u32) -> u32 {
        let key = mix(self.key ^ round);
        let mut number = place;
        // The network has less than four times as many numbers as are in range: a few steps on average. The
        // loop ends, because a permutation's cycle comes back to `place`, which is in range.
        loop {
            number = self.step(number, key);
            if number < self.count {
                return number;
            }
        }
    }

    /// Place of a number in round `round`: the inverse of [`at`](Self::at).
    pub(crate) fn place(&self, round: u64, number: u32) -> u32 {
        let key = mix(self.key ^ round);
        let mut place = number;
        loop {
            place = self.step_back(place, key);
            if place < self.count {
                return place;
            }
        }
    }

    fn step(&self, number: u32, key: u64) -> u32 {
        let (mut left, mut right) = (number >> self.half_bits, number & self.mask());
        for turn in 0..TURNS {
            (left, right) = (right, left ^ self.scrambled(right, key, turn));
        }
        left << self.half_bits | right
    }

    fn step_back(&self, number: u32, key: u64) -> u32 {
        let (mut left, mut right) = (number >> self.half_bits, number & self.mask());
        for turn in (0..TURNS).rev() {
            (left, right) = (right ^ self.scrambled(left, key, turn), left);
        }
        left << self.half_bits | right
    }

    fn scrambled(&self, half: u32, key: u64, turn: u32) -> u32 {
        mix(key.rotate_left(21 * turn) ^ u64::from(half)) as u32 & self.mask()
    }

    fn mask(&self) -> u32 {
        (1 << self.half_bits) - 1
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
            for round in 0..2 {
                assert!((0..count).all(|number| shuffle.at(round, shuffle.place(round, number)) == number));
            }
        }
    }

    #[test]
    fn neighbours_in_the_order_are_far_apart() {
        let count = 1 << 16;
        let shuffle = Shuffle::new(count, 1);
        let near = (1..count)
            .filter(|&place| shuffle.at(0, place).abs_diff(shuffle.at(0, place - 1)) < count / 64)
            .count();
        // In a random order, 1 in 32.
        let expected = count as usize / 32;
        assert!((expected / 2..expected * 2).contains(&near), "{near}");
    }
}
