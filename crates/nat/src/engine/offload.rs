//! Interface of a fast path to the engine: state feed, commands, and the current state for a consumer.

use super::Nat;
use crate::base::counters::Traffic;
use crate::base::time::Instant;
use crate::lifecycle::offload::{self, FeedCursor};
use crate::path::state::EngineState;
use crate::tables::event::Sequence;
use crate::tables::feed::{Command, Feed, FeedPolicy, SessionRecord};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// State feed and fast path.
impl Nat {
    /// Attaches a feed for a consumer, or detaches it. Returns the previous feed; drop it in a thread that
    /// handles no packets. Marks stay: each marked session waits for [`Action::Released`];
    /// [`release_all`](Self::release_all) releases all.
    ///
    /// The stream begins with the next change. [`read_feed`](Self::read_feed) returns what exists already.
    ///
    /// [`Action::Released`]: crate::feed::Action::Released
    pub fn attach_feed(&mut self, feed: Option<Box<Feed>>) -> Option<Box<Feed>> {
        self.core.state.tables.attach_feed(feed)
    }

    /// Handles commands of a consumer in their order, and writes their [`outcome`](Command::outcome)s. A
    /// command costs about as much as a packet, so pass only some between two bursts.
    pub fn offload(&mut self, now: Instant, commands: &mut [Command]) {
        let now = self.at(now);
        offload::commands(&mut self.core, now, commands);
    }

    /// Counts packets that a fast path has translated for a stateless instance, by its number among those.
    pub fn credit_stateless(&mut self, number: usize, traffic: Traffic) {
        let EngineState { counters, tally, .. } = &mut self.core.state;
        tally.credit_stateless(number, traffic, counters);
    }

    /// Counts packets that a fast path has received and dropped, by the number of the instance: stateful ones
    /// first, then stateless ones.
    pub fn credit_drops(&mut self, number: usize, packets: u64) {
        let EngineState { counters, tally, .. } = &mut self.core.state;
        tally.credit_drops(number, packets, counters);
    }

    /// Adds records of the current sessions to `found`, as the stream would have contained them, up to its
    /// capacity. Examines about `budget` records. Marked sessions are always included: those that are no
    /// longer offered as [`SessionChange::Closing`], and ended ones whose port waits for a release as
    /// [`SessionChange::Ended`].
    ///
    /// Returns the place of the next record of the stream, if a feed is attached. A record of the stream is
    /// newer than one found here if its number is not smaller.
    ///
    /// [`SessionChange::Closing`]: crate::feed::SessionChange::Closing
    /// [`SessionChange::Ended`]: crate::feed::SessionChange::Ended
    pub fn read_feed(
        &self,
        at: &mut FeedCursor,
        policy: &FeedPolicy,
        budget: usize,
        found: &mut Vec<SessionRecord>,
    ) -> Option<Sequence> {
        offload::read(&self.core.state.tables, at, policy, budget, found)
    }

    /// Releases marked sessions and the ports of ended ones, as [`Action::Released`] does for one, and
    /// examines about `budget` records. Returns the number of those released. Call it only if no fast path
    /// has an entry.
    ///
    /// [`Action::Released`]: crate::feed::Action::Released
    pub fn release_all(&mut self, now: Instant, at: &mut FeedCursor, budget: usize) -> u64 {
        self.at(now);
        offload::release_all(&mut self.core.state.tables, at, budget)
    }

    /// Returns the number of records that the feed lost because its ring was full.
    pub fn feed_lost(&self) -> u64 {
        self.core.state.tables.feed_lost()
    }
}
