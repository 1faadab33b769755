//! Watch over the queue of the device while sessions move to the kernel.
//!
//! A flow that is faster than the engine keeps the queue full: its packets have no gap, so its session would
//! stay pending, and the device drops what does not fit. Such a session moves at once, although packets of it
//! may be overtaken. A queue that is never empty but drops nothing is left alone.

use super::progress::Progress;
use gatun_netlink::DroppedByDevice;

/// Watch over the queue of a device.
pub(super) struct QueueWatch {
    /// `None` if the device's counter cannot be read.
    dropped: Option<DroppedByDevice>,
    counter: CounterWatch,
}

impl QueueWatch {
    pub(super) fn new(dropped: Option<DroppedByDevice>) -> QueueWatch {
        QueueWatch { dropped, counter: CounterWatch::default() }
    }

    /// Lets sessions move if a worker is behind and the device has dropped packets since the last look.
    pub(super) fn look(&mut self, progress: &Progress) {
        let Some(dropped) = &mut self.dropped else { return };
        if self.counter.has_grown(progress.is_behind(), || dropped.read().ok()) {
            progress.let_overtake();
        }
    }
}

/// Count of a counter while a worker is behind.
#[derive(Default)]
struct CounterWatch {
    /// Count at the last look, if a worker was behind then.
    before: Option<u64>,
}

impl CounterWatch {
    /// Returns whether the counter has grown since the last look. It is read only while a worker is behind.
    fn has_grown(&mut self, is_behind: bool, read: impl FnOnce() -> Option<u64>) -> bool {
        let now = if is_behind { read() } else { None };
        let before = std::mem::replace(&mut self.before, now);
        before.zip(now).is_some_and(|(before, now)| now > before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_device_drops_while_a_worker_is_behind_counts() {
        let mut counter = CounterWatch::default();
        let mut look = |is_behind, dropped| counter.has_grown(is_behind, || dropped);
        // What was dropped before, or while no worker was behind, is of no session that waits.
        assert!(!look(true, Some(7)));
        assert!(!look(true, Some(7)));
        assert!(look(true, Some(8)));
        assert!(!look(true, Some(8)));
        assert!(!look(false, Some(9)));
        assert!(!look(true, Some(9)));
        assert!(look(true, Some(10)));
        // The counter cannot be read, or begins anew.
        assert!(!look(true, None));
        assert!(!look(true, Some(11)));
        assert!(!look(true, Some(0)));
        let mut counter = CounterWatch::default();
        counter.has_grown(false, || panic!("it is read although no worker is behind"));
    }
}
