// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Kernel fast path: repeats for established sessions what the engine has decided.
 *
 * It is attached to the egress of the TUN device. It hands a translated packet to the ingress of that device,
 * which is where a packet of the engine arrives, too. Every packet that is not plain, and every packet without a
 * session, goes on to the engine unchanged.
 *
 * Packets without a session may have a stateless translation (siit.h).
 *
 * Each direction of a session has an entry in `entries`, a hash table that the process writes without a system call.
 * Another session may take an entry over while a program reads it: its generation is read before and after.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/types.h>
#include <linux/udp.h>
#include <stdbool.h>
#include <stddef.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "layout.h"

#define IP_DF 0x4000
#define IP_FRAGMENT 0x3fff
#define DF_CLEAR_MAX 1260 /* RFC 7915 5.1 */
#define TCP_FIN_RST 0x05
#define TCP_SYN 0x02

/* Lets programs behind this one see the packet (TCX_NEXT), and then the device. */
#define PASS_ON TC_ACT_UNSPEC

/* Bytes before the IP header: none on a TUN device. BPF_PROG_TEST_RUN knows only Ethernet. */
const volatile __u32 mac_len = 0;

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
	__uint(max_entries, ROW_NONE + 1);
	__type(key, __u32);
	__type(value, struct counters);
} reasons SEC(".maps");

/* Fields of a plain packet. */
struct plain {
	__u32 len; /* of transport header and payload, bytes */
	__u32 wire_len; /* the same of one packet on the wire: of a segment if this is a super-packet */
	__u32 segments;
	__u8 tos, ttl, proto, flags;
	bool df;
	__be16 sport, dport;
};

/* What is read of an entry before the packet changes. */
struct target {
	__u8 src[16], dst[16];
	__be16 sport, dport;
	__u16 delta;
	__u32 ident;
	struct instance *instance;
	__u32 row;
	__u8 way;
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

static __always_inline int up(enum reason reason, __u32 row)
{
	note(reason, row);
	return PASS_ON;
}

/* Makes `want` bytes readable, or the whole packet if it is shorter. */
static __always_inline void pull(struct __sk_buff *skb, __u32 want)
{
	__u32 linear = skb->data_end - skb->data;

	if (linear < want && linear < skb->len)
		bpf_skb_pull_data(skb, skb->len < want ? skb->len : want);
}

/* Reads the transport header. HIT, or the reason why the packet is not plain. */
static __always_inline int transport(struct __sk_buff *skb, void *l4, void *end, struct plain *p)
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
	} else if (p->proto == IPPROTO_UDP) {
		struct udphdr *udp = l4;

		if ((void *)(udp + 1) > end || p->len < sizeof(*udp))
			return NOT_PLAIN;
		if (!udp->check)
			return NO_CHECKSUM;
		header = sizeof(*udp);
		p->sport = udp->source;
		p->dport = udp->dest;
	} else {
		return NOT_PLAIN;
	}
	p->wire_len = p->len;
	p->segments = 1;
	if (skb->gso_size) {
		__u32 size = skb->gso_size;

		if (p->proto == IPPROTO_UDP)
			return SUPER_DATAGRAM;
		if (header < sizeof(struct tcphdr) || header > p->len)
			return NOT_PLAIN;
		if (p->len > header + size) {
			p->wire_len = header + size;
			p->segments = (p->len - header + size - 1) / size;
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
static __always_inline int admit(struct entry *e, __u32 generation, struct control *c, struct plain *p, __u32 row)
{
	__u64 now;

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
	now = bpf_ktime_get_ns();
	if (e->sent_up < c->drained[e->worker & (WORKERS_MAX - 1)]) {
		e->sent_up = 0;
		return HIT;
	}
	if (now - e->installed > c->pending_max) {
		e->sent_up = 0;
		note(MOVED_LATE, row);
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

/* Writes the ports, and changes the transport checksum, behind an IP header that ends at `l4`. */
static __always_inline int write_l4(struct __sk_buff *skb, struct target *t, struct plain *p, __u32 l4)
{
	bool udp = p->proto == IPPROTO_UDP;
	__u32 at = l4 + (udp ? offsetof(struct udphdr, check) : offsetof(struct tcphdr, check));
	__u64 zero = udp ? BPF_F_MARK_MANGLED_0 : 0;
	__be16 is[2] = {t->sport, t->dport};
	__u32 from = ports(p), to;

	__builtin_memcpy(&to, is, sizeof(to));
	/* A checksum that a device completes covers the ports later, and the addresses already. */
	if (bpf_l4_csum_replace(skb, at, 0, t->delta, BPF_F_PSEUDO_HDR | zero))
		return -1;
	if (from == to)
		return 0;
	if (bpf_l4_csum_replace(skb, at, from, to, 4 | zero))
		return -1;
	return bpf_skb_store_bytes(skb, l4, is, sizeof(is), 0);
}

/* The engine's packet would come without what the kernel knows of this one. */
static __always_inline int hand_over(struct __sk_buff *skb, struct target *t)
{
	skb->mark = 0;
	skb->priority = 0;
	bpf_set_hash_invalid(skb);
	note(HIT, t->row);
	return bpf_redirect(skb->ifindex, BPF_F_INGRESS);
}

static __always_inline int dropped(__u32 row)
{
	note(DROPPED, row);
	return TC_ACT_SHOT;
}

static __always_inline int write4(struct __sk_buff *skb, struct target *t, struct control *c, struct plain *p)
{
	struct iphdr ip = {};

	ip.version = 4;
	ip.ihl = 5;
	ip.tos = t->instance->tos >= 0 ? t->instance->tos : p->tos;
	ip.tot_len = bpf_htons(p->len + sizeof(ip));
	ip.id = identification(c, t->ident, p->segments);
	ip.frag_off = p->wire_len + sizeof(ip) > DF_CLEAR_MAX ? bpf_htons(IP_DF) : 0;
	ip.ttl = p->ttl - 1;
	ip.protocol = p->proto;
	__builtin_memcpy(&ip.saddr, t->src, 4);
	__builtin_memcpy(&ip.daddr, t->dst, 4);
	ip.check = ~header_sum(&ip);
	if (bpf_skb_change_proto(skb, bpf_htons(ETH_P_IP), 0))
		return up(REFUSED, t->row);
	if (bpf_skb_store_bytes(skb, mac_len, &ip, sizeof(ip), 0) || write_l4(skb, t, p, mac_len + sizeof(ip)))
		return dropped(t->row);
	return hand_over(skb, t);
}

static __always_inline int write6(struct __sk_buff *skb, struct target *t, struct plain *p)
{
	struct ipv6hdr ip6 = {};
	__u8 class = t->instance->traffic_class >= 0 ? t->instance->traffic_class : p->tos;

	ip6.version = 6;
	ip6.priority = class >> 4;
	ip6.flow_lbl[0] = class << 4;
	ip6.payload_len = bpf_htons(p->len);
	ip6.nexthdr = p->proto;
	ip6.hop_limit = p->ttl - 1;
	__builtin_memcpy(&ip6.saddr, t->src, 16);
	__builtin_memcpy(&ip6.daddr, t->dst, 16);
	if (bpf_skb_change_proto(skb, bpf_htons(ETH_P_IPV6), 0))
		return up(REFUSED, t->row);
	if (bpf_skb_store_bytes(skb, mac_len, &ip6, sizeof(ip6), 0) || write_l4(skb, t, p, mac_len + sizeof(ip6)))
		return dropped(t->row);
	return hand_over(skb, t);
}

static __always_inline int write44(struct __sk_buff *skb, struct target *t, struct control *c, struct plain *p,
				   struct iphdr *ip)
{
	/* RFC 6864 5.3.1: the identifications of many hosts become those of one. */
	if (t->way == WAY_4_OUTWARD && !p->df)
		ip->id = identification(c, t->ident, p->segments);
	ip->ttl = p->ttl - 1;
	__builtin_memcpy(&ip->saddr, t->src, 4);
	__builtin_memcpy(&ip->daddr, t->dst, 4);
	ip->check = 0;
	ip->check = ~header_sum(ip);
	if (bpf_skb_store_bytes(skb, mac_len, ip, sizeof(*ip), 0) || write_l4(skb, t, p, mac_len + sizeof(*ip)))
		return dropped(t->row);
	return hand_over(skb, t);
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
static __always_inline int aim(struct entry *e, __u32 generation, struct control *c, struct plain *p, struct target *t)
{
	__u32 number = e->instance;
	bool six = e->way == WAY_4_TO_6;
	__u32 header = six ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	int reason = admit(e, generation, c, p, number);

	t->row = number;
	if (reason != HIT)
		return reason;
	t->instance = bpf_map_lookup_elem(&instances, &number);
	if (!t->instance)
		return NO_ENTRY;
	if (p->wire_len + header > limit(e, t->instance, p) || (!six && p->len + header > 65535))
		return TOO_LARGE;
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

/* Counts the packet. False if another session has taken the entry over meanwhile. */
static __always_inline bool commit(struct entry *e, __u32 generation, __u64 bytes, __u64 now)
{
	if (!is_still(e, generation))
		return false;
	__sync_fetch_and_add(&e->packets, 1);
	__sync_fetch_and_add(&e->bytes, bytes);
	e->seen = now;
	return true;
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
	struct entry *e = entry_at(home);
	__u64 near;

	if (!e)
		return NULL;
	near = *(volatile __u64 *)&e->near;
	/* The second line of the likely entry arrives together with the first. */
	(void)*(volatile __u64 *)&e->packets;
	for (int i = 0; i < NEAR_MAX && near; i++, near >>= 8) {
		e = entry_at(home + (near & 0xff) - 1);
		if (!e)
			return NULL;
		e = begin(e, generation);
		if ((*generation & 1) && (six ? is_of6(e, key) : is_of4(e, key)))
			return e;
	}
	return NULL;
}

#include "siit.h"

static __always_inline int from6(struct __sk_buff *skb, struct control *c, __u64 now)
{
	void *data, *end;
	struct ipv6hdr *ip6;
	struct plain p = {};
	struct key6 key = {};
	struct target t = {};
	struct entry *e;
	__u32 generation;
	int reason;

	pull(skb, mac_len + sizeof(*ip6) + sizeof(struct tcphdr));
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	ip6 = data + mac_len;
	if ((void *)(ip6 + 1) > end || ip6->version != 6)
		return up(NOT_PLAIN, ROW_NONE);
	p.len = bpf_ntohs(ip6->payload_len);
	if (skb->len != mac_len + sizeof(*ip6) + p.len)
		return up(NOT_PLAIN, ROW_NONE);
	p.tos = ip6->priority << 4 | ip6->flow_lbl[0] >> 4;
	p.ttl = ip6->hop_limit;
	p.proto = ip6->nexthdr;
	reason = transport(skb, ip6 + 1, end, &p);
	if (reason != HIT)
		return up(reason, ROW_NONE);
	if (p.ttl <= 1)
		return up(HOP_LIMIT, ROW_NONE);
	__builtin_memcpy(key.addresses, &ip6->saddr, 32);
	key.ports = ports(&p);
	key.proto = p.proto;
	e = find(home_of(c, (__u32 *)&key, sizeof(key) / 4), &key, true, &generation);
	if (!e)
		return c->siit ? stateless6(skb, c, &p, &key) : up(NO_ENTRY, ROW_NONE);
	reason = aim(e, generation, c, &p, &t);
	if (reason != HIT)
		return up(reason, t.row);
	if (!commit(e, generation, skb->len - mac_len, now))
		return up(NO_ENTRY, ROW_NONE);
	return write4(skb, &t, c, &p);
}

static __always_inline int from4(struct __sk_buff *skb, struct control *c, __u64 now)
{
	void *data, *end;
	struct iphdr *at, ip;
	struct plain p = {};
	struct key4 key = {};
	struct target t = {};
	struct entry *e;
	__u32 generation;
	int reason;

	pull(skb, mac_len + sizeof(ip) + sizeof(struct tcphdr));
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	at = data + mac_len;
	if ((void *)(at + 1) > end || at->version != 4 || at->ihl != 5)
		return up(NOT_PLAIN, ROW_NONE);
	ip = *at;
	if (ip.frag_off & bpf_htons(IP_FRAGMENT))
		return up(FRAGMENT, ROW_NONE);
	p.len = bpf_ntohs(ip.tot_len) - sizeof(ip);
	if (bpf_ntohs(ip.tot_len) < sizeof(ip) || skb->len != mac_len + bpf_ntohs(ip.tot_len))
		return up(NOT_PLAIN, ROW_NONE);
	p.tos = ip.tos;
	p.ttl = ip.ttl;
	p.proto = ip.protocol;
	p.df = ip.frag_off & bpf_htons(IP_DF);
	reason = transport(skb, at + 1, end, &p);
	if (reason != HIT)
		return up(reason, ROW_NONE);
	if (p.ttl <= 1)
		return up(HOP_LIMIT, ROW_NONE);
	key.addresses[0] = ip.saddr;
	key.addresses[1] = ip.daddr;
	key.ports = ports(&p);
	key.proto = p.proto;
	e = find(home_of(c, (__u32 *)&key, sizeof(key) / 4), &key, false, &generation);
	if (!e)
		return c->siit ? stateless4(skb, c, &p, &ip) : up(NO_ENTRY, ROW_NONE);
	if (header_sum(&ip) != 0xffff)
		return up(NOT_PLAIN, e->instance);
	reason = aim(e, generation, c, &p, &t);
	if (reason != HIT)
		return up(reason, t.row);
	if (!commit(e, generation, skb->len - mac_len, now))
		return up(NO_ENTRY, ROW_NONE);
	if (t.way == WAY_4_TO_6)
		return write6(skb, &t, &p);
	return write44(skb, &t, c, &p, &ip);
}

SEC("classifier")
int gatun_fastpath(struct __sk_buff *skb)
{
	__u64 now = bpf_ktime_get_coarse_ns();
	struct control *c;
	__u32 zero = 0;

	c = bpf_map_lookup_elem(&control, &zero);
	if (!c || now >= c->lease)
		return up(LEASE_OVER, ROW_NONE);
	if (skb->protocol == bpf_htons(ETH_P_IPV6))
		return from6(skb, c, now);
	if (skb->protocol == bpf_htons(ETH_P_IP))
		return from4(skb, c, now);
	return up(NOT_PLAIN, ROW_NONE);
}

char _license[] SEC("license") = "Dual MIT/GPL";
