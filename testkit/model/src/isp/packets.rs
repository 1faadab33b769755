//! Packets of the simulation: small, with right checksums, and checked again when they come out.

use crate::wire::sum::{pseudo, sum, sum_from};
use crate::wire::{get16, proto, put16};
use gatun_wire::Prefix64;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Type of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// TCP with these flags.
    Tcp(u8),
    /// UDP.
    Udp,
    /// An echo request, or a reply.
    Echo(bool),
    /// A fragment of a UDP datagram that is not the first; with its identification.
    Piece(u16),
}

/// An end of a packet: address and port.
pub(crate) type End = (IpAddr, u16);

/// An IPv4 address as IPv6-only hosts reach it.
pub(crate) fn behind_prefix(a: Ipv4Addr) -> Ipv6Addr {
    Prefix64::WELL_KNOWN.embed(a)
}

/// Writes a packet and returns its length. Both ends are of one family; an echo message has `from`'s port as
/// its identifier.
pub(crate) fn write(buf: &mut [u8], kind: Kind, from: End, to: End) -> usize {
    let four = from.0.is_ipv4();
    let mut l4 = [0u8; 28];
    let (number, len, field) = match kind {
        Kind::Tcp(flags) => {
            l4[12] = 0x50;
            l4[13] = flags;
            (proto::TCP, 24, 16)
        }
        Kind::Udp => {
            put16(&mut l4, 4, 20);
            (proto::UDP, 20, 6)
        }
        Kind::Piece(_) => (proto::UDP, 16, 6),
        Kind::Echo(request) => {
            l4[0] = match (four, request) {
                (true, true) => 8,
                (true, false) => 0,
                (false, true) => 128,
                (false, false) => 129,
            };
            put16(&mut l4, 4, from.1);
            (if four { proto::ICMP } else { proto::ICMPV6 }, 16, 2)
        }
    };
    if matches!(kind, Kind::Tcp(_) | Kind::Udp) {
        put16(&mut l4, 0, from.1);
        put16(&mut l4, 2, to.1);
    }
    l4[len - 1] = 0x5a;
    let l4 = &mut l4[..len];
    if !matches!(kind, Kind::Piece(_)) {
        let covered = if number == proto::ICMP { 0 } else { pseudo_sum(from.0, to.0, len, number) };
        let checksum = !sum_from(covered, l4);
        put16(l4, field, if checksum == 0 { 0xffff } else { checksum });
    }
    let at = header(buf, kind, number, (from.0, to.0), len);
    buf[at..at + len].copy_from_slice(l4);
    at + len
}

fn header(buf: &mut [u8], kind: Kind, number: u8, ends: (IpAddr, IpAddr), len: usize) -> usize {
    match ends {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            buf[..20].fill(0);
            buf[0] = 0x45;
            put16(buf, 2, 20 + len as u16);
            if let Kind::Piece(id) = kind {
                put16(buf, 4, id);
                put16(buf, 6, 0x2000 | 185);
            } else {
                put16(buf, 6, 0x4000);
            }
            (buf[8], buf[9]) = (64, number);
            buf[12..16].copy_from_slice(&src.octets());
            buf[16..20].copy_from_slice(&dst.octets());
            let checksum = !sum(&buf[..20]);
            put16(buf, 10, checksum);
            20
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            buf[..48].fill(0);
            buf[0] = 0x60;
            let piece = if let Kind::Piece(id) = kind { Some(id) } else { None };
            put16(buf, 4, (len + if piece.is_some() { 8 } else { 0 }) as u16);
            (buf[6], buf[7]) = (if piece.is_some() { proto::FRAGMENT } else { number }, 64);
            buf[8..24].copy_from_slice(&src.octets());
            buf[24..40].copy_from_slice(&dst.octets());
            let Some(id) = piece else { return 40 };
            buf[40] = number;
            put16(buf, 42, 185 << 3 | 1);
            put16(buf, 46, id);
            48
        }
        _ => 0,
    }
}

/// Ends of a packet; `None` if its checksums are wrong.
pub(crate) fn read(bytes: &[u8]) -> Option<(End, End)> {
    let (at, number, src, dst) = if bytes.first()? >> 4 == 4 {
        if sum(bytes.get(..20)?) != 0xffff {
            return None;
        }
        let address = |at: usize| -> Option<IpAddr> {
            let octets: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
            Some(IpAddr::V4(octets.into()))
        };
        (20, bytes[9], address(12)?, address(16)?)
    } else {
        let address = |at: usize| -> Option<IpAddr> {
            let octets: [u8; 16] = bytes.get(at..at + 16)?.try_into().ok()?;
            Some(IpAddr::V6(octets.into()))
        };
        (40, *bytes.get(6)?, address(8)?, address(24)?)
    };
    let l4 = bytes.get(at..)?;
    let covered = if number == proto::ICMP { 0 } else { pseudo_sum(src, dst, l4.len(), number) };
    if sum_from(covered, l4) != 0xffff {
        return None;
    }
    match number {
        proto::ICMP | proto::ICMPV6 => Some(((src, get16(l4, 4)), (dst, get16(l4, 4)))),
        _ => Some(((src, get16(l4, 0)), (dst, get16(l4, 2)))),
    }
}

fn pseudo_sum(src: IpAddr, dst: IpAddr, len: usize, number: u8) -> u16 {
    let mut total = len as u64 + u64::from(number);
    for a in [src, dst] {
        match a {
            IpAddr::V4(a) => total += u64::from(sum(&a.octets())),
            IpAddr::V6(a) => total += u64::from(sum(&a.octets())),
        }
    }
    debug_assert_eq!(sum(&(total as u32).to_be_bytes()), sum(&pseudo(src, dst, len, number)));
    sum(&(total as u32).to_be_bytes())
}
