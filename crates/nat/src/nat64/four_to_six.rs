//! From outside: IPv4 packets to a pool address (RFC 6146 3.5, 3.6.2, 3.7).

use super::filter::{self, Refused};
use super::{Nat64, Query};
use crate::bib::Place;
use crate::session::Endpoint4;
use crate::shared::Shared;
use crate::step::Step;
use crate::time::Instant;
use gatun_wire::rfc7915::four_to_six as wire;
use gatun_wire::{DropReason, Ipv4View, L4, Packet, To6};

/// A packet from outside. By value to what is not inlined, as [`super::From6`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct From4 {
    pub(crate) view: Ipv4View,
    pub(crate) l4: L4,
    pub(crate) place: Place,
}

/// Translates a query from outside: a whole packet, or a first fragment.
#[inline(always)]
pub(crate) fn query(
    nats: &[Nat64],
    sh: &mut Shared,
    now: Instant,
    packet: &mut Packet<'_>,
    from: &From4,
    query: &Query,
) -> Result<Step, DropReason> {
    // A packet that ends here changes no state.
    if from.view.ttl <= 1 {
        return Err(filter::expired(sh, from.place, query));
    }
    // As in the other direction, a known session's addresses must not come in a `Result`.
    let remote = (from.view.src, query.src_port);
    match filter::session_at(nats, sh, now, from.place, query, remote) {
        Some((nat, id)) => {
            let to = filter::by_session(nat, sh, now, query, id);
            wire::translate(packet, &from.view, from.l4, &to, &nat.settings).map(Step::forward)
        }
        None => first_of_session(nats, sh, now, packet, *from, *query),
    }
}

#[cold]
fn first_of_session(
    nats: &[Nat64],
    sh: &mut Shared,
    now: Instant,
    packet: &mut Packet<'_>,
    from: From4,
    query: Query,
) -> Result<Step, DropReason> {
    let remote = (from.view.src, query.src_port);
    match filter::without_session(nats, sh, now, from.place, &query, remote) {
        Ok((nat, to)) => wire::translate(packet, &from.view, from.l4, &to, &nat.settings).map(Step::forward),
        Err(Refused::Drop(reason)) => Err(reason),
        Err(Refused::Hold(_)) => hold_syn(nats, sh, now, packet, &from, &query),
    }
}

/// Filters and updates, and computes the outgoing addresses and ports.
pub(crate) fn decide<'n>(
    nats: &'n [Nat64],
    sh: &mut Shared,
    now: Instant,
    from: &From4,
    query: &Query,
    remote: Endpoint4,
) -> Result<(&'n Nat64, To6), Refused> {
    if from.view.ttl <= 1 {
        return Err(filter::expired(sh, from.place, query).into());
    }
    filter::admit(nats, sh, now, from.place, query, remote)
}

/// RFC 6146 3.5.2.2, RFC 5382 REQ-4: an unsolicited SYN waits six seconds for the inside to open the
/// connection itself; only then it is answered.
fn hold_syn(
    nats: &[Nat64],
    sh: &mut Shared,
    now: Instant,
    packet: &Packet<'_>,
    from: &From4,
    query: &Query,
) -> Result<Step, DropReason> {
    let remote = (from.view.src, query.src_port);
    let mut of_pool = nats.iter().filter(|n| sh.tables.pool_of(n.index) == from.place.pool);
    let Some(nat) = of_pool.find(|n| n.external_tcp) else { return Err(DropReason::ExternalSynPolicy) };
    let until = now.plus_ms(u64::from(nat.timeouts.tcp_incoming_syn_ms));
    let outside = (from.view.dst, query.dst_port);
    match sh.syns.store(now, until, packet.bytes(), outside, remote) {
        Ok(true) => {
            sh.counters.held += 1;
            Ok(Step::Held)
        }
        // One of this connection is held already; an answer now would break RFC 5382 REQ-4.
        Ok(false) => Err(DropReason::SynHeldAlready),
        Err(_) => Err(DropReason::SynStoreFull),
    }
}
