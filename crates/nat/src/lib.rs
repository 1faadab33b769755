//! The translator's state, and its one entry point.
//!
//! [`Nat::process`] is the entire data path: state x time x bytes -> verdict. It knows no clock, no I/O,
//! no thread, and allocates nothing after construction. [`plan`] is what it is built from.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

extern crate alloc;
#[cfg(test)]
extern crate self as gatun_nat;
#[cfg(test)]
extern crate std;

pub mod counters;
pub mod eamt;
pub mod engine;
pub mod event;
pub mod explain;
pub mod fragment;
pub mod icmp_limit;
pub mod index;
pub mod inspect;
pub mod kept;
pub mod memory;
pub mod plan;
pub mod pool4;
pub mod reconfigure;
pub mod report;
pub mod rng;
pub mod siit;
pub mod special;
pub mod step;
pub mod subscriber;
pub mod syn_store;
pub mod tcp_fsm;
pub mod time;
pub mod verdict;
pub mod workers;

mod bib;
mod bit_tree;
mod build_error;
mod clear;
mod dispatch;
mod emit;
mod icmp_reply;
mod ident;
mod look_ahead;
mod nat44;
mod nat64;
mod own;
mod path_mtu;
mod plain;
mod pool6;
mod ports;
mod probe;
mod session;
mod shared;
mod stateful;
mod super_packet;
mod sweep;
mod tally;

pub use build_error::{BuildError, NotBound};
pub use clear::{ClearCursor, Cleared, Extent, SessionKey};
pub use counters::Counters;
pub use emit::Emitted;
pub use engine::{BURST, Nat, Occupancy};
pub use event::{Event, EventKind, EventKinds, EventReader, Sequence};
pub use plan::Plan;
pub use step::Step;
pub use time::Instant;
pub use verdict::{Reply, Verdict};
