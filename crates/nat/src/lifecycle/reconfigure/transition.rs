//! Work that follows a change of the configuration, done in small parts, so that no packet waits for it:
//!
//! ```text
//!   added addresses          they can give ports
//!   removed static bindings  they end after their sessions
//!   removed addresses,       bindings that may not stay end, blocks return, free ports can be given
//!   or with other ports
//!   records                  sessions of inside hosts that are no longer served end
//!   new static bindings      sessions that use their port, or their inside address and port, end first
//! ```
//! Invariant: from the moment that the new rules apply, nothing is created against them, so a checked entry
//! stays valid. A port that becomes free here is given by the new rules only. Blocks are released, and the
//! change is over, only after fast paths have released the flows of ended sessions ([`crate::feed`]).

use super::statics_of;
use crate::base::plan::{Plan, StaticBinding, Transport};
use crate::path::rules::{Instance, Rules};
use crate::tables::bib::{PoolAddress, Tables};
use crate::tables::event::EventKind;
use crate::tables::session::{Inside, RecordId, Session};
use crate::tables::subscriber::SubscriberKey;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Sessions, bindings and blocks that a change of the configuration has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Sessions.
    pub sessions: u64,
    /// Bindings.
    pub bindings: u64,
    /// Port blocks taken from their subscribers.
    pub blocks: u64,
    /// Static bindings that could not be created because no record was free.
    pub static_bindings_refused: u64,
}

/// Cost of an address, in ended sessions.
const ADDRESS_COST: usize = 8;

/// Address: its pool, and its number there.
pub(crate) type PoolAddressNumber = (usize, u32);

/// Work that follows a change of the configuration, prepared in advance, and its progress.
#[derive(Default)]
pub(crate) struct Transition {
    pub(crate) added: Vec<PoolAddressNumber>,
    pub(crate) leaving: Vec<PoolAddressNumber>,
    /// Removed and new static bindings, with the numbers of their instances.
    pub(crate) statics_gone: Vec<(u8, StaticBinding)>,
    pub(crate) statics_new: Vec<(u8, StaticBinding)>,
    /// True if some inside hosts are no longer served.
    pub(crate) rechecks: bool,
    /// Subscribers that have moved to another worker, in order.
    pub(crate) moved: Vec<SubscriberKey>,
    task: Task,
    /// True if a fast path has to release a flow before the next thing can be done.
    waits: bool,
    done: Settled,
}

/// Next task. Numbers are indices into the lists of [`Transition`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Task {
    Added(usize),
    /// Sessions through a removed static binding.
    StaticSessions(usize),
    StaticGone(usize),
    /// Bindings of a removed address, from a transport and port on.
    Bindings(usize, usize, u16),
    /// Blocks of that address, from a number on.
    Blocks(usize, u32),
    Recheck(RecordId),
    StaticNew(usize),
    /// The release of flows that fast paths have, of what has ended so far; then the next thing.
    Released(Next),
    #[default]
    Done,
}

/// The next thing to do after a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Blocks,
    Done,
}

/// Waits for fast paths that may have flows of what has ended.
fn wait(tables: &mut Tables, next: Next) -> Task {
    tables.begin_wait();
    Task::Released(next)
}

impl Transition {
    /// Compares two plans: the static bindings and sessions that the change concerns.
    pub(crate) fn between(old: &Plan, new: &Plan) -> Transition {
        let key = |(instance, b): (u8, &StaticBinding)| (instance, b.transport, b.inside, b.outside);
        let of_key =
            |(instance, transport, inside, outside)| (instance, StaticBinding { transport, inside, outside });
        let (a, b): (BTreeSet<_>, BTreeSet<_>) =
            (statics_of(old).map(key).collect(), statics_of(new).map(key).collect());
        Transition {
            statics_gone: a.difference(&b).copied().map(of_key).collect(),
            statics_new: b.difference(&a).copied().map(of_key).collect(),
            rechecks: rechecks(old, new),
            ..Transition::default()
        }
    }

    /// Returns whether it can end any session.
    pub(crate) fn may_end_any(&self) -> bool {
        let s = self;
        let lists = [s.leaving.len(), s.statics_gone.len(), s.statics_new.len(), s.moved.len()];
        s.rechecks || lists.iter().any(|len| *len > 0)
    }

    /// Begins with the first task.
    pub(crate) fn begin(&mut self) {
        (self.task, self.done) = (Task::Added(0), Settled::default());
    }

    /// Returns whether a change still has work left.
    #[inline]
    pub(crate) fn is_under_way(&self) -> bool {
        self.task != Task::Done
    }

    /// Sessions, bindings and blocks that the last change has ended so far.
    pub(crate) fn ended(&self) -> Settled {
        self.done
    }

    /// Does a part of the work, and ends at most about `budget` sessions. Returns whether more can be done at
    /// once.
    #[inline]
    pub(crate) fn advance(&mut self, tables: &mut Tables, rules: &Rules, budget: usize) -> bool {
        self.is_under_way() && self.advance_some(tables, rules, budget)
    }

    #[cold]
    fn advance_some(&mut self, tables: &mut Tables, rules: &Rules, budget: usize) -> bool {
        let mut budget = tables.end_budget(budget);
        let before = (tables.session_count(), tables.binding_count());
        self.waits = false;
        while budget > 0 && self.task != Task::Done {
            self.task = match self.task {
                Task::Added(n) => self.open_added(tables, n, &mut budget),
                Task::StaticSessions(n) => self.end_static_sessions(tables, n, &mut budget),
                Task::StaticGone(n) => self.end_static(tables, n, &mut budget),
                Task::Bindings(n, t, port) => self.end_bindings(tables, (n, t, port), &mut budget),
                Task::Blocks(n, from) => self.end_blocks(tables, n, from, &mut budget),
                Task::Recheck(id) => self.recheck(tables, rules, id, &mut budget),
                Task::StaticNew(n) => self.make_static(tables, n, &mut budget),
                Task::Released(_) if tables.is_waiting() => {
                    self.wait_for_release(&mut budget);
                    self.task
                }
                Task::Released(Next::Blocks) => Task::Blocks(0, 0),
                Task::Released(Next::Done) | Task::Done => Task::Done,
            };
        }
        let ended = |before: usize, now: usize| before.saturating_sub(now) as u64;
        self.done.sessions += ended(before.0, tables.session_count());
        self.done.bindings += ended(before.1, tables.binding_count());
        if self.task == Task::Done {
            tables.pools.iter_mut().for_each(|pool| pool.settled());
        }
        self.is_under_way() && !self.waits
    }

    fn wait_for_release(&mut self, budget: &mut usize) {
        self.waits = true;
        *budget = 0;
    }

    fn open_added(&mut self, tables: &mut Tables, n: usize, budget: &mut usize) -> Task {
        let Some(&(pool, ix)) = self.added.get(n) else { return Task::StaticSessions(0) };
        *budget = budget.saturating_sub(ADDRESS_COST);
        if let Some(pool) = tables.pools.get_mut(pool) {
            pool.open_address(ix);
        }
        Task::Added(n + 1)
    }

    /// Primary record of a removed static binding.
    fn static_gone(&self, tables: &Tables, n: usize) -> Option<(Inside, Option<RecordId>)> {
        let (instance, b) = self.statics_gone.get(n)?;
        let ((addr, port), transport) = (b.inside, b.transport);
        let inside = Inside { addr, port, transport, instance: *instance };
        let primary = tables.binding_of(&inside).filter(|&id| tables.get(id).outside() == b.outside);
        Some((inside, primary))
    }

    /// Ends the sessions through a binding of the configuration.
    fn end_static_sessions(&mut self, tables: &mut Tables, n: usize, budget: &mut usize) -> Task {
        let Some((_, primary)) = self.static_gone(tables, n) else { return Task::StaticGone(0) };
        match primary {
            Some(primary) if !tables.end_ring(primary, budget) => Task::StaticSessions(n),
            _ => Task::StaticSessions(n + 1),
        }
    }

    /// Ends a binding of the configuration, and sessions that were opened through it meanwhile.
    fn end_static(&mut self, tables: &mut Tables, n: usize, budget: &mut usize) -> Task {
        let Some((inside, primary)) = self.static_gone(tables, n) else { return Task::Bindings(0, 0, 0) };
        let (Inside { transport, instance, .. }, Some(primary)) = (inside, primary) else {
            return Task::StaticGone(n + 1);
        };
        if !tables.end_ring(primary, budget) {
            return Task::StaticGone(n);
        }
        let Some(anchor) = tables.binding_of(&inside).filter(|&id| tables.get(id).is_anchor()) else {
            return Task::StaticGone(n + 1);
        };
        let record = *tables.get(anchor);
        if record.next != anchor {
            self.wait_for_release(budget);
            return Task::StaticGone(n);
        }
        tables.unlink(anchor, false);
        let pool = tables.pool_of(instance);
        if let Some(pool) = tables.pools.get_mut(pool) {
            pool.unbar(transport, record.address_ix, record.outside_port);
        }
        Task::StaticGone(n + 1)
    }

    /// Ends the bindings of an address that may not stay under its new rules.
    fn end_bindings(
        &mut self,
        tables: &mut Tables,
        (n, t, port): (usize, usize, u16),
        budget: &mut usize,
    ) -> Task {
        let Some(&at) = self.leaving.get(n) else {
            return if self.leaving.is_empty() { Task::Recheck(1) } else { wait(tables, Next::Blocks) };
        };
        let next = |t, port: u16| port.checked_add(1).map_or((t + 1, 0), |port| (t, port));
        let (mut t, mut port) = (t, port);
        while *budget > 0 {
            let Some(&transport) = Transport::ALL.get(t) else { return Task::Bindings(n + 1, 0, 0) };
            let used = tables.pools.get(at.0).and_then(|pool| pool.next_used(transport, at.1, port));
            let Some(used) = used else {
                (t, port) = (t + 1, 0);
                continue;
            };
            port = used;
            *budget -= 1;
            if !self.may_stay(tables, at, transport, port) {
                let place = PoolAddress { pool: at.0, address_ix: at.1 };
                let ended =
                    tables.binding_at(place, transport, port).is_none_or(|id| tables.end_ring(id, budget));
                if !ended {
                    break;
                }
            }
            (t, port) = next(t, port);
        }
        Task::Bindings(n, t, port)
    }

    /// Returns whether a used port of an address may stay in use. Held ports and those of static bindings
    /// may.
    fn may_stay(&self, tables: &Tables, at: PoolAddressNumber, transport: Transport, port: u16) -> bool {
        let place = PoolAddress { pool: at.0, address_ix: at.1 };
        let Some(id) = tables.binding_at(place, transport, port) else { return true };
        if tables.get(id).is_of_static() {
            return true;
        }
        let subscriber = tables.subscribers.get(tables.get(id).subscriber);
        let prefix = subscriber.map_or(0, |s| s.key().prefix);
        tables.pools.get(at.0).is_some_and(|pool| pool.may_keep(transport, at.1, port, prefix))
    }

    /// Takes the blocks of an address from owners that may not keep them. Then the address follows its new
    /// rules.
    fn end_blocks(&mut self, tables: &mut Tables, n: usize, from: u32, budget: &mut usize) -> Task {
        let Some(&(number, ix)) = self.leaving.get(n) else { return Task::Recheck(1) };
        let mut from = from;
        while *budget > 0 {
            *budget -= 1;
            let Some(pool) = tables.pools.get_mut(number) else { break };
            let Some(owner) = pool.next_eviction(ix, &mut from) else {
                pool.open_address(ix);
                *budget = budget.saturating_sub(ADDRESS_COST);
                return Task::Blocks(n + 1, 0);
            };
            // A subscriber with a block keeps its record.
            let Some(s) = tables.subscribers.get_mut(owner) else {
                from += 1;
                continue;
            };
            let (key, block) = (s.key(), pool.evict(tables.now, ix, from, &mut s.holdings));
            self.done.blocks += 1;
            if let Some(block) = block {
                tables.notify_block(EventKind::BlockReleased, key.instance, key, &block);
            }
            tables.subscribers.release_if_idle(owner);
        }
        Task::Blocks(n, from)
    }

    /// Ends the session of a record if its inside host is no longer served, or not to its destination.
    fn recheck(&mut self, tables: &mut Tables, rules: &Rules, id: RecordId, budget: &mut usize) -> Task {
        let rechecks = self.rechecks || !self.moved.is_empty();
        if !rechecks || id >= tables.high() {
            return Task::StaticNew(0);
        }
        *budget -= 1;
        let session = *tables.get(id);
        if !session.is_session() {
            return Task::Recheck(id + 1);
        }
        let Some((all, this)) = self.ends_by_rules(tables, rules, &session) else {
            return Task::Recheck(id + 1);
        };
        if all && !session.is_overloaded() {
            // All sessions of the binding end: otherwise a new one could be opened through it after this
            // check.
            if !tables.end_ring(id, budget) {
                return Task::Recheck(id);
            }
        } else if all || this {
            tables.close(id);
        }
        Task::Recheck(id + 1)
    }

    /// Returns whether all sessions of the inside host end, and whether this one ends.
    pub(crate) fn ends_by_rules(
        &self,
        tables: &Tables,
        rules: &Rules,
        session: &Session,
    ) -> Option<(bool, bool)> {
        let served = session.inside_addr();
        let (all, this) = match rules.get(session.instance)? {
            Instance::Nat64(nat) => (!nat.accepts(served), !nat.is_served(session.pool6)),
            Instance::Nat44(nat) => {
                (!served.to_ipv4_mapped().is_some_and(|a| nat.serves(a)), rules.exempts(session))
            }
        };
        Some((all || self.has_moved(tables, session), this))
    }

    /// Returns whether a session's subscriber has moved to another worker.
    fn has_moved(&self, tables: &Tables, session: &Session) -> bool {
        let is_listed = |key| self.moved.binary_search(&key).is_ok();
        !self.moved.is_empty()
            && tables.subscribers.get(session.subscriber).is_some_and(|s| is_listed(s.key()))
    }

    /// Creates a new static binding. Sessions and blocks in its way end first.
    fn make_static(&mut self, tables: &mut Tables, n: usize, budget: &mut usize) -> Task {
        let Some((instance, b)) = self.statics_new.get(n).copied() else {
            return if self.may_end_any() { wait(tables, Next::Done) } else { Task::Done };
        };
        *budget -= 1;
        let ((addr, port), transport) = (b.inside, b.transport);
        let inside = Inside { addr, port, transport, instance };
        if tables.binding_of(&inside).is_some_and(|id| !tables.end_ring(id, budget)) {
            return Task::StaticNew(n);
        }
        if let Some(place) = tables.locate(b.outside.0)
            && !self.make_way(tables, place, (transport, b.outside.1), budget)
        {
            return Task::StaticNew(n);
        }
        if tables.add_binding(instance, &b).is_err() {
            self.done.static_bindings_refused += 1;
        }
        Task::StaticNew(n + 1)
    }

    /// Ends the binding with a port, and the block that contains the port. Returns `false` if it has to
    /// continue later.
    fn make_way(
        &mut self,
        tables: &mut Tables,
        place: PoolAddress,
        (transport, port): (Transport, u16),
        budget: &mut usize,
    ) -> bool {
        let at = (place.pool, place.address_ix);
        let Some(pool) = tables.pools.get(place.pool) else { return true };
        let owner = pool.in_the_way(transport, at.1, port);
        let (mut first, mut last, mut transports) = pool.extent(transport, port);
        if owner.is_none() {
            (first, last) = (port, port);
            transports = core::array::from_fn(|t| t == transport as usize);
        }
        for t in Transport::ALL.into_iter().filter(|t| *t.of(&transports)) {
            let mut from = first;
            loop {
                let used = tables.pools.get(at.0).and_then(|pool| pool.next_used(t, at.1, from));
                let Some(used) = used.filter(|&used| used <= last) else { break };
                let is_static =
                    |id: &RecordId| tables.get(*id).is_of_static() && (t, used) != (transport, port);
                let holder = tables.binding_at(place, t, used).filter(|id| !is_static(id));
                if holder.is_some_and(|id| !tables.end_ring(id, budget)) {
                    return false;
                }
                if tables.is_held(place, t, used) {
                    self.wait_for_release(budget);
                    return false;
                }
                let Some(next) = used.checked_add(1) else { break };
                from = next;
            }
        }
        let Some(pool) = tables.pools.get_mut(at.0) else { return true };
        let owner = pool.in_the_way(transport, at.1, port);
        let holder = owner.and_then(|id| tables.subscribers.get_mut(id));
        let key = holder.as_ref().map(|s| s.key());
        let holdings = holder.map(|s| &mut s.holdings);
        let ended = pool.clear_block(tables.now, (transport, at.1, port), holdings);
        if let (Some(block), Some(key), Some(owner)) = (ended, key, owner) {
            self.done.blocks += 1;
            tables.notify_block(EventKind::BlockReleased, key.instance, key, &block);
            tables.subscribers.release_if_idle(owner);
        }
        true
    }
}

/// Returns whether sessions of some inside hosts, or to some destinations, may have to end.
fn rechecks(old: &Plan, new: &Plan) -> bool {
    let of64 = old.nat64.iter().zip(&new.nat64).any(|(a, b)| a.sources != b.sources || a.pool6 != b.pool6);
    of64 || old.nat44.iter().zip(&new.nat44).any(|(a, b)| a.inside != b.inside || a.exempt != b.exempt)
}
