//! To a public address: what [`crate::path::stateful::filter`] and [`crate::path::stateful::inbound`] would decide.

use super::{End, Explanation, Fate, Opening, outward};
use crate::base::plan::{Filtering, Transport};
use crate::base::special;
use crate::engine::Core;
use crate::lifecycle::inspect::BindingInfo;
use crate::path::stateful::filter::{Knock, Refused};
use crate::path::stateful::{Instance, Inward, Policy, Query, policy};
use crate::tables::bib::Place;
use crate::tables::session::{Endpoint4, RecordId};
use core::net::Ipv4Addr;
use gatun_wire::rfc7915::mtu;
use gatun_wire::{DropReason, Ipv4View};

/// The largest packet to an instance's inside that is neither cut nor refused.
pub(super) fn mtu(instance: Instance<'_>, view: &Ipv4View) -> u32 {
    match instance {
        Instance::Nat64(nat) => mtu::fragmentation_needed(view, &nat.settings).into(),
        Instance::Nat44(nat) => nat.link.mtu,
    }
}

/// A query from outside; `expired` is whether its TTL ends here.
pub(super) fn query<'n>(
    core: &'n Core,
    (outside, place): (Ipv4Addr, Place),
    query: &Query,
    remote: Endpoint4,
    expired: bool,
    e: &mut Explanation,
) -> Result<(Instance<'n>, Inward), End> {
    let knock = Knock { place, query: *query, remote };
    if let Some(primary) = knock.primary(&core.shared) {
        e.instance = Some(core.shared.tables.get(primary).instance.into());
    }
    if expired {
        return Err(knock.expired(&core.shared).into());
    }
    admit(core, place, query, remote, e).map_err(|refused| match refused {
        Refused::Drop(reason) => End::Drop(reason),
        Refused::Hold => would_hold(core, (outside, query.dst_port), place, remote),
    })
}

/// What becomes of an unsolicited SYN (RFC 6146 3.5.2.2).
pub(super) fn would_hold(core: &Core, outside: Endpoint4, place: Place, remote: Endpoint4) -> End {
    let sh = &core.shared;
    if !core.instances().of_pool(&sh.tables, place.pool).any(|p| p.external_tcp) {
        return End::Drop(DropReason::ExternalSynPolicy);
    }
    if sh.syns.find(remote, |at| at == outside).is_some() {
        return End::Drop(DropReason::SynHeldAlready);
    }
    match sh.syns.has_room_for(remote.0) {
        true => End::Fate(Fate::Held),
        false => End::Drop(DropReason::SynStoreFull),
    }
}

/// Whether a query may pass, and how it is written then.
pub(super) fn admit<'n>(
    core: &'n Core,
    place: Place,
    query: &Query,
    remote: Endpoint4,
    e: &mut Explanation,
) -> Result<(Instance<'n>, Inward), Refused> {
    let (sh, tables) = (&core.shared, &core.shared.tables);
    let knock = Knock { place, query: *query, remote };
    let Some(primary) = knock.primary(sh) else { return Err(knock.unbound(sh)) };
    e.binding = Some(tables.binding_info(primary));
    let record = tables.get(primary);
    let instance = core.instances().get(record.instance).ok_or(DropReason::NoBib)?;
    outward::standing(core, instance.policy(), &record.inside(), e);
    let session = tables.session_of_binding(primary, remote);
    if let Some(id) = session.filter(|&id| instance.policy().would_live(tables, id)) {
        let session = tables.get(id);
        e.session = Some(tables.session_info(session));
        if instance.policy().forbids_reopening(session, query) {
            return Err(DropReason::ExternalSynPolicy.into());
        }
        if session.outside_port != query.dst_port || session.address_ix != place.address_ix {
            return Ok((instance, instance.inward_by_binding(record, session.pool6, remote)));
        }
        return Ok((instance, instance.inward(session, query.transport)));
    }
    // A host that sends to itself: the session that it opens is the one that lets the packet in.
    let to_itself = |b: BindingInfo| b.outside == record.outside() && remote == record.outside();
    if let Some(Opening::Binding(binding)) = e.opening
        && (to_itself(binding) || (query.transport == Transport::Icmp && binding.outside == record.outside()))
    {
        return Ok((instance, instance.inward_by_binding(record, record.pool6, remote)));
    }
    without_session(core, instance, primary, query, remote)
}

/// As [`crate::path::stateful::filter`] for a remote end that has no session.
fn without_session<'n>(
    core: &'n Core,
    instance: Instance<'n>,
    primary: RecordId,
    query: &Query,
    remote: Endpoint4,
) -> Result<(Instance<'n>, Inward), Refused> {
    let tables = &core.shared.tables;
    let (policy, record) = (instance.policy(), tables.get(primary));
    if special::illegal_source4(remote.0) {
        return Err(DropReason::SourceMartian.into());
    }
    let opens = policy::may_open(query)?;
    let filtered = filtered(core, policy, primary, remote);
    match (query.transport, filtered) {
        (Transport::Tcp, _) if opens && !policy.external_tcp => Err(DropReason::ExternalSynPolicy.into()),
        (Transport::Tcp, Some(_)) if opens => Err(Refused::Hold),
        (Transport::Icmp, _) if opens && !policy.icmp_queries => Err(DropReason::IcmpUnknownType.into()),
        (Transport::Icmp, _) if !opens => Err(DropReason::NoSession.into()),
        (_, Some(reason)) => Err(reason.into()),
        (_, None) => {
            let pool6 = instance.prefix_for(record.pool6, remote.0)?;
            if opens {
                tables.foresee_from_outside(policy.subscriber(record.inside_addr()))?;
            }
            Ok((instance, instance.inward_by_binding(record, pool6, remote)))
        }
    }
}

/// Why a remote end without a session may not send to a binding (RFC 4787 5); `None` where it may.
fn filtered(core: &Core, policy: &Policy, primary: RecordId, remote: Endpoint4) -> Option<DropReason> {
    let tables = &core.shared.tables;
    if tables.get(primary).is_overloaded() {
        return Some(DropReason::AddressPortDependentFilter);
    }
    match policy.filtering {
        Filtering::EndpointIndependent => None,
        Filtering::AddressDependent => {
            let peer = tables.find_peer(&tables.get(primary).inside(), remote.0);
            let lives = peer.is_some_and(|id| tables.peers_live(id, |id| policy.would_live(tables, id)));
            (!lives).then_some(DropReason::AddressDependentFilter)
        }
        Filtering::AddressAndPortDependent => Some(DropReason::AddressPortDependentFilter),
    }
}
