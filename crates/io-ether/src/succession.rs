//! How other settings come to a worker while packets go on.

use gatun_ether::Ether;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where a worker finds the [`Ether`] that is to take over from its own, and leaves its own: it is made, and goes, in
/// another thread.
#[derive(Clone, Default)]
pub struct Succession(Arc<Place>);

#[derive(Default)]
struct Place {
    /// Whether one waits, to be looked at between bursts.
    waits: AtomicBool,
    next: Mutex<Option<Box<Ether>>>,
    before: Mutex<Option<Box<Ether>>>,
}

impl Succession {
    /// Lets another one take over before the next burst, in place of one that has not yet. A worker that sleeps is not
    /// woken.
    pub fn put(&self, next: Box<Ether>) {
        *lock(&self.0.next) = Some(next);
        self.0.waits.store(true, Ordering::Release);
    }

    /// Whether it has taken over. The one before goes with this.
    pub fn is_over(&self) -> bool {
        drop(lock(&self.0.before).take());
        !self.0.waits.load(Ordering::Acquire)
    }

    /// For the worker: whether one waits.
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        self.0.waits.load(Ordering::Acquire)
    }

    /// For the worker: lets it take over from its own.
    #[cold]
    pub(crate) fn take_over(&self, now_ms: u64, own: &mut Ether) {
        let Some(mut next) = lock(&self.0.next).take() else { return };
        next.take_over(now_ms, own);
        std::mem::swap(own, &mut next);
        *lock(&self.0.before) = Some(next);
        self.0.waits.store(false, Ordering::Release);
    }
}

fn lock<T>(place: &Mutex<T>) -> MutexGuard<'_, T> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}
