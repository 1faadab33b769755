// SPDX-License-Identifier: Apache-2.0 OR MIT
// Checks that depend on the single packet, next hop, and the translated packet (RFC 7915 4 and 5, RFC 3022 4).

control Check(inout headers_t h, inout metadata_t m) {
    apply {
        // DF: received, or to be set (RFC 7915 5.1).
        m.new_len = (bit<32>)m.l4_len + 20;
        if (m.kind == TO_IPV4) {
            if (m.l4_len > DF_CLEAR_MAX) {
                m.max_len = m.max_len_df;
            }
        } else {
            if ((h.ipv4.fragment & IP_DF) != 0) {
                m.max_len = m.max_len_df;
            }
            if (m.kind == TO_IPV6) {
                m.new_len = (bit<32>)m.l4_len + 40;
                if (m.proto == PROTO_UDP) {
                    if (m.checksum == NO_CHECKSUM) {
                        m.reason = REASON_NO_CHECKSUM;
                    }
                }
            }
        }
        if (m.new_len > (bit<32>)m.max_len) {
            m.reason = REASON_TOO_LARGE;
        }
        if ((m.flags & m.stop_flags) != 0) {
            m.reason = REASON_TCP_FLAGS;
        }
        if (m.ttl < 2) {
            m.reason = REASON_HOP_LIMIT;
        }
    }
}

// The transport checksum, by difference.
control Sum(inout headers_t h, inout metadata_t m) {
    apply {
        ADD16(m.delta, m.checksum);
        if (h.icmp.isValid()) {
            m.new_sport = m.new_sport | m.new_dport;
            if (m.kind == TO_IPV4) {
                m.header_sum = m.l4_len ^ 0xffff;
                ADD16(m.delta, m.header_sum);
                if (h.icmp.type == ICMPV6_ECHO_REQUEST) {
                    ADD16(m.delta, 0xffff - (128 << 8) + (8 << 8));
                } else {
                    ADD16(m.delta, 0xffff - (129 << 8));
                }
            } else if (m.kind == TO_IPV6) {
                ADD16(m.delta, m.l4_len);
                if (h.icmp.type == ICMP_ECHO_REQUEST) {
                    ADD16(m.delta, (128 << 8) - (8 << 8));
                } else {
                    ADD16(m.delta, 129 << 8);
                }
            }
            // A reply of zeroes alone has the checksum 0xffff. The payload is not known here.
            if (m.delta == 0xffff) {
                if (m.new_sport == 0) {
                    if (h.icmp.sequence == 0) {
                        m.reason = REASON_ICMP;
                    }
                }
            }
        }
        m.delta = m.delta ^ 0xffff;
        if (m.proto == PROTO_UDP) {
            if (m.delta == 0) {
                m.delta = 0xffff;
            }
            // Without a checksum, none is made (RFC 768).
            if (m.checksum == NO_CHECKSUM) {
                m.delta = 0;
            }
        }
    }
}

control Way(inout headers_t h, inout metadata_t m) {
    action route(bit<16> next_hop) {
        m.next_hop = next_hop;
    }
    action no_route() {
        m.reason = REASON_NO_NEXT_HOP;
    }
    table routes4 {
        key = {
            m.dst4: ternary @name("dst");
        }
        actions = { route; @defaultonly no_route; }
        default_action = no_route();
        size = ROUTES;
    }
    table routes6 {
        key = {
            m.dst_hi: ternary @name("dst_hi");
            m.dst_lo: ternary @name("dst_lo");
        }
        actions = { route; @defaultonly no_route; }
        default_action = no_route();
        size = ROUTES;
    }
    // `vid` 0: without a tag. `mac` is the next hop's, `own_mac` that of our interface there.
    action next_hop(bit<32> port, bit<16> vid, bit<48> mac, bit<48> own_mac) {
        m.out_port = port;
        m.new_vid = vid;
        m.next_mac = mac;
        m.next_own_mac = own_mac;
    }
    table next_hops {
        key = {
            m.next_hop: exact @name("next_hop");
        }
        actions = { next_hop; @defaultonly no_route; }
        default_action = no_route();
        size = NEXT_HOPS;
    }

    apply {
        // An entry may name the next hop.
        if (m.next_hop == 0) {
            if (m.kind == TO_IPV6) {
                routes6.apply();
            } else {
                routes4.apply();
            }
        }
        if (m.reason == REASON_NONE) {
            next_hops.apply();
        }
    }
}

control Write(inout headers_t h, inout metadata_t m) {
    LENGTH_COUNTER(entry_packets, COUNTERS)
    REGISTER(16, identifications, IDENTS)
    HEADER_CHECKSUM(header_sum)

    apply {
        LENGTH_COUNT(entry_packets, m.counter_index, m.ip_len);
        h.ethernet.dst = m.next_mac;
        h.ethernet.src = m.next_own_mac;
        if (m.kind == TO_IPV6) {
            h.ipv6.setValid();
            m.tos = m.tos & m.tos_keep;
            m.tos = m.tos | m.tos_set;
            h.ipv6.version_class = (m.tos >> 4) | VERSION6;
            h.ipv6.class_flow = m.tos << 4;
            h.ipv6.flow = 0;
            h.ipv6.payload_len = m.l4_len;
            h.ipv6.next_header = m.proto;
            h.ipv6.hop_limit = m.ttl - 1;
            h.ipv6.src_hi = m.src_hi;
            h.ipv6.src_lo = m.src_lo;
            h.ipv6.dst_hi = m.dst_hi;
            h.ipv6.dst_lo = m.dst_lo;
            h.ipv4.setInvalid();
            h.ethernet.type = TYPE_IPV6;
            if (h.icmp.isValid()) {
                h.ipv6.next_header = PROTO_ICMPV6;
                if (h.icmp.type == ICMP_ECHO_REQUEST) {
                    h.icmp.type = ICMPV6_ECHO_REQUEST;
                } else {
                    h.icmp.type = ICMPV6_ECHO_REPLY;
                }
            }
        } else {
            if (m.kind == TO_IPV4) {
                h.ipv4.setValid();
                h.ipv4.version_ihl = 0x45;
                m.tos = m.tos & m.tos_keep;
                m.tos = m.tos | m.tos_set;
                h.ipv4.tos = m.tos;
                h.ipv4.total_len = m.l4_len + 20;
                h.ipv4.proto = m.proto;
                h.ipv4.fragment = 0;
                if (m.l4_len > DF_CLEAR_MAX) {
                    h.ipv4.fragment = IP_DF;
                }
                h.ipv6.setInvalid();
                if (h.icmp.isValid()) {
                    h.ipv4.proto = PROTO_ICMP;
                    if (h.icmp.type == ICMPV6_ECHO_REQUEST) {
                        h.icmp.type = ICMP_ECHO_REQUEST;
                    } else {
                        h.icmp.type = ICMP_ECHO_REPLY;
                    }
                }
            } else if ((h.ipv4.fragment & IP_DF) != 0) {
                m.ident = NO_IDENT; // its identification has no meaning: RFC 6864 4.1
            }
            if (m.ident != NO_IDENT) {
                READ(identifications, m.new_id, m.ident);
                // Before the write: p4c-dpdk reads the register anew for each use of the value.
                h.ipv4.id = m.new_id + m.ident_first;
                identifications.write(m.ident, m.new_id + m.ident_step);
            }
            h.ethernet.type = TYPE_IPV4;
            h.ipv4.ttl = m.ttl - 1;
            h.ipv4.src = m.src4;
            h.ipv4.dst = m.dst4;
            h.ipv4.checksum = 0;
            HEADER_SUM(header_sum, h.ipv4.checksum);
            if (h.ipv4.checksum == 0xffff) {
                h.ipv4.checksum = 0;
            }
        }
        if (h.tcp.isValid()) {
            h.tcp.sport = m.new_sport;
            h.tcp.dport = m.new_dport;
            h.tcp.checksum = m.delta;
        } else if (h.udp.isValid()) {
            h.udp.sport = m.new_sport;
            h.udp.dport = m.new_dport;
            h.udp.checksum = m.delta;
        } else {
            h.icmp.id = m.new_sport;
            h.icmp.checksum = m.delta;
        }
        if (m.new_vid == 0) {
            h.vlan.setInvalid();
        } else {
            h.vlan.setValid();
            h.vlan.tci = m.new_vid;
            h.vlan.type = h.ethernet.type;
            h.ethernet.type = TYPE_VLAN;
        }
    }
}
