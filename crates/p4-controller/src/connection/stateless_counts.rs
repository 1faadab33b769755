//! Counters of stateless instances: their growth while this process controls the switch.

use gatun_nat::counters::Count;
use std::collections::{BTreeMap, BTreeSet};

/// Counters by their number, from the first one of stateless instances.
#[derive(Default)]
pub(super) struct StatelessCounts {
    /// Values when they were last read.
    last: BTreeMap<u32, Count>,
    grown: Vec<Count>,
}

impl StatelessCounts {
    /// Takes note that all counters are zero: the switch got its program now.
    pub(super) fn begin(&mut self) {
        self.last.values_mut().for_each(|last| *last = Count::default());
    }

    /// Counters that have not been read yet.
    pub(super) fn unknown(&self, wanted: &BTreeSet<u32>) -> Vec<u32> {
        wanted.iter().copied().filter(|number| !self.last.contains_key(number)).collect()
    }

    /// Counters that have been read.
    pub(super) fn known(&self) -> Vec<u32> {
        self.last.keys().copied().collect()
    }

    /// Takes note of values. The first value of a counter is where it begins: earlier packets were those of
    /// another process.
    pub(super) fn take(&mut self, counted: impl Iterator<Item = (u32, Count)>) {
        for (number, count) in counted.filter(|(number, _)| u64::from(*number) < crate::entry::COUNTERS) {
            let Some(last) = self.last.insert(number, count) else { continue };
            // A switch that restarts begins at zero.
            let base = if count.packets < last.packets { Count::default() } else { last };
            let number = number as usize;
            self.grown.resize(self.grown.len().max(number + 1), Count::default());
            // A switch may count anything.
            let grown = &mut self.grown[number];
            grown.packets = grown.packets.saturating_add(count.packets - base.packets);
            grown.bytes = grown.bytes.saturating_add(count.bytes.saturating_sub(base.bytes));
        }
    }

    /// Growth of each counter.
    pub(super) fn grown(&self) -> &[Count] {
        &self.grown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(packets: u64) -> Count {
        Count { packets, bytes: 100 * packets }
    }

    #[test]
    fn only_packets_of_this_process_are_counted() {
        let mut counts = StatelessCounts::default();
        let wanted = BTreeSet::from([0, 3]);
        assert_eq!(counts.unknown(&wanted), [0, 3]);
        counts.take([(0, count(7)), (3, count(0))].into_iter());
        assert!(counts.unknown(&wanted).is_empty() && counts.grown().is_empty());
        counts.take([(0, count(9)), (3, count(5))].into_iter());
        assert_eq!(counts.grown(), [count(2), count(0), count(0), count(5)]);
        // Its program is loaded again, or the switch has restarted unseen.
        counts.begin();
        counts.take([(0, count(8)), (3, count(1))].into_iter());
        counts.take([(0, count(3))].into_iter());
        assert_eq!(counts.grown(), [count(13), count(0), count(0), count(6)]);
    }
}
