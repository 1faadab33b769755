//! Engine time.

/// Milliseconds since a point that the caller chose. The engine gets the time as an argument and never reads
/// a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// Adds `ms` milliseconds.
    #[inline]
    pub const fn plus_ms(self, ms: u64) -> Instant {
        Instant(self.0.saturating_add(ms))
    }

    /// Milliseconds since `earlier`; zero if `earlier` is later (a clock that jumped back).
    #[inline]
    pub const fn since_ms(self, earlier: Instant) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Clock that never goes back and never leaps far, based on a clock that may. If the given time is earlier
/// than the last one, this clock goes on from its last value at the new clock's pace.
#[derive(Clone, Copy, Debug, Default)]
pub struct SteadyClock {
    given: Instant,
    steady: Instant,
}

impl SteadyClock {
    /// Upper bound of one leap ahead: longer than any lifetime, short enough for ticks of 32 bits.
    const LEAP_MAX_MS: u64 = u32::MAX as u64;

    /// Converts the given time to steady time.
    #[inline]
    pub fn at(&mut self, given: Instant) -> Instant {
        let passed_ms = given.since_ms(self.given).min(Self::LEAP_MAX_MS);
        self.given = given;
        self.steady = self.steady.plus_ms(passed_ms);
        self.steady
    }
}

/// Engine time in units of 64 ms, rounded up, so that a lifetime is never shorter than configured. It wraps
/// round after 8.7 years, so two ticks compare only within half of that. No lifetime is longer than 50 days,
/// and engine time makes no longer leaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tick(pub(crate) u32);

impl Tick {
    const SHIFT: u32 = 6;

    /// Returns the tick that has begun at `now`.
    #[inline]
    pub(crate) fn at(now: Instant) -> Tick {
        Tick((now.0 >> Self::SHIFT) as u32)
    }

    /// Returns the first tick by which `lifetime_ms` have passed since `now`.
    #[inline]
    pub(crate) fn after(now: Instant, lifetime_ms: u32) -> Tick {
        let end = now.0.wrapping_add((1 << Self::SHIFT) - 1).wrapping_add(lifetime_ms.into());
        Tick((end >> Self::SHIFT) as u32)
    }

    /// Milliseconds from `now` until this tick; 0 if it has come.
    pub(crate) fn left_ms(self, now: Instant) -> u32 {
        let ticks = self.0.wrapping_sub(Tick::at(now).0) as i32;
        let since_tick = now.0 as u32 & ((1 << Self::SHIFT) - 1);
        u32::try_from(ticks).unwrap_or(0).saturating_mul(1 << Self::SHIFT).saturating_sub(since_tick)
    }

    /// Returns the later of two ticks.
    pub(crate) fn later(self, other: Tick) -> Tick {
        if self.has_come(other) { other } else { self }
    }

    /// Returns whether this tick has come at `now`.
    #[inline]
    pub(crate) fn has_come(self, now: Tick) -> bool {
        now.0.wrapping_sub(self.0) as i32 >= 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_time_continues_after_a_clock_jump_back() {
        let mut steady = SteadyClock::default();
        let given = [5, 10, 10, 3, 4, 0, 100, 99];
        let expected = [5, 10, 10, 10, 11, 11, 111, 111];
        assert_eq!(given.map(|ms| steady.at(Instant(ms)).0), expected);
    }

    #[test]
    fn a_leap_ahead_counts_as_the_longest_lifetime() {
        let mut steady = SteadyClock::default();
        let leap = u64::from(u32::MAX);
        assert_eq!(steady.at(Instant(u64::MAX)).0, leap);
        assert_eq!(steady.at(Instant(0)).0, leap);
        assert_eq!(steady.at(Instant(7)).0, leap + 7);
    }

    #[test]
    fn a_lifetime_is_never_shorter_than_given_also_where_ticks_wrap() {
        for now in [0, 63, 64, (1 << 38) - 1, 1 << 38, u64::MAX - 100_000, u64::MAX] {
            for lifetime_ms in [0u32, 1, 64, 1_000, 4_000_000_000] {
                let end = Tick::after(Instant(now), lifetime_ms);
                let at = |ms: u64| Tick::at(Instant(now.wrapping_add(ms)));
                assert!(lifetime_ms == 0 || !end.has_come(at(u64::from(lifetime_ms) - 1)));
                assert!(end.has_come(at(u64::from(lifetime_ms) + 63)));
            }
        }
    }
}
