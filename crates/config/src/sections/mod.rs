//! Readers of sections: from tables to typed settings, one file per section, without regard to other
//! sections.

pub(crate) mod allocation;
pub(crate) mod announce;
pub(crate) mod api;
pub(crate) mod cluster;
pub(crate) mod dpdk;
pub(crate) mod eam;
pub(crate) mod ethernet;
pub(crate) mod events;
pub(crate) mod export;
pub(crate) mod fastpath;
pub(crate) mod log;
pub(crate) mod nat44;
pub(crate) mod nat64;
pub(crate) mod offload;
pub(crate) mod peer;
pub(crate) mod pool;
pub(crate) mod port;
pub(crate) mod siit;
pub(crate) mod state;
pub(crate) mod translator;
pub(crate) mod workers;

use crate::files::Files;
use crate::keys::FILE_KEYS;
use crate::problem::Problems;
use crate::reader::Table;
use crate::value;
use gatun_nat::plan::{IcmpPolicy, Limits, Timeouts};
use gatun_wire::DropReason;
use std::net::SocketAddr;
use std::ops::Range;
use toml::de::{DeTable, DeValue};

/// All sections as read.
pub(crate) struct Sections {
    pub(crate) ports: Vec<port::RawPort>,
    pub(crate) workers: Option<workers::RawWorkers>,
    pub(crate) dpdk: Option<dpdk::RawDpdk>,
    pub(crate) pools: Vec<pool::RawPool>,
    pub(crate) nat64: Vec<nat64::RawNat64>,
    pub(crate) nat44: Vec<nat44::RawNat44>,
    pub(crate) siit: Vec<siit::RawSiit>,
    pub(crate) translator: translator::Translator,
    pub(crate) limits: Limits,
    pub(crate) icmp: IcmpPolicy,
    pub(crate) events: Option<events::Events>,
    pub(crate) exports: Vec<export::RawExport>,
    pub(crate) log: Option<log::RawLog>,
    pub(crate) api: api::Api,
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) state: state::StateDir,
    pub(crate) fastpath: Option<fastpath::RawFastPath>,
    pub(crate) offloads: Vec<offload::RawOffload>,
    pub(crate) announce: Option<(announce::Announce, Range<usize>)>,
    pub(crate) peer: Option<(peer::Peer, Range<usize>)>,
    pub(crate) cluster: Option<cluster::RawCluster>,
}

/// Reads all sections.
pub(crate) fn read(root: &DeTable<'_>, files: &Files<'_>, problems: &mut Problems) -> Sections {
    let file = Table::of(root, 0..0, "the file", FILE_KEYS, problems);
    let translator = match file.table("translator", problems) {
        Some(table) => translator::read(&table, problems),
        None => translator::Translator::default(),
    };
    let timeouts = match file.table("timeouts", problems) {
        Some(table) => read_timeouts(&table, Timeouts::default(), problems),
        None => Timeouts::default(),
    };
    let each = |name, label, problems: &mut Problems| file.tables(name, label, problems);
    let ports = each("port", "[[port]]", problems).iter().map(|t| port::read(t, problems)).collect();
    let pools = each("pool", "[[pool]]", problems).iter().map(|t| pool::read(t, problems)).collect();
    let nat64 = each("nat64", "[[nat64]]", problems)
        .iter()
        .map(|t| nat64::read(t, translator.defaults, timeouts, problems))
        .collect();
    let nat44 = each("nat44", "[[nat44]]", problems)
        .iter()
        .map(|t| nat44::read(t, translator.defaults, timeouts, problems))
        .collect();
    let siit = each("siit", "[[siit]]", problems)
        .iter()
        .map(|t| siit::read(t, translator.defaults, files, problems))
        .collect();
    let limits = file.table("limits", problems).map_or_else(Limits::default, |t| read_limits(&t, problems));
    let icmp = file.table("icmp", problems).map_or_else(IcmpPolicy::default, |t| read_icmp(&t, problems));
    let events = file.table("events", problems).and_then(|t| events::read(&t, problems));
    let exports = each("export", "[[export]]", problems).iter().map(|t| export::read(t, problems)).collect();
    let log = file.table("log", problems).map(|t| log::read(&t, problems));
    let api = file.table("api", problems).map_or_else(api::Api::default, |t| api::read(&t, problems));
    let metrics = file.table("metrics", problems).and_then(|t| api::read_metrics(&t, problems));
    let workers = file.table("workers", problems).map(|t| workers::read(&t, problems));
    let dpdk = file.table("dpdk", problems).map(|t| dpdk::read(&t, problems));
    let state = file.table("state", problems).map(|t| state::read(&t, problems)).unwrap_or_default();
    let fastpath = file.table("fastpath", problems).map(|t| fastpath::read(&t, problems));
    let offloads =
        each("offload", "[[offload]]", problems).iter().map(|t| offload::read(t, problems)).collect();
    let announce = file.table("announce", problems).map(|t| (announce::read(&t, problems), t.span.clone()));
    let peer = file.table("peer", problems).and_then(|t| Some((peer::read(&t, problems)?, t.span.clone())));
    let cluster = file.table("cluster", problems).map(|t| cluster::read(&t, problems));
    Sections {
        ports,
        workers,
        dpdk,
        pools,
        nat64,
        nat44,
        siit,
        translator,
        limits,
        icmp,
        events,
        exports,
        log,
        api,
        metrics,
        state,
        fastpath,
        offloads,
        announce,
        peer,
        cluster,
    }
}

fn read_limits(table: &Table<'_>, problems: &mut Problems) -> Limits {
    let d = Limits::default();
    let mut or = |name, default| table.integer(name, problems).unwrap_or(default);
    let mut limits = Limits {
        sessions_max: or("sessions_max", d.sessions_max),
        sessions_reserved: or("sessions_reserved", d.sessions_reserved.into()) as u8,
        sessions_reserved_below: or("sessions_reserved_below", 0),
        subscribers_max: or("subscribers_max", d.subscribers_max),
        sessions_per_subscriber: or("sessions_per_subscriber", d.sessions_per_subscriber),
        ports_per_subscriber: or("ports_per_subscriber", d.ports_per_subscriber),
        ports_per_subscriber_by: [
            or("tcp_ports_per_subscriber", d.ports_per_subscriber_by[0]),
            or("udp_ports_per_subscriber", d.ports_per_subscriber_by[1]),
            or("icmp_ports_per_subscriber", d.ports_per_subscriber_by[2]),
        ],
        session_rate_per_subscriber: or("session_rate_per_subscriber", d.session_rate_per_subscriber),
        session_burst_per_subscriber: or("session_burst_per_subscriber", d.session_burst_per_subscriber),
        syn_store_max: or("syn_store_max", d.syn_store_max),
        path_mtus_max: or("path_mtus_max", d.path_mtus_max),
        fragment_entries_max: or("fragment_entries_max", d.fragment_entries_max),
        fragment_bytes_max: d.fragment_bytes_max,
        fragments_per_source: or("fragments_per_source", d.fragments_per_source),
    };
    if limits.sessions_reserved_below == 0 {
        let reserve = limits.sessions_max - limits.sessions_for_all();
        limits.sessions_reserved_below = (reserve / 1024).clamp(4, d.sessions_reserved_below);
    }
    if let Some(bytes) = table.bytes("fragment_bytes_max", problems) {
        limits.fragment_bytes_max = bytes;
    }
    limits
}

/// Reads timeouts; missing ones keep `defaults`. A value below the RFC's minimum gives a warning.
pub(crate) fn read_timeouts(table: &Table<'_>, defaults: Timeouts, problems: &mut Problems) -> Timeouts {
    let mut or = |name, default, minimum, rfc| {
        let Some(ms) = table.get(name, problems, value::duration_ms) else { return default };
        let span = table.span_of(name);
        if ms == 0 {
            problems.error(span, format!("`{name}` cannot be zero"), table.example(name));
        } else if ms < minimum {
            let wanted = value::show_duration(minimum);
            let what = format!("`{name}` is below the minimum of {wanted} ({rfc})");
            problems.warn(span, what, format!("write `{name} = \"{wanted}\"` or more"));
        }
        ms
    };
    // `tcp_partial_open` and `tcp_closing` follow it unless they are set.
    let transitory = or("tcp_transitory", defaults.tcp_transitory_ms, 240_000, "RFC 5382 REQ-5");
    let follows = |default| if table.node("tcp_transitory").is_some() { transitory } else { default };
    let (opening, closing) = (follows(defaults.tcp_partial_open_ms), follows(defaults.tcp_closing_ms));
    Timeouts {
        udp_ms: or("udp", defaults.udp_ms, 120_000, "RFC 4787 REQ-5"),
        tcp_established_ms: or("tcp_established", defaults.tcp_established_ms, 7_440_000, "RFC 5382 REQ-5"),
        tcp_transitory_ms: transitory,
        tcp_partial_open_ms: or("tcp_partial_open", opening, 240_000, "RFC 7857 2.1"),
        tcp_closing_ms: or("tcp_closing", closing, 240_000, "RFC 7857 2.1"),
        tcp_incoming_syn_ms: or("tcp_incoming_syn", defaults.tcp_incoming_syn_ms, 6_000, "RFC 5382 REQ-4"),
        icmp_ms: or("icmp", defaults.icmp_ms, 60_000, "RFC 5508 REQ-2"),
        fragment_ms: or("fragment", defaults.fragment_ms, 2_000, "RFC 6146 3.4"),
    }
}

fn read_icmp(table: &Table<'_>, problems: &mut Problems) -> IcmpPolicy {
    let d = IcmpPolicy::default();
    let reasons: Vec<_> = DropReason::ALL.iter().map(|reason| (reason.name(), *reason)).collect();
    let read = |value: &DeValue<'_>| value::choice(value, &reasons);
    let mut suppressed: Vec<_> =
        table.list("suppress", problems, read).into_iter().map(toml::Spanned::into_inner).collect();
    suppressed.sort_unstable();
    suppressed.dedup();
    let rate = table.integer("rate", problems).unwrap_or(d.rate);
    let burst = table.integer("burst", problems).unwrap_or(d.burst);
    IcmpPolicy {
        rate,
        burst,
        rate_per_source: table.integer("rate_per_source", problems).unwrap_or((rate / 10).max(1)),
        burst_per_source: table.integer("burst_per_source", problems).unwrap_or((burst / 4).max(1)),
        suppressed,
        quota_code6: table.integer("quota_code6", problems).map_or(d.quota_code6, |code| code as u8),
        quota_code4: table.integer("quota_code4", problems).map_or(d.quota_code4, |code| code as u8),
    }
}
