//! Time, as the engine is told it.

/// Milliseconds since a point that whoever runs the engine chose. Given to the engine, never asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// `ms` milliseconds later.
    #[inline]
    pub const fn plus_ms(self, ms: u64) -> Instant {
        Instant(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this; zero where `earlier` is later (a clock that jumped back).
    #[inline]
    pub const fn since_ms(self, earlier: Instant) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Time that never goes back and never leaps far, made from one that may: where the given time is earlier
/// than the last one, this one goes on from where it was, at the pace of the new.
#[derive(Clone, Copy, Debug, Default)]
pub struct Steady {
    given: Instant,
    steady: Instant,
}

impl Steady {
    /// The most that one leap ahead counts: longer than any lifetime, short enough for
    /// ticks of 32 bits.
    const LEAP_MAX_MS: u64 = u32::MAX as u64;

    /// The steady time at the given one.
    #[inline]
    pub fn at(&mut self, given: Instant) -> Instant {
        let passed_ms = given.since_ms(self.given).min(Self::LEAP_MAX_MS);
        self.given = given;
        self.steady = self.steady.plus_ms(passed_ms);
        self.steady
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_time_goes_on_where_the_clock_jumped_back() {
        let mut steady = Steady::default();
        let given = [5, 10, 10, 3, 4, 0, 100, 99];
        let expected = [5, 10, 10, 10, 11, 11, 111, 111];
        assert_eq!(given.map(|ms| steady.at(Instant(ms)).0), expected);
    }

    #[test]
    fn a_leap_ahead_counts_as_the_longest_lifetime() {
        let mut steady = Steady::default();
        let leap = u64::from(u32::MAX);
        assert_eq!(steady.at(Instant(u64::MAX)).0, leap);
        assert_eq!(steady.at(Instant(0)).0, leap);
        assert_eq!(steady.at(Instant(7)).0, leap + 7);
    }
}
