//! Events to whoever wants them: as JSON, one object a line, to a file or to standard output; to the log's store.
//!
//! A thread of its own empties the rings of all workers. Where what it writes to is slow, rings fill up and
//! events are lost, which the next record tells; packets never wait. Where it cannot be written to (a full
//! disk), the log says so, and how many events are missing once it can.

use super::Settings;
use super::event_file::EventFile;
use super::log_store::{LogSender, record_of};
use super::outlet::Output;
use anyhow::Context as _;
use gatun_config::EventSink;
use gatun_logstore::Mark;
use gatun_logstore::time::{rfc3339, since_1970_ms};
use gatun_nat::event::Gauge;
use gatun_nat::{Event, EventKind, EventKinds, EventReader};
use gatun_worker::Clock;
use serde::Serialize;
use std::io::{self, BufWriter, Write};
use std::net::Ipv6Addr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

/// How long the thread sleeps where no event waits.
const IDLE: Duration = Duration::from_millis(50);
/// How long the end of the daemon waits for the last events to be written.
const LAST_WRITES_MAX: Duration = Duration::from_secs(1);
/// How often the file's place is looked at: whether somebody has rotated it.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Milliseconds by which the system's clock may drift until that counts as its having been set.
const CLOCK_SET_MS: u64 = 100;
/// Events of one ring that are written before the next ring is looked at.
const TURN: usize = 1024;

/// The thread that writes.
pub(super) struct EventLog {
    /// Disconnected once it has ended.
    ended: Receiver<()>,
    output: Output,
    names: Shared,
}

/// What changes with the configuration.
#[derive(Clone)]
pub(super) struct Shared(Arc<RwLock<Arc<Names>>>);

impl Shared {
    /// Those of another configuration, from now on.
    pub(super) fn set(&self, settings: &Settings) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(Names::of(settings));
    }

    fn get(&self) -> Arc<Names> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
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
    /// Opens the sink and starts the thread. `times` gives the time of day; `log` also gets what is a record.
    ///
    /// # Errors
    /// Where the file cannot be opened.
    pub(super) fn start(
        settings: &Settings,
        readers: Vec<EventReader>,
        times: TimeOfDay,
        log: Option<LogSender>,
        output: &Output,
    ) -> anyhow::Result<EventLog> {
        let lines = match &settings.events {
            None => None,
            Some(sink) => match (EventFile::open(sink), sink) {
                (Err(error), EventSink::File(path)) => {
                    return Err(error).with_context(|| format!("events: cannot write to {}", path.display()));
                }
                (opened, _) => Some(Lines::new(opened?, output.clone())),
            },
        };
        let names = Shared(Arc::new(RwLock::new(Arc::new(Names::of(settings)))));
        let (running, ended) = channel();
        let mut teller = Teller { readers, names: names.clone(), times, lines, log };
        let body = move || {
            let _running = running;
            teller.run();
        };
        std::thread::Builder::new().name("events".to_owned()).spawn(body)?;
        Ok(EventLog { ended, output: output.clone(), names })
    }

    /// The names that it knows.
    pub(super) fn names(&self) -> Shared {
        self.names.clone()
    }

    /// Waits for the last events, but not for a reader who does not read. The workers are gone.
    pub(super) fn finish(self) {
        if self.ended.recv_timeout(LAST_WRITES_MAX) == Err(RecvTimeoutError::Timeout) {
            self.output.log("events: the last ones are not written, as nobody reads them");
        }
        self.output.settle();
    }
}

/// Names of what events give numbers of.
struct Names {
    /// Each with the length of its subscribers' prefixes.
    instances: Vec<(String, u8)>,
    pools: Vec<String>,
    /// Which kinds become lines.
    json_kinds: EventKinds,
    /// Whether the log has bindings.
    log_bindings: bool,
}

impl Names {
    fn of(settings: &Settings) -> Names {
        let plan = &settings.plan;
        let of64 = plan.nat64.iter().map(|n| (n.name.clone(), n.subscriber_len));
        Names {
            instances: of64.chain(plan.nat44.iter().map(|n| (n.name.clone(), n.subscriber_len))).collect(),
            pools: plan.pools.iter().map(|p| p.name.clone()).collect(),
            json_kinds: settings.json_kinds.with(EventKind::EventsLost),
            log_bindings: settings.log.as_ref().is_some_and(|log| log.bindings),
        }
    }

    fn pool(&self, event: &Event) -> Option<&str> {
        self.pools.get(usize::from(event.pool)).map(String::as_str)
    }

    fn instance(&self, event: &Event) -> Option<&str> {
        self.instances.get(usize::from(event.instance)).map(|(name, _)| name.as_str())
    }

    fn subscriber(&self, event: &Event) -> String {
        let len = self.instances.get(usize::from(event.instance)).map_or(128, |(_, len)| *len);
        match event.inside().to_ipv4_mapped() {
            Some(v4) => format!("{v4}/{}", len.min(32)),
            None => format!("{}/{len}", event.inside()),
        }
    }
}

/// Where lines go, and what is known of those that have not got there.
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
                self.output.log(&format!("events: {what}; the old one goes on"));
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
            self.output.log(&format!("events: cannot write to {}: {error}; packets go on", self.name));
        }
    }

    /// Says what never got there.
    fn end(&self) {
        if self.fails {
            let missing = self.lost + self.pending;
            self.output.log(&format!("events: the last {missing} are missing in {}", self.name));
        }
    }
}

/// The thread's work.
struct Teller {
    readers: Vec<EventReader>,
    names: Shared,
    times: TimeOfDay,
    lines: Option<Lines>,
    log: Option<LogSender>,
}

impl Teller {
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
                (0, false) => std::thread::sleep(IDLE),
                _ => {}
            }
        }
        if let Some(lines) = &self.lines {
            lines.end();
        }
    }

    /// Tells some events of each worker; says how many.
    fn turn(&mut self) -> usize {
        let Teller { readers, names, times, lines, log } = self;
        let names = &*names.get();
        let (mut told, mut text) = (0, Vec::new());
        for (worker, reader) in readers.iter_mut().enumerate() {
            let mut records = Vec::new();
            for event in std::iter::from_fn(|| reader.next()).take(TURN) {
                told += 1;
                let at_ms = times.ms(&event);
                if let Some(lines) = lines
                    && names.json_kinds.has(event.kind)
                {
                    text.clear();
                    // Cannot fail: a vector takes everything, and every key is a text.
                    let _ = serde_json::to_writer(&mut text, &Line::of(&event, worker, names, at_ms));
                    text.push(b'\n');
                    lines.put(&text);
                }
                match log {
                    Some(log) if event.kind == EventKind::EventsLost => log.lost(event.value),
                    _ => records.extend(record_of(&event, at_ms, names.log_bindings)),
                }
            }
            if let Some(log) = log
                && !records.is_empty()
            {
                log.send(records);
            }
        }
        told
    }
}

/// A line. What an event does not have is left out.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    event: &'static str,
    worker: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    protocols: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subscriber: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inside: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inside_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outside: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outside_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outside_ports: Option<[u16; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remote: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remote_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gauge: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<u64>,
}

impl<'a> Line<'a> {
    fn of(event: &Event, worker: usize, names: &'a Names, at_ms: u64) -> Line<'a> {
        use EventKind::*;
        let mapping = matches!(event.kind, SessionCreated | SessionDeleted | BindingCreated | BindingDeleted);
        let block = matches!(event.kind, BlockAssigned | BlockReleased);
        let refusal = matches!(event.kind, QuotaHit | PoolExhausted);
        let crossing = matches!(event.kind, ThresholdHigh | ThresholdLow);
        let of_pool = !crossing || event.gauge == Some(Gauge::PoolPorts);
        let remote = !event.remote().is_unspecified();
        Line {
            time: rfc3339(at_ms),
            event: event.kind.name(),
            worker,
            instance: if mapping || block || refusal { names.instance(event) } else { None },
            pool: if event.kind != EventsLost && of_pool { names.pool(event) } else { None },
            protocols: protocols(event),
            subscriber: (block || refusal).then(|| names.subscriber(event)),
            inside: mapping.then(|| address(event.inside())),
            inside_port: mapping.then_some(event.inside_port),
            outside: (mapping || block).then(|| event.outside().to_string()),
            outside_port: mapping.then_some(event.outside_port),
            outside_ports: block.then_some([event.outside_port, event.outside_last]),
            remote: remote.then(|| event.remote().to_string()),
            remote_port: remote.then_some(event.remote_port),
            reason: event.reason.map(|reason| reason.name()),
            gauge: event.gauge.map(gauge),
            value: (crossing || event.kind == EventsLost).then_some(event.value),
            total: crossing.then_some(event.total),
        }
    }
}

fn protocols(event: &Event) -> Vec<&'static str> {
    let all = ["tcp", "udp", "icmp"].into_iter().zip(event.transports());
    all.filter(|(_, on)| *on).map(|(name, _)| name).collect()
}

fn address(inside: Ipv6Addr) -> String {
    inside.to_ipv4_mapped().map_or_else(|| inside.to_string(), |v4| v4.to_string())
}

fn gauge(gauge: Gauge) -> &'static str {
    match gauge {
        Gauge::PoolPorts => "pool_ports",
        Gauge::Sessions => "sessions",
        Gauge::Subscribers => "subscribers",
    }
}
