//! Fragments (RFC 6146 3.4, RFC 4787 REQ-14): the first fragment is handled like a whole packet, the others
//! follow it, and earlier ones are held.

use super::addresses::{extract, v4, v6};
use super::datagrams::{Key, Memo, Piece, State, Table};
use super::ends::End4;
use super::from_inside::{Sent, ident_of};
use super::from_outside::{Arrival, FilterResult};
use super::query::query_back;
use super::rules::Kind;
use super::{Fate, Model, Observed, RealmPacket, Result, Way};
use crate::wire::sum::{pseudo, sum, sum_from};
use crate::wire::{Header, L4, parse, proto, put16, to4, to6, to44};
use gatun_nat::Verdict;
use gatun_wire::DropReason;
use gatun_wire::rfc7915::ZeroChecksum;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

fn check_protocol(h: &Header<'_>) -> Result<()> {
    let icmp = if h.src.is_ipv4() { proto::ICMP } else { proto::ICMPV6 };
    let known = [proto::TCP, proto::UDP, icmp].contains(&h.proto);
    if known { Ok(()) } else { Err(DropReason::UnsupportedProtocol) }
}

fn is_query(l4: L4) -> bool {
    matches!(l4, L4::Tcp { .. } | L4::Udp { .. } | L4::Echo { .. })
}

fn key(h: &Header<'_>, table: Table, way: Way) -> Key {
    Key { ends: (h.src, h.dst), id: h.piece.map_or(0, |p| p.id), proto: h.proto, table, way }
}

impl Model {
    /// Handles a fragment from inside.
    pub(super) fn piece_out(&mut self, s: &Sent<'_>, seen: &Observed) -> Result<Fate> {
        let six = self.kind(s.instance) == Kind::Six;
        self.check_source(s)?;
        check_protocol(s.h)?;
        let way = if six { Way::SixToFour } else { Way::FourToFour };
        let p = &Piece {
            packet: s.packet,
            h: s.h,
            key: key(s.h, Table::Inside(s.instance), way),
            source: self.subscriber(s.instance, s.src).1,
            lifetime_ms: self.rules[s.instance].timeouts.fragment_ms,
        };
        if s.l4 == L4::Later {
            return self.later(p, seen);
        }
        if !is_query(s.l4) {
            return self.first(p, Err(DropReason::FragmentIcmp), seen);
        }
        let port = match s.l4 {
            L4::Tcp { dst, .. } | L4::Udp { dst, .. } => Some(dst),
            _ => None,
        };
        if !six && self.is_exempt(s.instance, s.remote, s.h.proto, port) {
            return self.first(p, Ok(Memo::Pass), seen);
        }
        let instance = s.instance;
        let (outside, turned) = match self.decide_out(s, seen) {
            Ok((outside, Some(FilterResult::Hold))) => {
                self.refuse(p);
                return self.hold_turned(s, outside);
            }
            Ok((outside, Some(FilterResult::Pass(arrival)))) => (outside, Some(arrival)),
            Ok((outside, None)) => (outside, None),
            Err(reason) => return self.first(p, Err(reason), seen),
        };
        let memo = Memo::Out { instance, outside, turned, ident: None };
        let becomes_six = turned.is_some_and(|arrival| self.kind(arrival.instance) == Kind::Six);
        if matches!(s.l4, L4::Echo { .. }) && (six || becomes_six) {
            return self.collect(p, memo, seen);
        }
        self.first(p, Ok(memo), seen)
    }

    /// Handles a fragment to a pool.
    pub(super) fn piece_in(
        &mut self,
        packet: &[u8],
        h: &Header<'_>,
        l4: L4,
        pool: usize,
        seen: &Observed,
    ) -> Result<Fate> {
        check_protocol(h)?;
        // Only the first fragment shows the instance. Choice: until then, the datagram counts for the pool's
        // first user.
        let user = self.users_of(pool).next().ok_or(DropReason::NoBib)?;
        let way = if self.kind(user) == Kind::Six { Way::FourToSix } else { Way::FourToFour };
        let p = &Piece {
            packet,
            h,
            key: key(h, Table::Pool(pool), way),
            source: u32::from(v4(h.src)).into(),
            lifetime_ms: self.rules[user].timeouts.fragment_ms,
        };
        if l4 == L4::Later {
            return self.later(p, seen);
        }
        if !is_query(l4) {
            return self.first(p, Err(DropReason::FragmentIcmp), seen);
        }
        let arrival = match self.decide_in(h, l4, pool, seen) {
            Ok((FilterResult::Pass(arrival), _)) => arrival,
            // Choice: of a fragmented SYN, the first fragment is held.
            Ok((FilterResult::Hold, outside)) => {
                let remote = query_back(h, l4)?.2;
                self.refuse(p);
                return self.hold_syn(packet, pool, (outside, remote), 0);
            }
            Err(reason) => return self.first(p, Err(reason), seen),
        };
        let collects = self.kind(arrival.instance) == Kind::Six
            && match l4 {
                L4::Udp { no_checksum, .. } => {
                    let settings = &self.plan.nat64[arrival.instance].settings;
                    no_checksum && settings.udp_zero_checksum == ZeroChecksum::Compute
                }
                // ICMPv6's checksum covers the length of the whole message.
                L4::Echo { .. } => true,
                _ => false,
            };
        match collects {
            true => self.collect(p, Memo::In(arrival), seen),
            false => self.first(p, Ok(Memo::In(arrival)), seen),
        }
    }

    /// Handles the first fragment of a datagram that must be complete.
    fn collect(&mut self, p: &Piece<'_>, memo: Memo, seen: &Observed) -> Result<Fate> {
        let at = self.note(p, State::Collecting(memo))?;
        self.hold(at, p)?;
        if self.datagram(at).is_complete() {
            self.release(at, seen)?;
        }
        Ok(Fate::Held)
    }

    /// Handles a first fragment after the decision on it.
    fn first(&mut self, p: &Piece<'_>, decided: Result<Memo>, seen: &Observed) -> Result<Fate> {
        let memo = match decided {
            Ok(memo) => memo,
            Err(reason) => {
                self.refuse(p);
                return Err(reason);
            }
        };
        let at = self.note(p, State::Known(memo))?;
        let fate = self.follow(at, p.packet, false, seen);
        match &fate {
            Err(_) | Ok(Fate::Lost(_)) => self.refuse(p),
            Ok(_) if !self.datagram(at).held.is_empty() => self.release(at, seen)?,
            Ok(_) => {}
        }
        fate
    }

    /// Handles a fragment without transport header.
    fn later(&mut self, p: &Piece<'_>, seen: &Observed) -> Result<Fate> {
        let at = self.note(p, State::Waiting)?;
        if let State::Known(_) = self.datagram(at).state {
            let fate = self.follow(at, p.packet, false, seen);
            if self.datagram(at).is_complete() && self.datagram(at).held.is_empty() {
                self.close_datagram(at);
            }
            return fate;
        }
        self.hold(at, p)?;
        if self.datagram(at).is_complete() && self.datagram(at).state.is_accepted() {
            self.release(at, seen)?;
        }
        Ok(Fate::Held)
    }

    /// Translates a fragment like its datagram's first one. `done` is true if its payload is translated
    /// already.
    fn follow(&mut self, at: usize, packet: &[u8], done: bool, seen: &Observed) -> Result<Fate> {
        self.learn(at, seen);
        let (State::Known(memo) | State::Collecting(memo)) = self.datagram(at).state else {
            return Err(DropReason::FragmentOrphan);
        };
        match memo {
            Memo::Pass => Ok(Fate::Passed { realm: 0 }),
            Memo::In(arrival) => {
                let packets = self.write_back(packet, arrival, false)?;
                Ok(Fate::Forward { packets, realm: self.realm_of(arrival.instance), hairpinned: false })
            }
            Memo::Out { instance, outside, turned, ident } => {
                self.follow_out((packet, done), instance, outside, turned, ident.unwrap_or(0))
            }
        }
    }

    /// Learns the engine's choices for a datagram from the first packet that leaves.
    fn learn(&mut self, at: usize, seen: &Observed) {
        let at_hand = Some(&seen.bytes).filter(|_| seen.verdict == Verdict::Forward);
        let left: Vec<&Vec<u8>> =
            at_hand.into_iter().chain(seen.emitted.iter().map(|sent| &sent.bytes)).collect();
        let (State::Known(mut memo) | State::Collecting(mut memo)) = self.datagram(at).state else { return };
        if let Memo::Out { ident, .. } = &mut memo {
            *ident = ident.or_else(|| left.iter().find_map(|p| ident_of(p)));
        }
        if let Memo::In(Arrival { instance, prefix, .. })
        | Memo::Out { turned: Some(Arrival { instance, prefix, .. }), .. } = &mut memo
            && self.kind(*instance) == Kind::Six
        {
            let sources = left.iter().filter_map(|p| parse::parse6(p, true).ok()).map(|h| v6(h.src));
            let shown = { sources }.find_map(|a| self.prefix_with(*instance, a));
            *prefix = prefix.or(shown);
        }
        match &mut self.datagram_mut(at).state {
            State::Known(known) | State::Collecting(known) => *known = memo,
            _ => {}
        }
    }

    fn follow_out(
        &self,
        (packet, done): (&[u8], bool),
        instance: usize,
        outside: End4,
        turned: Option<Arrival>,
        ident: u16,
    ) -> Result<Fate> {
        let six = self.kind(instance) == Kind::Six;
        let h = if six { parse::parse6(packet, false)? } else { parse::parse4(packet, false)? };
        let l4 = if done { L4::Later } else { parse::l4(&h, false)? };
        let (src, prefix, remote) = self.sent_to(instance, &h)?;
        let s = &Sent { packet, h: &h, l4, instance, src, prefix, remote };
        self.send_out(s, outside, turned, ident)
    }

    /// Sender as in bindings, prefix and IPv4 address of the destination.
    fn sent_to(&self, instance: usize, h: &Header<'_>) -> Result<(Ipv6Addr, usize, Ipv4Addr)> {
        let (IpAddr::V6(src), IpAddr::V6(dst)) = (h.src, h.dst) else {
            return Ok((v4(h.src).to_ipv6_mapped(), 0, v4(h.dst)));
        };
        let prefix = self.prefix_with(instance, dst).ok_or(DropReason::DestinationNotPool6)?;
        let remote = extract(&self.plan.nat64[instance].pool6[prefix], dst);
        Ok((src, prefix, remote.ok_or(DropReason::DestinationNotPool6)?))
    }

    /// Translates a collected echo message as a whole, and puts the result into its fragments.
    fn translate_message(&self, held: &mut [(usize, Vec<u8>)], memo: Memo) -> Result<()> {
        let mut data = Vec::new();
        for (_, packet) in held.iter() {
            data.extend(parse_any(packet)?.payload);
        }
        let first = held.first().map(|(_, packet)| packet.clone()).unwrap_or_default();
        let h = parse_any(&first)?;
        let whole = Header { payload: &data, length: data.len(), piece: None, ..h.clone() };
        let l4 = parse::l4(&whole, false)?;
        let new = match memo {
            Memo::Pass => return Ok(()),
            Memo::In(arrival) => self.message_to_six(&whole, l4, arrival)?,
            Memo::Out { instance, outside: (address, id), turned, .. } => {
                let ends = (address, self.sent_to(instance, &h)?.2);
                let out = match self.kind(instance) {
                    Kind::Six => to4::transport(&whole, l4, ends, Some((id, id))),
                    Kind::Four => to44::transport(&whole, l4, ends, Some((id, id))),
                };
                let (src, dst) = (ends.0.into(), ends.1.into());
                let four = Header { src, dst, proto: proto::ICMP, payload: &out, ..whole };
                match turned.filter(|arrival| self.kind(arrival.instance) == Kind::Six) {
                    Some(arrival) => self.message_to_six(&four, parse::l4(&four, false)?, arrival)?,
                    None => out,
                }
            }
        };
        let mut rest = &new[..];
        for (_, packet) in held.iter_mut() {
            let (at, len) = parse_any(packet).map(|h| (h.header_len, h.payload.len()))?;
            let (here, further) = rest.split_at(len);
            packet[at..at + len].copy_from_slice(here);
            rest = further;
        }
        Ok(())
    }

    fn message_to_six(&self, h: &Header<'_>, l4: L4, to: Arrival) -> Result<Vec<u8>> {
        let settings = &self.plan.nat64[to.instance].settings;
        let src = self.outside_as_seen(to.instance, to.prefix.unwrap_or(0), v4(h.src));
        let ports = Some((to.inside.1, to.inside.1));
        to6::transport(h, l4, &to6::Out6 { src, dst: to.inside.0, ports, settings })
    }

    /// Sends held fragments in order of offsets, after the current packet.
    fn release(&mut self, at: usize, seen: &Observed) -> Result<()> {
        self.learn(at, seen);
        let (collected, memo) = match self.datagram(at).state {
            State::Known(memo) => (false, memo),
            State::Collecting(memo) => (true, memo),
            _ => return Ok(()),
        };
        let way = self.way_of(memo);
        let mut held = std::mem::take(&mut self.datagram_mut(at).held);
        self.coverage.mark("a held fragment follows the first one");
        if collected {
            self.coverage.mark("a datagram is collected for its checksum");
        }
        let protocol = held.first().map_or(0, |(_, packet)| if packet[0] >> 4 == 4 { packet[9] } else { 0 });
        let is_message = collected && protocol != proto::UDP;
        if is_message {
            self.coverage.mark("a fragmented ping is translated between the families");
            self.translate_message(&mut held, memo)?;
        } else if collected {
            fill_checksum(&mut held)?;
        }
        for (_, packet) in held {
            self.counters.held -= 1;
            let len = packet.len();
            match self.follow(at, &packet, is_message, seen) {
                Ok(Fate::Forward { packets, realm, hairpinned }) => {
                    self.count_forwarded(way, len, hairpinned);
                    self.counters.fragments_made += packets.len() as u64 - 1;
                    self.emitted.extend(packets.into_iter().map(|bytes| RealmPacket { realm, bytes }));
                }
                Ok(Fate::Passed { realm }) => {
                    self.counters.passed.add(len);
                    self.emitted.push(RealmPacket { realm, bytes: packet });
                }
                Ok(Fate::Lost(reason)) | Err(reason) => self.count_dropped(way, reason, len),
                Ok(fate) => unreachable!("{fate:?}"),
            }
        }
        if self.datagram(at).is_complete() {
            self.close_datagram(at);
        }
        Ok(())
    }

    fn way_of(&self, memo: Memo) -> Way {
        match memo {
            Memo::Out { instance, .. } if self.kind(instance) == Kind::Six => Way::SixToFour,
            Memo::In(arrival) if self.kind(arrival.instance) == Kind::Six => Way::FourToSix,
            _ => Way::FourToFour,
        }
    }
}

fn parse_any(packet: &[u8]) -> Result<Header<'_>> {
    if packet[0] >> 4 == 6 { parse::parse6(packet, false) } else { parse::parse4(packet, false) }
}

/// RFC 7915 4.5: computes the missing UDP checksum of a complete datagram.
fn fill_checksum(held: &mut [(usize, Vec<u8>)]) -> Result<()> {
    let mut data = Vec::new();
    for (_, packet) in held.iter() {
        data.extend(parse::parse4(packet, false)?.payload);
    }
    let Some((_, first)) = held.first_mut() else { return Ok(()) };
    let (src, dst, at) = {
        let h = parse::parse4(first, false)?;
        (h.src, h.dst, h.header_len)
    };
    let covered = sum(&pseudo(src, dst, data.len(), proto::UDP));
    let checksum = !sum_from(covered, &data);
    put16(first, at + 6, if checksum == 0 { 0xffff } else { checksum });
    Ok(())
}
