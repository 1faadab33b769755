//! Query of a packet to the tables: its transport and flags, and its two ends (RFC 6146 3.5).

use super::Result;
use super::addresses::v4;
use super::ends::{End4, End6, ICMP, TCP, UDP};
use crate::tcp;
use crate::wire::{Header, L4, proto};
use gatun_wire::DropReason;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A packet of an existing or a possible session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Query {
    pub(super) transport: usize,
    pub(super) flags: u8,
    /// True for an echo reply.
    pub(super) is_reply: bool,
}

impl Query {
    /// Returns true if it may open a session: a SYN, a datagram, an echo request.
    ///
    /// # Errors
    /// Returns an error for senseless flags.
    pub(super) fn opens(&self) -> Result<bool> {
        match self.transport {
            TCP if tcp::is_senseless(self.flags) => Err(DropReason::TcpInvalidFlags),
            TCP => Ok(tcp::segment(self.flags) == tcp::Segment::Syn),
            ICMP => Ok(!self.is_reply),
            _ => Ok(true),
        }
    }
}

/// Query of a packet from inside, with its inside end and its remote end.
pub(super) fn query_out(
    h: &Header<'_>,
    l4: L4,
    inside: Ipv6Addr,
    remote: Ipv4Addr,
) -> Result<(Query, End6, End4)> {
    let mut q = Query { transport: TCP, flags: 0, is_reply: false };
    match l4 {
        L4::Tcp { src, dst, flags } => {
            q.flags = flags;
            Ok((q, (inside, src), (remote, dst)))
        }
        L4::Udp { src, dst, .. } => {
            q.transport = UDP;
            Ok((q, (inside, src), (remote, dst)))
        }
        L4::Echo { request, id } => {
            (q.transport, q.is_reply) = (ICMP, !request);
            // RFC 6146 3.5.3: a session is X', Y' and the identifier; the remote side has no port.
            Ok((q, (inside, id), (remote, 0)))
        }
        L4::OtherIcmp { kind } => Err(unknown_icmp(h, kind)),
        _ if h.proto == proto::IGMP => Err(DropReason::IcmpSingleHop), // RFC 7915 4.2, in any family
        _ => Err(DropReason::UnsupportedProtocol),
    }
}

/// Query of a packet from outside, with its outside end and its remote end.
pub(super) fn query_back(h: &Header<'_>, l4: L4) -> Result<(Query, End4, End4)> {
    let (src, dst) = (v4(h.src), v4(h.dst));
    let mut q = Query { transport: TCP, flags: 0, is_reply: false };
    match l4 {
        L4::Tcp { src: z, dst: t, flags } => {
            q.flags = flags;
            Ok((q, (dst, t), (src, z)))
        }
        L4::Udp { src: z, dst: t, .. } => {
            q.transport = UDP;
            Ok((q, (dst, t), (src, z)))
        }
        L4::Echo { request, id } => {
            (q.transport, q.is_reply) = (ICMP, !request);
            Ok((q, (dst, id), (src, 0)))
        }
        L4::OtherIcmp { kind } => Err(unknown_icmp(h, kind)),
        _ if h.proto == proto::IGMP => Err(DropReason::IcmpSingleHop),
        _ => Err(DropReason::UnsupportedProtocol),
    }
}

/// MLD, neighbour discovery and router discovery are link-local; other types have no translation (RFC 7915
/// 4.2, 5.2).
fn unknown_icmp(h: &Header<'_>, kind: u8) -> DropReason {
    match kind {
        9 | 10 if h.src.is_ipv4() => DropReason::IcmpSingleHop,
        130..=137 | 143 if h.src.is_ipv6() => DropReason::IcmpSingleHop,
        _ => DropReason::IcmpUnknownType,
    }
}
