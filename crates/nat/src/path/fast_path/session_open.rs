//! The fast path of first packets: plain ones from inside that open a session, a datagram or a SYN.

use super::{addresses6, write_outbound4};
use crate::base::plan::Transport;
use crate::base::special::illegal_destination4;
use crate::base::time::Instant;
use crate::path::look_ahead::SessionHint;
use crate::path::policy;
use crate::path::query::Query;
use crate::path::rules::nat64::outbound_of;
use crate::path::rules::{Instance, nat44};
use crate::path::state::{Core, EngineState};
use crate::path::stateful::outbound;
use crate::tables::bib::SessionRequest;
use crate::tables::session::RecordId;
use core::net::Ipv4Addr;
use gatun_wire::plain::Plain;
use gatun_wire::{DropReason, Packet};

/// Result of a packet that may open a session.
pub(crate) enum SessionOpen {
    /// The packet has opened a session and is translated.
    Done,
    /// A quota, a table or a pool is exhausted; the packet is unchanged.
    Refused(DropReason),
    /// The packet has to take the slow path; nothing has changed.
    SlowPath,
}

/// Opens a session for an IPv6 packet.
#[inline(never)]
pub(crate) fn open6(
    core: &mut Core,
    now: Instant,
    packet: &mut Packet<'_>,
    hint: &SessionHint,
    request: &SessionRequest,
) -> SessionOpen {
    let Some(plain) = Plain::six(packet) else { return SessionOpen::SlowPath };
    let Some(nat) = core.rules.nat64(hint.owner.instance) else { return SessionOpen::SlowPath };
    let (rules, state) = (&core.rules, &mut core.state);
    let (remote, pool6) = (request.remote, hint.owner.pool6);
    if !plain.fits4(&nat.settings)
        || !plain.keeps_mss(packet, nat.settings.mss_max)
        || plain.is_syn() && !state.paths.is_empty()
        || state.paths.is_too_large(now, remote.0, plain.len4())
        || nat.check_source(request.inside.addr).is_err()
        || nat.check_embedded(pool6, remote.0).is_err()
        || addresses6(packet.bytes()).is_some_and(|(_, dst)| rules.own6 == Some(dst))
    {
        return SessionOpen::SlowPath;
    }
    let id = match open((rules.own4, state), Instance::Nat64(nat), now, &plain, (hint, request)) {
        Ok(id) => id,
        Err(open) => return open,
    };
    let (session, accounts) = state.tables.with_accounts(id);
    accounts.count_outbound(session.party(), packet.len());
    let to = outbound_of(session, hint.transport);
    let id = state.idents.next(hint.hash);
    plain.write4(packet, (request.inside.port, remote.1), &to, id, &nat.settings);
    SessionOpen::Done
}

/// Same as [`open6`], for a NAT44 instance.
#[inline(never)]
pub(crate) fn open4(
    core: &mut Core,
    now: Instant,
    packet: &mut Packet<'_>,
    hint: &SessionHint,
    request: &SessionRequest,
) -> SessionOpen {
    let Some(plain) = Plain::four(packet) else { return SessionOpen::SlowPath };
    let Some(nat) = core.rules.nat44(hint.owner.instance) else { return SessionOpen::SlowPath };
    let (rules, state) = (&core.rules, &mut core.state);
    let remote = request.remote;
    if !plain.fits44(nat.link.mtu) || !plain.keeps_mss(packet, nat.link.mss_max) {
        return SessionOpen::SlowPath;
    }
    let id = match open((rules.own4, state), Instance::Nat44(nat), now, &plain, (hint, request)) {
        Ok(id) => id,
        Err(open) => return open,
    };
    let (session, accounts) = state.tables.with_accounts(id);
    accounts.count_outbound(session.party(), packet.len());
    let to = nat44::outbound_of(session, hint.transport);
    write_outbound4(state, packet, &plain, (request.inside.port, remote.1), to, hint.transport);
    SessionOpen::Done
}

/// Opens the session if the packet may open one and none exists. An earlier packet of the burst may have
/// opened it.
#[inline(always)]
fn open(
    (own4, state): (Option<Ipv4Addr>, &mut EngineState),
    instance: Instance<'_>,
    now: Instant,
    plain: &Plain,
    (hint, request): (&SessionHint, &SessionRequest),
) -> Result<RecordId, SessionOpen> {
    let &SessionRequest { inside, remote, .. } = request;
    let query = Query {
        transport: hint.transport,
        src_port: inside.port,
        dst_port: remote.1,
        flags: plain.flags,
        is_reply: false,
    };
    // This SYN may answer a held one.
    let may_answer = hint.transport == Transport::Tcp && !state.syns.is_empty();
    if may_answer
        || policy::may_open(&query) != Ok(true)
        || illegal_destination4(remote.0)
        || own4 == Some(remote.0)
        || state.tables.locate(remote.0).is_some()
        || state.tables.find_session(hint.hash, inside, remote).is_some()
    {
        return Err(SessionOpen::SlowPath);
    }
    let opened = outbound::open_with(state, instance, now, request, &query, hint.owner.pool6);
    opened.map_err(SessionOpen::Refused)
}
