//! From outside: RFC 6146 3.5, 3.6.2. The second half of a hairpin comes this way too.

use super::addresses::{illegal4, v4};
use super::bib::{End4, End6, ICMP, Query, TCP, UDP};
use super::tcp::{self, State};
use super::{Fate, Model, Result, Seen};
use crate::wire::{Header, L4, parse, proto, to6};
use gatun_nat::Verdict;
use gatun_wire::{DropReason, Settings};

/// Where a packet from outside goes, and as whose.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) instance: usize,
    pub(super) inside: End6,
    pub(super) prefix: usize,
}

/// What the filter says.
pub(super) enum Passage {
    Pass(Arrival),
    /// A SYN that waits for the inside host's own.
    Hold,
}

impl Model {
    pub(super) fn four_to_six(&mut self, packet: &[u8], seen: &Seen) -> Result<Fate> {
        let h = parse::parse4(packet, false)?;
        let dst = v4(h.dst);
        let l4 = parse::l4(&h, false)?;
        if Some(dst) == self.plan.own4 && h.is_whole() && matches!(l4, L4::Echo { request: true, .. }) {
            return Ok(Fate::Echo(self.echo_reply(packet, &h, seen)));
        }
        let instance = self.owner4_address(dst).ok_or(DropReason::NotInPool)?;
        if let L4::Error { .. } = l4 {
            return self.error_back(&h, instance, false, seen);
        }
        let (q, outside, remote) = self.query_back(&h, l4, instance)?;
        self.check_hops(&h, &q, outside)?;
        match self.filter_back(q, outside, remote, false, seen)? {
            Passage::Hold => self.hold_syn(packet, outside, remote),
            Passage::Pass(arrival) => {
                let settings = self.plan.nat64[arrival.instance].settings;
                let packets = self.send_back(&h, l4, arrival, &settings)?;
                Ok(Fate::Forward { packets, hairpinned: false })
            }
        }
    }

    pub(super) fn query_back(&self, h: &Header<'_>, l4: L4, instance: usize) -> Result<(Query, End4, End4)> {
        let (src, dst) = (v4(h.src), v4(h.dst));
        let mut q = Query { instance, transport: TCP, flags: 0, is_reply: false };
        let (outside, remote) = match l4 {
            L4::Tcp { src: z, dst: t, flags } => {
                q.flags = flags;
                ((dst, t), (src, z))
            }
            L4::Udp { src: z, dst: t, .. } => {
                q.transport = UDP;
                ((dst, t), (src, z))
            }
            L4::Echo { request, id } => {
                (q.transport, q.is_reply) = (ICMP, !request);
                ((dst, id), (src, 0))
            }
            L4::OtherIcmp { kind: 9 | 10 } => return Err(DropReason::IcmpSingleHop), // RFC 7915 4.2
            L4::OtherIcmp { .. } => return Err(DropReason::IcmpUnknownType),
            _ if h.proto == proto::IGMP => return Err(DropReason::IcmpSingleHop),
            _ => return Err(DropReason::UnsupportedProtocol),
        };
        Ok((q, outside, remote))
    }

    /// A packet whose hops end here changes no state. One to a port that the pool does not have gets no answer: it
    /// would not have been forwarded (A61-3).
    pub(super) fn check_hops(&self, h: &Header<'_>, q: &Query, outside: End4) -> Result<()> {
        if h.ttl > 1 {
            return Ok(());
        }
        let ours = self.owner4(q.transport, outside.0, outside.1).is_some();
        Err(if ours { DropReason::TtlExceeded } else { DropReason::NotInPool })
    }

    /// RFC 6146 3.5: which packets a binding lets in.
    pub(super) fn filter_back(
        &mut self,
        q: Query,
        outside: End4,
        remote: End4,
        hairpin: bool,
        seen: &Seen,
    ) -> Result<Passage> {
        let n = &self.plan.nat64[q.instance];
        let opens = match q.transport {
            TCP => !tcp::is_senseless(q.flags) && tcp::segment(q.flags) == tcp::Segment::Syn,
            ICMP => !q.is_reply,
            _ => true,
        };
        let external_tcp = n.external_tcp;
        let mut binding = self.binding_outside(q.transport, outside);
        if let Some(b) = binding
            && self.may_be_gone(b)
            && !self.guesses.yes()
        {
            self.bury(b);
            binding = None;
        }
        if binding.is_none() {
            binding = self.unseen_binding(q.transport, outside, seen);
        }
        if let Some(b) = binding {
            if let Some(s) = self.look_up(b, remote) {
                self.update(b, s, &q, false);
                let prefix = self.prefix_of(b, s, 8, seen);
                return Ok(self.arrival(b, prefix));
            }
            // One whose time is up has ended now, if it had not before.
            binding = self.drop_dead_session(b, remote);
        }
        if illegal4(remote.0) {
            return Err(DropReason::SourceMartian);
        }
        let Some(b) = binding else {
            if self.owner4(q.transport, outside.0, outside.1).is_none() {
                return Err(DropReason::NotInPool);
            }
            if q.transport == TCP && opens {
                return if external_tcp || hairpin {
                    Ok(Passage::Hold)
                } else {
                    Err(DropReason::ExternalSynPolicy)
                };
            }
            return Err(DropReason::NoBib);
        };
        self.stranger(b, q, outside, remote, opens, hairpin, seen)
    }

    /// The prefix of a session, where the engine chose it, learnt from the packet it sends.
    pub(super) fn prefix_of(&mut self, b: usize, s: usize, at: usize, seen: &Seen) -> Option<usize> {
        let (instance, remote) = (self.bindings[b].instance, self.bindings[b].sessions[s].remote.0);
        if self.bindings[b].sessions[s].prefix.is_none() {
            self.bindings[b].sessions[s].prefix = self.prefix_for(instance, remote, at, seen).unwrap_or(None);
        }
        self.bindings[b].sessions[s].prefix
    }

    /// Where the prefix is not known, no packet shows it: any will do.
    pub(super) fn arrival(&self, binding: usize, prefix: Option<usize>) -> Passage {
        let b = &self.bindings[binding];
        let prefix = prefix.unwrap_or(0);
        Passage::Pass(Arrival { instance: b.instance, inside: b.inside, prefix })
    }

    /// A binding that was made for a packet that did not leave: only now is it seen which port it has.
    pub(super) fn unseen_binding(&mut self, transport: usize, outside: End4, seen: &Seen) -> Option<usize> {
        let unseen: Vec<usize> = (0..self.bindings.len())
            .filter(|&b| self.bindings[b].outside.is_none() && self.bindings[b].transport == transport)
            .collect();
        if unseen.is_empty() {
            return None;
        }
        let choice = self.guesses.choose(unseen.len() + 1);
        let binding = choice.checked_sub(1).map(|at| unseen[at])?;
        // One that is refused might have been to another that is refused alike.
        if seen.verdict == Verdict::Forward {
            self.learn(binding, Some(outside));
        }
        Some(binding)
    }

    /// RFC 6146 3.6.2, 3.7.
    pub(super) fn send_back(
        &self,
        h: &Header<'_>,
        l4: L4,
        to: Arrival,
        settings: &Settings,
    ) -> Result<Vec<Vec<u8>>> {
        let port = to.inside.1;
        let ports = match l4 {
            L4::Echo { .. } => Some((port, port)),
            L4::Tcp { src, .. } | L4::Udp { src, .. } => Some((src, port)),
            _ => None,
        };
        let out = to6::Out6 {
            src: self.outside_as_seen(to.instance, to.prefix, v4(h.src)),
            dst: to.inside.0,
            ports,
            settings,
        };
        to6::translate(h, l4, &out)
    }

    /// A new session made by a packet from outside.
    pub(super) fn open_back(
        &mut self,
        b: usize,
        q: Query,
        remote: End4,
        prefix: Option<usize>,
        seen: &Seen,
    ) -> Result<Passage> {
        let (instance, inside) = (self.bindings[b].instance, self.bindings[b].inside);
        let refused = super::six_to_four::refused_for(seen).filter(|_| seen.verdict != Verdict::Forward);
        self.within_limits(instance, inside.0, false, refused)?;
        let state = (q.transport == TCP).then_some(State::V4Init);
        if q.transport == TCP {
            // RFC 5382 REQ-4: one that was held before there was a binding has its answer now.
            self.answer_held_syn(self.bindings[b].outside, remote);
        }
        self.add_session(b, remote, prefix, state);
        if let Some(state) = state {
            self.coverage.tcp_open(state);
        }
        Ok(self.arrival(b, prefix))
    }
}
