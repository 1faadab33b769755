/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Instructions of a compiled program that read and write each field in its own width.
 *
 * DPDK's read and write 8 bytes at each field, and mask those of its neighbours. A processor does not forward such a value from
 * the write of a neighbour to a read: it waits until both are in its cache. This file comes before the generated code, which
 * takes these instructions then. Others stay DPDK's. GATUN_METADATA is the number of the metadata among the structures. */
#ifndef GATUN_P4_INSTRUCTIONS_H
#define GATUN_P4_INSTRUCTIONS_H

#include "rte_swx_pipeline_internal.h"

#define INSTRUCTION static __rte_always_inline void

static __rte_always_inline uint64_t gatun_load(const uint8_t *at, uint32_t bits)
{
	uint16_t a;
	uint32_t b;
	uint64_t c;

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
	memcpy(&c, at, 8);
	return c & UINT64_MAX >> (64 - bits);
}

static __rte_always_inline void gatun_store(uint8_t *at, uint32_t bits, uint64_t value)
{
	uint16_t a = (uint16_t)value;
	uint32_t b = (uint32_t)value;
	uint64_t c;

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
	case 64:
		memcpy(at, &value, 8);
		return;
	}
	memcpy(&c, at, 8);
	c = (c & ~(UINT64_MAX >> (64 - bits))) | (value & UINT64_MAX >> (64 - bits));
	memcpy(at, &c, 8);
}

static __rte_always_inline uint64_t gatun_swap(uint64_t value, uint32_t bits)
{
	return rte_bswap64(value) >> (64 - bits);
}

/* A function of the generated code. It gets the metadata and the list of the other structures as pointers that share nothing with
 * each other, nor with a packet or an entry. So the compiler need not read a value again, or write it at once, because a header
 * was written. GATUN_OTHER stands around the instructions that are DPDK's, which reach the same memory by pointers of their own. */
#define GATUN_FUNCTION(name) \
	static __rte_noinline void gatun_##name(struct rte_swx_pipeline *p, struct thread *t, \
						uint8_t *restrict gatun_metadata, uint8_t **restrict gatun_structs); \
	void name(struct rte_swx_pipeline *p) \
	{ \
		struct thread *t = &p->threads[p->thread_id]; \
		gatun_##name(p, t, t->metadata, t->structs); \
	} \
	static __rte_noinline void gatun_##name(struct rte_swx_pipeline *p, struct thread *t, \
						uint8_t *restrict gatun_metadata, uint8_t **restrict gatun_structs)
#define GATUN_OTHER(instruction) \
	do { \
		rte_compiler_barrier(); \
		instruction; \
		rte_compiler_barrier(); \
	} while (0)

struct gatun_place {
	uint8_t *metadata;
	uint8_t **structs;
};
#define HERE ((struct gatun_place){gatun_metadata, gatun_structs})

static __rte_always_inline uint8_t *gatun_at(struct gatun_place place, const struct instr_operand *x)
{
	uint8_t *start = x->struct_id == GATUN_METADATA ? place.metadata : place.structs[x->struct_id];

	return &start[x->offset];
}

static __rte_always_inline uint64_t gatun_get(struct gatun_place place, const struct instr_operand *x)
{
	return gatun_load(gatun_at(place, x), x->n_bits);
}

/* Of a header: in network order. */
static __rte_always_inline uint64_t gatun_get_h(struct gatun_place place, const struct instr_operand *x)
{
	return gatun_swap(gatun_get(place, x), x->n_bits);
}

static __rte_always_inline void gatun_set(struct gatun_place place, const struct instr_operand *x, uint64_t value)
{
	gatun_store(gatun_at(place, x), x->n_bits, value);
}

static __rte_always_inline void gatun_set_h(struct gatun_place place, const struct instr_operand *x, uint64_t value)
{
	gatun_set(place, x, gatun_swap(value, x->n_bits));
}

#define MOVE(name, get, set) \
	INSTRUCTION gatun_##name(struct gatun_place place, const struct instruction *ip) \
	{ \
		set(place, &ip->mov.dst, get); \
	}
MOVE(mov, gatun_get(place, &ip->mov.src), gatun_set)
MOVE(mov_mh, gatun_get_h(place, &ip->mov.src), gatun_set)
MOVE(mov_hm, gatun_get(place, &ip->mov.src), gatun_set_h)
MOVE(mov_hh, gatun_get_h(place, &ip->mov.src), gatun_set_h)
MOVE(mov_i, ip->mov.src_val, gatun_set) /* in the order of its destination */
#define __instr_mov_exec(p, t, ip) gatun_mov(HERE, ip)
#define __instr_mov_mh_exec(p, t, ip) gatun_mov_mh(HERE, ip)
#define __instr_mov_hm_exec(p, t, ip) gatun_mov_hm(HERE, ip)
#define __instr_mov_hh_exec(p, t, ip) gatun_mov_hh(HERE, ip)
#define __instr_mov_i_exec(p, t, ip) gatun_mov_i(HERE, ip)

#define COMPUTE(name, get_dst, operator, src, set) \
	INSTRUCTION gatun_##name(struct gatun_place place, const struct instruction *ip) \
	{ \
		set(place, &ip->alu.dst, get_dst(place, &ip->alu.dst) operator src); \
	}
#define COMPUTE_ALL(name, operator) \
	COMPUTE(name, gatun_get, operator, gatun_get(place, &ip->alu.src), gatun_set) \
	COMPUTE(name##_mh, gatun_get, operator, gatun_get_h(place, &ip->alu.src), gatun_set) \
	COMPUTE(name##_hm, gatun_get_h, operator, gatun_get(place, &ip->alu.src), gatun_set_h) \
	COMPUTE(name##_hh, gatun_get_h, operator, gatun_get_h(place, &ip->alu.src), gatun_set_h)
#define COMPUTE_NUMBER(name, operator) \
	COMPUTE(name##_mi, gatun_get, operator, ip->alu.src_val, gatun_set) \
	COMPUTE(name##_hi, gatun_get_h, operator, ip->alu.src_val, gatun_set_h)
#define COMPUTE_BITS(name, operator) /* the number is in the order of its destination */ \
	COMPUTE(name##_i, gatun_get, operator, ip->alu.src_val, gatun_set)
COMPUTE_ALL(add, +)
COMPUTE_ALL(sub, -)
COMPUTE_ALL(shl, <<)
COMPUTE_ALL(shr, >>)
COMPUTE_ALL(and, &)
COMPUTE_ALL(or, |)
COMPUTE_ALL(xor, ^)
COMPUTE_NUMBER(add, +)
COMPUTE_NUMBER(sub, -)
COMPUTE_NUMBER(shl, <<)
COMPUTE_NUMBER(shr, >>)
COMPUTE_BITS(and, &)
COMPUTE_BITS(or, |)
COMPUTE_BITS(xor, ^)
#define __instr_alu_add_exec(p, t, ip) gatun_add(HERE, ip)
#define __instr_alu_add_mh_exec(p, t, ip) gatun_add_mh(HERE, ip)
#define __instr_alu_add_hm_exec(p, t, ip) gatun_add_hm(HERE, ip)
#define __instr_alu_add_hh_exec(p, t, ip) gatun_add_hh(HERE, ip)
#define __instr_alu_add_mi_exec(p, t, ip) gatun_add_mi(HERE, ip)
#define __instr_alu_add_hi_exec(p, t, ip) gatun_add_hi(HERE, ip)
#define __instr_alu_sub_exec(p, t, ip) gatun_sub(HERE, ip)
#define __instr_alu_sub_mh_exec(p, t, ip) gatun_sub_mh(HERE, ip)
#define __instr_alu_sub_hm_exec(p, t, ip) gatun_sub_hm(HERE, ip)
#define __instr_alu_sub_hh_exec(p, t, ip) gatun_sub_hh(HERE, ip)
#define __instr_alu_sub_mi_exec(p, t, ip) gatun_sub_mi(HERE, ip)
#define __instr_alu_sub_hi_exec(p, t, ip) gatun_sub_hi(HERE, ip)
#define __instr_alu_shl_exec(p, t, ip) gatun_shl(HERE, ip)
#define __instr_alu_shl_mh_exec(p, t, ip) gatun_shl_mh(HERE, ip)
#define __instr_alu_shl_hm_exec(p, t, ip) gatun_shl_hm(HERE, ip)
#define __instr_alu_shl_hh_exec(p, t, ip) gatun_shl_hh(HERE, ip)
#define __instr_alu_shl_mi_exec(p, t, ip) gatun_shl_mi(HERE, ip)
#define __instr_alu_shl_hi_exec(p, t, ip) gatun_shl_hi(HERE, ip)
#define __instr_alu_shr_exec(p, t, ip) gatun_shr(HERE, ip)
#define __instr_alu_shr_mh_exec(p, t, ip) gatun_shr_mh(HERE, ip)
#define __instr_alu_shr_hm_exec(p, t, ip) gatun_shr_hm(HERE, ip)
#define __instr_alu_shr_hh_exec(p, t, ip) gatun_shr_hh(HERE, ip)
#define __instr_alu_shr_mi_exec(p, t, ip) gatun_shr_mi(HERE, ip)
#define __instr_alu_shr_hi_exec(p, t, ip) gatun_shr_hi(HERE, ip)
#define __instr_alu_and_exec(p, t, ip) gatun_and(HERE, ip)
#define __instr_alu_and_mh_exec(p, t, ip) gatun_and_mh(HERE, ip)
#define __instr_alu_and_hm_exec(p, t, ip) gatun_and_hm(HERE, ip)
#define __instr_alu_and_hh_exec(p, t, ip) gatun_and_hh(HERE, ip)
#define __instr_alu_and_i_exec(p, t, ip) gatun_and_i(HERE, ip)
#define __instr_alu_or_exec(p, t, ip) gatun_or(HERE, ip)
#define __instr_alu_or_mh_exec(p, t, ip) gatun_or_mh(HERE, ip)
#define __instr_alu_or_hm_exec(p, t, ip) gatun_or_hm(HERE, ip)
#define __instr_alu_or_hh_exec(p, t, ip) gatun_or_hh(HERE, ip)
#define __instr_alu_or_i_exec(p, t, ip) gatun_or_i(HERE, ip)
#define __instr_alu_xor_exec(p, t, ip) gatun_xor(HERE, ip)
#define __instr_alu_xor_mh_exec(p, t, ip) gatun_xor_mh(HERE, ip)
#define __instr_alu_xor_hm_exec(p, t, ip) gatun_xor_hm(HERE, ip)
#define __instr_alu_xor_hh_exec(p, t, ip) gatun_xor_hh(HERE, ip)
#define __instr_alu_xor_i_exec(p, t, ip) gatun_xor_i(HERE, ip)

/* Comparisons of jumps. */
#define instr_operand_hbo(t, x) gatun_get(HERE, x)
#define instr_operand_nbo(t, x) gatun_get_h(HERE, x)

static __rte_always_inline uint64_t *gatun_register(struct rte_swx_pipeline *p, struct gatun_place place,
						    const struct instruction *ip)
{
	struct regarray_runtime *array = &p->regarray_runtime[ip->regarray.regarray_id];

	return &array->regarray[gatun_get(place, &ip->regarray.idx) & array->size_mask];
}
#define __instr_regadd_rmi_exec(p, t, ip) (*gatun_register(p, HERE, ip) += (ip)->regarray.dstsrc_val)
#define __instr_regadd_rmm_exec(p, t, ip) (*gatun_register(p, HERE, ip) += gatun_get(HERE, &(ip)->regarray.dstsrc))
#define __instr_regrd_mrm_exec(p, t, ip) gatun_set(HERE, &(ip)->regarray.dstsrc, *gatun_register(p, HERE, ip))
#define __instr_regwr_rmm_exec(p, t, ip) (*gatun_register(p, HERE, ip) = gatun_get(HERE, &(ip)->regarray.dstsrc))

#endif
