//! `[[export]]`: collectors of events.

use crate::keys::{self, ExportFormat};
use crate::problem::Problems;
use crate::reader::Table;
use crate::sections::{events, log};
use crate::value::{self, Invalid, Read};
use gatun_nat::EventKinds;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use toml::Spanned;
use toml::de::DeValue;

/// Default size of a spool, bytes.
const SPOOL_LEN_MAX: u64 = 1 << 30;

/// Address of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportTarget {
    /// Datagrams.
    Udp(SocketAddr),
    /// A connection.
    Tcp(SocketAddr),
    /// A Unix datagram socket.
    Unix(PathBuf),
}

/// A collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Name, for operators.
    pub name: String,
    /// Address.
    pub target: ExportTarget,
    /// Format of its events.
    pub format: ExportFormat,
    /// Kinds of events to export.
    pub kinds: EventKinds,
    /// True if session events contain the remote endpoint (RFC 6888 REQ-12).
    pub destinations: bool,
    /// The observation domain of IPFIX.
    pub domain: u32,
    /// Interval between IPFIX templates over UDP, milliseconds.
    pub templates_ms: u32,
    /// Most events that wait.
    pub queue_max: u32,
    /// Directory for events while the collector is unreachable, and its size limit, bytes.
    pub spool: Option<(PathBuf, u64)>,
}

/// The section; its name may be missing.
pub(crate) struct RawExport {
    pub(crate) name: Option<Spanned<String>>,
    pub(crate) span: std::ops::Range<usize>,
    pub(crate) export: Option<Export>,
}

pub(crate) fn read(table: &Table<'_>, problems: &mut Problems) -> RawExport {
    let name = table.node("name").and_then(|node| {
        let name = table.get("name", problems, value::name)?;
        Some(Spanned::new(node.span(), name))
    });
    let target = table.require("to", problems, target);
    let spool = table.get("spool", problems, log::directory);
    let len_max = table.get("spool_max", problems, value::size);
    if spool.is_some() && matches!(target, Some(ExportTarget::Udp(_))) {
        let what = "`spool`: UDP does not report losses, so nothing would be spooled";
        problems.error(table.span_of("spool"), what, "use `to = \"tcp:...\"`, or remove `spool`");
    }
    let format = table.get("format", problems, |v| value::choice(v, keys::EXPORT_FORMAT));
    let export = target.map(|target| Export {
        name: String::new(),
        target,
        format: format.unwrap_or(ExportFormat::Ipfix),
        kinds: events::kinds(table, problems),
        destinations: table.flag("destinations", problems).unwrap_or(false),
        domain: table.integer("domain", problems).unwrap_or(1),
        templates_ms: table.get("templates", problems, value::duration_ms).unwrap_or(300_000).max(1_000),
        queue_max: table.integer("queue", problems).unwrap_or(65_536),
        spool: spool.map(|directory| (directory, len_max.unwrap_or(SPOOL_LEN_MAX))),
    });
    RawExport { name, span: table.span.clone(), export }
}

fn target(v: &DeValue<'_>) -> Read<ExportTarget> {
    let text = value::text(v)?;
    let wrong = || {
        let what =
            format!("\"{}\" is not udp:ADDRESS:PORT, tcp:ADDRESS:PORT or unix:PATH", value::shorten(text));
        Invalid::new(what)
    };
    let address = |text: &str| {
        let address: Option<SocketAddr> = text.parse().ok();
        address.filter(|address| address.port() > 0).ok_or_else(wrong)
    };
    match text.split_once(':') {
        Some(("udp", rest)) => address(rest).map(ExportTarget::Udp),
        Some(("tcp", rest)) => address(rest).map(ExportTarget::Tcp),
        Some(("unix", path)) if path.starts_with('/') && !path.contains('\0') => {
            Ok(ExportTarget::Unix(path.into()))
        }
        _ => Err(wrong()),
    }
}

impl fmt::Display for ExportTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExportTarget::Udp(address) => write!(f, "udp:{address}"),
            ExportTarget::Tcp(address) => write!(f, "tcp:{address}"),
            ExportTarget::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
