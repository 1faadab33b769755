//! P4 switches of the daemon: they translate established sessions, as the engines have decided, and a thread
//! manages them.
//!
//! ```text
//!   manager    start, orders of a reload, stop; work for switches in the manager's thread (`crate::offload`)
//!   program    P4 programs for switches that have none
//!   entries    interfaces, own addresses, routes and next hops for the switches
//!   stateless  mappings and prefixes of stateless instances, and their counters
//!   status     state for the API, lines in the log
//! ```

mod entries;
mod manager;
mod program;
mod stateless;
mod status;

pub(crate) use manager::{P4Manager, P4Orders};
