//! Functions of the shim, as declared in `shim/shim.h`, and the code that loads the shim.

use crate::error::DpdkError;
use rustix::fs::{MemfdFlags, memfd_create};
use std::ffi::{CStr, c_char, c_int, c_uint};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::sync::OnceLock;

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

/// Defines for each function of the shim a pointer in [`Functions`], in the order of `struct gatun_shim`, and
/// a function that calls it.
macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        /// `struct gatun_shim`.
        #[repr(C)]
        struct Functions {
            $($name: unsafe extern "C" fn($($type),*) $(-> $result)?,)*
        }

        $(
            /// # Safety
            /// As documented in shim.c; [`load`] has succeeded.
            #[inline]
            pub(crate) unsafe fn $name($($argument: $type),*) $(-> $result)? {
                // SAFETY: guaranteed by the caller.
                unsafe { (loaded().$name)($($argument),*) }
            }
        )*
    };
}

functions! {
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

/// The shim as a shared object, which needs DPDK's libraries. It is embedded in the program, so that both
/// always have the same version.
static SHIM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/shim.so"));

static LOADED: OnceLock<&'static Functions> = OnceLock::new();

fn loaded() -> &'static Functions {
    LOADED.get().expect("the environment is started before anything of it is used")
}

/// Loads DPDK's libraries, unless they are loaded already. They execute code as soon as they are loaded, with
/// instructions that older processors lack. So they are not loaded on such processors, or if no port needs
/// them.
pub(crate) fn load() -> Result<(), DpdkError> {
    if LOADED.get().is_some() {
        return Ok(());
    }
    supported()?;
    let functions = open_shim().map_err(DpdkError::Libraries)?;
    let _ = LOADED.set(functions);
    Ok(())
}

/// Checks whether the processor supports the instructions that DPDK's libraries use.
///
/// # Errors
/// Returns an error if instructions are missing. The error names them.
pub fn supported() -> Result<(), DpdkError> {
    #[cfg(target_arch = "x86_64")]
    if !(is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("popcnt")) {
        return Err(DpdkError::Instructions("SSE4.2 and POPCNT"));
    }
    Ok(())
}

fn open_shim() -> Result<&'static Functions, String> {
    let file = shim_file().map_err(|e| format!("creating a file in memory: {e}"))?;
    let path = format!("/proc/self/fd/{}\0", file.as_raw_fd());
    // SAFETY: the path ends with a zero. The loaded object is the shim, whose libraries are trusted like
    // those of the linker. Drivers that are loaded later must find its symbols before the environment's:
    // hence RTLD_GLOBAL.
    let shim = unsafe { libc::dlopen(path.as_ptr().cast(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if shim.is_null() {
        return Err(dl_error());
    }
    // SAFETY: an open object, and a name that ends with a zero.
    let functions = unsafe { libc::dlsym(shim, c"gatun_shim".as_ptr()) };
    // SAFETY: the shim was compiled with this crate, and `Functions` has the layout of its table. It is never
    // closed.
    unsafe { functions.cast::<Functions>().as_ref() }.ok_or_else(dl_error)
}

/// Creates an anonymous file that contains the shim.
fn shim_file() -> std::io::Result<File> {
    let create = |flags| memfd_create(c"gatun-dpdk-shim", MemfdFlags::CLOEXEC | flags);
    // Nobody executes it as a program, and if vm.memfd_noexec is 2 the kernel requires this flag. Before
    // Linux 6.3 the flag does not exist.
    let file = create(MemfdFlags::NOEXEC_SEAL).or_else(|_| create(MemfdFlags::empty()))?;
    let mut file = File::from(file);
    file.write_all(SHIM)?;
    Ok(file)
}

/// Error of the last call.
fn dl_error() -> String {
    // SAFETY: the text stays valid until the thread's next call of this kind.
    let text = unsafe { libc::dlerror().as_ref() };
    // SAFETY: as above; it ends with a zero.
    text.map_or_else(String::new, |text| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
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
