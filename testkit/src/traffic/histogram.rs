//! Delays, counted in steps that grow with them: no percentile is off by more than 1/64.

/// Steps for each doubling.
const STEPS: u64 = 64;
/// For 48 bits: 128 ns one by one, then 41 doublings.
const BUCKETS: usize = 43 * STEPS as usize;

/// How often which delay occurred.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: vec![0; BUCKETS], total: 0, max_ns: 0 }
    }
}

impl Histogram {
    /// Counts a delay of less than 78 hours.
    pub fn add(&mut self, ns: u64) {
        if let Some(count) = self.counts.get_mut(bucket(ns)) {
            *count += 1;
            self.total += 1;
            self.max_ns = self.max_ns.max(ns);
        }
    }

    /// Adds another one's counts.
    pub fn merge(&mut self, other: &Histogram) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| *mine += theirs);
        self.total += other.total;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// How many were counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The longest, ns.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The delay, in ns, that `share` (0 to 1) of them do not exceed; `None` where nothing was counted.
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        let wanted = ((share * self.total as f64).ceil() as u64).max(1);
        let mut below = 0;
        let at = self.counts.iter().position(|count| {
            below += count;
            below >= wanted
        })?;
        Some(upper_end(at).min(self.max_ns))
    }
}

/// Delays below 128 ns have a bucket each; those of every further doubling have 64 together.
fn bucket(ns: u64) -> usize {
    let shift = u64::from((ns | (2 * STEPS - 1)).ilog2()) - 6;
    (shift * STEPS + (ns >> shift)) as usize
}

/// The longest delay of a bucket, ns.
fn upper_end(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let shift = (bucket / STEPS).saturating_sub(1);
    ((bucket - shift * STEPS + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_and_are_narrow() {
        let mut last = None;
        for ns in (0..100_000u64).chain((17..48).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1])) {
            let at = bucket(ns);
            assert!(at < BUCKETS, "{ns}");
            let end = upper_end(at);
            assert!(end >= ns && end - ns <= ns / 64, "{ns}: {end}");
            assert!(last.is_none_or(|last| at >= last), "{ns}");
            last = Some(at);
        }
    }

    #[test]
    fn quantiles_are_what_they_say() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile_ns(0.5), None);
        (1..=1000).rev().for_each(|us| histogram.add(us * 1000));
        for (share, us) in [(0.5, 500u64), (0.99, 990), (0.999, 999), (1.0, 1000)] {
            let ns = histogram.quantile_ns(share).unwrap();
            assert!((us * 1000..=us * 1000 + us * 1000 / 64).contains(&ns), "{share}: {ns}");
        }
        let mut both = histogram.clone();
        both.merge(&histogram);
        assert_eq!((both.total(), both.max_ns()), (2000, 1_000_000));
        assert_eq!(both.quantile_ns(0.5), histogram.quantile_ns(0.5));
    }
}
