//! Waker of a worker that blocks in [`Backend::wait`](crate::Backend::wait).

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Wake-up that is never lost: if nobody waits, it ends the next wait at once.
/// Clones wake the same waiter.
#[derive(Clone, Debug)]
pub struct Waker {
    fd: Arc<OwnedFd>,
}

impl Waker {
    /// Creates a waker in the idle state.
    ///
    /// # Errors
    /// Returns an error if the process has reached its limit of open files.
    pub fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Waker { fd: Arc::new(fd) })
    }

    /// Ends the present or the next wait.
    pub fn wake(&self) {
        // The only possible failure is a counter at its maximum: then the waiter is already awake.
        let _ = rustix::io::write(&*self.fd, &1u64.to_ne_bytes());
    }

    /// Clears past wake-ups. The waiter calls it after a wait.
    pub fn reset(&self) {
        let _ = rustix::io::read(&*self.fd, &mut [0u8; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
