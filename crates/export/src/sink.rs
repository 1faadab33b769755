//! Sink: one collector with its thread, its queue and its counters.

use crate::event::{Batch, Record, TimedEvent};
use crate::format::{Encoder, Format, Wrapper};
use crate::spool::Spool;
use crate::thread_end::{ThreadEnd, thread_end};
use crate::transport::{CollectorAddress, Connect, SendResult, Transport, connect_directly};
use gatun_nat::{EventKind, EventKinds};
use gatun_wire::text::{counted, group};
use jiff::Timestamp;
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Sleep time of the thread while no events arrive.
const IDLE: Duration = Duration::from_millis(100);
/// Longest single wait for a blocked collector: batches arrive meanwhile.
const ROOM_MAX: Duration = Duration::from_millis(10);
/// Interval between attempts to connect.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// Time after which a blocked connection is replaced by a new one.
const STUCK_MAX: Duration = Duration::from_secs(30);
/// Records that wait in memory for a connection. More go to the spool, or are lost.
const OUT_MAX: usize = 16_384;
/// Time without refused datagrams after which a refusal is logged again.
const REFUSALS_EVERY: Duration = Duration::from_secs(60);
/// Shortest interval between reports of losses.
const LOSS_EVERY: Duration = Duration::from_secs(1);
/// Longest wait at the end for a blocked collector.
const LAST_MAX: Duration = Duration::from_secs(1);
/// Sleep time of the thread during that wait.
const LAST_IDLE: Duration = Duration::from_millis(5);

/// Settings of a spool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolSettings {
    /// Directory.
    pub directory: PathBuf,
    /// Size limit in bytes.
    pub len_max: u64,
}

/// Settings of a sink.
#[derive(Clone, Debug)]
pub struct SinkSettings {
    /// Name for operators, and of its spool files.
    pub name: String,
    /// Address of the collector.
    pub target: CollectorAddress,
    /// Format.
    pub format: Format,
    /// Event kinds to export.
    pub kinds: EventKinds,
    /// True to include the remote endpoints of sessions (RFC 6888 REQ-12).
    pub destinations: bool,
    /// Largest number of waiting events.
    pub queue_max: u64,
    /// Spool for records while the collector is away.
    pub spool: Option<SpoolSettings>,
}

/// Counters of events by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkCounters {
    /// Given to the transport.
    pub sent: u64,
    /// Lost: the queue or the spool was full, or there was no spool.
    pub lost: u64,
    /// Waiting in memory.
    pub waiting: u64,
    /// Bytes in the spool.
    pub spooled_bytes: u64,
    /// True if the transport accepted the last message.
    pub is_connected: bool,
}

#[derive(Default)]
struct SharedCounters {
    sent: AtomicU64,
    lost: AtomicU64,
    /// Events in the queue.
    queued: AtomicU64,
    /// Records that wait for the connection.
    out: AtomicU64,
    spooled_bytes: AtomicU64,
    is_connected: AtomicBool,
    is_ending: AtomicBool,
}

/// Handle of a collector. Its thread ends when it is told to, or when the last handle is dropped. It then
/// sends or spools what it holds.
#[derive(Clone)]
pub struct Sink {
    name: String,
    kinds: EventKinds,
    queue_max: u64,
    queue: Sender<Arc<Batch>>,
    shared: Arc<SharedCounters>,
    ended: ThreadEnd,
}

/// Sink that is ready but not started. If it is dropped, it has sent nothing.
pub struct PreparedSink {
    sink: Sink,
    begin: Sender<Vec<ThreadEnd>>,
}

impl PreparedSink {
    /// Starts the sink once the threads `after` have ended: they may use the same spool.
    pub fn begin(self, after: Vec<ThreadEnd>) -> Sink {
        // The thread waits for this.
        let _ = self.begin.send(after);
        self.sink
    }

    /// Name of the sink.
    pub fn name(&self) -> &str {
        self.sink.name()
    }
}

impl Sink {
    /// Starts a sink that opens connections itself. `log` receives lines for operators.
    ///
    /// # Errors
    /// Like [`Sink::prepare`].
    pub fn start(settings: SinkSettings, log: impl Fn(&str) + Send + 'static) -> io::Result<Sink> {
        Ok(Sink::prepare(settings, connect_directly(), log)?.begin(Vec::new()))
    }

    /// Checks the spool and creates the thread. `connect` opens connections.
    ///
    /// # Errors
    /// Returns an error if the spool cannot be used, or no thread can be created. A missing collector is not
    /// an error.
    pub fn prepare(
        settings: SinkSettings,
        connect: Connect,
        log: impl Fn(&str) + Send + 'static,
    ) -> io::Result<PreparedSink> {
        if let Some(spool) = &settings.spool {
            Spool::check(&spool.directory, &settings.name)?;
        }
        let shared = Arc::new(SharedCounters::default());
        // The number of queued events limits it.
        let (queue, batches) = channel();
        let (begin, begun) = channel::<Vec<ThreadEnd>>();
        let (running, ended) = thread_end();
        let mut courier = SinkThread {
            encoder: Encoder::new(settings.format, settings.destinations),
            wrapper: Wrapper::new(settings.format, settings.destinations, settings.target.is_stream()),
            settings: settings.clone(),
            connect,
            shared: Arc::clone(&shared),
            spool: None,
            transport: None,
            out: VecDeque::new(),
            message: None,
            tried: None,
            refused_at: None,
            progress: Instant::now(),
            over_since: None,
            reported_lost: (0, Instant::now()),
            log: Box::new(log),
        };
        let thread = std::thread::Builder::new().name(format!("export {}", settings.name));
        thread.spawn(move || {
            let _running = running;
            if let Ok(after) = begun.recv() {
                courier.open_spool(&after);
                courier.run(&batches);
            }
        })?;
        let SinkSettings { name, kinds, queue_max, .. } = settings;
        let kinds = kinds.with(EventKind::EventsLost);
        Ok(PreparedSink { sink: Sink { name, kinds, queue_max, queue, shared, ended }, begin })
    }

    /// Handle of the same sink with other event kinds. Its connection and its records stay.
    pub fn with(&self, kinds: EventKinds, queue_max: u64) -> Sink {
        Sink { kinds: kinds.with(EventKind::EventsLost), queue_max, ..self.clone() }
    }

    /// Handle to wait for the end of the thread.
    pub fn ended(&self) -> ThreadEnd {
        self.ended.clone()
    }

    /// Name of the sink.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Queues events for the thread. Events that do not fit are lost and counted.
    pub fn put(&self, batch: &Arc<Batch>) {
        let is_wanted = |timed: &&TimedEvent| self.kinds.has(timed.event.kind);
        let wanted: Vec<_> = batch.events.iter().filter(is_wanted).copied().collect();
        let count = wanted.len() as u64;
        if count == 0 {
            return;
        }
        let waiting = self.shared.queued.load(Ordering::Relaxed);
        let batch = Arc::new(Batch { names: Arc::clone(&batch.names), events: wanted });
        if waiting + count > self.queue_max || self.queue.send(batch).is_err() {
            self.shared.lost.fetch_add(count, Ordering::Relaxed);
            return;
        }
        self.shared.queued.fetch_add(count, Ordering::Relaxed);
    }

    /// Counters of the sink.
    pub fn counters(&self) -> SinkCounters {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let s = &self.shared;
        SinkCounters {
            sent: of(&s.sent),
            lost: of(&s.lost),
            waiting: of(&s.queued) + of(&s.out),
            spooled_bytes: of(&s.spooled_bytes),
            is_connected: s.is_connected.load(Ordering::Relaxed),
        }
    }

    /// Tells the thread to end, even if others hold handles. It sends or spools its waiting records.
    pub fn end(&self) {
        self.shared.is_ending.store(true, Ordering::Release);
    }

    /// Tells the thread to end and waits at most this long for it.
    pub fn finish(&self, patience: Duration) {
        self.end();
        self.ended.wait(patience);
    }
}

/// Message that is being sent: its bytes, the number of bytes sent, and the number of its records at the
/// front of the queue.
struct Message {
    bytes: Vec<u8>,
    gone: usize,
    records: usize,
}

/// State of the thread.
struct SinkThread {
    settings: SinkSettings,
    connect: Connect,
    encoder: Encoder,
    wrapper: Wrapper,
    shared: Arc<SharedCounters>,
    spool: Option<Spool>,
    transport: Option<Transport>,
    /// Records that wait for the connection.
    out: VecDeque<Record>,
    message: Option<Message>,
    /// Time of the last failed attempt to connect.
    tried: Option<Instant>,
    /// Time of the last refused datagram.
    refused_at: Option<Instant>,
    /// Time of the last progress.
    progress: Instant,
    /// Time since which no more events arrive.
    over_since: Option<Instant>,
    /// Losses reported in the stream, and when.
    reported_lost: (u64, Instant),
    log: Box<dyn Fn(&str) + Send>,
}

fn now_ms() -> u64 {
    Timestamp::now().as_millisecond().try_into().unwrap_or(0)
}

impl SinkThread {
    /// Opens the spool once no other thread uses it.
    fn open_spool(&mut self, after: &[ThreadEnd]) {
        let is_ending = || self.shared.is_ending.load(Ordering::Acquire);
        let is_free = after.iter().all(|other| {
            while !other.wait(IDLE) {
                if is_ending() {
                    return false;
                }
            }
            true
        });
        let SinkSettings { name, spool: Some(settings), .. } = &self.settings else { return };
        let SpoolSettings { directory, len_max } = settings;
        if !is_free {
            return;
        }
        match Spool::open(directory, name, *len_max) {
            Ok(spool) => self.spool = Some(spool),
            Err(error) => {
                (self.log)(&format!("export {name}: cannot use the spool {}: {error}", directory.display()))
            }
        }
    }

    fn run(&mut self, batches: &Receiver<Arc<Batch>>) {
        loop {
            let is_last = self.shared.is_ending.load(Ordering::Acquire);
            self.connect();
            let wait = match self.over_since {
                // The collector did not accept data the last time.
                Some(_) => LAST_IDLE,
                None if is_last || self.can_go_on() => Duration::ZERO,
                None => IDLE,
            };
            let wait = if self.is_blocked() { self.wait_for_room(wait) } else { wait };
            let mut next = batches.recv_timeout(wait);
            if self.over_since.is_some() && matches!(next, Err(RecvTimeoutError::Disconnected)) {
                std::thread::sleep(LAST_IDLE);
            }
            while let Ok(batch) = next {
                self.take(&batch);
                next = batches.try_recv().map_err(|_| RecvTimeoutError::Timeout);
                if self.out.len() >= OUT_MAX {
                    break;
                }
            }
            self.report_losses();
            self.send();
            self.account();
            let is_over = matches!(next, Err(RecvTimeoutError::Disconnected)) || is_last;
            if is_over {
                let since = *self.over_since.get_or_insert_with(Instant::now);
                let all_is_sent = next.is_err() && self.out.is_empty();
                if all_is_sent || self.transport.is_none() || since.elapsed() > LAST_MAX {
                    self.end(batches, !is_last);
                    return;
                }
            }
        }
    }

    /// Checks whether more can be sent without waiting.
    fn can_go_on(&self) -> bool {
        let waits = !self.out.is_empty() || self.spool.as_ref().is_some_and(|spool| !spool.is_empty());
        self.transport.is_some() && waits && !self.is_blocked()
    }

    /// Checks whether the collector has to accept data before more can be sent.
    fn is_blocked(&self) -> bool {
        self.message.is_some()
    }

    /// Waits until the collector accepts data, at most `wait` and not so long that batches pile up. Returns
    /// the time to wait for the next batch afterwards.
    fn wait_for_room(&self, wait: Duration) -> Duration {
        match &self.transport {
            Some(transport) => {
                transport.wait_for_room(wait.min(ROOM_MAX));
                Duration::ZERO
            }
            None => wait,
        }
    }

    fn take(&mut self, batch: &Batch) {
        self.shared.queued.fetch_sub(batch.events.len() as u64, Ordering::Relaxed);
        let records: Vec<Record> =
            batch.events.iter().filter_map(|timed| self.encoder.record(timed, &batch.names)).collect();
        let spool_first = self.spool.as_ref().is_some_and(|spool| !spool.is_empty());
        if self.transport.is_some() && !spool_first && self.out.len() + records.len() <= OUT_MAX {
            self.out.extend(records);
            return;
        }
        self.keep(&records);
    }

    /// Spools records, or counts them as lost.
    fn keep(&mut self, records: &[Record]) {
        let refused = match &mut self.spool {
            Some(spool) => spool.put(records),
            None => records.len() as u64,
        };
        self.shared.lost.fetch_add(refused, Ordering::Relaxed);
    }

    fn connect(&mut self) {
        if let Some(Err(error)) = self.transport.as_mut().map(Transport::check) {
            self.disconnected(&error.to_string());
        }
        if self.transport.is_some() || self.tried.is_some_and(|at| at.elapsed() < RETRY_EVERY) {
            return;
        }
        let SinkSettings { name, target, format, destinations, .. } = &self.settings;
        match (self.connect)(target) {
            Ok(transport) => {
                self.transport = Some(transport);
                // Sequence numbers and templates belong to the session (RFC 7011 3.1, 8).
                self.wrapper = Wrapper::new(*format, *destinations, target.is_stream());
                self.progress = Instant::now();
                if self.tried.take().is_some() {
                    (self.log)(&format!("export {name}: connected to {target} again"));
                }
            }
            Err(error) => {
                if self.tried.replace(Instant::now()).is_none() {
                    (self.log)(&format!(
                        "export {name}: cannot connect to {target}: {error}; {}",
                        self.fallback()
                    ));
                }
            }
        }
    }

    fn fallback(&self) -> &'static str {
        match self.spool {
            Some(_) => "events are spooled",
            None => "events are lost and counted",
        }
    }

    /// Inserts a report of losses before the following records.
    fn report_losses(&mut self) {
        let lost = self.shared.lost.load(Ordering::Relaxed);
        let (timed, at) = self.reported_lost;
        if lost == timed || self.transport.is_none() || at.elapsed() < LOSS_EVERY {
            return;
        }
        self.reported_lost = (lost, Instant::now());
        self.out.push_back(self.encoder.loss(now_ms(), lost, lost - timed));
    }

    /// Sends what can be sent, spooled records first, because they are older.
    fn send(&mut self) {
        while self.transport.is_some() {
            if self.message.is_none() && !self.next_message() {
                return;
            }
            match self.push() {
                Ok(true) => {}
                Ok(false) if self.progress.elapsed() < STUCK_MAX => return,
                Ok(false) => self.disconnected("the collector accepts no more data"),
                Err(error) if matches!(self.settings.target, CollectorAddress::Udp(_)) => {
                    self.refused(&error)
                }
                Err(error) => self.disconnected(&error.to_string()),
            }
        }
    }

    /// Builds the next message, if there is anything to send.
    fn next_message(&mut self) -> bool {
        if let Some(bytes) = self.wrapper.templates(now_ms()) {
            self.message = Some(Message { bytes, gone: 0, records: 0 });
            return true;
        }
        if self.out.is_empty() {
            self.refill();
        }
        if self.out.is_empty() {
            return false;
        }
        let (bytes, records) = self.wrapper.message(now_ms(), self.out.make_contiguous());
        self.message = Some(Message { bytes, gone: 0, records });
        true
    }

    /// Reads the oldest file of the spool into memory.
    fn refill(&mut self) {
        let Some(spool) = self.spool.as_mut().filter(|spool| !spool.is_empty()) else { return };
        match spool.oldest() {
            Ok(records) => self.out.extend(records),
            Err(error) => {
                (self.log)(&format!("export {}: cannot read the spool: {error}", self.settings.name))
            }
        }
        spool.drop_oldest();
    }

    /// Gives the message to the transport. Returns false if it accepts no data now.
    fn push(&mut self) -> io::Result<bool> {
        let (Some(transport), Some(message)) = (&mut self.transport, &mut self.message) else {
            return Ok(true);
        };
        let rest = message.bytes.get(message.gone..).unwrap_or_default();
        match transport.send(rest)? {
            SendResult::Later => return Ok(false),
            SendResult::Bytes(n) => message.gone += n,
        }
        self.progress = Instant::now();
        self.shared.is_connected.store(true, Ordering::Relaxed);
        if message.gone >= message.bytes.len() {
            self.shared.sent.fetch_add(message.records as u64, Ordering::Relaxed);
            self.out.drain(..message.records);
            self.message = None;
        }
        Ok(true)
    }

    /// Handles a refused datagram, or an error caused by an earlier one. The following datagrams are tried
    /// nevertheless.
    fn refused(&mut self, error: &io::Error) {
        let Some(message) = self.message.take() else { return };
        self.out.drain(..message.records);
        self.shared.lost.fetch_add(message.records as u64, Ordering::Relaxed);
        self.shared.is_connected.store(false, Ordering::Relaxed);
        if self.refused_at.replace(Instant::now()).is_none_or(|at| at.elapsed() > REFUSALS_EVERY) {
            let SinkSettings { name, target, .. } = &self.settings;
            (self.log)(&format!("export {name}: {target}: {error}; {}", self.fallback()));
        }
    }

    /// Handles the loss of the connection. Records that were not completely sent are kept, if there is a
    /// spool.
    fn disconnected(&mut self, why: &str) {
        let SinkSettings { name, target, .. } = &self.settings;
        if self.shared.is_connected.swap(false, Ordering::Relaxed) {
            (self.log)(&format!("export {name}: {target}: {why}; {}", self.fallback()));
        }
        (self.transport, self.message) = (None, None);
        self.tried = Some(Instant::now());
        let records: Vec<Record> = self.out.drain(..).collect();
        self.keep(&records);
    }

    fn account(&self) {
        self.shared.out.store(self.out.len() as u64, Ordering::Relaxed);
        self.shared.spooled_bytes.store(self.spool.as_ref().map_or(0, Spool::len), Ordering::Relaxed);
    }

    /// Keeps unsent records. With `goes`, the process continues without this sink.
    fn end(&mut self, batches: &Receiver<Arc<Batch>>, goes: bool) {
        self.transport = None;
        let before = self.shared.lost.load(Ordering::Relaxed);
        let records: Vec<Record> = self.out.drain(..).collect();
        self.keep(&records);
        while let Ok(batch) = batches.try_recv() {
            self.take(&batch);
        }
        self.account();
        let name = &self.settings.name;
        let lost = self.shared.lost.load(Ordering::Relaxed) - before;
        if lost > 0 {
            (self.log)(&format!("export {name}: lost the last events ({})", group(lost)));
        }
        if let (true, Some(settings), Some(spool)) = (goes, &self.settings.spool, &self.spool)
            && !spool.is_empty()
        {
            let (bytes, directory) = (spool.len(), settings.directory.display());
            (self.log)(&format!(
                "export {name}: {} of events remain in the spool in {directory}",
                counted(bytes, "byte")
            ));
        }
    }
}
