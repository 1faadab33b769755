//! Sessions of the other member that contradict own ones, until they fit.
//!
//! After a split network, an inside host can have a public port at each member. The engine reserves the port,
//! and the session is tried again as long as the other member has it. A session that an engine cannot even
//! reserve keeps this member from owning anything: it would assign the port.

use super::round::outside;
use gatun_nat::standby::{OutsideFlow, PeerRefusal, PeerSession};
use std::collections::HashMap;

/// Maximum number of remembered sessions. More come with the next walk.
const SESSIONS_MAX: usize = 2_048;

/// Refused sessions, with the group that the other member had handled when it told them.
#[derive(Debug, Default)]
pub(super) struct RefusedSessions {
    sessions: HashMap<OutsideFlow, Refused>,
    next_ms: u64,
    /// Number of sessions whose ports are not reserved.
    unreserved: usize,
    /// True if there were too many.
    is_overfull: bool,
    /// True if the other member sends its whole state, and some were not reserved before.
    is_open: bool,
}

#[derive(Clone, Copy, Debug)]
struct Refused {
    session: PeerSession,
    seen: u64,
    is_reserved: bool,
}

impl RefusedSessions {
    pub(super) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Returns whether all ports of these sessions are reserved.
    pub(super) fn are_reserved(&self) -> bool {
        self.unreserved == 0 && !self.is_overfull && !self.is_open
    }

    /// The other member begins to send its whole state.
    pub(super) fn walk_begins(&mut self) {
        *self = RefusedSessions { is_open: !self.are_reserved(), ..RefusedSessions::default() };
    }

    /// It has sent its whole state.
    pub(super) fn walk_ends(&mut self) {
        self.is_open = false;
    }

    /// The other member is gone.
    pub(super) fn clear(&mut self) {
        *self = RefusedSessions::default();
    }

    /// Returns false if it was refused before.
    pub(super) fn add(&mut self, session: PeerSession, seen: u64, why: PeerRefusal) -> bool {
        let flow = outside(&session.flow);
        let is_new = !self.remove(&flow);
        if self.sessions.len() >= SESSIONS_MAX {
            self.is_overfull = true;
            return is_new;
        }
        let is_reserved = matches!(why, PeerRefusal::Conflict | PeerRefusal::NotInPool);
        self.unreserved += usize::from(!is_reserved);
        self.sessions.insert(flow, Refused { session, seen, is_reserved });
        is_new
    }

    /// The session was accepted, or has ended. Returns whether it was refused before.
    pub(super) fn remove(&mut self, flow: &OutsideFlow) -> bool {
        // There are none as a rule, and then no hash is needed.
        if self.sessions.is_empty() {
            return false;
        }
        let Some(refused) = self.sessions.remove(flow) else { return false };
        self.unreserved -= usize::from(!refused.is_reserved);
        true
    }

    /// Has all tried at once, because the engines have lost the reservations.
    pub(super) fn hurry(&mut self) {
        self.next_ms = 0;
    }

    /// Returns the sessions to be tried now.
    pub(super) fn due(&mut self, now_ms: u64, again_ms: u64) -> Vec<(PeerSession, u64)> {
        if self.sessions.is_empty() || now_ms < self.next_ms {
            return Vec::new();
        }
        self.next_ms = now_ms + again_ms;
        self.sessions.values().map(|refused| (refused.session, refused.seen)).collect()
    }
}
