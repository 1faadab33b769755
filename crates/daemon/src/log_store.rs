//! Writer of the port log, in its own thread.
//!
//! Records of the event thread wait here, and are on disk within [`COMMIT_EVERY`]. If the disk is slow, full
//! or missing, or a file is sealed, more wait, up to a limit; further records are lost, counted, reported,
//! and noted in the log itself once it is writable.

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
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Longest time until a record is on disk, if the disk keeps up.
const COMMIT_EVERY: Duration = Duration::from_millis(200);
/// Largest number of records that wait for the thread, and of those that wait while the disk refuses them;
/// more are lost.
const WAITING_MAX: usize = 1 << 20;
/// Interval between the log's marks that the daemon is alive.
const ALIVE_EVERY: Duration = Duration::from_secs(60);
/// Delay between attempts to open a store.
const OPEN_EVERY: Duration = Duration::from_secs(1);

/// Sending end of the log.
#[derive(Clone)]
pub(super) struct LogSender {
    shared: Arc<Shared>,
}

/// State shared by the thread and others.
#[derive(Default)]
struct Shared {
    /// Records that the thread has not taken yet.
    records: Mutex<Vec<Record>>,
    /// Wakes the thread at its end.
    ending: Condvar,
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
        let (running, ended) = sync_channel(0);
        // The log counts as working until the first write fails.
        let figures = Mutex::new(StoreFigures { is_writable: true, ..StoreFigures::default() });
        let shared = Arc::new(Shared { figures, ..Shared::default() });
        let sender = LogSender { shared: Arc::clone(&shared) };
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
            writer.run(directory);
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
        drop(self.sender.shared.records());
        self.sender.shared.ending.notify_all();
        if self.ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            output.error("log: the last records were not written: the disk does not accept them");
        }
    }
}

impl Shared {
    fn records(&self) -> MutexGuard<'_, Vec<Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogSender {
    /// Passes records to the thread, or counts them as lost if too many wait.
    pub(super) fn send(&self, records: &[Record]) {
        let mut waiting = self.shared.records();
        let (some, lost) = records.split_at(records.len().min(WAITING_MAX.saturating_sub(waiting.len())));
        waiting.extend_from_slice(some);
        self.lost(lost.len() as u64);
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
    fn run(&mut self, directory: Directory) {
        let Some(mut store) = self.open(directory) else { return };
        loop {
            // Checked before the records are taken: none follow afterwards.
            let is_last = self.shared.is_ending.load(Ordering::Acquire);
            self.take(&mut store);
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
    fn take(&self, store: &mut Store) {
        let Shared { ending, is_ending, .. } = &*self.shared;
        let goes_on = |_: &mut Vec<Record>| !is_ending.load(Ordering::Acquire);
        let waited = ending.wait_timeout_while(self.shared.records(), COMMIT_EVERY, goes_on);
        let (mut records, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let room = WAITING_MAX.saturating_sub(store.pending());
        let some = records.len().min(room);
        let left = records.split_off(some);
        let taken = std::mem::replace(&mut *records, left);
        drop(records);
        store.append(&taken);
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
            waiting: (store.pending() + self.shared.records().len()) as u64,
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

#[cfg(test)]
mod tests {
    use super::*;
    use gatun_nat::Instant;

    #[test]
    fn records_wait_by_their_number_and_not_by_that_of_their_batches() {
        let sender = LogSender { shared: Arc::default() };
        let event = Event::new(EventKind::BindingCreated, Instant(0));
        let record = record_of(&event, 1, true).unwrap();
        // The thread takes none while it seals a file.
        (0..1_000).for_each(|_| sender.send(&[record]));
        sender.send(&vec![record; WAITING_MAX - 1_001]);
        assert_eq!(sender.shared.unreported.load(Ordering::Relaxed), 0);
        sender.send(&[record; 3]);
        assert_eq!(sender.shared.unreported.load(Ordering::Relaxed), 2);
        assert_eq!(sender.shared.records().len(), WAITING_MAX);
    }
}
