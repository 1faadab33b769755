//! Filtering of packets from outside to a binding (RFC 6146 3.5; RFC 4787 5, RFC 5382 REQ-3).

use crate::base::attribution::Party;
use crate::base::outcome::Refusal;
use crate::base::plan::{Filtering, Transport};
use crate::base::special;
use crate::base::tcp_fsm::{Segment, Side, classify};
use crate::base::time::{Instant, Tick};
use crate::path::context::PacketContext;
use crate::path::policy::{self, Policy};
use crate::path::query::Query;
use crate::path::rewrite::InboundRewrite;
use crate::path::rules::Instance;
use crate::tables::bib::{PoolAddress, Tables};
use crate::tables::session::{Endpoint4, RecordId};
use gatun_wire::DropReason;

/// A query at an outside address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InboundQuery {
    pub(crate) at: PoolAddress,
    pub(crate) query: Query,
    pub(crate) remote: Endpoint4,
}

/// Result for a packet from outside that is not admitted.
pub(crate) enum InboundRefusal {
    /// The packet is dropped.
    Drop(Refusal),
    /// The packet is an unsolicited SYN, which is held for six seconds (RFC 6146 3.5.2.2, RFC 5382 REQ-4).
    Hold,
}

impl From<DropReason> for InboundRefusal {
    fn from(reason: DropReason) -> Self {
        InboundRefusal::Drop(reason.into())
    }
}

impl From<Refusal> for InboundRefusal {
    fn from(refusal: Refusal) -> Self {
        InboundRefusal::Drop(refusal)
    }
}

/// Instance and rewrite of a packet from outside that may pass.
pub(crate) type Admitted<'r> = (Instance<'r>, InboundRewrite);

/// Decides on a query, and updates its session.
pub(crate) fn admit<'c>(
    cx: &mut PacketContext<'c>,
    inbound: &InboundQuery,
) -> Result<Admitted<'c>, InboundRefusal> {
    let Some((instance, id)) = session_at(cx, inbound) else { return without_session(cx, inbound) };
    let (tables, policy) = (&mut cx.state.tables, instance.policy());
    let session = tables.get_mut(id);
    if policy.forbids_reopening(session, &inbound.query) {
        return Err(DropReason::ExternalSynPolicy.into());
    }
    let turn = policy.update(session, Side::V4, &inbound.query, cx.now);
    cx.attribution.meant_for(Party { address_ix: inbound.at.address_ix, ..session.party() });
    tables.feed_turn(id, turn);
    let session = tables.get(id);
    if session.outside_port != inbound.query.dst_port || session.address_ix != inbound.at.address_ix {
        let pool6 = session.pool6;
        return beside_its_flow(instance, tables, inbound, pool6);
    }
    Ok((instance, instance.inbound(session, inbound.query.transport)))
}

/// Admits a packet to a binding if its inside host already has a flow with this sender through a shared port.
/// The flow is the session of both ends (RFC 4787 5: filters check the inside end), but the packet gets the
/// rewrite of the binding.
#[cold]
fn beside_its_flow<'r>(
    instance: Instance<'r>,
    tables: &Tables,
    inbound: &InboundQuery,
    pool6: u8,
) -> Result<Admitted<'r>, InboundRefusal> {
    let primary = inbound.primary(tables).ok_or(DropReason::NoBib)?;
    Ok((instance, instance.inbound_by_binding(tables.get(primary), pool6, inbound.remote)))
}

/// Returns the session of a query, and its instance.
fn session_at<'c>(cx: &mut PacketContext<'c>, inbound: &InboundQuery) -> Option<(Instance<'c>, RecordId)> {
    let (rules, tables) = (cx.rules, &mut cx.state.tables);
    let primary = inbound.primary(tables)?;
    let instance = rules.get(tables.get(primary).instance)?;
    let found = tables.session_of_binding(primary, inbound.remote);
    Some((instance, instance.policy().alive(tables, found, cx.now)?))
}

impl InboundQuery {
    /// Returns the primary record of the binding at the query's destination.
    #[inline]
    pub(crate) fn primary(&self, tables: &Tables) -> Option<RecordId> {
        tables.binding_at(self.at, self.query.transport, self.query.dst_port)
    }

    /// Returns the result for a query to an unbound port (RFC 6146 3.5.1, 3.5.2.2, 3.5.3).
    #[cold]
    pub(crate) fn unbound(&self, tables: &Tables) -> InboundRefusal {
        if special::illegal_source4(self.remote.0) {
            return DropReason::SourceMartian.into();
        }
        if !tables.covers(self.at, self.query.transport, self.query.dst_port) {
            return DropReason::NotInPool.into();
        }
        if self.query.transport == Transport::Tcp && classify(self.query.flags) == Ok(Segment::Syn) {
            return InboundRefusal::Hold;
        }
        DropReason::NoBib.into()
    }

    /// Returns the drop reason for a packet whose TTL expires here. Ports outside the pool's ranges do not
    /// belong to the translator, and packets to them are not forwarded (RFC 1812 5.3.1), so they get no
    /// answer at any TTL. For all others, Gatun is a hop of a traceroute. No state changes.
    #[cold]
    pub(crate) fn expired(&self, tables: &Tables) -> DropReason {
        let covered = tables.covers(self.at, self.query.transport, self.query.dst_port);
        if covered || self.primary(tables).is_some() {
            DropReason::TtlExceeded
        } else {
            DropReason::NotInPool
        }
    }
}

/// Decides on a query without a binding, or to one without a session for this remote endpoint.
#[cold]
fn without_session<'c>(
    cx: &mut PacketContext<'c>,
    inbound: &InboundQuery,
) -> Result<Admitted<'c>, InboundRefusal> {
    let InboundQuery { query, remote, .. } = inbound;
    let (rules, tables) = (cx.rules, &mut cx.state.tables);
    // An expired session may have ended its binding.
    let Some(primary) = inbound.primary(tables) else { return Err(inbound.unbound(tables)) };
    let instance = rules.get(tables.get(primary).instance).ok_or(DropReason::NoBib)?;
    let policy = instance.policy();
    // A packet with a session has passed this check.
    if special::illegal_source4(remote.0) {
        return Err(DropReason::SourceMartian.into());
    }
    let opens = policy::may_open(query)?;
    let is_shared = tables.get(primary).is_overloaded();
    let filtered = filtered(policy, is_shared, || knows_peer(tables, primary, *remote, cx.now));
    // An expired session that the filter found may have ended it too.
    let Some(primary) = inbound.primary(tables) else { return Err(inbound.unbound(tables)) };
    decide(policy, query.transport, opens, filtered)?;
    enter(cx, instance, primary, inbound, opens)
}

/// Decides on a packet without a session: `opens` if it may open one, `filtered` by the result of the filter.
pub(crate) fn decide(
    policy: &Policy,
    transport: Transport,
    opens: bool,
    filtered: Option<DropReason>,
) -> Result<(), InboundRefusal> {
    match (transport, filtered) {
        (Transport::Tcp, _) if opens && !policy.external_tcp => Err(DropReason::ExternalSynPolicy.into()),
        (Transport::Tcp, Some(_)) if opens => Err(InboundRefusal::Hold),
        (Transport::Icmp, _) if opens && !policy.icmp_queries => Err(DropReason::IcmpUnknownType.into()),
        (Transport::Icmp, _) if !opens => Err(DropReason::NoSession.into()),
        (_, Some(reason)) => Err(reason.into()),
        (_, None) => Ok(()),
    }
}

/// Admits a packet: with a new session, or, for a TCP packet other than a SYN, through the binding alone (RFC
/// 6146 3.5.2.2, CLOSED).
fn enter<'c>(
    cx: &mut PacketContext<'c>,
    instance: Instance<'c>,
    primary: RecordId,
    inbound: &InboundQuery,
    opens: bool,
) -> Result<Admitted<'c>, InboundRefusal> {
    let policy = instance.policy();
    let (query, remote) = (&inbound.query, inbound.remote);
    let binding = *cx.state.tables.get(primary);
    let pool6 = instance.prefix_for(binding.pool6, remote.0)?;
    cx.attribution.meant_for(binding.party());
    if !opens {
        return Ok((instance, instance.inbound_by_binding(&binding, pool6, remote)));
    }
    let subscriber = policy.subscriber(binding.inside_addr());
    let id = cx.state.tables.open_from_outside(primary, remote, subscriber)?;
    if query.transport == Transport::Tcp {
        // A SYN of this connection may be held from the time before the binding. This one passes now, so the
        // held one must not cause an error (RFC 5382 REQ-4).
        cx.state.forget_held_syn(cx.attribution.account, binding.outside(), remote);
    }
    let tables = &mut cx.state.tables;
    // RFC 7857 7: a remote host must not keep a binding alive by opening sessions through it.
    let bound = if policy.refreshes(Side::V4) { None } else { tables.end_without(id) };
    let session = tables.get_mut(id);
    cx.attribution.meant_for(session.party());
    instance.mark(session, pool6);
    policy.begin(session, Side::V4, query.transport, cx.now);
    if let Some(end) = bound {
        session.live_no_longer_than(end);
    }
    let to = instance.inbound(session, query.transport);
    tables.feed_opened(id);
    Ok((instance, to))
}

/// Returns the reason why a remote endpoint without a session may not send to a binding; `None` if it may.
/// `knows_peer`: the binding has a live session with the remote address.
pub(crate) fn filtered(
    policy: &Policy,
    is_shared: bool,
    knows_peer: impl FnOnce() -> bool,
) -> Option<DropReason> {
    // Decision 0041: a shared port admits only the remote ends of its flows.
    if is_shared {
        return Some(DropReason::AddressPortDependentFilter);
    }
    match policy.filtering {
        Filtering::EndpointIndependent => None,
        Filtering::AddressDependent if knows_peer() => None,
        Filtering::AddressDependent => Some(DropReason::AddressDependentFilter),
        // A permitted remote end has a session.
        Filtering::AddressAndPortDependent => Some(DropReason::AddressPortDependentFilter),
    }
}

/// Returns whether the binding has a live session with the remote address, for address-dependent filtering
/// (RFC 4787 5). Ends expired sessions that it finds, a few at a time.
fn knows_peer(tables: &mut Tables, primary: RecordId, remote: Endpoint4, now: Instant) -> bool {
    const DEAD_MAX: usize = 16;
    let inside = tables.get(primary).inside();
    for _ in 0..DEAD_MAX {
        let Some(id) = tables.find_peer(&inside, remote.0) else { return false };
        let session = tables.get(id);
        // The packet is not one of that session. An established session whose lifetime is over still waits
        // for its probe, and a marked one for its fast path.
        if !session.expires().has_come(Tick::at(now)) || session.outlives_its_time() {
            return true;
        }
        tables.close(id);
    }
    false
}
