/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Run time of the code that src/code.rs makes of a program: exact tables, and the loop that takes packets through it.
 *
 * A packet goes through the program without a stop, with metadata and headers in variables. If a table is larger than the cache,
 * all packets of a burst go through the probe first. It finds the entries that they will need, so that all of them are read
 * from memory at once, and changes nothing: its result may be wrong, and then a packet only waits. No packet is in the program
 * between two calls of gatun_run, so that entries change without regard to packets.
 *
 * This file comes behind definitions of the program: GATUN_ACTIONS, GATUN_TABLES, GATUN_ARRAYS, GATUN_METERS,
 * GATUN_SHAPES. */
#ifndef GATUN_P4_PACKET_H
#define GATUN_P4_PACKET_H

#include <emmintrin.h>
#include <errno.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "rte_swx_pipeline_internal.h"

#define LANES 8
#define WORDS_MAX 32
#define UNIT 16 /* of places, bytes */
#define LARGE (16 << 10) /* bytes of entries: fewer stay in the nearest cache while packets go through it */
#define BURST 16
#define LATER 4

/* Table. A bucket has a tag and a place for each of its entries. All buckets of a chain are full, except the last. An entry is its
 * key, the number of its action in 8 bytes, and the action's data. Memory without entries is only address space. */
struct gatun_bucket {
	uint16_t tags[LANES]; /* 0: free */
	uint32_t places[LANES]; /* of entries, in units */
	uint32_t next; /* number of the chain's next bucket, or 0 */
	uint32_t free; /* number of the next free bucket, or 0 */
} __rte_cache_aligned;

struct gatun_table {
	struct gatun_bucket *buckets; /* those at the begin of chains, then others */
	uint8_t *entries;
	uint64_t mask, secret[2];
	uint32_t is_large;
	uint32_t words, key_len, data_len, stride, size, used;
	uint32_t entries_touched, free_entry; /* free_entry: its place + 1 unit, or 0 */
	uint32_t buckets_touched, free_bucket;
	uint64_t steps; /* buckets at which insertions have looked */
	size_t len;
};

static __rte_always_inline uint64_t gatun_mix(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* With numbers that nobody knows: strangers choose addresses and ports, and could fill one bucket otherwise. */
static __rte_always_inline uint64_t gatun_hash(const struct gatun_table *t, const uint64_t *key, uint32_t words)
{
	uint64_t hash = t->secret[0];
	uint32_t i;

	for (i = 0; i + 1 < words; i += 2)
		hash = gatun_mix(key[i] ^ t->secret[1], key[i + 1] ^ hash);
	return i < words ? gatun_mix(key[i] ^ t->secret[1], hash) : hash;
}

static __rte_always_inline uint16_t gatun_tag(uint64_t hash)
{
	return (uint16_t)(hash >> 48 | 1);
}

/* Bits of the lanes with this tag, two for each. */
static __rte_always_inline uint32_t gatun_lanes(const struct gatun_bucket *bucket, uint16_t tag)
{
	__m128i tags = _mm_load_si128((const __m128i *)bucket->tags);

	return (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi16(tags, _mm_set1_epi16((short)tag)));
}

static __rte_always_inline uint8_t *gatun_entry(const struct gatun_table *t, uint32_t place)
{
	return t->entries + (uint64_t)place * UNIT;
}

/* The entry, or nothing. If there is one, `at` is its lane. Packets do not count `steps`. */
static __rte_always_inline uint8_t *gatun_find_in(const struct gatun_table *t, struct gatun_bucket **bucket, uint32_t *at,
						  uint64_t hash, const uint64_t *key, uint32_t words, uint64_t *steps)
{
	for (;;) {
		uint32_t lanes = gatun_lanes(*bucket, gatun_tag(hash));

		if (steps != NULL)
			++*steps;
		while (lanes != 0) {
			uint32_t lane = (uint32_t)__builtin_ctz(lanes) / 2;
			uint8_t *entry = gatun_entry(t, (*bucket)->places[lane]);
			uint64_t other = 0;

			for (uint32_t i = 0; i < words; i++)
				other |= ((const uint64_t *)entry)[i] ^ key[i];
			if (likely(other == 0)) {
				*at = lane;
				return entry;
			}
			lanes &= lanes - 1;
			lanes &= lanes - 1;
		}
		if (likely((*bucket)->next == 0))
			return NULL;
		*bucket = &t->buckets[(*bucket)->next];
	}
}

static __rte_always_inline const uint8_t *gatun_find(const struct gatun_table *t, uint64_t hash, const uint64_t *key,
						     uint32_t words)
{
	struct gatun_bucket *bucket = &t->buckets[hash & t->mask];
	uint32_t lane;

	return gatun_find_in(t, &bucket, &lane, hash, key, words, NULL);
}

/* Reads the entry that the hash promises into the cache. */
static __rte_always_inline void gatun_approach(const struct gatun_table *t, uint64_t hash)
{
	const struct gatun_bucket *bucket = &t->buckets[hash & t->mask];
	uint32_t lanes = gatun_lanes(bucket, gatun_tag(hash));

	if (likely(lanes != 0)) {
		const uint8_t *entry = gatun_entry(t, bucket->places[__builtin_ctz(lanes) / 2]);

		rte_prefetch0(entry);
		rte_prefetch0(entry + RTE_MIN(64u, t->stride - 1));
		rte_prefetch0(entry + t->stride - 1);
	}
}

static uint64_t gatun_key(const struct gatun_table *t, const uint8_t *bytes, uint64_t *key)
{
	key[t->words - 1] = 0;
	memcpy(key, bytes, t->key_len);
	return gatun_hash(t, key, t->words);
}

static int gatun_insert(struct gatun_table *t, uint64_t hash, uint8_t **entry)
{
	struct gatun_bucket *bucket = &t->buckets[hash & t->mask];
	uint32_t lane = 0, place, number;

	if (t->used == t->size)
		return -ENOSPC;
	t->steps++;
	while (bucket->next != 0) {
		bucket = &t->buckets[bucket->next];
		t->steps++;
	}
	while (lane < LANES && bucket->tags[lane] != 0)
		lane++;
	if (lane == LANES) {
		/* There is one for each LANES entries, which is enough as others of a chain are full. */
		number = t->free_bucket != 0 ? t->free_bucket : t->buckets_touched++;
		bucket->next = number;
		bucket = &t->buckets[number];
		t->free_bucket = t->free_bucket != 0 ? bucket->free : 0;
		memset(bucket, 0, sizeof(*bucket));
		lane = 0;
	}
	if (t->free_entry != 0) {
		place = t->free_entry - 1;
		memcpy(&t->free_entry, gatun_entry(t, place), sizeof(t->free_entry));
	} else {
		place = t->entries_touched++ * (t->stride / UNIT);
	}
	bucket->tags[lane] = gatun_tag(hash);
	bucket->places[lane] = place;
	t->used++;
	t->is_large = (uint64_t)t->used * t->stride > LARGE;
	*entry = gatun_entry(t, place);
	return 0;
}

static int gatun_add(void *table, struct rte_swx_table_entry *new)
{
	struct gatun_table *t = table;
	uint64_t key[WORDS_MAX], hash = gatun_key(t, new->key, key);
	struct gatun_bucket *bucket = &t->buckets[hash & t->mask];
	uint32_t lane;
	uint8_t *entry = gatun_find_in(t, &bucket, &lane, hash, key, t->words, &t->steps);

	if (entry == NULL) {
		int status = gatun_insert(t, hash, &entry);

		if (status != 0)
			return status;
	}
	memcpy(entry, key, 8 * t->words);
	memcpy(entry + 8 * t->words, &new->action_id, 8);
	if (new->action_data != NULL)
		memcpy(entry + 8 * t->words + 8, new->action_data, t->data_len);
	return 0;
}

static int gatun_delete(void *table, struct rte_swx_table_entry *old)
{
	struct gatun_table *t = table;
	uint64_t key[WORDS_MAX], hash = gatun_key(t, old->key, key);
	struct gatun_bucket *bucket = &t->buckets[hash & t->mask], *last = bucket, *before;
	uint32_t lane, end = LANES - 1;
	uint8_t *entry = gatun_find_in(t, &bucket, &lane, hash, key, t->words, NULL);

	if (entry == NULL)
		return 0;
	memcpy(entry, &t->free_entry, sizeof(t->free_entry));
	t->free_entry = bucket->places[lane] + 1;
	/* The chain's last entry takes the place. */
	while (last->next != 0)
		last = &t->buckets[last->next];
	while (last->tags[end] == 0)
		end--;
	bucket->tags[lane] = last->tags[end];
	bucket->places[lane] = last->places[end];
	last->tags[end] = 0;
	if (end == 0 && last > &t->buckets[t->mask]) {
		uint32_t number = (uint32_t)(last - t->buckets);

		for (before = &t->buckets[hash & t->mask]; before->next != number;)
			before = &t->buckets[before->next];
		before->next = 0;
		last->free = t->free_bucket;
		t->free_bucket = number;
	}
	t->used--;
	t->is_large = (uint64_t)t->used * t->stride > LARGE;
	return 0;
}

static void gatun_free(void *table)
{
	struct gatun_table *t = table;

	if (t != NULL)
		munmap(t, t->len);
}

static void *gatun_create(struct rte_swx_table_params *params, struct rte_swx_table_entry_list *entries,
			  const char *args __rte_unused, int node __rte_unused)
{
	uint32_t words = (params->key_size + 7) / 8, chains = rte_align32pow2((params->n_keys_max + 3) / 4);
	uint32_t stride = RTE_ALIGN(8 * words + 8 + params->action_data_size, UNIT);
	size_t head = RTE_CACHE_LINE_ROUNDUP(sizeof(struct gatun_table));
	size_t buckets = ((size_t)chains + params->n_keys_max / LANES + 1) * sizeof(struct gatun_bucket);
	size_t len = head + buckets + (size_t)params->n_keys_max * stride;
	struct rte_swx_table_entry *entry;
	struct gatun_table *t;

	t = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (t == MAP_FAILED)
		return NULL;
	(void)madvise(t, len, MADV_HUGEPAGE); /* not every kernel has them */
	t->buckets = (struct gatun_bucket *)((uint8_t *)t + head);
	t->entries = (uint8_t *)t->buckets + buckets;
	t->mask = chains - 1;
	t->words = words;
	t->key_len = params->key_size;
	t->data_len = params->action_data_size;
	t->stride = stride;
	t->size = params->n_keys_max;
	t->buckets_touched = chains;
	t->len = len;
	if (getrandom(t->secret, sizeof(t->secret), 0) != sizeof(t->secret)) {
		gatun_free(t);
		return NULL;
	}
	if (entries == NULL)
		return t;
	TAILQ_FOREACH(entry, entries, node) {
		if (gatun_add(t, entry) != 0) {
			gatun_free(t);
			return NULL;
		}
	}
	return t;
}

/* The pipeline's own instructions are never run, so that nothing looks up through it. */
static int gatun_look_up(void *table __rte_unused, void *mailbox __rte_unused, uint8_t **key __rte_unused,
			 uint64_t *action __rte_unused, uint8_t **data __rte_unused, size_t *entry __rte_unused, int *hit)
{
	*hit = 0;
	return 1;
}

static struct table_type gatun_table_type = {
	.name = "gatun",
	.match_type = RTE_SWX_TABLE_MATCH_EXACT,
	.ops = {.create = gatun_create,
		.add = gatun_add,
		.del = gatun_delete,
		.lkp = gatun_look_up,
		.free = gatun_free},
};

/* Buckets at which insertions into an exact table have looked. */
__attribute__((visibility("default"))) uint64_t gatun_steps(struct rte_swx_pipeline *p, uint32_t table)
{
	return ((const struct gatun_table *)p->table_state[table].obj)->steps;
}

/* Bytes in memory: a packet's are in network order, an entry's in the processor's. */
static __rte_always_inline uint64_t gatun_load(const uint8_t *at, uint32_t bits)
{
	uint16_t a = 0;
	uint32_t b = 0;
	uint64_t c = 0;

	switch (bits) {
	case 8:
		return *at;
	case 16:
		memcpy(&a, at, 2);
		return a;
	case 32:
		memcpy(&b, at, 4);
		return b;
	case 48:
		memcpy(&b, at, 4);
		memcpy(&a, at + 4, 2);
		return b | (uint64_t)a << 32;
	}
	memcpy(&c, at, bits / 8);
	return c;
}

static __rte_always_inline void gatun_store(uint8_t *at, uint32_t bits, uint64_t value)
{
	uint16_t a = (uint16_t)value;
	uint32_t b = (uint32_t)value;

	switch (bits) {
	case 8:
		*at = (uint8_t)value;
		return;
	case 16:
		memcpy(at, &a, 2);
		return;
	case 32:
		memcpy(at, &b, 4);
		return;
	case 48:
		a = (uint16_t)(value >> 32);
		memcpy(at, &b, 4);
		memcpy(at + 4, &a, 2);
		return;
	}
	memcpy(at, &value, bits / 8);
}

static __rte_always_inline uint64_t gatun_swap(uint64_t value, uint32_t bits)
{
	switch (bits) {
	case 16:
		return __builtin_bswap16((uint16_t)value);
	case 32:
		return __builtin_bswap32((uint32_t)value);
	}
	return __builtin_bswap64(value) >> (64 - bits);
}

/* Adds up a checksum (RFC 1071) and complements it. The result is not zero. */
static __rte_always_inline uint64_t gatun_checksum(uint64_t sum)
{
	for (int i = 0; i < 4; i++)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum == 0xffff ? 0xffff : ~sum & 0xffff;
}

/* An exact table of the program. */
struct gatun_shape {
	uint32_t table, key_len, data_len, size;
};

/* A packet in the program. */
struct gatun_frame {
	struct rte_swx_pkt pkt;
	uint32_t port;
	uint32_t later_count;
	const struct gatun_table *table; /* large, with the entry that the packet will need; or nothing */
	uint64_t hash;
	struct {
		uint64_t *cell;
		uint64_t value;
	} later[LATER]; /* additions to counters that are not in the cache */
};

static const uint8_t gatun_nothing[512];

static void gatun_probe(struct rte_swx_pipeline *p, struct gatun_frame *f);
static void gatun_packet(struct rte_swx_pipeline *p, struct gatun_frame *f);

/* The packet will need an entry of a large table. */
static __rte_always_inline void gatun_seek(struct gatun_frame *f, const struct gatun_table *table, uint64_t hash)
{
	f->table = table;
	f->hash = hash;
	rte_prefetch0(&table->buckets[hash & table->mask]);
}

/* Sends the packet, which begins at `start`. A port that does not exist drops it, as the last one does. */
static __rte_always_inline void gatun_send(struct rte_swx_pipeline *p, struct gatun_frame *f, const uint8_t *start,
					   uint64_t number)
{
	struct port_out_runtime *port = &p->out[RTE_MIN(number, (uint64_t)p->n_ports_out - 1)];
	uint32_t offset = (uint32_t)(start - f->pkt.pkt);

	f->pkt.length += f->pkt.offset - offset;
	f->pkt.offset = offset;
	port->pkt_tx(port->obj, &f->pkt);
}

static __rte_always_inline void gatun_drop(struct rte_swx_pipeline *p, struct gatun_frame *f)
{
	struct port_out_runtime *port = &p->out[p->n_ports_out - 1];

	port->pkt_tx(port->obj, &f->pkt);
}

static __rte_always_inline uint64_t *gatun_cell(struct rte_swx_pipeline *p, uint32_t array, uint64_t index)
{
	struct regarray_runtime *r = &p->regarray_runtime[array];

	return &r->regarray[index & r->size_mask];
}

/* A packet of a large table adds to its counters after all packets of the burst. */
static __rte_always_inline void gatun_count(struct gatun_frame *f, uint64_t *cell, uint64_t value, int can_wait)
{
	if (can_wait && f->table != NULL && f->later_count < LATER) {
		rte_prefetch0(cell);
		f->later[f->later_count].cell = cell;
		f->later[f->later_count++].value = value;
	} else {
		*cell += value;
	}
}

static __rte_noinline uint64_t gatun_meter(struct rte_swx_pipeline *p, uint32_t array, uint64_t index, uint32_t len,
					   enum rte_color color)
{
	struct metarray_runtime *r = &p->metarray_runtime[array];
	struct meter *m = &r->metarray[index & r->size_mask];

	color = rte_meter_trtcm_color_aware_check(&m->m, &m->profile->profile, rte_get_tsc_cycles(), len, color);
	color &= m->color_mask;
	m->n_pkts[color]++;
	m->n_bytes[color] += len;
	return color;
}

/* Look-up in a table with masks, which is DPDK's. `key` is the structure of the table's fields. */
static __rte_noinline int gatun_match(struct rte_swx_pipeline *p, uint32_t table, uint8_t *key, uint64_t *action,
				      const uint8_t **data)
{
	struct table_runtime *r = &p->threads[0].tables[table];
	uint8_t *found;
	size_t entry;
	int hit = 0;

	while (!r->func(p->table_state[table].obj, r->mailbox, &key, action, &found, &entry, &hit))
		;
	*data = found;
	return hit;
}

/* Whether packets can need an entry that is not in the cache. */
static __rte_always_inline int gatun_is_large(const struct rte_swx_pipeline *p)
{
	static const struct gatun_shape shapes[] = {GATUN_SHAPES{0, 0, 0, 0}};
	uint32_t large = 0;

	for (uint32_t i = 0; i + 1 < RTE_DIM(shapes); i++)
		large |= ((const struct gatun_table *)p->table_state[shapes[i].table].obj)->is_large;
	return large != 0;
}

static __rte_noinline uint32_t gatun_burst(struct rte_swx_pipeline *p, uint32_t number, uint32_t max)
{
	struct port_in_runtime *port = &p->in[number];
	struct gatun_frame frames[BURST];
	uint32_t count = 0;

	for (; count < max && port->pkt_rx(port->obj, &frames[count].pkt); count++) {
		rte_prefetch0(frames[count].pkt.pkt + frames[count].pkt.offset);
		frames[count].port = number;
		frames[count].later_count = 0;
		frames[count].table = NULL;
	}
	if (count != 0 && gatun_is_large(p)) {
		for (uint32_t i = 0; i < count; i++)
			gatun_probe(p, &frames[i]);
		for (uint32_t i = 0; i < count; i++)
			if (likely(frames[i].table != NULL))
				gatun_approach(frames[i].table, frames[i].hash);
	}
	for (uint32_t i = 0; i < count; i++)
		gatun_packet(p, &frames[i]);
	for (uint32_t i = 0; i < count; i++)
		for (uint32_t k = 0; k < frames[i].later_count; k++)
			*frames[i].later[k].cell += frames[i].later[k].value;
	return count;
}

/* Takes packets through the program: at most `max`, and all that wait at a port if there are fewer. */
__attribute__((visibility("default"))) void gatun_run(struct rte_swx_pipeline *p, uint32_t max)
{
	uint32_t idle = 0;

	while (max != 0 && idle < p->n_ports_in) {
		uint32_t count = gatun_burst(p, p->port_id, RTE_MIN(max, BURST));

		max -= count;
		idle = count == 0 ? idle + 1 : 0;
		pipeline_port_inc(p);
	}
}

/* Whether objects have these names, in the order of their numbers. */
#define GATUN_CHECK(list, ...) \
	do { \
		static const char *const names[] = {__VA_ARGS__}; \
		uint32_t at = 0; \
		TAILQ_FOREACH (list##_element, &p->list, node) { \
			if (at + 1 >= RTE_DIM(names) || strcmp(names[at], list##_element->name) != 0) \
				return -EINVAL; \
			at++; \
		} \
		if (at + 1 != RTE_DIM(names)) \
			return -EINVAL; \
	} while (0)

/* Gives the pipeline tables of this file, in place of its exact ones. */
__attribute__((visibility("default"))) int gatun_install(struct rte_swx_pipeline *p)
{
	static const struct gatun_shape shapes[] = {GATUN_SHAPES{0, 0, 0, 0}};
	struct action *actions_element;
	struct table *tables_element, *table;
	struct regarray *regarrays_element;
	struct metarray *metarrays_element;

	GATUN_CHECK(actions, GATUN_ACTIONS "");
	GATUN_CHECK(tables, GATUN_TABLES "");
	GATUN_CHECK(regarrays, GATUN_ARRAYS "");
	GATUN_CHECK(metarrays, GATUN_METERS "");
	for (const struct gatun_shape *shape = shapes; shape->size != 0; shape++) {
		struct rte_swx_table_state *state = &p->table_state[shape->table];
		struct rte_swx_table_params params = {.key_size = shape->key_len,
						      .action_data_size = shape->data_len,
						      .n_keys_max = shape->size};
		void *new = gatun_create(&params, NULL, NULL, 0);

		if (new == NULL)
			return -ENOMEM;
		TAILQ_FOREACH(table, &p->tables, node) {
			if (table->id == shape->table) {
				table->type->ops.free(state->obj);
				state->obj = new;
				table->type = &gatun_table_type;
				table->size = shape->size;
			}
		}
	}
	return 0;
}

#endif
