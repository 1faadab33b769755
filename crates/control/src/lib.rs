//! HTTP API of a running daemon on a Unix socket and under TLS, and metrics for Prometheus.
//!
//! ```text
//!   listen             sockets, opened before privileges are dropped
//!   http               requests of all clients on one thread, bounded in size and time
//!   connections, idle_timeout   bounded number of connections, and the time they may be idle
//!   remote_access      clients over TCP (secure: TLS; tokens: roles; rate_limit: attempts)
//!   query, response    query strings of requests, and responses before they are HTTP's
//!   answers            dispatch of requests (gatun_api::paths) to workers, answers as JSON
//!   config_requests    requests about the configuration and mappings, as orders (configure)
//!   history            points of the last hour
//!   explain            prediction for a packet (flow builds it, rules cites the RFCs)
//!   worker_requests    jobs for workers, done between bursts
//!   maps               list of mappings
//!   audit              questions to the log of port owners
//!   events, trace      streams of events and of traced packets
//!   conversion         types of the engine to types of the API
//!   troubles           conditions that need attention
//!   metrics            the counters by stable names
//! ```
#![forbid(unsafe_code)]

mod answers;
mod audit;
mod cleared;
mod cluster;
mod config_requests;
pub mod configure;
mod connections;
mod conversion;
mod drain;
mod engine_counters;
mod events;
mod explain;
mod flow;
pub mod history;
mod http;
mod idle_timeout;
mod level;
pub mod listen;
mod lists;
mod maps;
pub mod metrics;
mod peer;
mod query;
mod rate_limit;
mod remote_access;
mod response;
mod rules;
pub mod secure;
mod subscriber_totals;
pub mod tokens;
mod top;
mod trace;
mod troubles;
mod worker_requests;

pub use audit::{AuditQuestion, AuditReply, Auditor};
pub use cluster::{
    ClusterConfigOrder, ClusterConfigRequest, ClusterControl, NodeOrder, NodeRequest, RevisionList,
};
pub use conversion::protocol;
pub use events::EventTap;
use gatun_api::types;
use gatun_worker::Handle;
pub use level::Level;
pub use peer::{PeerControl, PeerRequest};
pub use remote_access::{ClientRefusal, RemoteAccess};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Facts that change with the configuration.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The running configuration; the time of its rollback is in `unconfirmed`.
    pub config: types::Config,
    /// Time of an automatic rollback, and its revision.
    pub unconfirmed: Option<(Instant, String)>,
    /// Its ports.
    pub ports: Vec<types::Port>,
    /// Criteria that choose each instance, by the kind and name of the instance.
    pub selectors: Vec<(types::Kind, String, types::Selectors)>,
    /// Page sizes of the daemon's memory.
    pub pages: types::TablePages,
    /// Session limit.
    pub sessions_max: u64,
    /// Subscriber limit.
    pub subscribers_max: u64,
    /// Holders of public ports by the configuration alone.
    pub planned: PlannedHolders,
}

/// Holders of a public port by the configuration alone, and the reasons why there may be one if there are
/// none.
pub type Planned = (Vec<types::Holder>, Vec<String>);

/// Look-up of the holders that the configuration alone determines.
#[derive(Clone)]
pub struct PlannedHolders(Arc<LookUpPlanned>);

type LookUpPlanned = dyn Fn(Ipv4Addr, u16, Option<types::Protocol>) -> Planned + Send + Sync;

impl PlannedHolders {
    /// Creates a look-up by public address, port and protocol.
    pub fn new(
        look_up: impl Fn(Ipv4Addr, u16, Option<types::Protocol>) -> Planned + Send + Sync + 'static,
    ) -> PlannedHolders {
        PlannedHolders(Arc::new(look_up))
    }

    pub(crate) fn of(&self, address: Ipv4Addr, port: u16, protocol: Option<types::Protocol>) -> Planned {
        (self.0)(address, port, protocol)
    }
}

impl Default for PlannedHolders {
    fn default() -> Self {
        PlannedHolders::new(|_, _, _| Planned::default())
    }
}

impl std::fmt::Debug for PlannedHolders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PlannedHolders")
    }
}

/// Shared [`Facts`].
#[derive(Clone)]
pub struct SharedFacts(Arc<RwLock<Arc<Facts>>>);

impl SharedFacts {
    /// Creates shared facts.
    pub fn new(facts: Facts) -> SharedFacts {
        SharedFacts(Arc::new(RwLock::new(Arc::new(facts))))
    }

    /// Replaces the facts.
    pub fn set(&self, facts: Facts) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(facts);
    }

    /// Returns the present facts.
    pub fn get(&self) -> Arc<Facts> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Figures of event sinks.
#[derive(Clone, Debug, Default)]
pub struct LogFigures {
    /// Figures of each collector.
    pub exports: Vec<ExportFigures>,
    /// Figures of the log on disk, if one is kept.
    pub store: Option<StoreFigures>,
}

/// Figures of a collector.
#[derive(Clone, Debug, Default)]
pub struct ExportFigures {
    /// Name of the collector.
    pub name: String,
    /// Events given to the transport.
    pub sent: u64,
    /// Events lost.
    pub lost: u64,
    /// Events that wait in memory.
    pub waiting: u64,
    /// Bytes in its spool.
    pub spooled_bytes: u64,
    /// True if the collector took the last message.
    pub is_connected: bool,
}

/// Figures of the log on disk.
#[derive(Clone, Debug, Default)]
pub struct StoreFigures {
    /// Records on disk.
    pub records: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// Events lost before they could be written.
    pub lost: u64,
    /// Records that wait to be written.
    pub waiting: u64,
    /// True if the last attempt to write succeeded.
    pub is_writable: bool,
    /// Error of the last attempt to write it.
    pub error: Option<String>,
}

/// Everything that the API needs from the daemon.
pub struct Setup {
    /// The daemon's version.
    pub version: &'static str,
    /// Facts of the configuration.
    pub facts: SharedFacts,
    /// Workers.
    pub workers: Vec<Handle>,
    /// State of the sandbox.
    pub sandbox: types::Sandbox,
    /// Source of events, if any are made.
    pub events: Option<EventTap>,
    /// Reader of the log, if one is kept.
    pub auditor: Option<Auditor>,
    /// Receiver of orders about the configuration, if it can be changed.
    pub configure: Option<configure::ConfigOrders>,
    /// Timeouts of clients.
    pub patience: ClientTimeouts,
    /// Time between two points of the history.
    pub history_every: Duration,
    /// Access over TCP, if it is configured.
    pub remote_access: Option<Arc<RemoteAccess>>,
    /// Figures of event sinks.
    pub figures: Box<dyn Fn() -> LogFigures + Send + Sync>,
    /// State of the kernel fast path.
    pub fastpath: Box<dyn Fn() -> types::FastPath + Send + Sync>,
    /// State of the P4 switches.
    pub offload: Box<dyn Fn() -> types::Offload + Send + Sync>,
    /// Health, and announced routes.
    pub health: Box<dyn Fn() -> types::Health + Send + Sync>,
    /// The other box of a pair.
    pub peer: PeerControl,
    /// Nodes of a cluster.
    pub cluster: ClusterControl,
    /// Declares a P4 switch gone, or says why not. It may take seconds.
    pub switch_gone: SwitchGone,
    /// Says what translates packets outside the engines. It may take seconds.
    pub translator_of: TranslatorOf,
    /// Leaves sessions that match to the engines while a packet trace runs; `None`: the trace has ended.
    pub traced_sessions: TracedSessions,
    /// Troubles beside workers, log and collectors.
    pub troubles: Box<dyn Fn() -> Vec<types::Trouble> + Send + Sync>,
    /// Log level; with `debug`, each request is logged.
    pub level: Level,
    /// Writes a line to the log.
    pub log: Box<dyn Fn(&str) + Send + Sync>,
}

/// Declares a switch gone, by its name.
pub type SwitchGone = Box<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// Translation of a packet, by the state or the instance that it needs.
pub enum PacketTranslation {
    /// By a session.
    Session(types::Session),
    /// By a stateless instance.
    Stateless(types::Name),
}

/// Says what translates packets outside the engines, such as "the kernel translates its packets". `None`: the
/// engines alone translate them.
pub type TranslatorOf = Box<dyn Fn(&PacketTranslation) -> Option<String> + Send + Sync>;

/// Filter of sessions.
pub type SessionFilter = Box<dyn Fn(&gatun_nat::feed::Flow) -> bool + Send + Sync>;

/// Leaves sessions and stateless instances to the engines, and returns what translated their packets before.
pub type TracedSessions = Box<dyn Fn(Option<SessionFilter>) -> EarlierTranslator + Send + Sync>;

/// Says what translated packets until a trace began. `None`: the engine.
pub type EarlierTranslator = std::sync::Arc<dyn Fn(&PacketTranslation) -> Option<String> + Send + Sync>;

/// Timeouts of clients.
#[derive(Clone, Copy, Debug)]
pub struct ClientTimeouts {
    /// Time to send the head of a request, and again for its body.
    pub request: Duration,
    /// Time between requests, and to read a part of an answer.
    pub idle: Duration,
}

impl Default for ClientTimeouts {
    fn default() -> Self {
        ClientTimeouts { request: Duration::from_secs(10), idle: Duration::from_secs(30) }
    }
}

/// Listening sockets.
#[derive(Default)]
pub struct Listeners {
    /// Unix socket for everything.
    pub api: Option<UnixListener>,
    /// TCP sockets for everything, under TLS, with a token. Nobody is served if `remote_access` is missing.
    pub tls: Vec<TcpListener>,
    /// TCP socket for metrics alone.
    pub metrics: Option<TcpListener>,
}

/// State that all requests share.
pub(crate) struct Control {
    setup: Setup,
    began: Instant,
    history: history::History,
    cleared: cleared::ClearedLog,
    /// Room for requests with long bodies.
    long_bodies: Semaphore,
}

/// Starts a thread that serves until the process ends.
///
/// # Errors
/// Returns an error if no thread can be started or a socket is unusable.
pub fn start(listeners: Listeners, setup: Setup) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let history = history::History::new(setup.history_every);
    let control = Arc::new(Control {
        setup,
        history,
        began: Instant::now(),
        cleared: cleared::ClearedLog::default(),
        long_bodies: Semaphore::new(configure::BODIES_LEN_MAX),
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
        http::AsyncListeners { api: api.transpose()?, tls, metrics: listeners.metrics.map(tcp).transpose()? }
    };
    let body = move || runtime.block_on(http::serve(doors, control));
    std::thread::Builder::new().name("api".into()).spawn(body)?;
    Ok(())
}
