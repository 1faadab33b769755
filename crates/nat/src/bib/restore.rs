//! Sessions that were another engine's, put back with the public address and port that they had.

use super::Tables;
use crate::event::{EventKind, EventKinds};
use crate::pool4::PortRequest;
use crate::session::{Endpoint4, Inside, Kind, RecordId, Session, key};
use crate::subscriber::SubscriberKey;

/// A session to be put back.
pub(crate) struct Restoring {
    pub(crate) inside: Inside,
    pub(crate) outside: Endpoint4,
    pub(crate) remote: Endpoint4,
    pub(crate) subscriber: SubscriberKey,
    /// Whether flows of other inside ends had the port too.
    pub(crate) shares_port: bool,
}

/// Why a session cannot be had again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NotRestored {
    /// Its time was up meanwhile.
    Over,
    /// Its instance is there no more, or serves its inside host or its prefix no longer.
    NotServed,
    /// Its public address or port is not its pool's any more, or another subscriber's.
    NotInPool,
    /// It is there already, or its inside end has another public one.
    Taken,
    /// A table is full.
    Full,
}

impl NotRestored {
    /// All reasons.
    pub const ALL: [NotRestored; 5] = [
        NotRestored::Over,
        NotRestored::NotServed,
        NotRestored::NotInPool,
        NotRestored::Taken,
        NotRestored::Full,
    ];

    /// In words that go on from a number of sessions.
    pub fn help(self) -> &'static str {
        match self {
            NotRestored::Over => "whose time was up",
            NotRestored::NotServed => "of instances, hosts or prefixes that are served no longer",
            NotRestored::NotInPool => "whose public address or port is not their pool's any more",
            NotRestored::Taken => "that were there already",
            NotRestored::Full => "for which a table has no room",
        }
    }
}

/// What is not told of: whoever keeps a log has been told before.
const KNOWN: EventKinds = EventKinds::NONE
    .with(EventKind::SessionCreated)
    .with(EventKind::BindingCreated)
    .with(EventKind::BlockAssigned);

impl Tables {
    /// Asks for what [`restore`](Self::restore) of this one will touch.
    pub(crate) fn prefetch_restore(&self, r: &Restoring) {
        let hashes = self.opening_hashes(&r.inside, r.subscriber, self.session_hash(&r.inside, r.remote));
        self.prefetch(hashes.session);
        self.prefetch_opening(&hashes);
        if let Some(place) = self.locate(r.outside.0)
            && let Some(pool) = self.pools.get(place.pool)
        {
            pool.prefetch_release(r.inside.transport, place.address_ix, r.outside.1);
        }
    }

    /// Puts a session back. Limits of subscribers do not keep it away: it has been let in before.
    pub(crate) fn restore(&mut self, r: &Restoring) -> Result<RecordId, NotRestored> {
        let kinds = self.events.all_but(KNOWN);
        let restored = self.restore_silently(r);
        self.events.want(kinds);
        restored
    }

    fn restore_silently(&mut self, r: &Restoring) -> Result<RecordId, NotRestored> {
        self.room().map_err(|_| NotRestored::Full)?;
        let hash = self.session_hash(&r.inside, r.remote);
        if self.find_session(hash, r.inside, r.remote).is_some() {
            return Err(NotRestored::Taken);
        }
        let subscriber = self.subscribers.find_or_insert(r.subscriber).map_err(|_| NotRestored::Full)?;
        let restored = self.restore_for(r, subscriber);
        if restored.is_err() {
            self.subscribers.release_if_idle(subscriber);
        }
        restored
    }

    fn restore_for(&mut self, r: &Restoring, subscriber: u32) -> Result<RecordId, NotRestored> {
        let place = self.locate(r.outside.0).filter(|place| place.pool == self.pool_of(r.inside.instance));
        let place = place.ok_or(NotRestored::NotInPool)?;
        let record =
            Session::new(Kind::Session, &r.inside, r.outside, place.address_ix, r.remote, subscriber);
        let record = if r.shares_port { record.overloading() } else { record };
        let hashes = self.hashes_of(&record);
        let there = match r.shares_port {
            true => self.binding_at(place, r.inside.transport, r.outside.1),
            false => self.binding_by(hashes.binding, &r.inside),
        };
        if let Some(primary) = there {
            let of = self.get(primary);
            let fits = of.outside() == r.outside && of.is_overloaded() == r.shares_port;
            if !fits || (r.shares_port && of.subscriber != subscriber) {
                return Err(NotRestored::Taken);
            }
            return self.insert(&record, Some(primary), hashes).map_err(|_| NotRestored::Full);
        }
        if r.shares_port && self.overload.is_none() {
            return Err(NotRestored::NotInPool);
        }
        self.claim_again(r, subscriber)?;
        let id = self.insert(&record, None, hashes).map_err(|_| NotRestored::Full)?;
        self.has_one_more_port(subscriber, r.inside.transport, place.address_ix);
        Ok(id)
    }

    /// Takes the port of a binding, and the block that it lies in, for the subscriber that had it.
    fn claim_again(&mut self, r: &Restoring, subscriber: u32) -> Result<(), NotRestored> {
        let pool = self.pool_of(r.inside.instance);
        let (Some(pool), Some(s)) = (self.pools.get_mut(pool), self.subscribers.get_mut(subscriber)) else {
            return Err(NotRestored::NotInPool);
        };
        let request = PortRequest {
            transport: r.inside.transport,
            inside_port: r.inside.port,
            spread: key::subscriber(&self.hasher, r.subscriber),
            subscriber,
            prefix: r.subscriber.prefix,
            draw: 0,
        };
        let claimed = pool.claim_for(self.now, r.outside, &request, &mut s.holdings);
        claimed.map(|_| ()).ok_or(NotRestored::NotInPool)
    }
}
