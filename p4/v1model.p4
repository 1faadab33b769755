// SPDX-License-Identifier: Apache-2.0 OR MIT
// The program for v1model (BMv2: simple_switch).
#include <core.p4>
#include <v1model.p4>

#define CPU_PORT 510
#define PORT_MAX 510 // 511 is the port that drops
#define COUNTER(name, size) counter(size, CounterType.packets) name;
#define COUNT(name, index) name.count(index)
#define LENGTH_COUNTER(name, size) counter(size, CounterType.packets_and_bytes) name;
#define LENGTH_COUNT(name, index, len) name.count(index) // the target counts whole frames
#define REGISTER(bits, name, size) register<bit<bits>>(size) name;
#define READ(name, value, index) name.read(value, index)
#define METER(name, size) meter(size, MeterType.packets) name;
#define METER_READ(name, index, color) name.execute_meter(index, color)
#define COLOR bit<2>
#define RED 2
#define HEADER_CHECKSUM(name)
#define HEADER_SUM(name, to) \
    hash(to, HashAlgorithm.csum16, 16w0, \
         {h.ipv4.version_ihl, h.ipv4.tos, h.ipv4.total_len, h.ipv4.id, h.ipv4.fragment, h.ipv4.ttl, h.ipv4.proto, \
          h.ipv4.checksum, h.ipv4.src, h.ipv4.dst}, 32w65536)
#define HEADER_SUM_RIGHT 0

#include "headers.p4"
#include "gatun.p4"

parser Parse(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    state start {
        transition select(standard.ingress_port) {
            CPU_PORT: controller;
            default: ethernet;
        }
    }
#include "states.p4"
}

// The header checksum of IPv4 is verified by the program, because a wrong one is a reason.
control Verify(inout headers_t h, inout metadata_t m) {
    apply { }
}

control Main(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    Gatun() gatun;
    apply {
        m.in_port = (bit<32>)standard.ingress_port;
        m.reason = REASON_NONE;
        m.new_len = 14;
        if (h.vlan.isValid()) {
            m.new_len = 18;
        }
        if (standard.parser_error != error.NoError) {
            m.reason = REASON_TRUNCATED;
        } else if (h.ipv4.isValid()) {
            if (standard.packet_length < m.new_len + (bit<32>)h.ipv4.total_len) {
                m.reason = REASON_TRUNCATED;
            }
        } else if (h.ipv6.isValid()) {
            if (standard.packet_length < m.new_len + 40 + (bit<32>)h.ipv6.payload_len) {
                m.reason = REASON_TRUNCATED;
            }
        }
        gatun.apply(h, m);
        if (m.reason == REASON_NONE) {
            if (m.kind != TO_NOTHING) {
                // Cuts off padding.
                m.new_len = m.new_len + 14;
                if (h.vlan.isValid()) {
                    m.new_len = m.new_len + 4;
                }
                truncate(m.new_len);
            }
        }
        if (m.out_port != NO_PORT) {
            standard.egress_spec = (bit<9>)m.out_port;
        } else {
            mark_to_drop(standard);
        }
    }
}

control Leave(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    apply { }
}

control Compute(inout headers_t h, inout metadata_t m) {
    apply { }
}

control Deparse(packet_out packet, in headers_t h) {
    apply {
#include "emit.p4"
    }
}

@pkginfo(name="gatun", version="1")
V1Switch(Parse(), Verify(), Main(), Leave(), Compute(), Deparse()) main;
