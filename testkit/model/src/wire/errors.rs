//! ICMP errors of the translator: the error for each drop reason, and its bytes.

use super::sum::{pseudo, sum, sum_from};
use super::to4::Header4;
use super::to6::Header6;
use super::{L4, get16, parse, proto, put16};
use gatun_wire::{DropReason, Settings};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Type, code, second word.
pub type Message = (u8, u8, u32);

/// The ICMPv6 error for a reason (RFC 7915 5.4, RFC 6146 3.5, RFC 6888 REQ-11); `None` if there is none.
pub fn for_ipv6(reason: DropReason, packet: &[u8], s: &Settings) -> Option<Message> {
    use DropReason::*;
    Some(match reason {
        TtlExceeded => (3, 0, 0),
        TooBig6 => {
            let of_ipv4 = (s.mtu4 + 20).max(1280);
            let size = 40 + u32::from(get16(packet, 4));
            // A packet that fits the IPv4 side was hairpinned, and does not fit the IPv6 side.
            (2, 0, if size <= of_ipv4 { s.mtu6.max(1280) } else { of_ipv4 })
        }
        RoutingSegmentsLeft => (4, 0, parse::segments_left_at(packet)?),
        UnsupportedProtocol | OwnUdp => (1, 4, 0),
        OwnProtocol => (4, 1, parse::protocol_at(packet)?),
        ExtensionAfterFragment | AuthenticationHeader | WellKnownNonGlobal | AddressDependentFilter => {
            (1, 1, 0)
        }
        DestinationNotPool6 | ZeroUdpChecksum => (1, 1, 0),
        SubscriberPortQuota | SubscriberBlockQuota | SubscriberSessionQuota | SubscriberRate => (1, 1, 0),
        SourceNotAllowed => (1, 5, 0),
        PortsExhausted | BlockNone | HoldDownAll | PoolEmpty | SessionTableFull | SessionTableReserved
        | SubscriberTableFull => (1, 3, 0),
        _ => return None,
    })
}

/// The ICMPv4 error for a reason (RFC 7915 4.4, RFC 6146 3.5, RFC 6888 REQ-11).
pub fn for_ipv4(reason: DropReason, packet: &[u8], s: &Settings) -> Option<Message> {
    use DropReason::*;
    Some(match reason {
        TtlExceeded => (11, 0, 0),
        TooBig4 => {
            let fragment = if get16(packet, 6) & 0x3fff != 0 { 8 } else { 0 };
            (3, 4, s.mtu6 - 20 - fragment)
        }
        SourceRoute => (3, 5, 0),
        UnsupportedProtocol | AuthenticationHeader | OwnProtocol => (3, 2, 0),
        NoBib | OwnUdp => (3, 3, 0),
        AddressDependentFilter | AddressPortDependentFilter => (3, 13, 0),
        WellKnownNonGlobal | ZeroUdpChecksum | FragmentZeroChecksum => (3, 13, 0),
        PortsExhausted | BlockNone | HoldDownAll | PoolEmpty | SessionTableFull | SessionTableReserved
        | SubscriberTableFull => (3, 1, 0),
        reason if is_quota(reason) => (3, 1, 0),
        _ => return None,
    })
}

/// The ICMPv4 error for a reason in NAT44, whose links have this MTU.
pub fn for_nat44(reason: DropReason, packet: &[u8], mtu: u32, s: &Settings) -> Option<Message> {
    match reason {
        DropReason::TooBig4 => Some((3, 4, mtu)),
        reason => for_ipv4(reason, packet, s),
    }
}

/// Returns true if the reason is a limit of the subscriber, whose error code the operator chooses (RFC 6888
/// REQ-11).
pub fn is_quota(reason: DropReason) -> bool {
    use DropReason::*;
    matches!(reason, SubscriberPortQuota | SubscriberBlockQuota | SubscriberSessionQuota | SubscriberRate)
}

/// RFC 4443 2.4 e: no error about an ICMP error, a redirect, multicast, a later fragment, or a source that
/// is not a single host.
pub fn may_answer6(packet: &[u8]) -> bool {
    let (Ok(src), Ok(dst)) = (address6(packet, 8), address6(packet, 24)) else { return false };
    let l4 = match parse::parse6(packet, false) {
        Ok(h) => parse::l4(&h, false).unwrap_or(if h.is_first() { L4::Other } else { L4::Later }),
        Err(_) => L4::Other,
    };
    !matches!(l4, L4::Error { .. } | L4::Later | L4::OtherIcmp { kind: 137 })
        && !dst.is_multicast()
        && !src.is_multicast()
        && !src.is_unspecified()
        && !src.is_loopback()
}

fn address6(packet: &[u8], at: usize) -> Result<Ipv6Addr, ()> {
    let octets: [u8; 16] = packet.get(at..at + 16).ok_or(())?.try_into().map_err(|_| ())?;
    Ok(octets.into())
}

/// RFC 1812 4.3.2.7.
pub fn may_answer4(packet: &[u8]) -> bool {
    let Ok(h) = parse::parse4(packet, false) else { return false };
    let l4 = parse::l4(&h, false).unwrap_or(L4::Other);
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (h.src, h.dst) else { return false };
    let one_host = !matches!(src.octets()[0], 0 | 127 | 224..);
    !matches!(l4, L4::Error { .. } | L4::Later) && one_host && !dst.is_multicast() && !dst.is_broadcast()
}

/// An ICMPv6 error about `packet`, at most 1280 bytes (RFC 4443 2.4 c).
pub fn error6(packet: &[u8], from: Ipv6Addr, (kind, code, word): Message) -> Vec<u8> {
    let total = 40 + usize::from(get16(packet, 4));
    let quote = &packet[..packet.len().min(total).min(1280 - 48)];
    let to = address6(packet, 8).unwrap_or(Ipv6Addr::UNSPECIFIED);
    let mut icmp = vec![kind, code, 0, 0];
    icmp.extend(word.to_be_bytes());
    icmp.extend(quote);
    let start = sum(&pseudo(IpAddr::V6(from), IpAddr::V6(to), icmp.len(), proto::ICMPV6));
    let checksum = !sum_from(start, &icmp);
    put16(&mut icmp, 2, checksum);
    Header6 { tos: 0, hops: 64, proto: proto::ICMPV6, ends: (from, to), piece: None }.packet(&icmp)
}

/// An ICMPv4 error about `packet`, at most `max` bytes (RFC 1812 4.3.2.3), precedence 6 (4.3.2.5).
pub fn error4(packet: &[u8], from: Ipv4Addr, (kind, code, word): Message, ident: u16, max: usize) -> Vec<u8> {
    let total = usize::from(get16(packet, 2));
    let quote = &packet[..packet.len().min(total).min(max - 28)];
    let to = Ipv4Addr::new(packet[12], packet[13], packet[14], packet[15]);
    let mut icmp = vec![kind, code, 0, 0];
    icmp.extend(word.to_be_bytes());
    icmp.extend(quote);
    let checksum = !sum(&icmp);
    put16(&mut icmp, 2, checksum);
    Header4 { tos: 0xc0, ident, flags: 0, ttl: 64, proto: proto::ICMP, ends: (from, to) }.packet(&icmp)
}
