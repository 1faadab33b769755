//! Manager of the sessions in P4 switches: its start and end, and what it does beside an offload manager.

use super::entries::{
    HopNumbers, HostView, IdentShare, Neighbours, SwitchEntries, SwitchPlace, entries_of, forget_unused,
};
use super::program;
use super::stateless::{self, Stateless};
use super::status::{self, Watch};
use crate::offload::{
    Driver, EndOfPanic, FastPathKind, ManagerOf, Order, Orders, SessionKey, SharedState, StatelessNames,
    manager_settings, number_prefixes,
};
use crate::ports::Ports;
use crate::sandbox::{Calls, Sandbox};
use crate::{Event, Settings};
use anyhow::Context as _;
use gatun_api::types::{self, Name};
use gatun_config::{Device, Offload, Port, SWITCHES_MAX};
use gatun_control::EarlierTranslator;
use gatun_ether::NeighbourReport;
use gatun_io_ether::{EthernetHandover, NeighbourExchange};
use gatun_nat::Plan;
use gatun_nat::feed::{FeedPolicy, Flow};
use gatun_nat::reconfigure::Outline;
use gatun_offload::{FlowFilter, Target as _, feed_policy};
use gatun_p4_controller::Switches;
use gatun_p4_controller::connection::{Connection, ConnectionConfig, Directory, TlsConfig, connect};
use gatun_p4_controller::program::{ConstantTos, Limits};
use gatun_worker::Handle;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// Interval of asking workers for their neighbours.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// Interval of waking sleeping workers, so that they answer and verify neighbours.
const WAKE_EVERY: Duration = Duration::from_secs(1);
/// Length of the manager's lease, which switches do not have.
const NO_LEASE: Duration = Duration::from_secs(60);
/// Longest time at the start to remove entries of an earlier process whose sessions have ended.
const CLEAR_MAX: Duration = Duration::from_secs(10);
/// Election IDs of a process, in each millisecond.
const CONNECTIONS_PER_MS: u64 = 4096;

/// The threads, and orders to them.
pub(crate) struct P4Manager {
    /// `None` without `[[offload]]`.
    on: Option<On>,
    status: SharedState<types::Offload>,
}

struct On {
    orders: P4Orders,
    /// True if the sessions of an earlier process have ended, so that its entries have to be removed.
    discards: bool,
    /// True once every switch has been read, and entries of nobody are removed.
    is_settled: Arc<AtomicBool>,
}

/// Orders to the thread.
#[derive(Clone)]
pub(crate) struct P4Orders {
    orders: Orders<P4>,
    /// True if the switches keep their sessions when the daemon is stopped.
    keeps_at_stop: Arc<AtomicBool>,
    devices: Arc<[(String, Device)]>,
    opened: Arc<Offload>,
    status: SharedState<types::Offload>,
    stateless: StatelessNames,
}

/// Other settings.
pub(super) struct Change {
    settings: gatun_offload::Settings,
    view: HostView,
    plan: Arc<Plan>,
    /// Stateless instances that stay with Gatun, by number.
    excluded_siit: Vec<u8>,
}

impl P4Manager {
    /// Starts the threads, which enter their own sandboxes and connect to the switches. `fits`: the sessions
    /// of the previous process go on, so its entries may stay.
    ///
    /// # Errors
    /// Returns an error if a file of the program cannot be read, or a thread cannot start.
    pub(crate) fn start(
        settings: &Settings,
        ports: &Ports,
        (fits, sandbox, events): (bool, &Sandbox, &Sender<Event>),
    ) -> anyhow::Result<P4Manager> {
        let (Some(offload), Some(live)) = (&settings.offload, &ports.live.ethernet) else {
            return Ok(P4Manager { on: None, status: SharedState::default() });
        };
        let devices: Arc<[(String, Device)]> = live.devices.clone().into();
        let view = host_view(settings, offload, &devices);
        let configs = connections(offload, &view)?;
        let calls = sandbox.of_controller(offload);
        let prepare = move || drop(calls.enter(Calls::Controller));
        let links = connect(configs, prepare).context("cannot start the thread that connects to switches")?;
        let mut target = Switches::new(links, offload.sessions_max);
        if !fits {
            target.discard_found();
        }
        let status = SharedState::new(status::initial(offload));
        let is_settled = Arc::new(AtomicBool::new(false));
        let mut p4 = P4 {
            watch: Watch::new(status.clone(), events.clone(), true),
            view,
            step: settings.ports.workers() + ident_shares(),
            neighbour_exchanges: live.handovers.iter().map(EthernetHandover::neighbours).cloned().collect(),
            reports: vec![Vec::new(); live.handovers.len()],
            neighbours: Neighbours::new(),
            hops: HopNumbers::default(),
            entries: Vec::new(),
            stateless: Stateless::new(&settings.plan, &offload.excluded_siit),
            workers: Vec::new(),
            asked: Instant::now(),
            woken: Instant::now(),
            is_settled: Arc::clone(&is_settled),
            began: Instant::now(),
        };
        p4.learn();
        p4.set_stateless(&target);
        let driver = Driver {
            target,
            start: p4,
            settings: settings_of(Some(offload), &settings.plan),
            policy: FeedPolicy { tcp_packets: offload.tcp_packets, ..feed_policy(offload.udp_packets) },
            events: events.clone(),
        };
        let (orders, received) = channel();
        let sandbox = sandbox.clone();
        let body = move || {
            sandbox.enter(Calls::Daemon);
            driver.run(&received);
        };
        std::thread::Builder::new()
            .name("offload".into())
            .spawn(body)
            .context("cannot start the thread of the P4 switches")?;
        let keeps_at_stop = Arc::new(AtomicBool::new(offload.keeps_at_stop));
        let opened = Arc::new(offload.clone());
        let stateless = StatelessNames::default();
        stateless.set(true, &settings.plan, &offload.excluded_siit);
        let (orders, status_of) = (Orders(orders), status.clone());
        let orders = P4Orders { orders, keeps_at_stop, devices, opened, status: status_of, stateless };
        Ok(P4Manager { on: Some(On { orders, discards: !fits, is_settled }), status })
    }

    /// Number of shares of the identifications that the switches have, behind those of the workers.
    pub(crate) fn idents(&self) -> usize {
        if self.on.is_some() { ident_shares() } else { 0 }
    }

    /// Waits until entries of an earlier process whose sessions have ended are removed, before the first
    /// packet can get one of their ports. Returns a line for the log if a switch does not answer.
    pub(crate) fn wait_cleared(&self) -> Option<String> {
        let on = self.on.as_ref().filter(|on| on.discards)?;
        let begin = Instant::now();
        while !on.is_settled.load(Relaxed) {
            if begin.elapsed() > CLEAR_MAX {
                let what = "a switch does not answer: if it has entries of an earlier process, it translates \
                            by them until it is connected";
                return Some(what.to_owned());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    /// Passes the running workers to the thread.
    pub(crate) fn begin(&self, workers: Vec<Handle>) {
        if let Some(on) = &self.on {
            on.orders.orders.begin(workers);
        }
    }

    /// Orders for a reload. `None` without `[[offload]]`.
    pub(crate) fn orders(&self) -> Option<P4Orders> {
        self.on.as_ref().map(|on| on.orders.clone())
    }

    /// State for the API.
    pub(crate) fn status(&self) -> impl Fn() -> types::Offload + Send + Sync + 'static {
        let status = self.status.clone();
        move || status.get()
    }

    /// Ends the offload, while the workers still run.
    pub(crate) fn stop(&self) {
        if let Some(on) = &self.on {
            on.orders.orders.stop(on.orders.keeps_at_stop.load(Relaxed));
        }
    }
}

/// Every possible switch has a share, so that another number of switches changes nothing for the workers.
fn ident_shares() -> usize {
    SWITCHES_MAX
}

impl P4Orders {
    /// Keeps the thread from giving sessions to switches, before another plan is applied.
    pub(crate) fn pause(&self) {
        self.orders.pause();
    }

    /// Leaves flows that match to the engines, until it is called with `None`. Returns which switches
    /// translated their packets before.
    pub(crate) fn exclude(&self, filter: Option<FlowFilter>) -> EarlierTranslator {
        let Some(filter) = filter else {
            self.orders.exclude(None);
            return Arc::new(|_| None);
        };
        let of_instance = self.stateless_switches().map(|(switches, _)| {
            format!("{switches} translated plain packets of this instance until the trace began")
        });
        self.orders.exclude_traced(filter, find_traced, (&self.stateless, of_instance))
    }

    /// Says which switches translate the packets of a stateless instance. `None` if none does.
    pub(crate) fn stateless_translator(&self, name: &Name) -> Option<String> {
        let (switches, are_many) = self.stateless_switches().filter(|_| self.stateless.contains(name))?;
        let verb = if are_many { "translate" } else { "translates" };
        Some(format!("{switches} {verb} plain packets of this instance"))
    }

    /// Switches that have the stateless instances.
    fn stateless_switches(&self) -> Option<(String, bool)> {
        status::stateless_switches(&self.status.get())
    }

    /// Sets another configuration after its plan was applied. `outline` is that of an engine that has the
    /// plan.
    pub(crate) fn set(&self, settings: &Settings, outline: &Outline) {
        let offload = settings.offload.as_ref();
        let keeps = offload.is_some_and(|offload| offload.keeps_at_stop);
        self.keeps_at_stop.store(keeps, Relaxed);
        // Entries have the constant TOS bytes of the start.
        let offload = offload.map(|offload| Offload { excluded: self.excluded(offload), ..offload.clone() });
        let mut own = settings_of(offload.as_ref(), &settings.plan);
        number_prefixes(&mut own, &settings.plan, outline);
        let view = host_view(settings, &self.opened, &self.devices);
        let is_on = offload.is_some();
        let excluded_siit = offload.map_or_else(Vec::new, |offload| offload.excluded_siit);
        self.stateless.set(is_on, &settings.plan, &excluded_siit);
        self.orders.set(Change { settings: own, view, plan: Arc::clone(&settings.plan), excluded_siit });
    }

    /// Instances that stay with the engines, those with another constant TOS than at the start among them.
    fn excluded(&self, offload: &Offload) -> Vec<u8> {
        let of = |offload: &Offload, n: u8| offload.tos.get(usize::from(n)).copied().unwrap_or_default();
        let others = (0..=u8::MAX).filter(|&n| of(offload, n) != of(&self.opened, n));
        offload.excluded.iter().copied().chain(others).collect()
    }

    /// The section as it was when the threads started.
    pub(crate) fn opened(&self) -> &Offload {
        &self.opened
    }

    /// Says which switches translate the packets of a session, and since when.
    pub(crate) fn translator_of(&self, session: &types::Session) -> String {
        let unknown = || "a switch is about to translate its packets".to_owned();
        let Some(key) = status::key_of(session) else { return unknown() };
        let (answer, answers) = channel();
        self.orders.send(Order::Target(Box::new(move |target: &mut Switches<Connection>| {
            let _ = answer.send(target.having(&key).and_then(status::translators));
        })));
        answers.recv_timeout(crate::ANSWER_MAX).ok().flatten().unwrap_or_else(unknown)
    }

    /// Declares a switch gone: its sessions are released.
    ///
    /// # Errors
    /// Returns an error that says why not.
    pub(crate) fn set_gone(&self, name: &str) -> Result<(), String> {
        let (answer, answers) = channel();
        let wanted = name.to_owned();
        self.orders.send(Order::Target(Box::new(move |target: &mut Switches<Connection>| {
            let _ = answer.send(set_gone(target, &wanted));
        })));
        answers
            .recv_timeout(crate::ANSWER_MAX)
            .unwrap_or_else(|_| Err("the thread of the switches does not answer".to_owned()))
    }
}

/// Finds the sessions in switches that match, with the switches that have each.
fn find_traced(
    target: &mut Switches<Connection>,
    matches: &dyn Fn(&Flow) -> bool,
    found: &mut HashMap<SessionKey, String>,
) {
    let traced = target.present(matches);
    found.extend(
        traced.filter_map(|(key, having)| {
            Some((status::session_of(&key)?, status::earlier_translators(having)?))
        }),
    );
}

fn set_gone(target: &mut Switches<Connection>, name: &str) -> Result<(), String> {
    let Some(number) = target.position(name) else {
        let names: Vec<&str> = target.status().map(|status| &*status.name).collect();
        return Err(format!("no switch '{name}': the switches are {}", names.join(", ")));
    };
    match target.set_gone(number) {
        true => Ok(()),
        false => Err(format!("switch {name} is connected: it is not gone; stop it, and try again")),
    }
}

/// Settings of the manager.
fn settings_of(offload: Option<&Offload>, plan: &Plan) -> gatun_offload::Settings {
    let excluded = offload.map_or(&[][..], |offload| &offload.excluded);
    let sessions_max = offload.map_or(0, |offload| offload.sessions_max);
    manager_settings((offload.is_some(), sessions_max), NO_LEASE, excluded, plan)
}

/// The daemon's Ethernet host, with the place of each port.
fn host_view(settings: &Settings, offload: &Offload, devices: &[(String, Device)]) -> HostView {
    let Some(hosts) = settings.ports.hosts() else {
        return HostView::default();
    };
    let device = |port: &Port| {
        let found = devices.iter().find(|(name, _)| *name == port.device);
        found.map_or(Device { number: u8::MAX, mac: Default::default(), mtu: 0 }, |(_, device)| *device)
    };
    let place = |port: &Port| {
        let ethernet = port.ethernet.as_ref()?;
        let number = ethernet.switch_port?;
        let is_named = |name: &String| offload.switches.iter().position(|switch| switch.name == *name);
        let switch = ethernet.switch.as_ref().map_or(Some(0), is_named)?;
        Some(SwitchPlace { switch, port: number })
    };
    let places = hosts.ports.iter().filter(|port| port.ethernet.is_some()).map(place).collect();
    HostView::new(gatun_config::host(&hosts.ports, &hosts.networks, device, 1, 0), places)
}

fn connections(offload: &Offload, view: &HostView) -> anyhow::Result<Vec<ConnectionConfig>> {
    let pipeline = program::pipeline(offload)?;
    // No larger packet leaves a port; the engine fragments it, or answers.
    let limit = |at_most: u32| u16::try_from(at_most.min(view.mtu())).unwrap_or(u16::MAX);
    let limits = Limits {
        mtu4: limit(offload.mtus.mtu4),
        mtu6: limit(offload.mtus.mtu6),
        mtu6_without_df: limit(offload.mtus.mtu6_without_df),
        tos: offload.tos.iter().map(|&[to_ipv4, to_ipv6]| ConstantTos { to_ipv4, to_ipv6 }).collect(),
    };
    let tls = offload.tls.as_ref().map(|tls| TlsConfig {
        directory: Directory::new(&tls.directory),
        server_name: tls.server_name.clone(),
    });
    // Unusable files do not stop the start: each connection reads them again, and its switch has the reason.
    let first_connection = crate::takeover::clock_ms().saturating_mul(CONNECTIONS_PER_MS);
    let config = |switch: &gatun_config::P4Switch| ConnectionConfig {
        name: switch.name.clone(),
        address: switch.address.to_string(),
        device_id: switch.device_id,
        election: offload.election.into(),
        first_connection,
        pipeline: pipeline.clone(),
        limits: limits.clone(),
        controller_limit: offload.controller_rate,
        timeout: Duration::from_millis(offload.timeout_ms.into()),
        tls: tls.clone(),
    };
    Ok(offload.switches.iter().map(config).collect())
}

/// P4 switches as a fast path.
pub(super) struct P4 {
    watch: Watch,
    view: HostView,
    /// Shares of the identifications, of workers and switches together.
    step: usize,
    neighbour_exchanges: Vec<NeighbourExchange>,
    /// Last answer of each worker about its neighbours.
    reports: Vec<Vec<NeighbourReport>>,
    /// Neighbours with known MACs, of all workers.
    neighbours: Neighbours,
    hops: HopNumbers,
    /// Entries that each switch is to have.
    entries: Vec<SwitchEntries>,
    stateless: Stateless,
    workers: Vec<Handle>,
    asked: Instant,
    woken: Instant,
    is_settled: Arc<AtomicBool>,
    /// Time at which the clock of the turns begins.
    began: Instant,
}

impl FastPathKind for P4 {
    type Target = Switches<Connection>;
    type Start = P4;
    type Change = Change;
    const NAMES: [&'static str; 2] = ["offload", "a switch"];

    fn is_prepared(start: &mut P4, target: &mut Switches<Connection>, now: Duration) -> bool {
        start.began = Instant::now() - now;
        target.turn(now);
        start.keep_neighbours(target);
        start.watch.publish(|| None, target, ((&start.entries, now), &start.stateless));
        let is_settled = target.is_settled();
        if is_settled {
            start.is_settled.store(true, Relaxed);
        }
        is_settled
    }

    fn begin(start: P4, _: &Switches<Connection>, workers: &[Handle], _: &gatun_offload::Settings) -> P4 {
        P4 { workers: workers.to_vec(), ..start }
    }

    fn give_up(start: &P4, _: &Switches<Connection>) {
        status::set_unavailable(&start.watch.published(), "a worker did not answer at the start");
    }

    /// The switches go on with their entries, so the sessions stay reserved.
    fn end_of_panic(&self, _: &Switches<Connection>) -> EndOfPanic {
        let published = self.watch.published();
        Box::new(move || {
            let why = "its manager has panicked: this is a defect, please report it. The switches go on \
                       with their entries; restart gatun";
            status::set_unavailable(&published, why);
        })
    }

    fn turn(&mut self, manager: &mut ManagerOf<Self>) {
        let target = manager.target();
        self.keep_neighbours(target);
        if self.stateless.set_smallest_path(target.smallest_path()) {
            self.set_stateless(target);
        }
        self.stateless.credit(target, &self.workers);
        let now = self.began.elapsed();
        let (status, published) = (|| Some(manager.status()), (&self.entries[..], now));
        self.watch.publish(status, target, (published, &self.stateless));
    }

    /// Takes all stateless instances from the switches, and credits their packets by their present numbers.
    fn pause(&mut self, manager: &mut ManagerOf<Self>) {
        if self.stateless.has_any() {
            self.stateless.is_paused = true;
            self.remove_stateless(manager.target());
        }
    }

    fn set_traced(&mut self, manager: &mut ManagerOf<Self>, is_traced: bool) {
        self.stateless.is_traced = is_traced;
        if self.stateless.has_any() {
            self.set_stateless(manager.target());
        }
    }

    fn set(&mut self, manager: &mut ManagerOf<Self>, change: Change) -> bool {
        let Change { settings, view, plan, excluded_siit } = change;
        let is_off = !settings.enabled;
        self.watch.set_enabled(settings.enabled);
        self.view = view;
        self.stateless.set(plan, excluded_siit, is_off);
        // Ports may have other numbers.
        self.reports.iter_mut().for_each(Vec::clear);
        self.learn();
        self.set_stateless(manager.target());
        // A switch that was slow may have mappings of the earlier plan until now.
        self.wait_written(manager.target());
        manager.set_settings(settings);
        is_off
    }

    fn before_stop(&mut self, manager: &mut ManagerOf<Self>, keeps: bool) {
        if !keeps && self.stateless.has_any() {
            self.stateless.is_off = true;
            self.remove_stateless(manager.target());
        }
    }
}

impl P4 {
    /// Asks workers for their neighbours, and gives switches what has changed.
    fn keep_neighbours(&mut self, target: &Switches<Connection>) {
        if self.asked.elapsed() < ASK_EVERY {
            return;
        }
        self.asked = Instant::now();
        let answers = self.neighbour_exchanges.iter().zip(&mut self.reports);
        let has_any = answers.fold(false, |has_any, (board, report)| board.ask(report) || has_any);
        if has_any && self.learn() {
            self.set_entries(target);
        }
        if self.woken.elapsed() >= WAKE_EVERY {
            self.woken = Instant::now();
            self.workers.iter().for_each(|worker| worker.request_snapshot(|_| ()));
        }
    }

    /// Takes what the workers know, and configured neighbours. Returns whether anything has changed.
    fn learn(&mut self) -> bool {
        let known = self.reports.iter().flatten();
        let mut neighbours: Neighbours =
            known.filter_map(|of| Some(((of.port, of.address), of.mac?))).collect();
        for (number, port) in self.view.settings.ports.iter().enumerate() {
            neighbours.extend(port.neighbours.iter().map(|fixed| ((number, fixed.addr), fixed.mac)));
        }
        let has_changed = neighbours != self.neighbours;
        self.neighbours = neighbours;
        has_changed
    }

    /// Gives each switch the stateless instances in their present form.
    fn set_stateless(&mut self, target: &Switches<Connection>) {
        self.stateless.refresh(&self.view);
        self.set_entries(target);
    }

    /// Removes the stateless instances, and credits their last packets.
    fn remove_stateless(&mut self, target: &Switches<Connection>) {
        self.set_stateless(target);
        self.wait_written(target);
        self.stateless.credit_all(target, &self.workers);
    }

    /// Waits until the switches in use have the present entries.
    fn wait_written(&self, target: &Switches<Connection>) {
        for name in stateless::wait_written(target) {
            self.watch.say(format!(
                "switch {name}: has not confirmed changes of mappings and routes: it translates by the \
                 earlier ones until it answers"
            ));
        }
    }

    /// Gives each switch its interfaces, routes, next hops and stateless instances.
    fn set_entries(&mut self, target: &Switches<Connection>) {
        let workers = self.step.saturating_sub(ident_shares());
        let mut next = Vec::new();
        for number in 0..target.status().count() {
            let idents = IdentShare { step: self.step as u16, first: (workers + number) as u16 };
            let mut entries = entries_of(number, &self.view, &self.neighbours, (&mut self.hops, idents));
            entries.entries.extend_from_slice(self.stateless.entries());
            next.push(entries);
        }
        forget_unused(&self.view, &self.neighbours, &mut self.hops);
        for (number, entries) in next.iter().enumerate() {
            if self.entries.get(number) != Some(entries) {
                target.link(number).set_entries(entries.entries.clone());
            }
        }
        self.entries = next;
    }
}
