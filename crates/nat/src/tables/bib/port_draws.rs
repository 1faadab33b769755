//! Random numbers that start the port search of a new binding.

use crate::base::rng::Rng;

/// Number of bindings that draw from the same secrets.
const BINDINGS_EACH: u32 = 1024;

/// Two random numbers for each binding, known before they are drawn, so that the look-ahead can prefetch the
/// resulting port. They come from the keyed hash of the inside transport address, with secrets that change
/// all the time. Without the secrets, they are as hard to guess as numbers from the generator (RFC 6056 3.2,
/// RFC 7857 9).
pub(super) struct PortDraws {
    secrets: [u64; 2],
    left: u32,
}

impl PortDraws {
    pub(super) fn new(rng: &mut Rng) -> Self {
        let mut word = || u64::from(rng.next_u32()) << 32 | u64::from(rng.next_u32());
        PortDraws { secrets: [word(), word()], left: BINDINGS_EACH }
    }

    /// Returns the numbers of the binding with this hash.
    #[inline(always)]
    pub(super) fn of(&self, binding: u64) -> [u32; 2] {
        let [a, b] = self.secrets;
        let product = u128::from(binding ^ a) * u128::from(b | 1);
        let both = (product >> 64) as u64 ^ product as u64;
        [both as u32, (both >> 32) as u32]
    }

    /// Notes that numbers were used.
    #[inline]
    pub(super) fn used(&mut self, rng: &mut Rng) {
        match self.left {
            0 => *self = PortDraws::new(rng),
            _ => self.left -= 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    /// Checks the counts of 256 numbers against equal shares: within 5 standard deviations of the chance
    /// value.
    fn are_equal_shares(counts: &[u32]) {
        let mean = f64::from(counts.iter().sum::<u32>()) / 256.0;
        let chi: f64 = counts.iter().map(|&c| (f64::from(c) - mean).powi(2) / mean).sum();
        // 255 degrees of freedom.
        assert!(chi < 255.0 + 5.0 * 510f64.sqrt(), "{chi}");
    }

    const N: u32 = 256 * 200;

    // proves: R68-15, R78-10
    #[test]
    fn the_same_binding_draws_every_number_as_often_as_another() {
        let mut rng = Rng::new([5; 4]);
        let mut draws = PortDraws::new(&mut rng);
        let mut counts = [vec![0u32; 256], vec![0u32; 256]];
        for _ in 0..N {
            let numbers = draws.of(0x1234_5678_9abc_def0);
            counts.iter_mut().zip(numbers).for_each(|(counts, n)| counts[(n >> 24) as usize] += 1);
            draws.left = 0;
            draws.used(&mut rng);
        }
        counts.iter().for_each(|counts| are_equal_shares(counts));
    }

    // proves: R68-15, R78-10
    #[test]
    fn bindings_beside_each_other_draw_every_number_as_often_as_another() {
        let mut rng = Rng::new([6; 4]);
        let draws = PortDraws::new(&mut rng);
        let mut counts = [vec![0u32; 256], vec![0u32; 256], vec![0u32; 256]];
        for _ in 0..N {
            let hash = u64::from(rng.next_u32()) << 32 | u64::from(rng.next_u32());
            let [first, second] = draws.of(hash);
            // Checks that the first number does not predict the second.
            let together = (first >> 28) << 4 | second >> 28;
            let numbers = [first >> 24, second >> 24, together];
            counts.iter_mut().zip(numbers).for_each(|(counts, n)| counts[n as usize] += 1);
        }
        counts.iter().for_each(|counts| are_equal_shares(counts));
    }
}
