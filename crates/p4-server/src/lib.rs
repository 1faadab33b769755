//! P4Runtime server of a P4 switch.
//!
//! [`Device`] executes requests on a [`Target`], the switch; [`Arbitration`] decides which controller may
//! write. Neither knows a network. [`serve`] answers controllers: connections, messages, streams and queues
//! are bounded.
//!
//! The targets: [`MemoryTarget`] keeps entries and forwards nothing. With feature `libdpdk`, [`Host`] is a
//! program of p4c-dpdk on DPDK's pipeline (`gatun-p4-switch`), in a thread of its own.
//!
//! The server has no roles, direct counters and meters, action profiles, digests, idle time-outs, and changes
//! of default actions. It refuses requests for these in words.
#![forbid(unsafe_code)]

mod arbitration;
mod device;
#[cfg(all(target_os = "linux", feature = "libdpdk"))]
mod host;
mod memory;
mod pipeline;
mod read;
mod refusal;
mod secure;
mod service;
mod store;
mod target;
mod values;
mod write;

pub use arbitration::{Arbitration, CONTROLLERS_MAX, Notices, StreamId};
pub use device::Device;
pub use gatun_tls::Directory;
#[cfg(all(target_os = "linux", feature = "libdpdk"))]
pub use host::{Host, HostConfig, HostCounters, HostHandle};
pub use memory::{Memory, MemoryTarget};
pub use read::{PART_MAX, Reading};
pub use refusal::Refusal;
pub use secure::ServerTls;
pub use service::{CONNECTIONS_MAX, HANDSHAKES_MAX, MESSAGE_MAX, Server, ServerCounters, serve};
pub use target::{
    Call, Change, MaskedEntry, Program, ProgramAction, ProgramTable, Rates, Target, TargetError,
};
