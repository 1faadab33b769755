//! Events as syslog messages: RFC 5424, with structured data, each in octet counting frames on TCP (RFC 6587 3.4.1).

use crate::json::Line;
use crate::told::{Names, Told, rfc3339};
use gatun_nat::EventKind;
use std::fmt::{Display, Write as _};

/// local0 (RFC 5424 6.2.1).
const FACILITY: u8 = 16;
/// The name of the structured data: of Gatun's own, with the enterprise number for documentation (RFC 5612).
const SD_ID: &str = "gatun@32473";

/// Who sends, by the header of each message.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    /// The host's name, or "-".
    pub(crate) host: String,
    pub(crate) pid: u32,
}

/// What is an ordinary event, what an operator should look at (RFC 5424 6.2.1, table 2).
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
    /// A message, without a frame.
    pub(crate) fn message(&self, told: &Told, names: &Names, destinations: bool) -> Vec<u8> {
        let line = Line::of(told, names, destinations);
        let mut message = self.header(severity(told.event.kind), &line.time, line.event);
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

    /// The message that tells of losses on the way to a collector.
    pub(crate) fn loss(&self, at_ms: u64, lost: u64) -> Vec<u8> {
        let mut message = self.header(3, &rfc3339(at_ms), EventKind::EventsLost.name());
        parameter(&mut message, "where", "export");
        parameter(&mut message, "value", &lost.to_string());
        message.push(']');
        message.into_bytes()
    }

    /// Up to the name of the structured data (RFC 5424 6.2).
    fn header(&self, severity: u8, time: &str, id: &str) -> String {
        let priority = FACILITY * 8 + severity;
        format!("<{priority}>1 {time} {} gatun {} {id} [{SD_ID}", self.host, self.pid)
    }
}

fn some<T: Display>(value: &Option<T>) -> Option<&dyn Display> {
    value.as_ref().map(|value| value as &dyn Display)
}

/// RFC 5424 6.3.3: three characters are escaped.
fn parameter(message: &mut String, name: &str, value: &str) {
    // Writing to a String does not fail.
    let _ = write!(message, " {name}=\"");
    for c in value.chars() {
        if matches!(c, '"' | '\\' | ']') {
            message.push('\\');
        }
        message.push(c);
    }
    message.push('"');
}

/// RFC 5424 6.2.4: 255 printable ASCII characters.
pub(crate) fn host_name(name: &str) -> String {
    let name: String = name.trim().chars().filter(char::is_ascii_graphic).take(255).collect();
    if name.is_empty() { "-".to_owned() } else { name }
}
