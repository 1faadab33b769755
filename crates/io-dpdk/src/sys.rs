//! The shim's functions, as `shim/shim.h` declares them.

use std::ffi::{c_char, c_int, c_uint};

/// A packet buffer of DPDK; what is in it, the shim alone knows.
#[repr(C)]
pub(crate) struct Mbuf {
    _opaque: [u8; 0],
}

/// A pool of them.
#[repr(C)]
pub(crate) struct Mempool {
    _opaque: [u8; 0],
}

/// A frame, and where it lies in its buffer.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RawFrame {
    pub(crate) mbuf: *mut Mbuf,
    pub(crate) buffer: *mut u8,
    pub(crate) room: u16,
    pub(crate) start: u16,
    pub(crate) len: u16,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Device {
    pub(crate) driver: [c_char; 32],
    pub(crate) mac: [u8; 6],
    pub(crate) mtu: u16,
    pub(crate) mtu_max: u16,
    pub(crate) queues_max: u16,
    pub(crate) rx_ring_max: u16,
    pub(crate) tx_ring_max: u16,
    pub(crate) socket: c_int,
}

#[repr(C)]
pub(crate) struct Setup {
    pub(crate) queues: u16,
    pub(crate) mtu: u16,
    pub(crate) rx_ring: u16,
    pub(crate) tx_ring: u16,
    pub(crate) pools: *const *mut Mempool,
}

#[repr(C)]
#[derive(Default)]
pub(crate) struct Done {
    pub(crate) mtu: u16,
    pub(crate) rss: u8,
}

#[repr(C)]
#[derive(Default)]
pub(crate) struct Missed {
    pub(crate) ring_full: u64,
    pub(crate) errors: u64,
    pub(crate) no_frame: u64,
    pub(crate) tx_errors: u64,
}

unsafe extern "C" {
    pub(crate) fn gatun_eal_init(argc: c_int, argv: *mut *mut c_char) -> c_int;
    pub(crate) fn gatun_interrupts_settle(max_ms: c_uint);
    pub(crate) fn gatun_memory_files();
    pub(crate) fn gatun_thread_register() -> c_int;
    pub(crate) fn gatun_thread_unregister();
    pub(crate) fn gatun_strerror(error: c_int) -> *const c_char;
    pub(crate) fn gatun_device_add(name: *const c_char, arguments: *const c_char) -> c_int;
    pub(crate) fn gatun_device_find(name: *const c_char, port: *mut u16) -> c_int;
    pub(crate) fn gatun_device_info(port: u16, device: *mut Device) -> c_int;
    pub(crate) fn gatun_device_setup(port: u16, setup: *const Setup, done: *mut Done) -> c_int;
    pub(crate) fn gatun_device_start(port: u16) -> c_int;
    pub(crate) fn gatun_device_stop(port: u16);
    pub(crate) fn gatun_device_close(port: u16);
    pub(crate) fn gatun_device_link(port: u16) -> c_int;
    pub(crate) fn gatun_device_missed(port: u16, missed: *mut Missed);
    pub(crate) fn gatun_pool_new(
        name: *const c_char,
        buffers: c_uint,
        room: u16,
        socket: c_int,
    ) -> *mut Mempool;
    pub(crate) fn gatun_pool_free(pool: *mut Mempool) -> c_uint;
    pub(crate) fn gatun_pool_recover(pool: *mut Mempool, port: u16, received: c_int) -> c_uint;
    pub(crate) fn gatun_receive(port: u16, queue: u16, frames: *mut RawFrame, max: u16) -> u16;
    pub(crate) fn gatun_send(port: u16, queue: u16, frames: *const RawFrame, count: u16) -> u16;
    pub(crate) fn gatun_frame_new(pool: *mut Mempool, frame: *mut RawFrame) -> c_int;
    pub(crate) fn gatun_frames_free(frames: *const RawFrame, count: c_uint);
}
