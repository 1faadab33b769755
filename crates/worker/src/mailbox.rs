//! Requests to a worker, read between bursts.

use crate::Snapshot;
use crate::exchange::PacketOwner;
use crate::jobs::{self, Job, JobQueue, JobSubmitter, JobTicket, SubmitError};
use crate::offload::{self, CommandQueue, CommandSubmitter, RefusedCommands};
use crate::trace::{self, TraceGuard, TraceRequest, TraceSink, Tracer};
use gatun_io::{Mailbox, Waker};
use gatun_nat::feed::{Command, Feed};
use gatun_nat::reconfigure::{ApplyError, Change, Outline, Settled};
use gatun_nat::redirect::Redirection;
use gatun_nat::session_file::{FinishedInheritance, RestoreProgress};
use gatun_nat::standby::PeerCommand;
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
    SettlingProgress(SyncSender<SettlingProgress>),
    Redirect(Option<Arc<Redirection>>, SyncSender<Option<Arc<Redirection>>>),
    RestoreStatus(SyncSender<RestoreStatus>),
    AttachFeed(Option<Box<Feed>>, SyncSender<Option<Box<Feed>>>),
    AttachPeerFeed(Option<Box<Feed>>, SyncSender<Option<Box<Feed>>>),
    Trace(Box<Tracer>, Box<dyn FnOnce(bool) + Send>),
    Owner((Vec<u8>, u8), Box<dyn FnOnce(PacketOwner) + Send>),
}

/// Result of applying a change.
pub struct Applied {
    /// `Ok` if the change is active.
    pub result: Result<(), ApplyError>,
    /// The change, or the engine's old state, which is freed when this is dropped.
    pub change: Box<Change>,
    /// The new steering, or the worker's old one.
    pub steering: Option<Arc<Steering>>,
}

/// Progress of a change.
#[derive(Clone, Copy, Debug)]
pub struct SettlingProgress {
    /// True if sessions are left to end.
    pub goes_on: bool,
    /// Sessions and bindings that the change has ended so far.
    pub ended: Settled,
}

/// Progress of restoring the previous process's sessions.
pub struct RestoreStatus {
    /// Numbers of restored and waiting sessions.
    pub progress: RestoreProgress,
    /// Set once no session waits. The remaining data is freed when this is dropped.
    pub over: Option<Option<FinishedInheritance>>,
}

/// Handle of a running worker for other threads.
#[derive(Clone)]
pub struct Handle {
    requests: Mailbox<Request>,
    jobs: JobSubmitter,
    commands: CommandSubmitter,
    peer_commands: CommandSubmitter<PeerCommand>,
    waker: Waker,
}

/// The worker's side. Once it is dropped, nobody waits for an answer.
pub(crate) struct RequestQueue {
    requests: Mailbox<Request>,
    pub(crate) jobs: JobQueue,
    pub(crate) commands: CommandQueue,
    pub(crate) peer_commands: CommandQueue<PeerCommand>,
}

pub(crate) fn pair(waker: Waker) -> (Handle, RequestQueue) {
    let requests = Mailbox::new(usize::MAX);
    let (jobs, queue) = jobs::pair();
    let (commands, command_queue) = offload::pair();
    let (peer_commands, peer_queue) = offload::pair();
    let handle = Handle { requests: requests.clone(), jobs, commands, peer_commands, waker };
    (handle, RequestQueue { requests, jobs: queue, commands: command_queue, peer_commands: peer_queue })
}

impl Handle {
    /// Makes the worker end after the present burst.
    pub fn stop(&self) {
        self.ask(Request::Stop);
    }

    /// Counters of the worker. `None` if it has ended or does not answer in time.
    pub fn snapshot(&self, timeout: Duration) -> Option<Snapshot> {
        self.answer(timeout, Request::Snapshot)
    }

    /// Data needed to prepare a change for the worker's engine. `None` as for a snapshot.
    pub fn outline(&self, timeout: Duration) -> Option<Outline> {
        self.answer(timeout, Request::Outline)
    }

    /// Applies a change between two bursts. `None` as for a snapshot; the change may then be applied later.
    /// Workers that share a translator also get the steering that is valid from then on.
    pub fn apply(
        &self,
        change: Box<Change>,
        steering: Option<Arc<Steering>>,
        timeout: Duration,
    ) -> Option<Applied> {
        self.answer(timeout, |sender| Request::Apply(change, steering, sender))
    }

    /// Attaches a state feed to the worker's engine, or detaches it. Returns the previous feed, to be dropped
    /// here. `None` as for a snapshot; the feed may then be attached later.
    pub fn attach_feed(&self, feed: Option<Box<Feed>>, timeout: Duration) -> Option<Option<Box<Feed>>> {
        self.answer(timeout, |sender| Request::AttachFeed(feed, sender))
    }

    /// Has commands of a fast path's manager handled, in the order of the calls and of the lists. The worker
    /// handles some after each burst and passes a list with its outcomes to `done` at its end, in the
    /// worker's thread, so `done` must not block.
    ///
    /// # Errors
    /// Returns the commands if [`BATCHES_MAX`](offload::BATCHES_MAX) lists wait, or the worker has ended.
    pub fn offload(
        &self,
        commands: Vec<Command>,
        done: impl FnOnce(Vec<Command>) + Send + 'static,
    ) -> Result<(), RefusedCommands> {
        self.commands.submit(commands, done)?;
        self.waker.wake();
        Ok(())
    }

    /// Attaches the state feed of a member of a pair, or detaches it. Otherwise as
    /// [`attach_feed`](Self::attach_feed).
    pub fn attach_peer_feed(&self, feed: Option<Box<Feed>>, timeout: Duration) -> Option<Option<Box<Feed>>> {
        self.answer(timeout, |sender| Request::AttachPeerFeed(feed, sender))
    }

    /// Has requests of a member of a pair executed, as [`offload`](Self::offload) does with commands.
    ///
    /// # Errors
    /// Returns the requests if [`BATCHES_MAX`](offload::BATCHES_MAX) lists wait, or the worker has ended.
    pub fn standby(
        &self,
        commands: Vec<PeerCommand>,
        done: impl FnOnce(Vec<PeerCommand>) + Send + 'static,
    ) -> Result<(), RefusedCommands<PeerCommand>> {
        self.peer_commands.submit(commands, done)?;
        self.waker.wake();
        Ok(())
    }

    /// Changes which node of a cluster translates which shard, between two bursts. Returns the previous
    /// places, to be dropped here. `None` as for a snapshot; the change may then be made later. It is also
    /// `None` if the worker was not created by [`Worker::sharing`](crate::Worker::sharing), which a single
    /// worker of a cluster's node needs, too.
    pub fn redirect(
        &self,
        redirection: Option<Arc<Redirection>>,
        timeout: Duration,
    ) -> Option<Option<Arc<Redirection>>> {
        self.answer(timeout, |sender| Request::Redirect(redirection, sender))
    }

    /// Progress of the last change. `None` as for a snapshot.
    pub fn settling(&self, timeout: Duration) -> Option<SettlingProgress> {
        self.answer(timeout, Request::SettlingProgress)
    }

    /// Progress of restoring the previous process's sessions. `None` as for a snapshot.
    pub fn restore_status(&self, timeout: Duration) -> Option<RestoreStatus> {
        self.answer(timeout, Request::RestoreStatus)
    }

    /// Submits a job. The worker does a slice of it after each burst and passes it to `done` at the end, in
    /// the worker's thread, so `done` must not block. Dropping the ticket abandons the job.
    ///
    /// # Errors
    /// Returns an error if too many jobs wait, or the worker has ended.
    pub fn submit<J: Job + 'static>(
        &self,
        job: J,
        done: impl FnOnce(J) + Send + 'static,
    ) -> Result<JobTicket, SubmitError> {
        let ticket = self.jobs.submit(job, done)?;
        self.waker.wake();
        Ok(ticket)
    }

    /// Submits a job and waits for it. `None` also if it does not finish in time.
    pub fn work<J: Job + 'static>(&self, job: J, timeout: Duration) -> Option<J> {
        let (sender, receiver) = sync_channel(1);
        let _ticket = self.submit(job, move |job| drop(sender.send(job))).ok()?;
        receiver.recv_timeout(timeout).ok()
    }

    /// Requests the worker's counters without waiting: they are passed to `done`, like a job.
    pub fn request_snapshot(&self, done: impl FnOnce(Snapshot) + Send + 'static) {
        self.ask(Request::SnapshotFor(Box::new(done)));
    }

    /// Requests the worker and the node that own a packet which this worker received from a realm. Passed to
    /// `done`, like a job.
    pub fn request_owner(&self, packet: Vec<u8>, realm: u8, done: impl FnOnce(PacketOwner) + Send + 'static) {
        self.ask(Request::Owner((packet, realm), Box::new(done)));
    }

    /// Starts a packet trace, which lasts until the returned guard is dropped. `done` receives true if it was
    /// started, like a job: only one trace can be active.
    pub fn trace(
        &self,
        request: TraceRequest,
        sink: TraceSink,
        done: impl FnOnce(bool) + Send + 'static,
    ) -> TraceGuard {
        let (watcher, tracer) = trace::pair(request, sink);
        self.ask(Request::Trace(Box::new(tracer), Box::new(done)));
        watcher
    }

    fn answer<T>(&self, timeout: Duration, request: impl FnOnce(SyncSender<T>) -> Request) -> Option<T> {
        let (sender, receiver) = sync_channel(1);
        self.ask(request(sender));
        receiver.recv_timeout(timeout).ok()
    }

    /// The request is queued before the wake-up, so that a woken worker finds it.
    fn ask(&self, request: Request) {
        if self.requests.put(request).is_ok() {
            self.waker.wake();
        }
    }
}

impl RequestQueue {
    pub(crate) fn next(&mut self) -> Option<Request> {
        self.requests.next()
    }
}

impl Drop for RequestQueue {
    fn drop(&mut self) {
        self.requests.close();
    }
}
