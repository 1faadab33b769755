//! Interface of a member to the engines of its workers.

use gatun_nat::feed::{Flow, Record, SessionRecord};
use gatun_nat::standby::{PeerCommand, StandbySweep};
use gatun_nat::{FeedCursor, Sequence, ShardSet};
use gatun_worker::standby::WalkPart;
use std::net::Ipv4Addr;

/// Request to an engine. A member has at most one for each engine.
#[derive(Debug)]
pub enum EngineRequest {
    /// Commands, to be executed in their order.
    Commands(Vec<PeerCommand>),
    /// A page of a walk over the sessions of some shards.
    Page(ShardSet, FeedCursor),
    /// A part of a pass over all sessions of some shards.
    Pass(StandbySweep, ShardSet, FeedCursor),
}

/// Answer to a request.
#[derive(Debug)]
pub enum EngineAnswer {
    /// The commands, with their outcomes.
    Commands(Vec<PeerCommand>),
    /// Sessions of a walk.
    Page {
        /// Position after the last session.
        at: FeedCursor,
        /// Sessions.
        found: Vec<SessionRecord>,
        /// Parts of them, each found at one moment.
        parts: Vec<WalkPart>,
    },
    /// Position after the last session of a pass.
    Pass(FeedCursor),
}

/// Requests on their way to the engines.
#[derive(Debug, Default)]
pub struct OpenRequests {
    /// Requests that a full queue has refused.
    unsent: Vec<(usize, EngineRequest)>,
    /// Number of requests without an answer.
    waiting: usize,
}

impl OpenRequests {
    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0 && self.unsent.is_empty()
    }

    /// Hands requests over.
    pub fn submit(&mut self, engines: &mut dyn Engines, requests: Vec<(usize, EngineRequest)>) {
        self.unsent.extend(requests);
        self.submit_again(engines);
    }

    /// Hands over what was refused.
    pub fn submit_again(&mut self, engines: &mut dyn Engines) {
        for (worker, request) in std::mem::take(&mut self.unsent) {
            match engines.submit(worker, request) {
                Ok(()) => self.waiting += 1,
                Err(request) => self.unsent.push((worker, request)),
            }
        }
    }

    /// Returns the next answer.
    pub fn answer(&mut self, engines: &mut dyn Engines) -> Option<(usize, EngineAnswer)> {
        let answer = if self.waiting > 0 { engines.answer() } else { None };
        self.waiting -= usize::from(answer.is_some());
        answer
    }
}

/// Commands for all workers.
pub fn for_all(engines: &dyn Engines, commands: &[PeerCommand]) -> Vec<(usize, EngineRequest)> {
    (0..engines.workers()).map(|worker| (worker, EngineRequest::Commands(commands.to_vec()))).collect()
}

/// Next parts of a pass, for the workers that have not finished it.
pub fn parts_of_pass(
    pass: StandbySweep,
    shards: ShardSet,
    cursors: &[FeedCursor],
) -> Vec<(usize, EngineRequest)> {
    let left = cursors.iter().enumerate().filter(|(_, at)| !at.is_done() && !shards.is_empty());
    left.map(|(worker, at)| (worker, EngineRequest::Pass(pass, shards, *at))).collect()
}

/// Engines of a member's workers, numbered from 0.
pub trait Engines {
    /// Number of workers.
    fn workers(&self) -> usize;

    /// Worker that has both the subscriber and the public address of a flow.
    fn owner(&self, flow: &Flow) -> Option<usize>;

    /// Worker that has a public address.
    fn owner_of_address(&self, address: Ipv4Addr) -> Option<usize>;

    /// Hands a request over. The answer comes from [`answer`](Self::answer).
    ///
    /// # Errors
    /// Returns the request if the worker's queue is full. The member tries again.
    fn submit(&mut self, worker: usize, request: EngineRequest) -> Result<(), EngineRequest>;

    /// Returns the next answer, with the number of its worker.
    fn answer(&mut self) -> Option<(usize, EngineAnswer)>;

    /// Returns the next record of a worker's feed.
    fn next_record(&mut self, worker: usize) -> Option<(Sequence, Record)>;
}
