//! AF_XDP backend: packets from and to network interfaces.
//!
//! A port is an interface. A worker has one queue of each interface, and one memory area for all of them
//! ([`Ports`]): a packet received on one port leaves on another without being copied by this process. An XDP
//! program on each interface ([`program`]) takes the translator's packets and leaves everything else to the
//! kernel. The program is removed when the process ends, in whatever way.
//!
//! Unsafe code: the bpf(2) system call in `bpf.rs`, the rings in `ring.rs`, the frames in `umem.rs`, and two
//! socket options and an ioctl in `interface.rs`.
#![cfg(target_os = "linux")]

mod asm;
pub mod attached;
mod bpf;
pub mod error;
pub mod interface;
pub mod interface_helper;
pub mod open;
pub mod ports;
pub mod program;
mod ring;
pub mod rule_updates;
mod socket;
mod umem;
pub mod watch;

pub use attached::{AttachedParts, Mode, Opened, PortConfig};
pub use error::XdpError;
pub use interface::Interface;
pub use interface_helper::{InterfaceHelper, InterfaceHelperParts, Privileged};
pub use open::{Xdp, XdpConfig, queue_bytes};
pub use ports::{Ports, XdpTransmit};
pub use program::{Owner, PrefixRule};
pub use rule_updates::{RuleChange, RuleUpdates};
pub use watch::{InterfaceEvent, Watch};

/// Entries of each ring.
pub(crate) const RING_LEN: u32 = 2048;

/// Largest supported MTU in bytes: what fits a page after the headroom, with an Ethernet header with two tags
/// and some room after the packet.
pub const MTU_MAX: u32 = 3750;

/// Largest MTU whose packets fit frames of half a page.
pub(crate) const MTU_OF_SMALL_FRAMES_MAX: u32 = 1700;
