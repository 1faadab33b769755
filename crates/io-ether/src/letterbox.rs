//! How whoever watches devices speaks to the worker that has their queues.

use gatun_io::Waker;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A worker's: whoever has a copy may write, the worker reads between bursts. Letters are few, and none is lost.
pub struct Letterbox<T> {
    letters: Arc<Letters<T>>,
    waker: Waker,
}

struct Letters<T> {
    /// Whether there are any, to be looked at between bursts.
    any: AtomicBool,
    /// By device.
    news: Mutex<Vec<(usize, T)>>,
    /// How many were written, and how many of these have been read and obeyed.
    written: AtomicU64,
    obeyed: AtomicU64,
}

impl<T> Clone for Letterbox<T> {
    fn clone(&self) -> Self {
        Letterbox { letters: Arc::clone(&self.letters), waker: self.waker.clone() }
    }
}

impl<T> Letterbox<T> {
    /// Without letters.
    ///
    /// # Errors
    /// Where there can be no [`Waker`].
    pub fn new() -> io::Result<Self> {
        let letters = Letters {
            any: AtomicBool::new(false),
            news: Mutex::new(Vec::new()),
            written: AtomicU64::new(0),
            obeyed: AtomicU64::new(0),
        };
        Ok(Letterbox { letters: Arc::new(letters), waker: Waker::new()? })
    }

    /// Tells something of a device, and wakes the worker. What is returned says by [`is_obeyed`](Self::is_obeyed) when
    /// it has been read.
    pub fn put(&self, device: usize, news: T) -> u64 {
        let mut all = self.news();
        all.push((device, news));
        let number = self.letters.written.fetch_add(1, Ordering::Relaxed) + 1;
        drop(all);
        self.letters.any.store(true, Ordering::Release);
        self.waker.wake();
        number
    }

    /// Whether the worker has read the letter of that number, and obeyed.
    pub fn is_obeyed(&self, number: u64) -> bool {
        self.letters.obeyed.load(Ordering::Acquire) >= number
    }

    /// Whether there is a letter: one load.
    #[inline]
    pub fn has_any(&self) -> bool {
        self.letters.any.load(Ordering::Acquire)
    }

    /// All letters, for the worker, in their order.
    pub fn take(&self) -> Vec<(usize, T)> {
        self.waker.reset();
        self.letters.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut *self.news())
    }

    /// Says that so many more letters have been obeyed.
    pub fn obeyed(&self, count: usize) {
        self.letters.obeyed.fetch_add(count as u64, Ordering::Release);
    }

    /// What is awake while there are letters, to be waited for beside devices.
    pub fn waker(&self) -> &Waker {
        &self.waker
    }

    fn news(&self) -> MutexGuard<'_, Vec<(usize, T)>> {
        self.letters.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_read_in_their_order_and_known_to_be_obeyed() {
        let worker = Letterbox::new().unwrap();
        let watcher = worker.clone();
        assert!(!worker.has_any());
        let first = watcher.put(1, "down");
        let second = watcher.put(0, "up");
        assert!(worker.has_any() && !watcher.is_obeyed(first));
        assert_eq!(worker.take(), [(1, "down"), (0, "up")]);
        assert!(!worker.has_any() && worker.take().is_empty());
        worker.obeyed(1);
        assert!(watcher.is_obeyed(first) && !watcher.is_obeyed(second));
        worker.obeyed(1);
        assert!(watcher.is_obeyed(second));
    }
}
