//! Both directions of the stream: feeds to the exchange, and the other member's records to the engines.

use super::engines::{EngineRequest, Engines};
use super::round::{ReceivedSession, Round, Step, outside, session};
use super::{Member, Work};
use crate::ownership::Epoch;
use crate::wire::{PeerRecord, Received, SessionEnd, SessionState};
use gatun_nat::feed::{Record, SessionChange, SessionRecord};
use gatun_nat::standby::{OutsideFlow, PeerAction, PeerCommand, PeerRefusal, PeerSession, StandbySweep};
use gatun_nat::{Sequence, ShardSet};

use std::collections::HashSet;

/// Flows reported since the last round, if somebody wants to know.
type ReportedFlows = Option<HashSet<OutsideFlow>>;

impl Member {
    /// Takes what the exchange has received.
    pub(super) fn intake(&mut self, now_ms: u64) {
        for received in std::mem::take(&mut self.inbox) {
            match received {
                Received::Hello { is_settled, differences, stream } => {
                    if !self.check_hello(now_ms, is_settled, &differences) {
                        return;
                    }
                    self.exchange.accept_greeting(now_ms);
                    self.counters.connections += 1;
                    self.steps.push_back(Step::Hello { is_settled, stream });
                }
                Received::Records(group) => {
                    let (number, seen) = (group.number, group.seen);
                    let records = group.records.into_iter();
                    self.steps.extend(records.map(|record| Step::Record { record, number, seen }));
                    self.steps.push_back(Step::GroupEnds(number));
                }
                Received::Acknowledged(number) => self.steps.push_back(Step::Acknowledged(number)),
            }
        }
    }

    /// Reads all feeds.
    pub(super) fn read_feeds(&mut self, now_ms: u64, engines: &mut dyn Engines) {
        self.read_feeds_noting(now_ms, engines, &mut None);
    }

    fn read_feeds_noting(&mut self, now_ms: u64, engines: &mut dyn Engines, told: &mut ReportedFlows) {
        for worker in 0..engines.workers() {
            self.read_feed(now_ms, engines, worker, None, told);
        }
    }

    /// Reads the feed of a worker up to a place.
    pub(super) fn read_feed(
        &mut self,
        now_ms: u64,
        engines: &mut dyn Engines,
        worker: usize,
        until: Option<Sequence>,
        told: &mut ReportedFlows,
    ) {
        while let Some((at, record)) = self.ahead[worker].take().or_else(|| engines.next_record(worker)) {
            if until.is_some_and(|until| at.number >= until.number) {
                self.ahead[worker] = Some((at, record));
                return;
            }
            match record {
                Record::Session(session) => {
                    if let Some(told) = told
                        && session.change != SessionChange::Ended
                    {
                        told.insert(outside(&session.id.flow));
                    }
                    self.tell(now_ms, worker, &session);
                }
                Record::Lost(records) => {
                    self.counters.lost += records;
                    self.exchange.restart();
                }
                Record::PlanChanged => {
                    self.needs_setup = true;
                    self.refused.hurry();
                }
                Record::Binding(_) | Record::Block(_) | Record::Path(_) => {}
            }
        }
    }

    /// Tells the other member of a session or its end.
    pub(super) fn tell(&mut self, now_ms: u64, worker: usize, record: &SessionRecord) {
        match record.change {
            SessionChange::Opened | SessionChange::Established | SessionChange::Closing => {
                // Without a stream, the whole state tells of it later.
                let number = self.exchange.push(now_ms, PeerRecord::Session(SessionState::from(record)));
                self.counters.sessions_told += u64::from(number.is_some());
            }
            SessionChange::Ended => {
                let number = self.exchange.push(now_ms, PeerRecord::SessionEnd(SessionEnd::from(record)));
                self.counters.ends_told += u64::from(number.is_some());
                // Without another member, the engine waits for nobody.
                if !self.own.is_peer_gone {
                    self.ends.add(worker, record.id, number);
                }
                if !self.settings.rules.wait_for_release {
                    self.free.extend(self.ends.of_flow(&record.id.flow));
                    self.ends.remove_flow(&record.id.flow);
                }
            }
            SessionChange::Asked => {}
        }
    }

    /// Begins the next step of the other member's stream. Returns false if there is none.
    pub(super) fn begin_step(&mut self, engines: &mut dyn Engines) -> bool {
        let Some(step) = self.steps.front() else { return false };
        match step {
            Step::Hello { .. } => {
                let Some(Step::Hello { is_settled, stream }) = self.steps.pop_front() else {
                    return false;
                };
                self.stream = stream;
                self.greeted(is_settled);
            }
            &Step::Acknowledged(number) => {
                self.steps.pop_front();
                let acknowledged = self.ends.take_until(number);
                self.free.extend(acknowledged);
                self.own.released_at = self.own.released_at.filter(|at| *at > number);
            }
            &Step::Record { record: PeerRecord::StateBegins, .. } => {
                // The marks of a walk that was broken off would confirm sessions.
                if self.is_receiving {
                    self.begin_pass(engines, StandbySweep::ForgetWalk);
                } else {
                    self.steps.pop_front();
                    self.is_in_group = true;
                    self.refused.walk_begins();
                    let begins = PeerAction::WalkBegins(ShardSet::ALL);
                    let command = || EngineRequest::Commands(vec![PeerCommand::new(begins)]);
                    let requests = (0..engines.workers()).map(|worker| (worker, command())).collect();
                    self.submit(engines, Work::WalkBegins, requests);
                }
            }
            &Step::Record { record: PeerRecord::StateEnds, number, .. } => {
                self.steps.pop_front();
                self.is_in_group = true;
                self.exchange.handled(self.stream, number);
                self.begin_pass(engines, StandbySweep::EndUnwalked);
            }
            &Step::Record { record: PeerRecord::Standing { shard, epoch, .. }, .. } => {
                self.steps.pop_front();
                self.is_in_group = true;
                self.learn(shard.into(), epoch);
            }
            Step::Record { .. } | Step::GroupEnds(_) => self.begin_round(engines),
        }
        true
    }

    /// The other member's whole state has been handled.
    pub(super) fn state_received(&mut self) {
        (self.is_receiving, self.walked) = (false, self.stream);
        self.counters.walks_received += 1;
        self.refused.walk_ends();
        self.check_reserved();
        self.settle();
    }

    /// Tries contradictory sessions again. Returns false if it is not time.
    pub(super) fn begin_refused(&mut self, now_ms: u64, engines: &mut dyn Engines) -> bool {
        let due =
            if self.is_in_group { Vec::new() } else { self.refused.due(now_ms, self.settings.again_ms) };
        if due.is_empty() {
            return false;
        }
        let mut round = Round::new(engines.workers());
        due.into_iter().for_each(|(one, seen)| round.begin(&*engines, one, seen, (Vec::new(), None)));
        self.submit_round(engines, round);
        true
    }

    /// Gives a row of sessions and ends to the engines.
    fn begin_round(&mut self, engines: &mut dyn Engines) {
        let mut round = Round::new(engines.workers());
        while !round.is_full() {
            match self.steps.front() {
                Some(&Step::GroupEnds(number)) => {
                    self.is_in_group = false;
                    (round.completed, round.reached) = (Some(number), number);
                }
                Some(Step::Record { record, number, seen }) => {
                    match record {
                        PeerRecord::Session(of) => {
                            round.begin(&*engines, session(of), *seen, (Vec::new(), None));
                        }
                        PeerRecord::SessionEnd(end) => {
                            self.refused.remove(&round.end(&*engines, end));
                        }
                        PeerRecord::Binding(_) | PeerRecord::Block(_) => {}
                        PeerRecord::StateBegins | PeerRecord::StateEnds | PeerRecord::Standing { .. } => {
                            break;
                        }
                    }
                    self.is_in_group = true;
                    round.reached = *number;
                }
                _ => break,
            }
            self.steps.pop_front();
        }
        self.submit_round(engines, round);
    }

    fn submit_round(&mut self, engines: &mut dyn Engines, mut round: Round) {
        let requests = round.requests();
        self.submit(engines, Work::Round(round), requests);
    }

    /// The engines have executed a round.
    pub(super) fn round_done(&mut self, now_ms: u64, engines: &mut dyn Engines, round: Round) {
        // What the feeds have now may be an answer.
        self.exchange.handled(self.stream, round.reached);
        self.counters.sessions_received += round.accepted().count() as u64;
        self.counters.ends_received += round.ends();
        for (session, seen) in &round.misplaced {
            self.refuse(*session, *seen, PeerRefusal::NotServed);
        }
        let refused = round.refused();
        let mut told: ReportedFlows = (!refused.is_empty()).then(HashSet::new);
        self.read_feeds_noting(now_ms, engines, &mut told);
        for begin in round.accepted() {
            self.refused.remove(&outside(&begin.session.flow));
        }
        if round.is_again {
            round.accepted().for_each(|begin| self.ends.remove_flow(&begin.session.flow));
        }
        let mut again = round.again();
        for (begin, why) in refused {
            let is_told = told.as_ref().is_some_and(|told| told.contains(&outside(&begin.session.flow)));
            match why {
                PeerRefusal::Ending => {
                    self.ending(now_ms, engines, &begin, (is_told, round.is_again, &mut again))
                }
                PeerRefusal::Conflict => self.conflict(engines, &begin, (round.is_again, &mut again)),
                _ => self.refuse(begin.session, begin.seen, why),
            }
        }
        self.check_reserved();
        if !again.is_empty() && !round.is_again {
            self.submit_round(engines, again);
            return;
        }
        if let Some(number) = round.completed {
            self.exchange.answered(self.stream, number);
        }
    }

    /// A session has ended here. If the other member knows that, it goes on. Otherwise its record has crossed
    /// the end, which is told again if no report is on its way.
    fn ending(
        &mut self,
        now_ms: u64,
        engines: &mut dyn Engines,
        begin: &ReceivedSession,
        (is_told, is_second, again): (bool, bool, &mut Round),
    ) {
        let rules = &self.settings.rules;
        let flow = begin.session.flow;
        let mut ends = self.ends.of_flow(&flow);
        let is_known = ends.iter().all(|ended| ended.number <= begin.seen) || !rules.end_wins;
        match ends.pop() {
            Some(latest) if is_known && !is_second => {
                let released = ends.iter().map(|ended| PeerAction::Released(ended.id)).collect();
                ends.iter().for_each(|ended| self.ends.remove(ended));
                // The port waits until the session is there, however long that takes.
                self.ends.add(latest.worker, latest.id, None);
                again.begin(&*engines, begin.session, begin.seen, (released, Some(latest.id.record)));
            }
            Some(latest) if latest.is_untold() && rules.end_again && !is_told => {
                let OutsideFlow { transport, outside, remote } = outside(&flow);
                let end = PeerRecord::SessionEnd(SessionEnd { transport, outside, remote });
                let number = self.exchange.push(now_ms, end);
                self.ends.add(latest.worker, latest.id, number);
            }
            // The other member will answer the report that is on its way.
            _ => {}
        }
    }

    fn refuse(&mut self, session: PeerSession, seen: u64, why: PeerRefusal) {
        let is_new = self.refused.add(session, seen, why);
        self.counters.refused[why as usize] += u64::from(is_new);
    }

    /// Another host has the port here. If its sessions have ended, the other member knows that: otherwise it
    /// would not have assigned the port.
    fn conflict(
        &mut self,
        engines: &mut dyn Engines,
        begin: &ReceivedSession,
        (is_second, again): (bool, &mut Round),
    ) {
        let ends = self.ends.of_others(&begin.session.flow);
        if ends.is_empty() || is_second {
            if is_second {
                // The port is reserved now, and waits for nobody.
                self.ends.remove_flow(&begin.session.flow);
            }
            self.refuse(begin.session, begin.seen, PeerRefusal::Conflict);
            return;
        }
        let released = ends.iter().map(|ended| PeerAction::Released(ended.id)).collect();
        ends.iter().for_each(|ended| self.ends.remove(ended));
        again.begin(&*engines, begin.session, begin.seen, (released, None));
    }

    /// Frees the ports of acknowledged ends. Returns false if there are none.
    pub(super) fn begin_free(&mut self, engines: &mut dyn Engines) -> bool {
        if self.free.is_empty() {
            return false;
        }
        let mut lists = vec![Vec::new(); engines.workers()];
        for ended in std::mem::take(&mut self.free) {
            lists[ended.worker].push(PeerCommand::new(PeerAction::Released(ended.id)));
        }
        let some = lists.into_iter().enumerate().filter(|(_, commands)| !commands.is_empty());
        let requests = some.map(|(worker, commands)| (worker, EngineRequest::Commands(commands))).collect();
        self.submit(engines, Work::Free, requests);
        true
    }

    /// Tells the other member of the epochs.
    pub(super) fn push_standing(&mut self, now_ms: u64) {
        for (shard, epoch) in (0u8..).zip(self.own.epochs.clone()) {
            self.push_epoch(now_ms, shard, epoch);
        }
    }

    /// Returns the number of the record's group.
    pub(super) fn push_epoch(&mut self, now_ms: u64, shard: u8, epoch: Epoch) -> Option<u64> {
        let revision = self.settings.revision;
        self.exchange.push(now_ms, PeerRecord::Standing { shard, epoch, revision })
    }
}
