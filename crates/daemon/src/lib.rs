//! The daemon: devices, workers and signals. The engine translates the packets.
//!
//! [`run`] executes the stages of `stages/`. Each consumes the previous one.
#![forbid(unsafe_code)]

mod boxes;
mod by_instance;
mod cluster;
mod collectors;
mod config_file;
mod connector;
mod control;
mod counters;
mod down_devices;
#[cfg(feature = "dpdk")]
mod dpdk;
#[cfg(any(feature = "xdp", feature = "dpdk"))]
mod ethernet;
mod event_file;
mod event_log;
mod event_sinks;
mod fastpath;
mod health;
mod killed;
mod live_ports;
pub mod log_queries;
mod log_store;
mod memory;
mod net_helper;
mod notify;
mod offload;
mod offload_orders;
mod output;
#[cfg(feature = "dpdk")]
mod p4;
#[cfg(not(feature = "dpdk"))]
#[path = "p4/absent.rs"]
mod p4;
mod peer;
mod port_settings;
mod ports;
mod privileges;
mod reload;
pub mod replace;
mod sandbox;
mod signals;
mod stages;
pub mod state;
pub mod tables;
pub mod takeover;
#[cfg(feature = "xdp")]
mod xdp;

use anyhow::{Context as _, bail};
use gatun_api::types::ConfigProblem;
use gatun_config::{Announce, EventSink, Export, FastPath, Log, MappingFile, Offload, Peer, StateDir};
use gatun_nat::{EventKinds, Plan};
use gatun_worker::Snapshot;
use rustix::rand::{GetRandomFlags, getrandom};
use signals::Signal;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use cluster::{ClusterSettings, restarts as cluster_restarts};
pub use control::ControlSettings;
pub use event_sinks::difference::{Changes, SinkSettings};
pub use fastpath::{changes as fastpath_changes, detach as detach_fastpath, restarts as fastpath_restarts};
pub use memory::{LARGE, MemoryNeeds, by_pages};
pub use net_helper::{is_network_helper, serve_as_network_helper};
pub use offload_orders::{changes as offload_changes, restarts as offload_restarts};
pub use output::print_bytes;
pub use peer::restarts as peer_restarts;
#[cfg(feature = "dpdk")]
pub use port_settings::DpdkPorts;
pub use port_settings::PortSettings;
#[cfg(feature = "xdp")]
pub use port_settings::XdpPorts;
#[cfg(any(feature = "xdp", feature = "dpdk"))]
pub use privileges::capabilities_of_xdp;
pub use privileges::{User, capabilities_of_fastpath};
pub use reload::maps::mapping;
pub use sandbox::serve_page_only;

/// Time limit for a worker's answer, which it gives between two bursts.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Settings of the daemon, from a configuration.
#[derive(Clone)]
pub struct Settings {
    /// Plan of all engines together.
    pub plan: Arc<Plan>,
    /// Destination of JSON events.
    pub events: Option<EventSink>,
    /// Kinds of JSON events.
    pub json_kinds: EventKinds,
    /// True to include the remote ends of sessions.
    pub json_destinations: bool,
    /// Collectors of events.
    pub exports: Vec<Export>,
    /// Log of port assignments.
    pub log: Option<Log>,
    /// Ports.
    pub ports: PortSettings,
    /// Processors of the workers, one for each. If it is empty, the backend chooses.
    pub cores: Vec<u16>,
    /// API and metrics.
    pub control: ControlSettings,
    /// Directory of saved sessions.
    pub state: StateDir,
    /// Kernel fast path.
    pub fastpath: FastPath,
    /// P4 switches.
    pub offload: Option<Offload>,
    /// Announced routes.
    pub announce: Option<Announce>,
    /// The other box of a pair.
    pub peer: Option<Peer>,
    /// Cluster that this box is a node of.
    pub cluster: Option<ClusterSettings>,
    /// Files of mappings that the configuration names.
    pub mapping_files: Vec<MappingFile>,
    /// Memory and disk space of a fully used daemon.
    pub costs: Costs,
    /// Memory by table.
    pub needs: MemoryNeeds,
}

impl Settings {
    /// Returns whether other boxes have the sessions of this one, too.
    pub(crate) fn has_other_boxes(&self) -> bool {
        self.peer.is_some() || self.cluster.is_some()
    }
}

/// Memory and disk space of a configuration if all tables are full.
#[derive(Clone, Copy, Debug, Default)]
pub struct Costs {
    /// Total memory.
    pub memory_bytes: u64,
    /// Disk space of the log per day; 0 without a log.
    pub log_bytes_a_day: u64,
    /// Disk space of JSON lines per day; 0 without them.
    pub events_bytes_a_day: u64,
}

/// Source of a configuration.
pub enum Source<'t> {
    /// The configuration file.
    File,
    /// Text that is to replace the file.
    Text(&'t str),
    /// Text, with another text for a file of mappings that it names.
    WithMappings(&'t str, &'t Path, &'t str),
}

/// Result of reading a configuration.
pub struct Read {
    /// Settings. `None` if the configuration has errors.
    pub settings: Option<Settings>,
    /// Errors and warnings.
    pub problems: Vec<ConfigProblem>,
}

/// Function that reads a configuration.
pub type Reader = Box<dyn Fn(Source<'_>) -> Read + Send>;

/// Function that examines this machine and returns lines for the log.
pub type HostCheck = Box<dyn FnOnce() -> Vec<String> + Send>;

/// Arguments of [`run`].
pub struct Setup {
    /// Settings from the configuration.
    pub settings: Settings,
    /// Configuration file.
    pub file: PathBuf,
    /// Reads a configuration.
    pub read: Reader,
    /// User to switch to once the devices are open.
    pub user: Option<User>,
    /// True to start without the previous process's sessions.
    pub forget: bool,
    /// True to enter the sandbox.
    pub sandboxed: bool,
    /// Examines, once the devices are open, if this machine keeps packets from being translated.
    pub look: HostCheck,
    /// Start of the process, for the time in the log.
    pub started: Instant,
}

/// Event for the main thread.
enum Event {
    Signal(Signal),
    /// Log line about a device or an interface.
    Line(String),
    /// Log line about a failure.
    Failure(String),
    /// The kernel's notifications about interfaces cannot be read.
    #[cfg(feature = "xdp")]
    LinksUnwatched(io::Error),
    WorkerEnded {
        worker: usize,
        last: Box<Snapshot>,
        error: Option<io::Error>,
    },
}

/// Runs until a signal or the loss of a device ends it.
///
/// # Errors
/// Returns an error if the daemon cannot start.
pub fn run(setup: Setup) -> anyhow::Result<ExitCode> {
    stages::run(setup)
}

fn translating(workers: usize) -> String {
    format!("translating with {workers} worker{}", if workers == 1 { "" } else { "s" })
}

/// Secret key for hashes and port selection.
fn seed() -> anyhow::Result<[u64; 4]> {
    let mut bytes = [0u8; 32];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty()).context("cannot get random numbers")?;
    if filled != bytes.len() {
        bail!("cannot get random numbers");
    }
    let (words, _) = bytes.as_chunks::<8>();
    Ok(std::array::from_fn(|i| words.get(i).map_or(0, |w| u64::from_ne_bytes(*w))))
}
