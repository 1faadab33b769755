//! What a running Gatun tells of itself, and lets itself be told: HTTP/JSON on a Unix socket, metrics for Prometheus.
//!
//! ```text
//!   listen     sockets, made while the daemon still may
//!   http       requests, one thread for all of them: bounded in size and time
//!   connections, patient     bounded in number, and in the time they may do nothing
//!   gate       who comes in over TCP (secure: TLS; tokens: who may what; pace: how often)
//!   answers    what a request asks for (gatun_api::paths), from workers to JSON
//!   history    the last hour
//!   explain    what would become of a packet (flow makes one, rules are the RFCs')
//!   ask        questions to workers; nobody waits for packets, and no packet for a question
//!   configure  another configuration, planned, applied, confirmed, undone
//!   maps       mappings of the configuration
//!   past       who had a port at a time, by the log
//!   events     what happens to state, as it happens
//!   trace      packets as they pass
//!   tell       the engine's words in the API's types
//!   troubles   what needs attention
//!   metrics    the same counters by stable names
//! ```
#![forbid(unsafe_code)]

mod answers;
mod ask;
mod census;
mod cleared;
pub mod configure;
mod connections;
mod drain;
mod events;
mod explain;
mod filter;
mod flow;
mod gate;
pub mod history;
mod http;
mod level;
pub mod listen;
mod lists;
mod maps;
pub mod metrics;
mod pace;
mod past;
mod patient;
mod rules;
pub mod secure;
mod tell;
pub mod tokens;
mod top;
mod trace;
mod troubles;

pub use events::EventTap;
pub use gate::{Gate, Turned};
use gatun_api::types;
use gatun_worker::Handle;
pub use level::Level;
pub use past::{Auditor, PastQuestion, PastReply};
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};
pub use tell::protocol;
use tokio::sync::Semaphore;

/// What changes with the configuration.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The configuration that runs; when it goes back by itself is in `unconfirmed`.
    pub config: types::Config,
    /// Where it goes back to another one by itself: when, and to which revision.
    pub unconfirmed: Option<(Instant, String)>,
    /// Its ports.
    pub ports: Vec<types::Port>,
    /// What of a packet chooses each instance, which is known by its kind and name.
    pub choices: Vec<(types::Kind, String, types::Choice)>,
    /// Pages that the daemon's memory lies on.
    pub pages: types::TablePages,
    /// Sessions there may be.
    pub sessions_max: u64,
    /// Subscribers there may be.
    pub subscribers_max: u64,
}

/// The same, for whoever changes it and whoever tells of it.
#[derive(Clone)]
pub struct SharedFacts(Arc<RwLock<Arc<Facts>>>);

impl SharedFacts {
    /// These, until others are set.
    pub fn new(facts: Facts) -> SharedFacts {
        SharedFacts(Arc::new(RwLock::new(Arc::new(facts))))
    }

    /// Others from now on.
    pub fn set(&self, facts: Facts) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(facts);
    }

    fn get(&self) -> Arc<Facts> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What became of events that were to be logged or sent to collectors.
#[derive(Clone, Debug, Default)]
pub struct LogFigures {
    /// By collector.
    pub exports: Vec<ExportFigures>,
    /// Of the log on disk, where there is one.
    pub store: Option<StoreFigures>,
}

/// A collector's.
#[derive(Clone, Debug, Default)]
pub struct ExportFigures {
    /// Its name.
    pub name: String,
    /// Events given to the transport.
    pub sent: u64,
    /// Events lost.
    pub lost: u64,
    /// Events that wait in memory.
    pub waiting: u64,
    /// Bytes in its spool.
    pub spooled_bytes: u64,
    /// Whether it took the last message.
    pub is_connected: bool,
}

/// The log's.
#[derive(Clone, Debug, Default)]
pub struct StoreFigures {
    /// Records on disk.
    pub records: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// Events lost before they could be written.
    pub lost: u64,
    /// Records that wait.
    pub waiting: u64,
    /// Whether it could be written at the last attempt.
    pub is_well: bool,
    /// Why it cannot be written, once an attempt has failed.
    pub error: Option<String>,
}

/// What is served.
pub struct Setup {
    /// The daemon's version.
    pub version: &'static str,
    /// What it was told to do.
    pub facts: SharedFacts,
    /// Who does it.
    pub workers: Vec<Handle>,
    /// What keeps the process from what it does not need.
    pub sandbox: types::Sandbox,
    /// Where events come from, where any are made.
    pub events: Option<EventTap>,
    /// Who reads the log, if one is kept.
    pub auditor: Option<Auditor>,
    /// Who changes the configuration, where that can be done.
    pub configure: Option<configure::Desk>,
    /// How long clients may take.
    pub patience: Patience,
    /// Time between two points of the history.
    pub history_every: Duration,
    /// Who comes in over TCP, where anybody does.
    pub gate: Option<Arc<Gate>>,
    /// What became of events.
    pub figures: Box<dyn Fn() -> LogFigures + Send + Sync>,
    /// What needs attention beside workers, log and collectors.
    pub troubles: Box<dyn Fn() -> Vec<types::Trouble> + Send + Sync>,
    /// How much is logged: with `debug`, each request.
    pub level: Level,
    /// Where a line about what was ended goes.
    pub log: Box<dyn Fn(&str) + Send + Sync>,
}

/// How long clients may take.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For the head of a request, and for its body.
    pub request: Duration,
    /// Between requests, and to take some of an answer.
    pub idle: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience { request: Duration::from_secs(10), idle: Duration::from_secs(30) }
    }
}

/// Where it is served.
#[derive(Default)]
pub struct Listeners {
    /// Everything.
    pub api: Option<UnixListener>,
    /// Everything, under TLS, for those with a token; nobody, where the set-up has no gate.
    pub tls: Vec<TcpListener>,
    /// Metrics alone.
    pub metrics: Option<TcpListener>,
}

/// What all requests share.
pub(crate) struct Control {
    setup: Setup,
    began: Instant,
    history: history::History,
    cleared: cleared::ClearedLog,
    /// Room for requests with long bodies.
    long_bodies: Semaphore,
}

/// Serves from now on, in a thread of its own, until the process ends.
///
/// # Errors
/// Where there can be no thread, or a socket is unusable.
pub fn start(listeners: Listeners, setup: Setup) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let history = history::History::new(setup.history_every);
    let control = Arc::new(Control {
        setup,
        history,
        began: Instant::now(),
        cleared: cleared::ClearedLog::default(),
        long_bodies: Semaphore::new(configure::BODIES_MAX),
    });
    let doors = {
        let _entered = runtime.enter();
        let tcp = |listener: TcpListener| {
            listener.set_nonblocking(true)?;
            tokio::net::TcpListener::from_std(listener)
        };
        let api = listeners.api.map(|listener| {
            listener.set_nonblocking(true)?;
            tokio::net::UnixListener::from_std(listener)
        });
        let tls = listeners.tls.into_iter().map(tcp).collect::<io::Result<_>>()?;
        http::Doors { api: api.transpose()?, tls, metrics: listeners.metrics.map(tcp).transpose()? }
    };
    let body = move || runtime.block_on(http::serve(doors, control));
    std::thread::Builder::new().name("api".into()).spawn(body)?;
    Ok(())
}
