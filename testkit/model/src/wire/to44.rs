//! IPv4 to IPv4: RFC 3022 4. The caller chooses addresses and ports; only the TTL changes besides.

use super::sum::{pseudo, sum};
use super::to4::{readjust, replace_id, replace_ports};
use super::{Header, L4, NewPorts, get16, parse, proto, put16};
use gatun_wire::DropReason;
use std::net::{IpAddr, Ipv4Addr};

/// Parameters of the translated packet.
pub struct Out44 {
    /// New source and destination.
    pub ends: (Ipv4Addr, Ipv4Addr),
    /// New ports.
    pub ports: NewPorts,
    /// New identification (RFC 6864 5.3.1), if any.
    pub ident: Option<u16>,
    /// MTU of the outgoing link, bytes.
    pub mtu: usize,
}

/// The packet, or its fragments.
pub fn translate(packet: &[u8], h: &Header<'_>, l4: L4, out: &Out44) -> Result<Vec<Vec<u8>>, DropReason> {
    if matches!(l4, L4::Error { .. } | L4::OtherIcmp { .. }) {
        return Err(DropReason::IcmpUnknownType); // see `error`
    }
    check_header(h)?;
    let header = header(&packet[..h.header_len], out.ends, h.ttl - 1, out.ident);
    let payload = transport(h, l4, out.ends, out.ports);
    cut(header, &payload, h.df, out.mtu)
}

fn check_header(h: &Header<'_>) -> Result<(), DropReason> {
    if h.source_route {
        return Err(DropReason::SourceRoute);
    }
    if h.ttl <= 1 { Err(DropReason::TtlExceeded) } else { Ok(()) }
}

/// A header with its options and its new fields.
fn header(old: &[u8], ends: (Ipv4Addr, Ipv4Addr), ttl: u8, ident: Option<u16>) -> Vec<u8> {
    let mut header = old.to_vec();
    if let Some(ident) = ident {
        put16(&mut header, 4, ident);
    }
    header[8] = ttl;
    header[12..16].copy_from_slice(&ends.0.octets());
    header[16..20].copy_from_slice(&ends.1.octets());
    resum(&mut header);
    header
}

fn resum(header: &mut [u8]) {
    put16(header, 10, 0);
    let checksum = !sum(header);
    put16(header, 10, checksum);
}

/// The payload with new ports and checksum; a right checksum stays right, a wrong one as wrong.
pub fn transport(h: &Header<'_>, l4: L4, ends: (Ipv4Addr, Ipv4Addr), ports: NewPorts) -> Vec<u8> {
    let mut p = h.payload.to_vec();
    match l4 {
        L4::Tcp { .. } | L4::Udp { .. } => {
            let mut old = pseudo(h.src, h.dst, h.length, h.proto);
            let mut new = pseudo(IpAddr::V4(ends.0), IpAddr::V4(ends.1), h.length, h.proto);
            replace_ports(&mut p, ports, &mut old, &mut new);
            readjust(&mut p, if h.proto == proto::TCP { 16 } else { 6 }, h.proto, &old, &new);
        }
        L4::Echo { .. } => {
            let (mut old, mut new) = (Vec::new(), Vec::new());
            replace_id(&mut p, ports, &mut old, &mut new);
            readjust(&mut p, 2, proto::ICMP, &old, &new);
        }
        _ => {}
    }
    p
}

/// RFC 791 3.2: fragments of at most `mtu` bytes, unless DF forbids it (RFC 4787 REQ-13).
fn cut(header: Vec<u8>, payload: &[u8], df: bool, mtu: usize) -> Result<Vec<Vec<u8>>, DropReason> {
    if header.len() + payload.len() <= mtu {
        return Ok(vec![[&header, payload].concat()]);
    }
    if df {
        return Err(DropReason::TooBig4);
    }
    let room = (mtu - header.len()) / 8 * 8;
    let whole = get16(&header, 6);
    let mut pieces = Vec::new();
    for (n, part) in payload.chunks(room).enumerate() {
        let mut piece = if n == 0 { header.clone() } else { later(&header) };
        let last = (n + 1) * room >= payload.len();
        let more = if last { whole & 0x2000 } else { 0x2000 };
        let total = (piece.len() + part.len()) as u16;
        put16(&mut piece, 2, total);
        put16(&mut piece, 6, more | ((whole & 0x1fff) + (n * room / 8) as u16));
        resum(&mut piece);
        piece.extend(part);
        pieces.push(piece);
    }
    Ok(pieces)
}

/// Header of further fragments: it has only the options that are to be copied (RFC 791 3.1).
fn later(header: &[u8]) -> Vec<u8> {
    let mut out = header[..20].to_vec();
    let mut at = 20;
    while at < header.len() && header[at] != 0 {
        let len = if header[at] == 1 { 1 } else { header.get(at + 1).copied().unwrap_or(0).into() };
        if len == 0 || (header[at] != 1 && len < 2) || at + len > header.len() {
            break;
        }
        if header[at] & 0x80 != 0 {
            out.extend(&header[at..at + len]);
        }
        at += len;
    }
    out.resize(out.len().div_ceil(4) * 4, 0);
    out[0] = 0x40 | (out.len() / 4) as u8;
    out
}

/// An ICMP error with new ends, and its inner packet with new ends and ports (RFC 5508 4).
pub fn error(
    packet: &[u8],
    h: &Header<'_>,
    outer: &Out44,
    inner_ends: (Ipv4Addr, Ipv4Addr),
    inner_ports: NewPorts,
) -> Result<Vec<Vec<u8>>, DropReason> {
    check_header(h)?;
    let inner = parse::parse4(&h.payload[8..], true)?;
    let l4 = parse::l4(&inner, true)?;
    let old = &h.payload[8..8 + inner.header_len];
    let mut icmp = h.payload[..8].to_vec();
    icmp.extend(header(old, inner_ends, inner.ttl, None));
    icmp.extend(transport(&inner, l4, inner_ends, inner_ports));
    put16(&mut icmp, 2, 0);
    let checksum = !sum(&icmp);
    put16(&mut icmp, 2, checksum);
    cut(header(&packet[..h.header_len], outer.ends, h.ttl - 1, outer.ident), &icmp, h.df, outer.mtu)
}
