//! Events: records of fixed size on two bounded rings per engine, for the log readers.
//!
//! ```text
//!   state     blocks, bindings, quotas: for the log and the state feed. Numbered; a lost one leaves a gap
//!   sessions  all others. Each has the number of the state record that it comes before
//! ```
//! A packet never waits. If a ring is full, the event is lost and counted. Once there is room again, a record
//! reports the number of lost events before the next event. Work that can wait (sweep, clear, reload) stops
//! at a half-full ring until the reader has caught up (`Events::budget`), so that many ends at once lose no
//! event. Kinds that no reader wants are not made.
//!
//! Events report a destination (the remote end of a session) only if the plan says so: RFC 6888 REQ-12.

use crate::base::plan::EventPlan;
use crate::base::time::Instant;
use crate::tables::reader_wait::{self, ReaderWait};
use crate::tables::session::Session;
use crate::tables::subscriber::SubscriberKey;
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_mem::OutOfMemory;
use gatun_wire::DropReason;
use rtrb::{Consumer, Producer, RingBuffer};

pub use crate::base::event_kind::{EventKind, EventKinds};

/// Gauge with a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gauge {
    /// Ports of the pool and transport that the event names.
    PoolPorts,
    /// Sessions.
    Sessions,
    /// Subscribers.
    Subscribers,
}

/// One event: a record of 64 bytes. The kind determines which fields are set; the others are `None` or zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Engine time of the event.
    pub at: Instant,
    /// Number of lost events, or the amount used at a threshold crossing.
    pub value: u64,
    /// Total amount at a threshold crossing.
    pub total: u64,
    /// Inside address, or the subscriber's prefix for blocks and quotas. IPv4 addresses are written as
    /// ::ffff:a.b.c.d.
    pub(crate) inside: [u8; 16],
    pub(crate) outside: [u8; 4],
    pub(crate) remote: [u8; 4],
    /// Inside port (ICMP: identifier).
    pub inside_port: u16,
    /// Outside port, or the first port of a block.
    pub outside_port: u16,
    /// The last port of a block.
    pub outside_last: u16,
    /// Remote port, if destinations are reported.
    pub remote_port: u16,
    /// Kind of the event.
    pub kind: EventKind,
    /// Transports of the event: one bit each, in the order of [`Transport`](crate::base::plan::Transport).
    pub(crate) transports: u8,
    /// Number of the instance.
    pub instance: u8,
    /// Number of the pool.
    pub pool: u8,
    /// Limit or pool that caused the event, as the reason for the packet's drop.
    pub reason: Option<DropReason>,
    /// Gauge that crossed a threshold.
    pub gauge: Option<Gauge>,
}

const _: () = assert!(size_of::<Event>() <= 64);

impl Event {
    /// Creates an event with kind and time alone.
    pub fn new(kind: EventKind, at: Instant) -> Event {
        Event {
            at,
            value: 0,
            total: 0,
            inside: [0; 16],
            outside: [0; 4],
            remote: [0; 4],
            inside_port: 0,
            outside_port: 0,
            outside_last: 0,
            remote_port: 0,
            kind,
            transports: 0,
            instance: 0,
            pool: 0,
            reason: None,
            gauge: None,
        }
    }

    pub(crate) fn of(mut self, subscriber: SubscriberKey) -> Event {
        self.inside = subscriber.prefix.to_be_bytes();
        self.instance = subscriber.instance;
        self
    }

    /// Adds an inside address, or the first address of a subscriber, and a port.
    pub fn with_inside(mut self, address: Ipv6Addr, port: u16) -> Event {
        (self.inside, self.inside_port) = (address.octets(), port);
        self
    }

    /// Adds a remote address and port.
    pub fn with_remote(mut self, address: Ipv4Addr, port: u16) -> Event {
        (self.remote, self.remote_port) = (address.octets(), port);
        self
    }

    /// Adds an outside address, and its port or the first and last port of a block.
    pub fn with_outside(mut self, address: Ipv4Addr, first: u16, last: u16) -> Event {
        self.outside = address.octets();
        (self.outside_port, self.outside_last) = (first, last);
        self
    }

    /// Sets the transports, in the order of [`Transport`](crate::base::plan::Transport).
    pub fn for_transports(mut self, transports: [bool; 3]) -> Event {
        self.transports = transports.iter().rev().fold(0, |bits, &on| bits << 1 | u8::from(on));
        self
    }

    /// Inside address, or the first address of the subscriber.
    pub fn inside(&self) -> Ipv6Addr {
        self.inside.into()
    }

    /// Outside address; unspecified if the event has none.
    pub fn outside(&self) -> Ipv4Addr {
        self.outside.into()
    }

    /// Remote address; unspecified if destinations are not reported.
    pub fn remote(&self) -> Ipv4Addr {
        self.remote.into()
    }

    /// Transports of the event, in the order of [`Transport`](crate::base::plan::Transport).
    pub fn transports(&self) -> [bool; 3] {
        core::array::from_fn(|t| self.transports & (1 << t) != 0)
    }
}

/// Place of a state record among all records of its engine. A missing number is a lost record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// Generation of the engine; a new engine, as after a restart, has another.
    pub generation: u64,
    /// Number from 0 on; only lost records leave gaps.
    pub number: u64,
}

/// Event on a ring. A state record comes with its number, any other event with that of the next state record.
type Numbered = (Event, u64);

/// Reader of an engine's events, on any thread.
pub struct EventReader {
    state: Consumer<Numbered>,
    sessions: Consumer<Numbered>,
    generation: u64,
}

impl EventReader {
    /// Returns the next event, in the order in which they happened.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Event> {
        self.next_numbered().map(|(event, _)| event)
    }

    /// Returns the next event. A state record, or a loss of state records, comes with its place.
    pub fn next_numbered(&mut self) -> Option<(Event, Option<Sequence>)> {
        let mut session = self.sessions.peek().ok().map(|(_, before)| *before);
        let state = self.state.peek().ok().map(|(_, number)| *number);
        if session.is_none() && state.is_some() {
            // An event that came before that state record is on its ring by now.
            session = self.sessions.peek().ok().map(|(_, before)| *before);
        }
        match (state, session) {
            (state, Some(before)) if state.is_none_or(|number| number >= before) => {
                self.sessions.pop().ok().map(|(event, _)| (event, None))
            }
            _ => {
                let generation = self.generation;
                let sequence = |number| Some(Sequence { generation, number });
                self.state.pop().ok().map(|(event, number)| (event, sequence(number)))
            }
        }
    }

    /// Returns whether the engine is gone, so that no further events will come.
    pub fn is_abandoned(&self) -> bool {
        self.state.is_abandoned()
    }
}

/// Ring, and the count of events that did not fit.
struct Ring {
    ring: Producer<Numbered>,
    /// Number of events lost since the last record that reported losses.
    unreported: u64,
}

impl Ring {
    /// Pushes an event, after a record of earlier losses if there were any. Returns `false` if the event is
    /// lost.
    fn push(&mut self, event: Event, number: u64) -> bool {
        self.report_loss(event.at, number);
        let is_there = self.unreported == 0 && self.ring.push((event, number)).is_ok();
        self.unreported += u64::from(!is_there);
        is_there
    }

    fn report_loss(&mut self, now: Instant, number: u64) {
        let loss = Event { value: self.unreported, ..Event::new(EventKind::EventsLost, now) };
        if self.unreported > 0 && self.ring.push((loss, number)).is_ok() {
            self.unreported = 0;
        }
    }
}

/// Engine's end of the rings.
pub(crate) struct Events {
    kinds: EventKinds,
    destinations: bool,
    state: Ring,
    sessions: Ring,
    reader: Option<EventReader>,
    /// Number of the next state record.
    next: u64,
    lost: u64,
    wait: ReaderWait,
}

/// Maximum number of events at the end of one session: those of the session, its binding and its block.
const EVENTS_OF_AN_END: usize = 4;

/// Lengths of the two rings: state records, and all other events.
fn lens(plan: &EventPlan) -> (u32, u32) {
    (plan.state_ring_len.max(2), plan.ring_len.max(2))
}

impl Events {
    /// Bytes of the rings.
    pub(crate) fn bytes(plan: &EventPlan) -> u64 {
        let (state, sessions) = lens(plan);
        (u64::from(state) + u64::from(sessions)) * size_of::<Numbered>() as u64
    }

    /// Allocates the rings even if no kind is wanted yet, because a reader may want some later.
    pub(crate) fn new(plan: &EventPlan, generation: u64) -> Result<Self, OutOfMemory> {
        let (state, sessions) = lens(plan);
        let (state, state_out) = RingBuffer::new(state as usize);
        let (sessions, sessions_out) = RingBuffer::new(sessions as usize);
        let ring = |mut ring| {
            take_memory(&mut ring)?;
            Ok(Ring { ring, unreported: 0 })
        };
        Ok(Events {
            kinds: plan.kinds,
            destinations: plan.destinations,
            state: ring(state)?,
            sessions: ring(sessions)?,
            reader: Some(EventReader { state: state_out, sessions: sessions_out, generation }),
            next: 0,
            lost: 0,
            wait: ReaderWait::default(),
        })
    }

    /// Sets the wanted kinds.
    pub(crate) fn set(&mut self, plan: &EventPlan) {
        (self.kinds, self.destinations) = (plan.kinds, plan.destinations);
    }

    /// Stops events of some kinds. Returns the kinds that were wanted before.
    pub(crate) fn all_but(&mut self, kinds: EventKinds) -> EventKinds {
        let fewer = self.kinds.without(kinds);
        core::mem::replace(&mut self.kinds, fewer)
    }

    /// Sets the wanted kinds.
    pub(crate) fn want(&mut self, kinds: EventKinds) {
        self.kinds = kinds;
    }

    /// Takes the reader of the rings; works once.
    pub(crate) fn take_reader(&mut self) -> Option<EventReader> {
        self.reader.take()
    }

    /// Events lost since the engine was built.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns whether events of a kind are made.
    #[inline(always)]
    pub(crate) fn wants(&self, kind: EventKind) -> bool {
        self.kinds.has(kind)
    }

    /// Returns whether there is a reader.
    fn is_read(&self) -> bool {
        self.reader.is_none() && !self.state.ring.is_abandoned()
    }

    /// Returns whether this many events of a restore fit without loss: either the reader has caught up, or no
    /// reader wants them.
    pub(crate) fn has_room_for(&self, events: usize) -> bool {
        let reported = [EventKind::BlockKept, EventKind::BindingKept, EventKind::SessionDeleted];
        if !reported.iter().any(|&kind| self.wants(kind)) || !self.is_read() {
            return true;
        }
        let has_room = |ring: &Ring| ring.ring.slots() >= events.min(ring.ring.buffer().capacity());
        has_room(&self.state) && has_room(&self.sessions)
    }

    /// Returns the part of a budget of ends (of sessions, bindings or blocks) that loses no event. It is zero
    /// if the reader has fallen behind. After one second without progress it ignores the reader.
    pub(crate) fn budget(&mut self, now: Instant, ends: usize) -> usize {
        let state = EventKinds::STATE.without(EventKinds::NONE.with(EventKind::QuotaHit));
        let wants = |kinds: EventKinds| kinds.iter().any(|kind| self.wants(kind));
        let mut spare = usize::MAX;
        if wants(state) {
            spare = reader_wait::spare(&self.state.ring);
        }
        if wants(EventKinds::NONE.with(EventKind::SessionDeleted)) {
            spare = spare.min(reader_wait::spare(&self.sessions.ring));
        }
        let is_read = self.is_read();
        self.wait.budget(now, ends, (spare, EVENTS_OF_AN_END), is_read)
    }

    /// Reports a session, or its binding.
    #[inline(never)]
    pub(crate) fn notify_session(&mut self, kind: EventKind, at: Instant, pool: usize, session: &Session) {
        let ((outside, port), (remote, remote_port)) = (session.outside(), session.remote());
        let mut event = Event::new(kind, at).with_outside(outside, port, port);
        event.inside = session.inside_addr().octets();
        event.inside_port = session.inside_port();
        event.instance = session.instance;
        event.pool = pool as u8;
        event.transports = 1 << session.transport() as u8;
        if self.destinations && matches!(kind, EventKind::SessionCreated | EventKind::SessionDeleted) {
            (event.remote, event.remote_port) = (remote.octets(), remote_port);
        }
        self.push(event);
    }

    /// Pushes an event to its ring, or counts it as lost.
    #[inline(never)]
    pub(crate) fn push(&mut self, event: Event) {
        let is_state = EventKinds::STATE.has(event.kind);
        let ring = if is_state { &mut self.state } else { &mut self.sessions };
        self.lost += u64::from(!ring.push(event, self.next));
        // A lost record uses up its number too, so the gap shows it.
        self.next += u64::from(is_state);
    }

    /// Reports the number of lost events, if there were any and there is room.
    pub(crate) fn report_loss(&mut self, now: Instant) {
        self.state.report_loss(now, self.next);
        self.sessions.report_loss(now, self.next);
    }
}

/// Allocates the memory of an empty ring if the process allocates tables at once.
fn take_memory(ring: &mut Producer<Numbered>) -> Result<(), OutOfMemory> {
    let Ok(mut places) = ring.write_chunk_uninit(ring.slots()) else { return Ok(()) };
    // An empty ring is in one piece. Dropping it without a commit leaves it empty.
    gatun_mem::take_room(places.as_mut_slices().0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::plan::Transport;

    fn events(ring_len: u32) -> (Events, EventReader) {
        let kinds = EventKinds::FEW;
        let mut events = Events::new(&EventPlan { kinds, ring_len, ..EventPlan::default() }, 7).unwrap();
        let reader = events.take_reader().unwrap();
        assert!(events.take_reader().is_none());
        (events, reader)
    }

    fn quota(n: u64) -> Event {
        Event { value: n, ..Event::new(EventKind::QuotaHit, Instant(n)) }
    }

    /// Event that is not a state record.
    fn crossed(n: u64) -> Event {
        Event { value: n, ..Event::new(EventKind::ThresholdHigh, Instant(n)) }
    }

    // proves: LOG-4
    #[test]
    fn lost_events_are_counted_and_reported_once_there_is_room() {
        let (mut events, mut reader) = events(4);
        (0..10).for_each(|n| events.push(crossed(n)));
        assert_eq!(events.lost(), 6);
        (0..3).for_each(|n| assert_eq!(reader.next(), Some(crossed(n))));
        events.push(crossed(10));
        assert_eq!(reader.next(), Some(crossed(3)));
        let lost = Event { value: 6, ..Event::new(EventKind::EventsLost, Instant(10)) };
        assert_eq!((reader.next(), reader.next(), reader.next()), (Some(lost), Some(crossed(10)), None));
        // The loss is reported even if no further event comes.
        (0..5).for_each(|n| events.push(crossed(n)));
        events.report_loss(Instant(50));
        (0..4).for_each(|n| assert_eq!(reader.next(), Some(crossed(n))));
        events.report_loss(Instant(60));
        let lost = Event { value: 1, ..Event::new(EventKind::EventsLost, Instant(60)) };
        assert_eq!((reader.next(), reader.next()), (Some(lost), None));
        drop(events);
        assert!(reader.is_abandoned());
    }

    #[test]
    fn state_records_are_numbered_in_order_with_others_and_a_lost_one_leaves_a_gap() {
        let (mut events, mut reader) = events(4);
        events.push(crossed(0));
        events.push(quota(1));
        events.push(crossed(2));
        let mut next = || {
            reader.next_numbered().map(|(event, at)| (event.value, at.map(|at| (at.generation, at.number))))
        };
        assert_eq!(
            [next(), next(), next(), next()],
            [Some((0, None)), Some((1, Some((7, 0)))), Some((2, None)), None]
        );
        // Other events fill their own ring only.
        (0..100).for_each(|n| events.push(crossed(n)));
        events.push(quota(3));
        (0..4).for_each(|n| assert_eq!(next(), Some((n, None))));
        assert_eq!(next(), Some((3, Some((7, 1)))));
        let len = u64::from(EventPlan::default().state_ring_len);
        (0..len + 5).for_each(|n| events.push(quota(n)));
        (0..len).for_each(|n| assert_eq!(next(), Some((n, Some((7, 2 + n))))));
        events.report_loss(Instant(0));
        events.push(quota(9));
        assert_eq!(
            next(),
            Some((96, None)),
            "the loss of the other ring is reported first, because it happened first"
        );
        assert_eq!(next(), Some((5, Some((7, 2 + len + 5)))), "how many");
        assert_eq!(next(), Some((9, Some((7, 2 + len + 5)))), "and the gap");
    }

    #[test]
    fn deferrable_work_stops_at_half_a_ring_unless_the_reader_hangs_or_is_missing() {
        let (mut events, mut reader) = events(4);
        events.set(&EventPlan { kinds: EventKinds::STATE, ..EventPlan::default() });
        let len = EventPlan::default().state_ring_len as usize;
        let all = len / 2 / EVENTS_OF_AN_END;
        assert_eq!(events.budget(Instant(0), 1_000_000), all);
        (0..len / 2).for_each(|n| events.push(quota(n as u64)));
        assert_eq!(events.budget(Instant(10), 100), 0);
        assert_eq!(events.budget(Instant(900), 100), 0);
        (0..400).for_each(|_| assert!(reader.next().is_some()));
        assert_eq!(events.budget(Instant(1_100), 1_000), 100, "the reader has read some events");
        assert_eq!(events.budget(Instant(2_100), 1_000), 1_000, "the reader has hung for a second");
        drop(reader);
        assert_eq!(events.budget(Instant(2_101), 1_000), 1_000);
        assert_eq!(events.lost(), 0);
    }

    #[test]
    fn a_kind_of_event_can_be_enabled_later() {
        let mut events = Events::new(&EventPlan::default(), 7).unwrap();
        assert!(EventKind::ALL.iter().all(|&kind| !events.wants(kind)));
        let mut reader = events.take_reader().unwrap();
        events.set(&EventPlan { kinds: EventKinds::FEW, ..EventPlan::default() });
        assert!(events.wants(EventKind::QuotaHit) && !events.wants(EventKind::SessionCreated));
        events.push(quota(1));
        assert_eq!((reader.next(), reader.next(), events.lost()), (Some(quota(1)), None, 0));
    }

    #[test]
    fn events_have_their_transports() {
        for set in [[true, false, false], [false, true, true], [true; 3]] {
            assert_eq!(Event::new(EventKind::QuotaHit, Instant(0)).for_transports(set).transports(), set);
        }
        assert_eq!(Transport::Udp.alone(), [false, true, false]);
    }
}
