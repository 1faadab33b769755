//! Long requests of a member of a pair to a worker's engine (decision 0102). Its short ones are commands:
//! [`Handle::standby`](crate::Handle::standby).
//!
//! A walk has parts: each is a single slice of work, with its place in the feed.

use crate::jobs::{Job, SLICES};
use gatun_nat::feed::SessionRecord;
use gatun_nat::standby::StandbySweep;
use gatun_nat::{FeedCursor, Instant, Nat, Sequence, ShardSet};

/// Largest number of parts of a job.
const PARTS_MAX: usize = 256;
/// Budget of a part, and of all parts in a ms, if more packets wait than the worker takes: half a million
/// sessions a second cost a few percent of its time, however long a burst takes.
const BEHIND: (usize, usize) = (256, 2_048);

/// Sessions that were found at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkPart {
    /// Number of sessions of this part and of those before it.
    pub end: usize,
    /// Place of the next record of the stream at that moment.
    pub until: Option<Sequence>,
}

/// Reads some sessions for a walk to the other member ([`Nat::walk_standby`]).
pub struct WalkStandby {
    /// Shards that are read.
    pub shards: ShardSet,
    /// Start position. Afterwards, the position after the last session.
    pub at: FeedCursor,
    /// Result: at most its capacity.
    pub found: Vec<SessionRecord>,
    /// Parts of the result.
    pub parts: Vec<WalkPart>,
    /// Present ms, and the budget that is left in it.
    left: (Instant, usize),
}

impl WalkStandby {
    /// Creates a job that reads up to `len` sessions of some shards from a position on.
    pub fn new(shards: ShardSet, at: FeedCursor, len: usize) -> WalkStandby {
        let (found, parts) = (Vec::with_capacity(len), Vec::with_capacity(PARTS_MAX));
        WalkStandby { shards, at, found, parts, left: (Instant(0), 0) }
    }
}

impl Job for WalkStandby {
    fn step(&mut self, nat: &mut Nat, now: Instant, budget: usize) -> bool {
        let mut some = budget;
        if budget <= SLICES.behind {
            if self.left.0 != now {
                self.left = (now, BEHIND.1);
            }
            some = BEHIND.0.min(self.left.1);
            if some == 0 {
                return false;
            }
            self.left.1 -= some;
        }
        let until = nat.walk_standby(now, self.shards, &mut self.at, some, &mut self.found);
        self.parts.push(WalkPart { end: self.found.len(), until });
        let is_full = self.found.len() == self.found.capacity() || self.parts.len() == PARTS_MAX;
        self.at.is_done() || is_full
    }
}

/// Does a part of a pass over all sessions ([`Nat::pass_standby`]).
///
/// A part is one slice, except that of [`StandbySweep::TellAll`]: meanwhile nobody assigns the ports that the
/// sessions leave to the other member, and each answer to another thread takes the time of some bursts. That
/// pass changes nothing that a relation to a third member could contradict.
pub struct SweepStandby {
    /// Pass.
    pub pass: StandbySweep,
    /// Shards of its sessions.
    pub shards: ShardSet,
    /// Start position. Afterwards, the position after the last examined session.
    pub at: FeedCursor,
    slices: usize,
}

impl SweepStandby {
    /// Creates a job that goes on with a pass over some shards from a position on.
    pub fn new(pass: StandbySweep, shards: ShardSet, at: FeedCursor) -> SweepStandby {
        SweepStandby { pass, shards, at, slices: 0 }
    }
}

impl Job for SweepStandby {
    fn step(&mut self, nat: &mut Nat, now: Instant, budget: usize) -> bool {
        let before = self.at;
        nat.pass_standby(now, (self.pass, self.shards), &mut self.at, budget);
        self.slices += 1;
        let slices_max = if self.pass == StandbySweep::TellAll { PARTS_MAX } else { 1 };
        // A pass stops where the feed has no room: its reader waits for the answer.
        self.at.is_done() || self.at == before || self.slices >= slices_max
    }
}
