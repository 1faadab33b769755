//! A sink: one collector, its thread, its queue, and the account of what it got.

use crate::format::{Encoder, Format, Unit, Wrapper};
use crate::spool::Spool;
use crate::told::{Batch, Told};
use crate::transport::{Sent, Target, Transport};
use gatun_logstore::time::since_1970_ms;
use gatun_nat::{EventKind, EventKinds};
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// How long the thread sleeps where nothing comes.
const IDLE: Duration = Duration::from_millis(100);
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

/// A collector, as others see it.
pub struct Sink {
    name: String,
    kinds: EventKinds,
    queue_max: u64,
    queue: Sender<Arc<Batch>>,
    shared: Arc<Shared>,
    ended: Mutex<Receiver<()>>,
}

impl Sink {
    /// Opens the spool and starts the thread. `log` gets lines for operators.
    ///
    /// # Errors
    /// Where the spool cannot be used, or there can be no thread. That the collector is away is none.
    pub fn start(settings: Settings, log: impl Fn(&str) + Send + 'static) -> io::Result<Sink> {
        let spool = settings
            .spool
            .as_ref()
            .map(|s| Spool::open(&s.directory, &settings.name, s.len_max))
            .transpose()?;
        let shared = Arc::new(Shared::default());
        // Bounded by the count of what is in it.
        let (queue, batches) = channel();
        let (running, ended) = sync_channel(0);
        let mut courier = Courier {
            encoder: Encoder::new(settings.format, settings.destinations),
            wrapper: Wrapper::new(settings.format, settings.destinations, settings.target.is_stream()),
            settings: settings.clone(),
            shared: Arc::clone(&shared),
            spool,
            transport: None,
            out: VecDeque::new(),
            message: None,
            tried: None,
            refused_at: None,
            progress: Instant::now(),
            told_lost: (0, Instant::now()),
            log: Box::new(log),
        };
        let thread = std::thread::Builder::new().name(format!("export {}", settings.name));
        thread.spawn(move || {
            let _running = running;
            courier.run(&batches);
        })?;
        let Settings { name, kinds, queue_max, .. } = settings;
        let kinds = kinds.with(EventKind::EventsLost);
        Ok(Sink { name, kinds, queue_max, queue, shared, ended: Mutex::new(ended) })
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

    /// Sends what waits, or spools it, for so long at most.
    pub fn finish(&self, patience: Duration) {
        self.shared.is_ending.store(true, Ordering::Release);
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = ended.recv_timeout(patience);
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
    /// Losses that the stream was told of, and when.
    told_lost: (u64, Instant),
    log: Box<dyn Fn(&str) + Send>,
}

fn now_ms() -> u64 {
    since_1970_ms(SystemTime::now())
}

impl Courier {
    fn run(&mut self, batches: &Receiver<Arc<Batch>>) {
        loop {
            let is_last = self.shared.is_ending.load(Ordering::Acquire);
            self.connect();
            let wait = if is_last || self.can_go_on() { Duration::ZERO } else { IDLE };
            let mut next = batches.recv_timeout(wait);
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
            if is_over && (self.out.is_empty() || self.transport.is_none() || self.message.is_some()) {
                self.end();
                return;
            }
        }
    }

    /// Whether there is more to be sent that nobody has to be waited for.
    fn can_go_on(&self) -> bool {
        let is_blocked = self.message.as_ref().is_some();
        let waits = !self.out.is_empty() || self.spool.as_ref().is_some_and(|spool| !spool.is_empty());
        self.transport.is_some() && waits && !is_blocked
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
        match Transport::open(target) {
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

    /// Keeps what was not sent.
    fn end(&mut self) {
        let units: Vec<Unit> = self.out.drain(..).collect();
        let before = self.shared.lost.load(Ordering::Relaxed);
        self.keep(&units);
        self.account();
        let lost = self.shared.lost.load(Ordering::Relaxed) - before;
        if lost > 0 {
            (self.log)(&format!("export {}: the last {lost} events are lost", self.settings.name));
        }
    }
}
