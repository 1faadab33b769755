//! The other box of a pair.

use super::running::Counter;
use crate::schema::{structs, words};

words! {
    /// State of a member of a pair.
    pub enum PeerState {
        /// Not configured.
        Off = "off",
        /// It has no state yet, and assigns no ports: it waits for the other member, or for an operator.
        Waiting = "waiting",
        /// It has its state, and is not connected.
        Alone = "alone",
        /// Connected, and one member sends the other one its whole state.
        Syncing = "syncing",
        /// Connected, and both have the same sessions.
        Synced = "synced",
        /// It gives its public addresses to the other member.
        Releasing = "releasing",
    }

    /// Member of a pair, as in `member` of `[peer]`.
    pub enum PeerMember {
        /// The first one.
        A = "a",
        /// The second one.
        B = "b",
    }
}

// `words!` defines the enum, without this trait.
#[allow(clippy::derivable_impls)]
impl Default for PeerState {
    fn default() -> Self {
        PeerState::Off
    }
}

structs! {
    /// Public addresses that one member owns: it assigns their ports.
    pub struct PeerShard {
        /// Owner.
        pub owner: PeerMember,
        /// Number of changes of the owner; 0 before the pair has begun.
        pub epoch: u64,
        /// Addresses, as ADDRESS or FIRST-LAST.
        pub addresses: Vec<String>,
    }

    /// Counters of a member since its start, and numbers of things that wait.
    #[derive(Default)]
    pub struct PeerCounters {
        /// Sessions that the other member was told of, those of the whole state included.
        pub sessions_told: u64,
        /// Ends of sessions that it was told of.
        pub ends_told: u64,
        /// Sessions of the other member that were accepted or confirmed.
        pub sessions_received: u64,
        /// Ends of the other member's sessions.
        pub ends_received: u64,
        /// Sessions of the other member that were refused, by reason.
        pub refused: Vec<Counter>,
        /// Times that the whole state was sent.
        pub walks_sent: u64,
        /// Times that the other member's whole state was received.
        pub walks_received: u64,
        /// Records of the engines that were lost because too many waited; the whole state was sent again.
        pub records_lost: u64,
        /// Connections on which both members have greeted.
        pub connections: u64,
        /// Ended sessions whose ports wait for the other member.
        pub ends_waiting: u64,
        /// Received records that wait for the engines.
        pub records_waiting: u64,
        /// Sessions of the other member that contradict own ones.
        pub contradictions: u64,
    }

    /// State of this member of a pair.
    #[derive(Default)]
    pub struct Peer {
        /// State.
        pub state: PeerState,
        /// This member; none without `[peer]`.
        pub member: Option<PeerMember>,
        /// Reason why it is not connected, or why it sends nothing.
        pub reason: Option<String>,
        /// Name of the other box, since the first connection.
        pub peer_name: Option<String>,
        /// Address and port of the other box.
        pub peer_address: Option<String>,
        /// Milliseconds since the connection was opened; none without a connection.
        pub connected_for_ms: Option<u64>,
        /// Public addresses by owner.
        pub shards: Vec<PeerShard>,
        /// True if an operator has declared the other member gone, and it has not connected since.
        pub peer_gone: bool,
        /// Milliseconds until this member owns all public addresses, after `POST /v1/peer/takeover`.
        pub takeover_in_ms: Option<u64>,
        /// Keys of the configuration that differ from the other member's, also after a reload.
        pub differences: Vec<String>,
        /// Seconds from 1970 until the own certificate or the authority's ends.
        pub certificate_end_s: Option<u64>,
        /// Counters.
        pub counters: PeerCounters,
    }
}

impl Peer {
    /// Returns whether both members are connected.
    pub fn is_connected(&self) -> bool {
        matches!(self.state, PeerState::Syncing | PeerState::Synced | PeerState::Releasing)
    }
}
