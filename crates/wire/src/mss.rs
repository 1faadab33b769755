//! MSS clamping: lowers the Maximum Segment Size that a SYN announces (RFC 9293 3.7.1) to what the path
//! carries.
//!
//! A host announces the segment size of its own link. After translation, the packets with these segments are
//! 20 bytes longer or continue on a link with a smaller MTU. Path MTU discovery finds this only after a lost
//! packet, or never if ICMP is filtered. Sizes that are small enough and segments without the option are left
//! unchanged.

use crate::checksum::Delta;
use crate::hdr::{get16, ipv4, ipv6, put16, tcp};
use crate::{Ipv4View, Ipv6View, L4, Packet};

/// Kind and length of the option.
const OPTION: [u8; 2] = [2, 4];
/// End of options, and the single-byte option.
const END: u8 = 0;
const NO_OPERATION: u8 = 1;

/// No limit on the segment size.
pub const ANY: u16 = u16::MAX;

/// Lowers the MSS that a SYN announces to `max` bytes, in place, and updates the checksum by difference.
/// `l4_at` is the offset of the segment. `partial` means that a device completes the checksum later, over the
/// final segment.
#[inline(always)]
pub(crate) fn clamp(packet: &mut Packet<'_>, l4_at: usize, l4: L4, max: u16, partial: bool) {
    if let L4::Tcp { flags, .. } = l4
        && flags & tcp::SYN != 0
    {
        clamp_syn(packet.bytes_mut().get_mut(l4_at..).unwrap_or_default(), max, partial);
    }
}

/// Lowers the MSS that a packet announces to `max` bytes if the packet is a SYN, whatever its IP version
/// after translation.
pub fn lower(packet: &mut Packet<'_>, max: u16) {
    let Some((l4_at, l4)) = transport(packet.bytes()) else { return };
    let partial = packet.offload.partial_field(l4_at).is_ok_and(|field| field.is_some());
    clamp(packet, l4_at, l4, max, partial);
}

/// Offset and contents of a packet's transport header.
fn transport(packet: &[u8]) -> Option<(usize, L4)> {
    if packet.first()? >> 4 == 4 {
        let view = Ipv4View::parse(packet).ok()?;
        return Some((view.l4_offset.into(), view.l4(packet).ok()?));
    }
    let view = Ipv6View::parse(packet).ok()?;
    Some((view.l4_offset.into(), view.l4(packet).ok()?))
}

/// Checks whether a SYN directly after an IP header of fixed length announces at most `max` bytes.
#[inline(never)]
pub(crate) fn is_within(packet: &Packet<'_>, max: u16) -> bool {
    let bytes = packet.bytes();
    let l4_at = if bytes.first().is_some_and(|b| b >> 4 == 4) { ipv4::LEN } else { ipv6::LEN };
    bytes.get(l4_at..).and_then(announced).is_none_or(|(_, mss)| mss <= max)
}

#[inline(never)]
fn clamp_syn(segment: &mut [u8], max: u16, partial: bool) {
    let Some((at, mss)) = announced(segment).filter(|(_, mss)| *mss > max) else { return };
    put16(segment, at, max);
    if !partial && let Some(field) = get16(segment, tcp::CHECKSUM) {
        // Options may be at odd offsets. There, the two bytes of the value have swapped places in the sum.
        let placed = |value: u16| if at % 2 == 0 { value } else { value.swap_bytes() };
        put16(segment, tcp::CHECKSUM, Delta::of(placed(mss), placed(max)).apply(field));
    }
}

/// Offset and value of a segment's MSS.
fn announced(segment: &[u8]) -> Option<(usize, u16)> {
    let end = tcp::header_len(segment)?;
    let mut at = tcp::LEN;
    while at < end {
        let len = match *segment.get(at)? {
            END => return None,
            NO_OPERATION => 1,
            _ => usize::from(*segment.get(at + 1)?),
        };
        if len == 0 || at + len > end {
            return None;
        }
        if segment.get(at..)?.starts_with(&OPTION) {
            return Some((at + 2, get16(segment, at + 2)?));
        }
        at += len;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum;
    use std::vec;
    use std::vec::Vec;

    /// SYN with these options, padded. Its checksum is right without a pseudo-header.
    fn syn(options: &[u8]) -> Vec<u8> {
        let mut segment = vec![0; tcp::LEN];
        segment[tcp::FLAGS] = tcp::SYN;
        segment.extend_from_slice(options);
        segment.resize(segment.len().next_multiple_of(4), 0);
        segment[tcp::DATA_OFFSET] = ((segment.len() / 4) << 4) as u8;
        segment.extend_from_slice(b"early data");
        let sum = !checksum::sum(&segment);
        put16(&mut segment, tcp::CHECKSUM, sum);
        segment
    }

    #[test]
    fn a_larger_size_is_lowered_at_any_offset_and_the_checksum_stays_right() {
        for before in 0..8 {
            let mut options = vec![NO_OPERATION; before];
            options.extend([2, 4, 0x05, 0xb4, 4, 2]);
            let mut segment = syn(&options);
            let mut expected = segment.clone();
            clamp_syn(&mut segment, 1400, false);
            put16(&mut expected, tcp::LEN + before + 2, 1400);
            put16(&mut expected, tcp::CHECKSUM, 0);
            let sum = !checksum::sum(&expected);
            put16(&mut expected, tcp::CHECKSUM, sum);
            assert_eq!(segment, expected, "behind {before} bytes");
        }
    }

    #[test]
    fn a_partial_checksum_stays_unchanged() {
        let mut segment = syn(&[2, 4, 0x05, 0xb4]);
        let field = get16(&segment, tcp::CHECKSUM);
        clamp_syn(&mut segment, 1400, true);
        assert_eq!((announced(&segment), get16(&segment, tcp::CHECKSUM)), (Some((22, 1400)), field));
    }

    #[test]
    fn small_sizes_and_segments_without_the_option_stay_unchanged() {
        let others: [&[u8]; 8] = [
            &[2, 4, 0x05, 0x78],             // 1400
            &[],                             // no option: 536, or 1220
            &[4, 2, 1, 3, 3, 7],             // other options
            &[0, 0, 2, 4, 0xff, 0xff, 0, 0], // after the end of options
            &[2, 3, 0xff, 0xff],             // wrong length
            &[8, 0, 2, 4, 0xff, 0xff],       // length zero: the walk would never end
            &[8, 60, 2, 4, 0xff, 0xff],      // length beyond the header
            &[1, 1, 1, 2],                   // cut off
        ];
        for options in others {
            let mut segment = syn(options);
            let before = segment.clone();
            clamp_syn(&mut segment, 1400, false);
            assert_eq!(segment, before, "{options:?}");
        }
    }

    #[test]
    fn truncated_segments_do_no_harm() {
        let whole = syn(&[2, 4, 0xff, 0xff]);
        for len in 0..whole.len() {
            let mut segment = whole[..len].to_vec();
            clamp_syn(&mut segment, 1400, false);
            let changed = segment != whole[..len];
            assert_eq!(changed, len >= tcp::LEN + 4, "{len} bytes");
        }
    }
}
