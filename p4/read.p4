// SPDX-License-Identifier: Apache-2.0 OR MIT
// Reads a packet. `reason` stays REASON_NO_ENTRY for a packet that a table may translate, and `ask` becomes the
// request that the packet may be. Any other reason is final unless the packet is such a request.
//
// Conditions are single comparisons, without `!`, `&&` and `||`: p4c-dpdk makes wrong jumps of some that are not.

control Read6(inout headers_t h, inout metadata_t m) {
    apply {
        m.l4_len = h.ipv6.payload_len;
        m.ip_len = (bit<32>)h.ipv6.payload_len + 40;
        m.ttl = h.ipv6.hop_limit;
        m.tos = h.ipv6.version_class << 4;
        m.tos = m.tos | (h.ipv6.class_flow >> 4);
        m.proto = h.ipv6.next_header;
        m.src_hi = h.ipv6.src_hi;
        m.src_lo = h.ipv6.src_lo;
        m.dst_hi = h.ipv6.dst_hi;
        m.dst_lo = h.ipv6.dst_lo;
        if ((h.ipv6.version_class & 0xf0) != VERSION6) {
            m.reason = REASON_MALFORMED;
        } else if (h.tcp.isValid()) {
            m.sport = h.tcp.sport;
            m.dport = h.tcp.dport;
            m.flags = h.tcp.flags;
            m.checksum = h.tcp.checksum ^ 0xffff;
            if (m.l4_len < 20) {
                m.reason = REASON_MALFORMED;
            }
        } else if (h.udp.isValid()) {
            m.flags = 0;
            m.sport = h.udp.sport;
            m.dport = h.udp.dport;
            m.checksum = h.udp.checksum ^ 0xffff;
            if (m.l4_len < 8) {
                m.reason = REASON_MALFORMED;
            }
        } else if (h.icmp.isValid()) {
            m.flags = 0;
            m.checksum = h.icmp.checksum ^ 0xffff;
            if (m.l4_len < 8) {
                m.reason = REASON_MALFORMED;
            } else if (h.icmp.code != 0) {
                m.reason = REASON_ICMP;
            } else if (h.icmp.type == ICMPV6_ECHO_REQUEST) {
                m.sport = h.icmp.id;
                m.dport = 0;
                m.ask = ASK_ECHO6;
            } else if (h.icmp.type == ICMPV6_ECHO_REPLY) {
                m.sport = 0;
                m.dport = h.icmp.id;
            } else {
                m.reason = REASON_ICMP;
            }
        } else if (m.proto == PROTO_HOP_BY_HOP) {
            m.reason = REASON_EXTENSION_HEADER;
        } else if (m.proto == PROTO_ROUTING) {
            m.reason = REASON_EXTENSION_HEADER;
        } else if (m.proto == PROTO_DEST_OPTIONS) {
            m.reason = REASON_EXTENSION_HEADER;
        } else if (m.proto == PROTO_FRAGMENT) {
            m.reason = REASON_FRAGMENT;
        } else {
            m.reason = REASON_PROTOCOL;
        }
        if (m.ask == ASK_ECHO6) {
            // No unspecified, loopback, mapped or multicast address begins otherwise.
            if ((h.ipv6.src_hi >> 56) == 0) {
                m.ask = ASK_NOTHING;
            }
            if ((h.ipv6.src_hi >> 56) == 0xff) {
                m.ask = ASK_NOTHING;
            }
        }
    }
}

// A neighbour solicitation with a source link-layer address, and nothing else. The whole message is in the headers,
// so its checksum is verified.
control ReadSolicitation(inout headers_t h, inout metadata_t m) {
    apply {
        m.reason = REASON_NEIGHBOUR_DISCOVERY;
        m.ask = ASK_SOLICITATION;
        m.dst_hi = h.neighbour.target_hi;
        m.dst_lo = h.neighbour.target_lo;
        ADD64(m.sum, h.ipv6.src_hi);
        ADD64(m.sum, h.ipv6.src_lo);
        ADD64(m.sum, h.ipv6.dst_hi);
        ADD64(m.sum, h.ipv6.dst_lo);
        ADD64(m.sum, h.neighbour.target_hi);
        ADD64(m.sum, h.neighbour.target_lo);
        ADD64(m.sum, (bit<64>)h.neighbour.option_mac);
        ADD32(m.sum, h.icmp.id);
        ADD32(m.sum, h.icmp.sequence);
        ADD32(m.sum, h.icmp.checksum);
        m.sum = m.sum + (32 + 58 + (135 << 8) + 0x0101);
        FOLD(m.sum);
        if (m.sum != 0xffff) {
            m.ask = ASK_NOTHING;
        }
        if ((h.ipv6.version_class & 0xf0) != VERSION6) {
            m.ask = ASK_NOTHING;
        }
        if (h.ipv6.hop_limit != 255) {
            m.ask = ASK_NOTHING;
        }
        if (h.icmp.code != 0) {
            m.ask = ASK_NOTHING;
        }
        if (h.neighbour.option != OPTION_SOURCE) {
            m.ask = ASK_NOTHING;
        }
        if (h.neighbour.option_len != 1) {
            m.ask = ASK_NOTHING;
        }
        if ((h.neighbour.option_mac & GROUP_MAC) != 0) {
            m.ask = ASK_NOTHING;
        }
        if (h.neighbour.option_mac == 0) {
            m.ask = ASK_NOTHING;
        }
        if ((h.ipv6.src_hi >> 56) == 0) {
            m.ask = ASK_NOTHING;
        }
        if ((h.ipv6.src_hi >> 56) == 0xff) {
            m.ask = ASK_NOTHING;
        }
        // Another host with our address is the controller's.
        if (h.ipv6.src_hi == h.neighbour.target_hi) {
            if (h.ipv6.src_lo == h.neighbour.target_lo) {
                m.ask = ASK_NOTHING;
            }
        }
    }
}

control Read4(inout headers_t h, inout metadata_t m) {
    HEADER_CHECKSUM(header_check)

    apply {
        m.l4_len = h.ipv4.total_len - 20;
        m.ip_len = (bit<32>)h.ipv4.total_len;
        m.ttl = h.ipv4.ttl;
        m.tos = h.ipv4.tos;
        m.proto = h.ipv4.proto;
        m.src4 = h.ipv4.src;
        m.dst4 = h.ipv4.dst;
        HEADER_SUM(header_check, m.header_sum);
        if ((h.ipv4.version_ihl & 0xf0) != 0x40) {
            m.reason = REASON_MALFORMED;
        } else if (h.ipv4.total_len < 20) {
            m.reason = REASON_MALFORMED;
        } else if (h.ipv4.version_ihl != 0x45) {
            m.reason = REASON_OPTIONS;
        } else if (m.header_sum != HEADER_SUM_RIGHT) {
            m.reason = REASON_MALFORMED;
        } else if ((h.ipv4.fragment & IP_FRAGMENT) != 0) {
            m.reason = REASON_FRAGMENT;
        } else if (h.tcp.isValid()) {
            m.sport = h.tcp.sport;
            m.dport = h.tcp.dport;
            m.flags = h.tcp.flags;
            m.checksum = h.tcp.checksum ^ 0xffff;
            if (m.l4_len < 20) {
                m.reason = REASON_MALFORMED;
            }
        } else if (h.udp.isValid()) {
            m.flags = 0;
            m.sport = h.udp.sport;
            m.dport = h.udp.dport;
            m.checksum = h.udp.checksum ^ 0xffff;
            if (m.l4_len < 8) {
                m.reason = REASON_MALFORMED;
            }
        } else if (h.icmp.isValid()) {
            m.flags = 0;
            m.checksum = h.icmp.checksum ^ 0xffff;
            if (m.l4_len < 8) {
                m.reason = REASON_MALFORMED;
            } else if (h.icmp.code != 0) {
                m.reason = REASON_ICMP;
            } else if (h.icmp.type == ICMP_ECHO_REQUEST) {
                m.sport = h.icmp.id;
                m.dport = 0;
                m.ask = ASK_ECHO4;
            } else if (h.icmp.type == ICMP_ECHO_REPLY) {
                m.sport = 0;
                m.dport = h.icmp.id;
            } else {
                m.reason = REASON_ICMP;
            }
        } else {
            m.reason = REASON_PROTOCOL;
        }
        if (m.ask == ASK_ECHO4) {
            if ((h.ipv4.src >> 24) == 0) {
                m.ask = ASK_NOTHING;
            }
            if ((h.ipv4.src >> 24) == 127) {
                m.ask = ASK_NOTHING;
            }
            if ((h.ipv4.src >> 24) > 223) {
                m.ask = ASK_NOTHING;
            }
        }
    }
}

// An ARP request. Probes and announcements are the controller's, as is a sender that is no host.
control ReadArp(inout headers_t h, inout metadata_t m) {
    apply {
        m.reason = REASON_ARP;
        if (h.arp.head == ARP_REQUEST) {
            m.ask = ASK_ARP;
            m.dst4 = h.arp.target;
        }
        if (h.arp.sender == h.arp.target) {
            m.ask = ASK_NOTHING;
        }
        if ((h.arp.sender >> 24) == 0) {
            m.ask = ASK_NOTHING;
        }
        if ((h.arp.sender >> 24) == 127) {
            m.ask = ASK_NOTHING;
        }
        if ((h.arp.sender >> 24) > 223) {
            m.ask = ASK_NOTHING;
        }
        if ((h.arp.sender_mac & GROUP_MAC) != 0) {
            m.ask = ASK_NOTHING;
        }
        if (h.arp.sender_mac == 0) {
            m.ask = ASK_NOTHING;
        }
        if (h.arp.sender_mac == m.mac) {
            m.ask = ASK_NOTHING;
        }
    }
}
