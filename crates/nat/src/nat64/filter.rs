//! From outside: which packets a binding lets in (RFC 6146 3.5; RFC 4787 5).

use super::{Nat64, Query, inbound_of, set_prefix};
use crate::bib::Place;
use crate::plan::{Filtering, Transport};
use crate::session::{Endpoint4, RecordId};
use crate::shared::Shared;
use crate::special;
use crate::tcp_fsm::{Segment, Side, classify};
use crate::time::Instant;
use core::iter;
use core::net::Ipv4Addr;
use gatun_wire::{DropReason, Ports, To6};

/// Why a packet from outside goes no further.
pub(crate) enum Refused {
    /// It is dropped.
    Drop(DropReason),
    /// It is a SYN that the inside may yet answer: it is to be held for six seconds. Where it can't be
    /// held, the reason to drop it (RFC 6146 3.5.2.2, RFC 5382 REQ-4).
    Hold(DropReason),
}

impl From<DropReason> for Refused {
    fn from(reason: DropReason) -> Self {
        Refused::Drop(reason)
    }
}

/// Where a packet from outside goes: the instance of its binding, and the IPv6 form.
pub(crate) type Admitted<'n> = (&'n Nat64, To6);

/// Decides on a query from `remote` to the pool address at `place`, and updates its session.
pub(crate) fn admit<'n>(
    nats: &'n [Nat64],
    sh: &mut Shared,
    now: Instant,
    place: Place,
    query: &Query,
    remote: Endpoint4,
) -> Result<Admitted<'n>, Refused> {
    match session_at(nats, sh, now, place, query, remote) {
        Some((nat, id)) => Ok((nat, by_session(nat, sh, now, query, id))),
        None => without_session(nats, sh, now, place, query, remote),
    }
}

/// The session of a query from `remote` to the pool address at `place`, and its instance.
#[inline(always)]
pub(crate) fn session_at<'n>(
    nats: &'n [Nat64],
    sh: &mut Shared,
    now: Instant,
    place: Place,
    query: &Query,
    remote: Endpoint4,
) -> Option<(&'n Nat64, RecordId)> {
    let primary = sh.tables.binding_at(place, query.transport, query.dst_port)?;
    let nat = instance_of(nats, sh, primary)?;
    let found = sh.tables.session_of_binding(primary, remote);
    Some((nat, nat.alive(&mut sh.tables, found, now)?))
}

/// Updates a session, and gives the packet its inside addresses and ports.
#[inline(always)]
pub(crate) fn by_session(nat: &Nat64, sh: &mut Shared, now: Instant, query: &Query, id: RecordId) -> To6 {
    let session = sh.tables.get_mut(id);
    nat.update(session, Side::V4, query, now);
    inbound_of(session, query.transport, nat.prefix(session.pool6))
}

#[inline(always)]
fn instance_of<'n>(nats: &'n [Nat64], sh: &Shared, id: RecordId) -> Option<&'n Nat64> {
    nats.get(usize::from(sh.tables.get(id).instance))
}

/// Nothing is bound there (RFC 6146 3.5.1, 3.5.2.2, 3.5.3).
#[cold]
fn unbound(sh: &Shared, place: Place, query: &Query, remote: Endpoint4) -> Refused {
    if special::illegal_source4(remote.0) {
        return Refused::Drop(DropReason::SourceMartian);
    }
    if !sh.tables.covers(place, query.transport, query.dst_port) {
        return Refused::Drop(DropReason::NotInPool);
    }
    if query.transport == Transport::Tcp && classify(query.flags) == Ok(Segment::Syn) {
        return Refused::Hold(DropReason::NoBib);
    }
    Refused::Drop(DropReason::NoBib)
}

/// Why a packet ends here whose TTL takes it no further. Ports that no pool range has are not the
/// translator's: nothing to them is forwarded (RFC 1812 5.3.1), so they get no answer at any TTL. Any other
/// is a hop of a traceroute. No state changes.
#[cold]
pub(crate) fn expired(sh: &Shared, place: Place, query: &Query) -> DropReason {
    let (transport, port) = (query.transport, query.dst_port);
    let ours =
        sh.tables.covers(place, transport, port) || sh.tables.binding_at(place, transport, port).is_some();
    if ours { DropReason::TtlExceeded } else { DropReason::NotInPool }
}

/// No binding, or one without a session for this remote endpoint.
#[cold]
pub(crate) fn without_session<'n>(
    nats: &'n [Nat64],
    sh: &mut Shared,
    now: Instant,
    place: Place,
    query: &Query,
    remote: Endpoint4,
) -> Result<Admitted<'n>, Refused> {
    // A session that was found dead may have taken its binding with it.
    let Some(primary) = sh.tables.binding_at(place, query.transport, query.dst_port) else {
        return Err(unbound(sh, place, query, remote));
    };
    let nat = instance_of(nats, sh, primary).ok_or(DropReason::NoBib)?;
    // Who has a session has passed this check.
    if special::illegal_source4(remote.0) {
        return Err(DropReason::SourceMartian.into());
    }
    let opens = Nat64::may_open(query)?;
    let allowed = match nat.filtering {
        Filtering::EndpointIndependent => true,
        Filtering::AddressDependent => nat.knows_peer(sh, primary, remote, now),
    };
    // So may one that the filter has found dead.
    let Some(primary) = sh.tables.binding_at(place, query.transport, query.dst_port) else {
        return Err(unbound(sh, place, query, remote));
    };
    match query.transport {
        Transport::Tcp if opens && !nat.external_tcp => Err(DropReason::ExternalSynPolicy.into()),
        Transport::Tcp if opens && !allowed => Err(Refused::Hold(DropReason::AddressDependentFilter)),
        Transport::Icmp if opens && !nat.icmp_queries => Err(DropReason::IcmpUnknownType.into()),
        Transport::Icmp if !opens => Err(DropReason::NoSession.into()),
        _ if !allowed => Err(DropReason::AddressDependentFilter.into()),
        _ => {
            let pool6 = nat.prefix_for(sh.tables.get(primary).pool6, remote.0)?;
            if opens {
                open(nat, sh, now, primary, pool6, query.transport, remote)
            } else {
                by_binding(nat, sh, primary, pool6, remote)
            }
        }
    }
}

fn open<'n>(
    nat: &'n Nat64,
    sh: &mut Shared,
    now: Instant,
    primary: RecordId,
    pool6: u8,
    transport: Transport,
    remote: Endpoint4,
) -> Result<Admitted<'n>, Refused> {
    let inside = sh.tables.get(primary).inside_addr();
    let id = sh.tables.open_from_outside(primary, remote, nat.subscriber(inside))?;
    let session = sh.tables.get_mut(id);
    set_prefix(session, pool6, nat.prefix(pool6));
    nat.begin(session, Side::V4, transport, now);
    Ok((nat, inbound_of(session, transport, nat.prefix(pool6))))
}

/// RFC 6146 3.5.2.2, CLOSED: a TCP packet that is no SYN passes by the binding and makes no state.
fn by_binding<'n>(
    nat: &'n Nat64,
    sh: &Shared,
    primary: RecordId,
    pool6: u8,
    remote: Endpoint4,
) -> Result<Admitted<'n>, Refused> {
    let p = sh.tables.get(primary);
    let from = (remote.0, p.outside().0);
    let to = (nat.prefix(pool6).embed(remote.0), p.inside_addr());
    let ports = Ports::Set { src: remote.1, dst: p.inside_port() };
    Ok((nat, To6::new(from, to, ports)))
}

impl Nat64 {
    /// The prefix behind which a remote address is shown that the inside has not talked to: the one that
    /// the binding uses, or else the instance's first that may stand for it (RFC 6052 3.1).
    fn prefix_for(&self, of_binding: u8, remote: Ipv4Addr) -> Result<u8, DropReason> {
        let mut candidates = iter::once(of_binding).chain((0..=u8::MAX).take(self.pool6.len()));
        candidates
            .find(|&pool6| self.check_embedded(pool6, remote).is_ok())
            .ok_or(DropReason::WellKnownNonGlobal)
    }

    /// Address-dependent filtering (RFC 4787 5): whether the binding has a live session with the remote
    /// address. Sessions found dead on the way are ended, a few at a time.
    fn knows_peer(&self, sh: &mut Shared, primary: RecordId, remote: Endpoint4, now: Instant) -> bool {
        const DEAD_MAX: usize = 16;
        let inside = sh.tables.get(primary).inside();
        for _ in 0..DEAD_MAX {
            let found = sh.tables.find_peer(&inside, remote.0);
            if found.is_none() {
                return false;
            }
            if self.alive(&mut sh.tables, found, now).is_some() {
                return true;
            }
        }
        false
    }
}
