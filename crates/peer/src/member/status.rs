//! State of a member, for operators and metrics.

use crate::ownership::{Epoch, Member};
use crate::wire::KeyDifference;

/// Counters of a member since its start, and its gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairCounters {
    /// Sessions that the other member was told of, walks included.
    pub sessions_told: u64,
    /// Ends of sessions that it was told of.
    pub ends_told: u64,
    /// Sessions of the other member that the engines have accepted or confirmed.
    pub sessions_received: u64,
    /// Ends of the other member.
    pub ends_received: u64,
    /// Sessions of the other member that the engines have refused, by
    /// [`PeerRefusal`](gatun_nat::standby::PeerRefusal).
    pub refused: [u64; 5],
    /// Times that the whole state was sent completely.
    pub walks_sent: u64,
    /// Times that the other member's whole state was received completely.
    pub walks_received: u64,
    /// Records that an engine has lost because the member did not read its feed in time.
    pub lost: u64,
    /// Connections on which both members have greeted.
    pub connections: u64,
    /// Ended sessions whose ports wait for the other member.
    pub ends_waiting: usize,
    /// Sessions of the other member that contradict own ones; at most 2,048.
    pub contradictions: usize,
    /// Received records that wait for the engines.
    pub records_waiting: usize,
}

/// State of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairStatus {
    /// Member.
    pub me: Member,
    /// True if it has its state and was not declared gone: it may assign ports.
    pub is_settled: bool,
    /// True if the operator has said to the other member that this one is gone.
    pub is_declared_gone: bool,
    /// True if the operator has said that the other member is gone.
    pub is_peer_gone: bool,
    /// True if both have accepted each other's greetings on the present connection.
    pub is_open: bool,
    /// True if the connection is open, and neither sends its whole state.
    pub is_synced: bool,
    /// True while it gives its shards to the other member, until that one has handled the release.
    pub is_releasing: bool,
    /// Time until the operator's word is used, ms.
    pub takeover_in_ms: Option<u64>,
    /// Latest epoch of each shard.
    pub epochs: Vec<Epoch>,
    /// Name of the other box; empty before the first greeting.
    pub peer_name: String,
    /// Differences of the configurations, as far as the members have told each other.
    pub differences: Vec<KeyDifference>,
    /// Ms by which the other box's wall clock is ahead; negative if it is behind.
    pub clock_difference_ms: Option<i64>,
    /// Counters.
    pub counters: PairCounters,
}
