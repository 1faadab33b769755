//! Interface of an engine to the manager, and its implementation for a running worker.

use gatun_nat::feed::{Command, FeedPolicy, FeedReader, Record, SessionRecord, channel};
use gatun_nat::{FeedCursor, Sequence};
use gatun_worker::Handle;
use gatun_worker::jobs::{JobTicket, SubmitError};
use gatun_worker::offload::ReadFeed;
use std::sync::mpsc::{Receiver, Sender, channel as results};
use std::time::Duration;

/// Part of the state that a walk over an engine's sessions has read.
#[derive(Clone, Debug)]
pub struct Page {
    /// Position of the next part.
    pub at: FeedCursor,
    /// Sessions.
    pub found: Vec<SessionRecord>,
    /// Place in the stream when the first of them was read. `None` if the engine has no feed.
    pub since: Option<Sequence>,
    /// Place in the stream when the last of them was read.
    pub until: Option<Sequence>,
}

/// Stream of an engine's records: [`FeedReader`], except in tests.
pub trait RecordStream {
    /// Returns the next record, and its place.
    fn next(&mut self) -> Option<(Sequence, Record)>;

    /// Returns the number of records that wait.
    fn waiting(&self) -> usize;

    /// Returns whether the engine has ended or another consumer has its feed.
    fn is_abandoned(&self) -> bool;
}

impl RecordStream for FeedReader {
    fn next(&mut self) -> Option<(Sequence, Record)> {
        FeedReader::next(self)
    }

    fn waiting(&self) -> usize {
        FeedReader::waiting(self)
    }

    fn is_abandoned(&self) -> bool {
        FeedReader::is_abandoned(self)
    }
}

/// The engine of one worker. No method blocks.
pub trait Engine {
    /// Its records.
    type Stream: RecordStream;

    /// Returns the stream of its records.
    fn stream(&mut self) -> &mut Self::Stream;

    /// Submits commands. The engine handles them in the order of the calls and of the lists.
    ///
    /// # Errors
    /// Returns an error if the queue is full or the worker has ended. Nothing was done then.
    fn submit(&mut self, commands: Vec<Command>) -> Result<(), SubmitError>;

    /// Returns the next handled list of commands, in the order of the calls of [`submit`](Self::submit).
    fn handled(&mut self) -> Option<Vec<Command>>;

    /// Begins to read up to `len` sessions from a position on.
    ///
    /// # Errors
    /// Returns an error if the queue is full or the worker has ended.
    fn read(&mut self, at: FeedCursor, len: usize) -> Result<(), SubmitError>;

    /// Returns what the last [`read`](Self::read) has found, once.
    fn page(&mut self) -> Option<Page>;
}

/// Engine of a running worker.
pub struct WorkerEngine {
    handle: Handle,
    policy: FeedPolicy,
    reader: FeedReader,
    handled: (Sender<Vec<Command>>, Receiver<Vec<Command>>),
    pages: (Sender<ReadFeed>, Receiver<ReadFeed>),
    ticket: Option<JobTicket>,
}

impl WorkerEngine {
    /// Attaches a feed with room for `len` records of 64 bytes to a worker's engine. `generation`
    /// distinguishes it from other feeds of this process. `None` if the worker does not answer in time.
    pub fn attach(
        handle: Handle,
        policy: FeedPolicy,
        len: usize,
        generation: u64,
        timeout: Duration,
    ) -> Option<WorkerEngine> {
        let (feed, reader) = channel(policy, len, generation);
        drop(handle.attach_feed(Some(Box::new(feed)), timeout)?);
        Some(WorkerEngine { handle, policy, reader, handled: results(), pages: results(), ticket: None })
    }
}

impl Engine for WorkerEngine {
    type Stream = FeedReader;

    fn stream(&mut self) -> &mut FeedReader {
        &mut self.reader
    }

    fn submit(&mut self, commands: Vec<Command>) -> Result<(), SubmitError> {
        let sender = self.handled.0.clone();
        // The manager may have ended meanwhile.
        let submitted = self.handle.offload(commands, move |commands| drop(sender.send(commands)));
        submitted.map_err(|refused| refused.error)
    }

    fn handled(&mut self) -> Option<Vec<Command>> {
        self.handled.1.try_recv().ok()
    }

    fn read(&mut self, at: FeedCursor, len: usize) -> Result<(), SubmitError> {
        let sender = self.pages.0.clone();
        let job = ReadFeed::new(self.policy, at, len);
        self.ticket = Some(self.handle.submit(job, move |job| drop(sender.send(job)))?);
        Ok(())
    }

    fn page(&mut self) -> Option<Page> {
        let ReadFeed { at, found, since, until, .. } = self.pages.1.try_recv().ok()?;
        Some(Page { at, found, since, until })
    }
}
