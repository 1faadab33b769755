//! Sessions that two members of a pair have: what is told to the other member, and the sessions of that one.

use super::restore::Restoring;
use super::{NO_SUBSCRIBER, PoolAddress, Tables};
use crate::base::plan::Transport;
use crate::base::shards::ShardSet;
use crate::tables::event::Sequence;
use crate::tables::feed::{Feed, SessionChange, SessionRecord, Turn};
use crate::tables::session::{Offload, Ownership, RecordId, Replica, Session};
use crate::tables::standby::{ClosedFlow, OutsideFlow, PeerLink};
use alloc::boxed::Box;
use core::net::Ipv4Addr;

/// Maximum number of ended sessions of a binding among which one is looked for.
const ENDED_MAX: usize = 256;
/// Maximum number of sessions of a binding that are told together.
const RING_MAX: usize = 1 << 16;

impl Tables {
    /// Replaces the feed of the member; returns the previous one.
    pub(crate) fn attach_peer_feed(&mut self, feed: Option<Box<Feed>>) -> Option<Box<Feed>> {
        core::mem::replace(&mut self.standby.feed, feed)
    }

    /// Place of the next record.
    pub(crate) fn peer_sequence(&self) -> Option<Sequence> {
        self.standby.feed.as_ref().map(|feed| feed.sequence())
    }

    /// Returns whether a node of the cluster other than this one translates a public address, or may do so.
    #[cold]
    pub(crate) fn is_elsewhere(&self, address: Ipv4Addr) -> bool {
        let Some(sharding) = &self.sharding else { return false };
        let shard = sharding.of_address(address);
        shard.is_none_or(|shard| self.standby.is_elsewhere(shard as u8, self.now))
    }

    /// Returns the shard of a record's public address: 0 without a cluster. `None` if the address has left
    /// its pool.
    pub(crate) fn shard_of(&self, record: &Session) -> Option<u8> {
        match &self.sharding {
            Some(sharding) => sharding.of_address(record.outside().0).map(|shard| shard as u8),
            None => Some(0),
        }
    }

    /// Returns whether a record belongs to one of some shards.
    pub(crate) fn is_in(&self, shards: ShardSet, record: &Session) -> bool {
        shards == ShardSet::ALL || self.shard_of(record).is_some_and(|shard| shards.contains(shard))
    }

    /// Returns the knowledge about the other member that has a record's shard.
    pub(crate) fn link_of(&self, record: &Session) -> PeerLink {
        self.shard_of(record).map_or(PeerLink::None, |shard| self.standby.link(shard))
    }

    /// Returns the parity of the last walk of that member.
    pub(crate) fn walk_of(&self, record: &Session) -> bool {
        self.shard_of(record).is_some_and(|shard| self.standby.walk(shard))
    }

    /// Notes that the last walk of that member has confirmed a record.
    pub(crate) fn confirm(&mut self, id: RecordId) {
        let walk = self.walk_of(self.get(id));
        self.get_mut(id).set_walk(walk);
    }

    /// Returns whether a session that ends keeps its public port for the other member.
    pub(super) fn is_kept_for_peer(&self, record: &Session) -> bool {
        record.is_replicated() && self.link_of(record) != PeerLink::None
    }

    /// Tells the other member of a session's change by a packet.
    pub(super) fn peer_turned(&mut self, id: RecordId, turn: Turn) {
        let is_new = !self.get(id).is_replicated();
        // The state of an established connection replaces that of its first packet.
        match turn {
            Turn::Established => drop(self.tell(id)),
            Turn::Counted if is_new => drop(self.tell(id)),
            Turn::Closing | Turn::Closed if !is_new => self.tell_closed(id),
            _ => {}
        }
    }

    /// Tells the other member that a TCP connection has ended. The session has its lifetime nevertheless, and
    /// its end is told then. If the record has no room, nobody misses it.
    fn tell_closed(&mut self, id: RecordId) {
        let session = self.get(id);
        if !session.tcp_state().is_closed() || self.link_of(session) != PeerLink::Live {
            return;
        }
        let Tables { records, standby, now, .. } = self;
        if let (Some(feed), Some(session)) = (&mut standby.feed, records.get(id as usize))
            && feed.has_room()
        {
            feed.push_session(id, session, SessionChange::Closing, *now);
        }
    }

    /// Tells the other member of a session. Returns false if the record was lost, or the other member is
    /// away; a walk follows then.
    pub(crate) fn tell(&mut self, id: RecordId) -> bool {
        let (link, walk) = (self.link_of(self.get(id)), self.walk_of(self.get(id)));
        let Tables { records, standby, now, .. } = self;
        // It does not get to know the session before the walk, so the port would wait for nothing.
        if link == PeerLink::Away {
            return false;
        }
        let (Some(feed), Some(session)) = (&mut standby.feed, records.get_mut(id as usize)) else {
            return false;
        };
        if session.is_overloaded() {
            return true;
        }
        let has_room = feed.has_room();
        feed.push_session(id, session, SessionChange::Established, *now);
        if has_room {
            mark(session, walk);
        }
        has_room
    }

    /// Tells a session of the binding that a told session leaves, unless the other member knows one: it would
    /// give the port to another host. Call it before the end is reported.
    #[inline]
    pub(super) fn tell_rest(&mut self, was: &Session) {
        if self.standby.feed.is_some() && was.is_replicated() && !was.is_overloaded() {
            self.tell_one_of(was);
        }
    }

    #[cold]
    fn tell_one_of(&mut self, was: &Session) {
        let (place, transport) = (self.place_of(was), was.transport());
        let Some(first) = self.binding_at(place, transport, was.outside_port) else { return };
        let (mut id, mut untold) = (first, None);
        for _ in 0..RING_MAX {
            let record = self.get(id);
            if record.is_session() && record.is_replicated() {
                return;
            }
            untold = untold.or(record.is_session().then_some(id));
            id = record.next;
            if id == first {
                break;
            }
        }
        if let Some(id) = untold {
            self.tell(id);
        }
    }

    /// Reports the end of a told session.
    pub(super) fn peer_ended(&mut self, id: RecordId, was: &Session) {
        if was.is_session()
            && was.is_replicated()
            && let Some(feed) = &mut self.standby.feed
        {
            feed.push_session(id, was, SessionChange::Ended, self.now);
        }
    }

    /// Returns the record of a session for a walk to the other member, which then may know it.
    pub(crate) fn walk_record(&mut self, id: RecordId) -> Option<SessionRecord> {
        let session = *self.get(id);
        if session.is_reservation() {
            return None;
        }
        if session.is_quarantined() {
            let goes_on = self.find_session(
                self.session_hash(&session.inside(), session.remote()),
                session.inside(),
                session.remote(),
            );
            let is_same = goes_on.is_some_and(|id| self.get(id).outside() == session.outside());
            let change = if is_same { SessionChange::Closing } else { SessionChange::Ended };
            let record = SessionRecord::of(id, &session, change, self.now);
            return session.is_replicated().then_some(record);
        }
        if !session.is_session() || session.is_overloaded() {
            return None;
        }
        let walk = self.walk_of(&session);
        mark(self.get_mut(id), walk);
        let change = if session.is_replicated() { SessionChange::Established } else { SessionChange::Opened };
        Some(SessionRecord::of(id, &session, change, self.now))
    }

    /// Tells all sessions of a binding that the other member does not know. Returns whether the binding has
    /// sessions.
    pub(crate) fn tell_binding(&mut self, place: PoolAddress, transport: Transport, port: u16) -> bool {
        let Some(first) = self.binding_at(place, transport, port) else { return false };
        let (mut id, mut has_session) = (first, false);
        for _ in 0..RING_MAX {
            let record = *self.get(id);
            has_session |= record.is_session();
            if record.is_session() && !record.is_replicated() {
                self.tell(id);
            }
            id = record.next;
            if id == first {
                break;
            }
        }
        has_session
    }

    /// Returns the primary record of the binding that has a public port.
    pub(crate) fn primary_of(&self, transport: Transport, outside: (Ipv4Addr, u16)) -> Option<RecordId> {
        self.binding_at(self.locate(outside.0)?, transport, outside.1)
    }

    /// Returns the only session that may be a closed TCP connection.
    pub(crate) fn find_closed(&self, flow: &ClosedFlow) -> Option<RecordId> {
        let first = self.primary_of(Transport::Tcp, flow.outside)?;
        let (mut id, mut found) = (first, None);
        for _ in 0..ENDED_MAX {
            let record = self.get(id);
            let (address, port) = record.remote();
            if record.is_session() && !record.is_overloaded() && (address.octets()[3], port) == flow.remote {
                if found.is_some() {
                    return None;
                }
                found = Some(id);
            }
            id = record.next;
            if id == first {
                return found;
            }
        }
        None
    }

    /// Returns the session of a flow as seen from outside.
    pub(crate) fn find_outside(&self, flow: &OutsideFlow) -> Option<RecordId> {
        let primary = self.primary_of(flow.transport, flow.outside)?;
        if self.get(primary).is_overloaded() {
            return None;
        }
        self.session_of_binding(primary, flow.remote).filter(|&id| self.get(id).is_session())
    }

    /// Returns the record of the same flow that has ended here and waits for the other member.
    pub(crate) fn ended_flow(&self, r: &Restoring) -> Option<RecordId> {
        let place = self.locate(r.record.outside().0)?;
        self.quarantined_at(place, r.record.transport(), r.record.outside_port, |record| is_end(record, r))
    }

    /// Returns whether a record is one of the same flow that has ended here and waits for the other member.
    pub(crate) fn has_ended(&self, r: &Restoring, id: RecordId) -> bool {
        let record = self.get(id);
        record.is_quarantined() && is_end(record, r)
    }

    /// Returns the record that keeps the port of a session of the other member.
    pub(crate) fn reserved(&self, place: PoolAddress, flow: &OutsideFlow) -> Option<RecordId> {
        let is_it = |record: &Session| record.is_reservation() && record.remote() == flow.remote;
        self.quarantined_at(place, flow.transport, flow.outside.1, is_it)
    }

    /// Ends the reservation of a port for a session of the other member.
    pub(crate) fn release_reserved(&mut self, place: PoolAddress, flow: &OutsideFlow) {
        if let Some(id) = self.reserved(place, flow) {
            self.release_quarantined(id);
        }
    }

    /// Returns a quarantined record of a port.
    fn quarantined_at(
        &self,
        place: PoolAddress,
        transport: Transport,
        port: u16,
        is_it: impl Fn(&Session) -> bool,
    ) -> Option<RecordId> {
        let held = self.held_by(place, transport, port);
        let primary = self.binding_at(place, transport, port);
        let mut id = held.or_else(|| primary.map(|primary| self.get(primary).next))?;
        let first = id;
        for _ in 0..ENDED_MAX {
            let record = self.get(id);
            if !record.is_quarantined() {
                return None;
            }
            if is_it(record) {
                return Some(id);
            }
            id = record.next;
            if id == first {
                return None;
            }
        }
        None
    }

    /// Ends a session that the other member has ended, or never had: nobody waits for its port.
    pub(crate) fn close_untold(&mut self, id: RecordId) {
        self.get_mut(id).set_replica(Replica::None);
        self.close(id);
    }

    /// Ends the wait of a record for the other member. Its port is free if no fast path has its flow.
    pub(crate) fn release_for_peer(&mut self, id: RecordId) {
        self.get_mut(id).set_replica(Replica::None);
        if !self.get(id).is_marked() {
            self.release_quarantined(id);
        }
    }

    /// Ends the wait of a quarantined record for a fast path. Its port is free if the other member has
    /// acknowledged the end.
    pub(crate) fn release_for_fast_path(&mut self, id: RecordId) {
        let record = self.get_mut(id);
        record.set_ownership(Ownership { offload: Offload::Engine, ..record.ownership() });
        let record = *record;
        if !self.is_kept_for_peer(&record) {
            self.release_quarantined(id);
        }
    }

    /// Returns whether a quarantined record waits for nobody any more: only for a member that is gone, or for
    /// one that is away while a change waits.
    pub(crate) fn is_forgotten(&self, record: &Session) -> bool {
        // A change of the plan does not wait for the other member's sessions.
        if record.is_reservation() && self.is_waiting() && record.state != self.quarantine_phase() {
            return true;
        }
        if !(record.is_quarantined() && record.is_replicated()) || record.is_marked() {
            return false;
        }
        match self.link_of(record) {
            PeerLink::None => true,
            PeerLink::Away => self.is_waiting(),
            PeerLink::Live => false,
        }
    }

    /// Frees an unused block that another subscriber had here, for a session of the other member.
    pub(super) fn make_way(&mut self, r: &Restoring, place: PoolAddress) {
        let (transport, port) = (r.record.transport(), r.record.outside_port);
        let Some(pool) = self.pools.get_mut(place.pool) else { return };
        let owner = pool.idle_owner(transport, place.address_ix, port).unwrap_or(NO_SUBSCRIBER);
        let is_own = self.subscribers.get(owner).is_some_and(|s| s.key() == r.subscriber);
        if is_own {
            return;
        }
        let holdings = self.subscribers.get_mut(owner).map(|s| &mut s.holdings);
        let ended = pool.end_idle(self.now, transport, place.address_ix, port, holdings);
        if let Some(block) = ended
            && let Some(key) = self.subscribers.get(owner).map(|s| s.key())
        {
            self.notify_block(crate::tables::event::EventKind::BlockReleased, r.record.instance, key, &block);
            self.subscribers.release_if_idle(owner);
        }
    }
}

/// Returns whether a quarantined record is an end of the same flow that the other member was told of.
fn is_end(record: &Session, r: &Restoring) -> bool {
    record.is_replicated() && !record.is_reservation() && record.identity() == r.record.identity()
}

/// Notes that the other member may know a session.
fn mark(session: &mut Session, walk: bool) {
    if !session.is_replicated() {
        session.set_replica(Replica::Told);
        session.set_walk(walk);
    }
}
