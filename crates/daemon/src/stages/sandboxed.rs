//! Stage 4: the sandbox is active.

use super::Start;
use super::listening::Listening;
use super::opened::Opened;
use super::prepared::{Built, Prepared};
use super::running::{Running, Thread};
use crate::config_file::ConfigFile;
use crate::control::Process;
use crate::event_sinks::{EventSinks, SinkRights};
use crate::output::Output;
use crate::ports::Ports;
use crate::reload::{self, Reload, Request};
use crate::sandbox::Enforced;
use crate::takeover::RestoredSessions;
use crate::{Event, signals, translating};
use gatun_export::Connect;
use gatun_io::{Backend, Processors};
use gatun_nat::Nat;
use gatun_worker::exchange::Exchange;
use gatun_worker::{Clock, Handle, Worker};
use std::sync::mpsc::{Sender, channel};

/// Process in the sandbox, which applies to all threads that start later.
pub(super) struct Sandboxed {
    pub(super) opened: Opened,
    pub(super) connect: Connect,
    pub(super) signals: signals::Watched,
    pub(super) in_force: Enforced,
}

impl Sandboxed {
    /// Opens event sinks, starts workers, and serves the API.
    ///
    /// # Errors
    /// If a file cannot be opened, or a thread cannot start.
    pub(super) fn start(self) -> anyhow::Result<Running> {
        let Sandboxed { opened, connect, signals, in_force } = self;
        let Opened { listening: Listening { prepared, sockets }, mut ports, processors } = opened;
        let Prepared { start, built, mut session_store, restored, records, pages } = prepared;
        let Built { mut engines, exchange, shared_plans } = built;
        let Start { settings, sandbox, clock, notifier, sender, .. } = start;
        let output = begin_log(&ports, &start.notes, restored.as_ref())?;
        // Before the first worker runs, so that no signal reaches the default handler.
        signals.listen(sender.clone())?;
        let goes_on = restored.as_ref().is_some_and(RestoredSessions::is_some);
        let means = SinkRights { connect, sandbox };
        let event_sinks = EventSinks::start(&settings, &mut engines, (clock, goes_on), means, &output)?;
        if let Some(session_store) = &mut session_store {
            session_store.begin(&settings.plan, &mut engines, clock)?;
        }
        let backends = std::mem::take(&mut ports.backends);
        let workers = start_workers(engines, backends, exchange, (clock, processors), &sender)?;
        let count = workers.len();
        let handles: Vec<Handle> = workers.iter().map(|worker| worker.handle.clone()).collect();
        let tls = sockets.tls();
        let (orders, requests) = channel();
        if let Some(restored) = restored {
            let (orders, output) = (orders.clone(), output.clone());
            restored.watch(handles.clone(), output, move || drop(orders.send(Request::AllAreBack)))?;
        }
        let (told, config_orders) =
            (in_force.told_with(&ports.helper.missing), reload::config_orders(&orders));
        let process = Process { workers: handles.clone(), sandbox: told, helper: ports.helper.clone() };
        let (facts, socket) = sockets.serve(&settings, process, &event_sinks, config_orders, &output)?;
        let ms = start.started.elapsed().as_secs_f64() * 1e3;
        output.log(&format!("{}, {ms:.1} ms after start", translating(count)));
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
            notifier: notifier.clone(),
            output: output.clone(),
        };
        reload.start(requests)?;
        notifier.ready(&translating(count));
        Ok(Running {
            workers,
            events: start.events,
            reload: orders,
            event_sinks,
            records,
            output,
            notifier,
            _socket: socket,
            _ports: ports,
        })
    }
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
    events: &Sender<Event>,
) -> anyhow::Result<Vec<Thread>> {
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
