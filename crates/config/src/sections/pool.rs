//! `[[pool]]`: public IPv4 addresses and their ports.

use super::allocation;
use crate::keys;
use crate::problem::Problems;
use crate::reader::Table;
use crate::value::{self, Invalid, Read};
use gatun_nat::plan::{Allocation, Pairing, PoolRange, Transport};
use gatun_wire::text::counted;
use std::net::Ipv4Addr;
use std::ops::Range;
use toml::Spanned;
use toml::de::DeValue;

/// Ports of a pool without `ports`: those that a host's own services do not use.
const DEFAULT_PORTS: (u16, u16) = (1024, 65_535);

/// Most combinations of address ranges and port ranges.
const RANGES_MAX: usize = 65_536;

/// A pool as in the file.
pub(crate) struct RawPool {
    pub(crate) name: Option<Spanned<String>>,
    /// Ranges, each with the place of its addresses.
    pub(crate) ranges: Vec<Spanned<PoolRange>>,
    pub(crate) pairing: Pairing,
    pub(crate) port_parity: bool,
    pub(crate) port_class: bool,
    pub(crate) allocation: Spanned<Allocation>,
    pub(crate) overload: Vec<(Transport, u16)>,
    /// True if the pool has errors: `ranges` is then incomplete.
    pub(crate) broken: bool,
    pub(crate) span: Range<usize>,
}

pub(crate) fn read(table: &Table<'_>, problems: &mut Problems) -> RawPool {
    let errors_before = problems.errors();
    let mut ranges = read_ranges(table, problems);
    for finer in table.tables("ranges", "`ranges`", problems) {
        if finer.node("prefixes").is_none() {
            problems.error(finer.span.clone(), "`prefixes` is missing", finer.example("prefixes"));
        }
        ranges.extend(read_ranges(&finer, problems));
    }
    let allocation = allocation::read(table, problems);
    if ranges.is_empty() && problems.errors() == errors_before {
        let at = table.span_of("prefixes");
        problems.error(at, "the pool has no addresses", table.example("prefixes"));
    }
    RawPool {
        name: table.get("name", problems, value::name).map(|s| Spanned::new(table.span_of("name"), s)),
        ranges,
        pairing: table.get("pairing", problems, |v| value::choice(v, keys::PAIRING)).unwrap_or_default(),
        port_parity: table.flag("port_parity", problems).unwrap_or(true),
        port_class: table.flag("port_class", problems).unwrap_or(true),
        allocation: Spanned::new(table.span_of("allocation"), allocation),
        overload: read_overload(table, problems),
        broken: problems.errors() > errors_before,
        span: table.span.clone(),
    }
}

/// Most remote ports in `overload`.
const OVERLOAD_MAX: usize = 64;

fn read_overload(table: &Table<'_>, problems: &mut Problems) -> Vec<(Transport, u16)> {
    let mut all = Vec::new();
    for written in table.list("overload", problems, value::remote_port) {
        let (transport, port) = *written.get_ref();
        for transport in [Transport::Tcp, Transport::Udp] {
            match written.get_ref().0 {
                Some(only) if only != transport => {}
                _ if all.contains(&(transport, port)) => {
                    let what = format!("duplicate port {port} for one protocol");
                    problems.error(written.span(), what, "remove one of the two");
                }
                _ => all.push((transport, port)),
            }
        }
        if port == 53 && transport != Some(Transport::Tcp) {
            problems.warn(
                written.span(),
                "queries of one subscriber share a port, which makes answers easier to forge (RFC 5452)",
                "remove 53, unless inside hosts use a resolver over a trusted path",
            );
        }
    }
    if all.len() > OVERLOAD_MAX {
        let what =
            format!("`overload`: {}, all of which each new flow searches", counted(all.len() as u64, "port"));
        problems.error(table.span_of("overload"), what, format!("write at most {OVERLOAD_MAX}"));
    }
    all
}

/// Reads the combinations of `prefixes`, `ports` and `protocols` of a table.
fn read_ranges(table: &Table<'_>, problems: &mut Problems) -> Vec<Spanned<PoolRange>> {
    let addresses = table.list("prefixes", problems, pool_addresses);
    let mut ports = table.list("ports", problems, value::ports);
    for range in &ports {
        if range.get_ref().0 < 1024 {
            problems.warn(
                range.span(),
                "ports below 1024 are allocated to inside hosts that use such ports themselves",
                "write \"1024-65535\", unless this is intended (RFC 4787 REQ-3a asks for it)",
            );
        }
    }
    if table.node("ports").is_none() {
        ports.push(Spanned::new(table.span.clone(), DEFAULT_PORTS));
    }
    let mut transports = [table.node("protocols").is_none(); 3];
    for transport in table.list("protocols", problems, |v| value::choice(v, keys::PROTOCOL)) {
        transports[*transport.get_ref() as usize] = true;
    }
    if addresses.len().saturating_mul(ports.len()) > RANGES_MAX {
        let what = format!(
            "{} with {} each",
            counted(addresses.len() as u64, "address range"),
            counted(ports.len() as u64, "port range")
        );
        problems.error(table.span.clone(), what, format!("write at most {RANGES_MAX} combinations"));
        return Vec::new();
    }
    let one_port = |at: &Spanned<(Ipv4Addr, Ipv4Addr)>, ports: (u16, u16)| {
        let (first, last) = *at.get_ref();
        Spanned::new(at.span(), PoolRange { first, last, ports, transports })
    };
    addresses.iter().flat_map(|at| ports.iter().map(move |p| one_port(at, *p.get_ref()))).collect()
}

fn pool_addresses(value: &DeValue<'_>) -> Read<(Ipv4Addr, Ipv4Addr)> {
    let (first, last) = value::range4(value)?;
    let host = |a: Ipv4Addr| a.octets()[0] != 0 && a.octets()[0] < 224 && !a.is_loopback();
    let crosses_loopback = first.octets()[0] < 127 && last.octets()[0] > 127;
    if !host(first) || !host(last) || crosses_loopback {
        return Err(Invalid::new(format!("no host can have an address of {first}-{last}")));
    }
    Ok((first, last))
}
