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
    steps: Steps,
}

/// Steps that packets from before a time have certainly done.
#[derive(Clone)]
struct Steps {
    /// Time for which the steps are counted.
    at: KernelTime,
    /// Time that each worker has to pass for the next step.
    since: KernelTime,
    step: usize,
}

impl Steps {
    const DONE: Steps = Steps { at: KernelTime(0), since: KernelTime(0), step: STEPS };

    /// All workers have emptied their queues since `passed`, and it is `now`. Returns a time whose packets
    /// have left the last worker, if it has become later.
    fn next(&mut self, passed: KernelTime, now: KernelTime) -> Option<KernelTime> {
        if self.step < STEPS && passed.0 <= self.since.0 {
            return None;
        }
        self.since = now;
        if self.step == STEPS {
            (self.at, self.step) = (passed, 1);
            return None;
        }
        self.step += 1;
        (self.step == STEPS).then_some(self.at)
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
        let times = (0..workers).map(|_| AtomicU64::new(0)).collect();
        Progress { control, times, steps: Steps::DONE }
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
        if let Some(at) = self.steps.next(KernelTime(passed), KernelTime::now()) {
            (0..self.times.len()).for_each(|worker| self.control.set_drained(worker, at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_published_after_all_workers_have_emptied_their_queues_twice_since() {
        let mut steps = Steps::DONE;
        let mut next = |passed, now| steps.next(KernelTime(passed), KernelTime(now)).map(|at| at.0);
        // A packet that was read at 10 may wait for another worker, and its translation for a third one.
        assert_eq!(next(10, 12), None);
        // A worker has not emptied its queue since 12.
        assert_eq!((next(10, 13), next(12, 14)), (None, None));
        assert_eq!(next(13, 15), None);
        // What a worker emptied before 15 may have brought packets to others.
        assert_eq!((next(14, 16), next(15, 17)), (None, None));
        assert_eq!(next(16, 18), Some(10));
        // The next time begins anew.
        assert_eq!((next(20, 21), next(22, 23), next(24, 25)), (None, None, Some(20)));
    }
}
