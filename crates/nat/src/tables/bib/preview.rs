//! Preview of an opening, without any change: the quotas, and the binding or port that it would get.

use super::{SessionRequest, Tables};
use crate::base::plan::{Limits, Transport};
use crate::tables::pool4::preview::PortPreview;
use crate::tables::pool4::{Holdings, PortRequest};
use crate::tables::session::{NONE, RecordId, key};
use crate::tables::subscriber::{Subscriber, SubscriberKey};
use gatun_wire::DropReason;

/// Binding or port that a session from inside would get.
pub(crate) enum SessionPreview {
    /// Binding of this primary record.
    Binding(RecordId),
    /// Shared port of this primary record.
    Shared(RecordId),
    /// New port.
    Port(PortPreview),
}

impl Tables {
    /// Previews [`open_from_inside`](Self::open_from_inside).
    ///
    /// # Errors
    ///
    /// Same as [`open_from_inside`](Self::open_from_inside).
    pub(crate) fn preview(&self, o: &SessionRequest) -> Result<SessionPreview, DropReason> {
        let (number, subscriber) = self.preview_subscriber(o.subscriber)?;
        if let Some(primary) = self.binding_by(o.hashes.binding, &o.inside) {
            return Ok(SessionPreview::Binding(primary));
        }
        if self.shares_port(o)
            && let Some(primary) =
                number.and_then(|number| self.shared_port_for(number, o.inside.transport, o.remote))
        {
            return Ok(SessionPreview::Shared(primary));
        }
        self.port_quota(&subscriber, o.inside.transport)?;
        self.preview_port(o, number, &subscriber).map(SessionPreview::Port)
    }

    /// Previews [`open_from_outside`](Self::open_from_outside).
    ///
    /// # Errors
    ///
    /// Same as [`open_from_outside`](Self::open_from_outside).
    pub(crate) fn preview_from_outside(&self, subscriber: SubscriberKey) -> Result<(), DropReason> {
        self.preview_subscriber(subscriber).map(|_| ())
    }

    /// Current limits.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the subscriber that would get a session, as it is or as it would begin.
    fn preview_subscriber(&self, who: SubscriberKey) -> Result<(Option<u32>, Subscriber), DropReason> {
        self.room()?;
        let number = self.subscribers.find(who);
        let known = number.and_then(|number| self.subscribers.get(number)).copied();
        if known.is_none() && !self.subscribers.has_room() {
            return Err(DropReason::SubscriberTableFull);
        }
        let subscriber = known.unwrap_or(Subscriber::new(who));
        if subscriber.sessions >= self.limits.sessions_per_subscriber {
            return Err(DropReason::SubscriberSessionQuota);
        }
        self.room_for(subscriber.sessions)?;
        let mut counted = subscriber;
        match counted.admit(self.now, &self.limits) {
            true => Ok((number, subscriber)),
            false => Err(DropReason::SubscriberRate),
        }
    }

    /// Previews [`allocate`](Self::allocate).
    fn preview_port(
        &self,
        o: &SessionRequest,
        number: Option<u32>,
        subscriber: &Subscriber,
    ) -> Result<PortPreview, DropReason> {
        let pool = self.pools.get(self.pool_of(o.inside.instance)).ok_or(DropReason::PoolEmpty)?;
        let shard = self.shard_to_assign(pool, o.subscriber)?;
        let mut holdings: Holdings = subscriber.holdings;
        pool.check_pairing(&mut holdings);
        let request = PortRequest {
            transport: o.inside.transport,
            inside_port: o.inside.port,
            spread: match holdings.paired() {
                Some(_) => 0,
                None => key::subscriber(&self.hasher, o.subscriber),
            },
            subscriber: number.unwrap_or(u32::MAX),
            prefix: o.subscriber.prefix,
            shard,
            draws: [0; 2],
        };
        let asked_for = o.wanted.and_then(|outside| pool.preview_claim(outside, &request, &holdings));
        match asked_for {
            Some(outlook) => Ok(outlook),
            None => pool.preview(&request, &holdings),
        }
    }

    /// Checks if a subscriber may have another port (RFC 6888 REQ-4).
    pub(super) fn port_quota(&self, s: &Subscriber, transport: Transport) -> Result<(), DropReason> {
        let max = *transport.of(&self.limits.ports_per_subscriber_by).min(&u16::MAX.into());
        let ports = u32::from(*transport.of(&s.ports));
        if s.ports_total() >= self.limits.ports_per_subscriber || ports >= max {
            return Err(DropReason::SubscriberPortQuota);
        }
        Ok(())
    }

    /// Returns whether any session of the group that ends with `last` is alive. Sessions with the same remote
    /// address are adjacent in their ring.
    pub(crate) fn peers_live(&self, last: RecordId, is_alive: impl Fn(RecordId) -> bool) -> bool {
        const LOOKED_AT: usize = 16;
        let remote = self.get(last).remote().0;
        let mut at = last;
        for _ in 0..LOOKED_AT {
            if is_alive(at) {
                return true;
            }
            at = self.get(at).prev;
            let record = self.get(at);
            if at == last || at == NONE || !record.is_session() || record.remote().0 != remote {
                return false;
            }
        }
        false
    }
}
