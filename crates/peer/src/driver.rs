//! Body of a thread of members: connects their links, the members, and the engines of running workers.
//!
//! ```text
//!   loop { orders of the caller; let ms = driver.turn(now, engines, save); wait(ms, waker, ...) }
//! ```
//! The sender of an order wakes the waker. A pair has one driver, a node of a cluster one for each other
//! node.

use crate::link::{Acceptor, Link};
use crate::member::{Engines, Member, SavedStanding};
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

/// Saves the standing of a process for the next one. Until that is done, nothing is sent: others must not
/// know more than the next process of this box.
pub struct StandingWriter<S> {
    /// Reason why the standing could not be saved.
    pub error: Option<String>,
    unsaved: Option<S>,
    failure: Option<SaveFailure>,
}

impl<S> Default for StandingWriter<S> {
    fn default() -> StandingWriter<S> {
        StandingWriter { error: None, unsaved: None, failure: None }
    }
}

impl<S> StandingWriter<S> {
    /// Saves a standing that is new, or one that could not be saved before.
    pub fn turn(&mut self, now_ms: u64, is_new: Option<S>, save: &mut dyn FnMut(&S) -> Result<(), String>) {
        let is_due = is_new.is_some() || self.failure.is_none_or(|failure| now_ms >= failure.again_ms);
        self.unsaved = is_new.or(self.unsaved.take());
        let Some(standing) = self.unsaved.as_ref().filter(|_| is_due) else { return };
        self.error = save(standing).err();
        let since_ms = self.failure.map_or(now_ms, |failure| failure.since_ms);
        let failure = SaveFailure { since_ms, again_ms: now_ms + SAVE_AGAIN_MS };
        self.failure = self.error.is_some().then_some(failure);
        if self.failure.is_none() {
            self.unsaved = None;
        }
    }

    /// Time until the next try, ms.
    pub fn timeout_ms(&self, now_ms: u64) -> u64 {
        self.failure.map_or(u64::MAX, |failure| failure.again_ms.saturating_sub(now_ms))
    }

    /// Holds what a member sends while its standing is not saved. If that takes too long, the connection is
    /// closed.
    pub fn hold(&self, now_ms: u64, member: &mut Member, link: &mut Link) {
        let exchange = &mut member.exchange;
        let is_late = |failure: SaveFailure| now_ms - failure.since_ms >= link.dead_after_ms();
        if self.failure.is_some_and(is_late) && link.state().remote.is_some() {
            exchange.refuse_at_once(now_ms, UNSAVED);
            link.close(now_ms, exchange, UNSAVED);
        }
        exchange.hold(self.failure.is_some());
    }
}

/// Carries bytes between a member and its link. Returns the time until the next turn, ms.
pub fn carry(now_ms: u64, member: &mut Member, link: &mut Link) -> u64 {
    if let Some(reason) = member.take_close() {
        link.close(now_ms, &mut member.exchange, &reason);
    }
    let (is_settled, may_read) = (member.is_settled(), member.may_receive());
    let Member { exchange, inbox, .. } = member;
    link.turn(now_ms, exchange, is_settled, inbox, may_read);
    match inbox.is_empty() {
        true => link.timeout_ms(now_ms).min(FEED_MS),
        false => 0,
    }
}

/// Member of a pair, with its link.
pub struct Driver {
    /// Member.
    pub member: Member,
    /// Link to the other member.
    pub link: Link,
    /// Keeps its standing.
    pub saver: StandingWriter<SavedStanding>,
}

impl Driver {
    /// Creates a driver.
    pub fn new(member: Member, link: Link) -> Driver {
        Driver { member, link, saver: StandingWriter::default() }
    }

    /// Does what is due. `save` keeps the standing for the next process. Returns the time until the next
    /// turn, ms.
    pub fn turn(
        &mut self,
        now_ms: u64,
        engines: &mut dyn Engines,
        save: &mut dyn FnMut(&SavedStanding) -> Result<(), String>,
    ) -> u64 {
        let Driver { member, link, saver } = self;
        let wait_ms = member.turn(now_ms, engines);
        saver.turn(now_ms, member.take_unsaved(), save);
        saver.hold(now_ms, member, link);
        carry(now_ms, member, link).min(wait_ms).min(saver.timeout_ms(now_ms))
    }

    /// Gives the own shards to the other member, if the standing can be saved now.
    ///
    /// # Errors
    /// Returns the reason why it cannot be done now.
    pub fn release(
        &mut self,
        save: &mut dyn FnMut(&SavedStanding) -> Result<(), String>,
    ) -> Result<(), String> {
        if self.saver.unsaved.is_none() {
            save(&self.member.saved_standing())?;
        }
        match &self.saver.error {
            Some(why) => Err(why.clone()),
            None => self.member.release().map_err(|error| error.to_string()),
        }
    }
}

/// Waits until bytes or an answer of an engine are there, the waker is woken, or the time is over. `waker` is
/// the one that the engines wake.
///
/// # Errors
/// The kernel refuses the descriptors.
pub fn wait<'l>(
    ms: u64,
    waker: &Waker,
    acceptor: Option<&'l Acceptor>,
    links: impl Iterator<Item = &'l Link>,
) -> io::Result<()> {
    let mut fds = vec![PollFd::from_borrowed_fd(waker.as_fd(), PollFlags::IN)];
    let accepted = acceptor.into_iter().flat_map(Acceptor::descriptors);
    let links = links.flat_map(Link::descriptors);
    fds.extend(accepted.chain(links).map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)));
    waker.poll(&mut fds, Some(Duration::from_millis(ms)))
}
