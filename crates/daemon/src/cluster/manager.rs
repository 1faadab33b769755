//! Thread of the node, and orders to it.

use super::division::division;
use super::opening::{OpenedCluster, OpenedNode};
use super::revisions::{self, ConfigAccess, ConfigDriver, RevisionFile};
use super::settings::{RING, exchanges, node_settings};
use super::standing::{Layout, StandingFile, instance};
use super::status::{Health, Shown, Watch, order};
use super::{ClusterSettings, places};
use crate::health::HealthControl;
use crate::offload::Guard;
use crate::peer::{by_shard, of_cluster};
use crate::sandbox::{Calls, Sandbox};
use crate::takeover::SessionStore;
use crate::{ANSWER_MAX, Event, Settings};
use anyhow::Context as _;
use gatun_cluster::coordination::{ClusterOrder, SavedRevision};
use gatun_cluster::etcd::EtcdStore;
use gatun_cluster::node::{Node, NodeEngines, Places, SavedNode};
use gatun_control::{ClusterConfigOrder, ClusterControl};
use gatun_io::Waker;
use gatun_logstore::time::since_1970_ms;
use gatun_nat::redirect::Redirection;
use gatun_nat::workers::Steering;
use gatun_peer::driver::{self, StandingWriter};
use gatun_peer::link::{Acceptor, Link};
use gatun_peer::member::{AddressRange, Engines};
use gatun_peer::wire::ConfigKey;
use gatun_peer::workers::{FeedSettings, WorkerEngines};
use gatun_worker::{Clock, Handle};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::time::{Duration, SystemTime};

/// Time after which a call of the kernel that had no memory is tried again.
const EARLY: Duration = Duration::from_millis(200);
/// Longest time until etcd has the word of an operator, and orders that wait for it.
const ORDER_MAX: Duration = Duration::from_secs(5);
/// The same if all nodes check a configuration before.
const CONFIG_ORDER_MAX: Duration = Duration::from_secs(25);
const ORDERS_MAX: usize = 64;
/// Time for the start of the client of etcd.
const START_MAX: Duration = Duration::from_secs(10);

/// The thread, and orders to it.
#[derive(Clone)]
pub(crate) struct ClusterManager {
    /// `None` without `[cluster]`.
    on: Option<ClusterOrders>,
    /// Name of this node.
    name: String,
    shown: Shown,
}

/// Orders to the thread.
#[derive(Clone)]
pub(crate) struct ClusterOrders {
    sender: Sender<Order>,
    waker: Waker,
}

enum Order {
    /// The workers run, and have all sessions of the previous process. False: some of them are lost.
    Begin(Vec<Handle>, bool),
    /// The engines have another plan.
    Change(Box<Change>),
    /// Read the certificates again.
    Reread,
    /// Order of an operator.
    Operator(ClusterOrder, Answer),
    /// The configuration can be changed from now on.
    Access(ConfigAccess),
    /// Order of an operator, by name, about the configuration.
    Configure(ClusterConfigOrder, String, Answer),
    /// Tell the revisions of the configuration.
    Revisions(SyncSender<Revisions>),
}

type Revisions = Vec<(gatun_api::types::ClusterRevision, String)>;
type Answer = SyncSender<Result<(), String>>;

/// Parts of a configuration that the node uses.
struct Change {
    ranges: Vec<AddressRange>,
    keys: Vec<ConfigKey>,
    steering: Arc<Steering>,
}

impl Change {
    fn new(settings: &Settings, node: &ClusterSettings, steering: Arc<Steering>) -> Change {
        let ranges = by_shard(&settings.plan, &steering);
        let keys = of_cluster(settings, &node.cluster, (&steering, &ranges));
        Change { ranges, keys, steering }
    }

    fn layout(&self, node: &ClusterSettings) -> Layout {
        let names = (&node.cluster.name[..], &node.own().name[..]);
        Layout::new(names, node.cluster.own_ports, &self.ranges)
    }
}

/// Node before its thread starts.
pub(crate) struct PreparedCluster {
    change: Change,
    /// State of the process whose sessions this one inherits.
    saved: Option<SavedNode>,
    /// File for this process's state. `None` if its sessions do not outlive it.
    file: Option<StandingFile>,
    /// File of the numbers of revisions, and what the previous process has left.
    revision: (Option<RevisionFile>, SavedRevision),
}

/// Reads what the previous process has left, if the configuration has `[cluster]`. `shared` is the steering
/// of the workers.
///
/// # Errors
/// Returns an error if the file of the standing cannot be used.
pub(crate) fn prepare(
    settings: &Settings,
    shared: Option<&Arc<Steering>>,
    store: Option<&SessionStore>,
) -> anyhow::Result<Option<PreparedCluster>> {
    let (Some(node), Some(steering)) = (&settings.cluster, shared) else { return Ok(None) };
    let change = Change::new(settings, node, Arc::clone(steering));
    let layout = change.layout(node);
    let opened = store.map(|store| {
        let generations = (store.generation(), store.generation_before());
        StandingFile::open(store.directory(), generations, &layout)
    });
    let opened = opened.transpose().context("[cluster] cannot keep the state of the node")?;
    let (file, saved) = opened.map_or((None, None), |(file, saved)| (Some(file), saved));
    let revision = store.map(|store| RevisionFile::open(store.directory(), &node.cluster.name));
    let revision = revision.transpose().context("[cluster] cannot keep the numbers of revisions")?;
    let revision = revision.map_or((None, SavedRevision::default()), |(file, saved)| (Some(file), saved));
    Ok(Some(PreparedCluster { change, saved, file, revision }))
}

impl ClusterManager {
    /// Starts the thread, which enters its own sandbox, starts the client of etcd, and waits for the workers.
    ///
    /// # Errors
    /// Returns an error if a thread cannot start, or the settings of etcd cannot be used.
    pub(crate) fn start(
        (prepared, opened): (Option<PreparedCluster>, OpenedCluster),
        settings: &Settings,
        (health, clock): (HealthControl, Clock),
        (sandbox, events): (&Sandbox, &Sender<Event>),
    ) -> anyhow::Result<ClusterManager> {
        let (Some(prepared), Some(opened), Some(node)) = (prepared, opened, settings.cluster.clone()) else {
            return Ok(ClusterManager { on: None, name: String::new(), shown: Shown::default() });
        };
        let (shown, name) = (Shown::new(&node), node.own().name.clone());
        let waker = Waker::new().context("cannot create a descriptor for the thread of the cluster")?;
        let watch = Watch::new(node.clone(), shown.clone(), events.clone());
        let end = shown.end_of_panic(health.clone(), events.clone());
        let health = Health::new(node.clone(), health);
        health.hold();
        let access = None;
        let pending = PendingNode { node, prepared, clock, waker: waker.clone(), health, watch, access };
        let (sender, orders) = channel();
        let (started, starts) = sync_channel(1);
        let sandbox = sandbox.of_peer(settings);
        let body = move || {
            sandbox.enter(Calls::Peer);
            let _guard = Guard(Some(end));
            let OpenedNode { acceptor, links, etcd, authority } = opened;
            let wake = pending.waker.clone();
            match EtcdStore::start(etcd, move || wake.wake()) {
                Ok(store) => {
                    drop(started.send(Ok(())));
                    pending.run((acceptor, links), store, &authority, &orders);
                }
                Err(error) => drop(started.send(Err(error))),
            }
        };
        let thread = std::thread::Builder::new().name("cluster".into()).spawn(body);
        thread.context("cannot start the thread of the cluster")?;
        let started = starts.recv_timeout(START_MAX).context("the thread of the cluster does not start")?;
        started.context("[cluster] etcd")?;
        Ok(ClusterManager { on: Some(ClusterOrders { sender, waker }), name, shown })
    }

    /// Passes the running workers to the thread, once they have the sessions of the previous process.
    /// `has_all` is false if some of these are lost.
    pub(crate) fn begin(&self, workers: Vec<Handle>, has_all: bool) {
        if let Some(orders) = &self.on {
            orders.send(Order::Begin(workers, has_all));
        }
    }

    /// Orders for a reload. `None` without `[cluster]`.
    pub(crate) fn orders(&self) -> Option<ClusterOrders> {
        self.on.clone()
    }

    /// State and requests for the API.
    pub(crate) fn control(&self) -> ClusterControl {
        let Some(orders) = self.on.clone() else { return ClusterControl::default() };
        let (state, events) = (self.shown.clone(), self.shown.clone());
        let (configure, revisions) = (orders.clone(), orders.clone());
        let me = self.name.clone();
        ClusterControl {
            state: Box::new(move || state.current()),
            events: Box::new(move || events.events()),
            order: Box::new(move |what, node| {
                orders.ask(ORDER_MAX, |answer| Order::Operator(order(what, node.unwrap_or(&me)), answer))
            }),
            configure: Box::new(move |what, who| {
                configure.ask(CONFIG_ORDER_MAX, |answer| Order::Configure(what, who.to_owned(), answer))
            }),
            revisions: Box::new(move || {
                let (answer, answers) = sync_channel(1);
                revisions.send(Order::Revisions(answer));
                let late = |_| "the thread of the cluster has not answered: try again".to_owned();
                answers.recv_timeout(ORDER_MAX).map_err(late)
            }),
        }
    }
}

impl ClusterOrders {
    fn send(&self, order: Order) {
        // Without the thread, nobody executes it.
        let _ = self.sender.send(order);
        self.waker.wake();
    }

    fn ask(&self, limit: Duration, order: impl FnOnce(Answer) -> Order) -> Result<(), String> {
        let (answer, answers) = sync_channel(1);
        self.send(order(answer));
        let late = |_| Err("no answer of etcd: `gatun cluster events` tells whether it was done".to_owned());
        answers.recv_timeout(limit).unwrap_or_else(late)
    }

    /// Tells the node of another plan, after it was applied.
    pub(crate) fn set(&self, settings: &Settings, steering: Arc<Steering>) {
        if let Some(node) = &settings.cluster {
            self.send(Order::Change(Box::new(Change::new(settings, node, steering))));
        }
    }

    /// Lets the cluster change the configuration of this process from now on.
    pub(crate) fn give_access(&self, access: ConfigAccess) {
        self.send(Order::Access(access));
    }

    /// Has the certificates read again, for the next connections.
    pub(crate) fn reread(&self) {
        self.send(Order::Reread);
    }
}

/// State of the thread before the workers run.
struct PendingNode {
    node: ClusterSettings,
    prepared: PreparedCluster,
    clock: Clock,
    waker: Waker,
    health: Health,
    watch: Watch,
    access: Option<ConfigAccess>,
}

impl PendingNode {
    fn run(
        mut self,
        sockets: (Acceptor, Vec<Link>),
        store: EtcdStore,
        authority: &str,
        orders: &Receiver<Order>,
    ) {
        let (mut acceptor, mut links) = sockets;
        let Some((workers, has_all)) = self.wait(&mut acceptor, &mut links, orders) else { return };
        let PendingNode { node, prepared, clock, waker, health, watch, access } = self;
        let PreparedCluster { change, saved, file, revision } = prepared;
        let saved = saved.filter(|_| has_all);
        // Not before it is known that no session is lost: a standing of another generation is not used.
        if let (Some(file), Some(saved)) = (&file, &saved)
            && let Err(why) = file.save(&change.layout(&node), saved)
        {
            watch.failure(format!("cluster: {why}"));
        }
        let instance = file.as_ref().map_or_else(instance, |file| Ok(file.instance.clone()));
        let process = crate::seed().map(|seed| seed[0].max(1));
        let (Ok(instance), Ok(process)) = (instance, process) else {
            return watch.stop("no random numbers");
        };
        let generation = crate::takeover::clock_ms();
        let feeds = FeedSettings { packets: node.cluster.packets, len: RING, generation };
        let attached =
            WorkerEngines::attach(workers.clone(), change.steering.clone(), feeds, waker.clone(), ANSWER_MAX);
        let Some(mut engines) = attached else {
            return watch.stop("a worker did not answer at the start");
        };
        for _ in node.others() {
            engines.add_member();
        }
        let exchanges = exchanges(&node, process, &change.keys);
        let settings = node_settings(&node, instance, change.ranges.clone());
        let layout = change.layout(&node);
        let engines = NodeWorkers {
            engines,
            workers,
            node: node.clone(),
            places: None,
            kept: [None, None],
            is_changed: false,
        };
        let mut cluster = Node::new(settings, exchanges, saved, clock.now().0);
        // A reload that would change it is refused.
        cluster.set_division(division(&node, authority, &change.ranges));
        let mut config = ConfigDriver::new(revision, waker.clone());
        if let Some(access) = access {
            config.begin(access, &mut cluster);
        }
        let running = Running {
            config,
            cluster,
            engines,
            store,
            acceptor,
            links,
            saver: StandingWriter::default(),
            standing: (file, layout),
            steering: change.steering,
            node,
            clock,
            waker,
            health,
            watch,
            asked: VecDeque::new(),
        };
        running.run(orders);
    }

    /// Waits for the workers. `None` if the daemon ends before.
    fn wait(
        &mut self,
        acceptor: &mut Acceptor,
        links: &mut [Link],
        orders: &Receiver<Order>,
    ) -> Option<(Vec<Handle>, bool)> {
        let early = || Err("the sessions of the previous process are still being restored".to_owned());
        loop {
            match orders.recv() {
                Ok(Order::Begin(workers, has_all)) => return Some((workers, has_all)),
                Ok(Order::Change(change)) => self.prepared.change = *change,
                Ok(Order::Reread) => self.watch.reread(acceptor, links),
                Ok(Order::Operator(_, answer) | Order::Configure(_, _, answer)) => drop(answer.send(early())),
                Ok(Order::Access(access)) => self.access = Some(access),
                Ok(Order::Revisions(_)) => {}
                Err(_) => return None,
            }
        }
    }
}

/// Engines of the workers, and the places that they know.
struct NodeWorkers {
    engines: WorkerEngines,
    workers: Vec<Handle>,
    node: ClusterSettings,
    places: Option<Places>,
    /// Latest places of the workers, and those before: a worker frees none.
    kept: [Option<Arc<Redirection>>; 2],
    /// True if others have to hear of the places.
    is_changed: bool,
}

impl NodeEngines for NodeWorkers {
    fn of(&mut self, slot: usize) -> &mut dyn Engines {
        self.engines.of(slot)
    }

    fn assign(&mut self, shard: u8, slot: Option<usize>) {
        self.engines.assign(shard, slot);
    }

    fn places(&mut self, places: &Places) {
        let redirection = places::redirection(&self.node, places);
        for worker in &self.workers {
            // It does so before its next burst. Waiting for it would delay the leases.
            drop(worker.redirect(Some(Arc::clone(&redirection)), Duration::ZERO));
        }
        self.kept.swap(0, 1);
        (self.kept[0], self.places, self.is_changed) = (Some(redirection), Some(places.clone()), true);
    }
}

/// Node that is at work.
struct Running {
    config: ConfigDriver,
    cluster: Node,
    engines: NodeWorkers,
    store: EtcdStore,
    acceptor: Acceptor,
    links: Vec<Link>,
    saver: StandingWriter<SavedNode>,
    standing: (Option<StandingFile>, Layout),
    steering: Arc<Steering>,
    node: ClusterSettings,
    clock: Clock,
    waker: Waker,
    health: Health,
    watch: Watch,
    /// Orders that etcd has not answered.
    asked: VecDeque<(u64, Answer)>,
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
            let ms = self.turn();
            self.health.keep();
            answers.extend(self.answered());
            self.note(is_urgent || !answers.is_empty());
            // Whoever asks for the state after an answer finds the effect of the order.
            for (answer, result) in answers {
                let _ = answer.send(result);
            }
            if driver::wait(ms, &self.waker, Some(&self.acceptor), self.links.iter()).is_err() {
                // The kernel has no memory for the call: try again later.
                std::thread::sleep(EARLY);
            }
        }
    }

    /// Does what is due. Returns the time until the next turn, ms.
    fn turn(&mut self) -> u64 {
        let now_ms = self.clock.now().0;
        let Running { config, cluster, engines, store, acceptor, links, saver, standing, watch, .. } = self;
        let members = cluster.members_mut().map(|member| {
            let is_settled = member.is_settled();
            (&mut member.exchange, is_settled)
        });
        let all =
            links.iter_mut().zip(members).map(|(link, (exchange, is_settled))| (link, exchange, is_settled));
        if let Some(why) = acceptor.distribute(now_ms, all) {
            watch.stranger(now_ms, why);
        }
        cluster.set_broken(self.health.is_broken());
        if let Err(why) = config.turn(now_ms, cluster) {
            watch.failure(format!("cluster: {why}"));
        }
        let wall_ms = since_1970_ms(SystemTime::now());
        cluster.members_mut().for_each(|member| member.exchange.set_wall_clock(now_ms, wall_ms));
        let mut ms = cluster.turn(now_ms, engines, store);
        let (file, layout) = standing;
        let mut save = |saved: &SavedNode| file.as_ref().map_or(Ok(()), |file| file.save(layout, saved));
        saver.turn(now_ms, cluster.take_unsaved(), &mut save);
        if saver.error.is_none() {
            cluster.note_saved();
        }
        for (member, link) in cluster.members_mut().zip(links) {
            saver.hold(now_ms, member, link);
            ms = ms.min(driver::carry(now_ms, member, link));
        }
        ms.min(saver.timeout_ms(now_ms))
    }

    /// Tells others what has changed.
    fn note(&mut self, is_urgent: bool) {
        let now_ms = self.clock.now().0;
        let is_changed = std::mem::take(&mut self.engines.is_changed);
        let events = self.cluster.take_events();
        self.watch.events(now_ms, events);
        let is_due = is_urgent || is_changed || self.watch.is_due(now_ms);
        if !is_due {
            return;
        }
        let status = self.cluster.status(now_ms);
        if let Some(places) = &self.engines.places {
            self.health.set(now_ms, places, (&self.steering, &status));
        }
        let links = self.links.iter().map(Link::state);
        self.watch.publish(now_ms, &status, links, (&self.steering, self.saver.error.as_deref()));
    }

    /// Orders that etcd has answered, with their results.
    fn answered(&mut self) -> Vec<(Answer, Result<(), String>)> {
        let results = self.cluster.take_ordered().into_iter();
        let of = |(id, result)| {
            let place = self.asked.iter().position(|(asked, _)| *asked == id)?;
            Some((self.asked.remove(place)?.1, result))
        };
        results.filter_map(of).collect()
    }

    /// Executes an order. Returns its answer, if anybody waits for one.
    fn obey(&mut self, order: Order) -> Option<(Answer, Result<(), String>)> {
        match order {
            Order::Begin(..) => {}
            Order::Change(change) => {
                let own_ports = self.node.cluster.own_ports;
                self.standing.1 = change.layout(&self.node);
                let Change { ranges, keys, steering } = *change;
                self.engines.engines.steer_by(Arc::clone(&steering));
                self.cluster.members_mut().for_each(|member| member.exchange.set_keys(keys.clone()));
                self.cluster.set_addresses(ranges, own_ports);
                (self.steering, self.engines.is_changed) = (steering, true);
            }
            Order::Reread => self.watch.reread(&mut self.acceptor, &mut self.links),
            Order::Operator(order, answer) => {
                let given = self.cluster.order(self.clock.now().0, &order, &mut self.store);
                return self.await_order(given, answer);
            }
            Order::Access(access) => self.config.begin(access, &mut self.cluster),
            Order::Configure(what, who, answer) => {
                let now_ms = self.clock.now().0;
                let given = revisions::order(&mut self.cluster, &mut self.store, now_ms, (what, who));
                return self.await_order(given, answer);
            }
            Order::Revisions(answer) => {
                let status = self.cluster.status(self.clock.now().0);
                // Whoever has asked may have given up.
                let _ = answer.send(revisions::kept(self.cluster.revisions(), &status));
            }
        }
        None
    }

    /// Keeps the answer to an order until etcd has it, or returns it at once.
    fn await_order(
        &mut self,
        given: Result<u64, String>,
        answer: Answer,
    ) -> Option<(Answer, Result<(), String>)> {
        match given {
            Ok(id) => {
                if self.asked.len() >= ORDERS_MAX {
                    self.asked.pop_front();
                }
                self.asked.push_back((id, answer));
                None
            }
            Err(why) => Some((answer, Err(why))),
        }
    }
}
