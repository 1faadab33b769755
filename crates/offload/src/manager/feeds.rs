//! Records, pages and results that come from the engines.

use super::{Manager, Walk};
use crate::engine::{Engine, Page, RecordStream};
use crate::entries::{Entry, Slot, State, Token};
use crate::orders::{Order, Report};
use crate::target::Target;
use gatun_nat::FeedCursor;
use gatun_nat::feed::{
    Action, Command, CommandOutcome, FeedPolicy, Offload, Record, SessionChange, SessionRecord,
};
use gatun_worker::jobs::SubmitError;
use std::time::Duration;

/// Maximum number of records of one feed in one turn.
const RECORDS: usize = 4096;
/// Maximum number of handled batches in one turn.
const BATCHES: usize = 32;
/// Number of sessions that a part of a walk reads.
const PAGE: usize = 4096;
/// Maximum number of sessions whose mark is not confirmed.
const MARKING_MAX: usize = 32_768;

/// Number of packets after which a flow that found no place is offered again: the busiest flows come first.
pub(super) const LATER: u8 = FeedPolicy::PACKETS_MAX;

/// Microseconds, modulo 2^32.
pub(super) fn micros(time: Duration) -> u32 {
    time.as_micros() as u32
}

impl<E: Engine, T: Target> Manager<E, T> {
    /// Takes over what an engine reports. Returns whether there was anything.
    pub(super) fn hear(&mut self, worker: usize, now: Duration) -> bool {
        let mut is_busy = false;
        for _ in 0..BATCHES {
            let Some(done) = self.handled(worker) else { break };
            is_busy |= !done.is_empty();
            done.iter().for_each(|(command, token)| self.handled_one(worker, command, *token));
        }
        self.take_page(worker);
        is_busy |= self.read_stream(worker, now);
        self.continue_walk(worker, now);
        is_busy
    }

    fn handled(&mut self, worker: usize) -> Option<Vec<(Command, Token)>> {
        let worker = &mut self.workers[worker];
        worker.orders.handled(&mut worker.engine)
    }

    /// Takes over the result of a command.
    fn handled_one(&mut self, worker: usize, command: &Command, token: Token) {
        let is_done = command.outcome == CommandOutcome::Done;
        match command.action {
            Action::Mark(_) => self.marked(token, is_done),
            Action::Credit(traffic) if !is_done => {
                let packets = traffic.total().packets;
                self.status.credited_packets -= packets.min(self.status.credited_packets);
                self.status.uncredited_packets += packets;
            }
            // The session has begun to end. Its record may be lost.
            Action::Seen(_) if !is_done => {
                let is_it = |entry: &mut Entry<T::Id>| usize::from(entry.worker) == worker;
                if self.entries.of(token).is_some_and(is_it) {
                    self.retire(token.slot);
                }
            }
            Action::Released => self.status.released += u64::from(is_done),
            Action::Credit(_) | Action::Seen(_) | Action::Count(_) => {}
        }
    }

    /// Takes over the result of a mark.
    fn marked(&mut self, token: Token, is_done: bool) {
        let slot = token.slot;
        let Some(entry) = self.entries.of(token) else { return };
        let (state, was_marked) = (entry.state, entry.renew);
        match state {
            State::Marking if is_done && self.is_wanted(slot) => {
                self.marking -= 1;
                let entry = self.entries.get_mut(slot);
                (entry.state, entry.renew) = (State::Waiting, false);
                self.installs.push_back(slot);
            }
            State::Marking => {
                self.marking -= 1;
                self.status.refused_by_engine += u64::from(!is_done);
                if is_done || was_marked {
                    self.drop_marked(slot);
                } else {
                    self.entries.free(slot);
                }
            }
            State::Waiting | State::Installed if !is_done => self.retire(slot),
            _ => {}
        }
    }

    /// Takes over what a walk has read, if it is still of use.
    fn take_page(&mut self, worker: usize) {
        let worker = &mut self.workers[worker];
        if !worker.reading {
            return;
        }
        let Some(page) = worker.engine.page() else { return };
        worker.reading = false;
        match (page.since, page.until) {
            (Some(since), Some(_)) => {
                if worker.walk == Walk::First {
                    (worker.walk, worker.since) = (Walk::Further, since.number);
                }
                worker.page = Some(page);
            }
            // Another consumer has the feed.
            _ => worker.ended = true,
        }
    }

    /// Reads the stream of an engine. Returns whether there were records.
    fn read_stream(&mut self, worker: usize, now: Duration) -> bool {
        let offered_us = micros(self.workers[worker].empty_at);
        let mut is_busy = false;
        for _ in 0..RECORDS {
            let is_full = self.marking >= MARKING_MAX;
            let from = &mut self.workers[worker];
            if from.walk == Walk::First || from.ended || is_full || !from.orders.has_room() {
                return is_busy;
            }
            let Some((at, record)) = from.engine.stream().next() else {
                from.empty_at = now;
                from.ended |= from.engine.stream().is_abandoned();
                return is_busy;
            };
            from.next = at.number + u64::from(!matches!(record, Record::Lost(_)));
            let is_old = at.number < from.since;
            is_busy = true;
            match record {
                Record::Session(session) if !is_old => self.session(worker, &session, offered_us, LATER),
                Record::Lost(lost) => {
                    self.status.lost_records += lost;
                    if !is_old && self.rules.resync {
                        self.walk_again(worker);
                    }
                }
                Record::PlanChanged if !is_old => self.walk_again(worker),
                Record::Path(path) => self.paths.learn(worker as u8, &path, now),
                _ => {}
            }
        }
        is_busy
    }

    /// Takes over a record of a session. A refused flow has had this number of packets since the last record.
    fn session(&mut self, worker: usize, record: &SessionRecord, offered_us: u32, packets: u8) {
        match record.change {
            SessionChange::Opened => {}
            SessionChange::Established => self.offered(worker, record, offered_us, packets),
            SessionChange::Asked => self.questioned(worker, record),
            SessionChange::Closing | SessionChange::Ended => self.ending(worker, record),
        }
    }

    /// A session that can be offloaded.
    fn offered(&mut self, worker: usize, record: &SessionRecord, offered_us: u32, packets: u8) {
        let is_marked = record.ownership.offload != Offload::Engine;
        let pace = self.refusals.pace(worker as u8, record.id, packets, self.now).unwrap_or(0.0);
        if let Some(slot) = self.entries.at_record(worker as u8, record.id.record) {
            let entry = self.entries.get_mut(slot);
            if entry.id == record.id {
                entry.walk = self.workers[worker].walks;
                match entry.state {
                    // The engine has lost the mark, or has not got it yet.
                    State::Installed if !is_marked => self.order(slot, Order::Mark(self.settings.epoch)),
                    State::Removing => entry.renew = true,
                    _ => {}
                }
                return;
            }
            // The earlier session has ended without a mark.
            self.retire(slot);
        }
        if let Some(slot) = self.bind(worker, record) {
            return self.order(slot, Order::Mark(self.settings.epoch));
        }
        if record.expires_ms == 0 {
            // It has been released, and is about to end.
        } else if !self.allows(&record.id.flow) {
            self.status.not_wanted += 1;
        } else if self.has_place(pace) {
            self.refusals.forget(worker as u8, record.id);
            let entry = Entry { renew: is_marked, ..self.entry(worker, record, offered_us) };
            let slot = self.entries.add(entry);
            self.marking += 1;
            self.order(slot, Order::Mark(self.settings.epoch));
            if !self.rules.confirm_mark {
                self.marking -= 1;
                self.entries.get_mut(slot).state = State::Waiting;
                self.installs.push_back(slot);
            }
            return;
        } else {
            match self.target.is_ready() {
                true => {
                    self.status.refused_full += 1;
                    self.refusals.add(worker as u8, record.id, self.now);
                }
                false => self.status.refused_unready += 1,
            }
            if is_marked {
                self.release(worker, record.id);
            }
            return self.order_of(worker, record.id, Order::Count(LATER));
        }
        if is_marked {
            self.release(worker, record.id);
        }
    }

    /// Binds an entry of an earlier process to its session. `None` if there is none; one that differs is
    /// removed, and installed again.
    fn bind(&mut self, worker: usize, record: &SessionRecord) -> Option<Slot> {
        if self.adopted.is_empty() {
            return None;
        }
        let (slot, remote6) = self.adopted.remove(&record.id.flow)?;
        let flow = self.flow(record.id, worker as u8, record.pool6);
        let same = self.entry(worker, record, 0);
        let entry = self.entries.get_mut(slot);
        let is_same = flow.is_some_and(|flow| flow.remote6 == remote6)
            && (entry.worker, entry.epoch) == (same.worker, same.epoch);
        (entry.id, entry.worker, entry.pool6) = (same.id, same.worker, same.pool6);
        (entry.walk, entry.bound) = (same.walk, true);
        // What it has translated meanwhile, the engine does not know.
        entry.active = [true; 2];
        self.entries.enter(slot);
        if is_same {
            self.status.adopted += 1;
        } else {
            self.status.adopted_removed += 1;
            self.retire(slot);
            self.entries.get_mut(slot).renew = true;
        }
        Some(slot)
    }

    /// A question of an engine.
    fn questioned(&mut self, worker: usize, record: &SessionRecord) {
        self.status.asked += 1;
        match self.entries.find(worker as u8, &record.id) {
            Some(slot) if self.entries.get(slot).state == State::Installed => {
                let entry = self.entries.get_mut(slot);
                if !std::mem::replace(&mut entry.asked, true) {
                    self.asked.push_back(slot);
                }
            }
            Some(slot) => self.retire(slot),
            None => self.ending(worker, record),
        }
    }

    /// A marked session that ends, or is not offered any more.
    fn ending(&mut self, worker: usize, record: &SessionRecord) {
        if let Some(slot) = self.entries.find(worker as u8, &record.id) {
            return self.retire(slot);
        }
        if let Some(slot) = self.bind(worker, record) {
            return self.retire(slot);
        }
        if record.ownership.offload != Offload::Engine {
            self.release(worker, record.id);
        }
    }

    /// Uses a page of a walk once the stream has been read as far, and requests the next one.
    fn continue_walk(&mut self, worker: usize, now: Duration) {
        let from = &mut self.workers[worker];
        if from.ended || from.reading {
            return;
        }
        let at = match from.walk {
            Walk::Over => return,
            Walk::Due => {
                from.walks = from.walks.wrapping_add(1);
                from.again = false;
                FeedCursor::default()
            }
            Walk::First | Walk::Further => {
                let Some(page) = self.page(worker, now) else { return };
                if page.at.is_done() {
                    return self.end_walk(worker);
                }
                page.at
            }
        };
        let from = &mut self.workers[worker];
        match from.engine.read(at, PAGE) {
            Ok(()) => {
                from.reading = true;
                if from.walk == Walk::Due {
                    from.walk = Walk::First;
                    self.status.walks += 1;
                }
            }
            Err(SubmitError::Busy) => {
                self.status.busy += 1;
                let again = Page { at, found: Vec::new(), since: None, until: None };
                from.page = (from.walk != Walk::Due).then_some(again);
            }
            Err(SubmitError::Ended) => from.ended = true,
        }
    }

    /// Uses the present page, if it is its time.
    fn page(&mut self, worker: usize, now: Duration) -> Option<Page> {
        let from = &mut self.workers[worker];
        let until = from.page.as_ref()?.until.map_or(0, |until| until.number);
        let is_read = from.next >= until || from.engine.stream().waiting() == 0;
        if !is_read || self.marking >= MARKING_MAX || !from.orders.has_room() {
            return None;
        }
        let page = from.page.take()?;
        let offered_us = micros(now);
        // A walk finds sessions whether or not they have had packets.
        page.found.iter().for_each(|record| self.session(worker, record, offered_us, 0));
        Some(page)
    }

    fn end_walk(&mut self, worker: usize) {
        let from = &mut self.workers[worker];
        from.walk = if std::mem::take(&mut from.again) { Walk::Due } else { Walk::Over };
        if from.walk == Walk::Over {
            self.audit = Some(0);
        }
    }

    /// Sends what is known of an entry's use, if anything.
    pub(super) fn report(&mut self, slot: Slot, report: Report) {
        if !report.is_empty() {
            self.order(slot, Order::Report(report));
        }
    }
}
