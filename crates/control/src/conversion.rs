//! Conversion of the engine's types to the API's.

use crate::engine_counters::{self, EngineCounter};
use crate::{ExportFigures, LogFigures, PacketTranslation, StoreFigures};
use gatun_api::types::{self as api, Count, Counter, Kind, Name, Protocol, Selectors, State};
use gatun_io::{RxError, TxError};

use gatun_nat::counters::{self, Direction};
use gatun_nat::explain::Explanation;
use gatun_nat::inspect::{BindingInfo, BlockInfo, SessionInfo};
use gatun_nat::plan::{Net6, Transport};
use gatun_nat::report::{
    AddressStats, EntryCount, InstanceCounters, InstanceKind, InstanceStats, PoolStats, SubscriberStats,
};
use gatun_nat::tcp_fsm::TcpState;
use gatun_wire::DropReason;
use gatun_worker::Snapshot;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// Names of instances and pools, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    instances: Vec<(InstanceKind, Name)>,
    pub(crate) pools: Vec<Name>,
}

impl Names {
    pub(crate) fn of(snapshot: &Snapshot) -> Names {
        let name = |name: &Arc<str>| Name(Arc::clone(name));
        Names {
            instances: snapshot.instances.iter().map(|stats| (stats.kind, name(&stats.name))).collect(),
            pools: snapshot.pools.iter().map(|stats| name(&stats.name)).collect(),
        }
    }

    /// Instances with sessions, in the order of their numbers.
    pub(crate) fn stateful(&self) -> impl Iterator<Item = &Name> {
        self.instances.iter().filter(|(kind, _)| *kind != InstanceKind::Siit).map(|(_, name)| name)
    }

    pub(crate) fn instance(&self, number: u8) -> Name {
        let found = self.instances.get(usize::from(number)).map(|(_, name)| name.clone());
        found.unwrap_or_else(|| Name(number.to_string().into()))
    }

    /// Any instance, by its number in the order of all.
    pub(crate) fn any_instance(&self, number: usize) -> Option<(InstanceKind, &Name)> {
        self.instances.get(number).map(|(kind, name)| (*kind, name))
    }

    /// Translation that a packet needs. `None` if it is not translated, or opens a session.
    pub(crate) fn translation(&self, e: &Explanation) -> Option<PacketTranslation> {
        if let Some(session) = &e.session {
            return Some(PacketTranslation::Session(self.session(session)));
        }
        let (kind, name) = self.any_instance(e.instance?)?;
        (kind == InstanceKind::Siit).then(|| PacketTranslation::Stateless(name.clone()))
    }

    pub(crate) fn pool(&self, number: usize) -> Name {
        self.pools.get(number).cloned().unwrap_or_else(|| Name(number.to_string().into()))
    }
}

pub(crate) fn count(count: counters::Count) -> Count {
    Count { packets: count.packets, bytes: count.bytes }
}

/// Converts a protocol.
pub fn protocol(transport: Transport) -> Protocol {
    match transport {
        Transport::Tcp => Protocol::Tcp,
        Transport::Udp => Protocol::Udp,
        Transport::Icmp => Protocol::Icmp,
    }
}

/// Converts an inside address; IPv4-mapped ones become IPv4.
pub(crate) fn inside(address: Ipv6Addr) -> IpAddr {
    address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
}

pub(crate) fn network(net: Net6) -> String {
    match net.addr.to_ipv4_mapped() {
        Some(address) => format!("{address}/{}", net.len.saturating_sub(96)),
        None => format!("{}/{}", net.addr, net.len),
    }
}

fn state(tcp: Option<TcpState>) -> State {
    match tcp {
        None => State::Open,
        Some(TcpState::V4Init) => State::V4Init,
        Some(TcpState::V6Init) => State::V6Init,
        Some(TcpState::Established) => State::Established,
        Some(TcpState::V4FinRcv) => State::V4FinRcv,
        Some(TcpState::V6FinRcv) => State::V6FinRcv,
        Some(TcpState::V4FinV6FinRcv) => State::V4FinV6FinRcv,
        Some(TcpState::Trans) => State::Trans,
    }
}

impl Names {
    pub(crate) fn session(&self, session: &SessionInfo) -> api::Session {
        api::Session {
            instance: self.instance(session.instance),
            protocol: protocol(session.transport),
            inside: inside(session.inside.0),
            inside_port: session.inside.1,
            outside: session.outside.0,
            outside_port: session.outside.1,
            remote: session.remote.0,
            remote_port: session.remote.1,
            state: state(session.tcp),
            expires_ms: session.expires_ms,
            configured: session.of_static,
            shared: session.shares_port,
            offloaded: session.is_offloaded,
        }
    }

    pub(crate) fn binding(&self, binding: &BindingInfo) -> api::Binding {
        api::Binding {
            instance: self.instance(binding.instance),
            pool: self.pool(binding.pool),
            protocol: protocol(binding.transport),
            inside: inside(binding.inside.0),
            inside_port: binding.inside.1,
            outside: binding.outside.0,
            outside_port: binding.outside.1,
            sessions: binding.sessions,
            more_sessions: binding.has_more,
            configured: binding.is_static,
            shared: binding.is_shared,
        }
    }

    pub(crate) fn block(&self, block: &BlockInfo) -> api::Block {
        let all = [Protocol::Tcp, Protocol::Udp, Protocol::Icmp].into_iter().zip(block.transports);
        api::Block {
            pool: self.pool(block.pool),
            address: block.outside,
            first_port: block.ports.0,
            last_port: block.ports.1,
            protocols: all.filter(|(_, has)| *has).map(|(protocol, _)| protocol).collect(),
            instance: self.instance(block.owner.0),
            subscriber: network(block.owner.1),
        }
    }

    pub(crate) fn subscriber(&self, stats: &SubscriberStats) -> api::Subscriber {
        let [tcp_ports, udp_ports, icmp_ids] = stats.ports;
        api::Subscriber {
            instance: self.instance(stats.instance),
            subscriber: network(Net6 { addr: stats.inside, len: stats.inside_len }),
            address: stats.outside,
            sessions: stats.sessions,
            tcp_ports,
            udp_ports,
            icmp_ids,
            blocks: stats.blocks.iter().map(|&n| u32::from(n)).sum(),
            refused_sessions: stats.refusals.sessions,
            refused_rate: stats.refusals.rate,
            refused_ports: stats.refusals.ports,
            refused_blocks: stats.refusals.blocks,
            outbound: count(stats.traffic.outbound),
            inbound: count(stats.traffic.inbound),
        }
    }

    pub(crate) fn address(&self, pool: usize, stats: &AddressStats) -> api::Address {
        let [tcp, udp, icmp] = stats.ports.map(usage);
        api::Address {
            pool: self.pool(pool),
            address: stats.address,
            drained: stats.is_drained,
            tcp,
            udp,
            icmp,
            outbound: count(stats.traffic.outbound),
            inbound: count(stats.traffic.inbound),
        }
    }
}

fn usage(usage: gatun_nat::pool4::Usage) -> api::Usage {
    api::Usage { used: usage.used, total: usage.total }
}

fn entries(stats: &InstanceStats, transport: Transport) -> api::ProtocolEntries {
    let count = |count: &EntryCount| api::EntryCount { now: count.now(), created: count.created };
    let at = transport as usize;
    api::ProtocolEntries {
        sessions: count(&stats.entries.sessions[at]),
        bindings: count(&stats.entries.bindings[at]),
    }
}

/// Drops of an instance or of no instance, without zeros.
fn drops_of(counters: &InstanceCounters) -> Vec<Counter> {
    let all = DropReason::ALL.iter().zip(&counters.drops).filter(|(_, count)| count.packets > 0);
    all.map(|(reason, count)| counter(reason.name(), count.packets, reason.help())).collect()
}

pub(crate) fn kind(kind: InstanceKind) -> Kind {
    match kind {
        InstanceKind::Nat64 => Kind::Nat64,
        InstanceKind::Nat44 => Kind::Nat44,
        InstanceKind::Siit => Kind::Siit,
    }
}

/// Converts an instance, with the criteria that choose it.
pub(crate) fn instance(stats: &InstanceStats, selectors: &[(Kind, String, Selectors)]) -> api::Instance {
    let is_it = |(of, name, _): &&(Kind, String, Selectors)| *of == kind(stats.kind) && **name == *stats.name;
    api::Instance {
        kind: kind(stats.kind),
        name: Name(Arc::clone(&stats.name)),
        selectors: selectors.iter().find(is_it).map(|(.., selectors)| selectors.clone()).unwrap_or_default(),
        matched: count(stats.counters.all()),
        outbound: count(stats.counters.outbound),
        inbound: count(stats.counters.inbound),
        hairpinned: count(stats.counters.hairpinned),
        passed: count(stats.counters.passed),
        echoes: count(stats.counters.echoes),
        dropped: count(stats.counters.dropped()),
        tcp: entries(stats, Transport::Tcp),
        udp: entries(stats, Transport::Udp),
        icmp: entries(stats, Transport::Icmp),
        subscribers: stats.subscribers.into(),
        drops: drops_of(&stats.counters),
    }
}

pub(crate) fn pool(stats: &PoolStats) -> api::Pool {
    let [tcp, udp, icmp] = stats.ports.map(usage);
    api::Pool {
        name: Name(Arc::clone(&stats.name)),
        addresses: stats.addresses,
        tcp,
        udp,
        icmp,
        ports_held: stats.ports_held,
        blocks: stats.blocks.map(|blocks| api::BlockUsage {
            total: blocks.total,
            owned: blocks.owned,
            lingering: blocks.lingering,
            held: blocks.held,
        }),
        subscribers: stats.subscribers.into(),
        ports_allocated: stats.counters.ports_allocated,
        ports_released: stats.counters.ports_released,
        blocks_allocated: stats.counters.blocks_allocated,
        blocks_released: stats.counters.blocks_released,
        refused: stats.counters.refused,
        pairing_broken: stats.counters.pairing_broken,
        outbound: count(stats.counters.traffic.outbound),
        inbound: count(stats.counters.traffic.inbound),
    }
}

/// Numbers of sessions, bindings and subscribers.
pub(crate) fn state_of(snapshot: &Snapshot) -> [u64; 3] {
    let now = |of: fn(&InstanceStats) -> &[EntryCount; 3]| {
        snapshot.instances.iter().flat_map(|stats| of(stats).iter().map(EntryCount::now)).sum()
    };
    let subscribers = snapshot.instances.iter().map(|stats| u64::from(stats.subscribers)).sum();
    [now(|stats| &stats.entries.sessions), now(|stats| &stats.entries.bindings), subscribers]
}

pub(crate) fn worker(number: usize, snapshot: Option<&Snapshot>) -> api::Worker {
    let nothing = Snapshot::default();
    let s = snapshot.unwrap_or(&nothing);
    let [sessions, _, subscribers] = state_of(s);
    api::Worker {
        number: u32::try_from(number).unwrap_or(u32::MAX),
        device: s.backend_name.clone(),
        answers: snapshot.is_some(),
        received: count(s.engine.rx),
        forwarded: count(s.engine.forwarded),
        dropped: count(s.engine.dropped),
        bursts: s.worker.bursts,
        idle_waits: s.worker.idle_waits,
        busy_ns: s.worker.busy_ns,
        handed_before: s.worker.handed.before,
        handed_after: s.worker.handed.after,
        handed_lost: s.worker.handed.before_lost + s.worker.handed.after_lost,
        sessions,
        subscribers,
        device_counters: device_counters(s),
    }
}

fn counter(name: &str, value: u64, help: &str) -> Counter {
    Counter { name: name.to_owned(), value, help: help.to_owned() }
}

/// Packets that the engine handed to the device, and that the device did not send.
pub(crate) fn refused_by_device(snapshot: &Snapshot) -> u64 {
    snapshot.backend.tx_errors.iter().sum()
}

/// Errors and further counters of a backend, without zeros.
fn device_counters(snapshot: &Snapshot) -> Vec<Counter> {
    let device = &snapshot.backend;
    let rx = RxError::ALL.iter().map(|&e| counter(e.name(), device.rx_errors[e as usize], e.help()));
    let tx = TxError::ALL.iter().map(|&e| counter(e.name(), device.tx_errors[e as usize], e.help()));
    let named = device.named.iter().map(|named| counter(named.name, named.count, named.help));
    rx.chain(tx).chain(named).filter(|counter| counter.value > 0).collect()
}

/// All counters of a sum.
pub(crate) fn counters(total: &Snapshot) -> Vec<Counter> {
    let e = &total.engine;
    let mut all = Vec::new();
    let mut both = |name: &str, count: counters::Count, help: &str| {
        all.push(counter(&format!("{name}_packets"), count.packets, help));
        all.push(counter(&format!("{name}_bytes"), count.bytes, &format!("{help} Bytes.")));
    };
    both("received", e.rx, "Received.");
    both("forwarded", e.forwarded, "Translated and sent on.");
    both("forwarded_6to4", e.translated[Direction::SixToFour as usize], "Of these from IPv6 to IPv4.");
    both("forwarded_4to6", e.translated[Direction::FourToSix as usize], "Of these from IPv4 to IPv6.");
    both("forwarded_4to4", e.translated[Direction::FourToFour as usize], "Of these from IPv4 to IPv4.");
    both("offloaded", e.offloaded, "Translated in the kernel or in P4 switches, part of the forwarded ones.");
    both("hairpinned", e.hairpinned, "Hairpinned packets, part of the forwarded ones.");
    both("answered", e.replied, "Answered, with an ICMP error or an echo reply.");
    both("passed", e.passed, "Not for the translator.");
    both("dropped", e.dropped, "Dropped without an answer.");
    both("redirected", e.redirected, "Sent to the nodes of the cluster that translate them.");
    all.push(counter("held_packets", e.held, "Held at this moment."));
    for EngineCounter { name, value, help } in engine_counters::ALL {
        all.push(counter(name, value(e), help));
    }
    let handed = &total.worker.handed;
    all.push(counter("handed_before_packets", handed.before, "Handed to another worker, as received."));
    all.push(counter("handed_after_packets", handed.after, "Handed to another worker, translated."));
    let lost = handed.before_lost + handed.after_lost;
    all.push(counter("handed_lost_packets", lost, "Lost because another worker did not keep up."));
    all.push(counter(
        "rx_super_packets",
        total.backend.rx_super_packets,
        "Super-packets received (TSO, USO).",
    ));
    all.push(counter("tx_super_packets", total.backend.tx_super_packets, "Super-packets sent."));
    all.extend(device_counters(total));
    all
}

/// Dropped packets by reason.
pub(crate) fn drops(total: &Snapshot) -> Vec<api::Drop> {
    let of = |reason: DropReason| {
        let by = |direction: Direction| count(total.engine.drops[direction as usize][reason as usize]);
        api::Drop {
            reason: reason.name().to_owned(),
            help: reason.help().to_owned(),
            six_to_four: by(Direction::SixToFour),
            four_to_six: by(Direction::FourToSix),
            four_to_four: by(Direction::FourToFour),
        }
    };
    DropReason::ALL.iter().map(|&reason| of(reason)).collect()
}

/// Collectors.
pub(crate) fn exports(figures: &LogFigures) -> Vec<api::Export> {
    let of = |one: &ExportFigures| api::Export {
        name: one.name.clone(),
        connected: one.is_connected,
        sent: one.sent,
        lost: one.lost,
        waiting: one.waiting,
        spooled_bytes: one.spooled_bytes,
    };
    figures.exports.iter().map(of).collect()
}

/// The log on disk.
pub(crate) fn log_store(figures: &LogFigures) -> api::LogStore {
    let StoreFigures { records, bytes, lost, waiting, is_writable, error } =
        figures.store.clone().unwrap_or_default();
    api::LogStore {
        kept: figures.store.is_some(),
        writable: is_writable,
        error,
        records,
        bytes,
        waiting,
        lost,
    }
}
