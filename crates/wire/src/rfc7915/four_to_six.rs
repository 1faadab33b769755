//! IPv4 to IPv6 (RFC 7915 4.1), except ICMP errors.

use super::{Ports, Settings, To6, Whole, ZeroChecksum, mtu, transport};
use crate::hdr::{fragment, icmpv4, icmpv6, ipv6};
use crate::{DropReason, FragmentInfo, Ipv4View, L4, Packet, Segmentation, mss, proto};

/// Turns the IPv4 packet into an IPv6 packet, in place. The payload does not move.
///
/// # Errors
/// `ttl`, `v4_opt_srcroute`, `too_big4` (answered with [`mtu::fragmentation_needed`]),
/// `udp_zero_csum`, `frag_zero_csum_stateless`, `frag_icmp`, `icmp_unknown_type`, `icmp_single_hop`,
/// `unsupported_proto`, `v6_ah`, ...; `mtu_unfragmentable` for a super-packet that [`crate::segment`] has to
/// cut first. The packet is unchanged then.
#[inline(always)]
pub fn translate(
    packet: &mut Packet<'_>,
    view: &Ipv4View,
    l4: L4,
    to: &To6,
    settings: &Settings,
) -> Result<Whole, DropReason> {
    let next_header = protocol(view, l4, to.ports)?;
    if view.l4_offset > 20 && view.has_source_route(packet.bytes()) {
        return Err(DropReason::SourceRoute);
    }
    if view.ttl <= 1 {
        return Err(DropReason::TtlExceeded);
    }
    let l4_at = usize::from(view.l4_offset);
    let l4_len = (view.total_len as usize).checked_sub(l4_at).ok_or(DropReason::BadLength)?;
    let fit = mtu::fit_4to6(view, l4, packet, settings)?;
    let partial = packet.offload.partial_field(l4_at)?;
    let compute = match l4 {
        L4::Udp { no_checksum: true, .. } if partial.is_none() => must_compute(*view, packet, settings)?,
        _ => false,
    };
    // RFC 7915 4: a Fragment header only if the packet is a fragment or is cut (RFC 8021: no atomic
    // fragments).
    let fragment = match (view.fragment, fit.whole) {
        (Some(f), _) => Some(f),
        (None, Whole::Split(_)) => Some(FragmentInfo { offset: 0, more: false, id: u32::from(view.id) }),
        (None, Whole::Yes) => None,
    };
    let header = header(view, to, next_header, fragment.is_some(), l4_len, settings)?;

    let new_at = ipv6::LEN + if fragment.is_some() { fragment::LEN } else { 0 };
    packet.replace_header(l4_at, new_at, l4_len)?;
    fit.shrink_segments(&mut packet.offload);
    mss::clamp(packet, new_at, l4, settings.mss_max, partial.is_some());

    if let Some((ip, rest)) = packet.bytes_mut().split_first_chunk_mut::<{ ipv6::LEN }>() {
        header.write(ip);
        if fragment.is_none() && !compute && next_header != proto::ICMPV6 {
            transport::rewrite(rest, l4, to.ports, to.addresses, partial);
            return Ok(fit.whole);
        }
        if let (Some(f), Some(place)) = (fragment, rest.first_chunk_mut()) {
            *place = fragment::to_bytes(next_header, f);
        }
    }
    finish_slow(packet, l4, *to, new_at, partial, compute);
    if fit.whole != Whole::Yes {
        packet.complete_checksum();
    }
    Ok(fit.whole)
}

/// Transport part of echo messages, of fragments, of packets that will be cut, and of UDP without checksum.
/// Addresses are passed by value: references would force them into memory for every packet.
#[inline(never)]
fn finish_slow(
    packet: &mut Packet<'_>,
    l4: L4,
    to: To6,
    l4_at: usize,
    partial: Option<usize>,
    compute: bool,
) {
    let is_echo = matches!(l4, L4::Echo { .. });
    if is_echo || (compute && partial.is_none()) {
        packet.complete_checksum(); // of the message itself, or of a packet inside the datagram
    }
    let l4_bytes = packet.bytes_mut().get_mut(l4_at..).unwrap_or_default();
    match l4 {
        L4::Echo { request, id } => {
            let kind = if request { icmpv6::ECHO_REQUEST } else { icmpv6::ECHO_REPLY };
            let pseudo = super::icmpv6_pseudo((to.src, to.dst), to.ports.message_len(l4_bytes.len()));
            transport::rewrite_echo(l4_bytes, kind, id, to.ports, pseudo);
        }
        _ => transport::rewrite(l4_bytes, l4, to.ports, to.addresses, partial),
    }
    if compute {
        transport::compute_udp(l4_bytes, super::addresses_sum((to.src, to.dst)));
    }
}

#[inline]
fn header(
    view: &Ipv4View,
    to: &To6,
    next_header: u8,
    has_fragment_header: bool,
    l4_len: usize,
    settings: &Settings,
) -> Result<ipv6::Header, DropReason> {
    let extra = if has_fragment_header { fragment::LEN } else { 0 };
    Ok(ipv6::Header {
        traffic_class: settings.traffic_class_4to6.unwrap_or(view.tos),
        payload_len: u16::try_from(l4_len + extra).map_err(|_| DropReason::BadLength)?,
        next_header: if has_fragment_header { proto::FRAGMENT } else { next_header },
        hop_limit: view.ttl - 1,
        src: to.src,
        dst: to.dst,
    })
}

/// Next Header of the transport, or the reason to drop the packet.
#[inline]
fn protocol(view: &Ipv4View, l4: L4, ports: Ports) -> Result<u8, DropReason> {
    if matches!(l4, L4::Tcp { .. } | L4::Udp { .. }) {
        return Ok(view.proto);
    }
    match view.proto {
        proto::TCP | proto::UDP => Ok(view.proto), // a later fragment
        proto::ICMP => icmp(view, l4, ports),
        proto::IGMP => Err(DropReason::IcmpSingleHop),
        proto::AH => Err(DropReason::AuthenticationHeader),
        // As Next Header, these would mean ICMPv6 without a pseudo-header in its checksum, or unchecked
        // extension headers.
        proto::ICMPV6 | proto::HOP_BY_HOP | proto::ROUTING | proto::FRAGMENT | proto::DEST_OPTIONS => {
            Err(DropReason::UnsupportedProtocol)
        }
        other => Ok(other),
    }
}

fn icmp(view: &Ipv4View, l4: L4, ports: Ports) -> Result<u8, DropReason> {
    let is_known = matches!(ports, Ports::EchoPiece { .. });
    if view.fragment.is_some() && !is_known {
        return Err(DropReason::FragmentIcmp); // RFC 7915 1.2
    }
    match l4 {
        L4::Echo { .. } => Ok(proto::ICMPV6),
        L4::LaterFragment if is_known => Ok(proto::ICMPV6),
        L4::IcmpOther { kind } | L4::IcmpError { kind, .. } if icmpv4::is_single_hop(kind) => {
            Err(DropReason::IcmpSingleHop)
        }
        _ => Err(DropReason::IcmpUnknownType),
    }
}

/// Decides whether to compute the checksum of a datagram without one (RFC 7915 4.5).
#[cold]
fn must_compute(view: Ipv4View, packet: &Packet<'_>, settings: &Settings) -> Result<bool, DropReason> {
    let l4_bytes = packet.bytes().get(usize::from(view.l4_offset)..view.total_len as usize);
    match settings.udp_zero_checksum {
        ZeroChecksum::Drop => Err(DropReason::ZeroUdpChecksum),
        ZeroChecksum::Forward => Ok(false),
        // Computing needs the rest of the datagram.
        ZeroChecksum::Compute if view.fragment.is_some() => Err(DropReason::FragmentZeroChecksum),
        ZeroChecksum::Compute if packet.offload.segmentation != Segmentation::None => {
            Err(DropReason::Unfragmentable)
        }
        ZeroChecksum::Compute => transport::udp_len(l4_bytes.unwrap_or_default()).map(|_| true),
    }
}
