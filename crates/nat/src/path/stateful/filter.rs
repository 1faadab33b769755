//! From outside: which packets a binding lets in (RFC 6146 3.5; RFC 4787 5, RFC 5382 REQ-3).

use super::{Instance, Instances, Inward, Policy, Query, policy};
use crate::base::plan::{Filtering, Transport};
use crate::base::special;
use crate::base::tcp_fsm::{Segment, Side, classify};
use crate::base::time::Instant;
use crate::path::shared::Shared;
use crate::tables::bib::Place;
use crate::tables::session::{Endpoint4, RecordId, Tick};
use gatun_wire::DropReason;

/// A query at an outside address: what is decided on here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Knock {
    pub(crate) place: Place,
    pub(crate) query: Query,
    pub(crate) remote: Endpoint4,
}

/// Why a packet from outside goes no further.
pub(crate) enum Refused {
    /// It is dropped.
    Drop(DropReason),
    /// It is an unsolicited SYN, which is to be held for six seconds (RFC 6146 3.5.2.2, RFC 5382 REQ-4).
    Hold,
}

impl From<DropReason> for Refused {
    fn from(reason: DropReason) -> Self {
        Refused::Drop(reason)
    }
}

/// Where a packet from outside goes: the instance of its binding, and its form inside.
pub(crate) type Admitted<'n> = (Instance<'n>, Inward);

/// Decides on a query, and updates its session.
pub(crate) fn admit<'n>(
    nats: Instances<'n>,
    sh: &mut Shared,
    now: Instant,
    knock: &Knock,
) -> Result<Admitted<'n>, Refused> {
    let Some((instance, id)) = session_at(nats, sh, now, knock) else {
        return without_session(nats, sh, now, knock);
    };
    let session = sh.tables.get_mut(id);
    if instance.policy().forbids_reopening(session, &knock.query) {
        return Err(DropReason::ExternalSynPolicy.into());
    }
    instance.policy().update(session, Side::V4, &knock.query, now);
    if session.outside_port != knock.query.dst_port || session.address_ix != knock.place.address_ix {
        let pool6 = session.pool6;
        return beside_its_flow(instance, sh, knock, pool6);
    }
    Ok((instance, instance.inward(session, knock.query.transport)))
}

/// To a binding whose inside end has a flow with the sender, which leaves from a shared port and is the session of
/// both (RFC 4787 5: filters look at the inside end): what is written is the binding's.
#[cold]
fn beside_its_flow<'n>(
    instance: Instance<'n>,
    sh: &Shared,
    knock: &Knock,
    pool6: u8,
) -> Result<Admitted<'n>, Refused> {
    let primary = knock.primary(sh).ok_or(DropReason::NoBib)?;
    Ok((instance, instance.inward_by_binding(sh.tables.get(primary), pool6, knock.remote)))
}

/// The session of a query, and its instance.
fn session_at<'n>(
    nats: Instances<'n>,
    sh: &mut Shared,
    now: Instant,
    knock: &Knock,
) -> Option<(Instance<'n>, RecordId)> {
    let primary = knock.primary(sh)?;
    let instance = nats.get(sh.tables.get(primary).instance)?;
    let found = sh.tables.session_of_binding(primary, knock.remote);
    Some((instance, instance.policy().alive(&mut sh.tables, found, now)?))
}

impl Knock {
    /// The primary record of the binding that is knocked at.
    #[inline]
    pub(crate) fn primary(&self, sh: &Shared) -> Option<RecordId> {
        sh.tables.binding_at(self.place, self.query.transport, self.query.dst_port)
    }

    /// Nothing is bound there (RFC 6146 3.5.1, 3.5.2.2, 3.5.3).
    #[cold]
    pub(crate) fn unbound(&self, sh: &Shared) -> Refused {
        if special::illegal_source4(self.remote.0) {
            return Refused::Drop(DropReason::SourceMartian);
        }
        if !sh.tables.covers(self.place, self.query.transport, self.query.dst_port) {
            return Refused::Drop(DropReason::NotInPool);
        }
        if self.query.transport == Transport::Tcp && classify(self.query.flags) == Ok(Segment::Syn) {
            return Refused::Hold;
        }
        Refused::Drop(DropReason::NoBib)
    }

    /// Why a packet ends here whose TTL takes it no further. Ports that no pool range has are not the
    /// translator's: nothing to them is forwarded (RFC 1812 5.3.1), so they get no answer at any TTL. Any other
    /// is a hop of a traceroute. No state changes.
    #[cold]
    pub(crate) fn expired(&self, sh: &Shared) -> DropReason {
        let covered = sh.tables.covers(self.place, self.query.transport, self.query.dst_port);
        if covered || self.primary(sh).is_some() { DropReason::TtlExceeded } else { DropReason::NotInPool }
    }
}

/// No binding, or one without a session for this remote endpoint.
#[cold]
fn without_session<'n>(
    nats: Instances<'n>,
    sh: &mut Shared,
    now: Instant,
    knock: &Knock,
) -> Result<Admitted<'n>, Refused> {
    let Knock { query, remote, .. } = knock;
    // A session that was found dead may have taken its binding with it.
    let Some(primary) = knock.primary(sh) else { return Err(knock.unbound(sh)) };
    let instance = nats.get(sh.tables.get(primary).instance).ok_or(DropReason::NoBib)?;
    let policy = instance.policy();
    // Who has a session has passed this check.
    if special::illegal_source4(remote.0) {
        return Err(DropReason::SourceMartian.into());
    }
    let opens = policy::may_open(query)?;
    let filtered = policy.filtered(sh, now, primary, *remote);
    // So may one that the filter has found dead.
    let Some(primary) = knock.primary(sh) else { return Err(knock.unbound(sh)) };
    match (query.transport, filtered) {
        (Transport::Tcp, _) if opens && !policy.external_tcp => Err(DropReason::ExternalSynPolicy.into()),
        (Transport::Tcp, Some(_)) if opens => Err(Refused::Hold),
        (Transport::Icmp, _) if opens && !policy.icmp_queries => Err(DropReason::IcmpUnknownType.into()),
        (Transport::Icmp, _) if !opens => Err(DropReason::NoSession.into()),
        (_, Some(reason)) => Err(reason.into()),
        (_, None) => enter(instance, sh, now, primary, knock, opens),
    }
}

/// Lets a packet in: with a session of its own, or, for a TCP packet that is no SYN, by the binding
/// alone (RFC 6146 3.5.2.2, CLOSED).
fn enter<'n>(
    instance: Instance<'n>,
    sh: &mut Shared,
    now: Instant,
    primary: RecordId,
    knock: &Knock,
    opens: bool,
) -> Result<Admitted<'n>, Refused> {
    let policy = instance.policy();
    let binding = *sh.tables.get(primary);
    let pool6 = instance.prefix_for(binding.pool6, knock.remote.0)?;
    if !opens {
        return Ok((instance, instance.inward_by_binding(&binding, pool6, knock.remote)));
    }
    let subscriber = policy.subscriber(binding.inside_addr());
    let id = sh.tables.open_from_outside(primary, knock.remote, subscriber)?;
    if knock.query.transport == Transport::Tcp {
        // One of this connection's may be held from before there was a binding. Its copy has passed now, and is
        // not to be followed by the error that nobody answered (RFC 5382 REQ-4).
        sh.let_held_syn_go(binding.outside(), knock.remote);
    }
    // RFC 7857 7: a stranger does not keep a binding alive by opening sessions through it, either.
    let bound = if policy.refreshes(Side::V4) { None } else { sh.tables.end_without(id) };
    let session = sh.tables.get_mut(id);
    instance.mark(session, pool6);
    policy.begin(session, Side::V4, knock.query.transport, now);
    if let Some(end) = bound {
        session.live_no_longer_than(end);
    }
    Ok((instance, instance.inward(session, knock.query.transport)))
}

impl Policy {
    /// Why a remote endpoint without a session may not send to a binding; `None` where it may.
    fn filtered(
        &self,
        sh: &mut Shared,
        now: Instant,
        primary: RecordId,
        remote: Endpoint4,
    ) -> Option<DropReason> {
        // Decision 0041: a shared port lets nobody in but whom one of its flows goes to.
        if sh.tables.get(primary).is_overloaded() {
            return Some(DropReason::AddressPortDependentFilter);
        }
        match self.filtering {
            Filtering::EndpointIndependent => None,
            Filtering::AddressDependent if self.knows_peer(sh, primary, remote, now) => None,
            Filtering::AddressDependent => Some(DropReason::AddressDependentFilter),
            // Whoever may has a session.
            Filtering::AddressAndPortDependent => Some(DropReason::AddressPortDependentFilter),
        }
    }

    /// Address-dependent filtering (RFC 4787 5): whether the binding has a live session with the remote
    /// address. Sessions found dead on the way are ended, a few at a time.
    fn knows_peer(&self, sh: &mut Shared, primary: RecordId, remote: Endpoint4, now: Instant) -> bool {
        const DEAD_MAX: usize = 16;
        let inside = sh.tables.get(primary).inside();
        for _ in 0..DEAD_MAX {
            let Some(id) = sh.tables.find_peer(&inside, remote.0) else { return false };
            let session = sh.tables.get(id);
            // This is no packet of that session's: where it is established and its time is up, it goes on
            // waiting for its probe.
            if !session.expires().has_come(Tick::at(now)) || session.waits_for_probe() {
                return true;
            }
            sh.tables.close(id);
        }
        false
    }
}
