//! Commands of bpf(2) on maps, and shared memory: none needs a capability (since Linux 5.19).

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const MAP_LOOKUP_ELEM: libc::c_long = 1;
const MAP_UPDATE_ELEM: libc::c_long = 2;
const OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const MAP_LOOKUP_BATCH: libc::c_long = 24;
const MAP_UPDATE_BATCH: libc::c_long = 26;
const MAP_DELETE_BATCH: libc::c_long = 27;

#[repr(C)]
struct Element {
    map_fd: u32,
    _pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct Batch {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

#[repr(C)]
struct GetInfo {
    fd: u32,
    len: u32,
    info: u64,
}

/// Beginning of `struct bpf_map_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes)]
#[repr(C)]
pub(crate) struct MapInfo {
    pub(crate) kind: u32,
    pub(crate) id: u32,
    pub(crate) key_size: u32,
    pub(crate) value_size: u32,
    pub(crate) entries_max: u32,
    pub(crate) flags: u32,
}

/// # Safety
/// `T` is the layout of `command`. Every address in it points to memory that the kernel may read (or write,
/// if the command writes) for the length that the command implies.
pub(crate) unsafe fn bpf<T>(command: libc::c_long, attr: &mut T) -> io::Result<libc::c_long> {
    // SAFETY: `attr` is live, exclusively borrowed and has the given size. The caller guarantees the memory
    // that it points to.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub(crate) fn number(file: BorrowedFd<'_>) -> u32 {
    file.as_raw_fd() as u32
}

/// Type and sizes of a map.
pub(crate) fn map_info(map: impl AsFd) -> io::Result<MapInfo> {
    info(map.as_fd())
}

/// Beginning of what the kernel tells of a map or a link.
pub(crate) fn info<T: FromBytes + IntoBytes>(file: BorrowedFd<'_>) -> io::Result<T> {
    let mut info = T::new_zeroed();
    let mut attr =
        GetInfo { fd: number(file), len: size_of::<T>() as u32, info: std::ptr::from_mut(&mut info) as u64 };
    // SAFETY: the layout of OBJ_GET_INFO_BY_FD. The kernel writes at most `len` bytes, which `info` has; for
    // a file of another kind, too: any bytes are a `T`.
    unsafe { bpf(OBJ_GET_INFO_BY_FD, &mut attr) }?;
    Ok(info)
}

/// Returns true if the kernel refuses changes of a map by a process.
pub(crate) fn is_frozen(map: impl AsFd) -> bool {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", number(map.as_fd())));
    let frozen = |text: String| text.lines().any(|line| line.split_whitespace().eq(["frozen:", "1"]));
    info.is_ok_and(frozen)
}

/// Sets one value. Key and value must have the sizes of the map.
pub(crate) fn update<K: IntoBytes + Immutable, V: IntoBytes + Immutable>(
    map: impl AsFd,
    key: &K,
    value: &V,
) -> io::Result<()> {
    let mut attr = Element {
        map_fd: number(map.as_fd()),
        _pad: 0,
        key: std::ptr::from_ref(key) as u64,
        value: std::ptr::from_ref(value) as u64,
        flags: 0,
    };
    // SAFETY: the layout of MAP_UPDATE_ELEM. Key and value outlive the call, and have the sizes of the map:
    // `Maps` checks those of each map against the types that are used with it.
    unsafe { bpf(MAP_UPDATE_ELEM, &mut attr) }.map(drop)
}

/// Reads one value. `value` must have the size of the map's values: of one for each possible processor, if it
/// has such.
pub(crate) fn look_up<K: IntoBytes + Immutable>(
    map: impl AsFd,
    key: &K,
    value: &mut [u64],
) -> io::Result<()> {
    let mut attr = Element {
        map_fd: number(map.as_fd()),
        _pad: 0,
        key: std::ptr::from_ref(key) as u64,
        value: value.as_mut_ptr() as u64,
        flags: 0,
    };
    // SAFETY: as above; `value` is as long as the kernel writes.
    unsafe { bpf(MAP_LOOKUP_ELEM, &mut attr) }.map(drop)
}

/// Sets values in order, up to the first that fails. Keys and values must have the sizes of the map.
pub(crate) fn update_batch<K: IntoBytes + Immutable, V: IntoBytes + Immutable>(
    map: impl AsFd,
    keys: &[K],
    values: &[V],
) -> io::Result<()> {
    assert_eq!(keys.len(), values.len());
    if keys.is_empty() {
        return Ok(());
    }
    let mut attr = Batch {
        in_batch: 0,
        out_batch: 0,
        keys: keys.as_ptr() as u64,
        values: values.as_ptr() as u64,
        count: keys.len() as u32,
        map_fd: number(map.as_fd()),
        elem_flags: 0,
        flags: 0,
    };
    // SAFETY: the layout of MAP_UPDATE_BATCH. The arrays have `count` elements of the map's sizes, as in
    // `update`, and outlive the call.
    unsafe { bpf(MAP_UPDATE_BATCH, &mut attr) }.map(drop)
}

/// Deletes keys, which must be there. Keys must have the size of the map's.
pub(crate) fn delete_batch<K: IntoBytes + Immutable>(map: impl AsFd, keys: &[K]) -> io::Result<()> {
    let mut attr = Batch {
        in_batch: 0,
        out_batch: 0,
        keys: keys.as_ptr() as u64,
        values: 0,
        count: keys.len() as u32,
        map_fd: number(map.as_fd()),
        elem_flags: 0,
        flags: 0,
    };
    // SAFETY: the layout of MAP_DELETE_BATCH. The keys have the size of the map's, as in `update`, and
    // outlive the call.
    unsafe { bpf(MAP_DELETE_BATCH, &mut attr) }.map(drop)
}

/// Keys of a trie, `max` at most; none if it is empty. They must have the size of the map's keys, and values
/// must have 32 bytes at most.
pub(crate) fn first_keys<K: FromBytes + Copy>(map: impl AsFd, max: usize) -> io::Result<Vec<K>> {
    let mut keys: Vec<K> = std::iter::repeat_with(K::new_zeroed).take(max).collect();
    let mut values = vec![[0u64; 4]; max];
    let mut next = K::new_zeroed();
    let mut attr = Batch {
        in_batch: 0,
        out_batch: std::ptr::from_mut(&mut next) as u64,
        keys: keys.as_mut_ptr() as u64,
        values: values.as_mut_ptr() as u64,
        count: max as u32,
        map_fd: number(map.as_fd()),
        elem_flags: 0,
        flags: 0,
    };
    // SAFETY: the layout of MAP_LOOKUP_BATCH. The kernel writes at most `count` keys and values, and a key to
    // `next`; all have room for the map's sizes, as in `update`.
    match unsafe { bpf(MAP_LOOKUP_BATCH, &mut attr) } {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        // There are no more.
        _ => keys.truncate(attr.count as usize),
    }
    Ok(keys)
}

/// All signals that the thread can block wait while this lives.
pub(crate) struct WaitingSignals {
    before: libc::sigset_t,
    /// The mask is one of a thread.
    _of_thread: PhantomData<*const ()>,
}

impl WaitingSignals {
    pub(crate) fn new() -> WaitingSignals {
        let mut before = MaybeUninit::zeroed();
        let mut all = MaybeUninit::uninit();
        // SAFETY: `sigfillset` initialises `all`, and a set of zeros is valid, should the call fail.
        let before = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
            before.assume_init()
        };
        WaitingSignals { before, _of_thread: PhantomData }
    }
}

impl Drop for WaitingSignals {
    fn drop(&mut self) {
        // SAFETY: a valid set.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

/// The values of an array map, as memory that programs share.
pub(crate) struct Mapping {
    at: *mut libc::c_void,
    len: usize,
}

// SAFETY: the memory is used by atomic operations alone, from any thread.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps an array of `len` bytes.
    pub(crate) fn new(map: impl AsFd, len: usize) -> io::Result<Mapping> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let at = unsafe { mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, map, 0) }?;
        Ok(Mapping { at, len })
    }

    /// The memory as an array.
    ///
    /// # Safety
    /// `T` consists of atomic integers alone, so that every value is valid and another writer does no harm.
    pub(crate) unsafe fn slice<T>(&self) -> &[T] {
        // SAFETY: the mapping is page-aligned, has this length, and lives as long as `self`; see above for
        // the values.
        unsafe { std::slice::from_raw_parts(self.at.cast(), self.len / size_of::<T>()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping, to which no reference is left.
        let _ = unsafe { rustix::mm::munmap(self.at, self.len) };
    }
}
