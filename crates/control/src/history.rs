//! Counts of the last hour for charts: a point every few seconds in a ring of fixed size.

use crate::Control;
use gatun_api::types as api;
use gatun_nat::report::{EntryCount, InstanceStats};
use gatun_worker::Snapshot;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time between two points.
pub const EVERY: Duration = Duration::from_secs(5);
/// Points that are kept: an hour.
pub const POINTS_MAX: usize = 720;

/// Counts at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    received: u64,
    forwarded: [u64; 2],
    /// Dropped packets: with an ICMP error, and silently.
    dropped: [u64; 2],
    created: u64,
    sessions: u64,
    subscribers: u64,
}

impl Counts {
    fn of(total: &Snapshot) -> Counts {
        let engine = &total.engine;
        let created = |stats: &InstanceStats| {
            stats.entries.sessions.iter().map(|count: &EntryCount| count.created).sum::<u64>()
        };
        let [sessions, _, subscribers] = crate::conversion::state_of(total);
        Counts {
            received: engine.rx.packets,
            forwarded: [engine.forwarded.packets, engine.forwarded.bytes],
            dropped: [engine.rejected().packets, engine.dropped.packets],
            created: total.instances.iter().map(created).sum(),
            sessions,
            subscribers,
        }
    }
}

/// Difference between two moments.
struct Point {
    at: Instant,
    took: Duration,
    more: Counts,
}

#[derive(Default)]
struct Ring {
    last: Option<(Instant, Counts)>,
    points: VecDeque<Point>,
}

impl Ring {
    /// Adds counts. After a gap without counts, the history starts a new line.
    fn take(&mut self, at: Instant, now: Counts, gap: Duration) {
        let last = self.last.replace((at, now));
        let Some((from, before)) = last.filter(|(from, _)| at.duration_since(*from) < gap) else { return };
        if self.points.len() == POINTS_MAX {
            self.points.pop_front();
        }
        let more = Counts {
            received: now.received.saturating_sub(before.received),
            forwarded: [0, 1].map(|n: usize| now.forwarded[n].saturating_sub(before.forwarded[n])),
            dropped: [0, 1].map(|n: usize| now.dropped[n].saturating_sub(before.dropped[n])),
            created: now.created.saturating_sub(before.created),
            ..now
        };
        self.points.push_back(Point { at, took: at.duration_since(from), more });
    }

    fn points_at(&self, now: Instant) -> Vec<api::HistoryPoint> {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let points = self.points.iter().map(|Point { at, took, more }| api::HistoryPoint {
            age_ms: ms(now.saturating_duration_since(*at)),
            length_ms: ms(*took),
            received_packets: more.received,
            forwarded_packets: more.forwarded[0],
            forwarded_bytes: more.forwarded[1],
            dropped_packets: more.dropped[0] + more.dropped[1],
            rejected_packets: more.dropped[0],
            dropped_silently_packets: more.dropped[1],
            sessions_created: more.created,
            sessions: more.sessions,
            subscribers: more.subscribers,
        });
        points.collect()
    }
}

/// History of the last hour.
pub(crate) struct History {
    every: Duration,
    ring: Mutex<Ring>,
}

impl History {
    /// Creates an empty history with one point per interval. Allocates all of its memory.
    pub(crate) fn new(every: Duration) -> History {
        let ring = Ring { last: None, points: VecDeque::with_capacity(POINTS_MAX) };
        History { every, ring: Mutex::new(ring) }
    }

    pub(crate) fn answer(&self) -> api::History {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let every_ms = u64::try_from(self.every.as_millis()).unwrap_or(u64::MAX);
        api::History { every_ms, points: ring.points_at(Instant::now()) }
    }
}

impl Control {
    /// Records the history forever. If a worker does not answer, no point is recorded.
    pub(crate) async fn keep_history(&self) {
        let every = self.history.every;
        let mut ticks = tokio::time::interval(every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Ok(total) = self.total().await else { continue };
            let counts = Counts::of(&total);
            let mut ring = self.history.ring.lock().unwrap_or_else(PoisonError::into_inner);
            ring.take(Instant::now(), counts, every * 3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_counts_since_the_previous_one_and_the_ring_has_an_hour() {
        let (begin, gap) = (Instant::now(), EVERY * 3);
        let counts = |n: u64| Counts {
            received: n * 10,
            forwarded: [n * 8, n * 800],
            dropped: [n, n],
            created: n * 3,
            sessions: n,
            subscribers: 7,
        };
        let mut ring = Ring::default();
        let many = POINTS_MAX as u64 + 10;
        (0..=many).for_each(|n| ring.take(begin + EVERY * n as u32, counts(n), gap));
        let points = ring.points_at(begin + EVERY * many as u32 + Duration::from_millis(9));
        assert_eq!(
            (points.len(), points[0].age_ms, points[POINTS_MAX - 1].age_ms),
            (POINTS_MAX, 719 * 5000 + 9, 9)
        );
        assert!(
            points.iter().all(|p| (p.length_ms, p.received_packets, p.forwarded_packets) == (5000, 10, 8))
        );
        let last = &points[POINTS_MAX - 1];
        assert_eq!((last.forwarded_bytes, last.dropped_packets, last.sessions_created), (800, 2, 3));
        assert_eq!((last.sessions, last.subscribers), (many, 7));
        // A gap has no point; its counts belong to no single moment.
        ring.take(begin + EVERY * (many as u32 + 10), counts(many + 1000), gap);
        ring.take(begin + EVERY * (many as u32 + 11), counts(many + 1001), gap);
        let points = ring.points_at(begin + EVERY * (many as u32 + 11));
        assert_eq!((points[POINTS_MAX - 1].received_packets, points[POINTS_MAX - 2].age_ms), (10, 11 * 5000));
    }
}
