//! That a thread is at its end, for whoever has to wait for that: also for several.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

#[derive(Debug, Default)]
struct State {
    is_over: Mutex<bool>,
    changed: Condvar,
}

/// What is waited for.
#[derive(Clone, Debug)]
pub struct Ended(Arc<State>);

/// Held by the thread until its end.
pub(crate) struct Running(Arc<State>);

/// Both ends.
pub(crate) fn running() -> (Running, Ended) {
    let state = Arc::<State>::default();
    (Running(Arc::clone(&state)), Ended(state))
}

impl Ended {
    /// Waits so long at most; says whether it is over.
    pub fn wait(&self, patience: Duration) -> bool {
        let State { is_over, changed } = &*self.0;
        let guard = is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(guard, patience, |is_over| !*is_over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        *self.0.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.changed.notify_all();
    }
}
