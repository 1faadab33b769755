//! `[[offload]]`: translation of established sessions in P4 switches.

use crate::keys::{self, P4Program};
use crate::problem::Problems;
use crate::reader::Table;
use crate::sections::log;
use crate::value::{self, Invalid, Read};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::PathBuf;
use toml::Spanned;
use toml::de::DeValue;

/// Default of `controller_rate`, packets per second.
const CONTROLLER_RATE: u32 = 500_000;
/// Maximum number of switches.
pub const SWITCHES_MAX: usize = 4;

/// P4 switches that translate established sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offload {
    /// Name, for operators.
    pub name: String,
    /// The switches. All of them have the same sessions.
    pub switches: Vec<P4Switch>,
    /// Program that a switch gets if it has none.
    pub program: P4ProgramSource,
    /// True if it replaces a program of somebody else.
    pub replaces_program: bool,
    /// High half of election IDs.
    pub election: u32,
    /// TLS of the connections. `None`: plain TCP.
    pub tls: Option<P4Tls>,
    /// Time in ms after which a request without an answer ends a connection.
    pub timeout_ms: u32,
    /// Maximum number of sessions.
    pub sessions_max: u32,
    /// Number of packets after which a UDP session or a ping is given to the switches.
    pub udp_packets: u8,
    /// Number of packets after the second SYN after which a TCP session is given to the switches.
    pub tcp_packets: u8,
    /// True if the switches keep their sessions when the daemon is stopped.
    pub keeps_at_stop: bool,
    /// Stateful instances whose sessions stay with Gatun, by number: NAT64's first, then NAT44's.
    pub excluded: Vec<u8>,
    /// Stateless instances whose packets stay with Gatun, by number.
    pub excluded_siit: Vec<u8>,
    /// Packets per second that a switch gives to Gatun for each reason. `None`: no limit.
    pub controller_rate: Option<u32>,
    /// Largest packets that the switches send.
    pub mtus: OffloadMtus,
    /// Constant TOS byte and traffic class of each NAT64 instance. `None`: the one of the packet.
    pub tos: Vec<[Option<u8>; 2]>,
}

/// A P4 switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct P4Switch {
    /// Name, for operators and for `switch` of a port.
    pub name: String,
    /// Address of its P4Runtime server.
    pub address: SocketAddr,
    /// Number of the device there.
    pub device_id: u64,
}

/// TLS of connections to switches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct P4Tls {
    /// Directory of the certificates.
    pub directory: PathBuf,
    /// Name in the certificates of switches. `None`: the address.
    pub server_name: Option<String>,
}

/// Program for switches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum P4ProgramSource {
    /// Gatun's own, for a kind of switch.
    Own(P4Program),
    /// Files: description and program in the form of the switch.
    Files {
        /// Description (p4info) in protobuf's text form.
        p4info: PathBuf,
        /// Program.
        program: PathBuf,
    },
}

/// Largest packets that switches send: the smallest limits of all instances, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadMtus {
    /// IPv4 packets.
    pub mtu4: u32,
    /// IPv6 packets.
    pub mtu6: u32,
    /// IPv6 packets made from IPv4 packets without DF.
    pub mtu6_without_df: u32,
}

impl Offload {
    /// The settings without those that a running daemon can change. If two are equal in this form, replacing
    /// one by the other needs no restart.
    pub fn fixed(&self) -> Offload {
        Offload {
            name: String::new(),
            sessions_max: 0,
            keeps_at_stop: false,
            excluded: Vec::new(),
            excluded_siit: Vec::new(),
            tos: Vec::new(),
            ..self.clone()
        }
    }
}

/// The section as in the file, and its place.
pub(crate) struct RawOffload {
    pub(crate) name: Option<Spanned<String>>,
    pub(crate) offload: Offload,
    pub(crate) switches: Vec<Spanned<P4Switch>>,
    pub(crate) span: Range<usize>,
}

pub(crate) fn read(table: &Table<'_>, problems: &mut Problems) -> RawOffload {
    let name = table.node("name").and_then(|node| {
        let name = table.get("name", problems, value::name)?;
        Some(Spanned::new(node.span(), name))
    });
    table.require("kind", problems, |v| value::choice(v, keys::OFFLOAD_KIND));
    let before = problems.errors();
    let switches = table.list("switches", problems, switch);
    if switches.is_empty() && problems.errors() == before {
        problems.error(table.span_of("switches"), "`switches` names no switch", table.example("switches"));
    }
    let timeout_ms = table.get("timeout", problems, value::duration_ms).unwrap_or(5_000);
    if timeout_ms < 100 {
        problems.error(
            table.span_of("timeout"),
            "`timeout` is below 100 ms",
            "write `timeout = \"100ms\"` or more",
        );
    }
    let program = read_program(table, problems);
    let replaces_program = table.flag("replace_program", problems).unwrap_or(false);
    if replaces_program && program == P4ProgramSource::Own(P4Program::Installed) {
        let what = "`replace_program` needs a program, and `program = \"installed\"` names none";
        problems.error(table.span_of("replace_program"), what, "remove one of the two");
    }
    let offload = Offload {
        name: String::new(),
        switches: switches.iter().map(|switch| switch.get_ref().clone()).collect(),
        program,
        replaces_program,
        election: table.integer("election", problems).unwrap_or(1),
        tls: read_tls(table, problems),
        timeout_ms,
        sessions_max: table.integer("sessions_max", problems).unwrap_or(1_048_576),
        udp_packets: table.integer("udp_packets", problems).map_or(10, |n| n as u8),
        tcp_packets: table.integer("tcp_packets", problems).map_or(10, |n| n as u8),
        keeps_at_stop: table
            .get("on_stop", problems, |v| value::choice(v, keys::OFFLOAD_ON_STOP))
            .unwrap_or_default(),
        excluded: Vec::new(),
        excluded_siit: Vec::new(),
        controller_rate: Some(table.integer("controller_rate", problems).unwrap_or(CONTROLLER_RATE))
            .filter(|rate| *rate > 0),
        tos: Vec::new(),
        mtus: OffloadMtus { mtu4: 0, mtu6: 0, mtu6_without_df: 0 },
    };
    RawOffload { name, offload, switches, span: table.span.clone() }
}

fn read_tls(table: &Table<'_>, problems: &mut Problems) -> Option<P4Tls> {
    let server_name = table.get("server_name", problems, host_name);
    let directory = table.get("certificates", problems, log::directory);
    if table.node("server_name").is_some() && table.node("certificates").is_none() {
        let what = "`server_name` needs `certificates`: there is no TLS without them";
        problems.error(table.span_of("server_name"), what, table.example("certificates"));
    }
    Some(P4Tls { directory: directory?, server_name })
}

/// Reads a name or an address as certificates have it.
fn host_name(value: &DeValue<'_>) -> Read<String> {
    let text = value::text(value)?;
    let fits = |label: &str| {
        let is_whole = label.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
        is_whole && (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-')
    };
    let is_name = text.len() <= 253 && text.split('.').all(fits);
    match is_name || text.parse::<IpAddr>().is_ok() {
        true => Ok(text.to_owned()),
        false => Err(Invalid::with(
            format!("\"{}\" is no name of a host", value::shorten(text)),
            "write the name in the certificates of the switches, for example \"edge.example\"",
        )),
    }
}

fn read_program(table: &Table<'_>, problems: &mut Problems) -> P4ProgramSource {
    let own = table.get("program", problems, |v| value::choice(v, keys::P4_PROGRAM));
    let p4info = table.get("p4info", problems, log::directory);
    let file = table.get("program_file", problems, log::directory);
    let is_written = |key| table.node(key).is_some();
    let (has_p4info, has_file) = (is_written("p4info"), is_written("program_file"));
    for (key, is_there, other, is_other) in
        [("p4info", has_p4info, "program_file", has_file), ("program_file", has_file, "p4info", has_p4info)]
    {
        if is_there && is_written("program") {
            let what = format!("`program` names Gatun's own program, and `{key}` another one");
            problems.error(table.span_of(key), what, "remove one of the two");
        } else if is_there && !is_other {
            let what = format!("`{key}` needs `{other}`, too");
            problems.error(table.span_of(key), what, table.example(other));
        }
    }
    match (p4info, file) {
        (Some(p4info), Some(program)) => P4ProgramSource::Files { p4info, program },
        _ => P4ProgramSource::Own(own.unwrap_or_default()),
    }
}

/// Reads "NAME at ADDRESS:PORT", optionally with "device NUMBER".
fn switch(value: &DeValue<'_>) -> Read<P4Switch> {
    let text = value::text(value)?;
    let wrong = || {
        let what = format!("\"{}\" is not NAME at ADDRESS:PORT", value::shorten(text));
        Invalid::with(
            what,
            "write, for example, \"edge at 192.0.2.7:9559\" or \"edge at [::1]:9559 device 2\"",
        )
    };
    let words: Vec<&str> = text.split(' ').collect();
    let (name, address, device) = match words[..] {
        [name, "at", address] => (name, address, "1"),
        [name, "at", address, "device", device] => (name, address, device),
        _ => return Err(wrong()),
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > 63 || !name.chars().all(fits) {
        return Err(wrong());
    }
    let address: Option<SocketAddr> = address.parse().ok();
    let address = address.filter(|address| address.port() > 0).ok_or_else(wrong)?;
    let device_id = device.parse().map_err(|_| wrong())?;
    Ok(P4Switch { name: name.to_owned(), address, device_id })
}
