//! What became of the packets.

/// Numbers behind the highest that are known one by one.
const KNOWN: u64 = 1 << 16;
/// Buckets of a power of two, of latencies.
const FINE: u64 = 16;

/// An account of all packets of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Packets sent, those not counted that the device refused.
    pub tx: u64,
    /// Of these, turned round at the other end.
    pub turned: u64,
    /// Of these, returned, each number once.
    pub rx: u64,
    /// Sent and not returned.
    pub lost: u64,
    /// Numbers that returned more than once.
    pub duplicated: u64,
    /// Returned after one with a higher number.
    pub reordered: u64,
    /// Returned, or come to the other end, with a wrong checksum or length; only some are looked at, if so set.
    pub corrupted: u64,
    /// Returned to another than the flow's source, or from another than its server.
    pub misdelivered: u64,
    /// Frames of others: ARP, neighbour discovery, ICMP errors.
    pub others: u64,
    /// Frames that the generator's own device refused.
    pub refused: u64,
    /// Seconds of sending.
    pub seconds: f64,
    /// Returned packets a second.
    pub pps: f64,
    /// Packets through the translator a second: both ways.
    pub translated_pps: f64,
    /// From sending to return.
    pub latency_us: Latency,
}

/// Latencies, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency {
    /// The median.
    pub p50: f64,
    /// 99 of 100 are shorter.
    pub p99: f64,
    /// 999 of 1000 are shorter.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

/// What is counted while packets return.
pub(crate) struct Score {
    pub(crate) highest: u64,
    any: bool,
    seen: Vec<u64>,
    latencies: Vec<u64>,
    latency_max_ns: u64,
    pub(crate) rx: u64,
    pub(crate) duplicated: u64,
    pub(crate) reordered: u64,
}

impl Score {
    pub(crate) fn new() -> Score {
        Score {
            highest: 0,
            any: false,
            seen: vec![0; (KNOWN / 64) as usize],
            latencies: vec![0; 64 * FINE as usize],
            latency_max_ns: 0,
            rx: 0,
            duplicated: 0,
            reordered: 0,
        }
    }

    /// A packet has returned.
    #[inline]
    pub(crate) fn returned(&mut self, number: u64, latency_ns: u64) {
        if self.is_again(number) {
            self.duplicated += 1;
            return;
        }
        self.rx += 1;
        self.latency_max_ns = self.latency_max_ns.max(latency_ns);
        if let Some(count) = self.latencies.get_mut(bucket(latency_ns)) {
            *count += 1;
        }
    }

    #[inline]
    fn is_again(&mut self, number: u64) -> bool {
        let bit = |number: u64| ((number % KNOWN / 64) as usize, 1u64 << (number % 64));
        if !self.any || number > self.highest {
            // What was at the places of the numbers between is long past.
            let first = if self.any { self.highest + 1 } else { 0 }.max(number.saturating_sub(KNOWN - 1));
            for between in first..number {
                let (word, bit) = bit(between);
                self.seen[word] &= !bit;
            }
            let (word, bit) = bit(number);
            self.seen[word] |= bit;
            (self.highest, self.any) = (number, true);
            return false;
        }
        if self.highest - number >= KNOWN {
            self.reordered += 1;
            return false;
        }
        let (word, bit) = bit(number);
        if self.seen[word] & bit != 0 {
            return true;
        }
        self.seen[word] |= bit;
        self.reordered += 1;
        false
    }

    pub(crate) fn latency(&self) -> Latency {
        let total: u64 = self.latencies.iter().sum();
        let of = |part: f64| {
            let wanted = (total as f64 * part).ceil() as u64;
            let mut sum = 0;
            let found = self.latencies.iter().position(|count| {
                sum += count;
                sum >= wanted.max(1)
            });
            found.map_or(0.0, |bucket| upper_ns(bucket) as f64 / 1e3)
        };
        Latency { p50: of(0.5), p99: of(0.99), p999: of(0.999), max: self.latency_max_ns as f64 / 1e3 }
    }
}

/// Sixteenths of a power of two.
fn bucket(ns: u64) -> usize {
    if ns < FINE {
        return ns as usize;
    }
    let power = u64::from(ns.ilog2()) - 4;
    ((power + 1) * FINE + (ns >> power) - FINE) as usize
}

/// The largest latency of a bucket.
fn upper_ns(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < FINE {
        return bucket;
    }
    let power = bucket / FINE - 1;
    ((bucket % FINE + FINE + 1) << power) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_missing_late_or_there_twice_are_told_apart() {
        let mut score = Score::new();
        for number in [0, 1, 2, 5, 3, 5, 6, 4 + KNOWN, 6, 7, 4, 4 + KNOWN] {
            score.returned(number, 1000);
        }
        // 5, 6 and the last are there twice; 3 and 7 came late, and so late did 4 that it may have been there before.
        assert_eq!((score.rx, score.duplicated), (9, 3));
        assert_eq!(score.reordered, 3);
        assert_eq!(score.highest, 4 + KNOWN);
        let mut all = Score::new();
        (0..3 * KNOWN).for_each(|number| all.returned(number, 5));
        (2 * KNOWN..3 * KNOWN).for_each(|number| all.returned(number, 5));
        assert_eq!((all.rx, all.duplicated, all.reordered), (3 * KNOWN, KNOWN, 0));
    }

    #[test]
    fn latencies_are_known_to_a_sixteenth() {
        for ns in (0..100_000).step_by(7).chain([u64::MAX >> 8]) {
            let upper = upper_ns(bucket(ns));
            assert!(upper >= ns && upper <= ns + ns / 16 + 1, "{ns}: {upper}");
        }
        let mut score = Score::new();
        (0..1000).for_each(|number| score.returned(number, number * 1000));
        let Latency { p50, p99, p999, max } = score.latency();
        assert!((495.0..540.0).contains(&p50) && (980.0..1060.0).contains(&p99), "{p50} {p99}");
        assert!(p999 >= 998.0 && max == 999.0, "{p999} {max}");
    }
}
