//! Fragmentation of translated packets.
//!
//! A packet that is already a fragment is cut in the same way: offsets continue from its own offset, and if
//! it was not the last fragment of its datagram, its last part is not the last one either.

use crate::hdr::{self, get16, ipv4, ipv6, put16};
use crate::{DropReason, FragmentInfo, Offload, Packet, proto};

/// IPv6 header and Fragment header.
const HEADERS6: usize = ipv6::LEN + hdr::fragment::LEN;

/// Cuts an IPv6 packet that has a Fragment header into fragments of at most `max` bytes. The first fragment
/// stays in `packet`. `emit` gets each further one, in order, as two slices to copy: headers and payload.
///
/// # Errors
/// `mtu_unfragmentable` for a packet without Fragment header directly after its IPv6 header, or with offloads
/// left for a device; nothing was emitted then. An error of `emit` is returned unchanged. On an error the
/// packet is unchanged.
pub fn split6(
    packet: &mut Packet<'_>,
    max: u32,
    mut emit: impl FnMut(&[u8], &[u8]) -> Result<(), DropReason>,
) -> Result<(), DropReason> {
    let is_ready = packet.offload == Offload::default();
    let (headers, payload) = packet
        .bytes()
        .split_first_chunk::<HEADERS6>()
        .filter(|(h, _)| is_ready && h[ipv6::NEXT_HEADER] == proto::FRAGMENT)
        .ok_or(DropReason::Unfragmentable)?;
    let next_header = headers[ipv6::LEN];
    let whole = hdr::fragment::read(headers.last_chunk().ok_or(DropReason::Unfragmentable)?);
    let Some(room) = room(payload.len(), max, HEADERS6)? else { return Ok(()) };

    let headers_of = |part: usize, len: usize| {
        let mut h = *headers;
        put16(&mut h, ipv6::PAYLOAD_LEN, (hdr::fragment::LEN + len) as u16);
        if let Some(place) = h.last_chunk_mut() {
            *place = hdr::fragment::to_bytes(next_header, place_of(whole, part, room, payload.len()));
        }
        h
    };
    for (part, bytes) in payload.chunks(room).enumerate().skip(1) {
        emit(&headers_of(part, bytes.len()), bytes)?;
    }
    let first = headers_of(0, room);
    keep_first(packet, &first, room);
    Ok(())
}

/// Cuts an IPv4 packet without DF, like [`split6`]. The first fragment has all options. The others have the
/// options with the copied flag (RFC 791 3.1).
///
/// # Errors
/// Same as [`split6`].
pub fn split4(
    packet: &mut Packet<'_>,
    max: u32,
    mut emit: impl FnMut(&[u8], &[u8]) -> Result<(), DropReason>,
) -> Result<(), DropReason> {
    let is_ready = packet.offload == Offload::default();
    let header_len = usize::from(packet.bytes().first().map_or(0, |b| b & 0xf)) * 4;
    let (headers, payload) = packet
        .bytes()
        .split_at_checked(header_len)
        .filter(|(h, _)| is_ready && h.len() >= ipv4::LEN)
        .ok_or(DropReason::Unfragmentable)?;
    let flags = get16(headers, ipv4::FLAGS).unwrap_or(ipv4::DF);
    if flags & ipv4::DF != 0 {
        return Err(DropReason::Unfragmentable);
    }
    let whole = FragmentInfo { offset: flags << 3, more: flags & ipv4::MF != 0, id: 0 };
    let Some(room) = room(payload.len(), max, header_len)? else { return Ok(()) };

    let finish = |h: &mut [u8], part: usize, len: usize| {
        let place = place_of(whole, part, room, payload.len());
        put16(h, ipv4::TOTAL_LEN, (h.len() + len) as u16);
        put16(h, ipv4::FLAGS, place.offset >> 3 | if place.more { ipv4::MF } else { 0 });
        ipv4::set_checksum(h);
    };
    let (mut later, later_len) = later_header(headers);
    for (part, bytes) in payload.chunks(room).enumerate().skip(1) {
        let h = later.get_mut(..later_len).unwrap_or_default();
        finish(h, part, bytes.len());
        emit(h, bytes)?;
    }
    let mut first = [0; HEADER4_MAX];
    let first = first.get_mut(..header_len).ok_or(DropReason::Unfragmentable)?;
    first.copy_from_slice(headers);
    finish(first, 0, room);
    keep_first(packet, first, room);
    Ok(())
}

/// Largest IPv4 header with options.
const HEADER4_MAX: usize = 60;

/// Header of the fragments after the first, and its length: options with the copied flag, padded.
fn later_header(headers: &[u8]) -> ([u8; HEADER4_MAX], usize) {
    const END: u8 = 0;
    const NOP: u8 = 1;
    const COPIED: u8 = 0x80;
    let mut later = [END; HEADER4_MAX];
    let mut len = ipv4::LEN;
    if let (Some(fixed), Some(h)) = (later.first_chunk_mut(), headers.first_chunk::<{ ipv4::LEN }>()) {
        *fixed = *h;
    }
    let mut rest = headers.get(ipv4::LEN..).unwrap_or_default();
    while let [kind, tail @ ..] = rest {
        let option_len = match (*kind, tail) {
            (END, _) => break,
            (NOP, _) => 1,
            (_, [n, ..]) if *n >= 2 => usize::from(*n),
            _ => break,
        };
        let Some((option, after)) = rest.split_at_checked(option_len) else { break };
        if *kind & COPIED != 0
            && let Some(place) = later.get_mut(len..len + option_len)
        {
            place.copy_from_slice(option);
            len += option_len;
        }
        rest = after;
    }
    let len = len.next_multiple_of(4);
    later[0] = 0x40 | (len / 4) as u8;
    (later, len)
}

/// Payload bytes of each part except the last. `None` if the packet fits.
fn room(payload_len: usize, max: u32, headers_len: usize) -> Result<Option<usize>, DropReason> {
    let room = (max as usize).saturating_sub(headers_len);
    match room & !7 {
        _ if payload_len <= room => Ok(None),
        0 => Err(DropReason::Unfragmentable),
        room => Ok(Some(room)),
    }
}

/// Position of part `part` of a packet, whose own position is `whole`.
fn place_of(whole: FragmentInfo, part: usize, room: usize, payload_len: usize) -> FragmentInfo {
    let is_last = (part + 1) * room >= payload_len;
    FragmentInfo {
        offset: whole.offset.wrapping_add((part * room) as u16), // a parsed packet ends below 65,536
        more: whole.more || !is_last,
        id: whole.id,
    }
}

fn keep_first(packet: &mut Packet<'_>, headers: &[u8], room: usize) {
    packet.truncate(headers.len() + room);
    if let Some(place) = packet.bytes_mut().get_mut(..headers.len()) {
        place.copy_from_slice(headers);
    }
}
