//! Packets from inside: the decisions of [`crate::path::nat64::outbound`], [`crate::path::nat44::outbound`]
//! and [`crate::path::stateful::outbound`], without changes.

use super::{End, Explanation, Opening, Prediction, SubscriberUsage};
use crate::base::plan::{Net6, Transport};
use crate::base::special;
use crate::path::context::{Outbound4, Outbound6};
use crate::path::nat64::outbound;
use crate::path::policy::{self, Policy};
use crate::path::query::{self, Query};
use crate::path::rewrite::OutboundRewrite;
use crate::path::rules::Instance;
use crate::path::rules::nat44;
use crate::path::rules::nat64::Nat64;
use crate::path::state::Core;
use crate::path::stateful::filter::InboundQuery;
use crate::path::stateful::outbound::{by_binding, held_syn_from};
use crate::tables::bib::{SessionPreview, SessionRequest, info};
use crate::tables::session::{Endpoint4, Inside};
use core::net::Ipv6Addr;
use gatun_wire::rfc3022::{self, Rewrite};
use gatun_wire::rfc7915::six_to_four as wire;
use gatun_wire::{DropReason, Packet, To4};

/// Forecasts a query from an IPv6 host.
pub(super) fn from6(
    core: &Core,
    nat: &Nat64,
    packet: &mut Packet<'_>,
    from: &Outbound6,
    query: &Query,
    e: &mut Explanation,
) -> Prediction {
    let (inside, remote) = outbound::endpoints(nat, from, query);
    usage(core, &nat.policy, &inside, e);
    if from.view.hop_limit <= 1 {
        return Err(DropReason::TtlExceeded.into());
    }
    let outside = match live_session(core, &nat.policy, &inside, remote, e) {
        Some((outside, pool6)) => {
            // A session created through one prefix does not permit another prefix that must not represent the
            // address.
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
    match core.state.tables.locate_hairpin(to.dst) {
        Some(at) => {
            let (query, remote) = turned(query, outside);
            let out = (from.instance, &OutboundRewrite::From6(to));
            super::hairpinned(core, packet, &InboundQuery { at, query, remote }, out, e)
        }
        None => Ok(wire::translate(packet, &from.view, from.l4, &to, 0, &nat.settings)?),
    }
}

/// Forecasts a query from a private IPv4 host.
pub(super) fn from4(
    core: &Core,
    packet: &mut Packet<'_>,
    from: &Outbound4<'_>,
    query: &Query,
    e: &mut Explanation,
) -> Prediction {
    let &Outbound4 { nat, ref view, l4 } = from;
    let inside = nat44::inside_of(nat, view.src, query.src_port, query.transport);
    let remote = (view.dst, query.dst_port);
    usage(core, &nat.policy, &inside, e);
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
    match core.state.tables.locate_hairpin(to.dst) {
        Some(at) => {
            let (query, remote) = turned(query, outside);
            let out = (nat.policy.instance, &OutboundRewrite::From4(to));
            super::hairpinned(core, packet, &InboundQuery { at, query, remote }, out, e)
        }
        None => Ok(rfc3022::translate(packet, view, l4, &to, nat.link)?),
    }
}

/// Checks that apply to every packet without a session.
fn may_send(policy: &Policy, query: &Query, remote: Endpoint4) -> Result<(), DropReason> {
    if query.transport == Transport::Icmp && !policy.icmp_queries {
        return Err(DropReason::IcmpUnknownType);
    }
    if special::illegal_destination4(remote.0) {
        return Err(DropReason::DestinationMartian);
    }
    Ok(())
}

/// Returns a query as its receiver behind a hairpin sees it, and its source.
fn turned(query: &Query, outside: Endpoint4) -> (Query, Endpoint4) {
    let (src_port, dst_port) = match query.transport {
        Transport::Icmp => (0, outside.1),
        _ => (outside.1, query.dst_port),
    };
    (Query { src_port, dst_port, ..*query }, (outside.0, src_port))
}

/// Returns the public end and the prefix of the existing session.
fn live_session(
    core: &Core,
    policy: &Policy,
    inside: &Inside,
    remote: Endpoint4,
    e: &mut Explanation,
) -> Option<(Endpoint4, u8)> {
    let tables = &core.state.tables;
    let id = tables.find_session(tables.session_hash(inside, remote), *inside, remote)?;
    if !policy.would_live(tables, id) {
        return None;
    }
    let record = tables.get(id);
    e.session = Some(info::session(tables, record));
    e.binding = tables.binding_of(inside).map(|primary| info::binding(tables, primary));
    Some((record.outside(), record.pool6))
}

/// Returns the public end that a packet without a session would get. The port is 0 if it is not known in
/// advance.
fn without_session(
    core: &Core,
    instance: Instance<'_>,
    (inside, remote): (Inside, Endpoint4),
    query: &Query,
    e: &mut Explanation,
) -> Result<Endpoint4, End> {
    let tables = &core.state.tables;
    e.binding = tables.binding_of(&inside).map(|primary| info::binding(tables, primary));
    if !policy::may_open(query)? {
        return Ok(tables.get(by_binding(tables, &inside)?).outside());
    }
    let subscriber = instance.policy().subscriber(inside.addr);
    let session = tables.session_hash(&inside, remote);
    let request = SessionRequest {
        wanted: held_syn_from(tables, &core.state.syns, &inside, remote),
        ..tables.session_request(inside, remote, subscriber, session)
    };
    let (opening, outside) = match tables.preview(&request)? {
        SessionPreview::Binding(primary) => {
            (Opening::Binding(info::binding(tables, primary)), tables.get(primary).outside())
        }
        SessionPreview::Shared(primary) => {
            (Opening::Shared(info::binding(tables, primary)), tables.get(primary).outside())
        }
        SessionPreview::Port(port) => (Opening::Port(port), (port.address, port.port.unwrap_or(0))),
    };
    e.opening = Some(opening);
    Ok(outside)
}

/// Usage and limits of the inside host's subscriber.
pub(super) fn usage(core: &Core, policy: &Policy, inside: &Inside, e: &mut Explanation) {
    let tables = &core.state.tables;
    let key = policy.subscriber(inside.addr);
    let limits = tables.limits();
    let pool = tables.pools.get(tables.pool_of(policy.instance));
    let known = tables.subscribers.find(key).and_then(|id| tables.subscribers.get(id));
    let (blocks_max, shared) = pool.and_then(|pool| pool.blocks_each()).unwrap_or_default();
    let counts = known.map_or([0; 3], |s| s.holdings.blocks());
    let blocks = if shared { counts.first() } else { counts.get(inside.transport as usize) };
    e.subscriber = Some(SubscriberUsage {
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
