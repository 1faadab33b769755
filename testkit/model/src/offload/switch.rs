//! A P4 switch that translates, and its connection to the controller: slow, refusing, cut off, restarted.

use super::switch_moves::EnginePort;
use gatun_nat::counters::Count;
use gatun_nat::feed::Flow;
use gatun_offload::OffloadedFlow;
use gatun_p4_controller::PENDING_MAX;
use gatun_p4_controller::flow::{self, Direction};
use gatun_p4_controller::link::{Counted, Event, FlowEntry, Found, Request, Write, WriteError};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Flows that the tables of a switch have room for.
const CAPACITY: u32 = 12;
/// Entries in one message.
const FOUND: usize = 3;
/// Ethernet header, which the switch counts.
const ETHERNET: u64 = 14;

/// An event of a switch's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchFault {
    /// The connection is cut. The switch goes on translating, and may execute requests that it has got.
    Cut,
    /// The connection can be opened again.
    Heal,
    /// It restarts without its program. The connection ends.
    Restart,
    /// It restarts with its program, and without entries.
    Reboot,
    /// It refuses this number of entries.
    Refuse(u8),
    /// Another controller removes an entry.
    Meddle,
}

/// Counters of a direction of a flow.
#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    count: Count,
    /// Time of the last packet, ms, and its flow.
    last: Option<(u64, Flow)>,
}

/// Entry of a switch.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModelEntry {
    of: FlowEntry,
    /// Time when the controller heard of it on this connection, ms.
    told: Option<u64>,
    /// True if the switch has refused to change it on this connection.
    is_kept: bool,
}

impl From<FlowEntry> for ModelEntry {
    fn from(of: FlowEntry) -> ModelEntry {
        ModelEntry { of, told: None, is_kept: false }
    }
}

/// A switch.
#[derive(Debug, Default)]
pub(super) struct ModelSwitch {
    pub(super) entries: BTreeMap<flow::Key, ModelEntry>,
    pub(super) engine_port: EnginePort,
    counters: BTreeMap<(u32, Direction), Counter>,
    /// Counters of an earlier controller's flows that the present one has not read, whether their entries are
    /// left or not: nobody knows which of their packets came since.
    unread: BTreeSet<(u32, Direction)>,
    has_program: bool,
    is_reachable: bool,
    /// Number of the open connection, and whether it is open.
    connection: u64,
    is_open: bool,
    requests: VecDeque<(u64, Request)>,
    events: VecDeque<Event>,
    refusals: u8,
    /// Entries whose pending state the controller has ended.
    pub(super) ended: u64,
    /// First broken promise of a pending entry.
    pub(super) broken: Option<String>,
}

impl ModelSwitch {
    pub(super) fn new() -> ModelSwitch {
        ModelSwitch { is_reachable: true, ..ModelSwitch::default() }
    }

    /// Gets a request, unless the connection has ended.
    pub(super) fn take(&mut self, connection: u64, request: Request) {
        if self.is_open && self.connection == connection {
            self.requests.push_back((connection, request));
        }
    }

    /// Next message to the controller.
    pub(super) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Time and flow of the last packet of a counter, if the controller has been told its present count, and
    /// knows of the packet by that.
    pub(super) fn last(&mut self, counted: &Counted) -> Option<(u64, Flow)> {
        let is_first = self.unread.remove(&(counted.slot, counted.direction));
        let counter = self.counters.get_mut(&(counted.slot, counted.direction))?;
        if is_first {
            counter.last = None;
        }
        let Count { packets, bytes } = counted.count;
        let is_counted = counter.count == Count { packets, bytes: bytes + ETHERNET * packets };
        counter.last.filter(|_| is_counted)
    }

    /// Translates a packet, if it has an entry for it.
    pub(super) fn translate(&mut self, key: flow::Key, bytes: u64, ends: bool, now: u64) -> bool {
        if ends {
            return false;
        }
        let of = self.entries.get(&key).map(|entry| entry.of);
        match self.engine_port.pass(key, of) {
            Err(overtaken) => self.broken = self.broken.take().or(Some(overtaken)),
            Ok(true) => return false,
            Ok(false) => {}
        }
        let Some(FlowEntry { slot, direction, flow, .. }) = of else { return false };
        let counter = self.counters.entry((slot, direction)).or_default();
        counter.count += Count { packets: 1, bytes: bytes + ETHERNET };
        counter.last = Some((now, flow.session.flow));
        true
    }

    /// Flows with at least one entry.
    pub(super) fn flows(&self) -> impl Iterator<Item = &OffloadedFlow> {
        self.entries.values().map(|entry| &entry.of.flow)
    }

    /// The controller hears of all entries that there are.
    pub(super) fn tell(&mut self, now: u64) {
        self.entries.values_mut().for_each(|entry| _ = entry.told.get_or_insert(now));
    }

    /// Checks after a turn of the controller that it has ended what was pending for too long, if the switch
    /// has answered all requests.
    pub(super) fn check_pending(&mut self, now: u64) {
        let is_change = |(connection, request): &(u64, Request)| {
            *connection == self.connection && !matches!(request, Request::Count(_))
        };
        if !self.is_open || !self.events.is_empty() || self.requests.iter().any(is_change) {
            return;
        }
        let max = PENDING_MAX.as_millis() as u64;
        let is_late = |told: Option<u64>| told.is_some_and(|told| now >= told + max);
        let late = |entry: &&ModelEntry| entry.of.pending != 0 && !entry.is_kept && is_late(entry.told);
        if let Some(entry) = self.entries.values().find(late) {
            let late = || format!("an entry stays pending: {entry:?}");
            self.broken.get_or_insert_with(late);
        }
    }

    /// Ends the connection. Requests that the switch has got stay with it.
    pub(super) fn close(&mut self) {
        if self.is_open {
            self.is_open = false;
            self.events.clear();
            self.events.push_back(Event::Down("closed".into()));
        }
    }

    /// Ends the connection of a controller that was killed.
    pub(super) fn forget_controller(&mut self) {
        self.is_open = false;
        self.events.clear();
        self.engine_port.forget_controller(self.entries.values().map(|entry| entry.of));
        self.unread = self.entries.values().map(|entry| (entry.of.slot, entry.of.direction)).collect();
        self.unread.extend(self.counters.keys());
    }

    pub(super) fn fault(&mut self, fault: SwitchFault) {
        match fault {
            SwitchFault::Cut => {
                self.close();
                self.is_reachable = false;
            }
            SwitchFault::Heal => self.is_reachable = true,
            SwitchFault::Restart | SwitchFault::Reboot => {
                self.close();
                self.entries.clear();
                self.counters.clear();
                self.engine_port.restart();
                self.requests.clear();
                self.has_program = fault == SwitchFault::Reboot;
            }
            SwitchFault::Refuse(n) => self.refusals = n,
            // The switch tells its controller that another one is the primary.
            SwitchFault::Meddle => {
                self.close();
                self.entries.pop_first();
            }
        }
    }

    /// True if the switch has nothing to do.
    pub(super) fn is_at_rest(&self) -> bool {
        self.requests.is_empty() && self.events.is_empty() && self.is_open
    }

    /// Executes some requests, and opens the connection if that is possible.
    pub(super) fn serve(&mut self, requests: usize) {
        for _ in 0..requests {
            let Some((connection, request)) = self.requests.pop_front() else { break };
            // The switch refuses requests with an election ID that is not the primary's.
            if connection == self.connection {
                self.execute(request);
            }
        }
        // A controller that was cut off hears of it before it connects again.
        if !self.is_open && self.is_reachable && self.events.is_empty() {
            self.open();
        }
    }

    fn open(&mut self) {
        self.connection += 1;
        self.is_open = true;
        let is_empty = !std::mem::replace(&mut self.has_program, true);
        if is_empty {
            self.entries.clear();
        }
        self.entries.values_mut().for_each(|entry| *entry = entry.of.into());
        let connection = self.connection;
        self.events.push_back(Event::Connected { connection, is_empty, capacity: CAPACITY });
        let found: Vec<Found> =
            self.entries.iter().map(|(&key, entry)| Found { key, entry: Some(entry.of) }).collect();
        self.events.extend(found.chunks(FOUND).map(|part| Event::Found(part.to_vec())));
        self.events.push_back(Event::AllFound);
    }

    fn execute(&mut self, request: Request) {
        let event = match request {
            Request::Write(writes) => Event::Written(writes.iter().map(|write| self.write(write)).collect()),
            Request::Count(slots) => {
                let both = |slot| Direction::ALL.map(|direction| (slot, direction));
                let counters = slots.into_iter().flat_map(both).map(|(slot, direction)| {
                    let counter = self.counters.get(&(slot, direction)).copied().unwrap_or_default();
                    counted(slot, direction, &counter)
                });
                Event::Counted { counters: counters.collect(), is_last: true }
            }
            Request::Reconnect(_) => {
                self.is_open = false;
                self.events.clear();
                return;
            }
        };
        if self.is_open {
            self.events.push_back(event);
        }
    }

    fn write(&mut self, write: &Write) -> Result<(), WriteError> {
        match *write {
            Write::Delete(key) => self.entries.remove(&key).map(drop).ok_or(WriteError::Missing),
            Write::Modify(of) => {
                let is_refused = self.refuses();
                let entry = self.entries.get_mut(&flow::key(&of.flow, of.direction));
                let entry = entry.ok_or(WriteError::Missing)?;
                if let Some(refusal) = is_refused {
                    entry.is_kept = true;
                    return Err(refusal);
                }
                self.ended += u64::from(entry.of.pending != 0 && of.pending == 0);
                entry.of = of;
                Ok(())
            }
            Write::Insert(of) => {
                if let Some(refusal) = self.refuses() {
                    return Err(refusal);
                }
                let key = flow::key(&of.flow, of.direction);
                if self.entries.contains_key(&key) {
                    return Err(WriteError::Exists);
                }
                self.entries.insert(key, of.into());
                Ok(())
            }
        }
    }

    /// Refuses an entry, if it is to.
    fn refuses(&mut self) -> Option<WriteError> {
        self.refusals = self.refusals.checked_sub(1)?;
        let other = WriteError::Other("refused".into());
        Some(if self.refusals.is_multiple_of(2) { WriteError::Full } else { other })
    }
}

fn counted(slot: u32, direction: Direction, counter: &Counter) -> Counted {
    let Count { packets, bytes } = counter.count;
    Counted { slot, direction, count: Count { packets, bytes: bytes - ETHERNET * packets } }
}
