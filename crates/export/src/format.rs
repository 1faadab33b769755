//! What a collector reads.

use crate::ipfix;
use crate::json;
use crate::syslog::{self, Sender};
use crate::told::{Names, Told};

/// How events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// RFC 7011 and 8158, of an observation domain; templates are sent again so often over UDP, milliseconds.
    Ipfix {
        /// The observation domain's number.
        domain: u32,
        /// How often.
        templates_ms: u64,
    },
    /// RFC 5424.
    Syslog,
    /// A JSON object a line.
    Json,
}

/// An event as a collector reads it: the number of its template in IPFIX, and bytes.
pub type Unit = (u16, Vec<u8>);

/// Makes units of events.
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

    /// The unit of an event; `None` where the format has none for it.
    pub(crate) fn unit(&self, told: &Told, names: &Names) -> Option<Unit> {
        match self.format {
            Format::Ipfix { .. } => ipfix::record(told, names, self.destinations),
            Format::Syslog => Some((0, self.sender.message(told, names, self.destinations))),
            Format::Json => {
                let mut line = Vec::with_capacity(256);
                json::line(told, names, self.destinations, &mut line);
                Some((0, line))
            }
        }
    }

    /// The unit that tells of losses: `lost` in all, `more` since the last time.
    pub(crate) fn loss(&self, at_ms: u64, lost: u64, more: u64) -> Unit {
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

/// Makes messages of units, for one session of a transport.
pub(crate) struct Wrapper {
    format: Format,
    is_stream: bool,
    messages: Option<ipfix::Messages>,
    /// When templates are to be sent (again).
    templates_at_ms: u64,
}

/// Bytes of an IPFIX message over UDP: what no path of Ethernet cuts, whatever tunnel it goes through.
const DATAGRAM_LEN_MAX: usize = 1_232;
/// Bytes of a message on a stream.
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

    /// Templates, where they are due: at the beginning of a session, and over UDP again and again (RFC 7011 8.4).
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

    /// A message of units from the front, and how many are in it.
    pub(crate) fn message(&mut self, now_ms: u64, units: &[Unit]) -> (Vec<u8>, usize) {
        if let Some(messages) = &mut self.messages {
            return messages.data(now_ms, units);
        }
        let Some((_, unit)) = units.first() else { return (Vec::new(), 0) };
        match (self.format, self.is_stream) {
            // RFC 6587 3.4.1
            (Format::Syslog, true) => ([format!("{} ", unit.len()).as_bytes(), unit].concat(), 1),
            _ => (unit.clone(), 1),
        }
    }
}
