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

use crate::base::plan::Transport;
use crate::base::step::Step;
use crate::path::shared::Shared;
use crate::path::siit::SiitState;
use crate::path::stateful::Query;
use crate::tables::bib::{Place, Tables};
use core::net::Ipv4Addr;
use gatun_wire::{DropReason, Ipv4View, Ipv6View, L4, Packet, icmp_error, proto};

/// A packet to an own address.
#[derive(Clone, Copy)]
pub(crate) struct ToOwn {
    l4: L4,
    proto: u8,
    is_piece: bool,
}

/// What becomes of it.
#[derive(Clone, Copy)]
pub(crate) enum Fate {
    /// It is answered with an echo reply.
    Ping,
    /// It is dropped, and answered where this reason has an answer.
    Refused(DropReason),
}

impl ToOwn {
    pub(crate) fn six(view: &Ipv6View, l4: L4) -> Self {
        ToOwn { l4, proto: view.proto, is_piece: view.fragment.is_some_and(|f| !f.is_atomic()) }
    }

    pub(crate) fn four(view: &Ipv4View, l4: L4) -> Self {
        ToOwn { l4, proto: view.proto, is_piece: view.fragment.is_some() }
    }

    /// What becomes of a packet to an address that lies in no pool.
    pub(crate) fn fate(&self) -> Fate {
        let reason = match self.l4 {
            L4::Echo { request: true, .. } if !self.is_piece => return Fate::Ping,
            _ if self.is_piece => DropReason::OwnOther,
            L4::Udp { .. } => DropReason::OwnUdp,
            L4::Other if !matches!(self.proto, proto::IGMP | proto::NO_NEXT) => DropReason::OwnProtocol,
            _ => DropReason::OwnOther,
        };
        Fate::Refused(reason)
    }

    /// What becomes of a packet whose destination is, or stands for, this IPv4 address; `None` where it is a pool's.
    #[cold]
    pub(crate) fn fate_at(&self, sh: &Shared, address: Ipv4Addr, from_inside: bool) -> Option<Fate> {
        let is_pools = match sh.tables.locate(address) {
            Some(place) => self.is_pools(&sh.tables, place, from_inside),
            // Which bindings another worker's address has, that one knows: it gets the packet as from outside.
            None => sh.is_pooled(address) && !(from_inside && self.is_request()),
        };
        (!is_pools).then(|| self.fate())
    }

    fn is_request(&self) -> bool {
        matches!(self.l4, L4::Echo { request: true, .. })
    }

    fn is_pools(&self, tables: &Tables, place: Place, from_inside: bool) -> bool {
        let binding = |q: Query| tables.binding_at(place, q.transport, q.dst_port).map(|id| tables.get(id));
        match (self.l4, Query::of(self.l4, from_inside)) {
            // The identifier of a ping from inside is not the one that it would have at another host's binding.
            _ if from_inside && self.is_request() => false,
            (L4::Echo { request: true, .. }, Some(query)) if !self.is_piece => {
                binding(query).is_some_and(|primary| primary.is_of_static())
            }
            // By their own rules: errors by the packet inside them, later fragments by their first one.
            (_, None) => true,
            (_, Some(query)) if query.transport == Transport::Icmp => true,
            (_, Some(query)) => {
                let may_wait = !from_inside || query.transport == Transport::Tcp;
                binding(query).is_some() || may_wait && tables.covers(place, query.transport, query.dst_port)
            }
        }
    }
}

/// What becomes of a packet to `own6`, which no NAT64 instance's prefix has; `None` where it is a pool's by way of a
/// stateless instance.
#[cold]
pub(crate) fn at_own6(sh: &Shared, siit: &[SiitState], packet: ToOwn) -> Option<Fate> {
    match siit.iter().find_map(SiitState::own6_in_ipv4) {
        Some(address) => packet.fate_at(sh, address, true),
        None => Some(packet.fate()),
    }
}

impl Fate {
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
            Fate::Refused(reason) => Err(reason),
            Fate::Ping if !icmp_error::may_answer6(view, l4) => Err(DropReason::SourceMartian),
            Fate::Ping => icmp_error::echo_reply6(packet, view).map(|()| Step::Echo),
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
            Fate::Refused(reason) => Err(reason),
            Fate::Ping if !icmp_error::may_answer4(view, l4) => Err(DropReason::SourceMartian),
            Fate::Ping => icmp_error::echo_reply4(packet, view).map(|()| Step::Echo),
        }
    }
}
