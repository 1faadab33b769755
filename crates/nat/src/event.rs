//! What happens to state, told to whoever logs it: records of fixed size on a bounded ring, one ring an engine.
//!
//! The engine writes and never waits. Where the ring is full the event is lost, and counted; once there is room
//! again a record says how many were lost, before the next event. Kinds that nobody wants are not made at all.
//!
//! A destination (the remote end of a session) is told only where the plan says so: RFC 6888 REQ-12.

use crate::plan::{EventPlan, Transport};
use crate::session::Session;
use crate::subscriber::SubscriberKey;
use crate::time::Instant;
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_wire::DropReason;
use rtrb::{Consumer, Producer, RingBuffer};

macro_rules! event_kinds {
    ($($variant:ident, $name:literal, $help:literal;)*) => {
        /// What happened. The name is stable: logs and settings use it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum EventKind { $(#[doc = $help] $variant,)* }

        impl EventKind {
            /// All kinds, in the order of their numbers.
            pub const ALL: &'static [EventKind] = &[$(EventKind::$variant,)*];

            /// The name used in logs and settings.
            pub const fn name(self) -> &'static str {
                match self { $(EventKind::$variant => $name,)* }
            }
        }
    };
}

event_kinds! {
    SessionCreated, "session_created", "A session began.";
    SessionDeleted, "session_deleted", "A session ended.";
    BindingCreated, "binding_created", "An inside address and port got an outside address and port.";
    BindingDeleted, "binding_deleted", "An outside address and port went back to the pool.";
    BlockAssigned, "block_assigned", "A subscriber got a block of ports.";
    BlockReleased, "block_released", "A subscriber gave a block of ports back.";
    BlockKept, "block_kept", "A subscriber goes on with a block of ports that it had before a restart.";
    BindingKept, "binding_kept", "An inside address and port goes on with the outside one that it had before a restart.";
    QuotaHit, "quota_hit", "A subscriber was refused something because of a limit of its own.";
    PoolExhausted, "pool_exhausted", "A pool had nothing left that a subscriber may have.";
    ThresholdHigh, "threshold_high", "A pool or table has become fuller than its threshold.";
    ThresholdLow, "threshold_low", "A pool or table that was fuller than its threshold is a tenth below it.";
    EventsLost, "events_lost", "Events were lost because the ring was full.";
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventKinds(u16);

impl EventKinds {
    /// None.
    pub const NONE: EventKinds = EventKinds(0);
    /// What a log of a block allocation needs, and what an operator has to know of.
    pub const FEW: EventKinds = EventKinds::NONE
        .with(EventKind::BlockAssigned)
        .with(EventKind::BlockReleased)
        .with(EventKind::QuotaHit)
        .with(EventKind::PoolExhausted)
        .with(EventKind::ThresholdHigh)
        .with(EventKind::ThresholdLow);

    /// These and one more.
    pub const fn with(self, kind: EventKind) -> EventKinds {
        EventKinds(self.0 | 1 << kind as u8)
    }

    /// Those of these that are not among others.
    pub const fn without(self, others: EventKinds) -> EventKinds {
        EventKinds(self.0 & !others.0)
    }

    /// These and those.
    pub const fn and(self, others: EventKinds) -> EventKinds {
        EventKinds(self.0 | others.0)
    }

    /// Whether a kind is among them.
    #[inline(always)]
    pub const fn has(self, kind: EventKind) -> bool {
        self.0 & (1 << kind as u8) != 0
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// In the order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = EventKind> {
        EventKind::ALL.iter().copied().filter(move |&kind| self.has(kind))
    }
}

/// What a threshold is of.
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
    /// For which transports: a bit each, in the order of [`Transport`].
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

    /// For some transports, in the order of [`Transport`].
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

    /// For which transports, in the order of [`Transport`].
    pub fn transports(&self) -> [bool; 3] {
        core::array::from_fn(|t| self.transports & (1 << t) != 0)
    }
}

/// Where an engine's events come out, on any thread.
pub struct EventReader(Consumer<Event>);

impl EventReader {
    /// The next event, in the order in which they happened.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Event> {
        self.0.pop().ok()
    }

    /// Whether the engine is gone: what is read now is all there will be.
    pub fn is_abandoned(&self) -> bool {
        self.0.is_abandoned()
    }
}

/// The engine's end.
pub(crate) struct Events {
    kinds: EventKinds,
    destinations: bool,
    ring: Producer<Event>,
    reader: Option<EventReader>,
    /// Lost since the last record that said so.
    unreported: u64,
    lost: u64,
}

impl Events {
    /// Allocates the ring, also where no kind is wanted yet: somebody may want to hear later.
    pub(crate) fn new(plan: &EventPlan) -> Self {
        let (mut ring, consumer) = RingBuffer::new((plan.ring_len as usize).max(2));
        if gatun_mem::is_taken_at_once() {
            take_memory(&mut ring);
        }
        let (kinds, destinations, reader) = (plan.kinds, plan.destinations, Some(EventReader(consumer)));
        Events { kinds, destinations, ring, reader, unreported: 0, lost: 0 }
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

    /// Whether so many events of what goes on after a restart, or does not, will not be lost: whoever reads them has come
    /// after, or nobody wants them.
    pub(crate) fn has_room_for(&self, events: usize) -> bool {
        let told = [EventKind::BlockKept, EventKind::BindingKept, EventKind::SessionDeleted];
        let wanted = told.iter().any(|&kind| self.wants(kind));
        let ring = &self.ring;
        let is_read = wanted && self.reader.is_none() && !ring.is_abandoned();
        !is_read || ring.slots() >= events.min(ring.buffer().capacity())
    }

    /// A session, or its binding.
    #[inline(never)]
    pub(crate) fn tell_session(&mut self, kind: EventKind, at: Instant, pool: usize, session: &Session) {
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
        self.tell(event);
    }

    /// Puts an event on the ring, or counts it as lost.
    #[inline(never)]
    pub(crate) fn tell(&mut self, event: Event) {
        self.report_loss(event.at);
        if self.unreported > 0 || self.ring.push(event).is_err() {
            self.unreported += 1;
            self.lost += 1;
        }
    }

    /// Says how many were lost, if any were and there is room.
    pub(crate) fn report_loss(&mut self, now: Instant) {
        if self.unreported == 0 {
            return;
        }
        let loss = Event { value: self.unreported, ..Event::new(EventKind::EventsLost, now) };
        if self.ring.push(loss).is_ok() {
            self.unreported = 0;
        }
    }
}

/// Writes to each place of an empty ring, and leaves it empty.
fn take_memory(ring: &mut Producer<Event>) {
    let nothing = Event::new(EventKind::EventsLost, Instant(0));
    let Ok(mut places) = ring.write_chunk_uninit(ring.slots()) else { return };
    let (first, second) = places.as_mut_slices();
    for place in first.iter_mut().chain(second) {
        place.write(nothing);
    }
    // Dropped without a commit, it has put nothing into the ring.
}

/// The bit of one transport.
pub(crate) fn only(transport: Transport) -> [bool; 3] {
    core::array::from_fn(|t| t == transport as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(ring_len: u32) -> (Events, EventReader) {
        let kinds = EventKinds::FEW;
        let mut events = Events::new(&EventPlan { kinds, ring_len, ..EventPlan::default() });
        let reader = events.take_reader().unwrap();
        assert!(events.take_reader().is_none());
        (events, reader)
    }

    fn quota(n: u64) -> Event {
        Event { value: n, ..Event::new(EventKind::QuotaHit, Instant(n)) }
    }

    // proves: LOG-4
    #[test]
    fn what_is_lost_is_counted_and_said_once_there_is_room() {
        let (mut events, mut reader) = events(4);
        (0..10).for_each(|n| events.tell(quota(n)));
        assert_eq!(events.lost(), 6);
        (0..3).for_each(|n| assert_eq!(reader.next(), Some(quota(n))));
        events.tell(quota(10));
        assert_eq!(reader.next(), Some(quota(3)));
        let lost = Event { value: 6, ..Event::new(EventKind::EventsLost, Instant(10)) };
        assert_eq!((reader.next(), reader.next(), reader.next()), (Some(lost), Some(quota(10)), None));
        // Also where no further event comes.
        (0..5).for_each(|n| events.tell(quota(n)));
        events.report_loss(Instant(50));
        (0..4).for_each(|n| assert_eq!(reader.next(), Some(quota(n))));
        events.report_loss(Instant(60));
        let lost = Event { value: 1, ..Event::new(EventKind::EventsLost, Instant(60)) };
        assert_eq!((reader.next(), reader.next()), (Some(lost), None));
        drop(events);
        assert!(reader.is_abandoned());
    }

    #[test]
    fn where_nobody_wants_any_somebody_may_later() {
        let mut events = Events::new(&EventPlan::default());
        assert!(EventKind::ALL.iter().all(|&kind| !events.wants(kind)));
        let mut reader = events.take_reader().unwrap();
        events.set(&EventPlan { kinds: EventKinds::FEW, ..EventPlan::default() });
        assert!(events.wants(EventKind::QuotaHit) && !events.wants(EventKind::SessionCreated));
        events.tell(quota(1));
        assert_eq!((reader.next(), reader.next(), events.lost()), (Some(quota(1)), None, 0));
    }

    #[test]
    fn transports_are_told_apart() {
        for set in [[true, false, false], [false, true, true], [true; 3]] {
            assert_eq!(Event::new(EventKind::QuotaHit, Instant(0)).for_transports(set).transports(), set);
        }
        assert_eq!(only(Transport::Udp), [false, true, false]);
    }
}
