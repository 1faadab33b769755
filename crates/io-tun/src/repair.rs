//! Schedule for restoring routes that vanished.

use std::time::{Duration, Instant};

/// Delay before a repair: routes often vanish together, and the kernel reports each one.
const GATHER: Duration = Duration::from_millis(20);
/// Shortest interval between repairs. If another program keeps removing routes, the interval doubles up to
/// the maximum.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Schedule of a device's repairs, at a limited rate.
#[derive(Debug, Default)]
pub(crate) struct Repair {
    due: Option<Instant>,
    not_before: Option<Instant>,
    pause: Duration,
    /// True if the last repair failed and was reported.
    failing: bool,
}

impl Repair {
    /// Schedules a repair, because a route may have vanished.
    pub(crate) fn suspect(&mut self, now: Instant) {
        if self.due.is_none() {
            let soon = now + GATHER;
            self.due = Some(self.not_before.map_or(soon, |earliest| earliest.max(soon)));
        }
    }

    /// Schedules a repair without a pause, because the cause of earlier failures may be gone.
    pub(crate) fn suspect_anew(&mut self, now: Instant) {
        (self.due, self.not_before, self.pause) = (None, None, Duration::ZERO);
        self.suspect(now);
    }

    /// Time of the next repair.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Notes that a repair succeeded; `repaired` is true if it restored something.
    pub(crate) fn succeeded(&mut self, now: Instant, repaired: bool) {
        self.pause_from(now, repaired);
        (self.due, self.failing) = (None, false);
    }

    /// Notes that a repair failed, and schedules the next attempt. Returns true if the failure is new.
    pub(crate) fn failed(&mut self, now: Instant) -> bool {
        self.pause_from(now, true);
        self.due = self.not_before;
        !std::mem::replace(&mut self.failing, true)
    }

    fn pause_from(&mut self, now: Instant, again: bool) {
        // If no repair was needed for as long as the last pause, start over.
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
    fn repairs_come_immediately_and_then_less_and_less_often() {
        let begin = Instant::now();
        let (mut now, mut repair) = (begin, Repair::default());
        // Another program removes a route as soon as it is restored.
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
        // After a long time without repairs, the next one comes immediately.
        now += 3 * PAUSE_MAX;
        repair.suspect(now);
        assert_eq!(repair.due(), Some(now + GATHER));
        repair.succeeded(repair.due().unwrap(), true);
        repair.suspect(now);
        assert_eq!(repair.due(), Some(now + GATHER + PAUSE_MIN));
    }

    #[test]
    fn a_failed_repair_is_reported_once_and_repeated() {
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
