//! Functions of the shim, as declared in `shim/shim.h`.

use std::ffi::{c_char, c_int, c_uint};

/// Packet buffer of DPDK. Only the shim knows its contents.
#[repr(C)]
pub(crate) struct Mbuf {
    _opaque: [u8; 0],
}

/// Pool of packet buffers.
#[repr(C)]
pub(crate) struct Mempool {
    _opaque: [u8; 0],
}

/// Frame and its position in its buffer.
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
pub(crate) struct SetupResult {
    pub(crate) mtu: u16,
    pub(crate) rss: u8,
}

#[repr(C)]
#[derive(Default)]
pub(crate) struct DeviceCounters {
    pub(crate) ring_full: u64,
    pub(crate) errors: u64,
    pub(crate) no_frame: u64,
    pub(crate) tx_errors: u64,
}

gatun_dpdk_shim::functions! { c"gatun_shim":
    gatun_eal_init(argc: c_int, argv: *mut *mut c_char) -> c_int;
    gatun_interrupts_settle(max_ms: c_uint);
    gatun_memory_files();
    gatun_thread_register() -> c_int;
    gatun_thread_unregister();
    gatun_strerror(error: c_int) -> *const c_char;
    gatun_device_add(name: *const c_char, arguments: *const c_char) -> c_int;
    gatun_device_find(name: *const c_char, port: *mut u16) -> c_int;
    gatun_device_info(port: u16, device: *mut Device) -> c_int;
    gatun_device_setup(port: u16, setup: *const Setup, done: *mut SetupResult) -> c_int;
    gatun_device_start(port: u16) -> c_int;
    gatun_device_stop(port: u16);
    gatun_device_close(port: u16);
    gatun_device_link(port: u16) -> c_int;
    gatun_device_missed(port: u16, missed: *mut DeviceCounters);
    gatun_pool_new(name: *const c_char, buffers: c_uint, room: u16, socket: c_int) -> *mut Mempool;
    gatun_pool_free(pool: *mut Mempool) -> c_uint;
    gatun_pool_recover(pool: *mut Mempool, port: u16, received: c_int) -> c_uint;
    gatun_receive(port: u16, queue: u16, frames: *mut RawFrame, max: u16) -> u16;
    gatun_send(port: u16, queue: u16, frames: *const RawFrame, count: u16) -> u16;
    gatun_frame_new(pool: *mut Mempool, frame: *mut RawFrame) -> c_int;
    gatun_frames_free(frames: *const RawFrame, count: c_uint);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The environment's function would let a memif unmap memory while a worker reads it.
    #[test]
    fn drivers_find_the_shims_function_before_the_environments() {
        load().unwrap();
        let name = c"rte_intr_callback_unregister";
        // SAFETY: names that end with a zero.
        let (first, ours) = unsafe {
            let shim = libc::dlsym(libc::RTLD_DEFAULT, c"gatun_shim".as_ptr());
            let mut info: libc::Dl_info = std::mem::zeroed();
            assert_ne!(libc::dladdr(shim, &mut info), 0);
            let base = info.dli_fbase;
            assert_ne!(libc::dladdr(libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()), &mut info), 0);
            (info.dli_fbase, base)
        };
        assert_eq!(first, ours);
    }
}
