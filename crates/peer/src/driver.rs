//! Body of a member's thread: connects the link, the member and the engines of running workers.
//!
//! ```text
//!   loop { orders of the caller; let ms = driver.turn(now, save); driver.wait(ms) }
//! ```
//! Whoever has an order wakes the waker.

use crate::link::Link;
use crate::member::{Member, SavedStanding};
use crate::workers::WorkerEngines;
use gatun_io::Waker;
use rustix::event::{PollFd, PollFlags};
use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

/// Time between two looks at the feeds, ms: a worker does not wake the member for each record.
const FEED_MS: u64 = 2;
/// Time until the standing is saved again after a failure, ms.
const SAVE_AGAIN_MS: u64 = 100;

/// Member with its link and its engines.
pub struct Driver {
    /// Member.
    pub member: Member,
    /// Link to the other member.
    pub link: Link,
    /// Engines.
    pub engines: WorkerEngines,
    /// Reason why the standing could not be saved: nothing is sent until it can be.
    pub save_error: Option<String>,
    unsaved: Option<SavedStanding>,
    waker: Waker,
}

impl Driver {
    /// Creates a driver. `waker` is the one that the engines wake.
    pub fn new(member: Member, link: Link, engines: WorkerEngines, waker: Waker) -> Driver {
        Driver { member, link, engines, save_error: None, unsaved: None, waker }
    }

    /// Does what is due. `save` keeps the standing for the next process. Returns the time until the next
    /// turn, ms.
    pub fn turn(&mut self, now_ms: u64, save: &mut dyn FnMut(&SavedStanding) -> Result<(), String>) -> u64 {
        let wait_ms = self.member.turn(now_ms, &mut self.engines);
        self.unsaved = self.member.take_unsaved().or(self.unsaved.take());
        if let Some(standing) = &self.unsaved {
            self.save_error = save(standing).err();
            if self.save_error.is_some() {
                return SAVE_AGAIN_MS;
            }
            self.unsaved = None;
        }
        if let Some(reason) = self.member.take_close() {
            self.link.close(now_ms, &mut self.member.exchange, &reason);
        }
        let (is_settled, may_read) = (self.member.is_settled(), self.member.may_receive());
        let Member { exchange, inbox, .. } = &mut self.member;
        self.link.turn(now_ms, exchange, is_settled, inbox, may_read);
        match inbox.is_empty() {
            true => wait_ms.min(self.link.timeout_ms(now_ms)).min(FEED_MS),
            false => 0,
        }
    }

    /// Waits until bytes or an answer of an engine are there, the waker is woken, or the time is over.
    ///
    /// # Errors
    /// The kernel refuses the descriptors.
    pub fn wait(&self, ms: u64) -> io::Result<()> {
        let mut fds = vec![PollFd::from_borrowed_fd(self.waker.as_fd(), PollFlags::IN)];
        let links = self.link.descriptors().into_iter();
        fds.extend(links.map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)));
        self.waker.poll(&mut fds, Some(Duration::from_millis(ms)))
    }
}
