//! Long requests to a worker. The worker processes them in slices between bursts, so that no packet waits
//! longer than for a burst.
//!
//! ```text
//!   Handle::submit -> bounded queue -> a few active jobs, in turn, one slice after each burst -> done(job)
//! ```
//! A job brings the memory for its result: the worker allocates nothing. A job whose [`JobTicket`] was
//! dropped is abandoned. The queue is bounded: if it is full, the caller gets an error immediately.

use gatun_io::{BURST_MAX, Mailbox, PutError};
use gatun_nat::inspect::{BindingInfo, BlockInfo, PortCursor, Selection, SessionCursor, SessionInfo};
use gatun_nat::plan::Net4;
use gatun_nat::report::{AddressStats, SubscriberStats};
use gatun_nat::{ClearCursor, Cleared, Extent, Instant, Nat, SessionKey};
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::{Arc, Weak};

/// Largest number of queued jobs.
pub const WAITING_MAX: usize = 64;
/// Largest number of active jobs.
const AT_HAND_MAX: usize = 8;
/// Budgets of a slice, in examined records.
pub(crate) const SLICES: Slices = Slices { idle: 4096, busy: 512, behind: 64 };
/// Cost of ending one session.
const END: usize = 9;

/// Work on an engine that can be divided into slices.
pub trait Job: Send {
    /// Does about as much work as examining `budget` records. Returns whether the job is complete.
    fn step(&mut self, nat: &mut Nat, now: Instant, budget: usize) -> bool;
}

/// Handle of a submitted job. Dropping it abandons the job.
#[must_use = "dropping the ticket abandons the job"]
pub struct JobTicket {
    _wanted: Arc<()>,
}

/// Reason why a job was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// The queue is full.
    Busy,
    /// The worker has ended.
    Ended,
}

impl<T> From<PutError<T>> for SubmitError {
    fn from(error: PutError<T>) -> Self {
        match error {
            PutError::Full(_) => SubmitError::Busy,
            PutError::Closed(_) => SubmitError::Ended,
        }
    }
}

/// Budgets of work between bursts, by the number of packets that arrived.
pub(crate) struct Slices {
    /// No packet.
    pub(crate) idle: usize,
    /// Some packets: about the cost of a burst.
    pub(crate) busy: usize,
    /// A full burst: more packets are waiting.
    pub(crate) behind: usize,
}

impl Slices {
    #[inline]
    pub(crate) fn after(&self, received: usize) -> usize {
        match received {
            0 => self.idle,
            1..BURST_MAX => self.busy,
            BURST_MAX.. => self.behind,
        }
    }
}

/// Queued job with the function that receives its result.
trait QueuedJob: Send {
    fn step(&mut self, nat: &mut Nat, now: Instant, budget: usize) -> bool;
    fn is_wanted(&self) -> bool;
    fn finish(self: Box<Self>);
}

struct JobWithCallback<J, F> {
    job: J,
    done: F,
    wanted: Weak<()>,
}

impl<J: Job, F: FnOnce(J) + Send> QueuedJob for JobWithCallback<J, F> {
    fn step(&mut self, nat: &mut Nat, now: Instant, budget: usize) -> bool {
        self.job.step(nat, now, budget)
    }

    fn is_wanted(&self) -> bool {
        self.wanted.strong_count() > 0
    }

    fn finish(self: Box<Self>) {
        (self.done)(self.job);
    }
}

/// Submits jobs from other threads.
#[derive(Clone)]
pub(crate) struct JobSubmitter {
    queue: Mailbox<Box<dyn QueuedJob>>,
}

impl JobSubmitter {
    pub(crate) fn submit<J: Job + 'static>(
        &self,
        job: J,
        done: impl FnOnce(J) + Send + 'static,
    ) -> Result<JobTicket, SubmitError> {
        let ticket = JobTicket { _wanted: Arc::new(()) };
        let errand = Box::new(JobWithCallback { job, done, wanted: Arc::downgrade(&ticket._wanted) });
        self.queue.put(errand)?;
        Ok(ticket)
    }
}

/// Jobs of a worker.
pub(crate) struct JobQueue {
    queue: Mailbox<Box<dyn QueuedJob>>,
    at_hand: VecDeque<Box<dyn QueuedJob>>,
}

pub(crate) fn pair() -> (JobSubmitter, JobQueue) {
    let queue = Mailbox::new(WAITING_MAX);
    (JobSubmitter { queue: queue.clone() }, JobQueue { queue, at_hand: VecDeque::with_capacity(AT_HAND_MAX) })
}

impl Drop for JobQueue {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl JobQueue {
    /// Works on the next job, if any, for one slice after this many packets. Returns whether jobs are left.
    #[inline]
    pub(crate) fn work(&mut self, nat: &mut Nat, now: Instant, received: usize) -> bool {
        while self.at_hand.len() < AT_HAND_MAX
            && let Some(errand) = self.queue.next()
        {
            self.at_hand.push_back(errand);
        }
        if self.at_hand.is_empty() {
            return false;
        }
        self.slice(nat, now, SLICES.after(received));
        true
    }

    #[cold]
    fn slice(&mut self, nat: &mut Nat, now: Instant, budget: usize) {
        let Some(mut errand) = self.at_hand.pop_front() else { return };
        if !errand.is_wanted() {
            return;
        }
        match errand.step(nat, now, budget) {
            true => errand.finish(),
            false => self.at_hand.push_back(errand),
        }
    }
}

/// Reads sessions into a list until it is full or all sessions are read.
pub struct ReadSessions {
    /// Filter.
    pub which: Selection,
    /// Start position. Afterwards, the position after the last session.
    pub at: SessionCursor,
    /// Result: at most its capacity.
    pub found: Vec<SessionInfo>,
}

impl Job for ReadSessions {
    fn step(&mut self, nat: &mut Nat, _: Instant, budget: usize) -> bool {
        nat.read_sessions(&mut self.at, &self.which, budget, &mut self.found);
        self.at.done || self.found.len() == self.found.capacity()
    }
}

/// Reads bindings, like [`ReadSessions`].
pub struct ReadBindings {
    /// Filter.
    pub which: Selection,
    /// Start position.
    pub at: PortCursor,
    /// Result.
    pub found: Vec<BindingInfo>,
}

impl Job for ReadBindings {
    fn step(&mut self, nat: &mut Nat, _: Instant, budget: usize) -> bool {
        nat.read_bindings(&mut self.at, &self.which, budget, &mut self.found);
        self.at.done || self.found.len() == self.found.capacity()
    }
}

/// Reads port blocks, like [`ReadSessions`].
pub struct ReadBlocks {
    /// Filter.
    pub which: Selection,
    /// Start position.
    pub at: PortCursor,
    /// Result.
    pub found: Vec<BlockInfo>,
}

impl Job for ReadBlocks {
    fn step(&mut self, nat: &mut Nat, _: Instant, budget: usize) -> bool {
        nat.read_blocks(&mut self.at, &self.which, budget, &mut self.found);
        self.at.done || self.found.len() == self.found.capacity()
    }
}

/// Reads subscribers, like [`ReadSessions`].
pub struct ReadSubscribers {
    /// Filter.
    pub which: Selection,
    /// Number of the next subscriber. `None` at the end.
    pub next: Option<u32>,
    /// Result, with the prefix length of each subscriber's inside network.
    pub found: Vec<SubscriberStats>,
}

impl Job for ReadSubscribers {
    fn step(&mut self, nat: &mut Nat, _: Instant, budget: usize) -> bool {
        if let Some(next) = self.next {
            self.next = nat.read_subscribers(next, &self.which, budget, &mut self.found);
        }
        self.next.is_none() || self.found.len() == self.found.capacity()
    }
}

/// Reads the public addresses of a pool, like [`ReadSessions`].
pub struct ReadAddresses {
    /// Number of the pool.
    pub pool: usize,
    /// Network of the addresses; `None` means all.
    pub net: Option<Net4>,
    /// Index of the next address, from 0.
    pub next: u32,
    /// True once all addresses are read.
    pub done: bool,
    /// Result.
    pub found: Vec<AddressStats>,
}

/// Cost of an address in the budget: its ports are counted.
const ADDRESS: usize = 16;

impl Job for ReadAddresses {
    fn step(&mut self, nat: &mut Nat, _: Instant, budget: usize) -> bool {
        let room = self.found.capacity() - self.found.len();
        let some = u32::try_from(room.min(budget.div_ceil(ADDRESS))).unwrap_or(u32::MAX);
        let mut read = 0;
        let all =
            nat.address_stats(self.pool, self.next..self.next.saturating_add(some)).inspect(|_| read += 1);
        self.found.extend(all.filter(|stats| self.net.is_none_or(|net| net.contains(stats.address))));
        self.next = self.next.saturating_add(u32::try_from(read).unwrap_or(u32::MAX));
        self.done = read < some as usize;
        self.done || self.found.len() == self.found.capacity()
    }
}

/// Reads drained public addresses, like [`ReadSessions`].
pub struct ReadDrained {
    /// Number of the next pool, and the number of its drained addresses already read.
    pub at: (usize, usize),
    /// True once all addresses are read.
    pub done: bool,
    /// Result.
    pub found: Vec<Ipv4Addr>,
}

impl Job for ReadDrained {
    fn step(&mut self, nat: &mut Nat, _: Instant, _: usize) -> bool {
        let (pool, read) = self.at;
        let Some(pool) = nat.pools().get(pool) else {
            self.done = true;
            return true;
        };
        let before = self.found.len();
        let room = self.found.capacity() - before;
        self.found.extend(pool.drained().skip(read).take(room));
        self.at.1 += self.found.len() - before;
        if self.found.len() == self.found.capacity() {
            return true;
        }
        self.at = (self.at.0 + 1, 0);
        false
    }
}

/// Ends sessions, or bindings with all their sessions.
pub struct Clear {
    /// Filter.
    pub which: Selection,
    /// Sessions or bindings.
    pub extent: Extent,
    /// Position.
    pub at: ClearCursor,
    /// Number of ended sessions and bindings.
    pub cleared: Cleared,
}

impl Job for Clear {
    fn step(&mut self, nat: &mut Nat, now: Instant, budget: usize) -> bool {
        let some = nat.clear(now, &mut self.at, &self.which, self.extent, budget);
        self.cleared.sessions += some.sessions;
        self.cleared.bindings += some.bindings;
        self.at.is_done()
    }
}

/// Ends the sessions of a list.
pub struct EndSessions {
    /// Sessions to end.
    pub keys: Vec<SessionKey>,
    /// Number of processed keys.
    pub next: usize,
    /// Number of ended sessions.
    pub cleared: Cleared,
}

impl Job for EndSessions {
    fn step(&mut self, nat: &mut Nat, now: Instant, budget: usize) -> bool {
        let end = self.keys.len().min(self.next + budget.div_ceil(END));
        let before = nat.occupancy().bindings;
        self.cleared.sessions += nat.end_sessions(now, &self.keys[self.next..end]) as u64;
        self.cleared.bindings += before.saturating_sub(nat.occupancy().bindings) as u64;
        self.next = end;
        end == self.keys.len()
    }
}
