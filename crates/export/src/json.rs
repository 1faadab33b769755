//! Events as JSON, one object per line.

use crate::event::{EventSubject, PlanNames, TimedEvent, address, protocols, rfc3339};
use gatun_nat::event::Gauge;
use serde::Serialize;

/// Appends the line of an event, including the newline.
pub fn line(timed: &TimedEvent, names: &PlanNames, destinations: bool, out: &mut Vec<u8>) {
    // Cannot fail: a vector accepts everything, and every key is a string.
    let _ = serde_json::to_writer(&mut *out, &EventFields::of(timed, names, destinations));
    out.push(b'\n');
}

/// Appends the line that reports losses on the way to a collector.
pub(crate) fn loss(at_ms: u64, lost: u64, out: &mut Vec<u8>) {
    let line = serde_json::json!({ "time": rfc3339(at_ms), "event": "events_lost", "where": "export", "value": lost });
    let _ = serde_json::to_writer(&mut *out, &line);
    out.push(b'\n');
}

/// Fields of an event, for JSON lines and syslog messages. Fields that the event lacks are omitted.
#[derive(Serialize)]
pub(crate) struct EventFields<'a> {
    pub(crate) time: String,
    pub(crate) event: &'static str,
    pub(crate) worker: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instance: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pool: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) protocols: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) subscriber: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) inside: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) inside_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) outside: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) outside_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) outside_ports: Option<[u16; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remote: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remote_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gauge: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) total: Option<u64>,
}

impl<'a> EventFields<'a> {
    /// Fields of an event.
    pub(crate) fn of(timed: &TimedEvent, names: &'a PlanNames, destinations: bool) -> EventFields<'a> {
        let event = &timed.event;
        let about = EventSubject::of(event.kind);
        let (mapping, block, refusal) =
            (about == EventSubject::Mapping, about == EventSubject::Block, about == EventSubject::Refusal);
        let crossing = about == EventSubject::Crossing;
        let of_pool = !crossing || event.gauge == Some(Gauge::PoolPorts);
        let remote = destinations && !event.remote().is_unspecified();
        EventFields {
            time: rfc3339(timed.at_ms),
            event: event.kind.name(),
            worker: timed.worker,
            instance: if mapping || block || refusal { names.instance(event) } else { None },
            pool: if about != EventSubject::Loss && of_pool { names.pool(event) } else { None },
            protocols: protocols(event),
            subscriber: (block || refusal).then(|| names.subscriber(event)),
            inside: mapping.then(|| address(event.inside())),
            inside_port: mapping.then_some(event.inside_port),
            outside: (mapping || block).then(|| event.outside().to_string()),
            outside_port: mapping.then_some(event.outside_port),
            outside_ports: block.then_some([event.outside_port, event.outside_last]),
            remote: remote.then(|| event.remote().to_string()),
            remote_port: remote.then_some(event.remote_port),
            reason: event.reason.map(|reason| reason.name()),
            gauge: event.gauge.map(gauge),
            value: (crossing || about == EventSubject::Loss).then_some(event.value),
            total: crossing.then_some(event.total),
        }
    }
}

fn gauge(gauge: Gauge) -> &'static str {
    match gauge {
        Gauge::PoolPorts => "pool_ports",
        Gauge::Sessions => "sessions",
        Gauge::Subscribers => "subscribers",
    }
}
