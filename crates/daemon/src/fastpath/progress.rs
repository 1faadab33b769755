//! Times up to which all packets have left the engine, for sessions that move to the kernel.
//!
//! ```text
//!   one worker        writes its time to the kernel's memory itself
//!   several workers   write theirs to `times`; the manager's thread writes the time that holds for all
//! ```
//! Several workers hand packets to each other, before and after translation. A packet that one had read at a
//! time has been sent when every worker has emptied its queues twice since.

use gatun_io_fastpath::{Control, KernelTime};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Instant;

/// Steps of a packet between workers: read, translated by another, sent by a third.
const STEPS: usize = 3;

/// Progress of the workers.
#[derive(Clone)]
pub(crate) struct Progress {
    control: Arc<Control>,
    times: Arc<[AtomicU64]>,
    /// Time for which the steps are counted.
    at: KernelTime,
    /// Time that each worker has to pass for the next step.
    since: KernelTime,
    step: usize,
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
        let times = (0..workers).map(|_| AtomicU64::new(0)).collect();
        Progress { control, times, at: KernelTime(0), since: KernelTime(0), step: STEPS }
    }

    /// Function that a worker calls when it has emptied its queue.
    pub(crate) fn publisher(&self, worker: usize) -> impl Fn(Instant) + Send + 'static {
        let (control, times, convert) = (Arc::clone(&self.control), Arc::clone(&self.times), converter());
        let is_alone = times.len() == 1;
        move |at| match is_alone {
            true => control.set_drained(0, convert(at)),
            false => {
                if let Some(time) = times.get(worker) {
                    time.store(convert(at).0, Release);
                }
            }
        }
    }

    /// Publishes the time that holds for all workers, if it has become later.
    pub(crate) fn publish(&mut self) {
        if self.times.len() == 1 {
            return;
        }
        let passed = self.times.iter().map(|time| time.load(Acquire)).min().unwrap_or(0);
        if self.step < STEPS && passed <= self.since.0 {
            return;
        }
        if self.step == STEPS {
            (self.at, self.step) = (KernelTime(passed), 1);
        } else {
            self.step += 1;
            if self.step == STEPS {
                (0..self.times.len()).for_each(|worker| self.control.set_drained(worker, self.at));
            }
        }
        self.since = KernelTime::now();
    }
}
