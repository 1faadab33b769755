//! ICMP errors (RFC 6146 3.4, 3.6; RFC 5508 4): matched by the inner packet, without a change of state.

use super::addresses::{extract, illegal4, v4, v6};
use super::ends::{End4, End6, ICMP, TCP, UDP};
use super::from_inside::Sent;
use super::rules::{Kind, unseen_link};
use super::{Fate, Model, Observed, Result};
use crate::wire::to44::Out44;
use crate::wire::{Header, L4, get16, get32, parse, to4, to6, to44};
use gatun_nat::plan::IcmpErrorSource;
use gatun_wire::DropReason;
use std::net::Ipv4Addr;

/// No MTU applies between the halves of a hairpin.
const ANY_MTU: usize = u16::MAX as usize;

/// Packet that an error from outside is about: its binding or shared port, its ends, and its new ports.
#[derive(Clone, Copy)]
struct QuotedFlow {
    binding: usize,
    inside: End6,
    remote: End4,
    ports: Option<(u16, u16)>,
}

impl Model {
    /// Handles an error from inside about a packet from outside.
    pub(super) fn error_out(&mut self, s: &Sent<'_>, seen: &Observed) -> Result<Fate> {
        if self.kind(s.instance) == Kind::Six {
            return self.error_out_of_six(s, seen);
        }
        let realm = self.realm_of(s.instance);
        match self.error_out_of_four(s, seen) {
            // Choice: an error of a router with an inside address, about a packet that had already left; not
            // about one on its way to an inside host.
            Err(DropReason::IcmpErrorNoState)
                if self.pool_of(s.remote).is_some()
                    && inner_of(s.h)
                        .is_ok_and(|(inner, _)| self.inside44(realm, v4(inner.dst)).is_none()) =>
            {
                self.error_back(s.packet, s.h, false, seen)
            }
            done => done,
        }
    }

    fn error_out_of_six(&mut self, s: &Sent<'_>, seen: &Observed) -> Result<Fate> {
        self.check_origin(s.src)?;
        let n = self.plan.nat64[s.instance].clone();
        if !matches!(s.h.payload[0], 1..=4) {
            return Err(DropReason::IcmpUnknownType);
        }
        translated_type(s.h)?;
        let (inner, l4) = inner_of(s.h)?;
        let remote = self.prefix_with(s.instance, v6(inner.src));
        let remote = remote.and_then(|p| extract(&n.pool6[p], v6(inner.src)));
        let remote = remote.ok_or(DropReason::IcmpInnerUntranslatable)?;
        // The inner packet went from the remote to the inside host (RFC 6146 3.4: swap the ends).
        let (transport, far, near) = inner_ports(l4)?;
        let outside = self.outside_towards(s.instance, transport, (v6(inner.dst), near), (remote, far));
        let (address, port) = outside.ok_or(DropReason::IcmpErrorNoState)?;
        if remote != s.remote {
            return Err(DropReason::IcmpErrorNoState); // its receiver did not send the inner packet
        }
        let hairpin = self.pool_of(s.remote).is_some();
        if s.h.ttl <= if hairpin { 2 } else { 1 } {
            return Err(DropReason::TtlExceeded);
        }
        if hairpin {
            self.receiver_of(transport, (remote, far), (address, port), seen)?;
        }
        let ports = Some(if transport == ICMP { (port, port) } else { (far, port) });
        let ident = if seen.bytes.first().is_some_and(|b| b >> 4 == 4) { get16(&seen.bytes, 4) } else { 0 };
        let set = if hairpin { unseen_link(&n.settings) } else { n.settings };
        let ends = (address, s.remote);
        let packet = to4::error(s.h, ends, (remote, address), ports, ident, &set)?;
        if hairpin { self.turn_error(&packet, seen) } else { forward(0, vec![packet]) }
    }

    /// RFC 5508 REQ-5: an error of any sender leaves from the outside address of the inner packet's host.
    fn error_out_of_four(&mut self, s: &Sent<'_>, seen: &Observed) -> Result<Fate> {
        kind_is_for_hosts(s.h)?;
        let (inner, l4) = inner_of(s.h)?;
        let (transport, far, near) = inner_ports(l4)?;
        let inside = v4(inner.dst).to_ipv6_mapped();
        let remote = v4(inner.src);
        let outside = self.outside_towards(s.instance, transport, (inside, near), (remote, far));
        let (address, port) = outside.ok_or(DropReason::IcmpErrorNoState)?;
        if remote != s.remote {
            return Err(DropReason::IcmpErrorNoState);
        }
        let hairpin = self.pool_of(s.remote).is_some();
        if hairpin && s.h.ttl <= 2 {
            return Err(DropReason::TtlExceeded);
        }
        if hairpin {
            self.receiver_of(transport, (remote, far), (address, port), seen)?;
        }
        let ports = Some(if transport == ICMP { (port, port) } else { (far, port) });
        let ident = if seen.bytes.first().is_some_and(|b| b >> 4 == 4) { get16(&seen.bytes, 4) } else { 0 };
        let mtu = if hairpin { ANY_MTU } else { self.nat44(s.instance).mtu as usize };
        let outer = Out44 { ends: (address, s.remote), ports: None, ident: Some(ident), mtu };
        let packets = to44::error(s.packet, s.h, &outer, (remote, address), ports)?;
        if hairpin { self.turn_error(&packets[0], seen) } else { forward(0, packets) }
    }

    /// Checks that an inside host, seen by `peer` as `sender`, sent the packet that an error of `peer` is
    /// about. To the peer, an echo message has the peer's identifier.
    fn receiver_of(&self, transport: usize, sender: End4, peer: End4, seen: &Observed) -> Result<()> {
        let sender = if transport == ICMP { (sender.0, peer.1) } else { sender };
        let remote = (peer.0, if transport == ICMP { 0 } else { peer.1 });
        let (b, _) = self.inside_of(transport, sender, remote).ok_or(DropReason::IcmpErrorNoState)?;
        if self.session_with(b, remote).is_none() {
            self.prefix_for(self.bindings[b].instance, peer.0, 0, seen)?;
        }
        Ok(())
    }

    /// Handles the second half of an error between inside hosts.
    fn turn_error(&mut self, packet: &[u8], seen: &Observed) -> Result<Fate> {
        let h = parse::parse4(packet, false)?;
        match self.error_back(packet, &h, true, seen) {
            Ok(Fate::Forward { packets, realm, .. }) => {
                Ok(Fate::Forward { packets, realm, hairpinned: true })
            }
            Ok(other) => Ok(other),
            Err(reason) => Ok(Fate::Lost(reason)),
        }
    }

    /// Handles an ICMPv4 error from outside about a packet from inside.
    pub(super) fn error_back(
        &mut self,
        packet: &[u8],
        h: &Header<'_>,
        hairpin: bool,
        seen: &Observed,
    ) -> Result<Fate> {
        kind_is_for_hosts(h)?;
        let about = self.about(h);
        if !about.is_ok_and(|about| self.kind(self.bindings[about.binding].instance) == Kind::Four) {
            translated_type(h)?;
        }
        let QuotedFlow { binding, inside, remote, ports } = about?;
        match self.kind(self.bindings[binding].instance) {
            Kind::Six => self.error_to_six(h, &QuotedFlow { binding, inside, remote, ports }, hairpin, seen),
            Kind::Four => {
                let n = self.nat44(self.bindings[binding].instance);
                let mtu = if hairpin { ANY_MTU } else { n.mtu as usize };
                let host = inside.0.to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED);
                let outer = Out44 { ends: (v4(h.src), host), ports: None, ident: None, mtu };
                forward(n.realm, to44::error(packet, h, &outer, (host, remote.0), ports)?)
            }
        }
    }

    /// The packet from inside that an error is about. The error's receiver must have sent it.
    fn about(&self, h: &Header<'_>) -> Result<QuotedFlow> {
        let (inner, l4) = inner_of(h)?;
        let (transport, near, far) = inner_ports(l4)?;
        let remote = (v4(inner.dst), if transport == ICMP { 0 } else { far });
        let sender = self.inside_of(transport, (v4(inner.src), near), remote);
        let (binding, inside) = sender.filter(|_| inner.src == h.dst).ok_or(DropReason::IcmpErrorNoState)?;
        let port = inside.1;
        let ports = Some(if transport == ICMP { (port, port) } else { (port, far) });
        Ok(QuotedFlow { binding, inside, remote, ports })
    }

    fn error_to_six(
        &mut self,
        h: &Header<'_>,
        &QuotedFlow { binding, inside, remote, ports }: &QuotedFlow,
        hairpin: bool,
        seen: &Observed,
    ) -> Result<Fate> {
        let instance = self.bindings[binding].instance;
        // Without this session, any prefix is right: the inner packet's destination shows it.
        let prefix = match self.session_with(binding, remote) {
            Some((b, s)) => self.prefix_of(b, s, 48 + 24, seen).unwrap_or(0),
            None => self.prefix_for(instance, remote.0, 48 + 24, seen)?.unwrap_or(0),
        };
        if h.source_route {
            return Err(DropReason::SourceRoute);
        }
        if h.ttl <= 1 {
            return Err(DropReason::TtlExceeded);
        }
        let n = &self.plan.nat64[instance];
        let router = v4(h.src);
        let hidden = n.icmp_error_source == IcmpErrorSource::InnerDestination
            || illegal4(router)
            || self.is_barred(instance, prefix, router);
        let from = if hidden { remote.0 } else { router };
        let six = |a: Ipv4Addr| self.outside_as_seen(instance, prefix, a);
        let set = if hairpin { unseen_link(&n.settings) } else { n.settings };
        forward(n.realm, vec![to6::error(h, (six(from), inside.0), (inside.0, six(remote.0)), ports, &set)?])
    }
}

fn forward(realm: u8, packets: Vec<Vec<u8>>) -> Result<Fate> {
    Ok(Fate::Forward { packets, realm, hairpinned: false })
}

/// RFC 7915 4.2, 5.2: types without a counterpart are dropped, regardless of the inner packet.
fn translated_type(h: &Header<'_>) -> Result<()> {
    let (p, s) = (h.payload, gatun_wire::Settings::default());
    match h.src.is_ipv4() {
        true => to6::message(p[0], p[1], get32(p, 4), 0, &s).map(|_| ()),
        false => to4::message(p[0], p[1], get32(p, 4), false, &s).map(|_| ()),
    }
}

/// RFC 5508 REQ-10, RFC 792: errors that hosts act on. Redirects are link-local, and Source Quench is
/// deprecated (RFC 6633).
fn kind_is_for_hosts(h: &Header<'_>) -> Result<()> {
    match h.payload[0] {
        3 | 11 | 12 => Ok(()),
        5 => Err(DropReason::IcmpSingleHop),
        _ => Err(DropReason::IcmpUnknownType),
    }
}

/// The packet inside an error; the error's own checksum must be right (RFC 5508 REQ-3).
pub(super) fn inner_of<'p>(h: &Header<'p>) -> Result<(Header<'p>, L4)> {
    let p = h.payload;
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

/// A quoted packet is too short at the same length as a packet.
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
        // Choice: a later fragment shows no ports, by which RFC 6146 3.4 finds an error's session. Packets
        // without ports have no session either.
        L4::Later | L4::Other => Err(DropReason::IcmpErrorNoState),
        L4::OtherIcmp { .. } => Err(DropReason::IcmpInnerUntranslatable),
    }
}
