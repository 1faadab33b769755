//! Records of the other member on their way to the engines.
//!
//! A round is a row of sessions and ends that all engines execute before anything else happens: no
//! acknowledgement is used, and no walk goes on, while one is out. A session that an engine has refused
//! because of an end which the other member knows is tried once more, still within its round.

use super::engines::{EngineRequest, Engines};
use crate::wire::{PeerRecord, SessionEnd, SessionState};
use gatun_nat::standby::{
    ClosedFlow, OutsideFlow, PeerAction, PeerCommand, PeerOutcome, PeerRefusal, PeerSession,
};
use std::collections::HashMap;

/// Part of the other member's stream.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// It has greeted.
    Hello { is_settled: bool, stream: u64 },
    /// A record of the group with this number, made when the other member had handled the group `seen`.
    Record { record: PeerRecord, number: u64, seen: u64 },
    /// The group is complete.
    GroupEnds(u64),
    /// It has handled, and answered, the own groups up to this number.
    Acknowledged(u64),
}

/// Session of the other member in a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceivedSession {
    pub(super) session: PeerSession,
    pub(super) seen: u64,
    /// Worker, and the place of the command in its list.
    worker: usize,
    at: usize,
    /// Number of records before it in the round.
    order: usize,
}

/// Records that the engines execute.
#[derive(Debug, Default)]
pub(super) struct Round {
    begins: Vec<ReceivedSession>,
    /// Ended flows, with their places in the round.
    ends: Vec<(OutsideFlow, usize)>,
    pub(super) commands: Vec<Vec<PeerCommand>>,
    /// True if these are the second tries.
    pub(super) is_again: bool,
    /// Group of the last record.
    pub(super) reached: u64,
    /// Last complete group.
    pub(super) completed: Option<u64>,
    /// Sessions for which no worker has both the subscriber and the public address.
    pub(super) misplaced: Vec<(PeerSession, u64)>,
    len: usize,
}

/// Maximum number of records of a round.
pub(super) const ROUND_MAX: usize = 2_048;

pub(super) fn outside(flow: &gatun_nat::feed::Flow) -> OutsideFlow {
    OutsideFlow { transport: flow.transport, outside: flow.outside, remote: flow.remote }
}

pub(super) fn session(of: &SessionState) -> PeerSession {
    PeerSession { flow: of.flow, tcp: of.tcp, pool6: of.pool6, epoch: of.epoch }
}

impl Round {
    pub(super) fn new(workers: usize) -> Round {
        Round { commands: vec![Vec::new(); workers], ..Round::default() }
    }

    /// Creates a round with room for some records.
    pub(super) fn with_room(workers: usize, records: usize) -> Round {
        let each = records.div_ceil(workers.max(1));
        let commands = (0..workers).map(|_| Vec::with_capacity(each)).collect();
        Round { commands, begins: Vec::with_capacity(records), ..Round::default() }
    }

    /// Creates the round of second tries.
    pub(super) fn again(&self) -> Round {
        let completed = self.completed;
        Round { is_again: true, reached: self.reached, completed, ..Round::new(self.commands.len()) }
    }

    pub(super) fn is_full(&self) -> bool {
        self.len >= ROUND_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        self.commands.iter().all(Vec::is_empty)
    }

    /// Adds a session. `before` are commands for its worker that come first; `ended` is its ended record.
    pub(super) fn begin(
        &mut self,
        engines: &dyn Engines,
        session: PeerSession,
        seen: u64,
        (before, ended): (Vec<PeerAction>, Option<u32>),
    ) {
        let order = self.len;
        self.len += 1;
        let Some(worker) = engines.owner(&session.flow) else {
            self.misplaced.push((session, seen));
            return;
        };
        let commands = &mut self.commands[worker];
        commands.extend(before.into_iter().map(PeerCommand::new));
        self.begins.push(ReceivedSession { session, seen, worker, at: commands.len(), order });
        commands.push(PeerCommand::new(PeerAction::Begin { session, ended }));
    }

    /// Adds the end of a TCP connection.
    pub(super) fn closed(&mut self, engines: &dyn Engines, flow: ClosedFlow) {
        self.len += 1;
        if let Some(worker) = engines.owner_of_address(flow.outside.0) {
            self.commands[worker].push(PeerCommand::new(PeerAction::Closed(flow)));
        }
    }

    /// Adds an end. Returns its flow.
    pub(super) fn end(&mut self, engines: &dyn Engines, end: &SessionEnd) -> OutsideFlow {
        let SessionEnd { transport, outside, remote } = *end;
        let flow = OutsideFlow { transport, outside, remote };
        self.ends.push((flow, self.len));
        self.len += 1;
        if let Some(worker) = engines.owner_of_address(outside.0) {
            self.commands[worker].push(PeerCommand::new(PeerAction::End(flow)));
        }
        flow
    }

    /// Returns the sessions that the engines have refused and that have not ended later in the round.
    pub(super) fn refused(&self) -> Vec<(ReceivedSession, PeerRefusal)> {
        let refused =
            self.begins.iter().filter_map(|begin| match self.commands[begin.worker].get(begin.at)?.outcome {
                PeerOutcome::Refused(why) => Some((*begin, why)),
                _ => None,
            });
        let mut refused: Vec<_> = refused.collect();
        if !refused.is_empty() {
            let last: HashMap<_, _> = self.ends.iter().copied().collect();
            let ends_later = |begin: &ReceivedSession| {
                last.get(&outside(&begin.session.flow)).is_some_and(|end| *end > begin.order)
            };
            refused.retain(|(begin, _)| !ends_later(begin));
        }
        refused
    }

    /// Returns the sessions that the engines have accepted.
    pub(super) fn accepted(&self) -> impl Iterator<Item = &ReceivedSession> {
        self.begins.iter().filter(|begin| {
            let command = self.commands[begin.worker].get(begin.at);
            command.is_some_and(|command| command.outcome == PeerOutcome::Done)
        })
    }

    /// Number of ends.
    pub(super) fn ends(&self) -> u64 {
        self.ends.len() as u64
    }

    /// Takes the requests to the workers.
    pub(super) fn requests(&mut self) -> Vec<(usize, EngineRequest)> {
        let lists = self.commands.iter_mut().map(std::mem::take).enumerate();
        let some = lists.filter(|(_, commands)| !commands.is_empty());
        some.map(|(worker, commands)| (worker, EngineRequest::Commands(commands))).collect()
    }
}
