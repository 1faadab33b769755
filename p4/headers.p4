// SPDX-License-Identifier: Apache-2.0 OR MIT
// Headers, metadata and constants of both architectures.
//
// All fields are whole bytes and at most 64 bits long, because the DPDK target knows no others. An IPv6 address is
// a high and a low half.

const bit<16> TYPE_IPV4 = 0x0800;
const bit<16> TYPE_ARP = 0x0806;
const bit<16> TYPE_VLAN = 0x8100;
const bit<16> TYPE_IPV6 = 0x86dd;

const bit<8> PROTO_HOP_BY_HOP = 0;
const bit<8> PROTO_ICMP = 1;
const bit<8> PROTO_TCP = 6;
const bit<8> PROTO_UDP = 17;
const bit<8> PROTO_ROUTING = 43;
const bit<8> PROTO_FRAGMENT = 44;
const bit<8> PROTO_ESP = 50;
const bit<8> PROTO_AH = 51;
const bit<8> PROTO_ICMPV6 = 58;
const bit<8> PROTO_DEST_OPTIONS = 60;

const bit<8> ICMP_ECHO_REPLY = 0;
const bit<8> ICMP_ECHO_REQUEST = 8;
const bit<8> ICMPV6_ECHO_REQUEST = 128;
const bit<8> ICMPV6_ECHO_REPLY = 129;
const bit<8> ICMPV6_NEIGHBOUR_SOLICITATION = 135;
const bit<8> ICMPV6_NEIGHBOUR_ADVERTISEMENT = 136;

const bit<8> OPTION_SOURCE = 1; // link-layer address
const bit<8> OPTION_TARGET = 2;
const bit<8> HOST_TTL = 64; // of answers

const bit<16> IP_DF = 0x4000;
const bit<16> IP_FRAGMENT = 0x3fff;
const bit<16> DF_CLEAR_MAX = 1260 - 20; // RFC 7915 5.1, without the header
const bit<8> TCP_SYN = 0x02;
const bit<8> TCP_FIN_SYN_RST = 0x07;

// Ethernet and IPv4 in an ARP request, up to the operation.
const bit<64> ARP_REQUEST = 0x0001080006040001;
const bit<64> ARP_REPLY = 0x0001080006040002;

// Reasons why a packet goes to the controller. `reason` of packet_in_t has one of them.
const bit<8> REASON_NONE = 0;
const bit<8> REASON_NO_ENTRY = 1;
const bit<8> REASON_TCP_FLAGS = 2;
const bit<8> REASON_FRAGMENT = 3;
const bit<8> REASON_EXTENSION_HEADER = 4;
const bit<8> REASON_OPTIONS = 5;
const bit<8> REASON_ICMP = 6;
const bit<8> REASON_HOP_LIMIT = 7;
const bit<8> REASON_TOO_LARGE = 8;
const bit<8> REASON_NO_CHECKSUM = 9;
const bit<8> REASON_MALFORMED = 10;
const bit<8> REASON_NO_NEXT_HOP = 11;
const bit<8> REASON_ARP = 12;
const bit<8> REASON_NEIGHBOUR_DISCOVERY = 13;
const bit<8> REASON_GROUP = 14;
const bit<8> REASON_PROTOCOL = 15;
const bit<8> REASON_REQUESTED = 16;
const bit<8> REASON_TRUNCATED = 17;
const bit<8> REASON_PENDING = 18;
#define REASONS 32

// Reasons why a frame is dropped.
const bit<32> DROP_FOREIGN = 0; // not for this switch
const bit<32> DROP_NO_PORT = 1; // packet_out or a next hop names a port that does not exist
const bit<32> DROP_ECHO = 2; // read, and not to be sent
#define DROPS 3

// To the controller, before the frame, which is unchanged. Behind it is pending_t, if the reason is REASON_PENDING.
@controller_header("packet_in")
header packet_in_t {
    bit<8> reason;
    bit<8> reserved;
    bit<16> port;
}

// From the controller: a frame that leaves by this port as it is, or an echo.
@controller_header("packet_out")
header packet_out_t {
    bit<16> kind; // OUT_...
    bit<16> port;
}

const bit<16> OUT_FRAME = 0;
const bit<16> OUT_ECHO = 1; // pending_t follows: the controller returns it

// Number of a pending session's packet: `place` in both registers, and a value of generation and count.
header pending_t {
    bit<32> place;
    bit<32> value;
}

const bit<32> GENERATION = 1 << 24; // counts of packets are below it

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

header vlan_t {
    bit<16> tci;
    bit<16> type;
}

header arp_t {
    bit<64> head;
    bit<48> sender_mac;
    bit<32> sender;
    bit<48> target_mac;
    bit<32> target;
}

header ipv4_t {
    bit<8> version_ihl;
    bit<8> tos;
    bit<16> total_len;
    bit<16> id;
    bit<16> fragment;
    bit<8> ttl;
    bit<8> proto;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

header ipv6_t {
    bit<8> version_class;
    bit<8> class_flow;
    bit<16> flow;
    bit<16> payload_len;
    bit<8> next_header;
    bit<8> hop_limit;
    bit<64> src_hi;
    bit<64> src_lo;
    bit<64> dst_hi;
    bit<64> dst_lo;
}

header tcp_t {
    bit<16> sport;
    bit<16> dport;
    bit<32> sequence;
    bit<32> acknowledgement;
    bit<8> offset;
    bit<8> flags;
    bit<16> window;
    bit<16> checksum;
    bit<16> urgent;
}

header udp_t {
    bit<16> sport;
    bit<16> dport;
    bit<16> length;
    bit<16> checksum;
}

// The first 8 bytes of an ICMP message. In neighbour discovery, `id` and `sequence` are flags.
header icmp_t {
    bit<8> type;
    bit<8> code;
    bit<16> checksum;
    bit<16> id;
    bit<16> sequence;
}

// The rest of a neighbour solicitation or advertisement with one option.
header neighbour_t {
    bit<64> target_hi;
    bit<64> target_lo;
    bit<8> option;
    bit<8> option_len;
    bit<48> option_mac;
}

struct headers_t {
    packet_in_t packet_in;
    packet_out_t packet_out;
    pending_t pending;
    ethernet_t ethernet;
    vlan_t vlan;
    arp_t arp;
    ipv4_t ipv4;
    ipv6_t ipv6;
    tcp_t tcp;
    udp_t udp;
    icmp_t icmp;
    neighbour_t neighbour;
}

const bit<48> GROUP_MAC = 0x010000000000;

// Requests that the packet may be, if it is to one of our own addresses.
const bit<8> ASK_NOTHING = 0;
const bit<8> ASK_ARP = 1;
const bit<8> ASK_ECHO4 = 2;
const bit<8> ASK_SOLICITATION = 3;
const bit<8> ASK_ECHO6 = 4;

const bit<8> TO_NOTHING = 0;
const bit<8> TO_IPV4 = 1;
const bit<8> TO_IPV6 = 2;
const bit<8> TO_NAT44 = 3;

// Keys of the tables for sessions and own addresses are adjacent fields: p4c-dpdk would copy others. All fields are in the
// first 256 bytes, because DPDK's instructions reach no others.
struct metadata_t {
    bit<16> interface; // 0: none
    // Addresses and ports of the packet as received, then as sent. An echo request has its identifier in `sport`, a
    // reply in `dport`; the other is zero. A request for an own address has it as destination.
    bit<64> dst_hi;
    bit<64> dst_lo;
    bit<64> src_hi;
    bit<64> src_lo;
    bit<16> sport;
    bit<16> dport;
    bit<8> proto;
    bit<32> src4;
    bit<32> dst4;
    bit<16> interface4; // the same as `interface`
    bit<32> in_port;
    bit<16> vid; // 0: without a tag
    bit<32> out_port; // NO_PORT: to be dropped
    bit<48> mac; // own, of the interface
    bit<8> reason;
    bit<8> ask;
    bit<8> kind; // TO_...: form of the translated packet
    // The packet as received.
    bit<32> ip_len;
    bit<8> ttl;
    bit<8> tos;
    bit<8> flags;
    bit<16> l4_len;
    bit<16> checksum; // complement of the transport's
    bit<16> header_sum;
    // The packet to be sent.
    bit<16> new_sport;
    bit<16> new_dport;
    bit<16> new_id;
    bit<16> new_vid; // 0: without a tag
    bit<32> new_len; // with the IP header
    bit<8> tos_keep;
    bit<8> tos_set;
    bit<8> stop_flags; // TCP flags that the controller has to see
    bit<16> max_len;
    bit<16> max_len_df;
    bit<32> ident; // number of a counter of identifications, or NO_IDENT
    bit<16> ident_step;
    bit<16> ident_first;
    bit<16> instance; // stateless, of the source
    bit<16> dst_instance;
    bit<16> next_hop;
    bit<48> next_mac;
    bit<48> next_own_mac; // of our interface there
    bit<8> pending; // generation, or 0
    bit<32> place;
    bit<32> sent; // of the latest packet that went to the controller
    bit<32> returned; // of its latest echo
    bit<32> generation; // in its place
    bit<32> count;
    bit<32> counter_index;
    bit<16> delta; // change of the transport checksum
    bit<64> sum;
    bit<64> sum4;
    bit<64> value;
}

const bit<8> VERSION6 = 0x60;
const bit<32> NO_IDENT = 0xffff;
const bit<32> NO_PORT = 0xffffffff;
const bit<16> NO_CHECKSUM = 0xffff; // complement of zero
