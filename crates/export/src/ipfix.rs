//! IPFIX: messages of RFC 7011 with the events of RFC 8158.
//!
//! There is a template for each event and address family, with optional elements only if configured.
//! [`Messages`] packs data records into messages and numbers them.

use crate::event::{PlanNames, Record, TimedEvent};
use gatun_nat::event::Gauge;
use gatun_nat::{Event, EventKind};
use gatun_wire::proto;

/// Length of a message header in bytes (RFC 7011 3.1).
const HEADER_LEN: usize = 16;
/// Length of a set header in bytes (RFC 7011 3.3.2).
const SET_HEADER_LEN: usize = 4;
const VERSION: u16 = 10;
const TEMPLATE_SET: u16 = 2;
const OPTIONS_TEMPLATE_SET: u16 = 3;
/// The exporting process, to which reports of losses refer (RFC 7011 4.3).
const PROCESS: u32 = 1;

/// Information element: number in IANA's registry, and length in bytes.
type Element = (u16, u16);
const OBSERVATION_TIME_MS: Element = (323, 8);
const NAT_EVENT: Element = (230, 1);
const SOURCE_IPV4: Element = (8, 4);
const SOURCE_IPV6: Element = (27, 16);
const POST_NAT_SOURCE_IPV4: Element = (225, 4);
const PROTOCOL: Element = (4, 1);
const SOURCE_PORT: Element = (7, 2);
const POST_NAPT_SOURCE_PORT: Element = (227, 2);
const POST_NAT_DESTINATION_IPV4: Element = (226, 4);
const POST_NAPT_DESTINATION_PORT: Element = (228, 2);
const NAT_POOL_ID: Element = (283, 4);
const PORT_RANGE_START: Element = (361, 2);
const PORT_RANGE_END: Element = (362, 2);
const NAT_INSTANCE_ID: Element = (463, 4);
const QUOTA_EVENT: Element = (466, 4);
const THRESHOLD_EVENT: Element = (467, 4);
const MAX_ENTRIES_PER_USER: Element = (473, 4);
const ADDRESS_POOL_HIGH: Element = (476, 4);
const ADDRESS_POOL_LOW: Element = (477, 4);
const PORT_MAPPING_HIGH: Element = (478, 4);
const GLOBAL_MAPPING_HIGH: Element = (481, 4);
const EXPORTING_PROCESS_ID: Element = (144, 4);
const NOT_SENT_FLOWS: Element = (166, 8);

/// Template. Its number is its index in the list plus [`FIRST_TEMPLATE`].
struct Template {
    elements: &'static [Element],
    /// Additional elements if destinations are exported.
    destinations: &'static [Element],
    /// Number of scope elements at the beginning: none in a template of flows.
    scopes: u16,
}

/// RFC 7011 3.4.1: lower numbers are reserved for set types.
const FIRST_TEMPLATE: u16 = 256;

const DESTINATION: &[Element] = &[POST_NAT_DESTINATION_IPV4, POST_NAPT_DESTINATION_PORT];

const SESSION_V6: u16 = 256;
const SESSION_V4: u16 = 257;
const BIB_V6: u16 = 258;
const BIB_V4: u16 = 259;
const BLOCK_V6: u16 = 260;
const BLOCK_V4: u16 = 261;
const QUOTA_V6: u16 = 262;
const QUOTA_V4: u16 = 263;
const BLOCK_OF_PROTOCOL_V6: u16 = 264;
const BLOCK_OF_PROTOCOL_V4: u16 = 265;
const ADDRESSES_EXHAUSTED: u16 = 266;
const PORTS_EXHAUSTED: u16 = 267;
const THRESHOLD_POOL_HIGH: u16 = 268;
const THRESHOLD_POOL_LOW: u16 = 269;
const THRESHOLD_MAPPINGS_HIGH: u16 = 270;
const THRESHOLD_SUBSCRIBERS_HIGH: u16 = 271;
const NOT_SENT: u16 = 272;

const fn flow(elements: &'static [Element], destinations: &'static [Element]) -> Template {
    Template { elements, destinations, scopes: 0 }
}

/// Elements at the beginning of a flow record: time, event and addresses.
macro_rules! nat {
    ($($element:expr),* $(,)?) => { &[OBSERVATION_TIME_MS, NAT_EVENT, $($element),*] };
}

/// Elements of a port mapping, for an inside host of either family.
macro_rules! mapping {
    ($source:expr) => {
        nat![NAT_INSTANCE_ID, $source, POST_NAT_SOURCE_IPV4, PROTOCOL, SOURCE_PORT, POST_NAPT_SOURCE_PORT]
    };
}
const MAPPING_V6: &[Element] = mapping!(SOURCE_IPV6);
const MAPPING_V4: &[Element] = mapping!(SOURCE_IPV4);

/// Templates of RFC 8158 5.6, in the order of the numbers above.
const TEMPLATES: &[Template] = &[
    flow(MAPPING_V6, DESTINATION),
    flow(MAPPING_V4, DESTINATION),
    flow(MAPPING_V6, &[]),
    flow(MAPPING_V4, &[]),
    flow(nat![NAT_INSTANCE_ID, SOURCE_IPV6, POST_NAT_SOURCE_IPV4, PORT_RANGE_START, PORT_RANGE_END], &[]),
    flow(nat![NAT_INSTANCE_ID, SOURCE_IPV4, POST_NAT_SOURCE_IPV4, PORT_RANGE_START, PORT_RANGE_END], &[]),
    flow(nat![QUOTA_EVENT, MAX_ENTRIES_PER_USER, NAT_INSTANCE_ID, SOURCE_IPV6], &[]),
    flow(nat![QUOTA_EVENT, MAX_ENTRIES_PER_USER, NAT_INSTANCE_ID, SOURCE_IPV4], &[]),
    flow(
        nat![NAT_INSTANCE_ID, SOURCE_IPV6, POST_NAT_SOURCE_IPV4, PROTOCOL, PORT_RANGE_START, PORT_RANGE_END],
        &[],
    ),
    flow(
        nat![NAT_INSTANCE_ID, SOURCE_IPV4, POST_NAT_SOURCE_IPV4, PROTOCOL, PORT_RANGE_START, PORT_RANGE_END],
        &[],
    ),
    flow(nat![NAT_POOL_ID], &[]),
    flow(nat![NAT_POOL_ID, PROTOCOL], &[]),
    flow(nat![THRESHOLD_EVENT, ADDRESS_POOL_HIGH, NAT_POOL_ID], &[]),
    flow(nat![THRESHOLD_EVENT, ADDRESS_POOL_LOW, NAT_POOL_ID], &[]),
    flow(nat![THRESHOLD_EVENT, PORT_MAPPING_HIGH], &[]),
    flow(nat![THRESHOLD_EVENT, GLOBAL_MAPPING_HIGH], &[]),
    // RFC 7011 4.3: data that the exporting process could not send.
    Template {
        elements: &[EXPORTING_PROCESS_ID, NOT_SENT_FLOWS, OBSERVATION_TIME_MS],
        destinations: &[],
        scopes: 1,
    },
];

/// Encodes an event. `None` if RFC 8158 has no event for it.
pub(crate) fn record(timed: &TimedEvent, names: &PlanNames, destinations: bool) -> Option<Record> {
    let event = &timed.event;
    let nat44 = event.inside().to_ipv4_mapped().is_some();
    let of = |v6: u16, v4: u16| if nat44 { v4 } else { v6 };
    let (template, number) = shape(event, nat44)?;
    let mut out = Vec::with_capacity(64);
    out.extend(timed.at_ms.to_be_bytes());
    out.push(number);
    let inside = |out: &mut Vec<u8>| match event.inside().to_ipv4_mapped() {
        Some(v4) => out.extend(v4.octets()),
        None => out.extend(event.inside().octets()),
    };
    let instance = u32::from(event.instance).to_be_bytes();
    let pool = u32::from(event.pool).to_be_bytes();
    if template == of(SESSION_V6, SESSION_V4) || template == of(BIB_V6, BIB_V4) {
        out.extend(instance);
        inside(&mut out);
        out.extend(event.outside().octets());
        out.push(protocol(event));
        out.extend(event.inside_port.to_be_bytes());
        out.extend(event.outside_port.to_be_bytes());
        if destinations && matches!(template, SESSION_V6 | SESSION_V4) {
            out.extend(event.remote().octets());
            out.extend(event.remote_port.to_be_bytes());
        }
        return Some((template, out));
    }
    let limit = |out: &mut Vec<u8>, what: u32, limit: u64| {
        out.extend(what.to_be_bytes());
        out.extend(u32::try_from(limit).unwrap_or(u32::MAX).to_be_bytes());
    };
    match template {
        BLOCK_V6 | BLOCK_V4 | BLOCK_OF_PROTOCOL_V6 | BLOCK_OF_PROTOCOL_V4 => {
            out.extend(instance);
            inside(&mut out);
            out.extend(event.outside().octets());
            if matches!(template, BLOCK_OF_PROTOCOL_V6 | BLOCK_OF_PROTOCOL_V4) {
                out.push(protocol(event));
            }
            out.extend(event.outside_port.to_be_bytes());
            out.extend(event.outside_last.to_be_bytes());
        }
        QUOTA_V6 | QUOTA_V4 => {
            // RFC 8158 5.5.1: 3 means the maximum number of entries per user.
            limit(&mut out, 3, names.limit(event));
            out.extend(instance);
            inside(&mut out);
        }
        ADDRESSES_EXHAUSTED => out.extend(pool),
        PORTS_EXHAUSTED => {
            out.extend(pool);
            out.push(protocol(event));
        }
        THRESHOLD_POOL_HIGH | THRESHOLD_POOL_LOW => {
            // RFC 8158 5.5.2: 1 and 2 refer to the pool.
            limit(&mut out, if template == THRESHOLD_POOL_HIGH { 1 } else { 2 }, event.value);
            out.extend(pool);
        }
        THRESHOLD_MAPPINGS_HIGH => limit(&mut out, 3, event.value),
        _ => limit(&mut out, 5, event.value),
    }
    Some((template, out))
}

/// Template of an event, and its number in RFC 8158 4.
fn shape(event: &Event, nat44: bool) -> Option<(u16, u8)> {
    use EventKind::*;
    let of = |v6: u16, v4: u16| if nat44 { v4 } else { v6 };
    let number = |v6: u8, v4: u8| if nat44 { v4 } else { v6 };
    let shared = event.transports().iter().filter(|on| **on).count() > 1;
    let block = if shared { of(BLOCK_V6, BLOCK_V4) } else { of(BLOCK_OF_PROTOCOL_V6, BLOCK_OF_PROTOCOL_V4) };
    let no_address = event.reason == Some(gatun_wire::DropReason::PoolEmpty);
    Some(match (event.kind, event.gauge) {
        (SessionCreated, _) => (of(SESSION_V6, SESSION_V4), number(6, 4)),
        (SessionDeleted, _) => (of(SESSION_V6, SESSION_V4), number(7, 5)),
        (BindingCreated, _) => (of(BIB_V6, BIB_V4), number(10, 8)),
        (BindingDeleted, _) => (of(BIB_V6, BIB_V4), number(11, 9)),
        (BlockAssigned, _) => (block, 16),
        (BlockReleased, _) => (block, 17),
        (QuotaHit, _) => (of(QUOTA_V6, QUOTA_V4), 13),
        (PoolExhausted, _) if no_address => (ADDRESSES_EXHAUSTED, 3),
        (PoolExhausted, _) => (PORTS_EXHAUSTED, 12),
        (ThresholdHigh, Some(Gauge::PoolPorts)) => (THRESHOLD_POOL_HIGH, 18),
        (ThresholdLow, Some(Gauge::PoolPorts)) => (THRESHOLD_POOL_LOW, 18),
        (ThresholdHigh, Some(Gauge::Sessions)) => (THRESHOLD_MAPPINGS_HIGH, 18),
        (ThresholdHigh, Some(Gauge::Subscribers)) => (THRESHOLD_SUBSCRIBERS_HIGH, 18),
        // RFC 8158 has no event for these. Losses have records of their own.
        (BlockKept | BindingKept | ThresholdHigh | ThresholdLow | EventsLost, _) => return None,
    })
}

/// Record with the number of events that were not sent since the process started (RFC 7011 4.3).
pub(crate) fn loss(at_ms: u64, lost: u64) -> Record {
    let mut out = PROCESS.to_be_bytes().to_vec();
    out.extend(lost.to_be_bytes());
    out.extend(at_ms.to_be_bytes());
    (NOT_SENT, out)
}

fn protocol(event: &Event) -> u8 {
    match event.transports() {
        [true, ..] => proto::TCP,
        [_, true, _] => proto::UDP,
        _ => proto::ICMP,
    }
}

/// Builds the messages of one session of a transport: sequence numbers belong to the session.
#[derive(Debug)]
pub(crate) struct Messages {
    domain: u32,
    destinations: bool,
    len_max: usize,
    /// Data records sent, modulo 2^32 (RFC 7011 3.1).
    sequence: u32,
}

impl Messages {
    /// Creates the state of a session in an observation domain. Messages have at most `len_max` bytes.
    pub(crate) fn new(domain: u32, destinations: bool, len_max: usize) -> Messages {
        Messages { domain, destinations, len_max: len_max.min(usize::from(u16::MAX)), sequence: 0 }
    }

    /// Builds a message with all templates.
    pub(crate) fn templates(&self, now_ms: u64) -> Vec<u8> {
        let mut message = self.begin(now_ms);
        for (set, is_option) in [(TEMPLATE_SET, false), (OPTIONS_TEMPLATE_SET, true)] {
            let begin = begin_set(&mut message, set);
            for (number, template) in (FIRST_TEMPLATE..).zip(TEMPLATES) {
                if (template.scopes > 0) == is_option {
                    self.template(&mut message, number, template);
                }
            }
            end_set(&mut message, begin);
        }
        end(&mut message);
        message
    }

    fn template(&self, message: &mut Vec<u8>, number: u16, template: &Template) {
        let destinations = if self.destinations { template.destinations } else { &[] };
        let fields = template.elements.len() + destinations.len();
        message.extend(number.to_be_bytes());
        message.extend((fields as u16).to_be_bytes());
        if template.scopes > 0 {
            message.extend(template.scopes.to_be_bytes());
        }
        for (element, len) in template.elements.iter().chain(destinations) {
            message.extend(element.to_be_bytes());
            message.extend(len.to_be_bytes());
        }
    }

    /// Builds a message from the first records. Returns it and the number of records in it. Consecutive
    /// records with the same template share a set.
    pub(crate) fn data(&mut self, now_ms: u64, records: &[Record]) -> (Vec<u8>, usize) {
        let mut message = self.begin(now_ms);
        let (mut count, mut set) = (0, None);
        for (template, bytes) in records {
            let header = if set.is_none_or(|(last, _)| last != *template) { SET_HEADER_LEN } else { 0 };
            if message.len() + header + bytes.len() > self.len_max && count > 0 {
                break;
            }
            if header > 0 {
                set.into_iter().for_each(|(_, begin)| end_set(&mut message, begin));
                set = Some((*template, begin_set(&mut message, *template)));
            }
            message.extend_from_slice(bytes);
            count += 1;
        }
        set.into_iter().for_each(|(_, begin)| end_set(&mut message, begin));
        end(&mut message);
        self.sequence = self.sequence.wrapping_add(count as u32);
        (message, count)
    }

    fn begin(&self, now_ms: u64) -> Vec<u8> {
        let mut message = Vec::with_capacity(1500);
        message.extend(VERSION.to_be_bytes());
        message.extend([0; 2]);
        message.extend(((now_ms / 1000) as u32).to_be_bytes());
        message.extend(self.sequence.to_be_bytes());
        message.extend(self.domain.to_be_bytes());
        debug_assert_eq!(message.len(), HEADER_LEN);
        message
    }
}

/// Writes a length into the two bytes reserved for it.
fn set_len(bytes: &mut [u8], at: usize, len: usize) {
    if let Some(place) = bytes.get_mut(at..at + 2) {
        place.copy_from_slice(&(len as u16).to_be_bytes());
    }
}

fn begin_set(message: &mut Vec<u8>, set: u16) -> usize {
    let begin = message.len();
    message.extend(set.to_be_bytes());
    message.extend([0; 2]);
    begin
}

fn end_set(message: &mut [u8], begin: usize) {
    set_len(message, begin + 2, message.len() - begin);
}

fn end(message: &mut [u8]) {
    set_len(message, 2, message.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_have_their_numbers() {
        assert_eq!(usize::from(NOT_SENT - FIRST_TEMPLATE) + 1, TEMPLATES.len());
        let elements = |number: u16| TEMPLATES[usize::from(number - FIRST_TEMPLATE)].elements;
        assert!(
            elements(BLOCK_OF_PROTOCOL_V4).contains(&PROTOCOL) && !elements(BLOCK_V4).contains(&PROTOCOL)
        );
        assert!(elements(THRESHOLD_SUBSCRIBERS_HIGH).contains(&GLOBAL_MAPPING_HIGH));
        assert!(elements(QUOTA_V4).contains(&SOURCE_IPV4) && elements(QUOTA_V6).contains(&SOURCE_IPV6));
        let (number, bytes) = loss(1, 2);
        let len: u16 = elements(number).iter().map(|(_, len)| len).sum();
        assert_eq!(bytes.len(), usize::from(len));
    }

    // proves: LOG-2
    #[test]
    fn sequence_numbers_count_records_and_messages_keep_their_length() {
        let mut messages = Messages::new(7, false, 100);
        let records: Vec<Record> = (0..10).map(|n| loss(n, n)).collect();
        let (mut sent, mut sequence) = (0, 0u32);
        while sent < records.len() {
            let (message, count) = messages.data(5_000, &records[sent..]);
            assert!(message.len() <= 100 && count > 0);
            assert_eq!(message[..2], [0, 10]);
            assert_eq!(usize::from(u16::from_be_bytes([message[2], message[3]])), message.len());
            assert_eq!(message[4..8], [0, 0, 0, 5]);
            assert_eq!(message[8..12], sequence.to_be_bytes());
            assert_eq!(message[12..16], [0, 0, 0, 7]);
            (sent, sequence) = (sent + count, sequence + count as u32);
        }
        // Template records do not count as data records.
        assert_eq!(messages.templates(0)[8..12], 10u32.to_be_bytes());
        messages.sequence = u32::MAX;
        messages.data(0, &records[..1]);
        assert_eq!(messages.sequence, 0);
    }
}
