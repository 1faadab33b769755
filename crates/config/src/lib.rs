//! Configuration file: from text to a valid plan.
//!
//! [`load_str`] reads one TOML text into a [`Config`]: a [`gatun_nat::Plan`] for the engine and the daemon's
//! own settings. It finds all errors in one pass and reports each with its place and a correction
//! ([`Report`]). `keys` lists every key once; the reader, the JSON schema and the reference page are
//! generated from that list.
//!
//! ```text
//!   text --toml--> tables with spans --reader, value--> sections --cross--> Config
//! ```
//! serde's derive stops at the first error, so it is not used: these reports list all.
#![forbid(unsafe_code)]

mod config;
mod consistency;
mod ethernet_host;
mod files;
mod keys;
mod manual;
mod mappings;
mod memory;
mod network;
mod problem;
mod reader;
mod reference;
mod routes;
mod schema;
mod sections;
mod session_share;
mod value;
#[cfg(test)]
mod wrong_keys_tests;

pub use config::Config;
pub use ethernet_host::{Device, host, switch_device};
pub use keys::{ExportFormat, HugePages, P4Program, PairMode, PeerMember};
pub use manual::manual_page;
pub use mappings::{EditError, Edited, Mapping, MappingChange, check_mapping, edit_mappings};
pub use memory::{Bytes, Memory, PoolSize};
pub use network::Network;
pub use problem::{Located, MappingFile, Report, Severity, Warnings};
pub use reference::reference_page;
pub use schema::json_schema;
pub use sections::announce::Announce;
pub use sections::api::{Api, ApiSocket, ApiTls};
pub use sections::cluster::{CLUSTER_DIRECTORY, Cluster, ClusterNode, node_certificate_name};
pub use sections::dpdk::Dpdk;
pub use sections::ethernet::{Answers, Driver, Ethernet, XdpMode};
pub use sections::events::EventSink;
pub use sections::export::{Export, ExportTarget};
pub use sections::fastpath::{FASTPATH_DIRECTORY, FastPath};
pub use sections::log::{LOG_DIRECTORY, Log};
pub use sections::offload::{Offload, OffloadMtus, P4ProgramSource, P4Switch, P4Tls, SWITCHES_MAX};
pub use sections::peer::{PEER_DIRECTORY, Peer};
pub use sections::port::{DeviceMode, Port, Routes};
pub use sections::state::StateDir;
pub use session_share::subscribers_that_fill;

use files::{Files, read};
use problem::Problems;
use std::path::Path;
use toml::Spanned;
use toml::de::DeTable;

/// Longest text whose syntax errors are all reported, bytes. A longer text that is no configuration may have
/// millions of errors, and each takes some hundred bytes.
const ALL_ERRORS_TEXT_LEN_MAX: usize = 1 << 20;

/// Longest text that is kept, bytes.
const KEPT_LEN_MAX: usize = 40 << 20;

/// Longest configuration that is parsed, bytes: a million mappings in a list, which take some 2 GB of memory
/// while parsing.
const PARSED_LEN_MAX: usize = 96 << 20;

/// Reads a configuration. `file_name` appears in messages, and `eam_file` is relative to its directory.
///
/// # Errors
/// Returns all errors, not only the first; for syntax errors of a text above 1 MiB only the first.
pub fn load_str(text: &str, file_name: &str) -> Result<(Config, Warnings), Report> {
    load(text, file_name, None)
}

/// Reads a configuration with another text in place of one of its mapping files.
///
/// # Errors
/// Returns the errors of [`load_str`].
pub fn load_str_with(
    text: &str,
    file_name: &str,
    (file, mappings): (&Path, &str),
) -> Result<(Config, Warnings), Report> {
    load(text, file_name, Some((file, mappings)))
}

fn load(text: &str, file_name: &str, replaced: Option<(&Path, &str)>) -> Result<(Config, Warnings), Report> {
    let mut problems = Problems::new(file_name, text);
    if text.len() > PARSED_LEN_MAX {
        let what = format!("the file has more than {}", Bytes(PARSED_LEN_MAX as u64));
        problems.error(
            0..0,
            what,
            "write the mappings to a file, one pair per line: `eam_file = \"eam.txt\"`",
        );
        return Err(problems.into_report());
    }
    let (root, syntax_errors) = parse(text);
    for error in &syntax_errors {
        let span = error.span().unwrap_or(0..0);
        let message = error.message().trim_end();
        let instead = match message {
            "duplicate key" => "write the key once",
            _ => "write `key = value` under a `[section]`; put strings in quotes",
        };
        problems.error(span, message, instead);
    }
    if !syntax_errors.is_empty() {
        // The parser's recovery may have dropped keys: their absence is no error.
        return Err(problems.into_report());
    }
    let files = Files { directory: Path::new(file_name).parent().unwrap_or(Path::new("")), replaced };
    let read = sections::read(root.get_ref(), &files, &mut problems);
    let mut config = consistency::assemble(read, &mut problems);
    if text.len() <= KEPT_LEN_MAX {
        config.text = text.to_owned();
    }
    config.revision = problems.revision(&config.mapping_files);
    problems.finish().map(|warnings| (config, warnings))
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

/// Reads a configuration file.
///
/// # Errors
/// Returns all errors, or one if the file cannot be read.
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
