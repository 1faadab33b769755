//! News of devices, from whoever watches them to the worker that has their queues.

use gatun_io::{Mailbox, Waker};
use std::io;

/// A worker's news: whoever has a copy may write, the worker reads between bursts. News are few, and none is lost.
pub struct Letterbox<T> {
    /// By device.
    news: Mailbox<(usize, T)>,
    waker: Waker,
}

impl<T> Clone for Letterbox<T> {
    fn clone(&self) -> Self {
        Letterbox { news: self.news.clone(), waker: self.waker.clone() }
    }
}

impl<T> Letterbox<T> {
    /// Without news.
    ///
    /// # Errors
    /// Where there can be no [`Waker`].
    pub fn new() -> io::Result<Self> {
        Ok(Letterbox { news: Mailbox::new(usize::MAX), waker: Waker::new()? })
    }

    /// Tells something of a device, and wakes the worker. What is returned says by [`is_obeyed`](Self::is_obeyed) when
    /// it has been read.
    pub fn put(&self, device: usize, news: T) -> u64 {
        // There is always room, and it is never closed.
        let number = self.news.put((device, news)).unwrap_or(0);
        self.waker.wake();
        number
    }

    /// Whether the worker has read the news of that number, and obeyed.
    pub fn is_obeyed(&self, number: u64) -> bool {
        self.news.is_done(number)
    }

    /// Whether there are news: one load.
    #[inline]
    pub fn has_any(&self) -> bool {
        self.news.has_any()
    }

    /// All news, for the worker, in their order.
    pub fn take(&self) -> Vec<(usize, T)> {
        self.waker.reset();
        std::iter::from_fn(|| self.news.next()).collect()
    }

    /// Says that so many more have been obeyed.
    pub fn obeyed(&self, count: usize) {
        self.news.done(count);
    }

    /// What is awake while there are news, to be waited for beside devices.
    pub fn waker(&self) -> &Waker {
        &self.waker
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
