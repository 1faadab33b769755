//! Records of the workers' feeds for several members of a process.
//!
//! ```text
//!   feed of a worker --(by shard)--> queue of a member --> next
//!   PlanChanged, Lost ----------------------> queues of all
//! ```
//! Each feed is read once. A place in the feed means the same for all members. A member that reads too late
//! gets the number of lost records: it alone has to send its whole state again.

use gatun_nat::Sequence;
use gatun_nat::feed::Record;
use gatun_nat::workers::Steering;
use std::collections::VecDeque;

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

/// Records that the members of a process have not read.
pub struct RecordQueues {
    /// Queues of each member, by worker.
    members: Vec<Vec<RecordQueue>>,
    /// Member of each shard.
    of_shard: [Option<usize>; 256],
    workers: usize,
    /// Records that a queue has room for.
    len: usize,
}

impl RecordQueues {
    /// Creates the queues of a number of workers, without a member. `len` is the room of each queue.
    pub fn new(workers: usize, len: usize) -> RecordQueues {
        RecordQueues { members: Vec::new(), of_shard: [None; 256], workers, len }
    }

    /// Adds a member. Returns its number.
    pub fn add_member(&mut self) -> usize {
        self.members.push((0..self.workers).map(|_| RecordQueue::default()).collect());
        self.members.len() - 1
    }

    /// Gives the records of a shard to a member. Of several members, nobody gets those of other shards; a
    /// single member gets all records.
    pub fn assign(&mut self, shard: u8, member: Option<usize>) {
        self.of_shard[usize::from(shard)] = member;
    }

    /// Returns the next record of a worker for a member. `feed` reads the worker's feed.
    pub fn next(
        &mut self,
        (member, worker): (usize, usize),
        steering: &Steering,
        feed: &mut dyn FnMut() -> Option<(Sequence, Record)>,
    ) -> Option<(Sequence, Record)> {
        if let Some(waiting) = self.members[member][worker].records.pop_front() {
            return Some(waiting);
        }
        if self.members.len() == 1 {
            return feed();
        }
        loop {
            let next = feed()?;
            if self.distribute((member, worker), steering, next) {
                return Some(next);
            }
        }
    }

    fn receivers(&self, steering: &Steering, record: &Record) -> Receivers {
        match record {
            Record::Session(session) => {
                let shard = steering.shard_of_address(session.id.flow.outside.0);
                let member = shard.and_then(|shard| self.of_shard[usize::from(shard)]);
                member.map_or(Receivers::Nobody, Receivers::One)
            }
            Record::PlanChanged | Record::Lost(_) => Receivers::All,
            Record::Binding(_) | Record::Block(_) | Record::Path(_) => Receivers::Nobody,
        }
    }

    /// Puts a record into the queues of other members. Returns whether the present one gets it, too.
    fn distribute(
        &mut self,
        (member, worker): (usize, usize),
        steering: &Steering,
        (at, record): (Sequence, Record),
    ) -> bool {
        let receivers = self.receivers(steering, &record);
        let is_for = |number| match receivers {
            Receivers::All => true,
            Receivers::One(one) => number == one,
            Receivers::Nobody => false,
        };
        for (number, other) in self.members.iter_mut().enumerate() {
            if number != member && is_for(number) {
                other[worker].push(at, record, self.len);
            }
        }
        is_for(member)
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
