//! From inside: IPv6 packets to a translation prefix (RFC 6146 3.5, 3.6.1, 3.7).

use super::{From6, Nat64, Query, hairpin, inside_of, outbound_of, set_prefix};
use crate::bib::Opening;
use crate::counters::Direction;
use crate::plan::Transport;
use crate::session::{Endpoint4, Inside, RecordId};
use crate::shared::Shared;
use crate::special;
use crate::step::Step;
use crate::tcp_fsm::{Side, TcpState};
use crate::time::Instant;
use gatun_wire::rfc7915::{address_delta_6to4, six_to_four as wire};
use gatun_wire::{DropReason, Packet, Ports, To4};

/// The inside and remote transport addresses of a query.
#[inline(always)]
pub(crate) fn endpoints(nat: &Nat64, from: &From6, query: &Query) -> (Inside, Endpoint4) {
    let inside = inside_of(nat, from.view.src, query.src_port, query.transport);
    (inside, (nat.prefix(from.pool6).extract_unchecked(from.view.dst), query.dst_port))
}

/// Translates a query from inside: a whole packet, or a first fragment. `hash` is its session's.
///
/// Addresses of a known session go from its record to the packet through registers; `decide`, which can
/// fail, would give them back through memory, written in halves and read as a whole: the processor waits then.
#[inline(always)]
pub(crate) fn query(
    nats: &[Nat64],
    sh: &mut Shared,
    now: Instant,
    packet: &mut Packet<'_>,
    from: &From6,
    query: &Query,
    hash: u64,
) -> Result<Step, DropReason> {
    let Some(nat) = nats.get(usize::from(from.instance)) else { return Err(DropReason::NoSession) };
    // A packet that ends here changes no state.
    if from.view.hop_limit <= 1 {
        return Err(DropReason::TtlExceeded);
    }
    match session_of(nat, sh, now, from, query, hash) {
        Some(id) => {
            let to = by_session(nat, sh, now, from, query, id);
            send(nats, nat, sh, now, packet, from, query, &to, hash)
        }
        None => first_of_session(nats, nat, sh, now, packet, *from, *query, hash),
    }
}

/// Filters and updates, and computes the outgoing addresses and ports (RFC 6146 3.5, 3.6).
pub(crate) fn decide(
    nat: &Nat64,
    sh: &mut Shared,
    now: Instant,
    from: &From6,
    query: &Query,
    hash: u64,
) -> Result<To4, DropReason> {
    // A packet that ends here changes no state.
    if from.view.hop_limit <= 1 {
        return Err(DropReason::TtlExceeded);
    }
    match session_of(nat, sh, now, from, query, hash) {
        Some(id) => Ok(by_session(nat, sh, now, from, query, id)),
        None => without_session(nat, sh, now, from, query),
    }
}

#[inline(always)]
fn session_of(
    nat: &Nat64,
    sh: &mut Shared,
    now: Instant,
    from: &From6,
    query: &Query,
    hash: u64,
) -> Option<RecordId> {
    let (inside, remote) = endpoints(nat, from, query);
    let found = sh.tables.find_session(hash, inside, remote);
    nat.alive(&mut sh.tables, found, now)
}

/// Updates a session, and gives the packet its outside addresses and ports.
#[inline(always)]
fn by_session(nat: &Nat64, sh: &mut Shared, now: Instant, from: &From6, query: &Query, id: RecordId) -> To4 {
    let session = sh.tables.get_mut(id);
    nat.update(session, Side::V6, query, now);
    if session.pool6 != from.pool6 {
        set_prefix(session, from.pool6, nat.prefix(from.pool6));
    }
    exact(nat, from, outbound_of(session, query.transport))
}

#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn send(
    nats: &[Nat64],
    nat: &Nat64,
    sh: &mut Shared,
    now: Instant,
    packet: &mut Packet<'_>,
    from: &From6,
    query: &Query,
    to: &To4,
    hash: u64,
) -> Result<Step, DropReason> {
    if let Some(place) = sh.tables.locate(to.dst) {
        return hairpin::query(nats, sh, now, packet, *from, *query, *to, place);
    }
    let id = sh.idents.next(hash);
    wire::translate(packet, &from.view, from.l4, to, id, &nat.settings).map(Step::forward)
}

#[cold]
#[allow(clippy::too_many_arguments)]
fn first_of_session(
    nats: &[Nat64],
    nat: &Nat64,
    sh: &mut Shared,
    now: Instant,
    packet: &mut Packet<'_>,
    from: From6,
    query: Query,
    hash: u64,
) -> Result<Step, DropReason> {
    let to = without_session(nat, sh, now, &from, &query)?;
    send(nats, nat, sh, now, packet, &from, &query, &to, hash)
}

/// The same addresses with a delta for the destination as it really is: a suffix that is not zero is
/// ignored (RFC 6052 2.2), but the checksum covers it.
#[inline(always)]
fn exact(nat: &Nat64, from: &From6, to: To4) -> To4 {
    let prefix = nat.prefix(from.pool6);
    if prefix.len() == 96 || prefix.embed(to.dst) == from.view.dst {
        return to;
    }
    To4 { addresses: address_delta_6to4((from.view.src, from.view.dst), (to.src, to.dst)), ..to }
}

/// RFC 6146 3.5.1, 3.5.2.2 (CLOSED) and 3.5.3: a packet from inside without session.
#[cold]
fn without_session(
    nat: &Nat64,
    sh: &mut Shared,
    now: Instant,
    from: &From6,
    query: &Query,
) -> Result<To4, DropReason> {
    let (inside, remote) = endpoints(nat, from, query);
    // Who has a session has passed these checks.
    nat.check_source(from.view.src)?;
    if query.transport == Transport::Icmp && !nat.icmp_queries {
        return Err(DropReason::IcmpUnknownType);
    }
    if special::illegal_destination4(remote.0) {
        return Err(DropReason::DestinationMartian);
    }
    nat.check_embedded(from.pool6, remote.0)?;
    if !Nat64::may_open(query)? {
        return by_binding(nat, sh, &inside, remote, query, from.pool6).map(|to| exact(nat, from, to));
    }
    let wanted = held_syn_from(sh, &inside, remote);
    let subscriber = nat.subscriber(inside.addr);
    let id = sh.tables.open_from_inside(&Opening { inside, remote, subscriber, wanted })?;
    let session = sh.tables.get_mut(id);
    set_prefix(session, from.pool6, nat.prefix(from.pool6));
    nat.begin(session, Side::V6, query.transport, now);
    if wanted.is_some() {
        // The held SYN had begun the connection: V4_INIT, and now comes the inside's SYN.
        session.state = TcpState::V4Init as u8;
        nat.update(session, Side::V6, query, now);
    }
    Ok(exact(nat, from, outbound_of(session, query.transport)))
}

/// Where a SYN from `remote` is held that this inside host's connection answers: the outside address and
/// port it was sent to, which the connection is to get. The held SYN is forgotten without an error
/// (RFC 6146 3.5.2.2, RFC 5382 REQ-4).
fn held_syn_from(sh: &mut Shared, inside: &Inside, remote: Endpoint4) -> Option<Endpoint4> {
    if inside.transport != Transport::Tcp || sh.syns.is_empty() {
        return None;
    }
    let bound = sh.tables.binding_of(inside).map(|id| sh.tables.get(id).outside());
    let pool = sh.tables.pool_of(inside.instance);
    let tables = &sh.tables;
    let (outside, bytes) = sh.syns.take(remote, |outside| match bound {
        Some(bound) => bound == outside,
        None => tables
            .locate(outside.0)
            .is_some_and(|p| p.pool == pool && tables.binding_at(p, Transport::Tcp, outside.1).is_none()),
    })?;
    sh.held_was_dropped(Direction::FourToSix, DropReason::SynWasAnswered, bytes);
    Some(outside)
}

/// RFC 6146 3.5.2.2, CLOSED: anything but a SYN makes no state; it passes where a binding exists.
fn by_binding(
    nat: &Nat64,
    sh: &mut Shared,
    inside: &Inside,
    remote: Endpoint4,
    query: &Query,
    pool6: u8,
) -> Result<To4, DropReason> {
    let tcp = query.transport == Transport::Tcp;
    let missing = if tcp { DropReason::NonSynClosed } else { DropReason::NoSession };
    let primary = sh.tables.binding_of(inside).ok_or(missing)?;
    let (src, src_port) = sh.tables.get(primary).outside();
    let ports = if tcp { Ports::Set { src: src_port, dst: remote.1 } } else { Ports::EchoId(src_port) };
    Ok(To4::new((inside.addr, nat.prefix(pool6).embed(remote.0)), (src, remote.0), ports))
}
