//! Counters of a switch when they were last read.
//!
//! A flow's packets are what its counter has grown by. The counter of a slot may have counted packets of
//! earlier flows, of another process too, so it is read once before a flow uses it. Counters of a program
//! that was loaded now are zero.

use crate::flow::Direction;
use gatun_nat::counters::Count;

#[derive(Default)]
pub(super) struct Counters {
    /// By slot.
    last: Vec<[Count; 2]>,
    /// Directions that were read, by slot.
    read: Vec<u8>,
    /// True if counters that were not read are zero.
    are_new: bool,
}

impl Counters {
    /// All counters are zero.
    pub(super) fn begin(&mut self) {
        *self = Counters { are_new: true, ..Counters::default() };
    }

    /// Others may have used the switch: keeps the counters of those of `slots` slots that satisfy `is_used`.
    pub(super) fn keep(&mut self, slots: usize, is_used: impl Fn(u32) -> bool) {
        if slots > 0 {
            self.resize(slots as u32 - 1);
        }
        if std::mem::take(&mut self.are_new) {
            self.read.fill(Direction::BOTH);
        }
        for (slot, read) in (0..).zip(&mut self.read) {
            if !is_used(slot) {
                *read = 0;
            }
        }
    }

    /// Returns whether the counters of a slot are known.
    pub(super) fn are_known(&self, slot: u32) -> bool {
        self.are_new || self.read.get(slot as usize) == Some(&Direction::BOTH)
    }

    /// Takes note that the counters of a slot were read. One that the switch has not told is zero.
    pub(super) fn set_known(&mut self, slot: u32) {
        self.resize(slot);
        self.read[slot as usize] = Direction::BOTH;
    }

    /// Sets a counter. Returns the last value, if that is known.
    pub(super) fn replace(&mut self, slot: u32, direction: Direction, count: Count) -> Option<Count> {
        self.resize(slot);
        let read = &mut self.read[slot as usize];
        let is_known = self.are_new || *read & direction.bit() != 0;
        *read |= direction.bit();
        let last = std::mem::replace(&mut self.last[slot as usize][direction.index()], count);
        is_known.then_some(last)
    }

    fn resize(&mut self, slot: u32) {
        let len = self.last.len().max(slot as usize + 1);
        self.last.resize(len, [Count::default(); 2]);
        self.read.resize(len, 0);
    }
}
