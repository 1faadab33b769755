//! Questions and orders for a worker, read between bursts.

use crate::Snapshot;
use crate::jobs::{self, Counter, Desk, Job, Refused, Ticket};
use crate::trace::{self, Order, Tell, Tracer, Watcher};
use gatun_io::{Mailbox, Waker};
use gatun_nat::kept::{Progress, Spent};
use gatun_nat::reconfigure::{Change, NotNow, Outline, Settled};
use gatun_nat::workers::Steering;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

pub(crate) enum Request {
    Stop,
    Snapshot(SyncSender<Snapshot>),
    SnapshotFor(Box<dyn FnOnce(Snapshot) + Send>),
    Outline(SyncSender<Outline>),
    Apply(Box<Change>, Option<Arc<Steering>>, SyncSender<Applied>),
    Settling(SyncSender<Settling>),
    Inherited(SyncSender<Inherited>),
    Trace(Box<Tracer>, Box<dyn FnOnce(bool) + Send>),
    Owner((Vec<u8>, u8), Box<dyn FnOnce(Option<usize>) + Send>),
}

/// What became of a change.
pub struct Applied {
    /// Whether it is in place.
    pub result: Result<(), NotNow>,
    /// The change, or what the engine had before: it is freed where it is dropped.
    pub change: Box<Change>,
    /// The steering, or what the worker had before.
    pub steering: Option<Arc<Steering>>,
}

/// How far a change has come.
#[derive(Clone, Copy, Debug)]
pub struct Settling {
    /// Whether something is left to end.
    pub goes_on: bool,
    /// What it has ended so far.
    pub ended: Settled,
}

/// How far a worker has come with the sessions of the process before.
pub struct Inherited {
    /// How many are back, and how many wait.
    pub progress: Progress,
    /// Set where none waits any more; what is left of them is freed where it is dropped.
    pub over: Option<Option<Spent>>,
}

/// Speaks to a running worker from another thread.
#[derive(Clone)]
pub struct Handle {
    requests: Mailbox<Request>,
    jobs: Counter,
    waker: Waker,
}

/// The worker's side; once it is dropped, nobody waits for an answer.
pub(crate) struct Inbox {
    requests: Mailbox<Request>,
    pub(crate) desk: Desk,
}

pub(crate) fn pair(waker: Waker) -> (Handle, Inbox) {
    let requests = Mailbox::new(usize::MAX);
    let (jobs, desk) = jobs::pair();
    (Handle { requests: requests.clone(), jobs, waker }, Inbox { requests, desk })
}

impl Handle {
    /// Lets the worker end after the burst at hand.
    pub fn stop(&self) {
        self.ask(Request::Stop);
    }

    /// The worker's counters; `None` where it has ended or does not answer in time.
    pub fn snapshot(&self, timeout: Duration) -> Option<Snapshot> {
        self.answer(timeout, Request::Snapshot)
    }

    /// What has to be known to prepare a change for the worker's engine; `None` as for a snapshot.
    pub fn outline(&self, timeout: Duration) -> Option<Outline> {
        self.answer(timeout, Request::Outline)
    }

    /// Puts a change in place between two bursts; `None` as for a snapshot, and it may be put in place later. Workers that
    /// share a translator get with it how packets find them from then on.
    pub fn apply(
        &self,
        change: Box<Change>,
        steering: Option<Arc<Steering>>,
        timeout: Duration,
    ) -> Option<Applied> {
        self.answer(timeout, |sender| Request::Apply(change, steering, sender))
    }

    /// How far the last change has come; `None` as for a snapshot.
    pub fn settling(&self, timeout: Duration) -> Option<Settling> {
        self.answer(timeout, Request::Settling)
    }

    /// How far the worker has come with the sessions of the process before; `None` as for a snapshot.
    pub fn inherited(&self, timeout: Duration) -> Option<Inherited> {
        self.answer(timeout, Request::Inherited)
    }

    /// Lets the worker do a job, a slice after each burst, and give it to `done` then: in the worker's thread, so
    /// `done` must not wait for anything. Nothing of it is done any more once the ticket is dropped.
    ///
    /// # Errors
    /// Where too many jobs wait, or the worker has ended.
    pub fn submit<J: Job + 'static>(
        &self,
        job: J,
        done: impl FnOnce(J) + Send + 'static,
    ) -> Result<Ticket, Refused> {
        let ticket = self.jobs.hand_in(job, done)?;
        self.waker.wake();
        Ok(ticket)
    }

    /// The same, waited for; `None` also where the worker does not get it done in time.
    pub fn work<J: Job + 'static>(&self, job: J, timeout: Duration) -> Option<J> {
        let (sender, receiver) = sync_channel(1);
        let _ticket = self.submit(job, move |job| drop(sender.send(job))).ok()?;
        receiver.recv_timeout(timeout).ok()
    }

    /// Asks for the worker's counters without waiting for them: they are given to `done` as a job is.
    pub fn request_snapshot(&self, done: impl FnOnce(Snapshot) + Send + 'static) {
        self.ask(Request::SnapshotFor(Box::new(done)));
    }

    /// Asks which worker a packet is for that this one received from a realm; any where that is `None`. Given to `done`
    /// as a job is.
    pub fn request_owner(
        &self,
        packet: Vec<u8>,
        realm: u8,
        done: impl FnOnce(Option<usize>) + Send + 'static,
    ) {
        self.ask(Request::Owner((packet, realm), Box::new(done)));
    }

    /// Lets the worker hand out packets that are watched, as long as somebody has the watcher. Whether it does is given
    /// to `done`, as a job is: one trace at a time.
    pub fn trace(&self, order: Order, tell: Tell, done: impl FnOnce(bool) + Send + 'static) -> Watcher {
        let (watcher, tracer) = trace::pair(order, tell);
        self.ask(Request::Trace(Box::new(tracer), Box::new(done)));
        watcher
    }

    fn answer<T>(&self, timeout: Duration, request: impl FnOnce(SyncSender<T>) -> Request) -> Option<T> {
        let (sender, receiver) = sync_channel(1);
        self.ask(request(sender));
        receiver.recv_timeout(timeout).ok()
    }

    /// First the request, then the wake-up: a woken worker finds it.
    fn ask(&self, request: Request) {
        if self.requests.put(request).is_ok() {
            self.waker.wake();
        }
    }
}

impl Inbox {
    pub(crate) fn next(&mut self) -> Option<Request> {
        self.requests.next()
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.requests.close();
    }
}
