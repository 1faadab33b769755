//! Message queue and its flag. Loom checks them in `tests/mailbox.rs`, which includes this file.

use super::sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering};
use std::collections::VecDeque;

/// Initial capacity. Senders extend it if needed.
const CAPACITY: usize = 16;

/// Queue from any thread to one reader. No message is lost while there is a reader.
pub struct Mailbox<T>(Arc<Shared<T>>);

struct Shared<T> {
    /// True if a message waits. Changed while the queue is locked, so that it always agrees with the queue.
    any: AtomicBool,
    queue: Mutex<Queue<T>>,
    done: AtomicU64,
    room: usize,
}

struct Queue<T> {
    waiting: VecDeque<T>,
    /// Number of messages put so far.
    put: u64,
    closed: bool,
}

/// Message that could not be put.
#[derive(Debug, PartialEq, Eq)]
pub enum PutError<T> {
    /// The mailbox is full.
    Full(T),
    /// The reader is gone.
    Closed(T),
}

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Self {
        Mailbox(Arc::clone(&self.0))
    }
}

impl<T> Mailbox<T> {
    /// Creates an empty mailbox for at most `room` waiting messages.
    pub fn new(room: usize) -> Self {
        let waiting = VecDeque::with_capacity(room.min(CAPACITY));
        Mailbox(Arc::new(Shared {
            any: AtomicBool::new(false),
            queue: Mutex::new(Queue { waiting, put: 0, closed: false }),
            done: AtomicU64::new(0),
            room,
        }))
    }

    /// Appends a message. Returns its number, counted from 1.
    ///
    /// # Errors
    /// Returns an error if the mailbox is full or its reader is gone.
    pub fn put(&self, message: T) -> Result<u64, PutError<T>> {
        self.locked(|queue| {
            if queue.closed {
                return Err(PutError::Closed(message));
            }
            if queue.waiting.len() >= self.0.room {
                return Err(PutError::Full(message));
            }
            queue.waiting.push_back(message);
            queue.put += 1;
            self.0.any.store(true, Ordering::Release);
            Ok(queue.put)
        })
    }

    /// Checks whether a message waits: a single load.
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

    /// Marks this many more messages as processed.
    pub fn done(&self, count: usize) {
        self.0.done.fetch_add(count as u64, Ordering::Release);
    }

    /// Checks whether the message with this number, and all messages before it, are processed.
    pub fn is_done(&self, number: u64) -> bool {
        self.0.done.load(Ordering::Acquire) >= number
    }

    /// Stops reading: drops waiting messages and refuses new ones.
    pub fn close(&self) {
        let left = self.locked(|queue| {
            queue.closed = true;
            self.0.any.store(false, Ordering::Release);
            std::mem::take(&mut queue.waiting)
        });
        drop(left);
    }

    fn locked<R>(&self, with: impl FnOnce(&mut Queue<T>) -> R) -> R {
        // The queue is consistent after each step, so it may be used after a panic elsewhere.
        with(&mut self.0.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }
}
