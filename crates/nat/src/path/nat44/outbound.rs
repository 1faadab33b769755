//! From inside: private IPv4 packets to anywhere (RFC 4787 4, RFC 5382 4, RFC 5508 3).

use super::{From4, Nat44, inside_of, outbound_of};
use crate::base::plan::Transport;
use crate::base::special;
use crate::base::step::Step;
use crate::base::tcp_fsm::Side;
use crate::base::time::Instant;
use crate::path::shared::Shared;
use crate::path::stateful::outbound::{by_binding, open};
use crate::path::stateful::{Instance, Instances, Outward, Query, hairpin, policy, query};
use crate::tables::session::{Endpoint4, Inside, RecordId};
use gatun_wire::rfc3022::{self, Rewrite};
use gatun_wire::{DropReason, Packet, Segmentation};

/// Translates a query from inside: a whole packet.
pub(crate) fn query(
    nats: Instances<'_>,
    sh: &mut Shared,
    now: Instant,
    packet: &mut Packet<'_>,
    from: &From4<'_>,
    query: &Query,
) -> Result<Step, DropReason> {
    let to = decide(sh, now, from, query)?;
    if let Some(place) = sh.tables.locate(to.dst) {
        let out = (from.nat.policy.instance, &Outward::From4(to));
        return hairpin::query(nats, sh, now, packet, query, out, place);
    }
    if to.id.is_some() && packet.offload.segmentation != Segmentation::None {
        sh.idents.count_on(sh.tables.pair_hash(to.src, to.dst, query.transport), packet);
    }
    rfc3022::translate(packet, &from.view, from.l4, &to, from.nat.link).map(Step::forward)
}

/// Filters and updates, and computes the outgoing addresses, ports and identification.
pub(crate) fn decide(
    sh: &mut Shared,
    now: Instant,
    from: &From4<'_>,
    query: &Query,
) -> Result<Rewrite, DropReason> {
    // A packet that ends here changes no state.
    if from.view.ttl <= 1 {
        return Err(DropReason::TtlExceeded);
    }
    let (nat, view) = (from.nat, &from.view);
    let inside = inside_of(nat, view.src, query.src_port, query.transport);
    let remote = (view.dst, query.dst_port);
    let to = match session_of(nat, sh, now, inside, remote) {
        Some(id) => {
            let session = sh.tables.get_mut(id);
            nat.policy.update(session, Side::V6, query, now);
            outbound_of(session, query.transport)
        }
        None => without_session(nat, sh, now, (inside, remote), query)?,
    };
    // RFC 6864 5.3.1: many hosts' identifications become one's. Those of atomic datagrams say nothing.
    let is_atomic = view.dont_fragment && view.fragment.is_none();
    let id = (!is_atomic).then(|| sh.idents.next(sh.tables.pair_hash(to.src, to.dst, query.transport)));
    Ok(Rewrite { id, ..to })
}

fn session_of(
    nat: &Nat44,
    sh: &mut Shared,
    now: Instant,
    inside: Inside,
    remote: Endpoint4,
) -> Option<RecordId> {
    let hash = sh.tables.session_hash(&inside, remote);
    let found = sh.tables.find_session(hash, inside, remote);
    nat.policy.alive(&mut sh.tables, found, now)
}

#[cold]
fn without_session(
    nat: &Nat44,
    sh: &mut Shared,
    now: Instant,
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
        return passing_by(sh, &inside, remote);
    }
    let id = open(Instance::Nat44(nat), sh, now, (inside, remote), query, 0)?;
    Ok(outbound_of(sh.tables.get(id), query.transport))
}

/// How a packet leaves that makes no state, where its binding exists.
fn passing_by(sh: &Shared, inside: &Inside, remote: Endpoint4) -> Result<Rewrite, DropReason> {
    let (src, src_port) = by_binding(sh, inside)?;
    let [.., a, b, c, d] = inside.addr.octets();
    let ports = query::ports(inside.transport, src_port, remote.1, src_port);
    Ok(Rewrite::new(([a, b, c, d].into(), remote.0), (src, remote.0), ports))
}
