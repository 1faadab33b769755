//! Kernel fast path: an eBPF program at the egress of the TUN device translates established sessions and
//! hands the packets to the device's ingress. All other packets go on to the engine.
//!
//! ```text
//!   open       loads the program, takes over the maps of a former process, attaches it    needs capabilities
//!   table      sessions: install, read, remove                                          needs none
//!   control    lease, epoch, and how far each worker is                                 needs none
//!   counters   packets by reason
//!   flow       a session, and what the maps hold of it
//!   entries    the hash table of the sessions, in memory that the program shares
//!   stateless, stateless_maps   mappings of stateless instances, in tries
//!   xdp        the program at network interfaces
//!   others     pins of ended processes in other folders
//!   attach     the programs' places, for a process that attaches them again, too
//!   program, programs, link, pins, maps, layout, sys    below these
//! ```
//! The program is C (`bpf/`). Its object is in the repository, so that a build needs no compiler for it;
//! `bpf/build.sh` makes it.
#![cfg(target_os = "linux")]

mod attach;
mod config;
mod control;
mod counters;
mod entries;
mod error;
mod flow;
mod instance;
mod layout;
mod link;
mod maps;
mod open;
mod others;
mod pins;
mod program;
mod programs;
mod stateless;
mod stateless_maps;
mod sys;
mod table;
mod xdp;

// The tests of `wire` use the modules by these names.
#[cfg(test)]
#[path = "../../wire/tests/support/beside.rs"]
mod common;
#[cfg(test)]
use exactness_tests::beside_wire;
#[cfg(test)]
mod exactness_tests;
#[cfg(test)]
mod kernel_tests;
#[cfg(test)]
mod link_tests;

// The live tests' middle uses the crate by its name.
#[cfg(test)]
extern crate self as gatun_io_fastpath;

pub use attach::{Attachment, Places, detach, unpin_all};
pub use config::{FastPathConfig, Hook};
pub use control::{Control, IdentRange, KernelTime};
pub use counters::{Counters, Reason};
pub use error::FastPathError;
pub use flow::{Flow, Inside, Protocol};
pub use instance::Instance;
pub use layout::WORKERS_MAX;
pub use link::ProgramLink;
pub use open::{Adoption, FastPath, mount_bpffs};
pub use others::pins_elsewhere;
pub use programs::{PlaceNames, Programs};
pub use stateless::{Mapping, Network, Stateless, StatelessPlan, StatelessSet, Ways};
pub use table::{DirectionUse, FlowUse, Refusal, SlotId, StatelessTraffic, Table, Traffic};
pub use xdp::XdpInterface;
