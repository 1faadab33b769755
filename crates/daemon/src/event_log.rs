//! Event thread: passes events as JSON lines to a file or to standard output, as records to the log's store,
//! and to collectors.
//!
//! The thread empties the rings of all workers. If its output is slow, rings fill up and events are lost,
//! which the next record reports; packets never wait. If the output cannot be written (a full disk), the log
//! says so, and later how many events are missing.

use super::Settings;
use super::event_file::EventFile;
use super::log_store::{LogSender, record_of};
use super::output::Output;
use anyhow::Context as _;
use gatun_config::EventSink;
use gatun_control::EventTap;
use gatun_export::{Batch, PlanNames, Sink, TimedEvent, json};
use gatun_logstore::Mark;
use gatun_logstore::time::since_1970_ms;
use gatun_nat::{Event, EventKind, EventKinds, EventReader};
use gatun_wire::text::counted;
use gatun_worker::Clock;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant, SystemTime};

/// Sleep of the thread while no event waits.
const IDLE: Duration = Duration::from_millis(50);
/// Longest wait for the last events at the end of the daemon.
const LAST_WRITES_MAX: Duration = Duration::from_secs(1);
/// Interval at which the file's path is checked for log rotation.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Difference in milliseconds above which the system's clock counts as set.
const CLOCK_SET_MS: u64 = 100;
/// Time in milliseconds that a reading of both clocks may take, and the largest number of further attempts.
const READING_MS: u64 = 1;
const READINGS_MAX: usize = 8;
/// Largest number of events written from one ring before the next ring.
const TURN: usize = 1024;
/// Largest number of turns before a change is applied.
const TURNS_BEFORE: usize = 64;

/// Handle of the event thread.
pub(super) struct EventLog {
    /// Disconnected once the thread has ended.
    ended: Receiver<()>,
    output: Output,
    orders: Sender<Order>,
}

/// Message to the thread.
pub(super) enum Order {
    /// Apply another configuration.
    Change(Box<Change>),
    /// Check if the engines are gone.
    Look,
}

/// Settings that a reload changes.
pub(super) struct Change {
    terms: OutputSettings,
    /// Another file, or none. `None` keeps the present one.
    lines: Option<Option<EventFile>>,
    sinks: Arc<Vec<Sink>>,
}

impl Change {
    /// Change to `settings` with these collectors, and to another file or none if `lines` is set.
    pub(super) fn to(settings: &Settings, lines: Option<Option<EventFile>>, sinks: Arc<Vec<Sink>>) -> Change {
        Change { terms: OutputSettings::of(settings), lines, sinks }
    }
}

/// Time of day of events. The engines' clock is steady, the system's clock may be set.
pub(super) struct TimeOfDay {
    clock: Clock,
    /// Start of the engines' clock by the present system clock, milliseconds since 1970.
    began_ms: u64,
}

impl TimeOfDay {
    pub(super) fn of(clock: Clock) -> TimeOfDay {
        let mut times = TimeOfDay { clock, began_ms: 0 };
        times.began_ms = times.began_now_ms();
        times
    }

    /// Start of the engines' clock by the present system clock. Both clocks are read at the same time: on a
    /// busy machine, the thread may wait between two readings, which then differ as if a clock had been set.
    fn began_now_ms(&self) -> u64 {
        let reading = || {
            let before = self.clock.now().0;
            let today = since_1970_ms(SystemTime::now());
            let after = self.clock.now().0;
            (after - before, today.saturating_sub(before))
        };
        let mut best = reading();
        for _ in 0..READINGS_MAX {
            if best.0 <= READING_MS {
                break;
            }
            best = best.min(reading());
        }
        best.1
    }

    /// Checks the system's clock. Returns the milliseconds by which it was set, if any.
    fn look(&mut self) -> Option<i64> {
        let began_ms = self.began_now_ms();
        let by_ms = began_ms.wrapping_sub(self.began_ms) as i64;
        if by_ms.unsigned_abs() < CLOCK_SET_MS {
            return None;
        }
        self.began_ms = began_ms;
        Some(by_ms)
    }

    fn ms(&self, event: &Event) -> u64 {
        self.began_ms.saturating_add(event.at.0)
    }
}

impl EventLog {
    /// Starts the thread. `times` gives the time of day, `log` gets records, and clients of the API read
    /// lines at `tap`.
    ///
    /// # Errors
    /// Returns an error if no thread can be started.
    pub(super) fn start(
        begin: Change,
        readers: Vec<EventReader>,
        times: TimeOfDay,
        log: Option<LogSender>,
        tap: EventTap,
        output: &Output,
    ) -> anyhow::Result<EventLog> {
        let (running, ended) = channel();
        let (orders, received) = channel();
        let Change { terms, lines, sinks } = begin;
        let lines = lines.flatten().map(|file| Lines::new(file, output.clone()));
        let output = output.clone();
        let mut thread = EventThread {
            readers,
            terms,
            times,
            lines,
            tap,
            log,
            sinks,
            orders: received,
            output: output.clone(),
        };
        let body = move || {
            let _running = running;
            thread.run();
        };
        std::thread::Builder::new().name("events".to_owned()).spawn(body)?;
        Ok(EventLog { ended, output, orders })
    }

    /// Channel for changes.
    pub(super) fn orders(&self) -> Sender<Order> {
        self.orders.clone()
    }

    /// Waits for the last events within a time limit, after the workers have ended.
    pub(super) fn finish(self) {
        let _ = self.orders.send(Order::Look);
        if self.ended.recv_timeout(LAST_WRITES_MAX) == Err(RecvTimeoutError::Timeout) {
            self.output.error("events: lost the last events: nobody reads the destination");
        }
    }
}

/// Opens the destination of lines.
///
/// # Errors
/// Returns an error if it cannot be written.
pub(super) fn open(sink: &EventSink) -> anyhow::Result<EventFile> {
    match (EventFile::open(sink), sink) {
        (Err(error), EventSink::File(path)) => {
            Err(error).with_context(|| format!("events: cannot write to {}", path.display()))
        }
        (opened, _) => Ok(opened?),
    }
}

/// Settings of event output.
struct OutputSettings {
    names: Arc<PlanNames>,
    /// Kinds of events written as lines.
    json_kinds: EventKinds,
    /// True to include the remote ends of sessions.
    json_destinations: bool,
    /// True if the log contains bindings.
    log_bindings: bool,
}

impl OutputSettings {
    fn of(settings: &Settings) -> OutputSettings {
        OutputSettings {
            names: Arc::new(PlanNames::of(&settings.plan)),
            json_kinds: settings.json_kinds.with(EventKind::EventsLost),
            json_destinations: settings.json_destinations,
            log_bindings: settings.log.as_ref().is_some_and(|log| log.bindings),
        }
    }
}

/// Output of JSON lines, with the count of lost ones.
struct Lines {
    out: BufWriter<EventFile>,
    /// Time of the last check of the file's path.
    looked: Instant,
    name: String,
    output: Output,
    /// Number of lines since the last successful write.
    pending: u64,
    lost: u64,
    fails: bool,
    /// True if the file was moved and no new one can be created.
    is_stuck: bool,
}

impl Lines {
    fn new(out: EventFile, output: Output) -> Self {
        let name = out.name();
        let (out, looked) = (BufWriter::new(out), Instant::now());
        Lines { out, looked, name, output, pending: 0, lost: 0, fails: false, is_stuck: false }
    }

    /// Continues in a new file if the old one was moved. Checks from time to time, when all lines are
    /// written.
    fn follow(&mut self) {
        if self.pending > 0 || self.looked.elapsed() < LOOK_EVERY {
            return;
        }
        self.looked = Instant::now();
        let stuck = match self.out.get_mut().follow() {
            Ok(true) => {
                self.output.log(&format!("events: {} was moved; writing to a new file", self.name));
                false
            }
            Ok(false) => false,
            Err(error) if !self.is_stuck => {
                let what = format!("{} was moved, but a new file cannot be created: {error}", self.name);
                self.output.error(&format!("events: {what}; still writing to the old file"));
                true
            }
            Err(_) => true,
        };
        self.is_stuck = stuck;
    }

    /// Writes a whole line or nothing.
    fn put(&mut self, line: &[u8]) {
        match self.out.write_all(line) {
            Ok(()) => self.pending += 1,
            Err(error) => {
                self.lost += 1;
                self.failed(&error);
            }
        }
    }

    fn flush(&mut self) {
        match self.out.flush() {
            Err(error) => self.failed(&error),
            Ok(()) => {
                self.pending = 0;
                if std::mem::take(&mut self.fails) {
                    let lost = std::mem::take(&mut self.lost);
                    self.output.log(&format!(
                        "events: writing to {} again; {} missing",
                        self.name,
                        counted(lost, "event")
                    ));
                }
            }
        }
    }

    fn failed(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.fails, true) {
            self.output
                .error(&format!("events: cannot write to {}: {error}; translation continues", self.name));
        }
    }

    /// Logs the number of events that were never written.
    fn end(&self) {
        if self.fails {
            let missing = self.lost + self.pending;
            self.output.error(&format!("events: the last {missing} are missing in {}", self.name));
        }
    }
}

/// State of the thread.
struct EventThread {
    readers: Vec<EventReader>,
    terms: OutputSettings,
    times: TimeOfDay,
    lines: Option<Lines>,
    tap: EventTap,
    log: Option<LogSender>,
    /// Collectors.
    sinks: Arc<Vec<Sink>>,
    orders: Receiver<Order>,
    output: Output,
}

impl EventThread {
    /// Passes events on until every engine is gone and its ring is empty.
    fn run(&mut self) {
        loop {
            // Checked before the rings are emptied, so that no last event is missed.
            let over = self.readers.iter().all(EventReader::is_abandoned);
            if let Some(by_ms) = self.times.look()
                && let Some(log) = &self.log
            {
                log.mark(Mark::ClockSet { at_ms: since_1970_ms(SystemTime::now()), by_ms });
            }
            let told = self.turn();
            if let Some(lines) = &mut self.lines {
                lines.flush();
                lines.follow();
            }
            match (told, over) {
                (0, true) => break,
                (0, false) => self.wait(),
                _ => {}
            }
            while let Ok(order) = self.orders.try_recv() {
                self.obey(order);
            }
        }
        if let Some(lines) = &self.lines {
            lines.end();
        }
    }

    /// Waits until there may be events.
    fn wait(&mut self) {
        let is_deaf = self.lines.is_none() && self.log.is_none() && self.sinks.is_empty();
        let order = match is_deaf {
            // A change, or the end of the engines, sends a message.
            true => self.orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => self.orders.recv_timeout(IDLE),
        };
        match order {
            Ok(order) => self.obey(order),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(IDLE),
        }
    }

    fn obey(&mut self, order: Order) {
        let Order::Change(change) = order else { return };
        let Change { terms, lines, sinks } = *change;
        // Earlier events are written with the earlier settings.
        for _ in 0..TURNS_BEFORE {
            if self.turn() == 0 {
                break;
            }
        }
        (self.terms, self.sinks) = (terms, sinks);
        let Some(file) = lines else { return };
        if let Some(mut old) = self.lines.take() {
            old.flush();
            old.end();
        }
        self.lines = file.map(|file| Lines::new(file, self.output.clone()));
    }

    /// Passes on some events of each worker. Returns their number.
    fn turn(&mut self) -> usize {
        let EventThread { readers, terms, times, lines, tap, log, sinks, .. } = self;
        let (mut count, mut text) = (0, Vec::new());
        for (worker, reader) in readers.iter_mut().enumerate() {
            let (mut records, mut events) = (Vec::new(), Vec::new());
            for event in std::iter::from_fn(|| reader.next()).take(TURN) {
                count += 1;
                let timed = TimedEvent { at_ms: times.ms(&event), worker: worker as u16, event };
                if let Some(lines) = lines
                    && terms.json_kinds.has(event.kind)
                {
                    text.clear();
                    json::line(&timed, &terms.names, terms.json_destinations, &mut text);
                    tap.put(&text);
                    lines.put(&text);
                }
                match log {
                    Some(log) if event.kind == EventKind::EventsLost => log.lost(event.value),
                    Some(_) => records.extend(record_of(&event, timed.at_ms, terms.log_bindings)),
                    None => {}
                }
                if !sinks.is_empty() {
                    events.push(timed);
                }
            }
            if let Some(log) = log
                && !records.is_empty()
            {
                log.send(&records);
            }
            if !events.is_empty() {
                let batch = Arc::new(Batch { names: Arc::clone(&terms.names), events });
                sinks.iter().for_each(|sink| sink.put(&batch));
            }
        }
        count
    }
}
