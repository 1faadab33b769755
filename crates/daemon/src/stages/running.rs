//! Stage 5: event sinks, workers, the API and reload run; signals and links until the end.

use super::Start;
use super::fast_paths::FastPaths;
use super::listening::Listening;
use super::opened::Opened;
use super::prepared::{Built, Prepared};
use super::sandboxed::Sandboxed;
use crate::boxes::Boxes;
use crate::config_file::ConfigFile;
use crate::control::Process;
use crate::event_sinks::{EventSinks, SinkRights};
use crate::health::HealthControl;
use crate::notify::Notifier;
use crate::output::Output;
use crate::ports::Ports;
use crate::reload::{self, Reload, Request};
use crate::signals::Signal;
use crate::takeover::{RestoredSessions, SessionStore};
use crate::{ANSWER_MAX, Event, counters, state, translating};
use gatun_control::listen::SocketFile;
use gatun_io::{Backend, Processors};
use gatun_nat::{Nat, Plan};
use gatun_worker::exchange::Exchange;
use gatun_worker::{Clock, Handle, Snapshot, Worker};
use std::fs::File;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

/// Process that translates packets.
pub(super) struct Running {
    workers: Vec<Thread>,
    events: Receiver<Event>,
    reload: Sender<Request>,
    event_sinks: EventSinks,
    fast_paths: FastPaths,
    /// Files of the session records.
    records: Vec<File>,
    output: Output,
    notifier: Notifier,
    health: HealthControl,
    /// File of the API's socket. It is removed when the daemon ends.
    _socket: Option<SocketFile>,
    /// Ports, whose devices' names stay locked until the last worker has ended.
    _ports: Ports,
}

impl Running {
    /// Opens event sinks, starts workers, and serves the API.
    ///
    /// # Errors
    /// Returns an error if a file cannot be opened, or a thread cannot start.
    pub(super) fn new(sandboxed: Sandboxed) -> anyhow::Result<Running> {
        let Sandboxed { opened, connect, signals, in_force, fast_paths, boxes } = sandboxed;
        let Opened { listening, mut ports, processors, health, .. } = opened;
        let Listening { prepared, sockets, .. } = listening;
        let Prepared { start, built, mut session_store, restored, records, pages, .. } = prepared;
        let Built { mut engines, exchange, shared_plans } = built;
        let Start { settings, sandbox, clock, notifier, sender, .. } = start;
        let output = begin_log(&ports, &start.notes, restored.as_ref())?;
        // Before the first worker runs, so that no signal reaches the default handler.
        signals.listen(sender.clone())?;
        let goes_on = restored.as_ref().is_some_and(RestoredSessions::is_some);
        let rights = SinkRights { connect, sandbox };
        let event_sinks = EventSinks::start(&settings, &mut engines, (clock, goes_on), rights, &output)?;
        save_sessions(session_store.as_mut(), &settings.plan, (&mut engines, clock), (&fast_paths, &boxes))?;
        fast_paths.wait_cleared(&output);
        let (backends, to) = (std::mem::take(&mut ports.backends), (&sender, &fast_paths));
        let workers = start_workers(engines, backends, exchange, (clock, processors), to)?;
        let handles: Vec<Handle> = workers.iter().map(|worker| worker.handle.clone()).collect();
        fast_paths.begin(&handles);
        let (tls, (orders, requests)) = (sockets.tls(), channel());
        watch_restored(restored, &handles, (&orders, boxes.clone()), &output)?;
        let process = Process {
            workers: handles.clone(),
            sandbox: in_force.told_with(&ports.helper.missing),
            helper: ports.helper.clone(),
            fast_paths: fast_paths.shown(),
            health: health.control(),
            boxes: boxes.controls(),
        };
        let (facts, socket) =
            sockets.serve(&settings, process, &event_sinks, reload::config_orders(&orders), &output)?;
        log_start(&output, workers.len(), start.started);
        let reload = Reload {
            settings,
            shared_plans,
            read: start.read,
            file: ConfigFile::new(&start.file),
            unconfirmed: None,
            workers: handles,
            pages,
            facts,
            tls,
            ports: std::mem::take(&mut ports.live),
            devices: std::mem::take(&mut ports.names),
            orders: ports.routes.take(),
            sink_updater: event_sinks.sink_updater(),
            session_store,
            offload: fast_paths.orders(),
            health: health.control(),
            boxes: boxes.orders(),
            notifier: notifier.clone(),
            output: output.clone(),
        };
        let health = health.start(reload.workers.clone(), output.clone())?;
        reload.start(&orders, requests)?;
        notifier.ready(&translating(workers.len()));
        Ok(Running {
            workers,
            events: start.events,
            reload: orders,
            event_sinks,
            fast_paths,
            records,
            output,
            notifier,
            health,
            _socket: socket,
            _ports: ports,
        })
    }

    /// Handles signals until every worker has ended, and writes the remaining output.
    pub(super) fn supervise(self) -> ExitCode {
        let Running { workers, events, reload, event_sinks, fast_paths, .. } = self;
        let Running { records, output, notifier, health, _socket, _ports, .. } = self;
        let stop = || {
            health.withdraw();
            fast_paths.stop()
        };
        let exit = supervise(workers, &events, &reload, (&output, &notifier, &stop));
        event_sinks.finish(&output);
        records.iter().for_each(state::give_back_unwritten);
        exit
    }
}

/// Thread of a worker.
struct Thread {
    handle: Handle,
    thread: JoinHandle<()>,
}

fn log_start(output: &Output, workers: usize, started: Instant) {
    let ms = started.elapsed().as_secs_f64() * 1e3;
    output.log(&format!("{}, {ms:.1} ms after start", translating(workers)));
}

/// Reports when all sessions of the previous process are restored. The threads of other boxes begin then.
fn watch_restored(
    restored: Option<RestoredSessions>,
    workers: &[Handle],
    (orders, boxes): (&Sender<Request>, Boxes),
    output: &Output,
) -> anyhow::Result<()> {
    let workers = workers.to_vec();
    let Some(restored) = restored else {
        boxes.begin(workers, true);
        return Ok(());
    };
    let (orders, output) = (orders.clone(), output.clone());
    let done = {
        let workers = workers.clone();
        move |has_all| {
            boxes.begin(workers, has_all);
            drop(orders.send(Request::AllRestored));
        }
    };
    Ok(restored.watch(workers, output, done)?)
}

/// Lets the next process find the sessions.
fn save_sessions(
    store: Option<&mut SessionStore>,
    plan: &Plan,
    (engines, clock): (&mut [Nat], Clock),
    (fast_paths, boxes): (&FastPaths, &Boxes),
) -> anyhow::Result<()> {
    let Some(store) = store else { return Ok(()) };
    store.begin(plan, engines, clock)?;
    store.set_offloaded(fast_paths.orders().has_any().then_some(plan))?;
    boxes.sessions_are_named();
    Ok(())
}

/// Opens the log and writes the lines that start-up has collected.
fn begin_log(ports: &Ports, notes: &[String], restored: Option<&RestoredSessions>) -> anyhow::Result<Output> {
    let output = Output::new()?;
    ports.describe(&output);
    notes.iter().for_each(|line| output.log(line));
    restored.iter().for_each(|restored| restored.tell(&output));
    Ok(output)
}

fn start_workers(
    engines: Vec<Nat>,
    backends: Vec<Box<dyn Backend>>,
    exchange: Vec<Exchange>,
    (clock, processors): (Clock, Option<Processors>),
    (events, fast_paths): (&Sender<Event>, &FastPaths),
) -> anyhow::Result<Vec<Thread>> {
    let mut built = Vec::new();
    let workers = engines.len();
    let mut exchange = exchange.into_iter();
    let progress = fast_paths.progress();
    let others = fast_paths.idents();
    for (worker, (mut nat, backend)) in engines.into_iter().zip(backends).enumerate() {
        // The kernel and the switches have identifications of their own.
        nat.set_worker(worker, workers + others);
        let probe = backend.probe();
        let mut made = match exchange.next() {
            Some(exchange) => Worker::sharing(nat, backend, clock, exchange),
            None => Worker::new(nat, backend, clock)?,
        };
        if let Some(progress) = progress {
            made.0.publish_progress(progress.publisher(worker, probe));
        }
        built.push(made);
    }
    let mut running = Vec::new();
    for (index, (worker, handle)) in built.into_iter().enumerate() {
        let events = events.clone();
        let processor = processors.as_ref().and_then(|processors| processors.workers.get(index)).copied();
        let body = move || {
            // If pinning is refused, the scheduler chooses.
            let _ = processor.map(|processor| processor.pin_thread());
            let (last, error) = worker.run();
            // The main thread is gone only if the process is ending.
            let _ = events.send(Event::WorkerEnded { worker: index, last: Box::new(last), error });
        };
        let thread = std::thread::Builder::new().name(format!("worker-{index}")).spawn(body)?;
        running.push(Thread { handle, thread });
    }
    Ok(running)
}

/// Handles signals until every worker has ended.
fn supervise(
    workers: Vec<Thread>,
    events: &Receiver<Event>,
    reload: &Sender<Request>,
    (output, notifier, stop): (&Output, &Notifier, &dyn Fn() -> Result<(), String>),
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
                // The workers release the kernel's sessions.
                if let Err(why) = stop() {
                    output.error(&why);
                }
                workers.iter().for_each(|w| w.handle.stop());
            }
            Ok(Event::Signal(Signal::Report)) => {
                output.print(&counters::render("counters", &snapshot(&workers, output)));
            }
            Ok(Event::Signal(Signal::Reload)) => {
                if reload.send(Request::Signal).is_err() {
                    output.error("reload: the reload thread has ended; nothing has changed: restart gatun");
                }
            }
            Ok(Event::Line(line)) => output.log(&line),
            Ok(Event::Failure(line)) => output.error(&line),
            #[cfg(feature = "xdp")]
            Ok(Event::LinksUnwatched(error)) => output.log(&format!(
                "no longer watching interfaces ({error}): restart gatun when one of them changes"
            )),
            Ok(Event::WorkerEnded { worker, last, error }) => {
                ended += 1;
                total += &last;
                if let Some(error) = error {
                    output.error(&format!("worker {worker}: {error}"));
                    success = false;
                    // Without this device the daemon does not run as configured. It stops to alert the
                    // operator.
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

fn snapshot(workers: &[Thread], output: &Output) -> Snapshot {
    let mut total = Snapshot::default();
    for worker in workers {
        match worker.handle.snapshot(ANSWER_MAX) {
            Some(snapshot) => total += &snapshot,
            None => output.error("a worker does not answer; its counters are missing below"),
        }
    }
    total
}
