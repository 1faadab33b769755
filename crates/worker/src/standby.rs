//! Long requests of a member of a pair to a worker's engine (decision 0102). Its short ones are commands:
//! [`Handle::standby`](crate::Handle::standby).
//!
//! Each request is a single slice of work, so nothing happens in the engine between its parts, and the member
//! reads the feed before it asks for the next slice.

use crate::jobs::Job;
use gatun_nat::feed::SessionRecord;
use gatun_nat::standby::StandbySweep;
use gatun_nat::{FeedCursor, Instant, Nat, Sequence};

/// Reads some sessions for a walk to the other member ([`Nat::walk_standby`]).
pub struct WalkStandby {
    /// Start position. Afterwards, the position after the last session.
    pub at: FeedCursor,
    /// Result: at most its capacity.
    pub found: Vec<SessionRecord>,
    /// Place of the next record of the stream when the sessions were found.
    pub until: Option<Sequence>,
}

impl WalkStandby {
    /// Creates a job that reads up to `len` sessions from a position on.
    pub fn new(at: FeedCursor, len: usize) -> WalkStandby {
        WalkStandby { at, found: Vec::with_capacity(len), until: None }
    }
}

impl Job for WalkStandby {
    fn step(&mut self, nat: &mut Nat, now: Instant, budget: usize) -> bool {
        self.until = nat.walk_standby(now, &mut self.at, budget, &mut self.found);
        true
    }
}

/// Does a part of a pass over all sessions ([`Nat::pass_standby`]).
pub struct SweepStandby {
    /// Pass.
    pub pass: StandbySweep,
    /// Start position. Afterwards, the position after the last examined session.
    pub at: FeedCursor,
}

impl Job for SweepStandby {
    fn step(&mut self, nat: &mut Nat, now: Instant, budget: usize) -> bool {
        nat.pass_standby(now, self.pass, &mut self.at, budget);
        true
    }
}
