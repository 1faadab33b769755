//! Distributions of what people and programs do.

use crate::drive::rng::Rng;

/// Load of each hour in per cent: lowest at four in the morning, highest at nine in the evening.
const BUSY: [f64; 24] = [
    45., 32., 25., 21., 20., 22., 30., 42., 52., 58., 61., 64., 68., 67., 66., 68., 72., 78., 86., 94., 99.,
    100., 88., 65.,
];

/// Load at a time of day, from 0 to 1.
pub(super) fn busy(ms_of_day: u64) -> f64 {
    let hours = ms_of_day as f64 / 3_600_000.0;
    let (at, part) = (hours as usize % 24, hours.fract());
    (BUSY[at] * (1.0 - part) + BUSY[(at + 1) % 24] * part) / 100.0
}

/// A number from 0 (excluded) to 1.
fn unit(r: &mut Rng) -> f64 {
    ((r.any() >> 11) + 1) as f64 / (1u64 << 53) as f64
}

/// Time until the next of many independent events.
pub(super) fn exponential(r: &mut Rng, mean: f64) -> f64 {
    -mean * unit(r).ln()
}

/// A heavy tail from `least` on, cut at `most`: sizes, durations, numbers of objects.
pub(super) fn pareto(r: &mut Rng, least: f64, shape: f64, most: f64) -> f64 {
    (least / unit(r).powf(1.0 / shape)).min(most)
}

/// One of `n`, with small numbers far more often: the popularity of servers.
pub(super) fn popular(r: &mut Rng, n: u32) -> u32 {
    (f64::from(n).powf(unit(r)) - 1.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evenings_are_busier_than_nights_and_distributions_keep_their_parameters() {
        assert!(busy(21 * 3_600_000) > 4.0 * busy(4 * 3_600_000));
        assert!((busy(23 * 3_600_000 + 1_800_000) - 0.55).abs() < 0.01);
        let mut r = Rng::new(1);
        let mean = (0..20_000).map(|_| exponential(&mut r, 50.0)).sum::<f64>() / 20_000.0;
        assert!((mean - 50.0).abs() < 2.0, "{mean}");
        let all: Vec<f64> = (0..20_000).map(|_| pareto(&mut r, 1.0, 1.2, 1e6)).collect();
        assert!(all.iter().all(|&x| (1.0..=1e6).contains(&x)));
        // Half of them lie below 2^(1/1.2).
        let below = all.iter().filter(|&&x| x < 1.782).count();
        assert!((9_500..10_500).contains(&below), "{below}");
        assert!((0..1_000).map(|_| popular(&mut r, 1_000)).all(|n| n < 1_000));
    }
}
