//! The whole state, as a part of the stream to the other member.

use super::engines::{EngineRequest, Engines};
use super::{Member, Work};
use crate::wire::PeerRecord;
use gatun_nat::feed::{SessionChange, SessionId, SessionRecord};
use gatun_nat::{FeedCursor, Sequence, ShardSet};

/// Walk to the other member.
#[derive(Debug, Default)]
pub(super) struct Walk {
    pub(super) shards: ShardSet,
    worker: usize,
    at: FeedCursor,
    /// Ended sessions whose flows have sessions again. The end of the walk tells of them.
    pub(super) replaced: Vec<(usize, SessionId)>,
}

impl Walk {
    pub(super) fn new(shards: ShardSet) -> Walk {
        Walk { shards, ..Walk::default() }
    }
}

impl Member {
    /// Begins a walk, or asks for its next part. Returns false if there is none, or none now.
    pub(super) fn begin_page(&mut self, now_ms: u64, engines: &mut dyn Engines) -> bool {
        if self.shared.is_some() {
            return self.begin_page_of_shards(now_ms, engines);
        }
        if !self.exchange.is_walking() {
            self.walk = None;
        }
        // Some ends of a half-handled group are executed, and others are not. A walk would answer all.
        let may_act = self.own.is_settled || !self.settings.rules.wait_for_state;
        // Before the greeting of a new process is handled, no end waits for it, not even those of a walk.
        if self.is_in_group || !self.exchange.is_open() || !may_act || self.own.is_peer_gone {
            return false;
        }
        if self.exchange.needs_walk() {
            self.exchange.push(now_ms, PeerRecord::StateBegins);
            self.ends.all_untold();
            self.walk = Some(Walk::new(ShardSet::ALL));
        }
        self.next_page(now_ms, engines)
    }

    /// Asks for the next part of the present walk, if there is one and the log has room.
    pub(super) fn next_page(&mut self, now_ms: u64, engines: &mut dyn Engines) -> bool {
        let Some(walk) = &self.walk else { return false };
        if !self.exchange.may_walk() {
            return false;
        }
        if walk.worker >= engines.workers() {
            self.end_walk(now_ms);
            return true;
        }
        let (worker, at, shards) = (walk.worker, walk.at, walk.shards);
        self.submit(engines, Work::Page, vec![(worker, EngineRequest::Page(shards, at))]);
        true
    }

    /// Sends a part of a walk: after all that the engine has reported before, and before anything else.
    pub(super) fn page_part(
        &mut self,
        now_ms: u64,
        engines: &mut dyn Engines,
        worker: usize,
        (found, until): (&[SessionRecord], Option<Sequence>),
    ) {
        self.read_feed(now_ms, engines, worker, until, &mut None);
        for record in found {
            match record.change {
                SessionChange::Closing => {
                    if let Some(walk) = &mut self.walk {
                        walk.replaced.push((worker, record.id));
                    }
                }
                change => {
                    let number = self.tell(now_ms, worker, record);
                    // The others were told before.
                    if change == SessionChange::Opened {
                        self.note_told(number, record);
                    }
                }
            }
        }
    }

    /// A worker has read a page up to a position.
    pub(super) fn page_ends(&mut self, worker: usize, at: FeedCursor) {
        if let Some(walk) = &mut self.walk {
            walk.at = at;
            if at.is_done() {
                (walk.worker, walk.at) = (worker + 1, FeedCursor::default());
            }
        }
    }

    fn end_walk(&mut self, now_ms: u64) {
        let Some(walk) = self.walk.take() else { return };
        let number = match self.shared.is_some() {
            true => self.shards_walked(now_ms, walk.shards),
            false => {
                self.push_standing(now_ms);
                self.exchange.push(now_ms, PeerRecord::StateEnds)
            }
        };
        for (worker, id) in walk.replaced {
            let number = number.filter(|_| self.is_shared(id.flow.outside.0));
            self.ends.add_replaced(worker, id, number);
        }
        self.counters.walks_sent += u64::from(number.is_some());
    }
}
