//! Engines of running workers, for the members of a process: one for each other box.
//!
//! [`RecordQueues`] give each member the records of its shards.

use crate::member::{EngineAnswer, EngineRequest, Engines};
use crate::records::RecordQueues;
use gatun_io::Waker;
use gatun_nat::Sequence;
use gatun_nat::feed::{FeedPolicy, FeedReader, Flow, Record, SessionScope, channel};
use gatun_nat::workers::Steering;
use gatun_worker::Handle;
use gatun_worker::jobs::JobTicket;
use gatun_worker::standby::{SweepStandby, WalkStandby};
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
}

/// Engines of running workers, as one of the members sees them.
pub struct WorkerEngines {
    workers: Vec<WorkerEngine>,
    members: Vec<MemberState>,
    /// Member whose requests and records these are.
    member: usize,
    records: RecordQueues,
    steering: Arc<Steering>,
    /// Waker of the members' thread.
    waker: Waker,
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
        let records = RecordQueues::new(workers.len(), len);
        let mut engines = WorkerEngines { workers, members: Vec::new(), member: 0, records, steering, waker };
        engines.add_member();
        Some(engines)
    }

    /// Adds a member. Returns its number.
    pub fn add_member(&mut self) -> usize {
        let workers = self.workers.len();
        self.members.push(MemberState { tickets: (0..workers).map(|_| None).collect(), answers: answers() });
        self.records.add_member()
    }

    /// Gives the records of a shard to a member. Of several members, nobody gets those of other shards; a
    /// single member gets all records.
    pub fn assign(&mut self, shard: u8, member: Option<usize>) {
        self.records.assign(shard, member);
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
                let submitted = handle.submit(SweepStandby::new(pass, shards, at), done);
                *ticket = Some(submitted.map_err(|_| EngineRequest::Pass(pass, shards, at))?);
                Ok(())
            }
        }
    }

    fn answer(&mut self) -> Option<Answer> {
        self.members[self.member].answers.1.try_recv().ok()
    }

    fn next_record(&mut self, worker: usize) -> Option<(Sequence, Record)> {
        let WorkerEngines { workers, records, steering, member, .. } = self;
        records.next((*member, worker), steering, &mut || workers[worker].feed.next())
    }
}
