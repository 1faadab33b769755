//! Questions and orders for a worker, read between bursts.

use crate::Snapshot;
use gatun_io::Waker;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

pub(crate) enum Request {
    Stop,
    Snapshot(SyncSender<Snapshot>),
}

/// Speaks to a running worker from another thread.
#[derive(Clone)]
pub struct Handle {
    requests: Sender<Request>,
    waker: Waker,
}

pub(crate) struct Mailbox {
    requests: Receiver<Request>,
}

pub(crate) fn pair(waker: Waker) -> (Handle, Mailbox) {
    let (sender, receiver) = channel();
    (Handle { requests: sender, waker }, Mailbox { requests: receiver })
}

impl Handle {
    /// Lets the worker end after the burst at hand.
    pub fn stop(&self) {
        self.ask(Request::Stop);
    }

    /// The worker's counters; `None` where it has ended or does not answer in time.
    pub fn snapshot(&self, timeout: Duration) -> Option<Snapshot> {
        let (sender, receiver) = sync_channel(1);
        self.ask(Request::Snapshot(sender));
        receiver.recv_timeout(timeout).ok()
    }

    /// First the request, then the wake-up: a woken worker finds it.
    fn ask(&self, request: Request) {
        if self.requests.send(request).is_ok() {
            self.waker.wake();
        }
    }
}

impl Mailbox {
    pub(crate) fn next(&mut self) -> Option<Request> {
        self.requests.try_recv().ok()
    }
}
