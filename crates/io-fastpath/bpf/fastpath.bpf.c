// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Kernel fast path: repeats for established sessions what the engine has decided (decide.h).
 *
 * `gatun_fastpath` is attached to the egress of the TUN device. It hands a translated packet to the ingress of that
 * device, which is where a packet of the engine arrives, too. Every packet that is not plain, and every packet
 * without a session, goes on to the engine unchanged. `gatun_xdp` (xdp.h) does the same at network interfaces.
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

#include "decide.h"

/* Lets programs behind this one see the packet (TCX_NEXT), and then the device. */
#define PASS_ON TC_ACT_UNSPEC

/* Bytes before the IP header: none on a TUN device. BPF_PROG_TEST_RUN knows only Ethernet. */
const volatile __u32 mac_len = 0;

static const struct hook at_device = {.rows = 0, .hops = 1, .is_frame = false};

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

static __always_inline int refused(struct target *t)
{
	take_back(t);
	return up(REFUSED, t->row);
}

static __always_inline int dropped(struct target *t)
{
	take_back(t);
	note(DROPPED, t->row);
	return TC_ACT_SHOT;
}

static __always_inline int write4(struct __sk_buff *skb, struct target *t, struct control *c, struct plain *p)
{
	struct iphdr ip = header4(&at_device, t, c, p);

	if (bpf_skb_change_proto(skb, bpf_htons(ETH_P_IP), 0))
		return refused(t);
	if (bpf_skb_store_bytes(skb, mac_len, &ip, sizeof(ip), 0) || write_l4(skb, t, p, mac_len + sizeof(ip)))
		return dropped(t);
	return hand_over(skb, t);
}

static __always_inline int write6(struct __sk_buff *skb, struct target *t, struct plain *p)
{
	struct ipv6hdr ip6 = header6(&at_device, t, p);

	if (bpf_skb_change_proto(skb, bpf_htons(ETH_P_IPV6), 0))
		return refused(t);
	if (bpf_skb_store_bytes(skb, mac_len, &ip6, sizeof(ip6), 0) || write_l4(skb, t, p, mac_len + sizeof(ip6)))
		return dropped(t);
	return hand_over(skb, t);
}

static __always_inline int write44(struct __sk_buff *skb, struct target *t, struct control *c, struct plain *p,
				   struct iphdr *ip)
{
	change44(&at_device, t, c, p, ip);
	if (bpf_skb_store_bytes(skb, mac_len, ip, sizeof(*ip), 0) || write_l4(skb, t, p, mac_len + sizeof(*ip)))
		return dropped(t);
	return hand_over(skb, t);
}

static __always_inline int from6(struct __sk_buff *skb, struct control *c, __u64 now)
{
	struct target t = {.row = ROW_NONE};
	struct plain p = {};
	int reason;

	pull(skb, mac_len + sizeof(struct ipv6hdr) + sizeof(struct tcphdr));
	reason = decide6(&at_device, (void *)(long)skb->data + mac_len, (void *)(long)skb->data_end, skb->len - mac_len,
			 skb->gso_size, c, &p, &t);
	if (reason != HIT)
		return up(reason, t.row);
	if (!commit(&t, skb->len - mac_len, now))
		return up(NO_ENTRY, ROW_NONE);
	return write4(skb, &t, c, &p);
}

static __always_inline int from4(struct __sk_buff *skb, struct control *c, __u64 now)
{
	struct target t = {.row = ROW_NONE};
	struct plain p = {};
	struct iphdr ip;
	int reason;

	pull(skb, mac_len + sizeof(ip) + sizeof(struct tcphdr));
	reason = decide4(&at_device, (void *)(long)skb->data + mac_len, (void *)(long)skb->data_end, skb->len - mac_len,
			 skb->gso_size, c, &p, &t, &ip);
	if (reason != HIT)
		return up(reason, t.row);
	if (!commit(&t, skb->len - mac_len, now))
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

#include "xdp.h"

char _license[] SEC("license") = "Dual MIT/GPL";
