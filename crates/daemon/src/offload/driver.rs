//! Thread of an offload manager, for any kind of fast path.
//!
//! ```text
//!   start, reload, trace, stop -> Orders -> Driver: wait for the workers and the target, then turns
//! ```
//! [`FastPathKind`] is what a kind adds: its target, its settings, its state for the API.

use crate::{ANSWER_MAX, Event};
use gatun_nat::Plan;
use gatun_nat::feed::{FeedPolicy, memory_bytes};
use gatun_nat::reconfigure::Outline;
use gatun_offload::{FlowFilter, InstanceSettings, Manager, Settings, Status, Target, WorkerEngine};
use gatun_worker::Handle;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Records that wait for the manager, per worker.
const RING: usize = 65_536;
/// Epoch of all sessions: only one daemon owns them.
pub(crate) const EPOCH: u16 = 1;
/// Longest time to remove all sessions from a target.
const DRAIN_MAX: Duration = Duration::from_secs(5);
/// Longest time for an order that the thread executes between two turns.
const ORDER_MAX: Duration = Duration::from_secs(2);
/// Interval of publishing the state.
pub(crate) const PUBLISH_EVERY: Duration = Duration::from_millis(200);
/// Interval of work before the manager begins.
const PREPARE_EVERY: Duration = Duration::from_millis(1);
/// Interval of measuring the rate of installations.
const MEASURE_EVERY: Duration = Duration::from_secs(2);

/// Bytes of memory of the rings of the feed, by the number of workers.
pub(crate) fn feed_bytes(workers: usize) -> u64 {
    workers as u64 * memory_bytes(RING)
}

/// Manager of a kind of fast path.
pub(crate) type ManagerOf<K> = Manager<WorkerEngine, <K as FastPathKind>::Target>;

/// Kind of fast path. All methods run in the thread.
pub(crate) trait FastPathKind: Sized + 'static {
    /// Table.
    type Target: Target + Send;
    /// State before the workers run.
    type Start: Send;
    /// Settings of a reload.
    type Change: Send;
    /// Name of the section, and of the target, for the log.
    const NAMES: [&'static str; 2];

    /// Works until the manager may begin. Returns whether it may. The clock is that of the turns.
    fn is_prepared(_start: &mut Self::Start, _target: &mut Self::Target, _now: Duration) -> bool {
        true
    }

    /// Begins with the workers. The manager follows.
    fn begin(start: Self::Start, target: &Self::Target, workers: &[Handle], settings: &Settings) -> Self;

    /// A worker did not answer at the start.
    fn give_up(start: &Self::Start, target: &Self::Target);

    /// Returns what is to be done if the thread panics.
    fn end_of_panic(&self, target: &Self::Target) -> EndOfPanic;

    /// Does the work of the kind after a turn of the manager.
    fn turn(&mut self, manager: &mut ManagerOf<Self>);

    /// The engines get another plan. The manager is paused.
    fn pause(&mut self, _manager: &mut ManagerOf<Self>) {}

    /// A packet trace begins or ends. The manager has its filter.
    fn set_traced(&mut self, _manager: &mut ManagerOf<Self>, _is_traced: bool) {}

    /// Applies other settings, also to the manager. Returns whether all sessions are to leave the target.
    fn set(&mut self, manager: &mut ManagerOf<Self>, change: Self::Change) -> bool;

    /// The daemon ends. If it `keeps` nothing, all sessions leave the target next.
    fn before_stop(&mut self, _manager: &mut ManagerOf<Self>, _keeps: bool) {}

    /// The daemon ends, after the sessions have left the target.
    fn after_stop(&mut self, _manager: &mut ManagerOf<Self>, _keeps: bool) {}
}

/// Order to the thread.
pub(crate) enum Order<K: FastPathKind> {
    /// The workers run.
    Begin(Vec<Handle>),
    /// Give the target no further sessions until `Set`.
    Pause(SyncSender<()>),
    /// Other settings and another plan. Sessions that they exclude are removed before the answer.
    Set(Box<K::Change>, SyncSender<()>),
    /// Leave flows that match to the engines. `None`: no longer.
    Exclude(Option<FlowFilter>),
    /// Do something with the target.
    Target(TargetOrder<K>),
    /// End. Remove all sessions before, unless they are to stay.
    Stop { keeps: bool, done: SyncSender<()> },
}

/// Work with a target.
pub(crate) type TargetOrder<K> = Box<dyn FnOnce(&mut <K as FastPathKind>::Target) + Send>;

/// Sender of orders.
pub(crate) struct Orders<K: FastPathKind>(pub(crate) Sender<Order<K>>);

impl<K: FastPathKind> Clone for Orders<K> {
    fn clone(&self) -> Self {
        Orders(self.0.clone())
    }
}

impl<K: FastPathKind> Orders<K> {
    /// Passes the running workers to the thread.
    pub(crate) fn begin(&self, workers: Vec<Handle>) {
        self.send(Order::Begin(workers));
    }

    /// Sends an order. If the thread has ended, nobody executes it.
    pub(crate) fn send(&self, order: Order<K>) {
        let _ = self.0.send(order);
    }

    fn wait(&self, at_most: Duration, order: impl FnOnce(SyncSender<()>) -> Order<K>) {
        let (done, is_done) = sync_channel(1);
        self.send(order(done));
        let _ = is_done.recv_timeout(at_most);
    }

    /// Keeps the thread from giving sessions to the target, before another plan is applied.
    pub(crate) fn pause(&self) {
        self.wait(ORDER_MAX, Order::Pause);
    }

    /// Leaves flows that match to the engines, until it is called with `None`.
    pub(crate) fn exclude(&self, filter: Option<FlowFilter>) {
        self.send(Order::Exclude(filter));
    }

    /// Sets other settings, and waits until the sessions that they exclude are removed.
    pub(crate) fn set(&self, change: K::Change) {
        self.wait(DRAIN_MAX + ORDER_MAX, |done| Order::Set(Box::new(change), done));
    }

    /// Ends the thread, and waits until all sessions are removed, unless it `keeps` them.
    pub(crate) fn stop(&self, keeps: bool) {
        self.wait(DRAIN_MAX + ORDER_MAX, |done| Order::Stop { keeps, done });
    }
}

/// Settings of a manager. `excluded` are the instances that stay with the engines, by number.
pub(crate) fn manager_settings(
    (enabled, entries_max): (bool, u32),
    lease: Duration,
    excluded: &[u8],
    plan: &Plan,
) -> Settings {
    let of64 = plan.nat64.iter().map(|nat64| (nat64.pool6.clone(), nat64.inbound_refresh, nat64.realm));
    let all = of64.chain(plan.nat44.iter().map(|nat44| (Vec::new(), nat44.inbound_refresh, nat44.realm)));
    let instances = (0..=u8::MAX).zip(all).map(|(number, (prefixes, inbound_refresh, realm))| {
        let offloaded = realm == 0 && !excluded.contains(&number);
        InstanceSettings { offloaded, prefixes, inbound_refresh }
    });
    Settings { enabled, entries_max, epoch: EPOCH, lease, instances: instances.collect() }
}

/// Gives prefixes of NAT64 instances the numbers that an engine with the plan has: they are not numbered
/// again when some are removed.
pub(crate) fn number_prefixes(settings: &mut Settings, plan: &Plan, outline: &Outline) {
    let numbered = (0..=u8::MAX).zip(&mut settings.instances).take(plan.nat64.len());
    numbered.for_each(|(number, instance)| instance.prefixes = outline.prefixes(number).to_vec());
}

/// Work after a panic of the thread.
pub(crate) type EndOfPanic = Box<dyn FnOnce() + Send>;

/// Does its work if the thread panics.
pub(crate) struct Guard(pub(crate) Option<EndOfPanic>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(end) = self.0.take().filter(|_| std::thread::panicking()) {
            end();
        }
    }
}

/// State of the thread before the workers run.
pub(crate) struct Driver<K: FastPathKind> {
    pub(crate) target: K::Target,
    pub(crate) start: K::Start,
    pub(crate) settings: Settings,
    pub(crate) policy: FeedPolicy,
    pub(crate) events: Sender<Event>,
}

/// Orders that came before the manager began.
struct PendingOrders<K: FastPathKind> {
    workers: Vec<Handle>,
    change: Option<Box<K::Change>>,
    filter: Option<FlowFilter>,
}

impl<K: FastPathKind> Driver<K> {
    /// Runs until an order ends it.
    pub(crate) fn run(self, orders: &Receiver<Order<K>>) {
        let Driver { mut target, mut start, settings, policy, events } = self;
        let began = Instant::now();
        let Some(early) = wait::<K>(&mut start, &mut target, (orders, began)) else { return };
        let generation = crate::takeover::clock_ms();
        let engines = (generation..)
            .zip(early.workers.clone())
            .map(|(generation, worker)| WorkerEngine::attach(worker, policy, RING, generation, ANSWER_MAX));
        let Some(engines) = engines.collect::<Option<Vec<_>>>() else { return K::give_up(&start, &target) };
        let kind = K::begin(start, &target, &early.workers, &settings);
        let guard = Guard(Some(kind.end_of_panic(&target)));
        let mut running = Running { manager: Manager::new(engines, target, settings), kind, began, events };
        if let Some(change) = early.change {
            running.kind.set(&mut running.manager, *change);
        }
        if early.filter.is_some() {
            running.exclude(early.filter);
        }
        running.run(orders);
        drop(guard);
    }
}

/// Waits for the workers and until the target is prepared. `None` if the daemon ends before.
fn wait<K: FastPathKind>(
    start: &mut K::Start,
    target: &mut K::Target,
    (orders, began): (&Receiver<Order<K>>, Instant),
) -> Option<PendingOrders<K>> {
    let mut early = PendingOrders { workers: Vec::new(), change: None, filter: None };
    loop {
        let is_prepared = K::is_prepared(start, target, began.elapsed());
        if is_prepared && !early.workers.is_empty() {
            return Some(early);
        }
        let at_most = if is_prepared { PUBLISH_EVERY } else { PREPARE_EVERY };
        match orders.recv_timeout(at_most) {
            Ok(Order::Begin(workers)) => early.workers = workers,
            Ok(Order::Exclude(filter)) => early.filter = filter,
            Ok(Order::Target(work)) => work(target),
            Ok(Order::Set(change, done)) => {
                early.change = Some(change);
                let _ = done.send(());
            }
            Ok(Order::Pause(done)) => drop(done.send(())),
            Ok(Order::Stop { done, .. }) => {
                let _ = done.send(());
                return None;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
}

/// State of the thread while the workers run.
struct Running<K: FastPathKind> {
    manager: ManagerOf<K>,
    kind: K,
    began: Instant,
    events: Sender<Event>,
}

impl<K: FastPathKind> Running<K> {
    fn run(mut self, orders: &Receiver<Order<K>>) {
        loop {
            let wait = self.turn();
            match orders.recv_timeout(wait.min(PUBLISH_EVERY)) {
                Ok(Order::Begin(_)) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Order::Pause(done)) => {
                    self.manager.pause();
                    self.kind.pause(&mut self.manager);
                    let _ = done.send(());
                }
                Ok(Order::Exclude(filter)) => self.exclude(filter),
                Ok(Order::Target(work)) => work(self.manager.target_mut()),
                Ok(Order::Set(change, done)) => {
                    let is_off = self.kind.set(&mut self.manager, *change);
                    // The answer follows when the target has no more of the sessions that are excluded.
                    if !self.turn_until(if is_off { Manager::is_drained } else { Manager::is_settled }) {
                        // The main thread is gone only if the process is ending.
                        let entries = self.manager.status().entries;
                        let _ = self.events.send(Event::Failure(late::<K>(entries)));
                    }
                    // The state for the API, too.
                    self.turn();
                    let _ = done.send(());
                }
                Ok(Order::Stop { keeps, done }) => {
                    self.stop(keeps);
                    let _ = done.send(());
                    return;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Bounded work. Returns the time that it need not be called for.
    fn turn(&mut self) -> Duration {
        let began = self.began;
        let wait = self.manager.turn(&|| began.elapsed());
        self.kind.turn(&mut self.manager);
        wait
    }

    fn exclude(&mut self, filter: Option<FlowFilter>) {
        let is_traced = filter.is_some();
        self.manager.exclude(filter);
        self.kind.set_traced(&mut self.manager, is_traced);
    }

    /// Works until something holds, at most [`DRAIN_MAX`]. Returns whether it does.
    fn turn_until(&mut self, holds: impl Fn(&ManagerOf<K>) -> bool) -> bool {
        let begin = Instant::now();
        while !holds(&self.manager) && begin.elapsed() < DRAIN_MAX {
            let wait = self.turn();
            std::thread::sleep(wait.min(Duration::from_millis(1)));
        }
        holds(&self.manager)
    }

    fn stop(&mut self, keeps: bool) {
        self.kind.before_stop(&mut self.manager, keeps);
        if !keeps {
            let settings = Settings { enabled: false, ..self.manager.settings().clone() };
            self.manager.set_settings(settings);
            self.turn_until(Manager::is_drained);
        }
        self.kind.after_stop(&mut self.manager, keeps);
    }
}

/// Line for the log about a reload that does not wait any longer, and a target that has some `entries` yet.
fn late<K: FastPathKind>(entries: u32) -> String {
    let ([section, target], seconds) = (K::NAMES, DRAIN_MAX.as_secs());
    match entries {
        0 => format!(
            "{section}: a worker has not taken sessions of {target} back for {seconds} s after the reload; \
             their ports stay unused until it does"
        ),
        _ => format!(
            "{section}: {target} has had sessions that the new configuration excludes for {seconds} s \
             after the reload; their ports stay unused until they are removed"
        ),
    }
}

/// Rate of installations, over the last seconds.
pub(crate) struct InstallRate {
    /// Time and number of installed sessions at the last measurement.
    measured: (Instant, u64),
    /// Sessions per second.
    rate: u64,
}

impl InstallRate {
    pub(crate) fn new() -> InstallRate {
        InstallRate { measured: (Instant::now(), 0), rate: 0 }
    }

    /// Returns the sessions per second.
    pub(crate) fn of(&mut self, status: &Status) -> u64 {
        let since = self.measured.0.elapsed();
        if since >= MEASURE_EVERY {
            let more = status.installed.saturating_sub(self.measured.1);
            self.rate = (more as f64 / since.as_secs_f64()).round() as u64;
            self.measured = (Instant::now(), status.installed);
        }
        self.rate
    }
}
