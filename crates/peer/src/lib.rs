//! Ownership of public ports by two boxes that back each other.
//!
//! A shard is a set of public addresses with their ports. Two members have its state: one owns the shard, the
//! other one is its backup. Both translate the mappings that they know, whichever way the packets take. The
//! rules in [`ownership`] decide which of them may assign a port, and when a freed port may be used again, so
//! that no port ever has two subscribers.
//!
//! [`wire`] is the protocol by which they send each other their state, over TLS ([`tls`]). [`link`] has the
//! sockets, and no thread. [`member`] connects the protocol with the engines of a process. [`driver`] is the
//! body of a member's thread in a process whose engines are [`workers`].
//!
//! The rules know no socket, no thread and no clock. `testkit/pair` checks them: a model checker
//! visits all states of two members that lose packets, each other, their state and their clocks.
#![forbid(unsafe_code)]

pub mod driver;
pub mod link;
pub mod member;
pub mod ownership;
pub mod records;
pub mod tls;
pub mod wire;
pub mod workers;
