//! Drop reasons: one flat list, which defines the variant, the metric's name and the help text together.

/// Defines an enum of counted events. One list gives each variant, its stable name and its help text for
/// operators, which is also its documentation.
#[macro_export]
macro_rules! counted_kinds {
    ($(#[$meta:meta])* $kind:ident { $($variant:ident, $name:literal, $help:literal;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $kind { $(#[doc = $help] $variant,)* }

        impl $kind {
            /// All variants, in numeric order.
            pub const ALL: &'static [$kind] = &[$($kind::$variant,)*];
            /// Number of variants: the size of an array of counters.
            pub const COUNT: usize = Self::ALL.len();

            /// Name in metrics and logs.
            pub const fn name(self) -> &'static str {
                match self { $($kind::$variant => $name,)* }
            }

            /// Help text for operators: one sentence that says what happened and, if useful, what to do.
            pub const fn help(self) -> &'static str {
                match self { $($kind::$variant => $help,)* }
            }
        }
    };
}

counted_kinds! {
    /// Reason why a packet was not forwarded. The name is stable: metrics, logs and documents use it.
    #[derive(PartialOrd, Ord, Hash)]
    DropReason {
        // Parsing
        ShortL3, "short_l3", "The packet is shorter than its IP header.";
        BadVersion, "bad_version", "The first four bits are neither 4 nor 6.";
        BadHeaderLength, "bad_hlen", "The IPv4 header length field is below 5 or reaches past the packet.";
        BadLength, "bad_len", "A length is wrong: the IP length is larger than the packet or smaller than its headers, the UDP length does not fit, or a fragment is not a multiple of 8 bytes or ends past 65,535.";
        BadL3Checksum, "bad_l3csum", "The IPv4 header checksum is wrong (RFC 7915 4.1).";
        BadL4Checksum, "bad_l4csum", "The checksum of an ICMP message that Gatun has to read is wrong (RFC 5508 REQ-3).";
        L4Truncated, "l4_truncated", "The packet ends before its transport header does.";
        SourceRoute, "v4_opt_srcroute", "The packet has an unexpired IPv4 source route option (RFC 7915 4.1); the answer is ICMPv4 3/5, within icmp.rate.";
        ExtensionChainTooLong, "v6_ext_chain_too_long", "The packet has more than 16 IPv6 extension headers.";
        RoutingSegmentsLeft, "v6_rh_segleft", "The packet has a routing header with segments left (RFC 7915 5.1); the answer is ICMPv6 4/0, within icmp.rate.";
        ExtensionAfterFragment, "v6_ext_after_frag", "The packet has an extension header after the Fragment header (RFC 7915 5.1.1).";
        AuthenticationHeader, "v6_ah", "IPsec AH authenticates the addresses, so the packet cannot be translated.";
        // Addresses
        SourceMartian, "src_martian", "No host may use the source address: loopback, multicast, unspecified or broadcast.";
        DestinationMartian, "dst_martian", "The destination address is never forwarded: loopback, multicast or link-local.";
        SourceInPool6, "src_in_pref64", "The IPv6 source is inside the translation prefix: a hairpin loop (RFC 6146 3.5).";
        DestinationNotPool6, "dst_not_pref64", "No translation prefix and no mapping covers the IPv6 destination; the answer is ICMPv6 1/1, within icmp.rate.";
        WellKnownNonGlobal, "wkp_nonglobal", "The well-known prefix 64:ff9b::/96 contains an IPv4 address that is not global (RFC 6052 3.1): use another pool6, or set wkp_non_global; the answer is ICMPv6 1/1 or ICMPv4 3/13, within icmp.rate.";
        Denylist, "denylist", "The address is on the configured denylist.";
        NotInPool, "not_in_pool", "No pool and no mapping has the IPv4 destination, or its port.";
        NoEam, "no_eam", "No explicit address mapping and no prefix covers the address.";
        SourceNotAllowed, "src_not_allowed", "The IPv6 source is outside the prefixes that this instance serves.";
        // Own addresses
        OwnUdp, "own_udp", "A UDP packet to an address of the translator itself, which does not listen on UDP ports; the answer is Port Unreachable, within icmp.rate.";
        OwnProtocol, "own_proto", "A packet to an address of the translator itself, with a protocol that it does not support; the answer is Protocol Unreachable, or ICMPv6 4/1, within icmp.rate.";
        OwnOther, "own_other", "A packet to an address of the translator itself that gets no answer: TCP, a fragment, or an ICMP message other than a ping.";
        // Fragments
        FragmentTimeout, "frag_timeout", "The first fragment, or a missing one, did not arrive in time.";
        FragmentOverlap, "frag_overlap", "Fragments of one packet overlap (RFC 5722, RFC 1858).";
        FragmentTiny, "frag_tiny", "The first fragment is too short for its transport header (RFC 1858).";
        FragmentTooMany, "frag_too_many", "One packet or one source has more fragments than the limit.";
        FragmentMemory, "frag_mem", "The memory for held fragments is full.";
        FragmentIcmp, "frag_icmp", "A fragmented ICMP message that is not translated: it is not a ping, or the instance is stateless (RFC 7915 1.2).";
        FragmentZeroChecksum, "frag_zero_csum_stateless", "A fragmented UDP packet without checksum, in a stateless instance (RFC 7915 4.5); the answer is ICMPv4 3/13, within icmp.rate.";
        FragmentOrphan, "frag_orphan", "The first fragment of the same packet was dropped.";
        // State
        NoBib, "no_bib", "A packet from outside to an address and port without a binding.";
        NoSession, "no_session", "The packet has no session and may not open one.";
        AddressDependentFilter, "adf", "A packet from a host that the inside host has not contacted (address-dependent filtering).";
        AddressPortDependentFilter, "apdf", "A packet from an address and port that the inside host has not contacted (address- and port-dependent filtering).";
        ExternalSynPolicy, "v4_syn_policy", "A TCP connection from outside, and external_tcp is false.";
        SynStoreFull, "syn_store_full", "The store that holds unsolicited SYNs for six seconds is full.";
        SynHeldAlready, "syn_held_already", "Another SYN of the same connection is already held.";
        SynExpired, "syn_expired", "The inside host did not open the connection of a held SYN within six seconds; the answer is Port Unreachable, within icmp.rate.";
        SynWasAnswered, "syn_answered", "A held SYN was dropped because the inside host opened the connection itself (RFC 5382 REQ-4).";
        NonSynClosed, "non_syn_closed", "A TCP packet without SYN, and its connection does not exist.";
        TcpInvalidFlags, "tcp_invalid_flags", "The combination of TCP flags is invalid.";
        SessionTableFull, "sess_table_full", "The session table is full (limits.sessions_max).";
        SessionTableReserved, "sess_table_reserved", "The rest of the session table is reserved for subscribers with fewer sessions (limits.sessions_reserved).";
        SubscriberTableFull, "subscriber_table_full", "The subscriber table is full (limits.subscribers_max).";
        // Ports
        PoolEmpty, "pool_empty", "The pool has no address for this protocol.";
        PortsExhausted, "addr_ports_empty", "The addresses that this subscriber may use have no free port.";
        SubscriberPortQuota, "sub_port_quota", "The subscriber has reached limits.ports_per_subscriber, or the port limit of the protocol.";
        SubscriberSessionQuota, "sub_sess_quota", "The subscriber has reached limits.sessions_per_subscriber.";
        SubscriberRate, "sub_rate", "The subscriber opens sessions faster than limits.session_rate_per_subscriber allows.";
        SubscriberBlockQuota, "sub_block_quota", "The subscriber's port blocks are full, and its pool allows no more blocks.";
        BlockNone, "block_none", "The addresses that this subscriber may use have no free port block.";
        HoldDownAll, "holddown_all", "No port or block is free: those released recently are held down (RFC 6888 REQ-8).";
        PortRightNone, "port_right_none", "This member of a pair, or node of a cluster, may not assign ports of the subscriber's addresses at this moment.";
        // ICMP
        IcmpUnknownType, "icmp_unknown_type", "An ICMP type or code that has no translation (RFC 7915 4.2, 5.2).";
        IcmpSingleHop, "icmp_single_hop", "An ICMP message that is limited to one link: MLD, IGMP or neighbour discovery.";
        IcmpDoubleError, "icmp_double_error", "An ICMP error about an ICMP error.";
        IcmpInnerShort, "icmp_inner_short", "The packet inside an ICMP error is too short to be parsed.";
        IcmpInnerUntranslatable, "icmp_inner_untranslatable", "The packet inside an ICMP error cannot be translated.";
        IcmpPointerUntranslatable, "icmp_ptr_untranslatable", "A Parameter Problem that points at a field without a counterpart.";
        IcmpErrorNoState, "icmp_err_no_state", "An ICMP error about a packet without a session.";
        IcmpExtensionBad, "icmp_ext_bad", "The length field of an ICMP extension (RFC 4884) is wrong.";
        // Size and route
        TtlExceeded, "ttl", "The TTL or Hop Limit expired; the answer is Time Exceeded, within icmp.rate.";
        TooBig6, "too_big6", "An IPv6 packet does not fit the IPv4 side's MTU; the answer is Packet Too Big, within icmp.rate.";
        TooBig4, "too_big4", "An IPv4 packet with DF does not fit the IPv6 side's MTU; the answer is Fragmentation Needed, within icmp.rate.";
        Unfragmentable, "mtu_unfragmentable", "The packet is too large and cannot be fragmented: a segmented datagram or a fragment with offloads.";
        ZeroUdpChecksum, "udp_zero_csum", "A UDP packet without checksum (udp_zero_checksum = drop); the answer is ICMPv4 3/13, within icmp.rate.";
        UnsupportedProtocol, "unsupported_proto", "A transport protocol that this instance does not translate.";
        NoHeadroom, "no_headroom", "The buffer has no room for the larger header. This is a defect of the backend: please report it.";
        // Output
        EmitFull, "emit_full", "The engine had no buffer for another packet that it originates.";
        KernelWrite, "kernel_write", "The kernel fast path could not write the translated packet; the bytes of these packets are not counted.";
        // Cluster
        RedirectLoop, "redirect_loop", "Another node of the cluster has redirected the packet to this one, which does not have its shard: the nodes disagree for a moment, or the packet is forged.";
        ShardNowhere, "shard_nowhere", "No node of the cluster translates the shard of the packet at this moment.";
        ShardFenced, "shard_fenced", "Another box may have the ports of the packet: this node has not heard of its cluster for too long, or this box of a pair was stopped or declared gone.";
        TunnelHeader, "tunnel_header", "A packet to the tunnel address and port with other headers than those of a redirected packet, or with a wrong length or checksum.";
        TunnelSource, "tunnel_source", "A packet to the tunnel address and port that no node of the cluster has sent.";
        TunnelVni, "tunnel_vni", "A packet in the tunnel with a network identifier of another cluster.";
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_every_reason_has_a_sentence() {
        let names: BTreeSet<_> = DropReason::ALL.iter().map(|r| r.name()).collect();
        assert_eq!(names.len(), DropReason::COUNT);
        for r in DropReason::ALL {
            // A rate limit may suppress an answer. Sent answers are counted separately.
            assert!(!r.name().contains("sent") && !r.help().contains("was sent"), "{}", r.name());
            assert!(!r.help().contains("answered with"), "{}", r.name());
            assert!(r.help().ends_with('.') || r.help().contains("; see"), "{}: {}", r.name(), r.help());
        }
    }
}
