//! Packets counted for a second. Counts since the start would hide new faults, and show repaired ones.

use std::time::Duration;

/// Time between the two readings.
const SAMPLE: Duration = Duration::from_secs(1);
/// Packets in this time that are worth a finding: fewer are no load.
pub(super) const PACKETS_MIN: u64 = 100;

/// Counters that can be read twice.
pub(super) trait Counted {
    /// Returns true if a second reading can lead to a finding.
    fn may_matter(&self) -> bool;

    /// Counts since an earlier reading.
    fn since(self, before: &Self) -> Self;
}

/// Counts over a second. `None` if they cannot be read, or do not matter.
pub(super) fn sample<C: Counted>(read: impl Fn() -> Option<C>) -> Option<C> {
    let before = read().filter(Counted::may_matter)?;
    std::thread::sleep(SAMPLE);
    Some(read()?.since(&before))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    struct Packets(u64);

    impl Counted for Packets {
        fn may_matter(&self) -> bool {
            self.0 > 0
        }

        fn since(self, before: &Packets) -> Packets {
            Packets(self.0 - before.0)
        }
    }

    #[test]
    fn packets_before_the_sample_do_not_count() {
        let readings = Cell::new(0);
        let of = |values: [Option<u64>; 2]| {
            readings.set(0);
            let counts = sample(|| {
                readings.set(readings.get() + 1);
                values[readings.get() - 1].map(Packets)
            });
            (counts.map(|Packets(count)| count), readings.get())
        };
        assert_eq!(of([Some(70_000), Some(70_099)]), (Some(99), 2));
        assert_eq!(of([Some(0), Some(9)]), (None, 1));
        assert_eq!(of([Some(9), None]), (None, 2));
    }
}
