//! Path of a packet through the tables.
//!
//! ```text
//!   translate   a burst, packet by packet: counted, answered
//!     look_ahead    prefetches the memory that each packet needs
//!     fast_path     packets of live sessions
//!     slow_path     all others: classify, then stateful, nat64, nat44, siit, fragments
//!     answer        ICMP errors
//!   explain     forecast of a packet's outcome
//!   restore     sessions of another process
//! ```

pub(crate) mod answer;
pub(crate) mod classify;
pub(crate) mod context;
pub mod explain;
pub(crate) mod fast_path;
pub(crate) mod fragments;
pub(crate) mod icmp_reply;
pub(crate) mod look_ahead;
pub(crate) mod nat44;
pub(crate) mod nat64;
pub(crate) mod own_address;
pub(crate) mod path_mtu;
pub(crate) mod policy;
pub(crate) mod query;
pub(crate) mod redirect;
pub(crate) mod restore;
pub(crate) mod rewrite;
pub(crate) mod rules;
pub mod siit;
pub(crate) mod slow_path;
pub(crate) mod state;
pub(crate) mod stateful;
pub(crate) mod super_packet;
pub(crate) mod translate;
