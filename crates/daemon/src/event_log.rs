//! Events to whoever wants them: as JSON, one object a line, to a file or to standard output; to the log's store; to
//! collectors.
//!
//! A thread of its own empties the rings of all workers. Where what it writes to is slow, rings fill up and
//! events are lost, which the next record tells; packets never wait. Where it cannot be written to (a full
//! disk), the log says so, and how many events are missing once it can.

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
/// Milliseconds by which the system's clock may drift until that counts as its having been set.
const CLOCK_SET_MS: u64 = 100;
/// Events of one ring that are written before the next ring is looked at.
const TURN: usize = 1024;
/// Turns until a change is obeyed, at most.
const TURNS_BEFORE: usize = 64;

/// The thread that writes.
pub(super) struct EventLog {
    /// Disconnected once it has ended.
    ended: Receiver<()>,
    output: Output,
    orders: Sender<Order>,
}

/// Message to the thread.
pub(super) enum Order {
    /// To go on by another configuration.
    Change(Box<Change>),
    /// To look whether the engines are gone.
    Look,
}

/// Settings that a reload changes.
pub(super) struct Change {
    terms: Terms,
    /// Another file, or none.
    lines: Option<Option<EventFile>>,
    sinks: Arc<Vec<Sink>>,
}

impl Change {
    /// To `settings`, with these collectors, and with another file or none where `lines` says so.
    pub(super) fn to(settings: &Settings, lines: Option<Option<EventFile>>, sinks: Arc<Vec<Sink>>) -> Change {
        Change { terms: Terms::of(settings), lines, sinks }
    }
}

/// The time of day of the engines' times: their clock is steady, the system's may be set.
pub(super) struct TimeOfDay {
    clock: Clock,
    /// When the engines' clock began, by the system's clock as it is now; milliseconds since 1970.
    began_ms: u64,
}

impl TimeOfDay {
    pub(super) fn of(clock: Clock) -> TimeOfDay {
        let mut times = TimeOfDay { clock, began_ms: 0 };
        times.began_ms = times.began_now_ms();
        times
    }

    fn began_now_ms(&self) -> u64 {
        since_1970_ms(SystemTime::now()).saturating_sub(self.clock.now().0)
    }

    /// Looks at the system's clock; says by how many milliseconds it was set, if it was.
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
    /// Starts the thread. `times` gives the time of day; `log` also gets what is a record. Clients of the API read at `tap` what is
    /// written as lines.
    ///
    /// # Errors
    /// If no thread can be started.
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

    /// Where it is told of changes.
    pub(super) fn orders(&self) -> Sender<Order> {
        self.orders.clone()
    }

    /// Waits for the last events, but not for a reader who does not read. The workers are gone. `has_lines`: there may be a
    /// word about those that were not written.
    pub(super) fn finish(self, has_lines: bool) {
        let _ = self.orders.send(Order::Look);
        if self.ended.recv_timeout(LAST_WRITES_MAX) == Err(RecvTimeoutError::Timeout) {
            self.output.error("events: the last ones are not written, as nobody reads them");
        }
        if has_lines {
            self.output.settle();
        }
    }
}

/// Opens where lines go.
///
/// # Errors
/// If it cannot be written to.
pub(super) fn open(sink: &EventSink) -> anyhow::Result<EventFile> {
    match (EventFile::open(sink), sink) {
        (Err(error), EventSink::File(path)) => {
            Err(error).with_context(|| format!("events: cannot write to {}", path.display()))
        }
        (opened, _) => Ok(opened?),
    }
}

/// Settings of event output.
struct Terms {
    names: Arc<PlanNames>,
    /// Which kinds become lines.
    json_kinds: EventKinds,
    /// Whether with the remote ends of sessions.
    json_destinations: bool,
    /// Whether the log has bindings.
    log_bindings: bool,
}

impl Terms {
    fn of(settings: &Settings) -> Terms {
        Terms {
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
    /// When the file's place was looked at last.
    looked: Instant,
    name: String,
    output: Output,
    /// Since the last time that everything was written.
    pending: u64,
    lost: u64,
    fails: bool,
    /// Whether the file was moved away and cannot be made anew.
    is_stuck: bool,
}

impl Lines {
    fn new(out: EventFile, output: Output) -> Self {
        let name = out.name();
        let (out, looked) = (BufWriter::new(out), Instant::now());
        Lines { out, looked, name, output, pending: 0, lost: 0, fails: false, is_stuck: false }
    }

    /// Goes on in a new file, from time to time, where the old one was moved away. All that was put is written.
    fn follow(&mut self) {
        if self.pending > 0 || self.looked.elapsed() < LOOK_EVERY {
            return;
        }
        self.looked = Instant::now();
        let stuck = match self.out.get_mut().follow() {
            Ok(true) => {
                self.output.log(&format!("events: {} was moved away, a new one is begun", self.name));
                false
            }
            Ok(false) => false,
            Err(error) if !self.is_stuck => {
                let what = format!("{} was moved away, and no new one can be begun: {error}", self.name);
                self.output.error(&format!("events: {what}; the old one goes on"));
                true
            }
            Err(_) => true,
        };
        self.is_stuck = stuck;
    }

    /// Writes a whole line, or nothing of it.
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
                    self.output.log(&format!("events: {} takes them again; {lost} are missing", self.name));
                }
            }
        }
    }

    fn failed(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.fails, true) {
            self.output.error(&format!("events: cannot write to {}: {error}; packets go on", self.name));
        }
    }

    /// Says what never got there.
    fn end(&self) {
        if self.fails {
            let missing = self.lost + self.pending;
            self.output.error(&format!("events: the last {missing} are missing in {}", self.name));
        }
    }
}

/// The thread's work.
struct EventThread {
    readers: Vec<EventReader>,
    terms: Terms,
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
    /// Tells until every engine is gone and its ring empty.
    fn run(&mut self) {
        loop {
            // Asked before the rings are emptied: what came before the end is found.
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

    /// Until there may be events.
    fn wait(&mut self) {
        let is_deaf = self.lines.is_none() && self.log.is_none() && self.sinks.is_empty();
        let order = match is_deaf {
            // Whoever changes that, or ends the engines, says so.
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
        // What happened before is told by what held then.
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

    /// Tells some events of each worker; says how many.
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
                log.send(records);
            }
            if !events.is_empty() {
                let batch = Arc::new(Batch { names: Arc::clone(&terms.names), events });
                sinks.iter().for_each(|sink| sink.put(&batch));
            }
        }
        count
    }
}
