//! Packets written into an existing buffer without allocation, for generators of millions of packets a
//! second.

use std::net::{IpAddr, Ipv6Addr};

/// Hop limit of sent packets.
pub const TTL: u8 = 64;
const UDP: u8 = 17;

/// Writes the header of a packet that fills `out`; returns the header's length and the sum of the
/// pseudo-header. With `df`, no router may fragment an IPv4 packet.
///
/// # Panics
/// Panics if `out` is shorter than the header.
pub fn write_ip_header(src: IpAddr, dst: IpAddr, protocol: u8, df: bool, out: &mut [u8]) -> (usize, u32) {
    let at = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let len = (out.len() as u16).to_be_bytes();
            let flags = if df { 0x40 } else { 0 };
            out[..12].copy_from_slice(&[0x45, 0, len[0], len[1], 0, 0, flags, 0, TTL, protocol, 0, 0]);
            out[12..16].copy_from_slice(&src.octets());
            out[16..20].copy_from_slice(&dst.octets());
            renew_ipv4_checksum(out);
            20
        }
        (src, dst) => {
            let len = ((out.len() - 40) as u16).to_be_bytes();
            out[..8].copy_from_slice(&[0x60, 0, 0, 0, len[0], len[1], protocol, TTL]);
            out[8..24].copy_from_slice(&six(src).octets());
            out[24..40].copy_from_slice(&six(dst).octets());
            40
        }
    };
    (at, pseudo_sum(out, at, protocol))
}

/// Writes a UDP datagram that fills `out`; its payload counts up, and DF is clear in IPv4.
///
/// # Panics
/// Panics if `out` is shorter than the headers.
pub fn write_udp(from: (IpAddr, u16), to: (IpAddr, u16), out: &mut [u8]) {
    let (at, pseudo) = write_ip_header(from.0, to.0, UDP, false, out);
    let datagram = &mut out[at..];
    let len = datagram.len() as u16;
    for (place, value) in datagram.chunks_exact_mut(2).zip([from.1, to.1, len, 0]) {
        place.copy_from_slice(&value.to_be_bytes());
    }
    datagram[8..].iter_mut().enumerate().for_each(|(i, byte)| *byte = i as u8);
    let checksum = checksum_field(pseudo + u32::from(sum(datagram)));
    datagram[6..8].copy_from_slice(&checksum.to_be_bytes());
}

/// Recomputes the checksum of an IPv4 header without options.
///
/// # Panics
/// Panics if `packet` is shorter than the header.
pub fn renew_ipv4_checksum(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let checksum = !sum(&packet[..20]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// The checksum field for a sum: a computed zero is sent as all ones (RFC 768). For TCP both mean the same.
pub(crate) fn checksum_field(sum: u32) -> u16 {
    match !fold(sum) {
        0 => 0xffff,
        checksum => checksum,
    }
}

/// Sum of the pseudo-header (RFC 9293 3.1, RFC 8200 8.1) of a packet whose header has `at` bytes.
pub(crate) fn pseudo_sum(packet: &[u8], at: usize, protocol: u8) -> u32 {
    let addresses = if at == 40 { packet.get(8..40) } else { packet.get(12..20) };
    u32::from(sum(addresses.unwrap_or_default())) + u32::from(protocol) + (packet.len() - at) as u32
}

/// The ones' complement sum of `bytes`; 0xffff over an IPv4 header with a correct checksum.
pub fn sum(bytes: &[u8]) -> u16 {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let mut total: u32 = pairs.iter().map(|pair| u32::from(u16::from_be_bytes(*pair))).sum();
    if let [last] = rest {
        total += u32::from(*last) << 8;
    }
    fold(total)
}

pub(crate) fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

fn six(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V6(address) => address,
        IpAddr::V4(address) => address.to_ipv6_mapped(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{check, endpoints};

    #[test]
    fn another_parser_finds_every_length_and_checksum_right() {
        for (from, to) in [("2001:db8::1", "2001:db8::2"), ("192.0.2.1", "198.51.100.2")] {
            for len in [48, 61, 1500, 9000] {
                let mut out = vec![0xa5; len];
                write_udp((from.parse().unwrap(), 7), (to.parse().unwrap(), 9), &mut out);
                check(&out);
                let ends = endpoints(&out);
                assert_eq!((ends.src.to_string(), ends.sport), (from.to_owned(), 7));
                assert_eq!((ends.dst.to_string(), ends.dport), (to.to_owned(), 9));
            }
        }
    }
}
