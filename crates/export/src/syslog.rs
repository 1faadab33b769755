//! Events as syslog messages: RFC 5424 with structured data, and octet-counting frames on TCP (RFC 6587 3.4.1).

use crate::event::{EventSubject, PlanNames, TimedEvent, address, protocols};
use crate::json::gauge;
use gatun_logstore::time::rfc3339;
use gatun_nat::EventKind;
use std::fmt::Write as _;

/// local0 (RFC 5424 6.2.1).
const FACILITY: u8 = 16;
/// Name of the structured data: Gatun's own, with the enterprise number for documentation (RFC 5612).
const SD_ID: &str = "gatun@32473";

/// Sender in the header of each message.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    /// Host name, or "-".
    pub(crate) host: String,
    pub(crate) pid: u32,
}

/// Severity: ordinary events, and events that need an operator's attention (RFC 5424 6.2.1, table 2).
fn severity(kind: EventKind) -> u8 {
    use EventKind::*;
    match kind {
        PoolExhausted | EventsLost => 3,
        QuotaHit | ThresholdHigh => 4,
        ThresholdLow => 5,
        _ => 6,
    }
}

impl Sender {
    /// Message without a frame.
    pub(crate) fn message(&self, timed: &TimedEvent, names: &PlanNames, destinations: bool) -> Vec<u8> {
        let event = &timed.event;
        let mut message = self.header(severity(event.kind), timed.at_ms, event.kind.name());
        let mut put = |name: &str, value: &str| parameter(&mut message, name, value);
        let about = EventSubject::of(event.kind);
        put("worker", &timed.worker.to_string());
        if matches!(about, EventSubject::Mapping | EventSubject::Block | EventSubject::Refusal) {
            names.instance(event).into_iter().for_each(|name| put("instance", name));
        }
        let is_of_pool =
            about != EventSubject::Crossing || event.gauge == Some(gatun_nat::event::Gauge::PoolPorts);
        if about != EventSubject::Loss && is_of_pool {
            names.pool(event).into_iter().for_each(|name| put("pool", name));
        }
        let protocols = protocols(event).join(",");
        if !protocols.is_empty() {
            put("protocols", &protocols);
        }
        match about {
            EventSubject::Mapping => {
                put("inside", &address(event.inside()));
                put("insidePort", &event.inside_port.to_string());
                put("outside", &event.outside().to_string());
                put("outsidePort", &event.outside_port.to_string());
            }
            EventSubject::Block => {
                put("subscriber", &names.subscriber(event));
                put("outside", &event.outside().to_string());
                put("outsidePorts", &format!("{}-{}", event.outside_port, event.outside_last));
            }
            EventSubject::Refusal => put("subscriber", &names.subscriber(event)),
            EventSubject::Crossing => {
                event.gauge.into_iter().for_each(|g| put("gauge", gauge(g)));
                put("value", &event.value.to_string());
                put("total", &event.total.to_string());
            }
            EventSubject::Loss => put("value", &event.value.to_string()),
        }
        if destinations && !event.remote().is_unspecified() {
            put("remote", &event.remote().to_string());
            put("remotePort", &event.remote_port.to_string());
        }
        event.reason.into_iter().for_each(|reason| put("reason", reason.name()));
        message.push(']');
        message.into_bytes()
    }

    /// Message that reports losses on the way to a collector.
    pub(crate) fn loss(&self, at_ms: u64, lost: u64) -> Vec<u8> {
        let mut message = self.header(3, at_ms, EventKind::EventsLost.name());
        parameter(&mut message, "where", "export");
        parameter(&mut message, "value", &lost.to_string());
        message.push(']');
        message.into_bytes()
    }

    /// Header up to the name of the structured data (RFC 5424 6.2).
    fn header(&self, severity: u8, at_ms: u64, id: &str) -> String {
        let (priority, time) = (FACILITY * 8 + severity, rfc3339(at_ms));
        format!("<{priority}>1 {time} {} gatun {} {id} [{SD_ID}", self.host, self.pid)
    }
}

/// Appends a parameter. RFC 5424 6.3.3: three characters are escaped.
fn parameter(message: &mut String, name: &str, value: &str) {
    // Writing to a String cannot fail.
    let _ = write!(message, " {name}=\"");
    for c in value.chars() {
        if matches!(c, '"' | '\\' | ']') {
            message.push('\\');
        }
        message.push(c);
    }
    message.push('"');
}

/// Host name as RFC 5424 6.2.4 requires: at most 255 printable ASCII characters.
pub(crate) fn host_name(name: &str) -> String {
    let name: String = name.trim().chars().filter(char::is_ascii_graphic).take(255).collect();
    if name.is_empty() { "-".to_owned() } else { name }
}
