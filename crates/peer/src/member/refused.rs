//! Sessions of the other member that contradict own ones, until they fit.
//!
//! After a split network, an inside host can have a public port at each member. The engine reserves the port,
//! and the session is tried again as long as the other member has it. A session that an engine cannot even
//! reserve keeps this member from owning anything: it would assign the port.

use super::round::outside;
use gatun_nat::ShardSet;
use gatun_nat::standby::{OutsideFlow, PeerRefusal, PeerSession};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Maximum number of remembered sessions. More come with the next walk.
const SESSIONS_MAX: usize = 2_048;

/// Refused sessions, with the group that the other member had handled when it told them.
#[derive(Debug, Default)]
pub(super) struct RefusedSessions {
    sessions: HashMap<OutsideFlow, Refused>,
    next_ms: u64,
    /// Number of sessions of a shard whose ports are not reserved.
    unreserved: HashMap<u8, usize>,
    /// Shards whose sessions were not tried since the engines have lost the reservations.
    untried: ShardSet,
    /// Those of them that are being tried.
    trying: ShardSet,
    /// Shards that have had too many.
    overfull: ShardSet,
    /// Shards of which the other member sends its whole state, and some were not reserved before.
    open: ShardSet,
}

#[derive(Clone, Copy, Debug)]
struct Refused {
    session: PeerSession,
    seen: u64,
    shard: u8,
    is_reserved: bool,
}

impl RefusedSessions {
    pub(super) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Returns whether all ports of these sessions of some shards are reserved.
    pub(super) fn are_reserved(&self, shards: ShardSet) -> bool {
        self.overfull.union(self.open).intersection(shards).is_empty()
            && !self.unreserved.keys().any(|shard| shards.contains(*shard))
    }

    /// The other member begins to send its whole state of some shards.
    pub(super) fn walk_begins(&mut self, shards: ShardSet) {
        let unreserved = shards.iter().filter(|shard| !self.are_reserved(ShardSet::from_iter([*shard])));
        let open = self.open.union(unreserved.collect());
        // What the engines have lost is not reserved before it is sent again.
        let open = open.union(self.untried.union(self.trying).intersection(shards));
        self.forget(shards);
        self.open = open;
    }

    /// It has sent its whole state of some shards.
    pub(super) fn walk_ends(&mut self, shards: ShardSet) {
        self.open = self.open.minus(shards);
    }

    /// Forgets the sessions of some shards.
    pub(super) fn forget(&mut self, shards: ShardSet) {
        self.sessions.retain(|_, refused| !shards.contains(refused.shard));
        self.unreserved.retain(|shard, _| !shards.contains(*shard));
        (self.untried, self.trying) = (self.untried.minus(shards), self.trying.minus(shards));
        (self.overfull, self.open) = (self.overfull.minus(shards), self.open.minus(shards));
    }

    /// The other member is gone.
    pub(super) fn clear(&mut self) {
        *self = RefusedSessions::default();
    }

    /// Returns false if it was refused before.
    pub(super) fn add(&mut self, shard: u8, (session, seen): (PeerSession, u64), why: PeerRefusal) -> bool {
        let flow = outside(&session.flow);
        let is_new = !self.remove(&flow);
        if self.sessions.len() >= SESSIONS_MAX {
            self.overfull.insert(shard);
            return is_new;
        }
        let is_reserved = matches!(why, PeerRefusal::Conflict | PeerRefusal::NotInPool);
        if !is_reserved {
            *self.unreserved.entry(shard).or_default() += 1;
        }
        self.sessions.insert(flow, Refused { session, seen, shard, is_reserved });
        is_new
    }

    /// The session was accepted, or has ended. Returns whether it was refused before.
    pub(super) fn remove(&mut self, flow: &OutsideFlow) -> bool {
        // There are none as a rule, and then no hash is needed.
        if self.sessions.is_empty() {
            return false;
        }
        let Some(refused) = self.sessions.remove(flow) else { return false };
        if !refused.is_reserved
            && let Entry::Occupied(mut number) = self.unreserved.entry(refused.shard)
        {
            *number.get_mut() -= 1;
            if *number.get() == 0 {
                number.remove();
            }
        }
        true
    }

    /// Has all tried at once, because the engines have lost the reservations.
    pub(super) fn hurry(&mut self) {
        self.next_ms = 0;
        (self.untried, self.trying) = (self.shards(), ShardSet::NONE);
    }

    fn shards(&self) -> ShardSet {
        self.sessions.values().map(|refused| refused.shard).collect()
    }

    /// Returns whether all sessions of a shard were tried since.
    pub(super) fn has_tried(&self, shard: u8) -> bool {
        !self.untried.union(self.trying).contains(shard)
    }

    /// The engines have tried the sessions that were due.
    pub(super) fn tried(&mut self) {
        self.trying = ShardSet::NONE;
    }

    /// Returns the sessions of some shards that are to be tried now. The others stay untried.
    pub(super) fn due(
        &mut self,
        (now_ms, again_ms): (u64, u64),
        is_one: &dyn Fn(u8) -> bool,
    ) -> Vec<(PeerSession, u64)> {
        let hurries = self.untried.iter().any(is_one);
        if self.sessions.is_empty() || now_ms < self.next_ms && !hurries {
            return Vec::new();
        }
        self.next_ms = now_ms + again_ms;
        self.trying = self.untried.iter().filter(|shard| is_one(*shard)).collect();
        self.untried = self.untried.minus(self.trying);
        let some = self.sessions.values().filter(|refused| is_one(refused.shard));
        some.map(|refused| (refused.session, refused.seen)).collect()
    }
}
