/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Layout of the maps, shared with src/layout.rs. LAYOUT changes with any of it. */
#ifndef GATUN_LAYOUT_H
#define GATUN_LAYOUT_H

#define LAYOUT 5

/* Translation of an entry. */
#define WAY_6_TO_4 0   /* NAT64, from inside */
#define WAY_4_TO_6 1   /* NAT64, to the inside */
#define WAY_4_OUTWARD 2 /* NAT44, from inside */
#define WAY_4_INWARD 3 /* NAT44, to the inside */

#define WORKERS_MAX 64
#define MAY_WAIT 1 /* bit of a time in `drained`: packets from before it may wait in a queue that loses packets */
#define STATEFUL_MAX 256
#define STATELESS_MAX 256
#define INSTANCES_MAX (STATEFUL_MAX + STATELESS_MAX)
#define ROW_NONE INSTANCES_MAX
#define ROWS (ROW_NONE + 1) /* of counters of a hook: those of XDP are behind those of the device */
#define XDP_PORTS_MAX 64
#define IDENTS 2048

#define NEAR_MAX 8     /* entries with the same home */
#define REACH 255      /* an entry is less than this behind its home */
#define HASH_WORDS 11

struct key6 {
	__be32 addresses[8]; /* source, destination */
	__be32 ports;	     /* source, destination */
	__u32 proto;
};

struct key4 {
	__be32 addresses[2];
	__be32 ports;
	__u32 proto;
};

/*
 * One direction of a session: two adjacent cache lines. A look-up reads the first line of the entry's home, which is
 * chosen by a hash of the packet, and of the entries near it that have the same home. The second line belongs
 * to those who translate.
 */
struct entry {
	__u64 near;	     /* of the entries whose home is here, one in each byte: 1 + the distance from here */
	__u32 generation;    /* odd: in use; even: free, or being written */
	__be32 four[2];	     /* source and destination of the IPv4 packet; NAT44: as received */
	__be32 six[8];	     /* source and destination of the IPv6 packet; NAT44: as sent, in the first two words */
	__be16 ports[2];     /* source and destination port as received */
	__be16 new_ports[2]; /* the same as sent */
	__be16 delta;	     /* change of the sum of the addresses */
	__u8 proto;
	__u8 way;

	__u64 seen;	 /* ns: the last packet that was translated, at first the installation */
	__u64 sent_up;	 /* ns: the last packet to the engine, at first the installation; 0: translated */
	__u64 installed; /* ns */
	__u64 packets;
	__u64 bytes;
	__u32 closing;		  /* the generation of which a FIN or RST went to the engine: what follows goes there, too */
	__u32 partner;		  /* the entry of the other direction */
	__u32 partner_generation; /* its generation */
	__u32 record;		  /* number of the session in its engine: not read here */
	__u16 epoch;
	__u16 path_mtu; /* largest IPv4 packet to the remote host, bytes; 0: not known */
	__u16 ident;	/* number of a counter of identifications */
	__u8 instance;
	__u8 worker;
};

#define MAPPINGS_MAX 4194304

/* Meaning of an address. */
#define LEFT 0	    /* the engine decides */
#define MAPPED 1    /* an explicit mapping */
#define BY_PREFIX 2 /* a translation prefix */

struct trie_key6 {
	__u32 len; /* bits */
	__be32 address[4];
};

struct trie_key4 {
	__u32 len;
	__be32 address;
};

struct host6 {
	__be32 address[4];
};

struct mapping6 {
	__u8 kind;
	__u8 instance; /* a stateless one */
	__u8 shift;    /* MAPPED: bits of the IPv6 address behind the IPv4 suffix; BY_PREFIX: length of the prefix */
	__u8 spare;
	__be32 mask; /* bits of the IPv4 suffix */
	__be32 four; /* its other bits */
};

struct mapping4 {
	__u8 kind;
	__u8 instance;
	__u8 shift;
	__u8 one_way; /* only IPv6 packets are translated */
	__be32 mask;
	__be32 six[4]; /* suffix zero */
};

/* Packets of a stateless instance, and their bytes as received: from IPv6, from IPv4. */
struct traffic {
	__u64 packets[2];
	__u64 bytes[2];
};

/* Settings of an instance; stateless ones are behind the stateful ones. */
struct instance {
	__u32 mtu4;	     /* largest IPv4 packet */
	__u32 mtu6;	     /* largest IPv6 packet */
	__u32 mtu6_without_df; /* largest IPv6 packet made of an IPv4 packet without DF */
	__s16 tos;	     /* constant TOS of IPv4 packets; negative: copied */
	__s16 traffic_class; /* same of IPv6 packets */
};

/* Interface with the XDP program. */
struct xdp_port {
	__u8 mac[6];
	__u16 cannot_send; /* frames that are redirected there are dropped */
	__u32 device; /* index of the TUN device: packets are routed as if they came from there */
	__u32 more;
	__u64 asked; /* ns: the last packet that went to the stack for the sake of neighbours */
};

struct control {
	__u32 layout;
	__u16 epoch;
	__u16 ident_step; /* a power of two; identifications of this target are ident_first modulo ident_step */
	__u16 ident_first;
	__u16 spare;
	__u32 homes;	   /* entries that are a home: those behind the last are only near */
	__u64 lease;	   /* ns: from this time on everything goes to the engine */
	__u64 pending_max; /* ns that a session stays pending at most */
	__u64 hash[HASH_WORDS]; /* secret */
	__u32 siit;	     /* the tries of stateless instances: 0 none, 1 the first, 2 the second */
	__u32 smallest_path; /* bytes: no known path MTU of an IPv4 host is smaller; of packets without DF */
	__u64 drained[WORKERS_MAX]; /* ns: packets from before this time have left the engine; see MAY_WAIT */
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
	NO_NEXT_HOP, /* XDP: the kernel knows none at an interface with the program */
	NEIGHBOUR,   /* XDP: once a second, so that the kernel verifies its neighbours */
	REASONS,
};

/* Of an instance; those of no known instance are in row ROW_NONE. */
struct counters {
	__u64 count[REASONS];
};

_Static_assert(sizeof(struct key6) == 40, "key6");
_Static_assert(sizeof(struct key4) == 16, "key4");
_Static_assert(sizeof(struct entry) == 128, "entry");
_Static_assert(__builtin_offsetof(struct entry, seen) == 64, "entry");
_Static_assert(sizeof(struct trie_key6) == 20, "trie_key6");
_Static_assert(sizeof(struct trie_key4) == 8, "trie_key4");
_Static_assert(sizeof(struct host6) == 16, "host6");
_Static_assert(sizeof(struct mapping6) == 12, "mapping6");
_Static_assert(sizeof(struct mapping4) == 24, "mapping4");
_Static_assert(sizeof(struct traffic) == 32, "traffic");
_Static_assert(sizeof(struct instance) == 16, "instance");
_Static_assert(sizeof(struct control) == 128 + 8 * WORKERS_MAX, "control");
_Static_assert(sizeof(struct counters) == 144, "counters");
_Static_assert(sizeof(struct xdp_port) == 24, "xdp_port");
#endif
