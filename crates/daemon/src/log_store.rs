//! The log of who had which public port when, written by a thread of its own.
//!
//! Records come over a bounded channel from the thread that reads the workers' rings. They are on disk within
//! [`COMMIT_EVERY`]; where the disk is full or gone they wait, up to a bound, and what is lost then is counted, said,
//! and written into the log itself once it can be.

use super::output::Output;
use anyhow::Context as _;
use gatun_config::Log;
use gatun_control::StoreFigures;
use gatun_logstore::time::since_1970_ms;
use gatun_logstore::{Directory, Hash, Mark, Options, PlanInForce, Record, RecordKind, Store};
use gatun_nat::plan::Transport;
use gatun_nat::{Event, EventKind, Plan};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// How long a record waits until it is on disk, at most, where the disk keeps up.
const COMMIT_EVERY: Duration = Duration::from_millis(200);
/// Batches that wait for the thread; each has at most a turn's records.
const BATCHES_MAX: usize = 256;
/// Records that wait while the disk refuses them; more are lost.
const WAITING_MAX: usize = 1 << 20;
/// Interval of the log's records that the daemon is alive.
const ALIVE_EVERY: Duration = Duration::from_secs(60);
/// Delay between attempts to open a store.
const OPEN_EVERY: Duration = Duration::from_secs(1);

/// The end of the log that records are given to.
#[derive(Clone)]
pub(super) struct LogSender {
    batches: SyncSender<Vec<Record>>,
    shared: Arc<Shared>,
}

/// What the thread and others know of each other.
#[derive(Default)]
struct Shared {
    /// To be written before the records that come next.
    marks: Mutex<Vec<Mark>>,
    /// Lost since the last mark that said so.
    unreported: AtomicU64,
    /// As of the last write: records and bytes on disk, records that wait, events lost, whether all is well.
    figures: Mutex<StoreFigures>,
    /// How much is to be kept from now on, where that has changed: milliseconds, bytes.
    keep: Mutex<Option<(Option<u64>, Option<u64>)>>,
    /// Whether what waits is the last.
    is_ending: AtomicBool,
}

/// The thread's end.
pub(super) struct LogStore {
    sender: LogSender,
    ended: Receiver<()>,
}

impl LogStore {
    /// Takes the directory and starts the thread. `configuration` is in force: its text, and its plan; with `goes_on`,
    /// sessions of the process before are taken over.
    ///
    /// # Errors
    /// If the directory cannot be made, or belongs to another daemon.
    pub(super) fn start(
        log: &Log,
        configuration: (&str, &Plan),
        goes_on: bool,
        output: &Output,
    ) -> anyhow::Result<LogStore> {
        let directory = Directory::to_write(&log.directory)
            .with_context(|| format!("[log]: cannot write to {}", log.directory.display()))?;
        let options =
            Options { retention_ms: log.retention_ms, size_max: log.size_max, ..Options::default() };
        let (batches, received) = sync_channel(BATCHES_MAX);
        let (running, ended) = sync_channel(0);
        // Until the first write has failed, nothing is wrong with it.
        let figures = Mutex::new(StoreFigures { is_well: true, ..StoreFigures::default() });
        let shared = Arc::new(Shared { figures, ..Shared::default() });
        let sender = LogSender { batches, shared: Arc::clone(&shared) };
        let (at_ms, version) = (now_ms(), env!("CARGO_PKG_VERSION").to_owned());
        sender.mark(Mark::Start { at_ms, version, keeps_state: goes_on });
        sender.configured(configuration.0, configuration.1);
        let mut writer = StoreThread {
            options,
            shared,
            output: output.clone(),
            sign_of_life: Instant::now(),
            failing: None,
            lost: 0,
        };
        let body = move || {
            let _running = running;
            writer.run(directory, &received);
        };
        std::thread::Builder::new().name("log".to_owned()).spawn(body)?;
        Ok(LogStore { sender, ended })
    }

    pub(super) fn sender(&self) -> LogSender {
        self.sender.clone()
    }

    /// Waits until all is written, or cannot be.
    pub(super) fn finish(self, output: &Output, patience: Duration) {
        self.sender.mark(Mark::Stop { at_ms: now_ms() });
        self.sender.shared.is_ending.store(true, Ordering::Release);
        if self.ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            output.error("log: the last records are not written: the disk does not take them");
        }
    }
}

impl LogSender {
    /// Gives records to the thread, or counts them as lost where that has too many already.
    pub(super) fn send(&self, records: Vec<Record>) {
        if let Err(TrySendError::Full(records) | TrySendError::Disconnected(records)) =
            self.batches.try_send(records)
        {
            self.lost(records.len() as u64);
        }
    }

    /// So many events were lost on their way.
    pub(super) fn lost(&self, events: u64) {
        self.shared.unreported.fetch_add(events, Ordering::Relaxed);
    }

    /// Whether it could be written at the last attempt.
    pub(super) fn is_well(&self) -> bool {
        self.figures().is_well
    }

    /// What is known of the log.
    pub(super) fn figures(&self) -> StoreFigures {
        self.shared.figures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on it is kept for so long, and so much of it.
    pub(super) fn keep(&self, log: &Log) {
        let keep = (log.retention_ms, log.size_max);
        *self.shared.keep.lock().unwrap_or_else(PoisonError::into_inner) = Some(keep);
    }

    /// Gives it a mark.
    pub(super) fn mark(&self, mark: Mark) {
        self.shared.marks.lock().unwrap_or_else(PoisonError::into_inner).push(mark);
    }

    /// From now on another configuration is in force.
    pub(super) fn configured(&self, text: &str, plan: &Plan) {
        let plan = Box::new(PlanInForce::of(plan));
        // Of a text too long to be kept, what of it says who has a port.
        let hash = match text {
            "" => Hash::of(&[&serde_json::to_vec(&plan).unwrap_or_default()]),
            text => Hash::of(&[text.as_bytes()]),
        };
        self.mark(Mark::Config { at_ms: now_ms(), hash, plan });
    }
}

fn now_ms() -> u64 {
    since_1970_ms(SystemTime::now())
}

/// The record of an event, where it has one; `at_ms` is its time of day.
pub(super) fn record_of(event: &Event, at_ms: u64, with_bindings: bool) -> Option<Record> {
    let kind = match event.kind {
        EventKind::BlockAssigned => RecordKind::BlockAssigned,
        EventKind::BlockReleased => RecordKind::BlockReleased,
        EventKind::BindingCreated if with_bindings => RecordKind::BindingCreated,
        EventKind::BindingDeleted if with_bindings => RecordKind::BindingDeleted,
        EventKind::BlockKept => RecordKind::BlockKept,
        EventKind::BindingKept if with_bindings => RecordKind::BindingKept,
        _ => return None,
    };
    let set = Transport::ALL.into_iter().zip(event.transports());
    Some(Record {
        at_ms,
        kind,
        transports: Transport::bits(set.filter_map(|(transport, is_set)| is_set.then_some(transport))),
        instance: event.instance,
        pool: event.pool,
        outside: event.outside(),
        first: event.outside_port,
        last: event.outside_last,
        inside: event.inside(),
        inside_port: event.inside_port,
    })
}

/// State of the thread.
struct StoreThread {
    options: Options,
    shared: Arc<Shared>,
    output: Output,
    /// When the last one was given.
    sign_of_life: Instant,
    /// What has been said of a failure, so that it is said once.
    failing: Option<String>,
    /// Events lost since the daemon began.
    lost: u64,
}

impl StoreThread {
    fn run(&mut self, directory: Directory, batches: &Receiver<Vec<Record>>) {
        let Some(mut store) = self.open(directory) else { return };
        loop {
            // Asked before the records are taken: none come after that.
            let is_last = self.shared.is_ending.load(Ordering::Acquire);
            self.take(&mut store, batches);
            self.write(&mut store);
            self.account(&store);
            if is_last {
                // What waits then is lost.
                let lost = store.pending();
                if lost > 0 {
                    self.output.error(&format!("log: the last {lost} records are not written"));
                }
                return;
            }
        }
    }

    /// Opens the store, however often that has to be tried: packets go on.
    fn open(&mut self, directory: Directory) -> Option<Store> {
        let mut directory = Some(directory);
        let path = directory.as_ref()?.path().to_owned();
        loop {
            let opened = directory.take().map_or_else(|| Directory::to_write(&path), Ok);
            let opened = opened.map_err(|error| error.to_string()).and_then(|disk| {
                Store::open(Box::new(disk), self.options, now_ms()).map_err(|error| error.to_string())
            });
            match opened {
                Ok(store) => {
                    self.recovered();
                    return Some(store);
                }
                Err(error) => self.failed(&format!("{} cannot be opened: {error}", path.display())),
            }
            std::thread::sleep(OPEN_EVERY);
        }
    }

    /// Takes what comes within the time of a commit.
    fn take(&self, store: &mut Store, batches: &Receiver<Vec<Record>>) {
        let deadline = Instant::now() + COMMIT_EVERY;
        while store.pending() < WAITING_MAX {
            let left = deadline.saturating_duration_since(Instant::now());
            let wait = if self.shared.is_ending.load(Ordering::Acquire) { Duration::ZERO } else { left };
            match batches.recv_timeout(wait) {
                Ok(records) => store.append(&records),
                Err(_) => return,
            }
        }
    }

    fn write(&mut self, store: &mut Store) {
        let marks = std::mem::take(&mut *self.shared.marks.lock().unwrap_or_else(PoisonError::into_inner));
        marks.into_iter().for_each(|mark| store.mark(mark));
        let lost = self.shared.unreported.swap(0, Ordering::Relaxed);
        self.mark_lost(store, lost);
        if self.sign_of_life.elapsed() >= ALIVE_EVERY {
            store.mark(Mark::Alive { at_ms: now_ms() });
            self.sign_of_life = Instant::now();
        }
        let keep = self.shared.keep.lock().unwrap_or_else(PoisonError::into_inner).take();
        keep.into_iter().for_each(|(retention_ms, size_max)| store.set_retention(retention_ms, size_max));
        let done = store.commit().and_then(|()| store.maintain(now_ms()));
        store.take_messages().iter().for_each(|line| self.output.log(&format!("log: {line}")));
        match done {
            Ok(()) => self.recovered(),
            Err(error) => {
                self.failed(&error.to_string());
                if store.pending() >= WAITING_MAX {
                    let lost = store.discard_pending();
                    self.mark_lost(store, lost);
                    self.output.error(&format!("log: {lost} records are lost, as too many wait"));
                }
            }
        }
    }

    fn mark_lost(&mut self, store: &mut Store, events: u64) {
        if events > 0 {
            self.lost += events;
            store.mark(Mark::Lost { at_ms: now_ms(), events });
        }
    }

    /// Tells others how it stands.
    fn account(&self, store: &Store) {
        let status = store.status();
        let figures = StoreFigures {
            records: status.records,
            bytes: status.bytes,
            lost: self.lost,
            waiting: store.pending() as u64,
            is_well: self.failing.is_none(),
            error: self.failing.clone(),
        };
        *self.shared.figures.lock().unwrap_or_else(PoisonError::into_inner) = figures;
    }

    fn failed(&mut self, error: &str) {
        self.shared.figures.lock().unwrap_or_else(PoisonError::into_inner).is_well = false;
        if self.failing.as_deref() != Some(error) {
            self.output.error(&format!("log: {error}; packets go on, records wait"));
            self.failing = Some(error.to_owned());
            // Where the store cannot even be opened, no account is given.
            let mut figures = self.shared.figures.lock().unwrap_or_else(PoisonError::into_inner);
            (figures.is_well, figures.error) = (false, Some(error.to_owned()));
        }
    }

    fn recovered(&mut self) {
        if self.failing.take().is_some() {
            self.output.log("log: it is written again");
        }
    }
}
