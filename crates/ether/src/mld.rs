//! Multicast listener discovery (RFC 3810), as far as snooping switches need it.
//!
//! A snooping switch forwards a group's packets only to hosts that reported the group. Solicitations go to
//! groups, so a host that reports nothing cannot be found through such a switch. Groups are reported at
//! start, on take-over and in reply to a query. Not implemented: timers of single groups, and version 1
//! (snooping switches understand reports of version 2 while they send queries of version 1).
//!
//! ```text
//!   both:    IPv6, hop limit 1 | hop-by-hop: router alert, 8 bytes | ICMPv6
//!   query:   0 type 130 | 4 maximum response delay | 8 group | 24
//!   report:  0 type 143 | 6 number of records | 8 records of 20 bytes
//!   record:  0 kind (exclude nothing: 2 in a reply, 4 for a new group) | 4 group
//! ```

use crate::Dropped;
use crate::address::is_link_local;
use crate::bytes::{array, put, v6};
use crate::ndp::sum_is_right;
use core::net::Ipv6Addr;
use gatun_wire::hdr::{get16, icmpv6, ipv6};
use gatun_wire::proto;

/// Largest number of groups in a report: more do not fit 1280 bytes (RFC 3810 5.2.15 would have several
/// reports).
pub(crate) const GROUPS_MAX: usize = 60;
/// Length in bytes of the largest report.
pub(crate) const REPORT_MAX: usize = MESSAGE + REPORT_HEAD + GROUPS_MAX * RECORD;

const QUERY: u8 = 130;
const REPORT: u8 = 143;
/// ICMPv6 in 8 bytes, router alert for MLD, two bytes of padding (RFC 2711, RFC 3810 5).
const HOP_BY_HOP: [u8; 8] = [proto::ICMPV6, 0, 5, 2, 0, 0, 1, 0];
/// Offset of the message.
const MESSAGE: usize = ipv6::LEN + HOP_BY_HOP.len();
const QUERY_LEN: usize = 24;
const REPORT_HEAD: usize = 8;
const RECORD: usize = 20;
/// RFC 3810 5.2.12.
const IS_EXCLUDE: u8 = 2;
const CHANGE_TO_EXCLUDE: u8 = 4;
/// ff02::16, all MLDv2-capable routers.
pub(crate) const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);

/// Checks whether a packet is a query.
pub(crate) fn is_query(packet: &[u8]) -> bool {
    packet.get(ipv6::NEXT_HEADER) == Some(&proto::HOP_BY_HOP)
        && array(packet, ipv6::LEN) == Some([proto::ICMPV6, 0])
        && packet.get(MESSAGE) == Some(&QUERY)
}

/// Reads the maximum response delay of a query, in milliseconds.
///
/// # Errors
/// Returns an error if the query is not from the link or is malformed (RFC 3810 5.1.14, 6.2).
pub(crate) fn read_query(packet: &[u8]) -> Result<u64, Dropped> {
    let head: [u8; ipv6::LEN] = array(packet, 0).ok_or(Dropped::MldMalformed)?;
    let len = get16(&head, ipv6::PAYLOAD_LEN).map_or(0, usize::from);
    let payload = packet.get(ipv6::LEN..).and_then(|p| p.get(..len));
    let message = payload.and_then(|p| p.get(HOP_BY_HOP.len()..)).ok_or(Dropped::MldMalformed)?;
    let from_link = v6(&head, 8).is_some_and(is_link_local) && head.get(7) == Some(&1);
    if !from_link || message.len() < QUERY_LEN {
        return Err(Dropped::MldMalformed);
    }
    if !sum_is_right(&head, message) {
        return Err(Dropped::NdpChecksum);
    }
    Ok(delay_ms(get16(message, 4).unwrap_or(0)))
}

/// RFC 3810 5.1.3: a plain number of milliseconds, or one with an exponent.
fn delay_ms(code: u16) -> u64 {
    match code {
        ..0x8000 => code.into(),
        _ => u64::from(code & 0x0fff | 0x1000) << (code >> 12 & 7).saturating_add(3),
    }
}

/// Writes a report of groups, as the reply to a query or unsolicited. Returns its length, or 0 if there is no
/// group to report.
pub(crate) fn write_report(
    out: &mut [u8; REPORT_MAX],
    src: Ipv6Addr,
    groups: &[Ipv6Addr],
    asked: bool,
) -> usize {
    let groups = groups.get(..GROUPS_MAX).unwrap_or(groups);
    if groups.is_empty() {
        return 0;
    }
    let message_len = REPORT_HEAD + groups.len() * RECORD;
    let header = ipv6::Header {
        traffic_class: 0,
        payload_len: (HOP_BY_HOP.len() + message_len) as u16,
        next_header: proto::HOP_BY_HOP,
        hop_limit: 1,
        src,
        dst: ALL_ROUTERS,
    };
    out.fill(0);
    if let Some(head) = out.first_chunk_mut() {
        header.write(head);
    }
    put(out, ipv6::LEN, &HOP_BY_HOP);
    put(out, MESSAGE, &[REPORT]);
    put(out, MESSAGE + 6, &(groups.len() as u16).to_be_bytes());
    for (i, group) in groups.iter().enumerate() {
        let record = MESSAGE + REPORT_HEAD + i * RECORD;
        put(out, record, &[if asked { IS_EXCLUDE } else { CHANGE_TO_EXCLUDE }]);
        put(out, record + 4, &group.octets());
    }
    let len = MESSAGE + message_len;
    if let Some(packet) = out.get_mut(..len) {
        icmpv6::set_checksum(packet, MESSAGE);
    }
    len
}
