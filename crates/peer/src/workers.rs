//! Engines of running workers, for the members of a process: one for each other box.
//!
//! ```text
//!   feed of a worker --(by shard)--> queue of a member --> next_record
//!   PlanChanged, Lost ----------------------> queues of all
//! ```
//! Each feed is read once. A place in the feed means the same for all members.

use crate::member::{EngineAnswer, EngineRequest, Engines};
use gatun_io::Waker;
use gatun_nat::Sequence;
use gatun_nat::feed::{FeedPolicy, FeedReader, Flow, Record, SessionScope, channel};
use gatun_nat::workers::Steering;
use gatun_worker::Handle;
use gatun_worker::jobs::JobTicket;
use gatun_worker::standby::{SweepStandby, WalkStandby};
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel as answers};
use std::time::Duration;

/// Largest number of sessions of a page of a walk.
const PAGE_LEN: usize = 4_096;

/// Properties of the feeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedSettings {
    /// Packets after which a UDP or ICMP session is told to the other member; a TCP session is when it is
    /// established.
    pub packets: u8,
    /// Records of 64 bytes for which the ring of each feed has room.
    pub len: usize,
    /// Number that distinguishes these feeds from others of the engines.
    pub generation: u64,
}

/// Worker's engine.
struct WorkerEngine {
    handle: Handle,
    feed: FeedReader,
}

type Answer = (usize, EngineAnswer);

/// Requests and records of a member.
struct MemberState {
    /// Tickets of the last job of each worker: a job without one is abandoned.
    tickets: Vec<Option<JobTicket>>,
    answers: (Sender<Answer>, Receiver<Answer>),
    /// Records of each worker that were read because of another member.
    queues: Vec<RecordQueue>,
}

/// Records that a member has not read.
#[derive(Default)]
struct RecordQueue {
    records: VecDeque<(Sequence, Record)>,
}

impl RecordQueue {
    /// Adds a record. A member that reads too late gets a number of lost records instead.
    fn push(&mut self, at: Sequence, record: Record, len_max: usize) {
        if self.records.len() >= len_max {
            let lost = |record: &Record| if let Record::Lost(number) = record { *number } else { 1 };
            let number = self.records.iter().map(|(_, record)| lost(record)).sum();
            // The place is that of the first lost record, so that no later one comes before it.
            let first = self.records.front().map_or(at, |(at, _)| *at);
            let plan_changed = self.records.iter().any(|(_, record)| *record == Record::PlanChanged);
            self.records.clear();
            self.records.push_back((first, Record::Lost(number)));
            if plan_changed {
                self.records.push_back((first, Record::PlanChanged));
            }
        }
        self.records.push_back((at, record));
    }
}

/// Members that get a record.
enum Receivers {
    All,
    One(usize),
    Nobody,
}

/// Engines of running workers, as one of the members sees them.
pub struct WorkerEngines {
    workers: Vec<WorkerEngine>,
    members: Vec<MemberState>,
    /// Member whose requests and records these are.
    member: usize,
    /// Member of each shard.
    of_shard: [Option<usize>; 256],
    steering: Arc<Steering>,
    /// Waker of the members' thread.
    waker: Waker,
    /// Records that a queue has room for.
    queue_len: usize,
}

impl WorkerEngines {
    /// Attaches a feed to the engine of each worker, for one member, number 0. `waker` is woken for each
    /// answer. `None` if a worker does not answer in time.
    pub fn attach(
        handles: Vec<Handle>,
        steering: Arc<Steering>,
        feeds: FeedSettings,
        waker: Waker,
        timeout: Duration,
    ) -> Option<WorkerEngines> {
        let FeedSettings { packets, len, generation } = feeds;
        let policy = FeedPolicy { sessions: SessionScope::Established, packets, ..FeedPolicy::default() };
        let mut workers = Vec::with_capacity(handles.len());
        for handle in handles {
            let (feed, reader) = channel(policy, len, generation);
            drop(handle.attach_peer_feed(Some(Box::new(feed)), timeout)?);
            workers.push(WorkerEngine { handle, feed: reader });
        }
        let (members, of_shard) = (Vec::new(), [None; 256]);
        let mut engines =
            WorkerEngines { workers, members, member: 0, of_shard, steering, waker, queue_len: len };
        engines.add_member();
        Some(engines)
    }

    /// Adds a member. Returns its number.
    pub fn add_member(&mut self) -> usize {
        let workers = self.workers.len();
        self.members.push(MemberState {
            tickets: (0..workers).map(|_| None).collect(),
            answers: answers(),
            queues: (0..workers).map(|_| RecordQueue::default()).collect(),
        });
        self.members.len() - 1
    }

    /// Gives the records of a shard to a member. Of several members, nobody gets those of other shards; a
    /// single member gets all records.
    pub fn assign(&mut self, shard: u8, member: Option<usize>) {
        self.of_shard[usize::from(shard)] = member;
    }

    /// Uses the steering of another plan.
    pub fn steer_by(&mut self, steering: Arc<Steering>) {
        self.steering = steering;
    }

    /// Turns to a member: requests, answers and records are its own from now on.
    pub fn of(&mut self, member: usize) -> &mut WorkerEngines {
        self.member = member;
        self
    }

    fn receivers(&self, record: &Record) -> Receivers {
        match record {
            _ if self.members.len() == 1 => Receivers::All,
            Record::Session(session) => {
                let shard = self.steering.shard_of_address(session.id.flow.outside.0);
                let member = shard.and_then(|shard| self.of_shard[usize::from(shard)]);
                member.map_or(Receivers::Nobody, Receivers::One)
            }
            Record::PlanChanged | Record::Lost(_) => Receivers::All,
            Record::Binding(_) | Record::Block(_) | Record::Path(_) => Receivers::Nobody,
        }
    }

    /// Puts a record into the queues of other members. Returns whether the present one gets it, too.
    fn distribute(&mut self, worker: usize, (at, record): (Sequence, Record)) -> bool {
        let receivers = self.receivers(&record);
        let is_for = |number| match receivers {
            Receivers::All => true,
            Receivers::One(one) => number == one,
            Receivers::Nobody => false,
        };
        for (number, other) in self.members.iter_mut().enumerate() {
            if number != self.member && is_for(number) {
                other.queues[worker].push(at, record, self.queue_len);
            }
        }
        is_for(self.member)
    }

    /// Returns the function that takes a worker's answer.
    fn answer_of(&self, worker: usize) -> impl FnOnce(EngineAnswer) + Send + 'static {
        let (sender, waker) = (self.members[self.member].answers.0.clone(), self.waker.clone());
        move |answer| {
            // The member may have ended meanwhile.
            drop(sender.send((worker, answer)));
            waker.wake();
        }
    }
}

impl Engines for WorkerEngines {
    fn workers(&self) -> usize {
        self.workers.len()
    }

    fn owner(&self, flow: &Flow) -> Option<usize> {
        self.steering.owner_of_session(flow.instance, flow.inside.0, flow.outside.0)
    }

    fn owner_of_address(&self, address: Ipv4Addr) -> Option<usize> {
        self.steering.owner_of_address(address)
    }

    fn submit(&mut self, worker: usize, request: EngineRequest) -> Result<(), EngineRequest> {
        let answer = self.answer_of(worker);
        let handle = &self.workers[worker].handle;
        let ticket = &mut self.members[self.member].tickets[worker];
        match request {
            EngineRequest::Commands(commands) => handle
                .standby(commands, move |commands| answer(EngineAnswer::Commands(commands)))
                .map_err(|refused| EngineRequest::Commands(refused.commands)),
            EngineRequest::Page(shards, at) => {
                let done = move |job: WalkStandby| {
                    let WalkStandby { at, found, parts, .. } = job;
                    answer(EngineAnswer::Page { at, found, parts });
                };
                let submitted = handle.submit(WalkStandby::new(shards, at, PAGE_LEN), done);
                *ticket = Some(submitted.map_err(|_| EngineRequest::Page(shards, at))?);
                Ok(())
            }
            EngineRequest::Pass(pass, shards, at) => {
                let done = move |job: SweepStandby| answer(EngineAnswer::Pass(job.at));
                let submitted = handle.submit(SweepStandby { pass, shards, at }, done);
                *ticket = Some(submitted.map_err(|_| EngineRequest::Pass(pass, shards, at))?);
                Ok(())
            }
        }
    }

    fn answer(&mut self) -> Option<Answer> {
        self.members[self.member].answers.1.try_recv().ok()
    }

    fn next_record(&mut self, worker: usize) -> Option<(Sequence, Record)> {
        if let Some(waiting) = self.members[self.member].queues[worker].records.pop_front() {
            return Some(waiting);
        }
        loop {
            let next = self.workers[worker].feed.next()?;
            if self.distribute(worker, next) {
                return Some(next);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(number: u64) -> Sequence {
        Sequence { generation: 1, number }
    }

    #[test]
    fn a_member_that_reads_too_late_gets_the_number_of_lost_records() {
        let mut queue = RecordQueue::default();
        for number in 0..3 {
            queue.push(at(number), Record::Lost(10), 3);
        }
        queue.push(at(3), Record::PlanChanged, 4);
        // There is no room: what follows comes after the notes.
        queue.push(at(4), Record::Lost(7), 4);
        let records: Vec<_> = queue.records.into_iter().collect();
        let (lost, last) = (Record::Lost(31), Record::Lost(7));
        assert_eq!(records, [(at(0), lost), (at(0), Record::PlanChanged), (at(4), last)]);
    }
}
