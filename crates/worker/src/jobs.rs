//! What a worker is asked for that may be long: it is worked off between bursts, a slice each, so that no packet
//! waits for it longer than for a burst.
//!
//! ```text
//!   Handle::submit -> bounded queue -> a few at hand, in turn, one slice after each burst -> done(job)
//! ```
//! A job brings the memory that its result needs: the worker allocates nothing. One whose [`Ticket`] is dropped is
//! not gone on with. The queue is bounded: who asks for more than is worked off is told so at once.

use gatun_io::{BURST_MAX, Mailbox, NotPut};
use gatun_nat::inspect::{BindingInfo, BlockInfo, PortCursor, Selection, SessionCursor, SessionInfo};
use gatun_nat::plan::Net4;
use gatun_nat::report::{AddressStats, SubscriberStats};
use gatun_nat::{ClearCursor, Cleared, Extent, Instant, Nat, SessionKey};
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::{Arc, Weak};

/// Jobs that wait to be looked at, at most.
pub const WAITING_MAX: usize = 64;
/// Jobs that are worked on in turn, at most.
const AT_HAND_MAX: usize = 8;
/// What a slice may cost while packets come, in records that are looked at: about as long as a burst takes.
const SLICE: usize = 512;
/// The same where a whole burst came: more packets wait.
const SLICE_BEHIND: usize = 64;
/// The same where none came.
const SLICE_IDLE: usize = 4096;
/// What the end of one session costs of it.
const END: usize = 9;

/// Work on an engine that can be done in slices.
pub trait Job: Send {
    /// Does about as much as looking at `budget` records takes. Says whether all is done.
    fn step(&mut self, nat: &mut Nat, now: Instant, budget: usize) -> bool;
}

/// Whoever has it wants the job's result.
#[must_use = "a job without its ticket is not done"]
pub struct Ticket {
    _wanted: Arc<()>,
}

/// Why a job was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// As many wait as may.
    Busy,
    /// The worker has ended.
    Ended,
}

/// A job on its way, and what is to be done with it then.
trait Errand: Send {
    fn step(&mut self, nat: &mut Nat, now: Instant, budget: usize) -> bool;
    fn is_wanted(&self) -> bool;
    fn finish(self: Box<Self>);
}

struct Entrusted<J, F> {
    job: J,
    done: F,
    wanted: Weak<()>,
}

impl<J: Job, F: FnOnce(J) + Send> Errand for Entrusted<J, F> {
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

/// Where jobs are handed in.
#[derive(Clone)]
pub(crate) struct Counter {
    queue: Mailbox<Box<dyn Errand>>,
}

impl Counter {
    pub(crate) fn hand_in<J: Job + 'static>(
        &self,
        job: J,
        done: impl FnOnce(J) + Send + 'static,
    ) -> Result<Ticket, Refused> {
        let ticket = Ticket { _wanted: Arc::new(()) };
        let errand = Box::new(Entrusted { job, done, wanted: Arc::downgrade(&ticket._wanted) });
        match self.queue.put(errand) {
            Ok(_) => Ok(ticket),
            Err(NotPut::Full(_)) => Err(Refused::Busy),
            Err(NotPut::Closed(_)) => Err(Refused::Ended),
        }
    }
}

/// The worker's side.
pub(crate) struct Desk {
    queue: Mailbox<Box<dyn Errand>>,
    at_hand: VecDeque<Box<dyn Errand>>,
}

pub(crate) fn pair() -> (Counter, Desk) {
    let queue = Mailbox::new(WAITING_MAX);
    (Counter { queue: queue.clone() }, Desk { queue, at_hand: VecDeque::with_capacity(AT_HAND_MAX) })
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl Desk {
    /// Works on the next job, if there is one, for a slice after so many packets. Says whether anything is left.
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
        let budget = match received {
            0 => SLICE_IDLE,
            1..BURST_MAX => SLICE,
            BURST_MAX.. => SLICE_BEHIND,
        };
        self.slice(nat, now, budget);
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

/// Reads sessions into a list until that is full or the walk is over.
pub struct ReadSessions {
    /// Which.
    pub which: Selection,
    /// From where on; behind the last one afterwards.
    pub at: SessionCursor,
    /// What was found: as many as it has capacity for.
    pub found: Vec<SessionInfo>,
}

impl Job for ReadSessions {
    fn step(&mut self, nat: &mut Nat, _: Instant, budget: usize) -> bool {
        nat.read_sessions(&mut self.at, &self.which, budget, &mut self.found);
        self.at.done || self.found.len() == self.found.capacity()
    }
}

/// As [`ReadSessions`], of bindings.
pub struct ReadBindings {
    /// Which.
    pub which: Selection,
    /// From where on.
    pub at: PortCursor,
    /// What was found.
    pub found: Vec<BindingInfo>,
}

impl Job for ReadBindings {
    fn step(&mut self, nat: &mut Nat, _: Instant, budget: usize) -> bool {
        nat.read_bindings(&mut self.at, &self.which, budget, &mut self.found);
        self.at.done || self.found.len() == self.found.capacity()
    }
}

/// As [`ReadSessions`], of port blocks.
pub struct ReadBlocks {
    /// Which.
    pub which: Selection,
    /// From where on.
    pub at: PortCursor,
    /// What was found.
    pub found: Vec<BlockInfo>,
}

impl Job for ReadBlocks {
    fn step(&mut self, nat: &mut Nat, _: Instant, budget: usize) -> bool {
        nat.read_blocks(&mut self.at, &self.which, budget, &mut self.found);
        self.at.done || self.found.len() == self.found.capacity()
    }
}

/// As [`ReadSessions`], of subscribers.
pub struct ReadSubscribers {
    /// Which.
    pub which: Selection,
    /// The number from which on; `None` where there are no more.
    pub next: Option<u32>,
    /// What was found, and how long its inside network's prefix is.
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

/// As [`ReadSessions`], of a pool's public addresses.
pub struct ReadAddresses {
    /// Number of the pool.
    pub pool: usize,
    /// Network of the addresses; `None` is every one.
    pub net: Option<Net4>,
    /// Which address is next, counted from 0.
    pub next: u32,
    /// Whether there are no more.
    pub done: bool,
    /// What was found.
    pub found: Vec<AddressStats>,
}

/// What an address costs of a budget: its ports are counted.
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

/// As [`ReadSessions`], of public addresses that are drained.
pub struct ReadDrained {
    /// Number of the pool that is next, and how many of its drained addresses have been read.
    pub at: (usize, usize),
    /// Whether there are no more.
    pub done: bool,
    /// What was found.
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

/// Ends sessions, or bindings with all of theirs.
pub struct Clear {
    /// Which.
    pub which: Selection,
    /// Sessions or bindings.
    pub extent: Extent,
    /// How far it is.
    pub at: ClearCursor,
    /// What has ended.
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
    /// Which.
    pub keys: Vec<SessionKey>,
    /// How many of them have been looked for.
    pub next: usize,
    /// What has ended.
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
