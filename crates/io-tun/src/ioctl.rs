//! The ioctls of `/dev/net/tun`: the only unsafe code of this backend. Numbers and flags are those of
//! `linux/if_tun.h`.

use rustix::ioctl::{Getter, IntegerSetter, Opcode, Setter, Updater, ioctl, opcode};
use std::io;
use std::os::fd::AsFd;

const TUNSETIFF: Opcode = opcode::write::<i32>(b'T', 202);
const TUNSETPERSIST: Opcode = opcode::write::<i32>(b'T', 203);
const TUNGETFEATURES: Opcode = opcode::read::<u32>(b'T', 207);
const TUNSETOFFLOAD: Opcode = opcode::write::<u32>(b'T', 208);
const TUNSETVNETHDRSZ: Opcode = opcode::write::<i32>(b'T', 216);

pub(crate) const IFF_TUN: u16 = 0x0001;
pub(crate) const IFF_MULTI_QUEUE: u16 = 0x0100;
pub(crate) const IFF_NO_PI: u16 = 0x1000;
pub(crate) const IFF_VNET_HDR: u16 = 0x4000;

pub(crate) const TUN_F_CSUM: u32 = 0x01;
pub(crate) const TUN_F_TSO4: u32 = 0x02;
pub(crate) const TUN_F_TSO6: u32 = 0x04;
pub(crate) const TUN_F_TSO_ECN: u32 = 0x08;
pub(crate) const TUN_F_USO4: u32 = 0x20;
pub(crate) const TUN_F_USO6: u32 = 0x40;

/// Longest device name in bytes, without the terminating zero.
pub(crate) const NAME_MAX: usize = 15;

/// `struct ifreq` for TUNSETIFF: name and flags.
#[repr(C)]
struct IfReq {
    name: [u8; NAME_MAX + 1],
    flags: u16,
    rest: [u8; 22],
}

/// Makes `fd` a queue of the device `name`, which is created if it does not exist. Returns the device's name:
/// the kernel replaces a `%d`.
pub(crate) fn set_iff(fd: impl AsFd, name: &str, flags: u16) -> io::Result<String> {
    let mut request = IfReq { name: [0; NAME_MAX + 1], flags, rest: [0; 22] };
    for (to, from) in request.name.iter_mut().zip(name.bytes().take(NAME_MAX)) {
        *to = from;
    }
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq` (40 bytes on every 64-bit Linux, as `IfReq` is);
    // `request` is one, lives over the call, and any bytes are valid for it.
    unsafe { ioctl(fd, Updater::<TUNSETIFF, IfReq>::new(&mut request))? };
    let len = request.name.iter().position(|b| *b == 0).unwrap_or(NAME_MAX);
    Ok(String::from_utf8_lossy(&request.name[..len]).into_owned())
}

/// IFF_ flags that this kernel knows.
pub(crate) fn features(fd: impl AsFd) -> io::Result<u32> {
    // SAFETY: TUNGETFEATURES writes one unsigned int.
    Ok(unsafe { ioctl(fd, Getter::<TUNGETFEATURES, u32>::new())? })
}

/// Sets the offloads that the reader of this device accepts.
pub(crate) fn set_offload(fd: impl AsFd, flags: u32) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes its argument by value and touches no memory of ours.
    unsafe { ioctl(fd, IntegerSetter::<TUNSETOFFLOAD>::new_usize(flags as usize))? };
    Ok(())
}

/// Sets if the device stays when no process has it open.
pub(crate) fn set_persist(fd: impl AsFd, stays: bool) -> io::Result<()> {
    // SAFETY: TUNSETPERSIST takes its argument by value and touches no memory of ours.
    unsafe { ioctl(fd, IntegerSetter::<TUNSETPERSIST>::new_usize(stays.into()))? };
    Ok(())
}

/// Sets the length of the virtio-net header before each packet.
pub(crate) fn set_vnet_hdr_len(fd: impl AsFd, len: i32) -> io::Result<()> {
    // SAFETY: TUNSETVNETHDRSZ reads one int, which the setter owns over the call.
    unsafe { ioctl(fd, Setter::<TUNSETVNETHDRSZ, i32>::new(len))? };
    Ok(())
}

const _: () = assert!(size_of::<IfReq>() == 40);
