//! What a change of the configuration leaves to do, a little at a time, so that no packet waits for it:
//!
//! ```text
//!   addresses that came      can give ports
//!   static bindings gone     with the sessions through them
//!   addresses that left,     bindings that may not stay end, blocks go back, what is free can be given
//!   or have other ports
//!   records                  sessions of inside hosts that are served no longer
//!   static bindings new      whoever has their port, or their inside address and port elsewhere, ends
//! ```
//! Invariant: nothing new is made against the new rules from the moment they are in place, so that what was looked at
//! once stays right. A port that comes free here is given by the new rules alone.

use super::{Place, Tables};
use crate::base::event::EventKind;
use crate::base::plan::{StaticBinding, Transport};
use crate::path::stateful::{Instance, Instances};
use crate::tables::session::{Inside, NONE, RecordId, Session};
use crate::tables::subscriber::SubscriberKey;
use alloc::vec::Vec;
use gatun_wire::proto;

/// What was ended because the configuration changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Sessions.
    pub sessions: u64,
    /// Bindings.
    pub bindings: u64,
    /// Port blocks taken from their subscribers.
    pub blocks: u64,
    /// Static bindings that could not be made: no record was free.
    pub static_bindings_refused: u64,
}

/// An address, by pool and number.
pub(crate) type At = (usize, u32);

/// What is to be done, prepared beforehand, and how far it has come.
#[derive(Default)]
pub(crate) struct Settling {
    pub(crate) added: Vec<At>,
    pub(crate) leaving: Vec<At>,
    /// Static bindings that end, and those that begin, by instance.
    pub(crate) statics_gone: Vec<(u8, StaticBinding)>,
    pub(crate) statics_new: Vec<(u8, StaticBinding)>,
    /// Whether some inside hosts are served no longer.
    pub(crate) judges: bool,
    /// Subscribers that are another worker's now, in order.
    pub(crate) moved: Vec<SubscriberKey>,
    step: Step,
    done: Settled,
}

/// The next thing to do. Numbers are places in the lists of [`Settling`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    Added(usize),
    StaticGone(usize),
    /// An address that leaves, from a transport and port on.
    Bindings(usize, usize, u16),
    /// Its blocks, from a number on.
    Blocks(usize, u32),
    Judge(RecordId),
    StaticNew(usize),
    #[default]
    Done,
}

impl Settling {
    /// Begins with the first step.
    pub(crate) fn begin(&mut self) {
        (self.step, self.done) = (Step::Added(0), Settled::default());
    }
}

/// What a record costs, and an address: rough shares of a budget, which is in sessions that end.
const ADDRESS_COST: usize = 8;

impl Tables {
    /// Puts a prepared list in place; gives the one before.
    pub(crate) fn begin_settling(&mut self, settling: &mut Settling) {
        core::mem::swap(&mut self.settling, settling);
        self.settling.begin();
    }

    /// Whether a change has left something to do yet.
    #[inline]
    pub(crate) fn is_settling(&self) -> bool {
        self.settling.step != Step::Done
    }

    /// What the last change has ended so far.
    pub(crate) fn settled(&self) -> Settled {
        self.settling.done
    }

    /// Does some of what is left to do: at most about `budget` sessions end. Says whether anything is left.
    #[inline]
    pub(crate) fn settle(&mut self, nats: Instances<'_>, budget: usize) -> bool {
        self.is_settling() && self.settle_some(nats, budget)
    }

    #[cold]
    fn settle_some(&mut self, nats: Instances<'_>, budget: usize) -> bool {
        let mut budget = self.events.budget(self.now, budget);
        let mut work = core::mem::take(&mut self.settling);
        let before = (self.sessions.len(), self.bindings.len());
        while budget > 0 && work.step != Step::Done {
            work.step = match work.step {
                Step::Added(n) => self.open_added(&work, n, &mut budget),
                Step::StaticGone(n) => self.end_static(&work, n, &mut budget),
                Step::Bindings(n, t, port) => self.end_bindings(&work, (n, t, port), &mut budget),
                Step::Blocks(n, from) => self.end_blocks(&mut work, n, from, &mut budget),
                Step::Judge(id) => self.judge(nats, &work, id, &mut budget),
                Step::StaticNew(n) => self.make_static(&mut work, n, &mut budget),
                Step::Done => Step::Done,
            };
        }
        let ended = |before: usize, now: usize| before.saturating_sub(now) as u64;
        work.done.sessions += ended(before.0, self.sessions.len());
        work.done.bindings += ended(before.1, self.bindings.len());
        if work.step == Step::Done {
            self.pools.iter_mut().for_each(|pool| pool.settled());
        }
        self.settling = work;
        self.is_settling()
    }

    fn open_added(&mut self, work: &Settling, n: usize, budget: &mut usize) -> Step {
        let Some(&(pool, ix)) = work.added.get(n) else { return Step::StaticGone(0) };
        *budget = budget.saturating_sub(ADDRESS_COST);
        if let Some(pool) = self.pools.get_mut(pool) {
            pool.open_address(ix);
        }
        Step::Added(n + 1)
    }

    /// Ends a binding of the configuration, the sessions through it first.
    fn end_static(&mut self, work: &Settling, n: usize, budget: &mut usize) -> Step {
        let Some((instance, b)) = work.statics_gone.get(n) else { return Step::Bindings(0, 0, 0) };
        let ((addr, port), transport) = (b.inside, b.transport);
        let inside = Inside { addr, port, transport, instance: *instance };
        let Some(primary) = self.binding_of(&inside).filter(|&id| self.get(id).outside() == b.outside) else {
            return Step::StaticGone(n + 1);
        };
        if !self.end_ring(primary, budget) {
            return Step::StaticGone(n);
        }
        let Some(anchor) = self.binding_of(&inside).filter(|&id| self.get(id).is_anchor()) else {
            return Step::StaticGone(n + 1);
        };
        let record = *self.get(anchor);
        self.unlink(anchor, false);
        let pool = self.pool_of(*instance);
        if let Some(pool) = self.pools.get_mut(pool) {
            pool.unbar(transport, record.address_ix, record.outside_port);
        }
        Step::StaticGone(n + 1)
    }

    /// Ends the bindings of an address that may not stay by its new rules.
    fn end_bindings(
        &mut self,
        work: &Settling,
        (n, t, port): (usize, usize, u16),
        budget: &mut usize,
    ) -> Step {
        let Some(&at) = work.leaving.get(n) else { return Step::Judge(1) };
        let next = |t, port: u16| port.checked_add(1).map_or((t + 1, 0), |port| (t, port));
        let (mut t, mut port) = (t, port);
        while *budget > 0 {
            let Some(&transport) = Transport::ALL.get(t) else { return Step::Blocks(n, 0) };
            let used = self.pools.get(at.0).and_then(|pool| pool.next_used(transport, at.1, port));
            let Some(used) = used else {
                (t, port) = (t + 1, 0);
                continue;
            };
            port = used;
            *budget -= 1;
            if !self.may_stay(at, transport, port) {
                let place = Place { pool: at.0, address_ix: at.1 };
                let ended =
                    self.binding_at(place, transport, port).is_none_or(|id| self.end_ring(id, budget));
                if !ended {
                    break;
                }
            }
            (t, port) = next(t, port);
        }
        Step::Bindings(n, t, port)
    }

    /// Whether a port that is used at an address may stay so. One that is only held may, and a static binding's.
    fn may_stay(&self, at: At, transport: Transport, port: u16) -> bool {
        let place = Place { pool: at.0, address_ix: at.1 };
        let Some(id) = self.binding_at(place, transport, port) else { return true };
        if self.get(id).is_of_static() {
            return true;
        }
        let subscriber = self.subscribers.get(self.get(id).subscriber);
        let prefix = subscriber.map_or(0, |s| s.key().prefix);
        self.pools.get(at.0).is_some_and(|pool| pool.may_keep(transport, at.1, port, prefix))
    }

    /// Takes the blocks of an address from owners who may not have them any more; then it follows its new rules.
    fn end_blocks(&mut self, work: &mut Settling, n: usize, from: u32, budget: &mut usize) -> Step {
        let Some(&(number, ix)) = work.leaving.get(n) else { return Step::Judge(1) };
        let mut from = from;
        while *budget > 0 {
            *budget -= 1;
            let Some(pool) = self.pools.get_mut(number) else { break };
            let Some(owner) = pool.next_eviction(ix, &mut from) else {
                pool.open_address(ix);
                *budget = budget.saturating_sub(ADDRESS_COST);
                return Step::Bindings(n + 1, 0, 0);
            };
            // A subscriber with a block keeps its record.
            let Some(s) = self.subscribers.get_mut(owner) else {
                from += 1;
                continue;
            };
            let (key, block) = (s.key(), pool.evict(self.now, ix, from, &mut s.holdings));
            work.done.blocks += 1;
            if let Some(block) = block {
                self.tell_block(EventKind::BlockReleased, key.instance, key, &block);
            }
            self.subscribers.release_if_idle(owner);
        }
        Step::Blocks(n, from)
    }

    /// Ends the session of a record where its inside host is served no longer, or not to where it goes.
    fn judge(&mut self, nats: Instances<'_>, work: &Settling, id: RecordId, budget: &mut usize) -> Step {
        let judges = work.judges || !work.moved.is_empty();
        if !judges || id >= self.high() {
            return Step::StaticNew(0);
        }
        *budget -= 1;
        let session = *self.get(id);
        if !session.is_session() {
            return Step::Judge(id + 1);
        }
        let Some((all, this)) = self.is_judged(nats, work, &session) else { return Step::Judge(id + 1) };
        if all && !session.is_overloaded() {
            // All of its binding's: else one might be opened through it behind this look.
            if !self.end_ring(id, budget) {
                return Step::Judge(id);
            }
        } else if all || this {
            self.close(id);
        }
        Step::Judge(id + 1)
    }

    /// Whether all sessions of its inside host end, and whether this one does.
    pub(crate) fn is_judged(
        &self,
        nats: Instances<'_>,
        work: &Settling,
        session: &Session,
    ) -> Option<(bool, bool)> {
        let (served, remote) = (session.inside_addr(), session.remote());
        let (all, this) = match nats.get(session.instance)? {
            Instance::Nat64(nat) => (!nat.accepts(served), !nat.is_served(session.pool6)),
            Instance::Nat44(nat) => {
                let protocol = session.transport().ip_protocol();
                let port = (protocol != proto::ICMP).then_some(remote.1);
                let inside = served.to_ipv4_mapped();
                (!inside.is_some_and(|a| nat.serves(a)), nat.is_exempt(remote.0, protocol, port))
            }
        };
        Some((all || self.has_moved(work, session), this))
    }

    /// Whether a session's subscriber is another worker's.
    fn has_moved(&self, work: &Settling, session: &Session) -> bool {
        let is_listed = |key| work.moved.binary_search(&key).is_ok();
        !work.moved.is_empty() && self.subscribers.get(session.subscriber).is_some_and(|s| is_listed(s.key()))
    }

    /// Makes a binding of the configuration. What is in its way ends first.
    fn make_static(&mut self, work: &mut Settling, n: usize, budget: &mut usize) -> Step {
        let Some((instance, b)) = work.statics_new.get(n).copied() else { return Step::Done };
        *budget -= 1;
        let ((addr, port), transport) = (b.inside, b.transport);
        let inside = Inside { addr, port, transport, instance };
        if self.binding_of(&inside).is_some_and(|id| !self.end_ring(id, budget)) {
            return Step::StaticNew(n);
        }
        if let Some(place) = self.locate(b.outside.0)
            && !self.make_way(work, place, (transport, b.outside.1), budget)
        {
            return Step::StaticNew(n);
        }
        if self.add_binding(instance, &b).is_err() {
            work.done.static_bindings_refused += 1;
        }
        Step::StaticNew(n + 1)
    }

    /// Ends who has a port, and whose block it lies in; `false` where that is yet to go on.
    fn make_way(
        &mut self,
        work: &mut Settling,
        place: Place,
        (transport, port): (Transport, u16),
        budget: &mut usize,
    ) -> bool {
        let at = (place.pool, place.address_ix);
        let Some(pool) = self.pools.get(place.pool) else { return true };
        let owner = pool.in_the_way(transport, at.1, port);
        let (mut first, mut last, mut transports) = pool.extent(transport, port);
        if owner.is_none() {
            (first, last) = (port, port);
            transports = core::array::from_fn(|t| t == transport as usize);
        }
        for t in Transport::ALL.into_iter().filter(|t| *t.of(&transports)) {
            let mut from = first;
            loop {
                let used = self.pools.get(at.0).and_then(|pool| pool.next_used(t, at.1, from));
                let Some(used) = used.filter(|&used| used <= last) else { break };
                let is_static =
                    |id: &RecordId| self.get(*id).is_of_static() && (t, used) != (transport, port);
                let holder = self.binding_at(place, t, used).filter(|id| !is_static(id));
                if holder.is_some_and(|id| !self.end_ring(id, budget)) {
                    return false;
                }
                let Some(next) = used.checked_add(1) else { break };
                from = next;
            }
        }
        let Some(pool) = self.pools.get_mut(at.0) else { return true };
        let owner = pool.in_the_way(transport, at.1, port);
        let holder = owner.and_then(|id| self.subscribers.get_mut(id));
        let key = holder.as_ref().map(|s| s.key());
        let holdings = holder.map(|s| &mut s.holdings);
        let ended = pool.clear_block(self.now, (transport, at.1, port), holdings);
        if let (Some(block), Some(key), Some(owner)) = (ended, key, owner) {
            work.done.blocks += 1;
            self.tell_block(EventKind::BlockReleased, key.instance, key, &block);
            self.subscribers.release_if_idle(owner);
        }
        true
    }

    /// Ends the sessions of a binding, as far as the budget goes; `false` where some are left. An anchor stays.
    pub(crate) fn end_ring(&mut self, member: RecordId, budget: &mut usize) -> bool {
        let mut id = member;
        loop {
            let record = *self.get(id);
            // The one before is linked to this one, and so to the rest, when this one is gone.
            let before = if record.prev == id { NONE } else { record.prev };
            if record.is_session() {
                if *budget == 0 {
                    return false;
                }
                *budget -= 1;
                self.close(id);
            } else if before == NONE || !record.is_anchor() || !self.get(before).is_session() {
                return true;
            }
            if before == NONE {
                return true;
            }
            id = before;
        }
    }
}
