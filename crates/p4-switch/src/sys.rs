//! Functions of the shim, as declared in `shim/shim.h`, and the code that loads the shim.

use crate::error::SwitchError;
use rustix::fs::{MemfdFlags, memfd_create};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::sync::OnceLock;

const NAME: usize = 64;

/// An object of which only the shim knows the contents.
macro_rules! opaque {
    ($($name:ident),*) => {$(
        #[repr(C)]
        pub(crate) struct $name {
            _opaque: [u8; 0],
        }
    )*};
}

opaque!(Pipeline, Mempool, Ring);

#[repr(C)]
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) tables: u32,
    pub(crate) actions: u32,
    pub(crate) arrays: u32,
    pub(crate) meters: u32,
}

#[repr(C)]
pub(crate) struct RawArray {
    pub(crate) name: [c_char; NAME],
    pub(crate) size: u32,
}

#[repr(C)]
pub(crate) struct RawRates {
    pub(crate) cir: u64,
    pub(crate) cbs: u64,
    pub(crate) pir: u64,
    pub(crate) pbs: u64,
}

#[repr(C)]
pub(crate) struct RawTable {
    pub(crate) name: [c_char; NAME],
    pub(crate) fields: u32,
    pub(crate) actions: u32,
    pub(crate) size: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Field {
    pub(crate) is_exact: u32,
    pub(crate) is_header: u32,
    pub(crate) bits: u32,
    pub(crate) offset: u32,
}

#[repr(C)]
pub(crate) struct RawAction {
    pub(crate) name: [c_char; NAME],
    pub(crate) arguments: u32,
}

#[repr(C)]
pub(crate) struct RawArgument {
    pub(crate) name: [c_char; NAME],
    pub(crate) bits: u32,
    pub(crate) is_network_order: u32,
}

#[repr(C)]
pub(crate) struct RawEntry {
    pub(crate) key: *mut u8,
    pub(crate) mask: *mut u8,
    pub(crate) data: *mut u8,
    pub(crate) action: u64,
    pub(crate) priority: u32,
}

#[repr(C)]
pub(crate) struct Shape {
    pub(crate) is_exact: u32,
    pub(crate) key_len: u32,
    pub(crate) key_offset: u32,
    pub(crate) data_len: u32,
    pub(crate) size: u32,
    pub(crate) key_mask: *mut u8,
}

#[repr(C)]
pub(crate) struct Port {
    pub(crate) device: i32,
    pub(crate) input: *mut Ring,
    pub(crate) output: *mut Ring,
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) truncated: u64,
    pub(crate) runts: u64,
    pub(crate) lost_in: u64,
    pub(crate) lost_out: u64,
}

macro_rules! text_of {
    ($($name:ident),*) => {$(
        impl $name {
            /// The name.
            pub(crate) fn text(&self) -> String {
                let bytes = self.name.iter().take_while(|c| **c != 0).map(|c| *c as u8);
                String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
            }
        }

        impl Default for $name {
            fn default() -> Self {
                // SAFETY: arrays and numbers, for which zero bytes are a value.
                unsafe { std::mem::zeroed() }
            }
        }
    )*};
}

text_of!(RawTable, RawAction, RawArgument, RawArray);

/// Defines for each function of the shim a pointer in [`Functions`], in the order of `struct
/// gatun_p4_shim`, and a function that calls it.
macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        /// `struct gatun_p4_shim`.
        #[repr(C)]
        struct Functions {
            $($name: unsafe extern "C" fn($($type),*) $(-> $result)?,)*
        }

        $(
            /// # Safety
            /// Pointers are valid, and objects of the pipeline alive; [`load`] has succeeded.
            #[inline]
            pub(crate) unsafe fn $name($($argument: $type),*) $(-> $result)? {
                // SAFETY: guaranteed by the caller.
                unsafe { (loaded().$name)($($argument),*) }
            }
        )*
    };
}

functions! {
    start(argc: c_int, argv: *mut *mut c_char) -> c_int;
    version() -> *const c_char;
    translate(
        spec: *const c_char, code: *const c_char, line: *mut u32, message: *mut c_char, len: usize
    ) -> c_int;
    build(
        out: *mut *mut Pipeline, name: *const c_char, object: *const c_char, ports: *mut c_char, len: usize
    ) -> c_int;
    run(p: *mut Pipeline, instructions: u32);
    flush(p: *mut Pipeline);
    free(p: *mut Pipeline);
    counts(p: *mut Pipeline, out: *mut Counts) -> c_int;
    table(p: *mut Pipeline, table: u32, out: *mut RawTable) -> c_int;
    field(p: *mut Pipeline, table: u32, field: u32, out: *mut Field) -> c_int;
    table_action(p: *mut Pipeline, table: u32, number: u32, action: *mut u32) -> c_int;
    action(p: *mut Pipeline, action: u32, out: *mut RawAction) -> c_int;
    argument(p: *mut Pipeline, action: u32, number: u32, out: *mut RawArgument) -> c_int;
    array(p: *mut Pipeline, number: u32, out: *mut RawArray) -> c_int;
    meter(p: *mut Pipeline, number: u32, out: *mut RawArray) -> c_int;
    add(p: *mut Pipeline, table: u32, entry: *const RawEntry) -> c_int;
    remove(p: *mut Pipeline, table: u32, entry: *const RawEntry) -> c_int;
    fill(
        p: *mut Pipeline, table: u32, shape: *const Shape, entries: *const RawEntry, count: u32,
        old: *mut *mut c_void
    ) -> c_int;
    discard(p: *mut Pipeline, table: u32, old: *mut c_void);
    read_register(p: *mut Pipeline, name: *const c_char, index: u32, value: *mut u64) -> c_int;
    write_register(p: *mut Pipeline, name: *const c_char, index: u32, value: u64) -> c_int;
    limit(
        p: *mut Pipeline, meter: *const c_char, index: u32, profile: *const c_char, rates: *const RawRates
    ) -> c_int;
    forget_limit(p: *mut Pipeline, profile: *const c_char) -> c_int;
    pool(name: *const c_char, buffers: u32) -> *mut Mempool;
    ring(name: *const c_char, len: u32) -> *mut Ring;
    device(name: *const c_char, arguments: *const c_char, pool: *mut Mempool) -> c_int;
    device_close(device: c_int);
    take(ring: *mut Ring, frame: *mut u8, room: u16) -> c_int;
    receive(ports: *mut Port, count: u32, controller: u32);
    send(ports: *mut Port, count: u32);
    admit(
        ports: *mut Port, number: u32, controller: u32, pool: *mut Mempool, frame: *const u8, len: u16
    ) -> c_int;
}

/// The shim as a shared object, which needs DPDK's libraries. It is embedded in the program, so that both
/// always have the same version.
static SHIM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/shim.so"));

static LOADED: OnceLock<&'static Functions> = OnceLock::new();

fn loaded() -> &'static Functions {
    LOADED.get().expect("the environment is started before anything of it is used")
}

/// Loads DPDK's libraries, unless they are loaded already. They execute code as soon as they are loaded, with
/// instructions that older processors lack.
pub(crate) fn load() -> Result<(), SwitchError> {
    if LOADED.get().is_some() {
        return Ok(());
    }
    #[cfg(target_arch = "x86_64")]
    if !(is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("popcnt")) {
        return Err(SwitchError::Instructions("SSE4.2 and POPCNT"));
    }
    let functions = open_shim().map_err(SwitchError::Libraries)?;
    let _ = LOADED.set(functions);
    Ok(())
}

fn open_shim() -> Result<&'static Functions, String> {
    let file = shim_file().map_err(|e| format!("creating a file in memory: {e}"))?;
    let path = format!("/proc/self/fd/{}\0", file.as_raw_fd());
    // SAFETY: the path ends with a zero. The loaded object is the shim, whose libraries are trusted like
    // those of the linker. The pipeline's object, which is loaded later, finds their symbols: hence
    // RTLD_GLOBAL.
    let shim = unsafe { libc::dlopen(path.as_ptr().cast(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if shim.is_null() {
        return Err(dl_error());
    }
    // SAFETY: an open object, and a name that ends with a zero.
    let functions = unsafe { libc::dlsym(shim, c"gatun_p4_shim".as_ptr()) };
    // SAFETY: the shim was compiled with this crate, and `Functions` has the layout of its table. It is
    // never closed.
    unsafe { functions.cast::<Functions>().as_ref() }.ok_or_else(dl_error)
}

/// Creates an anonymous file that contains the shim.
fn shim_file() -> std::io::Result<File> {
    let create = |flags| memfd_create(c"gatun-p4-shim", MemfdFlags::CLOEXEC | flags);
    // Nobody executes it as a program. Before Linux 6.3 the flag does not exist.
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
