//! Restored sessions of another engine, with the public address and port that they had.

use super::{HELD, Hashes, NO_SUBSCRIBER, Tables};
use crate::tables::event::{EventKind, EventKinds};
use crate::tables::pool4::{PortBlock, PortRequest};
use crate::tables::restore_error::RestoreError;
use crate::tables::session::{RecordId, Session, key};
use crate::tables::subscriber::SubscriberKey;

/// Session to be restored.
pub(crate) struct Restoring {
    /// Record without the numbers of its address and its subscriber. It is written to the table as a whole
    /// or not at all, even if the process is killed.
    pub(crate) record: Session,
    pub(crate) subscriber: SubscriberKey,
}

/// Restored session.
pub(super) struct Restored {
    pub(super) id: RecordId,
    /// Block of its port, if its subscriber had no other port there.
    pub(super) block: Option<PortBlock>,
    pub(super) is_new_binding: bool,
}

/// Kinds of events that a restore does not repeat, because every log has them already.
const KNOWN: EventKinds = EventKinds::NONE
    .with(EventKind::SessionCreated)
    .with(EventKind::BindingCreated)
    .with(EventKind::BlockAssigned);

impl Tables {
    pub(super) fn hashes_to_restore(&self, r: &Restoring) -> Hashes {
        let inside = r.record.inside();
        self.request_hashes(&inside, r.subscriber, self.session_hash(&inside, r.record.remote()))
    }

    /// Prefetches the lines that [`restore`](Self::restore) will touch, and returns the hashes.
    pub(crate) fn prefetch_restore(&self, r: &Restoring) -> Hashes {
        let hashes = self.hashes_to_restore(r);
        self.prefetch(hashes.session);
        self.prefetch_binding_of(&hashes);
        self.subscribers.prefetch_index(hashes.subscriber);
        let (address, port) = r.record.outside();
        if let Some(place) = self.locate(address)
            && let Some(pool) = self.pools.get(place.pool)
        {
            pool.prefetch_release(r.record.inside().transport, place.address_ix, port);
        }
        hashes
    }

    /// Prefetches the record of the subscriber, once the lines of
    /// [`prefetch_restore`](Self::prefetch_restore) are there.
    pub(crate) fn prefetch_restored_subscriber(&self, hashes: &Hashes) {
        if let Some(id) = self.subscribers.candidate(hashes.subscriber) {
            self.subscribers.prefetch(id);
        }
    }

    /// Restores a session. Limits of subscribers do not apply, because the session was admitted before.
    pub(crate) fn restore(&mut self, r: &Restoring) -> Result<RecordId, RestoreError> {
        let hashes = self.hashes_to_restore(r);
        let exists = || self.find_session(hashes.session, r.record.inside(), r.record.remote()).is_some();
        if !r.record.is_quarantined() && exists() {
            return Err(RestoreError::Exists);
        }
        self.restore_new(r, hashes)
    }

    /// Same as [`restore`](Self::restore), for a session that does not exist.
    pub(crate) fn restore_new(&mut self, r: &Restoring, hashes: Hashes) -> Result<RecordId, RestoreError> {
        let kinds = self.events.all_but(KNOWN);
        let restored = self.restore_silently(r, hashes);
        self.events.want(kinds);
        let restored = restored?;
        if let Some(block) = &restored.block {
            self.notify_block(EventKind::BlockKept, r.record.instance, r.subscriber, block);
        }
        if restored.is_new_binding && self.events.wants(EventKind::BindingKept) {
            let record = *self.get(restored.id);
            self.notify_binding(EventKind::BindingKept, self.pool_of(record.instance), &record);
        }
        self.feed_restored(restored.id);
        Ok(restored.id)
    }

    /// Reports that a session of a previous process has ended, at an unknown time.
    pub(crate) fn notify_not_back(&mut self, record: &Session) {
        if self.events.wants(EventKind::SessionDeleted) {
            let pool = self.pool_of(record.instance);
            self.events.notify_session(EventKind::SessionDeleted, self.now, pool, record);
        }
    }

    fn restore_silently(&mut self, r: &Restoring, hashes: Hashes) -> Result<Restored, RestoreError> {
        if r.record.is_quarantined() {
            return self.restore_quarantined(r, hashes);
        }
        self.room().map_err(|_| RestoreError::Full)?;
        let subscriber = self.subscribers.find_or_insert_by(hashes.subscriber, r.subscriber);
        let subscriber = subscriber.map_err(|_| RestoreError::Full)?;
        let restored = self.restore_for(r, subscriber, hashes);
        if restored.is_err() {
            self.subscribers.release_if_idle(subscriber);
        }
        restored
    }

    fn restore_for(
        &mut self,
        r: &Restoring,
        subscriber: u32,
        hashes: Hashes,
    ) -> Result<Restored, RestoreError> {
        let (inside, outside, shares_port) =
            (r.record.inside(), r.record.outside(), r.record.is_overloaded());
        let place = self.locate(outside.0).filter(|place| place.pool == self.pool_of(inside.instance));
        let place = place.ok_or(RestoreError::NotInPool)?;
        let mut record = r.record;
        (record.address_ix, record.subscriber) = (place.address_ix, subscriber);
        let there = match shares_port {
            true => self.binding_at(place, inside.transport, outside.1),
            false => self.binding_by(hashes.binding, &inside),
        };
        if let Some(primary) = there {
            let of = self.get(primary);
            let fits = of.outside() == outside && of.is_overloaded() == shares_port;
            if !fits || (shares_port && of.subscriber != subscriber) {
                return Err(RestoreError::Conflict);
            }
            let id = self.insert(&record, Some(primary), hashes).map_err(|_| RestoreError::Full)?;
            return Ok(Restored { id, block: None, is_new_binding: false });
        }
        if shares_port && self.overload.is_none() {
            return Err(RestoreError::NotInPool);
        }
        let held = self.held_at(place, &record).filter(|&held| self.get(held).is_inside(&inside));
        if let Some(held) = held.filter(|_| !shares_port) {
            let id = self.insert(&record, Some(HELD | held), hashes).map_err(|_| RestoreError::Full)?;
            return Ok(Restored { id, block: None, is_new_binding: true });
        }
        if record.is_standby() {
            self.make_way(r, place);
        }
        let block = self.claim_again(r, subscriber)?;
        let id = self.insert(&record, None, hashes).map_err(|_| RestoreError::Full)?;
        self.has_one_more_port(subscriber, inside.transport, place.address_ix);
        Ok(Restored { id, block, is_new_binding: true })
    }

    /// Restores the quarantine of a session that had ended in another process.
    fn restore_quarantined(&mut self, r: &Restoring, hashes: Hashes) -> Result<Restored, RestoreError> {
        let subscriber = self.subscribers.find_or_insert_by(hashes.subscriber, r.subscriber);
        let subscriber = subscriber.map_err(|_| RestoreError::Full)?;
        let restored = self.quarantine_for(r, subscriber);
        self.subscribers.release_if_idle(subscriber);
        restored
    }

    fn quarantine_for(&mut self, r: &Restoring, subscriber: u32) -> Result<Restored, RestoreError> {
        let (inside, outside) = (r.record.inside(), r.record.outside());
        let place = self.locate(outside.0).filter(|place| place.pool == self.pool_of(inside.instance));
        let place = place.ok_or(RestoreError::NotInPool)?;
        let mut record = r.record;
        (record.address_ix, record.subscriber) = (place.address_ix, subscriber);
        record.state = self.quarantine_phase();
        let primary = self.binding_of(&inside).filter(|&primary| {
            let binding = self.get(primary);
            binding.outside() == outside && !binding.is_overloaded()
        });
        let held = || self.held_at(place, &record).filter(|&held| self.get(held).is_inside(&inside));
        let before = primary.or_else(held);
        if !self.free.is_some(&self.records) {
            return Err(RestoreError::Full);
        }
        if before.is_none() && record.is_standby() {
            self.make_way(r, place);
        }
        let block = if before.is_some() { None } else { self.claim_again(r, subscriber)? };
        let id = self.free.take(&self.records).ok_or(RestoreError::Full)?;
        if let Some(before) = before
            && self.get(before).is_of_static()
        {
            record.set_of_static(true);
            record.subscriber = NO_SUBSCRIBER;
        }
        *self.get_mut(id) = record.sealed(id);
        match before {
            Some(before) => self.link_after(id, before),
            None => {
                self.point_outside(&record, HELD | id);
                self.has_one_more_port(subscriber, inside.transport, place.address_ix);
            }
        }
        self.phase_mut(record.state).into_iter().for_each(|n| *n += 1);
        Ok(Restored { id, block, is_new_binding: false })
    }

    /// Takes the port of a binding, and the block of that port, for the subscriber that had it. Returns the
    /// block if the subscriber had nothing in it yet.
    pub(super) fn claim_again(
        &mut self,
        r: &Restoring,
        subscriber: u32,
    ) -> Result<Option<PortBlock>, RestoreError> {
        let inside = r.record.inside();
        let pool = self.pool_of(inside.instance);
        let (Some(pool), Some(s)) = (self.pools.get_mut(pool), self.subscribers.get_mut(subscriber)) else {
            return Err(RestoreError::NotInPool);
        };
        // The counter of a subscriber's ports is at its maximum. Another configuration may put more hosts
        // into one subscriber.
        if *inside.transport.of(&s.ports) == u16::MAX {
            return Err(RestoreError::Full);
        }
        let request = PortRequest {
            transport: inside.transport,
            inside_port: inside.port,
            spread: key::subscriber(&self.hasher, r.subscriber),
            subscriber,
            prefix: r.subscriber.prefix,
            shard: 0,
            draws: [0; 2],
        };
        let claimed = match r.record.is_standby() {
            true => pool.claim_of_other(self.now, r.record.outside(), &request, &mut s.holdings),
            false => pool.claim_again(self.now, r.record.outside(), &request, &mut s.holdings),
        };
        claimed.map(|grant| grant.new_block).ok_or(RestoreError::NotInPool)
    }
}
