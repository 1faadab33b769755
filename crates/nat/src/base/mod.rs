//! Vocabulary of all layers: time, numbers, plan, verdicts, events and counters.

pub(crate) mod attribution;
pub(crate) mod bit_tree;
pub(crate) mod build_error;
pub mod counters;
pub(crate) mod emit;
pub(crate) mod event_kind;
pub mod index;
pub(crate) mod outcome;
pub mod plan;
pub mod redirect;
pub mod rng;
pub mod shards;
pub mod special;
pub mod step;
pub(crate) mod subscriber_key;
pub(crate) mod tally;
pub mod tcp_fsm;
pub mod time;
pub mod verdict;
