// SPDX-License-Identifier: Apache-2.0 OR MIT
// Host functions on an Ethernet: answers to ARP requests, neighbour solicitations and echo requests for own
// addresses. An answer leaves by the port of the request, with its VLAN tag.

control Host(inout headers_t h, inout metadata_t m) {
    action own() {
        m.sum = 0;
        m.sum4 = 0;
    }
    action not_own() {
        m.sum = 0;
        m.sum4 = 0;
    }

    table own4 {
        key = {
            m.interface4: exact @name("interface");
            m.dst4: exact @name("address");
        }
        actions = { own; @defaultonly not_own; }
        default_action = not_own();
        size = OWN_ADDRESSES;
    }
    table own6 {
        key = {
            m.interface: exact @name("interface");
            m.dst_hi: exact @name("address_hi");
            m.dst_lo: exact @name("address_lo");
        }
        actions = { own; @defaultonly not_own; }
        default_action = not_own();
        size = OWN_ADDRESSES;
    }

    action back() {
        m.out_port = m.in_port;
        m.reason = REASON_NONE;
    }
    action answer_arp() {
        h.arp.head = ARP_REPLY;
        h.arp.target_mac = h.arp.sender_mac;
        h.ethernet.dst = h.arp.sender_mac;
        h.arp.target = h.arp.sender;
        h.arp.sender = m.dst4;
        h.arp.sender_mac = m.mac;
        h.ethernet.src = m.mac;
        back();
    }
    // RFC 4861 7.2.4.
    action answer_solicitation() {
        h.ethernet.dst = h.neighbour.option_mac;
        h.ethernet.src = m.mac;
        h.ipv6.dst_hi = h.ipv6.src_hi;
        h.ipv6.dst_lo = h.ipv6.src_lo;
        h.ipv6.src_hi = m.dst_hi;
        h.ipv6.src_lo = m.dst_lo;
        h.ipv6.version_class = VERSION6;
        h.ipv6.class_flow = 0;
        h.ipv6.flow = 0;
        h.icmp.type = ICMPV6_NEIGHBOUR_ADVERTISEMENT;
        h.icmp.id = 0xe000; // router, solicited, override
        h.icmp.sequence = 0;
        h.neighbour.option = OPTION_TARGET;
        h.neighbour.option_mac = m.mac;
        ADD64(m.sum, h.ipv6.dst_hi);
        ADD64(m.sum, h.ipv6.dst_lo);
        // The target is the source, too.
        ADD64(m.sum, m.dst_hi);
        ADD64(m.sum, m.dst_lo);
        ADD64(m.sum, m.dst_hi);
        ADD64(m.sum, m.dst_lo);
        ADD64(m.sum, (bit<64>)m.mac);
        m.sum = m.sum + (32 + 58 + (136 << 8) + 0x0201 + 0xe000);
        FOLD(m.sum);
        m.sum = m.sum ^ 0xffff;
        h.icmp.checksum = (bit<16>)m.sum;
        back();
    }
    action answer_ethernet() {
        h.ethernet.dst = h.ethernet.src;
        h.ethernet.src = m.mac;
        back();
    }
    // The checksum changes by difference. Swapping the addresses does not change their sum.
    action answer_echo6() {
        answer_ethernet();
        h.ipv6.dst_hi = h.ipv6.src_hi;
        h.ipv6.dst_lo = h.ipv6.src_lo;
        h.ipv6.src_hi = m.dst_hi;
        h.ipv6.src_lo = m.dst_lo;
        h.ipv6.hop_limit = HOST_TTL;
        h.icmp.type = ICMPV6_ECHO_REPLY;
        m.sum = m.sum + (bit<64>)m.checksum;
        m.sum = m.sum + (0xffff - (128 << 8) + (129 << 8));
        FOLD(m.sum);
        m.sum = m.sum ^ 0xffff;
        h.icmp.checksum = (bit<16>)m.sum;
    }
    action answer_echo4() {
        answer_ethernet();
        h.ipv4.dst = h.ipv4.src;
        h.ipv4.src = m.dst4;
        h.ipv4.ttl = HOST_TTL;
        m.sum4 = m.sum4 + ((bit<64>)h.ipv4.checksum ^ 0xffff);
        m.sum4 = m.sum4 + (64 << 8);
        m.sum4 = m.sum4 + (((bit<64>)m.ttl << 8) ^ 0xffff);
        FOLD(m.sum4);
        m.sum4 = m.sum4 ^ 0xffff;
        h.ipv4.checksum = (bit<16>)m.sum4;
        h.icmp.type = ICMP_ECHO_REPLY;
        m.sum = m.sum + (bit<64>)m.checksum;
        m.sum = m.sum + (0xffff - (8 << 8));
        FOLD(m.sum);
        m.sum = m.sum ^ 0xffff;
        h.icmp.checksum = (bit<16>)m.sum;
    }

    apply {
        if (m.ask < ASK_SOLICITATION) {
            if (own4.apply().hit) {
                if (m.ask == ASK_ARP) {
                    answer_arp();
                } else if (h.ipv4.src == m.dst4) {
                    m.reason = REASON_MALFORMED;
                } else {
                    answer_echo4();
                }
            }
        } else if (own6.apply().hit) {
            if (m.ask == ASK_SOLICITATION) {
                answer_solicitation();
            } else {
                if (h.ipv6.src_hi == m.dst_hi) {
                    if (h.ipv6.src_lo == m.dst_lo) {
                        m.reason = REASON_MALFORMED;
                    }
                }
                if (m.reason == REASON_NO_ENTRY) {
                    answer_echo6();
                }
            }
        }
    }
}
