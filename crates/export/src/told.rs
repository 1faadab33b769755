//! An event, its time of day, and names for its numbers.

use gatun_nat::plan::{Plan, Transport};
use gatun_nat::{Event, EventKind};
use jiff::Timestamp;
use std::net::Ipv6Addr;
use std::sync::Arc;

/// Names of what events give numbers of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Each with the length of its subscribers' prefixes; those of NAT64 first.
    instances: Vec<(String, u8)>,
    pools: Vec<String>,
    /// The most sessions, and the most ports, of a subscriber.
    limits: (u32, u32),
}

impl Names {
    /// Those of a plan.
    pub fn of(plan: &Plan) -> Names {
        let of64 = plan.nat64.iter().map(|n| (n.name.clone(), n.subscriber_len));
        Names {
            instances: of64.chain(plan.nat44.iter().map(|n| (n.name.clone(), n.subscriber_len))).collect(),
            pools: plan.pools.iter().map(|p| p.name.clone()).collect(),
            limits: (plan.limits.sessions_per_subscriber, plan.limits.ports_per_subscriber),
        }
    }

    /// The pool that an event names.
    pub fn pool(&self, event: &Event) -> Option<&str> {
        self.pools.get(usize::from(event.pool)).map(String::as_str)
    }

    /// The instance that an event names.
    pub fn instance(&self, event: &Event) -> Option<&str> {
        self.instances.get(usize::from(event.instance)).map(|(name, _)| name.as_str())
    }

    /// The limit that a subscriber has reached.
    pub(crate) fn limit(&self, event: &Event) -> u64 {
        let of_ports = event.reason == Some(gatun_wire::DropReason::SubscriberPortQuota);
        if of_ports { self.limits.1.into() } else { self.limits.0.into() }
    }

    /// Bits of an inside address that say whose it is.
    pub(crate) fn subscriber_len(&self, event: &Event) -> u8 {
        let len = self.instances.get(usize::from(event.instance)).map_or(128, |(_, len)| *len);
        if event.inside().to_ipv4_mapped().is_some() { len.min(32) } else { len }
    }

    /// The prefix of the subscriber that an event names.
    pub fn subscriber(&self, event: &Event) -> String {
        format!("{}/{}", address(event.inside()), self.subscriber_len(event))
    }
}

/// IPv4 addresses as such.
pub(crate) fn address(inside: Ipv6Addr) -> String {
    inside.to_ipv4_mapped().map_or_else(|| inside.to_string(), |v4| v4.to_string())
}

/// An event to be told.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// When, milliseconds since 1970 (UTC).
    pub at_ms: u64,
    /// The worker.
    pub worker: u16,
    /// What.
    pub event: Event,
}

/// Events that are told together.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Names of their numbers.
    pub names: Arc<Names>,
    /// In the order in which they happened at each worker.
    pub events: Vec<Told>,
}

/// Formats milliseconds since 1970 by RFC 3339, in UTC.
pub(crate) fn rfc3339(at_ms: u64) -> String {
    let time = i64::try_from(at_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    format!("{:.3}", time.unwrap_or(Timestamp::MAX))
}

/// What an event is about, and so which of its fields say something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// A session or a binding.
    Mapping,
    Block,
    Refusal,
    Crossing,
    Loss,
}

impl About {
    pub(crate) fn of(kind: EventKind) -> About {
        use EventKind::*;
        match kind {
            SessionCreated | SessionDeleted | BindingCreated | BindingDeleted | BindingKept => About::Mapping,
            BlockAssigned | BlockReleased | BlockKept => About::Block,
            QuotaHit | PoolExhausted => About::Refusal,
            ThresholdHigh | ThresholdLow => About::Crossing,
            EventsLost => About::Loss,
        }
    }
}

pub(crate) fn protocols(event: &Event) -> Vec<&'static str> {
    let all = Transport::ALL.into_iter().zip(event.transports());
    all.filter(|(_, on)| *on).map(|(transport, _)| transport.name()).collect()
}
