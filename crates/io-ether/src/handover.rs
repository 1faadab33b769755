//! Handover of an `Ether` with new settings to a running worker.

use crate::NeighbourExchange;
use gatun_ether::Ether;
use gatun_io::Mailbox;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Exchange of [`Ether`]s: the worker finds its next one here and returns the old one. Construction and
/// destruction happen in another thread.
#[derive(Clone)]
pub struct EthernetHandover {
    next: Mailbox<Box<Ether>>,
    before: Mailbox<Box<Ether>>,
    /// Number of the last `Ether` that was put.
    last: Arc<AtomicU64>,
    neighbours: NeighbourExchange,
}

impl Default for EthernetHandover {
    fn default() -> Self {
        let mailbox = || Mailbox::new(usize::MAX);
        EthernetHandover {
            next: mailbox(),
            before: mailbox(),
            last: Arc::default(),
            neighbours: NeighbourExchange::default(),
        }
    }
}

impl EthernetHandover {
    /// Queues another `Ether` to take over before the next burst, after those queued earlier. Does not wake a
    /// sleeping worker.
    pub fn put(&self, next: Box<Ether>) {
        if let Ok(number) = self.next.put(next) {
            self.last.fetch_max(number, Ordering::AcqRel);
        }
    }

    /// Neighbours of the worker's `Ether`.
    pub fn neighbours(&self) -> &NeighbourExchange {
        &self.neighbours
    }

    /// Checks whether all queued `Ether`s have taken over. Drops the old ones.
    pub fn is_over(&self) -> bool {
        while self.before.next().is_some() {}
        self.next.is_done(self.last.load(Ordering::Acquire))
    }

    /// Returns whether an `Ether` is queued. Called by the worker.
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        self.next.has_any()
    }

    /// Lets the queued `Ether`s take over from the current ones. Called by the worker.
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
