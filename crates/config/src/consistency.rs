//! Consistency between sections: names, references, and addresses that only one section may use. The checked
//! sections become a configuration.

mod addresses;
mod allocation;
mod cluster;
mod ethernet;
mod fastpath;
mod log;
mod offload;
mod peer;
mod pools;
mod realms;

use crate::config::Config;
use crate::problem::Problems;
use crate::sections::Sections;
use crate::sections::announce::Announce;
use crate::sections::cluster::RawCluster;
use crate::sections::eam::RawEam;
use crate::sections::nat44::RawNat44;
use crate::sections::nat64::RawNat64;
use crate::sections::peer::Peer;
use crate::sections::port::{DeviceMode, Port, RawPort, Routes};
use crate::sections::siit::RawSiit;
use gatun_nat::plan::{EventPlan, Nat44, Nat64, Pool4, Siit};
use gatun_nat::workers::Shares;
use gatun_nat::{EventKinds, Plan};
use std::collections::HashMap;
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use toml::Spanned;

/// The engine numbers its stateful instances in a byte.
const INSTANCES_MAX: usize = 255;

/// Checks the sections against each other and builds the configuration. The result is valid only if
/// `problems` has no errors.
pub(crate) fn assemble(mut read: Sections, problems: &mut Problems) -> Config {
    check_instances(&read, problems);
    let mut ports = build_ports(&read, problems);
    let realms = realms::assign(&read, &mut ports, problems);
    addresses::check_pool6(&read, &realms, problems);
    addresses::check_mappings(&mut read, problems);
    pools::check_ranges(&read.pools, problems);
    let pool_names = names("pool", read.pools.iter().map(|p| (&p.name, p.span.clone())), problems);
    let pool_of = pools::resolve(&read, &pool_names, problems);
    let mut pools = pools::build(&read, &pool_names, &pool_of, problems);
    allocation::check(&read, &pool_of, &mut pools, &realms, problems);
    addresses::check_pools_against_mappings(&read, problems);
    let instance_names = instance_names(&read, problems);
    let (own4, own6) = addresses::own_addresses(&read, problems);
    addresses::check_inside(&read, &realms, own4, problems);
    realms::check_exempt(&read, &realms, problems);
    addresses::check_ports(&read, own4, own6, problems);
    addresses::check_well_known_prefix(&read, problems);
    check_routes(&read, problems);

    let port_spans: Vec<Range<usize>> = read.ports.iter().map(|port| port.span.clone()).collect();
    let (events, json_kinds, json_destinations) = match &read.events {
        Some(events) => (Some(events.sink.clone()), events.plan.kinds, events.plan.destinations),
        None => (None, EventKinds::NONE, false),
    };
    let exports = log::exports(mem::take(&mut read.exports), problems);
    let fastpath = fastpath::settings(&read);
    let (raw_log, raw_events, raw_fastpath) = (read.log.take(), read.events.take(), read.fastpath.take());
    let offload = offload::settings(&read, problems);
    let offload_span = read.offloads.first().map(|raw| raw.span.clone());
    let instances = Instances { names: instance_names, pools: pool_of, realms };
    let mut plan = build_plan(&mut read, instances, pools, (own4, own6));
    let log = raw_log.map(|raw| log::build(&raw, &plan, problems));
    plan.events = log::events(raw_events.as_ref(), &exports, log.as_ref());
    let workers = read.workers.map(|workers| (workers.cores, Some(workers.span)));
    let (cores, workers_span) = workers.unwrap_or_default();
    let (dpdk, dpdk_span) = read.dpdk.map(|dpdk| (dpdk.settings, Some(dpdk.span))).unwrap_or_default();
    let (api, metrics, state, announce) = (read.api, read.metrics, read.state, read.announce);
    let mut config = Config {
        plan,
        ports,
        cores,
        dpdk,
        events,
        json_kinds,
        json_destinations,
        exports,
        log,
        api,
        metrics,
        state,
        fastpath,
        offload,
        announce: None,
        peer: None,
        cluster: None,
        mapping_files: problems.mapping_files(),
        text: String::new(),
        revision: String::new(),
    };
    add_announce(&mut config, announce, problems);
    ethernet::check(&config, &port_spans, problems);
    ethernet::check_dpdk(&config, dpdk_span, problems);
    fastpath::check(&mut config, raw_fastpath.as_ref(), problems);
    offload::check(&config, offload_span, &port_spans, problems);
    check_workers(&config, &port_spans, problems);
    check_cores(&config, workers_span, problems);
    add_boxes(&mut config, (read.peer, read.cluster), read.translator.own4.as_ref(), problems);
    config
}

/// Adds the pair or the cluster. `own4` is the own address, if the file has it.
fn add_boxes(
    config: &mut Config,
    (peer, cluster): (Option<(Peer, Range<usize>)>, Option<RawCluster>),
    own4: Option<&Spanned<Ipv4Addr>>,
    problems: &mut Problems,
) {
    config.peer = peer.and_then(|(peer, span)| peer::check(config, peer, &span, problems));
    let own4_span = own4.map(Spanned::span);
    config.cluster = cluster.and_then(|raw| cluster::check(config, raw, own4_span, problems));
}

/// Adds the announced routes with their networks, and refuses a marker device that is a port.
fn add_announce(config: &mut Config, raw: Option<(Announce, Range<usize>)>, problems: &mut Problems) {
    let Some((announce, span)) = raw else { return };
    if config.ports.iter().any(|port| port.device == announce.device) {
        let what = format!("`device` of [announce] is the device of a port: {}", announce.device);
        problems.error(span, what, "write another name, for example \"gatun-routes\"");
    }
    config.announce = Some(Announce { networks: config.routes(), ..announce });
}

fn check_instances(read: &Sections, problems: &mut Problems) {
    if read.nat64.is_empty() && read.nat44.is_empty() && read.siit.is_empty() && problems.errors() == 0 {
        let instead = "add a section [[nat64]], [[nat44]] or [[siit]]; `gatun init` writes a whole file";
        problems.error(0..0, "the file has no instance: nothing would be translated", instead);
    }
    let spans = read.nat64.iter().map(|i| &i.span).chain(read.nat44.iter().map(|i| &i.span));
    if let Some(span) = spans.into_iter().nth(INSTANCES_MAX) {
        let what = format!("more than {INSTANCES_MAX} [[nat64]] and [[nat44]] instances");
        problems.error(span.clone(), what, "write one instance with several `pool6`, or `inside` networks");
    }
}

/// Names, pools and realms of the instances, in their order.
struct Instances {
    names: Vec<String>,
    /// Pools of stateful instances.
    pools: Vec<Option<usize>>,
    realms: realms::Realms,
}

fn build_plan(
    read: &mut Sections,
    Instances { names, pools: pool_of, realms }: Instances,
    pools: Vec<Pool4>,
    (own4, own6): (Option<Ipv4Addr>, Option<Ipv6Addr>),
) -> Plan {
    let (mut names, mut pool_of) = (names.into_iter(), pool_of.into_iter());
    let mut name = || names.next().unwrap_or_default();
    let realms::Realms { nat64: realms64, nat44: realms44 } = realms;
    Plan {
        own4,
        own6,
        pooled: Vec::new(),
        shards: None,
        sharding: None,
        pools,
        nat64: (mem::take(&mut read.nat64).into_iter().zip(&mut pool_of))
            .zip(realms64)
            .map(|((raw, pool), realm)| Nat64 { realm, ..nat64(raw, name(), pool) })
            .collect(),
        nat44: (mem::take(&mut read.nat44).into_iter().zip(pool_of))
            .zip(realms44)
            .map(|((raw, pool), realm)| Nat44 { realm, ..nat44(raw, name(), pool) })
            .collect(),
        siit: mem::take(&mut read.siit).into_iter().map(|raw| siit(raw, name())).collect(),
        limits: read.limits,
        icmp: read.icmp.clone(),
        events: EventPlan::default(),
    }
}

/// Checks the list of processors. `span` is that of `[workers]`, if the file has it.
fn check_cores(config: &Config, span: Option<Range<usize>>, problems: &mut Problems) {
    let is_shared = config.plan.is_stateful() || config.ports.iter().any(|port| port.ethernet.is_some());
    let workers = match is_shared {
        true => Some(config.workers()),
        // The number of processors, unless each port sets its queues.
        false => config.ports.iter().map(|port| port.queues.map(usize::from)).sum(),
    };
    let cores = config.cores.len();
    if let (Some(span), Some(workers)) = (span, workers.filter(|workers| cores > 0 && cores != *workers)) {
        let s = if workers == 1 { "" } else { "s" };
        let what = format!("`cores` lists {cores}, but there will be {workers} worker{s}");
        problems.error(
            span,
            what,
            format!("list one processor for each, or write `queues = {cores}` in [[port]]"),
        );
    }
}

/// Checks that the workers of a port can share state. Runs last because it needs a valid plan.
fn check_workers(config: &Config, spans: &[Range<usize>], problems: &mut Problems) {
    if !config.plan.is_stateful() || problems.errors() > 0 {
        return;
    }
    if let Some(second) = spans.get(1).filter(|_| config.ports.iter().any(|port| port.ethernet.is_none())) {
        let what = "a second port with a stateful instance: only the workers of one port can share state";
        problems.error(second.clone(), what, "use one port with several `queues`");
        return;
    }
    if config.workers() > 1
        && let Err(error) = Shares::new(&config.plan, config.workers(), [0; 4])
    {
        let span = spans.first().cloned().unwrap_or(0..0);
        problems.error(span, error.0, "remove `queues`, or write `queues = 1`");
    }
}

fn nat64(raw: RawNat64, name: String, pool: Option<usize>) -> Nat64 {
    Nat64 {
        name,
        pool6: raw.pool6.into_iter().map(Spanned::into_inner).collect(),
        pool: pool.unwrap_or_default(),
        sources: raw.sources,
        realm: 0,
        filtering: raw.filtering,
        external_tcp: raw.external_tcp,
        wkp_non_global: *raw.wkp_non_global.get_ref(),
        icmp_error_source: raw.icmp_error_source,
        inbound_refresh: raw.inbound_refresh,
        rst_during_fin: raw.rst_during_fin,
        icmp_queries: raw.icmp_queries,
        subscriber_len: raw.subscriber_len,
        static_bindings: raw.static_bindings.into_iter().map(|s| s.binding).collect(),
        timeouts: raw.timeouts,
        settings: raw.settings,
    }
}

fn nat44(raw: RawNat44, name: String, pool: Option<usize>) -> Nat44 {
    Nat44 {
        name,
        inside: raw.inside.into_iter().map(Spanned::into_inner).collect(),
        realm: 0,
        pool: pool.unwrap_or_default(),
        exempt: raw.exempt,
        filtering: raw.filtering,
        external_tcp: raw.external_tcp,
        inbound_refresh: raw.inbound_refresh,
        icmp_queries: raw.icmp_queries,
        subscriber_len: raw.subscriber_len,
        static_bindings: raw.static_bindings.into_iter().map(|s| s.binding).collect(),
        timeouts: raw.timeouts,
        mtu: raw.mtu,
        mss_max: raw.mss_max,
    }
}

fn siit(raw: RawSiit, name: String) -> Siit {
    Siit {
        name,
        pool6: raw.pool6.into_iter().map(Spanned::into_inner).collect(),
        eamt: raw.eamt.into_iter().map(|e: RawEam| e.eam).collect(),
        hairpin: raw.hairpin,
        denylist4: raw.denylist4,
        denylist6: raw.denylist6,
        wkp_non_global: *raw.wkp_non_global.get_ref(),
        icmp_pool4: raw.icmp_pool4,
        icmp_pool4_mode: raw.icmp_pool4_mode,
        icmp_pool6: raw.icmp_pool6,
        settings: raw.settings,
    }
}

/// The names of sections of one kind; missing ones become `pool1`, `pool2`, ... A duplicate name is an error.
fn names<'a>(
    prefix: &str,
    sections: impl Iterator<Item = (&'a Option<Spanned<String>>, Range<usize>)>,
    problems: &mut Problems,
) -> Vec<String> {
    let mut seen = HashMap::new();
    let mut names = Vec::new();
    for (at, (written, span)) in sections.enumerate() {
        let name =
            written.as_ref().map_or_else(|| format!("{prefix}{}", at + 1), |name| name.get_ref().clone());
        let span = written.as_ref().map_or(span, Spanned::span);
        if seen.insert(name.clone(), at).is_some() {
            let what = format!("the name \"{name}\" is taken already");
            problems.error(span, what, "give each section its own `name`");
        }
        names.push(name);
    }
    names
}

/// Names of all instances, the stateful ones first: counters use them, so they share one namespace.
fn instance_names(read: &Sections, problems: &mut Problems) -> Vec<String> {
    let spanned = |kind: &str, at: usize, name: &Option<Spanned<String>>, span: &Range<usize>| match name {
        Some(name) => Some(name.clone()),
        None => Some(Spanned::new(span.clone(), format!("{kind}-{}", at + 1))),
    };
    let nat64 = read.nat64.iter().enumerate().map(|(at, i)| spanned("nat64", at, &i.name, &i.span));
    let nat44 = read.nat44.iter().enumerate().map(|(at, i)| spanned("nat44", at, &i.name, &i.span));
    let siit = read.siit.iter().enumerate().map(|(at, i)| spanned("siit", at, &i.name, &i.span));
    let all: Vec<_> = nat64.chain(nat44).chain(siit).collect();
    names("", all.iter().map(|name| (name, 0..0)), problems)
}

/// The ports, with names and devices filled in; if there are none, one TUN device.
fn build_ports(read: &Sections, problems: &mut Problems) -> Vec<Port> {
    let unwritten = [RawPort::unwritten()];
    let raw = if read.ports.is_empty() { &unwritten[..] } else { &read.ports };
    let instances = read.nat64.iter().map(|i| i.settings).chain(read.siit.iter().map(|i| i.settings));
    let mtus = instances.map(|s| s.mtu4.max(s.mtu6)).chain(read.nat44.iter().map(|i| i.mtu));
    let mtu = mtus.max().unwrap_or(1500);
    let devices: Vec<Option<Spanned<String>>> = (raw.iter().enumerate())
        .map(|(at, port)| {
            let default = || Spanned::new(port.span.clone(), format!("gatun{at}"));
            Some(port.device.clone().unwrap_or_else(default))
        })
        .collect();
    // Ethernet ports with different tags share a device.
    let devices = match raw.iter().any(|port| port.ethernet.is_some()) {
        true => {
            devices.into_iter().map(|device| device.map(Spanned::into_inner).unwrap_or_default()).collect()
        }
        false => names("", devices.iter().map(|device| (device, 0..0)), problems),
    };
    let port_names: Vec<_> = raw.iter().zip(&devices).map(|(port, device)| port_name(port, device)).collect();
    let port_names = names("", port_names.iter().map(|name| (name, 0..0)), problems);
    let build = |((port, device), name): ((&RawPort, String), String)| Port {
        name,
        device,
        mode: port.mode,
        queues: port.queues,
        addresses: port.addresses.clone(),
        routes: port.routes.clone(),
        precede_routes: port.precede_routes,
        mtu: port.mtu.unwrap_or(mtu),
        offload: port.offload,
        udp_gro: port.udp_gro,
        ethernet: port.ethernet.clone(),
    };
    raw.iter().zip(devices).zip(port_names).map(build).collect()
}

fn port_name(port: &RawPort, device: &str) -> Option<Spanned<String>> {
    // The name does not include DPDK's arguments.
    let (device, _) = device.split_once(',').unwrap_or((device, ""));
    Some(port.name.clone().unwrap_or_else(|| Spanned::new(port.span.clone(), device.to_owned())))
}

/// Checks that routes lead to the ports.
fn check_routes(read: &Sections, problems: &mut Problems) {
    let is_automatic = |port: &RawPort| port.routes == Routes::Auto && port.ethernet.is_none();
    let automatic = read.ports.is_empty() || read.ports.iter().any(is_automatic);
    for instance in read.siit.iter().filter(|i| automatic && i.eamt.is_empty() && !i.pool6.is_empty()) {
        let what = "the IPv4 routes of this instance are unknown, because it has no mappings";
        let instead = "write the routes in `[[port]]`, for example \
                       `routes = [\"2001:db8:46::/96\", \"198.51.100.0/24\"]`";
        problems.warn(instance.span.clone(), what, instead);
    }
    for port in read.ports.iter().filter(|p| p.mode == DeviceMode::Attach && p.device.is_none()) {
        let instead = "write, for example, `device = \"gatun0\"`";
        problems.error(port.span.clone(), "`mode = \"attach\"` needs the `device` to attach to", instead);
    }
}
