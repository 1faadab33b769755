/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Decision on a packet, the same at each hook: whether it is plain, which session or mapping it belongs to, and the
 * header that it gets. A hook finds the IP header, asks `decide6` or `decide4` for the translation, counts the packet
 * by `commit`, and writes.
 *
 * Packets without a session may have a stateless translation (siit.h).
 *
 * Each direction of a session has an entry in `entries`, a hash table that the process writes without a system call.
 * Another session may take an entry over while a program reads it: its generation is read before and after.
 */
#ifndef GATUN_DECIDE_H
#define GATUN_DECIDE_H

#define IP_DF 0x4000
#define IP_FRAGMENT 0x3fff
#define DF_CLEAR_MAX 1260 /* RFC 7915 5.1 */
#define TCP_FIN_RST 0x05
#define TCP_SYN 0x02

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct entry);
} entries SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INSTANCES_MAX);
	__type(key, __u32);
	__type(value, struct instance);
} instances SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct control);
} control SEC(".maps");

/* As many counters as the engine has (tables/ident.rs): a session's hash chooses one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, IDENTS);
	__type(key, __u32);
	__type(value, __u32);
} idents SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2 * ROWS);
	__type(key, __u32);
	__type(value, struct counters);
} reasons SEC(".maps");

/* Interfaces with the XDP program, by index. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, XDP_PORTS_MAX);
	__type(key, __u32);
	__type(value, struct xdp_port);
} xdp_ports SEC(".maps");

/* Fields of a plain packet. */
struct plain {
	__u32 len; /* of transport header and payload, bytes */
	__u32 wire_len; /* the same of one packet on the wire: of a segment if this is a super-packet */
	__u32 segments;
	__u8 tos, ttl, proto, flags;
	bool df;
	__be16 sport, dport, check;
};

/* What is read of an entry before the packet changes. */
struct target {
	__u8 src[16], dst[16];
	__be16 sport, dport;
	__u16 delta;
	__u32 ident;
	struct entry *entry; /* none: of a stateless instance */
	__u32 generation;
	struct instance *instance;
	__u64 bytes; /* of the packet, as it was counted */
	__u32 row;
	__u8 way;
};

/* Properties of a hook. */
struct hook {
	__u32 rows;	/* first row of its counters */
	__u32 hops;	/* difference of the hop limits before and behind it */
	bool is_frame; /* there may be padding behind the packet, and a partial checksum is not marked */
};

/* Both ports as a word, in the order of the packet. */
static __always_inline __be32 ports(struct plain *p)
{
	__be16 both[2] = {p->sport, p->dport};
	__be32 word;

	__builtin_memcpy(&word, both, sizeof(word));
	return word;
}

static __always_inline void note(enum reason reason, __u32 row)
{
	struct counters *counters = bpf_map_lookup_elem(&reasons, &row);

	if (counters)
		counters->count[reason]++;
}

/* Reads the transport header. HIT, or the reason why the packet is not plain. */
static __always_inline int transport(void *l4, void *end, __u32 gso_size, struct plain *p)
{
	__u32 header;

	if (p->proto == IPPROTO_TCP) {
		struct tcphdr *tcp = l4;

		if ((void *)(tcp + 1) > end || p->len < sizeof(*tcp))
			return NOT_PLAIN;
		p->flags = ((__u8 *)tcp)[13];
		header = (((__u8 *)tcp)[12] >> 4) * 4;
		p->sport = tcp->source;
		p->dport = tcp->dest;
		p->check = tcp->check;
	} else if (p->proto == IPPROTO_UDP) {
		struct udphdr *udp = l4;

		if ((void *)(udp + 1) > end || p->len < sizeof(*udp))
			return NOT_PLAIN;
		if (!udp->check)
			return NO_CHECKSUM;
		header = sizeof(*udp);
		p->sport = udp->source;
		p->dport = udp->dest;
		p->check = udp->check;
	} else {
		return NOT_PLAIN;
	}
	p->wire_len = p->len;
	p->segments = 1;
	if (gso_size) {
		if (p->proto == IPPROTO_UDP)
			return SUPER_DATAGRAM;
		if (header < sizeof(struct tcphdr) || header > p->len)
			return NOT_PLAIN;
		if (p->len > header + gso_size) {
			p->wire_len = header + gso_size;
			p->segments = (p->len - header + gso_size - 1) / gso_size;
		}
	}
	return HIT;
}

static __always_inline struct entry *entry_at(__u32 index)
{
	return bpf_map_lookup_elem(&entries, &index);
}

/*
 * Orders all reads and writes before it with all behind it, on every processor: an atomic operation that returns
 * a value.
 */
static __always_inline void full_barrier(void)
{
	__u64 word = 0, was;

	asm volatile("" : : "r"(&word) : "memory");
	was = __sync_fetch_and_add(&word, 1);
	asm volatile("" : : "r"(was) : "memory");
}

/*
 * Reads the generation before anything else of an entry: the address of what is read through the result depends
 * on it, so that no processor reads that earlier. A barrier would also wait for the entry's memory.
 */
static __always_inline struct entry *begin(struct entry *e, __u32 *generation)
{
	__u64 zero = *generation = *(volatile __u32 *)&e->generation;

	asm volatile("%0 &= 0" : "+r"(zero));
	return (void *)e + zero;
}

/* False if another session has taken the entry over: what was read since `begin` is worth nothing. */
static __always_inline bool is_still(struct entry *e, __u32 generation)
{
	full_barrier();
	return *(volatile __u32 *)&e->generation == generation;
}

/* Lets the engine have all later packets of both directions. */
static __always_inline void close_both(struct entry *e, __u32 generation)
{
	__u32 index = e->partner, of = e->partner_generation;
	struct entry *partner;

	if (!is_still(e, generation))
		return;
	e->closing = generation;
	partner = entry_at(index);
	if (partner)
		partner->closing = of;
}

/* Whether the session's packets are translated now: HIT, or the reason why this one goes to the engine. */
static __always_inline int admit(const struct hook *at, struct entry *e, __u32 generation, struct control *c,
				 struct plain *p, __u32 row)
{
	__u64 now, drained;

	if (e->epoch != c->epoch)
		return OTHER_EPOCH;
	if (p->flags & TCP_FIN_RST) {
		close_both(e, generation);
		return TCP_FLAGS;
	}
	if (e->closing == generation)
		return CLOSING;
	if (p->flags & TCP_SYN)
		return TCP_FLAGS;
	/* Each direction moves by itself: its packets may go on while those of the other wait in a queue. */
	if (e->sent_up == 0)
		return HIT;
	/* The hook of the device sees this packet next, and decides when the session moves: it is at the queue. */
	if (at->is_frame)
		return PENDING;
	now = bpf_ktime_get_ns();
	drained = c->drained[e->worker & (WORKERS_MAX - 1)];
	if (e->sent_up < drained) {
		e->sent_up = 0;
		if (drained & MAY_WAIT)
			note(MOVED_LATE, at->rows + row);
		return HIT;
	}
	if (now - e->installed > c->pending_max) {
		e->sent_up = 0;
		note(MOVED_LATE, at->rows + row);
		return HIT;
	}
	e->sent_up = now;
	return PENDING;
}

/*
 * Next identification of a session. The device that cuts a super-packet counts up by ones, so the next one is
 * behind those.
 */
static __always_inline __be16 identification(struct control *c, __u32 counter, __u32 segments)
{
	__u32 *next = bpf_map_lookup_elem(&idents, &counter);
	__u32 step = c->ident_step ? c->ident_step : 1;
	__u32 n;

	if (!next)
		return 0;
	n = __sync_fetch_and_add(next, (segments + step - 1) & ~(step - 1));
	return bpf_htons((__u16)((n & ~(step - 1)) | c->ident_first));
}

static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32 & 0xffff);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (__u16)sum;
}

static __always_inline __u16 header_sum(struct iphdr *ip)
{
	return fold(bpf_csum_diff(0, 0, (__be32 *)ip, sizeof(*ip), 0));
}

/* The IPv4 header of a packet from IPv6. */
static __always_inline struct iphdr header4(const struct hook *at, struct target *t, struct control *c, struct plain *p)
{
	struct iphdr ip = {};

	ip.version = 4;
	ip.ihl = 5;
	ip.tos = t->instance->tos >= 0 ? t->instance->tos : p->tos;
	ip.tot_len = bpf_htons(p->len + sizeof(ip));
	ip.id = identification(c, t->ident, p->segments);
	ip.frag_off = p->wire_len + sizeof(ip) > DF_CLEAR_MAX ? bpf_htons(IP_DF) : 0;
	ip.ttl = p->ttl - at->hops;
	ip.protocol = p->proto;
	__builtin_memcpy(&ip.saddr, t->src, 4);
	__builtin_memcpy(&ip.daddr, t->dst, 4);
	ip.check = ~header_sum(&ip);
	return ip;
}

static __always_inline __u8 class_of(struct target *t, struct plain *p)
{
	return t->instance->traffic_class >= 0 ? t->instance->traffic_class : p->tos;
}

/* The IPv6 header of a packet from IPv4. */
static __always_inline struct ipv6hdr header6(const struct hook *at, struct target *t, struct plain *p)
{
	struct ipv6hdr ip6 = {};
	__u8 class = class_of(t, p);

	ip6.version = 6;
	ip6.priority = class >> 4;
	ip6.flow_lbl[0] = class << 4;
	ip6.payload_len = bpf_htons(p->len);
	ip6.nexthdr = p->proto;
	ip6.hop_limit = p->ttl - at->hops;
	__builtin_memcpy(&ip6.saddr, t->src, 16);
	__builtin_memcpy(&ip6.daddr, t->dst, 16);
	return ip6;
}

/* Makes the header of a NAT44 packet that of its translation. */
static __always_inline void change44(const struct hook *at, struct target *t, struct control *c, struct plain *p,
				     struct iphdr *ip)
{
	/* RFC 6864 5.3.1: the identifications of many hosts become those of one. */
	if (t->way == WAY_4_OUTWARD && !p->df)
		ip->id = identification(c, t->ident, p->segments);
	ip->ttl = p->ttl - at->hops;
	__builtin_memcpy(&ip->saddr, t->src, 4);
	__builtin_memcpy(&ip->daddr, t->dst, 4);
	ip->check = 0;
	ip->check = ~header_sum(ip);
}

/* Largest packet that the session's packet may become, bytes with the IP header. */
static __always_inline __u32 limit(struct entry *e, struct instance *in, struct plain *p)
{
	__u32 max = in->mtu4;

	if (e->way == WAY_4_TO_6)
		return p->df ? in->mtu6 : in->mtu6_without_df;
	/* Entries of packets to the inside have no path MTU. */
	if (e->path_mtu && e->path_mtu < max)
		max = e->path_mtu;
	return max;
}

/* Checks that an entry translates a packet, and reads what is written. */
static __always_inline int aim(const struct hook *at, struct entry *e, __u32 generation, struct control *c,
			       struct plain *p, struct target *t)
{
	__u32 number = e->instance;
	bool six = e->way == WAY_4_TO_6;
	__u32 header = six ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	int reason = admit(at, e, generation, c, p, number);

	t->row = number;
	if (reason != HIT)
		return reason;
	t->instance = bpf_map_lookup_elem(&instances, &number);
	if (!t->instance)
		return NO_ENTRY;
	if (p->wire_len + header > limit(e, t->instance, p) || (!six && p->len + header > 65535))
		return TOO_LARGE;
	t->entry = e;
	t->generation = generation;
	t->way = e->way;
	t->ident = e->ident;
	t->sport = e->new_ports[0];
	t->dport = e->new_ports[1];
	t->delta = e->delta;
	if (six) {
		__builtin_memcpy(t->src, &e->six[0], 16);
		__builtin_memcpy(t->dst, &e->six[4], 16);
	} else if (e->way == WAY_6_TO_4) {
		__builtin_memcpy(t->src, &e->four[0], 4);
		__builtin_memcpy(t->dst, &e->four[1], 4);
	} else {
		__builtin_memcpy(t->src, &e->six[0], 4);
		__builtin_memcpy(t->dst, &e->six[1], 4);
	}
	return HIT;
}

/*
 * Hash of `count` words: multilinear, so that without the secret nobody chooses packets with the same home more
 * often than by chance. (D. Lemire, O. Kaser: Strongly universal string hashing is fast, 2013.)
 */
static __always_inline __u32 hash_of(struct control *c, const __u32 *words, int count)
{
	__u64 sum = c->hash[0];

#pragma unroll
	for (int i = 0; i < count; i++)
		sum += c->hash[i + 1] * words[i];
	return sum >> 32;
}

static __always_inline __u32 home_of(struct control *c, const __u32 *words, int count)
{
	return (__u64)hash_of(c, words, count) * c->homes >> 32;
}

static __always_inline bool is_of6(struct entry *e, const struct key6 *key)
{
	const __u32 *a = e->six, *b = key->addresses;

	return *(__u32 *)e->ports == key->ports && a[3] == b[3] && a[7] == b[7] && e->proto == key->proto &&
	       e->way == WAY_6_TO_4 && a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[4] == b[4] && a[5] == b[5] &&
	       a[6] == b[6];
}

static __always_inline bool is_of4(struct entry *e, const struct key4 *key)
{
	return *(__u32 *)e->ports == key->ports && e->four[0] == key->addresses[0] &&
	       e->four[1] == key->addresses[1] && e->proto == key->proto && e->way != WAY_6_TO_4;
}

/* The entry of a packet, and its generation before anything else of it was read. */
static __always_inline struct entry *find(__u32 home, const void *key, bool six, __u32 *generation)
{
	struct entry *e = entry_at(home), *next = entry_at(home + 1);
	__u64 near;

	if (!e || !next)
		return NULL;
	/* Both lines of each likely entry arrive together: what is read later does not wait for one after the other. */
	near = *(volatile __u64 *)&e->near;
	(void)*(volatile __u64 *)&e->packets;
	(void)*(volatile __u64 *)&next->near;
	(void)*(volatile __u64 *)&next->packets;
	for (int i = 0; i < NEAR_MAX && near; i++, near >>= 8) {
		e = entry_at(home + (near & 0xff) - 1);
		if (!e)
			return NULL;
		(void)*(volatile __u64 *)&e->packets;
		e = begin(e, generation);
		if ((*generation & 1) && (six ? is_of6(e, key) : is_of4(e, key)))
			return e;
	}
	return NULL;
}

#include "siit.h"

/* Adds to the packets and bytes of the entry or the stateless instance, if no other session has taken the entry over. */
static __always_inline bool count(struct target *t, __u64 packets, __u64 bytes)
{
	struct entry *e = t->entry;

	if (!e) {
		count_stateless(t->row - STATEFUL_MAX, t->way == WAY_4_TO_6, packets, bytes);
		return true;
	}
	if (!is_still(e, t->generation))
		return false;
	__sync_fetch_and_add(&e->packets, packets);
	__sync_fetch_and_add(&e->bytes, bytes);
	return true;
}

/* Counts the packet. False if another session has taken the entry over meanwhile. */
static __always_inline bool commit(struct target *t, __u64 bytes, __u64 now)
{
	t->bytes = bytes;
	if (!count(t, 1, bytes))
		return false;
	if (t->entry)
		t->entry->seen = now;
	return true;
}

/* Takes the count back: the kernel did not write the packet, which has another fate. */
static __always_inline void take_back(struct target *t)
{
	count(t, -1, -t->bytes);
}

/*
 * True if a device is to complete the checksum: it covers the pseudo-header alone. One of 65,536 complete checksums
 * looks the same.
 */
static __always_inline bool is_partial(struct plain *p, __be32 *addresses, __u32 size)
{
	return p->check == fold(bpf_csum_diff(0, 0, addresses, size, bpf_htons(p->len) + bpf_htons(p->proto)));
}

/* True if `room` bytes hold a packet of `len` bytes, and nothing else but padding. */
static __always_inline bool fits(const struct hook *at, __u32 len, __u32 room)
{
	return at->is_frame ? len <= room : len == room;
}

/* Finds the translation of an IPv6 packet: HIT, or the reason why there is none. */
static __always_inline int decide6(const struct hook *at, struct ipv6hdr *ip6, void *end, __u32 room, __u32 gso_size,
				   struct control *c, struct plain *p, struct target *t)
{
	struct key6 key = {};
	struct entry *e;
	__u32 generation = 0;
	int reason;

	if ((void *)(ip6 + 1) > end || ip6->version != 6)
		return NOT_PLAIN;
	p->len = bpf_ntohs(ip6->payload_len);
	if (!fits(at, p->len + sizeof(*ip6), room))
		return NOT_PLAIN;
	p->tos = ip6->priority << 4 | ip6->flow_lbl[0] >> 4;
	p->ttl = ip6->hop_limit;
	p->proto = ip6->nexthdr;
	reason = transport(ip6 + 1, end, gso_size, p);
	if (reason != HIT)
		return reason;
	if (p->ttl <= at->hops)
		return HOP_LIMIT;
	__builtin_memcpy(key.addresses, &ip6->saddr, 32);
	key.ports = ports(p);
	key.proto = p->proto;
	e = find(home_of(c, (__u32 *)&key, sizeof(key) / 4), &key, true, &generation);
	if (at->is_frame && is_partial(p, key.addresses, 32))
		return NO_CHECKSUM;
	if (!e)
		return c->siit ? stateless6(c, p, t, &key) : NO_ENTRY;
	return aim(at, e, generation, c, p, t);
}

/* The same of an IPv4 packet, whose header is copied to `ip`. */
static __always_inline int decide4(const struct hook *at, struct iphdr *header, void *end, __u32 room, __u32 gso_size,
				   struct control *c, struct plain *p, struct target *t, struct iphdr *ip)
{
	struct key4 key = {};
	struct entry *e;
	__u32 generation = 0;
	int reason;

	if ((void *)(header + 1) > end || header->version != 4 || header->ihl != 5)
		return NOT_PLAIN;
	*ip = *header;
	if (ip->frag_off & bpf_htons(IP_FRAGMENT))
		return FRAGMENT;
	p->len = bpf_ntohs(ip->tot_len) - sizeof(*ip);
	if (bpf_ntohs(ip->tot_len) < sizeof(*ip) || !fits(at, bpf_ntohs(ip->tot_len), room))
		return NOT_PLAIN;
	p->tos = ip->tos;
	p->ttl = ip->ttl;
	p->proto = ip->protocol;
	p->df = ip->frag_off & bpf_htons(IP_DF);
	reason = transport(header + 1, end, gso_size, p);
	if (reason != HIT)
		return reason;
	if (p->ttl <= at->hops)
		return HOP_LIMIT;
	key.addresses[0] = ip->saddr;
	key.addresses[1] = ip->daddr;
	key.ports = ports(p);
	key.proto = p->proto;
	e = find(home_of(c, (__u32 *)&key, sizeof(key) / 4), &key, false, &generation);
	if (at->is_frame && is_partial(p, key.addresses, 8))
		return NO_CHECKSUM;
	if (!e)
		return c->siit ? stateless4(c, p, t, ip) : NO_ENTRY;
	if (header_sum(ip) != 0xffff) {
		t->row = e->instance;
		return NOT_PLAIN;
	}
	return aim(at, e, generation, c, p, t);
}
#endif
