//! Engines of running workers, for a member.

use crate::member::{EngineAnswer, EngineRequest, Engines};
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
    /// Ticket of the last job: a job without one is abandoned.
    ticket: Option<JobTicket>,
}

type Answer = (usize, EngineAnswer);

/// Engines of running workers.
pub struct WorkerEngines {
    workers: Vec<WorkerEngine>,
    steering: Arc<Steering>,
    answers: (Sender<Answer>, Receiver<Answer>),
    /// Waker of the member's thread.
    waker: Waker,
}

impl WorkerEngines {
    /// Attaches a feed to the engine of each worker. `waker` is woken for each answer. `None` if a worker
    /// does not answer in time.
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
            workers.push(WorkerEngine { handle, feed: reader, ticket: None });
        }
        Some(WorkerEngines { workers, steering, answers: answers(), waker })
    }

    /// Uses the steering of another plan.
    pub fn steer_by(&mut self, steering: Arc<Steering>) {
        self.steering = steering;
    }

    /// Returns the function that takes a worker's answer.
    fn answer_of(&self, worker: usize) -> impl FnOnce(EngineAnswer) + Send + 'static {
        let (sender, waker) = (self.answers.0.clone(), self.waker.clone());
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
        let WorkerEngine { handle, ticket, .. } = &mut self.workers[worker];
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
        self.answers.1.try_recv().ok()
    }

    fn next_record(&mut self, worker: usize) -> Option<(Sequence, Record)> {
        self.workers[worker].feed.next()
    }
}
