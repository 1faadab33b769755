//! Both directions of the stream: feeds to the exchange, and the other member's records to the engines.

use super::ends::Ended;
use super::engines::{EngineRequest, Engines, for_all};
use super::round::{ROUND_MAX, ReceivedSession, Round, Step, outside, session};
use super::shards::is_of;
use super::{Member, Work};
use crate::ownership::Epoch;
use crate::wire::{PeerRecord, Received, SessionEnd, SessionState};
use gatun_nat::feed::{Record, SessionChange, SessionRecord};
use gatun_nat::standby::{
    ClosedFlow, OutsideFlow, PeerAction, PeerCommand, PeerRefusal, PeerSession, StandbySweep,
};
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
                Received::Asked { asked_ms, shards } => self.was_asked(asked_ms, shards),
                Received::Promised { asked_ms, promises } => self.was_promised(now_ms, asked_ms, promises),
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
                        && matches!(session.change, SessionChange::Opened | SessionChange::Established)
                    {
                        told.insert(outside(&session.id.flow));
                    }
                    let number = self.tell(now_ms, worker, &session);
                    if matches!(session.change, SessionChange::Opened | SessionChange::Established) {
                        self.note_told(number, &session);
                    }
                }
                Record::Lost(records) => {
                    self.counters.lost += records;
                    self.exchange.restart();
                    self.records_lost();
                }
                Record::PlanChanged => {
                    self.needs_setup = true;
                    self.refused.hurry();
                }
                Record::Binding(_) | Record::Block(_) | Record::Path(_) => {}
            }
        }
    }

    /// Tells the other member of a session or its end. Returns the number of the group that does.
    pub(super) fn tell(&mut self, now_ms: u64, worker: usize, record: &SessionRecord) -> Option<u64> {
        if !self.is_shared(record.id.flow.outside.0) {
            // The other node does not use what is said about the shard now.
            if record.change == SessionChange::Ended {
                self.ends.add(worker, record.id, None);
            }
            return None;
        }
        match record.change {
            SessionChange::Opened | SessionChange::Established => {
                // Without a stream, the whole state tells of it later.
                let mut session = SessionState::from(record);
                if self.exchange.is_brief() {
                    session.lifetime_ms = None;
                }
                let number = self.exchange.push(now_ms, PeerRecord::Session(session));
                self.counters.sessions_told += u64::from(number.is_some());
                number
            }
            SessionChange::Closing => {
                let closed = PeerRecord::SessionClosed(ClosedFlow::of(&record.id.flow));
                if self.exchange.is_brief() { self.exchange.push(now_ms, closed) } else { None }
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
                number
            }
            SessionChange::Asked => None,
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
                self.stream_changed(stream);
                self.greeted(is_settled);
            }
            &Step::Acknowledged(number) => {
                self.steps.pop_front();
                let out = self.unwalked();
                let shared = self.shared.as_deref();
                let acknowledged = self.ends.take_until(number, |address| is_of(shared, address, out));
                self.free.extend(acknowledged);
                self.shards_acknowledged(number, out);
                self.own.released_at = self.own.released_at.filter(|at| *at > number);
            }
            &Step::Record {
                record:
                    record @ (PeerRecord::StateBegins
                    | PeerRecord::StateEnds
                    | PeerRecord::Relation(_)
                    | PeerRecord::ShardsBegin(_)
                    | PeerRecord::ShardsEnd(_)),
                number,
                ..
            } => self.mark_of_state(engines, (record, number)),
            &Step::Record { record: PeerRecord::Standing { shard, epoch, .. }, .. } => {
                self.steps.pop_front();
                self.is_in_group = true;
                self.learn(shard.into(), epoch);
            }
            Step::Record { .. } | Step::GroupEnds(_) => self.begin_round(engines),
        }
        true
    }

    /// Handles a record about the other member's whole state, or about its shards.
    fn mark_of_state(&mut self, engines: &mut dyn Engines, (record, number): (PeerRecord, u64)) {
        if self.forgets_walk(engines, &record) {
            return;
        }
        self.steps.pop_front();
        self.is_in_group = true;
        match (record, self.shared.is_some()) {
            (PeerRecord::StateBegins, false) => self.walk_begins(engines, ShardSet::ALL),
            (PeerRecord::StateEnds, false) => self.walk_ends(engines, number),
            (PeerRecord::ShardsEnd(shards), true) => {
                self.only_walked(shards);
                self.walk_ends(engines, number);
            }
            (PeerRecord::ShardsBegin(shards), true) => {
                let shards = self.common(shards);
                self.walk_begins(engines, shards);
            }
            (PeerRecord::StateBegins, true) => self.relations_begin(),
            (PeerRecord::StateEnds, true) => self.relations_end(),
            (PeerRecord::Relation(relation), true) => self.relation_received(relation),
            // No pair sends these.
            _ => {}
        }
    }

    /// Forgets a walk of the other member that was broken off: its marks would confirm sessions of the next
    /// one. Returns false if there are none.
    fn forgets_walk(&mut self, engines: &mut dyn Engines, record: &PeerRecord) -> bool {
        let marked = match (record, self.shared.is_some()) {
            (PeerRecord::StateBegins, false) => self.receiving,
            (PeerRecord::ShardsBegin(shards), true) => self.half_walked(*shards),
            _ => return false,
        };
        if !marked.is_empty() {
            self.begin_pass(engines, StandbySweep::ForgetWalk, marked);
        }
        !marked.is_empty()
    }

    /// The other member begins to send all that it has of some shards.
    fn walk_begins(&mut self, engines: &mut dyn Engines, shards: ShardSet) {
        self.refused.walk_begins(shards);
        let requests = for_all(&*engines, &[PeerCommand::new(PeerAction::WalkBegins(shards))]);
        self.submit(engines, Work::WalkBegins(shards), requests);
    }

    /// Ends sessions that the other member has not sent.
    fn walk_ends(&mut self, engines: &mut dyn Engines, number: u64) {
        self.exchange.handled(self.stream, number);
        self.begin_pass(engines, StandbySweep::EndUnwalked, self.receiving);
    }

    /// The other member's whole state has been handled, or that of some shards.
    pub(super) fn state_received(&mut self) {
        self.walked = self.stream;
        let shards = std::mem::replace(&mut self.receiving, ShardSet::NONE);
        self.counters.walks_received += 1;
        self.refused.walk_ends(shards);
        if self.shared.is_some() {
            self.shards_received(shards);
            return;
        }
        self.check_reserved();
        self.settle();
    }

    /// Tries contradictory sessions again. Returns false if it is not time.
    pub(super) fn begin_refused(&mut self, now_ms: u64, engines: &mut dyn Engines) -> bool {
        if self.is_in_group || self.refused.len() == 0 {
            return false;
        }
        let shards = if self.shared.is_some() { self.common(ShardSet::ALL) } else { ShardSet::ALL };
        let is_one = |shard| shards.contains(shard);
        let due = self.refused.due((now_ms, self.settings.again_ms), &is_one);
        if due.is_empty() {
            self.refused.tried();
            return false;
        }
        let mut round = Round::new(engines.workers());
        due.into_iter().for_each(|(one, seen)| round.begin(&*engines, one, seen, (Vec::new(), None)));
        self.submit_round(engines, round);
        true
    }

    /// Gives a row of sessions and ends to the engines.
    fn begin_round(&mut self, engines: &mut dyn Engines) {
        let mut round = Round::with_room(engines.workers(), self.steps.len().min(ROUND_MAX));
        while !round.is_full() {
            match self.steps.front() {
                Some(&Step::GroupEnds(number)) => {
                    self.is_in_group = false;
                    (round.completed, round.reached) = (Some(number), number);
                }
                Some(Step::Record { record, number, seen }) => {
                    match record {
                        PeerRecord::Session(of) if self.is_shared(of.flow.outside.0) => {
                            round.begin(&*engines, session(of), *seen, (Vec::new(), None));
                        }
                        PeerRecord::SessionEnd(end) if self.is_shared(end.outside.0) => {
                            self.refused.remove(&round.end(&*engines, end));
                        }
                        PeerRecord::SessionClosed(flow) if self.is_shared(flow.outside.0) => {
                            round.closed(&*engines, *flow);
                        }
                        PeerRecord::Session(_) | PeerRecord::SessionEnd(_) | PeerRecord::SessionClosed(_) => {
                        }
                        PeerRecord::Binding(_) | PeerRecord::Block(_) => {}
                        PeerRecord::StateBegins
                        | PeerRecord::StateEnds
                        | PeerRecord::Relation(_)
                        | PeerRecord::ShardsBegin(_)
                        | PeerRecord::ShardsEnd(_)
                        | PeerRecord::Standing { .. } => {
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
        self.refused.tried();
        // What the feeds have now may be an answer.
        self.exchange.handled(self.stream, round.reached);
        self.counters.sessions_received += round.accepted().count() as u64;
        self.counters.ends_received += round.ends();
        for (session, seen) in &round.misplaced {
            self.refuse(*session, *seen, PeerRefusal::NotServed);
        }
        // These ends have been used. The feeds may have others: sessions that have ended again since.
        if round.is_again {
            round.accepted().for_each(|begin| self.ends.remove_flow(&begin.session.flow));
        }
        let refused = round.refused();
        let mut told: ReportedFlows = (!refused.is_empty()).then(HashSet::new);
        self.read_feeds_noting(now_ms, engines, &mut told);
        for begin in round.accepted() {
            self.refused.remove(&outside(&begin.session.flow));
        }
        let mut again = round.again();
        for (begin, why) in refused {
            // Both have left the shard's relation meanwhile.
            if !self.is_shared(begin.session.flow.outside.0) {
                continue;
            }
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
        let is_seen = |ended: &Ended| ended.is_replaced || ended.number <= begin.seen;
        let is_known = ends.iter().all(is_seen) || !rules.end_wins;
        let latest = ends.pop();
        if is_second {
            // Meanwhile the flow had another session here. The report of its end stands for both.
            for earlier in ends.drain(..).filter(Ended::is_untold) {
                self.ends.remove(&earlier);
                self.free.push(earlier);
            }
        }
        match latest {
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
        let shard = self.shard_of(session.flow.outside.0);
        let is_new = self.refused.add(shard, (session, seen), why);
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
        let each = self.free.len().div_ceil(engines.workers().max(1));
        let mut lists: Vec<_> = (0..engines.workers()).map(|_| Vec::with_capacity(each)).collect();
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
        for (shard, epoch) in (0..=u8::MAX).zip(self.own.epochs.clone()) {
            self.push_epoch(now_ms, shard, epoch);
        }
    }

    /// Returns the number of the record's group.
    pub(super) fn push_epoch(&mut self, now_ms: u64, shard: u8, epoch: Epoch) -> Option<u64> {
        let revision = self.settings.revision;
        self.exchange.push(now_ms, PeerRecord::Standing { shard, epoch, revision })
    }
}
