//! Parsing of headers: RFC 791, RFC 8200, and the packets refused there.

use super::{Header, L4, Piece, get16, get32, proto, sum};
use gatun_wire::DropReason;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum number of extension headers; packets with more are refused. RFC 8200 has no bound, a translator
/// needs one.
const EXTENSIONS_MAX: usize = 16;

/// Headers of an IPv4 packet. A `quoted` one is inside an ICMP error and may be cut off.
pub fn parse4(packet: &[u8], quoted: bool) -> Result<Header<'_>, DropReason> {
    if packet.len() < 20 {
        return Err(DropReason::ShortL3);
    }
    if packet[0] >> 4 != 4 {
        return Err(DropReason::BadVersion);
    }
    let header_len = usize::from(packet[0] & 15) * 4;
    if header_len < 20 || (header_len > packet.len() && !quoted) {
        return Err(DropReason::BadHeaderLength);
    }
    if header_len > packet.len() {
        return Err(DropReason::IcmpInnerShort);
    }
    let total = usize::from(get16(packet, 2));
    if total < header_len || (!quoted && total > packet.len()) {
        return Err(DropReason::BadLength);
    }
    let length = total - header_len;
    if quoted && packet.len() - header_len < length.min(8) {
        return Err(DropReason::IcmpInnerShort);
    }
    // RFC 7915 4.1; for a quoted header, RFC 5508 REQ-3 b.
    if sum::sum(&packet[..header_len]) != 0xffff {
        return Err(DropReason::BadL3Checksum);
    }
    let (ident, flags) = (get16(packet, 4), get16(packet, 6));
    let piece =
        Piece { offset: usize::from(flags & 0x1fff) * 8, more: flags & 0x2000 != 0, id: ident.into() };
    let header = Header {
        tos: packet[1],
        ttl: packet[8],
        proto: packet[9],
        src: IpAddr::V4(Ipv4Addr::new(packet[12], packet[13], packet[14], packet[15])),
        dst: IpAddr::V4(Ipv4Addr::new(packet[16], packet[17], packet[18], packet[19])),
        // Choice: bytes behind a quoted packet are kept.
        payload: &packet[header_len..if quoted { packet.len() } else { total }],
        length,
        piece: (flags & 0x3fff != 0).then_some(piece),
        df: flags & 0x4000 != 0,
        ident,
        header_len,
        source_route: source_route_left(&packet[20..header_len]),
    };
    if !quoted {
        piece_is_possible(&header)?;
    }
    Ok(header)
}

/// RFC 791 3.1: returns true if a loose or strict source route has addresses left.
fn source_route_left(options: &[u8]) -> bool {
    let mut at = 0;
    while at < options.len() && options[at] != 0 {
        if options[at] == 1 {
            at += 1;
            continue;
        }
        let Some(&len) = options.get(at + 1) else { return false };
        if matches!(options[at], 131 | 137) && options.get(at + 2).is_some_and(|&pointer| pointer <= len) {
            return true;
        }
        if len < 2 {
            return false;
        }
        at += usize::from(len);
    }
    false
}

/// RFC 791 3.2, RFC 8200 4.5: a fragment before the last has a multiple of 8 bytes, and none ends beyond
/// 65,535 bytes. Choice: an empty fragment is refused where datagrams are followed.
fn piece_is_possible(h: &Header<'_>) -> Result<(), DropReason> {
    let Some(piece) = h.piece else { return Ok(()) };
    let atomic = piece.offset == 0 && !piece.more;
    if !atomic && ((piece.more && !h.length.is_multiple_of(8)) || piece.offset + h.length > 65_535) {
        return Err(DropReason::BadLength);
    }
    Ok(())
}

/// Headers of an IPv6 packet, without extension headers.
pub fn parse6(packet: &[u8], quoted: bool) -> Result<Header<'_>, DropReason> {
    if packet.len() < 40 {
        return Err(DropReason::ShortL3);
    }
    if packet[0] >> 4 != 6 {
        return Err(DropReason::BadVersion);
    }
    let total = 40 + usize::from(get16(packet, 4));
    if !quoted && total > packet.len() {
        return Err(DropReason::BadLength);
    }
    let there = &packet[..total.min(packet.len())];
    let Chain { next, at, piece } = step_over_extensions(there, quoted)?;
    let header = Header {
        tos: packet[0] << 4 | packet[1] >> 4,
        ttl: packet[7],
        proto: next,
        src: IpAddr::V6(address6(&packet[8..24])),
        dst: IpAddr::V6(address6(&packet[24..40])),
        payload: if quoted { &packet[at..] } else { &there[at..] },
        length: total - at,
        piece,
        df: false,
        ident: 0,
        header_len: at,
        source_route: false,
    };
    if quoted && header.payload.len() < header.length.min(8) {
        return Err(DropReason::IcmpInnerShort);
    }
    if !quoted {
        piece_is_possible(&header)?;
    }
    Ok(header)
}

/// End of a chain of extension headers: the next protocol, its offset, and the Fragment header, if any.
struct Chain {
    next: u8,
    at: usize,
    piece: Option<Piece>,
}

/// Skips the extension headers of `there`, which begins with an IPv6 header.
fn step_over_extensions(there: &[u8], quoted: bool) -> Result<Chain, DropReason> {
    let short = if quoted { DropReason::IcmpInnerShort } else { DropReason::BadLength };
    let (mut next, mut at, mut piece) = (there[6], 40, None);
    let mut walked = 0;
    while matches!(
        next,
        proto::HOP_BY_HOP | proto::DEST_OPTIONS | proto::ROUTING | proto::FRAGMENT | proto::AH
    ) {
        // RFC 7915 5.1.1: the transport follows it; later fragments repeat the first one's value.
        if piece.is_some() {
            return Err(DropReason::ExtensionAfterFragment);
        }
        if next == proto::AH {
            return Err(DropReason::AuthenticationHeader);
        }
        if walked == EXTENSIONS_MAX {
            return Err(DropReason::ExtensionChainTooLong);
        }
        walked += 1;
        if there.len() < at + 8 {
            return Err(short);
        }
        let mut size = 8 + 8 * usize::from(there[at + 1]);
        if next == proto::FRAGMENT {
            size = 8;
            let offset = get16(there, at + 2);
            piece = Some(Piece {
                offset: usize::from(offset & 0xfff8),
                more: offset & 1 != 0,
                id: get32(there, at + 4),
            });
        } else if next == proto::ROUTING && there[at + 3] != 0 && !quoted {
            return Err(DropReason::RoutingSegmentsLeft); // RFC 7915 5.1
        }
        next = there[at];
        at += size;
        if at > there.len() {
            return Err(short);
        }
    }
    if piece.is_some() && proto::FURTHER_EXTENSIONS.contains(&next) {
        return Err(DropReason::ExtensionAfterFragment);
    }
    Ok(Chain { next, at, piece })
}

fn address6(bytes: &[u8]) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(bytes);
    Ipv6Addr::from(octets)
}

/// Offset of Segments Left in an IPv6 packet's first routing header, to which the error points (RFC 7915
/// 5.1).
pub fn segments_left_at(packet: &[u8]) -> Option<u32> {
    let (mut next, mut at) = (packet[6], 40);
    while matches!(next, proto::HOP_BY_HOP | proto::DEST_OPTIONS | proto::ROUTING) {
        if next == proto::ROUTING && *packet.get(at + 3)? != 0 {
            return Some(at as u32 + 3);
        }
        next = *packet.get(at)?;
        at += 8 + 8 * usize::from(*packet.get(at + 1)?);
    }
    None
}

/// Offset of the byte that names the protocol of a whole IPv6 packet, to which the error points (RFC 4443
/// 3.4).
pub fn protocol_at(packet: &[u8]) -> Option<u32> {
    let (mut named_at, mut at) = (6, 40);
    while matches!(
        *packet.get(named_at)?,
        proto::HOP_BY_HOP | proto::DEST_OPTIONS | proto::ROUTING | proto::FRAGMENT
    ) {
        let is_fragment = packet[named_at] == proto::FRAGMENT;
        let size = if is_fragment { 8 } else { 8 + 8 * usize::from(*packet.get(at + 1)?) };
        (named_at, at) = (at, at + size);
    }
    Some(named_at as u32)
}

/// The transport header. For a `quoted` packet, eight bytes are enough.
pub fn l4(h: &Header<'_>, quoted: bool) -> Result<L4, DropReason> {
    if !h.is_first() {
        return Ok(L4::Later);
    }
    let p = h.payload;
    let icmp = if h.src.is_ipv4() { proto::ICMP } else { proto::ICMPV6 };
    let need = match h.proto {
        proto::TCP if !quoted => 20,
        proto::TCP | proto::UDP => 8,
        other if other == icmp => 8,
        _ => return Ok(L4::Other),
    };
    if p.len() < need {
        return Err(match h.piece {
            _ if quoted => DropReason::IcmpInnerShort,
            Some(piece) if piece.more => DropReason::FragmentTiny, // RFC 1858
            _ => DropReason::L4Truncated,
        });
    }
    Ok(match h.proto {
        proto::TCP => L4::Tcp { src: get16(p, 0), dst: get16(p, 2), flags: p.get(13).copied().unwrap_or(0) },
        proto::UDP => L4::Udp { src: get16(p, 0), dst: get16(p, 2), no_checksum: get16(p, 6) == 0 },
        proto::ICMP => match (p[0], p[1]) {
            (8 | 0, 0) => L4::Echo { request: p[0] == 8, id: get16(p, 4) },
            (3 | 4 | 5 | 11 | 12, _) => L4::Error { kind: p[0], code: p[1] },
            _ => L4::OtherIcmp { kind: p[0] },
        },
        _ => match (p[0], p[1]) {
            (128 | 129, 0) => L4::Echo { request: p[0] == 128, id: get16(p, 4) },
            (0..=127, _) => L4::Error { kind: p[0], code: p[1] },
            _ => L4::OtherIcmp { kind: p[0] },
        },
    })
}
