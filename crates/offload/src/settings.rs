//! Settings of the manager.

use gatun_nat::feed::{FeedPolicy, SessionScope};
use gatun_wire::Prefix64;
use std::time::Duration;

/// Records that the manager needs of each engine. UDP sessions are offered after this number of packets.
pub fn feed_policy(packets: u8) -> FeedPolicy {
    FeedPolicy { sessions: SessionScope::Established, packets, paths: true, ..FeedPolicy::default() }
}

/// Settings of the manager. [`Manager::set_settings`](crate::Manager::set_settings) changes them.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// False: all entries are removed, and none is installed.
    pub enabled: bool,
    /// Maximum number of entries; at most the target's capacity counts.
    pub entries_max: u32,
    /// Epoch of the ownership of all sessions. Entries of another epoch are removed.
    pub epoch: u16,
    /// Time for which the target translates after the manager's last turn.
    pub lease: Duration,
    /// Instances by number: NAT64's first, then NAT44's. Flows of others are not installed.
    pub instances: Vec<InstanceSettings>,
}

/// Settings of an instance.
#[derive(Clone, Debug, PartialEq)]
pub struct InstanceSettings {
    /// True if its flows may be installed.
    pub offloaded: bool,
    /// Prefixes of a NAT64 instance by number, as [`Nat::prefixes`](gatun_nat::Nat::prefixes) has them: with
    /// those that it had earlier. Empty for NAT44.
    pub prefixes: Vec<Prefix64>,
    /// True if packets to the inside extend the lifetime of a session.
    pub inbound_refresh: bool,
}

/// Rules that the manager follows. A check of the model leaves out one at a time, and must find a history in
/// which that does harm. Everything else uses the default: all rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Installs an entry only after the engine has confirmed the mark.
    pub confirm_mark: bool,
    /// Releases a session only after its entry has been removed.
    pub remove_first: bool,
    /// Answers a question by the use of the entry, which would otherwise be removed.
    pub ask_target: bool,
    /// Credits packets that were translated before a removal.
    pub credit_removed: bool,
    /// Extends the lifetime by the last packets before a release.
    pub report_last: bool,
    /// Reads all state again after lost records.
    pub resync: bool,
    /// Compares entries of an earlier process with the sessions.
    pub reconcile: bool,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            confirm_mark: true,
            remove_first: true,
            ask_target: true,
            credit_removed: true,
            report_last: true,
            resync: true,
            reconcile: true,
        }
    }
}
