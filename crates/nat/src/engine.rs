//! The engine: bursts in, verdicts out.
//!
//! A burst goes through in passes: ask for the index lines, ask for the records, then parse, decide and
//! rewrite one by one. What the first passes found is only a hint of where to look; the last one looks,
//! because an earlier packet of the burst may have changed the tables. Nothing parsed is kept from one
//! pass to the next: reading a header again is cheaper than storing it.
//!
//! What is done between bursts is in [`operations`].

#[cfg(test)]
mod fast_path_tests;
#[cfg(test)]
mod look_ahead_tests;
mod operations;
#[cfg(test)]
mod tests;

use crate::base::build_error::BuildError;
use crate::base::counters::Counters;
use crate::base::emit::{Emit, Emitted};
use crate::base::plan::{Limits, Plan};
use crate::base::rng::Rng;
use crate::base::tally::Tally;
use crate::base::time::{Instant, Steady};
use crate::base::verdict::Verdict;
use crate::lifecycle::reconfigure::transition::Transition;
use crate::lifecycle::sweep::Sweep;
use crate::lifecycle::take_over::Spent;
use crate::path::look_ahead::{self, Hint, SessionOpens};
use crate::path::rules::Rules;
use crate::path::siit::SiitState;
use crate::path::state::{Core, EngineState, Scratch};
use crate::path::translate::translate;
use crate::tables::bib::Tables;
use crate::tables::event::EventReader;
use crate::tables::fragment::Fragments;
use crate::tables::icmp_limit::IcmpLimit;
use crate::tables::ident::Idents;
use crate::tables::inheritance::Progress;
use crate::tables::kept::Keep;
use crate::tables::path_mtu::Paths;
use crate::tables::pool4::Pool4State;
use crate::tables::sizes::filters_by_address;
use crate::tables::subscriber::Subscribers;
use crate::tables::syn_store::SynStore;
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use gatun_mem::hash::Hasher64;
use gatun_wire::Packet;

pub use crate::base::verdict::BURST;

/// One translator: state and counters. One per core, nothing shared.
pub struct Nat {
    core: Core,
    sweep: Sweep,
    clock: Steady,
    hints: Box<[Hint; BURST]>,
    opens: Box<SessionOpens>,
    /// Number of changes of the plan.
    generation: u64,
    /// Work that the last change of the plan has left.
    transition: Transition,
    /// What became of sessions that were inherited, and what is left of that.
    progress: Progress,
    spent: Option<Spent>,
}

/// Gauges beside the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Sessions.
    pub sessions: usize,
    /// Bindings (BIB entries), static ones too.
    pub bindings: usize,
    /// Subscribers with state.
    pub subscribers: usize,
    /// Unsolicited SYNs that wait.
    pub held_syns: usize,
}

impl Nat {
    /// An engine for `plan`; all memory is allocated here. `seed` keys the hashes and the choice of
    /// ports: it must not be guessable.
    ///
    /// # Errors
    /// If the plan contradicts itself, or memory is short.
    pub fn new(plan: &Plan, seed: [u64; 4]) -> Result<Self, BuildError> {
        Self::build(plan, seed, SiitState::all(plan)?, None)
    }

    /// As [`new`](Self::new), with its sessions in a file, so that they outlive the process.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn keeping(plan: &Plan, seed: [u64; 4], keep: Option<Keep>) -> Result<Self, BuildError> {
        Self::build(plan, seed, SiitState::all(plan)?, keep)
    }

    /// Another worker's engine for the plan that this one was built from. It has state of its own and shares
    /// what never changes: a million mappings are in memory once.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn sibling(&self, plan: &Plan, seed: [u64; 4], keep: Option<Keep>) -> Result<Self, BuildError> {
        Self::build(plan, seed, Arc::clone(&self.core.rules.siit), keep)
    }

    /// Makes this the engine of worker number `worker` (from 0) of `workers` that translate for the same
    /// addresses: their IPv4 identifications are then disjoint (RFC 6864). For up to 256 workers, and before
    /// the first packet.
    pub fn set_worker(&mut self, worker: usize, workers: usize) {
        self.core.state.idents.share(worker, workers);
    }

    fn build(
        plan: &Plan,
        seed: [u64; 4],
        siit: Arc<[SiitState]>,
        keep: Option<Keep>,
    ) -> Result<Self, BuildError> {
        let rules = Rules::new(plan, siit, &[])?;
        let state = build_state(plan, seed, keep)?;
        Ok(Nat {
            core: Core { rules, state, scratch: Scratch::new() },
            sweep: Sweep::default(),
            clock: Steady::default(),
            hints: Box::new([Hint::None; BURST]),
            opens: Box::default(),
            generation: 0,
            transition: Transition::default(),
            progress: Progress::default(),
            spent: None,
        })
    }

    /// Translates up to [`BURST`] packets in place and says what became of each. Returns how many of
    /// them it processed: fewer than given only where the buffers for emitted packets are used up;
    /// send the emitted ones and call again with the rest.
    pub fn process(&mut self, now: Instant, burst: &mut [Packet<'_>], verdicts: &mut [Verdict]) -> usize {
        let n = burst.len().min(verdicts.len()).min(BURST);
        let now = self.clock.at(now);
        let Nat { core, hints, opens, .. } = self;
        let (Some(burst), Some(hints)) = (burst.get_mut(..n), hints.get_mut(..n)) else { return 0 };
        core.state.tables.now = now;
        opens.clear();
        if look_ahead::look(core, burst, hints) {
            look_ahead::session_opens(core, burst, hints, opens);
        }
        match core.rules.ruled {
            false => translate::<false>(core, now, burst, (hints, opens), verdicts),
            true => translate::<true>(core, now, burst, (hints, opens), verdicts),
        }
    }

    /// Ends what is due, looking at no more than `budget` records. Call it again and again, bursts or
    /// not. Returns how many milliseconds it may be left alone at most.
    pub fn expire(&mut self, now: Instant, budget: usize) -> u32 {
        let now = self.at(now);
        let Nat { core, transition, sweep, .. } = self;
        let settling = transition.advance(&mut core.state.tables, &core.rules, budget);
        sweep.run(core, settling, now, budget)
    }

    /// Gives every packet emitted since the last call to `send`, in order of `after`.
    pub fn drain_emitted(&mut self, send: impl FnMut(Emitted<'_>)) {
        self.core.state.emit.drain(send);
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.core.state.counters
    }

    /// The reader of events; once.
    pub fn take_events(&mut self) -> Option<EventReader> {
        self.core.state.tables.events.take_reader()
    }

    /// Events that were lost because nobody read them in time.
    pub fn events_lost(&self) -> u64 {
        self.core.state.tables.events.lost()
    }

    /// The pools, in the order of the plan.
    pub fn pools(&self) -> &[Pool4State] {
        &self.core.state.tables.pools
    }

    /// Subscribers that have state: their sessions, ports and blocks.
    pub fn subscribers(&self) -> &Subscribers {
        &self.core.state.tables.subscribers
    }

    /// Sessions, bindings, subscribers and held SYNs of now.
    pub fn occupancy(&self) -> Occupancy {
        let state = &self.core.state;
        Occupancy {
            sessions: state.tables.session_count(),
            bindings: state.tables.binding_count(),
            subscribers: state.tables.subscribers.len(),
            held_syns: state.syns.len(),
        }
    }

    /// The engine's time at `now`, which the tables have from here on.
    fn at(&mut self, now: Instant) -> Instant {
        let now = self.clock.at(now);
        self.core.state.tables.now = now;
        now
    }
}

/// State of an engine for a plan: all of its tables, empty but for static bindings.
fn build_state(plan: &Plan, seed: [u64; 4], keep: Option<Keep>) -> Result<EngineState, BuildError> {
    let mut rng = Rng::new([seed[3], seed[0], seed[1], seed[2]]);
    let hasher = Hasher64::new(seed);
    let filters = filters_by_address(plan);
    let mut tables = Tables::new(plan, hasher, Rng::new(seed), filters, keep.map(|keep| keep.records))?;
    add_static_bindings(plan, &mut tables)?;
    let syns_max = if plan.is_stateful() { plan.limits.syn_store_max } else { 0 };
    Ok(EngineState {
        tables,
        paths: Paths::new(plan.limits.path_mtus_max, hasher)?,
        syns: SynStore::new(syns_max, hasher)?,
        fragments: Fragments::new(&fragment_limits(plan), seed)?,
        idents: Idents::new(&mut rng),
        icmp_limit: IcmpLimit::new(&plan.icmp, hasher)?,
        counters: Counters::default(),
        tally: Tally::new(plan),
        emit: Emit::new(),
    })
}

/// Reserves what the configuration binds.
fn add_static_bindings(plan: &Plan, tables: &mut Tables) -> Result<(), BuildError> {
    let of64 = plan.nat64.iter().map(|n| ("nat64", &n.name, &n.static_bindings));
    let of44 = plan.nat44.iter().map(|n| ("nat44", &n.name, &n.static_bindings));
    for (instance, (kind, name, bindings)) in of64.chain(of44).enumerate() {
        for (i, b) in bindings.iter().enumerate() {
            tables.add_binding(instance as u8, b).map_err(|why| {
                BuildError(format!("{kind} {name:?}: static binding {}: {}", i + 1, why.help()))
            })?;
        }
    }
    Ok(())
}

/// What follows fragments needs no memory where no instance has state.
fn fragment_limits(plan: &Plan) -> Limits {
    if !plan.is_stateful() {
        return Limits { fragment_entries_max: 0, fragment_bytes_max: 0, ..plan.limits };
    }
    plan.limits
}
