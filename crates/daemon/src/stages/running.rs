//! Stage 5: the daemon runs; signals and links until the end.

use crate::event_sinks::EventSinks;
use crate::notify::Notifier;
use crate::output::Output;
use crate::ports::Ports;
use crate::reload::Request;
use crate::signals::Signal;
use crate::{ANSWER_MAX, Event, counters, state};
use gatun_control::listen::SocketFile;
use gatun_worker::{Handle, Snapshot};
use std::fs::File;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Instant;

/// Process that translates packets.
pub(super) struct Running {
    pub(super) workers: Vec<Thread>,
    pub(super) events: Receiver<Event>,
    pub(super) reload: Sender<Request>,
    pub(super) event_sinks: EventSinks,
    /// Files of the session records.
    pub(super) records: Vec<File>,
    pub(super) output: Output,
    pub(super) notifier: Notifier,
    /// File of the API's socket. It is removed when the daemon ends.
    pub(super) _socket: Option<SocketFile>,
    /// Ports, whose devices' names stay locked until the last worker has ended.
    pub(super) _ports: Ports,
}

impl Running {
    /// Handles signals until every worker has ended, and writes the remaining output.
    pub(super) fn supervise(self) -> ExitCode {
        let Running { workers, events, reload, event_sinks, records, output, notifier, _socket, _ports } =
            self;
        let exit = supervise(workers, &events, &reload, (&output, &notifier));
        event_sinks.finish(&output);
        records.iter().for_each(state::give_back_unwritten);
        exit
    }
}

/// Thread of a worker.
pub(super) struct Thread {
    pub(super) handle: Handle,
    pub(super) thread: JoinHandle<()>,
}

/// Handles signals until every worker has ended.
fn supervise(
    workers: Vec<Thread>,
    events: &Receiver<Event>,
    reload: &Sender<Request>,
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
                    // Without this device the daemon does not run as configured. It stops to alert the operator.
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
