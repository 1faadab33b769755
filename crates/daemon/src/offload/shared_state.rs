//! State that a thread writes and the API reads.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// State, and the time when it was written.
pub(crate) struct SharedState<T>(Arc<Mutex<(T, Instant)>>);

impl<T> Clone for SharedState<T> {
    fn clone(&self) -> Self {
        SharedState(Arc::clone(&self.0))
    }
}

impl<T: Default> Default for SharedState<T> {
    fn default() -> Self {
        SharedState(Arc::new(Mutex::new((T::default(), Instant::now()))))
    }
}

impl<T: Clone> SharedState<T> {
    pub(crate) fn new(state: T) -> Self {
        SharedState(Arc::new(Mutex::new((state, Instant::now()))))
    }

    /// The state.
    #[cfg(feature = "dpdk")]
    pub(crate) fn get(&self) -> T {
        self.with_age().0
    }

    /// The state, and the time since it was written.
    pub(crate) fn with_age(&self) -> (T, Duration) {
        let (state, written) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (state.clone(), written.elapsed())
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut T)) {
        let (state, written) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(state);
        *written = Instant::now();
    }
}
