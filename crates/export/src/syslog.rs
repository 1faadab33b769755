//! Events as syslog messages: RFC 5424 with structured data, and octet-counting frames on TCP (RFC 6587
//! 3.4.1).

use crate::event::{PlanNames, TimedEvent, rfc3339};
use crate::json::EventFields;
use gatun_nat::EventKind;
use std::fmt::{Display, Write as _};

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
        let line = EventFields::of(timed, names, destinations);
        let mut message = self.header(severity(timed.event.kind), &line.time, line.event);
        let mut put = |name: &str, value: Option<&dyn Display>| {
            value.into_iter().for_each(|value| parameter(&mut message, name, &value.to_string()));
        };
        let protocols = Some(line.protocols.join(",")).filter(|protocols| !protocols.is_empty());
        let ports = line.outside_ports.map(|[first, last]| format!("{first}-{last}"));
        put("worker", Some(&line.worker));
        put("instance", some(&line.instance));
        put("pool", some(&line.pool));
        put("protocols", some(&protocols));
        put("subscriber", some(&line.subscriber));
        put("inside", some(&line.inside));
        put("insidePort", some(&line.inside_port));
        put("outside", some(&line.outside));
        put("outsidePort", some(&line.outside_port));
        put("outsidePorts", some(&ports));
        put("gauge", some(&line.gauge));
        put("value", some(&line.value));
        put("total", some(&line.total));
        put("remote", some(&line.remote));
        put("remotePort", some(&line.remote_port));
        put("reason", some(&line.reason));
        message.push(']');
        message.into_bytes()
    }

    /// Message that reports losses on the way to a collector.
    pub(crate) fn loss(&self, at_ms: u64, lost: u64) -> Vec<u8> {
        let mut message = self.header(3, &rfc3339(at_ms), EventKind::EventsLost.name());
        parameter(&mut message, "where", "export");
        parameter(&mut message, "value", &lost.to_string());
        message.push(']');
        message.into_bytes()
    }

    /// Header up to the name of the structured data (RFC 5424 6.2).
    fn header(&self, severity: u8, time: &str, id: &str) -> String {
        let priority = FACILITY * 8 + severity;
        format!("<{priority}>1 {time} {} gatun {} {id} [{SD_ID}", self.host, self.pid)
    }
}

fn some<T: Display>(value: &Option<T>) -> Option<&dyn Display> {
    value.as_ref().map(|value| value as &dyn Display)
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
