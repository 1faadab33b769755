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

/// Reason for closing a connection on which nothing may be sent.
const UNSAVED: &str = "the state of this member cannot be saved: see its log";

/// Standing that could not be saved.
#[derive(Clone, Copy, Debug)]
struct SaveFailure {
    /// Time of the first failure.
    since_ms: u64,
    /// Time of the next try.
    again_ms: u64,
}

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
    failure: Option<SaveFailure>,
    waker: Waker,
}

impl Driver {
    /// Creates a driver. `waker` is the one that the engines wake.
    pub fn new(member: Member, link: Link, engines: WorkerEngines, waker: Waker) -> Driver {
        Driver { member, link, engines, save_error: None, unsaved: None, failure: None, waker }
    }

    /// Does what is due. `save` keeps the standing for the next process. Returns the time until the next
    /// turn, ms.
    pub fn turn(&mut self, now_ms: u64, save: &mut dyn FnMut(&SavedStanding) -> Result<(), String>) -> u64 {
        let wait_ms = self.member.turn(now_ms, &mut self.engines);
        self.save(now_ms, save);
        if let Some(reason) = self.member.take_close() {
            self.link.close(now_ms, &mut self.member.exchange, &reason);
        }
        let (is_settled, may_read) = (self.member.is_settled(), self.member.may_receive());
        let Member { exchange, inbox, .. } = &mut self.member;
        self.link.turn(now_ms, exchange, is_settled, inbox, may_read);
        let save_ms = self.failure.map_or(u64::MAX, |failure| failure.again_ms.saturating_sub(now_ms));
        match inbox.is_empty() {
            true => wait_ms.min(self.link.timeout_ms(now_ms)).min(FEED_MS).min(save_ms),
            false => 0,
        }
    }

    /// Saves the standing if it has changed. Until that is done, nothing is sent: the other member must not
    /// know more than the next process of this one. If it takes too long, the connection is closed.
    fn save(&mut self, now_ms: u64, save: &mut dyn FnMut(&SavedStanding) -> Result<(), String>) {
        let is_new = self.member.take_unsaved();
        let is_due = is_new.is_some() || self.failure.is_none_or(|failure| now_ms >= failure.again_ms);
        self.unsaved = is_new.or(self.unsaved.take());
        if let Some(standing) = self.unsaved.as_ref().filter(|_| is_due) {
            self.save_error = save(standing).err();
            let since_ms = self.failure.map_or(now_ms, |failure| failure.since_ms);
            let failure = SaveFailure { since_ms, again_ms: now_ms + SAVE_AGAIN_MS };
            self.failure = self.save_error.is_some().then_some(failure);
            if self.failure.is_none() {
                self.unsaved = None;
            }
        }
        let exchange = &mut self.member.exchange;
        let is_late = |failure: SaveFailure| now_ms - failure.since_ms >= self.link.dead_after_ms();
        if self.failure.is_some_and(is_late) && self.link.state().remote.is_some() {
            exchange.refuse_at_once(now_ms, UNSAVED);
            self.link.close(now_ms, exchange, UNSAVED);
        }
        exchange.hold(self.failure.is_some());
    }

    /// Gives the own shards to the other member, if the standing can be saved now.
    ///
    /// # Errors
    /// Returns the reason why it cannot be done now.
    pub fn release(
        &mut self,
        save: &mut dyn FnMut(&SavedStanding) -> Result<(), String>,
    ) -> Result<(), String> {
        if self.unsaved.is_none() {
            save(&self.member.saved_standing())?;
        }
        match &self.save_error {
            Some(why) => Err(why.clone()),
            None => self.member.release().map_err(|error| error.to_string()),
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
