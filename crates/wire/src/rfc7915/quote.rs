//! Body of an ICMP error after its eight bytes: the quoted packet, followed by extensions (RFC 4884).
//!
//! ```text
//!   | ICMP header, with the length of: | datagram, zero-padded | extension structure |
//! ```
//! A length of zero means that the whole body is the datagram. RFC 4884 requires at least 128 bytes. A
//! smaller length is accepted as it is, and the translated error is compliant.

use super::transport;
use super::{Ports, Settings, To4, To6, six_to_four};
use crate::checksum::Delta;
use crate::hdr::{fragment, icmpv4, icmpv6, ipv4, ipv6};
use crate::{DropReason, Ipv4View, Ipv6View, L4, proto};

/// Shortest datagram before an extension (RFC 4884 5).
const DATAGRAM_MIN: usize = 128;

/// Checks that a packet with this transport header can be translated inside an ICMP error.
///
/// # Errors
/// `icmp_double_error`, `icmp_inner_untranslatable`.
pub(super) fn translatable(l4: L4) -> Result<L4, DropReason> {
    match l4 {
        L4::IcmpError { .. } => Err(DropReason::IcmpDoubleError),
        L4::IcmpOther { .. } => Err(DropReason::IcmpInnerUntranslatable),
        l4 => Ok(l4),
    }
}

/// The two parts of an ICMP error's body.
#[derive(Clone, Copy)]
pub(super) struct Quote<'a> {
    pub(super) datagram: &'a [u8],
    pub(super) extension: &'a [u8],
}

impl<'a> Quote<'a> {
    /// Splits a body whose length attribute is `attribute` units of `unit` bytes.
    ///
    /// # Errors
    /// `icmp_ext_bad` if that is longer than the body.
    pub(super) fn split(body: &'a [u8], attribute: u8, unit: usize) -> Result<Self, DropReason> {
        let len = usize::from(attribute) * unit;
        match body.split_at_checked(len) {
            _ if attribute == 0 => Ok(Quote { datagram: body, extension: &[] }),
            Some((datagram, extension)) => Ok(Quote { datagram, extension }),
            None => Err(DropReason::IcmpExtensionBad),
        }
    }

    /// Datagram without the zeros that padded it before its extension.
    pub(super) fn unpadded(&self, original_len: u32) -> &'a [u8] {
        match self.datagram.get(..original_len as usize) {
            Some(original) if !self.extension.is_empty() => original,
            _ => self.datagram,
        }
    }

    /// Writes the extension after the datagram of `len` bytes in `area`. Returns the length of both in bytes
    /// and the length attribute. An extension that does not fit even after the shortest datagram is left out.
    pub(super) fn lay_out(&self, area: &mut [u8], len: usize, unit: usize) -> (usize, u8) {
        let len = len.min(area.len());
        let room = area.len().saturating_sub(self.extension.len()).min(255 * unit);
        let padded = len.next_multiple_of(unit).max(DATAGRAM_MIN).min(room - room % unit);
        if self.extension.is_empty() || padded < DATAGRAM_MIN {
            return (len, 0);
        }
        if let Some(padding) = area.get_mut(len..padded) {
            padding.fill(0);
        }
        let end = padded + self.extension.len();
        if let Some(place) = area.get_mut(padded..end) {
            place.copy_from_slice(self.extension);
        }
        (end, (padded / unit) as u8)
    }
}

/// Writes the IPv6 form of a quoted IPv4 packet to `out`, as much as fits, and returns its length. TTL and
/// length are those of the packet when it was quoted (RFC 7915 4.3).
///
/// # Errors
/// `icmp_inner_untranslatable`.
pub(super) fn write6(
    quote: &Quote<'_>,
    view: &Ipv4View,
    l4: L4,
    to: &To6,
    settings: &Settings,
    out: &mut [u8],
) -> Result<usize, DropReason> {
    let next_header = match view.proto {
        proto::ICMP => proto::ICMPV6,
        proto::ICMPV6 | proto::HOP_BY_HOP | proto::ROUTING | proto::FRAGMENT | proto::DEST_OPTIONS => {
            return Err(DropReason::IcmpInnerUntranslatable);
        }
        proto::AH | proto::IGMP => return Err(DropReason::IcmpInnerUntranslatable),
        other => other,
    };
    let l4_len = view.total_len - u32::from(view.l4_offset);
    let extra = if view.fragment.is_some() { fragment::LEN } else { 0 };
    let header = ipv6::Header {
        traffic_class: settings.traffic_class_4to6.unwrap_or(view.tos),
        payload_len: u16::try_from(l4_len + extra as u32).unwrap_or(u16::MAX),
        next_header: if view.fragment.is_some() { proto::FRAGMENT } else { next_header },
        hop_limit: view.ttl,
        src: to.src,
        dst: to.dst,
    };
    let (ip, rest) = out.split_first_chunk_mut().ok_or(DropReason::IcmpInnerUntranslatable)?;
    header.write(ip);
    if let (Some(f), Some(place)) = (view.fragment, rest.first_chunk_mut()) {
        *place = fragment::to_bytes(next_header, f);
    }
    let original = quote.unpadded(view.total_len).get(usize::from(view.l4_offset)..).unwrap_or_default();
    let l4_bytes = copy(original, rest.get_mut(extra..).unwrap_or_default());
    let pseudo = super::icmpv6_pseudo((to.src, to.dst), l4_len);
    rewrite(l4_bytes, l4, (icmpv6::ECHO_REQUEST, icmpv6::ECHO_REPLY), to.ports, to.addresses, pseudo);
    Ok(ipv6::LEN + extra + l4_bytes.len())
}

/// Writes the IPv4 form of a quoted IPv6 packet to `out`, as much as fits, and returns its length.
///
/// # Errors
/// `icmp_inner_untranslatable`.
pub(super) fn write4(
    quote: &Quote<'_>,
    view: &Ipv6View,
    l4: L4,
    to: &To4,
    settings: &Settings,
    out: &mut [u8],
) -> Result<usize, DropReason> {
    let proto = match view.proto {
        proto::ICMPV6 => proto::ICMP,
        proto::ICMP | proto::IGMP => return Err(DropReason::IcmpInnerUntranslatable),
        other => other,
    };
    let l4_len = view.total_len - u32::from(view.l4_offset);
    let total_len = ipv4::LEN as u32 + l4_len;
    let header = ipv4::Header {
        tos: settings.tos_6to4.unwrap_or(view.traffic_class),
        total_len: u16::try_from(total_len).unwrap_or(u16::MAX),
        id: view.fragment.map_or(0, |f| f.id as u16), /* the identification of the IPv4 packet is no longer
                                                       * known */
        flags: six_to_four::flags(view, total_len),
        ttl: view.hop_limit,
        proto,
        src: to.src,
        dst: to.dst,
    };
    let (ip, rest) = out.split_first_chunk_mut().ok_or(DropReason::IcmpInnerUntranslatable)?;
    header.write(ip);
    let original = quote.unpadded(view.total_len).get(usize::from(view.l4_offset)..).unwrap_or_default();
    let l4_bytes = copy(original, rest);
    let pseudo = super::icmpv6_pseudo((view.src, view.dst), l4_len).inverse();
    rewrite(l4_bytes, l4, (icmpv4::ECHO_REQUEST, icmpv4::ECHO_REPLY), to.ports, to.addresses, pseudo);
    Ok(ipv4::LEN + l4_bytes.len())
}

/// Rewrites the quoted transport header as far as it was quoted. A checksum that covers cut-off bytes is
/// adjusted like any other. The checksum of a fragmented echo message depends on a length that is unknown
/// here; it is adjusted as if the fragment were the whole message. Receivers verify neither.
fn rewrite(bytes: &mut [u8], l4: L4, echo: (u8, u8), ports: Ports, addresses: Delta, pseudo: Delta) {
    match l4 {
        L4::Echo { request, id } => {
            let kind = if request { echo.0 } else { echo.1 };
            transport::rewrite_echo(bytes, kind, id, ports, pseudo);
        }
        _ => transport::rewrite(bytes, l4, ports, addresses, None),
    }
}

/// Copies as much as fits and returns the written part of `out`.
fn copy<'o>(from: &[u8], out: &'o mut [u8]) -> &'o mut [u8] {
    let len = from.len().min(out.len());
    let out = out.get_mut(..len).unwrap_or_default();
    out.copy_from_slice(from.get(..len).unwrap_or_default());
    out
}
