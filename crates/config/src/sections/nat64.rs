//! `[[nat64]]`: a stateful instance.

use super::translator::Defaults;
use crate::keys;
use crate::problem::Problems;
use crate::reader::Table;
use crate::value::{self, Invalid, PortRange};
use gatun_nat::plan::{Filtering, IcmpErrorSource, Net6, StaticBinding, Timeouts, Transport};
use gatun_wire::text::{counted, group};
use gatun_wire::{Prefix64, Settings};
use std::net::Ipv6Addr;

use std::ops::Range;
use toml::Spanned;
use toml::de::DeValue;

/// An instance as in the file.
pub(crate) struct RawNat64 {
    pub(crate) name: Option<Spanned<String>>,
    pub(crate) pool6: Vec<Spanned<Prefix64>>,
    pub(crate) ports: Vec<Spanned<String>>,
    pub(crate) pool: Option<Spanned<String>>,
    pub(crate) sources: Vec<Net6>,
    pub(crate) subscriber_len: u8,
    pub(crate) filtering: Filtering,
    pub(crate) external_tcp: bool,
    pub(crate) static_bindings: Vec<RawBinding>,
    pub(crate) icmp_error_source: IcmpErrorSource,
    pub(crate) inbound_refresh: bool,
    pub(crate) rst_during_fin: bool,
    pub(crate) icmp_queries: bool,
    pub(crate) fastpath: bool,
    pub(crate) offload: bool,
    pub(crate) wkp_non_global: Spanned<bool>,
    pub(crate) timeouts: Timeouts,
    pub(crate) settings: Settings,
    pub(crate) span: Range<usize>,
}

/// Most ports in one `static` entry: each becomes a binding.
const STATIC_PORTS_MAX: u32 = 1_024;

/// A static binding and the places of its endpoints.
pub(crate) struct RawBinding {
    pub(crate) binding: StaticBinding,
    pub(crate) inside_span: Range<usize>,
    pub(crate) outside_span: Range<usize>,
}

pub(crate) fn read(
    table: &Table<'_>,
    defaults: Defaults,
    timeouts: Timeouts,
    problems: &mut Problems,
) -> RawNat64 {
    let pool6 = read_pool6(table, problems);
    if table.node("pool6").is_none() {
        problems.error(table.span.clone(), "`pool6` is missing", table.example("pool6"));
    }
    let pool = table.get("pool", problems, value::name);
    let statics = table.tables("static", "`static`", problems);
    let refused = table.flag("wkp_non_global", problems).unwrap_or(false);
    RawNat64 {
        name: table.get("name", problems, value::name).map(|s| Spanned::new(table.span_of("name"), s)),
        pool6,
        ports: table.list("ports", problems, value::name),
        pool: pool.map(|s| Spanned::new(table.span_of("pool"), s)),
        sources: table.list("sources", problems, value::net6).into_iter().map(Spanned::into_inner).collect(),
        subscriber_len: table
            .get("subscriber", problems, |v| value::choice(v, keys::SUBSCRIBER))
            .unwrap_or(64),
        filtering: table
            .get("filtering", problems, |v| value::choice(v, keys::FILTERING))
            .unwrap_or_default(),
        external_tcp: table.flag("external_tcp", problems).unwrap_or(true),
        static_bindings: statics.iter().flat_map(|t| read_bindings(t, problems)).collect(),
        icmp_error_source: table
            .get("icmp_error_source", problems, |v| value::choice(v, keys::ERROR_SOURCE))
            .unwrap_or_default(),
        inbound_refresh: table.flag("inbound_refresh", problems).unwrap_or(true),
        rst_during_fin: table.flag("rst_during_fin", problems).unwrap_or(false),
        icmp_queries: table.flag("icmp_queries", problems).unwrap_or(true),
        fastpath: table.flag("fastpath", problems).unwrap_or(true),
        offload: table.flag("offload", problems).unwrap_or(true),
        wkp_non_global: Spanned::new(table.span_of("wkp_non_global"), refused),
        timeouts: match table.table("timeouts", problems) {
            Some(own) => super::read_timeouts(&own, timeouts, problems),
            None => timeouts,
        },
        settings: defaults.settings(table, problems),
        span: table.span.clone(),
    }
}

/// The translation prefixes of an instance.
pub(crate) fn read_pool6(table: &Table<'_>, problems: &mut Problems) -> Vec<Spanned<Prefix64>> {
    let prefixes = table.list("pool6", problems, value::prefix64);
    if matches!(table.node("pool6").map(Spanned::get_ref), Some(DeValue::Array(list)) if list.is_empty()) {
        problems.error(table.span_of("pool6"), "`pool6` is empty", table.example("pool6"));
    }
    prefixes
}

fn read_bindings(table: &Table<'_>, problems: &mut Problems) -> Vec<RawBinding> {
    let inside = table.require("inside", problems, |v| {
        let (address, ports) = value::endpoint6(v)?;
        let host = !(address.is_unspecified() || address.is_loopback() || address.is_multicast());
        if host {
            Ok((address, ports))
        } else {
            Err(Invalid::new(format!("{address} is not a host address")))
        }
    });
    bindings_of(table, inside, problems).unwrap_or_default()
}

/// The bindings from `inside`, which may have several consecutive ports, to the `outside` of the table.
pub(super) fn bindings_of(
    table: &Table<'_>,
    inside: Option<(Ipv6Addr, PortRange)>,
    problems: &mut Problems,
) -> Option<Vec<RawBinding>> {
    let transport = table.require("protocol", problems, |v| value::choice(v, keys::PROTOCOL));
    let outside = table.require("outside", problems, value::endpoint4);
    let (transport, (inside, inside_ports), (outside, outside_ports)) = (transport?, inside?, outside?);
    let count = |ports: PortRange| u32::from(ports.1 - ports.0) + 1;
    let ports = |range: PortRange| counted(count(range).into(), "port");
    if count(inside_ports) != count(outside_ports) {
        let what = format!(
            "`outside`: {}, but {} in `inside`",
            ports(outside_ports),
            group(count(inside_ports).into())
        );
        problems.error(table.span_of("outside"), what, "write the same number of ports in both");
        return None;
    }
    if count(outside_ports) > STATIC_PORTS_MAX {
        let what = format!("`outside`: {} in one binding", ports(outside_ports));
        problems.error(table.span_of("outside"), what, format!("write at most {STATIC_PORTS_MAX}"));
        return None;
    }
    let mut bindings = Vec::new();
    for (i, o) in (inside_ports.0..=inside_ports.1).zip(outside_ports.0..=outside_ports.1) {
        let binding = StaticBinding { transport, inside: (inside, i), outside: (outside, o) };
        check_port_zero(table, &binding, problems)?;
        let (inside_span, outside_span) = (table.span_of("inside"), table.span_of("outside"));
        bindings.push(RawBinding { binding, inside_span, outside_span });
    }
    Some(bindings)
}

/// Refuses port 0; ICMP identifier 0 is valid.
fn check_port_zero(table: &Table<'_>, binding: &StaticBinding, problems: &mut Problems) -> Option<()> {
    if binding.transport == Transport::Icmp {
        return Some(());
    }
    for (key, port) in [("inside", binding.inside.1), ("outside", binding.outside.1)] {
        if port == 0 {
            problems.error(table.span_of(key), format!("`{key}`: port 0 cannot be used"), table.example(key));
            return None;
        }
    }
    Some(())
}
