//! Plan from which an engine is built. Every value in it is already checked. The configuration file is
//! converted to a plan; tests and benches build plans directly.

use crate::base::event_kind::EventKinds;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_wire::{DropReason, Prefix64, Settings, mss, proto};

/// An IPv4 network: host bits are zero, `len` at most 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Net4 {
    /// First address.
    pub addr: Ipv4Addr,
    /// Prefix length.
    pub len: u8,
}

/// An IPv6 network: host bits are zero, `len` at most 128.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Net6 {
    /// First address.
    pub addr: Ipv6Addr,
    /// Prefix length.
    pub len: u8,
}

impl Net4 {
    /// Creates a network. Returns `None` if `len` is too long or host bits are set.
    pub fn new(addr: Ipv4Addr, len: u8) -> Option<Self> {
        let host = u32::MAX.checked_shr(u32::from(len)).unwrap_or(0);
        (len <= 32 && u32::from(addr) & host == 0).then_some(Net4 { addr, len })
    }

    /// Returns whether the network contains an address.
    #[inline]
    pub fn contains(&self, a: Ipv4Addr) -> bool {
        let diff = u32::from(a) ^ u32::from(self.addr);
        diff.checked_shr(32 - u32::from(self.len)).unwrap_or(0) == 0
    }
}

impl Net6 {
    /// Creates a network. Returns `None` if `len` is too long or host bits are set.
    pub fn new(addr: Ipv6Addr, len: u8) -> Option<Self> {
        let host = u128::MAX.checked_shr(u32::from(len)).unwrap_or(0);
        (len <= 128 && u128::from(addr) & host == 0).then_some(Net6 { addr, len })
    }

    /// Returns whether the network contains an address.
    #[inline]
    pub fn contains(&self, a: Ipv6Addr) -> bool {
        let diff = u128::from(a) ^ u128::from(self.addr);
        diff.checked_shr(128 - u32::from(self.len)).unwrap_or(0) == 0
    }
}

/// Complete plan of an engine.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Source address of the translator's ICMPv4 errors; it answers pings.
    pub own4: Option<Ipv4Addr>,
    /// Source address of the translator's ICMPv6 errors; it answers pings.
    pub own6: Option<Ipv6Addr>,
    /// The pools that instances refer to by index.
    pub pools: Vec<Pool4>,
    /// First and last addresses of the pools that several workers share, including those of other workers. If
    /// an own address is in one of them, the worker that has the address handles its packets.
    pub pooled: Vec<(Ipv4Addr, Ipv4Addr)>,
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
        let realms = self.nat64.iter().map(|n| n.realm).chain(self.nat44.iter().map(|n| n.realm));
        let mut prefixes: Vec<_> = self.nat64.iter().flat_map(|n| &n.pool6).collect();
        let all = prefixes.len();
        prefixes.sort_unstable_by_key(|prefix| (prefix.address(), prefix.len()));
        prefixes.dedup();
        realms.into_iter().any(|realm| realm != 0) || prefixes.len() < all
    }

    /// Pool index of each stateful instance, in the order of instance numbers: NAT64 instances first, then
    /// NAT44 instances.
    pub fn pools_of_instances(&self) -> impl Iterator<Item = usize> + '_ {
        self.nat64.iter().map(|n| n.pool).chain(self.nat44.iter().map(|n| n.pool))
    }
}

/// A stateful NAT64 instance (RFC 6146).
#[derive(Clone, Debug)]
pub struct Nat64 {
    /// Name shown to operators.
    pub name: String,
    /// Translation prefixes, at least one. A prefix overlaps another instance's only if the realms or the
    /// sources differ.
    pub pool6: Vec<Prefix64>,
    /// Index into [`Plan::pools`].
    pub pool: usize,
    /// IPv6 sources served; empty means all.
    pub sources: Vec<Net6>,
    /// Realm of the inside hosts. Packets from other realms are not for this instance.
    pub realm: u8,
    /// Filtering of packets from outside to a binding (RFC 6146 3.5.1, 3.5.2).
    pub filtering: Filtering,
    /// True if outside hosts may open TCP connections to a binding.
    pub external_tcp: bool,
    /// True if 64:ff9b::/96 may represent private addresses, against RFC 6052 3.1.
    pub wkp_non_global: bool,
    /// Source of a translated ICMPv4 error.
    pub icmp_error_source: IcmpErrorSource,
    /// True if an inbound packet extends a UDP or ICMP session's life (RFC 6146 says so; RFC 7857 7 does not).
    pub inbound_refresh: bool,
    /// True if RST in a FIN_RCV state moves the session to TRANS (not in RFC 6146; shortens its life).
    pub rst_during_fin: bool,
    /// True if echo messages are translated. RFC 6146 3.5.3 allows the policy not to.
    pub icmp_queries: bool,
    /// The unit of pairing and quotas: 128, 64, 56 or 48.
    pub subscriber_len: u8,
    /// Static bindings.
    pub static_bindings: Vec<StaticBinding>,
    /// Lifetimes.
    pub timeouts: Timeouts,
    /// Header translation.
    pub settings: Settings,
}

/// Defaults of the configuration file.
impl Default for Nat64 {
    fn default() -> Self {
        Nat64 {
            name: String::new(),
            pool6: Vec::new(),
            pool: 0,
            sources: Vec::new(),
            realm: 0,
            filtering: Filtering::default(),
            external_tcp: true,
            wkp_non_global: false,
            icmp_error_source: IcmpErrorSource::default(),
            inbound_refresh: true,
            rst_during_fin: false,
            icmp_queries: true,
            subscriber_len: 64,
            static_bindings: Vec::new(),
            timeouts: Timeouts::default(),
            settings: Settings::default(),
        }
    }
}

/// NAT44 instance for many subscribers (RFC 6888). In keys and records, its number follows those of
/// [`Plan::nat64`].
#[derive(Clone, Debug)]
pub struct Nat44 {
    /// Name shown to operators.
    pub name: String,
    /// Inside networks. They overlap neither another instance's networks in the same realm nor a pool.
    pub inside: Vec<Net4>,
    /// Same as [`Nat64::realm`].
    pub realm: u8,
    /// Index into [`Plan::pools`].
    pub pool: usize,
    /// Destinations to which packets pass untranslated (RFC 6888 REQ-6).
    pub exempt: Vec<Exemption>,
    /// Filtering of packets from outside to a binding (RFC 4787 5).
    pub filtering: Filtering,
    /// True if outside hosts may open TCP connections to a binding.
    pub external_tcp: bool,
    /// True if an inbound packet extends a session's life (RFC 4787 REQ-6; RFC 7857 7 advises against it).
    pub inbound_refresh: bool,
    /// True if echo messages are translated.
    pub icmp_queries: bool,
    /// The unit of pairing and quotas: 32, or less if a subscriber has a network.
    pub subscriber_len: u8,
    /// Static bindings; inside addresses are written as ::ffff:a.b.c.d.
    pub static_bindings: Vec<StaticBinding>,
    /// Lifetimes.
    pub timeouts: Timeouts,
    /// MTU of the links on both sides, bytes.
    pub mtu: u32,
    /// Same as [`Settings::mss_max`].
    pub mss_max: u16,
}

/// Defaults of the configuration file.
impl Default for Nat44 {
    fn default() -> Self {
        Nat44 {
            name: String::new(),
            inside: Vec::new(),
            realm: 0,
            pool: 0,
            exempt: Vec::new(),
            filtering: Filtering::default(),
            external_tcp: true,
            inbound_refresh: false,
            icmp_queries: true,
            subscriber_len: 32,
            static_bindings: Vec::new(),
            timeouts: Timeouts::default(),
            mtu: 1500,
            mss_max: mss::ANY,
        }
    }
}

impl Nat44 {
    /// Prefix length of a subscriber in keys, where inside addresses are written as ::ffff:a.b.c.d.
    pub(crate) fn key_len(&self) -> u8 {
        96 + self.subscriber_len.min(32)
    }
}

/// Destinations that are exempt from translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exemption {
    /// Addresses.
    pub net: Net4,
    /// Protocol; `None` means every protocol.
    pub transport: Option<Transport>,
    /// First and last port; `None` means every port, and packets without ports.
    pub ports: Option<(u16, u16)>,
}

impl Exemption {
    /// Returns whether the exemption covers a packet to `remote` with IP protocol `proto`, and with destination
    /// port `port` if it has one.
    pub fn covers(&self, remote: Ipv4Addr, proto: u8, port: Option<u16>) -> bool {
        let wanted = self.transport.map(Transport::ip_protocol);
        let in_ports = |(first, last)| port.is_some_and(|p| (first..=last).contains(&p));
        self.net.contains(remote) && wanted.is_none_or(|w| w == proto) && self.ports.is_none_or(in_ports)
    }
}

/// Filtering behaviour (RFC 4787 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Filtering {
    /// Any outside host may send to a binding.
    #[default]
    EndpointIndependent,
    /// Only addresses with which the binding has a session may send.
    AddressDependent,
    /// Only addresses and ports with which the binding has a session may send.
    AddressAndPortDependent,
}

/// Outer source of an ICMP error translated from IPv4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IcmpErrorSource {
    /// Router that sent the error, embedded in the prefix: traceroute shows the path.
    #[default]
    Router,
    /// Destination of the quoted packet (RFC 6146 3.6.1 to the letter).
    InnerDestination,
}

/// A transport protocol with state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Transport {
    /// TCP.
    Tcp = 0,
    /// UDP.
    Udp = 1,
    /// ICMP echo; ports are identifiers.
    Icmp = 2,
}

impl Transport {
    /// All transports, in the order of their numbers.
    pub const ALL: [Transport; 3] = [Transport::Tcp, Transport::Udp, Transport::Icmp];

    /// Name in configuration, API, metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
            Transport::Icmp => "icmp",
        }
    }

    /// Finds a transport by name.
    pub fn named(name: &str) -> Option<Transport> {
        Transport::ALL.into_iter().find(|transport| transport.name() == name)
    }

    /// Returns a bit set of transports, as [`of_bits`](Self::of_bits) reads it.
    pub fn bits(transports: impl IntoIterator<Item = Transport>) -> u8 {
        transports.into_iter().fold(0, |bits, transport| bits | 1 << transport as u8)
    }

    /// Iterates over the transports in a bit set; bit `n` stands for number `n`.
    pub fn of_bits(bits: u8) -> impl Iterator<Item = Transport> {
        Transport::ALL.into_iter().filter(move |&transport| bits & 1 << transport as u8 != 0)
    }

    /// Returns an array that is true for this transport alone.
    pub(crate) fn alone(self) -> [bool; 3] {
        core::array::from_fn(|t| t == self as usize)
    }

    /// Returns this transport's entry of an array that has one for each.
    #[inline(always)]
    pub(crate) fn of<T>(self, all: &[T; 3]) -> &T {
        let [tcp, ..] = all;
        all.get(self as usize).unwrap_or(tcp)
    }

    /// Mutable version of [`of`](Self::of).
    #[inline(always)]
    pub(crate) fn of_mut<T>(self, all: &mut [T; 3]) -> &mut T {
        let [tcp, udp, icmp] = all;
        match self {
            Transport::Tcp => tcp,
            Transport::Udp => udp,
            Transport::Icmp => icmp,
        }
    }

    /// Protocol number in an IPv4 header.
    pub(crate) const fn ip_protocol(self) -> u8 {
        match self {
            Transport::Tcp => proto::TCP,
            Transport::Udp => proto::UDP,
            Transport::Icmp => proto::ICMP,
        }
    }
}

/// Static binding from the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticBinding {
    /// Protocol.
    pub transport: Transport,
    /// Inside address and port.
    pub inside: (Ipv6Addr, u16),
    /// Outside address and port; the address is in the instance's pool.
    pub outside: (Ipv4Addr, u16),
}

/// Lifetimes in milliseconds (RFC 6146 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// UDP_DEFAULT.
    pub udp_ms: u32,
    /// TCP_EST: an established connection without packets.
    pub tcp_established_ms: u32,
    /// TCP_TRANS: a connection that was reset, or whose endpoints got a probe.
    pub tcp_transitory_ms: u32,
    /// TCP_TRANS of an opening connection (RFC 7857 2.1).
    pub tcp_partial_open_ms: u32,
    /// TCP_TRANS of a connection that both sides have closed (RFC 7857 2.1).
    pub tcp_closing_ms: u32,
    /// TCP_INCOMING_SYN: time for which an unsolicited SYN is held.
    pub tcp_incoming_syn_ms: u32,
    /// ICMP_DEFAULT.
    pub icmp_ms: u32,
    /// FRAGMENT_MIN: time for which fragments wait for their first one.
    pub fragment_ms: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            udp_ms: 300_000,
            tcp_established_ms: 7_440_000,
            tcp_transitory_ms: 240_000,
            tcp_partial_open_ms: 240_000,
            tcp_closing_ms: 240_000,
            tcp_incoming_syn_ms: 6_000,
            icmp_ms: 60_000,
            fragment_ms: 2_000,
        }
    }
}

/// Public IPv4 addresses and their ports.
#[derive(Clone, Debug)]
pub struct Pool4 {
    /// Name shown to operators.
    pub name: String,
    /// Addresses with ports. The same address may be in several ranges if their ports or protocols do not
    /// overlap.
    pub ranges: Vec<PoolRange>,
    /// Behaviour if a subscriber's address has no free port left.
    pub pairing: Pairing,
    /// True if Gatun keeps the parity of the inside port (RFC 4787 REQ-4).
    pub port_parity: bool,
    /// True if Gatun keeps the class of the inside port: below 1024, or 1024 and above (RFC 4787 REQ-3). This
    /// applies to single ports, as long as such a port is free. Blocks have no class.
    pub port_class: bool,
    /// Allocation of ports.
    pub allocation: Allocation,
    /// Remote TCP and UDP ports. Flows to these share a public port with other flows of their subscriber: their
    /// mapping and filtering depend on the remote end (RFC 7857 3).
    pub overload: Vec<(Transport, u16)>,
}

impl Default for Pool4 {
    /// Pool without addresses that allocates single ports and keeps their class but not their parity.
    fn default() -> Self {
        Pool4 {
            name: String::new(),
            ranges: Vec::new(),
            pairing: Pairing::Soft,
            port_parity: false,
            port_class: true,
            allocation: Allocation::default(),
            overload: Vec::new(),
        }
    }
}

/// Allocation of a pool's ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Single ports, at random over all ports of the subscriber's address (RFC 6056).
    Random(HoldDown),
    /// Port blocks: a subscriber gets consecutive ports, and each binding gets a random one of them.
    Blocks(Blocks),
    /// Formula: the ports of a subscriber are known without a log (RFC 7422).
    Deterministic(Deterministic),
}

impl Default for Allocation {
    fn default() -> Self {
        Allocation::Random(HoldDown::default())
    }
}

/// Time for which a returned port or block is not given to another subscriber (RFC 6888 REQ-8). Single TCP
/// ports are exempt, because each connection is followed to its end. Pools whose instances all filter by
/// address are exempt too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoldDown {
    /// Hold-down time; zero disables it.
    pub ms: u32,
    /// Maximum number of held ports. Beyond it, the port that was held longest becomes free.
    pub ports_max: u32,
}

/// Port block allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Ports of a block: a power of two from [`Blocks::SIZE_MIN`] to [`Blocks::SIZE_MAX`]. A block begins at a
    /// multiple of its size. Ports that fill no block are not given out.
    pub size: u16,
    /// Maximum number of blocks per subscriber. With [`BlockProtocols::Split`], the limit holds for each
    /// protocol.
    pub per_subscriber: u16,
    /// Time for which a block without bindings is kept for its subscriber.
    pub linger_ms: u32,
    /// Hold-down after that time.
    pub hold: HoldDown,
    /// Protocols of a block.
    pub protocols: BlockProtocols,
}

impl Blocks {
    /// Smallest block.
    pub const SIZE_MIN: u16 = 32;
    /// Largest block.
    pub const SIZE_MAX: u16 = 16_384;
}

impl Default for Blocks {
    fn default() -> Self {
        Blocks {
            size: 256,
            per_subscriber: 4,
            linger_ms: 120_000,
            hold: HoldDown { ms: 120_000, ports_max: u32::MAX },
            protocols: BlockProtocols::Shared,
        }
    }
}

/// Protocols of a port block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockProtocols {
    /// All protocols: a subscriber has the same ports for TCP, UDP and ICMP, and one log record covers them.
    #[default]
    Shared,
    /// One protocol: each protocol has its own blocks.
    Split,
}

/// Deterministic allocation: the n-th subscriber has the n-th block, in order of addresses and ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deterministic {
    /// Networks of the subscribers that have a block of their own, in this order. IPv4 networks are written in
    /// ::ffff:0:0/96.
    pub inside: Vec<Net6>,
    /// Prefix length of IPv6 subscribers. An IPv4 subscriber is one address.
    pub subscriber_len: u8,
    /// Overflow blocks: the last blocks of each address, which belong to no subscriber. A subscriber that needs
    /// more than its own block, or has none, gets one for as long as it needs it.
    pub overflow_per_address: u16,
    /// Size of all blocks, and the terms of the overflow blocks. Protocols are always shared.
    pub blocks: Blocks,
}

/// Range of addresses and of their ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolRange {
    /// First address.
    pub first: Ipv4Addr,
    /// Last address, not below the first.
    pub last: Ipv4Addr,
    /// First and last port (or identifier).
    pub ports: (u16, u16),
    /// True for each of TCP, UDP and ICMP that may use the range, in the order of [`Transport`].
    pub transports: [bool; 3],
}

/// Address pairing (RFC 7857 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pairing {
    /// Gatun uses another address of the pool, and counts that.
    #[default]
    Soft,
    /// Gatun drops the packet.
    Hard,
}

/// A stateless instance (RFC 7915, RFC 7757).
#[derive(Clone, Debug, Default)]
pub struct Siit {
    /// Name shown to operators.
    pub name: String,
    /// Translation prefixes. May be empty if every address has a mapping. The first one is used for IPv4
    /// addresses without a mapping.
    pub pool6: Vec<Prefix64>,
    /// Explicit address mappings.
    pub eamt: Vec<Eam>,
    /// Hairpinning (RFC 7757 4).
    pub hairpin: Hairpin,
    /// IPv4 addresses that are never translated, in either direction.
    pub denylist4: Vec<Net4>,
    /// IPv6 addresses that are never translated.
    pub denylist6: Vec<Net6>,
    /// Same as [`Nat64::wkp_non_global`].
    pub wkp_non_global: bool,
    /// Sources for ICMPv4 errors whose IPv6 source has no translation (RFC 6791).
    pub icmp_pool4: Vec<Net4>,
    /// Choice of an address from `icmp_pool4`.
    pub icmp_pool4_mode: IcmpPoolMode,
    /// Sources for ICMPv6 errors whose IPv4 source has no translation.
    pub icmp_pool6: Vec<Net6>,
    /// Header translation.
    pub settings: Settings,
}

/// An explicit address mapping; the IPv6 suffix is at least as long as the IPv4 one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Eam {
    /// IPv4 side.
    pub v4: Net4,
    /// IPv6 side.
    pub v6: Net6,
}

/// Stateless hairpinning (RFC 7757 4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hairpin {
    /// No hairpinning.
    Off,
    /// RFC 7757 4.2.1: the router sends the packet back.
    Simple,
    /// RFC 7757 4.2.2: the translator hairpins the packet itself.
    #[default]
    Intrinsic,
}

/// Choice of the source of an ICMPv4 error (RFC 6791).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IcmpPoolMode {
    /// Hash of the IPv6 router's address: each router keeps one address.
    #[default]
    Hash,
    /// Hop limit: each distance has one address.
    HopLimit,
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
    /// Number of sessions open to every subscriber. The rest, up to `sessions_max`, is reserved for subscribers
    /// with few sessions.
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
