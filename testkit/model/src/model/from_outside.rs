//! Packets from outside: RFC 6146 3.5, 3.6.2; RFC 4787 5. The second half of a hairpin is handled here too.

use super::addresses::{illegal4, v4};
use super::ends::{End4, End6, TCP};
use super::query::{Query, query_back};
use super::rules::{Kind, unseen_link};
use super::{Fate, Model, Observed, Result};
use crate::tcp::{self, State};
use crate::wire::{Header, L4, parse, to6, to44};
use gatun_wire::DropReason;

/// Receiver of a packet from outside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) instance: usize,
    pub(super) inside: End6,
    /// Number of the prefix of its source; with `None`, any is right.
    pub(super) prefix: Option<usize>,
}

/// Result of the filter.
pub(super) enum FilterResult {
    Pass(Arrival),
    /// A SYN is held until the inside host sends its own.
    Hold,
}

impl Model {
    pub(super) fn arrive(
        &mut self,
        packet: &[u8],
        h: &Header<'_>,
        l4: L4,
        pool: usize,
        seen: &Observed,
    ) -> Result<Fate> {
        if !h.is_whole() {
            return self.piece_in(packet, h, l4, pool, seen);
        }
        if let L4::Error { .. } = l4 {
            return self.error_back(packet, h, false, seen);
        }
        let remote = query_back(h, l4)?.2;
        match self.decide_in(h, l4, pool, seen)? {
            (FilterResult::Hold, outside) => self.hold_syn(packet, pool, (outside, remote), 0),
            (FilterResult::Pass(arrival), _) => {
                let packets = self.write_back(packet, arrival, false)?;
                let realm = self.realm_of(arrival.instance);
                Ok(Fate::Forward { packets, realm, hairpinned: false })
            }
        }
    }

    /// Result of the filter for a query, and the outside end that it was sent to.
    pub(super) fn decide_in(
        &mut self,
        h: &Header<'_>,
        l4: L4,
        pool: usize,
        seen: &Observed,
    ) -> Result<(FilterResult, End4)> {
        let (q, outside, remote) = query_back(h, l4)?;
        // A packet whose last hop is here changes no state. One to a port outside the pool gets no answer,
        // because it would not have been forwarded (A61-3).
        if h.ttl <= 1 {
            let ours = self.pool_has(pool, q.transport, outside.0, outside.1)
                || self.binding_outside(q.transport, outside).is_some();
            return Err(if ours { DropReason::TtlExceeded } else { DropReason::NotInPool });
        }
        Ok((self.filter_back(pool, q, outside, remote, seen)?, outside))
    }

    /// RFC 6146 3.5: filters a packet by its binding.
    pub(super) fn filter_back(
        &mut self,
        pool: usize,
        q: Query,
        outside: End4,
        remote: End4,
        seen: &Observed,
    ) -> Result<FilterResult> {
        let found = self.binding_outside(q.transport, outside).and_then(|b| self.session_with(b, remote));
        if let Some((b, at)) = found
            && self.lives_on((b, at))
        {
            let closed = self.bindings[b].sessions[at].state == Some(State::BothFin);
            let may_open = self.rules[self.bindings[b].instance].external_tcp;
            if closed && !may_open && tcp::segment(q.flags) == tcp::Segment::Syn {
                return Err(DropReason::ExternalSynPolicy);
            }
            self.update(b, at, &q, false);
            let prefix = self.prefix_of(b, at, 8, seen);
            return Ok(self.arrival(b, self.bindings[b].sessions[at].inside, prefix));
        }
        if illegal4(remote.0) {
            return Err(DropReason::SourceMartian);
        }
        // A session whose lifetime was over may have ended together with its binding; so may sessions that
        // the filter finds dead.
        let Some(b) = self.binding_outside(q.transport, outside) else {
            return self.nobody_there(pool, q, outside);
        };
        let opens = q.opens()?;
        let filtered = self.filtered(b, remote);
        let Some(b) = self.binding_outside(q.transport, outside) else {
            return self.nobody_there(pool, q, outside);
        };
        self.stranger(b, q, remote, (opens, filtered), seen)
    }

    /// Handles a packet to a port without binding.
    fn nobody_there(&self, pool: usize, q: Query, outside: End4) -> Result<FilterResult> {
        if !self.pool_has(pool, q.transport, outside.0, outside.1) {
            return Err(DropReason::NotInPool);
        }
        if q.transport == TCP && q.opens() == Ok(true) {
            return Ok(FilterResult::Hold);
        }
        Err(DropReason::NoBib)
    }

    /// Prefix of a session; if the engine chose it, learns it from the packet that the engine sends.
    pub(super) fn prefix_of(&mut self, b: usize, s: usize, at: usize, seen: &Observed) -> Option<usize> {
        let (instance, session) = (self.bindings[b].instance, self.bindings[b].sessions[s]);
        if session.prefix.is_none() && self.kind(instance) == Kind::Six {
            let shown = self.prefix_under(session.wkp_non_global, instance, session.remote.0, at, seen);
            self.bindings[b].sessions[s].prefix = shown.unwrap_or(None);
        }
        self.bindings[b].sessions[s].prefix
    }

    pub(super) fn arrival(&self, binding: usize, inside: End6, prefix: Option<usize>) -> FilterResult {
        FilterResult::Pass(Arrival { instance: self.bindings[binding].instance, inside, prefix })
    }

    /// RFC 6146 3.6.2, 3.7, RFC 3022 4: the packet for the inside host. `unseen`: its IPv4 form was on no
    /// link.
    pub(super) fn write_back(&self, packet: &[u8], to: Arrival, unseen: bool) -> Result<Vec<Vec<u8>>> {
        let h = parse::parse4(packet, false)?;
        let l4 = parse::l4(&h, false)?;
        let port = to.inside.1;
        let ports = match l4 {
            L4::Echo { .. } => Some((port, port)),
            L4::Tcp { src, .. } | L4::Udp { src, .. } => Some((src, port)),
            _ => None,
        };
        match self.kind(to.instance) {
            Kind::Six => {
                let settings = self.plan.nat64[to.instance].settings;
                let settings = &if unseen { unseen_link(&settings) } else { settings };
                let src = self.outside_as_seen(to.instance, to.prefix.unwrap_or(0), v4(h.src));
                to6::translate(&h, l4, &to6::Out6 { src, dst: to.inside.0, ports, settings })
            }
            Kind::Four => {
                let mtu = if unseen { usize::from(u16::MAX) } else { self.nat44(to.instance).mtu as usize };
                let dst = to.inside.0.to_ipv4_mapped().unwrap_or(std::net::Ipv4Addr::UNSPECIFIED);
                let ends = (v4(h.src), dst);
                to44::translate(packet, &h, l4, &to44::Out44 { ends, ports, ident: None, mtu })
            }
        }
    }

    /// Opens a session for a packet from outside.
    pub(super) fn open_back(
        &mut self,
        b: usize,
        q: Query,
        remote: End4,
        prefix: Option<usize>,
    ) -> Result<FilterResult> {
        let instance = self.bindings[b].instance;
        let owner = self.owner_of(&self.bindings[b]);
        if let Err(reason) = self.within_limits(owner) {
            self.tell_refused(reason, owner, q.transport);
            self.forget_if_idle(owner);
            return Err(reason);
        }
        let state = (q.transport == TCP).then_some(State::V4Init);
        if q.transport == TCP {
            // RFC 5382 REQ-4: the new session answers a SYN that was held before the binding existed.
            self.answer_held_syn(self.bindings[b].outside, remote);
        }
        let inside = self.bindings[b].inside;
        self.add_session(b, (inside, remote), prefix, state);
        if !self.rules[instance].inbound_refresh {
            self.live_no_longer_than_others(b);
        }
        Ok(self.arrival(b, inside, prefix))
    }
}
