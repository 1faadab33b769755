//! The queue, and its flag. Checked by loom in `tests/mailbox.rs`, which includes this file.

use super::sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering};
use std::collections::VecDeque;

/// Places that are made at first; more are made by whoever puts.
const PLACES: usize = 16;

/// A queue from any thread to one reader. Nothing that was put is lost while there is a reader.
pub struct Mailbox<T>(Arc<Place<T>>);

struct Place<T> {
    /// Whether something waits. Changed with the queue locked, so that it is never out of step with that.
    any: AtomicBool,
    queue: Mutex<Queue<T>>,
    done: AtomicU64,
    room: usize,
}

struct Queue<T> {
    waiting: VecDeque<T>,
    /// Messages put so far.
    put: u64,
    closed: bool,
}

/// A message that was not put.
#[derive(Debug, PartialEq, Eq)]
pub enum NotPut<T> {
    /// As many wait as may.
    Full(T),
    /// Nobody reads any more.
    Closed(T),
}

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Self {
        Mailbox(Arc::clone(&self.0))
    }
}

impl<T> Mailbox<T> {
    /// An empty one, where no more than `room` messages may wait.
    pub fn new(room: usize) -> Self {
        let waiting = VecDeque::with_capacity(room.min(PLACES));
        Mailbox(Arc::new(Place {
            any: AtomicBool::new(false),
            queue: Mutex::new(Queue { waiting, put: 0, closed: false }),
            done: AtomicU64::new(0),
            room,
        }))
    }

    /// Puts a message behind the others. Returns its number, from 1 on.
    ///
    /// # Errors
    /// Where there is no room, or nobody reads any more.
    pub fn put(&self, message: T) -> Result<u64, NotPut<T>> {
        self.locked(|queue| {
            if queue.closed {
                return Err(NotPut::Closed(message));
            }
            if queue.waiting.len() >= self.0.room {
                return Err(NotPut::Full(message));
            }
            queue.waiting.push_back(message);
            queue.put += 1;
            self.0.any.store(true, Ordering::Release);
            Ok(queue.put)
        })
    }

    /// Whether a message waits: one load.
    #[inline]
    pub fn has_any(&self) -> bool {
        self.0.any.load(Ordering::Acquire)
    }

    /// Takes the first message.
    #[inline]
    pub fn next(&self) -> Option<T> {
        if self.has_any() { self.take() } else { None }
    }

    #[cold]
    fn take(&self) -> Option<T> {
        self.locked(|queue| {
            let message = queue.waiting.pop_front();
            self.0.any.store(!queue.waiting.is_empty(), Ordering::Release);
            message
        })
    }

    /// Says that so many more messages have been read and obeyed.
    pub fn done(&self, count: usize) {
        self.0.done.fetch_add(count as u64, Ordering::Release);
    }

    /// Whether the message of that number has been read and obeyed, and all before it.
    pub fn is_done(&self, number: u64) -> bool {
        self.0.done.load(Ordering::Acquire) >= number
    }

    /// Ends reading: what waits is dropped, and nothing more can be put.
    pub fn close(&self) {
        let left = self.locked(|queue| {
            queue.closed = true;
            self.0.any.store(false, Ordering::Release);
            std::mem::take(&mut queue.waiting)
        });
        drop(left);
    }

    fn locked<R>(&self, with: impl FnOnce(&mut Queue<T>) -> R) -> R {
        // A queue is whole after each step: it may be used after a panic elsewhere.
        with(&mut self.0.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }
}
