//! Whose a packet is: the translator itself, a stateful instance, a stateless one, or nobody.

use crate::base::counters::Direction;
use crate::base::step::Step;
use crate::base::tally::Tally;
use crate::base::time::Instant;
use crate::engine::Core;
use crate::path::nat44::{self, From4, Nat44};
use crate::path::nat64::six_to_four::endpoints;
use crate::path::nat64::{self, From6, Nat64};
use crate::path::own::{self, ToOwn};
use crate::path::shared::Shared;
use crate::path::stateful::inbound::FromOutside;
use crate::path::stateful::{Instance, Instances, Query, fragments, inbound};
use crate::tables::bib::Tables;
use crate::tables::icmp_limit::Source;
use crate::tables::pool6::Owner;
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_wire::rfc7915::icmp_6to4;
use gatun_wire::{DropReason, Ipv4View, Ipv6View, L4, Packet, Settings};

impl Core {
    /// Gives a packet, which came from `realm`, to whom it belongs. It leaves for realm 0 where nobody says another.
    #[inline(never)]
    pub(crate) fn dispatch(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_>,
        realm: u8,
    ) -> Result<Step, DropReason> {
        match packet.bytes().first().map(|b| b >> 4) {
            Some(6) => self.six(now, packet, realm),
            Some(4) => self.four(now, packet, realm),
            Some(_) => Err(DropReason::BadVersion),
            None => Err(DropReason::ShortL3),
        }
    }

    /// An IPv6 packet.
    fn six(&mut self, now: Instant, packet: &mut Packet<'_>, realm: u8) -> Result<Step, DropReason> {
        let bytes = packet.bytes();
        let view = Ipv6View::parse(bytes)?;
        let l4 = view.l4(bytes)?;
        let source = self.source_of(bytes, &view, l4);
        if let Some((_, Owner { instance, pool6 })) = self.owners.of_packet(source, view.dst, realm) {
            self.shared.tally.is_from(Tally::stateful(instance));
            return self.stateful6(now, packet, From6 { view, l4, instance, pool6 });
        }
        let sh = &mut self.shared;
        if sh.own6 == Some(view.dst)
            && let Some(fate) = own::at_own6(sh, &self.siit, ToOwn::six(&view, l4))
        {
            return fate.answer6(packet, &view, l4);
        }
        let mut stateless = self.siit.iter().enumerate();
        let (number, siit) =
            stateless.find(|(_, s)| s.claims6(view.dst)).ok_or(DropReason::DestinationNotPool6)?;
        sh.tally.is_from(sh.tally.stateless(number));
        let hash = sh.idents.hash_between(view.src, view.dst);
        let id = sh.idents.next_of(hash, packet);
        siit.six_to_four(packet, &view, l4, id)
    }

    /// Any packet from inside to a stateful instance.
    #[inline(never)]
    fn stateful6(&mut self, now: Instant, packet: &mut Packet<'_>, from: From6) -> Result<Step, DropReason> {
        let from = &from;
        let nats = Instances { nat64: &self.nat64, nat44: &self.nat44 };
        let sh = &mut self.shared;
        let Some(nat) = self.nat64.get(usize::from(from.instance)) else { return Err(DropReason::NoSession) };
        let behind = nat.prefix(from.pool6).extract_unchecked(from.view.dst);
        if (sh.own4 == Some(behind) || sh.own6 == Some(from.view.dst))
            && let Some(fate) = ToOwn::six(&from.view, from.l4).fate_at(sh, behind, true)
        {
            return fate.answer6(packet, &from.view, from.l4);
        }
        if from.view.fragment.is_some_and(|f| !f.is_atomic()) {
            return fragments::from_inside6(nats, sh, now, packet, from);
        }
        if let Some(query) = Query::of(from.l4, true) {
            let hash = hash_of(&sh.tables, nat, from, &query);
            return nat64::six_to_four::query(nats, sh, now, packet, from, &query, hash);
        }
        match from.l4 {
            L4::IcmpError { .. } => nat64::icmp::six_to_four(nats, sh, packet, from),
            l4 => {
                nat.check_source(from.view.src)?;
                Err(nat64::icmp::unusable(l4, from.view.proto))
            }
        }
    }

    /// An IPv4 packet.
    fn four(&mut self, now: Instant, packet: &mut Packet<'_>, realm: u8) -> Result<Step, DropReason> {
        let bytes = packet.bytes();
        let view = Ipv4View::parse(bytes)?;
        let l4 = view.l4(bytes)?;
        if self.shared.own4 == Some(view.dst)
            && let Some(fate) = self.at_own4(&view, l4, realm)
        {
            return fate.answer4(packet, &view, l4);
        }
        let siit = self.siit.iter().enumerate().find(|(_, s)| s.claims4(view.dst));
        let siit = siit.map(|(number, siit)| (self.shared.tally.stateless(number), siit));
        if let Some(nat) = self.inside44(view.src, realm) {
            let instance = nat.policy.instance;
            let row = Tally::stateful(instance);
            // Of a datagram in pieces only the first one has ports: what they exempt is seen to there.
            let port = nat44::remote_port(l4, true).filter(|_| view.fragment.is_none());
            let exempt = nat.is_exempt(view.dst, view.proto, port);
            let among_them = nat.serves(view.dst);
            self.shared.tally.is_from(row);
            match siit {
                Some((row, siit)) if exempt => {
                    self.shared.tally.is_to(row);
                    return siit.four_to_six(packet, &view, l4);
                }
                None if exempt => {
                    packet.realm = if among_them { realm } else { 0 };
                    return Ok(Step::Pass);
                }
                _ => return self.outbound44(now, packet, instance, view, l4),
            }
        }
        if let Some(place) = self.shared.tables.locate(view.dst) {
            return self.stateful4(now, packet, FromOutside { view, l4, place });
        }
        if let Some((row, siit)) = siit {
            self.shared.tally.is_to(row);
            return siit.four_to_six(packet, &view, l4);
        }
        // What comes back from an exempt destination.
        let Some(nat) = self.first44(view.dst) else { return Err(DropReason::NotInPool) };
        let to_realm = nat.policy.realm;
        let exempt = nat.lets_back(realm, view.src, view.proto, nat44::remote_port(l4, false));
        let row = Tally::stateful(nat.policy.instance);
        self.shared.tally.is_to(row);
        if !exempt {
            return Err(DropReason::NotInPool);
        }
        packet.realm = to_realm;
        Ok(Step::Pass)
    }

    /// What becomes of an IPv4 packet to the own address; `None` where it is a pool's.
    pub(crate) fn at_own4(&self, view: &Ipv4View, l4: L4, realm: u8) -> Option<own::Fate> {
        let from_inside = self.inside44(view.src, realm).is_some();
        ToOwn::four(view, l4).fate_at(&self.shared, view.dst, from_inside)
    }

    /// Any packet to a pool address.
    #[inline(never)]
    fn stateful4(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_>,
        from: FromOutside,
    ) -> Result<Step, DropReason> {
        let from = &from;
        let nats = Instances { nat64: &self.nat64, nat44: &self.nat44 };
        let sh = &mut self.shared;
        sh.tally.is_to(sh.tally.of_pool(from.place.pool));
        if from.view.fragment.is_some() {
            return fragments::from_outside(nats, sh, now, packet, from);
        }
        if let Some(query) = Query::of(from.l4, false) {
            return inbound::query(nats, sh, now, packet, from, &query);
        }
        match from.l4 {
            L4::IcmpError { .. } => error_from_outside(nats, sh, packet, from),
            l4 => Err(nat64::icmp::unusable(l4, from.view.proto)),
        }
    }

    /// Any packet from the inside of a NAT44 instance.
    #[inline(never)]
    fn outbound44(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_>,
        instance: u8,
        view: Ipv4View,
        l4: L4,
    ) -> Result<Step, DropReason> {
        let nats = Instances { nat64: &self.nat64, nat44: &self.nat44 };
        let nat = nats.nat44(instance).ok_or(DropReason::NoSession)?;
        let from = &From4 { nat, view, l4 };
        let sh = &mut self.shared;
        if view.fragment.is_some() {
            return fragments::from_inside4(nats, sh, now, packet, from);
        }
        if let Some(query) = Query::of(l4, true) {
            return nat44::outbound::query(nats, sh, now, packet, from, &query);
        }
        match l4 {
            L4::IcmpError { .. } => match nat44::icmp::outbound(nats, sh, packet, from) {
                // Of a router with an inside address, about a packet that had left: the kernel that a TUN
                // device belongs to may be such a one. What was on its way to an inside host had not.
                Err(DropReason::IcmpErrorNoState)
                    if nat44::icmp::quoted_destination(packet.bytes(), &view)
                        .is_none_or(|to| nats.inside44(to, nat.policy.realm).is_none()) =>
                {
                    let place = sh.tables.locate(view.dst).ok_or(DropReason::IcmpErrorNoState)?;
                    error_from_outside(nats, sh, packet, &FromOutside { view, l4, place })
                }
                done => done,
            },
            l4 => Err(nat64::icmp::unusable(l4, from.view.proto)),
        }
    }

    /// The NAT44 instance that an address of a realm is inside of.
    #[inline]
    pub(crate) fn inside44(&self, address: Ipv4Addr, realm: u8) -> Option<&Nat44> {
        Instances { nat64: &self.nat64, nat44: &self.nat44 }.inside44(address, realm)
    }

    /// As above, where there are no realms, or only one can be meant.
    #[inline]
    pub(crate) fn first44(&self, address: Ipv4Addr) -> Option<&Nat44> {
        self.nat44.iter().find(|n| n.serves(address))
    }

    /// Whose source tells the instance of an IPv6 packet: an error's, which may be a router's, is that of the host
    /// that it is about.
    fn source_of(&self, packet: &[u8], view: &Ipv6View, l4: L4) -> Ipv6Addr {
        match l4 {
            L4::IcmpError { .. } if self.ruled => {
                icmp_6to4::embedded(packet, view).map_or(view.src, |embedded| embedded.view.dst)
            }
            _ => view.src,
        }
    }

    /// Which way a packet goes. What comes from outside to a port that nobody has counts for the kind of the
    /// first instance of its pool.
    #[inline]
    pub(crate) fn direction(&self, packet: &Packet<'_>) -> Direction {
        match packet.bytes().first().map(|b| b >> 4) {
            Some(4) if self.nat44.is_empty() => Direction::FourToSix,
            Some(4) => self.direction4(packet.bytes(), packet.realm),
            _ => Direction::SixToFour,
        }
    }

    #[inline(never)]
    fn direction4(&self, packet: &[u8], realm: u8) -> Direction {
        let Ok(view) = Ipv4View::parse(packet) else { return Direction::FourToSix };
        let tables = &self.shared.tables;
        let nats = Instances { nat64: &self.nat64, nat44: &self.nat44 };
        if self.inside44(view.src, realm).is_some() || self.first44(view.dst).is_some() {
            return Direction::FourToFour;
        }
        let Some(place) = tables.locate(view.dst) else { return Direction::FourToSix };
        let query = view.l4(packet).ok().and_then(|l4| Query::of(l4, false));
        let bound = query.and_then(|q| tables.binding_at(place, q.transport, q.dst_port));
        let bound = bound.map(|id| tables.get(id).instance);
        let number = bound.or_else(|| nats.of_pool(tables, place.pool).next().map(|p| p.instance));
        match number.and_then(|n| nats.get(n)) {
            Some(Instance::Nat44(_)) => Direction::FourToFour,
            _ => Direction::FourToSix,
        }
    }

    /// The MTU of the NAT44 instance that a packet belongs to, or of the first.
    pub(crate) fn mtu44(&self, packet: &Packet<'_>) -> u32 {
        let view = Ipv4View::parse(packet.bytes()).ok();
        let inside = view.and_then(|v| self.inside44(v.src, packet.realm));
        let of_pool = || {
            let place = self.shared.tables.locate(view?.dst)?;
            self.nat44.iter().find(|n| self.shared.tables.pool_of(n.policy.instance) == place.pool)
        };
        inside.or_else(of_pool).or(self.nat44.first()).map_or(0, |n| n.link.mtu)
    }

    /// Whose rate of ICMP errors a packet counts for: its subscriber's; where it has none, that of its /64 or its
    /// IPv4 address.
    pub(crate) fn error_source(&self, packet: &Packet<'_>) -> Source {
        let (packet, realm) = (packet.bytes(), packet.realm);
        if let Ok(view) = Ipv6View::parse_fixed(packet) {
            let owner = self.owners.of_packet(view.src, view.dst, realm).map(|(_, owner)| owner.instance);
            let nat64 = owner.and_then(|instance| self.nat64.get(usize::from(instance)));
            return Source::new(realm, view.src, nat64.map_or(Source::IPV6, |n| n.policy.subscriber_len));
        }
        let source = Ipv4View::parse(packet).map_or(Ipv4Addr::UNSPECIFIED, |view| view.src);
        let nat44 = self.inside44(source, realm);
        let len = nat44.map_or(Source::IPV4, |n| n.policy.subscriber_len);
        Source::new(realm, source.to_ipv6_mapped(), len)
    }

    /// The settings of the instance that a packet belongs to, as far as it can be read; the first
    /// instance's for packets of none.
    pub(crate) fn settings_of(&self, packet: &Packet<'_>) -> Settings {
        let (packet, realm) = (packet.bytes(), packet.realm);
        let found = match packet.first().map(|b| b >> 4) {
            Some(6) => Ipv6View::parse_fixed(packet).ok().and_then(|view| {
                let owner = self
                    .owners
                    .of_packet(view.src, view.dst, realm)
                    .map(|(_, owner)| usize::from(owner.instance));
                let stateful = owner.and_then(|instance| self.nat64.get(instance)).map(|n| n.settings);
                stateful.or_else(|| self.siit.iter().find(|s| s.claims6(view.dst)).map(|s| *s.settings()))
            }),
            _ => Ipv4View::parse(packet).ok().and_then(|view| match self.shared.tables.locate(view.dst) {
                Some(place) => {
                    let of_pool = |n: &&Nat64| self.shared.tables.pool_of(n.policy.instance) == place.pool;
                    self.nat64.iter().find(of_pool).map(|n| n.settings)
                }
                None => self.siit.iter().find(|s| s.claims4(view.dst)).map(|s| *s.settings()),
            }),
        };
        found.unwrap_or(self.settings)
    }
}

/// An ICMP error to a pool address: whose it is says the packet inside it.
fn error_from_outside(
    nats: Instances<'_>,
    sh: &mut Shared,
    packet: &mut Packet<'_>,
    from: &FromOutside,
) -> Result<Step, DropReason> {
    if !nats.nat44.is_empty()
        && let Some(quoted) = nat44::icmp::quoted(sh, packet.bytes(), &from.view)
        && let Some(Instance::Nat44(nat)) = nats.get(sh.tables.get(quoted.1).instance)
    {
        sh.tally.is_to(Tally::stateful(nat.policy.instance));
        return nat44::icmp::inbound(nat, sh, packet, &from.view, quoted);
    }
    nat64::icmp::four_to_six(nats, sh, packet, from)
}

#[inline]
fn hash_of(tables: &Tables, nat: &Nat64, from: &From6, query: &Query) -> u64 {
    let (inside, remote) = endpoints(nat, from, query);
    tables.session_hash(&inside, remote)
}
