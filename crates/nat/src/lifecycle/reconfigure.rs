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

mod describe;
mod difference;
mod forecast;
mod pools;
#[cfg(test)]
mod tests;
pub(crate) mod transition;

use crate::base::build_error::BuildError;
use crate::base::plan::{self, Plan, Pool4, StaticBinding};
use crate::base::tally::Tally;
use crate::path::rules::Rules;
use crate::path::siit::SiitState;
use crate::path::state::Core;
use crate::tables::bib::{Gauges, TableRules, Tables};
use crate::tables::feed::Record;
use crate::tables::lives::Lives;
use crate::tables::pool4::Pool4State;
use crate::tables::pool4::change::{PoolChange, PoolOutline};
use crate::tables::ports::address_map::{AddressMap, AddressOwners};
use crate::tables::sizes::holds;
use crate::tables::subscriber::SubscriberKey;
use crate::tables::traffic::TrafficChange;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use gatun_wire::Prefix64;
use transition::Transition;

pub use difference::Difference;
pub use forecast::Forecast;
pub use transition::Settled;

/// Outline of a running engine: enough to prepare a change for it.
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
    /// Changes that need a restart.
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

/// Origin of a pool.
// One a pool: the space does not matter.
#[allow(clippy::large_enum_variant)]
enum Source {
    /// The pool of this number.
    Kept(usize, PoolChange),
    New(Option<Pool4State>),
}

/// Parts that a plan needs and a running engine lacks, ready to be put in place. After
/// `Nat::apply` it is what the engine had: drop it where no packet waits.
pub struct Change {
    generation: u64,
    rules: Rules,
    icmp: plan::IcmpPolicy,
    events: plan::EventPlan,
    tally: Tally,
    tables: TablesChange,
    transition: Transition,
}

/// The part of a change that concerns [`Tables`].
struct TablesChange {
    rules: TableRules,
    pools: Vec<Source>,
    /// Room for the pools before, and in their new order.
    before: Vec<Option<Pool4State>>,
    after: Vec<Pool4State>,
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
        Self::with_siit(outline, old, new, Arc::clone(&self.rules.siit))
    }

    /// Ends the sessions of subscribers that are another worker's from now on ([`Shares::moved`]), in order.
    ///
    /// [`Shares::moved`]: crate::workers::Shares::moved
    pub fn end_moved(&mut self, moved: Vec<SubscriberKey>) {
        self.transition.moved = moved;
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
        let rules = Rules::new(new, siit, &outline.pool6).map_err(Refused::Build)?;
        let mut transition = Transition::between(old, new);
        Ok(Change {
            generation: outline.generation,
            rules,
            icmp: new.icmp.clone(),
            events: new.events,
            tally: Tally::new(new),
            tables: TablesChange::prepare(outline, old, new, &mut transition)?,
            transition,
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
    fn prepare(
        outline: &Outline,
        old: &Plan,
        new: &Plan,
        transition: &mut Transition,
    ) -> Result<Self, Refused> {
        let mut pools = Vec::new();
        let stateful = if new.is_stateful() { new.pools.as_slice() } else { &[] };
        for (number, pool) in stateful.iter().enumerate() {
            let source = Self::source(outline, (old, new), number, pool)
                .map_err(|e| Refused::Build(BuildError(format!("pool {:?}: {e}", pool.name))))?;
            if let Source::Kept(_, change) = &source {
                transition.added.extend(change.added.iter().map(|&ix| (number, ix)));
                let leaving = change.removed.iter().chain(&change.changed);
                transition.leaving.extend(leaving.map(|&ix| (number, ix)));
            }
            pools.push(source);
        }
        let maps = || pools.iter().filter_map(Source::map);
        let addresses = AddressOwners::new(maps()).map_err(Refused::Build)?;
        let (mut before, after) = (Vec::new(), Vec::with_capacity(pools.len()));
        before.resize_with(outline.pools.len(), || None);
        let pool_of_instance: Vec<usize> = new.pools_of_instances().collect();
        let places: Vec<_> = pools.iter().map(|source| source.place(outline)).collect();
        let traffic = TrafficChange::prepare(outline.pools.len(), &places, &pool_of_instance)
            .map_err(|short| Refused::Build(short.into()))?;
        Ok(TablesChange {
            rules: TableRules {
                limits: new.limits,
                addresses,
                lives: vec![Lives::default(); pool_of_instance.len()],
                pool_of_instance,
                gauges: Gauges::new(new),
                traffic,
            },
            pools,
            before,
            after,
            subscribers_made_for: outline.subscribers_max,
        })
    }

    fn source(
        outline: &Outline,
        (old, new): (&Plan, &Plan),
        number: usize,
        pool: &Pool4,
    ) -> Result<Source, crate::tables::ports::address_map::PoolError> {
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
        tables.swap_rules(&mut self.rules);
        for (number, source) in self.pools.iter().enumerate() {
            if let Source::Kept(_, change) = source {
                change.added.iter().for_each(|&ix| tables.address_traffic.reset(number, ix));
            }
        }
    }
}

impl Source {
    /// Its number before, if it was there, and its room for addresses.
    fn place(&self, outline: &Outline) -> (Option<usize>, u32) {
        match self {
            Source::Kept(at, _) => (Some(*at), outline.pools.get(*at).map_or(0, |pool| pool.room)),
            Source::New(pool) => (None, pool.as_ref().map_or(0, Pool4State::room)),
        }
    }

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

/// What has to be known of an engine to prepare a change; `generation` is how often its plan has changed.
pub(crate) fn outline(core: &Core, generation: u64) -> Outline {
    let tables = &core.state.tables;
    let [sessions_max, subscribers_max, static_bindings_max] = tables.made_for();
    Outline {
        generation,
        pools: tables.pools.iter().map(Pool4State::outline).collect(),
        pool6: core.rules.nat64.iter().map(|nat| nat.pool6.clone()).collect(),
        sessions_max,
        subscribers_max,
        static_bindings_max,
    }
}

/// Puts a change in place at the time of the tables, and begins the transition to it.
///
/// # Errors
/// If it was prepared for another `generation` of the rules.
pub(crate) fn apply(
    core: &mut Core,
    transition: &mut Transition,
    generation: u64,
    change: &mut Change,
) -> Result<(), NotNow> {
    if change.generation != generation {
        return Err(NotNow::Outdated);
    }
    core::mem::swap(&mut core.rules, &mut change.rules);
    let state = &mut core.state;
    state.icmp_limit.set(&change.icmp);
    state.fragments.set_per_source_max(change.tables.rules.limits.fragments_per_source);
    state.tables.events.set(&change.events);
    change.tally.go_on_from(&state.tally);
    core::mem::swap(&mut state.tally, &mut change.tally);
    change.tables.apply(&mut state.tables);
    core::mem::swap(transition, &mut change.transition);
    state.tables.feed_push(Record::PlanChanged);
    transition.begin();
    // A little at once: where few addresses come, they give ports from the next packet on.
    transition.advance(&mut state.tables, &core.rules, FIRST_BUDGET);
    Ok(())
}

/// Work done while a change is put in place, in ended sessions.
const FIRST_BUDGET: usize = 512;
