//! Records of the state feed, for changes of the tables.

use super::{NO_SUBSCRIBER, Tables};
use crate::base::attribution::Party;
use crate::base::counters::Traffic;
use crate::base::plan::Transport;
use crate::base::time::Instant;
use crate::tables::event::{EventKind, Events, Sequence};
use crate::tables::feed::{
    BindingRecord, BlockRecord, Feed, FeedPolicy, Flow, Record, SessionChange, SessionId, SessionRecord,
    SessionScope, Turn,
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
        feed.push(Record::Block(BlockRecord {
            begins: kind != EventKind::BlockReleased,
            instance: owner.instance,
            subscriber: owner.prefix.into(),
            outside,
            ports: (block.first, block.last),
            transports: block.transports,
        }));
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
        self.feed.is_some()
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
        end_budget(&mut self.events, &mut self.feed, self.now, ends)
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
        if let Some(feed) = &self.feed {
            let policy = *feed.policy();
            self.feed_first(id, &policy);
        }
    }

    #[inline(never)]
    fn feed_first(&mut self, id: RecordId, policy: &FeedPolicy) {
        let session = self.get_mut(id);
        let counts = session.transport() != Transport::Tcp;
        if counts && policy.sessions > SessionScope::None {
            session.count_packets(policy.packets.saturating_sub(1));
        }
        if policy.sessions == SessionScope::All {
            self.feed_session(id, SessionChange::Opened);
        }
        if counts && self.get(id).is_established() {
            self.feed_turn(id, Turn::Established);
        }
    }

    /// Reports the change of a session by a packet.
    #[inline]
    pub(crate) fn feed_turn(&mut self, id: RecordId, turn: Turn) {
        if turn != Turn::None && self.feed.is_some() {
            self.feed_turned(id, turn);
        }
    }

    #[cold]
    fn feed_turned(&mut self, id: RecordId, turn: Turn) {
        let session = self.get(id);
        let wanted = self.feed.as_ref().map_or(SessionScope::None, |feed| feed.policy().sessions);
        let change = match turn {
            Turn::Established if wanted > SessionScope::None && self.is_offered(session) => {
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

    /// Reports the end of a session, which is not in the tables any more.
    #[inline]
    pub(super) fn feed_ended(&mut self, id: RecordId, was: &Session) {
        let Some(feed) = &self.feed else { return };
        if was.is_session() && (was.is_marked() || feed.policy().sessions == SessionScope::All) {
            let record = self.session_record(id, was, SessionChange::Ended);
            self.feed_push(Record::Session(record));
        }
    }

    /// Reports a session as a reader of all sessions gets it.
    pub(crate) fn feed_restored(&mut self, id: RecordId) {
        if let Some(feed) = &self.feed
            && let Some(record) = self.state_record(id, feed.policy())
        {
            self.feed_push(Record::Session(record));
        }
    }

    /// Record of a session's state, if a policy asks for it.
    pub(crate) fn state_record(&self, id: RecordId, policy: &FeedPolicy) -> Option<SessionRecord> {
        let session = self.get(id);
        let change = if session.is_quarantined() {
            SessionChange::Ended
        } else if !session.is_session() {
            return None;
        } else if self.is_offered(session) && policy.sessions > SessionScope::None {
            SessionChange::Established
        } else if session.is_marked() {
            SessionChange::Closing
        } else if policy.sessions == SessionScope::All {
            SessionChange::Opened
        } else {
            return None;
        };
        Some(self.session_record(id, session, change))
    }

    #[inline]
    fn feed_session(&mut self, id: RecordId, change: SessionChange) {
        let record = self.session_record(id, self.get(id), change);
        self.feed_push(Record::Session(record));
    }

    #[inline]
    fn session_record(&self, id: RecordId, session: &Session, change: SessionChange) -> SessionRecord {
        let is_tcp = session.transport() == Transport::Tcp;
        SessionRecord {
            id: SessionId { record: id, flow: session.identity() },
            change,
            tcp: is_tcp.then(|| session.tcp_state()),
            pool6: session.pool6,
            of_static: session.is_of_static(),
            ownership: session.ownership(),
            subscriber: session.subscriber,
            expires_ms: session.expires().left_ms(self.now),
        }
    }

    #[inline]
    pub(crate) fn feed_push(&mut self, record: Record) {
        if let Some(feed) = &mut self.feed {
            feed.push(record);
        }
    }

    /// Reports lost records.
    pub(crate) fn feed_report_loss(&mut self) {
        if let Some(feed) = &mut self.feed {
            feed.report_loss();
        }
    }

    /// Reports a binding.
    #[inline]
    pub(super) fn feed_binding(&mut self, record: &Session, begins: bool) {
        if self.feed.as_ref().is_some_and(|feed| feed.policy().bindings) {
            self.feed_push(Record::Binding(BindingRecord {
                begins,
                is_static: record.is_of_static(),
                is_shared: record.is_overloaded(),
                instance: record.instance,
                transport: record.transport(),
                inside: (record.inside_addr(), record.inside_port()),
                outside: record.outside(),
            }));
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
