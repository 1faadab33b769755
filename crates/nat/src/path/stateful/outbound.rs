//! From inside, without a session: RFC 6146 3.5.1, 3.5.2.2 (CLOSED) and 3.5.3; RFC 4787 4, RFC 5382 4,
//! RFC 5508 3.

use crate::base::attribution::Account;
use crate::base::plan::Transport;
use crate::base::tcp_fsm::{Side, TcpState};
use crate::base::time::Instant;
use crate::path::context::PacketContext;
use crate::path::query::Query;
use crate::path::rules::Instance;
use crate::path::state::EngineState;
use crate::tables::bib::{SessionRequest, Tables};
use crate::tables::feed::Turn;
use crate::tables::session::{Endpoint4, Inside, RecordId};
use crate::tables::syn_store::SynStore;
use gatun_wire::DropReason;

/// Makes the session of a packet that may open one; `pool6` is the prefix that it was sent to.
///
/// # Errors
/// Which table, quota or pool is at its end; nothing that exists is evicted for it (RFC 6888 REQ-12).
pub(crate) fn open(
    cx: &mut PacketContext<'_>,
    instance: Instance<'_>,
    (inside, remote): (Inside, Endpoint4),
    query: &Query,
    pool6: u8,
) -> Result<RecordId, DropReason> {
    let tables = &cx.state.tables;
    let wanted = held_syn_from(tables, &cx.state.syns, &inside, remote);
    let subscriber = instance.policy().subscriber(inside.addr);
    let session = tables.session_hash(&inside, remote);
    let request = SessionRequest { wanted, ..tables.session_request(inside, remote, subscriber, session) };
    open_with(cx.state, instance, cx.now, &request, query, pool6)
}

/// As [`open`], where all is known that the tables have to be asked for.
#[inline]
pub(crate) fn open_with(
    state: &mut EngineState,
    instance: Instance<'_>,
    now: Instant,
    request: &SessionRequest,
    query: &Query,
    pool6: u8,
) -> Result<RecordId, DropReason> {
    let policy = instance.policy();
    let id = state.tables.open_from_inside(request)?;
    // The held SYN ends without an error (RFC 6146 3.5.2.2, RFC 5382 REQ-4), but only now: a connection that
    // was refused would not have answered it, nor does one from another port, as where that is in somebody
    // else's block.
    let answered = request.wanted.filter(|&outside| state.tables.get(id).outside() == outside);
    if let Some(outside) = answered {
        state.forget_held_syn(Account::Stateful(policy.instance), outside, request.remote);
    }
    let session = state.tables.get_mut(id);
    instance.mark(session, pool6);
    policy.begin(session, Side::V6, query.transport, now);
    let mut turn = Turn::None;
    if answered.is_some() {
        // The held SYN had begun the connection: V4_INIT, and now comes the inside's SYN.
        session.state = TcpState::V4Init as u8;
        turn = policy.update(session, Side::V6, query, now);
    }
    state.tables.feed_opened(id);
    state.tables.feed_turn(id, turn);
    Ok(id)
}

/// Where a SYN from `remote` is held that this inside host's connection answers: the outside address and
/// port it was sent to, which the connection is to get.
pub(crate) fn held_syn_from(
    tables: &Tables,
    syns: &SynStore,
    inside: &Inside,
    remote: Endpoint4,
) -> Option<Endpoint4> {
    if inside.transport != Transport::Tcp || syns.is_empty() {
        return None;
    }
    let bound = tables.binding_of(inside).map(|id| tables.get(id).outside());
    let pool = tables.pool_of(inside.instance);
    syns.find(remote, |outside| match bound {
        Some(bound) => bound == outside,
        None => tables
            .locate(outside.0)
            .is_some_and(|at| at.pool == pool && tables.binding_at(at, Transport::Tcp, outside.1).is_none()),
    })
}

/// RFC 6146 3.5.2.2, CLOSED: anything but a SYN makes no state; it passes where a binding exists. Gives the
/// binding's record.
///
/// # Errors
/// `non_syn_closed`, `no_session`.
pub(crate) fn by_binding(tables: &Tables, inside: &Inside) -> Result<RecordId, DropReason> {
    let tcp = inside.transport == Transport::Tcp;
    let missing = if tcp { DropReason::NonSynClosed } else { DropReason::NoSession };
    tables.binding_of(inside).ok_or(missing)
}
