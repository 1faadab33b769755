//! Stateful instances: NAT64 and NAT44.

use super::{Net4, Net6, Transport};
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_wire::{Prefix64, Settings, mss};

/// A stateful NAT64 instance (RFC 6146).
#[derive(Clone, Debug)]
pub struct Nat64 {
    /// Name shown to operators.
    pub name: String,
    /// Translation prefixes, at least one. A prefix overlaps another instance's only if the realms or the
    /// sources differ.
    pub pool6: Vec<Prefix64>,
    /// Index into [`pools`](super::Plan::pools).
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
    /// True if an inbound packet extends a UDP or ICMP session's life (RFC 6146 says so; RFC 7857 7 does
    /// not).
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
/// [`nat64`](super::Plan::nat64).
#[derive(Clone, Debug)]
pub struct Nat44 {
    /// Name shown to operators.
    pub name: String,
    /// Inside networks. They overlap neither another instance's networks in the same realm nor a pool.
    pub inside: Vec<Net4>,
    /// Same as [`Nat64::realm`].
    pub realm: u8,
    /// Index into [`pools`](super::Plan::pools).
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
    /// Returns whether the exemption covers a packet to `remote` with IP protocol `proto`, and with
    /// destination port `port` if it has one.
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

impl Timeouts {
    /// Lifetime of an established session.
    pub(crate) fn established_ms(&self, transport: Transport) -> u32 {
        match transport {
            Transport::Tcp => self.tcp_established_ms,
            Transport::Udp => self.udp_ms,
            Transport::Icmp => self.icmp_ms,
        }
    }
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
