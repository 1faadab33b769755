//! Shards of a cluster: who owns each, who backs it up, and who changes that (decision 0107).
//!
//! A cluster has up to 256 shards. Each has a record in a coordinator (etcd): its owner, its backup, and the
//! generation of the ownership. Nodes change records by compare-and-swap alone, and only by [`transitions`].
//! Between two nodes, a shard is one of a pair (`gatun_peer`).
//!
//! | module | contents |
//! |---|---|
//! | [`record`] | record of a shard, and its text |
//! | [`transitions`] | changes of a record, with what each needs |
//! | [`target`] | nodes that should have each shard, by rendezvous hashing |
//! | [`policy`] | next change that a node makes |
//! | [`coordination`] | part of a node in its cluster |
//! | [`node`] | node: its part in the cluster, the other nodes and the engines together |
//! | [`revision`] | revisions of the configuration, and what a node does about them |
//! | [`store`] | the coordinator, as a node uses it |
//! | [`etcd`] | client of etcd |
//!
//! Except for the last one, these modules know no socket, no thread and no clock. `testkit/cluster` checks
//! the transitions: a model checker visits all states of up to three nodes that lose each other, the
//! coordinator and their state.
#![forbid(unsafe_code)]

pub mod coordination;
pub mod etcd;
pub mod node;
pub mod policy;
pub mod record;
pub mod revision;
mod rules;
pub mod store;
pub mod target;
mod timing;
pub mod transitions;

pub use rules::ClusterRules;
pub use timing::ClusterTiming;
