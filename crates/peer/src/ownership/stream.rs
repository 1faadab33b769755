//! Numbers of the records between two members: what is sent again, and what is accepted.
//!
//! Each member sends one stream. A record keeps its number over a break of the connection, and is sent again
//! from the log if the log still has it. Otherwise the whole state is sent, as one record of the stream.

use super::rules::Rules;
use std::collections::VecDeque;

/// Record of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry<R> {
    /// Number in the stream of its sender, from 1 on.
    pub number: u64,
    /// Number of the last record of the other stream that the sender had accepted when it made this one. That
    /// acknowledges nothing: answers to these records may follow.
    pub seen: u64,
    /// Contents.
    pub record: R,
}

/// Way to continue after a break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumption {
    /// The log has all records that the other member lacks.
    Log,
    /// The whole state has to be sent.
    Walk,
}

/// Sent records that are not known to have arrived.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Outbound<R> {
    log: VecDeque<Entry<R>>,
    capacity: usize,
    next: u64,
    acknowledged: u64,
    needs_walk: bool,
}

impl<R> Outbound<R> {
    /// Creates a stream whose first record is the whole state. The log has room for `capacity` records.
    pub fn new(capacity: usize) -> Outbound<R> {
        Outbound { log: VecDeque::new(), capacity, next: 1, acknowledged: 0, needs_walk: true }
    }

    /// Number of the last record.
    pub fn last(&self) -> u64 {
        self.next - 1
    }

    /// Number of the last record that the other member has acknowledged; 0 if it has acknowledged none.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Returns the number that the next record gets, or `None` if the whole state has to be sent first.
    pub fn next_number(&self) -> Option<u64> {
        (!self.needs_walk).then_some(self.next)
    }

    /// Appends a record. A full log is given up: the whole state has to be sent. Returns the entry, unless it
    /// is part of that state.
    pub fn push(&mut self, seen: u64, record: R) -> Option<&Entry<R>> {
        if !self.needs_walk && self.log.len() >= self.capacity {
            self.restart();
        }
        if self.needs_walk {
            return None;
        }
        self.log.push_back(Entry { number: self.next, seen, record });
        self.next += 1;
        self.log.back()
    }

    /// Appends the record with the whole state, and forgets the log: the state contains it.
    pub fn push_walk(&mut self, seen: u64, record: R) -> &Entry<R> {
        self.log.clear();
        self.needs_walk = false;
        let number = self.next;
        self.next += 1;
        self.log.push_back(Entry { number, seen, record });
        &self.log[0]
    }

    /// Gives the log up: the next record is the whole state.
    pub fn restart(&mut self) {
        self.log.clear();
        self.needs_walk = true;
    }

    /// Returns whether the next record has to be the whole state.
    pub fn needs_walk(&self) -> bool {
        self.needs_walk
    }

    /// The other member has handled, and answered, all records up to a number. Returns whether that is new.
    pub fn acknowledge(&mut self, number: u64) -> bool {
        let is_new = number > self.acknowledged && number < self.next;
        if is_new {
            self.drop_until(number);
            self.acknowledged = number;
        }
        is_new
    }

    /// Prepares another connection. `next` is the number that the other member expects in this stream, or
    /// `None` if it has no state of it. Arrived records are forgotten; that acknowledges nothing, because
    /// their answers may be on their way.
    pub fn resume(&mut self, next: Option<u64>) -> Resumption {
        match next {
            Some(next) if next <= self.next && !self.needs_walk => self.drop_until(next - 1),
            _ => self.restart(),
        }
        let first = self.log.front().map_or(self.next, |entry| entry.number);
        let is_complete = next.is_some_and(|next| next == first) && !self.needs_walk;
        if is_complete {
            return Resumption::Log;
        }
        self.restart();
        Resumption::Walk
    }

    /// The other member has accepted all records up to a number. It will not ask for them again; that
    /// acknowledges nothing.
    pub fn arrived(&mut self, number: u64) {
        if number < self.next {
            self.drop_until(number);
        }
    }

    fn drop_until(&mut self, number: u64) {
        while self.log.front().is_some_and(|entry| entry.number <= number) {
            self.log.pop_front();
        }
    }

    /// Returns the records of the log, the oldest first.
    pub fn log(&self) -> impl DoubleEndedIterator<Item = &Entry<R>> + ExactSizeIterator {
        self.log.iter()
    }
}

/// Place of an arriving record in its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The next record: it has to be handled.
    Next,
    /// A record that was handled before.
    Known,
    /// A record is missing: the connection has to be opened again.
    Gap,
}

/// Position in the stream of the other member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Inbound {
    next: u64,
    handled: u64,
}

impl Default for Inbound {
    fn default() -> Inbound {
        Inbound { next: 1, handled: 0 }
    }
}

impl Inbound {
    /// Number of the next record, for [`Outbound::resume`].
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Number of the last record that was handled and answered.
    pub fn handled(&self) -> u64 {
        self.handled
    }

    /// Number of the last accepted record.
    pub fn accepted(&self) -> u64 {
        self.next - 1
    }

    /// Accepts a record if it is the next one, or the whole state, which replaces every record before it.
    pub fn accept(&mut self, rules: &Rules, number: u64, is_walk: bool) -> Arrival {
        if number == self.next || is_walk && number > self.next || !rules.in_order {
            self.next = self.next.max(number + 1);
            Arrival::Next
        } else if number < self.next {
            Arrival::Known
        } else {
            Arrival::Gap
        }
    }

    /// Returns whether an acknowledgement may be used: all records that were sent before it have arrived.
    pub fn is_after(&self, rules: &Rules, after: u64) -> bool {
        after < self.next || !rules.in_order
    }

    /// All accepted records are handled. Returns whether they may be acknowledged: their answers must be in
    /// the own stream. `own.needs_walk()` means that some are not, and wait for the walk.
    pub fn answered<R>(&mut self, rules: &Rules, own: &Outbound<R>) -> bool {
        self.answered_to(rules, own, self.next - 1)
    }

    /// The accepted records up to a number are handled. Otherwise as [`answered`](Self::answered).
    pub fn answered_to<R>(&mut self, rules: &Rules, own: &Outbound<R>, number: u64) -> bool {
        let is_answered = !own.needs_walk() || !rules.answer_first;
        if is_answered {
            let number = if rules.answer_first { number } else { self.next - 1 };
            self.handled = self.handled.max(number);
        }
        is_answered
    }
}
