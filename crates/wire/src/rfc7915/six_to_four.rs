//! IPv6 to IPv4 (RFC 7915 5.1), except ICMP errors.

use super::{Ports, Settings, To4, Whole, mtu, transport};
use crate::hdr::{icmpv4, icmpv6, ipv4};
use crate::{DropReason, Ipv6View, L4, Packet, Segmentation, mss, proto};
use core::net::Ipv6Addr;

/// Turns the IPv6 packet into an IPv4 packet, in place. The payload does not move.
///
/// `id` is the identification to use if the packet has no Fragment header. A device that cuts a super-packet
/// counts on from it ([`crate::segment::count`] returns the number of packets).
/// Echo messages become ICMPv4 echo messages, and so do their fragments if [`Ports::EchoPiece`] gives the
/// length of the message. [`super::icmp_6to4`] translates ICMP errors.
///
/// A UDP datagram without checksum (RFC 6935) stays without one: IPv4 allows this, and the translator must
/// not confirm unverified contents. Every other checksum is adjusted, never zeroed.
///
/// # Errors
/// `ttl`, `too_big6` (answered with [`mtu::packet_too_big`]), `icmp_unknown_type`, `icmp_single_hop`,
/// `frag_icmp`, `unsupported_proto`, ...; `mtu_unfragmentable` for a super-packet that [`crate::segment`] has
/// to cut first. The packet is unchanged then.
#[inline(always)]
pub fn translate(
    packet: &mut Packet<'_>,
    view: &Ipv6View,
    l4: L4,
    to: &To4,
    id: u16,
    settings: &Settings,
) -> Result<Whole, DropReason> {
    let proto = protocol(view, l4, to.ports)?;
    if view.hop_limit <= 1 {
        return Err(DropReason::TtlExceeded);
    }
    let l4_at = usize::from(view.l4_offset);
    let l4_len = (view.total_len as usize).checked_sub(l4_at).ok_or(DropReason::BadLength)?;
    let fit = mtu::fit_6to4(view, l4, packet, settings)?;
    let header = ipv4::Header {
        tos: settings.tos_6to4.unwrap_or(view.traffic_class),
        total_len: u16::try_from(ipv4::LEN + l4_len).map_err(|_| too_long(packet))?,
        id: view.fragment.map_or(id, |f| f.id as u16), // RFC 7915 5.1.1: the low 16 bits
        flags: flags(view, fit.wire_len),
        ttl: view.hop_limit - 1,
        proto,
        src: to.src,
        dst: to.dst,
    };

    let partial = packet.offload.partial_field(l4_at)?;
    packet.replace_header(l4_at, ipv4::LEN, l4_len)?;
    fit.shrink_segments(&mut packet.offload);
    mss::clamp(packet, ipv4::LEN, l4, settings.mss_max, partial.is_some());
    let must_complete = fit.whole != Whole::Yes || proto == proto::ICMP;

    let bytes = packet.bytes_mut();
    if let Some((ip, l4_bytes)) = bytes.split_first_chunk_mut::<{ ipv4::LEN }>() {
        header.write(ip);
        if !must_complete {
            transport::rewrite(l4_bytes, l4, to.ports, to.addresses, partial);
            return Ok(fit.whole);
        }
    }
    finish_slow(packet, (view.src, view.dst), l4, *to, partial);
    Ok(fit.whole)
}

/// Transport part of packets whose checksum must be complete: echo messages, and packets that will be cut.
/// Addresses are passed by value: references would force them into memory for every packet.
#[inline(never)]
fn finish_slow(packet: &mut Packet<'_>, from: (Ipv6Addr, Ipv6Addr), l4: L4, to: To4, partial: Option<usize>) {
    if let L4::Echo { request, id } = l4 {
        packet.complete_checksum();
        let l4_bytes = packet.bytes_mut().get_mut(ipv4::LEN..).unwrap_or_default();
        let kind = if request { icmpv4::ECHO_REQUEST } else { icmpv4::ECHO_REPLY };
        let pseudo = super::icmpv6_pseudo(from, to.ports.message_len(l4_bytes.len())).inverse();
        transport::rewrite_echo(l4_bytes, kind, id, to.ports, pseudo);
    } else {
        let l4_bytes = packet.bytes_mut().get_mut(ipv4::LEN..).unwrap_or_default();
        transport::rewrite(l4_bytes, l4, to.ports, to.addresses, partial);
        packet.complete_checksum();
    }
}

/// IPv4 protocol, or the reason to drop the packet.
#[inline]
fn protocol(view: &Ipv6View, l4: L4, ports: Ports) -> Result<u8, DropReason> {
    if matches!(l4, L4::Tcp { .. } | L4::Udp { .. }) {
        return Ok(view.proto);
    }
    match view.proto {
        proto::ICMPV6 => icmp(view, l4, ports),
        proto::IGMP => Err(DropReason::IcmpSingleHop),
        // ICMPv4 under an IPv6 header would become an unchecked ICMP message.
        proto::ICMP => Err(DropReason::UnsupportedProtocol),
        other => Ok(other),
    }
}

fn icmp(view: &Ipv6View, l4: L4, ports: Ports) -> Result<u8, DropReason> {
    let is_known = matches!(ports, Ports::EchoPiece { .. });
    if view.fragment.is_some_and(|f| !f.is_atomic()) && !is_known {
        return Err(DropReason::FragmentIcmp); // RFC 7915 1.2
    }
    match l4 {
        L4::Echo { .. } => Ok(proto::ICMP),
        L4::LaterFragment if is_known => Ok(proto::ICMP),
        L4::IcmpOther { kind } if icmpv6::is_single_hop(kind) => Err(DropReason::IcmpSingleHop),
        _ => Err(DropReason::IcmpUnknownType),
    }
}

/// DF, MF and the offset (RFC 7915 5.1, 5.1.1). For a super-packet, the size of a full segment counts.
#[inline]
pub(super) fn flags(view: &Ipv6View, wire_len: u32) -> u16 {
    match view.fragment {
        Some(f) => f.offset >> 3 | if f.more { ipv4::MF } else { 0 },
        None => dont_fragment(wire_len),
    }
}

/// DF for a packet of this many bytes that is not a fragment.
#[inline(always)]
pub(crate) fn dont_fragment(wire_len: u32) -> u16 {
    if wire_len > mtu::DF_CLEAR_MAX { ipv4::DF } else { 0 }
}

/// Reason for a packet longer than Total Length can express: IPv6 allows 20 bytes more.
#[cold]
fn too_long(packet: &Packet<'_>) -> DropReason {
    match packet.offload.segmentation {
        Segmentation::None => DropReason::TooBig6,
        _ => DropReason::Unfragmentable,
    }
}
