//! Another plan for an engine that runs: other pools, limits, timers, mappings, without a restart, and without a
//! packet that waits for it.
//!
//! ```text
//!   Nat::outline      what the engine has, cheaply          at a burst edge
//!   Change::prepare   everything new is made, or refused    on another thread; the engine goes on
//!   Nat::apply        new for old, at once                  at a burst edge; no allocation
//!   Nat::expire       ends what may not stay                a little after each burst
//!   drop(Change)      what was before is freed              on another thread
//! ```
//! Whatever a running engine cannot do is refused as a whole before anything has changed ([`Difference::restarts`]).
//! Sessions that the change does not concern are not touched. What ends, ends as if its time were up: with its
//! events, and counted ([`Settled`]).

mod difference;
mod forecast;
mod pools;
#[cfg(test)]
mod tests;
mod words;

use crate::Instant;
use crate::Plan;
use crate::base::build_error::BuildError;
use crate::base::plan::{self, Pool4, StaticBinding};
use crate::base::tally::Tally;
use crate::engine::{Nat, suppressed};
use crate::lifecycle::report::Lives;
use crate::path::nat44::Nat44;
use crate::path::nat64::Nat64;
use crate::path::siit::SiitState;
use crate::path::stateful::Instances;
use crate::tables::bib::settle::Settling;
use crate::tables::bib::{Gauges, Tables, holds};
use crate::tables::pool4::Pool4State;
use crate::tables::pool4::change::{PoolChange, PoolOutline};
use crate::tables::pool4::map::{AddressMap, AddressOwners};
use crate::tables::pool6::Owners;
use crate::tables::subscriber::SubscriberKey;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_wire::{DropReason, Prefix64, Settings};

pub use crate::tables::bib::settle::Settled;
pub use difference::Difference;
pub use forecast::Forecast;

/// What has to be known of a running engine to prepare a change for it.
pub struct Outline {
    generation: u64,
    pools: Vec<PoolOutline>,
    /// By NAT64 instance: all prefixes that it has had, by number.
    pool6: Vec<Vec<Prefix64>>,
    sessions_max: u32,
    subscribers_max: u32,
    static_bindings_max: u32,
}

/// Why a plan cannot be that of a running engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// What only a restart can do.
    Restart(Vec<String>),
    /// The plan contradicts itself, or memory is short.
    Build(BuildError),
}

/// Why a change cannot be applied at this moment. It is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotNow {
    /// What the change before ended is not yet all gone: try again soon.
    Settling,
    /// The engine has changed since the outline was made: prepare it again.
    Outdated,
}

/// Where a pool comes from.
// One a pool: the space does not matter.
#[allow(clippy::large_enum_variant)]
enum Source {
    /// The pool of this number.
    Kept(usize, PoolChange),
    New(Option<Pool4State>),
}

/// Everything that a plan needs and a running engine has not, ready to be put in place. After
/// [`Nat::apply`] it is what the engine had: drop it where no packet waits.
pub struct Change {
    generation: u64,
    own4: Option<Ipv4Addr>,
    own6: Option<Ipv6Addr>,
    pooled: Vec<(Ipv4Addr, Ipv4Addr)>,
    nat64: Vec<Nat64>,
    nat44: Vec<Nat44>,
    owners: Owners,
    ruled: bool,
    siit: Arc<[SiitState]>,
    settings: Settings,
    suppressed: [bool; DropReason::COUNT],
    icmp: plan::IcmpPolicy,
    events: plan::EventPlan,
    tally: Tally,
    tables: TablesChange,
}

/// The part of a change that concerns [`Tables`].
pub(crate) struct TablesChange {
    pub(crate) limits: plan::Limits,
    pools: Vec<Source>,
    /// Room for the pools before, and in their new order.
    before: Vec<Option<Pool4State>>,
    after: Vec<Pool4State>,
    pub(crate) addresses: AddressOwners,
    pub(crate) pool_of_instance: Vec<usize>,
    pub(crate) gauges: Gauges,
    /// By instance.
    pub(crate) lives: Vec<Lives>,
    settling: Settling,
    subscribers_made_for: u32,
}

impl Change {
    /// Makes what turns the engine of `outline`, which has been running by `old`, into one that runs by `new`.
    ///
    /// # Errors
    /// What a running engine cannot do, or why there can be no engine for `new`; nothing has changed then.
    pub fn prepare(outline: &Outline, old: &Plan, new: &Plan) -> Result<Change, Refused> {
        let siit = SiitState::all(new).map_err(Refused::Build)?;
        Self::with_siit(outline, old, new, siit)
    }

    /// The same for another worker's engine: what never changes is shared.
    ///
    /// # Errors
    /// As [`Change::prepare`].
    pub fn sibling(&self, outline: &Outline, old: &Plan, new: &Plan) -> Result<Change, Refused> {
        Self::with_siit(outline, old, new, Arc::clone(&self.siit))
    }

    /// Ends the sessions of subscribers that are another worker's from now on ([`Shares::moved`]), in order.
    ///
    /// [`Shares::moved`]: crate::workers::Shares::moved
    pub fn end_moved(&mut self, moved: Vec<SubscriberKey>) {
        self.tables.settling.moved = moved;
    }

    fn with_siit(
        outline: &Outline,
        old: &Plan,
        new: &Plan,
        siit: Arc<[SiitState]>,
    ) -> Result<Change, Refused> {
        let mut restarts = Difference::between(old, new).restarts;
        restarts.extend(outline.too_small_for(new));
        if !restarts.is_empty() {
            return Err(Refused::Restart(restarts));
        }
        crate::engine::check_counts(new).map_err(Refused::Build)?;
        let mut nat64 = Vec::new();
        for (number, plan) in new.nat64.iter().enumerate() {
            let had = outline.pool6.get(number).map_or(&[][..], Vec::as_slice);
            nat64.push(Nat64::with_prefixes(number as u8, plan, &new.nat64, had).map_err(Refused::Build)?);
        }
        let first44 = nat64.len();
        let nat44 = new.nat44.iter().enumerate().map(|(i, n)| Nat44::new((first44 + i) as u8, n)).collect();
        Ok(Change {
            generation: outline.generation,
            own4: new.own4,
            own6: new.own6,
            pooled: new.pooled.clone(),
            owners: Owners::new(&nat64, &new.nat64),
            ruled: new.is_ruled(),
            nat64,
            nat44,
            siit,
            settings: crate::engine::settings(new),
            suppressed: suppressed(&new.icmp),
            icmp: new.icmp.clone(),
            events: new.events,
            tally: Tally::new(new),
            tables: TablesChange::prepare(outline, old, new)?,
        })
    }
}

impl Outline {
    /// Limits for which the tables are too small.
    fn too_small_for(&self, new: &Plan) -> Vec<String> {
        let mut restarts = Vec::new();
        let mut at_most = |what: &str, wanted: u32, has: u32| {
            if new.is_stateful() && wanted > has {
                restarts.push(format!("{what} = {wanted}: the tables were made for {has}"));
            }
        };
        at_most("sessions_max", new.limits.sessions_max, self.sessions_max);
        at_most("subscribers_max", new.limits.subscribers_max, self.subscribers_max);
        let statics = u32::try_from(statics_of(new).count()).unwrap_or(u32::MAX);
        at_most("static bindings", statics, self.static_bindings_max);
        restarts
    }
}

impl TablesChange {
    fn prepare(outline: &Outline, old: &Plan, new: &Plan) -> Result<Self, Refused> {
        let mut pools = Vec::new();
        let mut settling = Settling::default();
        let stateful = if new.is_stateful() { new.pools.as_slice() } else { &[] };
        for (number, pool) in stateful.iter().enumerate() {
            let source = Self::source(outline, (old, new), number, pool)
                .map_err(|e| Refused::Build(BuildError(format!("pool {:?}: {e}", pool.name))))?;
            if let Source::Kept(_, change) = &source {
                settling.added.extend(change.added.iter().map(|&ix| (number, ix)));
                let leaving = change.removed.iter().chain(&change.changed);
                settling.leaving.extend(leaving.map(|&ix| (number, ix)));
            }
            pools.push(source);
        }
        let maps = || pools.iter().filter_map(Source::map);
        let addresses = AddressOwners::new(maps()).map_err(Refused::Build)?;
        statics(old, new, &mut settling);
        settling.judges = judges(old, new);
        let (mut before, after) = (Vec::new(), Vec::with_capacity(pools.len()));
        before.resize_with(outline.pools.len(), || None);
        Ok(TablesChange {
            limits: new.limits,
            pools,
            before,
            after,
            addresses,
            pool_of_instance: new.pools_of_instances().collect(),
            gauges: Gauges::new(new),
            lives: vec![Lives::default(); new.pools_of_instances().count()],
            settling,
            subscribers_made_for: outline.subscribers_max,
        })
    }

    fn source(
        outline: &Outline,
        (old, new): (&Plan, &Plan),
        number: usize,
        pool: &Pool4,
    ) -> Result<Source, crate::tables::pool4::PoolError> {
        let hold = holds(new, number);
        let known = old.pools.iter().position(|known| known.name == pool.name);
        let kept = known.and_then(|at| Some((at, old.pools.get(at)?, outline.pools.get(at)?)));
        match kept {
            Some((at, known, running)) => {
                let change = PoolChange::prepare(running, (known, holds(old, at)), (pool, hold))?;
                Ok(Source::Kept(at, change))
            }
            None => Ok(Source::New(Some(Pool4State::new(pool, hold)?))),
        }
    }

    /// Puts all of it in place.
    fn apply(&mut self, tables: &mut Tables) {
        for (slot, pool) in self.before.iter_mut().zip(tables.pools.drain(..)) {
            *slot = Some(pool);
        }
        for source in &mut self.pools {
            let pool = match source {
                Source::New(pool) => pool.take(),
                Source::Kept(number, change) => {
                    let mut pool = self.before.get_mut(*number).and_then(Option::take);
                    pool.iter_mut().for_each(|pool| pool.change(change));
                    pool
                }
            };
            // As many as were made room for, and none is missing.
            self.after.extend(pool);
        }
        core::mem::swap(&mut tables.pools, &mut self.after);
        tables.swap_rules(self);
        tables.begin_settling(&mut self.settling);
    }
}

impl Source {
    fn map(&self) -> Option<&AddressMap> {
        match self {
            Source::Kept(_, change) => Some(change.map()),
            Source::New(pool) => pool.as_ref().map(Pool4State::map),
        }
    }
}

/// Static bindings of a plan with their instances' numbers.
fn statics_of(plan: &Plan) -> impl Iterator<Item = (u8, &StaticBinding)> {
    let of64 = plan.nat64.iter().map(|n| &n.static_bindings);
    let all = of64.chain(plan.nat44.iter().map(|n| &n.static_bindings));
    (0..=u8::MAX).zip(all).flat_map(|(number, bindings)| bindings.iter().map(move |b| (number, b)))
}

/// Static bindings that come and go.
fn statics(old: &Plan, new: &Plan, settling: &mut Settling) {
    let key = |(instance, b): (u8, &StaticBinding)| (instance, b.transport, b.inside, b.outside);
    let of_key =
        |(instance, transport, inside, outside)| (instance, StaticBinding { transport, inside, outside });
    let (a, b): (BTreeSet<_>, BTreeSet<_>) =
        (statics_of(old).map(key).collect(), statics_of(new).map(key).collect());
    settling.statics_gone = a.difference(&b).copied().map(of_key).collect();
    settling.statics_new = b.difference(&a).copied().map(of_key).collect();
}

/// Whether sessions of some inside hosts, or to some destinations, may not go on.
fn judges(old: &Plan, new: &Plan) -> bool {
    let of64 = old.nat64.iter().zip(&new.nat64).any(|(a, b)| a.sources != b.sources || a.pool6 != b.pool6);
    of64 || old.nat44.iter().zip(&new.nat44).any(|(a, b)| a.inside != b.inside || a.exempt != b.exempt)
}

impl Nat {
    /// What has to be known to prepare a change.
    pub fn outline(&self) -> Outline {
        let tables = &self.core.shared.tables;
        let [sessions_max, subscribers_max, static_bindings_max] = tables.made_for();
        Outline {
            generation: self.generation,
            pools: tables.pools.iter().map(Pool4State::outline).collect(),
            pool6: self.core.nat64.iter().map(|nat| nat.pool6.clone()).collect(),
            sessions_max,
            subscribers_max,
            static_bindings_max,
        }
    }

    /// Puts a change in place, between two bursts. What has to end by it is ended by [`Nat::expire`] in the time
    /// after; until then [`Nat::is_settling`]. Nothing is allocated or freed here.
    ///
    /// # Errors
    /// Where the change before has not settled, or this one was prepared for another state.
    pub fn apply(&mut self, now: Instant, change: &mut Change) -> Result<(), NotNow> {
        if self.is_settling() {
            return Err(NotNow::Settling);
        }
        if change.generation != self.generation {
            return Err(NotNow::Outdated);
        }
        self.generation += 1;
        let now = self.clock.at(now);
        let core = &mut self.core;
        core::mem::swap(&mut core.nat64, &mut change.nat64);
        core::mem::swap(&mut core.nat44, &mut change.nat44);
        core::mem::swap(&mut core.owners, &mut change.owners);
        core.ruled = change.ruled;
        core::mem::swap(&mut core.siit, &mut change.siit);
        core::mem::swap(&mut core.settings, &mut change.settings);
        let shared = &mut core.shared;
        (shared.own4, shared.own6) = (change.own4, change.own6);
        core::mem::swap(&mut shared.pooled, &mut change.pooled);
        shared.suppressed = change.suppressed;
        shared.icmp_limit.set(&change.icmp);
        shared.quota_codes = crate::engine::quota_codes(&change.icmp);
        shared.fragments.set_per_source_max(change.tables.limits.fragments_per_source);
        shared.tables.events.set(&change.events);
        change.tally.go_on_from(&shared.tally);
        core::mem::swap(&mut shared.tally, &mut change.tally);
        shared.tables.now = now;
        change.tables.apply(&mut shared.tables);
        // A little at once: where few addresses come, they give ports from the next packet on.
        shared.tables.settle(Instances { nat64: &core.nat64, nat44: &core.nat44 }, FIRST_BUDGET);
        Ok(())
    }

    /// Whether the last change has left something to end yet.
    pub fn is_settling(&self) -> bool {
        self.core.shared.tables.is_settling() || self.is_inheriting()
    }

    /// What the last change has ended so far.
    pub fn settled(&self) -> Settled {
        self.core.shared.tables.settled()
    }
}

/// What is done of a change's work as it is put in place, in sessions that end.
const FIRST_BUDGET: usize = 512;
