//! VXLAN (RFC 7348): an IP packet in a UDP datagram between two translators that know each other.
//!
//! ```text
//!   outer IPv4 (20) or IPv6 (40) | UDP (8) | VXLAN (8) | inner Ethernet (14) | IP packet
//! ```
//! The inner addresses of Ethernet are fixed, because no bridge is behind the tunnel. The outer header has
//! the packet's class and congestion mark (RFC 6040) and no UDP checksum (RFC 7348 5, RFC 6935). It must not
//! be fragmented (RFC 7348 4.3).

use crate::checksum::{self, Delta};
use crate::hdr::{get16, get32, ipv4, ipv6, put16, udp};
use crate::{Checksum, DropReason, Ipv4View, Ipv6View, Packet, Segmentation, proto};
use core::net::IpAddr;

/// UDP port of VXLAN.
pub const PORT: u16 = 4789;
/// Length in bytes of the VXLAN header.
pub const LEN: usize = 8;
/// Inner Ethernet address of the receiver.
pub const TO_MAC: [u8; 6] = [0x02, b'g', b'a', b't', b'u', b'n'];
/// Inner Ethernet address of the sender.
pub const FROM_MAC: [u8; 6] = [0x06, b'g', b'a', b't', b'u', b'n'];
/// Largest network identifier: 24 bits.
pub const VNI_MAX: u32 = (1 << 24) - 1;

/// Length of the inner Ethernet header.
const ETHERNET: usize = 14;
/// Bytes between the outer IP header and the inner packet.
const BETWEEN: usize = udp::LEN + LEN + ETHERNET;
/// Largest length of all outer headers.
pub const HEADERS_MAX: usize = ipv6::LEN + BETWEEN;
/// First flags byte of a header with a network identifier, and its bit.
const HAS_VNI: u8 = 0x08;
const ETHERTYPE_4: u16 = 0x0800;
const ETHERTYPE_6: u16 = 0x86dd;
const TTL: u8 = 64;
const CONGESTED: u8 = 3;

/// Length in bytes of all outer headers, with outer addresses of a family.
pub const fn headers_len(is_v6: bool) -> usize {
    BETWEEN + if is_v6 { ipv6::LEN } else { ipv4::LEN }
}

/// Outer header of packets to another translator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outer {
    /// Tunnel addresses of the sender and the receiver, of the same family.
    pub ends: (IpAddr, IpAddr),
    /// UDP port of the receiver.
    pub port: u16,
    /// Network identifier.
    pub vni: u32,
}

/// Properties of an inner packet that the outer headers depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inner {
    /// True for IPv6.
    pub is_v6: bool,
    /// Type of service or traffic class.
    pub class: u8,
    /// Source port of the outer header, which distinguishes flows for routers (RFC 7348 5).
    pub flow_port: u16,
}

impl Inner {
    /// Reads an IPv4 packet.
    #[inline]
    pub fn of4(bytes: &[u8], view: &Ipv4View) -> Inner {
        let is_piece = view.fragment.is_some();
        let ports = ports(bytes, view.l4_offset.into(), view.proto, is_piece);
        let addresses = u64::from(u32::from(view.src)) << 32 | u64::from(u32::from(view.dst));
        Inner {
            is_v6: false,
            class: view.tos,
            flow_port: flow_port(addresses, ports ^ u32::from(view.proto)),
        }
    }

    /// Reads an IPv6 packet. Ports behind extension headers do not count.
    #[inline]
    pub fn of6(bytes: &[u8], view: &Ipv6View) -> Inner {
        let (src, dst) = (u128::from(view.src), u128::from(view.dst));
        let addresses = ((src >> 64) as u64).rotate_left(31) ^ (src as u64) ^ (dst as u64).rotate_left(17);
        let next = bytes.get(ipv6::NEXT_HEADER).copied().unwrap_or(0);
        let ports = ports(bytes, ipv6::LEN, next, false);
        let class = view.traffic_class;
        Inner { is_v6: true, class, flow_port: flow_port(addresses, ports ^ u32::from(next)) }
    }
}

/// Both ports of TCP and UDP.
#[inline]
fn ports(bytes: &[u8], at: usize, proto: u8, is_piece: bool) -> u32 {
    match proto {
        proto::TCP | proto::UDP if !is_piece => get32(bytes, at).unwrap_or(0),
        _ => 0,
    }
}

/// Dynamic port (RFC 6335) for a flow.
#[inline]
fn flow_port(addresses: u64, ports: u32) -> u16 {
    let mixed = addresses.wrapping_mul(0xff51_afd7_ed55_8ccd);
    let mixed = (mixed ^ mixed >> 32 ^ u64::from(ports)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    0xc000 | (mixed >> 50) as u16
}

impl Outer {
    /// Length in bytes of all outer headers.
    #[inline]
    pub fn headers_len(&self) -> usize {
        headers_len(self.ends.0.is_ipv6())
    }

    /// Writes all headers before an inner packet of `inner_len` bytes. `out` has their length.
    ///
    /// # Errors
    /// `bad_len` if `out` has another length, or the datagram would be too long.
    #[inline]
    pub fn write(&self, inner: &Inner, inner_len: usize, out: &mut [u8]) -> Result<(), DropReason> {
        let payload = u16::try_from(inner_len + BETWEEN).map_err(|_| DropReason::BadLength)?;
        let rest = match self.ends {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let (ip, rest) = out.split_first_chunk_mut().ok_or(DropReason::BadLength)?;
                let total_len = payload.checked_add(ipv4::LEN as u16).ok_or(DropReason::BadLength)?;
                // RFC 6864: the identification of a packet with DF means nothing.
                let (tos, flags, proto) = (inner.class, ipv4::DF, proto::UDP);
                ipv4::Header { tos, total_len, id: 0, flags, ttl: TTL, proto, src, dst }.write(ip);
                rest
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let (ip, rest) = out.split_first_chunk_mut().ok_or(DropReason::BadLength)?;
                let (traffic_class, next_header) = (inner.class, proto::UDP);
                ipv6::Header { traffic_class, payload_len: payload, next_header, hop_limit: TTL, src, dst }
                    .write(ip);
                rest
            }
            _ => return Err(DropReason::BadLength),
        };
        let between: &mut [u8; BETWEEN] = rest.try_into().map_err(|_| DropReason::BadLength)?;
        let ethertype = if inner.is_v6 { ETHERTYPE_6 } else { ETHERTYPE_4 };
        let udp = u64::from(inner.flow_port) << 48 | u64::from(self.port) << 32 | u64::from(payload) << 16;
        let vxlan = u64::from(HAS_VNI) << 56 | u64::from(self.vni & VNI_MAX) << 8;
        let (words, macs) = between.split_at_mut(udp::LEN + LEN);
        words.copy_from_slice(&(u128::from(udp) << 64 | u128::from(vxlan)).to_be_bytes());
        if let Some((to, rest)) = macs.split_first_chunk_mut::<6>()
            && let Some((from, kind)) = rest.split_first_chunk_mut::<6>()
        {
            (*to, *from) = (TO_MAC, FROM_MAC);
            put16(kind, 0, ethertype);
        }
        Ok(())
    }

    /// Puts all headers before a packet without work left for a device.
    ///
    /// # Errors
    /// Same as [`write`](Self::write), and `no_headroom`. The packet is unchanged then.
    #[inline]
    pub fn encapsulate(&self, packet: &mut Packet<'_>, inner: &Inner) -> Result<(), DropReason> {
        let (len, inner_len) = (self.headers_len(), packet.len());
        packet.shift_start(-(len as isize))?;
        let written = match packet.bytes_mut().get_mut(..len) {
            Some(out) => self.write(inner, inner_len, out),
            None => Err(DropReason::NoHeadroom),
        };
        if written.is_err() {
            packet.shift_start(len as isize)?;
        }
        written
    }
}

/// Returns whether a packet is a UDP packet to an address and port. Fragments and packets with IP options or
/// extension headers are not: no tunnel makes them.
#[inline]
pub fn is_to(bytes: &[u8], own: IpAddr, port: u16) -> bool {
    let to_port = |at| get16(bytes, at + 2) == Some(port);
    match own {
        IpAddr::V4(own) => {
            let Some(header) = bytes.first_chunk::<{ ipv4::LEN }>() else { return false };
            let is_whole = get16(header, ipv4::FLAGS).is_some_and(|flags| flags & !ipv4::DF == 0);
            header[16..] == own.octets()
                && header[0] == 0x45
                && header[9] == proto::UDP
                && is_whole
                && to_port(ipv4::LEN)
        }
        IpAddr::V6(own) => {
            let Some(header) = bytes.first_chunk::<{ ipv6::LEN }>() else { return false };
            header[24..] == own.octets()
                && header[0] >> 4 == 6
                && header[6] == proto::UDP
                && to_port(ipv6::LEN)
        }
    }
}

/// Sender of a packet [`is_to`] this translator.
#[inline]
pub fn sender(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.first()? >> 4 {
        4 => Some(IpAddr::from(*bytes.get(12..)?.first_chunk::<4>()?)),
        _ => Some(IpAddr::from(*bytes.get(8..)?.first_chunk::<16>()?)),
    }
}

/// Takes the outer headers off a packet [`is_to`] this translator. Returns its network identifier. Check the
/// [`sender`] first.
///
/// # Errors
/// `tunnel_header` if the headers are not those of [`Outer`], or if a length or a checksum is wrong. It is
/// also the result if the outer header reports congestion and the inner one may not (RFC 6040 4.2). The
/// packet is unchanged then.
pub fn decapsulate(packet: &mut Packet<'_>) -> Result<u32, DropReason> {
    let bytes = packet.bytes();
    let (class, ip_len, end) = match bytes.first().map(|b| b >> 4) {
        Some(4) => {
            let view = Ipv4View::parse(bytes).map_err(|_| DropReason::TunnelHeader)?;
            (view.tos, ipv4::LEN, view.total_len as usize)
        }
        _ => {
            let view = Ipv6View::parse_fixed(bytes).map_err(|_| DropReason::TunnelHeader)?;
            (view.traffic_class, ipv6::LEN, view.total_len as usize)
        }
    };
    let datagram = bytes.get(ip_len..end).ok_or(DropReason::TunnelHeader)?;
    let (between, inner) = datagram.split_first_chunk::<BETWEEN>().ok_or(DropReason::TunnelHeader)?;
    let is_v6 = inner.first().is_some_and(|first| first >> 4 == 6);
    let ethertype = if is_v6 { ETHERTYPE_6 } else { ETHERTYPE_4 };
    let has = |at, value| get16(between, at) == Some(value);
    let is_right = has(udp::LENGTH, datagram.len() as u16)
        && between[udp::LEN] & HAS_VNI != 0
        && between[udp::LEN + LEN..].first_chunk() == Some(&TO_MAC)
        && has(BETWEEN - 2, ethertype)
        && !inner.is_empty()
        && packet.offload.segmentation == Segmentation::None
        && udp_sum_is_right(packet, ip_len, end);
    if !is_right {
        return Err(DropReason::TunnelHeader);
    }
    let vni = get32(between, udp::LEN + 4).unwrap_or(0) >> 8;
    let is_congested = class & CONGESTED == CONGESTED;
    let inner_class = inner_class(inner, is_v6);
    if is_congested && inner_class & CONGESTED == 0 {
        return Err(DropReason::TunnelHeader);
    }
    let headers = ip_len + BETWEEN;
    packet.truncate(end);
    packet.shift_start(headers as isize)?;
    packet.offload.checksum = match packet.offload.checksum {
        Checksum::Partial { start, offset } if usize::from(start) > headers => {
            Checksum::Partial { start: start - headers as u16, offset }
        }
        // That of the outer header.
        _ => Checksum::Complete,
    };
    if is_congested {
        mark_congested(packet.bytes_mut(), is_v6, inner_class);
    }
    Ok(vni)
}

/// Returns whether the outer UDP checksum is right, or there is none. A partial one has not been on a wire.
fn udp_sum_is_right(packet: &Packet<'_>, ip_len: usize, end: usize) -> bool {
    let Some(datagram) = packet.bytes().get(ip_len..end) else { return false };
    if get16(datagram, udp::CHECKSUM) == Some(0) || packet.offload.checksum != Checksum::Complete {
        return true;
    }
    let at = if ip_len == ipv4::LEN { ipv4::ADDRESSES } else { ipv6::ADDRESSES };
    let addresses = packet.bytes().get(at..ip_len).unwrap_or_default();
    let pseudo = checksum::pseudo(addresses, datagram.len() as u32, proto::UDP);
    checksum::add(pseudo, checksum::sum(datagram)) == 0xffff
}

fn inner_class(inner: &[u8], is_v6: bool) -> u8 {
    let first = get16(inner, 0).unwrap_or(0);
    if is_v6 { (first >> 4) as u8 } else { first as u8 }
}

/// Marks a packet as having met congestion.
fn mark_congested(bytes: &mut [u8], is_v6: bool, class: u8) {
    let Some(old) = get16(bytes, 0) else { return };
    let marked = u16::from(class | CONGESTED);
    let new = if is_v6 { old & 0xf00f | marked << 4 } else { old & 0xff00 | marked };
    put16(bytes, 0, new);
    if !is_v6 && let Some(sum) = get16(bytes, ipv4::CHECKSUM) {
        put16(bytes, ipv4::CHECKSUM, Delta::of(old, new).apply(sum));
    }
}

/// Takes one from the hop limit of a packet. The caller has checked that it is above one.
#[inline]
pub fn take_hop(bytes: &mut [u8], is_v6: bool) {
    let at = if is_v6 { 7 } else { ipv4::TTL };
    let Some(hops) = bytes.get_mut(at) else { return };
    *hops = hops.saturating_sub(1);
    if !is_v6 && let Some(sum) = get16(bytes, ipv4::CHECKSUM) {
        put16(bytes, ipv4::CHECKSUM, Delta::of(0x0100, 0).apply(sum));
    }
}
