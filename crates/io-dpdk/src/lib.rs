//! Packets from and to devices of DPDK: network cards, and software such as memif, vhost, packet sockets.
//!
//! A port is a device; a worker has one queue of each ([`Ports`]) and a pool of packet buffers for each of those. A packet
//! is translated where the driver put it and leaves in the same buffer. A thread of its own ([`Dpdk`]) keeps DPDK's
//! environment, starts the devices, looks whether their links are up, and closes them at the end.
//!
//! The crate is empty without its feature `libdpdk`, which needs Debian's libdpdk-dev, or another libdpdk 22.11 or later.
//!
//! Unsafe code: the shim's functions (`sys.rs`, `shim/`) are called in `eal.rs`, `device.rs` and `frame.rs`; the last
//! is the one that makes a slice of a packet buffer. `sys.rs` loads the shim, and DPDK's libraries with it.
#![cfg(all(target_os = "linux", feature = "libdpdk"))]

mod device;
mod eal;
pub mod error;
mod frame;
pub mod open;
pub mod ports;
mod sys;
mod watch;

pub use eal::{EalConfig, HugePages};
pub use error::DpdkError;
pub use open::{DeviceConfig, Dpdk, DpdkConfig, Guard, Opened};
pub use ports::{Outbox, Ports};
pub use sys::supported;
pub use watch::Event;

/// Descriptors of each ring, where the device has so many.
pub(crate) const RING_LEN: u16 = 2048;
/// The largest MTU of a device that is served, bytes.
pub const MTU_MAX: u16 = 9600;
