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
