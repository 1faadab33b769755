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
    /// A part of a pass over all sessions of some shards, done at one moment.
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
