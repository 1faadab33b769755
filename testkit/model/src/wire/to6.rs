//! IPv4 to IPv6: RFC 7915 4. The caller chooses addresses and ports.

use super::sum::{pseudo, sum, sum_from};
use super::to4::{join_extension, readjust, replace_id, replace_ports, split_extension};
use super::{Header, L4, NewPorts, Piece, get16, get32, parse, proto, put16};
use gatun_wire::rfc7915::ZeroChecksum;
use gatun_wire::{DropReason, Settings};
use std::net::{IpAddr, Ipv6Addr};

/// MTU plateaus of RFC 1191 7.
const PLATEAUS: [u32; 11] = [65_535, 32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, 508, 296, 68];

/// Parameters of an IPv6 packet.
pub struct Out6<'a> {
    /// New source.
    pub src: Ipv6Addr,
    /// New destination.
    pub dst: Ipv6Addr,
    /// New ports.
    pub ports: NewPorts,
    /// The settings.
    pub settings: &'a Settings,
}

/// Fields of an IPv6 header, and of a Fragment header for `piece`.
#[derive(Clone, Copy, Debug)]
pub struct Header6 {
    /// Traffic class.
    pub tos: u8,
    /// Hop limit.
    pub hops: u8,
    /// Protocol of the payload.
    pub proto: u8,
    /// Source and destination.
    pub ends: (Ipv6Addr, Ipv6Addr),
    /// Position of a fragment, for its Fragment header.
    pub piece: Option<Piece>,
}

impl Header6 {
    /// The packet with this payload.
    pub fn packet(&self, payload: &[u8]) -> Vec<u8> {
        self.quoted(payload.len(), payload)
    }

    /// A packet quoted by an ICMP error: `payload` is the start of its `length` bytes of payload.
    pub fn quoted(&self, length: usize, payload: &[u8]) -> Vec<u8> {
        let Header6 { tos, hops, proto, ends, piece } = *self;
        let mut packet = vec![0x60 | tos >> 4, tos << 4, 0, 0];
        let grown = length + if piece.is_some() { 8 } else { 0 };
        packet.extend((grown as u16).to_be_bytes());
        packet.extend([if piece.is_some() { proto::FRAGMENT } else { proto }, hops]);
        packet.extend(ends.0.octets());
        packet.extend(ends.1.octets());
        if let Some(p) = piece {
            packet.extend([proto, 0]);
            packet.extend((p.offset as u16 | u16::from(p.more)).to_be_bytes());
            packet.extend((p.id & 0xffff).to_be_bytes());
        }
        packet.extend(payload);
        packet
    }
}

/// IPv6 protocol of the payload.
fn new_proto(h: &Header<'_>) -> u8 {
    if h.proto == proto::ICMP { proto::ICMPV6 } else { h.proto }
}

/// The packet, or its fragments of at most the lowest IPv6 MTU (RFC 7915 4).
pub fn translate(h: &Header<'_>, l4: L4, out: &Out6<'_>) -> Result<Vec<Vec<u8>>, DropReason> {
    if h.source_route {
        return Err(DropReason::SourceRoute);
    }
    if h.ttl <= 1 {
        return Err(DropReason::TtlExceeded);
    }
    let size = h.header_len + h.length;
    let fits = fits(h, size, out.settings)?;
    let payload = transport(h, l4, out)?;
    let header = Header6 {
        tos: out.settings.traffic_class_4to6.unwrap_or(h.tos),
        hops: h.ttl - 1,
        proto: new_proto(h),
        ends: (out.src, out.dst),
        piece: h.piece,
    };
    if fits {
        return Ok(vec![header.packet(&payload)]);
    }
    let room = (lowest(out.settings) - 48) / 8 * 8;
    let base = h.piece.unwrap_or(Piece { offset: 0, more: false, id: h.ident.into() });
    let mut pieces = Vec::new();
    for (n, part) in payload.chunks(room).enumerate() {
        let last = (n + 1) * room >= payload.len();
        let piece = Piece { offset: base.offset + n * room, more: base.more || !last, id: base.id };
        pieces.push(Header6 { piece: Some(piece), ..header }.packet(part));
    }
    Ok(pieces)
}

/// Returns true if the packet leaves unfragmented; with DF it must. RFC 7915 4 compares an IPv4 packet with
/// DF and its options against the MTU (decision 0020); a fragment also grows by a Fragment header.
fn fits(h: &Header<'_>, size: usize, s: &Settings) -> Result<bool, DropReason> {
    let fragment = if h.piece.is_some() { 8 } else { 0 };
    if h.df {
        if size + 20 + fragment > s.mtu6 as usize {
            return Err(DropReason::TooBig4);
        }
        return Ok(true);
    }
    Ok(40 + h.length + fragment <= lowest(s))
}

/// Size of the fragments of packets without DF, at most the next hop's MTU.
fn lowest(s: &Settings) -> usize {
    s.lowest_ipv6_mtu.min(s.mtu6) as usize
}

/// The payload with new ports, types and checksum, or the reason why it has none.
pub fn transport(h: &Header<'_>, l4: L4, out: &Out6<'_>) -> Result<Vec<u8>, DropReason> {
    let mut p = h.payload.to_vec();
    let (src, dst) = (IpAddr::V6(out.src), IpAddr::V6(out.dst));
    match l4 {
        L4::Udp { no_checksum: true, .. } => {
            replace_ports(&mut p, out.ports, &mut vec![], &mut vec![]);
            match out.settings.udp_zero_checksum {
                ZeroChecksum::Forward => {}
                ZeroChecksum::Drop => return Err(DropReason::ZeroUdpChecksum),
                // RFC 7915 4.5. The checksum covers the length in the UDP header, and no bytes behind it.
                ZeroChecksum::Compute if !h.is_whole() => return Err(DropReason::FragmentZeroChecksum),
                ZeroChecksum::Compute => {
                    let len = usize::from(get16(&p, 4));
                    if len < 8 || len > p.len() {
                        return Err(DropReason::BadLength);
                    }
                    let covered = pseudo(src, dst, len, proto::UDP);
                    let checksum = match !sum_from(sum(&p[..len]), &covered) {
                        0 => 0xffff,
                        checksum => checksum,
                    };
                    put16(&mut p, 6, checksum);
                }
            }
        }
        _ => readdress(&mut p, h, l4, (src, dst), out.ports),
    }
    Ok(p)
}

/// Sets new ports, types and checksums of protocols with a checksum.
fn readdress(p: &mut [u8], h: &Header<'_>, l4: L4, ends: (IpAddr, IpAddr), ports: NewPorts) {
    match l4 {
        L4::Tcp { .. } | L4::Udp { .. } => {
            let mut old = pseudo(h.src, h.dst, h.length, h.proto);
            let mut new = pseudo(ends.0, ends.1, h.length, h.proto);
            let field = if h.proto == proto::TCP { 16 } else { 6 };
            replace_ports(p, ports, &mut old, &mut new);
            readjust(p, field, h.proto, &old, &new);
        }
        L4::Echo { request, .. } => {
            let mut old = p[..2].to_vec();
            let mut new = pseudo(ends.0, ends.1, h.length, proto::ICMPV6);
            p[0] = if request { 128 } else { 129 };
            new.extend(&p[..2]);
            replace_id(p, ports, &mut old, &mut new);
            readjust(p, 2, proto::ICMPV6, &old, &new);
        }
        _ => {}
    }
}

/// Type, code and second word of an ICMPv6 error (RFC 7915 4.2). `quoted` is the inner Total Length.
pub fn message(
    kind: u8,
    code: u8,
    word: u32,
    quoted: usize,
    s: &Settings,
) -> Result<(u8, u8, u32), DropReason> {
    Ok(match (kind, code) {
        (3, 0 | 1 | 5 | 6 | 7 | 8 | 11 | 12) => (1, 0, 0),
        (3, 2) => (4, 1, 6),
        (3, 3) => (1, 4, 0),
        (3, 4) => {
            let said = word & 0xffff;
            let path = match said {
                // RFC 1191 5: an old router reports no MTU; less than 68 counts as none (A79-32).
                0..68 => PLATEAUS.into_iter().find(|&p| (p as usize) < quoted).unwrap_or(68),
                said => said,
            };
            (2, 0, (path + 20).min(s.mtu6).min(s.mtu4 + 20).max(1280))
        }
        (3, 9 | 10 | 13 | 15) => (1, 1, 0),
        (11, code) => (3, code, 0),
        (12, 0 | 2) => (4, 0, pointer(word >> 24)?),
        _ => return Err(DropReason::IcmpUnknownType),
    })
}

/// RFC 7915 4.2 figure 3.
fn pointer(at: u32) -> Result<u32, DropReason> {
    Ok(match at {
        0 => 0,
        1 => 1,
        2 | 3 => 4,
        8 => 7,
        9 => 6,
        12..=15 => 8,
        16..=19 => 24,
        _ => return Err(DropReason::IcmpPointerUntranslatable),
    })
}

/// Translates an ICMPv4 error to ICMPv6: from `outer.0` to `outer.1`, with the inner packet from
/// `inner_ends.0` to `inner_ends.1`.
pub fn error(
    h: &Header<'_>,
    outer: (Ipv6Addr, Ipv6Addr),
    inner_ends: (Ipv6Addr, Ipv6Addr),
    inner_ports: NewPorts,
    s: &Settings,
) -> Result<Vec<u8>, DropReason> {
    let p = h.payload;
    let (quote, extension) = split_extension(p, 5, 4, matches!(p[0], 3 | 11 | 12))?;
    let inner = parse::parse4(quote, true)?;
    let inner_l4 = parse::l4(&inner, true)?;
    let total = inner.header_len + inner.length;
    let (kind, code, mut word) = message(p[0], p[1], get32(p, 4), total, s)?;
    let mut payload = inner.payload.to_vec();
    let ends = (IpAddr::V6(inner_ends.0), IpAddr::V6(inner_ends.1));
    readdress(&mut payload, &inner, inner_l4, ends, inner_ports);
    let inner_header = Header6 {
        tos: s.traffic_class_4to6.unwrap_or(inner.tos),
        hops: inner.ttl,
        proto: new_proto(&inner),
        ends: inner_ends,
        piece: inner.piece,
    };
    let quote = inner_header.quoted(inner.length, &payload);
    // RFC 4884 4: only these types have a length field.
    let extension = if matches!(kind, 1 | 3) { extension } else { &[] };
    let (body, words) = join_extension(quote, extension, 8, 1280 - 48);
    if words > 0 {
        word |= (words as u32) << 24;
    }
    let mut icmp = vec![kind, code, 0, 0];
    icmp.extend(word.to_be_bytes());
    icmp.extend(body);
    let covered = pseudo(IpAddr::V6(outer.0), IpAddr::V6(outer.1), icmp.len(), proto::ICMPV6);
    let checksum = !sum_from(sum(&covered), &icmp);
    put16(&mut icmp, 2, checksum);
    let tos = s.traffic_class_4to6.unwrap_or(h.tos);
    let header = Header6 { tos, hops: h.ttl - 1, proto: proto::ICMPV6, ends: outer, piece: None };
    Ok(header.packet(&icmp))
}

/// Returns true if an ICMP message's checksum is right (RFC 5508 REQ-3 a).
pub fn icmp_sum_is_right(h: &Header<'_>) -> bool {
    let start = match h.src {
        IpAddr::V4(_) => 0,
        IpAddr::V6(_) => sum(&pseudo(h.src, h.dst, h.length, proto::ICMPV6)),
    };
    h.payload.len() >= 8 && sum_from(start, h.payload) == 0xffff
}
