//! Commands of a fast path's manager, and the state that it reads.
//!
//! Both run between bursts. Commands are handled in their order, and the memory of a group of commands is
//! prefetched first. The state is read by record number, some records at a time. A walk finds everything that
//! exists throughout the walk exactly once; what begins or ends meanwhile, it finds at most once, or the
//! stream has it.

use crate::base::time::{Instant, Tick};
use crate::lifecycle::inspect::LOOK;
use crate::path::policy::Policy;
use crate::path::rules::Rules;
use crate::path::state::{Core, EngineState};
use crate::tables::bib::Tables;
use crate::tables::event::Sequence;
use crate::tables::feed::{
    Action, Command, CommandOutcome, FeedPolicy, Offload, Ownership, SessionId, SessionRecord,
};
use crate::tables::session::{RecordId, Session};
use alloc::vec::Vec;
use core::ops::Deref;

/// Number of commands whose memory is prefetched together.
const GROUP: usize = 8;
/// Additional cost of a record that is returned or released.
pub(crate) const FOUND: usize = 3;

/// Position of a walk over the sessions and quarantined ports of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedCursor {
    /// Number of the last examined record.
    next: RecordId,
    /// True if there are no further records.
    done: bool,
}

impl FeedCursor {
    /// Returns whether the walk is at its end.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Returns the number of the next record, if any.
    pub(crate) fn advance(&mut self, tables: &Tables) -> Option<RecordId> {
        let id = self.next.saturating_add(1);
        if id >= tables.high() {
            self.done = true;
            return None;
        }
        self.next = id;
        Some(id)
    }

    /// Adds what `record` returns to `found`, up to its capacity. Examines about `budget` records.
    pub(crate) fn collect<T: Deref<Target = Tables>>(
        &mut self,
        mut tables: T,
        mut budget: usize,
        found: &mut Vec<SessionRecord>,
        record: impl Fn(&mut T, RecordId) -> Option<SessionRecord>,
    ) {
        while budget > 0 && found.len() < found.capacity() {
            let Some(id) = self.advance(&tables) else { break };
            budget = budget.saturating_sub(LOOK);
            if let Some(record) = record(&mut tables, id) {
                budget = budget.saturating_sub(FOUND);
                found.push(record);
            }
        }
    }
}

/// Handles commands in their order, and writes their results.
pub(crate) fn commands(core: &mut Core, now: Instant, commands: &mut [Command]) {
    for group in commands.chunks_mut(GROUP) {
        group.iter().for_each(|command| core.state.tables.prefetch_record(command.id.record));
        for command in group {
            command.outcome = one(core, now, command);
        }
    }
}

fn one(core: &mut Core, now: Instant, command: &Command) -> CommandOutcome {
    let Core { rules, state, .. } = core;
    let Some(session) = find(&state.tables, &command.id) else { return CommandOutcome::Gone };
    let id = command.id.record;
    match command.action {
        Action::Mark(ownership) => mark(rules, &mut state.tables, id, ownership),
        Action::Seen(ago_ms) => match rules.get(session.instance) {
            _ if session.is_quarantined() => CommandOutcome::Gone,
            Some(instance) => seen(instance.policy(), state.tables.get_mut(id), ago_ms, now),
            None => CommandOutcome::Gone,
        },
        Action::Credit(traffic) => {
            let EngineState { counters, tally, tables, .. } = state;
            tally.credit(session.instance, traffic, counters);
            tables.credit(session.party(), traffic);
            CommandOutcome::Done
        }
        Action::Count(packets) => count(rules, &mut state.tables, id, packets),
        Action::Released => release(&mut state.tables, id),
    }
}

/// Returns the session or the quarantined record that an ID names.
pub(crate) fn find(tables: &Tables, id: &SessionId) -> Option<Session> {
    let record = *tables.get(id.record);
    let is_there = record.is_session() || record.is_quarantined();
    (is_there && record.identity() == id.flow).then_some(record)
}

fn mark(rules: &Rules, tables: &mut Tables, id: RecordId, ownership: Ownership) -> CommandOutcome {
    let session = tables.get(id);
    if session.is_quarantined() {
        return CommandOutcome::Gone;
    }
    let may = match ownership.offload {
        Offload::Engine => false,
        Offload::Pending | Offload::Fast => may_leave(rules, tables, session),
        Offload::Draining => session.is_marked(),
    };
    if !may {
        return CommandOutcome::Refused;
    }
    tables.get_mut(id).set_ownership(ownership);
    CommandOutcome::Done
}

/// Returns whether a fast path may have a session. An address of another worker's share of the pool makes it
/// a hairpin, too. A session with an exempt remote host exists if that host has sent to a public port: its
/// packets are translated, and those to it are not.
fn may_leave(rules: &Rules, tables: &Tables, session: &Session) -> bool {
    tables.is_offered(session) && !rules.is_pooled(session.remote().0) && !rules.exempts(session)
}

/// Counts packets of a session until it is offered again.
fn count(rules: &Rules, tables: &mut Tables, id: RecordId, packets: u8) -> CommandOutcome {
    let session = tables.get(id);
    if session.is_quarantined() {
        return CommandOutcome::Gone;
    }
    if session.is_marked() || !may_leave(rules, tables, session) {
        return CommandOutcome::Refused;
    }
    tables.get_mut(id).count_packets(packets.clamp(1, FeedPolicy::PACKETS_MAX));
    CommandOutcome::Done
}

/// Extends a lifetime as packets would have done at their time.
fn seen(policy: &Policy, session: &mut Session, ago_ms: [Option<u32>; 2], now: Instant) -> CommandOutcome {
    // Other states end soon, or with a packet that the engine sees.
    if !session.is_marked() || !session.is_established() {
        return CommandOutcome::Refused;
    }
    let [outbound, inbound] = ago_ms;
    let inbound = inbound.filter(|_| policy.inbound_refresh);
    if let Some(ago_ms) = outbound.into_iter().chain(inbound).min() {
        let at = Instant(now.0.saturating_sub(ago_ms.into()));
        let end = Tick::after(at, policy.established_ms(session.transport()));
        session.live_until(session.expires().later(end));
    }
    CommandOutcome::Done
}

fn release(tables: &mut Tables, id: RecordId) -> CommandOutcome {
    let session = tables.get_mut(id);
    if session.is_quarantined() && !session.is_marked() {
        return CommandOutcome::Gone;
    }
    if session.is_quarantined() {
        tables.release_for_fast_path(id);
        return CommandOutcome::Done;
    }
    if !session.is_marked() {
        return CommandOutcome::Refused;
    }
    session.set_ownership(Ownership { offload: Offload::Engine, ..session.ownership() });
    CommandOutcome::Done
}

/// Adds records of the sessions and quarantined ports that a policy selects to `found`, up to its capacity,
/// and examines about `budget` records. Returns the place of the next record in the stream.
pub(crate) fn read(
    tables: &Tables,
    at: &mut FeedCursor,
    policy: &FeedPolicy,
    budget: usize,
    found: &mut Vec<SessionRecord>,
) -> Option<Sequence> {
    at.collect(tables, budget, found, |tables, id| tables.state_record(id, policy));
    tables.feed_sequence()
}

/// Releases every session and quarantined port, and examines about `budget` records. Returns the number of
/// those released.
pub(crate) fn release_all(tables: &mut Tables, at: &mut FeedCursor, mut budget: usize) -> u64 {
    let mut released = 0;
    while budget > 0 {
        let Some(id) = at.advance(tables) else { break };
        budget = budget.saturating_sub(LOOK);
        let record = tables.get(id);
        let is_held = (record.is_session() || record.is_quarantined()) && record.is_marked();
        if is_held && release(tables, id) == CommandOutcome::Done {
            released += 1;
            budget = budget.saturating_sub(FOUND);
        }
    }
    released
}
