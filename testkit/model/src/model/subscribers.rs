//! Subscribers: the unit of quotas, pairing and blocks (RFC 6888 REQ-4, RFC 4787 REQ-2).

use super::{Model, Result};
use gatun_wire::DropReason;
use std::net::Ipv4Addr;

/// Instance, and the first address of the subscriber's prefix.
pub(super) type Owner = (usize, u128);

/// A subscriber; known as long as it has sessions or blocks.
#[derive(Clone, Debug)]
pub(super) struct Subscriber {
    pub(super) owner: Owner,
    pub(super) paired: Option<Ipv4Addr>,
    /// Ten-second interval in which a reached quota was last reported.
    pub(super) told: Option<u64>,
    /// Time up to which the rate of new sessions is used, nanoseconds.
    used_until: u64,
}

impl Model {
    /// Finds a subscriber, or adds it.
    pub(super) fn known(&mut self, owner: Owner) -> Result<usize> {
        if let Some(at) = self.subscribers.iter().position(|s| s.owner == owner) {
            return Ok(at);
        }
        if self.subscribers.len() >= self.plan.limits.subscribers_max as usize {
            return Err(DropReason::SubscriberTableFull);
        }
        self.subscribers.push(Subscriber { owner, paired: None, told: None, used_until: 0 });
        Ok(self.subscribers.len() - 1)
    }

    /// Holdings of each subscriber, in order: instance, first address, sessions, ports by transport.
    pub fn holdings(&self) -> Vec<(usize, u128, u32, [u32; 3])> {
        let of = |s: &Subscriber| {
            let mine = || self.bindings.iter().filter(|b| self.owner_of(b) == s.owner);
            let sessions = mine().map(|b| b.sessions.len() as u32).sum();
            let ports = |t| mine().filter(|b| !b.fixed && b.transport == t).count() as u32;
            (s.owner.0, s.owner.1, sessions, [ports(0), ports(1), ports(2)])
        };
        let mut all: Vec<_> = self.subscribers.iter().map(of).collect();
        all.sort_unstable();
        all
    }

    /// Removes a subscriber that has nothing.
    pub(super) fn forget_if_idle(&mut self, owner: Owner) {
        let sessions = self.bindings.iter().any(|b| self.owner_of(b) == owner && !b.sessions.is_empty());
        if !sessions && !self.has_blocks(owner) {
            self.subscribers.retain(|s| s.owner != owner);
        }
    }

    /// Checks a subscriber's next session against its limits (RFC 6888 REQ-4): a number at a time, and a
    /// rate, which is counted here.
    pub(super) fn admit(&mut self, at: usize) -> Result<()> {
        let limits = self.plan.limits;
        let owner = self.subscribers[at].owner;
        let mine = self.bindings.iter().filter(|b| self.owner_of(b) == owner);
        let sessions = mine.map(|b| b.sessions.len()).sum::<usize>();
        if sessions >= limits.sessions_per_subscriber as usize {
            return Err(DropReason::SubscriberSessionQuota);
        }
        // The last sessions of the table are reserved for subscribers that have few.
        let open_to_all = u64::from(limits.sessions_max) * (100 - u64::from(limits.sessions_reserved)) / 100;
        if self.session_count() as u64 >= open_to_all && sessions >= limits.sessions_reserved_below as usize {
            return Err(DropReason::SessionTableReserved);
        }
        let Some(each) = 1_000_000_000u64.checked_div(limits.session_rate_per_subscriber.into()) else {
            return Ok(());
        };
        // A session uses the time in which the rate earns one; the burst may be used in advance.
        let s = &mut self.subscribers[at];
        let now = self.now * 1_000_000;
        let used_until = s.used_until.max(now) + each;
        if used_until - now > each * u64::from(limits.session_burst_per_subscriber) {
            return Err(DropReason::SubscriberRate);
        }
        s.used_until = used_until;
        Ok(())
    }

    /// Checks a subscriber's next port against its limit (RFC 6888 REQ-4). Static bindings do not count.
    pub(super) fn may_have_port(&self, owner: Owner, transport: usize) -> Result<()> {
        let limits = self.plan.limits;
        let mine = || self.bindings.iter().filter(|b| !b.fixed && self.owner_of(b) == owner);
        let of_transport = mine().filter(|b| b.transport == transport).count();
        if mine().count() >= limits.ports_per_subscriber as usize
            || of_transport >= limits.ports_per_subscriber_by[transport].min(65_535) as usize
        {
            return Err(DropReason::SubscriberPortQuota);
        }
        Ok(())
    }
}
