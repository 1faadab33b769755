//! Packets to a public address: the decisions of [`crate::path::stateful::filter`] and
//! [`crate::path::stateful::inbound`], without changes.

use super::{End, Explanation, Fate, Opening, outward};
use crate::base::plan::Transport;
use crate::base::special;
use crate::path::context::Inbound;
use crate::path::policy;
use crate::path::query::Query;
use crate::path::rewrite::InboundRewrite;
use crate::path::rules::Instance;
use crate::path::state::Core;
use crate::path::stateful::filter::{self, InboundQuery, InboundRefusal};
use crate::tables::bib::info::{self, BindingInfo};
use crate::tables::session::{Endpoint4, RecordId};
use core::net::Ipv4Addr;
use gatun_wire::rfc7915::mtu;
use gatun_wire::{DropReason, Ipv4View};

/// Returns the size of the largest packet to an instance's inside that is neither fragmented nor refused.
pub(super) fn mtu(instance: Instance<'_>, view: &Ipv4View) -> u32 {
    match instance {
        Instance::Nat64(nat) => mtu::fragmentation_needed(view, &nat.settings).into(),
        Instance::Nat44(nat) => nat.link.mtu,
    }
}

/// Forecasts a query from outside.
pub(super) fn query<'r>(
    core: &'r Core,
    from: &Inbound,
    query: &Query,
    e: &mut Explanation,
) -> Result<(Instance<'r>, InboundRewrite), End> {
    let tables = &core.state.tables;
    let inbound = InboundQuery { at: from.at, query: *query, remote: (from.view.src, query.src_port) };
    if let Some(primary) = inbound.primary(tables) {
        e.instance = Some(tables.get(primary).instance.into());
    }
    // A packet whose TTL expires here changes no state.
    if from.view.ttl <= 1 {
        return Err(inbound.expired(tables).into());
    }
    admit(core, &inbound, e).map_err(|refused| match refused {
        InboundRefusal::Drop(refusal) => refusal.into(),
        InboundRefusal::Hold => would_hold(core, from.view.dst, &inbound),
    })
}

/// Returns the verdict for an unsolicited SYN to a public address (RFC 6146 3.5.2.2).
pub(super) fn would_hold(core: &Core, address: Ipv4Addr, inbound: &InboundQuery) -> End {
    let (state, remote) = (&core.state, inbound.remote);
    let outside = (address, inbound.query.dst_port);
    if !core.rules.of_pool(&state.tables, inbound.at.pool).any(|p| p.external_tcp) {
        return DropReason::ExternalSynPolicy.into();
    }
    if state.syns.find(remote, |at| at == outside).is_some() {
        return DropReason::SynHeldAlready.into();
    }
    match state.syns.has_room_for(remote.0) {
        true => End::Fate(Fate::Held),
        false => DropReason::SynStoreFull.into(),
    }
}

/// Checks if a query may pass, and returns its rewrite.
pub(super) fn admit<'r>(
    core: &'r Core,
    inbound: &InboundQuery,
    e: &mut Explanation,
) -> Result<(Instance<'r>, InboundRewrite), InboundRefusal> {
    let (tables, InboundQuery { at, query, remote }) = (&core.state.tables, inbound);
    let remote = *remote;
    let Some(primary) = inbound.primary(tables) else { return Err(inbound.unbound(tables)) };
    e.binding = Some(info::binding(tables, primary));
    let record = tables.get(primary);
    let instance = core.rules.get(record.instance).ok_or(DropReason::NoBib)?;
    outward::usage(core, instance.policy(), &record.inside(), e);
    let session = tables.session_of_binding(primary, remote);
    if let Some(id) = session.filter(|&id| instance.policy().would_live(tables, id)) {
        let session = tables.get(id);
        e.session = Some(info::session(tables, session));
        if instance.policy().forbids_reopening(session, query) {
            return Err(DropReason::ExternalSynPolicy.into());
        }
        if session.outside_port != query.dst_port || session.address_ix != at.address_ix {
            return Ok((instance, instance.inbound_by_binding(record, session.pool6, remote)));
        }
        return Ok((instance, instance.inbound(session, query.transport)));
    }
    // If a host sends to itself, the session that it opens is the one that admits the packet.
    let to_itself = |b: BindingInfo| b.outside == record.outside() && remote == record.outside();
    if let Some(Opening::Binding(binding)) = e.opening
        && (to_itself(binding) || (query.transport == Transport::Icmp && binding.outside == record.outside()))
    {
        return Ok((instance, instance.inbound_by_binding(record, record.pool6, remote)));
    }
    without_session(core, instance, primary, query, remote)
}

/// Same as [`crate::path::stateful::filter`], for a remote end that has no session.
fn without_session<'n>(
    core: &'n Core,
    instance: Instance<'n>,
    primary: RecordId,
    query: &Query,
    remote: Endpoint4,
) -> Result<(Instance<'n>, InboundRewrite), InboundRefusal> {
    let tables = &core.state.tables;
    let (policy, record) = (instance.policy(), tables.get(primary));
    if special::illegal_source4(remote.0) {
        return Err(DropReason::SourceMartian.into());
    }
    let opens = policy::may_open(query)?;
    let filtered = filter::filtered(policy, record.is_overloaded(), || {
        let peer = tables.find_peer(&record.inside(), remote.0);
        peer.is_some_and(|id| tables.peers_live(id, |id| policy.would_live(tables, id)))
    });
    filter::decide(policy, query.transport, opens, filtered)?;
    let pool6 = instance.prefix_for(record.pool6, remote.0)?;
    if opens {
        tables.preview_from_outside(policy.subscriber(record.inside_addr()))?;
    }
    Ok((instance, instance.inbound_by_binding(record, pool6, remote)))
}
