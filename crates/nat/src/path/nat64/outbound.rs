//! Packets from inside: IPv6 packets to a translation prefix (RFC 6146 3.5, 3.6.1, 3.7).

use crate::base::outcome::Refusal;
use crate::base::plan::Transport;
use crate::base::special;
use crate::base::step::Step;
use crate::base::tcp_fsm::Side;
use crate::path::context::{Outbound6, PacketContext};
use crate::path::policy;
use crate::path::query::{self, Query};
use crate::path::rewrite::OutboundRewrite;
use crate::path::rules::Instance;
use crate::path::rules::nat64::{Nat64, inside_of, outbound_of, set_prefix};
use crate::path::stateful::hairpin;
use crate::path::stateful::outbound::{by_binding, open};
use crate::tables::bib::Tables;
use crate::tables::session::{Endpoint4, Inside, RecordId};
use gatun_wire::rfc7915::{address_delta_6to4, six_to_four as wire};
use gatun_wire::{DropReason, Packet, To4};

/// Returns the inside and remote transport addresses of a query.
#[inline(always)]
pub(crate) fn endpoints(nat: &Nat64, from: &Outbound6, query: &Query) -> (Inside, Endpoint4) {
    let inside = inside_of(nat, from.view.src, query.src_port, query.transport);
    (inside, (nat.prefix(from.pool6).extract_unchecked(from.view.dst), query.dst_port))
}

/// Translates a query from inside that is not a fragment.
///
/// The addresses of a known session go from its record to the packet through registers. A `Result` would
/// return them through memory, written in halves and read as a whole, and the processor would wait for that.
#[inline(always)]
pub(crate) fn query(
    cx: &mut PacketContext<'_>,
    nat: &Nat64,
    packet: &mut Packet<'_>,
    from: &Outbound6,
    query: &Query,
) -> Result<Step, Refusal> {
    // A packet whose hop limit expires here changes no state.
    if from.view.hop_limit <= 1 {
        return Err(DropReason::TtlExceeded.into());
    }
    let (inside, remote) = endpoints(nat, from, query);
    let hash = cx.state.tables.session_hash(&inside, remote);
    match session_of(cx, nat, (inside, remote), hash) {
        Some(id) => {
            check_prefix(nat, &cx.state.tables, from, id)?;
            let to = by_session(cx, nat, from, query, id);
            send(cx, nat, packet, (from, query), &to, hash)
        }
        None => first_of_session(cx, nat, packet, (*from, *query), hash),
    }
}

/// Filters and updates, and computes the outgoing addresses and ports (RFC 6146 3.5, 3.6), for a first
/// fragment.
pub(crate) fn decide_fragment(
    cx: &mut PacketContext<'_>,
    nat: &Nat64,
    from: &Outbound6,
    query: &Query,
) -> Result<To4, DropReason> {
    // A packet whose hop limit expires here changes no state.
    if from.view.hop_limit <= 1 {
        return Err(DropReason::TtlExceeded);
    }
    let (inside, remote) = endpoints(nat, from, query);
    let hash = cx.state.tables.session_hash(&inside, remote);
    match session_of(cx, nat, (inside, remote), hash) {
        Some(id) => {
            check_prefix(nat, &cx.state.tables, from, id)?;
            Ok(by_session(cx, nat, from, query, id))
        }
        None => without_session(cx, nat, from, query),
    }
}

#[inline(always)]
fn session_of(
    cx: &mut PacketContext<'_>,
    nat: &Nat64,
    (inside, remote): (Inside, Endpoint4),
    hash: u64,
) -> Option<RecordId> {
    let tables = &mut cx.state.tables;
    let found = tables.find_session(hash, inside, remote);
    nat.policy.alive(tables, found, cx.now)
}

/// Checks the prefix of a session's packet. A session created through one prefix does not permit another
/// prefix that must not represent the address (RFC 6052 3.1).
#[inline(always)]
fn check_prefix(nat: &Nat64, tables: &Tables, from: &Outbound6, id: RecordId) -> Result<(), DropReason> {
    let session = tables.get(id);
    if session.pool6 == from.pool6 {
        return Ok(());
    }
    nat.check_embedded(from.pool6, session.remote().0)
}

/// Updates a session, and returns the outside addresses and ports of the packet.
#[inline(always)]
fn by_session(cx: &mut PacketContext<'_>, nat: &Nat64, from: &Outbound6, query: &Query, id: RecordId) -> To4 {
    let session = cx.state.tables.get_mut(id);
    let turn = nat.policy.update(session, Side::V6, query, cx.now);
    cx.attribution.sent_by(session.party());
    if session.pool6 != from.pool6 {
        set_prefix(session, from.pool6, nat.prefix(from.pool6));
    }
    let to = outbound_of(session, query.transport);
    cx.state.tables.feed_turn(id, turn);
    exact(nat, from, to)
}

#[inline(always)]
fn send(
    cx: &mut PacketContext<'_>,
    nat: &Nat64,
    packet: &mut Packet<'_>,
    (from, query): (&Outbound6, &Query),
    to: &To4,
    hash: u64,
) -> Result<Step, Refusal> {
    if let Some(at) = cx.state.tables.locate_hairpin(to.dst) {
        let out = (from.instance, &OutboundRewrite::From6(*to));
        return hairpin::query(cx, packet, query, out, at);
    }
    let id = cx.state.idents.next_of(hash, packet);
    Ok(wire::translate(packet, &from.view, from.l4, to, id, &nat.settings).map(Step::forward)?)
}

#[cold]
fn first_of_session(
    cx: &mut PacketContext<'_>,
    nat: &Nat64,
    packet: &mut Packet<'_>,
    (from, query): (Outbound6, Query),
    hash: u64,
) -> Result<Step, Refusal> {
    let to = without_session(cx, nat, &from, &query)?;
    send(cx, nat, packet, (&from, &query), &to, hash)
}

/// Returns the same addresses with a delta for the actual destination. A nonzero suffix is ignored (RFC 6052
/// 2.2), but the checksum covers it.
#[inline(always)]
fn exact(nat: &Nat64, from: &Outbound6, to: To4) -> To4 {
    let prefix = nat.prefix(from.pool6);
    if prefix.len() == 96 || prefix.embed(to.dst) == from.view.dst {
        return to;
    }
    To4 { addresses: address_delta_6to4((from.view.src, from.view.dst), (to.src, to.dst)), ..to }
}

/// RFC 6146 3.5.1, 3.5.2.2 (CLOSED) and 3.5.3: handles a packet from inside without a session.
#[cold]
fn without_session(
    cx: &mut PacketContext<'_>,
    nat: &Nat64,
    from: &Outbound6,
    query: &Query,
) -> Result<To4, DropReason> {
    let (inside, remote) = endpoints(nat, from, query);
    // A packet with a session has passed these checks.
    nat.check_source(from.view.src)?;
    if query.transport == Transport::Icmp && !nat.policy.icmp_queries {
        return Err(DropReason::IcmpUnknownType);
    }
    if special::illegal_destination4(remote.0) {
        return Err(DropReason::DestinationMartian);
    }
    nat.check_embedded(from.pool6, remote.0)?;
    if !policy::may_open(query)? {
        let to = passing_by(cx, nat, &inside, remote, from.pool6)?;
        return Ok(exact(nat, from, to));
    }
    let id = open(cx, Instance::Nat64(nat), (inside, remote), query, from.pool6)?;
    let session = cx.state.tables.get(id);
    cx.attribution.sent_by(session.party());
    Ok(exact(nat, from, outbound_of(session, query.transport)))
}

/// RFC 6146 3.5.2.2, CLOSED: a packet other than a SYN creates no state. It passes if a binding exists.
fn passing_by(
    cx: &mut PacketContext<'_>,
    nat: &Nat64,
    inside: &Inside,
    remote: Endpoint4,
    pool6: u8,
) -> Result<To4, DropReason> {
    let tables = &cx.state.tables;
    let binding = tables.get(by_binding(tables, inside)?);
    cx.attribution.sent_by(binding.party());
    let (src, src_port) = binding.outside();
    let ports = query::ports(inside.transport, src_port, remote.1, src_port);
    Ok(To4::new((inside.addr, nat.prefix(pool6).embed(remote.0)), (src, remote.0), ports))
}
