//! Packet I/O on a Linux TUN device.
//!
//! The kernel delivers what its own stacks produce: TCP super-packets of up to 64 KB with an unfinished
//! checksum, described by a virtio-net header ([`vnet`]). Gatun translates each as one packet and returns it
//! the same way. Nearly all of this backend's speed comes from that.
//!
//! [`Tun::open`] creates or attaches, `gatun_netlink` applies the operator's settings, and [`TunQueue`] is
//! the [`gatun_io::Backend`] of one worker. Unsafe code: the ioctls in `ioctl.rs`.

mod coalesce;
mod datagram;
pub mod error;
mod ioctl;
mod marker;
pub mod open;
pub mod queue;
mod repair;
pub mod vnet;
pub mod watch;
mod writer;

pub use error::TunError;
pub use gatun_netlink::Prefix;
pub use marker::MarkerDevice;
pub use open::{Guard, KillBehaviour, Mode, Offloads, Tun, TunConfig};
pub use queue::{QUEUE_BYTES, TunQueue};
pub use watch::{LinkEvent, LinkWatch, Rerouted, Restored, WatchEvent, WatchedDevice};
