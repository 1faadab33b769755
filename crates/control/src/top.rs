//! Subscribers with most sessions, ports, refusals or bytes, found in one walk over all.

use crate::Control;
use crate::query::{BadRequest, Query};
use crate::response::Refusal;
use crate::subscriber_totals::{Measure, insert_top};
use gatun_api::types as api;
use gatun_nat::inspect::Selection;
use gatun_nat::report::SubscriberStats;
use gatun_nat::{Instant, Nat};
use gatun_worker::jobs::Job;

/// Subscribers in an answer: default and maximum.
const COUNT: usize = 10;
const COUNT_MAX: usize = 100;
/// Subscribers read at a time.
const READ: usize = 256;

struct Top {
    next: Option<u32>,
    read: Vec<SubscriberStats>,
    best: Vec<SubscriberStats>,
    count: usize,
    by: Measure,
}

impl Job for Top {
    fn step(&mut self, nat: &mut Nat, _: Instant, budget: usize) -> bool {
        let Some(next) = self.next else { return true };
        self.read.clear();
        self.next = nat.read_subscribers(next, &Selection::default(), budget, &mut self.read);
        for &stats in &self.read {
            insert_top(&mut self.best, stats, self.count, |stats| self.by.of(stats));
        }
        self.next.is_none()
    }
}

/// Measure by which the query sorts subscribers.
fn measure(query: &Query) -> Result<Measure, BadRequest> {
    let Some(by) = query.get("by") else { return Ok(Measure::Sessions) };
    let known = Measure::ALL.into_iter().find(|measure| measure.word() == by);
    known.ok_or_else(|| BadRequest::new(format!("by: {by:?} is not one of {}", words()), ""))
}

fn words() -> String {
    Measure::ALL.map(Measure::word).join(", ")
}

impl Control {
    /// Subscribers of all workers with the largest values of the query's measure.
    pub(crate) async fn top(&self, query: &Query) -> Result<Vec<api::Subscriber>, Refusal> {
        let count = query.parse("count", "a number")?.unwrap_or(COUNT);
        if !(1..=COUNT_MAX).contains(&count) {
            return Err(BadRequest::new(format!("count: {count} is not from 1 to {COUNT_MAX}"), "").into());
        }
        let by = measure(query)?;
        let (read, kept) = (READ, count + 1);
        let job = || Top {
            next: Some(0),
            read: Vec::with_capacity(read),
            best: Vec::with_capacity(kept),
            count,
            by,
        };
        let names = self.names().await?;
        let mut best = Vec::new();
        for stats in self.all(job).await?.iter().flat_map(|job| &job.best) {
            insert_top(&mut best, *stats, count, |stats| by.of(stats));
        }
        Ok(best.iter().map(|stats| names.subscriber(stats)).collect())
    }
}
