//! Sweep: ends expired state. There is no timer wheel: a packet only updates the expiry time of its
//! session, and the sweep looks at a few records at a time and ends expired sessions. If a packet finds an
//! expired session before the sweep, it treats the session as ended. A binding whose sessions are all expired
//! exists until the sweep or a packet has found them.

use crate::base::counters::Direction;
use crate::base::time::Instant;
use crate::base::time::Tick;
use crate::lifecycle::probe;
use crate::path::fragments::count_ended;
use crate::path::rules::{Instance, Rules};
use crate::path::state::{Core, EngineState};
use crate::tables::icmp_limit::Source;
use crate::tables::session::{RecordId, Session};
use crate::tables::standby::PeerLink;
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_wire::hdr::{ipv4, ipv6};
use gatun_wire::icmp_error::{self, Message};
use gatun_wire::{DropReason, HEADROOM, Packet};

/// Time in which the sweep looks at every record once, if the budget allows.
const ROUND_MS: u64 = 4_000;
/// Number of records whose lines are prefetched together: no more lines than can be on their way.
const GROUP: usize = 4;
/// Maximum wait of the caller while there are sessions, or held packets.
const IDLE_SESSIONS_MS: u32 = 1_000;
const IDLE_HELD_MS: u32 = 100;
const IDLE_MS: u32 = 60_000;

/// Position of the sweep.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    cursor: RecordId,
    /// Time up to which the sweep has looked at as many records as it should.
    done: Instant,
    /// Time of the last look at fragmented datagrams.
    fragments_done: Instant,
}

impl Sweep {
    /// Ends expired state, and examines at most `budget` records. `settling` is true if a
    /// change of the rules has left work. Returns the number of milliseconds until the next call is needed.
    pub(crate) fn run(&mut self, core: &mut Core, settling: bool, now: Instant, budget: usize) -> u32 {
        let Core { rules, state, .. } = core;
        self.sessions(rules, state, now, budget);
        expire_syns(rules, state, now, budget);
        self.fragments(state, now, budget);
        let ports_wait = state.tables.expire_ports(budget);
        state.tables.events.report_loss(now);
        state.tables.feed_report_loss();
        if settling {
            // The remaining work of a change must not wait for packets.
            0
        } else if state.counters.held > 0 {
            IDLE_HELD_MS
        } else if ports_wait || state.tables.session_count() > 0 || state.tables.quarantined() > 0 {
            IDLE_SESSIONS_MS
        } else {
            IDLE_MS
        }
    }

    fn fragments(&mut self, state: &mut EngineState, now: Instant, budget: usize) {
        if state.fragments.is_empty() || now.since_ms(self.fragments_done) < u64::from(IDLE_HELD_MS) {
            return;
        }
        self.fragments_done = now;
        state.fragments.expire(now, budget);
        count_ended(state);
    }

    fn sessions(&mut self, rules: &Rules, state: &mut EngineState, now: Instant, budget: usize) {
        let records = u64::from(state.tables.high()) - 1;
        let is_empty = state.tables.session_count() == 0 && state.tables.quarantined() == 0;
        if records == 0 || is_empty || now < self.done {
            self.done = now;
            return;
        }
        let due = records * now.since_ms(self.done).min(ROUND_MS) / ROUND_MS;
        let looked_at = due.min(budget as u64);
        if looked_at == 0 {
            return;
        }
        self.done = if due > looked_at { now } else { self.done.plus_ms(due * ROUND_MS / records) };
        let mut left = looked_at as usize;
        let mut ends = state.tables.end_budget(left);
        while left > 0 {
            let group = left.min(GROUP);
            if ends < group && state.tables.end_budget(group) < group {
                return;
            }
            ends = ends.saturating_sub(group);
            if !self.group(rules, state, now, group) {
                return;
            }
            left -= group;
        }
    }

    /// Looks at the next few records. First prefetches the lines that their ends will touch, so that cache
    /// misses overlap. Returns `false` if the buffers for emitted packets are full.
    fn group(&mut self, rules: &Rules, state: &mut EngineState, now: Instant, records: usize) -> bool {
        let tick = Tick::at(now);
        let before = self.cursor;
        let next =
            |cursor, state: &EngineState| if cursor >= state.tables.high() - 1 { 1 } else { cursor + 1 };
        let is_due = |state: &EngineState, id| {
            let session = state.tables.get(id);
            let is_kept =
                |session: &Session| session.is_standby() && state.tables.link_of(session) == PeerLink::Live;
            session.is_session() && session.expires().has_come(tick) && !is_kept(session)
                || session.is_quarantined() && state.tables.is_forgotten(session)
        };
        for _ in 0..records {
            self.cursor = next(self.cursor, state);
            if is_due(state, self.cursor) {
                state.tables.prefetch_end(self.cursor);
            }
        }
        self.cursor = before;
        for _ in 0..records {
            let id = next(self.cursor, state);
            if is_due(state, id) {
                if !state.emit.has_room() {
                    return false;
                }
                end_of_life(rules, state, id, now);
            }
            self.cursor = id;
        }
        true
    }
}

/// Handles a session whose lifetime expired.
#[cold]
fn end_of_life(rules: &Rules, state: &mut EngineState, id: RecordId, now: Instant) {
    let session = *state.tables.get(id);
    if session.is_quarantined() {
        state.tables.release_for_peer(id);
        return;
    }
    // The other member is away, so its sessions are those of this one.
    if session.is_standby()
        && let Some(instance) = rules.get(session.instance)
    {
        instance.policy().take_over(state.tables.get_mut(id), now);
        return;
    }
    // It ends only after a fast path has said that it has not seen the flow, and has given it up.
    if session.is_marked() {
        state.tables.feed_asked(id);
        return;
    }
    let Some(instance) = rules.get(session.instance).filter(|_| session.waits_for_probe()) else {
        state.tables.close(id);
        return;
    };
    let realm = instance.policy().realm;
    let sent = match instance {
        Instance::Nat64(nat) => {
            state.emit.push(realm, &probe::to_inside6(&session, *nat.prefix(session.pool6)), &[])
        }
        Instance::Nat44(_) => state.emit.push(realm, &probe::to_inside4(&session), &[]),
    };
    if sent.is_ok() {
        state.counters.probes_sent += 1;
    }
    instance.policy().after_probe(state.tables.get_mut(id), now);
}

/// RFC 6146 3.5.2.2, RFC 5382 REQ-4: answers SYNs that no inside host has answered in time.
fn expire_syns(rules: &Rules, state: &mut EngineState, now: Instant, budget: usize) {
    for _ in 0..budget {
        if !state.emit.has_room() {
            return;
        }
        let Some(syn) = state.syns.pop_expired(now) else { return };
        let (bytes, outside, realm) = (syn.original_len, syn.outside.0, syn.realm);
        let mut buf = [0u8; HEADROOM + QUOTE_MAX];
        let quoted = syn.bytes.get(..QUOTE_MAX).unwrap_or(syn.bytes);
        let len = quoted.len();
        if let Some(room) = buf.get_mut(HEADROOM..HEADROOM + len) {
            room.copy_from_slice(quoted);
        }
        let answered = Packet::new(&mut buf, HEADROOM, len).is_some_and(|mut packet| {
            packet.realm = realm;
            answer_syn(rules, state, now, &mut packet, outside)
        });
        let account = state.account_at(outside);
        if answered {
            state.counters.held -= 1;
            state.counters.replied.add(bytes);
            state.counters.icmp_errors_sent += 1;
            state.count_drop(account, Direction::FourToSix, DropReason::SynExpired, bytes);
        } else {
            state.count_held_drop(account, Direction::FourToSix, DropReason::SynExpired, bytes);
        }
    }
}

/// Returns the source whose rate counts the answer to a held SYN. The stored copy may be truncated, so it
/// cannot be parsed.
fn held_source(packet: &Packet<'_>) -> Source {
    let bytes = packet.bytes();
    let (address, len) = match bytes.first().map(|b| b >> 4) {
        Some(6) => {
            let octets = bytes.get(ipv6::ADDRESSES..).and_then(|b| b.first_chunk::<16>());
            (octets.map(|octets| Ipv6Addr::from(*octets)), Source::IPV6)
        }
        _ => {
            let octets = bytes.get(ipv4::ADDRESSES..).and_then(|b| b.first_chunk::<4>());
            (octets.map(|octets| Ipv4Addr::from(*octets).to_ipv6_mapped()), Source::IPV4)
        }
    };
    Source::new(packet.realm, address.unwrap_or(Ipv6Addr::UNSPECIFIED), len)
}

/// Maximum number of bytes of a held SYN that are quoted.
const QUOTE_MAX: usize = 256;

/// Sends Port Unreachable about a held SYN, from the address that it was sent to. The sender is inside if it
/// is IPv6, or if it is in a realm.
fn answer_syn(
    rules: &Rules,
    state: &mut EngineState,
    now: Instant,
    packet: &mut Packet<'_>,
    from: Ipv4Addr,
) -> bool {
    const PORT_UNREACHABLE4: Message = Message { kind: 3, code: 3, word: 0 };
    const PORT_UNREACHABLE6: Message = Message { kind: 1, code: 4, word: 0 };
    // An address that has left its pool meanwhile cannot be a source.
    if rules.is_suppressed(DropReason::SynExpired) || state.tables.locate(from).is_none() {
        state.counters.icmp_errors_suppressed += 1;
        return false;
    }
    if !state.may_send_error(now, held_source(packet), false) {
        return false;
    }
    // The stored copy may be truncated, so it cannot be parsed.
    let destination6 = match packet.bytes().first().map(|b| b >> 4) {
        Some(6) => packet.bytes().get(24..).and_then(|b| b.first_chunk::<16>()).map(|b| Ipv6Addr::from(*b)),
        _ => None,
    };
    let made = match destination6 {
        Some(destination) => icmp_error::error6(packet, destination, PORT_UNREACHABLE6),
        None => {
            let id = state.idents.next(u64::from(u32::from(from)) << 32);
            icmp_error::error4(packet, from, PORT_UNREACHABLE4, id, 576)
        }
    };
    made.is_ok() && state.emit.push(packet.realm, packet.bytes(), &[]).is_ok()
}
