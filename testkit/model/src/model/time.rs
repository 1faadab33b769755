//! Engine time: it never goes backwards, and no step is longer than [`LEAP_MAX_MS`].

/// Choice: one leap ahead counts as at most 50 days. No lifetime is longer, so all earlier state is dead.
const LEAP_MAX_MS: u64 = u32::MAX as u64;

/// Choice: sessions end on the first multiple of 64 ms at or after the end of their lifetime. RFC 6146 4
/// gives minima, so slightly later is right, and earlier would be wrong.
const TICK_MS: u64 = 64;

/// Engine time from a clock that may jump.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    given: u64,
    now: u64,
}

impl Clock {
    /// Engine time when the clock says `given`.
    pub(super) fn at(&mut self, given: u64) -> u64 {
        let passed = given.saturating_sub(self.given);
        self.given = given;
        self.now = self.now.saturating_add(passed.min(LEAP_MAX_MS));
        self.now
    }
}

/// End of a session with this lifetime from `now`.
pub(super) fn session_end(now: u64, lifetime_ms: u32) -> u64 {
    (now + u64::from(lifetime_ms)).div_ceil(TICK_MS) * TICK_MS
}
