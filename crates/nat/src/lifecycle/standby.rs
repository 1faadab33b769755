//! Requests of a member of a pair: the other member's sessions, acknowledged ends, rights, and walks.

use crate::base::plan::Transport;
use crate::base::shards::ShardSet;
use crate::base::tcp_fsm::TcpState;
use crate::base::time::Instant;
use crate::lifecycle::inspect::LOOK;
use crate::lifecycle::offload::{FOUND, FeedCursor, find};
use crate::path::restore;
use crate::path::rules::Rules;
use crate::path::state::Core;
use crate::tables::bib::restore::Restoring;
use crate::tables::bib::{Hashes, Tables};
use crate::tables::event::Sequence;
use crate::tables::feed::{Flow, SessionId, SessionRecord};
use crate::tables::pool4::Pool4State;
use crate::tables::restore_error::RestoreError;
use crate::tables::session::{Inside, Ownership, RecordId, Replica, Session};
use crate::tables::session_file::SavedSession;
use crate::tables::standby::{
    ClosedFlow, OutsideFlow, PeerAction, PeerCommand, PeerOutcome, PeerRefusal, PeerSession, PortRight,
};
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::net::Ipv4Addr;

/// Number of sessions whose memory is prefetched together.
const GROUP: usize = 16;

/// Session of a request, and its hashes.
struct Prepared {
    restoring: Restoring,
    hashes: Hashes,
}

/// Session of each request of a group that begins one.
type PreparedGroup = ArrayVec<Option<Result<Prepared, RestoreError>>, GROUP>;

/// Executes requests in their order, and writes their results.
pub(crate) fn commands(core: &mut Core, now: Instant, commands: &mut [PeerCommand]) {
    core.state.tables.now = now;
    for group in commands.chunks_mut(GROUP) {
        let prepared: PreparedGroup =
            group.iter().map(|command| prepare(core, now, &command.action)).collect();
        let tables = &core.state.tables;
        for (command, prepared) in group.iter().zip(&prepared) {
            prefetch_record(tables, &command.action, prepared.as_ref());
        }
        group.iter().for_each(|command| prefetch_end(tables, &command.action));
        for (command, prepared) in group.iter_mut().zip(prepared) {
            command.outcome = one(core, now, &command.action, prepared);
        }
    }
}

/// Prefetches the lines whose places a request has. Returns the session that it begins.
fn prepare(core: &Core, now: Instant, action: &PeerAction) -> Option<Result<Prepared, RestoreError>> {
    let tables = &core.state.tables;
    match action {
        PeerAction::Begin { session, .. } => {
            let restoring = restore::restoring(&core.rules, now, &saved(session));
            return Some(restoring.map(|restoring| {
                let hashes = tables.prefetch_restore(&restoring);
                Prepared { restoring, hashes }
            }));
        }
        PeerAction::End(flow) => prefetch_binding(tables, flow.transport, flow.outside),
        PeerAction::Closed(flow) => prefetch_binding(tables, Transport::Tcp, flow.outside),
        PeerAction::Released(id) => tables.prefetch_record(id.record),
        PeerAction::WalkBegins(_)
        | PeerAction::Link(..)
        | PeerAction::Right(..)
        | PeerAction::Until(..)
        | PeerAction::Revoke(_) => {}
    }
    None
}

fn prefetch_binding(tables: &Tables, transport: Transport, outside: (Ipv4Addr, u16)) {
    if let Some(place) = tables.locate(outside.0) {
        tables.prefetch_binding(place, transport, outside.1);
    }
}

/// Prefetches the record that ends, or the subscriber of the session that begins.
fn prefetch_record(tables: &Tables, action: &PeerAction, prepared: Option<&Result<Prepared, RestoreError>>) {
    if let Some(Ok(prepared)) = prepared {
        tables.prefetch_restored_subscriber(&prepared.hashes);
    }
    let primary = match action {
        PeerAction::End(flow) => tables.primary_of(flow.transport, flow.outside),
        PeerAction::Closed(flow) => tables.primary_of(Transport::Tcp, flow.outside),
        _ => None,
    };
    if let Some(primary) = primary {
        tables.prefetch_record(primary);
    }
}

/// Prefetches the lines that its end touches.
fn prefetch_end(tables: &Tables, action: &PeerAction) {
    match action {
        PeerAction::End(flow) => {
            let primary = tables.primary_of(flow.transport, flow.outside);
            primary.iter().for_each(|id| tables.prefetch_end(*id));
        }
        PeerAction::Released(id) => tables.prefetch_release(tables.get(id.record)),
        _ => {}
    }
}

fn one(
    core: &mut Core,
    now: Instant,
    action: &PeerAction,
    prepared: Option<Result<Prepared, RestoreError>>,
) -> PeerOutcome {
    let tables = &mut core.state.tables;
    match *action {
        PeerAction::Begin { session, ended } => {
            let prepared = prepared.unwrap_or(Err(RestoreError::NotServed)).map_err(refusal);
            match prepared.and_then(|prepared| begin(core, now, &session, (ended, &prepared))) {
                Ok(()) => PeerOutcome::Done,
                Err(why) => PeerOutcome::Refused(why),
            }
        }
        PeerAction::Closed(flow) => closed(core, now, &flow),
        PeerAction::End(flow) => end(core, now, &flow),
        PeerAction::Released(id) => released(tables, &id),
        PeerAction::WalkBegins(shards) => {
            tables.standby.walk_begins(shards);
            PeerOutcome::Done
        }
        PeerAction::Link(shards, link) => {
            tables.standby.set_link(shards, link);
            PeerOutcome::Done
        }
        PeerAction::Right(first, last, right) => set_right(tables, (first, last), right),
        PeerAction::Until(shards, fence) => {
            tables.standby.set_fence(shards, fence);
            PeerOutcome::Done
        }
        PeerAction::Revoke(flow) => match tables.find_outside(&flow) {
            Some(id) => {
                tables.close(id);
                PeerOutcome::Done
            }
            None => PeerOutcome::Gone,
        },
    }
}

/// The session as another process of this member would have kept it.
fn saved(session: &PeerSession) -> SavedSession {
    let Flow { inside, outside, remote, transport, instance } = session.flow;
    SavedSession {
        instance,
        pool6: session.pool6,
        transport,
        inside,
        outside,
        remote,
        tcp: session.tcp.unwrap_or(TcpState::Established),
        expires_ms: 0,
        shares_port: false,
        ownership: Ownership { epoch: session.epoch, ..Ownership::default() },
        replica: Replica::Standby,
        quarantined: false,
    }
}

fn begin(
    core: &mut Core,
    now: Instant,
    session: &PeerSession,
    (ended, prepared): (Option<RecordId>, &Prepared),
) -> Result<(), PeerRefusal> {
    let Prepared { restoring, hashes } = prepared;
    let Core { rules, state, .. } = &mut *core;
    let tables = &mut state.tables;
    let Flow { inside: (addr, port), outside, remote, transport, instance } = session.flow;
    let inside = Inside { addr, port, transport, instance };
    let found = tables.find_session(hashes.session, inside, remote);
    if let Some(id) = found
        && confirm(tables, id, session)
    {
        note_state(rules, now, tables.get_mut(id), session);
        let place = tables.place_of(tables.get(id));
        tables.release_reserved(place, &outside_flow(&session.flow));
        // The flow goes on at both. It may have ended here once more since.
        if let Some(ended) = ended.filter(|id| tables.has_ended(restoring, *id)) {
            tables.release_for_peer(ended);
        }
        return Ok(());
    }
    let waits = tables.ended_flow(restoring);
    if waits.is_some() && waits != ended {
        return Err(PeerRefusal::Ending);
    }
    if found.is_some() {
        return reserve(core, now, session, waits);
    }
    let place = tables.locate(outside.0).ok_or(PeerRefusal::NotInPool)?;
    match tables.restore_new(restoring, *hashes) {
        Ok(id) => tables.confirm(id),
        // A port that this member has is another host's here, or its block another subscriber's.
        Err(RestoreError::NotInPool) if tables.covers(place, transport, outside.1) => {
            return Err(PeerRefusal::Conflict);
        }
        // Its inside host has another port here.
        Err(RestoreError::Conflict) => return reserve(core, now, session, waits),
        Err(why) => return Err(refusal(why)),
    }
    if let Some(waits) = waits {
        tables.release_for_peer(waits);
    }
    tables.release_reserved(place, &outside_flow(&session.flow));
    Ok(())
}

/// Reserves the port of a session that contradicts a binding, as long as the other member has the session.
/// `ended` is its record, if it has ended here before. Returns the contradiction as the error.
fn reserve(
    core: &mut Core,
    now: Instant,
    session: &PeerSession,
    ended: Option<RecordId>,
) -> Result<(), PeerRefusal> {
    let saved = SavedSession { quarantined: true, ..saved(session) };
    let restoring = restore::restoring(&core.rules, now, &saved).map_err(refusal)?;
    let tables = &mut core.state.tables;
    let place = tables.locate(session.flow.outside.0).ok_or(PeerRefusal::NotInPool)?;
    let reserved = tables.reserved(place, &outside_flow(&session.flow));
    let id = match reserved.map_or_else(|| tables.restore(&restoring), Ok) {
        Ok(id) => id,
        Err(RestoreError::Full) => return Err(PeerRefusal::Full),
        // Somebody here has the port.
        Err(_) => return Err(PeerRefusal::Conflict),
    };
    tables.confirm(id);
    if let Some(ended) = ended {
        tables.release_for_peer(ended);
    }
    Err(PeerRefusal::Conflict)
}

fn outside_flow(flow: &Flow) -> OutsideFlow {
    OutsideFlow { transport: flow.transport, outside: flow.outside, remote: flow.remote }
}

/// Notes that the other member has a session that exists here. Returns false if it has another port here.
fn confirm(tables: &mut Tables, id: RecordId, of_peer: &PeerSession) -> bool {
    let session = tables.get_mut(id);
    if session.outside() != of_peer.flow.outside || session.is_overloaded() {
        return false;
    }
    if !session.is_replicated() {
        session.set_replica(Replica::Told);
    }
    tables.confirm(id);
    true
}

/// Notes the state that the other member has of a TCP session. A connection that has ended here may have been
/// opened again there.
fn note_state(rules: &Rules, now: Instant, session: &mut Session, of_peer: &PeerSession) {
    let Some(state) = of_peer.tcp else { return };
    if session.is_standby() {
        session.state = state as u8;
    } else if state == TcpState::Established
        && session.tcp_state().is_closed()
        && let Some(instance) = rules.get(session.instance)
    {
        instance.policy().opened_elsewhere(session, now);
    }
}

/// Returns whether a TCP connection is established, and may go on for long without a packet.
fn is_open(session: &Session) -> bool {
    matches!(session.tcp_state(), TcpState::Established | TcpState::V4FinRcv | TcpState::V6FinRcv)
}

fn refusal(why: RestoreError) -> PeerRefusal {
    match why {
        RestoreError::NotServed | RestoreError::Expired => PeerRefusal::NotServed,
        RestoreError::NotInPool => PeerRefusal::NotInPool,
        RestoreError::Conflict | RestoreError::Exists => PeerRefusal::Conflict,
        RestoreError::Full => PeerRefusal::Full,
    }
}

/// Notes that the other member has seen the end of a TCP connection.
fn closed(core: &mut Core, now: Instant, flow: &ClosedFlow) -> PeerOutcome {
    let Core { rules, state, .. } = core;
    let Some(id) = state.tables.find_closed(flow) else { return PeerOutcome::Gone };
    let session = state.tables.get_mut(id);
    if is_open(session)
        && let Some(instance) = rules.get(session.instance)
    {
        instance.policy().closed_elsewhere(session, now);
        state.tables.feed_closing(id);
    }
    PeerOutcome::Done
}

/// Ends a session of the other member, unless this one has its packets. The sessions that its binding still
/// has are told: otherwise the other member would give the port to another host.
fn end(core: &mut Core, now: Instant, flow: &OutsideFlow) -> PeerOutcome {
    let tables = &mut core.state.tables;
    let Some(place) = tables.locate(flow.outside.0) else { return PeerOutcome::Gone };
    let found = tables.find_outside(flow);
    if let Some(id) = found {
        end_here(core, id, now, false);
    }
    let tables = &mut core.state.tables;
    tables.release_reserved(place, flow);
    match tables.tell_binding(place, flow.transport, flow.outside.1) {
        true => PeerOutcome::Kept,
        false if found.is_some() => PeerOutcome::Done,
        false => PeerOutcome::Gone,
    }
}

/// Ends a session that the other member does not have any more, or has it told again.
fn end_here(core: &mut Core, id: RecordId, now: Instant, is_unwalked: bool) {
    let Core { rules, state, .. } = core;
    let session = *state.tables.get(id);
    let lives = match rules.get(session.instance) {
        _ if session.is_standby() => false,
        Some(instance) => {
            state.tables.now = now;
            instance.policy().would_live(&state.tables, id)
        }
        None => false,
    };
    match lives {
        // `tell_binding` tells it.
        true => state.tables.get_mut(id).set_replica(Replica::None),
        // The other member has ended it, and takes no earlier record for an answer.
        false if session.is_standby() && !is_unwalked => state.tables.close_untold(id),
        // A report of it, or a walk, may be on its way to the other member. The end follows, and the port
        // waits.
        false => state.tables.close(id),
    }
}

fn released(tables: &mut Tables, id: &SessionId) -> PeerOutcome {
    match find(tables, id) {
        Some(record) if record.is_quarantined() && record.is_replicated() && !record.is_reservation() => {
            tables.release_for_peer(id.record);
            PeerOutcome::Done
        }
        _ => PeerOutcome::Gone,
    }
}

fn set_right(tables: &mut Tables, (first, last): (Ipv4Addr, Ipv4Addr), right: PortRight) -> PeerOutcome {
    let Tables { pools, sharding, .. } = tables;
    let shard = |address| sharding.as_ref().map_or(Some(0), |sharding| sharding.of_address(address));
    let set = |pool: &mut Pool4State| pool.set_rights(first, last, right, shard);
    match pools.iter_mut().map(set).sum::<usize>() {
        0 => PeerOutcome::Gone,
        _ => PeerOutcome::Done,
    }
}

/// Adds all sessions of some shards to `found` for a walk to the other member, and the ends that it has not
/// acknowledged. Examines about `budget` records.
pub(crate) fn read(
    tables: &mut Tables,
    shards: ShardSet,
    at: &mut FeedCursor,
    budget: usize,
    found: &mut Vec<SessionRecord>,
) -> Option<Sequence> {
    at.collect(&mut *tables, budget, found, |tables, id| {
        tables.is_in(shards, tables.get(id)).then(|| tables.walk_record(id)).flatten()
    });
    tables.peer_sequence()
}

/// Tells the sessions that the other member does not know yet. Stops where the feed has no room.
pub(crate) fn tell_all(tables: &mut Tables, shards: ShardSet, at: &mut FeedCursor, mut budget: usize) {
    while budget > 0 && tables.standby.feed.as_ref().is_some_and(|feed| feed.has_room()) {
        let Some(id) = at.advance(tables) else { break };
        budget = budget.saturating_sub(LOOK);
        let record = tables.get(id);
        if record.is_session() && !record.is_replicated() && tables.is_in(shards, record) {
            budget = budget.saturating_sub(FOUND);
            tables.tell(id);
        }
    }
}

/// Confirms all sessions that the other member may know, because its last walk has been broken off: its next
/// one then finds no marks of it.
pub(crate) fn confirm_all(tables: &mut Tables, shards: ShardSet, at: &mut FeedCursor, mut budget: usize) {
    while budget > 0 {
        let Some(id) = at.advance(tables) else { break };
        budget = budget.saturating_sub(LOOK);
        let record = tables.get(id);
        let may_be_known = (record.is_session() || record.is_reservation()) && record.is_replicated();
        if may_be_known && tables.is_in(shards, record) {
            tables.confirm(id);
        }
    }
}

/// Ends the sessions that the last walk of the other member has not confirmed, or tells them again.
pub(crate) fn end_unwalked(
    core: &mut Core,
    now: Instant,
    shards: ShardSet,
    at: &mut FeedCursor,
    mut budget: usize,
) -> u64 {
    let mut ended = 0;
    while budget > 0 {
        let tables = &mut core.state.tables;
        tables.now = now;
        let Some(id) = at.advance(tables) else { break };
        budget = budget.saturating_sub(LOOK);
        let record = *tables.get(id);
        let is_meant = record.is_replicated() && tables.is_in(shards, &record);
        if !is_meant || record.is_of_walk(tables.walk_of(&record)) {
            continue;
        }
        if record.is_reservation() {
            tables.release_quarantined(id);
        }
        if !record.is_session() {
            continue;
        }
        budget = budget.saturating_sub(FOUND);
        let place = tables.place_of(&record);
        end_here(core, id, now, true);
        core.state.tables.tell_binding(place, record.transport(), record.outside_port);
        ended += 1;
    }
    ended
}

/// Forgets what the other member knows: it has the shards no more.
pub(crate) fn forget_peer(
    core: &mut Core,
    now: Instant,
    shards: ShardSet,
    at: &mut FeedCursor,
    mut budget: usize,
) {
    let Core { rules, state, .. } = core;
    let tables = &mut state.tables;
    while budget > 0 {
        let Some(id) = at.advance(tables) else { break };
        budget = budget.saturating_sub(LOOK);
        let record = *tables.get(id);
        if !record.is_replicated() || !tables.is_in(shards, &record) {
            continue;
        }
        budget = budget.saturating_sub(FOUND);
        if record.is_quarantined() {
            tables.release_for_peer(id);
            continue;
        }
        let session = tables.get_mut(id);
        if record.is_standby()
            && let Some(instance) = rules.get(record.instance)
        {
            instance.policy().take_over(session, now);
        }
        session.set_replica(Replica::None);
    }
}

/// Ends all sessions of some shards silently: this member has the shards no more.
pub(crate) fn drop_shards(tables: &mut Tables, shards: ShardSet, at: &mut FeedCursor, mut budget: usize) {
    while budget > 0 && tables.end_budget(1) > 0 {
        let Some(id) = at.advance(tables) else { break };
        budget = budget.saturating_sub(LOOK);
        let record = *tables.get(id);
        if !tables.is_in(shards, &record) {
            continue;
        }
        budget = budget.saturating_sub(FOUND);
        if record.is_session() {
            tables.close_untold(id);
        } else if record.is_quarantined() && record.is_replicated() {
            tables.release_for_peer(id);
        }
    }
}

/// Ends the sessions of some shards silently that the other member does not know, and whose ports this one
/// may not assign any more.
pub(crate) fn revoke(tables: &mut Tables, shards: ShardSet, at: &mut FeedCursor, mut budget: usize) {
    while budget > 0 && tables.end_budget(1) > 0 {
        let Some(id) = at.advance(tables) else { break };
        budget = budget.saturating_sub(LOOK);
        let record = *tables.get(id);
        let is_untold = record.is_session() && !record.is_replicated() && !record.is_of_static();
        if !is_untold || !tables.is_in(shards, &record) {
            continue;
        }
        let pool = tables.pools.get(tables.place_of(&record).pool);
        if pool.is_some_and(|pool| !pool.may_assign(record.address_ix, record.outside_port)) {
            budget = budget.saturating_sub(FOUND);
            tables.close_untold(id);
        }
    }
}
