//! Events: each change of state is reported once, immediately and in order. The model computes the expected
//! event and compares. If the engine had a choice, its event shows what it chose.

use super::Model;
use super::bib::{Binding, Session};
use super::ends::End4;
use super::subscribers::Owner;
use gatun_nat::event::Gauge;
use gatun_nat::{Event, EventKind};
use gatun_wire::DropReason;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Content of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EventContent {
    pub(super) kind: EventKind,
    pub(super) at: u64,
    pub(super) value: u64,
    pub(super) total: u64,
    pub(super) inside: (Ipv6Addr, u16),
    pub(super) outside: End4,
    pub(super) last: u16,
    pub(super) remote: End4,
    pub(super) transports: [bool; 3],
    pub(super) instance: usize,
    pub(super) pool: usize,
    pub(super) reason: Option<DropReason>,
    pub(super) gauge: Option<Gauge>,
}

impl EventContent {
    fn of(e: &Event) -> EventContent {
        EventContent {
            kind: e.kind,
            at: e.at.0,
            value: e.value,
            total: e.total,
            inside: (e.inside(), e.inside_port),
            outside: (e.outside(), e.outside_port),
            last: e.outside_last,
            remote: (e.remote(), e.remote_port),
            transports: e.transports(),
            instance: e.instance.into(),
            pool: e.pool.into(),
            reason: e.reason,
            gauge: e.gauge,
        }
    }

    pub(super) fn nothing(kind: EventKind, at: u64) -> EventContent {
        let nobody = (Ipv4Addr::UNSPECIFIED, 0);
        EventContent {
            kind,
            at,
            value: 0,
            total: 0,
            inside: (Ipv6Addr::UNSPECIFIED, 0),
            outside: nobody,
            last: 0,
            remote: nobody,
            transports: [false; 3],
            instance: 0,
            pool: 0,
            reason: None,
            gauge: None,
        }
    }

    pub(super) fn of_owner(self, (instance, prefix): Owner) -> EventContent {
        EventContent { instance, inside: (Ipv6Addr::from(prefix), 0), ..self }
    }
}

impl Model {
    /// Takes the engine's events of the next burst or sweep.
    pub fn hear(&mut self, events: impl IntoIterator<Item = Event>) {
        self.events.extend(events.into_iter().map(|e| EventContent::of(&e)));
    }

    /// Checks the events at the end of a burst or sweep.
    ///
    /// # Errors
    /// Returns the first event that is unexpected or missing.
    pub fn has_heard_all(&mut self) -> Result<(), String> {
        if let Some(what) = self.misheard.take() {
            return Err(what);
        }
        match self.events.pop_front() {
            Some(event) => Err(format!("unexpected event: {event:?}")),
            None => Ok(()),
        }
    }

    /// Expects an event next.
    pub(super) fn tell(&mut self, must: EventContent) {
        let told = self.events.pop_front();
        if told.as_ref() != Some(&must) && self.misheard.is_none() {
            self.misheard = Some(format!("event\n  engine {told:?}\n  model  {must:?}"));
        }
    }

    /// Notes a choice of the engine that no rule allows.
    pub(super) fn object(&mut self, what: String) {
        self.misheard.get_or_insert(what);
    }

    /// Port that the engine has chosen for the next binding.
    pub(super) fn chosen(&self) -> Option<End4> {
        let next = self.events.iter().find(|e| e.kind != EventKind::BlockAssigned)?;
        (next.kind == EventKind::BindingCreated).then_some(next.outside)
    }

    /// Outside end of this session, if the engine made it next, without a new port.
    pub(super) fn joined(&self, inside: (Ipv6Addr, u16), remote: End4) -> Option<End4> {
        let next = self.events.front()?;
        let is_it = next.kind == EventKind::SessionCreated && (next.inside, next.remote) == (inside, remote);
        is_it.then_some(next.outside)
    }

    /// Outside end, and perhaps remote end, of the session that the engine ended next.
    pub(super) fn next_ended(&self) -> Option<(usize, End4, End4)> {
        let mut all = self.events.iter();
        // If blocks do not linger, the block of the session's port is released first.
        let event = all.find(|e| e.kind != EventKind::BlockReleased)?;
        let transport = event.transports.iter().position(|&on| on)?;
        (event.kind == EventKind::SessionDeleted).then_some((transport, event.outside, event.remote))
    }

    pub(super) fn tell_session(&mut self, kind: EventKind, b: &Binding, s: &Session) {
        let of_session = matches!(kind, EventKind::SessionCreated | EventKind::SessionDeleted);
        let nobody = (Ipv4Addr::UNSPECIFIED, 0);
        self.tell(EventContent {
            inside: if of_session { s.inside } else { b.inside },
            outside: b.outside,
            last: b.outside.1,
            remote: if of_session { s.remote } else { nobody },
            transports: only(b.transport),
            instance: b.instance,
            pool: self.rules[b.instance].pool,
            ..EventContent::nothing(kind, self.now)
        });
    }

    /// Expects events for the pool and the tables that have crossed the threshold: upwards at the threshold,
    /// downwards ten percentage points below it.
    pub(super) fn tell_thresholds(&mut self, pool: usize, transport: usize) {
        if self.settling.is_some() {
            return self.adopt_thresholds();
        }
        let percent = u64::from(self.plan.events.threshold);
        let of_pool = (self.ports_used(pool, transport), self.ports_total(pool, transport));
        let sessions = (self.session_count() as u64, u64::from(self.plan.limits.sessions_max));
        let subscribers = (self.subscribers.len() as u64, u64::from(self.plan.limits.subscribers_max));
        let gauges =
            [(Gauge::PoolPorts, of_pool), (Gauge::Sessions, sessions), (Gauge::Subscribers, subscribers)];
        for (gauge, (value, total)) in gauges {
            let high = match gauge {
                Gauge::PoolPorts => &mut self.high.pools[pool][transport],
                Gauge::Sessions => &mut self.high.sessions,
                Gauge::Subscribers => &mut self.high.subscribers,
            };
            let crossed = match *high {
                false => total > 0 && value * 100 >= total * percent,
                true => value * 100 < total * percent.saturating_sub(10),
            };
            if !crossed {
                continue;
            }
            *high = !*high;
            let kind = if *high { EventKind::ThresholdHigh } else { EventKind::ThresholdLow };
            let told =
                EventContent { value, total, gauge: Some(gauge), ..EventContent::nothing(kind, self.now) };
            self.tell(match gauge {
                Gauge::PoolPorts => EventContent { pool, transports: only(transport), ..told },
                _ => told,
            });
        }
    }

    /// Accepts the engine's threshold events while a change settles: only the engine knows which addresses it
    /// still counts by the old rules.
    fn adopt_thresholds(&mut self) {
        let crosses = |e: &EventContent| matches!(e.kind, EventKind::ThresholdHigh | EventKind::ThresholdLow);
        while let Some(told) = self.events.pop_front_if(|e| crosses(e)) {
            let high = match told.gauge {
                Some(Gauge::PoolPorts) => {
                    let transport = told.transports.iter().position(|&on| on).unwrap_or(0);
                    &mut self.high.pools[told.pool][transport]
                }
                Some(Gauge::Subscribers) => &mut self.high.subscribers,
                _ => &mut self.high.sessions,
            };
            *high = told.kind == EventKind::ThresholdHigh;
        }
    }

    /// Expects the event for a subscriber that was refused a session: at most one in ten seconds for its
    /// quota, one a second for an exhausted pool.
    pub(super) fn tell_refused(&mut self, reason: DropReason, owner: Owner, transport: usize) {
        use DropReason::*;
        let now = self.now;
        let pool = self.rules[owner.0].pool;
        let (kind, due) = match reason {
            SubscriberPortQuota | SubscriberBlockQuota | SubscriberSessionQuota | SubscriberRate => {
                let Some(s) = self.subscribers.iter_mut().find(|s| s.owner == owner) else { return };
                let window = Some(now / 10_000);
                (EventKind::QuotaHit, std::mem::replace(&mut s.told, window) != window)
            }
            PoolEmpty | PortsExhausted | BlockNone | HoldDownAll => {
                let last = &mut self.high.exhausted[pool][transport];
                let due = last.is_none_or(|at| now - at >= 1_000);
                if due {
                    *last = Some(now);
                }
                (EventKind::PoolExhausted, due)
            }
            _ => return,
        };
        if due {
            let told = EventContent::nothing(kind, now).of_owner(owner);
            self.tell(EventContent { pool, reason: Some(reason), transports: only(transport), ..told });
        }
    }
}

/// Reported states of gauges.
#[derive(Clone, Debug, Default)]
pub(super) struct GaugeStates {
    pub(super) pools: Vec<[bool; 3]>,
    pub(super) sessions: bool,
    pub(super) subscribers: bool,
    pub(super) exhausted: Vec<[Option<u64>; 3]>,
}

impl GaugeStates {
    /// Nothing reported yet.
    pub(super) fn none(pools: usize) -> GaugeStates {
        GaugeStates {
            pools: vec![[false; 3]; pools],
            exhausted: vec![[None; 3]; pools],
            ..GaugeStates::default()
        }
    }
}

pub(super) fn only(transport: usize) -> [bool; 3] {
    std::array::from_fn(|t| t == transport)
}
