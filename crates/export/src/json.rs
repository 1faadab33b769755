//! Events as JSON, one object a line.

use crate::told::{About, Names, Told, address, protocols, rfc3339};
use gatun_nat::event::Gauge;
use serde::Serialize;

/// Appends the line of an event, and the end of the line.
pub fn line(told: &Told, names: &Names, destinations: bool, out: &mut Vec<u8>) {
    // Cannot fail: a vector takes everything, and every key is a text.
    let _ = serde_json::to_writer(&mut *out, &Line::of(told, names, destinations));
    out.push(b'\n');
}

/// Appends the line that tells of losses on the way to a collector.
pub(crate) fn loss(at_ms: u64, lost: u64, out: &mut Vec<u8>) {
    let line = serde_json::json!({ "time": rfc3339(at_ms), "event": "events_lost", "where": "export", "value": lost });
    let _ = serde_json::to_writer(&mut *out, &line);
    out.push(b'\n');
}

/// Fields of an event, as a JSON line and as a syslog message have them; absent ones are left out.
#[derive(Serialize)]
pub(crate) struct Line<'a> {
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

impl<'a> Line<'a> {
    /// Fields of an event.
    pub(crate) fn of(told: &Told, names: &'a Names, destinations: bool) -> Line<'a> {
        let event = &told.event;
        let about = About::of(event.kind);
        let (mapping, block, refusal) =
            (about == About::Mapping, about == About::Block, about == About::Refusal);
        let crossing = about == About::Crossing;
        let of_pool = !crossing || event.gauge == Some(Gauge::PoolPorts);
        let remote = destinations && !event.remote().is_unspecified();
        Line {
            time: rfc3339(told.at_ms),
            event: event.kind.name(),
            worker: told.worker,
            instance: if mapping || block || refusal { names.instance(event) } else { None },
            pool: if about != About::Loss && of_pool { names.pool(event) } else { None },
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
            value: (crossing || about == About::Loss).then_some(event.value),
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
