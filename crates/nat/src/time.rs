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

/// Time that never goes back, made from one that may: where the given time is earlier than the last one,
/// this one goes on from where it was, at the pace of the new.
#[derive(Clone, Copy, Debug, Default)]
pub struct Steady {
    last: Instant,
    /// What the given time has lost by jumping back.
    ahead_ms: u64,
}

impl Steady {
    /// The steady time at the given one.
    #[inline]
    pub fn at(&mut self, given: Instant) -> Instant {
        let t = given.plus_ms(self.ahead_ms);
        let jumped_ms = self.last.since_ms(t);
        self.ahead_ms = self.ahead_ms.saturating_add(jumped_ms);
        self.last = t.plus_ms(jumped_ms);
        self.last
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
        assert_eq!(steady.at(Instant(u64::MAX)).0, u64::MAX);
        assert_eq!(steady.at(Instant(0)).0, u64::MAX);
    }
}
