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

/// Days before its end from which a certificate is to be renewed.
pub const RENEW_DAYS: u64 = 14;
const DAY_S: u64 = 86_400;

/// Full days until the end of a certificate; none after it. Both times are seconds since 1970.
pub fn days_until(end_s: u64, now_s: u64) -> Option<u64> {
    end_s.checked_sub(now_s).map(|left| left / DAY_S)
}

/// Difference of two clocks from which it is reported, ms.
const CLOCKS_DIFFER_MS: u64 = 1_000;

/// Relation of the clock of another box to the own one, in words, if they differ by more than a second.
pub(super) fn clocks_differ(difference_ms: Option<i64>) -> Option<String> {
    let difference_ms = difference_ms?;
    let (ms, way) = (difference_ms.unsigned_abs(), if difference_ms < 0 { "behind" } else { "ahead of" });
    (ms > CLOCKS_DIFFER_MS).then(|| match ms {
        ..10_000 => format!("{:.1} s {way}", ms as f64 / 1e3),
        _ => format!("{} s {way}", ms / 1_000),
    })
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
        /// Address of the other box's API, as the configuration has it.
        pub peer_api: Option<String>,
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
        /// Milliseconds by which the clock of the other box is ahead of this one's, negative if it is
        /// behind, with an error of half a second at most; none without a connection.
        pub clock_difference_ms: Option<i64>,
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

    /// Returns whether the connection fails although the other member may run: it answers, and does not fit.
    pub fn is_refused(&self) -> bool {
        let is_silence = |why: &String| {
            let no_answer = why.starts_with("cannot connect to ") || why.contains(" is silent for ");
            let closed = why.ends_with(" has closed the connection");
            no_answer || closed || why.contains(": Connection reset by peer")
        };
        self.reason.as_ref().is_some_and(|why| !is_silence(why))
    }

    /// Difference between both clocks in words, if it is more than a second.
    pub fn clock_fault(&self) -> Option<String> {
        let relation = clocks_differ(self.clock_difference_ms)?;
        Some(format!("the clock of {} is {relation} that of this box", self.other_box()))
    }

    /// Other box, as MEMBER (NAME).
    pub fn other_box(&self) -> String {
        let member = match self.member {
            Some(PeerMember::A) => "b",
            Some(PeerMember::B) => "a",
            Some(PeerMember::Other) | None => return "the other box".to_owned(),
        };
        match &self.peer_name {
            Some(name) => format!("{member} ({name})"),
            None => member.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_box_has_its_member_and_its_name() {
        let named = |member, name: Option<&str>| {
            Peer { member, peer_name: name.map(str::to_owned), ..Peer::default() }.other_box()
        };
        assert_eq!(named(Some(PeerMember::A), Some("second")), "b (second)");
        assert_eq!(named(Some(PeerMember::B), None), "a");
        assert_eq!(named(None, None), "the other box");
    }

    #[test]
    fn a_box_that_does_not_answer_is_told_from_one_that_does_not_fit() {
        let is_refused = |why: &str| Peer { reason: Some(why.to_owned()), ..Peer::default() }.is_refused();
        for why in [
            "cannot connect to 10.0.0.2:7464: Connection refused (os error 111)",
            "10.0.0.2:7464 is silent for 1000 ms",
            "the peer has closed the connection",
            "10.0.0.2:7464: Connection reset by peer (os error 104)",
        ] {
            assert!(!is_refused(why), "{why}");
        }
        for why in ["the configurations differ: workers", "10.0.0.2:7464 does not finish the TLS handshake"] {
            assert!(is_refused(why), "{why}");
        }
        assert!(!Peer::default().is_refused());
    }

    #[test]
    fn clocks_that_differ_by_more_than_a_second_have_words() {
        let of = |ms| Peer { member: Some(PeerMember::A), clock_difference_ms: ms, ..Peer::default() };
        for near in [None, Some(0), Some(1_000), Some(-1_000)] {
            assert_eq!(of(near).clock_fault(), None);
        }
        let words = |ms| of(Some(ms)).clock_fault().unwrap();
        assert_eq!(words(1_001), "the clock of b is 1.0 s ahead of that of this box");
        assert_eq!(words(-9_900), "the clock of b is 9.9 s behind that of this box");
        assert_eq!(words(86_400_000), "the clock of b is 86400 s ahead of that of this box");
        assert!(words(i64::MIN).contains(" behind "));
    }

    #[test]
    fn days_are_full_ones_and_none_after_the_end() {
        assert_eq!([days_until(DAY_S, 0), days_until(DAY_S, 1), days_until(0, 1)], [Some(1), Some(0), None]);
    }
}
