//! Packets from inside: private IPv4 packets to any destination (RFC 4787 4, RFC 5382 4, RFC 5508 3).

use crate::base::outcome::Refusal;
use crate::base::plan::Transport;
use crate::base::special;
use crate::base::step::Step;
use crate::base::tcp_fsm::Side;
use crate::path::context::{Outbound4, PacketContext};
use crate::path::policy;
use crate::path::query::{self, Query};
use crate::path::rewrite::OutboundRewrite;
use crate::path::rules::Instance;
use crate::path::rules::nat44::{Nat44, inside_of, outbound_of};
use crate::path::stateful::hairpin;
use crate::path::stateful::outbound::{by_binding, open};
use crate::tables::session::{Endpoint4, Inside, RecordId};
use gatun_wire::rfc3022::{self, Rewrite};
use gatun_wire::{DropReason, Packet, Segmentation};

/// Translates a query from inside that is not a fragment.
pub(crate) fn query(
    cx: &mut PacketContext<'_>,
    packet: &mut Packet<'_>,
    from: &Outbound4<'_>,
    query: &Query,
) -> Result<Step, Refusal> {
    let to = decide(cx, from, query)?;
    let tables = &cx.state.tables;
    if let Some(at) = tables.locate_hairpin(to.dst) {
        let out = (from.nat.policy.instance, &OutboundRewrite::From4(to));
        return hairpin::query(cx, packet, query, out, at);
    }
    if to.id.is_some() && packet.offload.segmentation != Segmentation::None {
        cx.state.idents.count_on(tables.pair_hash(to.src, to.dst, query.transport), packet);
    }
    Ok(rfc3022::translate(packet, &from.view, from.l4, &to, from.nat.link).map(Step::forward)?)
}

/// Filters and updates, and computes the outgoing addresses, ports and identification.
pub(crate) fn decide(
    cx: &mut PacketContext<'_>,
    from: &Outbound4<'_>,
    query: &Query,
) -> Result<Rewrite, DropReason> {
    // A packet whose TTL expires here changes no state.
    if from.view.ttl <= 1 {
        return Err(DropReason::TtlExceeded);
    }
    let (nat, view) = (from.nat, &from.view);
    let inside = inside_of(nat, view.src, query.src_port, query.transport);
    let remote = (view.dst, query.dst_port);
    let to = match session_of(cx, nat, inside, remote) {
        Some(id) => {
            let session = cx.state.tables.get_mut(id);
            let turn = nat.policy.update(session, Side::V6, query, cx.now);
            cx.attribution.sent_by(session.party());
            let to = outbound_of(session, query.transport);
            cx.state.tables.feed_turn(id, turn);
            to
        }
        None => without_session(cx, nat, (inside, remote), query)?,
    };
    // RFC 6864 5.3.1: the identifications of many hosts become those of one address. Those of atomic
    // datagrams have no meaning.
    let is_atomic = view.dont_fragment && view.fragment.is_none();
    let state = &mut *cx.state;
    let id = (!is_atomic).then(|| state.idents.next(state.tables.pair_hash(to.src, to.dst, query.transport)));
    Ok(Rewrite { id, ..to })
}

fn session_of(
    cx: &mut PacketContext<'_>,
    nat: &Nat44,
    inside: Inside,
    remote: Endpoint4,
) -> Option<RecordId> {
    let tables = &mut cx.state.tables;
    let hash = tables.session_hash(&inside, remote);
    let found = tables.find_session(hash, inside, remote);
    nat.policy.alive(tables, found, cx.now)
}

#[cold]
fn without_session(
    cx: &mut PacketContext<'_>,
    nat: &Nat44,
    (inside, remote): (Inside, Endpoint4),
    query: &Query,
) -> Result<Rewrite, DropReason> {
    if query.transport == Transport::Icmp && !nat.policy.icmp_queries {
        return Err(DropReason::IcmpUnknownType);
    }
    if special::illegal_destination4(remote.0) {
        return Err(DropReason::DestinationMartian);
    }
    if !policy::may_open(query)? {
        return passing_by(cx, &inside, remote);
    }
    let id = open(cx, Instance::Nat44(nat), (inside, remote), query, 0)?;
    let session = cx.state.tables.get(id);
    cx.attribution.sent_by(session.party());
    Ok(outbound_of(session, query.transport))
}

/// Rewrite of a packet that creates no state, if its binding exists.
fn passing_by(cx: &mut PacketContext<'_>, inside: &Inside, remote: Endpoint4) -> Result<Rewrite, DropReason> {
    let tables = &cx.state.tables;
    let binding = tables.get(by_binding(tables, inside)?);
    cx.attribution.sent_by(binding.party());
    let (src, src_port) = binding.outside();
    let [.., a, b, c, d] = inside.addr.octets();
    let ports = query::ports(inside.transport, src_port, remote.1, src_port);
    Ok(Rewrite::new(([a, b, c, d].into(), remote.0), (src, remote.0), ports))
}
