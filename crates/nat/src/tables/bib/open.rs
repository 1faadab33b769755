//! New sessions and bindings: quotas and port allocation.

use super::{Hashes, NO_SUBSCRIBER, SessionRequest, Tables};
use crate::base::build_error::StaticBindingError;
use crate::base::plan::{StaticBinding, Transport};
use crate::tables::event::EventKind;
use crate::tables::pool4::{Pool4State, PortRequest};
use crate::tables::ports::reserved::Reservations;
use crate::tables::session::{Endpoint4, Inside, Kind, RecordId, Session, key};
use crate::tables::subscriber::SubscriberKey;
use core::net::Ipv4Addr;
use gatun_wire::DropReason;

impl Tables {
    /// Creates a session for a packet from inside, and its binding if there is none yet (RFC 6146 3.5.1,
    /// 3.5.2.2, 3.5.3).
    ///
    /// # Errors
    ///
    /// Returns the table, quota or pool that is exhausted; nothing has changed then.
    #[inline]
    pub(crate) fn open_from_inside(&mut self, o: &SessionRequest) -> Result<RecordId, DropReason> {
        self.room()?;
        let subscriber = match o.known.filter(|&known| self.subscribers.is(known, o.subscriber)) {
            Some(known) => known,
            None => self.subscribers.find_or_insert_by(o.hashes.subscriber, o.subscriber)?,
        };
        let made = self.open_for_subscriber(o, subscriber);
        if let Err(reason) = made {
            self.refused(reason, subscriber, o.inside.instance, o.inside.transport);
            self.subscribers.release_if_idle(subscriber);
        }
        made
    }

    #[inline]
    fn open_for_subscriber(&mut self, o: &SessionRequest, subscriber: u32) -> Result<RecordId, DropReason> {
        self.admit(subscriber)?;
        if let Some(primary) = self.binding_by(o.hashes.binding, &o.inside) {
            let p = self.get(primary);
            let record =
                Session::new(Kind::Session, &o.inside, p.outside(), p.address_ix, o.remote, subscriber);
            return self.insert(&record, Some(primary), o.hashes);
        }
        let shares = self.shares_port(o);
        if shares && let Some(primary) = self.shared_port_for(subscriber, o.inside.transport, o.remote) {
            let p = self.get(primary);
            let mut record =
                Session::new(Kind::Session, &o.inside, p.outside(), p.address_ix, o.remote, subscriber);
            record.set_overloaded(true);
            return self.insert(&record, Some(primary), o.hashes);
        }
        self.may_have_port(subscriber, o.inside.transport)?;
        let (address_ix, outside) = self.allocate(o, subscriber)?;
        let mut record = Session::new(Kind::Session, &o.inside, outside, address_ix, o.remote, subscriber);
        record.set_overloaded(shares);
        let id = self.insert(&record, None, o.hashes)?;
        self.has_one_more_port(subscriber, o.inside.transport, address_ix);
        Ok(id)
    }

    /// Counts a subscriber's new port. Pairs the subscriber with the port's address if it has none yet.
    pub(super) fn has_one_more_port(&mut self, subscriber: u32, transport: Transport, address_ix: u32) {
        if let Some(s) = self.subscribers.get_mut(subscriber) {
            *transport.of_mut(&mut s.ports) += 1;
            if s.holdings.paired().is_none() {
                s.holdings.pair(address_ix);
            }
        }
    }

    /// Allocates an outside address and port for a new binding.
    fn allocate(&mut self, o: &SessionRequest, subscriber: u32) -> Result<(u32, Endpoint4), DropReason> {
        let number = self.pool_of(o.inside.instance);
        let pool = self.pools.get(number).ok_or(DropReason::PoolEmpty)?;
        let shard = self.shard_to_assign(pool, o.subscriber)?;
        let pool = self.pools.get_mut(number).ok_or(DropReason::PoolEmpty)?;
        let s = self.subscribers.get_mut(subscriber).ok_or(DropReason::SubscriberTableFull)?;
        pool.check_pairing(&mut s.holdings);
        let request = PortRequest {
            transport: o.inside.transport,
            inside_port: o.inside.port,
            spread: match s.holdings.paired() {
                Some(_) => 0,
                None => key::subscriber(&self.hasher, o.subscriber),
            },
            subscriber,
            prefix: o.subscriber.prefix,
            shard,
            draws: o.draws,
        };
        self.draws.used(&mut self.rng);
        let inheritance = self.inheritance.as_deref().map(|inherited| inherited as &dyn Reservations);
        // The port that a held SYN was sent to may belong to a session that is not restored yet.
        let wanted = o.wanted.filter(|_| inheritance.is_none());
        let asked_for =
            wanted.and_then(|outside| pool.claim_for(self.now, outside, &request, &mut s.holdings));
        let grant = match asked_for {
            Some(grant) => grant,
            None => pool.allocate_beside(inheritance, &mut self.rng, self.now, &request, &mut s.holdings)?,
        };
        let outside = (pool.address(grant.address_ix), grant.port);
        if let Some(block) = grant.new_block {
            self.notify_block(EventKind::BlockAssigned, o.inside.instance, o.subscriber, &block);
        }
        Ok((grant.address_ix, outside))
    }

    /// Returns the shard of a subscriber that may get a port of a pool: 0 without a cluster.
    ///
    /// # Errors
    /// `port_right_none`
    #[inline]
    pub(super) fn shard_to_assign(
        &self,
        pool: &Pool4State,
        subscriber: SubscriberKey,
    ) -> Result<u8, DropReason> {
        if !self.standby.is_restricted {
            return Ok(0);
        }
        let part = self.sharding.as_ref().map(|sharding| sharding.of_subscriber(subscriber));
        let shard = part.unwrap_or(0) as u8;
        let may_assign = pool.is_restricted() && self.standby.may_assign(shard, self.now);
        if may_assign { Ok(shard) } else { Err(DropReason::PortRightNone) }
    }

    /// Checks if a subscriber may have another session, and counts it for the rate limit (RFC 6888 REQ-4,
    /// REQ-5).
    fn admit(&mut self, subscriber: u32) -> Result<(), DropReason> {
        let sessions = self.subscribers.get(subscriber).ok_or(DropReason::SubscriberTableFull)?.sessions;
        if sessions >= self.limits.sessions_per_subscriber {
            return Err(DropReason::SubscriberSessionQuota);
        }
        self.room_for(sessions)?;
        let s = self.subscribers.get_mut(subscriber).ok_or(DropReason::SubscriberTableFull)?;
        if s.admit(self.now, &self.limits) { Ok(()) } else { Err(DropReason::SubscriberRate) }
    }

    /// Checks if a subscriber may have another port (RFC 6888 REQ-4).
    fn may_have_port(&self, subscriber: u32, transport: Transport) -> Result<(), DropReason> {
        let s = self.subscribers.get(subscriber).ok_or(DropReason::SubscriberTableFull)?;
        self.port_quota(s, transport)
    }

    /// Creates a session for a packet from outside, through the binding of `primary`.
    ///
    /// # Errors
    ///
    /// Same as [`open_from_inside`](Self::open_from_inside).
    #[cold]
    pub(crate) fn open_from_outside(
        &mut self,
        primary: RecordId,
        remote: Endpoint4,
        subscriber: SubscriberKey,
    ) -> Result<RecordId, DropReason> {
        self.room()?;
        let subscriber = self.subscribers.find_or_insert(subscriber)?;
        let p = *self.get(primary);
        if let Err(reason) = self.admit(subscriber) {
            self.refused(reason, subscriber, p.instance, p.transport());
            self.subscribers.release_if_idle(subscriber);
            return Err(reason);
        }
        let record = Session::new(Kind::Session, &p.inside(), p.outside(), p.address_ix, remote, subscriber);
        let made = self.insert(&record, Some(primary), self.hashes_of(&record));
        if made.is_err() {
            self.subscribers.release_if_idle(subscriber);
        }
        made
    }

    /// Creates a static binding of the configuration: an anchor without a timer.
    ///
    /// # Errors
    ///
    /// Returns an error if the port is not free, the address is in no pool of the instance, or a table is
    /// full.
    pub(crate) fn add_binding(&mut self, instance: u8, b: &StaticBinding) -> Result<(), StaticBindingError> {
        let (addr, port) = b.inside;
        let inside = &Inside { addr, port, transport: b.transport, instance };
        let outside = b.outside;
        if self.binding_of(inside).is_some() {
            return Err(StaticBindingError::Taken);
        }
        let pool = self.pool_of(inside.instance);
        let pool = self.pools.get_mut(pool).ok_or(StaticBindingError::NotInPool)?;
        let address_ix = pool.address_ix(outside.0).ok_or(StaticBindingError::NotInPool)?;
        if !pool.claim_static(inside.transport, address_ix, outside.1) {
            return Err(StaticBindingError::Taken);
        }
        let nobody = (Ipv4Addr::UNSPECIFIED, 0);
        let anchor = Session::new(Kind::Anchor, inside, outside, address_ix, nobody, NO_SUBSCRIBER);
        self.insert(&anchor, None, self.hashes_of(&anchor)).map(|_| ()).map_err(|_| StaticBindingError::Full)
    }

    /// Hashes of a record with a known subscriber.
    pub(super) fn hashes_of(&self, record: &Session) -> Hashes {
        let inside = record.inside();
        Hashes {
            session: self.session_hash(&inside, record.remote()),
            binding: key::binding(&self.hasher, &inside),
            subscriber: 0,
        }
    }
}
