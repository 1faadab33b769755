//! The random number that a new binding's port begins with.

use crate::rng::Rng;

/// Numbers for so many bindings come from the same secrets.
const BINDINGS_EACH: u32 = 1024;

/// A random number for each binding that is known before it is drawn, so that the look-ahead can ask for the
/// port that it leads to: from the keyed hash of the inside transport address, by secrets that change all the
/// time. Whoever knows neither can guess it no better than one from the generator (RFC 6056 3.2, RFC 7857 9).
pub(super) struct Draws {
    secrets: [u64; 2],
    left: u32,
}

impl Draws {
    pub(super) fn new(rng: &mut Rng) -> Self {
        let mut word = || u64::from(rng.next_u32()) << 32 | u64::from(rng.next_u32());
        Draws { secrets: [word(), word()], left: BINDINGS_EACH }
    }

    /// The number of the binding with this hash.
    #[inline(always)]
    pub(super) fn of(&self, binding: u64) -> u32 {
        let [a, b] = self.secrets;
        let product = u128::from(binding ^ a) * u128::from(b | 1);
        ((product >> 64) as u64 ^ product as u64) as u32
    }

    /// Notes that a number was used.
    #[inline]
    pub(super) fn used(&mut self, rng: &mut Rng) {
        match self.left {
            0 => *self = Draws::new(rng),
            _ => self.left -= 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    // proves: R68-15, R78-10
    #[test]
    fn the_same_binding_draws_every_number_as_often_as_another() {
        let mut rng = Rng::new([5; 4]);
        let mut draws = Draws::new(&mut rng);
        let mut counts = vec![0u32; 256];
        const N: u32 = 256 * 200;
        for _ in 0..N {
            counts[(draws.of(0x1234_5678_9abc_def0) >> 24) as usize] += 1;
            draws.left = 0;
            draws.used(&mut rng);
        }
        let mean = f64::from(N) / 256.0;
        let chi: f64 = counts.iter().map(|&c| (f64::from(c) - mean).powi(2) / mean).sum();
        // 255 degrees of freedom: 5 standard deviations.
        assert!(chi < 255.0 + 5.0 * 510f64.sqrt(), "{chi}");
    }

    // proves: R68-15, R78-10
    #[test]
    fn bindings_beside_each_other_draw_every_number_as_often_as_another() {
        let mut rng = Rng::new([6; 4]);
        let draws = Draws::new(&mut rng);
        let mut counts = vec![0u32; 256];
        const N: u32 = 256 * 200;
        for _ in 0..N {
            let hash = u64::from(rng.next_u32()) << 32 | u64::from(rng.next_u32());
            counts[(draws.of(hash) >> 24) as usize] += 1;
        }
        let mean = f64::from(N) / 256.0;
        let chi: f64 = counts.iter().map(|&c| (f64::from(c) - mean).powi(2) / mean).sum();
        assert!(chi < 255.0 + 5.0 * 510f64.sqrt(), "{chi}");
    }
}
