//! Packets from outside: IPv4 packets to a pool address, for instances of both kinds (RFC 6146 3.5, 3.6.2,
//! 3.7).

use super::filter::{self, Admitted, InboundQuery, InboundRefusal};
use super::unsolicited::{self, Unsolicited};
use crate::base::outcome::Refusal;
use crate::base::step::Step;
use crate::path::context::{Inbound, PacketContext};
use crate::path::query::Query;
use gatun_wire::Packet;

/// Describes an unsolicited SYN from outside, in no realm.
pub(crate) fn unsolicited(from: &Inbound, query: &Query) -> Unsolicited {
    let (outside, remote) = ((from.view.dst, query.dst_port), (from.view.src, query.src_port));
    Unsolicited { at: from.at, outside, remote, realm: 0 }
}

/// Translates a query from outside that is not a fragment.
pub(crate) fn query(
    cx: &mut PacketContext<'_>,
    packet: &mut Packet<'_>,
    from: &Inbound,
    query: &Query,
) -> Result<Step, Refusal> {
    match decide(cx, from, query) {
        Ok((instance, to)) => Ok(Step::forward(instance.write_inbound(packet, &from.view, from.l4, &to)?)),
        Err(InboundRefusal::Drop(refusal)) => Err(refusal),
        Err(InboundRefusal::Hold) => Ok(unsolicited::hold(cx, packet, &unsolicited(from, query))?),
    }
}

/// Filters and updates, and computes the outgoing addresses and ports.
pub(crate) fn decide<'c>(
    cx: &mut PacketContext<'c>,
    from: &Inbound,
    query: &Query,
) -> Result<Admitted<'c>, InboundRefusal> {
    let inbound = InboundQuery { at: from.at, query: *query, remote: (from.view.src, query.src_port) };
    // A packet whose TTL expires here changes no state.
    if from.view.ttl <= 1 {
        return Err(inbound.expired(&cx.state.tables).into());
    }
    filter::admit(cx, &inbound)
}
