//! Packets from inside: RFC 6146 3.5, 3.6.1, 3.8; RFC 4787 4, RFC 5382 4, RFC 5508 3.

use super::addresses::{embed, extract, illegal4, illegal6, v4, v6};
use super::ends::{End4, End6, ICMP, TCP};
use super::from_outside::{Arrival, FilterResult};
use super::query::{Query, query_out};
use super::rules::{Kind, unseen_link};
use super::{Fate, Model, Observed, Result};
use crate::tcp::{self, State};
use crate::wire::{Header, L4, get16, parse, proto, to4, to44};
use gatun_nat::{Reply, Verdict};
use gatun_wire::DropReason;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A packet from inside and its destination.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent<'p> {
    pub(super) packet: &'p [u8],
    pub(super) h: &'p Header<'p>,
    pub(super) l4: L4,
    pub(super) instance: usize,
    /// The sender's address as in bindings.
    pub(super) src: Ipv6Addr,
    /// Number of the prefix of its destination.
    pub(super) prefix: usize,
    pub(super) remote: Ipv4Addr,
}

impl Model {
    /// Handles an IPv6 packet.
    pub(super) fn six(&mut self, packet: &[u8], realm: u8, seen: &Observed) -> Result<Fate> {
        let h = parse::parse6(packet, false)?;
        let (src, dst) = (v6(h.src), v6(h.dst));
        let l4 = parse::l4(&h, false)?;
        self.mark_choice(realm, (h.src, h.dst));
        let owner = self.owner6(realm, self.host_of(&h, l4), dst);
        let behind = owner.and_then(|(instance, n)| extract(&self.plan.nat64[instance].pool6[n], dst));
        let is_own = Some(dst) == self.plan.own6 || behind.is_some() && behind == self.plan.own4;
        if is_own && let Some(fate) = self.for_itself(packet, &h, l4, (behind, true), seen) {
            return fate;
        }
        let (Some((instance, prefix)), Some(remote)) = (owner, behind) else {
            return Err(DropReason::DestinationNotPool6);
        };
        self.out(&Sent { packet, h: &h, l4, instance, src, prefix, remote }, seen)
    }

    /// Handles an IPv4 packet of a NAT44 host.
    pub(super) fn out_of_four(
        &mut self,
        packet: &[u8],
        h: &Header<'_>,
        l4: L4,
        instance: usize,
        seen: &Observed,
    ) -> Result<Fate> {
        let src = v4(h.src).to_ipv6_mapped();
        self.out(&Sent { packet, h, l4, instance, src, prefix: 0, remote: v4(h.dst) }, seen)
    }

    fn out(&mut self, s: &Sent<'_>, seen: &Observed) -> Result<Fate> {
        if !s.h.is_whole() {
            return self.piece_out(s, seen);
        }
        if let L4::Error { .. } = s.l4 {
            return self.error_out(s, seen);
        }
        if !matches!(s.l4, L4::Tcp { .. } | L4::Udp { .. } | L4::Echo { .. }) {
            self.check_source(s)?;
        }
        let (outside, turned) = match self.decide_out(s, seen)? {
            (outside, Some(FilterResult::Hold)) => return self.hold_turned(s, outside),
            (outside, Some(FilterResult::Pass(arrival))) => (outside, Some(arrival)),
            (outside, None) => (outside, None),
        };
        self.send_out(s, outside, turned, ident_of(&seen.bytes).unwrap_or(0))
    }

    /// Outside end of a query; for a hairpinned one, also its receiver.
    pub(super) fn decide_out(
        &mut self,
        s: &Sent<'_>,
        seen: &Observed,
    ) -> Result<(End4, Option<FilterResult>)> {
        let (query, inside, remote) = query_out(s.h, s.l4, s.src, s.remote)?;
        if s.h.ttl <= 1 {
            return Err(DropReason::TtlExceeded); // and no state
        }
        let outside = self.filter_out(s, query, inside, remote, seen)?;
        let turned = match self.pool_of(s.remote) {
            Some(pool) => Some(self.turned(s, pool, query, outside, remote, seen)?),
            None => None,
        };
        Ok((outside, turned))
    }

    /// RFC 6146 3.5: checks that packets may come from a source.
    pub(super) fn check_origin(&self, src: Ipv6Addr) -> Result<()> {
        if self.is_translated(src) {
            return Err(DropReason::SourceInPool6);
        }
        if illegal6(src) { Err(DropReason::SourceMartian) } else { Ok(()) }
    }

    /// Checks that the instance serves the sender.
    pub(super) fn check_source(&self, s: &Sent<'_>) -> Result<()> {
        if self.kind(s.instance) == Kind::Four {
            return Ok(());
        }
        self.accepts(s.instance, s.src)
    }

    /// Checks that a NAT64 instance serves a host.
    pub(super) fn accepts(&self, instance: usize, src: Ipv6Addr) -> Result<()> {
        self.check_origin(src)?;
        if self.lists(instance, src) { Ok(()) } else { Err(DropReason::SourceNotAllowed) }
    }

    /// RFC 6146 3.5: finds or makes binding and session. Returns the outside address and port.
    fn filter_out(
        &mut self,
        s: &Sent<'_>,
        q: Query,
        inside: End6,
        remote: End4,
        seen: &Observed,
    ) -> Result<End4> {
        if let Some((b, at)) = self.session_inside(s.instance, q.transport, inside, remote)
            && self.lives_on((b, at))
        {
            if self.is_barred(s.instance, s.prefix, remote.0) && !self.continues_with((b, at), s.prefix, seen)
            {
                return Err(DropReason::WellKnownNonGlobal);
            }
            self.bindings[b].sessions[at].prefix = Some(s.prefix);
            self.update(b, at, &q, true);
            return Ok(self.bindings[b].outside);
        }
        // A session whose lifetime is over may have ended together with its binding.
        let binding = self.binding_inside(s.instance, q.transport, inside);
        self.check_source(s)?;
        if q.transport == ICMP && !self.rules[s.instance].icmp_queries {
            return Err(DropReason::IcmpUnknownType);
        }
        if illegal4(remote.0) {
            return Err(DropReason::DestinationMartian);
        }
        if self.is_barred(s.instance, s.prefix, remote.0) {
            return Err(DropReason::WellKnownNonGlobal);
        }
        if q.opens()? {
            return self.open_out(s, q, inside, remote, binding);
        }
        // RFC 6146 3.5.2.2, CLOSED: a segment other than a SYN is forwarded by the binding, and makes no
        // state. Choice: so is an echo reply; from outside it is not, because no inside host asked for it.
        match binding {
            Some(b) => Ok(self.bindings[b].outside),
            None if q.transport == TCP => Err(DropReason::NonSynClosed),
            None => Err(DropReason::NoSession),
        }
    }

    /// Returns true if a session continues with a prefix that new sessions may not use: it does with the one
    /// through which it was opened. The verdict shows a choice of the engine that no packet has shown.
    fn continues_with(&mut self, (b, at): (usize, usize), prefix: usize, seen: &Observed) -> bool {
        use DropReason::WellKnownNonGlobal;
        let session = &mut self.bindings[b].sessions[at];
        if session.prefix.is_some() || !session.wkp_non_global {
            return session.prefix == Some(prefix);
        }
        let refused = [Verdict::Drop(WellKnownNonGlobal), Verdict::Reply(Reply::Error(WellKnownNonGlobal))];
        // After a refusal, the choice was another prefix: one that new sessions may use as well.
        session.wkp_non_global = !refused.contains(&seen.verdict);
        session.wkp_non_global
    }

    fn open_out(
        &mut self,
        s: &Sent<'_>,
        q: Query,
        inside: End6,
        remote: End4,
        binding: Option<usize>,
    ) -> Result<End4> {
        let owner = self.subscriber(s.instance, s.src);
        let knocked = match q.transport {
            TCP => self.knocked_at(s.instance, remote, binding),
            _ => None,
        };
        // An inside end with a binding uses it; the answer to a held SYN uses the port that the SYN was sent
        // to.
        let shares = knocked.is_none() && self.may_share(s.instance, q.transport, remote);
        let opened = self.within_limits(owner).and_then(|()| match binding {
            Some(b) => Ok(b),
            None if shares => self.share(s.instance, q.transport, inside, remote),
            None => self.bind(s.instance, q.transport, inside, knocked),
        });
        let b = match opened {
            Ok(b) => b,
            Err(reason) => {
                self.tell_refused(reason, owner, q.transport);
                self.forget_if_idle(owner);
                return Err(reason);
            }
        };
        let outside = self.bindings[b].outside;
        // The connection answers a held SYN only if it got the port that the SYN was sent to.
        let answers = knocked == Some(outside);
        let state = match (q.transport, answers) {
            (TCP, true) => Some(State::Established), // V4_INIT, and now the SYN from inside
            (TCP, false) => Some(State::V6Init),
            _ => None,
        };
        let prefix = (self.kind(s.instance) == Kind::Six).then_some(s.prefix);
        self.add_session(b, (inside, remote), prefix, state);
        if answers {
            self.answer_held_syn(outside, remote);
            self.coverage.tcp_step(State::V4Init, true, tcp::Segment::Syn, State::Established);
        }
        Ok(outside)
    }

    /// RFC 6146 3.8: filters as if the packet came from IPv4; two translations follow.
    fn turned(
        &mut self,
        s: &Sent<'_>,
        pool: usize,
        q: Query,
        outside: End4,
        remote: End4,
        seen: &Observed,
    ) -> Result<FilterResult> {
        let (there, back) = match q.transport {
            // The only identifier is the sender's outside one.
            ICMP => ((s.remote, outside.1), (outside.0, 0)),
            _ => (remote, outside),
        };
        if s.h.ttl <= 2 {
            return Err(DropReason::TtlExceeded); // the second translation's hop
        }
        let FilterResult::Pass(arrival) = self.filter_back(pool, q, there, back, seen)? else {
            return Ok(FilterResult::Hold);
        };
        let mtu = match self.kind(arrival.instance) {
            Kind::Six => self.plan.nat64[arrival.instance].settings.mtu6 as usize,
            Kind::Four => self.nat44(arrival.instance).mtu as usize,
        };
        if let Some((reason, fits)) = too_big(s.h, mtu, self.kind(arrival.instance)) {
            self.turned_mtu = Some(fits as u32);
            return Err(reason);
        }
        Ok(FilterResult::Pass(arrival))
    }

    /// RFC 5382 REQ-4, REQ-8: an inside host's SYN to another's public address is held like one from
    /// outside.
    pub(super) fn hold_turned(&mut self, s: &Sent<'_>, outside: End4) -> Result<Fate> {
        let there = query_out(s.h, s.l4, s.src, s.remote)?.2;
        let pool = self.pool_of(s.remote).ok_or(DropReason::NoBib)?;
        self.hold_syn(s.packet, pool, (there, outside), self.realm_of(s.instance))
    }

    /// Sends a packet from an outside end, or on to the inside host that it is hairpinned to.
    pub(super) fn send_out(
        &self,
        s: &Sent<'_>,
        outside: End4,
        turned: Option<Arrival>,
        ident: u16,
    ) -> Result<Fate> {
        let packets = self.write_out(s, outside, turned.is_some(), ident)?;
        let Some(arrival) = turned else {
            return Ok(Fate::Forward { packets, realm: 0, hairpinned: false });
        };
        let realm = self.realm_of(arrival.instance);
        // A packet from an IPv4 link without DF is fragmented for the receiver's link.
        match self.write_back(&packets[0], arrival, s.h.src.is_ipv6()) {
            Ok(packets) => Ok(Fate::Forward { packets, realm, hairpinned: true }),
            Err(reason) => Ok(Fate::Lost(reason)),
        }
    }

    /// RFC 6146 3.7, RFC 3022 4: the IPv4 packet from this outside address and port. `unseen`: it appears on
    /// no link.
    pub(super) fn write_out(
        &self,
        s: &Sent<'_>,
        (address, port): End4,
        unseen: bool,
        ident: u16,
    ) -> Result<Vec<Vec<u8>>> {
        let ports = match s.l4 {
            L4::Echo { .. } => Some((port, port)),
            L4::Tcp { dst, .. } | L4::Udp { dst, .. } => Some((port, dst)),
            _ => None,
        };
        match self.kind(s.instance) {
            Kind::Six => {
                let settings = self.plan.nat64[s.instance].settings;
                let settings = &if unseen { unseen_link(&settings) } else { settings };
                to4::translate(s.h, s.l4, &to4::Out4 { src: address, dst: s.remote, ports, ident, settings })
            }
            Kind::Four => {
                let mtu = if unseen { usize::from(u16::MAX) } else { self.nat44(s.instance).mtu as usize };
                // RFC 6864 5.3.1: the identification of an atomic datagram has no meaning.
                let ident = (!s.h.df || !s.h.is_whole()).then_some(ident);
                to44::translate(
                    s.packet,
                    s.h,
                    s.l4,
                    &to44::Out44 { ends: (address, s.remote), ports, ident, mtu },
                )
            }
        }
    }

    /// IPv6 address of an outside host for the inside hosts of an instance.
    pub(super) fn outside_as_seen(&self, instance: usize, prefix: usize, a: Ipv4Addr) -> Ipv6Addr {
        embed(&self.plan.nat64[instance].pool6[prefix], a)
    }
}

/// Returns a reason and the size that fits, if an unfragmentable packet does not fit its receiver's link.
fn too_big(h: &Header<'_>, mtu: usize, receiver: Kind) -> Option<(DropReason, usize)> {
    let fragment = if h.piece.is_some() { 8 } else { 0 };
    let (size, fits, reason) = match (h.src.is_ipv6(), receiver) {
        (true, Kind::Six) => (40 + fragment + h.length, mtu, DropReason::TooBig6),
        (true, Kind::Four) => (40 + fragment + h.length, mtu + 20 + fragment, DropReason::TooBig6),
        (false, Kind::Six) => (h.header_len + h.length, mtu - 20 - fragment, DropReason::TooBig4),
        (false, Kind::Four) => (h.header_len + h.length, mtu, DropReason::TooBig4),
    };
    // Choice: an IPv6 host need not send less than 1280 bytes, so such a packet passes.
    let fits = if h.src.is_ipv6() { fits.max(1280) } else { fits };
    ((h.src.is_ipv6() || h.df) && size > fits).then_some((reason, fits))
}

/// Identification of a packet; fragmented IPv6 packets have one too.
pub(super) fn ident_of(p: &[u8]) -> Option<u16> {
    match p.first()? >> 4 {
        4 if p.len() >= 20 => Some(get16(p, 4)),
        6 if p.len() >= 48 && p[6] == proto::FRAGMENT => Some(get16(p, 46)),
        _ => None,
    }
}
