//! ICMP errors (RFC 6146 3.4, 3.6; RFC 5508 4): found by the packet inside, changing nothing.

use super::addresses::{extract, illegal4, v4, v6};
use super::bib::{End4, ICMP, Query, TCP, UDP};
use super::six_to_four::{Target, unseen_link};
use super::{Fate, Model, Result, Seen};
use crate::wire::{Header, L4, get16, get32, parse, to4, to6};
use gatun_nat::Verdict;
use gatun_nat::plan::IcmpErrorSource;
use gatun_wire::DropReason;
use std::net::Ipv4Addr;

impl Model {
    /// The binding of a packet inside an error (RFC 6146 3.6, RFC 5508 REQ-4: a mapping is all it needs), and
    /// the prefix that its session, if it has one, is reached by. Errors revive nothing: a binding of which
    /// all is over may be gone or not.
    fn binding_of(&mut self, binding: Option<usize>, remote: End4) -> Option<(usize, Option<usize>)> {
        let b = binding?;
        if self.may_be_gone(b) && !self.guesses.yes() {
            return None;
        }
        let session = self.bindings[b].sessions.iter().find(|s| s.remote == remote && !self.is_over(s));
        Some((b, session.and_then(|s| s.prefix)))
    }

    /// An ICMPv6 error from inside, about a packet that came from outside.
    pub(super) fn error_out(&mut self, h: &Header<'_>, to: Target, seen: &Seen) -> Result<Fate> {
        let n = self.plan.nat64[to.instance].clone();
        let hairpin = self.owner4_address(to.remote).is_some();
        if !matches!(h.payload[0], 1..=4) {
            return Err(DropReason::IcmpUnknownType);
        }
        let (inner, l4) = self.inner_of(h)?;
        let remote4 = self.owner6(v6(inner.src)).filter(|o| o.0 == to.instance);
        let remote4 = remote4.and_then(|(i, p)| extract(&self.plan.nat64[i].pool6[p], v6(inner.src)));
        let remote4 = remote4.ok_or(DropReason::IcmpInnerUntranslatable)?;
        // The inner packet went from the remote host to the inside one (RFC 6146 3.4: exchange the ends).
        let (transport, far, near) = inner_ports(l4)?;
        let q = Query { instance: to.instance, transport, flags: 0, is_reply: false };
        let binding = self.binding_inside(&q, (v6(inner.dst), near));
        let remote = (remote4, if transport == ICMP { 0 } else { far });
        let (b, _) = self.binding_of(binding, remote).ok_or(DropReason::IcmpErrorNoState)?;
        if remote4 != to.remote {
            return Err(DropReason::IcmpErrorNoState); // to somebody who did not send what it is about
        }
        if h.ttl <= if hairpin { 2 } else { 1 } {
            return Err(DropReason::TtlExceeded);
        }
        let shown = self.shown_inside_error(transport, seen);
        self.learn(b, shown);
        let (address, port) = self.bindings[b].outside.ok_or(DropReason::IcmpErrorNoState)?;
        let ports = Some(if transport == ICMP { (port, port) } else { (far, port) });
        let ident = if seen.bytes.len() >= 6 && !hairpin { get16(&seen.bytes, 4) } else { 0 };
        let s = if hairpin { unseen_link(&n.settings) } else { n.settings };
        let ends = (address, to.remote);
        let packet =
            to4::error(h, ends, (remote4, address), ports, (ident, 0), s.icmp4_error_max.into(), &s)?;
        if !hairpin {
            return Ok(Fate::Forward { packets: vec![packet], hairpinned: false });
        }
        let h = parse::parse4(&packet, false)?;
        let instance = self.owner4_address(to.remote).unwrap_or(to.instance);
        match self.error_back(&h, instance, true, seen)? {
            Fate::Forward { packets, .. } => Ok(Fate::Forward { packets, hairpinned: true }),
            other => Ok(other),
        }
    }

    /// An ICMPv4 error from outside, about a packet that came from inside.
    pub(super) fn error_back(
        &mut self,
        h: &Header<'_>,
        instance: usize,
        hairpin: bool,
        seen: &Seen,
    ) -> Result<Fate> {
        match h.payload[0] {
            3 | 11 | 12 => {}
            5 => return Err(DropReason::IcmpSingleHop), // RFC 7915 4.2
            _ => return Err(DropReason::IcmpUnknownType),
        }
        let (inner, l4) = self.inner_of(h)?;
        let (transport, near, far) = inner_ports(l4)?;
        let remote = (v4(inner.dst), if transport == ICMP { 0 } else { far });
        let mut binding = self.binding_outside(transport, (v4(inner.src), near));
        if let Some(b) = binding
            && self.may_be_gone(b)
            && !self.guesses.yes()
        {
            self.bury(b); // somebody else has the port by now, or nobody
            binding = None;
        }
        if binding.is_none() {
            binding = self.unseen_binding(transport, (v4(inner.src), near), seen);
        }
        let (b, prefix) = self.binding_of(binding, remote).ok_or(DropReason::IcmpErrorNoState)?;
        if h.source_route {
            return Err(DropReason::SourceRoute);
        }
        if h.ttl <= 1 {
            return Err(DropReason::TtlExceeded);
        }
        let inside = self.bindings[b].inside;
        // Of a binding without this session, any prefix: the inner packet's destination shows it.
        let prefix = match prefix {
            Some(prefix) => prefix,
            None => self.prefix_for(self.bindings[b].instance, remote.0, 48 + 24, seen)?.unwrap_or(0),
        };
        let n = &self.plan.nat64[self.bindings[b].instance];
        let router = v4(h.src);
        let hidden = n.icmp_error_source == IcmpErrorSource::InnerDestination
            || illegal4(router)
            || self.is_barred(self.bindings[b].instance, prefix, router);
        let from = if hidden { remote.0 } else { router };
        let six = |a: Ipv4Addr| self.outside_as_seen(self.bindings[b].instance, prefix, a);
        let ports = Some(if transport == ICMP { (inside.1, inside.1) } else { (inside.1, far) });
        let s = if hairpin { unseen_link(&n.settings) } else { n.settings };
        let packet = to6::error(h, (six(from), inside.0), (inside.0, six(remote.0)), ports, &s)?;
        let _ = instance;
        Ok(Fate::Forward { packets: vec![packet], hairpinned: false })
    }

    /// The packet inside an error, whose own checksum has to be right (RFC 5508 REQ-3).
    fn inner_of<'p>(&self, h: &Header<'p>) -> Result<(Header<'p>, L4)> {
        let p = h.payload;
        // RFC 7915 4.2, 5.2: what has no counterpart is dropped, whatever is inside.
        let s = &self.plan.nat64[0].settings;
        match h.src.is_ipv4() {
            true => to6::message(p[0], p[1], get32(p, 4), 0, s)?,
            false => to4::message(p[0], p[1], get32(p, 4), false, s)?,
        };
        if !to6::icmp_sum_is_right(h) {
            return Err(DropReason::BadL4Checksum);
        }
        let (at, unit, has) = match h.src.is_ipv4() {
            true => (5, 4, matches!(p[0], 3 | 11 | 12)),
            false => (4, 8, matches!(p[0], 1 | 3)),
        };
        let (quote, _) = to4::split_extension(p, at, unit, has)?;
        let inner = match h.src.is_ipv4() {
            true => parse::parse4(quote, true).map_err(short).map_err(untranslatable)?,
            false => parse::parse6(quote, true).map_err(short).map_err(untranslatable)?,
        };
        let l4 = parse::l4(&inner, true)?;
        Ok((inner, l4))
    }
}

/// What is short for a packet is short for a quoted one.
fn short(reason: DropReason) -> DropReason {
    if reason == DropReason::ShortL3 { DropReason::IcmpInnerShort } else { reason }
}

fn untranslatable(reason: DropReason) -> DropReason {
    match reason {
        DropReason::IcmpInnerShort | DropReason::BadL3Checksum => reason,
        _ => DropReason::IcmpInnerUntranslatable,
    }
}

/// Transport, source and destination port of a quoted packet.
fn inner_ports(l4: L4) -> Result<(usize, u16, u16)> {
    match l4 {
        L4::Tcp { src, dst, .. } => Ok((TCP, src, dst)),
        L4::Udp { src, dst, .. } => Ok((UDP, src, dst)),
        L4::Echo { id, .. } => Ok((ICMP, id, id)),
        L4::Error { .. } => Err(DropReason::IcmpDoubleError),
        // Choice: a later fragment shows no ports, and RFC 6146 3.4 finds an error's session by them.
        L4::Later => Err(DropReason::IcmpErrorNoState),
        L4::OtherIcmp { .. } | L4::Other => Err(DropReason::IcmpInnerUntranslatable),
    }
}

impl Model {
    /// The outside address and port that a forwarded ICMP error shows: the destination of the packet inside.
    fn shown_inside_error(&self, transport: usize, seen: &Seen) -> Option<End4> {
        if seen.verdict != Verdict::Forward {
            return None;
        }
        let at = if transport == ICMP { 4 } else { 2 };
        if seen.bytes[0] >> 4 == 4 {
            let inner = parse::parse4(seen.bytes.get(28..)?, true).ok()?;
            return (inner.payload.len() >= 8).then(|| (v4(inner.dst), get16(inner.payload, at)));
        }
        let inner = parse::parse6(seen.bytes.get(48..)?, true).ok()?;
        let (instance, prefix) = self.owner6(v6(inner.dst))?;
        let address = extract(&self.plan.nat64[instance].pool6[prefix], v6(inner.dst))?;
        (transport != ICMP && inner.payload.len() >= 8).then(|| (address, get16(inner.payload, at)))
    }
}
