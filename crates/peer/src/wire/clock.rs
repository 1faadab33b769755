//! Difference between the wall clocks of both boxes. It is only shown: no decision depends on a wall clock.
//!
//! ```text
//!   TimeAsked (own monotonic time) -->
//!                                  <-- TimeTold (the same, and the wall clock there)
//! ```
//! The answer was made between question and arrival. With the middle of this time, the error is at most
//! half of it.

use super::frame::Frame;

/// Interval of questions, ms.
const ASK_EVERY_MS: u64 = 5_000;
/// Longest time until an answer that is used, ms: the error is half of it.
const ANSWER_MS: u64 = 1_000;

/// Knowledge about both wall clocks.
#[derive(Default)]
pub(super) struct Clocks {
    /// Own wall clock less the monotonic one, ms. `None` if the caller has told none.
    offset_ms: Option<i64>,
    ask_at_ms: u64,
    /// Time of a question without an answer.
    asked_ms: Option<u64>,
    /// Time of a question of the other member, by its clock.
    question_ms: Option<u64>,
    difference_ms: Option<i64>,
}

impl Clocks {
    /// Wall clock of this box now, ms since 1970.
    pub(super) fn set_wall(&mut self, now_ms: u64, wall_ms: u64) {
        self.offset_ms = Some(signed(wall_ms).saturating_sub(signed(now_ms)));
    }

    /// Ms by which the other clock is ahead; negative if it is behind.
    pub(super) fn difference_ms(&self) -> Option<i64> {
        self.difference_ms
    }

    /// There is another connection, or none.
    pub(super) fn forget(&mut self) {
        *self = Clocks { offset_ms: self.offset_ms, ..Clocks::default() };
    }

    /// The other member asks.
    pub(super) fn asked(&mut self, question_ms: u64) {
        self.question_ms = Some(question_ms);
    }

    /// The other member answers.
    pub(super) fn told(&mut self, now_ms: u64, asked_ms: u64, wall_ms: u64) {
        if self.asked_ms != Some(asked_ms) {
            return;
        }
        self.asked_ms = None;
        let trip_ms = now_ms.saturating_sub(asked_ms);
        if let Some(offset_ms) = self.offset_ms.filter(|_| trip_ms <= ANSWER_MS) {
            let there = signed(wall_ms).saturating_add(signed(trip_ms / 2));
            let here = signed(now_ms).saturating_add(offset_ms);
            self.difference_ms = Some(there.saturating_sub(here));
        }
    }

    /// Appends the frames that are due.
    pub(super) fn put(&mut self, now_ms: u64, out: &mut Vec<u8>) {
        let Some(offset_ms) = self.offset_ms else { return };
        if let Some(asked_ms) = self.question_ms.take() {
            let wall_ms = signed(now_ms).saturating_add(offset_ms).unsigned_abs();
            Frame::TimeTold { asked_ms, wall_ms }.put(out);
        }
        if now_ms >= self.ask_at_ms {
            (self.ask_at_ms, self.asked_ms) = (now_ms + ASK_EVERY_MS, Some(now_ms));
            Frame::TimeAsked(now_ms).put(out);
        }
    }
}

fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}
