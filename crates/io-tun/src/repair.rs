//! Times at which vanished routes are set again.

use std::time::{Duration, Instant};

/// Routes often vanish together: the kernel announces each.
const GATHER: Duration = Duration::from_millis(20);
/// From one repair to the next. Where another program keeps removing routes, the pause doubles up to the maximum.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// When to repair a device's routes, at a bounded rate.
#[derive(Debug, Default)]
pub(crate) struct Repair {
    due: Option<Instant>,
    not_before: Option<Instant>,
    pause: Duration,
    /// Whether the last repair failed, and that was told.
    failing: bool,
}

impl Repair {
    /// Something may have vanished.
    pub(crate) fn suspect(&mut self, now: Instant) {
        if self.due.is_none() {
            let soon = now + GATHER;
            self.due = Some(self.not_before.map_or(soon, |earliest| earliest.max(soon)));
        }
    }

    /// What made repairs fail, or come often, may be over.
    pub(crate) fn suspect_anew(&mut self, now: Instant) {
        (self.due, self.not_before, self.pause) = (None, None, Duration::ZERO);
        self.suspect(now);
    }

    /// Time of the next repair.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// A repair was made, of something or of nothing.
    pub(crate) fn succeeded(&mut self, now: Instant, repaired: bool) {
        self.pause_from(now, repaired);
        (self.due, self.failing) = (None, false);
    }

    /// A repair has failed, and is tried again. Returns whether that is news.
    pub(crate) fn failed(&mut self, now: Instant) -> bool {
        self.pause_from(now, true);
        self.due = self.not_before;
        !std::mem::replace(&mut self.failing, true)
    }

    fn pause_from(&mut self, now: Instant, again: bool) {
        // As long without a repair as the last pause was: it is over.
        let over = self.not_before.is_none_or(|earliest| now >= earliest + self.pause);
        self.pause = match again && !over {
            true => (self.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX),
            false => PAUSE_MIN,
        };
        self.not_before = Some(now + self.pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repairs_come_at_once_and_then_less_and_less_often() {
        let begin = Instant::now();
        let (mut now, mut repair) = (begin, Repair::default());
        // Somebody removes a route whenever it is there.
        let mut repairs = 0;
        while now < begin + Duration::from_secs(3600) {
            repair.suspect(now);
            now = repair.due().unwrap();
            repair.succeeded(now, true);
            repairs += 1;
            if repairs == 1 {
                assert_eq!(now, begin + GATHER);
            }
        }
        assert!((60..70).contains(&repairs), "{repairs} in an hour");
        // Left alone for long enough, the next one comes at once.
        now += 3 * PAUSE_MAX;
        repair.suspect(now);
        assert_eq!(repair.due(), Some(now + GATHER));
        repair.succeeded(repair.due().unwrap(), true);
        repair.suspect(now);
        assert_eq!(repair.due(), Some(now + GATHER + PAUSE_MIN));
    }

    #[test]
    fn a_repair_that_fails_is_news_once_and_is_tried_again() {
        let (now, mut repair) = (Instant::now(), Repair::default());
        repair.suspect(now);
        assert!(repair.failed(now) && repair.due() == Some(now + PAUSE_MIN));
        assert!(!repair.failed(now + PAUSE_MIN) && repair.due() == Some(now + 3 * PAUSE_MIN));
        repair.suspect_anew(now);
        assert_eq!(repair.due(), Some(now + GATHER));
        repair.succeeded(now + GATHER, true);
        assert!(repair.due().is_none() && repair.failed(now));
    }
}
