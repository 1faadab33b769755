//! The bpf(2) system call, with the few commands that are used: maps, a program, a link.
//!
//! Layouts follow `union bpf_attr` in `linux/bpf.h`, one struct per command. The kernel treats missing bytes
//! at the end as zero.

use crate::asm::Insn;
use std::ffi::{CStr, CString, c_long};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

const MAP_CREATE: c_long = 0;
const MAP_UPDATE_ELEM: c_long = 2;
const MAP_DELETE_ELEM: c_long = 3;
const PROG_LOAD: c_long = 5;
#[cfg(test)]
const PROG_TEST_RUN: c_long = 10;
const LINK_CREATE: c_long = 28;

const PROG_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;
/// A trie allocates memory per entry and must be created with this flag.
const F_NO_PREALLOC: u32 = 1;
/// Size in bytes of the buffer for the verifier's log when it refuses a program.
const LOG_LEN: usize = 64 << 10;

/// Map types that are used (`enum bpf_map_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum MapKind {
    /// Longest prefix match.
    LpmTrie = 11,
    /// AF_XDP sockets by queue.
    XskMap = 17,
}

#[repr(C)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    entries_max: u32,
    flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    name: [u8; NAME_LEN],
}

#[repr(C)]
struct MapElement {
    map_fd: u32,
    _pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgLoad {
    kind: u32,
    insn_count: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    flags: u32,
    name: [u8; NAME_LEN],
    ifindex: u32,
    expected_attach_type: u32,
}

#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
}

#[cfg(test)]
#[repr(C)]
#[derive(Default)]
struct TestRun {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
}

/// Length of a name in the kernel, including the terminating zero.
const NAME_LEN: usize = 16;

fn named(name: &str) -> [u8; NAME_LEN] {
    let mut bytes = [0; NAME_LEN];
    bytes.iter_mut().zip(name.bytes().take(NAME_LEN - 1)).for_each(|(to, from)| *to = from);
    bytes
}

/// # Safety
/// `T` is the layout of `command`. Every address in it points to memory that the kernel may read (or write,
/// if the command writes) for the length given in the adjacent field.
unsafe fn bpf<T>(command: c_long, attr: &mut T) -> io::Result<c_long> {
    // SAFETY: `attr` is live, exclusively borrowed and has the given size. The caller guarantees the memory
    // that it points to.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn owned(fd: c_long) -> OwnedFd {
    // SAFETY: a command that creates an object returns a new file descriptor that nobody else owns.
    unsafe { OwnedFd::from_raw_fd(fd as RawFd) }
}

/// Creates a map.
pub(crate) fn create_map(
    kind: MapKind,
    name: &str,
    key_size: u32,
    value_size: u32,
    entries_max: u32,
) -> io::Result<OwnedFd> {
    let flags = if kind == MapKind::LpmTrie { F_NO_PREALLOC } else { 0 };
    let mut attr = MapCreate {
        kind: kind as u32,
        key_size,
        value_size,
        entries_max,
        flags,
        inner_map_fd: 0,
        numa_node: 0,
        name: named(name),
    };
    // SAFETY: the layout of MAP_CREATE; it has no addresses.
    unsafe { bpf(MAP_CREATE, &mut attr) }.map(owned)
}

/// Sets the value of a key. Both must have the sizes of the map.
pub(crate) fn update<const K: usize>(map: impl AsFd, key: [u8; K], value: u32) -> io::Result<()> {
    let mut attr = MapElement {
        map_fd: map.as_fd().as_raw_fd() as u32,
        _pad: 0,
        key: key.as_ptr() as u64,
        value: std::ptr::from_ref(&value) as u64,
        flags: 0,
    };
    // SAFETY: the layout of MAP_UPDATE_ELEM; key and value outlive the call. Every map of this crate has
    // values of four bytes, and `Maps` and `Steering` use keys of each map's size.
    unsafe { bpf(MAP_UPDATE_ELEM, &mut attr) }.map(drop)
}

/// Deletes a key, if it exists.
pub(crate) fn delete<const K: usize>(map: impl AsFd, key: [u8; K]) -> io::Result<()> {
    let map_fd = map.as_fd().as_raw_fd() as u32;
    let mut attr = MapElement { map_fd, _pad: 0, key: key.as_ptr() as u64, value: 0, flags: 0 };
    // SAFETY: the layout of MAP_DELETE_ELEM; the key outlives the call and has the map's key size, as above.
    match unsafe { bpf(MAP_DELETE_ELEM, &mut attr) } {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Loads a program. The error contains the end of the verifier's log.
pub(crate) fn load(code: &[Insn], name: &str) -> io::Result<OwnedFd> {
    let quiet = load_with(code, name, &mut []);
    let Err(error) = quiet else { return quiet };
    if !matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EACCES)) {
        return Err(error);
    }
    let mut log = vec![0u8; LOG_LEN];
    let error = match load_with(code, name, &mut log) {
        Ok(program) => return Ok(program),
        Err(error) => error,
    };
    let log = CStr::from_bytes_until_nul(&log).unwrap_or_default().to_string_lossy().into_owned();
    let last = log.trim().lines().rev().take(3).collect::<Vec<_>>();
    Err(io::Error::new(error.kind(), format!("{error}; verifier log: {}", last.join(" <- "))))
}

fn load_with(code: &[Insn], name: &str, log: &mut [u8]) -> io::Result<OwnedFd> {
    // No helper that is called requires a GPL-compatible program.
    let license = CString::from(c"Apache-2.0 OR MIT");
    let logs = !log.is_empty();
    let mut attr = ProgLoad {
        kind: PROG_TYPE_XDP,
        insn_count: code.len() as u32,
        insns: code.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: u32::from(logs),
        log_size: log.len() as u32,
        log_buf: if logs { log.as_mut_ptr() as u64 } else { 0 },
        kern_version: 0,
        flags: 0,
        name: named(name),
        ifindex: 0,
        expected_attach_type: ATTACH_TYPE_XDP,
    };
    // SAFETY: the layout of PROG_LOAD; code, licence and log outlive the call and have the given sizes. The
    // verifier checks the code.
    unsafe { bpf(PROG_LOAD, &mut attr) }.map(owned)
}

/// Attaches a program to an interface until the returned file is closed.
pub(crate) fn attach(program: impl AsFd, ifindex: u32, flags: u32) -> io::Result<OwnedFd> {
    let prog_fd = program.as_fd().as_raw_fd() as u32;
    let mut attr = LinkCreate { prog_fd, target_ifindex: ifindex, attach_type: ATTACH_TYPE_XDP, flags };
    // SAFETY: the layout of LINK_CREATE; it contains no addresses.
    unsafe { bpf(LINK_CREATE, &mut attr) }.map(owned)
}

/// Runs a program on a frame and returns its result.
#[cfg(test)]
pub(crate) fn test_run(program: impl AsFd, frame: &[u8]) -> io::Result<u32> {
    let mut attr = TestRun {
        prog_fd: program.as_fd().as_raw_fd() as u32,
        data_size_in: frame.len() as u32,
        data_in: frame.as_ptr() as u64,
        repeat: 1,
        ..TestRun::default()
    };
    // SAFETY: the layout of PROG_TEST_RUN; the frame outlives the call, and the kernel writes nothing.
    unsafe { bpf(PROG_TEST_RUN, &mut attr) }?;
    Ok(attr.retval)
}
