//! Operations on an engine between two bursts: questions, ends on request, another plan, sessions of another process.

use super::Nat;
use crate::base::plan::Net4;
use crate::base::tally::InstanceCounters;
use crate::base::time::Instant;
use crate::lifecycle::clear::{self, ClearCursor, Cleared, Extent, SessionKey};
use crate::lifecycle::inspect::{
    self, BindingInfo, BlockInfo, PortCursor, Selection, SessionCursor, SessionInfo,
};
use crate::lifecycle::reconfigure::{self, Change, Forecast, NotNow, Outline, Settled};
use crate::lifecycle::report::{self, AddressStats, InstanceStats, PoolStats, SubscriberStats};
use crate::lifecycle::take_over::{self, Spent};
use crate::path::explain::{self, Explanation};
use crate::path::restore;
use crate::path::rules::nat64::Nat64;
use crate::tables::inheritance::{Finder, Found, Inheritance, Progress};
use crate::tables::kept::Saved;
use crate::tables::not_restored::NotRestored;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use core::ops::Range;
use gatun_wire::{Packet, Prefix64};

/// Explanations.
impl Nat {
    /// What would become of a packet that came now: at the time of the last burst or sweep. The buffer is the
    /// caller's copy; where the packet would be forwarded, it holds the translated one afterwards.
    pub fn explain(&self, packet: &mut Packet<'_>) -> Explanation {
        explain::explain(&self.core, packet)
    }

    /// The realm of a stateful instance's inside: what a packet from there has, and what it is told apart by.
    pub fn realm_of(&self, instance: u8) -> u8 {
        self.core.rules.get(instance).map_or(0, |instance| instance.policy().realm)
    }

    /// The prefix behind which an IPv6 host most likely finds IPv4 ones: the first one of a NAT64 instance, of the first
    /// where none is named.
    pub fn first_pool6(&self, instance: Option<u8>) -> Option<Prefix64> {
        let meant = |nat: &&Nat64| instance.is_none_or(|number| number == nat.policy.instance);
        let mut meant = self.core.rules.nat64.iter().filter(meant);
        meant.find_map(|nat| nat.prefixes().next()).map(|(_, prefix)| *prefix)
    }
}

/// Sessions, bindings, blocks and subscribers, read some at a time.
impl Nat {
    /// Adds sessions to `found`, at most as many as it has capacity for, and looks at about `budget` records.
    pub fn read_sessions(
        &self,
        at: &mut SessionCursor,
        which: &Selection,
        budget: usize,
        found: &mut Vec<SessionInfo>,
    ) {
        inspect::sessions(&self.core.state.tables, at, which, budget, found);
    }

    /// Adds bindings to `found`, in the order of their public ends; as [`read_sessions`](Self::read_sessions).
    pub fn read_bindings(
        &self,
        at: &mut PortCursor,
        which: &Selection,
        budget: usize,
        found: &mut Vec<BindingInfo>,
    ) {
        inspect::bindings(&self.core.state.tables, at, which, budget, found);
    }

    /// Adds the port blocks that subscribers have to `found`, in the order of their ports; of `which`, inside and
    /// outside ends, instance and pool decide. As [`read_sessions`](Self::read_sessions).
    pub fn read_blocks(
        &self,
        at: &mut PortCursor,
        which: &Selection,
        budget: usize,
        found: &mut Vec<BlockInfo>,
    ) {
        inspect::blocks(&self.core, at, which, budget, found);
    }

    /// Adds subscribers that have state to `found`, by number from `next` on; of `which`, inside address, instance and
    /// pool decide. As [`read_sessions`](Self::read_sessions). Gives the number that is next, `None` at the end.
    pub fn read_subscribers(
        &self,
        next: u32,
        which: &Selection,
        budget: usize,
        found: &mut Vec<SubscriberStats>,
    ) -> Option<u32> {
        inspect::subscribers(&self.core, next, which, budget, found)
    }
}

/// Counts of instances, pools, addresses and subscribers.
impl Nat {
    /// The instances: stateful ones by their numbers, then stateless ones.
    pub fn instance_stats(&self) -> impl Iterator<Item = InstanceStats> + '_ {
        report::instances(&self.core.state)
    }

    /// Packets of no instance, and those to an address that several share, at a port that nobody has. With
    /// the instances' own, and what is held, they are all that were received.
    pub fn unattributed(&self) -> &InstanceCounters {
        self.core.state.tally.unattributed()
    }

    /// Whether instances and nobody, together, have what the engine counts in all: every packet and byte, every
    /// drop by its reason, every session, binding and subscriber.
    pub fn conserved_by_instance(&self) -> bool {
        report::is_conserved(&self.core.state)
    }

    /// Whether pools, and each pool's addresses, together have the packets and bytes of the stateful instances, and
    /// subscribers no more: as long as the plan has not changed, since what leaves takes its counters with it.
    pub fn conserved_by_address(&self) -> bool {
        self.generation > 0 || report::is_conserved_by_address(&self.core.state)
    }

    /// The pools, in the order of the plan.
    pub fn pool_stats(&self) -> impl Iterator<Item = PoolStats> + '_ {
        report::pools(&self.core.state.tables)
    }

    /// Addresses of a pool, counted from 0 to [`PoolStats::addresses`], a slice at a time. The count is from the
    /// beginning again where the pool's ranges change meanwhile.
    pub fn address_stats(&self, pool: usize, numbers: Range<u32>) -> impl Iterator<Item = AddressStats> + '_ {
        report::addresses(&self.core.state.tables, pool, numbers)
    }

    /// Subscribers that have state, of these numbers: those there are lie below
    /// [`Subscribers::high`](crate::subscriber::Subscribers::high). Numbers of nobody are left out.
    pub fn subscriber_stats(&self, numbers: Range<u32>) -> impl Iterator<Item = SubscriberStats> + '_ {
        report::subscribers(&self.core, numbers)
    }

    /// Length of the inside networks that an instance counts as one subscriber each; of an IPv4 address as it stands
    /// behind ::ffff:0:0/96.
    pub fn subscriber_len(&self, instance: u8) -> u8 {
        report::subscriber_len(&self.core, instance)
    }
}

/// Ends on request.
impl Nat {
    /// Ends a session now; `false` where there is none of this key.
    pub fn end_session(&mut self, now: Instant, key: &SessionKey) -> bool {
        self.end_sessions(now, core::slice::from_ref(key)) == 1
    }

    /// Ends sessions now, and returns how many of them there were. Many at a time are quicker than one by one: their
    /// cache misses overlap. Between bursts, a caller with many should give some at a time.
    pub fn end_sessions(&mut self, now: Instant, keys: &[SessionKey]) -> usize {
        self.at(now);
        clear::end_sessions(&mut self.core.state, keys)
    }

    /// Gives a public address no new bindings from now on, or gives it such again: the `n`th of a pool, where it lies in
    /// `net`. Says whether that is new. Bindings that there are live on; subscribers that are paired with the address get
    /// another one for what is new. It holds as long as the pool has the address.
    pub fn set_drained(&mut self, pool: usize, n: u32, net: Option<Net4>, drained: bool) -> bool {
        clear::set_drained(&mut self.core.state.tables, pool, n, net, drained)
    }

    /// Drains a public address, whichever pool has it; says whether one has.
    pub fn drain(&mut self, address: Ipv4Addr) -> bool {
        clear::drain(&mut self.core.state.tables, address)
    }

    /// Ends the sessions that are meant, or their whole bindings, some at a time: about as many records are looked at
    /// as `budget` says, and an eighth as many end. A walk that has come to its end has met all that were there
    /// when it began.
    pub fn clear(
        &mut self,
        now: Instant,
        at: &mut ClearCursor,
        which: &Selection,
        extent: Extent,
        budget: usize,
    ) -> Cleared {
        self.at(now);
        clear::clear(&mut self.core.state, at, which, extent, budget)
    }
}

/// Another plan.
impl Nat {
    /// Outline of the engine, to prepare a change.
    pub fn outline(&self) -> Outline {
        reconfigure::outline(&self.core, self.generation)
    }

    /// Counts the sessions that a change would end, looking at no more than `budget` records. Says whether that was
    /// all. An engine that has changed since is not counted any further.
    pub fn forecast(&self, forecast: &mut Forecast, change: &Change, budget: usize) -> bool {
        forecast.count(change, &self.core.state.tables, self.generation, budget)
    }

    /// Puts a change in place, between two bursts. What has to end by it is ended by [`Nat::expire`] in the time
    /// after; until then [`Nat::is_settling`]. Nothing is allocated or freed here.
    ///
    /// # Errors
    /// If the change before has not settled, or this one was prepared for another state.
    pub fn apply(&mut self, now: Instant, change: &mut Change) -> Result<(), NotNow> {
        if self.is_settling() {
            return Err(NotNow::Settling);
        }
        self.at(now);
        reconfigure::apply(&mut self.core, &mut self.transition, self.generation, change)?;
        self.generation += 1;
        Ok(())
    }

    /// Whether the last change has left something to end yet.
    pub fn is_settling(&self) -> bool {
        self.transition.is_under_way() || self.is_inheriting()
    }

    /// Sessions, bindings and blocks that the last change has ended so far.
    pub fn settled(&self) -> Settled {
        self.transition.ended()
    }
}

/// Sessions of another process.
impl Nat {
    /// Puts a session back that another engine had, as if it had gone on. Events tell of its block and its binding
    /// that they go on, not of the session.
    ///
    /// # Errors
    /// Why it cannot be; nothing has changed then.
    pub fn restore(&mut self, now: Instant, saved: &Saved) -> Result<(), NotRestored> {
        let now = self.clock.at(now);
        restore::one(&mut self.core, now, saved)
    }

    /// The prefixes that a NAT64 instance has had, in the order of the numbers by which sessions know them. Empty for
    /// NAT44.
    pub fn prefixes(&self, instance: u8) -> &[Prefix64] {
        self.core.rules.nat64(instance).map_or(&[], |nat| &nat.pool6)
    }

    /// Finds the engine's sessions in what other processes left.
    pub fn finder(&self) -> Finder<'_> {
        restore::finder(&self.core)
    }

    /// Gives the engine the sessions of other processes, the latest one's first: from now on they are as good as its own.
    /// [`put_back`](Self::put_back) is to be called until it has them all.
    pub fn inherit(&mut self, now: Instant, found: Vec<Found>) {
        let inheritance = Inheritance::new(found, self.clock.at(now));
        self.core.state.tables.inheritance = Some(Box::new(inheritance));
    }

    /// Whether sessions of other processes are still to be put back.
    #[inline]
    pub fn is_inheriting(&self) -> bool {
        self.core.state.tables.inheritance.is_some()
    }

    /// Puts some of them back, about as many as `budget` looks at records allow. Says whether it has them all.
    ///
    /// Where somebody reads events, he is given time to: those of what goes on, and of what does not, are not lost for being
    /// many.
    pub fn put_back(&mut self, now: Instant, budget: usize) -> bool {
        let Some(mut inheritance) = self.core.state.tables.inheritance.take() else { return true };
        let now = self.at(now);
        let has_all = take_over::some(&mut self.core, &mut inheritance, now, budget);
        if has_all {
            self.progress = inheritance.progress();
            self.spent = Some(Spent(inheritance));
        } else {
            self.core.state.tables.inheritance = Some(inheritance);
        }
        has_all
    }

    /// Progress of that.
    pub fn progress(&self) -> Progress {
        self.core.state.tables.inheritance.as_ref().map_or(self.progress, |all| all.progress())
    }

    /// What is over with the last inheritance, for another thread to drop.
    pub fn take_spent(&mut self) -> Option<Spent> {
        self.spent.take()
    }
}
