//! Bindings and sessions (RFC 6146 3.1).

use super::tcp::{self, State, Timer};
use super::time::session_end;
use super::{Model, Result};
use gatun_nat::Occupancy;
use gatun_wire::DropReason;
use std::net::{Ipv4Addr, Ipv6Addr};

pub(super) const TCP: usize = 0;
pub(super) const UDP: usize = 1;
pub(super) const ICMP: usize = 2;

/// An address and port of each side.
pub(super) type End6 = (Ipv6Addr, u16);
pub(super) type End4 = (Ipv4Addr, u16);

/// A BIB entry and its sessions.
#[derive(Clone, Debug)]
pub(super) struct Binding {
    pub(super) instance: usize,
    pub(super) transport: usize,
    pub(super) inside: End6,
    /// `None` where the engine has chosen one but no packet has shown it yet.
    pub(super) outside: Option<End4>,
    /// From the configuration.
    pub(super) fixed: bool,
    pub(super) sessions: Vec<Session>,
}

/// A session table entry, but for what it shares with its binding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session {
    pub(super) remote: End4,
    /// Number of the prefix that the inside uses towards this remote address.
    /// `None` where the engine has chosen one and no packet has shown it.
    pub(super) prefix: Option<usize>,
    /// Of TCP alone.
    pub(super) state: Option<State>,
    pub(super) ends: u64,
}

/// A packet of a session, or one that might become it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Query {
    pub(super) instance: usize,
    pub(super) transport: usize,
    pub(super) flags: u8,
    /// An echo reply.
    pub(super) is_reply: bool,
}

impl Model {
    pub(super) fn add_static_bindings(&mut self) {
        let plan = self.plan.clone();
        for (instance, n) in plan.nat64.iter().enumerate() {
            for b in &n.static_bindings {
                self.bindings.push(Binding {
                    instance,
                    transport: b.transport as usize,
                    inside: b.inside,
                    outside: Some(b.outside),
                    fixed: true,
                    sessions: Vec::new(),
                });
            }
        }
    }

    /// Whether a session's time is up, so that the engine may have removed it. An established TCP session
    /// is asked with a probe first, so that it never just goes (RFC 6146 3.5.2.2).
    pub(super) fn is_over(&self, s: &Session) -> bool {
        s.ends <= self.now && s.state != Some(State::Established)
    }

    pub(super) fn binding_inside(&self, q: &Query, inside: End6) -> Option<usize> {
        self.bindings
            .iter()
            .position(|b| (b.instance, b.transport, b.inside) == (q.instance, q.transport, inside))
    }

    pub(super) fn binding_outside(&self, transport: usize, outside: End4) -> Option<usize> {
        self.bindings.iter().position(|b| b.transport == transport && b.outside == Some(outside))
    }

    /// A dynamic binding goes with its last session (A61-24).
    pub(super) fn remove_session(&mut self, binding: usize, session: usize) {
        self.bindings[binding].sessions.remove(session);
        self.remove_if_empty(binding);
    }

    pub(super) fn remove_if_empty(&mut self, binding: usize) -> bool {
        let b = &self.bindings[binding];
        let empty = !b.fixed && b.sessions.is_empty();
        if empty {
            self.bindings.remove(binding);
        }
        self.forget_idle_subscribers();
        empty
    }

    pub(super) fn forget_idle_subscribers(&mut self) {
        let alive: Vec<(usize, u128)> =
            self.bindings.iter().filter(|b| !b.sessions.is_empty()).map(|b| self.subscriber_of(b)).collect();
        self.paired.retain(|p| alive.contains(&(p.0, p.1)));
    }

    pub(super) fn subscriber_of(&self, b: &Binding) -> (usize, u128) {
        (b.instance, self.subscriber(b.instance, b.inside.0))
    }

    /// Removes the sessions of a binding that are over, as the engine may have done; `true` where the
    /// binding is gone then.
    pub(super) fn bury(&mut self, binding: usize) -> bool {
        let mut sessions = std::mem::take(&mut self.bindings[binding].sessions);
        sessions.retain(|s| !self.is_over(s));
        self.bindings[binding].sessions = sessions;
        self.remove_if_empty(binding)
    }

    /// Whether a binding may be gone already: all of its sessions are over.
    pub(super) fn may_be_gone(&self, binding: usize) -> bool {
        let b = &self.bindings[binding];
        !b.fixed && b.sessions.iter().all(|s| self.is_over(s))
    }

    /// A packet is to look for this session: one whose time is up has ended then, or, established, goes
    /// to TRANS as after a probe: the packet is the sign of life that a probe asks for.
    /// Gives the binding's and the session's place.
    pub(super) fn look_up(&mut self, binding: usize, remote: End4) -> Option<usize> {
        let at = self.bindings[binding].sessions.iter().position(|s| s.remote == remote)?;
        let session = self.bindings[binding].sessions[at];
        if session.ends > self.now {
            return Some(at);
        }
        if session.state == Some(State::Established) {
            self.go_to_trans(binding, at);
            return Some(at);
        }
        None
    }

    /// RFC 6146 3.5.2.2, ESTABLISHED: the lifetime is over.
    pub(super) fn go_to_trans(&mut self, binding: usize, session: usize) {
        let b = &mut self.bindings[binding];
        let ms = self.plan.nat64[b.instance].timeouts.tcp_transitory_ms;
        let s = &mut b.sessions[session];
        s.state = Some(State::Trans);
        s.ends = session_end(self.now, ms);
        self.coverage.tcp_timeout(State::Established);
    }

    /// A packet of a session: its state and its lifetime (RFC 6146 3.5.1 to 3.5.3).
    pub(super) fn update(&mut self, binding: usize, session: usize, q: &Query, from_inside: bool) {
        let b = &mut self.bindings[binding];
        let n = &self.plan.nat64[b.instance];
        let s = &mut b.sessions[session];
        let t = &n.timeouts;
        let ms = match s.state {
            Some(state) => {
                let segment = tcp::segment(q.flags);
                let (next, timer) = tcp::step(state, from_inside, segment, n.rst_during_fin);
                self.coverage.tcp_step(state, from_inside, segment, next);
                s.state = Some(next);
                match timer {
                    Timer::Keep => return,
                    Timer::Established => t.tcp_established_ms,
                    Timer::Opening => t.tcp_partial_open_ms,
                    Timer::Closing => t.tcp_closing_ms,
                    Timer::Transitory => t.tcp_transitory_ms,
                }
            }
            // RFC 7857 7: inbound packets need not extend it.
            None if !from_inside && !n.inbound_refresh => return,
            None if q.transport == UDP => t.udp_ms,
            None => t.icmp_ms,
        };
        s.ends = session_end(self.now, ms);
    }

    /// A new session of a binding.
    pub(super) fn add_session(
        &mut self,
        binding: usize,
        remote: End4,
        prefix: Option<usize>,
        state: Option<State>,
    ) {
        let b = &mut self.bindings[binding];
        let t = &self.plan.nat64[b.instance].timeouts;
        let ms = match (state, b.transport) {
            (Some(State::Established), _) => t.tcp_established_ms,
            (Some(_), _) => t.tcp_partial_open_ms,
            (None, UDP) => t.udp_ms,
            (None, _) => t.icmp_ms,
        };
        let ends = session_end(self.now, ms);
        b.sessions.push(Session { remote, prefix, state, ends });
    }

    /// Whether a new session of this inside address is within the limits (RFC 6888 REQ-4, REQ-5). What is over
    /// may count or not. `new_binding`: it needs a port as well. Which of several limits is named is the
    /// engine's choice: `seen`.
    pub(super) fn within_limits(
        &mut self,
        instance: usize,
        inside: Ipv6Addr,
        new_binding: bool,
        seen: Option<DropReason>,
    ) -> Result<()> {
        let limits = self.plan.limits;
        let who = (instance, self.subscriber(instance, inside));
        let all = self.count(|_| true);
        let mine = self.count(|owner| owner == who);
        let new_subscriber = u32::from(mine.most.sessions == 0);
        let new_subscriber_most = u32::from(mine.least.sessions == 0);
        let ports = u32::from(new_binding);
        use DropReason::*;
        let cases = [
            (SessionTableFull, all.least.sessions + 1, all.most.sessions + 1, limits.sessions_max),
            (
                SubscriberTableFull,
                all.least.subscribers + new_subscriber,
                all.most.subscribers + new_subscriber_most,
                if new_subscriber + new_subscriber_most > 0 { limits.subscribers_max } else { u32::MAX },
            ),
            (
                SubscriberSessionQuota,
                mine.least.sessions + 1,
                mine.most.sessions + 1,
                limits.sessions_per_subscriber,
            ),
            (
                SubscriberPortQuota,
                mine.least.bindings + ports,
                mine.most.bindings + ports,
                if new_binding { limits.ports_per_subscriber } else { u32::MAX },
            ),
        ];
        if let Some(reason) = seen
            && let Some(&(_, least, most, max)) = cases.iter().find(|c| c.0 == reason)
        {
            let refused = least > max || (most > max && self.guesses.yes());
            return if refused { Err(reason) } else { Ok(()) };
        }
        match cases.iter().find(|(_, least, _, max)| least > max) {
            Some(&(reason, ..)) => Err(reason),
            None => Ok(()),
        }
    }

    /// What there is of subscribers that `of` names: at least, where all that is over is gone, and at most.
    pub(super) fn count(&self, of: impl Fn((usize, u128)) -> bool) -> Range {
        let mut range = Range::default();
        let mut owners: Vec<((usize, u128), bool)> = Vec::new();
        for b in &self.bindings {
            let owner = self.subscriber_of(b);
            if !of(owner) {
                continue;
            }
            let sure = b.sessions.iter().filter(|s| !self.is_over(s)).count() as u32;
            let most = b.sessions.len() as u32;
            range.least.sessions += sure;
            range.most.sessions += most;
            if !b.fixed {
                range.least.bindings += u32::from(sure > 0);
                range.most.bindings += u32::from(most > 0);
            }
            if most == 0 {
                continue;
            }
            match owners.iter_mut().find(|o| o.0 == owner) {
                Some(known) => known.1 |= sure > 0,
                None => owners.push((owner, sure > 0)),
            }
        }
        range.least.subscribers = owners.iter().filter(|o| o.1).count() as u32;
        range.most.subscribers = owners.len() as u32;
        range
    }

    /// Whether the engine's occupancy can be right.
    pub fn occupancy_is_right(&self, seen: &Occupancy) -> bool {
        let range = self.count(|_| true);
        let fixed = self.bindings.iter().filter(|b| b.fixed).count() as u32;
        let within = |n: usize, least: u32, most: u32| (least as usize..=most as usize).contains(&n);
        within(seen.sessions, range.least.sessions, range.most.sessions)
            && within(seen.bindings, range.least.bindings + fixed, range.most.bindings + fixed)
            && within(seen.subscribers, range.least.subscribers, range.most.subscribers)
            && seen.held_syns == self.syns.len()
    }
}

/// How many there are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Number {
    pub(super) sessions: u32,
    pub(super) bindings: u32,
    pub(super) subscribers: u32,
}

/// How many there are at least and at most.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Range {
    pub(super) least: Number,
    pub(super) most: Number,
}

impl Model {
    /// The outside address and port of a binding, where it is known.
    pub fn outside_of(&self, transport: usize, inside: End6) -> Option<End4> {
        self.bindings.iter().find(|b| (b.transport, b.inside) == (transport, inside)).and_then(|b| b.outside)
    }

    /// As [`outside_of`](Self::outside_of), where the binding surely is there.
    pub fn sure_outside_of(&self, instance: usize, transport: usize, inside: End6) -> Option<End4> {
        let q = Query { instance, transport, flags: 0, is_reply: false };
        let found = self.binding_inside(&q, inside)?;
        if self.may_be_gone(found) { None } else { self.bindings[found].outside }
    }

    /// Bindings whose outside address and port no packet has shown: instance, transport, inside.
    pub fn unseen(&self) -> Vec<(usize, usize, End6)> {
        let unseen = self.bindings.iter().filter(|b| b.outside.is_none() && !b.sessions.is_empty());
        unseen.map(|b| (b.instance, b.transport, b.inside)).collect()
    }

    /// What there is, for people.
    pub fn describe(&self) -> String {
        let range = self.count(|_| true);
        let mut out = format!("{range:?}, {} held SYNs, now {}\n", self.syns.len(), self.now);
        for b in &self.bindings {
            out += &format!("  {b:?}\n");
        }
        out += &format!("  paired: {:x?}\n", self.paired);
        for s in &self.syns {
            out += &format!("  {s:?}\n");
        }
        out
    }
}
