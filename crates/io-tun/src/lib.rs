//! Packets from and to a Linux TUN device.
//!
//! The kernel hands over what its own stacks make: TCP super-packets of up to 64 KB with an unfinished
//! checksum, described by a virtio-net header ([`vnet`]). They are translated as one packet and go back
//! the same way; that is nearly all of this backend's speed.
//!
//! [`Tun::open`] creates or attaches, `gatun_netlink` sets up what the operator asked for, [`TunQueue`] is the
//! [`gatun_io::Backend`] of one worker. Unsafe code: four ioctls, in `ioctl.rs`.

mod coalesce;
mod datagram;
pub mod error;
mod ioctl;
pub mod open;
pub mod queue;
mod repair;
pub mod vnet;
pub mod watch;
mod writer;

pub use error::TunError;
pub use gatun_netlink::Prefix;
pub use open::{Guard, Mode, Offloads, OnKill, Tun, TunConfig};
pub use queue::{QUEUE_BYTES, TunQueue};
pub use watch::{LinkEvent, LinkWatch, Rerouted, Restored, WatchedDevice, Woken};
