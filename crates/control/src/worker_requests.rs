//! Requests to workers: handed in at once, answered between bursts. Only the asking task waits.

use crate::Control;
use gatun_worker::Snapshot;
use gatun_worker::jobs::{Job, JobTicket, SubmitError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Longest time for one job of a worker, and for its counters.
const JOB_MAX: Duration = Duration::from_secs(60);
pub(crate) const SNAPSHOT_MAX: Duration = Duration::from_secs(2);

/// Failure of a request to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerError {
    /// Too many requests at the same time.
    Busy,
    /// The worker does not answer in time or has ended.
    Silent,
}

/// A job at a worker.
pub(crate) struct Pending<J> {
    answer: oneshot::Receiver<J>,
    _ticket: JobTicket,
}

impl<J> Pending<J> {
    /// Waits for the result.
    pub(crate) async fn done(self) -> Result<J, WorkerError> {
        match timeout(JOB_MAX, self.answer).await {
            Ok(Ok(job)) => Ok(job),
            Ok(Err(_)) | Err(_) => Err(WorkerError::Silent),
        }
    }
}

impl Control {
    pub(crate) fn workers(&self) -> usize {
        self.setup.workers.len()
    }

    /// Gives a worker a job.
    pub(crate) fn hand_in<J: Job + 'static>(&self, worker: usize, job: J) -> Result<Pending<J>, WorkerError> {
        let (sender, answer) = oneshot::channel();
        let handle = self.setup.workers.get(worker).ok_or(WorkerError::Silent)?;
        let ticket = handle.submit(job, move |job| drop(sender.send(job)));
        let _ticket = ticket.map_err(|refused| match refused {
            SubmitError::Busy => WorkerError::Busy,
            SubmitError::Ended => WorkerError::Silent,
        })?;
        Ok(Pending { answer, _ticket })
    }

    /// Gives each worker a job, and waits for all of them.
    pub(crate) async fn all<J: Job + 'static>(&self, job: impl Fn() -> J) -> Result<Vec<J>, WorkerError> {
        let pending = (0..self.workers()).map(|worker| self.hand_in(worker, job()));
        let pending = pending.collect::<Result<Vec<_>, _>>()?;
        let mut done = Vec::with_capacity(pending.len());
        for job in pending {
            done.push(job.done().await?);
        }
        Ok(done)
    }

    /// Counters of each worker; `None` for one that does not answer in time.
    pub(crate) async fn snapshots(&self) -> Vec<Option<Snapshot>> {
        let asked: Vec<_> = self
            .setup
            .workers
            .iter()
            .map(|handle| {
                let (sender, answer) = oneshot::channel();
                handle.request_snapshot(move |snapshot| drop(sender.send(snapshot)));
                answer
            })
            .collect();
        let until = tokio::time::Instant::now() + SNAPSHOT_MAX;
        let mut all = Vec::with_capacity(asked.len());
        for answer in asked {
            all.push(tokio::time::timeout_at(until, answer).await.ok().and_then(Result::ok));
        }
        all
    }
}
