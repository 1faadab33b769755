//! The daemon: devices, workers, signals. What it does to packets is the engine's matter.
//!
//! [`run`] goes through the stages of `stages/`, each of which consumes the one before.
#![forbid(unsafe_code)]

mod by_instance;
mod collectors;
mod config_file;
mod connector;
mod control;
mod counters;
#[cfg(feature = "dpdk")]
mod dpdk;
#[cfg(any(feature = "xdp", feature = "dpdk"))]
mod ethernet;
mod event_file;
mod event_log;
mod event_sinks;
mod live_ports;
pub mod log_queries;
mod log_store;
mod memory;
mod net_helper;
mod notify;
mod output;
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
use gatun_config::{EventSink, Export, Log, MappingFile, StateDir};
use gatun_nat::{EventKinds, Plan};
use gatun_worker::Snapshot;
use rustix::rand::{GetRandomFlags, getrandom};
use signals::Signal;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

pub use control::ControlSettings;
pub use event_sinks::difference::{Changes, SinkSettings};
pub use memory::{LARGE, Needs, by_pages};
pub use net_helper::{is_network_helper, serve_as_network_helper};
pub use output::print_bytes;
#[cfg(feature = "dpdk")]
pub use port_settings::DpdkPorts;
pub use port_settings::PortSettings;
#[cfg(feature = "xdp")]
pub use port_settings::XdpPorts;
pub use privileges::User;
pub use reload::maps::mapping;
pub use sandbox::serve_page_only;

/// Longest time that a worker may take to answer between two bursts.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Settings of the daemon, from a configuration.
#[derive(Clone)]
pub struct Settings {
    /// For all engines together.
    pub plan: Plan,
    /// Destination of JSON events.
    pub events: Option<EventSink>,
    /// Kinds of JSON events.
    pub json_kinds: EventKinds,
    /// Whether with the remote ends of sessions.
    pub json_destinations: bool,
    /// Collectors of events.
    pub exports: Vec<Export>,
    /// The log of who had which port when.
    pub log: Option<Log>,
    /// Ports.
    pub ports: PortSettings,
    /// Processors of the workers, one for each; none: as the backend has it.
    pub cores: Vec<u16>,
    /// API and metrics.
    pub control: ControlSettings,
    /// Directory of saved sessions.
    pub state: StateDir,
    /// Files of mappings that were read.
    pub mapping_files: Vec<MappingFile>,
    /// Memory and disk space when all is full.
    pub costs: Costs,
    /// Its memory, by table.
    pub needs: Needs,
}

/// Memory and disk space of a configuration when all is full.
#[derive(Clone, Copy, Debug, Default)]
pub struct Costs {
    /// All memory.
    pub memory_bytes: u64,
    /// 0 without a log.
    pub log_bytes_a_day: u64,
    /// 0 without JSON lines.
    pub events_bytes_a_day: u64,
}

/// Source of a configuration.
pub enum Source<'t> {
    /// The file.
    File,
    /// Text that is to become the file.
    Text(&'t str),
    /// A text, as if a file of mappings that it names had another text.
    WithMappings(&'t str, &'t Path, &'t str),
}

/// A configuration that was read.
pub struct Read {
    /// Its settings; none if it has errors.
    pub settings: Option<Settings>,
    /// Errors and warnings.
    pub problems: Vec<ConfigProblem>,
}

/// Reads a configuration.
pub type Reader = Box<dyn Fn(Source<'_>) -> Read + Send>;

/// Looks at this machine, and gives lines for the log.
pub type Look = Box<dyn FnOnce() -> Vec<String> + Send>;

/// Arguments of [`run`].
pub struct Setup {
    /// Settings from the configuration.
    pub settings: Settings,
    /// Its file.
    pub file: PathBuf,
    /// Reads it again, or another one.
    pub read: Reader,
    /// User to switch to once the devices are open.
    pub user: Option<User>,
    /// Whether to begin without the sessions of the process before.
    pub forget: bool,
    /// Whether it gives up all it does not need.
    pub sandboxed: bool,
    /// Looks at what on this machine keeps packets from being translated, once the devices are open.
    pub look: Look,
    /// When the process began, for the figure in the log.
    pub started: Instant,
}

/// Event for the main thread.
enum Event {
    Signal(Signal),
    /// Something about a device or an interface, for the log.
    Line(String),
    /// The same, about something that has failed.
    Failure(String),
    /// The kernel gives no more notices of interfaces.
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
/// Reason why the daemon did not start.
pub fn run(setup: Setup) -> anyhow::Result<ExitCode> {
    stages::run(setup)
}

fn translating(workers: usize) -> String {
    format!("translating with {workers} worker{}", if workers == 1 { "" } else { "s" })
}

/// Hash and port keys that nobody can guess.
fn seed() -> anyhow::Result<[u64; 4]> {
    let mut bytes = [0u8; 32];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty()).context("no random numbers for the seed")?;
    if filled != bytes.len() {
        bail!("no random numbers for the seed");
    }
    let (words, _) = bytes.as_chunks::<8>();
    Ok(std::array::from_fn(|i| words.get(i).map_or(0, |w| u64::from_ne_bytes(*w))))
}
