/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Layout of the maps, shared with src/layout.rs. LAYOUT changes with any of it. */
#ifndef GATUN_LAYOUT_H
#define GATUN_LAYOUT_H

#define LAYOUT 1

#define STATE_OPEN 0
#define STATE_CLOSING 1 /* a FIN or RST went to the engine, and what follows goes there, too */

#define KIND_NAT64 0
#define KIND_NAT44 1

#define OUTBOUND 0
#define INBOUND 1

#define WORKERS_MAX 64
#define INSTANCES_MAX 256
#define IDENTS 2048

struct key6 {
	__u8 src[16];
	__u8 dst[16];
	__be16 sport, dport;
	__u32 proto;
};

struct key4 {
	__be32 src, dst;
	__be16 sport, dport;
	__u32 proto;
};

/* One direction of a session: a cache line of its own, because the directions often have a processor each. */
struct direction {
	__u64 seen;	 /* ns: the last packet that was translated, at first the installation */
	__u64 sent_up;	 /* ns: the last packet to the engine, at first the installation; 0: translated */
	__u64 installed; /* ns */
	__u64 packets;
	__u64 bytes;
	__u32 record; /* number of the session in its engine: not read here */
	__u32 spare[5];
};

struct session {
	__u32 generation; /* odd: in use; even: free, or being written */
	__u8 inside[16];  /* NAT44: the first four bytes */
	__u8 remote6[16]; /* NAT64: the remote host as the inside host sees it */
	__be32 outside;
	__be32 remote;
	__be16 inside_port, outside_port, remote_port;
	__be16 delta; /* change of the sum of the addresses, outbound */
	__u16 epoch;
	__u16 path_mtu; /* largest IPv4 packet to the remote host, bytes; 0: not known */
	__u16 ident;	/* number of a counter of identifications */
	__u8 proto;
	__u8 kind;
	__u8 instance;
	__u8 worker;
	__u8 spare;
	__u8 state; /* the only field here that the program writes */
	struct direction direction[2];
};

/* Settings of an instance. */
struct instance {
	__u32 mtu4;	     /* largest IPv4 packet */
	__u32 mtu6;	     /* largest IPv6 packet */
	__u32 mtu6_without_df; /* largest IPv6 packet made of an IPv4 packet without DF */
	__s16 tos;	     /* constant TOS of IPv4 packets; negative: copied */
	__s16 traffic_class; /* same of IPv6 packets */
};

struct control {
	__u32 layout;
	__u16 epoch;
	__u16 ident_step; /* a power of two; identifications of this target are ident_first modulo ident_step */
	__u16 ident_first;
	__u16 spare[3];
	__u64 lease;	   /* ns: from this time on everything goes to the engine */
	__u64 pending_max; /* ns that a session stays pending at most */
	__u64 drained[WORKERS_MAX]; /* ns: packets from before this time have left the engine */
};

enum reason {
	HIT,
	NO_ENTRY,
	LEASE_OVER,
	OTHER_EPOCH,
	PENDING,
	CLOSING,
	NOT_PLAIN,
	FRAGMENT,
	HOP_LIMIT,
	TCP_FLAGS,
	NO_CHECKSUM,
	SUPER_DATAGRAM,
	TOO_LARGE,
	REFUSED,     /* the kernel would not make room for the new header */
	MOVED_LATE,  /* beside a hit */
	DROPPED,     /* the kernel would not write: never seen */
	REASONS,
};

/* Of an instance; those of no known instance are in row INSTANCES_MAX. */
struct counters {
	__u64 count[REASONS];
};

_Static_assert(sizeof(struct key6) == 40, "key6");
_Static_assert(sizeof(struct key4) == 16, "key4");
_Static_assert(sizeof(struct direction) == 64, "direction");
_Static_assert(sizeof(struct session) == 192, "session");
_Static_assert(sizeof(struct instance) == 16, "instance");
_Static_assert(sizeof(struct control) == 32 + 8 * WORKERS_MAX, "control");
_Static_assert(sizeof(struct counters) == 128, "counters");
#endif
