//! `[[nat64]]`: a stateful instance.

use super::translator::settings;
use crate::problem::Problems;
use crate::reader::{Table, Wrong};
use crate::{keys, value};
use gatun_nat::plan::{Filtering, IcmpErrorSource, Net6, StaticBinding, Timeouts, Transport};
use gatun_wire::{Prefix64, Settings};

use std::ops::Range;
use toml::Spanned;
use toml::de::DeValue;

/// An instance as written.
pub(crate) struct RawNat64 {
    pub(crate) name: Option<Spanned<String>>,
    pub(crate) pool6: Vec<Spanned<Prefix64>>,
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
    pub(crate) wkp_non_global: Spanned<bool>,
    pub(crate) timeouts: Timeouts,
    pub(crate) settings: Settings,
    pub(crate) span: Range<usize>,
}

/// A static binding and the places of its ends.
pub(crate) struct RawBinding {
    pub(crate) binding: StaticBinding,
    pub(crate) inside_span: Range<usize>,
    pub(crate) outside_span: Range<usize>,
}

pub(crate) fn read(
    table: &Table<'_>,
    defaults: Settings,
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
        pool: pool.map(|s| Spanned::new(table.span_of("pool"), s)),
        sources: table.list("sources", problems, value::net6).into_iter().map(Spanned::into_inner).collect(),
        subscriber_len: table
            .get("subscriber", problems, |v| value::choice(v, keys::SUBSCRIBER))
            .unwrap_or(64),
        filtering: table
            .get("filtering", problems, |v| value::choice(v, keys::FILTERING))
            .unwrap_or_default(),
        external_tcp: table.flag("external_tcp", problems).unwrap_or(true),
        static_bindings: statics.iter().filter_map(|t| read_binding(t, problems)).collect(),
        icmp_error_source: table
            .get("icmp_error_source", problems, |v| value::choice(v, keys::ERROR_SOURCE))
            .unwrap_or_default(),
        inbound_refresh: table.flag("inbound_refresh", problems).unwrap_or(true),
        rst_during_fin: table.flag("rst_during_fin", problems).unwrap_or(false),
        icmp_queries: table.flag("icmp_queries", problems).unwrap_or(true),
        wkp_non_global: Spanned::new(table.span_of("wkp_non_global"), refused),
        timeouts: match table.table("timeouts", problems) {
            Some(own) => super::read_timeouts(&own, timeouts, problems),
            None => timeouts,
        },
        settings: settings(table, defaults, problems),
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

fn read_binding(table: &Table<'_>, problems: &mut Problems) -> Option<RawBinding> {
    let transport = table.require("protocol", problems, |v| value::choice(v, keys::PROTOCOL));
    let inside = table.require("inside", problems, |v| {
        let (address, port) = value::endpoint6(v)?;
        let host = !(address.is_unspecified() || address.is_loopback() || address.is_multicast());
        if host { Ok((address, port)) } else { Err(Wrong::new(format!("{address} is no host's address"))) }
    });
    let outside = table.require("outside", problems, value::endpoint4);
    let (transport, inside, outside) = (transport?, inside?, outside?);
    let binding = StaticBinding { transport, inside, outside };
    check_port_zero(table, &binding, problems)?;
    Some(RawBinding { binding, inside_span: table.span_of("inside"), outside_span: table.span_of("outside") })
}

/// Port 0 is no port; identifier 0 is an identifier.
pub(super) fn check_port_zero(
    table: &Table<'_>,
    binding: &StaticBinding,
    problems: &mut Problems,
) -> Option<()> {
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
