//! End of a thread: any number of waiters can wait for it.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

#[derive(Debug, Default)]
struct EndState {
    is_over: Mutex<bool>,
    changed: Condvar,
}

/// Handle with which others wait for the end.
#[derive(Clone, Debug)]
pub struct ThreadEnd(Arc<EndState>);

/// Held by the thread until its end.
pub(crate) struct ThreadGuard(Arc<EndState>);

/// Creates both halves.
pub(crate) fn thread_end() -> (ThreadGuard, ThreadEnd) {
    let state = Arc::<EndState>::default();
    (ThreadGuard(Arc::clone(&state)), ThreadEnd(state))
}

impl ThreadEnd {
    /// Waits at most this long. Returns whether the thread has ended.
    pub fn wait(&self, patience: Duration) -> bool {
        let EndState { is_over, changed } = &*self.0;
        let guard = is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(guard, patience, |is_over| !*is_over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Drop for ThreadGuard {
    fn drop(&mut self) {
        *self.0.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.changed.notify_all();
    }
}
