//! Operator's policy for a stateful instance of either kind, and the lifetimes that follow from it.

use crate::base::plan::{Filtering, Timeouts, Transport};
use crate::base::tcp_fsm::{self, Lifetime, Segment, Side, TcpState};
use crate::base::time::Instant;
use crate::base::time::Tick;
use crate::path::query::Query;
use crate::tables::bib::Tables;
use crate::tables::feed::Turn;
use crate::tables::session::{RecordId, Replica, Session};
use crate::tables::subscriber::SubscriberKey;
use core::net::Ipv6Addr;
use gatun_wire::DropReason;

/// Operator's choices for an instance, and the number of the instance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    /// Its number among the instances of both kinds: part of every key.
    pub(crate) instance: u8,
    /// Realm of its hosts.
    pub(crate) realm: u8,
    pub(crate) filtering: Filtering,
    pub(crate) external_tcp: bool,
    pub(crate) inbound_refresh: bool,
    pub(crate) rst_during_fin: bool,
    pub(crate) icmp_queries: bool,
    /// Prefix length of a subscriber in keys, where IPv4 prefixes are 96 bits longer.
    pub(crate) subscriber_len: u8,
    pub(crate) timeouts: Timeouts,
    /// Lifetimes of established sessions, by transport: one load for the fast path.
    pub(crate) established_ms: [u32; Transport::ALL.len()],
}

impl Policy {
    /// Returns the subscriber of an inside address: the unit of quotas and pairing.
    #[inline]
    pub(crate) fn subscriber(&self, inside: Ipv6Addr) -> SubscriberKey {
        SubscriberKey::of(self.instance, inside, self.subscriber_len)
    }

    /// Returns the lifetime of a session from now on, by its protocol.
    #[inline]
    fn lifetime_ms(&self, transport: Transport, lifetime: Lifetime) -> Option<u32> {
        let timeouts = &self.timeouts;
        match (transport, lifetime) {
            (_, Lifetime::Keep) => None,
            (Transport::Udp | Transport::Icmp, _) | (Transport::Tcp, Lifetime::Established) => {
                Some(self.established_ms(transport))
            }
            (Transport::Tcp, Lifetime::PartialOpen) => Some(timeouts.tcp_partial_open_ms),
            (Transport::Tcp, Lifetime::Closing) => Some(timeouts.tcp_closing_ms),
            (Transport::Tcp, Lifetime::Transitory) => Some(timeouts.tcp_transitory_ms),
            (Transport::Tcp, Lifetime::IncomingSyn) => Some(timeouts.tcp_incoming_syn_ms),
        }
    }

    /// Returns the lifetime of a session of which only its use is known.
    #[inline]
    pub(crate) fn established_ms(&self, transport: Transport) -> u32 {
        self.established_ms.get(transport as usize).copied().unwrap_or_default()
    }

    /// Returns whether a packet from `side` that changes nothing else extends its session's life: yes from
    /// inside (RFC 4787 REQ-6), and from outside if configured (RFC 7857 7).
    #[inline(always)]
    pub(crate) fn refreshes(&self, side: Side) -> bool {
        side == Side::V6 || self.inbound_refresh
    }

    /// Updates the session of a packet: RFC 6146 3.5.1 for UDP, 3.5.2.2 for TCP, 3.5.3 for ICMP.
    #[inline(always)]
    #[must_use = "the state feed has to know"]
    pub(crate) fn update(&self, session: &mut Session, side: Side, query: &Query, now: Instant) -> Turn {
        let (lifetime, turn) = if query.transport == Transport::Tcp {
            self.update_tcp(session, side, query.flags)
        } else {
            let turn = if session.count_packet() { Turn::Counted } else { Turn::None };
            (if self.refreshes(side) { Lifetime::Established } else { Lifetime::Keep }, turn)
        };
        if let Some(ms) = self.lifetime_ms(query.transport, lifetime) {
            session.live_until(Tick::after(now, ms));
        }
        turn
    }

    fn update_tcp(&self, session: &mut Session, side: Side, flags: u8) -> (Lifetime, Turn) {
        let (state, segment) = (session.tcp_state(), tcp_fsm::classify_existing(flags));
        let (next, lifetime) = tcp_fsm::step(state, side, segment, self.rst_during_fin);
        let turn = match (state, next) {
            _ if next == state && session.count_packet() => Turn::Counted,
            _ if next == state => Turn::None,
            (_, TcpState::Established) => Turn::Established,
            (TcpState::Established, _) => Turn::Closing,
            (_, TcpState::V4FinV6FinRcv | TcpState::Trans) => Turn::Closed,
            _ => Turn::None,
        };
        if next != state {
            session.state = next as u8;
        }
        // A remote host must not keep a session alive by closing and reopening it again and again.
        if (next == state || tcp_fsm::reopens(state, segment)) && !self.refreshes(side) {
            return (Lifetime::Keep, turn);
        }
        (lifetime, turn)
    }

    /// Returns whether this is a SYN from outside that reopens a closed connection although outside hosts may
    /// not open connections.
    pub(crate) fn forbids_reopening(&self, session: &Session, query: &Query) -> bool {
        query.transport == Transport::Tcp
            && !self.external_tcp
            && session.tcp_state() == TcpState::V4FinV6FinRcv
            && tcp_fsm::classify_existing(query.flags) == Segment::Syn
    }

    /// Sets the first state of a session that a packet from `side` opened.
    pub(crate) fn begin(&self, session: &mut Session, side: Side, transport: Transport, now: Instant) {
        let lifetime = if transport == Transport::Tcp {
            let (state, lifetime) = tcp_fsm::open(side);
            session.state = state as u8;
            lifetime
        } else {
            Lifetime::Established
        };
        if let Some(ms) = self.lifetime_ms(transport, lifetime) {
            session.live_until(Tick::after(now, ms));
        }
    }

    /// Returns whether an expired session continues because of this packet. Otherwise ends the session.
    ///
    /// The sweep runs only now and then, so a packet may find a session first. Then an established connection
    /// goes to TRANS, as if the sweep had found it: this packet is the answer that the probe of RFC 6146
    /// 3.5.2.2 asks for.
    #[cold]
    fn outlive(&self, tables: &mut Tables, id: RecordId, now: Instant) -> bool {
        let session = tables.get_mut(id);
        // A fast path may have seen packets: the answer to the feed's question decides.
        if session.is_marked() {
            return true;
        }
        // The packets of the other member's session come here now.
        if session.is_standby() {
            self.take_over(session, now);
            return true;
        }
        if session.waits_for_probe() {
            self.after_probe(session, now);
            return true;
        }
        tables.close(id);
        false
    }

    /// Begins the lifetime of a session that another member had.
    pub(crate) fn take_over(&self, session: &mut Session, now: Instant) {
        session.set_replica(Replica::Told);
        let transport = session.transport();
        let lifetime = match transport {
            Transport::Tcp => tcp_fsm::lifetime_of(session.tcp_state()),
            Transport::Udp | Transport::Icmp => Lifetime::Established,
        };
        if let Some(ms) = self.lifetime_ms(transport, lifetime) {
            session.live_until(Tick::after(now, ms));
        }
    }

    /// Another member has seen the end of a TCP connection. As after a RST, a further packet makes it an
    /// established one again, so a late word ends no connection that goes on.
    pub(crate) fn closed_elsewhere(&self, session: &mut Session, now: Instant) {
        match session.is_standby() {
            // Its lifetime begins when it is taken over.
            true => session.state = TcpState::Trans as u8,
            false => self.after_probe(session, now),
        }
    }

    /// Another member has seen a TCP connection open again that had ended.
    pub(crate) fn opened_elsewhere(&self, session: &mut Session, now: Instant) {
        session.state = TcpState::Established as u8;
        session.live_until(Tick::after(now, self.established_ms(Transport::Tcp)));
    }

    /// RFC 6146 3.5.2.2: moves an established connection whose lifetime expired to TRANS.
    pub(crate) fn after_probe(&self, session: &mut Session, now: Instant) {
        let (state, lifetime) = tcp_fsm::after_probe();
        session.state = state as u8;
        if let Some(ms) = self.lifetime_ms(Transport::Tcp, lifetime) {
            session.live_until(Tick::after(now, ms));
        }
    }

    /// Returns whether a session is alive at the time of the tables, or would stay alive if it had a packet
    /// now.
    pub(crate) fn would_live(&self, tables: &Tables, id: RecordId) -> bool {
        let session = tables.get(id);
        !session.expires().has_come(Tick::at(tables.now)) || session.outlives_its_time()
    }

    /// Returns a session that a look-up found, if it is still alive at `now`.
    #[inline(always)]
    pub(crate) fn alive(
        &self,
        tables: &mut Tables,
        found: Option<RecordId>,
        now: Instant,
    ) -> Option<RecordId> {
        let id = found?;
        if !tables.get(id).expires().has_come(Tick::at(now)) || self.outlive(tables, id, now) {
            return Some(id);
        }
        None
    }
}

/// Returns whether a packet without a session may open one.
///
/// # Errors
/// Returns `tcp_invalid_flags`.
pub(crate) fn may_open(query: &Query) -> Result<bool, DropReason> {
    match query.transport {
        Transport::Tcp => Ok(tcp_fsm::classify(query.flags)? == Segment::Syn),
        Transport::Icmp => Ok(!query.is_reply),
        Transport::Udp => Ok(true),
    }
}
