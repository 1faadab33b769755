//! Free records: selection of the next one, and the prefetch of its line.

use super::{NONE, RecordId, Session};
use gatun_mem::{HugeVec, prefetch_read};

/// Number of free lists. Records are taken from them in turn, so the heads of all lists are the next records
/// to be taken. With a single list, the second record is known only after the first has come from memory.
const LISTS: usize = 16;

/// Free records, linked by `next`; the last one freed is taken first.
pub(super) struct FreeRecords {
    heads: [RecordId; LISTS],
    /// List to take from next.
    turn: usize,
    /// Records `1..high` have been used at least once.
    high: RecordId,
}

impl FreeRecords {
    pub(super) fn new() -> Self {
        FreeRecords { heads: [NONE; LISTS], turn: 0, high: 1 }
    }

    /// Records from this number on have never been used.
    pub(super) fn high(&self) -> RecordId {
        self.high
    }

    /// Returns whether there is a free record.
    pub(super) fn is_some(&self, records: &HugeVec<Session>) -> bool {
        self.heads.get(self.turn).is_some_and(|head| *head != NONE) || (self.high as usize) < records.len()
    }

    /// Takes the next free record, if any; its content is not cleared.
    pub(super) fn take(&mut self, records: &HugeVec<Session>) -> Option<RecordId> {
        let head = self.heads.get_mut(self.turn)?;
        let id = *head;
        if id == NONE {
            let id = self.high;
            self.high += u32::from((id as usize) < records.len());
            return (id < self.high).then_some(id);
        }
        *head = records.get(id as usize)?.next;
        prefetch_read(records, *head as usize);
        self.turn = (self.turn + 1) % LISTS;
        Some(id)
    }

    /// Returns a record to the free lists.
    pub(super) fn put(&mut self, records: &mut HugeVec<Session>, id: RecordId) {
        self.turn = (self.turn + LISTS - 1) % LISTS;
        if let (Some(record), Some(head)) = (records.get_mut(id as usize), self.heads.get_mut(self.turn)) {
            *record = zerocopy::FromZeros::new_zeroed();
            record.next = core::mem::replace(head, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn freed_records_are_taken_newest_first(takes in prop::collection::vec(any::<bool>(), 0..400)) {
            let mut records = HugeVec::<Session>::new(60).unwrap();
            let mut free = FreeRecords::new();
            let mut taken: Vec<RecordId> = Vec::new();
            let mut freed: Vec<RecordId> = Vec::new();
            let mut fresh = 1..60;
            for (i, take) in takes.into_iter().enumerate() {
                if take {
                    let expected = freed.pop().or_else(|| fresh.next());
                    prop_assert_eq!(free.is_some(&records), expected.is_some());
                    prop_assert_eq!(free.take(&records), expected);
                    taken.extend(expected);
                } else if !taken.is_empty() {
                    let id = taken.swap_remove(i % taken.len());
                    free.put(&mut records, id);
                    freed.push(id);
                }
                prop_assert_eq!(free.high(), fresh.start);
            }
        }
    }
}
