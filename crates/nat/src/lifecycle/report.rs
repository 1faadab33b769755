//! Engine's report between two bursts: instances, pools, their addresses, subscribers.
//!
//! All figures are counts: of packets, of bytes as received from the IP header on, of sessions, bindings,
//! ports and blocks. Reading changes nothing. Long lists are read in slices, by numbers that stay valid while
//! the entries exist, so that a hundred thousand subscribers delay no packet. A walk returns an entry once if
//! it exists throughout, and at most once if it begins or ends meanwhile.

use crate::base::counters::{Count, Traffic};
use crate::base::plan::Transport;
use crate::path::state::{Core, EngineState};
use crate::tables::bib::Tables;
use crate::tables::pool4::{BlockUsage, Pool4State, PoolCounters, Usage};
use crate::tables::subscriber::SubscriberKey;
use alloc::sync::Arc;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::ops::Range;

pub use crate::base::tally::{InstanceCounters, InstanceKind};
pub use crate::tables::entry_counts::{EntryCount, EntryCounts};
pub use crate::tables::subscriber::Refusals;

/// Statistics of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceStats {
    /// Its kind.
    pub kind: InstanceKind,
    /// Name in the configuration.
    pub name: Arc<str>,
    /// Its packets.
    pub counters: InstanceCounters,
    /// Counts of its sessions and bindings; zero for a stateless instance.
    pub entries: EntryCounts,
    /// Subscribers with state.
    pub subscribers: u32,
}

impl InstanceStats {
    /// Adds the statistics of the same instance from another worker.
    pub fn add(&mut self, other: &InstanceStats) {
        self.counters.add(&other.counters);
        self.entries.add(&other.entries);
        self.subscribers += other.subscribers;
    }
}

/// Statistics of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolStats {
    /// Name in the configuration.
    pub name: Arc<str>,
    /// Public addresses.
    pub addresses: u32,
    /// Its ports by transport, in the order of [`Transport`].
    pub ports: [Usage; 3],
    /// Number of returned single ports that are held down.
    pub ports_held: u64,
    /// Usage of its blocks, if it has any.
    pub blocks: Option<BlockUsage>,
    /// Subscribers with state, of all instances that use it.
    pub subscribers: u32,
    /// Its counters.
    pub counters: PoolCounters,
}

impl PoolStats {
    /// Adds the statistics of the same pool from another worker.
    pub fn add(&mut self, other: &PoolStats) {
        self.addresses += other.addresses;
        self.ports.iter_mut().zip(other.ports).for_each(|(a, b)| *a += b);
        self.ports_held += other.ports_held;
        if let (Some(a), Some(b)) = (&mut self.blocks, other.blocks) {
            *a += b;
        }
        self.subscribers += other.subscribers;
        self.counters += other.counters;
    }
}

/// Statistics of a public address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressStats {
    /// The address.
    pub address: Ipv4Addr,
    /// True if it gets no new bindings.
    pub is_drained: bool,
    /// Its ports by transport, in the order of [`Transport`].
    pub ports: [Usage; 3],
    /// Its packets since it was added to the pool.
    pub traffic: Traffic,
}

/// Statistics of a subscriber with state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriberStats {
    /// Its number, which identifies it in later reads.
    pub number: u32,
    /// Its instance, by number in the order of [`Nat::instance_stats`](crate::Nat::instance_stats).
    pub instance: u8,
    /// Its first inside address; IPv4 addresses are written as ::ffff:a.b.c.d.
    pub inside: Ipv6Addr,
    /// Prefix length of the subscriber's inside network; for an IPv4 network, that within ::ffff:0:0/96.
    pub inside_len: u8,
    /// The public address that it is paired with (RFC 4787 REQ-2), if any.
    pub outside: Option<Ipv4Addr>,
    /// Sessions.
    pub sessions: u32,
    /// Ports by transport, in the order of [`Transport`]: those of its bindings, without static ones.
    pub ports: [u16; 3],
    /// Port blocks by transport, or the first number for all transports together.
    pub blocks: [u16; 3],
    /// Refusals by its limits.
    pub refusals: Refusals,
    /// Its packets since its record was created.
    pub traffic: Traffic,
}

/// Statistics of the instances: stateful ones by their numbers, then stateless ones.
pub(crate) fn instances(state: &EngineState) -> impl Iterator<Item = InstanceStats> + '_ {
    state.tally.instances().enumerate().map(|(number, (who, counters))| InstanceStats {
        kind: who.kind,
        name: Arc::clone(&who.name),
        counters: counters.clone(),
        entries: state.tables.entries(number),
        subscribers: u8::try_from(number).map_or(0, |n| state.tables.subscribers.of_instance(n)),
    })
}

/// Returns whether the counters of all instances, plus the unattributed ones, equal the engine's totals:
/// every packet and byte, every drop by its reason, every session, binding and subscriber.
pub(crate) fn is_conserved(state: &EngineState) -> bool {
    let (mut packets, mut entries, mut subscribers) =
        (state.tally.unattributed().clone(), EntryCounts::default(), 0);
    for stats in instances(state) {
        packets.add(&stats.counters);
        entries.add(&stats.entries);
        subscribers += stats.subscribers as usize;
    }
    let (c, tables) = (&state.counters, &state.tables);
    let dropped = |reason: usize| {
        let mut all = Count::default();
        c.drops.iter().filter_map(|by_reason| by_reason.get(reason)).for_each(|&count| all += count);
        all
    };
    let now = |count: &[EntryCount; 3]| count.iter().map(EntryCount::now).sum::<u64>() as usize;
    let mut forwarded = packets.outbound;
    forwarded += packets.inbound;
    (forwarded, packets.hairpinned, packets.passed) == (c.forwarded, c.hairpinned, c.passed)
        && packets.echoes.packets == c.echo_replies
        && packets.drops.iter().enumerate().all(|(reason, count)| *count == dropped(reason))
        && now(&entries.sessions) == tables.session_count()
        && now(&entries.bindings) == tables.binding_count()
        && subscribers == tables.subscribers.len()
}

/// Returns whether the sums of pools and of their addresses equal the packets and bytes of the stateful
/// instances, and whether subscribers have no more. This holds only if the plan has never changed, because
/// the counters of a removed pool, address or subscriber go with it.
pub(crate) fn is_conserved_by_address(state: &EngineState) -> bool {
    let tables = &state.tables;
    let (mut instances, mut pools, mut subscribers) = <(Traffic, Traffic, Traffic)>::default();
    for stats in self::instances(state).filter(|stats| stats.kind != InstanceKind::Siit) {
        instances.outbound += stats.counters.outbound;
        instances.inbound += stats.counters.inbound;
        instances.inbound += stats.counters.hairpinned;
    }
    let mut by_address = true;
    for (number, pool) in tables.pools.iter().enumerate() {
        let mut addresses = Traffic::default();
        (0..pool.room()).for_each(|ix| addresses += tables.address_traffic.at(number, ix));
        by_address &= addresses == pool.counters().traffic;
        pools += pool.counters().traffic;
    }
    (0..tables.subscribers.high()).for_each(|number| subscribers += tables.subscribers.traffic(number));
    let within = |a: Count, b: Count| a.packets <= b.packets && a.bytes <= b.bytes;
    by_address
        && pools == instances
        && within(subscribers.outbound, pools.outbound)
        && within(subscribers.inbound, pools.inbound)
}

/// Statistics of the pools, in the order of the plan.
pub(crate) fn pools(tables: &Tables) -> impl Iterator<Item = PoolStats> + '_ {
    tables.pools.iter().enumerate().map(|(number, pool)| PoolStats {
        name: Arc::clone(pool.name()),
        addresses: pool.addresses(),
        ports: Transport::ALL.map(|transport| pool.usage(transport)),
        ports_held: pool.ports_held(),
        blocks: pool.block_usage(),
        subscribers: tables.subscribers_of(number),
        counters: *pool.counters(),
    })
}

/// Statistics of a pool's addresses, counted from 0 to [`PoolStats::addresses`], a slice at a time. If the
/// pool's ranges change meanwhile, the count begins again.
pub(crate) fn addresses(
    tables: &Tables,
    pool_number: usize,
    numbers: Range<u32>,
) -> impl Iterator<Item = AddressStats> + '_ {
    let pool = tables.pools.get(pool_number);
    let end = pool.map_or(0, Pool4State::addresses).min(numbers.end);
    let usage = move |ix: u32, t: Transport| pool.map_or(Usage::default(), |p| p.address_usage(t, ix));
    let number = move |n: u32| pool.map_or(n, |p| p.nth(n));
    (numbers.start..end).map(number).map(move |ix| AddressStats {
        address: pool.map_or(Ipv4Addr::UNSPECIFIED, |p| p.address(ix)),
        is_drained: pool.is_some_and(|p| p.is_drained(ix)),
        ports: Transport::ALL.map(|transport| usage(ix, transport)),
        traffic: tables.address_traffic.at(pool_number, ix),
    })
}

/// Statistics of the subscribers with state whose numbers are in the range. All numbers are below
/// [`Subscribers::high`](crate::subscriber::Subscribers::high). Unused numbers are left out.
pub(crate) fn subscribers(core: &Core, numbers: Range<u32>) -> impl Iterator<Item = SubscriberStats> + '_ {
    let tables = &core.state.tables;
    let end = numbers.end.min(tables.subscribers.high());
    (numbers.start..end).filter_map(move |number| {
        let s = tables.subscribers.get(number)?;
        let SubscriberKey { prefix, instance } = s.key();
        let pool = tables.pools.get(tables.pool_of(instance));
        Some(SubscriberStats {
            number,
            instance,
            inside: Ipv6Addr::from(prefix),
            inside_len: subscriber_len(core, instance),
            outside: s.holdings.paired().and_then(|ix| pool.map(|p| p.address(ix))),
            sessions: s.sessions,
            ports: s.ports,
            blocks: s.holdings.blocks(),
            refusals: tables.subscribers.refusals(number),
            traffic: tables.subscribers.traffic(number),
        })
    })
}

/// Prefix length of the inside networks that an instance counts as one subscriber each; for IPv4 addresses,
/// that within ::ffff:0:0/96.
pub(crate) fn subscriber_len(core: &Core, instance: u8) -> u8 {
    core.rules.subscriber_lens().get(usize::from(instance)).copied().unwrap_or(128)
}
