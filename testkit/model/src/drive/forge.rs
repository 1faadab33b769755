//! Packets as hosts send them, and malformed ones.

use super::history::{Cut, Form, FragmentDefect, PacketDefect, Proto};
use crate::wire::errors::Message;
use crate::wire::put16;
use crate::wire::sum::{pseudo, sum, sum_from};
use crate::wire::to4::Header4;
use crate::wire::to6::Header6;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A packet between two addresses of one family. For echo, the first port is the identifier.
pub fn forge(proto: Proto, src: IpAddr, dst: IpAddr, ports: (u16, u16), form: &Form) -> Vec<u8> {
    let (number, mut l4, field) = transport(proto, src.is_ipv4(), ports, form.len);
    if let (Some(at), false) = (field, proto == Proto::UdpZero) {
        let checksum = !match number {
            1 => sum(&l4),
            _ => sum_from(sum(&pseudo(src, dst, l4.len(), number)), &l4),
        };
        let checksum = if checksum == 0 && number == 17 { 0xffff } else { checksum };
        let wrong = if let PacketDefect::BadSum(n) = form.twist { n } else { 0 };
        put16(&mut l4, at, checksum ^ wrong);
    }
    twisted(whole(number, src, dst, &l4, form), form.twist)
}

fn transport(proto: Proto, four: bool, (sport, dport): (u16, u16), len: u16) -> (u8, Vec<u8>, Option<usize>) {
    let data = (0..len).map(|i| (i as u8).wrapping_mul(37) ^ 0x5a);
    let mut l4 = Vec::new();
    let ports = |l4: &mut Vec<u8>| {
        l4.extend(sport.to_be_bytes());
        l4.extend(dport.to_be_bytes());
    };
    match proto {
        Proto::Tcp(flags) => {
            ports(&mut l4);
            l4.extend([0, 0, 3, 232, 0, 0, 7, 208, 0x50, flags, 16, 0, 0, 0, 0, 0]);
            l4.extend(data);
            (6, l4, Some(16))
        }
        Proto::Udp | Proto::UdpZero => {
            ports(&mut l4);
            l4.extend((8 + len).to_be_bytes());
            l4.extend([0, 0]);
            l4.extend(data);
            (17, l4, Some(6))
        }
        Proto::Echo(request) => {
            let kind = match (four, request) {
                (true, true) => 8,
                (true, false) => 0,
                (false, true) => 128,
                (false, false) => 129,
            };
            icmp(four, (kind, 0, u32::from(sport) << 16 | 1), data)
        }
        Proto::Icmp(kind) => icmp(four, (kind, 0, u32::from(sport) << 16 | 1), data),
        Proto::Other(number) => {
            l4.extend(data);
            (number, l4, None)
        }
    }
}

fn icmp(
    four: bool,
    (kind, code, word): Message,
    data: impl Iterator<Item = u8>,
) -> (u8, Vec<u8>, Option<usize>) {
    let mut l4 = vec![kind, code, 0, 0];
    l4.extend(word.to_be_bytes());
    l4.extend(data);
    (if four { 1 } else { 58 }, l4, Some(2))
}

/// An ICMP error with a quoted packet.
pub fn error(src: IpAddr, dst: IpAddr, message: Message, quote: &[u8], form: &Form) -> Vec<u8> {
    let (number, mut l4, _) = icmp(src.is_ipv4(), message, quote.iter().copied());
    let start = if number == 1 { 0 } else { sum(&pseudo(src, dst, l4.len(), number)) };
    let wrong = if let PacketDefect::BadSum(n) = form.twist { n } else { 0 };
    let checksum = !sum_from(start, &l4) ^ wrong;
    put16(&mut l4, 2, checksum);
    twisted(whole(number, src, dst, &l4, form), form.twist)
}

fn whole(number: u8, src: IpAddr, dst: IpAddr, l4: &[u8], form: &Form) -> Vec<u8> {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let flags = if form.df { 0x4000 } else { 0 };
            Header4 { tos: form.tos, ident: 0x1234, flags, ttl: form.ttl, proto: number, ends: (src, dst) }
                .packet(l4)
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            Header6 { tos: form.tos, hops: form.ttl, proto: number, ends: (src, dst), piece: None }.packet(l4)
        }
        _ => Vec::new(),
    }
}

/// The fragments of a packet, each with complete headers (RFC 791 3.2, RFC 8200 4.5).
pub fn cut(packet: &[u8], &Cut { id, size, order, odd }: &Cut) -> Vec<Vec<u8>> {
    let header = match packet.first().map(|b| b >> 4) {
        Some(4) if packet.len() > 20 && packet[0] == 0x45 => 20,
        Some(6) if packet.len() > 40 => 40,
        _ => return vec![packet.to_vec()],
    };
    let (head, payload) = packet.split_at(header);
    let count = payload.chunks(size.into()).count();
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    for (n, part) in payload.chunks(size.into()).enumerate() {
        let odd_here = |which: u8| usize::from(which) % count == n;
        let mut at = n * usize::from(size);
        let mut more = n + 1 < count;
        match odd {
            FragmentDefect::Missing(which) if odd_here(which) => continue,
            FragmentDefect::Only(which) if !odd_here(which) => continue,
            FragmentDefect::Shifted(which) if odd_here(which) => at = at.saturating_sub(8),
            FragmentDefect::Last(which) if odd_here(which) => more = false,
            _ => {}
        }
        let piece = piece(head, at as u16, more, id, part);
        if matches!(odd, FragmentDefect::Doubled(which) if odd_here(which)) {
            pieces.push(piece.clone());
        }
        pieces.push(piece);
    }
    match order % 4 {
        1 => pieces.reverse(),
        2 if !pieces.is_empty() => pieces.rotate_left(1),
        3 if pieces.len() > 2 => pieces.swap(1, 2),
        _ => {}
    }
    pieces
}

fn piece(head: &[u8], at: u16, more: bool, id: u8, part: &[u8]) -> Vec<u8> {
    let mut out = head.to_vec();
    if head.len() == 20 {
        put16(&mut out, 2, 20 + part.len() as u16);
        put16(&mut out, 4, id.into());
        let df = head[6] & 0x40;
        put16(&mut out, 6, (at / 8) | if more { 0x2000 } else { 0 });
        out[6] |= df;
        put16(&mut out, 10, 0);
        let checksum = !sum(&out);
        put16(&mut out, 10, checksum);
    } else {
        put16(&mut out, 4, 8 + part.len() as u16);
        let next = std::mem::replace(&mut out[6], 44);
        out.extend([next, 0]);
        out.extend((at | u16::from(more)).to_be_bytes());
        out.extend([0, 0, 0x77, id]);
    }
    out.extend(part);
    out
}

/// The packet with a defect.
pub fn twisted(mut packet: Vec<u8>, twist: PacketDefect) -> Vec<u8> {
    match twist {
        PacketDefect::Truncate(n) => packet.truncate(n.into()),
        PacketDefect::Pad(n) => packet.extend(std::iter::repeat_n(0xee, n.into())),
        PacketDefect::Byte { at, value, mend } => {
            if packet.is_empty() {
                return packet;
            }
            let at = usize::from(at) % packet.len();
            packet[at] = value;
            if mend && packet[0] == 0x45 && packet.len() >= 20 {
                put16(&mut packet, 10, 0);
                let checksum = !sum(&packet[..20]);
                put16(&mut packet, 10, checksum);
            }
        }
        PacketDefect::Options(n) => packet = with_options(packet, n),
        PacketDefect::None | PacketDefect::BadSum(_) => {}
    }
    packet
}

/// IPv4 options or IPv6 extension headers, by number.
fn with_options(packet: Vec<u8>, n: u8) -> Vec<u8> {
    match packet.first().map(|b| b >> 4) {
        Some(4) if packet.len() >= 20 && packet[0] == 0x45 => {
            let options: &[u8] = match n % 6 {
                0 => &[1, 1, 1, 0],
                1 => &[131, 7, 4, 10, 0, 0, 1, 0],
                2 => &[131, 7, 8, 10, 0, 0, 1, 0],
                3 => &[137, 7, 4, 10, 0, 0, 1, 0],
                4 => &[7, 7, 4, 0, 0, 0, 0, 0],
                _ => &[148, 4, 0, 0],
            };
            let mut out = packet[..20].to_vec();
            out.extend(options);
            out.extend(&packet[20..]);
            out[0] = 0x45 + (options.len() / 4) as u8;
            let total = (out.len() as u16).to_be_bytes();
            out[2..4].copy_from_slice(&total);
            put16(&mut out, 10, 0);
            let header = 20 + options.len();
            let checksum = !sum(&out[..header]);
            put16(&mut out, 10, checksum);
            out
        }
        Some(6) if packet.len() >= 40 => {
            let kinds: &[u8] = match n % 8 {
                0 => &[0],
                1 => &[60],
                2 => &[43],
                3 => &[0, 60, 43, 60],
                4 => &[44],
                5 => &[51],
                6 => &[44, 60],
                _ => &[60; 17],
            };
            let mut headers = Vec::new();
            for (at, &kind) in kinds.iter().enumerate() {
                let next = kinds.get(at + 1).copied().unwrap_or(packet[6]);
                let segments_left = u8::from(kind == 43 && n & 0x40 != 0);
                headers.extend(match kind {
                    44 => [next, 0, 0, 0, 0, 0, 0x12, n],
                    43 => [next, 0, 0, segments_left, 0, 0, 0, 0],
                    _ => [next, 0, 1, 4, 0, 0, 0, 0],
                });
            }
            let mut out = packet[..40].to_vec();
            out[6] = kinds[0];
            out.extend(&headers);
            out.extend(&packet[40..]);
            let payload = (out.len() as u16 - 40).to_be_bytes();
            out[4..6].copy_from_slice(&payload);
            out
        }
        _ => packet,
    }
}

/// Addresses of routers on the path.
pub fn router4(n: u8) -> Ipv4Addr {
    match n % 8 {
        5 => Ipv4Addr::new(100, 64, 0, 99),
        6 => Ipv4Addr::new(127, 0, 0, 1),
        7 => Ipv4Addr::new(192, 168, 1, 1),
        n => Ipv4Addr::new(4, 4, 4, n + 1),
    }
}

/// Returns the IPv6 form of [`router4`].
pub fn router6(n: u8) -> Ipv6Addr {
    match n % 8 {
        7 => Ipv6Addr::LOCALHOST,
        n => Ipv6Addr::new(0x2001, 0xface, 0, 0, 0, 0, 0, u16::from(n) + 1),
    }
}
