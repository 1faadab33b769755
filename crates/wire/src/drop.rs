//! Why a packet was not forwarded: one flat list, from which the variant, the metric's name and the
//! help text are made together.

/// An enum of things that are counted, each with a stable name and a sentence for operators, all three made from one
/// list: the variant, its name, its sentence, which is its documentation too.
#[macro_export]
macro_rules! counted_kinds {
    ($(#[$meta:meta])* $kind:ident { $($variant:ident, $name:literal, $help:literal;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $kind { $(#[doc = $help] $variant,)* }

        impl $kind {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [$kind] = &[$($kind::$variant,)*];
            /// How many there are: the size of an array of counters.
            pub const COUNT: usize = Self::ALL.len();

            /// The name used in metrics and logs.
            pub const fn name(self) -> &'static str {
                match self { $($kind::$variant => $name,)* }
            }

            /// One sentence for an operator: what happened and, where it helps, what to do.
            pub const fn help(self) -> &'static str {
                match self { $($kind::$variant => $help,)* }
            }
        }
    };
}

counted_kinds! {
    /// Why a packet was not forwarded. The name is stable: metrics, logs and documents use it.
    #[derive(PartialOrd, Ord, Hash)]
    DropReason {
        // Parsing
        ShortL3, "short_l3", "The packet is shorter than its IP header.";
        BadVersion, "bad_version", "The first four bits are neither 4 nor 6.";
        BadHeaderLength, "bad_hlen", "The IPv4 header length field is below 5 or reaches past the packet.";
        BadLength, "bad_len", "A length is wrong: IP's is larger than the packet or smaller than its headers, UDP's does not fit, or a fragment is no multiple of 8 bytes or ends past 65,535.";
        BadL3Checksum, "bad_l3csum", "The IPv4 header checksum is wrong (RFC 7915 4.1).";
        BadL4Checksum, "bad_l4csum", "The checksum of an ICMP message that had to be understood is wrong (RFC 5508 REQ-3).";
        L4Truncated, "l4_truncated", "The transport header is cut off.";
        SourceRoute, "v4_opt_srcroute", "An unexpired IPv4 source route option (RFC 7915 4.1); the answer is ICMPv4 3/5, within icmp.rate.";
        ExtensionChainTooLong, "v6_ext_chain_too_long", "More IPv6 extension headers than the walk's bound.";
        RoutingSegmentsLeft, "v6_rh_segleft", "A routing header with segments left (RFC 7915 5.1); the answer is ICMPv6 4/0, within icmp.rate.";
        ExtensionAfterFragment, "v6_ext_after_frag", "An extension header after the Fragment header (RFC 7915 5.1.1).";
        AuthenticationHeader, "v6_ah", "IPsec AH covers the addresses, so it cannot be translated.";
        // Addresses
        SourceMartian, "src_martian", "A source address that no host may use: loopback, multicast, unspecified, broadcast.";
        DestinationMartian, "dst_martian", "A destination address that is not forwarded: loopback, multicast, link-local.";
        SourceInPool6, "src_in_pref64", "An IPv6 source inside the translation prefix: a hairpin loop (RFC 6146 3.5).";
        DestinationNotPool6, "dst_not_pref64", "The IPv6 destination is in no translation prefix and no mapping; the answer is ICMPv6 1/1, within icmp.rate.";
        WellKnownNonGlobal, "wkp_nonglobal", "64:ff9b::/96 with an IPv4 address that is not global (RFC 6052 3.1): use another pool6, or set wkp_non_global; the answer is ICMPv6 1/1 or ICMPv4 3/13, within icmp.rate.";
        Denylist, "denylist", "The address is on the configured denylist.";
        NotInPool, "not_in_pool", "The IPv4 destination, or its port, is in no pool and no mapping.";
        NoEam, "no_eam", "No explicit address mapping and no prefix covers the address.";
        SourceNotAllowed, "src_not_allowed", "The IPv6 source is outside the prefixes that this instance serves.";
        // Own addresses
        OwnUdp, "own_udp", "A UDP packet to an address of the translator itself, where nothing listens; the answer is Port Unreachable, within icmp.rate.";
        OwnProtocol, "own_proto", "A protocol that the translator does not speak, to an address of its own; the answer is Protocol Unreachable, or ICMPv6 4/1, within icmp.rate.";
        OwnOther, "own_other", "To an address of the translator itself, without an answer: TCP, a fragment, or an ICMP message that is no ping.";
        // Fragments
        FragmentTimeout, "frag_timeout", "The first fragment, or a missing one, did not come in time.";
        FragmentOverlap, "frag_overlap", "Fragments of one packet overlap (RFC 5722, RFC 1858).";
        FragmentTiny, "frag_tiny", "A first fragment too short for its transport header (RFC 1858).";
        FragmentTooMany, "frag_too_many", "More fragments of one packet, or of one source, than the limit.";
        FragmentMemory, "frag_mem", "The memory for held fragments is used up.";
        FragmentIcmp, "frag_icmp", "A fragmented ICMP message without state, or that is no ping: not translated (RFC 7915 1.2).";
        FragmentZeroChecksum, "frag_zero_csum_stateless", "A fragmented UDP packet without checksum, without state (RFC 7915 4.5); the answer is ICMPv4 3/13, within icmp.rate.";
        FragmentOrphan, "frag_orphan", "A fragment whose first fragment was dropped.";
        // State
        NoBib, "no_bib", "From outside to an address and port without a binding.";
        NoSession, "no_session", "No session, and this packet may not make one.";
        AddressDependentFilter, "adf", "From a host that the inside host has not contacted (address-dependent filtering).";
        AddressPortDependentFilter, "apdf", "From an address and port that the inside host has not contacted.";
        ExternalSynPolicy, "v4_syn_policy", "Connections from outside are switched off.";
        SynStoreFull, "syn_store_full", "No room to hold another unsolicited SYN for six seconds.";
        SynHeldAlready, "syn_held_already", "A SYN of the same connection is held already.";
        SynExpired, "syn_expired", "The inside host did not open the connection of a held SYN within six seconds; the answer is Port Unreachable, within icmp.rate.";
        SynWasAnswered, "syn_answered", "A held SYN was dropped because the inside host opened the connection itself (RFC 5382 REQ-4).";
        NonSynClosed, "non_syn_closed", "A TCP packet without SYN for a connection that does not exist.";
        TcpInvalidFlags, "tcp_invalid_flags", "A TCP flag combination that no stack sends.";
        SessionTableFull, "sess_table_full", "limits.sessions_max is reached.";
        SessionTableReserved, "sess_table_reserved", "What is left of limits.sessions_max is reserved for subscribers with fewer sessions (limits.sessions_reserved).";
        SubscriberTableFull, "subscriber_table_full", "limits.subscribers_max is reached.";
        // Ports
        PoolEmpty, "pool_empty", "The pool has no address for this protocol.";
        PortsExhausted, "addr_ports_empty", "No free port on the addresses that this subscriber may use.";
        SubscriberPortQuota, "sub_port_quota", "The subscriber has as many ports as limits.ports_per_subscriber allows, or that of the protocol.";
        SubscriberSessionQuota, "sub_sess_quota", "The subscriber has as many sessions as limits.sessions_per_subscriber allows.";
        SubscriberRate, "sub_rate", "The subscriber opens sessions faster than limits.session_rate_per_subscriber allows.";
        SubscriberBlockQuota, "sub_block_quota", "The subscriber's port blocks are full, and it has as many as its pool allows.";
        BlockNone, "block_none", "No free port block on the addresses that this subscriber may use.";
        HoldDownAll, "holddown_all", "Nothing is free: ports or blocks given back lately are held down (RFC 6888 REQ-8).";
        // ICMP
        IcmpUnknownType, "icmp_unknown_type", "An ICMP type or code that has no translation (RFC 7915 4.2, 5.2).";
        IcmpSingleHop, "icmp_single_hop", "An ICMP message for one link only: MLD, IGMP, neighbour discovery.";
        IcmpDoubleError, "icmp_double_error", "An ICMP error about an ICMP error.";
        IcmpInnerShort, "icmp_inner_short", "The packet inside an ICMP error is too short to be understood.";
        IcmpInnerUntranslatable, "icmp_inner_untranslatable", "The packet inside an ICMP error has no translation.";
        IcmpPointerUntranslatable, "icmp_ptr_untranslatable", "A Parameter Problem that points at a field without counterpart.";
        IcmpErrorNoState, "icmp_err_no_state", "An ICMP error about a packet of no known session.";
        IcmpExtensionBad, "icmp_ext_bad", "The length field of an ICMP extension (RFC 4884) is wrong.";
        // Size and route
        TtlExceeded, "ttl", "The TTL or Hop Limit ended here; the answer is Time Exceeded, within icmp.rate.";
        TooBig6, "too_big6", "An IPv6 packet does not fit the IPv4 side's MTU; the answer is Packet Too Big, within icmp.rate.";
        TooBig4, "too_big4", "An IPv4 packet with DF does not fit the IPv6 side's MTU; the answer is Fragmentation Needed, within icmp.rate.";
        Unfragmentable, "mtu_unfragmentable", "Too large, and it cannot be cut: a segmented datagram or a fragment with offloads.";
        ZeroUdpChecksum, "udp_zero_csum", "A UDP packet without checksum (udp_zero_checksum = drop); the answer is ICMPv4 3/13, within icmp.rate.";
        UnsupportedProtocol, "unsupported_proto", "A transport protocol that this instance does not translate.";
        NoHeadroom, "no_headroom", "The buffer has no room for the larger header: a backend's defect.";
        // Output
        EmitFull, "emit_full", "No buffer for another packet made by the engine.";
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
            // An answer may be refused by its rate: what was sent is counted apart.
            assert!(!r.name().contains("sent") && !r.help().contains("was sent"), "{}", r.name());
            assert!(!r.help().contains("answered with"), "{}", r.name());
            assert!(r.help().ends_with('.') || r.help().contains("; see"), "{}: {}", r.name(), r.help());
        }
    }
}
