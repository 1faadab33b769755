//! Manager of the sessions in the kernel: its start and end, and what it does beside an offload manager.

use super::attachment::{AttachmentWatch, PlacesToWatch};
use super::opening::{self, OpenTable, OpenedFastPath};
use super::overflow::QueueWatch;
use super::progress::Progress;
use super::stateless;
use super::status::{Shared, Watch};
use super::target::KernelTarget;
use crate::net_helper::ProgramHelper;
use crate::offload::{
    Driver, EndOfPanic, FastPathKind, InstanceCredits, ManagerOf, Orders, PUBLISH_EVERY, SessionKey,
    StatelessNames, manager_settings, number_prefixes,
};
use crate::peer::SharedFence;
use crate::sandbox::{Calls, Sandbox};
use crate::{ANSWER_MAX, Event, Settings};
use anyhow::Context as _;
use gatun_api::types::{self, Name};
use gatun_config::FastPath as FastPathSettings;
use gatun_control::EarlierTranslator;
use gatun_io_fastpath::{Control, KernelTime};
use gatun_nat::Plan;
use gatun_nat::feed::{self, FeedPolicy};
use gatun_nat::reconfigure::Outline;
use gatun_offload::{FlowFilter, Target as _, feed_policy};
use gatun_wire::text::counted;
use gatun_worker::Handle;
use gatun_worker::offload::ReleaseAll;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// Other settings.
pub(super) struct Change {
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
    /// Tell other daemons that the device, and the directory of the pins, are taken.
    _locks: (UnixDatagram, File),
    helper: Option<Arc<ProgramHelper>>,
    pins: Option<PathBuf>,
}

/// Orders to the thread, for a reload.
#[derive(Clone)]
pub(crate) struct FastPathOrders {
    orders: Orders<Kernel>,
    /// True if the kernel keeps its sessions when the daemon is stopped.
    keeps_at_stop: Arc<AtomicBool>,
    status: Shared,
    stateless: StatelessNames,
}

impl FastPathManager {
    /// Starts the thread, which enters its own sandbox and waits for the workers.
    ///
    /// # Errors
    /// Returns an error if the thread cannot start.
    pub(crate) fn start(
        opened: OpenedFastPath,
        settings: &Settings,
        fence: SharedFence,
        (sandbox, events): (&Sandbox, &Sender<Event>),
    ) -> anyhow::Result<FastPathManager> {
        let open = match opened {
            OpenedFastPath::Off => return Ok(FastPathManager { on: None, status: Shared::off() }),
            OpenedFastPath::Unavailable(why) => {
                return Ok(FastPathManager { on: None, status: Shared::unavailable(why) });
            }
            OpenedFastPath::On(open) => open,
        };
        let OpenTable { table, attachment, lock, device, dropped, pins, adopted, helper, .. } = *open;
        let status = Shared::on(&device, &attachment.places, adopted.into());
        let helper = helper.map(Arc::new);
        let watched =
            PlacesToWatch { places: attachment.places, helper: helper.clone(), events: events.clone() };
        let control = table.control();
        let progress = Progress::new(Arc::clone(&control), settings.ports.workers());
        let (orders, received) = channel();
        let start = Start {
            progress: progress.clone(),
            plan: Arc::clone(&settings.plan),
            excluded_siit: settings.fastpath.excluded_siit.clone(),
            status: status.clone(),
            watched,
            overflow: QueueWatch::new(dropped),
        };
        let driver = Driver {
            target: KernelTarget::new(table, fence),
            start,
            settings: settings_of(&settings.fastpath, &settings.plan),
            policy: FeedPolicy {
                tcp_packets: settings.fastpath.tcp_packets,
                ..feed_policy(settings.fastpath.udp_packets)
            },
            events: events.clone(),
        };
        let sandbox = sandbox.clone();
        let body = move || {
            sandbox.enter(Calls::FastPath);
            driver.run(&received);
        };
        std::thread::Builder::new()
            .name("fastpath".into())
            .spawn(body)
            .context("cannot start the thread of the kernel fast path")?;
        let keeps_at_stop = Arc::new(AtomicBool::new(settings.fastpath.keeps_at_stop));
        let stateless = stateless_names(&settings.fastpath, &settings.plan);
        let orders =
            FastPathOrders { orders: Orders(orders), keeps_at_stop, status: status.clone(), stateless };
        let on = On { orders, control, progress, _locks: (attachment.lock, lock), helper, pins };
        Ok(FastPathManager { on: Some(on), status })
    }

    /// Progress of workers that share the table. `None` without a table.
    pub(crate) fn progress(&self) -> Option<&Progress> {
        self.on.as_ref().map(|on| &on.progress)
    }

    /// Passes the running workers to the thread.
    pub(crate) fn begin(&self, workers: Vec<Handle>) {
        if let Some(on) = &self.on {
            on.orders.orders.begin(workers);
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
        on.orders.orders.stop(keeps);
        if keeps && on.pins.is_some() {
            return Ok(());
        }
        // Also if the thread does not answer: from here on, the program passes all packets on.
        on.control.set_lease(KernelTime(0));
        if on.helper.as_ref().is_some_and(|helper| helper.detach().is_ok()) {
            return Ok(());
        }
        let detached = on.pins.as_deref().map_or(Ok(()), gatun_io_fastpath::unpin_all);
        detached.map_err(|error| format!("kernel fast path: {error}: run `gatun fastpath detach`"))
    }
}

impl FastPathOrders {
    /// Keeps the thread from giving sessions to the kernel, before another plan is applied.
    pub(crate) fn pause(&self) {
        self.orders.pause();
    }

    /// Leaves flows that match to the engines, and all stateless packets, until it is called with `None`.
    /// Returns which packets the kernel translated before.
    pub(crate) fn exclude(&self, filter: Option<FlowFilter>) -> EarlierTranslator {
        let Some(filter) = filter else {
            self.orders.exclude(None);
            return Arc::new(|_| None);
        };
        let is_on = self.status.get().state == types::FastPathState::On;
        let of_instance =
            || "the kernel translated plain packets of this instance until the trace began".to_owned();
        self.orders.exclude_traced(filter, find_traced, (&self.stateless, is_on.then(of_instance)))
    }

    /// Says that the kernel translates the packets of a stateless instance. `None` if it does not.
    pub(crate) fn stateless_translator(&self, name: &Name) -> Option<String> {
        let is_on = self.status.get().state == types::FastPathState::On && self.stateless.contains(name);
        is_on.then(|| "the kernel translates plain TCP and UDP packets of this instance".to_owned())
    }

    /// Says who translates the packets of a session that was given to the kernel.
    pub(crate) fn translator(&self) -> String {
        let status = self.status.get();
        match (status.state, status.why) {
            (types::FastPathState::Unavailable, Some(why)) => {
                format!("Gatun translates its packets, because the kernel does not: {why}")
            }
            _ => "the kernel translates its packets".to_owned(),
        }
    }

    /// Sets another configuration after its plan was applied.
    /// `outline` is that of an engine that has the plan.
    pub(crate) fn set(&self, settings: &FastPathSettings, plan: &Arc<Plan>, outline: &Outline) {
        self.keeps_at_stop.store(settings.keeps_at_stop, Relaxed);
        self.stateless.set(settings.kernel, plan, &settings.excluded_siit);
        let mut own = settings_of(settings, plan);
        number_prefixes(&mut own, plan, outline);
        let (plan, excluded_siit) = (Arc::clone(plan), settings.excluded_siit.clone());
        self.orders.set(Change { settings: own, plan, excluded_siit });
    }
}

/// Bytes of memory of the manager of a number of sessions.
pub(crate) fn manager_bytes(sessions_max: u32) -> u64 {
    ManagerOf::<Kernel>::memory_bytes(sessions_max)
}

/// Stateless instances that the kernel is to have.
fn stateless_names(settings: &FastPathSettings, plan: &Plan) -> StatelessNames {
    let names = StatelessNames::default();
    names.set(settings.kernel, plan, &settings.excluded_siit);
    names
}

/// Finds the sessions in the kernel that match, with the time since each was given to it.
fn find_traced(
    target: &mut KernelTarget,
    matches: &dyn Fn(&feed::Flow) -> bool,
    found: &mut HashMap<SessionKey, String>,
) {
    found.extend(target.matching(matches).map(|(flow, since)| {
        let since = counted(since.as_secs(), "second");
        let told = format!("the kernel translated its packets for {since}, until the trace began");
        ((flow.transport, flow.remote, flow.outside), told)
    }));
}

/// Settings of the manager.
fn settings_of(settings: &FastPathSettings, plan: &Plan) -> gatun_offload::Settings {
    let lease = Duration::from_millis(settings.lease_ms.into());
    manager_settings((settings.kernel, settings.sessions_max), lease, &settings.excluded, plan)
}

/// State before the workers run.
pub(super) struct Start {
    progress: Progress,
    plan: Arc<Plan>,
    excluded_siit: Vec<u8>,
    status: Shared,
    watched: PlacesToWatch,
    overflow: QueueWatch,
}

/// The kernel's table as a fast path, while the workers run.
pub(super) struct Kernel {
    progress: Progress,
    overflow: QueueWatch,
    watch: Watch,
    status: Shared,
    lease: Duration,
    workers: Vec<Handle>,
    credits: InstanceCredits,
    /// True while a packet trace runs.
    is_traced: bool,
}

impl FastPathKind for Kernel {
    type Target = KernelTarget;
    type Start = Start;
    type Change = Change;
    const NAMES: [&'static str; 2] = ["fastpath", "the kernel"];

    fn begin(
        Start { progress, plan, excluded_siit, status, watched, overflow }: Start,
        target: &KernelTarget,
        workers: &[Handle],
        settings: &gatun_offload::Settings,
    ) -> Kernel {
        target.table.control().set_epoch(settings.epoch);
        let workers = workers.to_vec();
        let attachment = AttachmentWatch::new(watched, workers.clone());
        let watch = Watch::new(status.clone(), (plan, excluded_siit), settings.clone(), attachment);
        let mut credits = InstanceCredits::default();
        credits.begin(stateless::totals(&target.table, watch.plan()));
        let lease = settings.lease;
        Kernel { progress, overflow, watch, status, lease, workers, credits, is_traced: false }
    }

    fn give_up(start: &Start, target: &KernelTarget) {
        target.table.control().set_lease(KernelTime(0));
        start.status.set_unavailable("a worker did not answer at the start");
    }

    /// Ends translation in the kernel: the engines get all packets and ports back.
    fn end_of_panic(&self, target: &KernelTarget) -> EndOfPanic {
        let (control, status, workers) = (target.table.control(), self.status.clone(), self.workers.clone());
        Box::new(move || {
            control.set_lease(KernelTime(0));
            status.set_unavailable("its manager has panicked: this is a defect, please report it");
            for worker in &workers {
                let _ = worker.attach_feed(None, ANSWER_MAX);
                let _ = worker.work(ReleaseAll::default(), ANSWER_MAX);
            }
        })
    }

    fn turn(&mut self, manager: &mut ManagerOf<Self>) {
        manager.target_mut().heed_fence();
        self.progress.notice_moves(manager.installed_total());
        self.overflow.look(&self.progress);
        if self.credits.is_due() {
            self.credit_instances(manager);
        }
        self.watch.publish(|| manager.status(), manager.target(), PUBLISH_EVERY);
    }

    fn pause(&mut self, manager: &mut ManagerOf<Self>) {
        // They may change, and the engine knows the present ones.
        if self.watch.has_siit() {
            stateless::clear(&mut manager.target_mut().table);
        }
    }

    fn set_traced(&mut self, manager: &mut ManagerOf<Self>, is_traced: bool) {
        self.is_traced = is_traced;
        self.set_stateless(manager);
    }

    fn set(
        &mut self,
        manager: &mut ManagerOf<Self>,
        Change { settings, plan, excluded_siit }: Change,
    ) -> bool {
        // Before the numbers of instances change.
        self.credit_instances(manager);
        let instances = opening::set_instances(&manager.target().table, &plan);
        let broken = instances.err().map(|error| format!("{error}: reload again, or restart gatun"));
        self.lease = settings.lease;
        // With the settings of another plan, the kernel would translate wrongly.
        let is_off = !settings.enabled || broken.is_some();
        manager.set_settings(gatun_offload::Settings { enabled: !is_off, ..settings.clone() });
        self.watch.set(settings, plan, excluded_siit);
        self.watch.set_broken(broken);
        self.set_stateless(manager);
        self.credits.begin(stateless::totals(&manager.target().table, self.watch.plan()));
        is_off
    }

    fn before_stop(&mut self, manager: &mut ManagerOf<Self>, keeps: bool) {
        if !keeps {
            stateless::clear(&mut manager.target_mut().table);
            self.credit_instances(manager);
        }
    }

    fn after_stop(&mut self, manager: &mut ManagerOf<Self>, keeps: bool) {
        match keeps {
            true => manager.target_mut().renew_lease(self.lease),
            false => manager.target_mut().end_lease(),
        }
    }
}

impl Kernel {
    /// Credits translated packets of stateless instances, and dropped packets of all.
    fn credit_instances(&mut self, manager: &ManagerOf<Self>) {
        let (table, plan) = (&manager.target().table, self.watch.plan());
        self.credits.credit(&self.workers, || stateless::totals(table, plan));
    }

    /// Gives the kernel the stateless instances, unless the engines are to have their packets.
    fn set_stateless(&mut self, manager: &mut ManagerOf<Self>) {
        if !self.watch.has_siit() {
            return;
        }
        let is_on = manager.settings().enabled && !self.is_traced;
        let table = &mut manager.target_mut().table;
        if !is_on {
            return stateless::clear(table);
        }
        let set = stateless::set(table, self.watch.plan(), &self.watch.excluded_siit);
        let error =
            set.err().map(|error| format!("{error}: Gatun translates the packets of [[siit]] itself"));
        self.watch.set_error(error);
    }
}
