//! Distributions over subscribers and those with the largest values, found in one walk over all.

use crate::Control;
use crate::worker_requests::WorkerError;
use gatun_nat::inspect::Selection;
use gatun_nat::report::SubscriberStats;
use gatun_nat::{Instant, Nat};
use gatun_worker::jobs::Job;

/// Subscribers named per measure.
pub(crate) const TOP: usize = 10;
/// Subscribers read at a time.
const READ: usize = 256;

/// Upper bounds of a distribution's buckets; the last one has none.
pub(crate) const BOUNDS: [u64; 8] = [1, 4, 16, 64, 256, 1_024, 4_096, 16_384];

/// Measure of a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// Sessions.
    Sessions,
    /// Ports of all protocols.
    Ports,
    /// Sessions and ports that a limit refused.
    Refusals,
    /// Bytes, both ways together.
    Bytes,
}

impl Measure {
    /// All measures.
    pub(crate) const ALL: [Measure; 4] =
        [Measure::Sessions, Measure::Ports, Measure::Refusals, Measure::Bytes];

    /// Returns the API's name of the measure.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Measure::Sessions => "sessions",
            Measure::Ports => "ports",
            Measure::Refusals => "refusals",
            Measure::Bytes => "bytes",
        }
    }

    /// A subscriber's value.
    pub(crate) fn of(self, stats: &SubscriberStats) -> u64 {
        match self {
            Measure::Sessions => stats.sessions.into(),
            Measure::Ports => stats.ports.iter().map(|&n| u64::from(n)).sum(),
            Measure::Bytes => stats.traffic.total().bytes,
            Measure::Refusals => {
                let refused = &stats.refusals;
                [refused.sessions, refused.rate, refused.ports, refused.blocks].map(u64::from).iter().sum()
            }
        }
    }
}

/// A distribution over subscribers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Distribution {
    /// Numbers of subscribers, by the first bound that is not below their value.
    counts: [u64; BOUNDS.len() + 1],
    /// Sum of all values.
    pub(crate) sum: u64,
}

impl Distribution {
    fn add(&mut self, value: u64) {
        let bucket = BOUNDS.partition_point(|&bound| bound < value);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.sum += value;
    }

    fn merge(&mut self, other: &Distribution) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
        self.sum += other.sum;
    }

    /// Numbers of subscribers with values up to each bound, then of all.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = u64> + '_ {
        self.counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        })
    }
}

/// The figures of all subscribers.
#[derive(Clone, Debug, Default)]
pub(crate) struct SubscriberTotals {
    /// Distributions by measure, in the order of [`Measure::ALL`].
    pub(crate) distributions: [Distribution; Measure::ALL.len()],
    /// Subscribers with the largest values by measure, without zeros.
    pub(crate) top: [Vec<SubscriberStats>; Measure::ALL.len()],
}

impl SubscriberTotals {
    fn add(&mut self, stats: SubscriberStats) {
        for (measure, distribution) in Measure::ALL.into_iter().zip(&mut self.distributions) {
            distribution.add(measure.of(&stats));
        }
        self.insert_top(stats);
    }

    fn insert_top(&mut self, stats: SubscriberStats) {
        for (measure, top) in Measure::ALL.into_iter().zip(&mut self.top) {
            if measure.of(&stats) > 0 {
                insert_top(top, stats, TOP, |stats| measure.of(stats));
            }
        }
    }

    fn merge(&mut self, other: SubscriberTotals) {
        for (distribution, more) in self.distributions.iter_mut().zip(&other.distributions) {
            distribution.merge(more);
        }
        // A subscriber may be in several lists: each list merges its own.
        for ((measure, top), more) in Measure::ALL.into_iter().zip(&mut self.top).zip(other.top) {
            more.into_iter().for_each(|stats| insert_top(top, stats, TOP, |stats| measure.of(stats)));
        }
    }
}

/// Inserts a subscriber among the `count` with the largest values, the largest first.
pub(crate) fn insert_top(
    best: &mut Vec<SubscriberStats>,
    stats: SubscriberStats,
    count: usize,
    value: impl Fn(&SubscriberStats) -> u64,
) {
    let worst = best.last().map_or(0, &value);
    if best.len() >= count && value(&stats) <= worst {
        return;
    }
    let at = best.partition_point(|other| value(other) >= value(&stats));
    best.insert(at, stats);
    best.truncate(count);
}

struct Count {
    next: Option<u32>,
    read: Vec<SubscriberStats>,
    totals: SubscriberTotals,
}

impl Job for Count {
    fn step(&mut self, nat: &mut Nat, _: Instant, budget: usize) -> bool {
        let Some(next) = self.next else { return true };
        self.read.clear();
        self.next = nat.read_subscribers(next, &Selection::default(), budget, &mut self.read);
        for &stats in &self.read {
            self.totals.add(stats);
        }
        self.next.is_none()
    }
}

impl Control {
    /// Figures of all workers' subscribers.
    pub(crate) async fn subscriber_totals(&self) -> Result<SubscriberTotals, WorkerError> {
        let room = || [(); Measure::ALL.len()].map(|()| Vec::with_capacity(TOP + 1));
        let job = || Count {
            next: Some(0),
            read: Vec::with_capacity(READ),
            totals: SubscriberTotals { distributions: Default::default(), top: room() },
        };
        let mut all = SubscriberTotals::default();
        self.all(job).await?.into_iter().for_each(|job| all.merge(job.totals));
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_counts_each_value_once_in_the_first_bucket_that_holds_it() {
        let mut all = Distribution::default();
        [0, 1, 2, 4, 5, 16_384, 16_385].into_iter().for_each(|value| all.add(value));
        let cumulative: Vec<u64> = all.cumulative().collect();
        assert_eq!(cumulative, [2, 4, 5, 5, 5, 5, 5, 6, 7]);
        assert_eq!(all.sum, 32_781);
        let mut twice = all;
        twice.merge(&all);
        assert_eq!((twice.cumulative().last(), twice.sum), (Some(14), 65_562));
    }
}
