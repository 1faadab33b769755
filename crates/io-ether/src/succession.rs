//! How other settings come to a worker while packets go on.

use gatun_ether::Ether;
use gatun_io::Mailbox;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where a worker finds the [`Ether`] that is to take over from its own, and leaves its own: it is made, and goes, in
/// another thread.
#[derive(Clone)]
pub struct Succession {
    next: Mailbox<Box<Ether>>,
    before: Mailbox<Box<Ether>>,
    /// Number of the last one that was put.
    last: Arc<AtomicU64>,
}

impl Default for Succession {
    fn default() -> Self {
        let mailbox = || Mailbox::new(usize::MAX);
        Succession { next: mailbox(), before: mailbox(), last: Arc::default() }
    }
}

impl Succession {
    /// Lets another one take over before the next burst, after those that have not yet. A worker that sleeps is not
    /// woken.
    pub fn put(&self, next: Box<Ether>) {
        if let Ok(number) = self.next.put(next) {
            self.last.fetch_max(number, Ordering::AcqRel);
        }
    }

    /// Whether all have taken over that were put. Those before go with this.
    pub fn is_over(&self) -> bool {
        while self.before.next().is_some() {}
        self.next.is_done(self.last.load(Ordering::Acquire))
    }

    /// For the worker: whether one waits.
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        self.next.has_any()
    }

    /// For the worker: lets those that wait take over from its own.
    #[cold]
    pub(crate) fn take_over(&self, now_ms: u64, own: &mut Ether) {
        while let Some(mut next) = self.next.next() {
            next.take_over(now_ms, own);
            std::mem::swap(own, &mut next);
            // There is always room.
            let _ = self.before.put(next);
            self.next.done(1);
        }
    }
}
