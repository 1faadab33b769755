//! Check whether the program is still attached to its device.
//!
//! Anybody with CAP_NET_ADMIN can detach the program while the daemon runs, and the daemon has no right to
//! look. But the program counts each packet that it passes to the device. If the engines receive packets that
//! the program has not counted, it is not there any more.

use gatun_worker::{Handle, Snapshot};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Interval of the comparison.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Number of packets in an interval that the program must have counted.
const PACKETS_MIN: u64 = 16;

/// Packets by the time of the comparison.
#[derive(Clone, Copy, Default)]
struct Packets {
    /// Received by the engines.
    received: u64,
    /// Passed to the device by the program.
    passed: u64,
}

/// Comparison of the engines' packets with the program's.
pub(super) struct AttachmentCheck {
    workers: Vec<Handle>,
    /// Packets that each worker has received, from its last answer.
    received: Arc<[AtomicU64]>,
    looked: Instant,
    before: Packets,
    /// True if the last interval had packets that the program has not counted.
    is_suspect: bool,
    is_detached: bool,
}

fn received(snapshot: &Snapshot) -> u64 {
    snapshot.engine.rx.packets.saturating_sub(snapshot.engine.received_outside())
}

impl AttachmentCheck {
    pub(super) fn new(workers: Vec<Handle>) -> AttachmentCheck {
        let received = workers.iter().map(|_| AtomicU64::new(0)).collect();
        let (looked, before) = (Instant::now(), Packets::default());
        AttachmentCheck { workers, received, looked, before, is_suspect: false, is_detached: false }
    }

    /// Returns whether the program is detached. `passed` is the number of packets that it has passed to the
    /// device so far.
    pub(super) fn is_detached(&mut self, passed: u64) -> bool {
        if self.looked.elapsed() >= LOOK_EVERY {
            self.looked = Instant::now();
            let by_engines = self.received.iter().map(|received| received.load(Relaxed)).sum();
            self.compare(Packets { received: by_engines, passed });
            for (number, worker) in self.workers.iter().enumerate() {
                let all = Arc::clone(&self.received);
                worker.request_snapshot(move |snapshot| all[number].store(received(&snapshot), Relaxed));
            }
        }
        self.is_detached
    }

    /// Compares an interval. The engines' packets are those of about the interval before: a worker answers
    /// later. Packets that have reached them meanwhile are counted in the next interval at the latest.
    fn compare(&mut self, now: Packets) {
        let has_counted = now.passed > self.before.passed;
        let has_received = now.received >= self.before.received + PACKETS_MIN;
        self.is_detached = !has_counted && (self.is_detached || self.is_suspect);
        self.is_suspect = !has_counted && has_received;
        self.before = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_detached_if_it_has_counted_nothing_of_what_the_engines_received() {
        let mut check = AttachmentCheck::new(Vec::new());
        let mut is_detached = |received, passed| {
            check.compare(Packets { received, passed });
            check.is_detached
        };
        assert!(!is_detached(0, 100), "packets of an earlier process");
        assert!(!is_detached(0, 100) && !is_detached(0, 100), "nothing to translate");
        assert!(!is_detached(500, 600) && !is_detached(9_000, 9_100));
        assert!(!is_detached(9_010, 9_100) && !is_detached(9_020, 9_100), "a few, not counted yet");
        assert!(!is_detached(9_100, 9_100) && !is_detached(9_100, 9_180), "counted in the next interval");
        assert!(!is_detached(9_300, 9_180) && is_detached(9_500, 9_180) && is_detached(9_500, 9_180));
        assert!(!is_detached(9_700, 9_200), "it is back");
    }
}
