//! Packets to the translator's own addresses: `own4`, `own6`, and the address that represents one of them in
//! the other family. These are host addresses, so a packet to one is answered or dropped here, and never
//! translated (RFC 1122 3.2.1.3, RFC 1812 5.2.3). If it were forwarded, a router with a route to the
//! translator would return it until its hop limit expires.
//!
//! | to an own address | |
//! |---|---|
//! | ping | echo reply |
//! | UDP | Port Unreachable (RFC 1122 4.1.3.1, RFC 4443 3.1) |
//! | another protocol | Protocol Unreachable (RFC 1122 3.2.2.1), Parameter Problem (RFC 4443 3.4) |
//! | TCP, fragments, other ICMP messages | dropped silently |
//!
//! TCP gets no reset: there is no TCP endpoint here, and a reset that anyone can cause with a forged source
//! helps nobody. Fragments are not reassembled for an answer. Decision 0022.
//!
//! An own address may be in a pool. Existing bindings come first. So do the pool's ports, for packets from
//! outside and for TCP from inside, because a SYN may have to wait there (RFC 5382 REQ-4). A ping is for
//! another host only if a static binding of the configuration exists for it.

use crate::base::step::Step;
use gatun_wire::{DropReason, Ipv4View, Ipv6View, L4, Packet, icmp_error, proto};

/// A packet to an own address.
#[derive(Clone, Copy)]
pub(crate) struct OwnPacket {
    pub(crate) l4: L4,
    proto: u8,
    pub(crate) is_piece: bool,
}

/// Answer to a packet to an own address.
#[derive(Clone, Copy)]
pub(crate) enum OwnAnswer {
    /// The packet is answered with an echo reply.
    Ping,
    /// The packet is dropped, and answered if this reason has an answer.
    Refused(DropReason),
}

impl OwnPacket {
    pub(crate) fn six(view: &Ipv6View, l4: L4) -> Self {
        OwnPacket { l4, proto: view.proto, is_piece: view.fragment.is_some_and(|f| !f.is_atomic()) }
    }

    pub(crate) fn four(view: &Ipv4View, l4: L4) -> Self {
        OwnPacket { l4, proto: view.proto, is_piece: view.fragment.is_some() }
    }

    pub(crate) fn is_request(&self) -> bool {
        matches!(self.l4, L4::Echo { request: true, .. })
    }

    /// Returns the answer for an address that is in no pool.
    pub(crate) fn answer(&self) -> OwnAnswer {
        let reason = match self.l4 {
            L4::Echo { request: true, .. } if !self.is_piece => return OwnAnswer::Ping,
            _ if self.is_piece => DropReason::OwnOther,
            L4::Udp { .. } => DropReason::OwnUdp,
            L4::Other if !matches!(self.proto, proto::IGMP | proto::NO_NEXT) => DropReason::OwnProtocol,
            _ => DropReason::OwnOther,
        };
        OwnAnswer::Refused(reason)
    }
}

impl OwnAnswer {
    /// Answers an IPv6 packet. If an ICMP error has to answer it, the caller creates the error.
    ///
    /// # Errors
    /// Returns the reason why the packet is dropped. This includes a ping from an address that is not a
    /// single host (RFC 4443 4.2).
    #[cold]
    pub(crate) fn answer6(
        self,
        packet: &mut Packet<'_>,
        view: &Ipv6View,
        l4: L4,
    ) -> Result<Step, DropReason> {
        match self {
            OwnAnswer::Refused(reason) => Err(reason),
            OwnAnswer::Ping if !icmp_error::may_answer6(view, l4) => Err(DropReason::SourceMartian),
            OwnAnswer::Ping => icmp_error::echo_reply6(packet, view).map(|()| Step::Echo),
        }
    }

    /// Same as [`answer6`](Self::answer6), for an IPv4 packet (RFC 1122 3.2.2.6).
    ///
    /// # Errors
    /// Same as [`answer6`](Self::answer6).
    #[cold]
    pub(crate) fn answer4(
        self,
        packet: &mut Packet<'_>,
        view: &Ipv4View,
        l4: L4,
    ) -> Result<Step, DropReason> {
        match self {
            OwnAnswer::Refused(reason) => Err(reason),
            OwnAnswer::Ping if !icmp_error::may_answer4(view, l4) => Err(DropReason::SourceMartian),
            OwnAnswer::Ping => icmp_error::echo_reply4(packet, view).map(|()| Step::Echo),
        }
    }
}
