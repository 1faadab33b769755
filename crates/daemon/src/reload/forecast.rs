//! Forecast of the sessions that a change would end. Each worker counts between bursts, in slices, so that no
//! packet waits.

use super::swap::PreparedEngines;
use gatun_nat::reconfigure::{Change, Forecast};
use gatun_nat::{Instant, Nat};
use gatun_worker::Handle;
use gatun_worker::jobs::Job;
use std::sync::mpsc::channel;
use std::time::{self, Duration};

/// Time limit for all workers together.
const COUNT_MAX: Duration = Duration::from_secs(3);

/// Sessions that end, and subscribers that lose some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EndingSessions {
    pub(super) sessions: u64,
    pub(super) subscribers: u64,
}

struct Count {
    change: Box<Change>,
    forecast: Forecast,
}

impl Job for Count {
    fn step(&mut self, nat: &mut Nat, _: Instant, budget: usize) -> bool {
        nat.forecast(&mut self.forecast, &self.change, budget)
    }
}

impl PreparedEngines {
    /// Counts ending sessions. `None` if the count does not finish in time.
    pub(super) fn expected(self, workers: &[Handle]) -> Option<EndingSessions> {
        let until = time::Instant::now() + COUNT_MAX;
        let (sender, counted) = channel();
        let mut tickets = Vec::new();
        for (worker, change) in workers.iter().zip(self.changes) {
            let sender = sender.clone();
            // The memory is freed in this thread, not in a worker.
            let done = move |count: Count| drop(sender.send(count));
            tickets.push(worker.submit(Count { forecast: Forecast::new(&change), change }, done).ok()?);
        }
        let mut all = EndingSessions::default();
        for _ in &tickets {
            let left = until.saturating_duration_since(time::Instant::now());
            let Count { forecast, .. } = counted.recv_timeout(left).ok()?;
            all.sessions += forecast.sessions;
            all.subscribers += forecast.subscribers;
        }
        Some(all)
    }
}
