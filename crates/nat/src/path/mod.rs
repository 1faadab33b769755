//! Path of a packet through the tables: classification, translation, fast path and answers.

pub(crate) mod dispatch;
pub mod explain;
pub(crate) mod icmp_reply;
pub(crate) mod look_ahead;
pub(crate) mod nat44;
pub(crate) mod nat64;
pub(crate) mod own;
pub(crate) mod plain;
pub(crate) mod shared;
pub mod siit;
pub(crate) mod stateful;
pub(crate) mod super_packet;
