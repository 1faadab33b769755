//! The manager: its state, its turns, and its settings.
//!
//! ```text
//!   offered -> Marking --confirmed--> Waiting --installed--> Installed -> Removing --removed--> released
//! ```
//! Invariants: an entry is in the target only while its session is marked. Each end of an entry goes through
//! `retire`, which lets the target remove it before the engine gets the release.

mod feeds;
mod rounds;
mod table;

use crate::engine::{Engine, Page, RecordStream};
use crate::entries::{Entries, Entry, Slot, State, Token};
use crate::orders::{Order, Orders, Report};
use crate::paths::Paths;
use crate::refusals::Refusals;
use crate::settings::{Rules, Settings};
use crate::status::{Latency, Status};
use crate::target::{OffloadedFlow, Target};
use gatun_nat::feed::{Flow, SessionId, SessionRecord};
use gatun_nat::plan::Transport;
use gatun_worker::jobs::SubmitError;
use hdrhistogram::Histogram;
use std::collections::{HashMap, VecDeque};
use std::net::Ipv6Addr;
use std::time::Duration;

/// Time until the next turn if nothing is in progress, and if something is.
const IDLE: Duration = Duration::from_millis(5);
const BUSY: Duration = Duration::from_millis(1);
/// Part of the lease after which it is renewed.
const LEASE_PART: u32 = 8;

/// Filter of flows that stay with the engines.
pub type FlowFilter = Box<dyn Fn(&Flow) -> bool + Send + Sync>;

/// Progress of the walk over an engine's sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walk {
    /// It has to begin.
    Due,
    /// Nothing has been read yet: the stream waits, until it is known which records are older.
    First,
    /// Some has been read.
    Further,
    /// At its end.
    Over,
}

/// An engine, and what the manager knows of it.
struct Worker<E> {
    engine: E,
    orders: Orders,
    walk: Walk,
    /// Number of the present walk.
    walks: u8,
    /// True if another walk has to follow.
    again: bool,
    /// True if a part of the walk was requested.
    reading: bool,
    page: Option<Page>,
    /// Records of the stream before this one are older than the walk.
    since: u64,
    /// Number of the next record of the stream.
    next: u64,
    /// Number of records that waited at the end of the last turn.
    waiting: usize,
    /// Last time when no record waited.
    empty_at: Duration,
    ended: bool,
}

/// Time after which a target that was full is asked for more room again.
const FULL_FOR: Duration = Duration::from_secs(60);

/// Manager of a fast path: see [the crate](crate).
pub struct Manager<E, T: Target> {
    workers: Vec<Worker<E>>,
    target: T,
    settings: Settings,
    excluded: Option<FlowFilter>,
    rules: Rules,
    paths: Paths,
    /// Time of the last look at the paths.
    paths_at: Duration,
    /// Path MTU that the target has for packets without sessions.
    smallest_path: Option<u16>,
    entries: Entries<T::Id>,
    /// Entries of an earlier process that have not been compared with sessions, with their remote host.
    adopted: HashMap<Flow, (Slot, Option<Ipv6Addr>)>,
    installs: VecDeque<Slot>,
    removals: VecDeque<Slot>,
    /// Entries whose removal the target has not confirmed.
    unremoved: VecDeque<Slot>,
    /// Entries whose installation the target has not confirmed.
    unconfirmed: VecDeque<Token>,
    asked: VecDeque<Slot>,
    /// Number of entries in the target.
    placed: u32,
    /// Number of entries in state `Marking`.
    marking: usize,
    paused: bool,
    /// Next entry that is compared with the settings, if any.
    audit: Option<usize>,
    /// Number of removals after which those are gone that the last comparison has excluded.
    excluded_at: u64,
    /// Number of readings of the target, see [`Target::readings`], when the present round began, and the one
    /// before.
    readings: [Option<u64>; 2],
    /// Time of the last round after a further reading, and the time between the last two.
    paced: (Duration, Duration),
    /// Next entry of the round of credits, the time when the round began, and the time of the last part.
    round: (usize, Duration, Duration),
    /// Next entry to be considered for eviction.
    hand: usize,
    /// Flows that found no place.
    refusals: Refusals,
    /// Number of entries with which the target was full, and when it said so: it may have less room than its
    /// capacity.
    full: Option<(u32, Duration)>,
    leased_at: Option<Duration>,
    /// Time of the last turn.
    now: Duration,
    latency: Histogram<u64>,
    latency_sum: u64,
    status: Status,
}

impl<E: Engine, T: Target> Manager<E, T> {
    /// Creates a manager of the engines of workers 0, 1 and so on. Takes over the entries that the target
    /// has: those whose session is marked stay, the others are removed once all sessions are read.
    ///
    /// The engines must have the marks of these entries, from the same process or by restored sessions.
    /// Otherwise remove all entries before an engine handles its first packet.
    pub fn new(engines: Vec<E>, target: T, settings: Settings) -> Self {
        Self::with_rules(engines, target, settings, Rules::default())
    }

    /// Creates a manager that follows some rules only, for the check that all of them matter.
    #[doc(hidden)]
    pub fn with_rules(engines: Vec<E>, target: T, settings: Settings, rules: Rules) -> Self {
        let worker = |engine| Worker {
            engine,
            orders: Orders::default(),
            walk: Walk::Due,
            walks: 0,
            again: false,
            reading: false,
            page: None,
            since: 0,
            next: 0,
            waiting: 0,
            empty_at: Duration::ZERO,
            ended: false,
        };
        let entries = Entries::new(settings.entries_max.min(target.capacity()));
        let mut manager = Manager {
            workers: engines.into_iter().map(worker).collect(),
            target,
            settings,
            excluded: None,
            rules,
            paths: Paths::default(),
            paths_at: Duration::ZERO,
            smallest_path: None,
            entries,
            adopted: HashMap::new(),
            installs: VecDeque::new(),
            removals: VecDeque::new(),
            unremoved: VecDeque::new(),
            unconfirmed: VecDeque::new(),
            asked: VecDeque::new(),
            placed: 0,
            marking: 0,
            paused: false,
            audit: None,
            excluded_at: 0,
            readings: [None; 2],
            paced: (Duration::ZERO, Duration::ZERO),
            round: (0, Duration::ZERO, Duration::ZERO),
            hand: 0,
            refusals: Refusals::default(),
            full: None,
            leased_at: None,
            now: Duration::ZERO,
            latency: crate::status::histogram(),
            latency_sum: 0,
            status: Status::default(),
        };
        manager.adopt();
        manager.target.set_smallest_path(None);
        manager
    }

    /// Bytes of memory that a manager of a target with room for `entries` entries allocates when it begins.
    pub fn memory_bytes(entries: u32) -> u64 {
        Entries::<T::Id>::memory_bytes(entries)
    }

    /// Does a bounded amount of work. Returns the time after which it should be called again: zero if work is
    /// left. `clock` returns the time since any moment, and never goes back.
    pub fn turn(&mut self, clock: &dyn Fn() -> Duration) -> Duration {
        let now = clock();
        self.now = now;
        if self.leased_at.is_none_or(|at| now.saturating_sub(at) >= self.settings.lease / LEASE_PART) {
            self.target.renew_lease(self.settings.lease);
            self.leased_at = Some(now);
        }
        self.target.turn(now);
        let mut is_busy = false;
        for worker in 0..self.workers.len() {
            is_busy |= self.hear(worker, now);
        }
        self.answer_questions();
        self.remove_some();
        self.confirm_some(clock);
        self.install_some(clock);
        self.audit_some();
        self.credit_some(now);
        self.set_smallest_path(now);
        for worker in 0..self.workers.len() {
            self.send(worker, now);
        }
        self.workers.iter_mut().for_each(|worker| worker.waiting = worker.engine.stream().waiting());
        self.next_turn(is_busy)
    }

    fn next_turn(&self, is_busy: bool) -> Duration {
        let can_install = !self.paused && !self.installs.is_empty() && self.placed < self.target.capacity();
        let is_left = can_install
            || !self.removals.is_empty()
            || self.audit.is_some()
            || self.workers.iter().any(|worker| {
                let has_room = worker.orders.has_room();
                has_room && (!self.asked.is_empty() || worker.walk != Walk::First && worker.waiting > 0)
            });
        let is_waiting = |worker: &Worker<E>| worker.orders.len() > 0 || worker.walk != Walk::Over;
        match is_left {
            true => Duration::ZERO,
            false if is_busy || self.awaits_target() || self.workers.iter().any(is_waiting) => BUSY,
            false => IDLE,
        }
    }

    /// Returns whether the target has something to answer, or to make room for.
    fn awaits_target(&self) -> bool {
        !self.installs.is_empty() || !self.unremoved.is_empty() || !self.unconfirmed.is_empty()
    }

    /// Sends orders to an engine.
    fn send(&mut self, worker: usize, now: Duration) {
        let Worker { orders, engine, ended, .. } = &mut self.workers[worker];
        match orders.send(engine, now) {
            Ok(()) => {}
            Err(SubmitError::Busy) => self.status.busy += 1,
            Err(SubmitError::Ended) => *ended = true,
        }
        if *ended {
            self.status.uncredited_packets += orders.clear();
        }
    }

    /// Stops installing, until [`set_settings`](Self::set_settings). Call it before the engines get another
    /// plan, if the target needs other settings for it.
    pub fn pause(&mut self) {
        self.paused = true;
    }

    /// Sets other settings. Call it after the engines have another plan, too, even if the settings are the
    /// same. Entries that they exclude are removed within the next turns, and others are installed.
    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
        self.paused = false;
        self.audit = Some(0);
        // Without entries to install, what is known is enough.
        if self.settings.enabled {
            (0..self.workers.len()).for_each(|worker| self.walk_again(worker));
        }
    }

    /// Leaves matching flows to the engines: their entries are removed within the next turns, and none is
    /// installed. `None` offers them to the target again. It replaces an earlier filter.
    pub fn exclude(&mut self, filter: Option<FlowFilter>) {
        if self.excluded.is_some() {
            (0..self.workers.len()).for_each(|worker| self.walk_again(worker));
        }
        self.excluded = filter;
        self.audit = Some(0);
    }

    /// Present settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns whether offload is switched off, and no entry, mark or credit is left.
    pub fn is_drained(&self) -> bool {
        let is_idle =
            |worker: &Worker<E>| worker.ended || worker.walk == Walk::Over && worker.orders.len() == 0;
        !self.settings.enabled && self.entries.len() == 0 && self.workers.iter().all(is_idle)
    }

    /// Returns whether the target has no more of the entries that the last settings or the last filter
    /// exclude.
    pub fn is_settled(&self) -> bool {
        self.audit.is_none() && self.status.removed >= self.excluded_at
    }

    /// The target.
    pub fn target(&self) -> &T {
        &self.target
    }

    /// The target.
    pub fn target_mut(&mut self) -> &mut T {
        &mut self.target
    }

    /// Number of sessions that were given to the target so far.
    pub fn installed_total(&self) -> u64 {
        self.status.installed
    }

    /// Numbers for operators and metrics.
    pub fn status(&self) -> Status {
        let orders = |worker: &Worker<E>| worker.orders.len();
        let now = self.now;
        let waited = |worker: &Worker<E>| worker.orders.oldest().map(|at| now.saturating_sub(at));
        let slowest = self.workers.iter().filter_map(waited).max().unwrap_or_default();
        Status {
            entries: self.placed,
            capacity: self.room(),
            ended_workers: self.workers.iter().filter(|worker| worker.ended).count() as u32,
            slowest_worker_ms: slowest.as_millis() as u64,
            waiting_records: self.workers.iter().map(|worker| worker.waiting).sum(),
            marking: self.marking,
            waiting_installs: self.installs.len(),
            waiting_removals: self.removals.len() + self.unremoved.len(),
            unconfirmed: self.unconfirmed.len(),
            waiting_orders: self.workers.iter().map(orders).sum(),
            reconciling: !self.adopted.is_empty(),
            enabled: self.settings.enabled,
            latency: Latency::of(&self.latency, self.latency_sum),
            ..self.status.clone()
        }
    }

    /// Maximum number of entries.
    fn limit(&self) -> u32 {
        self.settings.entries_max.min(self.target.capacity())
    }

    /// Maximum number of entries, as far as the target has said that it has less room.
    fn room(&self) -> u32 {
        let is_recent = |(_, at): &(u32, Duration)| self.now.saturating_sub(*at) < FULL_FOR;
        self.full.filter(is_recent).map_or(self.limit(), |(entries, _)| entries.min(self.limit()))
    }

    /// Returns whether the settings and the filter allow entries for a flow.
    fn allows(&self, flow: &Flow) -> bool {
        let instance = self.settings.instances.get(usize::from(flow.instance));
        self.settings.enabled
            && (T::TRANSLATES_PINGS || flow.transport != Transport::Icmp)
            && instance.is_some_and(|instance| instance.offloaded)
            && self.excluded.as_ref().is_none_or(|is_excluded| !is_excluded(flow))
    }

    /// Returns whether an entry is still to be installed.
    fn is_wanted(&self, slot: Slot) -> bool {
        let entry = self.entries.get(slot);
        !entry.unwanted && self.allows(&entry.id.flow)
    }

    /// The flow of an entry, as the target needs it. `None` if the settings have no such instance or prefix.
    fn flow(&self, id: SessionId, worker: u8, pool6: u8) -> Option<OffloadedFlow> {
        let instance = self.settings.instances.get(usize::from(id.flow.instance))?;
        let remote6 = match instance.prefixes.as_slice() {
            [] => None,
            prefixes => Some(prefixes.get(usize::from(pool6))?.embed(id.flow.remote.0)),
        };
        let path_mtu = self.path_mtu(worker, &id.flow);
        Some(OffloadedFlow { session: id, worker, epoch: self.settings.epoch, remote6, path_mtu })
    }

    /// Path MTU of a flow, as its engine knows it. NAT44 needs none: its hosts can send smaller packets.
    fn path_mtu(&self, worker: u8, flow: &Flow) -> Option<u16> {
        let instance = self.settings.instances.get(usize::from(flow.instance))?;
        let is_nat64 = !instance.prefixes.is_empty();
        is_nat64.then(|| self.paths.of(worker, flow.remote.0)).flatten()
    }

    /// Requests another walk over the sessions of an engine.
    fn walk_again(&mut self, worker: usize) {
        let worker = &mut self.workers[worker];
        match worker.walk {
            Walk::First | Walk::Further => worker.again = true,
            Walk::Due | Walk::Over => worker.walk = Walk::Due,
        }
    }

    /// Adds an entry for an offered session.
    fn entry(&self, worker: usize, record: &SessionRecord, offered_us: u32) -> Entry<T::Id> {
        Entry {
            id: record.id,
            place: None,
            life: 0,
            offered_us,
            epoch: self.settings.epoch,
            path_mtu: 0,
            worker: worker as u8,
            pool6: record.pool6,
            walk: self.workers[worker].walks,
            idle_rounds: 0,
            rounds: 0,
            packets: 0.0,
            state: State::Marking,
            unwanted: false,
            renew: false,
            is_evicted: false,
            bound: true,
            asked: false,
            active: [false; 2],
        }
    }

    /// Queues an order for the engine of an entry.
    fn order(&mut self, slot: Slot, order: Order) {
        let token = self.entries.token(slot);
        let Entry { worker, id, .. } = *self.entries.get(slot);
        let worker = &mut self.workers[usize::from(worker)];
        match order {
            Order::Report(report) | Order::Release(report) if worker.ended => {
                self.status.uncredited_packets += report.traffic.total().packets;
                return;
            }
            _ => worker.orders.push(id, token, order),
        }
        if let Order::Report(report) | Order::Release(report) = order {
            let packets = report.traffic.total().packets;
            self.status.credits += u64::from(packets > 0);
            self.status.credited_packets += packets;
        }
    }

    /// Queues an order for a session that has no entry here.
    fn order_of(&mut self, worker: usize, id: SessionId, order: Order) {
        let token = crate::entries::Token { slot: Slot::MAX, life: 0 };
        self.workers[worker].orders.push(id, token, order);
    }

    /// Releases a session that has no entry here.
    fn release(&mut self, worker: usize, id: SessionId) {
        self.order_of(worker, id, Order::Release(Report::default()));
    }

    /// Releases the session of an entry without a place in the target, and forgets it.
    fn drop_marked(&mut self, slot: Slot) {
        self.order(slot, Order::Release(Report::default()));
        self.entries.free(slot);
    }

    /// Begins the end of an entry.
    fn retire(&mut self, slot: Slot) {
        let entry = self.entries.get_mut(slot);
        match entry.state {
            State::Free => {}
            State::Removing => entry.renew = false,
            State::Marking | State::Waiting => entry.unwanted = true,
            State::Installed => {
                entry.state = State::Removing;
                self.removals.push_back(slot);
                if !self.rules.remove_first {
                    self.order(slot, Order::Release(Report::default()));
                }
            }
        }
    }
}
