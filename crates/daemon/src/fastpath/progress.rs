//! Times up to which all packets have left the engine, for sessions that move to the kernel.
//!
//! ```text
//!   a turn of worker w that emptied its queues   w publishes the time of the turn before, for its sessions
//!   several workers                              ... if the others have emptied theirs since, or sleep
//! ```
//! A packet reaches the worker of its session through its own queue, or through that of another worker, which
//! hands it over. What the others had read before the end of a turn is in the worker's rings when its next
//! turn begins. So it has been sent when a next turn has emptied the queue and the rings.
//!
//! The program notes the time of a packet shortly before the packet is in the queue. A read in between does
//! not find it; the read of the next turn does. This is the second reason for the time of the turn before.
//!
//! A queue that is never empty and drops packets (`overflow`) lets sessions move at once. The program counts
//! such moves: their packets may overtake those in the queue.

use gatun_io::QueueProbe;
use gatun_io_fastpath::{Control, KernelTime};
use gatun_worker::ProgressSink;
use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Time after an installation for which its session may move: later, it moves in any case.
const MOVES_FOR: Duration = Duration::from_secs(1);

/// Time after which a worker that has not emptied its queues may be behind.
const BEHIND_AFTER: Duration = Duration::from_millis(1);

/// Progress of the workers.
#[derive(Clone)]
pub(crate) struct Progress {
    control: Arc<Control>,
    shared: Arc<SharedProgress>,
    /// Number of installed sessions, and when it changed.
    installed: (u64, Option<Instant>),
}

struct SharedProgress {
    workers: Vec<WorkerProgress>,
    /// True if sessions may be moving now.
    are_moving: AtomicBool,
}

/// Progress of a worker, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct WorkerProgress {
    /// Start of the last turn that emptied its queues, in nanoseconds.
    emptied: AtomicU64,
    /// Odd while it sleeps.
    sleeps: AtomicU64,
    queue: OnceLock<QueueProbe>,
}

impl WorkerProgress {
    /// Returns whether the worker sleeps and no packet waits in its queue: it has handed over all that it
    /// had.
    fn is_idle(&self) -> bool {
        let sleeps = self.sleeps.load(Acquire);
        let is_empty = || self.queue.get().is_some_and(|is_empty| is_empty());
        let is_same = || {
            fence(SeqCst);
            self.sleeps.load(Relaxed) == sleeps
        };
        sleeps & 1 == 1 && is_empty() && is_same()
    }

    /// Returns whether packets have waited in its queues for a while before `now`.
    fn is_behind(&self, now: KernelTime) -> bool {
        now.since(KernelTime(self.emptied.load(Relaxed))) > BEHIND_AFTER && !self.is_idle()
    }
}

/// Converts a time of the process to the program's. It is never later than the true one.
fn converter() -> impl Fn(Instant) -> KernelTime {
    let kernel = KernelTime::now();
    let process = Instant::now();
    move |at| {
        let later = at.saturating_duration_since(process).as_nanos() as u64;
        let earlier = process.saturating_duration_since(at).as_nanos() as u64;
        KernelTime(kernel.0.saturating_add(later).saturating_sub(earlier))
    }
}

impl Progress {
    pub(crate) fn new(control: Arc<Control>, workers: usize) -> Progress {
        let workers = (0..workers).map(|_| WorkerProgress::default()).collect();
        let shared = Arc::new(SharedProgress { workers, are_moving: AtomicBool::new(false) });
        Progress { control, shared, installed: (0, None) }
    }

    /// Sink of a worker, with the probe of its queue.
    pub(crate) fn publisher(&self, worker: usize, queue: Option<QueueProbe>) -> impl ProgressSink + 'static {
        let workers = &self.shared.workers;
        if let (Some(own), Some(queue)) = (workers.get(worker), queue) {
            let _ = own.queue.set(queue);
        }
        let (control, convert) = (Arc::clone(&self.control), converter());
        Publisher {
            shared: Arc::clone(&self.shared),
            worker,
            before: Cell::new(KernelTime(0)),
            convert,
            publish: move |at| control.set_drained(worker, at),
        }
    }

    /// Takes note of the number of sessions that were given to the kernel so far.
    pub(crate) fn notice_moves(&mut self, installed: u64) {
        if self.installed.0 != installed {
            self.installed = (installed, Some(Instant::now()));
            self.shared.are_moving.store(true, Relaxed);
        } else if self.installed.1.is_some_and(|at| at.elapsed() > MOVES_FOR) {
            self.installed.1 = None;
            self.shared.are_moving.store(false, Relaxed);
        }
    }

    /// Returns whether sessions may wait for a worker whose queues are not empty for long.
    pub(super) fn is_behind(&self) -> bool {
        let now = KernelTime::now();
        self.shared.are_moving.load(Relaxed) && self.shared.workers.iter().any(|worker| worker.is_behind(now))
    }

    /// The device has dropped packets: sessions of all workers may move, as a packet may be in any queue.
    pub(super) fn let_overtake(&self) {
        let now = KernelTime::now();
        (0..self.shared.workers.len()).for_each(|worker| self.control.set_overflowed(worker, now));
    }
}

/// Publishes the progress of a worker.
struct Publisher<C, P> {
    shared: Arc<SharedProgress>,
    worker: usize,
    /// Time up to which the packets of this worker's sessions had been read by any worker, at the end of the
    /// last turn that emptied the queues.
    before: Cell<KernelTime>,
    convert: C,
    publish: P,
}

impl<C, P> Publisher<C, P> {
    /// Time up to which all workers have read their packets, and handed them over. The turn of this one began
    /// at `own`.
    fn read_by_all(&self, own: KernelTime) -> KernelTime {
        let are_moving = self.shared.are_moving.load(Relaxed);
        let others = self.shared.workers.iter().enumerate().filter(|(number, _)| *number != self.worker);
        let times = others.map(|(_, other)| match KernelTime(other.emptied.load(Acquire)) {
            at if at < own && are_moving && other.is_idle() => own,
            at => at.min(own),
        });
        times.min().unwrap_or(own)
    }
}

impl<C, P> ProgressSink for Publisher<C, P>
where
    C: Fn(Instant) -> KernelTime + Send,
    P: Fn(KernelTime) + Send,
{
    fn emptied(&self, begun: Instant) {
        let own = (self.convert)(begun);
        if let Some(worker) = self.shared.workers.get(self.worker) {
            worker.emptied.store(own.0, Release);
        }
        let before = self.before.get();
        self.before.set(before.max(self.read_by_all(own)));
        (self.publish)(before);
    }

    fn set_asleep(&self, is_asleep: bool) {
        if let Some(worker) = self.shared.workers.get(self.worker) {
            let sleeps = worker.sleeps.load(Relaxed) | 1;
            worker.sleeps.store(if is_asleep { sleeps } else { sleeps + 1 }, Release);
            // An awake worker reads its queue after it says so.
            fence(SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Workers with queues that the test fills.
    struct Lab {
        progress: Arc<SharedProgress>,
        full: Vec<Arc<AtomicBool>>,
        published: Vec<Arc<AtomicU64>>,
        sinks: Vec<Box<dyn ProgressSink>>,
        start: Instant,
    }

    fn lab(workers: usize) -> Lab {
        let full: Vec<_> = (0..workers).map(|_| Arc::new(AtomicBool::new(false))).collect();
        let published: Vec<_> = (0..workers).map(|_| Arc::new(AtomicU64::new(0))).collect();
        let each = full.iter().map(|full| {
            let full = Arc::clone(full);
            let probe: QueueProbe = Box::new(move || !full.load(Relaxed));
            let (emptied, sleeps) = (AtomicU64::new(0), AtomicU64::new(0));
            WorkerProgress { emptied, sleeps, queue: OnceLock::from(probe) }
        });
        let progress =
            Arc::new(SharedProgress { workers: each.collect(), are_moving: AtomicBool::new(true) });
        let start = Instant::now();
        let sink = |worker: usize| -> Box<dyn ProgressSink> {
            let published = Arc::clone(&published[worker]);
            Box::new(Publisher {
                shared: Arc::clone(&progress),
                worker,
                before: Cell::new(KernelTime(0)),
                convert: move |at: Instant| KernelTime(at.duration_since(start).as_nanos() as u64),
                publish: move |at: KernelTime| published.store(at.0, Relaxed),
            })
        };
        let sinks = (0..workers).map(sink).collect();
        Lab { progress, full, published, sinks, start }
    }

    impl Lab {
        /// A turn of a worker that began at a time and emptied its queues. Returns what it has published.
        fn turn(&self, worker: usize, at: u64) -> u64 {
            self.sinks[worker].emptied(self.start + Duration::from_nanos(at));
            self.published[worker].load(Relaxed)
        }
    }

    #[test]
    fn a_worker_publishes_the_time_of_the_turn_before() {
        let lab = lab(1);
        // A packet from before 10 may come into the queue behind the read of that turn, not behind the next.
        assert_eq!([10, 20, 30].map(|at| lab.turn(0, at)), [0, 10, 20]);
    }

    #[test]
    fn packets_that_another_worker_has_read_are_sent_when_a_later_turn_has_taken_them() {
        let lab = lab(2);
        assert_eq!(lab.turn(0, 10), 0);
        assert_eq!(lab.turn(1, 5), 0);
        // The second worker had not read anything at the end of the first turn.
        assert_eq!(lab.turn(0, 20), 0);
        // Then it had read what came before 5, which was in the ring when the next turn began.
        assert_eq!(lab.turn(0, 30), 5);
        assert_eq!(lab.turn(1, 40), 5);
        assert_eq!((lab.turn(0, 50), lab.turn(0, 60)), (5, 40));
    }

    #[test]
    fn a_sleeping_worker_holds_nothing_up_unless_a_packet_waits_for_it() {
        let lab = lab(2);
        lab.sinks[1].set_asleep(true);
        assert_eq!([10, 20].map(|at| lab.turn(0, at)), [0, 10]);
        lab.full[1].store(true, Relaxed);
        assert_eq!([30, 40].map(|at| lab.turn(0, at)), [20, 20]);
        // It is awake: it may have read the packet, and has not handed it over.
        lab.sinks[1].set_asleep(false);
        lab.full[1].store(false, Relaxed);
        assert_eq!([50, 60].map(|at| lab.turn(0, at)), [20, 20]);
        lab.turn(1, 55);
        lab.sinks[1].set_asleep(true);
        assert_eq!([70, 80].map(|at| lab.turn(0, at)), [20, 70]);
        // Nobody asks for it while no session moves.
        lab.progress.are_moving.store(false, Relaxed);
        assert_eq!([90, 100].map(|at| lab.turn(0, at)), [80, 80]);
    }

    #[test]
    fn a_worker_is_behind_while_packets_have_waited_for_it_for_long() {
        let lab = lab(1);
        let worker = &lab.progress.workers[0];
        lab.turn(0, 1_000_000);
        let is_behind = |at: u64| worker.is_behind(KernelTime(at));
        assert!(!is_behind(2_000_000));
        assert!(is_behind(2_000_001));
        // It sleeps, and no packet waits; or one does, and it does not wake up.
        lab.sinks[0].set_asleep(true);
        assert!(!is_behind(9_000_000));
        lab.full[0].store(true, Relaxed);
        assert!(is_behind(9_000_000));
        lab.sinks[0].set_asleep(false);
        lab.turn(0, 9_000_000);
        assert!(!is_behind(9_000_001));
    }
}
