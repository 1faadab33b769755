//! From inside: RFC 6146 3.5, 3.6.1, 3.8.

use super::addresses::{embed, extract, illegal4, illegal6, v4, v6};
use super::bib::{End4, End6, ICMP, Query, TCP, UDP};
use super::tcp::{self, State};
use super::{Fate, Model, Result, Seen};
use crate::wire::{Header, L4, get16, parse, proto, to4};
use gatun_nat::{Reply, Verdict};
use gatun_wire::{DropReason, Settings};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Where a packet from inside goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) instance: usize,
    /// Number of the prefix that was written to.
    pub(super) prefix: usize,
    pub(super) remote: Ipv4Addr,
}

impl Model {
    pub(super) fn six_to_four(&mut self, packet: &[u8], seen: &Seen) -> Result<Fate> {
        let h = parse::parse6(packet, false)?;
        let (src, dst) = (v6(h.src), v6(h.dst));
        let l4 = parse::l4(&h, false)?;
        if Some(dst) == self.plan.own6 {
            return self.at_own6(packet, &h, seen);
        }
        let (instance, prefix) = self.owner6(dst).ok_or(DropReason::DestinationNotPool6)?;
        if self.owner6(src).is_some() {
            return Err(DropReason::SourceInPool6);
        }
        if illegal6(src) {
            return Err(DropReason::SourceMartian);
        }
        let Some(remote) = extract(&self.plan.nat64[instance].pool6[prefix], dst) else {
            return Err(DropReason::DestinationNotPool6);
        };
        let to = Target { instance, prefix, remote };
        if Some(remote) == self.plan.own4 && matches!(l4, L4::Echo { request: true, .. }) {
            return Ok(Fate::Echo(self.echo_reply(packet, &h, seen)));
        }
        self.whole_out(&h, l4, to, seen)
    }

    fn at_own6(&mut self, packet: &[u8], h: &Header<'_>, seen: &Seen) -> Result<Fate> {
        if matches!(parse::l4(h, false), Ok(L4::Echo { request: true, .. })) && h.is_whole() {
            return Ok(Fate::Echo(self.echo_reply(packet, h, seen)));
        }
        Err(DropReason::DestinationNotPool6)
    }

    fn whole_out(&mut self, h: &Header<'_>, l4: L4, to: Target, seen: &Seen) -> Result<Fate> {
        if let L4::Error { .. } = l4 {
            return self.error_out(h, to, seen);
        }
        if !matches!(l4, L4::Tcp { .. } | L4::Udp { .. } | L4::Echo { .. }) {
            self.check_source(to.instance, v6(h.src))?;
        }
        let (query, inside, remote) = self.query_out(h, l4, to)?;
        if h.ttl <= 1 {
            return Err(DropReason::TtlExceeded); // and no state
        }
        let (outside, prefix) = self.filter_out(query, inside, remote, to.prefix, seen)?;
        let _ = prefix;
        if self.owner4_address(to.remote).is_some() {
            return self.turn_round(h, l4, to, query, outside, remote, seen);
        }
        self.send_out(h, l4, to, outside, seen)
    }

    /// What the tables are asked for.
    pub(super) fn query_out(&self, h: &Header<'_>, l4: L4, to: Target) -> Result<(Query, End6, End4)> {
        let src = v6(h.src);
        let mut q = Query { instance: to.instance, transport: TCP, flags: 0, is_reply: false };
        match l4 {
            L4::Tcp { src: x, dst: z, flags } => {
                q.flags = flags;
                Ok((q, (src, x), (to.remote, z)))
            }
            L4::Udp { src: x, dst: z, .. } => {
                q.transport = UDP;
                Ok((q, (src, x), (to.remote, z)))
            }
            L4::Echo { request, id } => {
                (q.transport, q.is_reply) = (ICMP, !request);
                // RFC 6146 3.5.3: a session is X', Y' and the identifier; the remote side has none of its own.
                Ok((q, (src, id), (to.remote, 0)))
            }
            L4::OtherIcmp { kind } => Err(unknown_icmp(kind)),
            _ if h.proto == proto::IGMP => Err(DropReason::IcmpSingleHop), // RFC 7915 4.2, in any family
            _ => Err(DropReason::UnsupportedProtocol),
        }
    }

    /// Whether the instance serves a host.
    pub(super) fn check_source(&self, instance: usize, a: Ipv6Addr) -> Result<()> {
        let sources = &self.plan.nat64[instance].sources;
        if !sources.is_empty() && !sources.iter().any(|net| net.contains(a)) {
            return Err(DropReason::SourceNotAllowed);
        }
        Ok(())
    }

    /// RFC 6146 3.5: finds or makes binding and session. Gives the outside address and port.
    pub(super) fn filter_out(
        &mut self,
        q: Query,
        inside: End6,
        remote: End4,
        prefix: usize,
        seen: &Seen,
    ) -> Result<(Option<End4>, usize)> {
        let shown = self.shown_outside(q.transport, inside, seen);
        let mut binding = self.binding_inside(&q, inside);
        if let Some(b) = binding {
            if let Some(s) = self.look_up(b, remote) {
                if self.is_barred(q.instance, prefix, remote.0) {
                    return Err(DropReason::WellKnownNonGlobal);
                }
                self.learn(b, shown);
                self.bindings[b].sessions[s].prefix = Some(prefix);
                if self.bindings[b].sessions[s].state == Some(State::V4Init)
                    && tcp::segment(q.flags) == tcp::Segment::Syn
                {
                    self.answer_held_syn(self.bindings[b].outside, remote);
                }
                self.update(b, s, &q, true);
                return Ok((self.bindings[b].outside, prefix));
            }
            // One whose time is up is gone now, if it was not before.
            binding = self.drop_dead_session(b, remote);
        }
        self.check_source(q.instance, inside.0)?;
        if q.transport == ICMP && !self.plan.nat64[q.instance].icmp_queries {
            return Err(DropReason::IcmpUnknownType);
        }
        if illegal4(remote.0) {
            return Err(DropReason::DestinationMartian);
        }
        if self.is_barred(q.instance, prefix, remote.0) {
            return Err(DropReason::WellKnownNonGlobal);
        }
        if let Some(b) = binding
            && self.may_be_gone(b)
            && !self.guesses.yes()
        {
            self.bury(b);
            binding = None;
        }
        let opens = match q.transport {
            TCP => {
                if tcp::is_senseless(q.flags) {
                    return Err(DropReason::TcpInvalidFlags);
                }
                tcp::segment(q.flags) == tcp::Segment::Syn
            }
            ICMP => !q.is_reply,
            _ => true,
        };
        match binding {
            // RFC 6146 3.5.2.2, CLOSED: what is no SYN is forwarded by the binding, and makes no state. Choice: so
            // is an echo reply; from outside it is not, as it answers nothing that was asked.
            Some(b) if !opens => {
                self.learn(b, shown);
                Ok((self.bindings[b].outside, prefix))
            }
            _ if !opens && q.transport == TCP => Err(DropReason::NonSynClosed),
            _ if !opens => Err(DropReason::NoSession),
            _ => self.open_out(q, inside, remote, prefix, binding, shown, seen),
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn open_out(
        &mut self,
        q: Query,
        inside: End6,
        remote: End4,
        prefix: usize,
        binding: Option<usize>,
        shown: Option<End4>,
        seen: &Seen,
    ) -> Result<(Option<End4>, usize)> {
        let refused = refused_for(seen);
        self.within_limits(q.instance, inside.0, binding.is_none(), refused)?;
        let held = match (q.transport, binding) {
            (TCP, Some(b)) => self.held_syn(remote, self.bindings[b].outside, q.instance),
            (TCP, None) => self.held_syn_for_new_binding(remote, shown, q.instance),
            _ => None,
        };
        let b = match (binding, held) {
            (Some(b), _) => {
                if self.may_be_gone(b) && shown.is_none() {
                    self.bindings[b].outside = None; // there still, or made anew
                }
                self.learn(b, shown);
                b
            }
            // A61-40: the address and port that the held SYN knocked at.
            (None, Some(syn)) => {
                let outside = self.syns[syn].outside;
                self.add_binding(q.instance, TCP, inside, Some(outside))
            }
            (None, None) => self.bind(q.instance, q.transport, inside, shown, refused)?,
        };
        let outside = self.bindings[b].outside;
        let state = match (q.transport, held) {
            (TCP, Some(_)) => Some(State::Established), // V4_INIT, and now the SYN from inside
            (TCP, None) => Some(State::V6Init),
            _ => None,
        };
        if let Some(syn) = held {
            self.syn_was_answered(syn);
            self.coverage.tcp_step(State::V4Init, true, tcp::Segment::Syn, State::Established);
        }
        self.add_session(b, remote, Some(prefix), state);
        if let Some(state) = state {
            self.coverage.tcp_open(state);
        }
        Ok((outside, prefix))
    }

    /// Now it is seen which outside address and port a binding has.
    pub(super) fn learn(&mut self, binding: usize, shown: Option<End4>) {
        if self.bindings[binding].outside.is_none()
            && let Some(end) = shown
        {
            // Whoever had it before is gone.
            let transport = self.bindings[binding].transport;
            if let Some(before) = self.binding_outside(transport, end) {
                self.bindings[before].sessions.clear();
            }
            self.bindings[binding].outside = shown;
            let (instance, inside) = (self.bindings[binding].instance, self.bindings[binding].inside);
            if let Some((address, _)) = shown {
                self.pair(instance, inside, address);
            }
        }
    }

    /// A session that is over, and that a packet asks for, has ended now. Gives the binding if it is still there.
    pub(super) fn drop_dead_session(&mut self, binding: usize, remote: End4) -> Option<usize> {
        let Some(s) = self.bindings[binding].sessions.iter().position(|s| s.remote == remote) else {
            return Some(binding);
        };
        let id = (
            self.bindings[binding].instance,
            self.bindings[binding].transport,
            self.bindings[binding].inside,
        );
        self.remove_session(binding, s);
        self.bindings.iter().position(|b| (b.instance, b.transport, b.inside) == id)
    }

    /// RFC 6146 3.7, and 3.8 where the destination is an outside address of ours.
    pub(super) fn send_out(
        &mut self,
        h: &Header<'_>,
        l4: L4,
        to: Target,
        outside: Option<End4>,
        seen: &Seen,
    ) -> Result<Fate> {
        let settings = self.plan.nat64[to.instance].settings;
        let packets = self.translate_out(h, l4, to, outside, &settings, seen)?;
        Ok(Fate::Forward { packets, hairpinned: false })
    }

    /// RFC 6146 3.8: filtering as if the packet came from IPv4 now, and two translations.
    #[allow(clippy::too_many_arguments)]
    fn turn_round(
        &mut self,
        h: &Header<'_>,
        l4: L4,
        to: Target,
        mut q: Query,
        outside: Option<End4>,
        remote: End4,
        seen: &Seen,
    ) -> Result<Fate> {
        let outside = outside.unwrap_or_else(|| self.some_outside(q, remote));
        let (there, back) = match q.transport {
            // The one identifier is the sender's outside one.
            ICMP => ((to.remote, outside.1), (outside.0, 0)),
            _ => (remote, outside),
        };
        if h.ttl <= 2 {
            return Err(DropReason::TtlExceeded); // the second translation's hop
        }
        q.instance = self.owner4_address(there.0).ok_or(DropReason::NotInPool)?;
        let passage = self.filter_back(q, there, back, true, seen)?;
        let super::four_to_six::Passage::Pass(arrival) = passage else { return Err(DropReason::NoBib) };
        let settings = unseen_link(&self.plan.nat64[to.instance].settings);
        let packets = self.translate_out(h, l4, to, Some(outside), &settings, seen)?;
        let again = parse::parse4(&packets[0], false)?;
        let l4 = parse::l4(&again, false)?;
        let settings = unseen_link(&self.plan.nat64[arrival.instance].settings);
        match self.send_back(&again, l4, arrival, &settings) {
            Ok(packets) => Ok(Fate::Forward { packets, hairpinned: true }),
            Err(reason) => Ok(Fate::Lost(reason)),
        }
    }

    /// An outside address and port of which no packet tells, as none was sent; but the filter has looked at
    /// them. They are an address of the pool, and a port that a session may remember from an earlier owner.
    fn some_outside(&mut self, q: Query, there: End4) -> End4 {
        let mut all = Vec::new();
        for r in &self.plan.pools[self.plan.nat64[q.instance].pool].ranges {
            for a in u32::from(r.first)..=u32::from(r.last) {
                all.push((Ipv4Addr::from(a), u16::MAX));
                if q.transport == ICMP {
                    // The identifier decides whether the other side's pool has it.
                    all.extend([r.ports.0, r.ports.1].map(|id| (Ipv4Addr::from(a), id)));
                }
            }
        }
        all.dedup();
        if let Some(b) = self.binding_outside(q.transport, there) {
            all.extend(self.bindings[b].sessions.iter().map(|s| s.remote));
        }
        all[self.guesses.choose(all.len())]
    }

    fn translate_out(
        &mut self,
        h: &Header<'_>,
        l4: L4,
        to: Target,
        outside: Option<End4>,
        settings: &Settings,
        seen: &Seen,
    ) -> Result<Vec<Vec<u8>>> {
        // Where no packet shows the outside port, none was sent: any will do for what remains to be said.
        let (address, port) = outside.unwrap_or((Ipv4Addr::UNSPECIFIED, 0));
        let ports = match l4 {
            L4::Echo { .. } => Some((port, port)),
            L4::Tcp { dst, .. } | L4::Udp { dst, .. } => Some((port, dst)),
            _ => None,
        };
        let ident = if seen.bytes.first().is_some_and(|b| b >> 4 == 4) { get16(&seen.bytes, 4) } else { 0 };
        let out = to4::Out4 { src: address, dst: to.remote, ports, ident, settings };
        to4::translate(h, l4, &out)
    }

    /// The outside address and port that a forwarded packet shows.
    pub(super) fn shown_outside(&self, transport: usize, from: End6, seen: &Seen) -> Option<End4> {
        // Of a hairpin that was lost between its halves, the buffer shows the first.
        let lost =
            matches!(seen.verdict, Verdict::Drop(_)) && seen.bytes.first().is_some_and(|b| b >> 4 == 4);
        if !(seen.verdict == Verdict::Forward || lost) || seen.bytes.len() < 20 {
            return None;
        }
        if seen.bytes[0] >> 4 == 4 {
            let h = parse::parse4(&seen.bytes, false).ok()?;
            return Some((v4(h.src), port_of(h.payload, transport)?));
        }
        let h = parse::parse6(&seen.bytes, false).ok()?;
        let (instance, prefix) = self.owner6(v6(h.src))?;
        let address = extract(&self.plan.nat64[instance].pool6[prefix], v6(h.src))?;
        let port = port_of(h.payload, transport)?;
        if transport != ICMP {
            return Some((address, port));
        }
        // The one identifier was the sender's outside one and the receiver's; what is seen is the inside one.
        if from == (v6(h.dst), port) {
            return None; // a host that pings itself shows nothing
        }
        let receiver = self.bindings.iter().find(|b| b.transport == ICMP && b.inside == (v6(h.dst), port))?;
        Some((address, receiver.outside?.1))
    }

    /// The IPv6 address that an outside host has for the inside hosts of an instance.
    pub(super) fn outside_as_seen(&self, instance: usize, prefix: usize, a: Ipv4Addr) -> std::net::Ipv6Addr {
        embed(&self.plan.nat64[instance].pool6[prefix], a)
    }
}

fn port_of(payload: &[u8], transport: usize) -> Option<u16> {
    let at = if transport == ICMP { 4 } else { 0 };
    (payload.len() >= at + 2).then(|| get16(payload, at))
}

/// Choice: a hairpinned packet is IPv4 on no link, so no IPv4 MTU counts; it came from an IPv6 link and goes to
/// one, where its size is the next hop's matter.
pub(super) fn unseen_link(settings: &Settings) -> Settings {
    let max = u32::from(u16::MAX);
    Settings { mtu4: max, mtu6: max, lowest_ipv6_mtu: max, icmp4_error_max: u16::MAX, ..*settings }
}

/// Why the engine refused a packet, if it did.
pub(super) fn refused_for(seen: &Seen) -> Option<DropReason> {
    match seen.verdict {
        Verdict::Drop(reason) | Verdict::Reply(Reply::Error(reason)) => Some(reason),
        _ => None,
    }
}

/// MLD and neighbour discovery are for one link; the rest has no translation (RFC 7915 5.2).
fn unknown_icmp(kind: u8) -> DropReason {
    match kind {
        130..=137 | 143 => DropReason::IcmpSingleHop,
        _ => DropReason::IcmpUnknownType,
    }
}
