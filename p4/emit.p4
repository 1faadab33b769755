        // SPDX-License-Identifier: Apache-2.0 OR MIT
        // Headers in the order of the packet, included by each architecture's deparser.
        packet.emit(h.packet_in);
        packet.emit(h.pending);
        packet.emit(h.ethernet);
        packet.emit(h.vlan);
        packet.emit(h.arp);
        packet.emit(h.ipv4);
        packet.emit(h.ipv6);
        packet.emit(h.tcp);
        packet.emit(h.udp);
        packet.emit(h.icmp);
        packet.emit(h.neighbour);
