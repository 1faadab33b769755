//! From inside: what [`crate::path::nat64::six_to_four`], [`crate::path::nat44::outbound`] and [`crate::path::stateful::outbound`] would
//! decide.

use super::{End, Explanation, Opening, Outlook, Standing};
use crate::base::plan::{Net6, Transport};
use crate::base::special;
use crate::engine::Core;
use crate::path::nat44::{self, Nat44};
use crate::path::nat64::{From6, Nat64, six_to_four};
use crate::path::stateful::outbound::{by_binding, held_syn_from};
use crate::path::stateful::{Instance, Outward, Policy, Query, policy, query};
use crate::tables::bib::{Foreseen, Opening as Wanted};
use crate::tables::session::{Endpoint4, Inside};
use core::net::Ipv6Addr;
use gatun_wire::rfc3022::{self, Rewrite};
use gatun_wire::rfc7915::six_to_four as wire;
use gatun_wire::{DropReason, Ipv4View, L4, Packet, To4};

/// A query from an IPv6 host.
pub(super) fn from6(
    core: &Core,
    nat: &Nat64,
    packet: &mut Packet<'_>,
    from: &From6,
    query: &Query,
    e: &mut Explanation,
) -> Outlook {
    let (inside, remote) = six_to_four::endpoints(nat, from, query);
    standing(core, &nat.policy, &inside, e);
    if from.view.hop_limit <= 1 {
        return Err(DropReason::TtlExceeded.into());
    }
    let sh = &core.shared;
    let outside = match live_session(core, &nat.policy, &inside, remote, e) {
        Some((outside, pool6)) => {
            // A session made through one prefix opens no other to an address that it may not stand for.
            if pool6 != from.pool6 {
                nat.check_embedded(from.pool6, remote.0)?;
            }
            outside
        }
        None => {
            nat.check_source(from.view.src)?;
            may_send(&nat.policy, query, remote)?;
            nat.check_embedded(from.pool6, remote.0)?;
            without_session(core, Instance::Nat64(nat), (inside, remote), query, e)?
        }
    };
    let ports = query::ports(query.transport, outside.1, remote.1, outside.1);
    let to = To4::new((from.view.src, from.view.dst), (outside.0, remote.0), ports);
    match sh.tables.locate(to.dst) {
        Some(place) => {
            let (back, remote) = turned(query, outside);
            core.explain_hairpin(packet, (place, &back, remote), (from.instance, &Outward::From6(to)), e)
        }
        None => Ok(wire::translate(packet, &from.view, from.l4, &to, 0, &nat.settings)?),
    }
}

/// A query from a private IPv4 host.
pub(super) fn from4(
    core: &Core,
    nat: &Nat44,
    packet: &mut Packet<'_>,
    (view, l4): (&Ipv4View, L4),
    query: &Query,
    e: &mut Explanation,
) -> Outlook {
    let inside = nat44::inside_of(nat, view.src, query.src_port, query.transport);
    let remote = (view.dst, query.dst_port);
    standing(core, &nat.policy, &inside, e);
    if view.ttl <= 1 {
        return Err(DropReason::TtlExceeded.into());
    }
    let outside = match live_session(core, &nat.policy, &inside, remote, e) {
        Some((outside, _)) => outside,
        None => {
            may_send(&nat.policy, query, remote)?;
            without_session(core, Instance::Nat44(nat), (inside, remote), query, e)?
        }
    };
    let ports = query::ports(query.transport, outside.1, remote.1, outside.1);
    let to = Rewrite::new((view.src, view.dst), (outside.0, remote.0), ports);
    match core.shared.tables.locate(to.dst) {
        Some(place) => {
            let (back, remote) = turned(query, outside);
            let out = (nat.policy.instance, &Outward::From4(to));
            core.explain_hairpin(packet, (place, &back, remote), out, e)
        }
        None => Ok(rfc3022::translate(packet, view, l4, &to, nat.link)?),
    }
}

/// What a packet without session has to pass, whatever its kind.
fn may_send(policy: &Policy, query: &Query, remote: Endpoint4) -> Result<(), DropReason> {
    if query.transport == Transport::Icmp && !policy.icmp_queries {
        return Err(DropReason::IcmpUnknownType);
    }
    if special::illegal_destination4(remote.0) {
        return Err(DropReason::DestinationMartian);
    }
    Ok(())
}

/// A query as its receiver behind a hairpin sees it, and from where.
fn turned(query: &Query, outside: Endpoint4) -> (Query, Endpoint4) {
    let (src_port, dst_port) = match query.transport {
        Transport::Icmp => (0, outside.1),
        _ => (outside.1, query.dst_port),
    };
    (Query { src_port, dst_port, ..*query }, (outside.0, src_port))
}

/// The public end and the prefix of the session that there is.
fn live_session(
    core: &Core,
    policy: &Policy,
    inside: &Inside,
    remote: Endpoint4,
    e: &mut Explanation,
) -> Option<(Endpoint4, u8)> {
    let tables = &core.shared.tables;
    let id = tables.find_session(tables.session_hash(inside, remote), *inside, remote)?;
    if !policy.would_live(tables, id) {
        return None;
    }
    let record = tables.get(id);
    e.session = Some(tables.session_info(record));
    e.binding = tables.binding_of(inside).map(|primary| tables.binding_info(primary));
    Some((record.outside(), record.pool6))
}

/// The public end that a packet without session would get; the port is 0 where it is not known before.
fn without_session(
    core: &Core,
    instance: Instance<'_>,
    (inside, remote): (Inside, Endpoint4),
    query: &Query,
    e: &mut Explanation,
) -> Result<Endpoint4, End> {
    let sh = &core.shared;
    e.binding = sh.tables.binding_of(&inside).map(|primary| sh.tables.binding_info(primary));
    if !policy::may_open(query)? {
        return Ok(by_binding(sh, &inside)?);
    }
    let subscriber = instance.policy().subscriber(inside.addr);
    let session = sh.tables.session_hash(&inside, remote);
    let wanted = Wanted {
        wanted: held_syn_from(sh, &inside, remote),
        ..sh.tables.opening(inside, remote, subscriber, session)
    };
    let (opening, outside) = match sh.tables.foresee(&wanted)? {
        Foreseen::Binding(primary) => {
            (Opening::Binding(sh.tables.binding_info(primary)), sh.tables.get(primary).outside())
        }
        Foreseen::Shared(primary) => {
            (Opening::Shared(sh.tables.binding_info(primary)), sh.tables.get(primary).outside())
        }
        Foreseen::Port(port) => (Opening::Port(port), (port.address, port.port.unwrap_or(0))),
    };
    e.opening = Some(opening);
    Ok(outside)
}

/// What the inside host's subscriber has, and may have.
pub(super) fn standing(core: &Core, policy: &Policy, inside: &Inside, e: &mut Explanation) {
    let tables = &core.shared.tables;
    let key = policy.subscriber(inside.addr);
    let limits = tables.limits();
    let pool = tables.pools.get(tables.pool_of(policy.instance));
    let known = tables.subscribers.find(key).and_then(|id| tables.subscribers.get(id));
    let (blocks_max, shared) = pool.and_then(|pool| pool.blocks_each()).unwrap_or_default();
    let counts = known.map_or([0; 3], |s| s.holdings.blocks());
    let blocks = if shared { counts.first() } else { counts.get(inside.transport as usize) };
    e.subscriber = Some(Standing {
        network: Net6 { addr: Ipv6Addr::from(key.prefix), len: policy.subscriber_len },
        is_known: known.is_some(),
        address: known.and_then(|s| s.holdings.paired()).and_then(|ix| pool.map(|pool| pool.address(ix))),
        sessions: known.map_or(0, |s| s.sessions),
        sessions_max: limits.sessions_per_subscriber,
        ports: known.map_or([0; 3], |s| s.ports),
        ports_max: limits.ports_per_subscriber,
        ports_max_by: limits.ports_per_subscriber_by,
        blocks: blocks.copied().unwrap_or(0).into(),
        blocks_max,
    });
}
