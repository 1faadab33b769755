//! Wakes a worker that blocks in [`Backend::wait`](crate::Backend::wait).

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A wake-up that is not lost: one that comes while nobody waits ends the next wait at once.
/// Clones wake the same waiter.
#[derive(Clone, Debug)]
pub struct Waker {
    fd: Arc<OwnedFd>,
}

impl Waker {
    /// A waker that nobody has woken yet.
    ///
    /// # Errors
    /// Where the process may open no more files.
    pub fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Waker { fd: Arc::new(fd) })
    }

    /// Ends the current or the next wait.
    pub fn wake(&self) {
        // The only failure is a counter at its maximum: the waiter is awake already.
        let _ = rustix::io::write(&*self.fd, &1u64.to_ne_bytes());
    }

    /// Forgets wake-ups so far; called by who waited.
    pub fn reset(&self) {
        let _ = rustix::io::read(&*self.fd, &mut [0u8; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
