//! Stage 1: memory, engines, and the sessions of the previous process.

use super::Start;
use crate::boxes::PreparedBoxes;
use crate::cluster;
use crate::fastpath::{self, FastPathDirectory};
use crate::reload::SharedPlans;
use crate::takeover::{self, RestoredSessions, SessionStore};
use crate::{Settings, Setup, memory, peer, seed};
use anyhow::Context as _;
use gatun_api::types::TablePages;
use gatun_nat::workers::Shares;
use gatun_nat::{Nat, Plan};
use gatun_worker::exchange::{Exchange, exchange};
use std::fs::File;
use std::thread;

/// Largest number of threads that allocate memory: more wait for each other in the kernel.
const THREADS_MAX: usize = 8;

/// Process with memory, engines and the sessions of the previous process.
pub(super) struct Prepared {
    pub(super) start: Start,
    pub(super) built: Built,
    pub(super) session_store: Option<SessionStore>,
    pub(super) restored: Option<RestoredSessions>,
    /// Files of the session records.
    pub(super) records: Vec<File>,
    pub(super) pages: TablePages,
    /// Directory of the kernel fast path, and whether its sessions can be those of the previous process.
    pub(super) fastpath: (FastPathDirectory, bool),
    pub(super) boxes: PreparedBoxes,
}

impl Prepared {
    /// Allocates memory and builds engines before any device is created: a daemon without room for its tables
    /// leaves no trace.
    ///
    /// # Errors
    /// Returns an error if memory is short, or the directory of sessions cannot be used.
    pub(super) fn new(setup: Setup) -> anyhow::Result<Prepared> {
        let (mut start, forget) = Start::new(setup);
        let Start { settings, user, clock, notes, .. } = &mut start;
        // Page faults could fail or delay packets later.
        gatun_mem::take_at_once(thread::available_parallelism().map_or(1, |n| n.get().min(THREADS_MAX)));
        let mut session_store = takeover::open(settings, user.as_ref(), (*clock, forget), notes)?;
        let mut built = build(settings, session_store.as_mut(), notes)?;
        // A reload leaves the other processors to the workers.
        gatun_mem::take_at_once(1);
        let records = session_store.as_ref().map(SessionStore::files).unwrap_or_default();
        let pages = memory::pages(&records).unwrap_or_default();
        settings.control.facts.pages = pages.clone();
        notes.extend(memory::describe(&pages, &settings.needs));
        let directory = fastpath::prepare(&settings.fastpath);
        let fits = session_store.as_ref().is_some_and(|store| store.fits(&settings.plan));
        let shared = built.shared_plans.as_ref().map(|shared_plans| &shared_plans.steering);
        let boxes = PreparedBoxes::new(settings, shared, session_store.as_ref())?;
        let restored = session_store.as_ref().and_then(|session_store| {
            let steering = built.shared_plans.as_ref().map(|shared_plans| &*shared_plans.steering);
            session_store.take_over(&settings.plan, &mut built.engines, steering, *clock)
        });
        let fastpath = (directory, fits);
        Ok(Prepared { start, built, session_store, restored, records, pages, fastpath, boxes })
    }
}

/// Engine of each worker, and the exchange of packets if several share a stateful translator, or if it is a
/// node of a cluster.
pub(super) struct Built {
    pub(super) engines: Vec<Nat>,
    pub(super) exchange: Vec<Exchange>,
    pub(super) shared_plans: Option<SharedPlans>,
}

fn build(
    settings: &Settings,
    mut session_store: Option<&mut SessionStore>,
    notes: &mut Vec<String>,
) -> anyhow::Result<Built> {
    let (plan, workers) = (&*settings.plan, settings.ports.workers());
    let is_alone = workers <= 1 && plan.shards.is_none();
    if is_alone || !plan.is_stateful() {
        let plans = vec![plan; workers];
        find_memory(&plans, settings, session_store.as_deref_mut(), notes)?;
        let engines = build_engines(&plans, session_store, settings.has_other_boxes())?;
        return Ok(Built { engines, exchange: Vec::new(), shared_plans: None });
    }
    let common = peer::seed(settings)?;
    let shares = match session_store.as_mut() {
        Some(session_store) => session_store.share(plan, workers, seed()?, common),
        None => Shares::new(plan, workers, common.map_or_else(seed, Ok)?),
    };
    let shares = shares.map_err(|e| anyhow::anyhow!("{}", e.0))?;
    let plans: Vec<&Plan> = shares.plans.iter().collect();
    find_memory(&plans, settings, session_store.as_deref_mut(), notes)?;
    let engines = build_engines(&plans, session_store, settings.has_other_boxes())?;
    let shared_plans = SharedPlans::new(shares);
    let mut exchange =
        exchange(workers, &shared_plans.steering).context("cannot create the exchange between workers")?;
    let closed = settings.cluster.as_ref().map(cluster::closed);
    exchange.iter_mut().for_each(|part| part.redirect_by(&mut closed.clone()));
    Ok(Built { engines, exchange, shared_plans: Some(shared_plans) })
}

/// Checks that there is memory for the engines of these plans. Gives up the previous process's sessions if
/// there is not enough for both.
fn find_memory(
    plans: &[&Plan],
    settings: &Settings,
    session_store: Option<&mut SessionStore>,
    notes: &mut Vec<String>,
) -> anyhow::Result<()> {
    let left = session_store.as_ref().map(|session_store| session_store.left_bytes());
    if memory::check(plans, settings, left)? == memory::MemoryFit::WithoutPrevious
        && let Some(session_store) = session_store
    {
        session_store.give_up();
        notes.push(
            "the previous process's sessions have ended: there is not enough memory for them and new ones"
                .to_owned(),
        );
    }
    Ok(())
}

/// Builds an engine for each plan. If other boxes have its sessions, too, it assigns no port before their
/// thread has begun.
fn build_engines(
    plans: &[&Plan],
    mut session_store: Option<&mut SessionStore>,
    has_others: bool,
) -> anyhow::Result<Vec<Nat>> {
    let mut engines: Vec<Nat> = Vec::new();
    for plan in plans {
        let session_file =
            session_store.as_mut().map(|session_store| session_store.session_file(plan)).transpose()?;
        let nat = match engines.first() {
            None => Nat::with_session_file(plan, seed()?, session_file),
            Some(first) => first.sibling(plan, seed()?, session_file),
        };
        let mut nat = nat.map_err(|e| anyhow::anyhow!("cannot build the engine: {}", e.0))?;
        if has_others {
            nat.begin_standby();
        }
        engines.push(nat);
    }
    Ok(engines)
}
