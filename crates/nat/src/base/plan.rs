//! Plan from which an engine is built. Every value in it is already checked. The configuration file is
//! converted to a plan; tests and benches build plans directly.

mod network;
mod pool4;
pub(crate) mod sharding;
mod siit;
mod stateful;
mod transport;

use crate::base::event_kind::EventKinds;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_wire::DropReason;
use sharding::Sharding;

pub use network::{Net4, Net6};
pub use pool4::{Allocation, BlockProtocols, Blocks, Deterministic, HoldDown, Pairing, Pool4, PoolRange};
pub use siit::{Eam, Hairpin, IcmpPoolMode, Siit};
pub use stateful::{Exemption, Filtering, IcmpErrorSource, Nat44, Nat64, StaticBinding, Timeouts};
pub use transport::Transport;

/// Complete plan of an engine.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Source address of the translator's ICMPv4 errors; it answers pings.
    pub own4: Option<Ipv4Addr>,
    /// Source address of the translator's ICMPv6 errors; it answers pings.
    pub own6: Option<Ipv6Addr>,
    /// The pools that instances refer to by index.
    pub pools: Vec<Pool4>,
    /// First and last addresses of the pools that several workers share, including those of other workers.
    /// If an own address is in one of them, the worker that has the address handles its packets.
    pub pooled: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// Number of shards of the cluster that the translator is a node of: a power of two up to 256. `None`
    /// without a cluster.
    pub shards: Option<u16>,
    /// Division of addresses and subscribers among the shards, in a plan of
    /// [`Shares`](crate::workers::Shares).
    pub sharding: Option<Arc<Sharding>>,
    /// Stateful instances that translate between IPv6 and IPv4.
    pub nat64: Vec<Nat64>,
    /// Stateful instances that translate between private and public IPv4.
    pub nat44: Vec<Nat44>,
    /// Stateless instances.
    pub siit: Vec<Siit>,
    /// Sizes of tables.
    pub limits: Limits,
    /// Policy for the translator's ICMP errors.
    pub icmp: IcmpPolicy,
    /// Events that the engine reports.
    pub events: EventPlan,
}

impl Plan {
    /// Returns whether the plan has stateful instances.
    pub fn is_stateful(&self) -> bool {
        !(self.nat64.is_empty() && self.nat44.is_empty())
    }

    /// Returns whether the destination of a packet to a translation prefix, or the source of a packet from
    /// private IPv4, is not enough to find its instance. This is the case with realms, or with different
    /// sources for the same prefix.
    pub fn is_ruled(&self) -> bool {
        let mut prefixes: Vec<_> = self.nat64.iter().flat_map(|n| &n.pool6).collect();
        let all = prefixes.len();
        prefixes.sort_unstable_by_key(|prefix| (prefix.address(), prefix.len()));
        prefixes.dedup();
        self.realms().any(|realm| realm != 0) || prefixes.len() < all
    }

    /// Realm of each stateful instance.
    pub(crate) fn realms(&self) -> impl Iterator<Item = u8> {
        self.nat64.iter().map(|n| n.realm).chain(self.nat44.iter().map(|n| n.realm))
    }

    /// Networks whose packets no stateless instance translates: own addresses, pools, hosts of NAT44, denied
    /// networks, and prefixes of NAT64.
    pub fn kept_from_siit(&self) -> (Vec<Net4>, Vec<Net6>) {
        let embedded_own6 = self.own6.into_iter().flat_map(|own6| {
            self.siit.iter().flat_map(|siit| &siit.pool6).filter_map(move |prefix| prefix.extract(own6))
        });
        let own4 = self.own4.into_iter().chain(embedded_own6).map(|addr| Net4 { addr, len: 32 });
        let ranges = self.pools.iter().flat_map(|pool| &pool.ranges);
        let four = own4
            .chain(ranges.flat_map(|range| Net4::covering(range.first, range.last)))
            .chain(self.nat44.iter().flat_map(|nat44| &nat44.inside).copied())
            .chain(self.siit.iter().flat_map(|siit| &siit.denylist4).copied());
        let own6 = self.own6.into_iter().map(|addr| Net6 { addr, len: 128 });
        let prefixes = self.nat64.iter().flat_map(|nat64| &nat64.pool6);
        let six = own6
            .chain(self.siit.iter().flat_map(|siit| &siit.denylist6).copied())
            .chain(prefixes.map(|prefix| Net6 { addr: prefix.address(), len: prefix.len() }));
        (four.collect(), six.collect())
    }

    /// Returns whether a fast path may translate only IPv6 packets of a stateless instance: a router sends
    /// packets back to a simple hairpin (RFC 7757 4.2.1), and the engine looks at all IPv4 packets if an own
    /// address is mapped.
    pub fn is_only_from_ipv6(&self, siit: &Siit) -> bool {
        let own4 = |own: Ipv4Addr| siit.eamt.iter().any(|eam| eam.v4.contains(own));
        let own6 = |own: Ipv6Addr| siit.eamt.iter().any(|eam| eam.v6.contains(own));
        siit.hairpin == Hairpin::Simple || self.own4.is_some_and(own4) || self.own6.is_some_and(own6)
    }

    /// Returns whether an address is in a pool, or in the pools that several workers share.
    pub(crate) fn is_public(&self, address: Ipv4Addr) -> bool {
        let ranges = self.pools.iter().flat_map(|pool| &pool.ranges).map(|range| (range.first, range.last));
        ranges.chain(self.pooled.iter().copied()).any(|(first, last)| first <= address && address <= last)
    }

    /// Returns whether an address is in a translation prefix and represents a public one.
    pub(crate) fn represents_public(&self, address: Ipv6Addr) -> bool {
        let prefixes = self.nat64.iter().flat_map(|nat64| &nat64.pool6);
        prefixes.filter_map(|prefix| prefix.extract(address)).any(|address| self.is_public(address))
    }

    /// Pool index of each stateful instance, in the order of instance numbers: NAT64 instances first, then
    /// NAT44 instances.
    pub fn pools_of_instances(&self) -> impl Iterator<Item = usize> + '_ {
        self.nat64.iter().map(|n| n.pool).chain(self.nat44.iter().map(|n| n.pool))
    }
}

/// Events that the engine makes, and the number that may wait for the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventPlan {
    /// Kinds that are made.
    pub kinds: EventKinds,
    /// Events that wait; more are lost, and counted.
    pub ring_len: u32,
    /// Places of the ring of state records (blocks, bindings, quotas).
    pub state_ring_len: u32,
    /// True if session events report the remote end (RFC 6888 REQ-12: only if the operator asks for it).
    pub destinations: bool,
    /// Fill level of a pool or table, in percent, at which [`crate::EventKind::ThresholdHigh`] is reported.
    pub threshold: u8,
}

impl Default for EventPlan {
    fn default() -> Self {
        EventPlan {
            kinds: EventKinds::NONE,
            ring_len: 65_536,
            // Room for all events that the packets of some milliseconds can make.
            state_ring_len: 65_536,
            destinations: false,
            threshold: 90,
        }
    }
}

/// Table sizes. Reaching a limit drops new state only, and is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sessions.
    pub sessions_max: u32,
    /// Percentage of `sessions_max` that is reserved for subscribers with few sessions.
    pub sessions_reserved: u8,
    /// Number of sessions below which a subscriber counts as having few.
    pub sessions_reserved_below: u32,
    /// Subscribers (inside hosts or prefixes) with state.
    pub subscribers_max: u32,
    /// Sessions of one subscriber.
    pub sessions_per_subscriber: u32,
    /// Ports (bindings) of one subscriber, all protocols together.
    pub ports_per_subscriber: u32,
    /// Ports of one subscriber for each of TCP, UDP and ICMP; never more than 65,535.
    pub ports_per_subscriber_by: [u32; 3],
    /// New sessions a second of one subscriber; 0 means no limit.
    pub session_rate_per_subscriber: u32,
    /// New sessions at once of one subscriber, if there is a rate limit.
    pub session_burst_per_subscriber: u32,
    /// Held unsolicited SYNs.
    pub syn_store_max: u32,
    /// Number of IPv4 hosts with a path MTU below 1260 bytes that Gatun remembers; 0 means none.
    pub path_mtus_max: u32,
    /// Fragmented packets followed at a time.
    pub fragment_entries_max: u32,
    /// Bytes of held fragments, all together.
    pub fragment_bytes_max: u32,
    /// Fragmented packets followed plus fragments held, for one subscriber or one outside address.
    pub fragments_per_source: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            sessions_max: 262_144,
            sessions_reserved: 25,
            sessions_reserved_below: 64,
            subscribers_max: 65_536,
            sessions_per_subscriber: 16_384,
            ports_per_subscriber: 4_096,
            ports_per_subscriber_by: [u32::MAX; 3],
            session_rate_per_subscriber: 0,
            session_burst_per_subscriber: 1_000,
            syn_store_max: 1_024,
            path_mtus_max: 4_096,
            fragment_entries_max: 2_048,
            fragment_bytes_max: 4 << 20,
            fragments_per_source: 128,
        }
    }
}

impl Limits {
    /// Number of sessions open to every subscriber. The rest, up to `sessions_max`, is reserved for
    /// subscribers with few sessions.
    #[inline]
    pub fn sessions_for_all(&self) -> u32 {
        let open = 100 - u64::from(self.sessions_reserved.min(100));
        (u64::from(self.sessions_max) * open / 100) as u32
    }
}

/// Policy for the translator's ICMP errors.
#[derive(Clone, Debug)]
pub struct IcmpPolicy {
    /// Errors a second.
    pub rate: u32,
    /// Errors at once; the last quarter is for Packet Too Big and Fragmentation Needed alone.
    pub burst: u32,
    /// Errors a second to one subscriber, /64 or IPv4 address; 0 means no limit per source.
    pub rate_per_source: u32,
    /// Errors at once to one subscriber, /64 or IPv4 address.
    pub burst_per_source: u32,
    /// Drop reasons that get no ICMP error.
    pub suppressed: Vec<DropReason>,
    /// Code of the ICMPv6 Destination Unreachable that reports an exceeded quota to a subscriber.
    pub quota_code6: u8,
    /// Code of the ICMPv4 Destination Unreachable that does the same (RFC 6888 REQ-11: 1).
    pub quota_code4: u8,
}

impl Default for IcmpPolicy {
    fn default() -> Self {
        // Errors for these reasons would answer scanners from outside, and would show which ports are bound.
        let suppressed =
            [DropReason::NoBib, DropReason::AddressDependentFilter, DropReason::AddressPortDependentFilter];
        IcmpPolicy {
            rate: 1_000,
            burst: 200,
            rate_per_source: 100,
            burst_per_source: 50,
            suppressed: suppressed.to_vec(),
            quota_code6: 1,
            quota_code4: 1,
        }
    }
}
