// SPDX-License-Identifier: Apache-2.0 OR MIT
// The program for the Portable Switch Architecture as p4c-dpdk compiles it: a .spec for DPDK's SWX pipeline.
//
// The pipeline does not tell the program a frame's length. Its host checks that a frame is as long as its IP
// header says, cuts off padding, and gives a frame that is too short to the controller (REASON_TRUNCATED).
#include <core.p4>
#include <dpdk/psa.p4>

#define CPU_PORT 0
#define PORT_MAX 255 // the pipeline does not check a port's number; its host makes this many
#define COUNTER(name, size) Counter<bit<64>, bit<32>>(size, PSA_CounterType_t.PACKETS) name;
#define COUNT(name, index) name.count(index)
#define LENGTH_COUNTER(name, size) Counter<bit<64>, bit<32>>(size, PSA_CounterType_t.PACKETS_AND_BYTES) name;
#define LENGTH_COUNT(name, index, len) name.count(index, len) // of the IP packet
#define REGISTER(bits, name, size) Register<bit<bits>, bit<32>>(size, 0) name;
#define READ(name, value, index) value = name.read(index)
#define METER(name, size) Meter<bit<32>>(size, PSA_MeterType_t.PACKETS) name;
// The target's meters count bytes: each packet is one. A number in a field is not a constant for the compiler.
#define METER_READ(name, index, color) \
    m.new_len = 1; \
    color = name.dpdk_execute(index, PSA_MeterColor_t.GREEN, m.new_len)
#define COLOR PSA_MeterColor_t
#define RED PSA_MeterColor_t.RED
// The target's checksum is never zero.
#define HEADER_CHECKSUM(name) InternetChecksum() name;
#define HEADER_SUM(name, to) \
    name.clear(); \
    name.add(h.ipv4); \
    to = name.get()
#define HEADER_SUM_RIGHT 0xffff

#include "headers.p4"
#include "gatun.p4"

struct nothing_t { }

parser Parse(packet_in packet, out headers_t h, inout metadata_t m, in psa_ingress_parser_input_metadata_t standard,
             in nothing_t resubmitted, in nothing_t recirculated) {
    state start {
        transition select((PortIdUint_t)standard.ingress_port) {
            CPU_PORT: controller;
            default: ethernet;
        }
    }
#include "states.p4"
}

control Main(inout headers_t h, inout metadata_t m, in psa_ingress_input_metadata_t standard,
             inout psa_ingress_output_metadata_t out_standard) {
    Gatun() gatun;

    apply {
        m.in_port = (bit<32>)(PortIdUint_t)standard.ingress_port;
        m.reason = REASON_NONE;
        gatun.apply(h, m);
        // Frames are dropped by default.
        if (m.out_port != NO_PORT) {
            out_standard.drop = false;
            out_standard.egress_port = (PortId_t)(PortIdUint_t)m.out_port;
        }
    }
}

control Deparse(packet_out packet, out nothing_t cloned, out nothing_t resubmitted, out nothing_t normal,
                inout headers_t h, in metadata_t m, in psa_ingress_output_metadata_t standard) {
    apply {
#include "emit.p4"
    }
}

// The target has no egress pipeline.
parser ParseNothing(packet_in packet, out headers_t h, inout metadata_t m,
                    in psa_egress_parser_input_metadata_t standard, in nothing_t normal, in nothing_t cloned,
                    in nothing_t recirculated) {
    state start {
        transition accept;
    }
}

control Leave(inout headers_t h, inout metadata_t m, in psa_egress_input_metadata_t standard,
              inout psa_egress_output_metadata_t out_standard) {
    apply { }
}

control DeparseNothing(packet_out packet, out nothing_t cloned, out nothing_t recirculated, inout headers_t h,
                       in metadata_t m, in psa_egress_output_metadata_t standard,
                       in psa_egress_deparser_input_metadata_t deparser_standard) {
    apply { }
}

IngressPipeline(Parse(), Main(), Deparse()) ingress;
EgressPipeline(ParseNothing(), Leave(), DeparseNothing()) egress;
@pkginfo(name="gatun", version="1")
PSA_Switch(ingress, PacketReplicationEngine(), egress, BufferingQueueingEngine()) main;
