//! Shards of a cluster, in all orders of events (decision 0107).
//!
//! A model checker visits the states of up to three nodes and two shards. Nodes assign, free and keep ports,
//! and change the shards' records in the coordinator. They are killed, stopped and switched off, they lose
//! packets, each other and the coordinator, their writes are late, and their clocks differ. The model decides
//! by the functions of `gatun_cluster` and `gatun_peer::ownership`, the same as the daemon.
//!
//! Time passes in ticks. Every action is possible in every order; the bounds of [`Bounds`] keep the number of
//! states finite.
#![forbid(unsafe_code)]

mod act;
mod canonical;
mod check;
mod packets;
mod possible;
mod records;
pub mod scaling;
mod scenario;
mod state;

pub use check::explain;
pub use scenario::{Bounds, Scenario, TIMING};
pub use state::{Action, State, Way};
