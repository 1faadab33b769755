    // SPDX-License-Identifier: Apache-2.0 OR MIT
    // States of the parser, included by each architecture. A header is extracted only if its first bytes say that it
    // is one that the program handles: the others stay in the payload.

    state ethernet {
        packet.extract(h.ethernet);
        transition select(h.ethernet.type) {
            TYPE_VLAN: vlan;
            TYPE_ARP: arp;
            TYPE_IPV4: ipv4;
            TYPE_IPV6: ipv6;
            default: accept;
        }
    }

    state vlan {
        packet.extract(h.vlan);
        transition select(h.vlan.type) {
            TYPE_ARP: arp;
            TYPE_IPV4: ipv4;
            TYPE_IPV6: ipv6;
            default: accept;
        }
    }

    state controller {
        packet.extract(h.packet_out);
        transition select(h.packet_out.kind) {
            OUT_ECHO: echo;
            default: accept;
        }
    }

    state echo {
        packet.extract(h.pending);
        transition accept;
    }

    state arp {
        packet.extract(h.arp);
        transition accept;
    }

    state ipv4 {
        packet.extract(h.ipv4);
        transition select(h.ipv4.version_ihl) {
            0x45: ipv4_without_options;
            default: accept;
        }
    }

    state ipv4_without_options {
        transition select(h.ipv4.proto) {
            PROTO_TCP: tcp;
            PROTO_UDP: udp;
            PROTO_ICMP: icmp;
            default: accept;
        }
    }

    state ipv6 {
        packet.extract(h.ipv6);
        transition select(h.ipv6.next_header) {
            PROTO_TCP: tcp;
            PROTO_UDP: udp;
            PROTO_ICMPV6: icmpv6;
            default: accept;
        }
    }

    state tcp {
        packet.extract(h.tcp);
        transition accept;
    }

    state udp {
        packet.extract(h.udp);
        transition accept;
    }

    state icmp {
        packet.extract(h.icmp);
        transition accept;
    }

    state icmpv6 {
        packet.extract(h.icmp);
        transition select(h.icmp.type) {
            ICMPV6_NEIGHBOUR_SOLICITATION: solicitation;
            default: accept;
        }
    }

    // Only a message with one option of 8 bytes is extracted.
    state solicitation {
        transition select(h.ipv6.payload_len) {
            32: neighbour;
            default: accept;
        }
    }

    state neighbour {
        packet.extract(h.neighbour);
        transition accept;
    }
