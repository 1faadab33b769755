//! Queries: TCP, UDP and echo messages, as state sees them.

use crate::base::plan::Transport;
use gatun_wire::{DropReason, L4, Ports, proto};

/// Query: protocol, ports (identifiers), and the flags of a TCP segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query {
    pub(crate) transport: Transport,
    pub(crate) src_port: u16,
    pub(crate) dst_port: u16,
    /// Flags byte of TCP; zero for other protocols.
    pub(crate) flags: u8,
    /// True for an echo reply, which opens nothing.
    pub(crate) is_reply: bool,
}

impl Query {
    /// Reads the query from the transport header of a packet from inside (`outbound`) or from outside. An
    /// echo message has one identifier, which is the inside port (RFC 6146 3.5.3, RFC 5508 REQ-1).
    #[inline]
    pub(crate) fn of(l4: L4, outbound: bool) -> Option<Query> {
        let query = |transport, src_port, dst_port, flags, is_reply| {
            Some(Query { transport, src_port, dst_port, flags, is_reply })
        };
        match l4 {
            L4::Tcp { src_port, dst_port, flags } => query(Transport::Tcp, src_port, dst_port, flags, false),
            L4::Udp { src_port, dst_port, .. } => query(Transport::Udp, src_port, dst_port, 0, false),
            L4::Echo { request, id } if outbound => query(Transport::Icmp, id, 0, 0, !request),
            L4::Echo { request, id } => query(Transport::Icmp, 0, id, 0, !request),
            _ => None,
        }
    }
}

/// Returns the ports of a packet of this protocol. An echo message has only `id`.
#[inline]
pub(crate) fn ports(transport: Transport, src: u16, dst: u16, id: u16) -> Ports {
    match transport {
        Transport::Icmp => Ports::EchoId(id),
        _ => Ports::Set { src, dst },
    }
}

/// Returns the drop reason for a packet whose transport header [`Query::of`] cannot read. IGMP is for one
/// link, so it is dropped silently (RFC 7915 4.2), as in a stateless instance.
pub(crate) fn unreadable(l4: L4, proto: u8) -> DropReason {
    match l4 {
        L4::Other if proto == proto::IGMP => DropReason::IcmpSingleHop,
        L4::IcmpOther { kind } if is_single_hop(proto, kind) => DropReason::IcmpSingleHop,
        L4::IcmpOther { .. } => DropReason::IcmpUnknownType,
        _ => DropReason::UnsupportedProtocol,
    }
}

/// Returns whether a message never leaves a link: MLD (130 to 132, 143) and neighbour discovery (133 to 137)
/// of ICMPv6, router discovery (9, 10) of ICMPv4.
fn is_single_hop(proto: u8, kind: u8) -> bool {
    match proto {
        proto::ICMP => matches!(kind, 9 | 10),
        _ => matches!(kind, 130..=137 | 143),
    }
}
