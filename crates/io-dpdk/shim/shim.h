/* The part of DPDK that Gatun uses. Only shim.c includes DPDK's headers; src/sys.rs declares the same types for Rust. */
#ifndef GATUN_DPDK_SHIM_H
#define GATUN_DPDK_SHIM_H

#include <stdint.h>

struct rte_mbuf;
struct rte_mempool;

/* Received frame, or frame to send: its position in its buffer. */
struct gatun_frame {
	struct rte_mbuf *mbuf;
	uint8_t *buffer;
	uint16_t room;  /* size of the buffer in bytes */
	uint16_t start; /* offset of the frame */
	uint16_t len;   /* bytes; 0: segmented, not supported */
};

/* Capabilities and properties of a device. */
struct gatun_device {
	char driver[32];
	uint8_t mac[6];
	uint16_t mtu;
	uint16_t mtu_max;
	uint16_t queues_max;
	uint16_t rx_ring_max;
	uint16_t tx_ring_max;
	int socket;
};

/* Configuration of a device: one queue each way per worker. */
struct gatun_setup {
	uint16_t queues;
	uint16_t mtu; /* 0: unchanged */
	uint16_t rx_ring;
	uint16_t tx_ring;
	struct rte_mempool **pools; /* one per queue */
};

/* Result of the set-up of a device. */
struct gatun_done {
	uint16_t mtu;
	uint8_t rss;
};

/* Counters of frames that a device did not deliver. */
struct gatun_missed {
	uint64_t ring_full;
	uint64_t errors;
	uint64_t no_frame;
	uint64_t tx_errors;
};

/* Functions of the shim: the only symbol that is looked up. Functions that return an int return 0 or an error number. */
struct gatun_shim {
	int (*eal_init)(int argc, char **argv);
	/* Waits until the interrupt thread has finished its present work; one caller at a time. */
	void (*interrupts_settle)(unsigned int max_ms);
	void (*memory_files)(void);
	int (*thread_register)(void);
	void (*thread_unregister)(void);
	const char *(*strerror)(int error);
	int (*device_add)(const char *name, const char *arguments);
	int (*device_find)(const char *name, uint16_t *port);
	int (*device_info)(uint16_t port, struct gatun_device *device);
	int (*device_setup)(uint16_t port, const struct gatun_setup *setup, struct gatun_done *done);
	int (*device_start)(uint16_t port);
	void (*device_stop)(uint16_t port);
	void (*device_close)(uint16_t port);
	int (*device_link)(uint16_t port);
	void (*device_missed)(uint16_t port, struct gatun_missed *missed);
	struct rte_mempool *(*pool_new)(const char *name, unsigned buffers, uint16_t room, int socket);
	unsigned (*pool_free)(struct rte_mempool *pool);
	unsigned (*pool_recover)(struct rte_mempool *pool, uint16_t port, int received);
	uint16_t (*receive)(uint16_t port, uint16_t queue, struct gatun_frame *frames, uint16_t max);
	uint16_t (*send)(uint16_t port, uint16_t queue, const struct gatun_frame *frames, uint16_t count);
	int (*frame_new)(struct rte_mempool *pool, struct gatun_frame *frame);
	void (*frames_free)(const struct gatun_frame *frames, unsigned count);
};

extern const struct gatun_shim gatun_shim;

#endif
