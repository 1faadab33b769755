//! Shortened sentences of RFCs that require a drop.

use gatun_wire::DropReason;

/// Rules, each with the reasons that follow it.
const RULES: &[(&[DropReason], &str)] = {
    use DropReason::*;
    &[
        (&[BadL3Checksum], "RFC 1812 5.2.2: a packet whose header checksum is wrong is discarded silently"),
        (
            &[SourceRoute],
            "RFC 7915 4.1: an unexpired source route is discarded, and answered with ICMPv4 3/5",
        ),
        (
            &[RoutingSegmentsLeft],
            "RFC 7915 5.1: a routing header with segments left is not translated, and answered with ICMPv6 4/0",
        ),
        (
            &[AuthenticationHeader],
            "RFC 7915 4: the Authentication Header protects fields that translation changes",
        ),
        (
            &[SourceMartian],
            "RFC 7915 4.1, RFC 1812 5.3.7: a packet with an invalid source is discarded silently",
        ),
        (&[DestinationMartian], "RFC 1812 5.3.7: packets to such an address are not forwarded"),
        (
            &[SourceInPool6],
            "RFC 6146 3.5: packets with a source in the translation prefix are discarded to prevent loops",
        ),
        (
            &[WellKnownNonGlobal],
            "RFC 6052 3.1: 64:ff9b::/96 must not embed IPv4 addresses that are not global",
        ),
        (
            &[OwnUdp],
            "RFC 1122 4.1.3.1, RFC 4443 3.1: UDP to a port of the host itself without a listener gets Port Unreachable",
        ),
        (
            &[OwnProtocol],
            "RFC 1122 3.2.2.1, RFC 4443 3.4: an unknown protocol to the host itself gets an ICMP error",
        ),
        (&[OwnOther], "RFC 1122 3.2.1.3, RFC 1812 5.2.3: packets to the host itself are not forwarded"),
        (&[DestinationNotPool6], "RFC 7915 5.4: a packet that is not translated is answered with ICMPv6 1/1"),
        (
            &[ZeroUdpChecksum, FragmentZeroChecksum],
            "RFC 7915 4.5: UDP without a checksum is discarded unless one is computed; RFC 7915 4.4: answered with ICMPv4 3/13",
        ),
        (&[SourceNotAllowed], "RFC 4443 3.1, code 5: the source fails the ingress policy"),
        (
            &[FragmentIcmp],
            "RFC 7915 1.2: fragmented ICMP messages are not translated, except pings by a stateful instance",
        ),
        (&[FragmentOverlap], "RFC 5722 4: a datagram with overlapping fragments is discarded as a whole"),
        (&[NoBib], "RFC 6146 3.5.1, 3.5.2.2: without a BIB entry a packet from outside is discarded"),
        (&[NoSession], "RFC 6146 3.5.3: an answer without a session is discarded"),
        (
            &[AddressDependentFilter, AddressPortDependentFilter],
            "RFC 4787 5, RFC 6146 3.5: with this filtering, only remote endpoints that the inside host has sent to may answer",
        ),
        (
            &[ExternalSynPolicy],
            "RFC 6146 3.5.2.2: the operator's policy decides if outside hosts may open connections",
        ),
        (
            &[SynStoreFull, SynHeldAlready, SynExpired, SynWasAnswered],
            "RFC 6146 3.5.2.2, RFC 5382 REQ-4: an unsolicited SYN is held for six seconds and answered only then",
        ),
        (
            &[NonSynClosed],
            "RFC 6146 3.5.2.2, CLOSED: only a SYN opens a session; other segments pass if a BIB entry exists",
        ),
        (
            &[SubscriberPortQuota, SubscriberSessionQuota, SubscriberRate],
            "RFC 6888 REQ-4, REQ-5: ports, sessions and session rate of a subscriber are limited, so that one cannot use all",
        ),
        (
            &[SubscriberBlockQuota],
            "RFC 6888 REQ-4: a subscriber's external ports are limited; the pool sets the number of blocks",
        ),
        (
            &[PortsExhausted, BlockNone, PoolEmpty, PortRightNone],
            "RFC 6146 3.5.1.1, RFC 6888 REQ-11: if no transport address is available, the packet is discarded and answered",
        ),
        (&[HoldDownAll], "RFC 6888 REQ-8: a released port is not assigned to another subscriber for a while"),
        (
            &[SessionTableReserved],
            "RFC 6888 REQ-4: one subscriber cannot fill the table; its last part is reserved for others",
        ),
        (
            &[SessionTableFull, SubscriberTableFull],
            "RFC 6888 REQ-12: existing sessions are not evicted to make room for new ones",
        ),
        (
            &[IcmpUnknownType],
            "RFC 7915 4.2, 5.2: this ICMP message has no counterpart and is dropped silently",
        ),
        (&[IcmpSingleHop], "RFC 7915 4.2, 5.2: single-hop messages are not translated"),
        (&[IcmpDoubleError], "RFC 7915 4.3, 5.3: an ICMP error inside an ICMP error is dropped"),
        (&[IcmpErrorNoState], "RFC 6146 3.5.4, RFC 5508 REQ-4: an error about no known session is dropped"),
        (&[TtlExceeded], "RFC 7915 4.1, 5.1: when TTL or Hop Limit expires, Time Exceeded is sent"),
        (
            &[TooBig6],
            "RFC 7915 5.1: a packet larger than the IPv4 side's MTU is answered with Packet Too Big",
        ),
        (
            &[TooBig4],
            "RFC 7915 4: with DF set, a packet larger than the IPv6 side's MTU is answered with Fragmentation Needed",
        ),
        (
            &[UnsupportedProtocol],
            "RFC 6146 3.5: other protocols than TCP, UDP and ICMP are discarded, and answered with Destination Unreachable",
        ),
    ]
};

/// Rule that a drop reason follows; `None` if the drop is the operator's limit or setting alone, which the
/// reason's help text names.
pub(crate) fn of(reason: DropReason) -> Option<&'static str> {
    RULES.iter().find(|(reasons, _)| reasons.contains(&reason)).map(|(_, rule)| *rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_names_its_rfc_and_reasons_of_limits_and_devices_have_none() {
        let with: Vec<_> = DropReason::ALL.iter().filter_map(|&reason| of(reason)).collect();
        assert!(with.len() > 30 && with.iter().all(|rule| rule.starts_with("RFC ")), "{with:?}");
        let mut reasons: Vec<_> = RULES.iter().flat_map(|(reasons, _)| *reasons).collect();
        let all = reasons.len();
        reasons.sort_unstable();
        reasons.dedup();
        assert_eq!(reasons.len(), all, "a reason has two rules");
        assert_eq!((of(DropReason::EmitFull), of(DropReason::KernelWrite)), (None, None));
        assert_eq!(of(DropReason::Denylist), None);
    }
}
