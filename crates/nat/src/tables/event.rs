//! Events: records of fixed size on two bounded rings an engine, for whoever logs them.
//!
//! ```text
//!   state     blocks, bindings, quotas: the log, later the state feed. Numbered; a lost one leaves a gap
//!   sessions  all else. Each has the number of the state record that it comes before
//! ```
//! A packet never waits. If a ring is full the event is lost, and counted; once there is room again a record says how many
//! were lost, before the next event. Work that can wait (sweep, clear, reload) stops where a ring is half full, until the
//! reader has caught up (`Events::budget`), so that many ends at once lose nothing. Kinds that nobody wants are not made.
//!
//! A destination (the remote end of a session) is told only where the plan says so: RFC 6888 REQ-12.

use crate::base::plan::EventPlan;
use crate::base::time::Instant;
use crate::tables::session::Session;
use crate::tables::subscriber::SubscriberKey;
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_wire::DropReason;
use rtrb::{Consumer, Producer, RingBuffer};

pub use crate::base::event_kind::{EventKind, EventKinds};

/// Gauge that a threshold is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gauge {
    /// Ports of the pool and transport that the event names.
    PoolPorts,
    /// Sessions.
    Sessions,
    /// Subscribers.
    Subscribers,
}

/// One event: a record of 64 bytes. Which fields say something depends on the kind; the others are `None` or zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, in the engine's time.
    pub at: Instant,
    /// Events lost, or how much is used where a threshold was crossed.
    pub value: u64,
    /// All there is, where a threshold was crossed.
    pub total: u64,
    /// The inside address, or the subscriber's prefix: of blocks and quotas. IPv4 ones as ::ffff:a.b.c.d.
    pub(crate) inside: [u8; 16],
    pub(crate) outside: [u8; 4],
    pub(crate) remote: [u8; 4],
    /// Inside port (ICMP: identifier).
    pub inside_port: u16,
    /// Outside port, or the first one of a block.
    pub outside_port: u16,
    /// The last port of a block.
    pub outside_last: u16,
    /// The remote port, where destinations are told.
    pub remote_port: u16,
    /// What.
    pub kind: EventKind,
    /// For which transports: a bit each, in the order of [`Transport`](crate::base::plan::Transport).
    pub(crate) transports: u8,
    /// Number of the instance.
    pub instance: u8,
    /// Number of the pool.
    pub pool: u8,
    /// Which limit or pool, by the reason of the packet's drop.
    pub reason: Option<DropReason>,
    /// Of which gauge a threshold was crossed.
    pub gauge: Option<Gauge>,
}

const _: () = assert!(size_of::<Event>() <= 64);

impl Event {
    /// An event of which nothing more is known.
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

    /// With an inside address, or the first one of a subscriber's, and a port.
    pub fn with_inside(mut self, address: Ipv6Addr, port: u16) -> Event {
        (self.inside, self.inside_port) = (address.octets(), port);
        self
    }

    /// With a remote address and port.
    pub fn with_remote(mut self, address: Ipv4Addr, port: u16) -> Event {
        (self.remote, self.remote_port) = (address.octets(), port);
        self
    }

    /// With an outside address, and its port or the first and last one of a block.
    pub fn with_outside(mut self, address: Ipv4Addr, first: u16, last: u16) -> Event {
        self.outside = address.octets();
        (self.outside_port, self.outside_last) = (first, last);
        self
    }

    /// For some transports, in the order of [`Transport`](crate::base::plan::Transport).
    pub fn for_transports(mut self, transports: [bool; 3]) -> Event {
        self.transports = transports.iter().rev().fold(0, |bits, &on| bits << 1 | u8::from(on));
        self
    }

    /// The inside address, or the first one of the subscriber's.
    pub fn inside(&self) -> Ipv6Addr {
        self.inside.into()
    }

    /// The outside address; unspecified where the event has none.
    pub fn outside(&self) -> Ipv4Addr {
        self.outside.into()
    }

    /// The remote address; unspecified where destinations are not told.
    pub fn remote(&self) -> Ipv4Addr {
        self.remote.into()
    }

    /// For which transports, in the order of [`Transport`](crate::base::plan::Transport).
    pub fn transports(&self) -> [bool; 3] {
        core::array::from_fn(|t| self.transports & (1 << t) != 0)
    }
}

/// The place of a state record among all of its engine's. A number that is missing is a record that was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// Another engine, as after a restart, has another one.
    pub generation: u64,
    /// From 0 on, without gaps but for lost records.
    pub number: u64,
}

/// An event on a ring, and its number among state records, or that of the state record it comes before.
type Numbered = (Event, u64);

/// Where an engine's events come out, on any thread.
pub struct EventReader {
    state: Consumer<Numbered>,
    sessions: Consumer<Numbered>,
    generation: u64,
}

impl EventReader {
    /// The next event, in the order in which they happened.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Event> {
        self.next_numbered().map(|(event, _)| event)
    }

    /// The next event; of a state record, or a loss of such, with its place.
    pub fn next_numbered(&mut self) -> Option<(Event, Option<Sequence>)> {
        let mut session = self.sessions.peek().ok().map(|(_, before)| *before);
        let state = self.state.peek().ok().map(|(_, number)| *number);
        if session.is_none() && state.is_some() {
            // One that came before that state record is there by now.
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

    /// Whether the engine is gone: what is read now is all there will be.
    pub fn is_abandoned(&self) -> bool {
        self.state.is_abandoned()
    }
}

/// A ring, and what did not fit.
struct Ring {
    ring: Producer<Numbered>,
    /// Lost since the last record that said so.
    unreported: u64,
}

impl Ring {
    /// Puts an event on it, after a record of what was lost before; `false` where it is lost.
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

    /// Places that work that can wait may take: a half of the ring is for packets.
    fn spare(&self) -> usize {
        self.ring.slots().saturating_sub(self.ring.buffer().capacity() / 2)
    }
}

/// The engine's end.
pub(crate) struct Events {
    kinds: EventKinds,
    destinations: bool,
    state: Ring,
    sessions: Ring,
    reader: Option<EventReader>,
    /// The number of the next state record.
    next: u64,
    lost: u64,
    /// Since when work waits for the reader, and the room there was then.
    waits: Option<(Instant, usize)>,
}

/// Events that the end of one session makes, at most: of session, binding and block.
const EVENTS_OF_AN_END: usize = 4;
/// How long work waits for a reader that takes nothing: it may hang, and sessions have to end.
const PATIENCE_MS: u64 = 1_000;

/// Places of the rings: of state, and of all else.
fn lens(plan: &EventPlan) -> (u32, u32) {
    (plan.state_ring_len.max(2), plan.ring_len.max(2))
}

impl Events {
    /// Bytes of the rings.
    pub(crate) fn bytes(plan: &EventPlan) -> u64 {
        let (state, sessions) = lens(plan);
        (u64::from(state) + u64::from(sessions)) * size_of::<Numbered>() as u64
    }

    /// Allocates the rings, also where no kind is wanted yet: somebody may want to hear later.
    pub(crate) fn new(plan: &EventPlan, generation: u64) -> Self {
        let (state, sessions) = lens(plan);
        let (state, state_out) = RingBuffer::new(state as usize);
        let (sessions, sessions_out) = RingBuffer::new(sessions as usize);
        let ring = |mut ring| {
            if gatun_mem::is_taken_at_once() {
                take_memory(&mut ring);
            }
            Ring { ring, unreported: 0 }
        };
        Events {
            kinds: plan.kinds,
            destinations: plan.destinations,
            state: ring(state),
            sessions: ring(sessions),
            reader: Some(EventReader { state: state_out, sessions: sessions_out, generation }),
            next: 0,
            lost: 0,
            waits: None,
        }
    }

    /// Other kinds from now on.
    pub(crate) fn set(&mut self, plan: &EventPlan) {
        (self.kinds, self.destinations) = (plan.kinds, plan.destinations);
    }

    /// Makes no events of some kinds from now on; gives what was wanted before.
    pub(crate) fn all_but(&mut self, kinds: EventKinds) -> EventKinds {
        let fewer = self.kinds.without(kinds);
        core::mem::replace(&mut self.kinds, fewer)
    }

    /// Makes events of these kinds.
    pub(crate) fn want(&mut self, kinds: EventKinds) {
        self.kinds = kinds;
    }

    /// Where they come out; once.
    pub(crate) fn take_reader(&mut self) -> Option<EventReader> {
        self.reader.take()
    }

    /// Events lost since the engine was built.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Whether events of a kind are made.
    #[inline(always)]
    pub(crate) fn wants(&self, kind: EventKind) -> bool {
        self.kinds.has(kind)
    }

    /// Whether somebody reads.
    fn is_read(&self) -> bool {
        self.reader.is_none() && !self.state.ring.is_abandoned()
    }

    /// Whether so many events of what goes on after a restart, or does not, will not be lost: whoever reads them has come
    /// after, or nobody wants them.
    pub(crate) fn has_room_for(&self, events: usize) -> bool {
        let told = [EventKind::BlockKept, EventKind::BindingKept, EventKind::SessionDeleted];
        if !told.iter().any(|&kind| self.wants(kind)) || !self.is_read() {
            return true;
        }
        let has_room = |ring: &Ring| ring.ring.slots() >= events.min(ring.ring.buffer().capacity());
        has_room(&self.state) && has_room(&self.sessions)
    }

    /// The part of a budget of ends (of sessions, bindings or blocks) that loses no event. None is left where the reader has
    /// fallen behind; a reader that takes nothing for a second is not waited for.
    pub(crate) fn budget(&mut self, now: Instant, ends: usize) -> usize {
        let state = EventKinds::STATE.without(EventKinds::NONE.with(EventKind::QuotaHit));
        let wants = |kinds: EventKinds| kinds.iter().any(|kind| self.wants(kind));
        let mut spare = usize::MAX;
        if wants(state) {
            spare = self.state.spare();
        }
        if wants(EventKinds::NONE.with(EventKind::SessionDeleted)) {
            spare = spare.min(self.sessions.spare());
        }
        if spare / EVENTS_OF_AN_END >= ends || !self.is_read() {
            self.waits = None;
            return ends;
        }
        let (since, room) = *self.waits.get_or_insert((now, spare));
        // Records of packets and of ends take room: the reader reads if there is more than at the last time.
        let since = if spare > room { now } else { since };
        self.waits = Some((since, spare));
        if now.since_ms(since) >= PATIENCE_MS { ends } else { spare / EVENTS_OF_AN_END }
    }

    /// A session, or its binding.
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

    /// Puts an event on its ring, or counts it as lost.
    #[inline(never)]
    pub(crate) fn push(&mut self, event: Event) {
        let is_state = EventKinds::STATE.has(event.kind);
        let ring = if is_state { &mut self.state } else { &mut self.sessions };
        self.lost += u64::from(!ring.push(event, self.next));
        // A lost one has its number, too: the gap tells of it.
        self.next += u64::from(is_state);
    }

    /// Says how many were lost, if any were and there is room.
    pub(crate) fn report_loss(&mut self, now: Instant) {
        self.state.report_loss(now, self.next);
        self.sessions.report_loss(now, self.next);
    }
}

/// Writes to each place of an empty ring, and leaves it empty.
fn take_memory(ring: &mut Producer<Numbered>) {
    let nothing = (Event::new(EventKind::EventsLost, Instant(0)), 0);
    let Ok(mut places) = ring.write_chunk_uninit(ring.slots()) else { return };
    let (first, second) = places.as_mut_slices();
    for place in first.iter_mut().chain(second) {
        place.write(nothing);
    }
    // Dropped without a commit, it has put nothing into the ring.
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::plan::Transport;

    fn events(ring_len: u32) -> (Events, EventReader) {
        let kinds = EventKinds::FEW;
        let mut events = Events::new(&EventPlan { kinds, ring_len, ..EventPlan::default() }, 7);
        let reader = events.take_reader().unwrap();
        assert!(events.take_reader().is_none());
        (events, reader)
    }

    fn quota(n: u64) -> Event {
        Event { value: n, ..Event::new(EventKind::QuotaHit, Instant(n)) }
    }

    /// An event that is no state record.
    fn crossed(n: u64) -> Event {
        Event { value: n, ..Event::new(EventKind::ThresholdHigh, Instant(n)) }
    }

    // proves: LOG-4
    #[test]
    fn what_is_lost_is_counted_and_said_once_there_is_room() {
        let (mut events, mut reader) = events(4);
        (0..10).for_each(|n| events.push(crossed(n)));
        assert_eq!(events.lost(), 6);
        (0..3).for_each(|n| assert_eq!(reader.next(), Some(crossed(n))));
        events.push(crossed(10));
        assert_eq!(reader.next(), Some(crossed(3)));
        let lost = Event { value: 6, ..Event::new(EventKind::EventsLost, Instant(10)) };
        assert_eq!((reader.next(), reader.next(), reader.next()), (Some(lost), Some(crossed(10)), None));
        // Also where no further event comes.
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
        // Others fill their own ring alone.
        (0..100).for_each(|n| events.push(crossed(n)));
        events.push(quota(3));
        (0..4).for_each(|n| assert_eq!(next(), Some((n, None))));
        assert_eq!(next(), Some((3, Some((7, 1)))));
        let len = u64::from(EventPlan::default().state_ring_len);
        (0..len + 5).for_each(|n| events.push(quota(n)));
        (0..len).for_each(|n| assert_eq!(next(), Some((n, Some((7, 2 + n))))));
        events.report_loss(Instant(0));
        events.push(quota(9));
        assert_eq!(next(), Some((96, None)), "what the other ring has lost, told first as it was lost first");
        assert_eq!(next(), Some((5, Some((7, 2 + len + 5)))), "how many");
        assert_eq!(next(), Some((9, Some((7, 2 + len + 5)))), "and the gap");
    }

    #[test]
    fn work_that_can_wait_stops_at_half_a_ring_but_not_for_a_reader_that_hangs_or_is_not_there() {
        let (mut events, mut reader) = events(4);
        events.set(&EventPlan { kinds: EventKinds::STATE, ..EventPlan::default() });
        let len = EventPlan::default().state_ring_len as usize;
        let all = len / 2 / EVENTS_OF_AN_END;
        assert_eq!(events.budget(Instant(0), 1_000_000), all);
        (0..len / 2).for_each(|n| events.push(quota(n as u64)));
        assert_eq!(events.budget(Instant(10), 100), 0);
        assert_eq!(events.budget(Instant(900), 100), 0);
        (0..400).for_each(|_| assert!(reader.next().is_some()));
        assert_eq!(events.budget(Instant(1_100), 1_000), 100, "it has read some");
        assert_eq!(events.budget(Instant(2_100), 1_000), 1_000, "it has hung for a second");
        drop(reader);
        assert_eq!(events.budget(Instant(2_101), 1_000), 1_000);
        assert_eq!(events.lost(), 0);
    }

    #[test]
    fn where_nobody_wants_any_somebody_may_later() {
        let mut events = Events::new(&EventPlan::default(), 7);
        assert!(EventKind::ALL.iter().all(|&kind| !events.wants(kind)));
        let mut reader = events.take_reader().unwrap();
        events.set(&EventPlan { kinds: EventKinds::FEW, ..EventPlan::default() });
        assert!(events.wants(EventKind::QuotaHit) && !events.wants(EventKind::SessionCreated));
        events.push(quota(1));
        assert_eq!((reader.next(), reader.next(), events.lost()), (Some(quota(1)), None, 0));
    }

    #[test]
    fn transports_are_told_apart() {
        for set in [[true, false, false], [false, true, true], [true; 3]] {
            assert_eq!(Event::new(EventKind::QuotaHit, Instant(0)).for_transports(set).transports(), set);
        }
        assert_eq!(Transport::Udp.alone(), [false, true, false]);
    }
}
