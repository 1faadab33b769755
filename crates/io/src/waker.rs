//! Waker of a worker that blocks in [`Backend::wait`](crate::Backend::wait).

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

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

    /// Waits until one of the descriptors, of which this waker is the first, is ready, or the time is over.
    /// Clears past wake-ups.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses the descriptors.
    pub fn poll(&self, fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match poll(fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        if fds.first().is_some_and(|waker| waker.revents().contains(PollFlags::IN)) {
            self.reset();
        }
        Ok(())
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
