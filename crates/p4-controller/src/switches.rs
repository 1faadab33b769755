//! Account of the flows in one or several switches, as a target of the offload manager.
//!
//! ```text
//!   Absent -> InsertQueued -> InsertSent -> Present -> DeleteQueued -> DeleteSent -> Counting -> Absent
//!                  |              |            |             |              |
//!                  '--------------+---- connection lost -----+--------------'--> Unknown -> read -> ...
//! ```
//! Each flow has such a state for each switch. A removal is confirmed when the flow is absent from all of
//! them. A switch without a connection has no lease: it goes on translating. So a flow that it may have
//! stays unknown, and its session reserved, until the switch has been read again, or is declared gone.
//!
//! Memory: about 300 bytes for each flow, and 32 for each of its switches. A request has at most
//! [`BATCH`] changes, and a switch gets the next request after it has answered the last one.

mod answers;
mod counters;
mod moves;
mod requests;
#[cfg(test)]
mod scripted;
mod sync;

use crate::flow::{Direction, Key, key};
use crate::link::{Link, ProgramCounts};
use counters::Counters;
use gatun_nat::counters::Traffic;
use gatun_nat::feed::Flow;
use gatun_offload::{EntryUse, OffloadedFlow, Placement, Refusal, Removal, Target};
use hashbrown::HashTable;
use moves::Moves;
use requests::{PACE, Paced};
use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

pub use moves::PENDING_MAX;

/// Maximum number of switches.
pub const SWITCHES_MAX: usize = 4;
/// Maximum number of changes in a request.
pub const BATCH: usize = 1024;
/// Number of flows that wait for a switch, above which no further flow is taken.
const QUEUE_MAX: usize = 16_384;
/// Maximum number of events of a switch that are handled in one turn.
const EVENTS: usize = 64;

/// State of a flow in a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The switch does not have it.
    Absent,
    /// Its entries wait for a request.
    InsertQueued,
    /// A request to insert its entries has no answer yet.
    InsertSent,
    /// The switch has both entries.
    Present,
    /// The removal of its entries waits for a request.
    DeleteQueued,
    /// A request to delete its entries has no answer yet.
    DeleteSent,
    /// The entries are deleted. The counters are read for the last time.
    Counting,
    /// The connection was lost: the switch may have both entries, one, or none.
    Unknown,
}

impl State {
    fn is_inserting(self) -> bool {
        matches!(self, State::InsertQueued | State::InsertSent)
    }
}

/// A flow.
struct Occupant {
    flow: OffloadedFlow,
    /// Time when a switch had it first.
    since: Option<Duration>,
    states: [State; SWITCHES_MAX],
    /// Generation of its entries in each switch while they are pending, otherwise 0.
    pending: [u8; SWITCHES_MAX],
    /// Switches that have had it, or may have had it, since it was last absent: their counters may contain
    /// packets that no engine knows of.
    had: [bool; SWITCHES_MAX],
    is_removing: bool,
    refusal: Option<Box<Refusal>>,
    /// Packets that were counted since the manager has last taken them.
    untaken: Traffic,
    /// Times when a count was last seen to grow, by direction.
    seen: [Duration; 2],
}

#[derive(Default)]
struct Slot {
    /// Distinguishes the occupants.
    life: u32,
    occupant: Option<Occupant>,
}

/// Phase of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No connection. The switch may translate with the entries that it has.
    Down,
    /// Connected, and another controller is the primary one. The switch may translate with the entries that
    /// it has.
    Standby,
    /// Its entries are being read.
    Reading,
    /// In use.
    Ready,
    /// Declared gone: it has no entries, and does not forward.
    Gone,
}

/// A request without an answer.
#[derive(Clone, Copy)]
enum Sent {
    Stray,
    Insert(u32),
    Modify,
    /// The entries are pending no more. The generation that they had.
    EndOfMove(u32, u8),
    Delete(u32),
}

struct Switch<L> {
    link: L,
    phase: Phase,
    connection: u64,
    capacity: u32,
    /// Flows to be inserted or deleted, with their lives.
    queue: VecDeque<(u32, u32)>,
    /// Flows whose entries have another form now, with their lives.
    changed: VecDeque<(u32, u32)>,
    moves: Moves,
    /// Entries to be deleted that belong to no flow.
    strays: VecDeque<Key>,
    sent: Vec<Sent>,
    writes: Paced,
    /// Deleted flows whose counters are to be read for the last time, and those of the present request.
    uncounted: VecDeque<u32>,
    last_counted: Vec<u32>,
    /// Flows whose counters are to be read for the first time, with their lives, and those of the present
    /// request. An insertion waits for it.
    unread: VecDeque<(u32, u32)>,
    first_counted: Vec<(u32, u32)>,
    is_counting: bool,
    counts: Paced,
    /// Next flow of the round of counters, and the time when the round began.
    round: (usize, Duration),
    /// Number of such rounds.
    rounds: u64,
    counters: Counters,
    /// While a switch is read: flows that it has, with their directions and generations.
    found: BTreeMap<u32, FoundFlow>,
    status: SwitchStatus,
}

/// Flow that a switch has.
struct FoundFlow {
    flow: OffloadedFlow,
    /// Set of directions.
    directions: u8,
    /// Generation, if one of its entries is pending.
    pending: u8,
}

/// State of a switch for operators. Numbers without another note only grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchStatus {
    /// Name in the configuration.
    pub name: String,
    /// Phase.
    pub phase: Phase,
    /// Time when the phase began, by the clock of the turns.
    pub since: Duration,
    /// Reason of the last disconnection. `None` before the first attempt has failed.
    pub reason: Option<String>,
    /// Gauge: flows in the switch.
    pub flows: u32,
    /// Flows that it had when it was last read.
    pub found: u32,
    /// Gauge: flows whose insertion or removal is in progress.
    pub changing: u32,
    /// Gauge: flows whose entries are pending: packets may still go through the engine, so that none of them
    /// is overtaken. At most [`PENDING_MAX`] after the insertion.
    pub moving: u32,
    /// Gauge: flows of which it is not known whether the switch has them.
    pub unknown: u32,
    /// Flows inserted.
    pub inserted: u64,
    /// Flows deleted.
    pub deleted: u64,
    /// Flows refused by the switch.
    pub refused: u64,
    /// Entries of nobody that were found and deleted.
    pub strays: u64,
    /// Connections.
    pub connections: u64,
    /// Packets that the program counts.
    pub program: ProgramCounts,
}

/// Rules that the account follows. A check of the model leaves out one at a time, and must find a history
/// in which that does harm. Everything else uses the default: all rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchRules {
    /// Confirms a removal after the answer of the switch.
    pub await_delete: bool,
    /// Keeps flows of a lost connection reserved until the switch has been read.
    pub keep_unknown: bool,
    /// Reads the counters once more after a removal.
    pub count_removed: bool,
    /// Deletes found entries that belong to no flow.
    pub delete_strays: bool,
    /// Writes flows that a switch has lost.
    pub write_missing: bool,
    /// Ends what is still pending after some time.
    pub end_pending: bool,
}

impl Default for SwitchRules {
    fn default() -> SwitchRules {
        SwitchRules {
            await_delete: true,
            keep_unknown: true,
            count_removed: true,
            delete_strays: true,
            write_missing: true,
            end_pending: true,
        }
    }
}

/// ID of a flow in the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowId {
    slot: u32,
    life: u32,
}

/// Flows in switches. All switches have the same flows.
pub struct Switches<L> {
    switches: Vec<Switch<L>>,
    flows: Vec<Slot>,
    free: Vec<u32>,
    /// Number of flows, with the lowest bit as the direction, by key.
    index: HashTable<u32>,
    hasher: RandomState,
    flows_max: u32,
    /// True once the manager has the account.
    is_started: bool,
    /// True if flows of an earlier process are taken over.
    adopts: bool,
    now: Duration,
    /// Minimum time between two requests of a kind.
    pace: Duration,
    smallest_path: Option<u16>,
    rules: SwitchRules,
}

impl<L: Link> Switches<L> {
    /// Creates the account of named switches, with up to `flows_max` flows.
    ///
    /// # Panics
    /// Panics if there are more than [`SWITCHES_MAX`] switches.
    pub fn new(links: Vec<(String, L)>, flows_max: u32) -> Self {
        Self::with_rules(links, flows_max, SwitchRules::default())
    }

    /// Creates an account that follows some rules only, for the check that all of them matter.
    #[doc(hidden)]
    pub fn with_rules(links: Vec<(String, L)>, flows_max: u32, rules: SwitchRules) -> Self {
        assert!(links.len() <= SWITCHES_MAX, "at most {SWITCHES_MAX} switches");
        let hasher = RandomState::new();
        let chance = hasher.hash_one(0);
        Switches {
            switches: links.into_iter().map(|(name, link)| Switch::new(name, link, chance)).collect(),
            flows: Vec::new(),
            free: Vec::new(),
            index: HashTable::new(),
            hasher,
            flows_max,
            is_started: false,
            adopts: true,
            now: Duration::ZERO,
            pace: PACE,
            smallest_path: None,
            rules,
        }
    }

    /// Sets the minimum time between two requests of a kind to a switch, unless the next one is full. 5 ms by
    /// default; zero for links whose requests cost no more than their changes.
    pub fn set_pace(&mut self, pace: Duration) {
        self.pace = pace;
    }

    /// Deletes all flows of an earlier process, whose sessions have ended, instead of taking them over.
    pub fn discard_found(&mut self) {
        self.adopts = false;
    }

    /// Returns whether every switch has been read and cleared of entries of nobody, or is declared gone. The
    /// manager must not be created before: it would release sessions whose entries it does not know.
    pub fn is_settled(&self) -> bool {
        let is_settled = |switch: &Switch<L>| match switch.phase {
            Phase::Gone => true,
            Phase::Ready => switch.strays.is_empty() && !switch.sent.iter().any(|s| matches!(s, Sent::Stray)),
            Phase::Down | Phase::Standby | Phase::Reading => false,
        };
        self.switches.iter().all(is_settled)
    }

    /// Declares a switch gone: it has no entries and does not forward packets. Sessions that waited for it
    /// are released. It is used again when it answers. Only for a switch that is switched off or replaced.
    ///
    /// Returns false, and does nothing, if this controller is its primary one.
    pub fn set_gone(&mut self, switch: usize) -> bool {
        match self.switches.get(switch).map(|switch| switch.phase) {
            Some(Phase::Down | Phase::Standby) => {
                self.enter_phase(switch, Phase::Gone);
                self.all_absent(switch);
                true
            }
            Some(Phase::Gone) => true,
            Some(Phase::Reading | Phase::Ready) | None => false,
        }
    }

    /// Returns the switches that have the flow with a key, and the time since one of them had it first.
    pub fn having(&self, wanted: &Key) -> Option<(Vec<&str>, Duration)> {
        self.having_occupant(self.flows[self.find(wanted)? as usize].occupant.as_ref()?)
    }

    /// Flows in switches that match, by the key of their packets to the inside, with the switches that have
    /// each and the time since one of them had it first.
    pub fn present<'a>(
        &'a self,
        matches: &'a dyn Fn(&Flow) -> bool,
    ) -> impl Iterator<Item = (Key, (Vec<&'a str>, Duration))> {
        let occupants = self.flows.iter().filter_map(|slot| slot.occupant.as_ref());
        let wanted = occupants.filter(|occupant| matches(&occupant.flow.session.flow));
        wanted.filter_map(|occupant| {
            Some((key(&occupant.flow, Direction::Inbound), self.having_occupant(occupant)?))
        })
    }

    fn having_occupant(&self, occupant: &Occupant) -> Option<(Vec<&str>, Duration)> {
        let having = self.switches.iter().zip(occupant.states).filter(|(_, state)| *state == State::Present);
        let names = having.map(|(switch, _)| &*switch.status.name).collect();
        Some((names, self.now.saturating_sub(occupant.since?)))
    }

    /// Position of a switch by name.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.switches.iter().position(|switch| switch.status.name == name)
    }

    /// Connection to a switch.
    pub fn link(&self, switch: usize) -> &L {
        &self.switches[switch].link
    }

    /// Connection to a switch.
    pub fn link_mut(&mut self, switch: usize) -> &mut L {
        &mut self.switches[switch].link
    }

    /// Smallest path MTU that an engine knows, for entries of packets without sessions.
    pub fn smallest_path(&self) -> Option<u16> {
        self.smallest_path
    }

    /// State of every switch.
    pub fn status(&self) -> impl Iterator<Item = &SwitchStatus> {
        self.switches.iter().map(|switch| &switch.status)
    }

    fn enter_phase(&mut self, k: usize, phase: Phase) {
        let switch = &mut self.switches[k];
        (switch.phase, switch.status.phase, switch.status.since) = (phase, phase, self.now);
    }

    fn occupant(&mut self, id: FlowId) -> Option<&mut Occupant> {
        let slot = self.flows.get_mut(id.slot as usize)?;
        slot.occupant.as_mut().filter(|_| slot.life == id.life)
    }

    fn state(&self, slot: u32, k: usize) -> State {
        let occupant = self.flows.get(slot as usize).and_then(|slot| slot.occupant.as_ref());
        occupant.map_or(State::Absent, |occupant| occupant.states[k])
    }

    /// Changes the state of a flow in a switch.
    fn set_state(&mut self, slot: u32, k: usize, state: State) {
        let Some(occupant) = &mut self.flows[slot as usize].occupant else { return };
        if state == State::Present {
            occupant.since.get_or_insert(self.now);
        }
        let was_moving = occupant.is_moving(k);
        let old = std::mem::replace(&mut occupant.states[k], state);
        if !matches!(state, State::InsertSent | State::Present) {
            occupant.pending[k] = 0;
        }
        occupant.had[k] = match state {
            State::Absent => false,
            State::Present | State::Unknown => true,
            _ => occupant.had[k],
        };
        let is_moving = occupant.is_moving(k);
        let status = &mut self.switches[k].status;
        for (state, is_new) in [(old, false), (state, true)] {
            let gauge = match state {
                State::Absent => continue,
                State::Present => &mut status.flows,
                State::Unknown => &mut status.unknown,
                _ => &mut status.changing,
            };
            *gauge = if is_new { *gauge + 1 } else { gauge.saturating_sub(1) };
        }
        self.count_moving(k, was_moving, is_moving);
    }

    /// Queues the insertion or the removal of a flow.
    fn enqueue(&mut self, slot: u32, k: usize, state: State) {
        self.set_state(slot, k, state);
        let life = self.flows[slot as usize].life;
        self.switches[k].queue.push_back((slot, life));
    }

    /// Begins the end of a flow in all switches.
    fn withdraw(&mut self, slot: u32) {
        for k in 0..self.switches.len() {
            match self.state(slot, k) {
                State::InsertQueued if !self.had(slot, k) => self.set_state(slot, k, State::Absent),
                // The switch was found with one of its entries, whose deletion may have no answer yet.
                State::InsertQueued | State::Present => self.enqueue(slot, k, State::DeleteQueued),
                _ => {}
            }
        }
    }

    fn is_absent(&self, slot: u32) -> bool {
        (0..self.switches.len()).all(|k| self.state(slot, k) == State::Absent)
    }

    fn hash(&self, key: &Key) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Returns the flow with a key.
    fn find(&self, wanted: &Key) -> Option<u32> {
        let is_it = |&at: &u32| self.key_at(at) == Some(*wanted);
        self.index.find(self.hash(wanted), is_it).map(|at| at >> 1)
    }

    fn key_at(&self, at: u32) -> Option<Key> {
        let occupant = self.flows.get((at >> 1) as usize)?.occupant.as_ref()?;
        Some(key(&occupant.flow, Direction::ALL[(at & 1) as usize]))
    }

    /// Gives a slot to a flow, whose keys must not be in the index.
    fn occupy(&mut self, slot: u32, flow: &OffloadedFlow) {
        let now = self.now;
        self.flows[slot as usize].occupant = Some(Occupant {
            flow: *flow,
            since: None,
            states: [State::Absent; SWITCHES_MAX],
            pending: [0; SWITCHES_MAX],
            had: [false; SWITCHES_MAX],
            is_removing: false,
            refusal: None,
            untaken: Traffic::default(),
            seen: [now; 2],
        });
        let Switches { index, flows, hasher, .. } = self;
        for direction in Direction::ALL {
            let hash = hasher.hash_one(key(flow, direction));
            index.insert_unique(hash, slot << 1 | direction.index() as u32, |&at| {
                let occupant = flows[(at >> 1) as usize].occupant.as_ref();
                let direction = Direction::ALL[(at & 1) as usize];
                occupant.map_or(0, |occupant| hasher.hash_one(key(&occupant.flow, direction)))
            });
        }
    }

    /// Frees the slot of a flow that no switch has.
    fn vacate(&mut self, slot: u32) -> Option<Occupant> {
        let flow = self.flows[slot as usize].occupant.as_ref()?.flow;
        for direction in Direction::ALL {
            let hash = self.hash(&key(&flow, direction));
            let at = slot << 1 | direction.index() as u32;
            if let Ok(found) = self.index.find_entry(hash, |&other| other == at) {
                found.remove();
            }
        }
        // Forgotten before the answer of a switch, if a rule is left out.
        for k in 0..self.switches.len() {
            self.set_state(slot, k, State::Absent);
        }
        let place = &mut self.flows[slot as usize];
        place.life = place.life.wrapping_add(1);
        self.free.push(slot);
        place.occupant.take()
    }

    fn place(&mut self, flow: &OffloadedFlow) -> Result<FlowId, Refusal> {
        if Direction::ALL.iter().any(|direction| self.find(&key(flow, *direction)).is_some()) {
            return Err(Refusal::Exists);
        }
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if (self.flows.len() as u32) < self.capacity() => {
                self.flows.push(Slot::default());
                self.flows.len() as u32 - 1
            }
            None => return Err(Refusal::Full),
        };
        self.occupy(slot, flow);
        for k in 0..self.switches.len() {
            if self.switches[k].phase == Phase::Ready {
                self.enqueue(slot, k, State::InsertQueued);
            }
        }
        Ok(FlowId { slot, life: self.flows[slot as usize].life })
    }

    fn removal(&mut self, id: FlowId) -> Removal {
        let Some(occupant) = self.occupant(id) else { return Removal::Missing };
        if !std::mem::replace(&mut occupant.is_removing, true) {
            self.withdraw(id.slot);
        }
        if self.rules.await_delete && !self.is_absent(id.slot) {
            return Removal::Waiting;
        }
        let now = self.now;
        self.vacate(id.slot).map(|mut occupant| occupant.take(now)).into()
    }

    fn placement(&mut self, id: FlowId) -> Placement {
        let Some(occupant) = self.occupant(id) else {
            let refusal = Refusal::Other("the entry was removed".to_owned());
            return Placement::Refused(refusal, EntryUse::default());
        };
        if occupant.is_removing {
            return Placement::Waiting;
        }
        if self.is_absent(id.slot) {
            let now = self.now;
            let mut occupant = self.vacate(id.slot);
            let used = occupant.as_mut().map_or_else(EntryUse::default, |occupant| occupant.take(now));
            let lost = || Refusal::Other("no switch has it".to_owned());
            let refusal = occupant.and_then(|occupant| occupant.refusal);
            return Placement::Refused(refusal.map_or_else(lost, |refusal| *refusal), used);
        }
        let mut states = (0..self.switches.len()).map(|k| self.state(id.slot, k));
        let is_settled = |state| matches!(state, State::Absent | State::Present | State::Unknown);
        match states.clone().all(is_settled) && states.any(|state| state == State::Present) {
            true => Placement::Installed,
            false => Placement::Waiting,
        }
    }
}

impl Occupant {
    fn take(&mut self, now: Duration) -> EntryUse {
        EntryUse {
            traffic: std::mem::take(&mut self.untaken),
            seen_ago: self.seen.map(|seen| now.saturating_sub(seen)),
            is_closing: false,
            is_pending: (0..SWITCHES_MAX).any(|k| self.is_moving(k) || self.states[k].is_inserting()),
        }
    }
}

impl<L: Link> Target for Switches<L> {
    type Id = FlowId;

    const ANSWERS_LATER: bool = true;

    const TRANSLATES_PINGS: bool = true;

    fn turn(&mut self, now: Duration) {
        self.now = now;
        for k in 0..self.switches.len() {
            for _ in 0..EVENTS {
                let Some(event) = self.switches[k].link.receive() else { break };
                self.event(k, event);
            }
            self.write_some(k);
            self.count_some(k);
        }
    }

    fn is_ready(&self) -> bool {
        let mut ready = self.switches.iter().filter(|switch| switch.phase == Phase::Ready).peekable();
        ready.peek().is_some() && ready.all(|switch| switch.queue.len() + switch.unread.len() < QUEUE_MAX)
    }

    fn capacity(&self) -> u32 {
        // One that has never answered has no capacity yet.
        let known = self.switches.iter().map(|switch| switch.capacity).filter(|&capacity| capacity > 0);
        known.min().unwrap_or(0).min(self.flows_max)
    }

    fn install(&mut self, flows: &[OffloadedFlow], placed: &mut Vec<Result<FlowId, Refusal>>) {
        placed.extend(flows.iter().map(|flow| self.place(flow)));
    }

    fn placed(&mut self, ids: &[FlowId], placed: &mut Vec<Placement>) {
        placed.extend(ids.iter().map(|&id| self.placement(id)));
    }

    fn remove(&mut self, ids: &[FlowId], removals: &mut Vec<Removal>) {
        removals.extend(ids.iter().map(|&id| self.removal(id)));
    }

    fn readings(&self) -> Option<u64> {
        let ready = self.switches.iter().filter(|switch| switch.phase == Phase::Ready);
        Some(ready.map(|switch| switch.rounds).min().unwrap_or(0))
    }

    fn take_use(&mut self, ids: &[FlowId], used: &mut Vec<Option<EntryUse>>) {
        let now = self.now;
        for &id in ids {
            let is_absent = self.is_absent(id.slot);
            let occupant = self.occupant(id).filter(|_| !is_absent);
            used.push(occupant.map(|occupant| occupant.take(now)));
        }
    }

    fn entries(&mut self, each: &mut dyn FnMut(FlowId, &OffloadedFlow)) {
        self.is_started = true;
        self.free.clear();
        for (number, slot) in (0u32..).zip(&self.flows) {
            match &slot.occupant {
                Some(occupant) => each(FlowId { slot: number, life: slot.life }, &occupant.flow),
                None => self.free.push(number),
            }
        }
    }

    /// Larger packets go to the engine, which fragments them.
    fn set_path_mtu(&mut self, id: FlowId, mtu: Option<u16>) {
        let Some(occupant) = self.occupant(id).filter(|occupant| occupant.flow.path_mtu != mtu) else {
            return;
        };
        occupant.flow.path_mtu = mtu;
        for k in 0..self.switches.len() {
            // Other entries are not written yet, or are compared when the switch has been read.
            if matches!(self.state(id.slot, k), State::Present | State::InsertSent) {
                self.switches[k].changed.push_back((id.slot, id.life));
            }
        }
    }

    fn set_smallest_path(&mut self, mtu: Option<u16>) {
        self.smallest_path = mtu;
    }

    /// A switch has no lease.
    fn renew_lease(&mut self, _: Duration) {}
}

impl<L: Link> Switch<L> {
    fn new(name: String, link: L, chance: u64) -> Switch<L> {
        Switch {
            link,
            phase: Phase::Down,
            connection: 0,
            capacity: 0,
            queue: VecDeque::new(),
            changed: VecDeque::new(),
            moves: Moves::new(chance),
            strays: VecDeque::new(),
            sent: Vec::new(),
            writes: Paced::default(),
            uncounted: VecDeque::new(),
            last_counted: Vec::new(),
            unread: VecDeque::new(),
            first_counted: Vec::new(),
            is_counting: false,
            counts: Paced::default(),
            round: (0, Duration::ZERO),
            rounds: 0,
            counters: Counters::default(),
            found: BTreeMap::new(),
            status: SwitchStatus {
                name,
                phase: Phase::Down,
                since: Duration::ZERO,
                reason: None,
                flows: 0,
                found: 0,
                changing: 0,
                moving: 0,
                unknown: 0,
                inserted: 0,
                deleted: 0,
                refused: 0,
                strays: 0,
                connections: 0,
                program: ProgramCounts::default(),
            },
        }
    }
}
