//! How often a source may do something: so many times at once, and after that so many a second (the generic cell rate
//! algorithm). Sources that did nothing lately take no memory, and so many are remembered at most.

use crate::connections::Source;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Sources that are remembered.
const SOURCES_MAX: usize = 4096;

/// Rate limit per source.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    /// Between two.
    every: Duration,
    /// Longest time that a source may be ahead of its rate.
    ahead_max: Duration,
    /// When what each has done would be over, had it kept to `every`.
    over: HashMap<Source, Instant>,
}

impl RateLimiter {
    /// `at_once` times, and then once `every` so long.
    pub(crate) fn new(at_once: u32, every: Duration) -> RateLimiter {
        RateLimiter { every, ahead_max: every * at_once.saturating_sub(1), over: HashMap::new() }
    }

    /// Time that a source has to wait, if any.
    pub(crate) fn wait(&self, source: Source, now: Instant) -> Option<Duration> {
        let ahead = self.over.get(&source)?.saturating_duration_since(now);
        ahead.checked_sub(self.ahead_max).filter(|wait| !wait.is_zero())
    }

    /// It has done it once more.
    pub(crate) fn count(&mut self, source: Source, now: Instant) {
        if self.over.len() >= SOURCES_MAX && !self.over.contains_key(&source) {
            self.over.retain(|_, over| *over > now);
            if self.over.len() >= SOURCES_MAX {
                // So many at once are no single host: any half of them begins anew.
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

    /// Whether it may do it now; if so, it has.
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
    fn so_many_at_once_and_then_one_at_a_time_for_each_source_by_itself() {
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
        assert_eq!(taken(&mut pace, 60_000), 3, "what was not used is not saved up");
    }

    #[test]
    fn many_sources_take_bounded_memory_and_those_that_wait_are_kept_where_they_can_be() {
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
