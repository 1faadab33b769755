/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Stateless translation (SIIT): addresses by explicit mappings (RFC 7757) and translation prefixes (RFC 6052).
 *
 * There are two generations of mappings, each with a hash table of hosts and a trie of networks for either family.
 * The process fills the one that is not in use, and then changes the number of the one that is. Both ends of a packet
 * are in it: what a mapping or a prefix covers, and inside of that what only the engine can decide (LEFT): own
 * addresses, addresses of pools, inside hosts of NAT44, illegal and denied addresses. Packets between mapped hosts are
 * the engine's if a prefix leads to one of them (RFC 7757 4.2), and so are all ICMP messages (RFC 6791).
 *
 * A search in a trie of many hosts waits for memory many times, one in a hash table twice.
 */
#ifndef GATUN_SIIT_H
#define GATUN_SIIT_H

#define min(a, b) ((a) < (b) ? (a) : (b))

#define TRIE(name, key_type, value_type)                                                                               \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_LPM_TRIE);                                                                   \
		__uint(map_flags, BPF_F_NO_PREALLOC);                                                                  \
		__uint(max_entries, MAPPINGS_MAX);                                                                     \
		__type(key, struct key_type);                                                                          \
		__type(value, struct value_type);                                                                      \
	} name SEC(".maps")

/* The process chooses the size. Hosts that do not fit are in the trie. */
#define HOSTS(name, key_type, value_type)                                                                              \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_HASH);                                                                       \
		__uint(map_flags, BPF_F_NO_PREALLOC);                                                                  \
		__uint(max_entries, 1);                                                                                \
		__type(key, key_type);                                                                                 \
		__type(value, struct value_type);                                                                      \
	} name SEC(".maps")

HOSTS(hosts6_first, struct host6, mapping6);
HOSTS(hosts6_second, struct host6, mapping6);
HOSTS(hosts4_first, __be32, mapping4);
HOSTS(hosts4_second, __be32, mapping4);
TRIE(siit6_first, trie_key6, mapping6);
TRIE(siit6_second, trie_key6, mapping6);
TRIE(siit4_first, trie_key4, mapping4);
TRIE(siit4_second, trie_key4, mapping4);

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, STATELESS_MAX);
	__type(key, __u32);
	__type(value, struct traffic);
} stateless SEC(".maps");

/* An IPv6 address as two numbers. */
struct wide {
	__u64 high, low;
};

static __always_inline struct wide wide_of(const __be32 *a)
{
	struct wide w = {
		(__u64)bpf_ntohl(a[0]) << 32 | bpf_ntohl(a[1]),
		(__u64)bpf_ntohl(a[2]) << 32 | bpf_ntohl(a[3]),
	};

	return w;
}

static __always_inline struct mapping6 *mapping_of6(__u32 generation, const __be32 *address)
{
	struct trie_key6 key = {.len = 128};
	struct mapping6 *host;

	__builtin_memcpy(key.address, address, 16);
	if (generation == 1)
		host = bpf_map_lookup_elem(&hosts6_first, key.address);
	else
		host = bpf_map_lookup_elem(&hosts6_second, key.address);
	if (host)
		return host;
	if (generation == 1)
		return bpf_map_lookup_elem(&siit6_first, &key);
	return bpf_map_lookup_elem(&siit6_second, &key);
}

static __always_inline struct mapping4 *mapping_of4(__u32 generation, __be32 address)
{
	struct trie_key4 key = {.len = 32, .address = address};
	struct mapping4 *host;

	if (generation == 1)
		host = bpf_map_lookup_elem(&hosts4_first, &key.address);
	else
		host = bpf_map_lookup_elem(&hosts4_second, &key.address);
	if (host)
		return host;
	if (generation == 1)
		return bpf_map_lookup_elem(&siit4_first, &key);
	return bpf_map_lookup_elem(&siit4_second, &key);
}

/* The IPv4 address of an IPv6 address; the suffix moves (RFC 7757 3.3). */
static __always_inline __be32 mapped4(struct mapping6 *m, const __be32 *address)
{
	struct wide a = wide_of(address);
	__u32 shift = m->shift & 127;
	__u64 suffix;

	if (shift >= 64)
		suffix = a.high >> (shift - 64);
	else
		suffix = a.low >> shift | (shift ? a.high << (64 - shift) : 0);
	return m->four | bpf_htonl((__u32)suffix & bpf_ntohl(m->mask));
}

/* The IPv4 address behind a translation prefix of `shift` bits: bits 64 to 71 are skipped (RFC 6052 2.2). */
static __always_inline __be32 extracted4(struct mapping6 *m, const __be32 *address)
{
	struct wide a = wide_of(address);
	__u32 len = m->shift & 127;

	if (len >= 96)
		return bpf_htonl((__u32)a.low);
	if (len >= 64)
		return bpf_htonl((__u32)(a.low << 8 >> 32));
	/* 64 - len bits of it are in the first half. */
	return bpf_htonl((__u32)(a.high << len >> 32 | a.low << 8 >> 32 >> (64 - len)));
}

static __always_inline __be32 four_of(struct mapping6 *m, const __be32 *address)
{
	return m->kind == MAPPED ? mapped4(m, address) : extracted4(m, address);
}

static __always_inline void six_of(struct mapping4 *m, __be32 address, __be32 *six)
{
	__u64 suffix = bpf_ntohl(address & m->mask);
	struct wide a = wide_of(m->six);
	__u32 shift = m->shift & 127;

	if (m->kind == MAPPED) {
		if (shift >= 64) {
			a.high |= suffix << (shift - 64);
		} else {
			a.low |= suffix << shift;
			a.high |= shift ? suffix >> (64 - shift) : 0;
		}
	} else if (shift >= 96) {
		a.low |= suffix;
	} else if (shift >= 64) {
		a.low |= suffix << 32 >> 8;
	} else {
		a.high |= suffix << 32 >> shift;
		a.low |= suffix << 32 << (64 - shift) >> 8;
	}
	six[0] = bpf_htonl(a.high >> 32);
	six[1] = bpf_htonl((__u32)a.high);
	six[2] = bpf_htonl(a.low >> 32);
	six[3] = bpf_htonl((__u32)a.low);
}

static __always_inline void count_stateless(__u32 instance, bool to_six, __u64 packets, __u64 bytes)
{
	struct traffic *traffic = bpf_map_lookup_elem(&stateless, &instance);

	if (!traffic)
		return;
	traffic->packets[to_six ? 1 : 0] += packets;
	traffic->bytes[to_six ? 1 : 0] += bytes;
}

/* What is the same in both directions. */
static __always_inline int aim_stateless(struct plain *p, struct target *t, __u32 instance)
{
	t->row = STATEFUL_MAX + instance;
	t->sport = p->sport;
	t->dport = p->dport;
	/* The engine may have to lower the segment size that a SYN announces. */
	if (p->flags & TCP_SYN)
		return TCP_FLAGS;
	t->instance = bpf_map_lookup_elem(&instances, &t->row);
	return t->instance ? HIT : NO_ENTRY;
}

/* Returns whether only the default leads from an IPv4 address, which a prefix has led to, to IPv6. */
static __always_inline bool is_default(__u32 generation, __be32 address, __u32 instance)
{
	struct mapping4 *m = mapping_of4(generation, address);

	return !m || (m->kind == BY_PREFIX && m->instance == instance);
}

static __always_inline int stateless6(struct control *c, struct plain *p, struct target *t, struct key6 *key)
{
	__u32 generation = c->siit, instance, max;
	struct mapping6 *src, *dst;
	__be32 four[2];
	int reason;

	dst = mapping_of6(generation, &key->addresses[4]);
	if (!dst || dst->kind == LEFT)
		return NO_ENTRY;
	instance = dst->instance;
	src = mapping_of6(generation, &key->addresses[0]);
	if (!src || src->kind == LEFT || src->instance != instance)
		return NO_ENTRY;
	four[0] = four_of(src, &key->addresses[0]);
	four[1] = four_of(dst, &key->addresses[4]);
	if ((src->kind == BY_PREFIX && !is_default(generation, four[0], instance)) ||
	    (dst->kind == BY_PREFIX && !is_default(generation, four[1], instance)))
		return NO_ENTRY;
	reason = aim_stateless(p, t, instance);
	if (reason != HIT)
		return reason;
	max = p->wire_len + sizeof(struct iphdr) > DF_CLEAR_MAX ? t->instance->mtu4 : min(t->instance->mtu4, c->smallest_path);
	if (p->wire_len + sizeof(struct iphdr) > max || p->len + sizeof(struct iphdr) > 65535)
		return TOO_LARGE;
	__builtin_memcpy(t->src, &four[0], 4);
	__builtin_memcpy(t->dst, &four[1], 4);
	t->delta = fold(bpf_csum_diff(key->addresses, 32, four, 8, 0));
	t->ident = hash_of(c, key->addresses, 8) & (IDENTS - 1);
	t->way = WAY_6_TO_4;
	return HIT;
}

static __always_inline int stateless4(struct control *c, struct plain *p, struct target *t, struct iphdr *ip)
{
	__u32 generation = c->siit, instance, max;
	struct mapping4 *src, *dst;
	__be32 four[2] = {ip->saddr, ip->daddr}, six[8];
	int reason;

	dst = mapping_of4(generation, ip->daddr);
	if (!dst || dst->kind == LEFT || dst->one_way)
		return NO_ENTRY;
	instance = dst->instance;
	src = mapping_of4(generation, ip->saddr);
	if (!src || src->kind == LEFT || src->instance != instance)
		return NO_ENTRY;
	six_of(src, ip->saddr, &six[0]);
	six_of(dst, ip->daddr, &six[4]);
	reason = aim_stateless(p, t, instance);
	if (reason != HIT)
		return reason;
	if (header_sum(ip) != 0xffff)
		return NOT_PLAIN;
	max = p->df ? t->instance->mtu6 : t->instance->mtu6_without_df;
	if (p->wire_len + sizeof(struct ipv6hdr) > max)
		return TOO_LARGE;
	__builtin_memcpy(t->src, &six[0], 16);
	__builtin_memcpy(t->dst, &six[4], 16);
	t->delta = fold(bpf_csum_diff(four, 8, six, 32, 0));
	t->way = WAY_4_TO_6;
	return HIT;
}
#endif
