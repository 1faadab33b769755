//! The daemon: devices, workers, signals. What it does to packets is the engine's matter.
//!
//! ```text
//!   memory, engines, sessions of the process before -> the API's socket -> privileges to CAP_NET_ADMIN -> devices -> a thread that watches their links -> no privileges, and a sandbox
//!     -> one thread a worker -> signals and links, until the end
//! ```
#![forbid(unsafe_code)]

mod by_instance;
mod collectors;
mod config_file;
mod connector;
mod control;
mod counters;
#[cfg(feature = "dpdk")]
mod dpdk;
#[cfg(any(feature = "xdp", feature = "dpdk"))]
mod ethernet;
mod event_file;
mod event_log;
mod hearers;
mod links;
mod live_ports;
mod log_store;
mod memory;
mod notify;
mod outlet;
mod ports;
mod privileges;
mod reload;
pub mod replace;
mod sandbox;
mod signals;
pub mod state;
pub mod tables;
pub mod takeover;
#[cfg(feature = "xdp")]
mod xdp;

use anyhow::{Context as _, bail};
use config_file::ConfigFile;
use control::Sockets;
use gatun_api::types::ConfigProblem;
use gatun_config::{EventSink, Export, Log, StateDir};
use gatun_io::{Backend, Processors};
use gatun_io_tun::LinkEvent;
use gatun_nat::workers::Shares;
use gatun_nat::{EventKinds, Nat, Plan};
use gatun_worker::exchange::{Exchange, exchange};
use gatun_worker::{Clock, Handle, Snapshot, Worker};
use hearers::{Hearers, Means};
use notify::Notifier;
use outlet::Output;
use ports::Ports;
use reload::{Crew, Reload};
use rustix::rand::{GetRandomFlags, getrandom};
use sandbox::Sandbox;
use signals::Signal;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use takeover::{Estate, Taking};

pub use control::ControlSettings;
#[cfg(feature = "dpdk")]
pub use dpdk::DpdkPorts;
pub use hearers::difference::{Changes, Heard};
pub use outlet::print_bytes;
pub use ports::PortSettings;
pub use privileges::User;
pub use reload::maps::mapping;
#[cfg(feature = "xdp")]
pub use xdp::XdpPorts;

/// How long a worker may take to answer between two bursts.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// What of a configuration the daemon uses.
#[derive(Clone)]
pub struct Settings {
    /// For all engines together.
    pub plan: Plan,
    /// Where events go.
    pub events: Option<EventSink>,
    /// Which of them.
    pub json_kinds: EventKinds,
    /// Whether with the remote ends of sessions.
    pub json_destinations: bool,
    /// Collectors of events.
    pub exports: Vec<Export>,
    /// The log of who had which port when.
    pub log: Option<Log>,
    /// Where packets come from and go to.
    pub ports: PortSettings,
    /// Processors of the workers, one for each; none: as the backend has it.
    pub cores: Vec<u16>,
    /// Where the daemon is asked.
    pub control: ControlSettings,
    /// Where sessions are kept for the next process.
    pub state: StateDir,
    /// Files that were read beside the configuration.
    pub beside: Vec<PathBuf>,
    /// What it takes.
    pub costs: Costs,
}

/// What a configuration takes when all is full.
#[derive(Clone, Copy, Debug, Default)]
pub struct Costs {
    /// Of all tables of all workers.
    pub memory_bytes: u64,
    /// 0 without a log.
    pub log_bytes_a_day: u64,
    /// 0 without JSON lines.
    pub events_bytes_a_day: u64,
}

/// Where a configuration is read from.
pub enum Source<'t> {
    /// The file.
    File,
    /// What is to stand in the file.
    Text(&'t str),
}

/// A configuration that was read.
pub struct Read {
    /// What it asks for; none where that is wrong.
    pub settings: Option<Settings>,
    /// What is wrong with it, or doubtful.
    pub problems: Vec<ConfigProblem>,
}

/// Reads a configuration.
pub type Reader = Box<dyn Fn(Source<'_>) -> Read + Send>;

/// What the daemon needs to begin.
pub struct Setup {
    /// What the configuration asks for.
    pub settings: Settings,
    /// Its file.
    pub file: PathBuf,
    /// Reads it again, or another one.
    pub read: Reader,
    /// Whom to become once the devices are open.
    pub user: Option<User>,
    /// Whether to begin without the sessions of the process before.
    pub forget: bool,
    /// Whether it gives up all it does not need.
    pub sandboxed: bool,
    /// When the process began, for the figure in the log.
    pub started: Instant,
}

/// What the main thread waits for.
enum Event {
    Signal(Signal),
    Link(LinkEvent),
    /// Something about a network interface, to be logged.
    #[cfg(any(feature = "xdp", feature = "dpdk"))]
    Interface(String),
    /// Nothing is heard of links any more.
    LinksUnwatched(io::Error),
    WorkerEnded {
        worker: usize,
        last: Box<Snapshot>,
        error: Option<io::Error>,
    },
}

/// Runs until a signal or the loss of a device ends it.
///
/// # Errors
/// What kept it from starting.
pub fn run(setup: Setup) -> anyhow::Result<ExitCode> {
    // Whoever cannot have the tables has no device made either.
    let settings = setup.settings;
    let clock = Clock::new();
    let notifier = Notifier::from_environment();
    let mut said = Vec::new();
    let mut estate = takeover::open(&settings, setup.user.as_ref(), (clock, setup.forget), &mut said)?;
    let Built { mut engines, exchange, crew } =
        build(&settings.plan, settings.ports.workers(), estate.as_mut())?;
    let taking = estate.as_ref().and_then(|estate| {
        let steering = crew.as_ref().map(|crew| &*crew.steering);
        estate.take_over(&settings.plan, &mut engines, steering, clock)
    });
    let sockets = Sockets::open(&settings.control)?;
    privileges::keep_for_start(setup.user.is_some(), settings.ports.rights())?;
    let (sender, events) = channel();
    let left = estate.as_ref().map(Estate::devices_left);
    let sandbox = if setup.sandboxed { Sandbox::of(&settings) } else { Sandbox::none() };
    let processors = settings.ports.processors(&settings.cores)?;
    if let Some(processors) = &processors {
        // Before other threads start: these stay where this one does.
        processors.others.stay().context("the processors of the daemon's other threads")?;
    }
    let mut ports = Ports::open(&settings.ports, left, (setup.user, &sandbox), &sender)?;
    privileges::drop_all(setup.user.as_ref())?;
    let connect = connector::start(&sandbox)?;
    let in_force = sandbox.enter(settings.ports.calls());
    said.push(in_force.to_string());

    let output = Output::new()?;
    ports.describe(&output);
    said.iter().for_each(|line| output.log(line));
    taking.iter().for_each(|taking| taking.tell(&output));
    // Before the first worker runs, so that no signal finds the default handler.
    signals::watch(sender.clone())?;
    let backends = std::mem::take(&mut ports.backends);
    let goes_on = taking.as_ref().is_some_and(Taking::is_some);
    let means = Means { connect, sandbox };
    let hearers = Hearers::start(&settings, &mut engines, (clock, goes_on), means, &output)?;
    if let Some(estate) = &mut estate {
        estate.begin(&settings.plan, ports.names.clone(), &mut engines, clock)?;
    }
    let workers = start_workers(engines, backends, exchange, (clock, processors), &sender)?;
    let count = workers.len();
    let handles: Vec<Handle> = workers.iter().map(|worker| worker.handle.clone()).collect();
    let tls = sockets.tls();
    let (orders, requests) = channel();
    if let Some(taking) = taking {
        let orders = orders.clone();
        taking
            .watch(handles.clone(), output.clone(), move || drop(orders.send(reload::Request::AllAreBack)))?;
    }
    let (facts, _socket) = sockets.serve(
        &settings,
        handles.clone(),
        &hearers,
        in_force.told(),
        reload::desk(&orders),
        &output,
    )?;
    let ms = setup.started.elapsed().as_secs_f64() * 1e3;
    output.log(&format!("{}, {ms:.1} ms after start", translating(count)));
    let reload = Reload {
        settings,
        crew,
        read: setup.read,
        file: ConfigFile::new(&setup.file),
        unconfirmed: None,
        workers: handles,
        facts,
        tls,
        ports: ports.live,
        devices: ports.names,
        orders: ports.orders,
        roster: hearers.roster(),
        estate,
        notifier: notifier.clone(),
        output: output.clone(),
    };
    reload.start(requests)?;
    notifier.ready(&translating(count));
    let exit = supervise(workers, &events, &orders, (&output, &notifier));
    hearers.finish(&output);
    Ok(exit)
}

fn translating(workers: usize) -> String {
    format!("translating with {workers} worker{}", if workers == 1 { "" } else { "s" })
}

struct Running {
    handle: Handle,
    thread: JoinHandle<()>,
}

/// An engine for each worker, and, where several share what has state, how they hand packets over.
struct Built {
    engines: Vec<Nat>,
    exchange: Vec<Exchange>,
    crew: Option<Crew>,
}

fn build(plan: &Plan, workers: usize, mut estate: Option<&mut Estate>) -> anyhow::Result<Built> {
    if workers <= 1 || !plan.is_stateful() {
        let engines = build_engines(&vec![plan; workers], estate)?;
        return Ok(Built { engines, exchange: Vec::new(), crew: None });
    }
    let shares = match estate.as_mut() {
        Some(estate) => estate.share(plan, workers, seed()?),
        None => Shares::new(plan, workers, seed()?),
    };
    let shares = shares.map_err(|e| anyhow::anyhow!("{}", e.0))?;
    let engines = build_engines(&shares.plans.iter().collect::<Vec<_>>(), estate)?;
    let crew = Crew::new(shares);
    let exchange = exchange(workers, &crew.steering).context("no exchange between workers")?;
    Ok(Built { engines, exchange, crew: Some(crew) })
}

/// An engine for each plan, where there is memory for all of them.
fn build_engines(plans: &[&Plan], mut estate: Option<&mut Estate>) -> anyhow::Result<Vec<Nat>> {
    memory::check(plans)?;
    let mut engines: Vec<Nat> = Vec::new();
    for plan in plans {
        let keep = estate.as_mut().map(|estate| estate.keep(plan)).transpose()?;
        let nat = match engines.first() {
            None => Nat::keeping(plan, seed()?, keep),
            Some(first) => first.sibling(plan, seed()?, keep),
        };
        engines.push(nat.map_err(|e| anyhow::anyhow!("the engine cannot be built: {}", e.0))?);
    }
    Ok(engines)
}

fn start_workers(
    engines: Vec<Nat>,
    backends: Vec<Box<dyn Backend>>,
    exchange: Vec<Exchange>,
    (clock, processors): (Clock, Option<Processors>),
    events: &Sender<Event>,
) -> anyhow::Result<Vec<Running>> {
    let mut built = Vec::new();
    let workers = engines.len();
    let mut exchange = exchange.into_iter();
    for (worker, (mut nat, backend)) in engines.into_iter().zip(backends).enumerate() {
        nat.set_worker(worker, workers);
        built.push(match exchange.next() {
            Some(exchange) => Worker::sharing(nat, backend, clock, exchange),
            None => Worker::new(nat, backend, clock)?,
        });
    }
    let mut running = Vec::new();
    for (index, (worker, handle)) in built.into_iter().enumerate() {
        let events = events.clone();
        let processor = processors.as_ref().and_then(|processors| processors.workers.get(index)).copied();
        let body = move || {
            // The scheduler's choice where it is refused.
            let _ = processor.map(|processor| processor.stay());
            let (last, error) = worker.run();
            // The main thread is gone only where the process ends anyway.
            let _ = events.send(Event::WorkerEnded { worker: index, last: Box::new(last), error });
        };
        let thread = std::thread::Builder::new().name(format!("worker-{index}")).spawn(body)?;
        running.push(Running { handle, thread });
    }
    Ok(running)
}

/// Answers signals until every worker has ended.
fn supervise(
    workers: Vec<Running>,
    events: &Receiver<Event>,
    reload: &Sender<reload::Request>,
    (output, notifier): (&Output, &Notifier),
) -> ExitCode {
    let mut total = Snapshot::default();
    let mut success = true;
    let mut ended = 0;
    let mut told_alive = Instant::now();
    while ended < workers.len() {
        let event = match notifier.alive_every() {
            None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(every) => {
                events.recv_timeout((told_alive + every).saturating_duration_since(Instant::now()))
            }
        };
        match event {
            Ok(Event::Signal(Signal::Stop)) => {
                notifier.stopping();
                workers.iter().for_each(|w| w.handle.stop());
            }
            Ok(Event::Signal(Signal::Report)) => {
                output.print(&counters::render("counters", &snapshot(&workers, output)));
            }
            // The thread lives as long as this.
            Ok(Event::Signal(Signal::Reload)) => drop(reload.send(reload::Request::Signal)),
            Ok(Event::Link(event)) => output.log(&links::describe(&event)),
            #[cfg(any(feature = "xdp", feature = "dpdk"))]
            Ok(Event::Interface(what)) => output.log(&what),
            Ok(Event::LinksUnwatched(error)) => output.log(&format!(
                "links are not watched any more ({error}): after one was down, restart gatun to set its routes"
            )),
            Ok(Event::WorkerEnded { worker, last, error }) => {
                ended += 1;
                total += &last;
                if let Some(error) = error {
                    output.error(&format!("worker {worker}: {error}"));
                    success = false;
                    // One device less is not what was configured: stop, and let the operator know.
                    workers.iter().for_each(|w| w.handle.stop());
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                told_alive = Instant::now();
                if workers.iter().all(|w| w.handle.settling(ANSWER_MAX).is_some()) {
                    notifier.alive();
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    for worker in workers {
        if worker.thread.join().is_err() {
            output.error("a worker panicked: this is a defect, please report it with the lines above");
            success = false;
        }
    }
    success &= output.finish(&counters::render("final counters", &total), &counters::short(&total));
    if success { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn snapshot(workers: &[Running], output: &Output) -> Snapshot {
    let mut total = Snapshot::default();
    for worker in workers {
        match worker.handle.snapshot(ANSWER_MAX) {
            Some(snapshot) => total += &snapshot,
            None => output.error("a worker does not answer; its counters are missing below"),
        }
    }
    total
}

/// Hash and port keys that nobody can guess.
fn seed() -> anyhow::Result<[u64; 4]> {
    let mut bytes = [0u8; 32];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty()).context("no random numbers for the seed")?;
    if filled != bytes.len() {
        bail!("no random numbers for the seed");
    }
    let (words, _) = bytes.as_chunks::<8>();
    Ok(std::array::from_fn(|i| words.get(i).map_or(0, |w| u64::from_ne_bytes(*w))))
}
