//! Time until which a box of a pair may translate, for the fast path in the kernel.

use gatun_worker::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Written by the thread of the peer, and read by that of the fast path.
#[derive(Clone)]
pub(crate) struct SharedFence {
    clock: Clock,
    until_ms: Arc<AtomicU64>,
}

impl SharedFence {
    /// Creates one without an end.
    pub(crate) fn new(clock: Clock) -> SharedFence {
        SharedFence { clock, until_ms: Arc::new(AtomicU64::new(u64::MAX)) }
    }

    /// Sets the end by the clock of the engines, ms.
    pub(super) fn set(&self, until_ms: u64) {
        self.until_ms.store(until_ms, Ordering::Release);
    }

    /// Time that is left: none if the kernel may not translate.
    pub(crate) fn left(&self) -> Duration {
        Duration::from_millis(self.until_ms.load(Ordering::Acquire).saturating_sub(self.clock.now().0))
    }
}
