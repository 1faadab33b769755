/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Functions that Rust calls, declared again in src/sys.rs. A result of zero or more is success, less is an error number of
 * errno(3), negated. */
#ifndef GATUN_P4_SHIM_H
#define GATUN_P4_SHIM_H

#include <stddef.h>
#include <stdint.h>

#define NAME 64

struct rte_swx_pipeline;
struct rte_mempool;
struct rte_ring;

struct gatun_p4_counts {
	uint32_t tables, actions, arrays, meters;
};

/* Array of registers or of meters. */
struct gatun_p4_array {
	char name[NAME];
	uint32_t size;
};

/* Rates of a meter: units per second, and units at once. */
struct gatun_p4_rates {
	uint64_t cir, cbs, pir, pbs;
};

struct gatun_p4_table {
	char name[NAME];
	uint32_t fields, actions, size;
};

struct gatun_p4_field {
	uint32_t is_exact, is_header, bits, offset;
};

struct gatun_p4_action {
	char name[NAME];
	uint32_t arguments;
};

struct gatun_p4_argument {
	char name[NAME];
	uint32_t bits, is_network_order;
};

/* An entry. Key, mask and data are as the table's lookup reads them; data has the size of the table's largest action. */
struct gatun_p4_entry {
	uint8_t *key, *mask, *data;
	uint64_t action;
	uint32_t priority; /* 0: highest */
};

struct gatun_p4_shape {
	uint32_t is_exact, key_len, key_offset, data_len, size;
	uint8_t *key_mask;
};

struct gatun_p4_port {
	int32_t device; /* number of the device; negative: none, frames are only in the rings */
	struct rte_ring *in, *out;
	uint64_t received, sent, truncated, runts, lost_in, lost_out;
};

/* Code that takes packets through a program. */
typedef void gatun_p4_run(struct rte_swx_pipeline *p, uint32_t max);

/* Buckets at which insertions into a table of this code have looked. */
typedef uint64_t gatun_p4_steps(struct rte_swx_pipeline *p, uint32_t table);

/* The host's own code of a program. */
struct gatun_p4_code {
	gatun_p4_run *run;
	gatun_p4_steps *steps;
};

struct gatun_p4_shim {
	int (*start)(int argc, char **argv);
	const char *(*version)(void);
	int (*translate)(const char *spec, const char *code, uint32_t *line, char *message, size_t len);
	int (*build)(struct rte_swx_pipeline **out, struct gatun_p4_code *own_code, const char *name, const char *object,
		     char *ports, size_t len);
	void (*run)(struct rte_swx_pipeline *p, uint32_t instructions);
	void (*flush)(struct rte_swx_pipeline *p);
	void (*free)(struct rte_swx_pipeline *p);
	int (*counts)(struct rte_swx_pipeline *p, struct gatun_p4_counts *out);
	int (*table)(struct rte_swx_pipeline *p, uint32_t table, struct gatun_p4_table *out);
	int (*field)(struct rte_swx_pipeline *p, uint32_t table, uint32_t field, struct gatun_p4_field *out);
	int (*table_action)(struct rte_swx_pipeline *p, uint32_t table, uint32_t number, uint32_t *action);
	int (*action)(struct rte_swx_pipeline *p, uint32_t action, struct gatun_p4_action *out);
	int (*argument)(struct rte_swx_pipeline *p, uint32_t action, uint32_t number, struct gatun_p4_argument *out);
	int (*array)(struct rte_swx_pipeline *p, uint32_t number, struct gatun_p4_array *out);
	int (*meter)(struct rte_swx_pipeline *p, uint32_t number, struct gatun_p4_array *out);
	int (*add)(struct rte_swx_pipeline *p, uint32_t table, const struct gatun_p4_entry *entry);
	int (*remove)(struct rte_swx_pipeline *p, uint32_t table, const struct gatun_p4_entry *entry);
	int (*fill)(struct rte_swx_pipeline *p, uint32_t table, const struct gatun_p4_shape *shape,
		    const struct gatun_p4_entry *entries, uint32_t count, void **old);
	void (*discard)(struct rte_swx_pipeline *p, uint32_t table, void *old);
	int (*read_register)(struct rte_swx_pipeline *p, const char *name, uint32_t index, uint64_t *value);
	int (*write_register)(struct rte_swx_pipeline *p, const char *name, uint32_t index, uint64_t value);
	int (*limit)(struct rte_swx_pipeline *p, const char *meter, uint32_t index, const char *profile,
		     const struct gatun_p4_rates *rates);
	int (*forget_limit)(struct rte_swx_pipeline *p, const char *profile);
	int (*port_drops)(struct rte_swx_pipeline *p, uint32_t port, uint64_t *drops);
	struct rte_mempool *(*pool)(const char *name, uint32_t buffers);
	struct rte_ring *(*ring)(const char *name, uint32_t len);
	int (*device)(const char *name, const char *arguments, struct rte_mempool *pool);
	void (*device_close)(int device);
	int (*take)(struct rte_ring *ring, uint8_t *frame, uint16_t room);
	void (*receive)(struct gatun_p4_port *ports, uint32_t count, uint32_t controller);
	void (*send)(struct gatun_p4_port *ports, uint32_t count);
	int (*admit)(struct gatun_p4_port *ports, uint32_t number, uint32_t controller, struct rte_mempool *pool,
		     const uint8_t *frame, uint16_t len);
};

#endif
