//! Sessions that are ended on request, before their time is over: what an operator's `clear` asks for.
//!
//! Such an end is like any other: the binding goes with its last session, the port with the binding (held down or
//! lingering as the pool has it), and events tell of it. The next packet from inside opens a new session.

use crate::base::plan::{Net4, Transport};
use crate::lifecycle::inspect::{LOOK, Selection};
use crate::path::state::EngineState;
use crate::tables::bib::{PoolAddress, Tables};
use crate::tables::session::{Inside, NONE, RecordId};
use core::net::{Ipv4Addr, Ipv6Addr};

/// Sessions whose memory is asked for at a time: no more lines than can be on their way.
const GROUP: usize = 4;

/// Cost of the end of a session, beside the look at it.
const END: usize = 8;

/// Sessions and bindings that a walk has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleared {
    /// Sessions.
    pub sessions: u64,
    /// Bindings that went with them.
    pub bindings: u64,
}

/// Extent of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The session.
    Session,
    /// All sessions of its binding, and with them the binding; one of the configuration stays. Ports that flows
    /// share have none.
    Binding,
}

/// Position of a walk that ends sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClearCursor {
    /// Number of the record that was looked at last.
    next: RecordId,
    /// True if there is no further one.
    all_met: bool,
    /// A binding of which only some sessions have ended.
    rest: Option<Rest>,
}

/// Where that binding is: its records change hands, its public address and port do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rest {
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

/// Names a session: who talks to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionKey {
    /// Number of the instance: NAT64's first, then NAT44's.
    pub instance: u8,
    /// Protocol.
    pub transport: Transport,
    /// Inside address and port (ICMP: identifier). An IPv4 address as ::ffff:a.b.c.d.
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

/// Ends sessions now, and returns how many of them there were. Many at a time are quicker than one by one: their
/// cache misses overlap. Between bursts, a caller with many should give some at a time.
pub(crate) fn end_sessions(state: &mut EngineState, keys: &[SessionKey]) -> usize {
    let mut ended = 0;
    for group in keys.chunks(GROUP) {
        let mut hashes = [0; GROUP];
        let tables = &mut state.tables;
        // What is asked for, is asked for one right behind the other: `look_ahead::GROUP` says why.
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
            // Looked for again: an earlier one of the group may be the same.
            if let Some(record) = tables.find_session(hash, key.inside(), key.remote) {
                tables.close(record);
                ended += 1;
            }
        }
    }
    state.counters.sessions_cleared += ended as u64;
    ended
}

/// Gives a public address no new bindings from now on, or gives it such again: the `n`th of a pool, where it lies in
/// `net`. Says whether that is new. Bindings that there are live on; subscribers that are paired with the address get
/// another one for what is new. It holds as long as the pool has the address.
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

/// Drains a public address, whichever pool has it; says whether one has.
pub(crate) fn drain(tables: &mut Tables, address: Ipv4Addr) -> bool {
    let Some(place) = tables.locate(address) else { return false };
    let pool = tables.pools.get_mut(place.pool);
    pool.is_some_and(|pool| pool.set_drained(place.address_ix, true))
}

/// Ends the sessions that are meant, or their whole bindings, some at a time: about as many records are looked at
/// as `budget` says, and an eighth as many end. A walk that has come to its end has met all that were there
/// when it began.
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

/// Looks at some records: first asks for the memory that ends will touch, so that the misses overlap.
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
            end_rest(tables, at, Rest { place, transport, port }, budget);
        }
        if *budget == 0 || at.rest.is_some() {
            return;
        }
    }
    at.all_met = last >= tables.high();
}

/// Ends the sessions of the binding at a public address and port, as far as the budget goes; what is left is
/// found there again, whichever records it has by then.
fn end_rest(tables: &mut Tables, at: &mut ClearCursor, rest: Rest, budget: &mut usize) {
    let Some(member) = tables.binding_at(rest.place, rest.transport, rest.port) else { return };
    let mut ends = (*budget / END).max(1);
    let had = ends;
    let ended = tables.end_ring(member, &mut ends);
    *budget = budget.saturating_sub((had - ends).max(1) * END);
    at.rest = (!ended).then_some(rest);
}
