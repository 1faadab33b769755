// SPDX-License-Identifier: Apache-2.0 OR MIT
// Tables of sessions and mappings: addresses, ports and the change of the transport checksum by a packet's
// translation.

control Lookup(inout headers_t h, inout metadata_t m) {
    // Packets that the controller wants to have, whatever other tables say.
    action controller() {
        m.reason = REASON_REQUESTED;
        m.sum = 0;
        m.sum4 = 0;
    }
    action miss() {
        m.reason = REASON_NO_ENTRY;
        m.sum = 0;
        m.sum4 = 0;
    }
    // NAT64, from inside. `pending`: generation of a new session, another one than that of the place's session before.
    action to_ipv4(bit<32> src, bit<32> dst, bit<16> sport, bit<16> dport, bit<16> delta, bit<16> max_len,
                   bit<16> ident, bit<8> tos_keep, bit<8> tos_set, bit<8> pending, bit<16> next_hop,
                   bit<32> counter_index) {
        m.kind = TO_IPV4;
        m.src4 = src;
        m.dst4 = dst;
        m.new_sport = sport;
        m.new_dport = dport;
        m.delta = delta;
        m.max_len = max_len;
        m.max_len_df = max_len;
        m.ident = (bit<32>)ident;
        m.tos_keep = tos_keep;
        m.tos_set = tos_set;
        m.pending = pending;
        m.next_hop = next_hop;
        m.counter_index = counter_index;
        m.stop_flags = TCP_FIN_SYN_RST;
    }
    // NAT64, to the inside.
    action to_ipv6(bit<64> src_hi, bit<64> src_lo, bit<64> dst_hi, bit<64> dst_lo, bit<16> sport, bit<16> dport,
                   bit<16> delta, bit<16> max_len, bit<16> max_len_df, bit<8> tos_keep, bit<8> tos_set,
                   bit<8> pending, bit<16> next_hop, bit<32> counter_index) {
        m.kind = TO_IPV6;
        m.src_hi = src_hi;
        m.src_lo = src_lo;
        m.dst_hi = dst_hi;
        m.dst_lo = dst_lo;
        m.new_sport = sport;
        m.new_dport = dport;
        m.delta = delta;
        m.max_len = max_len;
        m.max_len_df = max_len_df;
        m.tos_keep = tos_keep;
        m.tos_set = tos_set;
        m.pending = pending;
        m.next_hop = next_hop;
        m.counter_index = counter_index;
        m.stop_flags = TCP_FIN_SYN_RST;
    }
    // NAT44, both directions. From inside, packets without DF get an identification.
    action nat44(bit<32> src, bit<32> dst, bit<16> sport, bit<16> dport, bit<16> delta, bit<16> max_len,
                 bit<16> ident, bit<8> pending, bit<16> next_hop, bit<32> counter_index) {
        m.kind = TO_NAT44;
        m.src4 = src;
        m.dst4 = dst;
        m.new_sport = sport;
        m.new_dport = dport;
        m.delta = delta;
        m.max_len = max_len;
        m.max_len_df = max_len;
        m.ident = (bit<32>)ident;
        m.pending = pending;
        m.next_hop = next_hop;
        m.counter_index = counter_index;
        m.stop_flags = TCP_FIN_SYN_RST;
    }

    table flows6 {
        key = {
            m.src_hi: exact @name("src_hi");
            m.src_lo: exact @name("src_lo");
            m.dst_hi: exact @name("dst_hi");
            m.dst_lo: exact @name("dst_lo");
            m.sport: exact @name("sport");
            m.dport: exact @name("dport");
            m.proto: exact @name("proto");
        }
        actions = { to_ipv4; controller; @defaultonly miss; }
        default_action = miss();
        size = FLOWS6;
    }
    table flows4 {
        key = {
            m.src4: exact @name("src");
            m.dst4: exact @name("dst");
            m.sport: exact @name("sport");
            m.dport: exact @name("dport");
            m.proto: exact @name("proto");
        }
        actions = { to_ipv6; nat44; controller; @defaultonly miss; }
        default_action = miss();
        size = FLOWS4;
    }

    // SIIT, from IPv6. The priority of an entry is its prefix length. An IPv4 address is
    //   base | ((hi << left) >> right) & mask_hi | (lo >> shift) & mask_lo.
    // This covers mappings (RFC 7757), whose suffix may begin in one half and end in the other, and all prefixes of
    // RFC 6052, whose byte of zeroes divides the address.
    action dst_by6(bit<32> base, bit<8> left, bit<8> right, bit<64> mask_hi, bit<8> shift, bit<64> mask_lo,
                   bit<16> max_len, bit<16> max_len_df, bit<8> tos_keep, bit<8> tos_set, bit<32> counter_index,
                   bit<16> instance) {
        m.kind = TO_IPV4;
        m.value = h.ipv6.dst_hi << left;
        m.value = m.value >> right;
        m.value = m.value & mask_hi;
        m.sum = h.ipv6.dst_lo >> shift;
        m.sum = m.sum & mask_lo;
        m.value = m.value | m.sum;
        m.value = m.value | (bit<64>)base;
        m.dst4 = (bit<32>)m.value;
        m.max_len = max_len;
        m.max_len_df = max_len_df;
        m.tos_keep = tos_keep;
        m.tos_set = tos_set;
        m.counter_index = counter_index;
        m.dst_instance = instance;
        m.stop_flags = TCP_SYN;
        m.pending = 0;
        m.next_hop = 0;
    }
    action src_by6(bit<32> base, bit<8> left, bit<8> right, bit<64> mask_hi, bit<8> shift, bit<64> mask_lo,
                   bit<16> instance) {
        m.value = h.ipv6.src_hi << left;
        m.value = m.value >> right;
        m.value = m.value & mask_hi;
        m.sum = h.ipv6.src_lo >> shift;
        m.sum = m.sum & mask_lo;
        m.value = m.value | m.sum;
        m.value = m.value | (bit<64>)base;
        m.src4 = (bit<32>)m.value;
        m.instance = instance;
        m.sum = 0;
        m.sum4 = 0;
    }
    // SIIT, from IPv4. An IPv6 address is
    //   hi = base_hi | ((v4 & mask_hi) << left) >> right,  lo = base_lo | (v4 & mask_lo) << shift.
    action dst_by4(bit<64> base_hi, bit<64> mask_hi, bit<8> left, bit<8> right, bit<64> base_lo, bit<64> mask_lo,
                   bit<8> shift, bit<16> max_len, bit<16> max_len_df, bit<8> tos_keep, bit<8> tos_set,
                   bit<32> counter_index, bit<16> instance) {
        m.kind = TO_IPV6;
        m.value = (bit<64>)h.ipv4.dst & mask_hi;
        m.value = m.value << left;
        m.value = m.value >> right;
        m.dst_hi = m.value | base_hi;
        m.value = (bit<64>)h.ipv4.dst & mask_lo;
        m.value = m.value << shift;
        m.dst_lo = m.value | base_lo;
        m.max_len = max_len;
        m.max_len_df = max_len_df;
        m.tos_keep = tos_keep;
        m.tos_set = tos_set;
        m.counter_index = counter_index;
        m.dst_instance = instance;
        m.stop_flags = TCP_SYN;
        m.pending = 0;
        m.next_hop = 0;
    }
    action src_by4(bit<64> base_hi, bit<64> mask_hi, bit<8> left, bit<8> right, bit<64> base_lo, bit<64> mask_lo,
                   bit<8> shift, bit<16> instance) {
        m.value = (bit<64>)h.ipv4.src & mask_hi;
        m.value = m.value << left;
        m.value = m.value >> right;
        m.src_hi = m.value | base_hi;
        m.value = (bit<64>)h.ipv4.src & mask_lo;
        m.value = m.value << shift;
        m.src_lo = m.value | base_lo;
        m.instance = instance;
        m.sum = 0;
        m.sum4 = 0;
    }

    table mapped_dst6 {
        key = {
            h.ipv6.dst_hi: ternary @name("dst_hi");
            h.ipv6.dst_lo: ternary @name("dst_lo");
        }
        actions = { dst_by6; controller; @defaultonly miss; }
        default_action = miss();
        size = MAPPINGS;
    }
    table mapped_src6 {
        key = {
            h.ipv6.src_hi: ternary @name("src_hi");
            h.ipv6.src_lo: ternary @name("src_lo");
        }
        actions = { src_by6; controller; @defaultonly miss; }
        default_action = miss();
        size = MAPPINGS;
    }
    table mapped_dst4 {
        key = {
            h.ipv4.dst: ternary @name("dst");
        }
        actions = { dst_by4; controller; @defaultonly miss; }
        default_action = miss();
        size = MAPPINGS;
    }
    table mapped_src4 {
        key = {
            h.ipv4.src: ternary @name("src");
        }
        actions = { src_by4; controller; @defaultonly miss; }
        default_action = miss();
        size = MAPPINGS;
    }

    apply {
        m.reason = REASON_NONE;
        if (h.ipv6.isValid()) {
            flows6.apply();
            if (m.reason == REASON_NO_ENTRY) {
                m.reason = REASON_NONE;
                mapped_dst6.apply();
                if (m.reason == REASON_NONE) {
                    mapped_src6.apply();
                }
                // A mapping changes no port. The addresses choose the counter of identifications.
                ADD32(m.sum4, m.src4);
                ADD32(m.sum4, m.dst4);
                FOLD(m.sum4);
                m.ident = (bit<32>)m.sum4 & (IDENTS - 1);
                ADD64(m.sum, h.ipv6.src_hi);
                ADD64(m.sum, h.ipv6.src_lo);
                ADD64(m.sum, h.ipv6.dst_hi);
                ADD64(m.sum, h.ipv6.dst_lo);
                // ICMP has no pseudo-header.
                if (m.proto == PROTO_ICMPV6) {
                    m.sum4 = 0;
                    m.sum = m.sum + 58;
                }
                FOLD(m.sum);
                m.sum = (m.sum ^ 0xffff) + m.sum4;
                FOLD_STEP(m.sum);
                m.delta = (bit<16>)m.sum;
                m.new_sport = m.sport;
                m.new_dport = m.dport;
                if (m.reason == REASON_NONE) {
                    if (m.instance != m.dst_instance) {
                        m.reason = REASON_NO_ENTRY;
                    }
                }
            }
        } else {
            flows4.apply();
            if (m.reason == REASON_NO_ENTRY) {
                m.reason = REASON_NONE;
                mapped_dst4.apply();
                if (m.reason == REASON_NONE) {
                    mapped_src4.apply();
                }
                ADD64(m.sum, m.src_hi);
                ADD64(m.sum, m.src_lo);
                ADD64(m.sum, m.dst_hi);
                ADD64(m.sum, m.dst_lo);
                if (m.proto == PROTO_ICMP) {
                    m.sum = m.sum + 58;
                } else {
                    ADD32(m.sum4, h.ipv4.src);
                    ADD32(m.sum4, h.ipv4.dst);
                    FOLD(m.sum4);
                    m.sum4 = m.sum4 ^ 0xffff;
                    m.sum = m.sum + m.sum4;
                }
                FOLD(m.sum);
                m.delta = (bit<16>)m.sum;
                m.new_sport = m.sport;
                m.new_dport = m.dport;
                if (m.reason == REASON_NONE) {
                    if (m.instance != m.dst_instance) {
                        m.reason = REASON_NO_ENTRY;
                    }
                }
            }
        }
    }
}
