//! Interface of a member of a pair to the engine.

use super::Nat;
use crate::base::shards::ShardSet;
use crate::base::time::Instant;
use crate::lifecycle::offload::FeedCursor;
use crate::lifecycle::standby;
use crate::tables::event::Sequence;
use crate::tables::feed::{Feed, SessionRecord};
use crate::tables::standby::{PeerCommand, PeerLink, StandbySweep};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Pair of members.
impl Nat {
    /// Makes the engine one of a pair: it assigns no port before it has a right, and ended sessions that the
    /// other member may know keep their ports. Call it before the first packet.
    pub fn begin_standby(&mut self) {
        let tables = &mut self.core.state.tables;
        tables.standby.set_link(ShardSet::ALL, PeerLink::Away);
        tables.standby.is_restricted = true;
        tables.pools.iter_mut().for_each(|pool| pool.set_restricted(true));
    }

    /// Attaches the feed of a member, beside that of a fast path. Returns the previous one; drop it in a
    /// thread that handles no packets. The stream begins with the next change;
    /// [`walk_standby`](Self::walk_standby) returns what exists already.
    pub fn attach_peer_feed(&mut self, feed: Option<Box<Feed>>) -> Option<Box<Feed>> {
        self.core.state.tables.attach_peer_feed(feed)
    }

    /// Executes requests of a member in their order, and writes their results. A request costs about as much
    /// as a new session, so pass only some between two bursts.
    pub fn standby(&mut self, now: Instant, commands: &mut [PeerCommand]) {
        let now = self.at(now);
        standby::commands(&mut self.core, now, commands);
    }

    /// Returns the part of a budget of requests whose events are not lost: 0 while the reader of events has
    /// fallen behind, for at most a second without progress.
    pub fn standby_budget(&mut self, now: Instant, requests: usize) -> usize {
        let now = self.at(now);
        self.core.state.tables.events.budget(now, requests)
    }

    /// Adds all sessions of some shards to `found`, up to its capacity, and the ended ones that the other
    /// member has not acknowledged. From then on that member counts as knowing them. Examines about `budget`
    /// records.
    /// A session that it was not told of before is [`Opened`](crate::feed::SessionChange::Opened).
    /// An ended session whose flow has a session again is [`Closing`](crate::feed::SessionChange::Closing):
    /// the other member must not take it for the end of the flow. Returns the place of the next record of the
    /// stream.
    pub fn walk_standby(
        &mut self,
        now: Instant,
        shards: ShardSet,
        at: &mut FeedCursor,
        budget: usize,
        found: &mut Vec<SessionRecord>,
    ) -> Option<Sequence> {
        self.core.state.tables.now = self.at(now);
        standby::read(&mut self.core.state.tables, shards, at, budget, found)
    }

    /// Does a part of a pass over all sessions of some shards. Call it until the cursor is at its end.
    pub fn pass_standby(
        &mut self,
        now: Instant,
        (pass, shards): (StandbySweep, ShardSet),
        at: &mut FeedCursor,
        budget: usize,
    ) {
        match pass {
            StandbySweep::TellAll => self.tell_all(now, shards, at, budget),
            StandbySweep::ForgetWalk => self.forget_walk(shards, at, budget),
            StandbySweep::EndUnwalked => drop(self.end_unwalked(now, shards, at, budget)),
            StandbySweep::ForgetPeer => self.forget_peer(now, shards, at, budget),
            StandbySweep::Drop => self.drop_shards(now, shards, at, budget),
            StandbySweep::Revoke => self.revoke(now, shards, at, budget),
        }
    }

    /// Tells the other member of all sessions that it does not know yet, before this member gives the right
    /// to their ports away. It stops where the feed has no room; call it again.
    pub fn tell_all(&mut self, now: Instant, shards: ShardSet, at: &mut FeedCursor, budget: usize) {
        self.core.state.tables.now = self.at(now);
        standby::tell_all(&mut self.core.state.tables, shards, at, budget);
    }

    /// Forgets the marks of a walk that the other member has broken off. Call it until the cursor is at its
    /// end, before the next [`WalkBegins`](crate::standby::PeerAction::WalkBegins).
    pub fn forget_walk(&mut self, shards: ShardSet, at: &mut FeedCursor, budget: usize) {
        standby::confirm_all(&mut self.core.state.tables, shards, at, budget);
    }

    /// Ends the sessions that the last walk of the other member has not confirmed. Those of which this member
    /// has packets are told again. Returns the number of sessions.
    pub fn end_unwalked(
        &mut self,
        now: Instant,
        shards: ShardSet,
        at: &mut FeedCursor,
        budget: usize,
    ) -> u64 {
        let now = self.at(now);
        standby::end_unwalked(&mut self.core, now, shards, at, budget)
    }

    /// Forgets what the other member knows of some shards, because it does not have them any more: told
    /// sessions are untold ones, standby ones are this member's, and no port waits for it. Set the link of
    /// the shards first ([`PeerLink::None`]).
    pub fn forget_peer(&mut self, now: Instant, shards: ShardSet, at: &mut FeedCursor, budget: usize) {
        let now = self.at(now);
        standby::forget_peer(&mut self.core, now, shards, at, budget);
    }

    /// Ends all sessions of some shards without a word to the other member, because this one does not have
    /// the shards any more. Take the rights first. It stops where a log or a fast path lags behind; call it
    /// until the cursor is at its end.
    pub fn drop_shards(&mut self, now: Instant, shards: ShardSet, at: &mut FeedCursor, budget: usize) {
        self.at(now);
        standby::drop_shards(&mut self.core.state.tables, shards, at, budget);
    }

    /// Ends the sessions of some shards that the other member does not know, and whose ports this one has no
    /// right to any more: the next owner may assign them. Nobody is told, and no port waits. It stops as
    /// [`drop_shards`](Self::drop_shards).
    pub fn revoke(&mut self, now: Instant, shards: ShardSet, at: &mut FeedCursor, budget: usize) {
        self.at(now);
        standby::revoke(&mut self.core.state.tables, shards, at, budget);
    }
}
