//! The configuration file, from text to a plan that cannot be wrong.
//!
//! [`load_str`] reads one TOML text into a [`Config`]: a [`gatun_nat::Plan`] for the engine and the
//! daemon's own settings. Everything that is wrong is found in one go and reported with its place and
//! what to write instead ([`Report`]). `keys` lists every key once; the reader, the JSON schema
//! and the reference page are made from that list.
//!
//! ```text
//!   text --toml--> tables with spans --reader, value--> sections --cross--> Config
//! ```
//! serde's derive is not used: it stops at the first error, and these reports name all.
#![forbid(unsafe_code)]

mod cross;
mod eam_fast;
mod edit;
mod greedy;
mod keys;
mod manual;
mod memory;
mod problem;
mod reader;
mod reference;
mod schema;
mod sections;
mod value;
#[cfg(test)]
mod wrong_keys_tests;

pub use edit::{Mapping, NotEdited, add_mapping, remove_mapping};
pub use greedy::subscribers_that_fill;
pub use manual::manual_page;
pub use memory::{Bytes, Memory, PoolSize};
pub use problem::{Located, Report, Severity, Warnings};
pub use reference::reference_page;
pub use schema::json_schema;
pub use sections::api::{Api, ApiSocket, ApiTls};
pub use sections::dpdk::{Dpdk, HugePages};
pub use sections::ethernet::{Answers, Device, Driver, Ethernet, XdpMode, host};
pub use sections::events::EventSink;
pub use sections::export::{Export, ExportFormat, ExportTarget};
pub use sections::log::{LOG_DIRECTORY, Log};
pub use sections::port::{DeviceMode, Network, Port, Routes};
pub use sections::state::StateDir;

use gatun_nat::workers::Shares;
use gatun_nat::{EventKinds, Plan};
use problem::Problems;
use std::borrow::Cow;
use std::fs::File;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::DeTable;

/// Longest file that is read, bytes: some millions of mappings. A device such as /dev/zero has no end.
const FILE_LEN_MAX: u64 = 512 << 20;
/// Longest text whose syntax errors are all sought, bytes. Behind the first error of a longer one there may be
/// millions, where it is no configuration at all, and each takes some hundred bytes.
const ALL_ERRORS_TEXT_LEN_MAX: usize = 1 << 20;

/// Longest text that is kept, bytes.
const KEPT_LEN_MAX: usize = 40 << 20;

/// Longest text that the TOML parser is given, bytes, plain lists of mappings not counted: it takes up to a
/// hundred times as much memory. Some 100,000 static bindings.
const PARSED_LEN_MAX: usize = 8 << 20;

/// A configuration that holds together.
#[derive(Clone, Debug)]
pub struct Config {
    /// For the engine.
    pub plan: Plan,
    /// Where packets come from and go to; at least one.
    pub ports: Vec<Port>,
    /// Processors of the workers, one for each; none: as the backend has it.
    pub cores: Vec<u16>,
    /// DPDK's environment, for ports that are its devices.
    pub dpdk: Dpdk,
    /// Where events go, if they go anywhere.
    pub events: Option<EventSink>,
    /// Which of them: the plan's are those that anybody wants.
    pub json_kinds: EventKinds,
    /// Whether with the remote ends of sessions.
    pub json_destinations: bool,
    /// Collectors of events.
    pub exports: Vec<Export>,
    /// The log of who had which public port when, if one is kept.
    pub log: Option<Log>,
    /// Where the daemon is asked.
    pub api: Api,
    /// Where metrics are served on TCP, if they are.
    pub metrics: Option<SocketAddr>,
    /// Where sessions are kept for the next process.
    pub state: StateDir,
    /// Files that were read beside, as `eam_file` names them.
    pub beside: Vec<PathBuf>,
    /// What was read; nothing where that is longer than 40 MiB.
    pub text: String,
    /// SHA-256 of what was read, in hexadecimal: of the text, and of the files that it names.
    pub revision: String,
}

impl Config {
    /// The networks whose packets have to reach a port with `routes = "auto"`: translation prefixes,
    /// pools, the IPv4 side of mappings, and the translator's own addresses, each once.
    pub fn routes(&self) -> Vec<Network> {
        sections::port::auto_routes(&self.plan)
    }

    /// The IPv4 side of mappings of hosts that speak IPv4 to anywhere, through a prefix, as behind a CLAT (RFC 6877):
    /// neighbours joined.
    pub fn mapped_hosts(&self) -> Vec<gatun_nat::plan::Net4> {
        sections::port::mapped_hosts(&self.plan)
    }

    /// The interfaces under ports on an Ethernet, in the order of their numbers: several ports may share one.
    pub fn devices(&self) -> Vec<&str> {
        let mut devices: Vec<&str> = Vec::new();
        for port in self.ports.iter().filter(|port| port.ethernet.is_some()) {
            if !devices.contains(&&port.device[..]) {
                devices.push(&port.device);
            }
        }
        devices
    }

    /// The number of an interface under a port on an Ethernet.
    pub fn device_number(&self, device: &str) -> u8 {
        let number = self.devices().iter().position(|name| *name == device).unwrap_or(0);
        u8::try_from(number).unwrap_or(u8::MAX)
    }

    /// Workers that share what has state: one for each queue of the port, and one where it does not say.
    pub fn workers(&self) -> usize {
        self.ports.first().and_then(|port| port.queues).map_or(1, usize::from)
    }

    /// What one worker has of the plan: the first; the others have no more.
    pub fn plan_of_worker(&self) -> Cow<'_, Plan> {
        if !self.plan.is_stateful() || self.workers() == 1 {
            return Cow::Borrowed(&self.plan);
        }
        let shares = Shares::new(&self.plan, self.workers(), [0; 4]).ok();
        let first = shares.and_then(|shares| shares.plans.into_iter().next());
        first.map_or(Cow::Borrowed(&self.plan), Cow::Owned)
    }

    /// What the tables of a worker will take when they are full.
    pub fn memory(&self) -> Memory {
        Memory::of(&self.plan_of_worker())
    }
}

/// Reads a configuration; `file_name` is for messages, and the directory that `eam_file` starts from.
///
/// # Errors
/// Everything that is wrong, not only the first; of the syntax of a text above 1 MiB only the first. A text with
/// more than 8 MiB beside plain lists of mappings is refused.
pub fn load_str(text: &str, file_name: &str) -> Result<(Config, Warnings), Report> {
    let mut problems = Problems::new(file_name, text);
    let blanked = eam_fast::blank(text);
    if blanked.left > PARSED_LEN_MAX {
        refuse_length(&blanked, &mut problems);
        return Err(problems.into_report());
    }
    let (root, syntax_errors) = parse(&blanked.text);
    for error in &syntax_errors {
        let span = error.span().unwrap_or(0..0);
        let message = error.message().trim_end();
        let instead = match message {
            "duplicate key" => "write the key once",
            _ => "write `key = value` under a `[section]`; strings stand in quotes",
        };
        problems.error(span, message, instead);
    }
    if !syntax_errors.is_empty() {
        // What was recovered may be missing keys that were written: their absence is no error.
        return Err(problems.into_report());
    }
    let directory = Path::new(file_name).parent().unwrap_or(Path::new(""));
    let read = sections::read(root.get_ref(), &blanked.lists, directory, &mut problems);
    let mut config = cross::assemble(read, &mut problems);
    if text.len() <= KEPT_LEN_MAX {
        config.text = text.to_owned();
    }
    config.revision = problems.revision();
    problems.finish().map(|warnings| (config, warnings))
}

/// Says what makes the text too long to be parsed: most often one entry in a long list.
fn refuse_length(blanked: &eam_fast::Blanked<'_>, problems: &mut Problems) {
    const PLAIN: &str = "write each mapping as `{ v4 = \"203.0.113.5\", v6 = \"2001:db8::5\" }`, or all of them in a file of their own, a pair a line: `eam_file = \"eam.txt\"`";
    let mut at = 0..0;
    if let Some(stop) = &blanked.stop {
        at = stop.at.clone();
        if let Some((key, wrong)) = &stop.wrong {
            let instead = wrong.instead.clone().unwrap_or_default();
            problems.error(at.clone(), format!("`{key}`: {}", wrong.what), instead);
        }
    }
    let what = match blanked.stop {
        Some(_) => format!(
            "with this entry the list is not a plain one, so {} are left to parse: more than {} are refused",
            Bytes(blanked.left as u64),
            Bytes(PARSED_LEN_MAX as u64)
        ),
        None => format!(
            "the file has {} beside plain lists of mappings: more than {} are refused",
            Bytes(blanked.left as u64),
            Bytes(PARSED_LEN_MAX as u64)
        ),
    };
    problems.error(at, what, PLAIN);
}

fn parse(text: &str) -> (Spanned<DeTable<'_>>, Vec<toml::de::Error>) {
    if text.len() <= ALL_ERRORS_TEXT_LEN_MAX {
        return DeTable::parse_recoverable(text);
    }
    match DeTable::parse(text) {
        Ok(root) => (root, Vec::new()),
        Err(error) => (Spanned::new(0..0, DeTable::new()), vec![error]),
    }
}

/// The bytes of a file, and no more than any configuration has.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_LEN_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_LEN_MAX {
        return Err(std::io::Error::other(format!("it is longer than {}", Bytes(FILE_LEN_MAX))));
    }
    Ok(bytes)
}

/// Reads a configuration file.
///
/// # Errors
/// Everything that is wrong, or that the file cannot be read.
pub fn load_file(path: &Path) -> Result<(Config, Warnings), Report> {
    let name = path.display().to_string();
    match read(path).map(String::from_utf8) {
        Ok(Ok(text)) => load_str(&text, &name),
        Ok(Err(error)) => {
            let valid = error.utf8_error().valid_up_to();
            let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
            Err(Report::single(
                &name,
                &text,
                valid..valid,
                "this byte is not UTF-8",
                "save the file as UTF-8",
            ))
        }
        Err(error) => {
            let what = format!("the file cannot be read: {error}");
            Err(Report::single(&name, "", 0..0, &what, "`gatun init` writes a configuration file"))
        }
    }
}
