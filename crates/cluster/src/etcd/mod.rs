//! Client of etcd: a thread with its own runtime, which carries requests and answers (decision 0107).
//!
//! Requests go to one endpoint, and after a failure to the next one. A request that may be done twice is
//! tried at each endpoint. A write is not tried again after a failure that leaves its result open.

mod calls;
mod connection;

/// Messages and clients of etcd's API.
#[allow(missing_docs, unreachable_pub, clippy::all)]
mod api {
    tonic::include_proto!("etcdserverpb");
}

use crate::store::{Answer, CHANGES_MAX, Call, REQUESTS_MAX, Reply, Request, Store, StoreError};
use connection::Connections;
pub use connection::{EtcdSettings, EtcdTls};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, TryRecvError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc as tasks;
use tokio::task::JoinHandle;

/// Time for the revocations that are under way when the store ends.
const REVOKE_MAX: Duration = Duration::from_secs(2);

/// Answers on their way to the caller. Each request has one last answer, and a watch has changes before.
#[derive(Clone)]
struct Answers {
    sender: mpsc::Sender<Reply>,
    /// Number of changes that the caller has not taken.
    changes: Arc<AtomicUsize>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

impl Answers {
    /// Sends the last answer of a request.
    fn send(&self, response: Reply) {
        // Nobody waits any more if this fails.
        drop(self.sender.send(response));
        (self.wake)();
    }

    /// Sends changes, unless the caller has too many.
    ///
    /// # Errors
    /// Reason why the watch must end.
    fn send_changes(&self, id: u64, changes: Answer) -> Result<(), String> {
        if self.changes.fetch_add(1, Ordering::Relaxed) >= CHANGES_MAX {
            self.changes.fetch_sub(1, Ordering::Relaxed);
            return Err(format!("{CHANGES_MAX} changes wait for this node"));
        }
        self.send(Reply { id, answer: Ok(changes) });
        Ok(())
    }

    fn end_watch(&self, id: u64, why: String) {
        self.send(Reply { id, answer: Err(StoreError::WatchEnded(why)) });
    }
}

/// Kind of a request that waits for its last answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Revoke,
    Watch,
    Other,
}

/// etcd.
///
/// At its end, it waits for the revocations of leases that were submitted before, for 2 s at most.
pub struct EtcdStore {
    /// `None` at the end.
    requests: Option<tasks::Sender<Request>>,
    answers: mpsc::Receiver<Reply>,
    changes: Arc<AtomicUsize>,
    /// Requests without a last answer.
    waiting: HashMap<u64, Kind>,
    /// Answers that this side makes itself.
    own: VecDeque<Reply>,
}

impl EtcdStore {
    /// Starts the thread. It connects when there is a request. `wake` is called for each answer.
    ///
    /// # Errors
    /// An endpoint or a certificate is unusable, or the thread cannot start.
    pub fn start(settings: EtcdSettings, wake: impl Fn() + Send + Sync + 'static) -> io::Result<EtcdStore> {
        let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
        // Channels are created within the runtime; here only errors of the settings are found.
        connection::endpoints(&settings).map_err(invalid)?;
        let (requests, received) = tasks::channel(REQUESTS_MAX);
        let (sender, answers) = mpsc::channel();
        let changes = Arc::new(AtomicUsize::new(0));
        let answers_to = Answers { sender, changes: Arc::clone(&changes), wake: Arc::new(wake) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let body = move || runtime.block_on(serve(settings, received, answers_to));
        std::thread::Builder::new().name("etcd".into()).spawn(body)?;
        Ok(EtcdStore::new(requests, answers, changes))
    }

    fn new(
        requests: tasks::Sender<Request>,
        answers: mpsc::Receiver<Reply>,
        changes: Arc<AtomicUsize>,
    ) -> EtcdStore {
        let (waiting, own) = (HashMap::new(), VecDeque::new());
        EtcdStore { requests: Some(requests), answers, changes, waiting, own }
    }

    /// Takes a request over.
    fn accept(&mut self, request: Request) -> Result<(), StoreError> {
        let kind = match &request.call {
            Call::Revoke(_) => Kind::Revoke,
            Call::Watch { .. } => Kind::Watch,
            _ => Kind::Other,
        };
        if self.waiting.len() >= REQUESTS_MAX {
            return Err(StoreError::Busy);
        }
        let id = request.id;
        let requests = self.requests.as_ref().ok_or(StoreError::Ended)?;
        requests.try_send(request).map_err(|error| match error {
            tasks::error::TrySendError::Full(_) => StoreError::Busy,
            tasks::error::TrySendError::Closed(_) => StoreError::Ended,
        })?;
        self.waiting.insert(id, kind);
        Ok(())
    }

    /// Returns an answer for a request that the thread has left behind at its end.
    fn left_behind(&mut self) -> Option<Reply> {
        let id = *self.waiting.keys().next()?;
        let why = StoreError::Ended.to_string();
        let error = match self.waiting.remove(&id)? {
            Kind::Watch => StoreError::WatchEnded(why),
            Kind::Revoke | Kind::Other => StoreError::Unknown(why),
        };
        Some(Reply { id, answer: Err(error) })
    }
}

impl Store for EtcdStore {
    fn submit(&mut self, request: Request) {
        let id = request.id;
        if let Err(error) = self.accept(request) {
            self.own.push_back(Reply { id, answer: Err(error) });
        }
    }

    fn poll(&mut self) -> Option<Reply> {
        if let Some(own) = self.own.pop_front() {
            return Some(own);
        }
        match self.answers.try_recv() {
            Ok(reply) => {
                if matches!(reply.answer, Ok(Answer::Changes(..))) {
                    self.changes.fetch_sub(1, Ordering::Relaxed);
                } else {
                    self.waiting.remove(&reply.id);
                }
                Some(reply)
            }
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => self.left_behind(),
        }
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        self.requests = None;
        if !self.waiting.values().any(|kind| *kind == Kind::Revoke) {
            return;
        }
        // The thread ends when they are done. A little longer than its own limit.
        let end = Instant::now() + REVOKE_MAX + Duration::from_millis(100);
        while self.answers.recv_timeout(end.saturating_duration_since(Instant::now())).is_ok() {}
    }
}

/// Begins each request, until the caller is gone, and finishes the revocations.
async fn serve(settings: EtcdSettings, mut requests: tasks::Receiver<Request>, answers: Answers) {
    let Ok(connections) = Connections::new(settings).map(Arc::new) else { return };
    let mut watch: Option<(u64, JoinHandle<()>)> = None;
    let mut revocations: Vec<JoinHandle<()>> = Vec::new();
    while let Some(Request { id, call }) = requests.recv().await {
        let (connections, to) = (Arc::clone(&connections), answers.clone());
        match call {
            Call::Watch { prefix, from } => {
                if let Some((previous, task)) = watch.take()
                    && !task.is_finished()
                {
                    task.abort();
                    answers.end_watch(previous, "another one has begun".to_owned());
                }
                let tell = async move {
                    let tell = |changes| to.send_changes(id, changes);
                    let why = calls::watch(&connections, (&prefix, from), tell).await;
                    to.end_watch(id, why);
                };
                watch = Some((id, tokio::spawn(tell)));
            }
            call => {
                let is_revocation = matches!(call, Call::Revoke(_));
                let task = tokio::spawn(async move {
                    let answer = calls::call(&connections, call).await;
                    to.send(Reply { id, answer });
                });
                if is_revocation {
                    revocations.retain(|task| !task.is_finished());
                    revocations.push(task);
                }
            }
        }
    }
    let all = async {
        for task in revocations {
            drop(task.await);
        }
    };
    // Those that are not done by then end with their leases.
    drop(tokio::time::timeout(REVOKE_MAX, all).await);
}

#[cfg(test)]
mod tests;
