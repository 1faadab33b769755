//! ICMP errors by reason: one table for each family (RFC 7915 4.4, 5.4; RFC 6146 3.5).

use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_wire::icmp_error::{self, Message};
use gatun_wire::rfc7915::mtu;
use gatun_wire::{DropReason, Ipv4View, Ipv6View, L4, Settings};

const fn unreachable6(code: u8) -> Option<Message> {
    Some(Message { kind: 1, code, word: 0 })
}

const fn unreachable4(code: u8) -> Option<Message> {
    Some(Message { kind: 3, code, word: 0 })
}

/// Returns the ICMPv6 error that answers an IPv6 packet dropped for `reason`; `None` if it gets no answer.
pub(crate) fn for_ipv6(reason: DropReason, packet: &[u8], settings: &Settings) -> Option<Message> {
    use DropReason::*;
    match reason {
        TtlExceeded => Some(Message { kind: 3, code: 0, word: 0 }),
        TooBig6 => Some(Message { kind: 2, code: 0, word: too_big(packet, settings) }),
        RoutingSegmentsLeft => Some(Message { kind: 4, code: 0, word: Ipv6View::segments_left_at(packet)? }),
        // RFC 6146 3.5: other protocols.
        UnsupportedProtocol => unreachable6(4),
        OwnUdp => unreachable6(4),
        // RFC 4443 3.4: unrecognized Next Header, and its offset.
        OwnProtocol => {
            let view = Ipv6View::parse(packet).ok()?;
            Some(Message { kind: 4, code: 1, word: view.next_header_at.into() })
        }
        // RFC 7915 5.4: administratively prohibited, unless another code is specified.
        ExtensionAfterFragment
        | AuthenticationHeader
        | DestinationNotPool6
        | WellKnownNonGlobal
        | ZeroUdpChecksum
        | Denylist
        | AddressDependentFilter
        | SubscriberPortQuota
        | SubscriberBlockQuota
        | SubscriberSessionQuota
        | SubscriberRate => unreachable6(1),
        // RFC 4443 3.1: failed ingress policy.
        SourceNotAllowed => unreachable6(5),
        NoEam => unreachable6(0),
        // RFC 6146 3.5.1.1: no transport address is available.
        PortsExhausted | BlockNone | HoldDownAll | PoolEmpty | PortRightNone | SessionTableFull
        | SessionTableReserved | SubscriberTableFull => unreachable6(3),
        _ => None,
    }
}

/// Returns whether the reason is a limit of the subscriber. The operator chooses the code for these.
pub(crate) fn is_quota(reason: DropReason) -> bool {
    use DropReason::*;
    matches!(reason, SubscriberPortQuota | SubscriberBlockQuota | SubscriberSessionQuota | SubscriberRate)
}

/// Returns the IPv4 and IPv6 source of an error for `reason`: an own address, or the destination of the
/// packet if the error is about that destination (RFC 4443 2.2 a).
pub(crate) fn sources(
    reason: DropReason,
    packet: &[u8],
    own: (Option<Ipv4Addr>, Option<Ipv6Addr>),
) -> (Option<Ipv4Addr>, Option<Ipv6Addr>) {
    if !matches!(reason, DropReason::OwnUdp | DropReason::OwnProtocol) {
        return own;
    }
    let four = Ipv4View::parse(packet).map(|view| view.dst);
    let six = Ipv6View::parse_fixed(packet).map(|view| view.dst);
    (four.ok(), six.ok())
}

/// Returns whether the error reports a path's MTU. Connections hang without it.
pub(crate) fn is_too_big(reason: DropReason) -> bool {
    matches!(reason, DropReason::TooBig6 | DropReason::TooBig4)
}

/// Returns the MTU for Packet Too Big: that of the IPv4 side, or that of the IPv6 side for a hairpinned
/// packet that fits the IPv4 side (RFC 6146 3.8, RFC 7757 4.2).
fn too_big(packet: &[u8], settings: &Settings) -> u32 {
    let of_ipv4 = mtu::packet_too_big(settings);
    let fits = Ipv6View::parse_fixed(packet).is_ok_and(|view| view.total_len <= of_ipv4);
    if fits { settings.mtu6.max(1280) } else { of_ipv4 }
}

/// Returns the ICMPv4 error that answers an IPv4 packet dropped for `reason`.
pub(crate) fn for_ipv4(reason: DropReason, packet: &[u8], settings: &Settings) -> Option<Message> {
    use DropReason::*;
    match reason {
        TtlExceeded => Some(Message { kind: 11, code: 0, word: 0 }),
        TooBig4 => {
            let view = Ipv4View::parse(packet).ok()?;
            Some(Message { kind: 3, code: 4, word: mtu::fragmentation_needed(&view, settings).into() })
        }
        SourceRoute => unreachable4(5),
        UnsupportedProtocol | AuthenticationHeader | OwnProtocol => unreachable4(2),
        NoBib | OwnUdp => unreachable4(3),
        NoEam => unreachable4(1),
        // Not ExternalSynPolicy: no SYN is answered before six seconds (RFC 5382 REQ-4), and RFC 6146 3.5.2.2
        // requires that SYNs that policy forbids are discarded silently.
        AddressDependentFilter | AddressPortDependentFilter => unreachable4(13),
        // RFC 7915 4.4: administratively prohibited, unless another code is specified.
        Denylist | WellKnownNonGlobal | ZeroUdpChecksum | FragmentZeroChecksum => unreachable4(13),
        // RFC 6888 REQ-11: packets that cannot be mapped.
        SubscriberSessionQuota
        | SubscriberPortQuota
        | SubscriberBlockQuota
        | SubscriberRate
        | PortsExhausted
        | BlockNone
        | HoldDownAll
        | PoolEmpty
        | PortRightNone
        | SessionTableFull
        | SessionTableReserved
        | SubscriberTableFull => unreachable4(1),
        _ => None,
    }
}

/// Returns the ICMPv4 error that answers a packet of a NAT44 instance whose links have this MTU.
pub(crate) fn for_nat44(reason: DropReason, packet: &[u8], mtu: u32, settings: &Settings) -> Option<Message> {
    use DropReason::*;
    match reason {
        TooBig4 => Some(Message { kind: 3, code: 4, word: mtu.min(u16::MAX.into()) }),
        other => for_ipv4(other, packet, settings),
    }
}

/// Returns whether an error may answer this IPv6 packet (RFC 4443 2.4 e). The packet's headers may be
/// invalid.
pub(crate) fn may_answer6(packet: &[u8]) -> bool {
    match Ipv6View::parse(packet) {
        Ok(view) => icmp_error::may_answer6(&view, view.l4(packet).unwrap_or(L4::Other)),
        Err(_) => Ipv6View::parse_fixed(packet).is_ok_and(|v| icmp_error::may_answer6(&v, L4::Other)),
    }
}

/// Returns whether an error may answer this IPv4 packet (RFC 1812 4.3.2.7).
pub(crate) fn may_answer4(packet: &[u8]) -> bool {
    Ipv4View::parse(packet)
        .is_ok_and(|view| icmp_error::may_answer4(&view, view.l4(packet).unwrap_or(L4::Other)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// ICMPv6 type and code that a standard specifies for each reason.
    fn named6(reason: DropReason) -> Option<(u8, u8)> {
        use DropReason::*;
        Some(match reason {
            // RFC 7915 5.1: Hop Limit, MTU, routing header.
            TtlExceeded => (3, 0),
            TooBig6 => (2, 0),
            RoutingSegmentsLeft => (4, 0),
            // RFC 6146 3.5: other protocols; no transport address is available.
            UnsupportedProtocol => (1, 4),
            SessionTableFull | SessionTableReserved | SubscriberTableFull | PoolEmpty | PortsExhausted
            | BlockNone | HoldDownAll | PortRightNone => (1, 3),
            // RFC 4443 3.1: ingress policy; no route.
            SourceNotAllowed => (1, 5),
            NoEam => (1, 0),
            // RFC 4443 3.1: no listener; RFC 8200 4: an unknown Next Header.
            OwnUdp => (1, 4),
            OwnProtocol => (4, 1),
            _ => return None,
        })
    }

    /// Same as `named6`, for ICMPv4.
    fn named4(reason: DropReason) -> Option<(u8, u8)> {
        use DropReason::*;
        Some(match reason {
            // RFC 7915 4.1: TTL, MTU, source route.
            TtlExceeded => (11, 0),
            TooBig4 => (3, 4),
            SourceRoute => (3, 5),
            // RFC 1122 3.2.2.1: protocol and port unreachable.
            UnsupportedProtocol | AuthenticationHeader | OwnProtocol => (3, 2),
            NoBib | OwnUdp => (3, 3),
            // RFC 6888 REQ-11: host unreachable. The code of a quota is a setting.
            SubscriberPortQuota
            | SubscriberBlockQuota
            | SubscriberSessionQuota
            | SubscriberRate
            | SessionTableFull
            | SessionTableReserved
            | SubscriberTableFull
            | PoolEmpty
            | PortsExhausted
            | BlockNone
            | HoldDownAll
            | PortRightNone
            | NoEam => (3, 1),
            _ => return None,
        })
    }

    // proves: A79-39, A79-74
    #[test]
    fn an_error_without_a_specified_code_is_administratively_prohibited() {
        let settings = Settings::default();
        // With a routing header, whose third byte a Parameter Problem points at.
        let mut six = [0; 56];
        (six[0], six[5], six[6], six[40], six[43]) = (0x60, 16, 43, 59, 1);
        let mut four = [0; 20];
        (four[0], four[3]) = (0x45, 20);
        let sum = !gatun_wire::checksum::sum(&four);
        four[10..12].copy_from_slice(&sum.to_be_bytes());
        let all = || DropReason::ALL.iter().copied();
        let mut plain = [0; 40];
        (plain[0], plain[6]) = (0x60, 132);
        let made6 = |r| for_ipv6(r, &six, &settings).or_else(|| for_ipv6(r, &plain, &settings));
        let made6: Vec<_> = all().filter_map(|r| Some((r, made6(r)?))).collect();
        let made4: Vec<_> = all().filter_map(|r| Some((r, for_ipv4(r, &four, &settings)?))).collect();
        for (reason, message) in &made6 {
            assert_eq!((message.kind, message.code), named6(*reason).unwrap_or((1, 1)), "{reason:?}");
        }
        for (reason, message) in &made4 {
            assert_eq!((message.kind, message.code), named4(*reason).unwrap_or((3, 13)), "{reason:?}");
        }
        let unnamed = |made: &[(DropReason, Message)], named: fn(DropReason) -> Option<(u8, u8)>| {
            made.iter().filter(|(reason, _)| named(*reason).is_none()).count()
        };
        assert!(unnamed(&made6, named6) >= 5 && unnamed(&made4, named4) >= 3);
        // Every specified error is created.
        assert!(all().filter(|r| named6(*r).is_some()).all(|r| made6.iter().any(|(made, _)| *made == r)));
        assert!(all().filter(|r| named4(*r).is_some()).all(|r| made4.iter().any(|(made, _)| *made == r)));
    }
}
