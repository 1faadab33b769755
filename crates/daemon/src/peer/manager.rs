//! Thread of the member, and orders to it.

use super::addresses::Layout;
use super::fence::SharedFence;
use super::opening::OpenedPeer;
use super::standing::StandingFile;
use super::status::{Watch, current, end_of_panic, side, unsaved};
use super::{addresses, keys, routes};
use crate::health::{HealthControl, Roles};
use crate::offload::{Guard, SharedState};
use crate::sandbox::{Calls, Sandbox};
use crate::takeover::SessionStore;
use crate::{ANSWER_MAX, Event, Settings};
use anyhow::Context as _;
use gatun_api::types::{self, PeerState};
use gatun_config::Peer;
use gatun_control::PeerControl;
use gatun_io::Waker;
use gatun_logstore::time::since_1970_ms;
use gatun_nat::workers::Steering;
use gatun_peer::driver::{self, Driver};
use gatun_peer::link::Link;
use gatun_peer::member::{Member, MemberSettings, SavedStanding};
use gatun_peer::ownership::{Rules, Timing};
use gatun_peer::wire::{self, ConfigKey, Exchange};
use gatun_peer::workers::{FeedSettings, WorkerEngines};
use gatun_worker::{Clock, Handle};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::time::{Duration, SystemTime};

/// Records that wait for the member, per worker.
const RING: usize = 65_536;
/// Memory of the log of the stream, of what waits to be sent, and of received records, bytes.
const STREAM: u64 = 48 << 20;
/// Interval of tries of sessions that contradict own ones, ms.
const AGAIN_MS: u64 = 1_000;
/// Greatest difference of both boxes' clocks over the lease of a kernel fast path, ms.
const DRIFT_MS: u32 = 100;
/// Interval of looking for orders before the member begins.
const EARLY: Duration = Duration::from_millis(200);
/// Reason why nothing is announced before the member has its state.
const HELD: &str = "this box has no sessions yet, and waits for its peer: see `gatun peer status`";

/// Reason why nothing is announced by a box whose peer has taken over.
const GONE: &str = "an operator has declared this box gone, and its peer owns all public addresses: \
                    restart it with `gatun run --forget`";

/// Reason of a request that has failed.
const NO_ANSWER: &str = "the thread of the peer does not answer";

/// Bytes of memory of the member, by the number of workers.
pub(crate) fn memory_bytes(workers: usize) -> u64 {
    workers as u64 * gatun_nat::feed::memory_bytes(RING) + STREAM
}

/// The thread, and orders to it.
#[derive(Clone)]
pub(crate) struct PeerManager {
    /// `None` without `[peer]`.
    on: Option<PeerOrders>,
    shown: SharedState<types::Peer>,
}

/// Orders to the thread.
#[derive(Clone)]
pub(crate) struct PeerOrders {
    sender: Sender<Order>,
    waker: Waker,
}

enum Order {
    /// The next process finds the sessions of this one.
    SessionsNamed,
    /// The workers run, and have all sessions of the previous process. False: some of them are lost.
    Begin(Vec<Handle>, bool),
    /// The engines have another plan.
    Change(Box<Change>),
    /// Read the certificates again.
    Reread,
    Release(Answer),
    TakeOver(Answer),
    /// Tell the keys of the peer.
    Keys(SyncSender<Option<Vec<ConfigKey>>>),
}

type Answer = SyncSender<Result<(), String>>;

/// Parts of a configuration that the member uses.
struct Change {
    layout: Layout,
    keys: Vec<ConfigKey>,
    steering: Arc<Steering>,
}

impl Change {
    fn new(settings: &Settings, peer: &Peer, steering: Arc<Steering>) -> Change {
        let layout = Layout::new(peer, &settings.plan, &steering);
        let keys = keys::keys(settings, peer, (&steering, &layout));
        Change { layout, keys, steering }
    }
}

/// State of the thread before the workers run.
struct PendingMember {
    peer: Peer,
    link: Link,
    change: Change,
    kernel_ms: u32,
    saved: Option<SavedStanding>,
    file: Option<StandingFile>,
    waker: Waker,
    /// Clock of the engines, and the time until which this box translates.
    times: (Clock, SharedFence),
    health: HealthControl,
    watch: Watch,
}

/// Member before its thread starts.
pub(crate) struct PreparedPeer {
    peer: Peer,
    change: Change,
    /// Standing of the process whose sessions this one inherits.
    saved: Option<SavedStanding>,
    /// File for this process's standing. `None` if its sessions do not outlive it.
    file: Option<StandingFile>,
}

/// Reads what the previous process has left, if the configuration has `[peer]`. `shared` is the steering of
/// several workers.
///
/// # Errors
/// Returns an error if the file of the standing cannot be used.
pub(crate) fn prepare(
    settings: &Settings,
    shared: Option<&Arc<Steering>>,
    store: Option<&SessionStore>,
) -> anyhow::Result<Option<PreparedPeer>> {
    let Some(peer) = settings.peer.clone() else { return Ok(None) };
    let steering = addresses::steering(shared, &settings.plan).map_err(anyhow::Error::msg)?;
    let change = Change::new(settings, &peer, steering);
    let file = store.map(|store| StandingFile::new(store.directory(), store.generation())).transpose();
    let file = file.context("[peer] cannot keep the state of the pair")?;
    let before = store.and_then(SessionStore::generation_before);
    let saved = file.as_ref().zip(before).and_then(|(file, before)| file.read(before, &change.layout));
    Ok(Some(PreparedPeer { peer, change, saved, file }))
}

impl PeerManager {
    /// Starts the thread, which enters its own sandbox and waits for the workers.
    ///
    /// # Errors
    /// Returns an error if the thread cannot start.
    pub(crate) fn start(
        (prepared, link): (Option<PreparedPeer>, OpenedPeer),
        settings: &Settings,
        (health, clock, fence): (HealthControl, Clock, SharedFence),
        (sandbox, events): (&Sandbox, &Sender<Event>),
    ) -> anyhow::Result<PeerManager> {
        let (Some(prepared), Some(link)) = (prepared, link) else {
            return Ok(PeerManager { on: None, shown: SharedState::default() });
        };
        let PreparedPeer { peer, change, saved, file } = prepared;
        health.set_roles(Roles::default(), Some(HELD.to_owned()));
        let peer_api = settings.peer.as_ref().and_then(|peer| peer.api.clone());
        let initial = types::Peer {
            state: PeerState::Waiting,
            peer_api: peer_api.clone(),
            member: Some(side(change.layout.me)),
            certificate_end_s: u64::try_from(link.state().certificate_end).ok(),
            ..types::Peer::default()
        };
        let shown = SharedState::new(initial);
        let kernel_ms = if settings.fastpath.kernel { settings.fastpath.lease_ms } else { 0 };
        let waker = Waker::new().context("cannot create a descriptor for the thread of the peer")?;
        let watch = Watch::new(shown.clone(), events.clone(), peer_api);
        let times = (clock, fence);
        let early = PendingMember {
            peer,
            link,
            change,
            kernel_ms,
            saved,
            file,
            waker: waker.clone(),
            times,
            health,
            watch,
        };
        let (sender, orders) = channel();
        let sandbox = sandbox.of_peer(settings);
        let end = end_of_panic(shown.clone(), events.clone());
        let body = move || {
            sandbox.enter(Calls::Peer);
            let _guard = Guard(Some(end));
            early.run(&orders);
        };
        let thread = std::thread::Builder::new().name("peer".into()).spawn(body);
        thread.context("cannot start the thread of the peer")?;
        Ok(PeerManager { on: Some(PeerOrders { sender, waker }), shown })
    }

    /// The next process finds the sessions of this one from now on.
    pub(crate) fn sessions_are_named(&self) {
        if let Some(orders) = &self.on {
            orders.send(Order::SessionsNamed);
        }
    }

    /// Passes the running workers to the thread, once they have the sessions of the previous process.
    /// `has_all` is false if some of these are lost.
    pub(crate) fn begin(&self, workers: Vec<Handle>, has_all: bool) {
        if let Some(orders) = &self.on {
            orders.send(Order::Begin(workers, has_all));
        }
    }

    /// Orders for a reload. `None` without `[peer]`.
    pub(crate) fn orders(&self) -> Option<PeerOrders> {
        self.on.clone()
    }

    /// State and requests for the API.
    pub(crate) fn control(&self) -> PeerControl {
        let Some(orders) = &self.on else { return PeerControl::default() };
        let (shown, release, take_over) = (self.shown.clone(), orders.clone(), orders.clone());
        PeerControl {
            state: Box::new(move || current(shown.with_age())),
            release: Box::new(move || release.ask(Order::Release)),
            take_over: Box::new(move || take_over.ask(Order::TakeOver)),
        }
    }
}

impl PeerOrders {
    fn send(&self, order: Order) {
        // Without the thread, nobody executes it.
        let _ = self.sender.send(order);
        self.waker.wake();
    }

    fn ask(&self, order: impl FnOnce(Answer) -> Order) -> Result<(), String> {
        let (answer, answers) = sync_channel(1);
        self.send(order(answer));
        let late = |_| Err(NO_ANSWER.to_owned());
        answers.recv_timeout(ANSWER_MAX).unwrap_or_else(late)
    }

    /// Tells the member of another plan, after it was applied.
    pub(crate) fn set(&self, settings: &Settings, steering: Arc<Steering>) {
        if let Some(peer) = &settings.peer {
            self.send(Order::Change(Box::new(Change::new(settings, peer, steering))));
        }
    }

    /// Returns the keys that the peer has told last: none before its first greeting. `None` if it is declared
    /// gone.
    ///
    /// # Errors
    /// The thread does not answer.
    pub(crate) fn keys_of_peer(&self) -> Result<Option<Vec<ConfigKey>>, String> {
        let (answer, answers) = sync_channel(1);
        self.send(Order::Keys(answer));
        answers.recv_timeout(ANSWER_MAX).map_err(|_| NO_ANSWER.to_owned())
    }

    /// Has the certificates read again, for the next connection.
    pub(crate) fn reread(&self) {
        self.send(Order::Reread);
    }
}

impl PendingMember {
    fn run(mut self, orders: &Receiver<Order>) {
        let Some((workers, has_all)) = self.wait(orders) else { return };
        let saved = self.saved.take().filter(|_| has_all);
        let PendingMember { peer, link, change, kernel_ms, file, waker, times, health, watch, .. } = self;
        let Change { layout, keys, steering } = change;
        let generation = crate::takeover::clock_ms();
        let feeds = FeedSettings { packets: peer.packets, len: RING, generation };
        let engines = WorkerEngines::attach(workers, steering, feeds, waker.clone(), ANSWER_MAX);
        let Some(engines) = engines else {
            return watch.failure("peer: a worker did not answer at the start: restart gatun".to_owned());
        };
        let (rules, timing) = (Rules::default(), Timing { lease_ms: 0, kernel_ms, drift_ms: DRIFT_MS });
        let settings = MemberSettings {
            me: layout.me,
            shards: Layout::shards(peer.mode),
            addresses: layout.ranges.clone(),
            own_ports: layout.own_ports,
            away_ms: peer.away_after_ms.into(),
            again_ms: AGAIN_MS,
            timing,
            fence_ms: peer.dead_after_ms + timing.word_ms(&rules),
            revision: wire::revision(&keys),
            rules,
        };
        let Ok(process) = process_number() else {
            return watch.failure("peer: cannot get random numbers: restart gatun".to_owned());
        };
        let exchange = Exchange::new(wire::Settings::new(layout.me, &host_name(), process, keys));
        let member = Member::new(settings, exchange, saved);
        let running = Running {
            driver: Driver::new(member, link),
            engines,
            waker,
            peer,
            layout,
            file,
            health,
            watch,
            clock: times.0,
            fence: times.1,
            announced: None,
            logged_error: None,
        };
        running.run(orders);
    }

    /// The standing belongs to the sessions of this process from now on.
    fn keep_standing(&self) {
        if let (Some(file), Some(saved)) = (&self.file, &self.saved)
            && let Err(why) = file.save(&self.change.layout, saved)
        {
            self.watch.failure(format!("peer: {why}"));
        }
    }

    /// Waits for the workers. `None` if the daemon ends before.
    fn wait(&mut self, orders: &Receiver<Order>) -> Option<(Vec<Handle>, bool)> {
        let early = || Err("the sessions of the previous process are still being restored".to_owned());
        loop {
            match orders.recv() {
                Ok(Order::Begin(workers, has_all)) => return Some((workers, has_all)),
                Ok(Order::SessionsNamed) => self.keep_standing(),
                Ok(Order::Change(change)) => self.change = *change,
                Ok(Order::Reread) => drop(self.link.reread()),
                Ok(Order::Release(answer) | Order::TakeOver(answer)) => drop(answer.send(early())),
                // The peer has told nothing yet.
                Ok(Order::Keys(answer)) => drop(answer.send(Some(Vec::new()))),
                Err(_) => return None,
            }
        }
    }
}

/// Member that is at work.
struct Running {
    driver: Driver,
    engines: WorkerEngines,
    waker: Waker,
    peer: Peer,
    layout: Layout,
    file: Option<StandingFile>,
    health: HealthControl,
    watch: Watch,
    /// Clock of the engines: their fences are times of it.
    clock: Clock,
    fence: SharedFence,
    /// Epochs and settledness that the announced routes have.
    announced: Option<(Vec<gatun_peer::ownership::Epoch>, bool)>,
    logged_error: Option<String>,
}

impl Running {
    fn run(mut self, orders: &Receiver<Order>) {
        loop {
            let (mut is_urgent, mut answers) = (false, Vec::new());
            loop {
                match orders.try_recv() {
                    Ok(order) => answers.extend(self.obey(order)),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
                is_urgent = true;
            }
            let now_ms = self.now_ms();
            let Running { driver, engines, file, layout, .. } = &mut self;
            let mut save = |standing: &SavedStanding| save(file.as_ref(), layout, standing);
            driver.member.exchange.set_wall_clock(now_ms, since_1970_ms(SystemTime::now()));
            let ms = driver.turn(now_ms, engines, &mut save);
            self.fence.set(self.driver.member.translates_until_ms());
            self.note(now_ms, is_urgent);
            // Whoever asks for the state after an answer finds the effect of the order.
            for (answer, result) in answers {
                let _ = answer.send(result);
            }
            if driver::wait(ms, &self.waker, None, std::iter::once(&self.driver.link)).is_err() {
                // The kernel has no memory for the call: try again later.
                std::thread::sleep(EARLY);
            }
        }
    }

    fn now_ms(&self) -> u64 {
        self.clock.now().0
    }

    /// Executes an order. Returns its answer, if anybody waits for one.
    fn obey(&mut self, order: Order) -> Option<(Answer, Result<(), String>)> {
        let now_ms = self.now_ms();
        let member = &mut self.driver.member;
        match order {
            Order::SessionsNamed | Order::Begin(..) => {}
            Order::Change(change) => {
                let Change { layout, keys, steering } = *change;
                self.engines.steer_by(steering);
                let revision = wire::revision(&keys);
                member.exchange.set_keys(keys);
                member.set_addresses(layout.ranges.clone(), layout.own_ports, revision);
                self.layout = layout;
                self.announced = None;
            }
            Order::Reread => {
                if let Err(why) = self.driver.link.reread() {
                    self.watch.failure(format!("reload: [peer] {why}; its certificates are unchanged"));
                }
            }
            Order::Release(answer) => {
                let Running { driver, file, layout, .. } = self;
                return Some((answer, driver.release(&mut |standing| save(file.as_ref(), layout, standing))));
            }
            Order::TakeOver(answer) => {
                return Some((answer, member.take_over(now_ms).map_err(|error| error.to_string())));
            }
            Order::Keys(answer) => drop(answer.send(member.keys_of_other())),
        }
        None
    }

    /// Tells others what has changed.
    fn note(&mut self, now_ms: u64, is_urgent: bool) {
        let status = self.driver.member.status(now_ms);
        let error = self.driver.saver.error.as_deref();
        let standing = (status.epochs.clone(), status.is_settled);
        let has_changed = self.announced.as_ref() != Some(&standing);
        let link = self.driver.link.state();
        self.watch.publish(now_ms, is_urgent || has_changed, (&status, link, &self.layout, error));
        if has_changed {
            let (epochs, is_settled) = &standing;
            let backup = routes::backup(self.peer.mode, &self.layout, epochs);
            let why = if status.is_declared_gone { GONE } else { HELD };
            let roles = Roles { backup, ..Roles::default() };
            self.health.set_roles(roles, (!is_settled).then(|| why.to_owned()));
            self.announced = Some(standing);
        }
        if self.driver.saver.error != self.logged_error {
            self.logged_error.clone_from(&self.driver.saver.error);
            if let Some(why) = &self.logged_error {
                self.watch.failure(format!("peer: {}", unsaved(why)));
            }
        }
    }
}

fn save(file: Option<&StandingFile>, layout: &Layout, standing: &SavedStanding) -> Result<(), String> {
    file.map_or(Ok(()), |file| file.save(layout, standing))
}

fn process_number() -> anyhow::Result<u64> {
    Ok(crate::seed()?[0].max(1))
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
