//! Events as JSON, one object a line, to a file or to standard output.
//!
//! A thread of its own empties the rings of all workers. Where what it writes to is slow, rings fill up and
//! events are lost, which the next record tells; packets never wait. Where it cannot be written to (a full
//! disk), the log says so, and how many events are missing once it can.

use super::event_file::EventFile;
use super::outlet::Output;
use anyhow::Context as _;
use gatun_config::EventSink;
use gatun_nat::event::Gauge;
use gatun_nat::{Event, EventKind, EventReader, Plan};
use serde::Serialize;
use std::io::{self, BufWriter, Write};
use std::net::Ipv6Addr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long the thread sleeps where no event waits.
const IDLE: Duration = Duration::from_millis(50);
/// How long the end of the daemon waits for the last events to be written.
const LAST_WRITES_MAX: Duration = Duration::from_secs(1);
/// How often the file's place is looked at: whether somebody has rotated it.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Events of one ring that are written before the next ring is looked at.
const TURN: usize = 1024;

/// The thread that writes.
pub(super) struct EventLog {
    /// Disconnected once it has ended.
    ended: Receiver<()>,
    output: Output,
    names: Shared,
}

/// Names that change with the configuration.
#[derive(Clone)]
pub(super) struct Shared(Arc<RwLock<Arc<Names>>>);

impl Shared {
    /// The names of another plan, from now on.
    pub(super) fn set(&self, plan: &Plan) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(Names::of(plan));
    }

    fn get(&self) -> Arc<Names> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl EventLog {
    /// Opens the sink and starts the thread. `epoch` is the time of day at which the engines' clock began.
    ///
    /// # Errors
    /// Where the file cannot be opened.
    pub(super) fn start(
        sink: &EventSink,
        plan: &Plan,
        readers: Vec<EventReader>,
        epoch: SystemTime,
        output: &Output,
    ) -> anyhow::Result<EventLog> {
        let out = match (EventFile::open(sink), sink) {
            (Err(error), EventSink::File(path)) => {
                return Err(error).with_context(|| format!("events: cannot write to {}", path.display()));
            }
            (opened, _) => opened?,
        };
        let names = Shared(Arc::new(RwLock::new(Arc::new(Names::of(plan)))));
        let of_thread = names.clone();
        let (running, ended) = channel();
        let mut lines = Lines::new(out, output.clone());
        let body = move || {
            let _running = running;
            write_all(readers, &of_thread, epoch, &mut lines);
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
}

impl Names {
    fn of(plan: &Plan) -> Names {
        let of64 = plan.nat64.iter().map(|n| (n.name.clone(), n.subscriber_len));
        Names {
            instances: of64.chain(plan.nat44.iter().map(|n| (n.name.clone(), n.subscriber_len))).collect(),
            pools: plan.pools.iter().map(|p| p.name.clone()).collect(),
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

/// Writes until every engine is gone and its ring empty.
fn write_all(mut readers: Vec<EventReader>, names: &Shared, epoch: SystemTime, lines: &mut Lines) {
    let mut text = Vec::new();
    loop {
        let mut written = 0;
        // Asked before the rings are emptied: what came before the end is found.
        let over = readers.iter().all(EventReader::is_abandoned);
        let names = &*names.get();
        for (worker, reader) in readers.iter_mut().enumerate() {
            for event in std::iter::from_fn(|| reader.next()).take(TURN) {
                text.clear();
                // Cannot fail: a vector takes everything, and every key is a text.
                let _ = serde_json::to_writer(&mut text, &Line::of(&event, worker, names, epoch));
                text.push(b'\n');
                lines.put(&text);
                written += 1;
            }
        }
        lines.flush();
        lines.follow();
        match (written, over) {
            (0, true) => return lines.end(),
            (0, false) => std::thread::sleep(IDLE),
            _ => {}
        }
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
    fn of(event: &Event, worker: usize, names: &'a Names, epoch: SystemTime) -> Line<'a> {
        use EventKind::*;
        let mapping = matches!(event.kind, SessionCreated | SessionDeleted | BindingCreated | BindingDeleted);
        let block = matches!(event.kind, BlockAssigned | BlockReleased);
        let refusal = matches!(event.kind, QuotaHit | PoolExhausted);
        let crossing = matches!(event.kind, ThresholdHigh | ThresholdLow);
        let of_pool = !crossing || event.gauge == Some(Gauge::PoolPorts);
        let remote = !event.remote().is_unspecified();
        Line {
            time: time_of(epoch + Duration::from_millis(event.at.0)),
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

/// RFC 3339, in UTC, with milliseconds.
fn time_of(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, of_day) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date_of(days);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

/// Year, month and day of a number of days since 1970-01-01, in the Gregorian calendar.
fn date_of(days: u64) -> (u64, u64, u64) {
    // Years begin on 1 March here, so that the leap day is a year's last; 400 of them are 146,097 days.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let leap_days = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year_of_era + u64::from(month >= 10);
    (year, if month < 10 { month + 3 } else { month - 9 }, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |secs: u64, ms: u64| time_of(UNIX_EPOCH + Duration::from_millis(secs * 1000 + ms));
        assert_eq!(at(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_782_399, 7), "2000-02-28T23:59:59.007Z");
        assert_eq!(at(951_782_400, 0), "2000-02-29T00:00:00.000Z");
        assert_eq!(at(951_868_800, 0), "2000-03-01T00:00:00.000Z");
        assert_eq!(at(1_735_689_599, 999), "2024-12-31T23:59:59.999Z");
        assert_eq!(at(4_107_542_400, 0), "2100-03-01T00:00:00.000Z");
    }
}
