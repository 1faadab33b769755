//! From inside, without a session: RFC 6146 3.5.1, 3.5.2.2 (CLOSED) and 3.5.3; RFC 4787 4, RFC 5382 4,
//! RFC 5508 3.

use super::{Instance, Query};
use crate::base::plan::Transport;
use crate::base::tcp_fsm::{Side, TcpState};
use crate::base::time::Instant;
use crate::path::shared::Shared;
use crate::tables::bib::Opening;
use crate::tables::session::{Endpoint4, Inside, RecordId};
use gatun_wire::DropReason;

/// Makes the session of a packet that may open one; `pool6` is the prefix that it was sent to.
///
/// # Errors
/// Which table, quota or pool is at its end; nothing that exists is evicted for it (RFC 6888 REQ-12).
pub(crate) fn open(
    instance: Instance<'_>,
    sh: &mut Shared,
    now: Instant,
    (inside, remote): (Inside, Endpoint4),
    query: &Query,
    pool6: u8,
) -> Result<RecordId, DropReason> {
    let wanted = held_syn_from(sh, &inside, remote);
    let subscriber = instance.policy().subscriber(inside.addr);
    let session = sh.tables.session_hash(&inside, remote);
    let opening = Opening { wanted, ..sh.tables.opening(inside, remote, subscriber, session) };
    open_with(instance, sh, now, &opening, query, pool6)
}

/// As above, where all is known that the tables have to be asked for.
#[inline]
pub(crate) fn open_with(
    instance: Instance<'_>,
    sh: &mut Shared,
    now: Instant,
    opening: &Opening,
    query: &Query,
    pool6: u8,
) -> Result<RecordId, DropReason> {
    let policy = instance.policy();
    let id = sh.tables.open_from_inside(opening)?;
    // The held SYN ends without an error (RFC 6146 3.5.2.2, RFC 5382 REQ-4), but only now: a connection that
    // was refused would not have answered it, nor does one from another port, as where that is in somebody
    // else's block.
    let answered = opening.wanted.filter(|&outside| sh.tables.get(id).outside() == outside);
    if let Some(outside) = answered {
        sh.let_held_syn_go(outside, opening.remote);
    }
    let session = sh.tables.get_mut(id);
    instance.mark(session, pool6);
    policy.begin(session, Side::V6, query.transport, now);
    if answered.is_some() {
        // The held SYN had begun the connection: V4_INIT, and now comes the inside's SYN.
        session.state = TcpState::V4Init as u8;
        policy.update(session, Side::V6, query, now);
    }
    Ok(id)
}

/// Where a SYN from `remote` is held that this inside host's connection answers: the outside address and
/// port it was sent to, which the connection is to get.
pub(crate) fn held_syn_from(sh: &Shared, inside: &Inside, remote: Endpoint4) -> Option<Endpoint4> {
    if inside.transport != Transport::Tcp || sh.syns.is_empty() {
        return None;
    }
    let bound = sh.tables.binding_of(inside).map(|id| sh.tables.get(id).outside());
    let pool = sh.tables.pool_of(inside.instance);
    let tables = &sh.tables;
    sh.syns.find(remote, |outside| match bound {
        Some(bound) => bound == outside,
        None => tables
            .locate(outside.0)
            .is_some_and(|p| p.pool == pool && tables.binding_at(p, Transport::Tcp, outside.1).is_none()),
    })
}

/// RFC 6146 3.5.2.2, CLOSED: anything but a SYN makes no state; it passes where a binding exists. Gives the
/// binding's outside end.
///
/// # Errors
/// `non_syn_closed`, `no_session`.
pub(crate) fn by_binding(sh: &Shared, inside: &Inside) -> Result<Endpoint4, DropReason> {
    let tcp = inside.transport == Transport::Tcp;
    let missing = if tcp { DropReason::NonSynClosed } else { DropReason::NoSession };
    let primary = sh.tables.binding_of(inside).ok_or(missing)?;
    Ok(sh.tables.get(primary).outside())
}
