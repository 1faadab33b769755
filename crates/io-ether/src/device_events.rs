//! Events of devices, from the thread that watches them to the worker that owns their queues.

use gatun_io::{Mailbox, Waker};
use std::io;

/// Events for a worker. Any holder of a copy may write; the worker reads between bursts. Events are few, and
/// none is lost.
pub struct DeviceEvents<T> {
    /// Events by device.
    news: Mailbox<(usize, T)>,
    waker: Waker,
}

impl<T> Clone for DeviceEvents<T> {
    fn clone(&self) -> Self {
        DeviceEvents { news: self.news.clone(), waker: self.waker.clone() }
    }
}

impl<T> DeviceEvents<T> {
    /// Creates an empty queue of events.
    ///
    /// # Errors
    /// Returns an error if no [`Waker`] can be created.
    pub fn new() -> io::Result<Self> {
        Ok(DeviceEvents { news: Mailbox::new(usize::MAX), waker: Waker::new()? })
    }

    /// Sends an event of a device and wakes the worker. [`is_done`](Self::is_done) accepts the returned
    /// number.
    pub fn put(&self, device: usize, news: T) -> u64 {
        // There is always room, and the mailbox is never closed.
        let number = self.news.put((device, news)).unwrap_or(0);
        self.waker.wake();
        number
    }

    /// Checks whether the worker has handled the event with this number.
    pub fn is_done(&self, number: u64) -> bool {
        self.news.is_done(number)
    }

    /// Checks whether an event waits: a single load.
    #[inline]
    pub fn has_any(&self) -> bool {
        self.news.has_any()
    }

    /// Takes all events in order, for the worker.
    pub fn take(&self) -> Vec<(usize, T)> {
        self.waker.reset();
        std::iter::from_fn(|| self.news.next()).collect()
    }

    /// Marks this many more events as handled.
    pub fn done(&self, count: usize) {
        self.news.done(count);
    }

    /// Waker that is awake while events wait, to be polled together with devices.
    pub fn waker(&self) -> &Waker {
        &self.waker
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_in_order_and_marked_as_handled() {
        let worker = DeviceEvents::new().unwrap();
        let watcher = worker.clone();
        assert!(!worker.has_any());
        let first = watcher.put(1, "down");
        let second = watcher.put(0, "up");
        assert!(worker.has_any() && !watcher.is_done(first));
        assert_eq!(worker.take(), [(1, "down"), (0, "up")]);
        assert!(!worker.has_any() && worker.take().is_empty());
        worker.done(1);
        assert!(watcher.is_done(first) && !watcher.is_done(second));
        worker.done(1);
        assert!(watcher.is_done(second));
    }
}
