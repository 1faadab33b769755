//! Formats of collectors.

use crate::event::{PlanNames, Record, TimedEvent};
use crate::ipfix;
use crate::json;
use crate::syslog::{self, Sender};

/// Format of exported events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// RFC 7011 and 8158.
    Ipfix {
        /// Number of the observation domain.
        domain: u32,
        /// Interval at which templates are repeated over UDP, milliseconds.
        templates_ms: u64,
    },
    /// RFC 5424.
    Syslog,
    /// JSON, one object per line.
    Json,
}

/// Encodes events.
pub(crate) struct Encoder {
    format: Format,
    destinations: bool,
    sender: Sender,
}

impl Encoder {
    pub(crate) fn new(format: Format, destinations: bool) -> Encoder {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let sender = Sender { host: syslog::host_name(&host), pid: std::process::id() };
        Encoder { format, destinations, sender }
    }

    /// Encodes an event. `None` if the format has no record for it.
    pub(crate) fn record(&self, timed: &TimedEvent, names: &PlanNames) -> Option<Record> {
        match self.format {
            Format::Ipfix { .. } => ipfix::record(timed, names, self.destinations),
            Format::Syslog => Some((0, self.sender.message(timed, names, self.destinations))),
            Format::Json => {
                let mut line = Vec::with_capacity(256);
                json::line(timed, names, self.destinations, &mut line);
                Some((0, line))
            }
        }
    }

    /// Encodes a report of losses: `lost` in total, `more` since the last report.
    pub(crate) fn loss(&self, at_ms: u64, lost: u64, more: u64) -> Record {
        match self.format {
            Format::Ipfix { .. } => ipfix::loss(at_ms, lost),
            Format::Syslog => (0, self.sender.loss(at_ms, more)),
            Format::Json => {
                let mut line = Vec::new();
                json::loss(at_ms, more, &mut line);
                (0, line)
            }
        }
    }
}

/// Packs records into messages, for one session of a transport.
pub(crate) struct Wrapper {
    format: Format,
    is_stream: bool,
    messages: Option<ipfix::Messages>,
    /// Time at which templates are sent next.
    templates_at_ms: u64,
}

/// Largest IPFIX message over UDP in bytes: fits every Ethernet path without fragmentation, even through
/// tunnels.
const DATAGRAM_LEN_MAX: usize = 1_232;
/// Largest message on a stream in bytes.
const STREAM_LEN_MAX: usize = 16_384;

impl Wrapper {
    pub(crate) fn new(format: Format, destinations: bool, is_stream: bool) -> Wrapper {
        let len_max = if is_stream { STREAM_LEN_MAX } else { DATAGRAM_LEN_MAX };
        let messages = match format {
            Format::Ipfix { domain, .. } => Some(ipfix::Messages::new(domain, destinations, len_max)),
            _ => None,
        };
        Wrapper { format, is_stream, messages, templates_at_ms: 0 }
    }

    /// Templates, if they are due: at the beginning of a session, and periodically over UDP (RFC 7011 8.4).
    pub(crate) fn templates(&mut self, now_ms: u64) -> Option<Vec<u8>> {
        let (messages, Format::Ipfix { templates_ms, .. }) = (self.messages.as_ref()?, self.format) else {
            return None;
        };
        if now_ms < self.templates_at_ms {
            return None;
        }
        self.templates_at_ms = if self.is_stream { u64::MAX } else { now_ms.saturating_add(templates_ms) };
        Some(messages.templates(now_ms))
    }

    /// Packs records from the front into a message. Returns the message and the number of records in it.
    pub(crate) fn message(&mut self, now_ms: u64, records: &[Record]) -> (Vec<u8>, usize) {
        if let Some(messages) = &mut self.messages {
            return messages.data(now_ms, records);
        }
        let Some((_, record)) = records.first() else { return (Vec::new(), 0) };
        match (self.format, self.is_stream) {
            // RFC 6587 3.4.1
            (Format::Syslog, true) => ([format!("{} ", record.len()).as_bytes(), record].concat(), 1),
            _ => (record.clone(), 1),
        }
    }
}
