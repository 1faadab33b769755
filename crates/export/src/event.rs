//! Event with its time of day, and names for the numbers in it.

use gatun_nat::plan::{Plan, Transport};
use gatun_nat::{Event, EventKind};
use jiff::Timestamp;
use std::net::Ipv6Addr;
use std::sync::Arc;

/// Encoded event: the number of its template in IPFIX, and its bytes.
pub type Record = (u16, Vec<u8>);

/// Names of instances and pools that events refer to by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanNames {
    /// Name of each instance with the prefix length of its subscribers. NAT64 instances come first.
    instances: Vec<(String, u8)>,
    pools: Vec<String>,
    /// Limits of sessions and of ports per subscriber.
    limits: (u32, u32),
}

impl PlanNames {
    /// Names of a plan.
    pub fn of(plan: &Plan) -> PlanNames {
        let of64 = plan.nat64.iter().map(|n| (n.name.clone(), n.subscriber_len));
        PlanNames {
            instances: of64.chain(plan.nat44.iter().map(|n| (n.name.clone(), n.subscriber_len))).collect(),
            pools: plan.pools.iter().map(|p| p.name.clone()).collect(),
            limits: (plan.limits.sessions_per_subscriber, plan.limits.ports_per_subscriber),
        }
    }

    /// Name of an event's pool.
    pub fn pool(&self, event: &Event) -> Option<&str> {
        self.pools.get(usize::from(event.pool)).map(String::as_str)
    }

    /// Name of an event's instance.
    pub fn instance(&self, event: &Event) -> Option<&str> {
        self.instances.get(usize::from(event.instance)).map(|(name, _)| name.as_str())
    }

    /// Limit that the subscriber has reached.
    pub(crate) fn limit(&self, event: &Event) -> u64 {
        let of_ports = event.reason == Some(gatun_wire::DropReason::SubscriberPortQuota);
        if of_ports { self.limits.1.into() } else { self.limits.0.into() }
    }

    /// Prefix length of a subscriber's inside addresses.
    pub(crate) fn subscriber_len(&self, event: &Event) -> u8 {
        let len = self.instances.get(usize::from(event.instance)).map_or(128, |(_, len)| *len);
        if event.inside().to_ipv4_mapped().is_some() { len.min(32) } else { len }
    }

    /// Subscriber prefix of an event.
    pub fn subscriber(&self, event: &Event) -> String {
        format!("{}/{}", address(event.inside()), self.subscriber_len(event))
    }
}

/// Text of an address, with IPv4 addresses in dotted form.
pub(crate) fn address(inside: Ipv6Addr) -> String {
    inside.to_ipv4_mapped().map_or_else(|| inside.to_string(), |v4| v4.to_string())
}

/// Event with its time of day and worker.
#[derive(Clone, Copy, Debug)]
pub struct TimedEvent {
    /// Time in milliseconds since 1970 (UTC).
    pub at_ms: u64,
    /// Number of the worker.
    pub worker: u16,
    /// The event.
    pub event: Event,
}

/// Events that are exported together.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Names for the numbers in the events.
    pub names: Arc<PlanNames>,
    /// Events in the order in which they happened at each worker.
    pub events: Vec<TimedEvent>,
}

/// Formats milliseconds since 1970 by RFC 3339, in UTC.
pub(crate) fn rfc3339(at_ms: u64) -> String {
    let time = i64::try_from(at_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    format!("{:.3}", time.unwrap_or(Timestamp::MAX))
}

/// Subject of an event, which determines its relevant fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventSubject {
    /// A session or a binding.
    Mapping,
    Block,
    Refusal,
    Crossing,
    Loss,
}

impl EventSubject {
    pub(crate) fn of(kind: EventKind) -> EventSubject {
        use EventKind::*;
        match kind {
            SessionCreated | SessionDeleted | BindingCreated | BindingDeleted | BindingKept => {
                EventSubject::Mapping
            }
            BlockAssigned | BlockReleased | BlockKept => EventSubject::Block,
            QuotaHit | PoolExhausted => EventSubject::Refusal,
            ThresholdHigh | ThresholdLow => EventSubject::Crossing,
            EventsLost => EventSubject::Loss,
        }
    }
}

pub(crate) fn protocols(event: &Event) -> Vec<&'static str> {
    let all = Transport::ALL.into_iter().zip(event.transports());
    all.filter(|(_, on)| *on).map(|(transport, _)| transport.name()).collect()
}
