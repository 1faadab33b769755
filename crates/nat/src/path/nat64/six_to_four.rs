//! From inside: IPv6 packets to a translation prefix (RFC 6146 3.5, 3.6.1, 3.7).

use super::{From6, Nat64, inside_of, outbound_of, set_prefix};
use crate::base::plan::Transport;
use crate::base::special;
use crate::base::step::Step;
use crate::base::tcp_fsm::Side;
use crate::base::time::Instant;
use crate::path::shared::Shared;
use crate::path::stateful::outbound::{by_binding, open};
use crate::path::stateful::{Instance, Instances, Outward, Query, hairpin, policy, query};
use crate::tables::session::{Endpoint4, Inside, RecordId};
use gatun_wire::rfc7915::{address_delta_6to4, six_to_four as wire};
use gatun_wire::{DropReason, Packet, To4};

/// The inside and remote transport addresses of a query.
#[inline(always)]
pub(crate) fn endpoints(nat: &Nat64, from: &From6, query: &Query) -> (Inside, Endpoint4) {
    let inside = inside_of(nat, from.view.src, query.src_port, query.transport);
    (inside, (nat.prefix(from.pool6).extract_unchecked(from.view.dst), query.dst_port))
}

/// Translates a query from inside: a whole packet, or a first fragment. `hash` is its session's.
///
/// Addresses of a known session go from its record to the packet through registers; `Result`s
/// would give them back through memory, written in halves and read as a whole: the processor waits then.
#[inline(always)]
pub(crate) fn query(
    nats: Instances<'_>,
    sh: &mut Shared,
    now: Instant,
    packet: &mut Packet<'_>,
    from: &From6,
    query: &Query,
    hash: u64,
) -> Result<Step, DropReason> {
    let Some(nat) = nats.nat64(from.instance) else { return Err(DropReason::NoSession) };
    // A packet that ends here changes no state.
    if from.view.hop_limit <= 1 {
        return Err(DropReason::TtlExceeded);
    }
    match session_of(nat, sh, now, from, query, hash) {
        Some(id) => {
            check_prefix(nat, sh, from, id)?;
            let to = by_session(nat, sh, now, from, query, id);
            send(nats, nat, sh, now, packet, from, query, &to, hash)
        }
        None => first_of_session(nats, nat, sh, now, packet, *from, *query, hash),
    }
}

/// Filters and updates, and computes the outgoing addresses and ports (RFC 6146 3.5, 3.6), for a first
/// fragment.
pub(crate) fn decide_fragment(
    nat: &Nat64,
    sh: &mut Shared,
    now: Instant,
    from: &From6,
    query: &Query,
) -> Result<To4, DropReason> {
    // A packet that ends here changes no state.
    if from.view.hop_limit <= 1 {
        return Err(DropReason::TtlExceeded);
    }
    let (inside, remote) = endpoints(nat, from, query);
    let hash = sh.tables.session_hash(&inside, remote);
    match session_of(nat, sh, now, from, query, hash) {
        Some(id) => {
            check_prefix(nat, sh, from, id)?;
            Ok(by_session(nat, sh, now, from, query, id))
        }
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
    nat.policy.alive(&mut sh.tables, found, now)
}

/// A session made through one prefix opens no other to an address that it may not stand for (RFC 6052 3.1).
#[inline(always)]
fn check_prefix(nat: &Nat64, sh: &Shared, from: &From6, id: RecordId) -> Result<(), DropReason> {
    let session = sh.tables.get(id);
    if session.pool6 == from.pool6 {
        return Ok(());
    }
    nat.check_embedded(from.pool6, session.remote().0)
}

/// Updates a session, and gives the packet its outside addresses and ports.
#[inline(always)]
fn by_session(nat: &Nat64, sh: &mut Shared, now: Instant, from: &From6, query: &Query, id: RecordId) -> To4 {
    let session = sh.tables.get_mut(id);
    nat.policy.update(session, Side::V6, query, now);
    if session.pool6 != from.pool6 {
        set_prefix(session, from.pool6, nat.prefix(from.pool6));
    }
    exact(nat, from, outbound_of(session, query.transport))
}

#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn send(
    nats: Instances<'_>,
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
        let out = (from.instance, &Outward::From6(*to));
        return hairpin::query(nats, sh, now, packet, query, out, place);
    }
    let id = sh.idents.next_of(hash, packet);
    wire::translate(packet, &from.view, from.l4, to, id, &nat.settings).map(Step::forward)
}

#[cold]
#[allow(clippy::too_many_arguments)]
fn first_of_session(
    nats: Instances<'_>,
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
    if query.transport == Transport::Icmp && !nat.policy.icmp_queries {
        return Err(DropReason::IcmpUnknownType);
    }
    if special::illegal_destination4(remote.0) {
        return Err(DropReason::DestinationMartian);
    }
    nat.check_embedded(from.pool6, remote.0)?;
    if !policy::may_open(query)? {
        return passing_by(nat, sh, &inside, remote, from.pool6).map(|to| exact(nat, from, to));
    }
    let id = open(Instance::Nat64(nat), sh, now, (inside, remote), query, from.pool6)?;
    Ok(exact(nat, from, outbound_of(sh.tables.get(id), query.transport)))
}

/// RFC 6146 3.5.2.2, CLOSED: anything but a SYN makes no state; it passes where a binding exists.
fn passing_by(
    nat: &Nat64,
    sh: &Shared,
    inside: &Inside,
    remote: Endpoint4,
    pool6: u8,
) -> Result<To4, DropReason> {
    let (src, src_port) = by_binding(sh, inside)?;
    let ports = query::ports(inside.transport, src_port, remote.1, src_port);
    Ok(To4::new((inside.addr, nat.prefix(pool6).embed(remote.0)), (src, remote.0), ports))
}
