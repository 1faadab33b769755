//! Connections to switches over P4Runtime, in a thread of their own.
//!
//! Each connection has its own election ID, higher than that of the last one. So a switch refuses requests
//! of a connection that has ended, and a request that was on its way cannot undo what was read since.

mod session;
mod stateless_counts;
mod static_entries;
mod transport;

use crate::link::{Event, Link, Request, WriteError};
use crate::program::Limits;
use gatun_nat::counters::Count;
use gatun_p4runtime::p4::config::v1::P4Info;
use gatun_p4runtime::p4::v1::Uint128;
use session::Session;
use stateless_counts::StatelessCounts;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::watch;
use transport::TransportFault;

pub use crate::entry::{KeyField, StaticEntry};
pub use gatun_tls::Directory;
pub use transport::TlsConfig;

/// Messages that wait for the account, of each switch.
const EVENTS: usize = 64;
/// Requests that wait for a connection. The account sends at most three before an answer.
const REQUESTS: usize = 16;
/// Minimum and maximum time between two attempts to connect.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// Time of use after which a connection counts as good: the next attempt follows at once.
const GOOD: Duration = Duration::from_secs(10);

/// Program that a switch gets if it has none, or an earlier one of Gatun.
#[derive(Clone, Debug)]
pub struct Pipeline {
    /// Description.
    pub info: P4Info,
    /// Program in the form of the switch.
    pub device_config: Vec<u8>,
    /// True if it replaces another program, too.
    pub replaces: bool,
}

/// Settings of a connection.
#[derive(Clone, Debug)]
pub struct ConnectionConfig {
    /// Name of the switch.
    pub name: String,
    /// Address: `host:port`.
    pub address: String,
    /// Number of the device there.
    pub device_id: u64,
    /// High half of election IDs: another controller with a higher one is preferred.
    pub election: u64,
    /// Number of the first connection, the low half of its election ID. It has to be higher than those of
    /// earlier processes.
    pub first_connection: u64,
    /// Program to load. `None`: the switch has to have Gatun's program already.
    pub pipeline: Option<Arc<Pipeline>>,
    /// Limits that entries contain.
    pub limits: Limits,
    /// Packets per second that the switch gives to its controller for each reason. `None`: no limit.
    pub controller_limit: Option<u32>,
    /// Time after which a request without an answer ends the connection.
    pub timeout: Duration,
    /// TLS. `None`: plain TCP.
    pub tls: Option<TlsConfig>,
}

/// Entries that a switch is to have, and their number in the order in which they were set.
type WantedEntries = (u64, Arc<Vec<StaticEntry>>);

/// State of the tables other than those of flows.
#[derive(Clone, Debug, Default)]
struct StaticReport {
    /// Number of the last entries that the switch has all of.
    written: u64,
    /// Reason why the switch has no stateless instances.
    refusal: Option<String>,
    /// Packets of stateless instances by the number of the counter, since the start of the process.
    counts: Vec<Count>,
}

/// Reads the results of single changes from the details of a refused request. `None` if they are not as many
/// as the changes: the request was refused as a whole.
pub fn write_results(details: &[u8], changes: usize) -> Option<Vec<Result<(), WriteError>>> {
    session::results(details, changes)
}

/// Connection to a switch. It connects again by itself until it is dropped.
#[derive(Debug)]
pub struct Connection {
    requests: Sender<(u64, Request)>,
    events: Receiver<Event>,
    entries: watch::Sender<WantedEntries>,
    report: watch::Receiver<StaticReport>,
}

/// The other half of a connection.
struct Ends {
    requests: Receiver<(u64, Request)>,
    events: Sender<Event>,
    entries: watch::Receiver<WantedEntries>,
    report: watch::Sender<StaticReport>,
    counts: StatelessCounts,
}

impl Link for Connection {
    fn send(&mut self, connection: u64, request: Request) {
        // A full queue belongs to a connection that has ended: its end is on the way.
        let _ = self.requests.try_send((connection, request));
    }

    fn receive(&mut self) -> Option<Event> {
        self.events.try_recv().ok()
    }
}

impl Connection {
    /// Sets the entries of tables other than those of flows: interfaces, own addresses, routes, next hops,
    /// stateless instances. The switch gets the difference.
    pub fn set_entries(&self, entries: Vec<StaticEntry>) {
        self.entries.send_modify(|wanted| *wanted = (wanted.0 + 1, Arc::new(entries)));
    }

    /// Returns whether the switch has the entries that were last set, and no others.
    pub fn has_entries(&self) -> bool {
        self.report.borrow().written == self.entries.borrow().0
    }

    /// Reason why the switch has no stateless instances.
    pub fn stateless_refusal(&self) -> Option<String> {
        self.report.borrow().refusal.clone()
    }

    /// Packets that the switch has translated for stateless instances since the start of the process: of each
    /// instance those from IPv6, and those from IPv4.
    pub fn stateless_counts(&self) -> Vec<[Count; 2]> {
        let pair = |counts: &[Count]| [counts[0], counts.get(1).copied().unwrap_or_default()];
        self.report.borrow().counts.chunks(2).map(pair).collect()
    }
}

/// Starts a thread with a connection to each of these switches, which ends after all of them are dropped.
/// `prepare` runs in the thread first.
///
/// # Errors
/// Returns an error if the thread cannot start.
pub fn connect(
    switches: Vec<ConnectionConfig>,
    prepare: impl FnOnce() + Send + 'static,
) -> std::io::Result<Vec<(String, Connection)>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut connections, mut tasks) = (Vec::new(), Vec::new());
    for config in switches {
        let (requests, requested) = mpsc::channel(REQUESTS);
        let (events, happened) = mpsc::channel(EVENTS);
        let (entries, wanted) = watch::channel(WantedEntries::default());
        let (reports, report) = watch::channel(StaticReport::default());
        let name = config.name.clone();
        let connection = Connection { requests, events: happened, entries, report };
        connections.push((name, connection));
        let ends = Ends {
            requests: requested,
            events,
            entries: wanted,
            report: reports,
            counts: StatelessCounts::default(),
        };
        tasks.push(serve(config, ends));
    }
    std::thread::Builder::new().name("p4runtime".into()).spawn(move || {
        prepare();
        runtime.block_on(async {
            let mut running = tokio::task::JoinSet::new();
            tasks.into_iter().for_each(|task| drop(running.spawn(task)));
            while running.join_next().await.is_some() {}
        });
    })?;
    Ok(connections)
}

/// Connects again and again, until the other half is dropped.
async fn serve(config: ConnectionConfig, mut ends: Ends) {
    let (mut wait, mut number, mut floor) = (RETRY.0, config.first_connection, 0);
    while !ends.events.is_closed() {
        let (began, fault) = (Instant::now(), TransportFault::default());
        let opened = Session::open(&config, (number, &mut floor), (&mut ends, &fault)).await;
        let reason = match opened {
            Ok(mut session) => session.run(&mut ends).await,
            Err(reason) => reason,
        };
        let reason = fault.or(reason);
        if ends.events.send(Event::Down(reason)).await.is_err() {
            return;
        }
        number += 1;
        if began.elapsed() >= GOOD {
            wait = RETRY.0;
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(RETRY.1);
        // Requests on the connection that has ended.
        while ends.requests.try_recv().is_ok() {}
    }
}

impl ConnectionConfig {
    /// Election ID of a connection.
    fn election_id(&self, number: u64) -> Uint128 {
        Uint128 { high: self.election, low: number }
    }
}
