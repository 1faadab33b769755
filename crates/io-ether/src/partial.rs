//! Checksums that the sender's kernel left to a device that does not exist.
//!
//! Packets from a veth have often never been on a wire: the sender's kernel writes the sum of the
//! pseudo-header into the checksum field of TCP and UDP and leaves the rest to the device. AF_XDP (or a
//! packet socket) delivers these bytes without a hint. Between containers nearly every packet is like this,
//! unless somebody ran `ethtool -K eth0 tx off`.
//!
//! Such a field holds the folded sum of the pseudo-header, not complemented. By chance, a complete checksum
//! has the same value once in 65536 packets: then the sum over the whole packet is right, and the field stays
//! unchanged. A wrong checksum stays wrong, unless it has exactly this value.

use gatun_wire::{Checksum, Packet, checksum, proto};

/// Position of the checksum and the bytes that it covers.
struct ChecksumField {
    /// Offset of the transport header.
    transport: usize,
    /// Offset of the checksum field in it.
    field: usize,
    /// End of the datagram.
    end: usize,
    /// Sum of the pseudo-header.
    pseudo: u16,
}

/// Completes the checksum of a packet that begins with its IP header, if it was left to the device. Returns
/// whether it was.
#[inline]
pub fn finish(packet: &mut Packet<'_>) -> bool {
    let bytes = packet.bytes();
    let place = match bytes.first().map(|first| first >> 4) {
        Some(4) => place4(bytes),
        Some(6) => place6(bytes),
        _ => None,
    };
    let Some(place) = place else { return false };
    let at = place.transport + place.field;
    let field = bytes.get(at..at + 2).and_then(|field| field.try_into().ok()).map(u16::from_be_bytes);
    if field != Some(place.pseudo) {
        return false;
    }
    finish_at(packet, &place)
}

#[cold]
fn finish_at(packet: &mut Packet<'_>, place: &ChecksumField) -> bool {
    let covered = packet.bytes().get(place.transport..place.end).map(checksum::sum);
    // A right checksum makes the sum all ones.
    let whole = covered.map(|sum| u32::from(sum) + u32::from(place.pseudo));
    if whole.is_none_or(|sum| sum == 0xffff || sum == 2 * 0xffff) {
        return false;
    }
    // Frame padding is not part of the datagram.
    packet.truncate(place.end);
    packet.offload.checksum = Checksum::Partial { start: place.transport as u16, offset: place.field as u16 };
    packet.complete_checksum();
    true
}

/// Checksums of fragments are complete: the sender's kernel completes them before it fragments.
fn place4(bytes: &[u8]) -> Option<ChecksumField> {
    const LEN_MIN: usize = 20;
    let header: &[u8; LEN_MIN] = bytes.first_chunk()?;
    let transport = usize::from(header[0] & 0xf) * 4;
    let end = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
    if fragment || transport < LEN_MIN {
        return None;
    }
    place(bytes, &header[12..20], header[9], transport, end)
}

/// Finds the checksum field of TCP or UDP directly after the IPv6 header: after extension headers, no kernel
/// leaves a checksum to a device that does not announce support for it.
fn place6(bytes: &[u8]) -> Option<ChecksumField> {
    const LEN: usize = 40;
    let header: &[u8; LEN] = bytes.first_chunk()?;
    let end = LEN + usize::from(u16::from_be_bytes([header[4], header[5]]));
    place(bytes, &header[8..40], header[6], LEN, end)
}

fn place(
    bytes: &[u8],
    addresses: &[u8],
    protocol: u8,
    transport: usize,
    end: usize,
) -> Option<ChecksumField> {
    let field = match protocol {
        proto::TCP => 16,
        proto::UDP => 6,
        _ => return None,
    };
    if end > bytes.len() || transport + field + 2 > end {
        return None;
    }
    let pseudo = checksum::pseudo(addresses, (end - transport) as u32, protocol);
    Some(ChecksumField { transport, field, end, pseudo })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// IPv6 or IPv4 packet with a TCP or UDP header whose checksum field holds `field`, and the right
    /// checksum.
    fn packet(six: bool, tcp: bool, field: Option<u16>) -> (Vec<u8>, u16, u16) {
        let transport_len = if tcp { 20 } else { 8 } + 101;
        let protocol = if tcp { proto::TCP } else { proto::UDP };
        let mut bytes = match six {
            true => vec![0x60, 0, 0, 0, 0, transport_len as u8, protocol, 64],
            false => vec![0x45, 0, 0, 20 + transport_len as u8, 0, 0, 0x40, 0, 64, protocol, 0, 0],
        };
        bytes.extend(std::iter::repeat_n([10, 2, 3, 4], if six { 8 } else { 2 }).flatten());
        let transport = bytes.len();
        let pseudo =
            checksum::pseudo(&bytes[transport - if six { 32 } else { 8 }..], transport_len as u32, protocol);
        bytes.extend((0..transport_len).map(|i| (7 * i) as u8));
        let at = transport + if tcp { 16 } else { 6 };
        bytes[at..at + 2].copy_from_slice(&[0, 0]);
        let sum = u32::from(checksum::sum(&bytes[transport..])) + u32::from(pseudo);
        let right = !((sum & 0xffff) + (sum >> 16)) as u16;
        bytes[at..at + 2].copy_from_slice(&field.unwrap_or(pseudo).to_be_bytes());
        (bytes, right, at as u16)
    }

    #[test]
    fn an_unfinished_checksum_is_completed_without_the_padding() {
        for (six, tcp) in [(true, true), (true, false), (false, true), (false, false)] {
            let (mut bytes, right, at) = packet(six, tcp, None);
            let len = bytes.len();
            bytes.extend([0xee; 9]);
            let all = bytes.len();
            let mut packet = Packet::new(&mut bytes, 0, all).unwrap();
            assert!(finish(&mut packet));
            assert_eq!((packet.len(), packet.offload.checksum), (len, Checksum::Complete));
            let at = usize::from(at);
            assert_eq!(packet.bytes()[at..at + 2], right.to_be_bytes());
            assert!(!finish(&mut packet), "it is finished");
        }
    }

    #[test]
    fn complete_checksums_and_truncated_packets_stay_unchanged() {
        for (six, tcp) in [(true, true), (true, false), (false, true), (false, false)] {
            let (_, right, _) = packet(six, tcp, None);
            for field in [right, right ^ 0x0100, 0] {
                let (mut bytes, ..) = packet(six, tcp, Some(field));
                let before = bytes.clone();
                let len = bytes.len();
                assert!(!finish(&mut Packet::new(&mut bytes, 0, len).unwrap()));
                assert_eq!(bytes, before);
            }
            let (mut bytes, ..) = packet(six, tcp, None);
            for len in 0..bytes.len() {
                assert!(!finish(&mut Packet::new(&mut bytes, 0, len).unwrap()), "{len} bytes");
            }
        }
        let (mut bytes, ..) = packet(false, false, None);
        bytes[6] = 0x20; // more fragments
        let len = bytes.len();
        assert!(!finish(&mut Packet::new(&mut bytes, 0, len).unwrap()));
    }

    #[test]
    fn a_right_checksum_that_equals_the_sum_of_the_pseudo_header_stays() {
        let (mut bytes, ..) = packet(true, false, None);
        let len = bytes.len();
        // The last two bytes of the payload make the whole sum right with this field.
        bytes[len - 3..len - 1].copy_from_slice(&[0, 0]);
        let pseudo = checksum::pseudo(&bytes[8..40], (len - 40) as u32, proto::UDP);
        let sum = u32::from(checksum::sum(&bytes[40..])) + u32::from(pseudo);
        let rest = !((sum & 0xffff) + (sum >> 16)) as u16;
        bytes[len - 3..len - 1].copy_from_slice(&rest.to_be_bytes());
        let before = bytes.clone();
        assert!(!finish(&mut Packet::new(&mut bytes, 0, len).unwrap()));
        assert_eq!(bytes, before);
    }
}
