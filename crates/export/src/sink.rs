//! A sink: one collector, its thread, its queue, and the account of what it got.

use crate::ended::{Ended, running};
use crate::format::{Encoder, Format, Unit, Wrapper};
use crate::spool::Spool;
use crate::told::{Batch, Told};
use crate::transport::{Connect, Sent, Target, Transport, directly};
use gatun_nat::{EventKind, EventKinds};
use jiff::Timestamp;
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How long the thread sleeps where nothing comes.
const IDLE: Duration = Duration::from_millis(100);
/// How long a collector that takes nothing is waited for at a time: batches come meanwhile.
const ROOM_MAX: Duration = Duration::from_millis(10);
/// Between attempts to reach a collector.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// How long a collector that takes nothing is waited for until the connection is made anew.
const STUCK_MAX: Duration = Duration::from_secs(30);
/// Units that wait for a connection in memory; more go to the spool, or are lost.
const OUT_MAX: usize = 16_384;
/// A collector that refuses datagrams is told of again after a time without.
const REFUSALS_EVERY: Duration = Duration::from_secs(60);
/// Losses are told of so often, at most.
const LOSS_EVERY: Duration = Duration::from_secs(1);
/// How long a collector that takes nothing at the moment is waited for at the end.
const LAST_MAX: Duration = Duration::from_secs(1);
/// How long the thread sleeps then.
const LAST_IDLE: Duration = Duration::from_millis(5);

/// A spool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolSettings {
    /// Its directory.
    pub directory: PathBuf,
    /// Bytes in it, at most.
    pub len_max: u64,
}

/// What a sink is.
#[derive(Clone, Debug)]
pub struct Settings {
    /// For operators; also the name of its spool's files.
    pub name: String,
    /// Where to.
    pub target: Target,
    /// How.
    pub format: Format,
    /// What.
    pub kinds: EventKinds,
    /// Whether with the remote ends of sessions (RFC 6888 REQ-12).
    pub destinations: bool,
    /// Events that wait, at most.
    pub queue_max: u64,
    /// Where units are kept while the collector is away.
    pub spool: Option<SpoolSettings>,
}

/// What became of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkCounters {
    /// Given to the transport.
    pub sent: u64,
    /// Lost: the queue or the spool was full, or there was none.
    pub lost: u64,
    /// Waiting in memory.
    pub waiting: u64,
    /// Bytes in the spool.
    pub spooled_bytes: u64,
    /// Whether the last message was taken.
    pub is_connected: bool,
}

#[derive(Default)]
struct Shared {
    sent: AtomicU64,
    lost: AtomicU64,
    /// Events in the queue.
    queued: AtomicU64,
    /// Units that wait for the connection.
    out: AtomicU64,
    spooled_bytes: AtomicU64,
    is_connected: AtomicBool,
    is_ending: AtomicBool,
}

/// A collector, as others see it. Its thread ends once it is told to, or once nobody has it any more; then what it holds is
/// sent, or spooled.
#[derive(Clone)]
pub struct Sink {
    name: String,
    kinds: EventKinds,
    queue_max: u64,
    queue: Sender<Arc<Batch>>,
    shared: Arc<Shared>,
    ended: Ended,
}

/// A sink that has all it needs, and has not begun. Dropped, it has sent nothing.
pub struct Prepared {
    sink: Sink,
    begin: Sender<Vec<Ended>>,
}

impl Prepared {
    /// Begins, once `after` have ended: they may have the same spool.
    pub fn begin(self, after: Vec<Ended>) -> Sink {
        // The thread waits for it.
        let _ = self.begin.send(after);
        self.sink
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.sink.name()
    }
}

impl Sink {
    /// Starts with connections of its own. `log` gets lines for operators.
    ///
    /// # Errors
    /// As [`Sink::prepare`].
    pub fn start(settings: Settings, log: impl Fn(&str) + Send + 'static) -> io::Result<Sink> {
        Ok(Sink::prepare(settings, directly(), log)?.begin(Vec::new()))
    }

    /// Looks whether the spool can be used, and makes the thread. `connect` makes connections.
    ///
    /// # Errors
    /// Where the spool cannot be used, or there can be no thread. That the collector is away is none.
    pub fn prepare(
        settings: Settings,
        connect: Connect,
        log: impl Fn(&str) + Send + 'static,
    ) -> io::Result<Prepared> {
        if let Some(spool) = &settings.spool {
            Spool::check(&spool.directory, &settings.name)?;
        }
        let shared = Arc::new(Shared::default());
        // Bounded by the count of what is in it.
        let (queue, batches) = channel();
        let (begin, begun) = channel::<Vec<Ended>>();
        let (running, ended) = running();
        let mut courier = Courier {
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
            told_lost: (0, Instant::now()),
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
        let Settings { name, kinds, queue_max, .. } = settings;
        let kinds = kinds.with(EventKind::EventsLost);
        Ok(Prepared { sink: Sink { name, kinds, queue_max, queue, shared, ended }, begin })
    }

    /// The same, with other events from now on: its connection and all it holds stay.
    pub fn with(&self, kinds: EventKinds, queue_max: u64) -> Sink {
        Sink { kinds: kinds.with(EventKind::EventsLost), queue_max, ..self.clone() }
    }

    /// That its thread is at its end.
    pub fn ended(&self) -> Ended {
        self.ended.clone()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives events to the thread; those that find no room are lost, and counted.
    pub fn put(&self, batch: &Arc<Batch>) {
        let is_wanted = |told: &&Told| self.kinds.has(told.event.kind);
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

    /// What became of events.
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

    /// Lets it end, whoever has it: it sends what waits, or spools it.
    pub fn end(&self) {
        self.shared.is_ending.store(true, Ordering::Release);
    }

    /// The same, and waits for that, for so long at most.
    pub fn finish(&self, patience: Duration) {
        self.end();
        self.ended.wait(patience);
    }
}

/// A message that is being sent: its bytes, how many of them are gone, and its units at the front of what waits.
struct Message {
    bytes: Vec<u8>,
    gone: usize,
    units: usize,
}

/// The thread's work.
struct Courier {
    settings: Settings,
    connect: Connect,
    encoder: Encoder,
    wrapper: Wrapper,
    shared: Arc<Shared>,
    spool: Option<Spool>,
    transport: Option<Transport>,
    /// Units that wait for the connection.
    out: VecDeque<Unit>,
    message: Option<Message>,
    /// When the collector was tried last, in vain.
    tried: Option<Instant>,
    /// When a datagram was refused last.
    refused_at: Option<Instant>,
    /// When something was taken last.
    progress: Instant,
    /// Since when nothing more comes.
    over_since: Option<Instant>,
    /// Losses that the stream was told of, and when.
    told_lost: (u64, Instant),
    log: Box<dyn Fn(&str) + Send>,
}

fn now_ms() -> u64 {
    Timestamp::now().as_millisecond().try_into().unwrap_or(0)
}

impl Courier {
    /// Goes on with what is in the spool, once nobody else has it.
    fn open_spool(&mut self, after: &[Ended]) {
        let is_ending = || self.shared.is_ending.load(Ordering::Acquire);
        let is_free = after.iter().all(|other| {
            while !other.wait(IDLE) {
                if is_ending() {
                    return false;
                }
            }
            true
        });
        let Settings { name, spool: Some(settings), .. } = &self.settings else { return };
        let SpoolSettings { directory, len_max } = settings;
        if !is_free {
            return;
        }
        match Spool::open(directory, name, *len_max) {
            Ok(spool) => self.spool = Some(spool),
            Err(error) => (self.log)(&format!(
                "export {name}: its spool {} cannot be used: {error}",
                directory.display()
            )),
        }
    }

    fn run(&mut self, batches: &Receiver<Arc<Batch>>) {
        loop {
            let is_last = self.shared.is_ending.load(Ordering::Acquire);
            self.connect();
            let wait = match self.over_since {
                // What waits was not taken the last time.
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
            self.tell_losses();
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

    /// Whether there is more to be sent that nobody has to be waited for.
    fn can_go_on(&self) -> bool {
        let waits = !self.out.is_empty() || self.spool.as_ref().is_some_and(|spool| !spool.is_empty());
        self.transport.is_some() && waits && !self.is_blocked()
    }

    /// Whether the collector has to take something before more can be sent.
    fn is_blocked(&self) -> bool {
        self.message.is_some()
    }

    /// Waits until the collector takes something, for `wait` at most and not so long that batches would pile up. Returns how long
    /// to wait for the next batch then.
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
        let units: Vec<Unit> =
            batch.events.iter().filter_map(|told| self.encoder.unit(told, &batch.names)).collect();
        let spool_first = self.spool.as_ref().is_some_and(|spool| !spool.is_empty());
        if self.transport.is_some() && !spool_first && self.out.len() + units.len() <= OUT_MAX {
            self.out.extend(units);
            return;
        }
        self.keep(&units);
    }

    /// Spools units, or counts them as lost.
    fn keep(&mut self, units: &[Unit]) {
        let refused = match &mut self.spool {
            Some(spool) => spool.put(units),
            None => units.len() as u64,
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
        let Settings { name, target, format, destinations, .. } = &self.settings;
        match (self.connect)(target) {
            Ok(transport) => {
                self.transport = Some(transport);
                // Sequence numbers and templates are the session's (RFC 7011 3.1, 8).
                self.wrapper = Wrapper::new(*format, *destinations, target.is_stream());
                self.progress = Instant::now();
                if self.tried.take().is_some() {
                    (self.log)(&format!("export {name}: {target} is there again"));
                }
            }
            Err(error) => {
                if self.tried.replace(Instant::now()).is_none() {
                    (self.log)(&format!(
                        "export {name}: {target} is not there: {error}; {}",
                        self.fallback()
                    ));
                }
            }
        }
    }

    fn fallback(&self) -> &'static str {
        match self.spool {
            Some(_) => "events are spooled",
            None => "events are lost, and counted",
        }
    }

    /// Puts what the stream has to be told of losses in front of what comes.
    fn tell_losses(&mut self) {
        let lost = self.shared.lost.load(Ordering::Relaxed);
        let (told, at) = self.told_lost;
        if lost == told || self.transport.is_none() || at.elapsed() < LOSS_EVERY {
            return;
        }
        self.told_lost = (lost, Instant::now());
        self.out.push_back(self.encoder.loss(now_ms(), lost, lost - told));
    }

    /// Sends what can be: first what was spooled, as it is older.
    fn send(&mut self) {
        while self.transport.is_some() {
            if self.message.is_none() && !self.next_message() {
                return;
            }
            match self.push() {
                Ok(true) => {}
                Ok(false) if self.progress.elapsed() < STUCK_MAX => return,
                Ok(false) => self.disconnected("it takes nothing any more"),
                Err(error) if matches!(self.settings.target, Target::Udp(_)) => self.refused(&error),
                Err(error) => self.disconnected(&error.to_string()),
            }
        }
    }

    /// Makes the next message, where there is anything to be sent.
    fn next_message(&mut self) -> bool {
        if let Some(bytes) = self.wrapper.templates(now_ms()) {
            self.message = Some(Message { bytes, gone: 0, units: 0 });
            return true;
        }
        if self.out.is_empty() {
            self.refill();
        }
        if self.out.is_empty() {
            return false;
        }
        let (bytes, units) = self.wrapper.message(now_ms(), self.out.make_contiguous());
        self.message = Some(Message { bytes, gone: 0, units });
        true
    }

    /// Takes the oldest file of the spool into memory.
    fn refill(&mut self) {
        let Some(spool) = self.spool.as_mut().filter(|spool| !spool.is_empty()) else { return };
        match spool.oldest() {
            Ok(units) => self.out.extend(units),
            Err(error) => {
                (self.log)(&format!("export {}: the spool cannot be read: {error}", self.settings.name))
            }
        }
        spool.drop_oldest();
    }

    /// Gives the message to the transport; false where that takes nothing now.
    fn push(&mut self) -> io::Result<bool> {
        let (Some(transport), Some(message)) = (&mut self.transport, &mut self.message) else {
            return Ok(true);
        };
        let rest = message.bytes.get(message.gone..).unwrap_or_default();
        match transport.send(rest)? {
            Sent::Later => return Ok(false),
            Sent::Bytes(n) => message.gone += n,
        }
        self.progress = Instant::now();
        self.shared.is_connected.store(true, Ordering::Relaxed);
        if message.gone >= message.bytes.len() {
            self.shared.sent.fetch_add(message.units as u64, Ordering::Relaxed);
            self.out.drain(..message.units);
            self.message = None;
        }
        Ok(true)
    }

    /// A datagram was not taken, or one before it found nobody. What comes is tried nevertheless.
    fn refused(&mut self, error: &io::Error) {
        let Some(message) = self.message.take() else { return };
        self.out.drain(..message.units);
        self.shared.lost.fetch_add(message.units as u64, Ordering::Relaxed);
        self.shared.is_connected.store(false, Ordering::Relaxed);
        if self.refused_at.replace(Instant::now()).is_none_or(|at| at.elapsed() > REFUSALS_EVERY) {
            let Settings { name, target, .. } = &self.settings;
            (self.log)(&format!("export {name}: {target}: {error}; {}", self.fallback()));
        }
    }

    /// The collector has gone. What it has not got whole is kept, where there is a spool.
    fn disconnected(&mut self, why: &str) {
        let Settings { name, target, .. } = &self.settings;
        if self.shared.is_connected.swap(false, Ordering::Relaxed) {
            (self.log)(&format!("export {name}: {target}: {why}; {}", self.fallback()));
        }
        (self.transport, self.message) = (None, None);
        self.tried = Some(Instant::now());
        let units: Vec<Unit> = self.out.drain(..).collect();
        self.keep(&units);
    }

    fn account(&self) {
        self.shared.out.store(self.out.len() as u64, Ordering::Relaxed);
        self.shared.spooled_bytes.store(self.spool.as_ref().map_or(0, Spool::len), Ordering::Relaxed);
    }

    /// Keeps what was not sent. `goes`: the process goes on without it.
    fn end(&mut self, batches: &Receiver<Arc<Batch>>, goes: bool) {
        self.transport = None;
        let before = self.shared.lost.load(Ordering::Relaxed);
        let units: Vec<Unit> = self.out.drain(..).collect();
        self.keep(&units);
        while let Ok(batch) = batches.try_recv() {
            self.take(&batch);
        }
        self.account();
        let name = &self.settings.name;
        let lost = self.shared.lost.load(Ordering::Relaxed) - before;
        if lost > 0 {
            (self.log)(&format!("export {name}: the last {lost} events are lost"));
        }
        if let (true, Some(settings), Some(spool)) = (goes, &self.settings.spool, &self.spool)
            && !spool.is_empty()
        {
            let (bytes, directory) = (spool.len(), settings.directory.display());
            (self.log)(&format!("export {name}: {bytes} bytes of events stay in its spool in {directory}"));
        }
    }
}
