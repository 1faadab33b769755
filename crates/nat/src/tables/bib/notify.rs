//! Events for changes of the tables, and for gauges that cross their threshold.

use super::{Tables, feed};
use crate::base::plan::{Plan, Transport};
use crate::base::time::Instant;
use crate::tables::event::{Event, EventKind, Gauge};
use crate::tables::pool4::PortBlock;
use crate::tables::session::Session;
use crate::tables::subscriber::SubscriberKey;
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use gatun_wire::DropReason;

/// Minimum time between two events for the same exhausted pool.
const EXHAUSTED_EVERY_MS: u64 = 1_000;

/// Reported threshold crossings and exhaustion of pools and tables.
pub(crate) struct Gauges {
    /// Indexed by pool and transport: time of the last exhaustion event.
    exhausted: Vec<[Option<Instant>; 3]>,
    /// Indexed by pool and transport: true if the threshold is crossed.
    pools: Vec<[bool; 3]>,
    sessions: bool,
    subscribers: bool,
    percent: u64,
    sessions_max: u64,
    subscribers_max: u64,
}

impl Gauges {
    pub(crate) fn new(plan: &Plan) -> Self {
        Gauges {
            exhausted: vec![[None; 3]; plan.pools.len()],
            pools: vec![[false; 3]; plan.pools.len()],
            sessions: false,
            subscribers: false,
            percent: plan.events.threshold.into(),
            sessions_max: plan.limits.sessions_max.into(),
            subscribers_max: plan.limits.subscribers_max.into(),
        }
    }
}

/// Makes the event of a port block.
pub(super) fn block(
    kind: EventKind,
    pool: usize,
    subscriber: SubscriberKey,
    address: Ipv4Addr,
    block: &PortBlock,
) -> Event {
    let event = Event::new(kind, block.at).of(subscriber).for_transports(block.transports);
    Event { pool: pool as u8, ..event.with_outside(address, block.first, block.last) }
}

/// Returns the kind of a crossing, if `used` of `total` crosses the threshold: up at `percent`, down a tenth
/// of the total below it.
fn crossing(high: &mut bool, used: u64, total: u64, percent: u64) -> Option<EventKind> {
    let crossed = match *high {
        false => total > 0 && used * 100 >= total * percent,
        true => used * 100 < total * percent.saturating_sub(10),
    };
    if !crossed {
        return None;
    }
    *high = !*high;
    Some(if *high { EventKind::ThresholdHigh } else { EventKind::ThresholdLow })
}

impl Tables {
    pub(super) fn notify_created(&mut self, record: &Session, new_binding: bool) {
        if let Some(entries) = self.entries.get_mut(usize::from(record.instance)) {
            let t = record.transport();
            t.of_mut(&mut entries.sessions).created += u64::from(record.is_session());
            t.of_mut(&mut entries.bindings).created += u64::from(new_binding && !record.is_overloaded());
        }
        if new_binding {
            self.feed_binding(record, true);
        }
        if !record.is_session() {
            return;
        }
        let pool = self.pool_of(record.instance);
        if new_binding && self.events.wants(EventKind::BindingCreated) {
            self.notify_binding(EventKind::BindingCreated, pool, record);
        }
        if self.events.wants(EventKind::SessionCreated) {
            self.events.notify_session(EventKind::SessionCreated, self.now, pool, record);
        }
    }

    /// Reports the thresholds that a new record has crossed. The record is in all tables.
    pub(super) fn check_fuller(&mut self, record: &Session) {
        if record.is_session() {
            self.check_gauges(self.pool_of(record.instance), record.transport(), EventKind::ThresholdHigh);
        }
    }

    /// Reports a binding. For a shared port, it reports the subscriber, because the port belongs to no single
    /// inside end.
    pub(super) fn notify_binding(&mut self, kind: EventKind, pool: usize, record: &Session) {
        match self.subscribers.get(record.subscriber).filter(|_| record.is_overloaded()) {
            Some(subscriber) => {
                let (outside, port) = record.outside();
                let event = Event::new(kind, self.now).of(subscriber.key()).with_outside(outside, port, port);
                let event = event.for_transports(record.transport().alone());
                self.events.push(Event { pool: pool as u8, ..event });
            }
            None => self.events.notify_session(kind, self.now, pool, record),
        }
    }

    pub(super) fn notify_deleted(&mut self, record: &Session, binding_too: bool) {
        if let Some(entries) = self.entries.get_mut(usize::from(record.instance)) {
            let t = record.transport();
            t.of_mut(&mut entries.sessions).ended += u64::from(record.is_session());
            t.of_mut(&mut entries.bindings).ended += u64::from(binding_too && !record.is_overloaded());
        }
        if binding_too {
            self.feed_binding(record, false);
        }
        if !record.is_session() {
            return;
        }
        let pool = self.pool_of(record.instance);
        if self.events.wants(EventKind::SessionDeleted) {
            self.events.notify_session(EventKind::SessionDeleted, self.now, pool, record);
        }
        if binding_too && self.events.wants(EventKind::BindingDeleted) {
            self.notify_binding(EventKind::BindingDeleted, pool, record);
        }
        self.check_gauges(pool, record.transport(), EventKind::ThresholdLow);
    }

    pub(crate) fn notify_block(
        &mut self,
        kind: EventKind,
        instance: u8,
        subscriber: SubscriberKey,
        ended: &PortBlock,
    ) {
        if !self.events.wants(kind) && self.feed.is_none() {
            return;
        }
        let number = self.pool_of(instance);
        let address = self.pools.get(number).map_or(Ipv4Addr::UNSPECIFIED, |p| p.address(ended.address_ix));
        feed::block(&mut self.feed, kind, subscriber, address, ended);
        if self.events.wants(kind) {
            self.events.push(block(kind, number, subscriber, address, ended));
        }
    }

    /// Reports the quota or the pool for which a subscriber was refused a session.
    #[cold]
    pub(super) fn refused(&mut self, reason: DropReason, id: u32, instance: u8, transport: Transport) {
        use DropReason::*;
        let quota = self.subscribers.refused(id, reason);
        let exhausted = matches!(reason, PoolEmpty | PortsExhausted | BlockNone | HoldDownAll);
        let kind = if quota { EventKind::QuotaHit } else { EventKind::PoolExhausted };
        if !(quota || exhausted) || !self.events.wants(kind) {
            return;
        }
        let pool = self.pool_of(instance);
        let now = self.now;
        let Some(s) = self.subscribers.get_mut(id) else { return };
        let due = if quota { s.notify_quota(now) } else { self.gauges.exhausted_due(pool, transport, now) };
        if due {
            let event = Event::new(kind, now).of(s.key()).for_transports(transport.alone());
            self.events.push(Event { pool: pool as u8, reason: Some(reason), ..event });
        }
    }

    /// Checks if a pool or table has crossed its threshold in the direction of `kind`.
    #[inline]
    fn check_gauges(&mut self, pool: usize, transport: Transport, kind: EventKind) {
        if self.events.wants(kind) {
            self.check_each_gauge(pool, transport);
        }
    }

    fn check_each_gauge(&mut self, pool: usize, transport: Transport) {
        let percent = self.gauges.percent;
        let now = self.now;
        if let (Some(state), Some(high)) = (self.pools.get(pool), self.gauges.pools.get_mut(pool)) {
            let usage = state.usage(transport);
            if let Some(kind) = crossing(transport.of_mut(high), usage.used, usage.total, percent) {
                let event = Event::new(kind, now).for_transports(transport.alone());
                let (value, total, gauge) = (usage.used, usage.total, Some(Gauge::PoolPorts));
                self.notify_crossing(Event { pool: pool as u8, value, total, gauge, ..event });
            }
        }
        let (used, total) = (self.session_count() as u64, self.gauges.sessions_max);
        if let Some(kind) = crossing(&mut self.gauges.sessions, used, total, percent) {
            let gauge = Some(Gauge::Sessions);
            self.notify_crossing(Event { value: used, total, gauge, ..Event::new(kind, now) });
        }
        let (used, total) = (self.subscribers.len() as u64, self.gauges.subscribers_max);
        if let Some(kind) = crossing(&mut self.gauges.subscribers, used, total, percent) {
            let gauge = Some(Gauge::Subscribers);
            self.notify_crossing(Event { value: used, total, gauge, ..Event::new(kind, now) });
        }
    }

    fn notify_crossing(&mut self, event: Event) {
        if self.events.wants(event.kind) {
            self.events.push(event);
        }
    }
}

impl Gauges {
    /// Returns whether the exhaustion of a pool is due for a report, and blocks further reports for some
    /// time.
    fn exhausted_due(&mut self, pool: usize, transport: Transport, now: Instant) -> bool {
        debug_assert!(Transport::ALL.contains(&transport));
        let Some(last) = self.exhausted.get_mut(pool).map(|p| transport.of_mut(p)) else {
            return false;
        };
        let due = last.is_none_or(|at| now.since_ms(at) >= EXHAUSTED_EVERY_MS);
        if due {
            *last = Some(now);
        }
        due
    }
}
