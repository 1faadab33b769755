//! ICMPv6 errors to ICMPv4 errors (RFC 7915 5.2, 5.3).

use super::quote::{self, Quote};
use super::{Settings, To4, mtu, six_to_four};
use crate::hdr::icmpv4::{self, unreachable as v4};
use crate::hdr::icmpv6::{self, parameter, unreachable as v6};
use crate::hdr::{ipv4, ipv6};
use crate::icmp_error::Message;
use crate::{DropReason, Ipv6View, L4, Packet, checksum, proto};
use core::net::Ipv4Addr;

/// Upper limit of the length of an ICMPv4 error, whatever [`Settings::icmp4_error_max`] allows: the length of
/// the longest ICMPv6 error.
const ERROR_MAX: usize = ipv6::MTU_MIN as usize;

/// Offset of the quoted packet in an ICMPv4 error.
const INNER_AT: usize = ipv4::LEN + icmpv4::LEN;

/// Packet quoted in an ICMPv6 error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Embedded6 {
    /// Headers of the quoted packet. Offsets count from its own first byte.
    pub view: Ipv6View,
    /// Transport header of the quoted packet. TCP flags are zero if they were cut off.
    pub l4: L4,
    /// Offset of the quoted packet, in bytes from the outer packet's first byte.
    pub at: u16,
}

/// IPv4 header of the translated error: the fields that the caller decides on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OuterHeader {
    /// Source.
    pub src: Ipv4Addr,
    /// Destination.
    pub dst: Ipv4Addr,
    /// Identification, unless the ICMPv6 error has a Fragment header.
    pub id: u16,
}

/// Reads the packet quoted in an ICMPv6 error and verifies the error's own checksum.
///
/// # Errors
/// `icmp_unknown_type`, `icmp_ptr_untranslatable`, `frag_icmp`, `bad_l4csum`, `icmp_inner_short`,
/// `icmp_double_error`, `icmp_inner_untranslatable`, `icmp_ext_bad`.
pub fn embedded(packet: &[u8], view: &Ipv6View) -> Result<Embedded6, DropReason> {
    let icmp = message(packet, view)?;
    translated_type(Message::read(icmp)?)?;
    let pseudo = super::icmpv6_pseudo((view.src, view.dst), icmp.len() as u32).0;
    if checksum::add(pseudo, checksum::sum(icmp)) != 0xffff {
        return Err(DropReason::BadL4Checksum);
    }
    let datagram = split(icmp)?.datagram;
    let inner = Ipv6View::parse_inner(datagram).map_err(|reason| match reason {
        DropReason::IcmpInnerShort => reason,
        _ => DropReason::IcmpInnerUntranslatable,
    })?;
    let l4 = quote::translatable(inner.l4_inner(datagram)?)?;
    Ok(Embedded6 { view: inner, l4, at: view.l4_offset + icmpv6::LEN as u16 })
}

/// Turns the ICMPv6 error into an ICMPv4 error with the header `outer`, and translates the quoted packet by
/// `inner`.
///
/// # Errors
/// `ttl`, `icmp_unknown_type`, `icmp_ptr_untranslatable`, `icmp_inner_untranslatable`, ... The packet is
/// unchanged then.
pub fn translate(
    packet: &mut Packet<'_>,
    view: &Ipv6View,
    embedded: &Embedded6,
    outer: OuterHeader,
    inner: &To4,
    settings: &Settings,
) -> Result<(), DropReason> {
    let icmp = message(packet.bytes(), view)?;
    let old = Message::read(icmp)?;
    let mut new = translated_type(old)?;
    if view.hop_limit <= 1 {
        return Err(DropReason::TtlExceeded);
    }
    if new.kind == icmpv4::UNREACHABLE && new.code == v4::FRAGMENTATION_NEEDED {
        let mtu = mtu::advertised_6to4(old.word, embedded.view.fragment.is_some(), settings);
        new.word = u32::from(mtu);
    }

    let mut out = [0; ERROR_MAX];
    // RFC 1812 4.3.2.3 allows 576 at most. Values below the smallest IPv4 MTU make no sense.
    let max = usize::from(settings.icmp4_error_max).clamp(68, ERROR_MAX);
    let out = out.get_mut(..max).unwrap_or_default();
    let (head, area) = out.split_first_chunk_mut::<INNER_AT>().ok_or(DropReason::IcmpInnerUntranslatable)?;
    let quote = split(icmp)?;
    let len = quote::write4(&quote, &embedded.view, embedded.l4, inner, settings, area)?;
    let len = if icmpv6::has_length(old.kind) {
        let (len, attribute) = quote.lay_out(area, len, 4);
        new.word |= u32::from(attribute) << 16;
        len
    } else {
        len
    };
    let total_len = INNER_AT + len;
    let header = ipv4::Header {
        tos: settings.tos_6to4.unwrap_or(view.traffic_class),
        total_len: total_len as u16,
        id: view.fragment.map_or(outer.id, |f| f.id as u16),
        flags: six_to_four::flags(view, total_len as u32),
        ttl: view.hop_limit - 1,
        proto: proto::ICMP,
        src: outer.src,
        dst: outer.dst,
    };
    if let Some((ip, icmp)) = head.split_first_chunk_mut() {
        header.write(ip);
        icmp.copy_from_slice(&new.to_bytes());
    }
    let out = out.get_mut(..total_len).unwrap_or_default();
    icmpv4::set_checksum(out, ipv4::LEN);
    packet.replace(out)
}

/// Whole ICMPv6 message of a packet that is not a fragment.
fn message<'p>(packet: &'p [u8], view: &Ipv6View) -> Result<&'p [u8], DropReason> {
    if view.fragment.is_some_and(|f| !f.is_atomic()) {
        return Err(DropReason::FragmentIcmp);
    }
    packet.get(usize::from(view.l4_offset)..view.total_len as usize).ok_or(DropReason::L4Truncated)
}

/// Only two types have the length attribute (RFC 4884 4.2).
fn split(icmp: &[u8]) -> Result<Quote<'_>, DropReason> {
    let attribute = match icmp {
        [kind, _, _, _, attribute, ..] if icmpv6::has_length(*kind) => *attribute,
        _ => 0,
    };
    Quote::split(icmp.get(icmpv6::LEN..).unwrap_or_default(), attribute, 8)
}

/// Translates type, code and pointer (RFC 7915 5.2). The caller fills in the MTU of Fragmentation Needed.
fn translated_type(m: Message) -> Result<Message, DropReason> {
    let (kind, code, word) = match (m.kind, m.code) {
        (icmpv6::UNREACHABLE, v6::NO_ROUTE | v6::BEYOND_SCOPE | v6::ADDRESS) => {
            (icmpv4::UNREACHABLE, v4::HOST, 0)
        }
        (icmpv6::UNREACHABLE, v6::ADMIN_PROHIBITED) => (icmpv4::UNREACHABLE, v4::HOST_PROHIBITED, 0),
        (icmpv6::UNREACHABLE, v6::PORT) => (icmpv4::UNREACHABLE, v4::PORT, 0),
        // RFC 4443 3.2: receivers ignore the code.
        (icmpv6::PACKET_TOO_BIG, _) => (icmpv4::UNREACHABLE, v4::FRAGMENTATION_NEEDED, 0),
        (icmpv6::TIME_EXCEEDED, code) => (icmpv4::TIME_EXCEEDED, code, 0),
        (icmpv6::PARAMETER_PROBLEM, parameter::ERRONEOUS_FIELD) => {
            (icmpv4::PARAMETER_PROBLEM, 0, u32::from(pointer(m.word)?) << 24)
        }
        (icmpv6::PARAMETER_PROBLEM, parameter::UNKNOWN_NEXT_HEADER) => (icmpv4::UNREACHABLE, v4::PROTOCOL, 0),
        (kind, _) if icmpv6::is_single_hop(kind) => return Err(DropReason::IcmpSingleHop),
        _ => return Err(DropReason::IcmpUnknownType),
    };
    Ok(Message { kind, code, word })
}

/// Translates a byte offset in the IPv6 header to the offset of the field in IPv4 (RFC 7915 5.2, figure 6).
fn pointer(at: u32) -> Result<u8, DropReason> {
    match at {
        0 => Ok(0),     // version
        1 => Ok(1),     // traffic class: type of service
        4 | 5 => Ok(2), // Payload Length: Total Length
        6 => Ok(9),     // Next Header: protocol
        7 => Ok(8),     // hop limit: TTL
        8..=23 => Ok(12),
        24..=39 => Ok(16),
        _ => Err(DropReason::IcmpPointerUntranslatable),
    }
}
