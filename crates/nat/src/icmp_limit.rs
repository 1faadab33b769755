//! How many ICMP errors an engine makes (RFC 4443 2.4 f, RFC 1812 4.3.2.8): a token bucket.

use crate::Instant;

/// A token bucket. A clock that jumps back costs nothing but the tokens of that moment; one that jumps
/// ahead fills the bucket, not more.
#[derive(Clone, Debug)]
pub struct IcmpLimit {
    rate_per_s: u32,
    /// Thousandths of a token: a rate of one a second is one of these a millisecond.
    tokens_milli: u64,
    burst_milli: u64,
    last: Instant,
}

const TOKEN: u64 = 1000;

impl IcmpLimit {
    /// `rate_per_s` errors a second, and `burst` at once; a burst of 0 is none ever.
    pub const fn new(rate_per_s: u32, burst: u32) -> Self {
        let burst_milli = burst as u64 * TOKEN;
        IcmpLimit { rate_per_s, tokens_milli: burst_milli, burst_milli, last: Instant(0) }
    }

    /// Another rate and burst from now on.
    pub fn set(&mut self, rate_per_s: u32, burst: u32) {
        self.rate_per_s = rate_per_s;
        self.burst_milli = u64::from(burst) * TOKEN;
        self.tokens_milli = self.tokens_milli.min(self.burst_milli);
    }

    /// Whether one more error may be sent at `now`, and counts it.
    pub fn allow(&mut self, now: Instant) -> bool {
        let gained = now.since_ms(self.last).saturating_mul(u64::from(self.rate_per_s));
        self.tokens_milli = self.tokens_milli.saturating_add(gained).min(self.burst_milli);
        self.last = now;
        if self.tokens_milli < TOKEN {
            return false;
        }
        self.tokens_milli -= TOKEN;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(limit: &mut IcmpLimit, now: u64, tries: u32) -> u32 {
        (0..tries).map(|_| u32::from(limit.allow(Instant(now)))).sum()
    }

    #[test]
    fn a_burst_then_the_rate() {
        let mut limit = IcmpLimit::new(1000, 200);
        assert_eq!(sent(&mut limit, 5_000_000, 1000), 200);
        assert_eq!(sent(&mut limit, 5_000_000, 1000), 0);
        assert_eq!(sent(&mut limit, 5_000_001, 1000), 1);
        assert_eq!(sent(&mut limit, 5_000_050, 1000), 49);
        assert_eq!(sent(&mut limit, 5_100_000, 1000), 200);
    }

    #[test]
    fn a_rate_below_one_a_millisecond_is_kept_over_many_small_steps() {
        let mut limit = IcmpLimit::new(3, 1);
        let total: u32 = (0..=100_000).map(|ms| sent(&mut limit, ms, 2)).sum();
        assert_eq!(total, 1 + 299, "the fraction left over by each full bucket is lost, not gained");
    }

    #[test]
    fn a_clock_that_jumps_is_harmless() {
        let mut limit = IcmpLimit::new(10, 5);
        assert_eq!(sent(&mut limit, u64::MAX, 100), 5);
        assert_eq!(sent(&mut limit, 1000, 100), 0);
        assert_eq!(sent(&mut limit, 1100, 100), 1, "it goes on from the earlier time");
        assert_eq!(sent(&mut limit, u64::MAX, 100), 5);
    }

    #[test]
    fn nothing_is_sent_where_the_burst_is_nothing() {
        let mut limit = IcmpLimit::new(1000, 0);
        assert_eq!(sent(&mut limit, 0, 10) + sent(&mut limit, 10_000, 10), 0);
    }
}
