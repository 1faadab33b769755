//! Quarantine: public ports of ended sessions whose flows a fast path may still have.
//!
//! A session with a mark that ends leaves every index and count. Its record stays in the ring of its binding,
//! as [`Kind::Quarantined`](crate::tables::session::Kind::Quarantined), until the fast path has released the
//! flow. The ring keeps the port, and the port keeps its block and its subscriber's record. The binding ends
//! with its last session as usual, so the inside end gets another port meanwhile.
//!
//! ```text
//!   ring of a binding           primary -> quarantined records in a row -> sessions -> primary
//!   ring without a binding      quarantined records; the outside table has HELD | one of them
//! ```
//! Invariants: quarantined records follow the primary directly and in a row, so they split no group of
//! sessions with one remote address. The record before the primary is quarantined only if no other session is
//! left. A number with [`HELD`] is that of no record, so a packet to such a port finds nothing.

use super::{NO_SUBSCRIBER, PoolAddress, Tables};
use crate::base::plan::Transport;
use crate::tables::session::{NONE, RecordId, Session, key};

/// Bit of a number in the outside table: the port has quarantined records only.
pub(super) const HELD: RecordId = 1 << 31;

/// Numbers of quarantined records.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quarantined {
    /// Numbers before and after the last [`Tables::begin_wait`], by phase.
    by_phase: [usize; 2],
    /// Phase of records that are quarantined now.
    phase: u8,
}

impl Quarantined {
    fn all(&self) -> usize {
        self.by_phase.iter().sum()
    }
}

impl Tables {
    /// Returns the number of quarantined records.
    pub(crate) fn quarantined(&self) -> usize {
        self.quarantined.all()
    }

    /// Begins to wait for the release of all records that are quarantined now, unless a wait is in progress.
    pub(crate) fn begin_wait(&mut self) {
        if !self.is_waiting() {
            self.quarantined.phase ^= 1;
        }
    }

    /// Returns whether records that were quarantined before the wait are not released yet.
    pub(crate) fn is_waiting(&self) -> bool {
        let before = usize::from(self.quarantined.phase ^ 1);
        self.quarantined.by_phase.get(before).is_some_and(|&n| n > 0)
    }

    /// Returns the phase of a record that is quarantined now.
    pub(super) fn quarantine_phase(&self) -> u8 {
        self.quarantined.phase
    }

    /// Returns the number of quarantined records of a phase.
    pub(super) fn phase_mut(&mut self, phase: u8) -> Option<&mut usize> {
        self.quarantined.by_phase.get_mut(usize::from(phase))
    }

    /// Returns whether quarantined records keep this port and no binding has it.
    pub(crate) fn is_held(&self, place: PoolAddress, transport: Transport, port: u16) -> bool {
        self.held_by(place, transport, port).is_some()
    }

    /// Returns a quarantined record that keeps the port of a record, if no binding has it.
    pub(super) fn held_at(&self, place: PoolAddress, of: &Session) -> Option<RecordId> {
        self.held_by(place, of.transport(), of.outside_port)
    }

    pub(super) fn held_by(&self, place: PoolAddress, transport: Transport, port: u16) -> Option<RecordId> {
        let number = self.pools.get(place.pool)?.binding(transport, place.address_ix, port);
        (number & HELD != 0).then_some(number & !HELD)
    }

    /// Quarantines the record of an ended session. If its binding has ended too, the ring contains only
    /// quarantined records; otherwise the record is no longer in the ring.
    pub(super) fn quarantine(&mut self, id: RecordId, with_binding: bool) {
        let record = *self.get(id);
        if with_binding {
            self.point_outside(&record, HELD | id);
        } else if let Some(primary) = self.binding_of(&record.inside()) {
            self.link_after(id, primary);
        }
        let phase = self.quarantined.phase;
        let quarantined = self.get_mut(id);
        quarantined.quarantine();
        quarantined.state = phase;
        // The port of a static binding does not belong to the subscriber, who may be gone before the release.
        if record.is_of_static() {
            quarantined.subscriber = NO_SUBSCRIBER;
        }
        self.phase_mut(phase).into_iter().for_each(|n| *n += 1);
    }

    /// Links a record into the ring of another one, directly behind it.
    pub(super) fn link_after(&mut self, id: RecordId, before: RecordId) {
        let next = self.get(before).next;
        self.get_mut(before).next = id;
        self.get_mut(next).prev = id;
        let record = self.get_mut(id);
        (record.prev, record.next) = (before, next);
    }

    /// Returns whether a session is the last one of its ring: all other records there are quarantined.
    pub(super) fn is_last(&self, id: RecordId, record: &Session) -> bool {
        record.next == id
            || self.get(record.prev).is_quarantined() && self.binding_of(&record.inside()) == Some(id)
    }

    /// Ends a quarantine. The port is freed with its last record.
    pub(crate) fn release_quarantined(&mut self, id: RecordId) {
        let record = *self.get(id);
        if !record.is_quarantined() {
            return;
        }
        self.phase_mut(record.state).into_iter().for_each(|n| *n = n.saturating_sub(1));
        if record.next == id {
            self.release_port(&record, !record.is_of_static());
            self.subscribers.release_if_idle(record.subscriber);
        } else {
            self.get_mut(record.prev).next = record.next;
            self.get_mut(record.next).prev = record.prev;
            let place = self.place_of(&record);
            if self.held_at(place, &record) == Some(id) {
                self.point_outside(&record, HELD | record.prev);
            }
        }
        self.free.put(&mut self.records, id);
    }

    /// Returns the pool, and the number of a record's public address.
    pub(crate) fn place_of(&self, record: &Session) -> PoolAddress {
        PoolAddress { pool: self.pool_of(record.instance), address_ix: record.address_ix }
    }

    /// Ends the binding of a session after which its ring has only quarantined records.
    pub(super) fn leave_held(&mut self, id: RecordId, record: &Session) {
        self.bindings.remove(key::binding(&self.hasher, &record.inside()), id);
        let held = if record.next == id { NONE } else { HELD | record.prev };
        self.point_outside(record, held);
    }
}
