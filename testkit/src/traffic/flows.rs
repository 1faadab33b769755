//! Flows: addresses, ports and protocol, all computed from a flow's number.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The translation prefix that IPv6 hosts send to, a /96.
pub const POOL6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0, 0);
/// The network of the servers: the second half of the network for benchmarks (RFC 2544 C.2.2).
pub const SERVERS: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 0);
/// Prefix length of [`SERVERS`].
pub const SERVERS_LEN: u8 = 16;

/// First inside /64; the subscriber's number is added.
const INSIDE6: u64 = 0x2001_0db8_8000_0000;
/// First private inside address: 100.64.0.0/10 (RFC 6598).
const INSIDE4: u32 = 0x6440_0000;
/// First port of inside hosts and of servers.
const PORT_FIRST: u16 = 1024;
const SERVER_PORT: u16 = 4433;

/// IP version of the inside hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv6, to servers behind [`POOL6`]; a subscriber is a /64.
    V6,
    /// IPv4; a subscriber is an address of 100.64.0.0/10.
    V4,
}

/// Protocols of the flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocols {
    /// All are UDP.
    Udp,
    /// All are like TCP: every fourth packet of a flow is a SYN, the others are segments.
    Tcp,
    /// Flows alternate between UDP and TCP.
    Mixed,
}

/// A flow's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP's number is 6.
    Tcp = 6,
    /// UDP's number is 17.
    Udp = 17,
}

impl Protocol {
    /// Bytes of the protocol's header.
    pub(crate) fn header_len(self) -> usize {
        match self {
            Protocol::Tcp => 20,
            Protocol::Udp => 8,
        }
    }
}

/// Both ends of a flow, as the inside host sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The inside host.
    pub inside: (IpAddr, u16),
    /// The server; behind [`POOL6`] for an IPv6 host.
    pub server: (IpAddr, u16),
    /// Protocol of the flow.
    pub protocol: Protocol,
}

impl Flow {
    /// Flow `number` of `subscribers`, who take turns. Numbers below `subscribers` * 60,000 give different
    /// flows.
    pub(crate) fn new(number: u32, subscribers: u32, family: Family, protocols: Protocols) -> Flow {
        let (subscriber, turn) = (number % subscribers, number / subscribers);
        let port = PORT_FIRST + (turn % 60_000) as u16;
        let server = server_of(number);
        let tcp = match protocols {
            Protocols::Udp => false,
            Protocols::Tcp => true,
            // Alternates with each turn as well, so that subscribers have both protocols when their number
            // is even.
            Protocols::Mixed => (number ^ turn) & 1 == 1,
        };
        let (inside, server) = match family {
            Family::V6 => (IpAddr::V6(inside6(subscriber)), IpAddr::V6(embed(server))),
            Family::V4 => (IpAddr::V4(Ipv4Addr::from(INSIDE4.wrapping_add(subscriber))), IpAddr::V4(server)),
        };
        let protocol = if tcp { Protocol::Tcp } else { Protocol::Udp };
        Flow { inside: (inside, port), server: (server, SERVER_PORT), protocol }
    }
}

/// The server's own IPv4 address.
pub(crate) fn server_of(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(SERVERS) | (mix(u64::from(number)) as u32 & 0xffff))
}

/// The one host of a subscriber's /64.
fn inside6(subscriber: u32) -> Ipv6Addr {
    let network = u128::from(INSIDE6 | u64::from(subscriber)) << 64;
    Ipv6Addr::from(network | 1)
}

/// An IPv4 address embedded in [`POOL6`] (RFC 6052 2.2, a /96).
pub fn embed(v4: Ipv4Addr) -> Ipv6Addr {
    Ipv6Addr::from(u128::from(POOL6) | u128::from(u32::from(v4)))
}

/// A 64-bit number whose bits all depend on all bits of `n` (splitmix64).
pub fn mix(n: u64) -> u64 {
    let x = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_flow_is_another_one_and_mixed_subscribers_have_both_protocols() {
        for family in [Family::V6, Family::V4] {
            let flows: Vec<Flow> =
                (0..64_000).map(|n| Flow::new(n, 4000, family, Protocols::Mixed)).collect();
            let different: HashSet<_> = flows.iter().map(|f| f.inside).collect();
            assert_eq!(different.len(), 64_000);
            for protocol in [Protocol::Tcp, Protocol::Udp] {
                let hosts: HashSet<_> =
                    flows.iter().filter(|f| f.protocol == protocol).map(|f| f.inside.0).collect();
                assert_eq!(hosts.len(), 4000, "{protocol:?}");
            }
        }
    }
}
