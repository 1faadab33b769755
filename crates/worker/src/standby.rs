//! Long requests of a member of a pair to a worker's engine (decision 0102). Its short ones are commands:
//! [`Handle::standby`](crate::Handle::standby).

use crate::jobs::Job;
use gatun_nat::feed::SessionRecord;
use gatun_nat::{FeedCursor, Instant, Nat, Sequence};

/// Reads all sessions for a walk to the other member, until the list is full or all are read
/// ([`Nat::walk_standby`]).
pub struct WalkStandby {
    /// Start position. Afterwards, the position after the last session.
    pub at: FeedCursor,
    /// Result: at most its capacity.
    pub found: Vec<SessionRecord>,
    /// Place of the next record of the stream when the last records were found.
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
        self.at.is_done() || self.found.len() == self.found.capacity()
    }
}

/// Tells the other member of all sessions that it does not know ([`Nat::tell_all`]).
#[derive(Default)]
pub struct TellAll {
    /// Position.
    pub at: FeedCursor,
}

impl Job for TellAll {
    fn step(&mut self, nat: &mut Nat, now: Instant, budget: usize) -> bool {
        nat.tell_all(now, &mut self.at, budget);
        self.at.is_done()
    }
}

/// Ends the sessions that the last walk of the other member has not confirmed ([`Nat::end_unwalked`]).
#[derive(Default)]
pub struct EndUnwalked {
    /// Position.
    pub at: FeedCursor,
    /// Number of sessions.
    pub ended: u64,
}

impl Job for EndUnwalked {
    fn step(&mut self, nat: &mut Nat, now: Instant, budget: usize) -> bool {
        self.ended += nat.end_unwalked(now, &mut self.at, budget);
        self.at.is_done()
    }
}
