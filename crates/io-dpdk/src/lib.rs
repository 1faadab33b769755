//! DPDK backend: packets from and to network cards, and to software such as memif, vhost, packet sockets.
//!
//! A port is a device. A worker has one queue of each device ([`Ports`]) and a pool of packet buffers for
//! each queue. A packet is translated in the driver's buffer and leaves in the same buffer. A separate thread
//! ([`Dpdk`]) runs DPDK's environment, starts the devices, watches their links, and closes them at the end.
//!
//! The crate is empty without its feature `libdpdk`, which needs Debian's libdpdk-dev, or another libdpdk
//! 22.11 or later.
//!
//! Unsafe code: `eal.rs`, `device.rs` and `frame.rs` call the shim's functions (`sys.rs`, `shim/`); only
//! `frame.rs` makes a slice of a packet buffer. `sys.rs` loads the shim, and DPDK's libraries with it.
#![cfg(all(target_os = "linux", feature = "libdpdk"))]

mod device;
mod eal;
pub mod error;
mod frame;
pub mod open;
pub mod ports;
mod sys;
mod watch;

pub use eal::{EalConfig, HugePages, supported};
pub use error::DpdkError;
pub use open::{DeviceConfig, Dpdk, DpdkConfig, Guard, Opened, memory_bytes};
pub use ports::{DpdkTransmit, Ports};
pub use watch::LinkEvent;

/// Descriptors of each ring, if the device supports that many.
pub(crate) const RING_LEN: u16 = 2048;
/// Largest supported MTU of a device, bytes.
pub const MTU_MAX: u16 = 9600;
