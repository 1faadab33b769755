//! Records of the state feed, for changes of the tables.

use super::{NO_SUBSCRIBER, Tables};
use crate::base::attribution::Party;
use crate::base::counters::Traffic;
use crate::base::plan::Transport;
use crate::base::time::Instant;
use crate::tables::event::{EventKind, Events, Sequence};
use crate::tables::feed::{
    Feed, FeedPolicy, Flow, PathRecord, SessionChange, SessionRecord, SessionScope, Turn,
};
use crate::tables::pool4::PortBlock;
use crate::tables::session::{RecordId, Session};
use crate::tables::subscriber::SubscriberKey;
use alloc::boxed::Box;
use core::net::Ipv4Addr;

impl Session {
    /// The identity of its flow.
    pub(crate) fn identity(&self) -> Flow {
        Flow {
            inside: (self.inside_addr(), self.inside_port()),
            outside: self.outside(),
            remote: self.remote(),
            transport: self.transport(),
            instance: self.instance,
        }
    }
}

/// Same as [`Tables::end_budget`], for parts of the tables.
pub(super) fn end_budget(
    events: &mut Events,
    feed: &mut Option<Box<Feed>>,
    now: Instant,
    ends: usize,
) -> usize {
    let some = events.budget(now, ends);
    match feed {
        Some(feed) => some.min(feed.budget(now, ends)),
        None => some,
    }
}

/// Reports a port block at a public address.
pub(super) fn block(
    feed: &mut Option<Box<Feed>>,
    kind: EventKind,
    owner: SubscriberKey,
    outside: Ipv4Addr,
    block: &PortBlock,
) {
    if let Some(feed) = feed
        && feed.policy().blocks
    {
        feed.push_block(kind != EventKind::BlockReleased, owner, outside, block);
    }
}

impl Tables {
    /// Replaces the feed; returns the previous one.
    pub(crate) fn attach_feed(&mut self, feed: Option<Box<Feed>>) -> Option<Box<Feed>> {
        core::mem::replace(&mut self.feed, feed)
    }

    /// Returns whether there is a feed.
    #[inline]
    pub(crate) fn is_fed(&self) -> bool {
        self.feed.is_some() || self.standby.feed.is_some()
    }

    /// Place of the next record.
    pub(crate) fn feed_sequence(&self) -> Option<Sequence> {
        self.feed.as_ref().map(|feed| feed.sequence())
    }

    /// Records lost since the feed was attached.
    pub(crate) fn feed_lost(&self) -> u64 {
        self.feed.as_ref().map_or(0, |feed| feed.lost())
    }

    /// Returns the part of a budget of ends that loses neither events nor records.
    pub(crate) fn end_budget(&mut self, ends: usize) -> usize {
        let some = end_budget(&mut self.events, &mut self.feed, self.now, ends);
        match &mut self.standby.feed {
            Some(feed) => some.min(feed.budget(self.now, ends)),
            None => some,
        }
    }

    /// Returns whether a fast path may have a session's flow. Flows of a shared port are found by the remote
    /// end, and hairpins are translated twice.
    pub(crate) fn is_offered(&self, session: &Session) -> bool {
        session.is_session()
            && session.is_established()
            && !session.is_overloaded()
            && self.locate(session.remote().0).is_none()
    }

    /// Reports a new session, and begins the count of its packets. Call it after its state is set.
    #[inline]
    pub(crate) fn feed_opened(&mut self, id: RecordId) {
        if self.is_fed() {
            self.feed_first(id);
        }
    }

    // Not inlined, and without rare work: an engine without a consumer has the call alone in its code.
    #[inline(never)]
    fn feed_first(&mut self, id: RecordId) {
        let Tables { records, feed, standby, .. } = self;
        let Some(first) = feed.as_ref().or(standby.feed.as_ref()) else { return };
        let Some(session) = records.get_mut(id as usize) else { return };
        if session.transport() != Transport::Tcp {
            session.state = first.first_state();
        }
        if first.reports_first() {
            self.feed_first_record(id);
        }
    }

    #[inline(never)]
    fn feed_first_record(&mut self, id: RecordId) {
        let Tables { records, feed, now, .. } = self;
        let Some(session) = records.get(id as usize) else { return };
        if let Some(feed) = feed
            && feed.policy().sessions == SessionScope::All
        {
            feed.push_session(id, session, SessionChange::Opened, *now);
        }
        if session.transport() != Transport::Tcp && session.is_established() {
            self.feed_turned(id, Turn::Counted);
        }
    }

    /// Reports the sessions that packets of the current burst have established by their number.
    #[inline(always)]
    pub(crate) fn feed_counted(&mut self) {
        if !self.counted.is_empty() {
            self.feed_all_counted();
        }
    }

    #[cold]
    fn feed_all_counted(&mut self) {
        let mut place = 0;
        while let Some(id) = self.counted.get(place) {
            self.feed_turn(id, Turn::Counted);
            place += 1;
        }
        self.counted.clear();
    }

    /// Reports the change of a session by a packet.
    #[inline]
    pub(crate) fn feed_turn(&mut self, id: RecordId, turn: Turn) {
        if turn != Turn::None && self.is_fed() {
            self.feed_turned(id, turn);
        }
    }

    #[cold]
    fn feed_turned(&mut self, id: RecordId, turn: Turn) {
        if self.standby.feed.is_some() {
            self.peer_turned(id, turn);
        }
        let Some(policy) = self.feed.as_ref().map(|feed| *feed.policy()) else { return };
        let wanted = policy.sessions > SessionScope::None;
        if turn == Turn::Established && wanted && policy.tcp_packets > 0 {
            self.get_mut(id).count_packets(policy.tcp_packets);
            return;
        }
        let session = self.get(id);
        let change = match turn {
            Turn::Established | Turn::Counted if wanted && self.is_offered(session) => {
                SessionChange::Established
            }
            Turn::Closing if session.is_marked() => SessionChange::Closing,
            _ => return,
        };
        self.feed_session(id, change);
    }

    /// Asks whether a session with a mark is alive. It does not ask if the record would be lost.
    pub(crate) fn feed_asked(&mut self, id: RecordId) {
        if self.feed.as_ref().is_some_and(|feed| feed.has_room()) {
            self.feed_session(id, SessionChange::Asked);
        }
    }

    /// Has the fast path release a session.
    pub(crate) fn feed_closing(&mut self, id: RecordId) {
        if self.feed.is_some() && self.get(id).is_marked() {
            self.feed_session(id, SessionChange::Closing);
        }
    }

    /// Reports the end of a session, which is not in the tables any more.
    #[inline]
    pub(super) fn feed_ended(&mut self, id: RecordId, was: &Session) {
        let Some(feed) = &mut self.feed else { return };
        if was.is_session() && (was.is_marked() || feed.policy().sessions == SessionScope::All) {
            feed.push_session(id, was, SessionChange::Ended, self.now);
        }
    }

    /// Reports a session as a reader of all sessions gets it.
    pub(crate) fn feed_restored(&mut self, id: RecordId) {
        if let Some(feed) = &self.feed
            && let Some(change) = self.state_change(id, feed.policy())
        {
            self.feed_session(id, change);
        }
    }

    /// Record of a session's state, if a policy asks for it.
    pub(crate) fn state_record(&self, id: RecordId, policy: &FeedPolicy) -> Option<SessionRecord> {
        let change = self.state_change(id, policy)?;
        Some(SessionRecord::of(id, self.get(id), change, self.now))
    }

    /// Change that stands for a session's state, if a policy asks for it.
    fn state_change(&self, id: RecordId, policy: &FeedPolicy) -> Option<SessionChange> {
        let session = self.get(id);
        if session.is_quarantined() {
            session.is_marked().then_some(SessionChange::Ended)
        } else if !session.is_session() {
            None
        } else if self.is_offered(session) && policy.sessions > SessionScope::None {
            Some(SessionChange::Established)
        } else if session.is_marked() {
            Some(SessionChange::Closing)
        } else if policy.sessions == SessionScope::All {
            Some(SessionChange::Opened)
        } else {
            None
        }
    }

    #[inline]
    fn feed_session(&mut self, id: RecordId, change: SessionChange) {
        let Tables { records, feed: Some(feed), now, .. } = self else { return };
        if let Some(session) = records.get(id as usize) {
            feed.push_session(id, session, change, *now);
        }
    }

    /// Reports a path MTU.
    pub(crate) fn feed_path(&mut self, path: &PathRecord) {
        if let Some(feed) = &mut self.feed
            && feed.policy().paths
        {
            feed.push_path(path);
        }
    }

    /// Reports another plan.
    pub(crate) fn feed_plan_changed(&mut self) {
        if let Some(feed) = &mut self.feed {
            feed.push_plan_changed();
        }
        if let Some(feed) = &mut self.standby.feed {
            feed.push_plan_changed();
        }
        // The numbers of addresses have another meaning. The member sets the rights again.
        if self.standby.is_restricted {
            self.pools.iter_mut().for_each(|pool| pool.set_restricted(true));
        }
    }

    /// Reports lost records.
    pub(crate) fn feed_report_loss(&mut self) {
        for feed in [&mut self.feed, &mut self.standby.feed].into_iter().flatten() {
            feed.report_loss();
        }
    }

    /// Reports a binding.
    #[inline]
    pub(super) fn feed_binding(&mut self, record: &Session, begins: bool) {
        if let Some(feed) = &mut self.feed
            && feed.policy().bindings
        {
            feed.push_binding(record, begins);
        }
    }

    /// Counts packets that a fast path has translated for an inside host, its public address and its pool.
    pub(crate) fn credit(&mut self, of: Party, traffic: Traffic) {
        if of.subscriber != NO_SUBSCRIBER {
            *self.subscribers.traffic_mut(of.subscriber) += traffic;
        }
        *self.address_traffic.of(of) += traffic;
        self.count_pooled(of.instance.into(), traffic);
    }
}
