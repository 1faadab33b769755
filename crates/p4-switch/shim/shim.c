/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Host of a SWX pipeline: everything that needs DPDK's headers.
 *
 * Entries go straight into the pipeline's own tables. DPDK's control library keeps a list beside each table and walks it for
 * each entry, so that a million entries never end. The pipeline and all changes of it belong to one thread: no look-up runs
 * during a change. In DPDK's own code, a packet between two steps of a look-up can still hold the address of an entry: `src/tables.rs`
 * lets the pipeline run between a removal and the next use of its place. */
#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_ring.h>
#include <rte_swx_ctl.h>
#include <rte_swx_pipeline.h>
#include <rte_version.h>

#define BURST 32
#define RX_RING 1024
#define TX_RING 1024
/* Bytes that the program may read behind the end of a frame: its longest headers. They belong to no other frame. */
#define TAIL 128
#define REASON_TRUNCATED 17

static int start(int argc, char **argv)
{
	return rte_eal_init(argc, argv) < 0 ? -(rte_errno ? rte_errno : EINVAL) : 0;
}

static const char *version(void)
{
	return rte_version();
}

static int translate(const char *spec, const char *code, uint32_t *line, char *message, size_t len)
{
	FILE *from = fopen(spec, "r"), *to = from ? fopen(code, "w") : NULL;
	const char *text = "";
	int status = -errno;

	if (to != NULL)
		status = rte_swx_pipeline_codegen(from, to, line, &text);
	snprintf(message, len, "%s", text);
	if (to != NULL && fclose(to) != 0 && status == 0)
		status = -errno;
	if (from != NULL)
		fclose(from);
	return status;
}

/* Prepares the host's own code of the program, if the object has it. */
static int install(struct rte_swx_pipeline *p, struct gatun_p4_code *own_code, const char *object)
{
	void *library = dlopen(object, RTLD_LAZY | RTLD_NOLOAD);
	int (*prepare)(struct rte_swx_pipeline *p), status = 0;

	if (library == NULL)
		return -ENOENT;
	prepare = (int (*)(struct rte_swx_pipeline *))dlsym(library, "gatun_install");
	if (prepare != NULL) {
		own_code->run = (gatun_p4_run *)dlsym(library, "gatun_run");
		own_code->steps = (gatun_p4_steps *)dlsym(library, "gatun_steps");
		status = own_code->run == NULL || own_code->steps == NULL ? -EINVAL : prepare(p);
	}
	/* The pipeline keeps it. */
	dlclose(library);
	return status;
}

static int build(struct rte_swx_pipeline **out, struct gatun_p4_code *own_code, const char *name, const char *object,
		 char *ports, size_t len)
{
	FILE *file = fmemopen(ports, len, "r");
	int status;

	if (file == NULL)
		return -errno;
	status = rte_swx_pipeline_build_from_lib(out, name, object, file, 0);
	fclose(file);
	if (status != 0)
		return status;
	status = install(*out, own_code, object);
	if (status != 0)
		rte_swx_pipeline_free(*out);
	return status;
}

static int counts(struct rte_swx_pipeline *p, struct gatun_p4_counts *out)
{
	struct rte_swx_ctl_pipeline_info info;
	int status = rte_swx_ctl_pipeline_info_get(p, &info);

	if (status == 0)
		*out = (struct gatun_p4_counts){.tables = info.n_tables,
					.actions = info.n_actions,
					.arrays = info.n_regarrays,
					.meters = info.n_metarrays};
	return status;
}

static int table(struct rte_swx_pipeline *p, uint32_t number, struct gatun_p4_table *out)
{
	struct rte_swx_ctl_table_info info;
	int status = rte_swx_ctl_table_info_get(p, number, &info);

	if (status != 0)
		return status;
	*out = (struct gatun_p4_table){.fields = info.n_match_fields, .actions = info.n_actions, .size = info.size};
	snprintf(out->name, sizeof(out->name), "%s", info.name);
	return 0;
}

static int field(struct rte_swx_pipeline *p, uint32_t number, uint32_t at, struct gatun_p4_field *out)
{
	struct rte_swx_ctl_table_match_field_info info;
	int status = rte_swx_ctl_table_match_field_info_get(p, number, at, &info);

	if (status == 0)
		*out = (struct gatun_p4_field){.is_exact = info.match_type == RTE_SWX_TABLE_MATCH_EXACT,
					       .is_header = info.is_header != 0,
					       .bits = info.n_bits,
					       .offset = info.offset};
	return status;
}

static int table_action(struct rte_swx_pipeline *p, uint32_t number, uint32_t at, uint32_t *out)
{
	struct rte_swx_ctl_table_action_info info;
	int status = rte_swx_ctl_table_action_info_get(p, number, at, &info);

	if (status == 0)
		*out = info.action_id;
	return status;
}

static int action(struct rte_swx_pipeline *p, uint32_t number, struct gatun_p4_action *out)
{
	struct rte_swx_ctl_action_info info;
	int status = rte_swx_ctl_action_info_get(p, number, &info);

	if (status != 0)
		return status;
	out->arguments = info.n_args;
	snprintf(out->name, sizeof(out->name), "%s", info.name);
	return 0;
}

static int argument(struct rte_swx_pipeline *p, uint32_t number, uint32_t at, struct gatun_p4_argument *out)
{
	struct rte_swx_ctl_action_arg_info info;
	int status = rte_swx_ctl_action_arg_info_get(p, number, at, &info);

	if (status != 0)
		return status;
	out->bits = info.n_bits;
	out->is_network_order = info.is_network_byte_order != 0;
	snprintf(out->name, sizeof(out->name), "%s", info.name);
	return 0;
}

static int array(struct rte_swx_pipeline *p, uint32_t number, struct gatun_p4_array *out)
{
	struct rte_swx_ctl_regarray_info info;
	int status = rte_swx_ctl_regarray_info_get(p, number, &info);

	if (status != 0)
		return status;
	out->size = info.size;
	snprintf(out->name, sizeof(out->name), "%s", info.name);
	return 0;
}

static int meter(struct rte_swx_pipeline *p, uint32_t number, struct gatun_p4_array *out)
{
	struct rte_swx_ctl_metarray_info info;
	int status = rte_swx_ctl_metarray_info_get(p, number, &info);

	if (status != 0)
		return status;
	out->size = info.size;
	snprintf(out->name, sizeof(out->name), "%s", info.name);
	return 0;
}

/* The table's operations and its place in the pipeline's state. */
static int reach(struct rte_swx_pipeline *p, uint32_t number, struct rte_swx_table_ops *ops,
		 struct rte_swx_table_state **state)
{
	struct rte_swx_table_state *states;
	int is_stub, status = rte_swx_ctl_table_ops_get(p, number, ops, &is_stub);

	if (status == 0)
		status = rte_swx_pipeline_table_state_get(p, &states);
	if (status == 0 && is_stub)
		status = -ENOTSUP;
	if (status == 0)
		*state = &states[number];
	return status;
}

static struct rte_swx_table_entry plain(const struct gatun_p4_entry *entry)
{
	return (struct rte_swx_table_entry){.key = entry->key,
					    .key_mask = entry->mask,
					    .key_priority = entry->priority,
					    .action_id = entry->action,
					    .action_data = entry->data};
}

static int add(struct rte_swx_pipeline *p, uint32_t number, const struct gatun_p4_entry *entry)
{
	struct rte_swx_table_entry new = plain(entry);
	struct rte_swx_table_state *state;
	struct rte_swx_table_ops ops;
	int status = reach(p, number, &ops, &state);

	if (status == 0 && ops.add == NULL)
		return -ENOTSUP;
	return status == 0 ? ops.add(state->obj, &new) : status;
}

static int remove_entry(struct rte_swx_pipeline *p, uint32_t number, const struct gatun_p4_entry *entry)
{
	struct rte_swx_table_entry old = plain(entry);
	struct rte_swx_table_state *state;
	struct rte_swx_table_ops ops;
	int status = reach(p, number, &ops, &state);

	if (status == 0 && ops.del == NULL)
		return -ENOTSUP;
	return status == 0 ? ops.del(state->obj, &old) : status;
}

/* Replaces a table by a new one: an empty one, or one without single changes (wildcard). `discard` frees the old one. */
static int fill(struct rte_swx_pipeline *p, uint32_t number, const struct gatun_p4_shape *shape,
		const struct gatun_p4_entry *entries, uint32_t count, void **old)
{
	struct rte_swx_table_params params = {.match_type = shape->is_exact ? RTE_SWX_TABLE_MATCH_EXACT
									    : RTE_SWX_TABLE_MATCH_WILDCARD,
					      .key_size = shape->key_len,
					      .key_offset = shape->key_offset,
					      .key_mask0 = shape->key_mask,
					      .action_data_size = shape->data_len,
					      .n_keys_max = shape->size};
	struct rte_swx_table_entry_list list = TAILQ_HEAD_INITIALIZER(list);
	struct rte_swx_table_entry *copies = calloc(count + 1, sizeof(*copies));
	struct rte_swx_table_state *state;
	struct rte_swx_table_ops ops;
	void *new;
	int status = reach(p, number, &ops, &state);

	if (copies == NULL)
		return -ENOMEM;
	if (status != 0) {
		free(copies);
		return status;
	}
	for (uint32_t i = 0; i < count; i++) {
		copies[i] = plain(&entries[i]);
		TAILQ_INSERT_TAIL(&list, &copies[i], node);
	}
	new = ops.create(&params, &list, "", 0);
	free(copies);
	if (new == NULL)
		return -ENOMEM;
	*old = state->obj;
	state->obj = new;
	return 0;
}

static void discard(struct rte_swx_pipeline *p, uint32_t number, void *old)
{
	struct rte_swx_table_state *state;
	struct rte_swx_table_ops ops;

	if (old != NULL && reach(p, number, &ops, &state) == 0)
		ops.free(old);
}

static int limit(struct rte_swx_pipeline *p, const char *meter, uint32_t index, const char *profile,
		 const struct gatun_p4_rates *rates)
{
	struct rte_meter_trtcm_params params = {
		.cir = rates->cir, .pir = rates->pir, .cbs = rates->cbs, .pbs = rates->pbs};
	int status = rte_swx_ctl_meter_profile_add(p, profile, &params);

	if (status != 0 && status != -EEXIST)
		return status;
	return rte_swx_ctl_meter_set(p, meter, index, profile);
}

/* Frames that the queue between the program and a port did not take. Of a port that does not exist: all its frames. */
static int port_drops(struct rte_swx_pipeline *p, uint32_t port, uint64_t *drops)
{
	struct rte_swx_port_out_stats stats;
	int status = rte_swx_ctl_pipeline_port_out_stats_read(p, port, &stats);

	if (status == 0)
		*drops = stats.n_pkts_drop;
	return status;
}

static struct rte_mempool *pool(const char *name, uint32_t buffers)
{
	return rte_pktmbuf_pool_create(name, buffers, 256, 0, RTE_MBUF_DEFAULT_BUF_SIZE, 0);
}

static struct rte_ring *ring(const char *name, uint32_t len)
{
	return rte_ring_create(name, len, 0, RING_F_SP_ENQ | RING_F_SC_DEQ);
}

static int device(const char *name, const char *arguments, struct rte_mempool *buffers)
{
	struct rte_eth_conf conf = {0};
	uint16_t port;
	int status = rte_eth_dev_get_port_by_name(name, &port);

	if (status != 0) {
		status = rte_eal_hotplug_add("vdev", name, arguments);
		if (status == 0)
			status = rte_eth_dev_get_port_by_name(name, &port);
	}
	if (status == 0)
		status = rte_eth_dev_configure(port, 1, 1, &conf);
	if (status == 0)
		status = rte_eth_rx_queue_setup(port, 0, RX_RING, rte_eth_dev_socket_id(port), NULL, buffers);
	if (status == 0)
		status = rte_eth_tx_queue_setup(port, 0, TX_RING, rte_eth_dev_socket_id(port), NULL);
	if (status == 0)
		status = rte_eth_dev_start(port);
	if (status != 0)
		return status;
	/* Not every driver has such a mode. Frames to other addresses are the program's to drop. */
	(void)rte_eth_promiscuous_enable(port);
	return port;
}

static void device_close(int number)
{
	(void)rte_eth_dev_stop(number);
	(void)rte_eth_dev_close(number);
}

static uint16_t get16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

enum verdict { WHOLE, TRUNCATED, RUNT };

/* Whether a frame is as long as its headers say; cuts off what comes behind the IP packet. */
static enum verdict check(struct rte_mbuf *frame)
{
	const uint8_t *bytes = rte_pktmbuf_mtod(frame, const uint8_t *);
	uint32_t len = frame->data_len, at = 14, want;
	uint16_t type;

	if (frame->nb_segs != 1 || len < at)
		return RUNT;
	type = get16(bytes + 12);
	if (type == 0x8100) {
		at = 18;
		if (len < at)
			return RUNT;
		type = get16(bytes + 16);
	}
	if (type == 0x0800) {
		if (len < at + 20)
			return TRUNCATED;
		want = at + get16(bytes + at + 2);
		if (want < at + 20)
			return WHOLE; /* the program sees that it is wrong */
	} else if (type == 0x86dd) {
		if (len < at + 40)
			return TRUNCATED;
		want = at + 40 + get16(bytes + at + 4);
	} else {
		return type == 0x0806 && len < at + 28 ? TRUNCATED : WHOLE;
	}
	if (want > len)
		return TRUNCATED;
	return rte_pktmbuf_trim(frame, len - want) == 0 ? WHOLE : RUNT;
}

/* Gives a received frame to the pipeline, or to the controller if it is too short for the pipeline. */
static void enter(struct gatun_p4_port *ports, uint32_t number, uint32_t controller, struct rte_mbuf *frame)
{
	struct gatun_p4_port *port = &ports[number];
	uint8_t *header;

	port->received++;
	switch (number == controller ? WHOLE : check(frame)) {
	case WHOLE:
		if (rte_pktmbuf_tailroom(frame) >= TAIL && rte_ring_sp_enqueue(port->in, frame) == 0)
			return;
		port->lost_in++;
		break;
	case TRUNCATED:
		port->truncated++;
		header = (uint8_t *)rte_pktmbuf_prepend(frame, 4);
		if (header == NULL) {
			port->lost_in++;
			break;
		}
		header[0] = REASON_TRUNCATED;
		header[1] = 0;
		header[2] = (uint8_t)(number >> 8);
		header[3] = (uint8_t)number;
		if (rte_ring_sp_enqueue(ports[controller].out, frame) == 0)
			return;
		ports[controller].lost_out++;
		break;
	case RUNT:
		port->runts++;
		break;
	}
	rte_pktmbuf_free(frame);
}

static void receive(struct gatun_p4_port *ports, uint32_t count, uint32_t controller)
{
	struct rte_mbuf *frames[BURST];

	for (uint32_t i = 0; i < count; i++) {
		uint16_t got;

		if (ports[i].device < 0)
			continue;
		got = rte_eth_rx_burst(ports[i].device, 0, frames, BURST);
		for (uint16_t k = 0; k < got; k++)
			enter(ports, i, controller, frames[k]);
	}
}

static void send_frames(struct gatun_p4_port *ports, uint32_t count)
{
	struct rte_mbuf *frames[BURST];

	for (uint32_t i = 0; i < count; i++) {
		unsigned got, sent;

		if (ports[i].device < 0)
			continue;
		do {
			got = rte_ring_sc_dequeue_burst(ports[i].out, (void **)frames, BURST, NULL);
			sent = got == 0 ? 0 : rte_eth_tx_burst(ports[i].device, 0, frames, got);
			ports[i].sent += sent;
			ports[i].lost_out += got - sent;
			for (unsigned k = sent; k < got; k++)
				rte_pktmbuf_free(frames[k]);
		} while (got == BURST);
	}
}

static struct rte_mbuf *frame_of(struct rte_mempool *buffers, const uint8_t *bytes, uint16_t len)
{
	struct rte_mbuf *frame = rte_pktmbuf_alloc(buffers);
	char *place = frame == NULL ? NULL : rte_pktmbuf_append(frame, len);

	if (place != NULL)
		memcpy(place, bytes, len);
	else
		rte_pktmbuf_free(frame);
	return place == NULL ? NULL : frame;
}

/* A frame as if the port had received it. */
static int admit(struct gatun_p4_port *ports, uint32_t number, uint32_t controller, struct rte_mempool *buffers,
		 const uint8_t *bytes, uint16_t len)
{
	struct rte_mbuf *frame = frame_of(buffers, bytes, len);

	if (frame == NULL)
		return -ENOMEM;
	enter(ports, number, controller, frame);
	return 0;
}

static int take(struct rte_ring *from, uint8_t *bytes, uint16_t room)
{
	struct rte_mbuf *frame;
	int len;

	if (rte_ring_sc_dequeue(from, (void **)&frame) != 0)
		return -ENOENT;
	len = frame->data_len <= room ? frame->data_len : -EMSGSIZE;
	if (len >= 0)
		memcpy(bytes, rte_pktmbuf_mtod(frame, void *), len);
	rte_pktmbuf_free(frame);
	return len;
}

__attribute__((visibility("default"))) const struct gatun_p4_shim gatun_p4_shim = {
	.start = start,
	.version = version,
	.translate = translate,
	.build = build,
	.run = rte_swx_pipeline_run,
	.flush = rte_swx_pipeline_flush,
	.free = rte_swx_pipeline_free,
	.counts = counts,
	.table = table,
	.field = field,
	.table_action = table_action,
	.action = action,
	.argument = argument,
	.array = array,
	.meter = meter,
	.add = add,
	.remove = remove_entry,
	.fill = fill,
	.discard = discard,
	.read_register = rte_swx_ctl_pipeline_regarray_read,
	.write_register = rte_swx_ctl_pipeline_regarray_write,
	.limit = limit,
	.forget_limit = rte_swx_ctl_meter_profile_delete,
	.port_drops = port_drops,
	.pool = pool,
	.ring = ring,
	.device = device,
	.device_close = device_close,
	.take = take,
	.receive = receive,
	.send = send_frames,
	.admit = admit,
};
