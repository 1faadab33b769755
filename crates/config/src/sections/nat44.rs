//! `[[nat44]]`: a stateful instance for private IPv4.

use super::nat64::{RawBinding, bindings_of};
use super::translator::Defaults;
use crate::keys;
use crate::problem::Problems;
use crate::reader::Table;
use crate::value::{self, Invalid};
use gatun_nat::plan::{Exemption, Filtering, Net4, Timeouts};

use std::ops::Range;
use toml::Spanned;
use toml::de::DeValue;

/// An instance as in the file.
pub(crate) struct RawNat44 {
    pub(crate) name: Option<Spanned<String>>,
    pub(crate) inside: Vec<Spanned<Net4>>,
    pub(crate) ports: Vec<Spanned<String>>,
    pub(crate) pool: Option<Spanned<String>>,
    pub(crate) exempt: Vec<Exemption>,
    pub(crate) subscriber_len: u8,
    pub(crate) filtering: Filtering,
    pub(crate) external_tcp: bool,
    pub(crate) static_bindings: Vec<RawBinding>,
    pub(crate) inbound_refresh: bool,
    pub(crate) icmp_queries: bool,
    pub(crate) fastpath: bool,
    pub(crate) offload: bool,
    pub(crate) timeouts: Timeouts,
    pub(crate) mtu: u32,
    pub(crate) mss_max: u16,
    pub(crate) span: Range<usize>,
}

pub(crate) fn read(
    table: &Table<'_>,
    defaults: Defaults,
    timeouts: Timeouts,
    problems: &mut Problems,
) -> RawNat44 {
    let inside = table.list("inside", problems, inside_net);
    let is_empty = |v: &DeValue<'_>| matches!(v, DeValue::Array(list) if list.is_empty());
    if table.node("inside").is_none_or(|node| is_empty(node.get_ref())) {
        let span = table.node("inside").map_or(table.span.clone(), |_| table.span_of("inside"));
        problems.error(span, "`inside` is missing", table.example("inside"));
    }
    let pool = table.get("pool", problems, value::name);
    let statics = table.tables("static", "`static`", problems);
    let exempt = table.tables("exempt", "`exempt`", problems);
    let (mtu, mss_max) = defaults.link(table, problems);
    RawNat44 {
        name: table.get("name", problems, value::name).map(|s| Spanned::new(table.span_of("name"), s)),
        inside,
        ports: table.list("ports", problems, value::name),
        pool: pool.map(|s| Spanned::new(table.span_of("pool"), s)),
        exempt: exempt.iter().flat_map(|t| read_exemption(t, problems)).collect(),
        subscriber_len: table
            .get("subscriber", problems, |v| value::choice(v, keys::SUBSCRIBER4))
            .unwrap_or(32),
        filtering: table
            .get("filtering", problems, |v| value::choice(v, keys::FILTERING))
            .unwrap_or_default(),
        external_tcp: table.flag("external_tcp", problems).unwrap_or(true),
        static_bindings: statics.iter().flat_map(|t| read_bindings(t, problems)).collect(),
        inbound_refresh: table.flag("inbound_refresh", problems).unwrap_or(false),
        icmp_queries: table.flag("icmp_queries", problems).unwrap_or(true),
        fastpath: table.flag("fastpath", problems).unwrap_or(true),
        offload: table.flag("offload", problems).unwrap_or(true),
        timeouts: match table.table("timeouts", problems) {
            Some(own) => super::read_timeouts(&own, timeouts, problems),
            None => timeouts,
        },
        mtu,
        mss_max,
        span: table.span.clone(),
    }
}

/// Reads a network that may contain hosts.
fn inside_net(value: &DeValue<'_>) -> Result<Net4, Invalid> {
    let net = value::net4(value)?;
    if net.len == 0 || net.addr.is_loopback() || net.addr.is_multicast() || net.addr.is_unspecified() {
        return Err(Invalid::new(format!("{}/{} is not a network of inside hosts", net.addr, net.len)));
    }
    Ok(net)
}

/// Reads an exemption: one for each prefix and range of ports.
fn read_exemption(table: &Table<'_>, problems: &mut Problems) -> Vec<Exemption> {
    let nets = table.list("prefixes", problems, value::net4);
    if table.node("prefixes").is_none() {
        problems.error(table.span.clone(), "`prefixes` is missing", table.example("prefixes"));
    }
    let transport = table.get("protocol", problems, |v| value::choice(v, keys::PROTOCOL));
    let ports = table.list("ports", problems, value::ports);
    let ports: Vec<Option<(u16, u16)>> = match ports.is_empty() {
        true => vec![None],
        false => ports.into_iter().map(|range| Some(range.into_inner())).collect(),
    };
    let each = |net: &Spanned<Net4>| {
        let net = *net.get_ref();
        ports.iter().map(move |&ports| Exemption { net, transport, ports }).collect::<Vec<_>>()
    };
    nets.iter().flat_map(each).collect()
}

fn read_bindings(table: &Table<'_>, problems: &mut Problems) -> Vec<RawBinding> {
    let inside = table.require("inside", problems, value::endpoint4);
    let inside = inside.map(|(address, ports)| (address.to_ipv6_mapped(), ports));
    bindings_of(table, inside, problems).unwrap_or_default()
}
