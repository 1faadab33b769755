//! The whole state, as a part of the stream to the other member.

use super::engines::{EngineRequest, Engines};
use super::{Member, Work};
use crate::wire::PeerRecord;
use gatun_nat::feed::{SessionChange, SessionId, SessionRecord};
use gatun_nat::{FeedCursor, Sequence, ShardSet};

/// Walk to the other member.
#[derive(Debug, Default)]
pub(super) struct Walk {
    worker: usize,
    at: FeedCursor,
    /// Ended sessions whose flows have sessions again. The end of the walk tells of them.
    replaced: Vec<(usize, SessionId)>,
}

impl Member {
    /// Begins a walk, or asks for its next part. Returns false if there is none, or none now.
    pub(super) fn begin_page(&mut self, now_ms: u64, engines: &mut dyn Engines) -> bool {
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
            self.walk = Some(Walk::default());
        }
        let Some(walk) = &self.walk else { return false };
        if !self.exchange.may_walk() {
            return false;
        }
        if walk.worker >= engines.workers() {
            self.end_walk(now_ms);
            return true;
        }
        let (worker, at) = (walk.worker, walk.at);
        self.submit(engines, Work::Page, vec![(worker, EngineRequest::Page(ShardSet::ALL, at))]);
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
                _ => self.tell(now_ms, worker, record),
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
        self.push_standing(now_ms);
        let number = self.exchange.push(now_ms, PeerRecord::StateEnds);
        let replaced = self.walk.take().map(|walk| walk.replaced).unwrap_or_default();
        replaced.into_iter().for_each(|(worker, id)| self.ends.add(worker, id, number));
        self.counters.walks_sent += u64::from(number.is_some());
    }
}
