//! Packets to the translator's own addresses: `own4`, `own6`, and what stands for one of them in the other family. They
//! are a host's addresses, so a packet to one is answered or dropped here, and never translated (RFC 1122 3.2.1.3,
//! RFC 1812 5.2.3): a device that is routed to the translator would bring it back until its hop limit ends.
//!
//! | to an own address | |
//! |---|---|
//! | ping | echo reply |
//! | UDP | Port Unreachable (RFC 1122 4.1.3.1, RFC 4443 3.1) |
//! | another protocol | Protocol Unreachable (RFC 1122 3.2.2.1), Parameter Problem (RFC 4443 3.4) |
//! | TCP, fragments, other ICMP messages | dropped silently |
//!
//! TCP gets no reset: nothing here speaks TCP, and a reset that anybody can cause with a forged source is of use to
//! nobody. Fragments are not put together for an answer. Decision 0022.
//!
//! An own address may lie in a pool. Its bindings come first; so do the pool's ports in what comes from outside, and
//! for TCP in what comes from inside, as a SYN there may have to wait (RFC 5382 REQ-4). A ping is another host's only
//! where a static binding of the configuration says so.

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
    /// It is answered with an echo reply.
    Ping,
    /// It is dropped, and answered where this reason has an answer.
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

    /// The answer where the address lies in no pool.
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
    /// Brings it about; where an error is to answer, the caller makes it.
    ///
    /// # Errors
    /// Why the packet is dropped: also a ping that does not come from one host (RFC 4443 4.2).
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

    /// As [`answer6`](Self::answer6), of an IPv4 packet (RFC 1122 3.2.2.6).
    ///
    /// # Errors
    /// As of [`answer6`](Self::answer6).
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
