//! The other box of a pair: each has the sessions of both.
//!
//! ```text
//!   opening    at start: socket, certificates, seed of the subscribers' hash
//!   manager    the thread: link, member and engines; orders of a reload and of the API
//!   fence      time until which the box translates, for the fast path
//!   addresses  public addresses by their owner when the pair begins
//!   keys       settings that both boxes must have in common
//!   standing   state of the member that outlives the process, beside its sessions
//!   routes     networks that the box announces as backup
//!   status     state for the API, and lines in the log
//! ```
//! The protocol and its rules are in `gatun_peer`. Decision 0106 has the reasons.

mod addresses;
mod fence;
mod keys;
mod manager;
mod opening;
mod routes;
mod standing;
mod status;

pub(crate) use addresses::{Layout, by_shard, steering};
pub(crate) use fence::SharedFence;
pub(crate) use keys::{of_cluster, of_statics as static_keys};
pub(crate) use manager::{PeerManager, PeerOrders, PreparedPeer, memory_bytes, prepare};
pub(crate) use opening::{OpenedPeer, authority_of_nodes, bind, files, open, seed};
pub(crate) use standing::StoredRange;
pub(crate) use status::{addresses, counters, named, unsaved};

use gatun_config::Peer;

/// Lists differences between two configurations that need a restart.
pub fn restarts(old: Option<&Peer>, new: Option<&Peer>) -> Vec<String> {
    match old == new {
        true => Vec::new(),
        false => vec!["[peer]".to_owned()],
    }
}
