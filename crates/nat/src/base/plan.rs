//! What an engine is built from: every value here is already checked. The configuration file becomes
//! one of these; tests and benches make theirs directly.

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
    /// A network, or `None` where `len` is too long or host bits are set.
    pub fn new(addr: Ipv4Addr, len: u8) -> Option<Self> {
        let host = u32::MAX.checked_shr(u32::from(len)).unwrap_or(0);
        (len <= 32 && u32::from(addr) & host == 0).then_some(Net4 { addr, len })
    }

    /// Whether an address lies in it.
    #[inline]
    pub fn contains(&self, a: Ipv4Addr) -> bool {
        let diff = u32::from(a) ^ u32::from(self.addr);
        diff.checked_shr(32 - u32::from(self.len)).unwrap_or(0) == 0
    }
}

impl Net6 {
    /// A network, or `None` where `len` is too long or host bits are set.
    pub fn new(addr: Ipv6Addr, len: u8) -> Option<Self> {
        let host = u128::MAX.checked_shr(u32::from(len)).unwrap_or(0);
        (len <= 128 && u128::from(addr) & host == 0).then_some(Net6 { addr, len })
    }

    /// Whether an address lies in it.
    #[inline]
    pub fn contains(&self, a: Ipv6Addr) -> bool {
        let diff = u128::from(a) ^ u128::from(self.addr);
        diff.checked_shr(128 - u32::from(self.len)).unwrap_or(0) == 0
    }
}

/// Everything an engine does.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Source of ICMPv4 errors made here; answers pings.
    pub own4: Option<Ipv4Addr>,
    /// Source of ICMPv6 errors made here; answers pings.
    pub own6: Option<Ipv6Addr>,
    /// The pools that instances refer to by index.
    pub pools: Vec<Pool4>,
    /// First and last addresses of pools that several workers share, those of the others too: an own address among them is
    /// the business of the worker that has it.
    pub pooled: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// Stateful instances that translate between IPv6 and IPv4.
    pub nat64: Vec<Nat64>,
    /// Stateful instances that translate between private and public IPv4.
    pub nat44: Vec<Nat44>,
    /// Stateless instances.
    pub siit: Vec<Siit>,
    /// Sizes of tables.
    pub limits: Limits,
    /// ICMP errors made here.
    pub icmp: IcmpPolicy,
    /// What is told of what happens to state.
    pub events: EventPlan,
}

impl Plan {
    /// Whether there are instances with state.
    pub fn is_stateful(&self) -> bool {
        !(self.nat64.is_empty() && self.nat44.is_empty())
    }

    /// Whether more than a packet's destination says whose it is that goes to a translation prefix, or more than its
    /// source, where it comes from private IPv4: a realm, or sources of the same prefix.
    pub fn is_ruled(&self) -> bool {
        let realms = self.nat64.iter().map(|n| n.realm).chain(self.nat44.iter().map(|n| n.realm));
        let mut prefixes: Vec<_> = self.nat64.iter().flat_map(|n| &n.pool6).collect();
        let all = prefixes.len();
        prefixes.sort_unstable_by_key(|prefix| (prefix.address(), prefix.len()));
        prefixes.dedup();
        realms.into_iter().any(|realm| realm != 0) || prefixes.len() < all
    }

    /// The pool of each stateful instance, by its number: NAT64's first, then NAT44's.
    pub fn pools_of_instances(&self) -> impl Iterator<Item = usize> + '_ {
        self.nat64.iter().map(|n| n.pool).chain(self.nat44.iter().map(|n| n.pool))
    }
}

/// A stateful NAT64 instance (RFC 6146).
#[derive(Clone, Debug)]
pub struct Nat64 {
    /// For operators.
    pub name: String,
    /// One or more translation prefixes; none overlaps another instance's, unless that has another realm or other
    /// sources.
    pub pool6: Vec<Prefix64>,
    /// Index into [`Plan::pools`].
    pub pool: usize,
    /// IPv6 sources served; empty means all.
    pub sources: Vec<Net6>,
    /// The realm that its hosts are in: what came from another one is not its.
    pub realm: u8,
    /// What from outside may pass through a binding (RFC 6146 3.5.1, 3.5.2).
    pub filtering: Filtering,
    /// Whether connections may be opened from outside to a binding.
    pub external_tcp: bool,
    /// Whether 64:ff9b::/96 may stand for private addresses, against RFC 6052 3.1.
    pub wkp_non_global: bool,
    /// Where a translated ICMPv4 error comes from.
    pub icmp_error_source: IcmpErrorSource,
    /// Whether an inbound packet extends a UDP or ICMP session's life (RFC 6146 says so; RFC 7857 7 does not).
    pub inbound_refresh: bool,
    /// Whether RST in a FIN_RCV state moves the session to TRANS (not in RFC 6146; shortens its life).
    pub rst_during_fin: bool,
    /// Whether echo messages are translated; off is RFC 6146 3.5.3's policy.
    pub icmp_queries: bool,
    /// The unit of pairing and quotas: 128, 64, 56 or 48.
    pub subscriber_len: u8,
    /// Bindings that always exist.
    pub static_bindings: Vec<StaticBinding>,
    /// Lifetimes.
    pub timeouts: Timeouts,
    /// Header translation.
    pub settings: Settings,
}

/// As the configuration file has it where it says nothing.
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

/// A NAT44 instance for many subscribers (RFC 6888). Its number among the stateful instances, in keys and
/// records, comes after those of [`Plan::nat64`].
#[derive(Clone, Debug)]
pub struct Nat44 {
    /// For operators.
    pub name: String,
    /// Whose packets it translates; none overlaps another instance's of the same realm, nor a pool.
    pub inside: Vec<Net4>,
    /// As [`Nat64::realm`].
    pub realm: u8,
    /// Index into [`Plan::pools`].
    pub pool: usize,
    /// Destinations to which packets pass untranslated (RFC 6888 REQ-6).
    pub exempt: Vec<Exemption>,
    /// What from outside may pass through a binding (RFC 4787 5).
    pub filtering: Filtering,
    /// Whether connections may be opened from outside to a binding.
    pub external_tcp: bool,
    /// Whether an inbound packet extends a session's life (RFC 4787 REQ-6; RFC 7857 7 advises against it).
    pub inbound_refresh: bool,
    /// Whether echo messages are translated.
    pub icmp_queries: bool,
    /// The unit of pairing and quotas: 32, or less where a subscriber has a network.
    pub subscriber_len: u8,
    /// Bindings that always exist; inside addresses stand there as ::ffff:a.b.c.d.
    pub static_bindings: Vec<StaticBinding>,
    /// Lifetimes.
    pub timeouts: Timeouts,
    /// MTU of the links on both sides, bytes.
    pub mtu: u32,
    /// As [`Settings::mss_max`].
    pub mss_max: u16,
}

/// As the configuration file has it where it says nothing.
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
    /// Bits of an inside address as it stands in keys (::ffff:a.b.c.d) that say whose it is.
    pub(crate) fn key_len(&self) -> u8 {
        96 + self.subscriber_len.min(32)
    }
}

/// Destinations that are not translated to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exemption {
    /// Addresses.
    pub net: Net4,
    /// Protocol; `None` is every one.
    pub transport: Option<Transport>,
    /// First and last port; `None` is every one, and packets without ports.
    pub ports: Option<(u16, u16)>,
}

impl Exemption {
    /// Whether it is meant for a packet to `remote`, of IP protocol `proto`, to `port` where it has one.
    pub fn covers(&self, remote: Ipv4Addr, proto: u8, port: Option<u16>) -> bool {
        let wanted = self.transport.map(Transport::ip_protocol);
        let in_ports = |(first, last)| port.is_some_and(|p| (first..=last).contains(&p));
        self.net.contains(remote) && wanted.is_none_or(|w| w == proto) && self.ports.is_none_or(in_ports)
    }
}

/// RFC 4787 5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Filtering {
    /// Anybody may send to a binding.
    #[default]
    EndpointIndependent,
    /// Only addresses that the binding has a session with.
    AddressDependent,
    /// Only addresses and ports that the binding has a session with.
    AddressAndPortDependent,
}

/// The outer source of an ICMP error translated from IPv4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IcmpErrorSource {
    /// The router that sent it, embedded in the prefix: traceroute shows the path.
    #[default]
    Router,
    /// The destination of the packet inside it (RFC 6146 3.6.1 to the letter).
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
    /// Every one, in the order of their numbers.
    pub const ALL: [Transport; 3] = [Transport::Tcp, Transport::Udp, Transport::Icmp];

    /// What configuration, API, metrics and logs call it.
    pub const fn name(self) -> &'static str {
        match self {
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
            Transport::Icmp => "icmp",
        }
    }

    /// The one of that name.
    pub fn named(name: &str) -> Option<Transport> {
        Transport::ALL.into_iter().find(|transport| transport.name() == name)
    }

    /// A bit for each of these, as [`of_bits`](Self::of_bits) reads them.
    pub fn bits(transports: impl IntoIterator<Item = Transport>) -> u8 {
        transports.into_iter().fold(0, |bits, transport| bits | 1 << transport as u8)
    }

    /// Those whose bit is set, where bit `n` is that of number `n`.
    pub fn of_bits(bits: u8) -> impl Iterator<Item = Transport> {
        Transport::ALL.into_iter().filter(move |&transport| bits & 1 << transport as u8 != 0)
    }

    /// An array that is true for this transport alone.
    pub(crate) fn alone(self) -> [bool; 3] {
        core::array::from_fn(|t| t == self as usize)
    }

    /// Its entry of an array that has one for each.
    #[inline(always)]
    pub(crate) fn of<T>(self, all: &[T; 3]) -> &T {
        let [tcp, ..] = all;
        all.get(self as usize).unwrap_or(tcp)
    }

    /// As [`of`](Self::of), to be changed.
    #[inline(always)]
    pub(crate) fn of_mut<T>(self, all: &mut [T; 3]) -> &mut T {
        let [tcp, udp, icmp] = all;
        match self {
            Transport::Tcp => tcp,
            Transport::Udp => udp,
            Transport::Icmp => icmp,
        }
    }

    /// Its number in an IPv4 header.
    pub(crate) const fn ip_protocol(self) -> u8 {
        match self {
            Transport::Tcp => proto::TCP,
            Transport::Udp => proto::UDP,
            Transport::Icmp => proto::ICMP,
        }
    }
}

/// A binding from the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticBinding {
    /// Protocol.
    pub transport: Transport,
    /// Inside address and port.
    pub inside: (Ipv6Addr, u16),
    /// Outside address and port, both in the instance's pool's addresses.
    pub outside: (Ipv4Addr, u16),
}

/// Lifetimes in milliseconds (RFC 6146 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// UDP_DEFAULT.
    pub udp_ms: u32,
    /// TCP_EST: an established connection without packets.
    pub tcp_established_ms: u32,
    /// TCP_TRANS: a connection that was reset, or whose endpoints were asked with a probe.
    pub tcp_transitory_ms: u32,
    /// TCP_TRANS of a connection that opens (RFC 7857 2.1).
    pub tcp_partial_open_ms: u32,
    /// TCP_TRANS of a connection that both sides have closed (RFC 7857 2.1).
    pub tcp_closing_ms: u32,
    /// TCP_INCOMING_SYN: how long an unsolicited SYN is held.
    pub tcp_incoming_syn_ms: u32,
    /// ICMP_DEFAULT.
    pub icmp_ms: u32,
    /// FRAGMENT_MIN: how long fragments wait for their first one.
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
    /// For operators.
    pub name: String,
    /// Addresses with ports; the same address may stand in several ranges, with ports or protocols that
    /// do not overlap.
    pub ranges: Vec<PoolRange>,
    /// What happens when a subscriber's address has no port left.
    pub pairing: Pairing,
    /// Whether an even port gets an even one and an odd one an odd (RFC 4787 REQ-4).
    pub port_parity: bool,
    /// Whether a port below 1024 gets one below 1024 and others one from 1024 on, where ports are given one by
    /// one and such a port is free (RFC 4787 REQ-3). Blocks have no class.
    pub port_class: bool,
    /// How ports are given out.
    pub allocation: Allocation,
    /// Remote ports, of TCP and UDP, flows to which share a port with others of their subscriber: their mapping
    /// and filtering depend on the remote end (RFC 7857 3).
    pub overload: Vec<(Transport, u16)>,
}

impl Default for Pool4 {
    /// No address; ports one by one, their class kept, their parity not.
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

/// How the ports of a pool are given out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// One by one, at random over all ports of the subscriber's address (RFC 6056).
    Random(HoldDown),
    /// By blocks: a subscriber gets some ports in a row, and each of its bindings a random one of them.
    Blocks(Blocks),
    /// By a formula: which ports a subscriber has is known without a log (RFC 7422).
    Deterministic(Deterministic),
}

impl Default for Allocation {
    fn default() -> Self {
        Allocation::Random(HoldDown::default())
    }
}

/// How long what was given back is given to nobody else (RFC 6888 REQ-8). TCP's own ports are exempt, as each
/// connection is followed to its end, and so are pools whose instances all filter by address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoldDown {
    /// The time; zero holds nothing.
    pub ms: u32,
    /// Ports held at a time; where there are more, the one held longest is free again.
    pub ports_max: u32,
}

/// Port block allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Ports of a block: a power of two from [`Blocks::SIZE_MIN`] to [`Blocks::SIZE_MAX`]. A block begins at a
    /// multiple of its size; ports that fill no block are not given out.
    pub size: u16,
    /// Blocks of one subscriber at a time; where protocols have their own, of each protocol.
    pub per_subscriber: u16,
    /// How long a block without bindings is kept for its subscriber.
    pub linger_ms: u32,
    /// Then, how long nobody gets it.
    pub hold: HoldDown,
    /// Which protocols a block is for.
    pub protocols: BlockProtocols,
}

impl Blocks {
    /// The smallest block.
    pub const SIZE_MIN: u16 = 32;
    /// The largest block.
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

/// Which protocols a port block is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockProtocols {
    /// All of them: a subscriber has the same ports for TCP, UDP and ICMP, and one log record tells of it.
    #[default]
    Shared,
    /// One: each protocol has its own blocks.
    Split,
}

/// Deterministic allocation: the n-th subscriber has the n-th block, in order of addresses and ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deterministic {
    /// The subscribers that have a block of their own, in this order. IPv4 networks stand in ::ffff:0:0/96.
    pub inside: Vec<Net6>,
    /// The prefix length of those that are IPv6; an IPv4 subscriber is an address.
    pub subscriber_len: u8,
    /// Blocks of each address, its last ones, that are nobody's own: who needs more than its own block, or has
    /// none, gets one of these for as long as it needs it.
    pub overflow_per_address: u16,
    /// The size of all blocks, and the terms of those of the overflow. Protocols are always shared.
    pub blocks: Blocks,
}

/// Some addresses and some of their ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolRange {
    /// First address.
    pub first: Ipv4Addr,
    /// Last address, not below the first.
    pub last: Ipv4Addr,
    /// First and last port (or identifier).
    pub ports: (u16, u16),
    /// Whether for TCP, UDP and ICMP, in the order of [`Transport`].
    pub transports: [bool; 3],
}

/// RFC 7857 4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pairing {
    /// Another address of the pool serves, and it is counted.
    #[default]
    Soft,
    /// The packet is dropped.
    Hard,
}

/// A stateless instance (RFC 7915, RFC 7757).
#[derive(Clone, Debug, Default)]
pub struct Siit {
    /// For operators.
    pub name: String,
    /// Translation prefixes; may be empty where every address has a mapping. The first one is used for
    /// IPv4 addresses without mapping.
    pub pool6: Vec<Prefix64>,
    /// Explicit address mappings.
    pub eamt: Vec<Eam>,
    /// RFC 7757 4.
    pub hairpin: Hairpin,
    /// IPv4 addresses that are never translated, in either direction.
    pub denylist4: Vec<Net4>,
    /// IPv6 addresses that are never translated.
    pub denylist6: Vec<Net6>,
    /// As [`Nat64::wkp_non_global`].
    pub wkp_non_global: bool,
    /// Sources for ICMPv4 errors whose IPv6 source has no translation (RFC 6791).
    pub icmp_pool4: Vec<Net4>,
    /// How one of them is chosen.
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

/// How stateless hairpins are made (RFC 7757 4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hairpin {
    /// Not at all.
    Off,
    /// 4.2.1: the router sends the packet back.
    Simple,
    /// 4.2.2: the translator turns it round itself.
    #[default]
    Intrinsic,
}

/// RFC 6791.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IcmpPoolMode {
    /// By a hash of the IPv6 router's address: one router, one address.
    #[default]
    Hash,
    /// By the hop limit: one distance, one address.
    HopLimit,
}

/// Which events are made, and how many may wait to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventPlan {
    /// Kinds that are made.
    pub kinds: EventKinds,
    /// Events that wait; more are lost, and counted.
    pub ring_len: u32,
    /// Places of the ring of state records (blocks, bindings, quotas).
    pub state_ring_len: u32,
    /// Whether sessions' events tell the remote end (RFC 6888 REQ-12: not unless somebody asks for it).
    pub destinations: bool,
    /// How full a pool or table is, of a hundred, when [`crate::EventKind::ThresholdHigh`] tells of it.
    pub threshold: u8,
}

impl Default for EventPlan {
    fn default() -> Self {
        EventPlan {
            kinds: EventKinds::NONE,
            ring_len: 65_536,
            // All that packets of some milliseconds can make.
            state_ring_len: 65_536,
            destinations: false,
            threshold: 90,
        }
    }
}

/// Sizes of tables. Reaching one drops new state only, and is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sessions.
    pub sessions_max: u32,
    /// Part of `sessions_max`, of a hundred, that only subscribers with few sessions may use.
    pub sessions_reserved: u8,
    /// What few is: fewer than this.
    pub sessions_reserved_below: u32,
    /// Inside hosts or prefixes with state.
    pub subscribers_max: u32,
    /// Sessions of one subscriber.
    pub sessions_per_subscriber: u32,
    /// Ports (bindings) of one subscriber, all protocols together.
    pub ports_per_subscriber: u32,
    /// Of these, for TCP, UDP and ICMP each; never more than 65,535.
    pub ports_per_subscriber_by: [u32; 3],
    /// New sessions a second of one subscriber; 0 is no limit.
    pub session_rate_per_subscriber: u32,
    /// New sessions at once of one subscriber, where there is a limit a second.
    pub session_burst_per_subscriber: u32,
    /// Held unsolicited SYNs.
    pub syn_store_max: u32,
    /// IPv4 hosts behind a path of less than 1260 bytes that are remembered; 0 remembers none.
    pub path_mtus_max: u32,
    /// Fragmented packets followed at a time.
    pub fragment_entries_max: u32,
    /// Bytes of held fragments, all together.
    pub fragment_bytes_max: u32,
    /// Fragmented packets followed and fragments held, together, for one subscriber, or one outside address.
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
    /// Sessions that any subscriber may open; the rest up to `sessions_max` is reserved for those with few.
    #[inline]
    pub fn sessions_for_all(&self) -> u32 {
        let open = 100 - u64::from(self.sessions_reserved.min(100));
        (u64::from(self.sessions_max) * open / 100) as u32
    }
}

/// Which ICMP errors are made, and how many.
#[derive(Clone, Debug)]
pub struct IcmpPolicy {
    /// Errors a second.
    pub rate: u32,
    /// Errors at once; the last quarter is for Packet Too Big and Fragmentation Needed alone.
    pub burst: u32,
    /// Errors a second to one subscriber, /64 or IPv4 address; 0 is no limit of its own.
    pub rate_per_source: u32,
    /// As `burst`, to one of these.
    pub burst_per_source: u32,
    /// Reasons that are not answered though they could be.
    pub suppressed: Vec<DropReason>,
    /// Code of the ICMPv6 Destination Unreachable that tells a subscriber of its quota.
    pub quota_code6: u8,
    /// As above, of ICMPv4 (RFC 6888 REQ-11: 1).
    pub quota_code4: u8,
}

impl Default for IcmpPolicy {
    fn default() -> Self {
        // What scanners from outside would have sent back, and what tells them which ports are bound.
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
