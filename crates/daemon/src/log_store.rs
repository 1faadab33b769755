//! Writer of the port log, in its own thread.
//!
//! Records come over a bounded channel from the event thread. They are on disk within [`COMMIT_EVERY`]. If
//! the disk is full or missing they wait, up to a limit; further records are lost, counted, reported, and
//! noted in the log itself once it is writable.

use super::output::Output;
use anyhow::Context as _;
use gatun_config::Log;
use gatun_control::StoreFigures;
use gatun_logstore::time::since_1970_ms;
use gatun_logstore::{Directory, Hash, Mark, Options, PlanInForce, Record, RecordKind, Store};
use gatun_nat::plan::Transport;
use gatun_nat::{Event, EventKind, Plan};
use gatun_wire::text::{counted, group};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Longest time until a record is on disk, if the disk keeps up.
const COMMIT_EVERY: Duration = Duration::from_millis(200);
/// Largest number of waiting batches. Each has at most the records of one turn.
const BATCHES_MAX: usize = 256;
/// Largest number of records that wait while the disk refuses them; more are lost.
const WAITING_MAX: usize = 1 << 20;
/// Interval between the log's marks that the daemon is alive.
const ALIVE_EVERY: Duration = Duration::from_secs(60);
/// Delay between attempts to open a store.
const OPEN_EVERY: Duration = Duration::from_secs(1);

/// Sending end of the log.
#[derive(Clone)]
pub(super) struct LogSender {
    batches: SyncSender<Vec<Record>>,
    shared: Arc<Shared>,
}

/// State shared by the thread and others.
#[derive(Default)]
struct Shared {
    /// Marks to write before the next records.
    marks: Mutex<Vec<Mark>>,
    /// Events lost since the last mark about losses.
    unreported: AtomicU64,
    /// Figures after the last write: records and bytes on disk, waiting records, lost events, success.
    figures: Mutex<StoreFigures>,
    /// Changed retention that is not applied yet: milliseconds, bytes.
    keep: Mutex<Option<(Option<u64>, Option<u64>)>>,
    /// True once no more records follow.
    is_ending: AtomicBool,
}

/// Handle of the log thread.
pub(super) struct LogStore {
    sender: LogSender,
    ended: Receiver<()>,
}

impl LogStore {
    /// Locks the directory and starts the thread. `configuration` is the active text and its plan. With
    /// `goes_on`, sessions of the previous process were restored.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be created, or belongs to another daemon.
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
        // The log counts as working until the first write fails.
        let figures = Mutex::new(StoreFigures { is_writable: true, ..StoreFigures::default() });
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

    /// Waits until all records are written, within a time limit.
    pub(super) fn finish(self, output: &Output, patience: Duration) {
        self.sender.mark(Mark::Stop { at_ms: now_ms() });
        self.sender.shared.is_ending.store(true, Ordering::Release);
        if self.ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            output.error("log: the last records were not written: the disk does not accept them");
        }
    }
}

impl LogSender {
    /// Passes records to the thread, or counts them as lost if too many wait.
    pub(super) fn send(&self, records: Vec<Record>) {
        if let Err(TrySendError::Full(records) | TrySendError::Disconnected(records)) =
            self.batches.try_send(records)
        {
            self.lost(records.len() as u64);
        }
    }

    /// Counts lost events.
    pub(super) fn lost(&self, events: u64) {
        self.shared.unreported.fetch_add(events, Ordering::Relaxed);
    }

    /// Returns true if the last write succeeded.
    pub(super) fn is_writable(&self) -> bool {
        self.figures().is_writable
    }

    /// Figures of the log.
    pub(super) fn figures(&self) -> StoreFigures {
        self.shared.figures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the retention.
    pub(super) fn keep(&self, log: &Log) {
        let keep = (log.retention_ms, log.size_max);
        *self.shared.keep.lock().unwrap_or_else(PoisonError::into_inner) = Some(keep);
    }

    /// Adds a mark.
    pub(super) fn mark(&self, mark: Mark) {
        self.shared.marks.lock().unwrap_or_else(PoisonError::into_inner).push(mark);
    }

    /// Adds a mark that another configuration is active.
    pub(super) fn configured(&self, text: &str, plan: &Plan) {
        let plan = Box::new(PlanInForce::of(plan));
        // If the text is too long to be stored, the hash covers the parts that assign ports.
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

/// Converts an event to a record, if it has one. `at_ms` is its time of day.
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
    /// Time of the last mark that the daemon is alive.
    sign_of_life: Instant,
    /// Last reported failure, to report each failure once.
    failing: Option<String>,
    /// Events lost since the start of the daemon.
    lost: u64,
}

impl StoreThread {
    fn run(&mut self, directory: Directory, batches: &Receiver<Vec<Record>>) {
        let Some(mut store) = self.open(directory) else { return };
        loop {
            // Checked before the records are taken: none follow afterwards.
            let is_last = self.shared.is_ending.load(Ordering::Acquire);
            self.take(&mut store, batches);
            self.write(&mut store);
            self.account(&store);
            if is_last {
                // Records that still wait are lost.
                let lost = store.pending();
                if lost > 0 {
                    self.output
                        .error(&format!("log: the last records were not written ({})", group(lost as u64)));
                }
                return;
            }
        }
    }

    /// Opens the store and repeats attempts until one succeeds. Translation continues meanwhile.
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
                Err(error) => self.failed(&format!("cannot open {}: {error}", path.display())),
            }
            std::thread::sleep(OPEN_EVERY);
        }
    }

    /// Collects records for the duration of one commit interval.
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
                    self.output
                        .error(&format!("log: lost {}: too many are waiting", counted(lost, "record")));
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

    /// Publishes the figures.
    fn account(&self, store: &Store) {
        let status = store.status();
        let figures = StoreFigures {
            records: status.records,
            bytes: status.bytes,
            lost: self.lost,
            waiting: store.pending() as u64,
            is_writable: self.failing.is_none(),
            error: self.failing.clone(),
        };
        *self.shared.figures.lock().unwrap_or_else(PoisonError::into_inner) = figures;
    }

    fn failed(&mut self, error: &str) {
        self.shared.figures.lock().unwrap_or_else(PoisonError::into_inner).is_writable = false;
        if self.failing.as_deref() != Some(error) {
            self.output.error(&format!("log: {error}; translation continues, records wait"));
            self.failing = Some(error.to_owned());
            // While the store cannot be opened, `account` is not called.
            let mut figures = self.shared.figures.lock().unwrap_or_else(PoisonError::into_inner);
            (figures.is_writable, figures.error) = (false, Some(error.to_owned()));
        }
    }

    fn recovered(&mut self) {
        if self.failing.take().is_some() {
            self.output.log("log: writing again");
        }
    }
}
