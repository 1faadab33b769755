//! `[fastpath]`: translation of established sessions in the kernel.

use crate::keys;
use crate::problem::Problems;
use crate::reader::Table;
use crate::sections::log;
use crate::value;
use gatun_nat::Plan;
use std::ops::Range;
use std::path::PathBuf;
use toml::Spanned;

/// Default directory.
pub const FASTPATH_DIRECTORY: &str = "/run/gatun/fastpath";

/// Shortest lease, ms: the daemon renews it several times within.
const LEASE_MIN_MS: u32 = 1_000;

/// Settings of the kernel fast path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastPath {
    /// True if the kernel translates established sessions, as far as it can.
    pub kernel: bool,
    /// Network interfaces at which the kernel translates before its network stack (XDP).
    pub xdp: Vec<String>,
    /// Directory with a bpffs, where the kernel's tables outlive the process.
    pub directory: PathBuf,
    /// Number of sessions that the kernel has room for.
    pub sessions_max: u32,
    /// Number of packets after which a UDP session is given to the kernel.
    pub udp_packets: u8,
    /// Number of packets after the second SYN after which a TCP session is given to the kernel.
    pub tcp_packets: u8,
    /// Time in ms for which the kernel translates without a renewal by the daemon.
    pub lease_ms: u32,
    /// True if the kernel keeps its sessions when the daemon is stopped.
    pub keeps_at_stop: bool,
    /// Stateful instances whose sessions stay out of the kernel, by number: NAT64's first, then NAT44's.
    pub excluded: Vec<u8>,
    /// Stateless instances that stay out of the kernel, by number.
    pub excluded_siit: Vec<u8>,
}

impl Default for FastPath {
    fn default() -> Self {
        FastPath {
            kernel: false,
            xdp: Vec::new(),
            directory: FASTPATH_DIRECTORY.into(),
            sessions_max: 65_536,
            udp_packets: 10,
            tcp_packets: 10,
            lease_ms: 10_000,
            keeps_at_stop: false,
            excluded: Vec::new(),
            excluded_siit: Vec::new(),
        }
    }
}

impl FastPath {
    /// Kernel memory of the table of sessions, and of counters, bytes.
    pub fn session_bytes(&self) -> u64 {
        if self.kernel { u64::from(self.sessions_max) * SESSION_BYTES + COUNTERS_BYTES } else { 0 }
    }

    /// Kernel memory of the mappings of stateless instances, bytes. A reload needs it twice for a moment.
    pub fn mapping_bytes(&self, plan: &Plan) -> u64 {
        let numbered = (0..=u8::MAX).zip(&plan.siit);
        let mappings = numbered.filter(|(number, _)| self.kernel && !self.excluded_siit.contains(number));
        mappings.map(|(_, siit)| siit.eamt.len() as u64).sum::<u64>() * MAPPING_BYTES
    }
}

/// Kernel memory of a session: its share of a table with free places.
const SESSION_BYTES: u64 = 384;
/// Kernel memory of counters on two processors, and of small maps.
const COUNTERS_BYTES: u64 = 384 << 10;
/// Kernel memory of a mapping of a host: for each family, an element of 96 bytes and places in the hash
/// tables of both generations. One of a network has nodes of tries instead, and needs less.
const MAPPING_BYTES: u64 = 320;

/// The section as in the file, and its place.
pub(crate) struct RawFastPath {
    pub(crate) settings: FastPath,
    pub(crate) xdp: Vec<Spanned<String>>,
    /// Place of `on_stop`.
    pub(crate) on_stop: Range<usize>,
    pub(crate) span: Range<usize>,
}

pub(crate) fn read(table: &Table<'_>, problems: &mut Problems) -> RawFastPath {
    let defaults = FastPath::default();
    let lease_ms = table.get("lease", problems, value::duration_ms).unwrap_or(defaults.lease_ms);
    if lease_ms < LEASE_MIN_MS {
        problems.error(
            table.span_of("lease"),
            "`lease` is below one second",
            "write `lease = \"1s\"` or more",
        );
    }
    let directory = table.get("directory", problems, log::directory);
    let xdp = table.list("xdp", problems, value::interface);
    let settings = FastPath {
        xdp: xdp.iter().map(|name| name.get_ref().clone()).collect(),
        kernel: table.get("kernel", problems, |v| value::choice(v, keys::KERNEL)).unwrap_or_default(),
        directory: directory.unwrap_or(defaults.directory),
        sessions_max: table.integer("sessions_max", problems).unwrap_or(defaults.sessions_max),
        udp_packets: table.integer("udp_packets", problems).map_or(defaults.udp_packets, |n| n as u8),
        tcp_packets: table.integer("tcp_packets", problems).map_or(defaults.tcp_packets, |n| n as u8),
        lease_ms,
        keeps_at_stop: table
            .get("on_stop", problems, |v| value::choice(v, keys::ON_STOP))
            .unwrap_or_default(),
        excluded: Vec::new(),
        excluded_siit: Vec::new(),
    };
    RawFastPath { settings, xdp, on_stop: table.span_of("on_stop"), span: table.span.clone() }
}
