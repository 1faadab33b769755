//! Bindings and sessions (RFC 6146 3.1, RFC 4787 4).

use super::ends::{End4, End6, UDP};
use super::query::Query;
use super::shared::Shared;
use super::subscribers::Owner;
use super::time::session_end;
use super::{Model, Result};
use crate::tcp::{self, State, Timer};
use gatun_nat::plan::StaticBinding;
use gatun_nat::{EventKind, Occupancy};
use gatun_wire::DropReason;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A BIB entry and its sessions, oldest first. Or a port that flows share (decision 0041): it is no BIB
/// entry, but all other statements about bindings apply to it.
#[derive(Clone, Debug)]
pub(super) struct Binding {
    pub(super) instance: usize,
    pub(super) transport: usize,
    /// Inside address and port. For a shared port, the subscriber's first address and port 0: each flow has
    /// its own inside end.
    pub(super) inside: End6,
    pub(super) outside: End4,
    /// True if it comes from the configuration.
    pub(super) fixed: bool,
    pub(super) shared: Option<Shared>,
    pub(super) sessions: Vec<Session>,
}

/// A session table entry, without what it shares with its binding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session {
    pub(super) inside: End6,
    pub(super) remote: End4,
    /// Number of the prefix that the inside host uses for this remote address. `None` in NAT44, and if the
    /// engine has chosen a prefix that no packet has shown yet.
    pub(super) prefix: Option<usize>,
    /// True if the well-known prefix was allowed for all addresses when the engine chose that prefix.
    pub(super) wkp_non_global: bool,
    /// `None` for UDP and ICMP.
    pub(super) state: Option<State>,
    pub(super) ends: u64,
    /// True if filtering by address uses this one of the sessions with the same remote address. Choice: the
    /// first one, and after its end the newest.
    pub(super) speaks_for_address: bool,
}

impl Model {
    pub(super) fn add_static_bindings(&mut self) {
        for instance in 0..self.rules.len() {
            for b in self.rules[instance].static_bindings.clone() {
                self.add_static_binding(instance, &b);
            }
        }
    }

    pub(super) fn add_static_binding(&mut self, instance: usize, b: &StaticBinding) {
        let (transport, inside, outside) = (b.transport as usize, b.inside, b.outside);
        let (fixed, shared, sessions) = (true, None, Vec::new());
        self.mark_twins(instance, transport, inside);
        self.bindings.push(Binding { instance, transport, inside, outside, fixed, shared, sessions });
        self.bar_block_of(instance, transport, outside);
    }

    pub(super) fn owner_of(&self, b: &Binding) -> Owner {
        self.subscriber(b.instance, b.inside.0)
    }

    pub(super) fn binding_inside(&self, instance: usize, transport: usize, inside: End6) -> Option<usize> {
        let is_it = |b: &Binding| (b.instance, b.transport, b.inside) == (instance, transport, inside);
        self.bindings.iter().position(|b| is_it(b) && b.shared.is_none())
    }

    /// Positions of a session's binding or shared port, and of the session; at most one matches.
    pub(super) fn session_inside(
        &self,
        instance: usize,
        transport: usize,
        inside: End6,
        remote: End4,
    ) -> Option<(usize, usize)> {
        let mut all = self.bindings.iter().enumerate();
        all.find_map(|(at, b)| {
            let s = b.sessions.iter().position(|s| (s.inside, s.remote) == (inside, remote))?;
            ((b.instance, b.transport) == (instance, transport)).then_some((at, s))
        })
    }

    /// The session of a packet from `remote` to a binding. RFC 4787 5 filters by the inside end, which may
    /// have sent to that remote end from a shared port.
    pub(super) fn session_with(&self, b: usize, remote: End4) -> Option<(usize, usize)> {
        let binding = &self.bindings[b];
        match binding.shared {
            Some(_) => Some((b, binding.sessions.iter().position(|s| s.remote == remote)?)),
            None => self.session_inside(binding.instance, binding.transport, binding.inside, remote),
        }
    }

    pub(super) fn binding_outside(&self, transport: usize, outside: End4) -> Option<usize> {
        self.bindings.iter().position(|b| b.transport == transport && b.outside == outside)
    }

    pub(super) fn session_count(&self) -> usize {
        self.bindings.iter().map(|b| b.sessions.len()).sum()
    }

    /// Handles a packet that has found its session. If the session's lifetime is over, the session ends, and
    /// its binding with the last one (A61-24). An established one goes to TRANS as after a probe, because
    /// the packet answers the question of a probe. Returns true if the session stays.
    pub(super) fn lives_on(&mut self, (binding, session): (usize, usize)) -> bool {
        let s = self.bindings[binding].sessions[session];
        if s.ends > self.now {
            return true;
        }
        if s.state == Some(State::Established) {
            self.go_to_trans(binding, session);
            return true;
        }
        self.close(binding, session);
        false
    }

    /// RFC 6146 3.5.2.2, ESTABLISHED: the lifetime is over, the session goes to TRANS.
    pub(super) fn go_to_trans(&mut self, binding: usize, session: usize) {
        let b = &mut self.bindings[binding];
        let ms = self.rules[b.instance].timeouts.tcp_transitory_ms;
        let s = &mut b.sessions[session];
        s.state = Some(State::Trans);
        s.ends = session_end(self.now, ms);
        self.coverage.tcp_timeout(State::Established);
    }

    /// Ends a session; the binding ends with its last session, and frees its port.
    pub(super) fn close(&mut self, binding: usize, session: usize) {
        let s = self.bindings[binding].sessions.remove(session);
        let same_address = self.bindings[binding].sessions.iter_mut().rfind(|o| o.remote.0 == s.remote.0);
        if let (true, Some(newest)) = (s.speaks_for_address, same_address) {
            newest.speaks_for_address = true;
        }
        let b = self.bindings[binding].clone();
        let owner = self.owner_of(&b);
        if let Some(state) = s.state
            && state != State::Established
        {
            self.coverage.tcp_timeout(state);
        }
        let gone = b.sessions.is_empty() && !b.fixed;
        if gone {
            self.bindings.remove(binding);
            self.port_is_back(owner, &b);
        }
        self.tell_session(EventKind::SessionDeleted, &b, &s);
        if gone {
            self.tell_session(EventKind::BindingDeleted, &b, &s);
        }
        self.tell_thresholds(self.rules[b.instance].pool, b.transport);
        self.forget_if_idle(owner);
    }

    /// Updates state and lifetime of a packet's session (RFC 6146 3.5.1 to 3.5.3).
    pub(super) fn update(&mut self, binding: usize, session: usize, q: &Query, from_inside: bool) {
        let b = &mut self.bindings[binding];
        let rules = &self.rules[b.instance];
        let s = &mut b.sessions[session];
        let t = &rules.timeouts;
        // RFC 7857 7: inbound packets need not extend a lifetime.
        let refreshes = from_inside || rules.inbound_refresh;
        let ms = match s.state {
            Some(state) => {
                let segment = tcp::segment(q.flags);
                let (next, timer) = tcp::step(state, from_inside, segment, rules.rst_during_fin);
                self.coverage.tcp_step(state, from_inside, segment, next);
                s.state = Some(next);
                match timer {
                    Timer::Keep => return,
                    // A state change does not count as a refresh, unless it reopens the connection.
                    _ if next == state && !refreshes => return,
                    _ if segment == tcp::Segment::Syn
                        && matches!(state, State::V4Fin | State::V6Fin | State::BothFin)
                        && !refreshes =>
                    {
                        return;
                    }
                    Timer::Established => t.tcp_established_ms,
                    Timer::Opening => t.tcp_partial_open_ms,
                    Timer::Closing => t.tcp_closing_ms,
                    Timer::Transitory => t.tcp_transitory_ms,
                }
            }
            None if !refreshes => return,
            None if q.transport == UDP => t.udp_ms,
            None => t.icmp_ms,
        };
        s.ends = session_end(self.now, ms);
    }

    /// Checks a subscriber's new session against the limits of tables, sessions and rates (RFC 6888 REQ-4,
    /// REQ-5). The subscriber is known afterwards, until it has nothing left.
    pub(super) fn within_limits(&mut self, owner: Owner) -> Result<()> {
        if self.session_count() >= self.plan.limits.sessions_max as usize {
            return Err(DropReason::SessionTableFull);
        }
        let at = self.known(owner)?;
        self.admit(at)
    }

    /// Makes a binding whose port the engine has chosen. Returns its position.
    pub(super) fn bind(
        &mut self,
        instance: usize,
        transport: usize,
        inside: End6,
        wanted: Option<End4>,
    ) -> Result<usize> {
        let owner = self.subscriber(instance, inside.0);
        self.may_have_port(owner, transport)?;
        let outside = self.choose(owner, transport, inside, wanted)?;
        if let Some(s) = self.subscribers.iter_mut().find(|s| s.owner == owner) {
            s.paired.get_or_insert(outside.0);
        }
        let sessions = Vec::new();
        let (fixed, shared) = (false, None);
        self.mark_twins(instance, transport, inside);
        self.bindings.push(Binding { instance, transport, inside, outside, fixed, shared, sessions });
        Ok(self.bindings.len() - 1)
    }

    /// Adds a session to a binding, and reports it, after the binding if that is new.
    pub(super) fn add_session(
        &mut self,
        binding: usize,
        (inside, remote): (End6, End4),
        prefix: Option<usize>,
        state: Option<State>,
    ) {
        let wkp_non_global = self.wkp_non_global(self.bindings[binding].instance);
        let b = &mut self.bindings[binding];
        let t = &self.rules[b.instance].timeouts;
        let ms = match (state, b.transport) {
            (Some(State::Established), _) => t.tcp_established_ms,
            (Some(_), _) => t.tcp_partial_open_ms,
            (None, UDP) => t.udp_ms,
            (None, _) => t.icmp_ms,
        };
        let ends = session_end(self.now, ms);
        let speaks_for_address = !b.sessions.iter().any(|s| s.remote.0 == remote.0);
        let session = Session { inside, remote, prefix, wkp_non_global, state, ends, speaks_for_address };
        let new = b.sessions.is_empty() && !b.fixed;
        b.sessions.push(session);
        let b = b.clone();
        if new {
            self.tell_session(EventKind::BindingCreated, &b, &session);
        }
        self.tell_session(EventKind::SessionCreated, &b, &session);
        self.tell_thresholds(self.rules[b.instance].pool, b.transport);
        if let Some(state) = state {
            self.coverage.tcp_open(state);
        }
    }

    /// RFC 7857 7: the newest session, opened from outside, does not outlive all others, so it keeps no
    /// binding alive. A static binding needs no session. Choice: of many others, the newest 32 count.
    pub(super) fn live_no_longer_than_others(&mut self, binding: usize) {
        let b = &mut self.bindings[binding];
        if let Some((last, others)) = b.sessions.split_last_mut()
            && let Some(bound) = others.iter().rev().take(32).map(|s| s.ends).max().filter(|_| !b.fixed)
        {
            last.ends = last.ends.min(bound);
        }
    }

    /// Expected occupancy.
    pub fn occupancy(&self) -> Occupancy {
        Occupancy {
            // The model has no fast path.
            quarantined: 0,
            sessions: self.session_count(),
            bindings: self.bindings.iter().filter(|b| b.shared.is_none()).count(),
            subscribers: self.subscribers.len(),
            held_syns: self.syns.len(),
        }
    }

    /// Outside address and port of an inside end: of its binding, or a shared one of its flows.
    pub fn outside_of(&self, transport: usize, inside: End6) -> Option<End4> {
        let mut all = self.bindings.iter().filter(|b| b.transport == transport);
        let flows = |b: &Binding| b.sessions.iter().any(|s| s.inside == inside);
        all.find(|b| b.inside == inside || flows(b)).map(|b| b.outside)
    }

    /// Instance, inside address, and outside end with its transport, of each binding and shared port.
    pub fn ends(&self) -> impl Iterator<Item = (usize, Ipv6Addr, (usize, Ipv4Addr, u16))> + '_ {
        self.bindings.iter().map(|b| (b.instance, b.inside.0, (b.transport, b.outside.0, b.outside.1)))
    }

    /// Subscriber of an inside address, as in [`Model::holdings`].
    pub fn subscriber_of(&self, instance: usize, inside: Ipv6Addr) -> (usize, u128) {
        self.subscriber(instance, inside)
    }

    /// State of the model as text.
    pub fn describe(&self) -> String {
        let mut out = format!("now {}, {:?}\n", self.now, self.occupancy());
        for b in &self.bindings {
            out += &format!("  {b:?}\n");
        }
        for s in &self.subscribers {
            out += &format!("  {s:x?}\n");
        }
        for told in &self.events {
            out += &format!("  unread event {told:?}\n");
        }
        for s in &self.syns {
            out += &format!("  {s:?}\n");
        }
        out
    }
}
