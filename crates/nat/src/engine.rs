//! Translation engine: bursts in, verdicts out.
//!
//! The engine processes a burst in passes: it prefetches the index lines, prefetches the records, then
//! parses, decides and rewrites packet by packet. The results of the first passes are only hints. The last
//! pass looks again, because an earlier packet of the burst may have changed the tables. Nothing parsed is
//! kept from one pass to the next: reading a header again is cheaper than storing it.
//!
//! Operations between bursts are in `operations`.

#[cfg(test)]
mod fast_path_tests;
#[cfg(test)]
mod look_ahead_tests;
mod offload;
mod operations;
mod redirect;
mod standby;
#[cfg(test)]
mod tests;

use crate::base::build_error::BuildError;
use crate::base::counters::Counters;
use crate::base::emit::{Emit, Emitted};
use crate::base::plan::{Limits, Plan};
use crate::base::rng::Rng;
use crate::base::tally::Tally;
use crate::base::time::{Instant, SteadyClock};
use crate::base::verdict::Verdict;
use crate::lifecycle::reconfigure::transition::Transition;
use crate::lifecycle::sweep::Sweep;
use crate::lifecycle::take_over::FinishedInheritance;
use crate::path::look_ahead::{self, Hint, SessionOpens};
use crate::path::redirect::{before_fenced, drop_silently};
use crate::path::rules::Rules;
use crate::path::siit::SiitState;
use crate::path::state::{Core, EngineState, Scratch};
use crate::path::translate::translate;
use crate::tables::bib::Tables;
use crate::tables::event::EventReader;
use crate::tables::fragment::Fragments;
use crate::tables::icmp_limit::IcmpLimit;
use crate::tables::ident::Idents;
use crate::tables::inheritance::RestoreProgress;
use crate::tables::path_mtu::Paths;
use crate::tables::pool4::Pool4State;
use crate::tables::session_file::SessionFile;
use crate::tables::sizes::filters_by_address;
use crate::tables::subscriber::Subscribers;
use crate::tables::syn_store::SynStore;
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use gatun_mem::hash::Hasher64;
use gatun_wire::{DropReason, Packet};

pub use crate::base::verdict::BURST;

/// Translation engine: state and counters. Each core has one and shares nothing.
pub struct Nat {
    core: Core,
    sweep: Sweep,
    clock: SteadyClock,
    hints: Box<[Hint; BURST]>,
    opens: Box<SessionOpens>,
    /// Number of changes of the plan so far.
    generation: u64,
    /// Work that the last change of the plan has left.
    transition: Transition,
    /// Results of inherited sessions, and the number of those that wait.
    progress: RestoreProgress,
    finished: Option<FinishedInheritance>,
}

/// Longest interval between two checks of a pending change, ms.
const WAIT_MS: u32 = 100;

/// Gauges in addition to the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Sessions.
    pub sessions: usize,
    /// Bindings (BIB entries), including static ones.
    pub bindings: usize,
    /// Subscribers with state.
    pub subscribers: usize,
    /// Held unsolicited SYNs.
    pub held_syns: usize,
    /// Ended sessions whose public ports wait for a fast path ([`crate::feed`]).
    pub quarantined: usize,
}

impl Nat {
    /// Builds an engine for `plan` and allocates all memory. `seed` keys the hashes and the choice of ports,
    /// so it must not be guessable.
    ///
    /// # Errors
    ///
    /// Returns an error if the plan contradicts itself, or if memory is short.
    pub fn new(plan: &Plan, seed: [u64; 4]) -> Result<Self, BuildError> {
        Self::build(plan, seed, SiitState::all(plan)?, None)
    }

    /// Same as [`new`](Self::new), with the sessions in a file, so that they outlive the process.
    ///
    /// # Errors
    /// Same as [`new`](Self::new).
    pub fn with_session_file(
        plan: &Plan,
        seed: [u64; 4],
        file: Option<SessionFile>,
    ) -> Result<Self, BuildError> {
        Self::build(plan, seed, SiitState::all(plan)?, file)
    }

    /// Builds another worker's engine for the plan of this one. The new engine has its own state and shares
    /// all constant tables: a million mappings are in memory once.
    ///
    /// # Errors
    /// Same as [`new`](Self::new).
    pub fn sibling(
        &self,
        plan: &Plan,
        seed: [u64; 4],
        file: Option<SessionFile>,
    ) -> Result<Self, BuildError> {
        Self::build(plan, seed, Arc::clone(&self.core.rules.siit), file)
    }

    /// Sets the number of this engine's worker (from 0) among `workers` that translate for the same
    /// addresses, so that their IPv4 identifications are disjoint (RFC 6864). Call it before the first
    /// packet; it works for up to 256 workers.
    pub fn set_worker(&mut self, worker: usize, workers: usize) {
        self.core.state.idents.share(worker, workers);
    }

    fn build(
        plan: &Plan,
        seed: [u64; 4],
        siit: Arc<[SiitState]>,
        file: Option<SessionFile>,
    ) -> Result<Self, BuildError> {
        let rules = Rules::new(plan, siit, &[])?;
        let state = build_state(plan, seed, file)?;
        Ok(Nat {
            core: Core { rules, state, scratch: Scratch::new() },
            sweep: Sweep::default(),
            clock: SteadyClock::default(),
            hints: Box::new([Hint::None; BURST]),
            opens: Box::default(),
            generation: 0,
            transition: Transition::default(),
            progress: RestoreProgress::default(),
            finished: None,
        })
    }

    /// Translates up to [`BURST`] packets in place and writes a verdict for each. Returns the number of
    /// packets processed. It is less than given if the buffers for emitted packets are full, or the shard of
    /// a packet may not be translated any more: send the emitted packets, then call again with the rest.
    pub fn process(&mut self, now: Instant, burst: &mut [Packet<'_>], verdicts: &mut [Verdict]) -> usize {
        let mut n = burst.len().min(verdicts.len()).min(BURST);
        let now = self.clock.at(now);
        let Nat { core, hints, opens, .. } = self;
        if core.state.tables.standby.has_fenced(now) {
            n = before_fenced(core, now, burst.get(..n).unwrap_or_default());
            if let (0, Some(packet), Some(verdict)) = (n, burst.first(), verdicts.first_mut()) {
                *verdict = drop_silently(core, packet.len(), packet, DropReason::ShardFenced);
                return 1;
            }
        }
        let (Some(burst), Some(hints)) = (burst.get_mut(..n), hints.get_mut(..n)) else { return 0 };
        core.state.tables.now = now;
        opens.clear();
        if look_ahead::look(core, burst, hints) {
            look_ahead::session_opens(core, burst, hints, opens);
        }
        translate(core, now, burst, (hints, opens), verdicts)
    }

    /// Ends expired state, and examines at most `budget` records. Call it repeatedly, with or
    /// without bursts. Returns the number of milliseconds until the latest time for the next call.
    pub fn expire(&mut self, now: Instant, budget: usize) -> u32 {
        let now = self.at(now);
        let Nat { core, transition, sweep, .. } = self;
        let settling = transition.advance(&mut core.state.tables, &core.rules, budget);
        let leave_alone_ms = sweep.run(core, settling, now, budget);
        // What is left of a change may wait for a fast path.
        if transition.is_under_way() { leave_alone_ms.min(WAIT_MS) } else { leave_alone_ms }
    }

    /// Passes every packet emitted since the last call to `send`, in order of `after`.
    pub fn drain_emitted(&mut self, send: impl FnMut(Emitted<'_>)) {
        self.core.state.emit.drain(send);
    }

    /// Counters of the engine.
    pub fn counters(&self) -> &Counters {
        &self.core.state.counters
    }

    /// Takes the reader of events; works once.
    pub fn take_events(&mut self) -> Option<EventReader> {
        self.core.state.tables.events.take_reader()
    }

    /// Number of events lost because no reader took them in time.
    pub fn events_lost(&self) -> u64 {
        self.core.state.tables.events.lost()
    }

    /// Pools, in the order of the plan.
    pub fn pools(&self) -> &[Pool4State] {
        &self.core.state.tables.pools
    }

    /// Subscribers with state: their sessions, ports and blocks.
    pub fn subscribers(&self) -> &Subscribers {
        &self.core.state.tables.subscribers
    }

    /// Current sessions, bindings, subscribers and held SYNs.
    pub fn occupancy(&self) -> Occupancy {
        let state = &self.core.state;
        Occupancy {
            sessions: state.tables.session_count(),
            bindings: state.tables.binding_count(),
            subscribers: state.tables.subscribers.len(),
            held_syns: state.syns.len(),
            quarantined: state.tables.quarantined(),
        }
    }

    /// Sets the engine's time to `now` and passes it to the tables.
    fn at(&mut self, now: Instant) -> Instant {
        let now = self.clock.at(now);
        self.core.state.tables.now = now;
        now
    }
}

/// Builds an engine's state for a plan: all its tables, empty except for static bindings.
fn build_state(plan: &Plan, seed: [u64; 4], file: Option<SessionFile>) -> Result<EngineState, BuildError> {
    let mut rng = Rng::new([seed[3], seed[0], seed[1], seed[2]]);
    let hasher = Hasher64::new(seed);
    let filters = filters_by_address(plan);
    let mut tables = Tables::new(plan, hasher, Rng::new(seed), filters, file.map(|file| file.records))?;
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

/// Adds the static bindings of the configuration.
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

/// Returns the limits for fragments. Without a stateful instance, fragments need no memory.
fn fragment_limits(plan: &Plan) -> Limits {
    if !plan.is_stateful() {
        return Limits { fragment_entries_max: 0, fragment_bytes_max: 0, ..plan.limits };
    }
    plan.limits
}
