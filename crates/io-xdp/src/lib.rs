//! Packets from and to network interfaces through AF_XDP.
//!
//! A port is an interface; a worker has one queue of each, and one memory for all of them ([`Ports`]): a packet
//! that is received on one port leaves by another without being copied by this process. An XDP program on each interface
//! ([`program`]) takes what is the translator's, and leaves everything else to the kernel. It goes with the process,
//! however that ends.
//!
//! Unsafe code: the system call bpf(2) in `bpf.rs`, the rings in `ring.rs`, the frames in `umem.rs`, and two socket
//! options and an ioctl in `interface.rs`.
#![cfg(target_os = "linux")]

mod asm;
mod bpf;
pub mod error;
pub mod interface;
pub mod keeper;
pub mod open;
pub mod orders;
pub mod ports;
pub mod program;
mod ring;
mod socket;
mod umem;
pub mod watch;

pub use error::XdpError;
pub use interface::Interface;
pub use keeper::{AttachedParts, Keeper, KeeperParts, Privileged};
pub use open::{Mode, Opened, PortConfig, Xdp, XdpConfig, queue_bytes};
pub use orders::{Change, Orders};
pub use ports::{Outbox, Ports};
pub use program::{Entry, Whose};
pub use watch::{Event, Watch};

/// Entries of each ring.
pub(crate) const RING_LEN: u32 = 2048;

/// The largest MTU of an interface that is served, bytes: what fits into a page behind the room in front, with an
/// Ethernet header of two tags and some room behind it.
pub const MTU_MAX: u32 = 3750;

/// The largest MTU whose packets fit into frames of half a page.
pub(crate) const MTU_OF_SMALL_FRAMES_MAX: u32 = 1700;
