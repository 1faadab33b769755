//! Functions of the shim, as declared in `shim/shim.h`.

use std::ffi::{c_char, c_int, c_void};

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

/// Code that takes packets through a program.
type Run = unsafe extern "C" fn(p: *mut Pipeline, max: u32);

/// Code that returns the number of buckets at which insertions into a table have looked.
type Steps = unsafe extern "C" fn(p: *mut Pipeline, table: u32) -> u64;

/// The host's own code of a program. `None`: the program runs in DPDK's code.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct OwnCode {
    pub(crate) run: Option<Run>,
    pub(crate) steps: Option<Steps>,
}

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

gatun_dpdk_shim::functions! { c"gatun_p4_shim":
    start(argc: c_int, argv: *mut *mut c_char) -> c_int;
    version() -> *const c_char;
    translate(
        spec: *const c_char, code: *const c_char, line: *mut u32, message: *mut c_char, len: usize
    ) -> c_int;
    build(
        out: *mut *mut Pipeline, own_code: *mut OwnCode, name: *const c_char, object: *const c_char,
        ports: *mut c_char, len: usize
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
    port_drops(p: *mut Pipeline, port: u32, drops: *mut u64) -> c_int;
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
