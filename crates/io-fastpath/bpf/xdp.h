/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The same translation at network interfaces, before the network stack: no netfilter, no connection tracking, no
 * reverse-path filter. The kernel's routes and neighbours tell the way out. A packet for which they tell none at an
 * interface with this program goes to the stack, as does every packet that is not translated.
 */
#ifndef GATUN_XDP_H
#define GATUN_XDP_H

#define FAMILY_4 2  /* AF_INET */
#define FAMILY_6 10 /* AF_INET6 */
#define SECOND 1000000000ull

/*
 * The stack decrements the hop limit before and behind the TUN device, and the engine between them: packets of a
 * session arrive with the same hop limit, whichever way they take.
 */
const volatile __u32 xdp_hops = 3;

static __always_inline int to_stack(enum reason reason, __u32 row)
{
	note(reason, ROWS + row);
	return XDP_PASS;
}

static __always_inline int xdp_refused(struct target *t)
{
	take_back(t);
	return to_stack(REFUSED, t->row);
}

static __always_inline int xdp_dropped(struct target *t)
{
	take_back(t);
	note(DROPPED, ROWS + t->row);
	return XDP_DROP;
}

/* True if the frame is for this host, whose port has this address. */
static __always_inline bool is_for(struct ethhdr *eth, struct xdp_port *port)
{
	const __u16 *is = (void *)eth->h_dest, *own = (void *)port->mac;

	return is[0] == own[0] && is[1] == own[1] && is[2] == own[2];
}

/* Finds the way of the translated packet: HIT, or the reason why the stack gets the packet. */
static __always_inline int route(struct xdp_md *ctx, struct xdp_port *port, struct plain *p, struct target *t,
				 __u64 now, struct bpf_fib_lookup *fib)
{
	struct xdp_port *out;
	__u32 index;
	long found;

	fib->l4_protocol = p->proto;
	fib->sport = t->sport;
	fib->dport = t->dport;
	fib->ifindex = port->device;
	if (t->way == WAY_4_TO_6) {
		fib->family = FAMILY_6;
		fib->tot_len = p->len + sizeof(struct ipv6hdr);
		fib->flowinfo = bpf_htonl((__u32)class_of(t, p) << 20);
		__builtin_memcpy(fib->ipv6_src, t->src, 16);
		__builtin_memcpy(fib->ipv6_dst, t->dst, 16);
	} else {
		fib->family = FAMILY_4;
		fib->tot_len = p->len + sizeof(struct iphdr);
		fib->tos = t->way == WAY_6_TO_4 && t->instance->tos >= 0 ? t->instance->tos : p->tos;
		__builtin_memcpy(&fib->ipv4_src, t->src, 4);
		__builtin_memcpy(&fib->ipv4_dst, t->dst, 4);
	}
	found = bpf_fib_lookup(ctx, fib, sizeof(*fib), 0);
	if (found == BPF_FIB_LKUP_RET_FRAG_NEEDED)
		return TOO_LARGE;
	if (found != BPF_FIB_LKUP_RET_SUCCESS)
		return NO_NEXT_HOP;
	index = fib->ifindex;
	out = bpf_map_lookup_elem(&xdp_ports, &index);
	if (!out || out->cannot_send)
		return NO_NEXT_HOP;
	/* The kernel verifies only neighbours that it sends to itself. */
	if (now > out->asked + SECOND) {
		out->asked = now;
		return NEIGHBOUR;
	}
	return HIT;
}

/* The transport checksum behind the translation (RFC 1624), never 0 for UDP. */
static __always_inline __u16 new_check(struct plain *p, struct target *t)
{
	__be16 is[2] = {t->sport, t->dport};
	__u64 sum = 0xffff0000ull + (__u16)~p->check + t->delta;
	__u32 from = ports(p), to;
	__u16 check;

	__builtin_memcpy(&to, is, sizeof(to));
	sum += (__u64)(__u32)~from + to;
	check = ~fold(sum);
	return check || p->proto != IPPROTO_UDP ? check : 0xffff;
}

/* Writes the Ethernet header, an IP header of `len` bytes, ports and checksum, and sends the frame. */
static __always_inline int send(struct xdp_md *ctx, struct bpf_fib_lookup *fib, struct plain *p, struct target *t,
				const void *header, __u32 len)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	void *l4 = data + sizeof(*eth) + len;

	/* The ports are at the same place in both. */
	if (l4 + sizeof(struct udphdr) > end)
		return xdp_dropped(t);
	__builtin_memcpy(eth->h_dest, fib->dmac, ETH_ALEN);
	__builtin_memcpy(eth->h_source, fib->smac, ETH_ALEN);
	eth->h_proto = len == sizeof(struct ipv6hdr) ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	__builtin_memcpy(eth + 1, header, len);
	((struct udphdr *)l4)->source = t->sport;
	((struct udphdr *)l4)->dest = t->dport;
	if (p->proto == IPPROTO_UDP) {
		((struct udphdr *)l4)->check = new_check(p, t);
	} else {
		if (l4 + sizeof(struct tcphdr) > end)
			return xdp_dropped(t);
		((struct tcphdr *)l4)->check = new_check(p, t);
	}
	note(HIT, ROWS + t->row);
	return bpf_redirect(fib->ifindex, 0);
}

/* Removes `padding` bytes from the end, and makes room for a header that is `more` bytes longer, or cuts it. */
static __always_inline bool resize(struct xdp_md *ctx, __u32 padding, int more)
{
	if (padding && bpf_xdp_adjust_tail(ctx, -(int)padding))
		return false;
	return !more || !bpf_xdp_adjust_head(ctx, -more);
}

static __always_inline int xdp_from6(struct xdp_md *ctx, struct xdp_port *port, struct control *c, __u64 now)
{
	const struct hook at = {.rows = ROWS, .hops = xdp_hops, .is_frame = true};
	void *ip6 = (void *)(long)ctx->data + sizeof(struct ethhdr), *end = (void *)(long)ctx->data_end;
	__u32 room = ctx->data_end - ctx->data - sizeof(struct ethhdr);
	struct bpf_fib_lookup fib = {};
	struct target t = {.row = ROW_NONE};
	struct plain p = {};
	struct iphdr ip;
	int reason;

	reason = decide6(&at, ip6, end, room, 0, c, &p, &t);
	if (reason == HIT)
		reason = route(ctx, port, &p, &t, now, &fib);
	if (reason != HIT)
		return to_stack(reason, t.row);
	if (!commit(&t, p.len + sizeof(struct ipv6hdr), now))
		return to_stack(NO_ENTRY, ROW_NONE);
	ip = header4(&at, &t, c, &p);
	if (!resize(ctx, room - p.len - sizeof(struct ipv6hdr), (int)sizeof(ip) - (int)sizeof(struct ipv6hdr)))
		return xdp_refused(&t);
	return send(ctx, &fib, &p, &t, &ip, sizeof(ip));
}

static __always_inline int xdp_from4(struct xdp_md *ctx, struct xdp_port *port, struct control *c, __u64 now)
{
	const struct hook at = {.rows = ROWS, .hops = xdp_hops, .is_frame = true};
	void *header = (void *)(long)ctx->data + sizeof(struct ethhdr), *end = (void *)(long)ctx->data_end;
	__u32 room = ctx->data_end - ctx->data - sizeof(struct ethhdr);
	struct bpf_fib_lookup fib = {};
	struct target t = {.row = ROW_NONE};
	struct plain p = {};
	struct ipv6hdr ip6;
	struct iphdr ip;
	__u32 padding;
	int reason;

	reason = decide4(&at, header, end, room, 0, c, &p, &t, &ip);
	if (reason == HIT)
		reason = route(ctx, port, &p, &t, now, &fib);
	if (reason != HIT)
		return to_stack(reason, t.row);
	if (!commit(&t, p.len + sizeof(ip), now))
		return to_stack(NO_ENTRY, ROW_NONE);
	padding = room - p.len - sizeof(ip);
	if (t.way != WAY_4_TO_6) {
		change44(&at, &t, c, &p, &ip);
		if (!resize(ctx, padding, 0))
			return xdp_refused(&t);
		return send(ctx, &fib, &p, &t, &ip, sizeof(ip));
	}
	ip6 = header6(&at, &t, &p);
	if (!resize(ctx, padding, (int)sizeof(ip6) - (int)sizeof(ip)))
		return xdp_refused(&t);
	return send(ctx, &fib, &p, &t, &ip6, sizeof(ip6));
}

SEC("xdp")
int gatun_xdp(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 zero = 0, index = ctx->ingress_ifindex;
	__u64 now = bpf_ktime_get_coarse_ns();
	struct ethhdr *eth = data;
	struct xdp_port *port;
	struct control *c;

	c = bpf_map_lookup_elem(&control, &zero);
	if (!c || now >= c->lease)
		return to_stack(LEASE_OVER, ROW_NONE);
	if ((void *)(eth + 1) > end)
		return to_stack(NOT_PLAIN, ROW_NONE);
	port = bpf_map_lookup_elem(&xdp_ports, &index);
	if (!port || !is_for(eth, port))
		return to_stack(NOT_PLAIN, ROW_NONE);
	if (eth->h_proto == bpf_htons(ETH_P_IPV6))
		return xdp_from6(ctx, port, c, now);
	if (eth->h_proto == bpf_htons(ETH_P_IP))
		return xdp_from4(ctx, port, c, now);
	return to_stack(NOT_PLAIN, ROW_NONE);
}
#endif
