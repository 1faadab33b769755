//! Translation engine: its state and its entry point.
//!
//! [`Nat::process`] is the entire data path: state x time x bytes -> verdict. It has no clock, no I/O and no
//! threads, and it allocates nothing after construction. An engine is built from a [`plan`].
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

pub mod engine;
pub mod workers;

mod base;
mod lifecycle;
mod path;
mod tables;

pub use base::build_error::{BuildError, StaticBindingError};
pub use base::counters::Counters;
pub use base::emit::Emitted;
pub use base::plan::Plan;
pub use base::shards::ShardSet;
pub use base::step::Step;
pub use base::time::Instant;
pub use base::verdict::{Reply, Verdict};
pub use base::{counters, index, plan, redirect, rng, shards, special, step, tcp_fsm, time, verdict};
pub use engine::{BURST, Nat, Occupancy};
pub use lifecycle::clear::{ClearCursor, Cleared, Extent, SessionKey};
pub use lifecycle::offload::FeedCursor;
pub use lifecycle::{inspect, memory, reconfigure, report, session_file};
pub use path::{explain, siit};
pub use tables::event::{Event, EventKind, EventKinds, EventReader, Sequence};
pub use tables::{eamt, event, feed, fragment, icmp_limit, pool4, standby, subscriber, syn_store};
