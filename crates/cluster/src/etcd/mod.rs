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

use crate::store::{Call, REQUESTS_MAX, Reply, Request, Store, StoreError};
use connection::Connections;
pub use connection::{EtcdSettings, EtcdTls};
use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use tokio::sync::mpsc as tasks;
use tokio::task::JoinHandle;

/// Answers on their way to the caller.
#[derive(Clone)]
struct Answers {
    sender: mpsc::Sender<Reply>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

impl Answers {
    /// Returns false if nobody waits any more.
    fn send(&self, response: Reply) -> bool {
        let is_sent = self.sender.send(response).is_ok();
        (self.wake)();
        is_sent
    }
}

/// etcd.
pub struct EtcdStore {
    requests: tasks::Sender<Request>,
    answers: mpsc::Receiver<Reply>,
    /// Answers that this side makes itself.
    own: Vec<Reply>,
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
        let answers_to = Answers { sender, wake: Arc::new(wake) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let body = move || runtime.block_on(serve(settings, received, answers_to));
        std::thread::Builder::new().name("etcd".into()).spawn(body)?;
        Ok(EtcdStore { requests, answers, own: Vec::new() })
    }
}

impl Store for EtcdStore {
    fn submit(&mut self, request: Request) {
        if let Err(refused) = self.requests.try_send(request) {
            let id = refused.into_inner().id;
            self.own.push(Reply { id, answer: Err(StoreError::Busy) });
        }
    }

    fn poll(&mut self) -> Option<Reply> {
        self.own.pop().or_else(|| self.answers.try_recv().ok())
    }
}

/// Begins each request, until the caller is gone.
async fn serve(settings: EtcdSettings, mut requests: tasks::Receiver<Request>, answers: Answers) {
    let Ok(connections) = Connections::new(settings).map(Arc::new) else { return };
    let mut watch: Option<JoinHandle<()>> = None;
    while let Some(Request { id, call }) = requests.recv().await {
        let (connections, answers) = (Arc::clone(&connections), answers.clone());
        match call {
            Call::Watch { prefix, from } => {
                if let Some(previous) = watch.take() {
                    previous.abort();
                }
                watch = Some(tokio::spawn(async move {
                    let why = calls::watch(&connections, (&prefix, from), |answer| {
                        answers.send(Reply { id, answer: Ok(answer) })
                    });
                    let error = StoreError::WatchEnded(why.await);
                    answers.send(Reply { id, answer: Err(error) });
                }));
            }
            call => {
                tokio::spawn(async move {
                    let answer = calls::call(&connections, call).await;
                    answers.send(Reply { id, answer });
                });
            }
        }
    }
}
