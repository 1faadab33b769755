//! Packets from inside without a session: RFC 6146 3.5.1, 3.5.2.2 (CLOSED) and 3.5.3; RFC 4787 4, RFC 5382 4,
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

/// Opens the session of a packet that may open one. `pool6` is the prefix that it was sent to.
///
/// # Errors
/// Returns the table, quota or pool that is exhausted. No existing session is evicted (RFC 6888 REQ-12).
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

/// Same as [`open`], with a prepared request for the tables.
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
    // The held SYN ends without an error (RFC 6146 3.5.2.2, RFC 5382 REQ-4), but only now: a refused
    // connection would not have answered it. Neither does a connection from another port, which happens if
    // the wanted port is in another subscriber's block.
    let answered = request.wanted.filter(|&outside| state.tables.get(id).outside() == outside);
    if let Some(outside) = answered {
        state.forget_held_syn(Account::Stateful(policy.instance), outside, request.remote);
    }
    let session = state.tables.get_mut(id);
    instance.mark(session, pool6);
    policy.begin(session, Side::V6, query.transport, now);
    let mut turn = Turn::None;
    if answered.is_some() {
        // The held SYN began the connection: its state is V4_INIT, and now the inside's SYN follows.
        session.state = TcpState::V4Init as u8;
        turn = policy.update(session, Side::V6, query, now);
    }
    state.tables.feed_opened(id);
    state.tables.feed_turn(id, turn);
    Ok(id)
}

/// Returns the outside address and port of a held SYN from `remote` that this inside host's connection
/// answers. The connection has to get this address and port.
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

/// RFC 6146 3.5.2.2, CLOSED: a packet other than a SYN creates no state. It passes if a binding exists.
/// Returns the binding's record.
///
/// # Errors
/// Returns `non_syn_closed` or `no_session`.
pub(crate) fn by_binding(tables: &Tables, inside: &Inside) -> Result<RecordId, DropReason> {
    let tcp = inside.transport == Transport::Tcp;
    let missing = if tcp { DropReason::NonSynClosed } else { DropReason::NoSession };
    tables.binding_of(inside).ok_or(missing)
}
