/* Wrappers of DPDK's inline functions, one call per burst. Rust sees positions of frames, but no mbufs. */
#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rte_alarm.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_interrupts.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_memory.h>
#include <rte_mempool.h>

#define BURST_MAX 64

/* Workers that are inside a driver. The memif driver unmaps the memory of a disconnected peer in the interrupt thread, without
 * checking whether a worker is reading it. It first disables the device for workers (ETH_MEMIF_FLAG_CONNECTED) and then
 * unregisters its callback: there the interrupt thread waits for the workers inside. Workers pay two stores per burst; the
 * other side executes the barrier that orders them (membarrier(2)). */
static struct turns {
	uint64_t count; /* odd: inside a driver */
	int taken;
} __rte_cache_aligned workers[RTE_MAX_LCORE];
/* Read twice a burst: where a thread's own variables lie is known once the shim is loaded. */
static __thread struct turns *own __attribute__((tls_model("initial-exec")));

static void count_turns(void)
{
	int expected = 0;

	for (unsigned i = 0; own == NULL && i < RTE_MAX_LCORE; i++, expected = 0)
		if (__atomic_compare_exchange_n(&workers[i].taken, &expected, 1, 0, __ATOMIC_ACQ_REL,
						__ATOMIC_RELAXED))
			own = &workers[i];
}

static inline void turn(void)
{
	if (own == NULL)
		return;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	__atomic_store_n(&own->count, own->count + 1, __ATOMIC_RELEASE);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static void wait_for_workers(void)
{
	(void)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
	for (unsigned i = 0; i < RTE_MAX_LCORE; i++) {
		uint64_t count = __atomic_load_n(&workers[i].count, __ATOMIC_ACQUIRE);

		while (count % 2 == 1 && __atomic_load_n(&workers[i].count, __ATOMIC_ACQUIRE) == count)
			usleep(20);
	}
}

/* Replaces the environment's function for the drivers: the shim is loaded before its libraries, so its symbols come first. */
int rte_intr_callback_unregister(const struct rte_intr_handle *handle, rte_intr_callback_fn callback, void *argument)
{
	static int (*unregister)(const struct rte_intr_handle *, rte_intr_callback_fn, void *);

	if (__atomic_load_n(&unregister, __ATOMIC_ACQUIRE) == NULL)
		__atomic_store_n(&unregister, dlsym(RTLD_NEXT, "rte_intr_callback_unregister"), __ATOMIC_RELEASE);
	wait_for_workers();
	return unregister(handle, callback, argument);
}

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Takes the pages of ordinary memory, which the environment only maps: a later access could end the process. */
static int populate(const struct rte_memseg_list *list, void *unused)
{
	(void)unused;
	while (madvise(list->base_va, list->len, MADV_POPULATE_WRITE) != 0) {
		/* Linux before 5.14 does not support this advice. */
		if (errno == EINVAL) {
			for (size_t at = 0; at < list->len; at += sysconf(_SC_PAGESIZE))
				(void)__atomic_fetch_or((char *)list->base_va + at, 0, __ATOMIC_RELAXED);
			return 0;
		}
		if (errno != EINTR && errno != EAGAIN) {
			rte_errno = ENOMEM;
			return -1;
		}
	}
	return 0;
}

static int gatun_eal_init(int argc, char **argv)
{
	(void)syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
	if (rte_eal_init(argc, argv) < 0)
		return rte_errno ? rte_errno : EINVAL;
	return !rte_eal_has_hugepages() && rte_memseg_list_walk(populate, NULL) < 0 ? rte_errno : 0;
}

static int settled;

static void settle(void *unused)
{
	(void)unused;
	__atomic_store_n(&settled, 1, __ATOMIC_RELEASE);
}

/* The interrupt thread also runs alarms: once the alarm has fired, that thread has finished its earlier work. */
static void gatun_interrupts_settle(unsigned int max_ms)
{
	__atomic_store_n(&settled, 0, __ATOMIC_RELAXED);
	if (rte_eal_alarm_set(1, settle, NULL) != 0)
		return;
	for (unsigned int i = 0; i < 10 * max_ms; i++) {
		if (__atomic_load_n(&settled, __ATOMIC_ACQUIRE))
			return;
		usleep(100);
	}
	(void)rte_eal_alarm_cancel(settle, NULL);
}

/* Files of the environment's memory. A memif client that shares buffers with its peer passes these files to the peer and then
 * closes them (memif_connect), although they belong to the environment: the next client would pass whatever file has that
 * number by then. So each file has a second descriptor, from which the first one is restored. */
#define FILES_MAX 64
#define SECOND_NUMBERS 512

static struct {
	int first, second;
} files[FILES_MAX];
static unsigned file_count;

static int keep_file(const struct rte_memseg_list *list, const struct rte_memseg *segment, void *unused)
{
	int file = rte_memseg_get_fd_thread_unsafe(segment);
	unsigned i;

	(void)list;
	(void)unused;
	for (i = 0; i < file_count && files[i].first != file; i++)
		;
	if (file < 0 || i == FILES_MAX)
		return 0;
	if (i < file_count) {
		if (fcntl(file, F_GETFD) < 0)
			(void)dup3(files[i].second, file, O_CLOEXEC);
		return 0;
	}
	files[i].first = file;
	files[i].second = fcntl(file, F_DUPFD_CLOEXEC, SECOND_NUMBERS);
	if (files[i].second >= 0)
		file_count++;
	return 0;
}

static void gatun_memory_files(void)
{
	rte_memseg_walk(keep_file, NULL);
}

static int gatun_thread_register(void)
{
	count_turns();
	return rte_thread_register() < 0 ? (rte_errno ? rte_errno : EINVAL) : 0;
}

static void gatun_thread_unregister(void)
{
	rte_thread_unregister();
	if (own != NULL)
		__atomic_store_n(&own->taken, 0, __ATOMIC_RELEASE);
	own = NULL;
}

static const char *gatun_strerror(int error)
{
	return rte_strerror(error);
}

static int gatun_device_add(const char *name, const char *arguments)
{
	return -rte_eal_hotplug_add("vdev", name, arguments);
}

static int gatun_device_find(const char *name, uint16_t *port)
{
	return -rte_eth_dev_get_port_by_name(name, port);
}

/* Largest MTU that may be requested. A driver limits either the MTU or the frame length. memif accepts whatever fits its
 * buffers, so the frame length that it reports has no meaning. */
static uint16_t mtu_max(const struct rte_eth_dev_info *info)
{
	const uint32_t layer_2 = RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN;

	if (info->max_mtu != UINT16_MAX || info->max_rx_pktlen <= layer_2)
		return info->max_mtu;
	return RTE_MIN(info->max_rx_pktlen - layer_2, (uint32_t)UINT16_MAX);
}

static int gatun_device_info(uint16_t port, struct gatun_device *device)
{
	struct rte_eth_dev_info info;
	struct rte_ether_addr mac;
	int error = rte_eth_dev_info_get(port, &info);

	if (error == 0)
		error = rte_eth_macaddr_get(port, &mac);
	if (error == 0)
		error = rte_eth_dev_get_mtu(port, &device->mtu);
	if (error != 0)
		return -error;
	strncpy(device->driver, info.driver_name ? info.driver_name : "", sizeof(device->driver) - 1);
	memcpy(device->mac, mac.addr_bytes, sizeof(device->mac));
	device->mtu_max = mtu_max(&info);
	device->queues_max = RTE_MIN(info.max_rx_queues, info.max_tx_queues);
	device->rx_ring_max = info.rx_desc_lim.nb_max;
	device->tx_ring_max = info.tx_desc_lim.nb_max;
	device->socket = rte_eth_dev_socket_id(port);
	return 0;
}

/* Several queues: if the device supports it, a hash of the addresses selects the queue of a packet. */
static uint64_t rss_of(const struct rte_eth_dev_info *info, uint16_t queues)
{
	return queues > 1 ? info->flow_type_rss_offloads & RTE_ETH_RSS_IP : 0;
}

static int setup_queues(uint16_t port, const struct gatun_setup *setup, struct gatun_done *done)
{
	struct rte_eth_dev_info info;
	struct rte_eth_conf conf;
	uint16_t queue, rx_ring = setup->rx_ring, tx_ring = setup->tx_ring;
	int error = rte_eth_dev_info_get(port, &info);

	if (error != 0)
		return error;
	memset(&conf, 0, sizeof(conf));
	conf.rx_adv_conf.rss_conf.rss_hf = rss_of(&info, setup->queues);
	if (conf.rx_adv_conf.rss_conf.rss_hf != 0)
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
	if (setup->mtu != 0)
		conf.rxmode.mtu = setup->mtu;
	done->rss = conf.rx_adv_conf.rss_conf.rss_hf != 0;
	error = rte_eth_dev_configure(port, setup->queues, setup->queues, &conf);
	/* Some drivers have no configurable MTU. */
	if (error == 0 && setup->mtu != 0) {
		error = rte_eth_dev_set_mtu(port, setup->mtu);
		error = error == -ENOTSUP ? 0 : error;
	}
	if (error == 0)
		error = rte_eth_dev_adjust_nb_rx_tx_desc(port, &rx_ring, &tx_ring);
	for (queue = 0; error == 0 && queue < setup->queues; queue++) {
		error = rte_eth_rx_queue_setup(port, queue, rx_ring, rte_eth_dev_socket_id(port), NULL,
					       setup->pools[queue]);
		if (error == 0)
			error = rte_eth_tx_queue_setup(port, queue, tx_ring, rte_eth_dev_socket_id(port), NULL);
	}
	if (error == 0)
		error = rte_eth_dev_get_mtu(port, &done->mtu);
	return error;
}

static int gatun_device_setup(uint16_t port, const struct gatun_setup *setup, struct gatun_done *done)
{
	return -setup_queues(port, setup, done);
}

static int gatun_device_start(uint16_t port)
{
	int error = rte_eth_dev_start(port);

	/* Solicitations go to multicast groups. A device without a multicast filter has to deliver all frames. */
	if (error == 0 && rte_eth_allmulticast_enable(port) != 0)
		(void)rte_eth_promiscuous_enable(port);
	return -error;
}

static void gatun_device_stop(uint16_t port)
{
	/* Errors are ignored: nothing can be done about them. */
	(void)rte_eth_dev_stop(port);
}

static void gatun_device_close(uint16_t port)
{
	gatun_device_stop(port);
	(void)rte_eth_dev_close(port);
}

static int gatun_device_link(uint16_t port)
{
	struct rte_eth_link link;

	memset(&link, 0, sizeof(link));
	return rte_eth_link_get_nowait(port, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

static void gatun_device_missed(uint16_t port, struct gatun_missed *missed)
{
	struct rte_eth_stats stats;

	memset(missed, 0, sizeof(*missed));
	if (rte_eth_stats_get(port, &stats) != 0)
		return;
	missed->ring_full = stats.imissed;
	missed->errors = stats.ierrors;
	missed->no_frame = stats.rx_nombuf;
	missed->tx_errors = stats.oerrors;
}

/* gatun_wire::HEADROOM: room for packets to grow. */
_Static_assert(RTE_PKTMBUF_HEADROOM >= 128, "DPDK was built with too little room in front of packets");

static struct rte_mempool *gatun_pool_new(const char *name, unsigned buffers, uint16_t room, int socket)
{
	return rte_pktmbuf_pool_create(name, buffers, RTE_MIN(256u, buffers / 2), 0, room + RTE_PKTMBUF_HEADROOM,
				       socket);
}

static unsigned gatun_pool_free(struct rte_mempool *pool)
{
	return rte_mempool_avail_count(pool);
}

/* Owner marks in a frame's buffer. A driver that takes a buffer from a pool for receiving clears both (rte_pktmbuf_reset),
 * and gatun_send writes the first. */
#define SENT_BY(port) ((uint16_t)((port) + 1))
#define IN_POOL (RTE_MBUF_PORT_INVALID - 1)

struct recovery {
	struct rte_mbuf **lost;
	unsigned count;
	uint16_t port;
	int received;
};

static void find_lost(struct rte_mempool *pool, void *opaque, void *object, unsigned index)
{
	struct recovery *recovery = opaque;
	struct rte_mbuf *mbuf = object;
	int sent = mbuf->vlan_tci_outer == SENT_BY(recovery->port);
	int received = recovery->received && mbuf->vlan_tci_outer == 0 && mbuf->port == RTE_MBUF_PORT_INVALID;

	(void)pool;
	(void)index;
	if (mbuf->port != IN_POOL && (sent || received))
		recovery->lost[recovery->count++] = mbuf;
}

/* Returns to a pool the buffers that a device has forgotten with its peer: those that it was to send and, if the pool is its
 * own, those that it was to receive into. Nobody else may use the pool or the device meanwhile, and the pool's device must
 * allocate its buffers by rte_pktmbuf_alloc or an equivalent. Returns the number of buffers. */
static unsigned gatun_pool_recover(struct rte_mempool *pool, uint16_t port, int received)
{
	struct rte_mbuf **all = calloc(2 * (size_t)pool->size, sizeof(*all));
	struct recovery recovery = { .lost = all + pool->size, .port = port, .received = received };
	unsigned i, unused = 0;

	if (all == NULL)
		return 0;
	while (unused < pool->size && rte_mempool_get(pool, (void **)&all[unused]) == 0)
		all[unused++]->port = IN_POOL;
	rte_mempool_obj_iter(pool, find_lost, &recovery);
	for (i = 0; i < recovery.count; i++) {
		struct rte_mbuf *mbuf = recovery.lost[i];

		rte_mbuf_refcnt_set(mbuf, 1);
		mbuf->next = NULL;
		mbuf->nb_segs = 1;
		rte_mempool_put(pool, mbuf);
	}
	for (i = 0; i < unused; i++)
		rte_mempool_put(pool, all[i]);
	free(all);
	return recovery.count;
}

static inline void describe(struct rte_mbuf *mbuf, struct gatun_frame *frame)
{
	frame->mbuf = mbuf;
	frame->buffer = mbuf->buf_addr;
	frame->room = mbuf->buf_len;
	frame->start = mbuf->data_off;
	frame->len = mbuf->nb_segs == 1 ? mbuf->data_len : 0;
}

static uint16_t gatun_receive(uint16_t port, uint16_t queue, struct gatun_frame *frames, uint16_t max)
{
	struct rte_mbuf *mbufs[BURST_MAX];
	uint16_t i, count;

	turn();
	count = rte_eth_rx_burst(port, queue, mbufs, RTE_MIN(max, BURST_MAX));
	turn();
	for (i = 0; i < count; i++)
		describe(mbufs[i], &frames[i]);
	return count;
}

static uint16_t gatun_send(uint16_t port, uint16_t queue, const struct gatun_frame *frames, uint16_t count)
{
	struct rte_mbuf *mbufs[BURST_MAX];
	uint16_t i, sent, n = RTE_MIN(count, BURST_MAX);

	for (i = 0; i < n; i++) {
		struct rte_mbuf *mbuf = frames[i].mbuf;

		mbuf->data_off = frames[i].start;
		mbuf->data_len = frames[i].len;
		mbuf->pkt_len = frames[i].len;
		mbuf->ol_flags = 0;
		mbuf->vlan_tci_outer = SENT_BY(port);
		mbufs[i] = mbuf;
	}
	turn();
	sent = rte_eth_tx_burst(port, queue, mbufs, n);
	turn();
	return sent;
}

static int gatun_frame_new(struct rte_mempool *pool, struct gatun_frame *frame)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);

	if (mbuf == NULL)
		return ENOMEM;
	describe(mbuf, frame);
	return 0;
}

static void gatun_frames_free(const struct gatun_frame *frames, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		rte_pktmbuf_free(frames[i].mbuf);
}

const struct gatun_shim gatun_shim = {
	.eal_init = gatun_eal_init,
	.interrupts_settle = gatun_interrupts_settle,
	.memory_files = gatun_memory_files,
	.thread_register = gatun_thread_register,
	.thread_unregister = gatun_thread_unregister,
	.strerror = gatun_strerror,
	.device_add = gatun_device_add,
	.device_find = gatun_device_find,
	.device_info = gatun_device_info,
	.device_setup = gatun_device_setup,
	.device_start = gatun_device_start,
	.device_stop = gatun_device_stop,
	.device_close = gatun_device_close,
	.device_link = gatun_device_link,
	.device_missed = gatun_device_missed,
	.pool_new = gatun_pool_new,
	.pool_free = gatun_pool_free,
	.pool_recover = gatun_pool_recover,
	.receive = gatun_receive,
	.send = gatun_send,
	.frame_new = gatun_frame_new,
	.frames_free = gatun_frames_free,
};
