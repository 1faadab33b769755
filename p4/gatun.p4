// SPDX-License-Identifier: Apache-2.0 OR MIT
// Translation of established flows as the engine decided it, and host functions on an Ethernet.
//
// Nothing of a packet changes before everything is decided: the controller gets the packet as it was received.
//
// An entry has everything that is constant for its packets: `delta` is the change of the sum under the transport
// checksum by addresses and ports or identifier, folded (for ICMP and ICMPv6: by the whole pseudo-header except its
// length). Checksums change by difference only, so a wrong one stays wrong.

#ifndef SESSIONS
#define SESSIONS 1048576
#endif
#define FLOWS6 SESSIONS
#define FLOWS4 (2 * SESSIONS) // NAT44 has both directions here
#define COUNTERS (2 * SESSIONS)
#define MAPPINGS 4096
#define OWN_ADDRESSES 256
#define INTERFACES 256
#define ROUTES 4096
#define NEXT_HOPS 4096
#define IDENTS 2048 // a power of two
#define PENDING 131072 // a power of two

#include "sums.p4"
#include "read.p4"
#include "host.p4"
#include "lookup.p4"
#include "rewrite.p4"

control Gatun(inout headers_t h, inout metadata_t m) {
    COUNTER(to_controller, REASONS)
    COUNTER(over_limit, REASONS)
    // By the number in a field: DPDK 22.11 takes another array if number and summand are constants.
    COUNTER(dropped, DROPS)
    METER(controller_limit, REASONS)
    // Numbers of the latest packet that went to the controller, and of its latest echo, by place. Sessions whose
    // counters have the same lowest bits share a place: they only wait longer.
    REGISTER(32, pending_sent, PENDING)
    REGISTER(32, pending_returned, PENDING)
    Read4() read4;
    Read6() read6;
    ReadArp() read_arp;
    ReadSolicitation() read_solicitation;
    Host() host;
    Lookup() lookup;
    Check() check;
    Sum() sum;
    Way() way;
    Write() write;

    // Frames of one interface: a port, and a VLAN or none (vid 0). `number` is not 0. Identifications of packets from
    // here are `ident_first` modulo `ident_step`, a power of two.
    action interface(bit<16> number, bit<48> mac, bit<16> ident_step, bit<16> ident_first) {
        m.interface = number;
        m.interface4 = number;
        m.mac = mac;
        m.ident_step = ident_step;
        m.ident_first = ident_first;
        m.sum = 0;
    }
    action no_interface() {
        m.interface = 0;
        m.sum = 0;
    }
    table interfaces {
        key = {
            m.in_port: exact @name("in_port");
            m.vid: exact @name("vid");
        }
        actions = { interface; @defaultonly no_interface; }
        default_action = no_interface();
        size = INTERFACES;
    }

    apply {
        m.kind = TO_NOTHING;
        m.ask = ASK_NOTHING;
        m.out_port = NO_PORT;
        m.vid = 0;
        if (h.packet_out.isValid()) {
            if (h.pending.isValid()) {
                m.place = h.pending.place & (PENDING - 1);
                pending_returned.write(m.place, h.pending.value);
                m.counter_index = DROP_ECHO;
                COUNT(dropped, m.counter_index);
            } else {
                m.out_port = (bit<32>)h.packet_out.port;
            }
            h.packet_out.setInvalid();
        } else if (m.reason == REASON_NONE) {
            if (h.vlan.isValid()) {
                m.vid = h.vlan.tci & 0x0fff;
            }
            interfaces.apply();
            if (m.interface == 0) {
                m.counter_index = DROP_FOREIGN;
                COUNT(dropped, m.counter_index);
            } else if (h.ethernet.dst == m.mac) {
                m.reason = REASON_NO_ENTRY;
            } else if ((h.ethernet.dst & GROUP_MAC) != 0) {
                m.reason = REASON_GROUP;
            } else {
                m.counter_index = DROP_FOREIGN;
                COUNT(dropped, m.counter_index);
            }
            if (m.reason != REASON_NONE) {
                if (h.ethernet.src == m.mac) {
                    m.reason = REASON_MALFORMED;
                } else if (h.ethernet.src == 0) {
                    m.reason = REASON_MALFORMED;
                } else if ((h.ethernet.src & GROUP_MAC) != 0) {
                    m.reason = REASON_MALFORMED;
                } else if (h.arp.isValid()) {
                    read_arp.apply(h, m);
                } else if (h.neighbour.isValid()) {
                    read_solicitation.apply(h, m);
                } else if (m.reason == REASON_NO_ENTRY) {
                    if (h.ipv6.isValid()) {
                        read6.apply(h, m);
                    } else if (h.ipv4.isValid()) {
                        read4.apply(h, m);
                    } else {
                        m.reason = REASON_PROTOCOL;
                    }
                }
                if (m.ask != ASK_NOTHING) {
                    host.apply(h, m);
                }
                if (m.reason == REASON_NO_ENTRY) {
                    lookup.apply(h, m);
                    if (m.reason == REASON_NONE) {
                        check.apply(h, m);
                    }
                    if (m.reason == REASON_NONE) {
                        sum.apply(h, m);
                    }
                    if (m.reason == REASON_NONE) {
                        way.apply(h, m);
                    }
                    // A new session is pending: its packets go to the controller as before, until one comes while
                    // none is on that way. The controller returns what it got behind the packets that it has sent.
                    if (m.reason == REASON_NONE) {
                        if (m.pending != 0) {
                            m.place = m.counter_index & (PENDING - 1);
                            READ(pending_sent, m.sent, m.place);
                            READ(pending_returned, m.returned, m.place);
                            m.generation = (bit<32>)m.pending;
                            m.generation = m.generation << 24; // * GENERATION
                            m.count = m.sent ^ m.generation;
                            m.reason = REASON_PENDING;
                            if (m.count < GENERATION) {
                                if (m.sent == m.returned) {
                                    m.reason = REASON_NONE;
                                }
                            }
                            if (m.reason == REASON_PENDING) {
                                // Also behind another generation's, so that no number comes twice.
                                m.count = m.sent + 1;
                                m.count = m.count & (GENERATION - 1);
                                h.pending.setValid();
                                h.pending.place = m.place;
                                h.pending.value = m.count | m.generation;
                                pending_sent.write(m.place, h.pending.value);
                            }
                        }
                    }
                    if (m.reason == REASON_NONE) {
                        write.apply(h, m);
                    }
                }
            }
        }

        if (m.reason != REASON_NONE) {
            COLOR color;
            METER_READ(controller_limit, (bit<32>)m.reason, color);
            if (color == RED) {
                m.out_port = NO_PORT;
                COUNT(over_limit, (bit<32>)m.reason);
            } else {
                m.out_port = CPU_PORT;
                COUNT(to_controller, (bit<32>)m.reason);
                h.packet_in.setValid();
                h.packet_in.reason = m.reason;
                h.packet_in.reserved = 0;
                h.packet_in.port = (bit<16>)m.in_port;
            }
        } else if (m.out_port > PORT_MAX) {
            if (m.out_port != NO_PORT) {
                m.counter_index = DROP_NO_PORT;
                COUNT(dropped, m.counter_index);
                m.out_port = NO_PORT;
            }
        }
    }
}
