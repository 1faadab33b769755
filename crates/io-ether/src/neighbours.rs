//! Neighbours of a worker's `Ether`, for a thread that gives them to a P4 switch.

use gatun_ether::{Ether, NeighbourReport};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Neighbours that a list has room for: as many as an `Ether` has. Then the worker need not allocate.
const ROOM: usize = 4096;

/// Exchange of neighbours: a thread asks, and the worker answers before its next burst.
#[derive(Clone, Default)]
pub struct NeighbourExchange(Arc<Shared>);

#[derive(Default)]
struct Shared {
    is_asked: AtomicBool,
    found: Mutex<Vec<NeighbourReport>>,
}

impl NeighbourExchange {
    /// Asks for the neighbours, and takes the answer to the last question: all that are known. `found` is
    /// unchanged, and the result false, if the worker has not answered yet. Does not wake a sleeping worker.
    pub fn ask(&self, found: &mut Vec<NeighbourReport>) -> bool {
        if self.0.is_asked.load(Ordering::Acquire) {
            return false;
        }
        let mut answer = self.0.found.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = answer.capacity() == 0;
        std::mem::swap(found, &mut answer);
        answer.clear();
        answer.reserve(ROOM);
        drop(answer);
        self.0.is_asked.store(true, Ordering::Release);
        !is_first
    }

    /// Returns whether a question waits. Called by the worker.
    #[inline]
    pub(crate) fn is_asked(&self) -> bool {
        self.0.is_asked.load(Ordering::Relaxed)
    }

    /// Answers a question. Called by the worker.
    #[cold]
    pub(crate) fn answer(&self, now_ms: u64, ether: &mut Ether) {
        // Nobody else has it while a question waits.
        let Ok(mut answer) = self.0.found.try_lock() else { return };
        ether.verify_neighbours(now_ms);
        answer.extend(ether.neighbours().filter(|neighbour| neighbour.mac.is_some()).take(ROOM));
        drop(answer);
        self.0.is_asked.store(false, Ordering::Release);
    }
}
