//! IPv6 to IPv4: RFC 7915 5. The caller chooses addresses and ports.

use super::sum::{adjusted, pseudo, sum};
use super::{Header, L4, NewPorts, get16, get32, parse, proto, put16};
use gatun_wire::{DropReason, Settings};
use std::net::{IpAddr, Ipv4Addr};

/// Parameters of an IPv4 packet.
pub struct Out4<'a> {
    /// New source.
    pub src: Ipv4Addr,
    /// New destination.
    pub dst: Ipv4Addr,
    /// New ports.
    pub ports: NewPorts,
    /// Identification, if RFC 7915 leaves it to the translator.
    pub ident: u16,
    /// The settings.
    pub settings: &'a Settings,
}

/// Fields of an IPv4 header without options.
#[derive(Clone, Copy, Debug)]
pub struct Header4 {
    /// TOS.
    pub tos: u8,
    /// Identification.
    pub ident: u16,
    /// Flags and fragment offset.
    pub flags: u16,
    /// TTL.
    pub ttl: u8,
    /// Protocol of the payload.
    pub proto: u8,
    /// Source and destination.
    pub ends: (Ipv4Addr, Ipv4Addr),
}

impl Header4 {
    /// The packet with this payload.
    pub fn packet(&self, payload: &[u8]) -> Vec<u8> {
        self.quoted(payload.len(), payload)
    }

    /// A packet quoted by an ICMP error: `payload` is the start of its `length` bytes of payload.
    pub fn quoted(&self, length: usize, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, self.tos];
        packet.extend((20 + length as u16).to_be_bytes());
        packet.extend(self.ident.to_be_bytes());
        packet.extend(self.flags.to_be_bytes());
        packet.extend([self.ttl, self.proto, 0, 0]);
        packet.extend(self.ends.0.octets());
        packet.extend(self.ends.1.octets());
        let checksum = !sum(&packet);
        put16(&mut packet, 10, checksum);
        packet.extend(payload);
        packet
    }
}

/// Flags and identification (RFC 7915 5.1, 5.1.1).
fn placement(h: &Header<'_>, ident: u16) -> (u16, u16) {
    match h.piece {
        Some(p) => {
            let more = if p.more { 0x2000 } else { 0 };
            (p.id as u16, more | (p.offset / 8) as u16)
        }
        // At most 1260 bytes: DF is clear, so that it may be fragmented on the path, and it has an
        // identification.
        None if 20 + h.length > 1260 => (ident, 0x4000),
        None => (ident, 0),
    }
}

/// IPv4 protocol of the payload.
fn new_proto(h: &Header<'_>) -> u8 {
    if h.proto == proto::ICMPV6 { proto::ICMP } else { h.proto }
}

/// The packet, or its fragments for a small IPv4 MTU.
pub fn translate(h: &Header<'_>, l4: L4, out: &Out4<'_>) -> Result<Vec<Vec<u8>>, DropReason> {
    if h.ttl <= 1 {
        return Err(DropReason::TtlExceeded);
    }
    let payload = match l4 {
        L4::Error { .. } => return Err(DropReason::IcmpUnknownType), // see `error`
        _ => transport(h, l4, (out.src, out.dst), out.ports),
    };
    let (ident, flags) = placement(h, out.ident);
    let header = Header4 {
        tos: out.settings.tos_6to4.unwrap_or(h.tos),
        ident,
        flags,
        ttl: h.ttl - 1,
        proto: new_proto(h),
        ends: (out.src, out.dst),
    };
    let mtu = out.settings.mtu4 as usize;
    if 20 + payload.len() <= mtu {
        return Ok(vec![header.packet(&payload)]);
    }
    // RFC 7915 5, decision 0020: no Packet Too Big to a sender that cannot act on it.
    let advertised = (mtu + 20).max(1280);
    if h.header_len + h.length > advertised {
        return Err(DropReason::TooBig6);
    }
    let room = (mtu - 20) / 8 * 8;
    let mut pieces = Vec::new();
    for (n, part) in payload.chunks(room).enumerate() {
        let last = (n + 1) * room >= payload.len();
        let more = if last { flags & 0x2000 } else { 0x2000 };
        let at = (flags & 0x1fff) + (n * room / 8) as u16;
        pieces.push(Header4 { flags: more | at, ..header }.packet(part));
    }
    Ok(pieces)
}

/// The payload with new ports, types and checksum; a right checksum stays right, a wrong one as wrong.
pub fn transport(h: &Header<'_>, l4: L4, ends: (Ipv4Addr, Ipv4Addr), ports: NewPorts) -> Vec<u8> {
    let mut p = h.payload.to_vec();
    let (src, dst) = (IpAddr::V4(ends.0), IpAddr::V4(ends.1));
    match l4 {
        L4::Tcp { .. } | L4::Udp { .. } => {
            let mut old = pseudo(h.src, h.dst, h.length, h.proto);
            let mut new = pseudo(src, dst, h.length, h.proto);
            let field = if h.proto == proto::TCP { 16 } else { 6 };
            replace_ports(&mut p, ports, &mut old, &mut new);
            readjust(&mut p, field, h.proto, &old, &new);
        }
        L4::Echo { request, .. } => {
            // ICMPv4 has no pseudo-header (RFC 7915 5.2).
            let mut old = pseudo(h.src, h.dst, h.length, proto::ICMPV6);
            let mut new = Vec::new();
            old.extend(&p[..2]);
            p[0] = if request { 8 } else { 0 };
            new.extend(&p[..2]);
            replace_id(&mut p, ports, &mut old, &mut new);
            readjust(&mut p, 2, proto::ICMP, &old, &new);
        }
        _ => {}
    }
    p
}

/// Writes new ports, and collects old and new bytes for the checksum.
pub fn replace_ports(p: &mut [u8], ports: NewPorts, old: &mut Vec<u8>, new: &mut Vec<u8>) {
    let Some((src, dst)) = ports else { return };
    old.extend(&p[..4]);
    put16(p, 0, src);
    put16(p, 2, dst);
    new.extend(&p[..4]);
}

/// Writes a new echo identifier, as [`replace_ports`].
pub fn replace_id(p: &mut [u8], ports: NewPorts, old: &mut Vec<u8>, new: &mut Vec<u8>) {
    let Some((id, _)) = ports else { return };
    old.extend(&p[4..6]);
    put16(p, 4, id);
    new.extend(&p[4..6]);
}

/// Adjusts the checksum field if it is present. A UDP checksum of zero means none, and stays zero.
pub fn readjust(p: &mut [u8], field: usize, proto: u8, old: &[u8], new: &[u8]) {
    if p.len() < field + 2 {
        return;
    }
    let was = get16(p, field);
    if proto == proto::UDP && was == 0 {
        return;
    }
    let is = match adjusted(was, old, new) {
        0 if proto == proto::UDP => 0xffff,
        is => is,
    };
    put16(p, field, is);
}

/// Type, code and second word of an ICMPv4 error (RFC 7915 5.2).
pub fn message(
    kind: u8,
    code: u8,
    word: u32,
    fragmented: bool,
    s: &Settings,
) -> Result<(u8, u8, u32), DropReason> {
    let untranslatable = DropReason::IcmpUnknownType;
    let smaller = if fragmented { 28 } else { 20 };
    Ok(match (kind, code) {
        (1, 0 | 2 | 3) => (3, 1, 0),
        (1, 1) => (3, 10, 0),
        (1, 4) => (3, 3, 0),
        (2, _) => {
            let mtu = word.saturating_sub(smaller).min(s.mtu4).min(s.mtu6 - smaller);
            (3, 4, mtu.clamp(68, 65_535)) // minimum of an IPv4 link (RFC 791)
        }
        (3, code) => (11, code, 0),
        (4, 0) => (12, 0, pointer(word)? << 24),
        (4, 1) => (3, 2, 0),
        _ => return Err(untranslatable),
    })
}

/// RFC 7915 5.2 figure 6.
fn pointer(at: u32) -> Result<u32, DropReason> {
    Ok(match at {
        0 => 0,
        1 => 1,
        4 | 5 => 2,
        6 => 9,
        7 => 8,
        8..=23 => 12,
        24..=39 => 16,
        _ => return Err(DropReason::IcmpPointerUntranslatable),
    })
}

/// Translates an ICMPv6 error to ICMPv4: from `outer.0` to `outer.1` with `ident`, with the inner packet from
/// `inner_ends.0` to `inner_ends.1` and `inner_ports`.
pub fn error(
    h: &Header<'_>,
    outer: (Ipv4Addr, Ipv4Addr),
    inner_ends: (Ipv4Addr, Ipv4Addr),
    inner_ports: NewPorts,
    ident: u16,
    s: &Settings,
) -> Result<Vec<u8>, DropReason> {
    let p = h.payload;
    let (quote, extension) = split_extension(p, 4, 8, matches!(p[0], 1 | 3))?;
    let word = if matches!(p[0], 2 | 4) { get32(p, 4) } else { 0 };
    let inner = parse::parse6(quote, true)?;
    let (kind, code, mut new_word) = message(p[0], p[1], word, inner.piece.is_some(), s)?;
    let inner_l4 = parse::l4(&inner, true)?;
    let payload = transport(&inner, inner_l4, inner_ends, inner_ports);
    // Decision 0020: the packet's identification is unknown.
    let (inner_ident, inner_flags) = placement(&inner, 0);
    let inner_header = Header4 {
        tos: s.tos_6to4.unwrap_or(inner.tos),
        ident: inner_ident,
        flags: inner_flags,
        ttl: inner.ttl,
        proto: new_proto(&inner),
        ends: inner_ends,
    };
    let quote = inner_header.quoted(inner.length, &payload);
    let extension = if matches!(kind, 3 | 11) && (kind, code) != (3, 4) { extension } else { &[] };
    let (body, words) = join_extension(quote, extension, 4, usize::from(s.icmp4_error_max) - 28);
    if words > 0 {
        new_word |= (words as u32) << 16;
    }
    let mut icmp = vec![kind, code, 0, 0];
    icmp.extend(new_word.to_be_bytes());
    icmp.extend(body);
    let checksum = !sum(&icmp);
    put16(&mut icmp, 2, checksum);
    let flags = if 20 + icmp.len() > 1260 { 0x4000 } else { 0 };
    let tos = s.tos_6to4.unwrap_or(h.tos);
    let header = Header4 { tos, ident, flags, ttl: h.ttl - 1, proto: proto::ICMP, ends: outer };
    Ok(header.packet(&icmp))
}

/// RFC 4884: the quoted datagram, and the extensions behind it. The length field is at `at`, in units of
/// `unit` bytes; only some types have it.
pub fn split_extension(p: &[u8], at: usize, unit: usize, has: bool) -> Result<(&[u8], &[u8]), DropReason> {
    let rest = &p[8..];
    let size = usize::from(p[at]) * unit;
    if !has || size == 0 {
        return Ok((rest, &[]));
    }
    if size > rest.len() {
        return Err(DropReason::IcmpExtensionBad);
    }
    Ok(rest.split_at(size))
}

/// RFC 4884 4: the datagram padded to the unit and to 128 bytes, then the extensions; also the length field.
/// Extensions that do not fit beside 128 bytes are removed.
pub fn join_extension(mut quote: Vec<u8>, extension: &[u8], unit: usize, room: usize) -> (Vec<u8>, usize) {
    if extension.is_empty() || extension.len() + 128 > room {
        quote.truncate(room);
        return (quote, 0);
    }
    let most = (room - extension.len()) / unit * unit;
    let size = quote.len().max(128).div_ceil(unit) * unit;
    let size = size.min(most);
    quote.resize(size, 0);
    quote.extend(extension);
    (quote, size / unit)
}
