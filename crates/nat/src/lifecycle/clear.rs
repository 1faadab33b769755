//! End of sessions on request, before they expire: the operator's `clear`.
//!
//! Such an end is like any other: the binding ends with its last session, the port with the binding (held
//! down or lingering as the pool is configured), and events report it. The next packet from inside opens a
//! new session.

use crate::base::plan::{Net4, Transport};
use crate::lifecycle::inspect::{LOOK, Selection};
use crate::path::state::EngineState;
use crate::tables::bib::{PoolAddress, Tables};
use crate::tables::session::{Inside, NONE, RecordId};
use core::net::{Ipv4Addr, Ipv6Addr};

/// Number of sessions whose lines are prefetched together: no more lines than can be on their way.
const GROUP: usize = 4;

/// Cost of the end of a session, in addition to the look at it.
const END: usize = 8;

/// Sessions and bindings that a walk has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleared {
    /// Sessions.
    pub sessions: u64,
    /// Bindings that ended with them.
    pub bindings: u64,
}

/// Extent of a clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The session.
    Session,
    /// All sessions of its binding, and with them the binding. A static binding of the configuration stays.
    /// Ports that flows share have no binding.
    Binding,
}

/// Position of a walk that ends sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClearCursor {
    /// Number of the record that was looked at last.
    next: RecordId,
    /// True if there are no further records.
    all_met: bool,
    /// Binding of which only some sessions have ended.
    rest: Option<BindingRest>,
}

/// Place of that binding: its records may change, its public address and port do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BindingRest {
    place: PoolAddress,
    transport: Transport,
    port: u16,
}

impl ClearCursor {
    /// Returns whether the walk is at its end.
    pub fn is_done(&self) -> bool {
        self.all_met && self.rest.is_none()
    }
}

/// Key of a session: instance, protocol and endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionKey {
    /// Number of the instance: NAT64's first, then NAT44's.
    pub instance: u8,
    /// Protocol.
    pub transport: Transport,
    /// Inside address and port (ICMP: identifier). IPv4 addresses are written as ::ffff:a.b.c.d.
    pub inside: (Ipv6Addr, u16),
    /// Remote address and port (ICMP: 0).
    pub remote: (Ipv4Addr, u16),
}

impl SessionKey {
    fn inside(&self) -> Inside {
        let (addr, port) = self.inside;
        Inside { addr, port, transport: self.transport, instance: self.instance }
    }
}

/// Ends sessions now, and returns the number of sessions ended. A call with many sessions is faster than many
/// calls, because cache misses overlap. Between bursts, a caller with many sessions should end some at a
/// time.
pub(crate) fn end_sessions(state: &mut EngineState, keys: &[SessionKey]) -> usize {
    let mut ended = 0;
    for group in keys.chunks(GROUP) {
        let mut hashes = [0; GROUP];
        let tables = &mut state.tables;
        // The prefetches of each kind are issued together, for the reason given at `look_ahead::GROUP`.
        for (hash, key) in hashes.iter_mut().zip(group) {
            *hash = tables.session_hash(&key.inside(), key.remote);
        }
        let hashes = hashes.get(..group.len()).unwrap_or_default();
        hashes.iter().for_each(|&hash| tables.prefetch(hash));
        let mut records = [NONE; GROUP];
        for (record, &hash) in records.iter_mut().zip(hashes) {
            *record = tables.candidate(hash);
        }
        let found = || records.into_iter().filter(|&record| record != NONE);
        found().for_each(|record| tables.prefetch_record(record));
        found().for_each(|record| tables.prefetch_end(record));
        for (key, &hash) in group.iter().zip(hashes) {
            // The look-up is repeated, because an earlier key of the group may be the same.
            if let Some(record) = tables.find_session(hash, key.inside(), key.remote) {
                tables.close(record);
                ended += 1;
            }
        }
    }
    state.counters.sessions_cleared += ended as u64;
    ended
}

/// Drains a public address, or ends the drain: the `n`th address of a pool, if it is in `net`. Returns
/// whether that is a change. Existing bindings keep working. Subscribers that are paired with the address get
/// another one for new bindings. The drain lasts as long as the pool has the address.
pub(crate) fn set_drained(
    tables: &mut Tables,
    pool: usize,
    n: u32,
    net: Option<Net4>,
    drained: bool,
) -> bool {
    let Some(pool) = tables.pools.get_mut(pool) else { return false };
    let ix = pool.nth(n);
    net.is_none_or(|net| net.contains(pool.address(ix))) && pool.set_drained(ix, drained)
}

/// Drains a public address of any pool. Returns whether a pool has the address.
pub(crate) fn drain(tables: &mut Tables, address: Ipv4Addr) -> bool {
    let Some(place) = tables.locate(address) else { return false };
    let pool = tables.pools.get_mut(place.pool);
    pool.is_some_and(|pool| pool.set_drained(place.address_ix, true))
}

/// Ends the selected sessions, or their whole bindings, some at a time. Looks at about `budget` records and
/// ends an eighth as many. A complete walk has met all records that existed when it began.
pub(crate) fn clear(
    state: &mut EngineState,
    at: &mut ClearCursor,
    which: &Selection,
    extent: Extent,
    mut budget: usize,
) -> Cleared {
    let tables = &mut state.tables;
    let before = (tables.session_count(), tables.binding_count());
    let ends = tables.end_budget(budget.div_ceil(END));
    budget = budget.min(ends.saturating_mul(END));
    while budget > 0 && !at.is_done() {
        match at.rest.take() {
            Some(rest) => end_rest(tables, at, rest, &mut budget),
            None => clear_group(tables, at, which, extent, &mut budget),
        }
    }
    let ended = |before: usize, now: usize| before.saturating_sub(now) as u64;
    let cleared = Cleared {
        sessions: ended(before.0, tables.session_count()),
        bindings: ended(before.1, tables.binding_count()),
    };
    state.counters.sessions_cleared += cleared.sessions;
    cleared
}

/// Looks at some records. First prefetches the lines that their ends will touch, so that cache misses
/// overlap.
fn clear_group(
    tables: &mut Tables,
    at: &mut ClearCursor,
    which: &Selection,
    extent: Extent,
    budget: &mut usize,
) {
    let is_meant = |tables: &Tables, id: RecordId| {
        let record = tables.get(id);
        record.is_session()
            && (extent == Extent::Session || !record.is_overloaded())
            && which.has(record, tables.pool_of(record.instance))
    };
    let first = at.next.saturating_add(1);
    let last = first.saturating_add(GROUP as u32).min(tables.high());
    for id in first..last {
        if is_meant(tables, id) {
            tables.prefetch_end(id);
        }
    }
    for id in first..last {
        *budget = budget.saturating_sub(LOOK);
        at.next = id;
        if !is_meant(tables, id) {
            continue;
        }
        if extent == Extent::Session {
            tables.close(id);
            *budget = budget.saturating_sub(END);
        } else {
            let record = tables.get(id);
            let place = PoolAddress { pool: tables.pool_of(record.instance), address_ix: record.address_ix };
            let (transport, port) = (record.transport(), record.outside_port);
            end_rest(tables, at, BindingRest { place, transport, port }, budget);
        }
        if *budget == 0 || at.rest.is_some() {
            return;
        }
    }
    at.all_met = last >= tables.high();
}

/// Ends the sessions of the binding at a public address and port, within the budget. The remaining sessions
/// are found there again, even if their records have changed.
fn end_rest(tables: &mut Tables, at: &mut ClearCursor, rest: BindingRest, budget: &mut usize) {
    let Some(member) = tables.binding_at(rest.place, rest.transport, rest.port) else { return };
    let mut ends = (*budget / END).max(1);
    let had = ends;
    let ended = tables.end_ring(member, &mut ends);
    *budget = budget.saturating_sub((had - ends).max(1) * END);
    at.rest = (!ended).then_some(rest);
}
