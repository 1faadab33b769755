//! Change of the plan of a running engine (pools, limits, timers, mappings) without a restart. No packet
//! waits for it.
//!
//! ```text
//!   Nat::outline      describes the engine                   between bursts; cheap
//!   Change::prepare   builds the new state, or refuses       on another thread; the engine continues
//!   Nat::apply        swaps the states at once               between bursts; no allocation
//!   Nat::expire       ends sessions that may not stay        a part after each burst
//!   drop(Change)      frees the previous state               on another thread
//! ```
//! If a change needs a restart, it is refused as a whole before anything has changed
//! ([`Difference::restarts`]). Sessions that the change does not concern are not touched. State that ends,
//! ends as at its expiry: with events, and counted ([`Settled`]).

mod compare;
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
use crate::tables::entry_counts::EntryCounts;
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
use gatun_wire::text::group;
use transition::Transition;

pub use difference::Difference;
pub use forecast::Forecast;
pub use transition::Settled;

/// Outline of a running engine: enough to prepare a change for it.
pub struct Outline {
    generation: u64,
    pools: Vec<PoolOutline>,
    /// Indexed by NAT64 instance: all prefixes that it has had, by number.
    pool6: Vec<Vec<Prefix64>>,
    sessions_max: u32,
    subscribers_max: u32,
    static_bindings_max: u32,
}

impl Outline {
    /// Returns all prefixes that a NAT64 instance has had, by number.
    pub fn prefixes(&self, instance: u8) -> &[Prefix64] {
        self.pool6.get(usize::from(instance)).map_or(&[], Vec::as_slice)
    }
}

/// Reason why a running engine cannot change to a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Changes that need a restart.
    Restart(Vec<String>),
    /// The plan contradicts itself, or memory is short.
    Build(BuildError),
}

/// Reason why a change cannot be applied at this moment. The change itself is not modified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyError {
    /// The previous change has not ended all its sessions yet: try again soon.
    Settling,
    /// The engine has changed since the outline was made: prepare it again.
    Outdated,
}

/// Origin of a pool.
// There is one per pool, so its size does not matter.
#[allow(clippy::large_enum_variant)]
enum Source {
    /// The pool of this number.
    Kept(usize, PoolChange),
    New(Option<Pool4State>),
}

/// Prepared state for another plan of a running engine. After `Nat::apply` it contains the previous state:
/// drop it in a thread that delays no packet.
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
    /// Preallocated lists of the previous pools, and of the pools in their new order.
    before: Vec<Option<Pool4State>>,
    after: Vec<Pool4State>,
    subscribers_made_for: u32,
}

impl Change {
    /// Prepares the change of the engine of `outline` from the plan `old` to the plan `new`.
    ///
    /// # Errors
    /// Returns the changes that need a restart, or the reason why no engine can be built for `new`. Nothing
    /// has changed then.
    pub fn prepare(outline: &Outline, old: &Plan, new: &Plan) -> Result<Change, Refused> {
        let siit = SiitState::all(new).map_err(Refused::Build)?;
        Self::with_siit(outline, old, new, siit)
    }

    /// Same as [`Change::prepare`], for another worker's engine. The engines share constant tables.
    ///
    /// # Errors
    /// Same as [`Change::prepare`].
    pub fn sibling(&self, outline: &Outline, old: &Plan, new: &Plan) -> Result<Change, Refused> {
        Self::with_siit(outline, old, new, Arc::clone(&self.rules.siit))
    }

    /// Adds the subscribers that move to another worker ([`Shares::moved`]), in order. Their sessions end.
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
    /// Returns the limits for which the tables are too small.
    fn too_small_for(&self, new: &Plan) -> Vec<String> {
        let mut restarts = Vec::new();
        let mut at_most = |what: &str, wanted: u32, has: u32| {
            if new.is_stateful() && wanted > has {
                restarts.push(format!("{what} = {wanted}: the tables have room for {}", group(has.into())));
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
                sharding: new.sharding.clone(),
                entries: vec![EntryCounts::default(); pool_of_instance.len()],
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

    /// Applies the change of the tables.
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
            // The capacity was reserved for all pools, and none is missing.
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
    /// Returns its previous number, if it existed, and its room for addresses.
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

/// Returns the outline of an engine, to prepare a change. `generation` is the number of changes of its plan
/// so far.
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

/// Applies a change at the time of the tables, and begins the transition.
///
/// # Errors
/// Returns an error if it was prepared for another `generation` of the rules.
pub(crate) fn apply(
    core: &mut Core,
    transition: &mut Transition,
    generation: u64,
    change: &mut Change,
) -> Result<(), ApplyError> {
    if change.generation != generation {
        return Err(ApplyError::Outdated);
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
    state.tables.feed_plan_changed();
    transition.begin();
    // A part is done at once, so that a few new addresses give ports from the next packet on.
    transition.advance(&mut state.tables, &core.rules, FIRST_BUDGET);
    Ok(())
}

/// Work done while a change is applied, in ended sessions.
const FIRST_BUDGET: usize = 512;
