//! End of sessions and bindings: their removal from every table, and the return of the port to its pool.

use super::Tables;
use crate::tables::event::EventKind;
use crate::tables::session::{NONE, RecordId, Session, key};

impl Tables {
    /// Ends a session. The binding ends with its last session (RFC 6146 3.5.1), and the port is returned with
    /// the binding.
    pub(crate) fn close(&mut self, id: RecordId) {
        if self.get(id).is_session() {
            self.unlink(id, true);
        }
    }

    /// Removes a record from all tables. With `counted`, its port counts for its subscriber.
    pub(crate) fn unlink(&mut self, id: RecordId, counted: bool) {
        let record = *self.get(id);
        let inside = record.inside();
        if record.is_session() {
            self.sessions.remove(self.session_hash(&inside, record.remote()), id);
            match record.is_overloaded() {
                true => self.forget_flow(id, &record),
                false => self.forget_peer(id, &record),
            }
        }
        let is_last = self.is_last(id, &record);
        let is_known = record.is_marked() || self.is_kept_for_peer(&record);
        let keeps_port = record.is_session() && is_known && !record.is_overloaded();
        if is_last && (keeps_port || record.next != id) {
            self.leave_held(id, &record);
        } else if is_last {
            self.end_binding(id, &record, counted);
        }
        if !(is_last && keeps_port) {
            self.leave_ring(id, &record);
        }
        self.feed_ended(id, &record);
        if !is_last {
            self.tell_rest(&record);
        }
        self.peer_ended(id, &record);
        self.notify_deleted(&record, is_last);
        if keeps_port {
            self.quarantine(id, is_last);
            self.get_mut(id).note_end();
        }
        if let Some(s) = self.subscribers.get_mut(record.subscriber) {
            s.sessions -= 1;
            self.subscribers.release_if_idle(record.subscriber);
        }
        if !keeps_port {
            self.free.put(&mut self.records, id);
        }
    }

    /// Unlinks a record from its ring. Another one becomes the primary if it was that.
    fn leave_ring(&mut self, id: RecordId, record: &Session) {
        if record.next == id {
            return;
        }
        self.get_mut(record.prev).next = record.next;
        self.get_mut(record.next).prev = record.prev;
        if record.is_overloaded() {
            let place = self.place_of(record);
            if self.binding_at(place, record.transport(), record.outside_port) == Some(id) {
                self.point_outside(record, record.prev);
            }
        } else if self.binding_of(&record.inside()) == Some(id) {
            self.make_primary(id, record.prev);
        }
    }

    fn end_binding(&mut self, id: RecordId, record: &Session, counted: bool) {
        if !record.is_overloaded() {
            let hash = key::binding(&self.hasher, &record.inside());
            self.bindings.remove(hash, id);
        }
        self.release_port(record, counted);
    }

    /// Returns a record's port to its pool. With `counted`, it counts for its subscriber.
    pub(super) fn release_port(&mut self, record: &Session, counted: bool) {
        self.point_outside(record, NONE);
        let pool = self.pool_of(record.instance);
        let mut subscriber = self.subscribers.get_mut(record.subscriber);
        let mut ended = None;
        if let Some(pool) = self.pools.get_mut(pool) {
            let (transport, ix, port) = (record.transport(), record.address_ix, record.outside_port);
            let holdings = subscriber.as_deref_mut().map(|s| &mut s.holdings);
            ended = pool.release(self.now, transport, ix, port, holdings).flatten();
        }
        if counted && let Some(s) = subscriber {
            let ports = record.transport().of_mut(&mut s.ports);
            *ports = ports.saturating_sub(1);
        }
        if let Some(block) = ended
            && let Some(s) = self.subscribers.get(record.subscriber)
        {
            let key = s.key();
            self.notify_block(EventKind::BlockReleased, record.instance, key, &block);
        }
    }

    /// Passes the peer entry of an ending session to the session before it, if that has the same remote
    /// address.
    fn forget_peer(&mut self, id: RecordId, record: &Session) {
        let Some(peers) = &self.peers else { return };
        let inside = record.inside();
        let remote = record.remote().0;
        let hash = key::peer(&self.hasher, &inside, remote);
        if peers.find(hash, |candidate| candidate == id).is_none() {
            return;
        }
        let before = self.get(record.prev);
        let same = record.prev != id && before.is_session() && before.remote().0 == remote;
        let successor = same.then_some(record.prev);
        if let Some(peers) = &mut self.peers {
            match successor {
                Some(successor) => peers.replace(hash, id, successor),
                None => peers.remove(hash, id),
            };
        }
    }

    /// Ends the sessions of a binding within the budget. Returns `false` if some are left. An anchor stays.
    pub(crate) fn end_ring(&mut self, member: RecordId, budget: &mut usize) -> bool {
        let of = *self.get(member);
        let place = self.place_of(&of);
        // The primary is a session if the ring has one, unless the anchor is: then one is before it.
        while let Some(primary) = self.binding_at(place, of.transport(), of.outside_port) {
            let is_anchor = self.get(primary).is_anchor();
            let id = if is_anchor { self.get(primary).prev } else { primary };
            if !self.get(id).is_session() {
                return true;
            }
            if *budget == 0 {
                return false;
            }
            *budget -= 1;
            self.close(id);
        }
        true
    }
}
