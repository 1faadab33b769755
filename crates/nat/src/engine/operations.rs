//! Operations on an engine between two bursts: queries, ends on request, changes of the plan, and restored
//! sessions.

use super::Nat;
use crate::base::plan::Net4;
use crate::base::tally::InstanceCounters;
use crate::base::time::Instant;
use crate::lifecycle::clear::{self, ClearCursor, Cleared, Extent, SessionKey};
use crate::lifecycle::inspect::{
    self, BindingInfo, BlockInfo, PortCursor, Selection, SessionCursor, SessionInfo,
};
use crate::lifecycle::reconfigure::{self, ApplyError, Change, Forecast, Outline, Settled};
use crate::lifecycle::report::{self, AddressStats, InstanceStats, PoolStats, SubscriberStats};
use crate::lifecycle::take_over::{self, FinishedInheritance};
use crate::path::explain::{self, Explanation};
use crate::path::restore;
use crate::path::rules::nat64::Nat64;
use crate::tables::inheritance::{FoundSessions, Inheritance, RestoreProgress, SessionFinder};
use crate::tables::restore_error::RestoreError;
use crate::tables::session_file::SavedSession;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use core::ops::Range;
use gatun_wire::{Packet, Prefix64};

/// Explanations.
impl Nat {
    /// Explains the handling of a packet, at the time of the last burst or sweep. The buffer is the caller's
    /// copy. If Gatun would forward the packet, the buffer holds the translated packet afterwards.
    pub fn explain(&self, packet: &mut Packet<'_>) -> Explanation {
        explain::explain(&self.core, packet)
    }

    /// Realm of a stateful instance's inside. Packets from the inside have this realm.
    pub fn realm_of(&self, instance: u8) -> u8 {
        self.core.rules.get(instance).map_or(0, |instance| instance.policy().realm)
    }

    /// First translation prefix of a NAT64 instance, or of the first NAT64 instance if none is named. An IPv6
    /// host most likely reaches IPv4 hosts through it.
    pub fn first_pool6(&self, instance: Option<u8>) -> Option<Prefix64> {
        let meant = |nat: &&Nat64| instance.is_none_or(|number| number == nat.policy.instance);
        let mut meant = self.core.rules.nat64.iter().filter(meant);
        meant.find_map(|nat| nat.prefixes().next()).map(|(_, prefix)| *prefix)
    }
}

/// Sessions, bindings, blocks and subscribers, read some at a time.
impl Nat {
    /// Adds sessions to `found`, up to its capacity, and looks at about `budget` records.
    pub fn read_sessions(
        &self,
        at: &mut SessionCursor,
        which: &Selection,
        budget: usize,
        found: &mut Vec<SessionInfo>,
    ) {
        inspect::sessions(&self.core.state.tables, at, which, budget, found);
    }

    /// Adds bindings to `found`, in the order of their public addresses and ports. Otherwise the same as
    /// [`read_sessions`](Self::read_sessions).
    pub fn read_bindings(
        &self,
        at: &mut PortCursor,
        which: &Selection,
        budget: usize,
        found: &mut Vec<BindingInfo>,
    ) {
        inspect::bindings(&self.core.state.tables, at, which, budget, found);
    }

    /// Adds the port blocks of subscribers to `found`, in the order of their ports. It applies the inside and
    /// outside addresses, the instance and the pool of `which`. Otherwise the same as
    /// [`read_sessions`](Self::read_sessions).
    pub fn read_blocks(
        &self,
        at: &mut PortCursor,
        which: &Selection,
        budget: usize,
        found: &mut Vec<BlockInfo>,
    ) {
        inspect::blocks(&self.core, at, which, budget, found);
    }

    /// Adds subscribers with state to `found`, by number from `next` on. It applies the inside address, the
    /// instance and the pool of `which`. Returns the next number, or `None` at the end. Otherwise the same as
    /// [`read_sessions`](Self::read_sessions).
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
    /// Counters of the instances: stateful ones by their numbers, then stateless ones.
    pub fn instance_stats(&self) -> impl Iterator<Item = InstanceStats> + '_ {
        report::instances(&self.core.state)
    }

    /// Counters of packets of no instance, and of packets to an unused port of an address that several
    /// instances share. These, the instances' own counters and the held packets add up to all received
    /// packets.
    pub fn unattributed(&self) -> &InstanceCounters {
        self.core.state.tally.unattributed()
    }

    /// Returns whether the counters of all instances, plus the unattributed ones, equal the engine's totals:
    /// every packet and byte, every drop by its reason, every session, binding and subscriber.
    pub fn conserved_by_instance(&self) -> bool {
        report::is_conserved(&self.core.state)
    }

    /// Returns whether the sums of pools and of their addresses equal the packets and bytes of the stateful
    /// instances, and whether subscribers have no more. This holds only if the plan has never changed,
    /// because the counters of a removed pool, address or subscriber go with it.
    pub fn conserved_by_address(&self) -> bool {
        self.generation > 0 || report::is_conserved_by_address(&self.core.state)
    }

    /// Statistics of the pools, in the order of the plan.
    pub fn pool_stats(&self) -> impl Iterator<Item = PoolStats> + '_ {
        report::pools(&self.core.state.tables)
    }

    /// Counters of a pool's addresses, a slice at a time. Addresses are counted from 0 to
    /// [`PoolStats::addresses`]. If the pool's ranges change meanwhile, the count begins again.
    pub fn address_stats(&self, pool: usize, numbers: Range<u32>) -> impl Iterator<Item = AddressStats> + '_ {
        report::addresses(&self.core.state.tables, pool, numbers)
    }

    /// Counters of the subscribers with state whose numbers are in the range. All numbers are below
    /// [`Subscribers::high`](crate::subscriber::Subscribers::high). Unused numbers are left out.
    pub fn subscriber_stats(&self, numbers: Range<u32>) -> impl Iterator<Item = SubscriberStats> + '_ {
        report::subscribers(&self.core, numbers)
    }

    /// Length of the inside networks that an instance counts as one subscriber each. IPv4 addresses are
    /// written in ::ffff:0:0/96.
    pub fn subscriber_len(&self, instance: u8) -> u8 {
        report::subscriber_len(&self.core, instance)
    }
}

/// Ends on request.
impl Nat {
    /// Ends a session now. Returns `false` if there is none with this key.
    pub fn end_session(&mut self, now: Instant, key: &SessionKey) -> bool {
        self.end_sessions(now, core::slice::from_ref(key)) == 1
    }

    /// Ends sessions now, and returns the number of sessions ended. A call with many sessions is faster than
    /// many calls, because cache misses overlap. A caller with many sessions should end some at a time
    /// between bursts.
    pub fn end_sessions(&mut self, now: Instant, keys: &[SessionKey]) -> usize {
        self.at(now);
        clear::end_sessions(&mut self.core.state, keys)
    }

    /// Drains a public address, or ends the drain: the `n`th address of a pool, if it lies in `net`. A
    /// drained address gets no new bindings. Returns whether that is a change. Existing bindings keep
    /// working; subscribers that are paired with the address get another one for new bindings. The drain
    /// lasts as long as the pool has the address.
    pub fn set_drained(&mut self, pool: usize, n: u32, net: Option<Net4>, drained: bool) -> bool {
        clear::set_drained(&mut self.core.state.tables, pool, n, net, drained)
    }

    /// Drains a public address of any pool. Returns whether a pool has it.
    pub fn drain(&mut self, address: Ipv4Addr) -> bool {
        clear::drain(&mut self.core.state.tables, address)
    }

    /// Ends the selected sessions, or their whole bindings, some at a time. It looks at about `budget`
    /// records and ends an eighth as many. A complete walk has met all records that existed when it
    /// began.
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

/// Changes of the plan.
impl Nat {
    /// Outline of the engine, to prepare a change.
    pub fn outline(&self) -> Outline {
        reconfigure::outline(&self.core, self.generation)
    }

    /// Counts the sessions that a change would end, and looks at no more than `budget` records. Returns
    /// whether the count is complete. It counts no further if the engine has changed since.
    pub fn forecast(&self, forecast: &mut Forecast, change: &Change, budget: usize) -> bool {
        forecast.count(change, &self.core.state.tables, self.generation, budget)
    }

    /// Applies a change between two bursts. [`Nat::expire`] ends afterwards what the change has to end;
    /// [`Nat::is_settling`] is true until then. This method neither allocates nor frees memory.
    ///
    /// # Errors
    ///
    /// Returns an error if the previous change has not settled, or if this one was prepared for another
    /// state.
    pub fn apply(&mut self, now: Instant, change: &mut Change) -> Result<(), ApplyError> {
        if self.is_settling() {
            return Err(ApplyError::Settling);
        }
        self.at(now);
        reconfigure::apply(&mut self.core, &mut self.transition, self.generation, change)?;
        self.generation += 1;
        Ok(())
    }

    /// Returns whether the last change still has state to end.
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
    /// Restores a session of another engine. Events report that its block and its binding go on; they do not
    /// report the session.
    ///
    /// # Errors
    ///
    /// Returns the reason if the session cannot be restored; nothing has changed then.
    pub fn restore(&mut self, now: Instant, saved: &SavedSession) -> Result<(), RestoreError> {
        let now = self.clock.at(now);
        restore::one(&mut self.core, now, saved)
    }

    /// Prefixes of a NAT64 instance, past and present, in the order of the numbers that sessions use for
    /// them. Empty for NAT44.
    pub fn prefixes(&self, instance: u8) -> &[Prefix64] {
        self.core.rules.nat64(instance).map_or(&[], |nat| &nat.pool6)
    }

    /// Returns a finder of the engine's sessions among those that other processes left.
    pub fn finder(&self) -> SessionFinder<'_> {
        restore::finder(&self.core)
    }

    /// Takes over the sessions of other processes, with the latest process first. From now on they count as
    /// the engine's own. The caller calls [`restore_some`](Self::restore_some) until all are restored.
    pub fn inherit(&mut self, now: Instant, found: Vec<FoundSessions>) {
        let inheritance = Inheritance::new(found, self.clock.at(now));
        self.core.state.tables.inheritance = Some(Box::new(inheritance));
    }

    /// Returns whether sessions of other processes are still to be restored.
    #[inline]
    pub fn is_inheriting(&self) -> bool {
        self.core.state.tables.inheritance.is_some()
    }

    /// Restores some of these sessions, and looks at about `budget` records. Returns whether all are
    /// restored.
    ///
    /// It leaves a reader of events enough time, so that events of restored and of lost sessions are not lost
    /// in bulk.
    pub fn restore_some(&mut self, now: Instant, budget: usize) -> bool {
        let Some(mut inheritance) = self.core.state.tables.inheritance.take() else { return true };
        let now = self.at(now);
        let has_all = take_over::some(&mut self.core, &mut inheritance, now, budget);
        if has_all {
            self.progress = inheritance.progress();
            self.finished = Some(FinishedInheritance(inheritance));
        } else {
            self.core.state.tables.inheritance = Some(inheritance);
        }
        has_all
    }

    /// Progress of the restore.
    pub fn progress(&self) -> RestoreProgress {
        self.core.state.tables.inheritance.as_ref().map_or(self.progress, |all| all.progress())
    }

    /// Takes the finished part of the last inheritance, so that another thread can drop it.
    pub fn take_finished(&mut self) -> Option<FinishedInheritance> {
        self.finished.take()
    }
}
