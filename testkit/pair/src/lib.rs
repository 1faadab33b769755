//! Ownership of ports by two members, in all orders of events.
//!
//! A model checker visits the states of shards with two members each. Members assign, free and keep ports,
//! release and claim ownership, and change their configuration. They are killed, stopped and switched off,
//! they lose packets, connections, each other and the coordinator, and their clocks differ. The model decides
//! by the functions of `gatun_peer::ownership`, the same as the daemon.
//!
//! Time passes in ticks. Every action is possible in every order; the
//! bounds of [`Bounds`] keep the number of states finite.
#![forbid(unsafe_code)]

mod act;
pub mod canonical;
mod check;
mod packets;
mod scenario;
pub mod search;
mod state;
mod walks;

pub use check::explain;
pub use scenario::{Bounds, ProcessState, Scenario, TIMING};
pub use search::{Checked, check};
pub use state::{Action, State};
pub use walks::{Walked, walk};
