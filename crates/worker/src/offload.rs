//! Commands of a fast path's manager for a worker's engine, and the state that it reads.
//!
//! ```text
//!   Handle::offload -> bounded queue -> some commands after each burst, in their order -> done(commands)
//! ```
//! Commands are not jobs: their order counts, and they do not wait for sessions that are still to be
//! restored. A batch brings the memory for its results: the worker allocates nothing.

use crate::jobs::{Job, Slices, SubmitError};
use gatun_io::{Mailbox, PutError};
use gatun_nat::counters::Traffic;
use gatun_nat::feed::{Command, FeedPolicy, SessionRecord};
use gatun_nat::standby::PeerCommand;
use gatun_nat::{FeedCursor, Instant, Nat, Sequence};

/// Maximum number of queued batches.
pub const BATCHES_MAX: usize = 256;
/// Maximum number of commands between bursts.
const SLICES: Slices = Slices { idle: 512, busy: 64, behind: 16 };

/// Command that an engine handles between bursts.
pub trait EngineCommand: Send + Sized + 'static {
    /// Handles commands in their order.
    fn handle(nat: &mut Nat, now: Instant, commands: &mut [Self]);

    /// Returns the part of a budget of commands that may be handled now.
    fn budget(_nat: &mut Nat, _now: Instant, commands: usize) -> usize {
        commands
    }
}

impl EngineCommand for Command {
    fn handle(nat: &mut Nat, now: Instant, commands: &mut [Command]) {
        nat.offload(now, commands);
    }
}

impl EngineCommand for PeerCommand {
    fn handle(nat: &mut Nat, now: Instant, commands: &mut [PeerCommand]) {
        nat.standby(now, commands);
    }

    /// Sessions of another box come in bulk, each with an event.
    fn budget(nat: &mut Nat, now: Instant, commands: usize) -> usize {
        nat.standby_budget(now, commands)
    }
}

/// Commands, and the function that receives their results.
struct Batch<C> {
    commands: Vec<C>,
    /// Number of commands handled.
    handled: usize,
    done: Box<dyn FnOnce(Vec<C>) + Send>,
}

/// Commands that were not accepted, and the reason.
#[derive(Debug, PartialEq, Eq)]
pub struct RefusedCommands<C = Command> {
    /// Reason.
    pub error: SubmitError,
    /// The commands, none of which was handled.
    pub commands: Vec<C>,
}

/// Submits commands from other threads.
pub(crate) struct CommandSubmitter<C = Command> {
    queue: Mailbox<Batch<C>>,
}

impl<C> Clone for CommandSubmitter<C> {
    fn clone(&self) -> Self {
        CommandSubmitter { queue: self.queue.clone() }
    }
}

/// Commands of a worker.
pub(crate) struct CommandQueue<C = Command> {
    queue: Mailbox<Batch<C>>,
    at_hand: Option<Batch<C>>,
}

pub(crate) fn pair<C>() -> (CommandSubmitter<C>, CommandQueue<C>) {
    let queue = Mailbox::new(BATCHES_MAX);
    (CommandSubmitter { queue: queue.clone() }, CommandQueue { queue, at_hand: None })
}

impl<C> CommandSubmitter<C> {
    pub(crate) fn submit(
        &self,
        commands: Vec<C>,
        done: impl FnOnce(Vec<C>) + Send + 'static,
    ) -> Result<(), RefusedCommands<C>> {
        let batch = Batch { commands, handled: 0, done: Box::new(done) };
        match self.queue.put(batch) {
            Ok(_) => Ok(()),
            Err(PutError::Full(batch)) => {
                Err(RefusedCommands { error: SubmitError::Busy, commands: batch.commands })
            }
            Err(PutError::Closed(batch)) => {
                Err(RefusedCommands { error: SubmitError::Ended, commands: batch.commands })
            }
        }
    }
}

impl<C> Drop for CommandQueue<C> {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl<C: EngineCommand> CommandQueue<C> {
    /// Handles some commands after a burst of this many packets. Returns whether there were any.
    #[inline]
    pub(crate) fn work(&mut self, nat: &mut Nat, now: Instant, received: usize) -> bool {
        if self.at_hand.is_none() {
            self.at_hand = self.queue.next();
        }
        if self.at_hand.is_none() {
            return false;
        }
        self.slice(nat, now, SLICES.after(received));
        true
    }

    #[cold]
    fn slice(&mut self, nat: &mut Nat, now: Instant, budget: usize) {
        let mut budget = C::budget(nat, now, budget);
        while budget > 0
            && let Some(mut batch) = self.at_hand.take().or_else(|| self.queue.next())
        {
            let end = batch.commands.len().min(batch.handled + budget);
            // An empty batch has a cost, too.
            budget -= (end - batch.handled).max(1);
            C::handle(nat, now, &mut batch.commands[batch.handled..end]);
            batch.handled = end;
            if end == batch.commands.len() {
                (batch.done)(batch.commands);
            } else {
                self.at_hand = Some(batch);
            }
        }
    }
}

/// Reads the sessions that a policy of the state feed asks for, until the list is full or all are read
/// ([`Nat::read_feed`]).
pub struct ReadFeed {
    /// Filter.
    pub policy: FeedPolicy,
    /// Start position. Afterwards, the position after the last session.
    pub at: FeedCursor,
    /// Result: at most its capacity.
    pub found: Vec<SessionRecord>,
    /// Place of the next record of the stream when the first records were found. A record of the stream is
    /// newer than all that was found if its number is not smaller than that of `until`.
    pub since: Option<Sequence>,
    /// The same when the last records were found.
    pub until: Option<Sequence>,
}

impl ReadFeed {
    /// Creates a job that reads up to `len` sessions from a position on.
    pub fn new(policy: FeedPolicy, at: FeedCursor, len: usize) -> ReadFeed {
        ReadFeed { policy, at, found: Vec::with_capacity(len), since: None, until: None }
    }
}

impl Job for ReadFeed {
    fn step(&mut self, nat: &mut Nat, _: Instant, budget: usize) -> bool {
        self.until = nat.read_feed(&mut self.at, &self.policy, budget, &mut self.found);
        self.since = self.since.or(self.until);
        self.at.is_done() || self.found.len() == self.found.capacity()
    }
}

/// Counts packets that a fast path has translated without a session, or dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreditInstances {
    /// Translated packets of each stateless instance ([`Nat::credit_stateless`]).
    pub stateless: Vec<Traffic>,
    /// Dropped packets of each instance ([`Nat::credit_drops`]).
    pub drops: Vec<u64>,
}

impl Job for CreditInstances {
    fn step(&mut self, nat: &mut Nat, _: Instant, _: usize) -> bool {
        let stateless = self.stateless.iter().enumerate();
        stateless.for_each(|(number, traffic)| nat.credit_stateless(number, *traffic));
        let drops = self.drops.iter().enumerate().filter(|(_, packets)| **packets > 0);
        drops.for_each(|(number, packets)| nat.credit_drops(number, *packets));
        true
    }
}

/// Releases all sessions and ports that fast paths have ([`Nat::release_all`]).
#[derive(Default)]
pub struct ReleaseAll {
    /// Position.
    pub at: FeedCursor,
    /// Number of released sessions and ports.
    pub released: u64,
}

impl Job for ReleaseAll {
    fn step(&mut self, nat: &mut Nat, now: Instant, budget: usize) -> bool {
        self.released += nat.release_all(now, &mut self.at, budget);
        self.at.is_done()
    }
}
