//! Rate limit per source: a burst, and after that a fixed rate (the generic cell rate algorithm). Idle
//! sources take no memory, and the number of remembered sources is bounded.

use crate::connections::Source;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Most sources remembered.
const SOURCES_MAX: usize = 4096;

/// Rate limit per source.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    /// Interval at the steady rate.
    every: Duration,
    /// Longest time that a source may be ahead of its rate.
    ahead_max: Duration,
    /// Theoretical arrival time of each source's next event.
    over: HashMap<Source, Instant>,
}

impl RateLimiter {
    /// Allows `at_once` events, and then one per `every`.
    pub(crate) fn new(at_once: u32, every: Duration) -> RateLimiter {
        RateLimiter { every, ahead_max: every * at_once.saturating_sub(1), over: HashMap::new() }
    }

    /// Time that a source has to wait, if any.
    pub(crate) fn wait(&self, source: Source, now: Instant) -> Option<Duration> {
        let ahead = self.over.get(&source)?.saturating_duration_since(now);
        ahead.checked_sub(self.ahead_max).filter(|wait| !wait.is_zero())
    }

    /// Counts one more event.
    pub(crate) fn count(&mut self, source: Source, now: Instant) {
        if self.over.len() >= SOURCES_MAX && !self.over.contains_key(&source) {
            self.over.retain(|_, over| *over > now);
            if self.over.len() >= SOURCES_MAX {
                // So many active sources are no single host: reset any half of them.
                let mut keep = false;
                self.over.retain(|_, _| {
                    keep = !keep;
                    keep
                });
            }
        }
        let over = self.over.entry(source).or_insert(now);
        *over = (*over).max(now) + self.every;
    }

    /// Returns true and counts the event if the source may do it now.
    pub(crate) fn take(&mut self, source: Source, now: Instant) -> bool {
        let may = self.wait(source, now).is_none();
        if may {
            self.count(source, now);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_has_a_burst_and_then_a_fixed_rate() {
        let mut pace = RateLimiter::new(3, Duration::from_secs(1));
        let (now, one, other) = (Instant::now(), Source::User(1), Source::User(2));
        let taken = |pace: &mut RateLimiter, at_ms| {
            (0..10).filter(|_| pace.take(one, now + Duration::from_millis(at_ms))).count()
        };
        assert_eq!(taken(&mut pace, 0), 3);
        assert_eq!(pace.wait(one, now), Some(Duration::from_secs(1)));
        assert_eq!(taken(&mut pace, 999), 0);
        assert_eq!(taken(&mut pace, 1000), 1);
        assert!(pace.take(other, now));
        assert_eq!(taken(&mut pace, 60_000), 3, "unused attempts do not accumulate");
    }

    #[test]
    fn memory_is_bounded_and_waiting_sources_are_kept_if_possible() {
        let mut pace = RateLimiter::new(1, Duration::from_secs(10));
        let now = Instant::now();
        pace.count(Source::User(u32::MAX), now);
        let later = now + Duration::from_secs(11);
        let last = SOURCES_MAX as u32;
        (0..last).for_each(|user| pace.count(Source::User(user), later));
        assert_eq!(pace.over.len(), SOURCES_MAX, "the first one's time was over");
        assert!((0..last).all(|user| pace.wait(Source::User(user), later).is_some()));
        (last..10 * last).for_each(|user| pace.count(Source::User(user), later));
        assert!(pace.over.len() <= SOURCES_MAX);
    }
}
