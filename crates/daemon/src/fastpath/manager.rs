//! Thread that manages the sessions in the kernel.

use super::attachment::AttachmentCheck;
use super::opening::{self, OpenTable, OpenedFastPath};
use super::progress::Progress;
use super::stateless::{self, Credits};
use super::status::{Shared, Watch};
use super::target::KernelTarget;
use crate::sandbox::{Calls, Sandbox};
use crate::{ANSWER_MAX, Settings};
use anyhow::Context as _;
use gatun_api::types;
use gatun_config::FastPath as FastPathSettings;
use gatun_io_fastpath::{Control, KernelTime};
use gatun_nat::Plan;
use gatun_nat::feed::FeedPolicy;
use gatun_nat::reconfigure::Outline;
use gatun_offload::{FlowFilter, InstanceSettings, Manager, Target as _, WorkerEngine, feed_policy};
use gatun_worker::Handle;
use gatun_worker::jobs::JobTicket;
use gatun_worker::offload::ReleaseAll;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::time::{Duration, Instant};

/// Records that wait for the manager, per worker.
const RING: usize = 65_536;
/// Epoch of all sessions: only one daemon owns them.
const EPOCH: u16 = 1;
/// Longest time to remove all sessions from the kernel.
const DRAIN_MAX: Duration = Duration::from_secs(5);
/// Longest time for an order that the thread executes between two turns.
const ORDER_MAX: Duration = Duration::from_secs(2);
/// Interval of crediting packets of instances.
const CREDIT_EVERY: Duration = Duration::from_secs(1);
/// Interval of publishing the state.
const PUBLISH_EVERY: Duration = Duration::from_millis(200);

/// Order to the thread. It answers when the order is executed.
enum Order {
    /// The workers run.
    Begin(Vec<Handle>),
    /// Give the kernel no further sessions until `Set`.
    Pause(SyncSender<()>),
    /// Other settings and another plan. Sessions that they exclude are removed before the answer.
    Set(Box<Change>, SyncSender<()>),
    /// Leave flows that match to the engines, and all stateless packets. `None`: no longer.
    Exclude(Option<FlowFilter>),
    /// End. Remove all sessions before, unless they are to stay for a lease.
    Stop { keeps: bool, done: SyncSender<()> },
}

/// Other settings.
struct Change {
    settings: gatun_offload::Settings,
    plan: Arc<Plan>,
    /// Stateless instances that stay out of the kernel, by number.
    excluded_siit: Vec<u8>,
}

/// The thread and its program.
pub(crate) struct FastPathManager {
    /// `None` if there is no table.
    on: Option<On>,
    status: Shared,
}

struct On {
    orders: FastPathOrders,
    control: Arc<Control>,
    progress: Progress,
    /// Held until the end: it keeps other daemons from the device, and the program loaded.
    _attachment: gatun_io_fastpath::Attachment,
    /// Tells other daemons that the directory of the pins is taken.
    _lock: File,
    device: String,
    pins: Option<PathBuf>,
}

/// Orders to the thread, for a reload.
#[derive(Clone)]
pub(crate) struct FastPathOrders {
    orders: Sender<Order>,
    /// True if the kernel keeps its sessions when the daemon is stopped.
    keeps_at_stop: Arc<AtomicBool>,
}

impl FastPathManager {
    /// Starts the thread, which enters its own sandbox and waits for the workers.
    ///
    /// # Errors
    /// Returns an error if the thread cannot start.
    pub(crate) fn start(
        opened: OpenedFastPath,
        settings: &Settings,
        sandbox: &Sandbox,
    ) -> anyhow::Result<FastPathManager> {
        let open = match opened {
            OpenedFastPath::Off => return Ok(FastPathManager { on: None, status: Shared::off() }),
            OpenedFastPath::Unavailable(why) => {
                return Ok(FastPathManager { on: None, status: Shared::unavailable(why) });
            }
            OpenedFastPath::On(open) => open,
        };
        let OpenTable { table, attachment, lock, device, pins, adopted, notes: _ } = *open;
        let status = Shared::on(&device, &attachment, adopted.into());
        let control = table.control();
        let progress = Progress::new(Arc::clone(&control), settings.ports.workers());
        let (orders, received) = channel();
        let thread = Thread {
            target: KernelTarget::new(table),
            progress: progress.clone(),
            plan: Arc::clone(&settings.plan),
            excluded_siit: settings.fastpath.excluded_siit.clone(),
            settings: settings_of(&settings.fastpath, &settings.plan),
            policy: FeedPolicy {
                tcp_packets: settings.fastpath.tcp_packets,
                ..feed_policy(settings.fastpath.udp_packets)
            },
            status: status.clone(),
        };
        let sandbox = sandbox.clone();
        let body = move || {
            sandbox.enter(Calls::FastPath);
            thread.run(&received);
        };
        std::thread::Builder::new()
            .name("fastpath".into())
            .spawn(body)
            .context("cannot start the thread of the kernel fast path")?;
        let keeps_at_stop = Arc::new(AtomicBool::new(settings.fastpath.keeps_at_stop));
        let orders = FastPathOrders { orders, keeps_at_stop };
        let on = On { orders, control, progress, _attachment: attachment, _lock: lock, device, pins };
        Ok(FastPathManager { on: Some(on), status })
    }

    /// True if the kernel has a table.
    pub(crate) fn is_open(&self) -> bool {
        self.on.is_some()
    }

    /// Progress of workers that share the table. `None` without a table.
    pub(crate) fn progress(&self) -> Option<&Progress> {
        self.on.as_ref().map(|on| &on.progress)
    }

    /// Passes the running workers to the thread.
    pub(crate) fn begin(&self, workers: Vec<Handle>) {
        if let Some(on) = &self.on {
            on.orders.send(Order::Begin(workers));
        }
    }

    /// Orders for a reload. `None` without a table.
    pub(crate) fn orders(&self) -> Option<FastPathOrders> {
        self.on.as_ref().map(|on| on.orders.clone())
    }

    /// State for the API.
    pub(crate) fn status(&self) -> impl Fn() -> types::FastPath + Send + Sync + 'static {
        let status = self.status.clone();
        move || status.get()
    }

    /// Ends the fast path, while the workers still run.
    ///
    /// # Errors
    /// Returns an error that says what to do, if the program cannot be detached.
    pub(crate) fn stop(&self) -> Result<(), String> {
        let Some(on) = &self.on else { return Ok(()) };
        let keeps = on.orders.keeps_at_stop.load(Relaxed);
        on.orders.wait(DRAIN_MAX + ORDER_MAX, |done| Order::Stop { keeps, done });
        if keeps && on.pins.is_some() {
            return Ok(());
        }
        // Also if the thread does not answer: from here on, the program passes all packets on.
        on.control.set_lease(KernelTime(0));
        let detached = gatun_io_fastpath::detach(&on.device, on.pins.as_deref());
        detached.map_err(|error| format!("kernel fast path: {error}: run `gatun fastpath detach`"))
    }
}

impl FastPathOrders {
    fn send(&self, order: Order) {
        // If the thread has ended, its table translates nothing.
        let _ = self.orders.send(order);
    }

    fn wait(&self, at_most: Duration, order: impl FnOnce(SyncSender<()>) -> Order) {
        let (done, is_done) = sync_channel(1);
        self.send(order(done));
        let _ = is_done.recv_timeout(at_most);
    }

    /// Keeps the thread from giving sessions to the kernel, before another plan is applied.
    pub(crate) fn pause(&self) {
        self.wait(ORDER_MAX, Order::Pause);
    }

    /// Leaves flows that match to the engines, and all stateless packets, until it is called with `None`.
    pub(crate) fn exclude(&self, filter: Option<FlowFilter>) {
        self.send(Order::Exclude(filter));
    }

    /// Sets another configuration after its plan was applied.
    /// `outline` is that of an engine that has the plan.
    pub(crate) fn set(&self, settings: &FastPathSettings, plan: &Arc<Plan>, outline: &Outline) {
        self.keeps_at_stop.store(settings.keeps_at_stop, Relaxed);
        let mut own = settings_of(settings, plan);
        // Prefixes are not numbered again when some are removed.
        let numbered = (0..=u8::MAX).zip(&mut own.instances).take(plan.nat64.len());
        numbered.for_each(|(number, instance)| instance.prefixes = outline.prefixes(number).to_vec());
        let (plan, excluded_siit) = (Arc::clone(plan), settings.excluded_siit.clone());
        let change = Box::new(Change { settings: own, plan, excluded_siit });
        self.wait(DRAIN_MAX + ORDER_MAX, |done| Order::Set(change, done));
    }
}

/// Settings of the manager.
fn settings_of(settings: &FastPathSettings, plan: &Plan) -> gatun_offload::Settings {
    let of64 = plan.nat64.iter().map(|nat64| (nat64.pool6.clone(), nat64.inbound_refresh, nat64.realm));
    let all = of64.chain(plan.nat44.iter().map(|nat44| (Vec::new(), nat44.inbound_refresh, nat44.realm)));
    let instances = (0..=u8::MAX).zip(all).map(|(number, (prefixes, inbound_refresh, realm))| {
        let offloaded = realm == 0 && !settings.excluded.contains(&number);
        InstanceSettings { offloaded, prefixes, inbound_refresh }
    });
    gatun_offload::Settings {
        enabled: settings.kernel,
        entries_max: settings.sessions_max,
        epoch: EPOCH,
        lease: Duration::from_millis(settings.lease_ms.into()),
        instances: instances.collect(),
    }
}

/// State of the thread before the workers run.
struct Thread {
    target: KernelTarget,
    progress: Progress,
    plan: Arc<Plan>,
    excluded_siit: Vec<u8>,
    settings: gatun_offload::Settings,
    policy: FeedPolicy,
    status: Shared,
}

/// Ends translation in the kernel if the thread panics: the engines get all packets and ports back.
struct EndOfPanic {
    control: Arc<Control>,
    workers: Vec<Handle>,
    status: Shared,
}

impl Drop for EndOfPanic {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        self.control.set_lease(KernelTime(0));
        self.status.set_unavailable("its manager has panicked: this is a defect, please report it");
        for worker in &self.workers {
            let _ = worker.attach_feed(None, ANSWER_MAX);
            let _ = worker.work(ReleaseAll::default(), ANSWER_MAX);
        }
    }
}

impl Thread {
    fn run(self, orders: &Receiver<Order>) {
        let Thread { target, progress, plan, excluded_siit, settings, policy, status } = self;
        let workers = loop {
            match orders.recv() {
                Ok(Order::Begin(workers)) => break workers,
                Ok(Order::Exclude(_)) => {}
                Ok(Order::Pause(done) | Order::Set(_, done) | Order::Stop { done, .. }) => {
                    let _ = done.send(());
                }
                Err(_) => return,
            }
        };
        let control = target.table.control();
        control.set_epoch(EPOCH);
        let guard = EndOfPanic { control, workers: workers.clone(), status: status.clone() };
        let generation = crate::takeover::clock_ms();
        let engines = (generation..)
            .zip(workers)
            .map(|(generation, worker)| WorkerEngine::attach(worker, policy, RING, generation, ANSWER_MAX));
        let Some(engines) = engines.collect::<Option<Vec<_>>>() else {
            guard.control.set_lease(KernelTime(0));
            status.set_unavailable("a worker did not answer at the start");
            return;
        };
        let lease = settings.lease;
        let watch = Watch::new(
            status,
            (plan, excluded_siit),
            settings.clone(),
            AttachmentCheck::new(guard.workers.clone()),
        );
        let credits = Credits::new(&target.table, watch.plan());
        let first = guard.workers.first().cloned();
        let manager = Manager::new(engines, target, settings);
        let began = Instant::now();
        Running {
            manager,
            progress,
            watch,
            lease,
            began,
            first,
            credits,
            credited: began,
            crediting: None,
            is_traced: false,
        }
        .run(orders);
        drop(guard);
    }
}

/// State of the thread while the workers run.
struct Running {
    manager: Manager<WorkerEngine, KernelTarget>,
    progress: Progress,
    watch: Watch,
    lease: Duration,
    began: Instant,
    /// Worker whose engine counts the packets of instances.
    first: Option<Handle>,
    credits: Credits,
    credited: Instant,
    /// Credit that a worker has not counted yet.
    crediting: Option<(JobTicket, Receiver<()>)>,
    /// True while a packet trace runs.
    is_traced: bool,
}

impl Running {
    fn run(mut self, orders: &Receiver<Order>) {
        loop {
            let wait = self.turn();
            match orders.recv_timeout(wait.min(PUBLISH_EVERY)) {
                Ok(Order::Begin(_)) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Order::Pause(done)) => {
                    self.manager.pause();
                    // They may change, and the engine knows the present ones.
                    if self.watch.has_siit() {
                        stateless::clear(&mut self.manager.target_mut().table);
                    }
                    let _ = done.send(());
                }
                Ok(Order::Exclude(filter)) => self.exclude(filter),
                Ok(Order::Set(change, done)) => {
                    self.set(*change);
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
        self.progress.publish();
        if self.credited.elapsed() >= CREDIT_EVERY {
            self.credit_instances();
        }
        self.watch.publish(|| self.manager.status(), self.manager.target(), PUBLISH_EVERY);
        wait
    }

    /// Credits translated packets of stateless instances, and dropped packets of all.
    fn credit_instances(&mut self) {
        self.credited = Instant::now();
        let is_at_work = |(_, done): &(JobTicket, Receiver<()>)| done.try_recv() == Err(TryRecvError::Empty);
        if self.crediting.as_ref().is_some_and(is_at_work) {
            return;
        }
        let before = self.credits.clone();
        let more = self.credits.take(&self.manager.target().table, self.watch.plan());
        let Some((worker, more)) = self.first.as_ref().zip(more) else { return };
        let (done, is_done) = sync_channel(1);
        match worker.submit(more, move |_| {
            let _ = done.send(());
        }) {
            Ok(ticket) => self.crediting = Some((ticket, is_done)),
            // The worker has too much to do, or has ended.
            Err(_) => self.credits = before,
        }
    }

    fn exclude(&mut self, filter: Option<FlowFilter>) {
        self.is_traced = filter.is_some();
        self.manager.exclude(filter);
        self.set_stateless();
    }

    /// Gives the kernel the stateless instances, unless the engines are to have their packets.
    fn set_stateless(&mut self) {
        if !self.watch.has_siit() {
            return;
        }
        let is_on = self.manager.settings().enabled && !self.is_traced;
        let table = &mut self.manager.target_mut().table;
        if !is_on {
            return stateless::clear(table);
        }
        let set = stateless::set(table, self.watch.plan(), &self.watch.excluded_siit);
        let error =
            set.err().map(|error| format!("{error}: Gatun translates the packets of [[siit]] itself"));
        self.watch.set_error(error);
    }

    fn set(&mut self, Change { settings, plan, excluded_siit }: Change) {
        // Before the numbers of instances change.
        self.credit_instances();
        let instances = opening::set_instances(&self.manager.target().table, &plan);
        let broken = instances.err().map(|error| format!("{error}: reload again, or restart gatun"));
        self.lease = settings.lease;
        // With the settings of another plan, the kernel would translate wrongly.
        let is_off = !settings.enabled || broken.is_some();
        self.manager.set_settings(gatun_offload::Settings { enabled: !is_off, ..settings.clone() });
        self.watch.set(settings, plan, excluded_siit);
        self.watch.set_broken(broken);
        self.set_stateless();
        self.credits = Credits::new(&self.manager.target().table, self.watch.plan());
        // The answer follows when the kernel has no more of the sessions that the settings exclude.
        self.turn_until(if is_off { Manager::is_drained } else { Manager::is_settled });
    }

    /// Works until something holds, at most [`DRAIN_MAX`].
    fn turn_until(&mut self, holds: impl Fn(&Manager<WorkerEngine, KernelTarget>) -> bool) {
        let begin = Instant::now();
        while !holds(&self.manager) && begin.elapsed() < DRAIN_MAX {
            let wait = self.turn();
            std::thread::sleep(wait.min(Duration::from_millis(1)));
        }
    }

    fn stop(&mut self, keeps: bool) {
        if keeps {
            self.manager.target_mut().renew_lease(self.lease);
            return;
        }
        stateless::clear(&mut self.manager.target_mut().table);
        self.credit_instances();
        let settings = gatun_offload::Settings { enabled: false, ..self.watch.settings.clone() };
        self.manager.set_settings(settings);
        self.turn_until(Manager::is_drained);
        self.manager.target_mut().end_lease();
    }
}
