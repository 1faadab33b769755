//! MTU fields of Packet Too Big and Fragmentation Needed (RFC 7915 4.2, 5.2), and the size on the wire of a
//! packet, or of each segment of a super-packet.

use super::{Settings, Whole};
use crate::hdr::{fragment, ipv4, ipv6, tcp, udp};
use crate::{DropReason, Ipv4View, Ipv6View, L4, Offload, Packet, Segmentation};

/// Largest IPv4 packet that is sent without DF (RFC 7915 5.1). It fits a 1280-byte path on the other side, so
/// a smaller IPv4 link may fragment it, and no Packet Too Big is needed.
pub const DF_CLEAR_MAX: u32 = 1260;

/// Difference in length between an IPv6 and an IPv4 header.
const GROWTH: u32 = 20;

/// Plateaus of RFC 1191 7.1: likely path MTUs.
const PLATEAUS: [u16; 11] = [65_535, 32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, 508, 296, 68];

/// MTU in the answer to an IPv6 packet dropped with `too_big6`, in bytes: at least 1280.
pub fn packet_too_big(settings: &Settings) -> u32 {
    settings.mtu4.saturating_add(GROWTH).max(ipv6::MTU_MIN)
}

/// MTU in the answer to an IPv4 packet dropped with `too_big4`, in bytes. A fragment gets a Fragment header,
/// and its sender must leave room for it.
pub fn fragmentation_needed(view: &Ipv4View, settings: &Settings) -> u16 {
    let mtu = settings.mtu6.saturating_sub(overhead(view.fragment.is_some()));
    u16::try_from(mtu).unwrap_or(u16::MAX)
}

/// MTU of the ICMPv6 Packet Too Big made from an ICMPv4 Fragmentation Needed with the MTU `advertised` about
/// a packet whose Total Length was `total_len` (RFC 7915 4.2).
pub fn advertised_4to6(advertised: u16, total_len: u32, settings: &Settings) -> u32 {
    path_mtu(advertised, total_len)
        .saturating_add(GROWTH)
        .min(settings.mtu6)
        .min(settings.mtu4.saturating_add(GROWTH))
        .max(ipv6::MTU_MIN)
}

/// MTU of a path that refused a packet of `total_len` bytes with a Fragmentation Needed with the MTU
/// `advertised` (RFC 1191 5).
pub fn path_mtu(advertised: u16, total_len: u32) -> u32 {
    // A router without RFC 1191 sends zero. An IPv4 link's MTU cannot be less than 68.
    if advertised < 68 { plateau_below(total_len) } else { u32::from(advertised) }
}

/// Decides how a translated IPv4 packet is sent on a path with the MTU `path`. A packet with DF stays
/// unchanged, because its sender can get an ICMP error. A super-packet of datagrams stays unchanged too,
/// because no device would cut it into fragments. The segments of a TCP super-packet are made smaller.
pub fn narrow(packet: &mut Packet<'_>, view: &Ipv4View, path: u32) -> Whole {
    let l4 = view.l4(packet.bytes());
    let Some(fit) = l4.ok().and_then(|l4| fit_4to4(view, l4, packet, path).ok()) else { return Whole::Yes };
    fit.shrink_segments(&mut packet.offload);
    if fit.whole != Whole::Yes {
        packet.complete_checksum();
    }
    fit.whole
}

/// MTU of the ICMPv4 Fragmentation Needed made from an ICMPv6 Packet Too Big with the MTU `advertised` about
/// a packet with or without Fragment header (RFC 7915 5.2).
pub fn advertised_6to4(advertised: u32, has_fragment_header: bool, settings: &Settings) -> u16 {
    let mtu = advertised.min(settings.mtu6).saturating_sub(overhead(has_fragment_header)).min(settings.mtu4);
    // Zero would mean "unknown" (RFC 1191 4). Every IPv4 link carries at least 68.
    u16::try_from(mtu.max(68)).unwrap_or(u16::MAX)
}

fn overhead(has_fragment_header: bool) -> u32 {
    GROWTH + if has_fragment_header { fragment::LEN as u32 } else { 0 }
}

/// Largest plateau below a length.
fn plateau_below(total_len: u32) -> u32 {
    PLATEAUS.into_iter().map(u32::from).find(|p| *p < total_len).unwrap_or(68)
}

/// Size of a translated packet and how to send it.
#[derive(Clone, Copy)]
pub(crate) struct Fit {
    /// Size of one packet on the wire, including the new IP header.
    pub(super) wire_len: u32,
    pub(crate) whole: Whole,
    /// New limit of payload bytes for each TCP segment that a device cuts.
    segment_size: Option<u16>,
}

impl Fit {
    #[inline(always)]
    fn whole(wire_len: u32) -> Fit {
        Fit { wire_len, whole: Whole::Yes, segment_size: None }
    }

    /// Lowers the segment size for the device if the packet's segments would not fit.
    #[inline(always)]
    pub(crate) fn shrink_segments(&self, offload: &mut Offload) {
        if let (Some(new), Segmentation::Tcp { size, .. }) = (self.segment_size, &mut offload.segmentation) {
            *size = new;
        }
    }
}

/// Measures an IPv6 packet as an IPv4 packet.
#[inline(always)]
pub(super) fn fit_6to4(
    view: &Ipv6View,
    l4: L4,
    packet: &Packet<'_>,
    settings: &Settings,
) -> Result<Fit, DropReason> {
    let (at, len) = (view.l4_offset, view.total_len - u32::from(view.l4_offset));
    let payload = wire_payload(packet, at, len, l4, view.fragment.is_some())?;
    let wire_len = ipv4::LEN as u32 + payload;
    if wire_len <= settings.mtu4 {
        return Ok(Fit::whole(wire_len));
    }
    // The sender can act on Packet Too Big only if its packet is larger than the MTU in it. With an IPv4 link
    // below 1260 bytes the packet may be smaller: then it has no DF and is cut here.
    if u32::from(view.l4_offset) + payload > packet_too_big(settings) {
        return Err(DropReason::TooBig6);
    }
    cut(wire_len, ipv4::LEN as u32, settings.mtu4, l4_bytes(packet, at, len), packet.offload.segmentation)
}

/// Measures an IPv4 packet as an IPv6 packet. `wire_len` does not include a Fragment header that cutting
/// adds.
#[inline(always)]
pub(super) fn fit_4to6(
    view: &Ipv4View,
    l4: L4,
    packet: &Packet<'_>,
    settings: &Settings,
) -> Result<Fit, DropReason> {
    let (at, len) = (view.l4_offset, view.total_len - u32::from(view.l4_offset));
    let payload = wire_payload(packet, at, len, l4, view.fragment.is_some())?;
    let header = ipv4::LEN as u32 + overhead(view.fragment.is_some());
    let wire_len = header + payload;
    if view.dont_fragment {
        // RFC 7915 4 compares Total Length plus 20 with the MTU, so options count although they are removed.
        let options = u32::from(view.l4_offset) - ipv4::LEN as u32;
        if wire_len + options > settings.mtu6 {
            return Err(DropReason::TooBig4);
        }
        return Ok(Fit::whole(wire_len));
    }
    let limit = without_dont_fragment(settings);
    if wire_len <= limit {
        return Ok(Fit::whole(wire_len));
    }
    cut(wire_len, header, limit, l4_bytes(packet, at, len), packet.offload.segmentation)
}

/// Measures an IPv4 packet that stays IPv4, for a link with this MTU (RFC 4787 REQ-13).
pub(crate) fn fit_4to4(view: &Ipv4View, l4: L4, packet: &Packet<'_>, mtu: u32) -> Result<Fit, DropReason> {
    let (at, len) = (view.l4_offset, view.total_len - u32::from(view.l4_offset));
    let payload = wire_payload(packet, at, len, l4, view.fragment.is_some())?;
    let wire_len = u32::from(at) + payload;
    if wire_len <= mtu {
        return Ok(Fit::whole(wire_len));
    }
    if view.dont_fragment {
        return Err(DropReason::TooBig4);
    }
    cut(wire_len, at.into(), mtu, l4_bytes(packet, at, len), packet.offload.segmentation)
}

/// Largest IPv6 packet made from an IPv4 packet without DF (RFC 7915 4).
#[inline(always)]
pub(crate) fn without_dont_fragment(settings: &Settings) -> u32 {
    settings.lowest_ipv6_mtu.min(settings.mtu6).max(ipv6::MTU_MIN)
}

/// Bytes of `l4` in one packet on the wire. For a super-packet, those of one segment.
#[inline(always)]
fn wire_payload(
    packet: &Packet<'_>,
    at: u16,
    len: u32,
    l4: L4,
    is_fragment: bool,
) -> Result<u32, DropReason> {
    match packet.offload.segmentation {
        Segmentation::None => Ok(len),
        segmentation => segment_payload(l4_bytes(packet, at, len), l4, is_fragment, segmentation),
    }
}

#[inline(never)]
fn segment_payload(
    l4_bytes: &[u8],
    l4: L4,
    is_fragment: bool,
    segmentation: Segmentation,
) -> Result<u32, DropReason> {
    let (header, size) = match (segmentation, l4) {
        (Segmentation::Tcp { size, .. }, L4::Tcp { .. }) if !is_fragment => {
            (tcp::header_len(l4_bytes).ok_or(DropReason::L4Truncated)? as u32, size)
        }
        (Segmentation::Udp { size }, L4::Udp { .. }) if !is_fragment => (udp::LEN as u32, size),
        _ => return Err(DropReason::Unfragmentable),
    };
    Ok((l4_bytes.len() as u32).min(header + u32::from(size)))
}

fn l4_bytes<'p>(packet: &'p Packet<'_>, at: u16, len: u32) -> &'p [u8] {
    packet.bytes().get(usize::from(at)..usize::from(at) + len as usize).unwrap_or_default()
}

/// Decides how to cut a packet that is larger than `limit`. Usually it is cut into fragments. A TCP
/// super-packet needs none: a device cuts it anyway, so its segment size is lowered. No receiver can
/// distinguish these segments from those of its peer. Datagram boundaries must be kept, so a super-packet of
/// datagrams has to be cut into datagrams first ([`crate::segment`]).
#[cold]
fn cut(
    wire_len: u32,
    ip_header: u32,
    limit: u32,
    l4_bytes: &[u8],
    segmentation: Segmentation,
) -> Result<Fit, DropReason> {
    match segmentation {
        Segmentation::None => Ok(Fit { wire_len, whole: Whole::Split(limit), segment_size: None }),
        Segmentation::Tcp { .. } => {
            let header = tcp::header_len(l4_bytes).ok_or(DropReason::L4Truncated)? as u32;
            let room = limit.saturating_sub(ip_header + header);
            let size = u16::try_from(room).unwrap_or(u16::MAX);
            if size == 0 {
                return Err(DropReason::Unfragmentable);
            }
            Ok(Fit { segment_size: Some(size), ..Fit::whole(ip_header + header + u32::from(size)) })
        }
        Segmentation::Udp { .. } => Err(DropReason::Unfragmentable),
    }
}
