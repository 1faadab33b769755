//! The virtio-net header before each packet, and its conversion to and from [`Offload`].
//!
//! ```text
//!   0       1          2         4          6            8
//!   | flags | gso_type | hdr_len | gso_size | csum_start | csum_offset |     10 bytes, native byte order
//! ```
//! All offsets count from the IP header. Virtio 1.2, 5.1.6; `linux/virtio_net.h`.

use gatun_io::{RxError, TxError};
use gatun_wire::{Checksum, Offload, Packet, Segmentation, proto};

/// Length of the header in bytes.
pub const LEN: usize = 10;

/// The sender has to complete the checksum: `csum_start` and `csum_offset` are valid.
const F_NEEDS_CSUM: u8 = 1;

const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
/// Flag next to a TCP type: only the first segment has CWR (RFC 3168).
const GSO_ECN: u8 = 0x80;

/// Fields of the header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Header {
    flags: u8,
    gso_type: u8,
    hdr_len: u16,
    gso_size: u16,
    csum_start: u16,
    csum_offset: u16,
}

impl Header {
    fn read(bytes: [u8; LEN]) -> Self {
        let [flags, gso_type, a, b, c, d, e, f, g, h] = bytes;
        Header {
            flags,
            gso_type,
            hdr_len: u16::from_ne_bytes([a, b]),
            gso_size: u16::from_ne_bytes([c, d]),
            csum_start: u16::from_ne_bytes([e, f]),
            csum_offset: u16::from_ne_bytes([g, h]),
        }
    }

    fn write(self) -> [u8; LEN] {
        let ([a, b], [c, d]) = (self.hdr_len.to_ne_bytes(), self.gso_size.to_ne_bytes());
        let ([e, f], [g, h]) = (self.csum_start.to_ne_bytes(), self.csum_offset.to_ne_bytes());
        [self.flags, self.gso_type, a, b, c, d, e, f, g, h]
    }
}

/// Reads the header of a packet.
///
/// "Data valid" (the checksum was verified) needs no state: the field is complete, an incremental update
/// keeps it right, and TUN does not accept the flag in the other direction. `hdr_len` is a hint and not used.
///
/// # Errors
/// Returns an error if the header contradicts itself or the packet.
pub fn decode(header: [u8; LEN], packet: &[u8]) -> Result<Offload, RxError> {
    let header = Header::read(header);
    let checksum = match header.flags & F_NEEDS_CSUM {
        0 => Checksum::Complete,
        _ => {
            let field = usize::from(header.csum_start) + usize::from(header.csum_offset);
            if field + 2 > packet.len() {
                return Err(RxError::BadHeader);
            }
            Checksum::Partial { start: header.csum_start, offset: header.csum_offset }
        }
    };
    let version = packet.first().map_or(0, |b| b >> 4);
    let size = header.gso_size;
    let ecn = header.gso_type & GSO_ECN != 0;
    let segmentation = match (header.gso_type & !GSO_ECN, version) {
        (GSO_NONE, _) => Segmentation::None,
        (GSO_TCPV4, 4) | (GSO_TCPV6, 6) => Segmentation::Tcp { size, ecn },
        (GSO_UDP_L4, 4 | 6) => Segmentation::Udp { size },
        (GSO_TCPV4 | GSO_TCPV6 | GSO_UDP_L4, _) => return Err(RxError::BadHeader),
        _ => return Err(RxError::UnknownSegmentation),
    };
    if segmentation != Segmentation::None && size == 0 {
        return Err(RxError::BadHeader);
    }
    Ok(Offload { checksum, segmentation })
}

/// Writes the header before a packet. Returns the header's position in the packet's buffer.
///
/// # Errors
/// Returns an error if there is no room before the packet, or it is not an IP packet with the transport
/// header that its offload requires.
pub fn prepend(packet: &mut Packet<'_>) -> Result<usize, TxError> {
    let header = encode(packet.offload, packet.bytes())?.write();
    let start = packet.start();
    let at = start.checked_sub(LEN).ok_or(TxError::NoHeadroom)?;
    packet.buffer_mut().get_mut(at..start).ok_or(TxError::NoHeadroom)?.copy_from_slice(&header);
    Ok(at)
}

fn encode(offload: Offload, packet: &[u8]) -> Result<Header, TxError> {
    let mut header = Header::default();
    if let Checksum::Partial { start, offset } = offload.checksum {
        header.flags = F_NEEDS_CSUM;
        (header.csum_start, header.csum_offset) = (start, offset);
    }
    let (gso_type, size) = match offload.segmentation {
        Segmentation::None => return Ok(header),
        Segmentation::Tcp { size, ecn } => {
            let kind = if version(packet) == 4 { GSO_TCPV4 } else { GSO_TCPV6 };
            (kind | if ecn { GSO_ECN } else { 0 }, size)
        }
        Segmentation::Udp { size } => (GSO_UDP_L4, size),
    };
    let l4_offset = match offload.checksum {
        Checksum::Partial { start, .. } => usize::from(start),
        Checksum::Complete => l4_offset(packet).ok_or(TxError::Invalid)?,
    };
    let l4_len = match offload.segmentation {
        // The data offset, in words, is the upper half of byte 12 (RFC 9293 3.1).
        Segmentation::Tcp { .. } => packet.get(l4_offset + 12).map(|b| usize::from(b >> 4) * 4),
        _ => Some(8),
    };
    let hdr_len = l4_offset + l4_len.ok_or(TxError::Invalid)?;
    if hdr_len > packet.len() {
        return Err(TxError::Invalid);
    }
    header.gso_type = gso_type;
    header.gso_size = size;
    header.hdr_len = u16::try_from(hdr_len).map_err(|_| TxError::Invalid)?;
    Ok(header)
}

fn version(packet: &[u8]) -> u8 {
    packet.first().map_or(0, |b| b >> 4)
}

/// Offset of TCP or UDP in a super-packet whose checksum is complete: such a packet is never a fragment.
fn l4_offset(packet: &[u8]) -> Option<usize> {
    match version(packet) {
        4 => Some(usize::from(packet.first()? & 0x0f) * 4),
        6 => matches!(*packet.get(6)?, proto::TCP | proto::UDP).then_some(40),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatun_wire::HEADROOM;

    fn packet(version: u8, l4_at: usize, tcp_words: u8, len: usize) -> Vec<u8> {
        let mut bytes = vec![0xa5; len];
        bytes[0] = if version == 4 { 0x40 | (l4_at / 4) as u8 } else { 0x60 };
        if version == 6 {
            bytes[6] = proto::TCP;
        }
        bytes[l4_at + 12] = tcp_words << 4;
        bytes
    }

    fn written(offload: Offload, bytes: &[u8]) -> Result<[u8; LEN], TxError> {
        let mut buf = vec![0xa5; HEADROOM];
        buf.extend_from_slice(bytes);
        let mut packet = Packet::with_offload(&mut buf, HEADROOM, bytes.len(), offload).unwrap();
        let at = prepend(&mut packet)?;
        assert_eq!(at, HEADROOM - LEN);
        assert_eq!(packet.bytes(), bytes, "the packet itself is untouched");
        Ok(buf[at..at + LEN].try_into().unwrap())
    }

    #[test]
    fn every_kind_of_offload_survives_both_ways_on_both_versions() {
        for (version, l4_at) in [(4u8, 20usize), (4, 24), (4, 60), (6, 40), (6, 48)] {
            let bytes = packet(version, l4_at, 8, 4000);
            let tcp = Checksum::Partial { start: l4_at as u16, offset: 16 };
            let udp = Checksum::Partial { start: l4_at as u16, offset: 6 };
            let cases = [
                (tcp, Segmentation::None, 0, 0),
                (udp, Segmentation::None, 0, 0),
                (Checksum::Complete, Segmentation::None, 0, 0),
                (
                    tcp,
                    Segmentation::Tcp { size: 1440, ecn: false },
                    if version == 4 { 1 } else { 4 },
                    l4_at + 32,
                ),
                (
                    tcp,
                    Segmentation::Tcp { size: 1440, ecn: true },
                    if version == 4 { 0x81 } else { 0x84 },
                    l4_at + 32,
                ),
                (udp, Segmentation::Udp { size: 1200 }, 5, l4_at + 8),
            ];
            for (checksum, segmentation, gso_type, hdr_len) in cases {
                let offload = Offload { checksum, segmentation };
                let header = written(offload, &bytes).unwrap();
                assert_eq!(header[0], u8::from(checksum != Checksum::Complete));
                assert_eq!(header[1], gso_type, "{offload:?}");
                assert_eq!(u16::from_ne_bytes([header[2], header[3]]) as usize, hdr_len, "{offload:?}");
                assert_eq!(decode(header, &bytes), Ok(offload));
            }
        }
    }

    #[test]
    fn a_complete_checksum_on_a_super_packet_still_finds_its_header_length() {
        for (version, l4_at) in [(4u8, 24usize), (6, 40)] {
            let bytes = packet(version, l4_at, 5, 3000);
            let offload = Offload {
                checksum: Checksum::Complete,
                segmentation: Segmentation::Tcp { size: 1000, ecn: false },
            };
            let header = written(offload, &bytes).unwrap();
            assert_eq!(u16::from_ne_bytes([header[2], header[3]]) as usize, l4_at + 20);
        }
    }

    #[test]
    fn data_valid_is_a_complete_checksum() {
        let mut header = [0u8; LEN];
        header[0] = 2;
        assert_eq!(decode(header, &packet(4, 20, 5, 60)), Ok(Offload::default()));
    }

    #[test]
    fn a_header_that_contradicts_the_packet_is_refused() {
        let header = |flags, gso_type, gso_size, csum_start, csum_offset| {
            Header { flags, gso_type, hdr_len: 0, gso_size, csum_start, csum_offset }.write()
        };
        let v4 = packet(4, 20, 5, 60);
        let v6 = packet(6, 40, 5, 80);
        assert_eq!(decode(header(1, 0, 0, 20, 39), &v4), Err(RxError::BadHeader), "field past the end");
        assert!(decode(header(1, 0, 0, 20, 38), &v4).is_ok(), "field in the last two bytes");
        assert_eq!(decode(header(1, 0, 0, u16::MAX, u16::MAX), &v4), Err(RxError::BadHeader));
        assert_eq!(decode(header(0, GSO_TCPV6, 9, 0, 0), &v4), Err(RxError::BadHeader), "IPv6 type, IPv4");
        assert_eq!(decode(header(0, GSO_TCPV4, 9, 0, 0), &v6), Err(RxError::BadHeader), "IPv4 type, IPv6");
        assert_eq!(decode(header(0, GSO_TCPV4, 0, 0, 0), &v4), Err(RxError::BadHeader), "size 0");
        assert_eq!(decode(header(0, 3, 9, 0, 0), &v4), Err(RxError::UnknownSegmentation), "UFO");
        assert_eq!(decode(header(0, 0x21, 9, 0, 0), &v4), Err(RxError::UnknownSegmentation), "tunnel GSO");
        assert_eq!(decode(header(0, GSO_UDP_L4, 9, 0, 0), &[]), Err(RxError::BadHeader), "no packet");
    }

    #[test]
    fn all_headers_on_short_packets_are_read_without_a_panic() {
        for flags in 0..=3 {
            for gso_type in 0..=255 {
                for len in [0usize, 1, 19, 20, 40] {
                    let header =
                        Header { flags, gso_type, hdr_len: 40, gso_size: 8, csum_start: 20, csum_offset: 16 };
                    let bytes = &[0x45u8; 40][..len];
                    if let Ok(offload) = decode(header.write(), bytes) {
                        let _ = written(offload, bytes);
                    }
                }
            }
        }
    }

    #[test]
    fn a_packet_without_headroom_or_with_a_truncated_transport_header_is_not_sent() {
        let mut buf = [0x45u8; 29];
        let mut short = Packet::new(&mut buf, 9, 20).unwrap();
        assert_eq!(prepend(&mut short), Err(TxError::NoHeadroom));
        let offload = Offload {
            checksum: Checksum::Partial { start: 20, offset: 16 },
            segmentation: Segmentation::Tcp { size: 1000, ecn: false },
        };
        assert_eq!(written(offload, &packet(4, 20, 5, 39)), Err(TxError::Invalid));
        assert_eq!(written(offload, &[0x45; 20]), Err(TxError::Invalid));
    }
}
