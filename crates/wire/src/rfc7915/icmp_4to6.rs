//! ICMPv4 errors to ICMPv6 errors (RFC 7915 4.2, 4.3).

use super::quote::{self, Quote};
use super::{Settings, To6, mtu};
use crate::hdr::icmpv4::{self, unreachable as v4};
use crate::hdr::icmpv6::{self, parameter, unreachable as v6};
use crate::hdr::ipv6;
use crate::icmp_error::Message;
use crate::{DropReason, Ipv4View, L4, Packet, checksum, proto};
use core::net::Ipv6Addr;

/// Largest ICMPv6 error: the size that every path carries (RFC 4443 2.4 (c)).
const ERROR_MAX: usize = ipv6::MTU_MIN as usize;

/// Offset of the quoted packet in an ICMPv6 error.
const INNER_AT: usize = ipv6::LEN + icmpv6::LEN;

/// Packet quoted in an ICMPv4 error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Embedded4 {
    /// Headers of the quoted packet. Offsets count from its own first byte.
    pub view: Ipv4View,
    /// Transport header of the quoted packet. TCP flags are zero if they were cut off.
    pub l4: L4,
    /// Offset of the quoted packet, in bytes from the outer packet's first byte.
    pub at: u16,
}

/// Reads the packet quoted in an ICMPv4 error. Verifies the checksums of the error and of the quoted IPv4
/// header (RFC 5508 REQ-3), but no transport checksum.
///
/// # Errors
/// `icmp_unknown_type`, `icmp_single_hop`, `icmp_ptr_untranslatable`, `frag_icmp`, `bad_l4csum`,
/// `bad_l3csum`, `icmp_inner_short`, `icmp_double_error`, `icmp_inner_untranslatable`, `icmp_ext_bad`.
pub fn embedded(packet: &[u8], view: &Ipv4View) -> Result<Embedded4, DropReason> {
    translated_type(Message::read(message(packet, view)?)?)?;
    quoted(packet, view)
}

/// Like [`embedded`], for every type of error.
pub(crate) fn quoted(packet: &[u8], view: &Ipv4View) -> Result<Embedded4, DropReason> {
    let icmp = message(packet, view)?;
    if checksum::sum(icmp) != 0xffff {
        return Err(DropReason::BadL4Checksum);
    }
    let datagram = split(icmp)?.datagram;
    let inner = Ipv4View::parse_inner(datagram, true).map_err(|reason| match reason {
        DropReason::IcmpInnerShort | DropReason::BadL3Checksum => reason,
        _ => DropReason::IcmpInnerUntranslatable,
    })?;
    let l4 = quote::translatable(inner.l4_inner(datagram)?)?;
    Ok(Embedded4 { view: inner, l4, at: view.l4_offset + icmpv4::LEN as u16 })
}

/// Turns the ICMPv4 error into an ICMPv6 error from `outer.0` to `outer.1`, and translates the quoted packet
/// by `inner`.
///
/// # Errors
/// `ttl`, `icmp_unknown_type`, `icmp_ptr_untranslatable`, `icmp_inner_untranslatable`, ... The packet is
/// unchanged then.
pub fn translate(
    packet: &mut Packet<'_>,
    view: &Ipv4View,
    embedded: &Embedded4,
    outer: (Ipv6Addr, Ipv6Addr),
    inner: &To6,
    settings: &Settings,
) -> Result<(), DropReason> {
    let icmp = message(packet.bytes(), view)?;
    let old = Message::read(icmp)?;
    let mut new = translated_type(old)?;
    if view.has_source_route(packet.bytes()) {
        return Err(DropReason::SourceRoute);
    }
    if view.ttl <= 1 {
        return Err(DropReason::TtlExceeded);
    }
    if new.kind == icmpv6::PACKET_TOO_BIG {
        new.word = mtu::advertised_4to6(old.word as u16, embedded.view.total_len, settings);
    }

    let mut out = [0; ERROR_MAX];
    let (head, area) = out.split_first_chunk_mut::<INNER_AT>().ok_or(DropReason::IcmpInnerUntranslatable)?;
    let quote = split(icmp)?;
    let len = quote::write6(&quote, &embedded.view, embedded.l4, inner, settings, area)?;
    let len = if icmpv6::has_length(new.kind) {
        let (len, attribute) = quote.lay_out(area, len, 8);
        new.word = u32::from(attribute) << 24;
        len
    } else {
        len
    };
    let header = ipv6::Header {
        traffic_class: settings.traffic_class_4to6.unwrap_or(view.tos),
        payload_len: (icmpv6::LEN + len) as u16,
        next_header: proto::ICMPV6,
        hop_limit: view.ttl - 1,
        src: outer.0,
        dst: outer.1,
    };
    if let Some((ip, icmp)) = head.split_first_chunk_mut() {
        header.write(ip);
        icmp.copy_from_slice(&new.to_bytes());
    }
    let out = out.get_mut(..INNER_AT + len).unwrap_or_default();
    icmpv6::set_checksum(out, ipv6::LEN);
    packet.replace(out)
}

/// Number of quoted bytes in an error, without padding before an extension.
pub(crate) fn quoted_len(packet: &[u8], view: &Ipv4View, embedded: &Embedded4) -> Result<usize, DropReason> {
    Ok(split(message(packet, view)?)?.unpadded(embedded.view.total_len).len())
}

/// Whole ICMP message of a packet that is not a fragment.
pub(crate) fn message<'p>(packet: &'p [u8], view: &Ipv4View) -> Result<&'p [u8], DropReason> {
    if view.fragment.is_some() {
        return Err(DropReason::FragmentIcmp);
    }
    packet.get(usize::from(view.l4_offset)..view.total_len as usize).ok_or(DropReason::L4Truncated)
}

/// All translated types have the length attribute (RFC 4884 4.1).
fn split(icmp: &[u8]) -> Result<Quote<'_>, DropReason> {
    let attribute = icmp.get(icmpv4::EXT_LENGTH).copied().unwrap_or(0);
    Quote::split(icmp.get(icmpv4::LEN..).unwrap_or_default(), attribute, 4)
}

/// Translates type, code and pointer (RFC 7915 4.2). The caller fills in the MTU of Packet Too Big.
fn translated_type(m: Message) -> Result<Message, DropReason> {
    let (kind, code, word) = match (m.kind, m.code) {
        (icmpv4::UNREACHABLE, v4::PROTOCOL) => (
            icmpv6::PARAMETER_PROBLEM,
            parameter::UNKNOWN_NEXT_HEADER,
            ipv6::NEXT_HEADER as u32, // the pointer: at the Next Header field
        ),
        (icmpv4::UNREACHABLE, v4::FRAGMENTATION_NEEDED) => (icmpv6::PACKET_TOO_BIG, 0, 0),
        (icmpv4::UNREACHABLE, code) => (icmpv6::UNREACHABLE, unreachable_code(code)?, 0),
        (icmpv4::TIME_EXCEEDED, code) => (icmpv6::TIME_EXCEEDED, code, 0),
        // 0: the pointer indicates the error. 2: bad length. 1, a missing option, has no counterpart.
        (icmpv4::PARAMETER_PROBLEM, 0 | 2) => {
            (icmpv6::PARAMETER_PROBLEM, parameter::ERRONEOUS_FIELD, pointer((m.word >> 24) as u8)?)
        }
        (kind, _) if icmpv4::is_single_hop(kind) => return Err(DropReason::IcmpSingleHop),
        _ => return Err(DropReason::IcmpUnknownType),
    };
    Ok(Message { kind, code, word })
}

fn unreachable_code(code: u8) -> Result<u8, DropReason> {
    match code {
        // Network, host; source route failed; unknown or isolated; unreachable for the TOS.
        0 | 1 | 5..=8 | 11 | 12 => Ok(v6::NO_ROUTE),
        v4::PORT => Ok(v6::PORT),
        // Prohibited: network, host, communication; precedence cutoff.
        9 | v4::HOST_PROHIBITED | v4::ADMIN_PROHIBITED | 15 => Ok(v6::ADMIN_PROHIBITED),
        _ => Err(DropReason::IcmpUnknownType), // 14, host precedence violation, and unassigned codes
    }
}

/// Translates a byte offset in the IPv4 header to the offset of the field in IPv6 (RFC 7915 4.2, figure 3).
fn pointer(at: u8) -> Result<u32, DropReason> {
    match at {
        0 => Ok(0),       // version, header length
        1 => Ok(1),       // type of service: traffic class
        2 | 3 => Ok(4),   // Total Length: Payload Length
        8 => Ok(7),       // TTL: hop limit
        9 => Ok(6),       // protocol: Next Header
        12..=15 => Ok(8), // source
        16..=19 => Ok(24),
        _ => Err(DropReason::IcmpPointerUntranslatable),
    }
}
