//! From outside: RFC 6146 3.5, 3.6.2; RFC 4787 5. The second half of a hairpin comes this way too.

use super::addresses::{illegal4, v4};
use super::ends::{End4, End6, TCP};
use super::query::{Query, query_back};
use super::rules::{Kind, unseen_link};
use super::{Fate, Model, Result, Seen};
use crate::tcp::{self, State};
use crate::wire::{Header, L4, parse, to6, to44};
use gatun_wire::DropReason;

/// Where a packet from outside goes, and as whose.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) instance: usize,
    pub(super) inside: End6,
    /// Where no packet has shown it, any will do.
    pub(super) prefix: Option<usize>,
}

/// What the filter says.
pub(super) enum Passage {
    Pass(Arrival),
    /// A SYN that waits for the inside host's own.
    Hold,
}

impl Model {
    pub(super) fn arrive(
        &mut self,
        packet: &[u8],
        h: &Header<'_>,
        l4: L4,
        pool: usize,
        seen: &Seen,
    ) -> Result<Fate> {
        if !h.is_whole() {
            return self.piece_in(packet, h, l4, pool, seen);
        }
        if let L4::Error { .. } = l4 {
            return self.error_back(packet, h, false, seen);
        }
        let remote = query_back(h, l4)?.2;
        match self.decide_in(h, l4, pool, seen)? {
            (Passage::Hold, outside) => self.hold_syn(packet, pool, (outside, remote), 0),
            (Passage::Pass(arrival), _) => {
                let packets = self.write_back(packet, arrival, false)?;
                let realm = self.realm_of(arrival.instance);
                Ok(Fate::Forward { packets, realm, hairpinned: false })
            }
        }
    }

    /// Whether a query may come in, and the outside end that it was sent to.
    pub(super) fn decide_in(
        &mut self,
        h: &Header<'_>,
        l4: L4,
        pool: usize,
        seen: &Seen,
    ) -> Result<(Passage, End4)> {
        let (q, outside, remote) = query_back(h, l4)?;
        // A packet whose hops end here changes no state. One to a port that the pool does not have gets no
        // answer: it would not have been forwarded (A61-3).
        if h.ttl <= 1 {
            let ours = self.pool_has(pool, q.transport, outside.0, outside.1)
                || self.binding_outside(q.transport, outside).is_some();
            return Err(if ours { DropReason::TtlExceeded } else { DropReason::NotInPool });
        }
        Ok((self.filter_back(pool, q, outside, remote, seen)?, outside))
    }

    /// RFC 6146 3.5: which packets a binding lets in.
    pub(super) fn filter_back(
        &mut self,
        pool: usize,
        q: Query,
        outside: End4,
        remote: End4,
        seen: &Seen,
    ) -> Result<Passage> {
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
        // A session whose time was up may have taken its binding with it; so may those that the filter finds dead.
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

    /// To a port without binding.
    fn nobody_there(&self, pool: usize, q: Query, outside: End4) -> Result<Passage> {
        if !self.pool_has(pool, q.transport, outside.0, outside.1) {
            return Err(DropReason::NotInPool);
        }
        if q.transport == TCP && q.opens() == Ok(true) {
            return Ok(Passage::Hold);
        }
        Err(DropReason::NoBib)
    }

    /// The prefix of a session, where the engine chose it, learnt from the packet it sends.
    pub(super) fn prefix_of(&mut self, b: usize, s: usize, at: usize, seen: &Seen) -> Option<usize> {
        let (instance, remote) = (self.bindings[b].instance, self.bindings[b].sessions[s].remote.0);
        if self.bindings[b].sessions[s].prefix.is_none() && self.kind(instance) == Kind::Six {
            self.bindings[b].sessions[s].prefix = self.prefix_for(instance, remote, at, seen).unwrap_or(None);
        }
        self.bindings[b].sessions[s].prefix
    }

    pub(super) fn arrival(&self, binding: usize, inside: End6, prefix: Option<usize>) -> Passage {
        Passage::Pass(Arrival { instance: self.bindings[binding].instance, inside, prefix })
    }

    /// RFC 6146 3.6.2, 3.7, RFC 3022 4: as the inside host gets it. `unseen`: the packet was IPv4 on no link.
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

    /// A new session made by a packet from outside.
    pub(super) fn open_back(
        &mut self,
        b: usize,
        q: Query,
        remote: End4,
        prefix: Option<usize>,
    ) -> Result<Passage> {
        let instance = self.bindings[b].instance;
        let owner = self.owner_of(&self.bindings[b]);
        if let Err(reason) = self.within_limits(owner) {
            self.tell_refused(reason, owner, q.transport);
            self.forget_if_idle(owner);
            return Err(reason);
        }
        let state = (q.transport == TCP).then_some(State::V4Init);
        if q.transport == TCP {
            // RFC 5382 REQ-4: one that was held before there was a binding has its answer now.
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
