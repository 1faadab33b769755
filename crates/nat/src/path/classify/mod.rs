//! Classification: the instance, the own address or the pool that a packet is for, and its direction.
//!
//! The slow path, explanations, steering and the choice of settings for ICMP errors all use this module. The
//! look-ahead reads plain packets at fixed places by itself, for speed; a property test compares it with this
//! module.
//!
//! - this file: the class of a packet.
//! - [`own`]: packets to the translator's own addresses.
//! - [`flow`]: the subscriber or public address whose state a packet needs, by its first bytes.

pub(crate) mod flow;
mod own;

use crate::base::attribution::{Account, Attribution};
use crate::base::counters::Direction;
use crate::path::own_address::{OwnAnswer, OwnPacket};
use crate::path::query::Query;
use crate::path::rules::nat44::{self, Nat44};
use crate::path::rules::nat64::Nat64;
use crate::path::rules::{Instance, Rules};
use crate::path::siit::SiitState;
use crate::tables::bib::{PoolAddress, Tables};
use crate::tables::icmp_limit::Source;
use crate::tables::prefixes::PrefixOwner;
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_wire::rfc7915::icmp_6to4;
use gatun_wire::{DropReason, Ipv4View, Ipv6View, L4, Packet, Prefix64, Settings};

/// Class of an IPv6 packet.
pub(crate) enum Class6<'r> {
    /// A packet to a translation prefix of a NAT64 instance.
    Nat64(Nat64Class<'r>),
    /// A packet to an own address, or to an address behind a translation prefix that represents one.
    Own { answer: OwnAnswer, behind: Option<Nat64Class<'r>> },
    /// A packet to a stateless instance, by its number.
    Siit(usize, &'r SiitState),
    /// A packet for no instance.
    Nobody(DropReason),
}

/// NAT64 instance, and the one of its prefixes that contains a destination.
#[derive(Clone, Copy)]
pub(crate) struct Nat64Class<'r> {
    pub(crate) nat: &'r Nat64,
    pub(crate) prefix: &'r Prefix64,
    pub(crate) owner: PrefixOwner,
}

/// Class of an IPv4 packet.
pub(crate) enum Class4<'r> {
    /// A packet to the own address.
    Own(OwnAnswer),
    /// A packet from the inside of a NAT44 instance.
    Nat44(&'r Nat44),
    /// A packet from the inside of a NAT44 instance or to it, exempt from translation. It leaves for this
    /// realm.
    Exempt { to_realm: u8 },
    /// A packet from outside to a pool's address.
    Pool(PoolAddress),
    /// A packet to a stateless instance, by its number.
    Siit(usize, &'r SiitState),
    /// A packet to an inside address of a NAT44 instance that is not exempt, or for no instance at all.
    Nobody(DropReason),
}

/// Classifies packets by the rules, and by the state of own addresses and pools.
#[derive(Clone, Copy)]
pub(crate) struct Classifier<'r, 't> {
    pub(crate) rules: &'r Rules,
    pub(crate) tables: &'t Tables,
}

impl<'r> Classifier<'r, '_> {
    /// Returns the class of an IPv6 packet that came from `realm`.
    pub(crate) fn six(&self, packet: &[u8], view: &Ipv6View, l4: L4, realm: u8) -> (Class6<'r>, Attribution) {
        let rules = self.rules;
        let source = self.source6(packet, view, l4);
        if let Some((prefix, owner)) = rules.prefixes.of_packet(source, view.dst, realm) {
            let attribution = Attribution::outbound(Account::Stateful(owner.instance));
            let Some(nat) = rules.nat64(owner.instance) else {
                return (Class6::Nobody(DropReason::NoSession), attribution);
            };
            let class = Nat64Class { nat, prefix, owner };
            let address = prefix.extract_unchecked(view.dst);
            if (rules.own4 == Some(address) || rules.own6 == Some(view.dst))
                && let Some(answer) = self.own_answer(&OwnPacket::six(view, l4), address, true)
            {
                return (Class6::Own { answer, behind: Some(class) }, attribution);
            }
            return (Class6::Nat64(class), attribution);
        }
        if rules.own6 == Some(view.dst)
            && let Some(answer) = self.own6_answer(&OwnPacket::six(view, l4))
        {
            return (Class6::Own { answer, behind: None }, Attribution::NONE);
        }
        match rules.siit.iter().enumerate().find(|(_, siit)| siit.claims6(view.dst)) {
            Some((number, siit)) => {
                (Class6::Siit(number, siit), Attribution::outbound(Account::Stateless(number)))
            }
            None => (Class6::Nobody(DropReason::DestinationNotPool6), Attribution::NONE),
        }
    }

    /// Returns the class of an IPv4 packet that came from `realm`.
    pub(crate) fn four(&self, view: &Ipv4View, l4: L4, realm: u8) -> (Class4<'r>, Attribution) {
        let rules = self.rules;
        let inside = rules.inside44(view.src, realm);
        if rules.own4 == Some(view.dst)
            && let Some(answer) = self.own_answer(&OwnPacket::four(view, l4), view.dst, inside.is_some())
        {
            return (Class4::Own(answer), Attribution::NONE);
        }
        let siit = rules.siit.iter().enumerate().find(|(_, siit)| siit.claims4(view.dst));
        let siit = siit.map(|(number, siit)| {
            (Class4::Siit(number, siit), Attribution::inbound(Account::Stateless(number)))
        });
        if let Some(nat) = inside {
            let attribution = Attribution::outbound(Account::Stateful(nat.policy.instance));
            if !nat.exempts(view, l4) {
                return (Class4::Nat44(nat), attribution);
            }
            let to_realm = if nat.serves(view.dst) { realm } else { 0 };
            return siit.unwrap_or((Class4::Exempt { to_realm }, attribution));
        }
        if let Some(at) = self.tables.locate(view.dst) {
            return (Class4::Pool(at), Attribution::inbound(self.account_at(at, l4)));
        }
        siit.unwrap_or_else(|| self.returning(view, l4, realm))
    }

    /// Classifies a packet to an inside host: from an exempt destination, or from any other.
    fn returning(&self, view: &Ipv4View, l4: L4, realm: u8) -> (Class4<'r>, Attribution) {
        let Some(nat) = self.rules.first44(view.dst) else {
            return (Class4::Nobody(DropReason::NotInPool), Attribution::NONE);
        };
        let class = match nat.lets_back(realm, view.src, view.proto, nat44::remote_port(l4, false)) {
            true => Class4::Exempt { to_realm: nat.policy.realm },
            false => Class4::Nobody(DropReason::NotInPool),
        };
        (class, Attribution::inbound(Account::Stateful(nat.policy.instance)))
    }

    /// Returns the account of a packet to a pool's address: the instance of its binding, otherwise that of
    /// the pool.
    fn account_at(&self, at: PoolAddress, l4: L4) -> Account {
        let query = Query::of(l4, false);
        let bound = query.and_then(|q| self.tables.binding_at(at, q.transport, q.dst_port));
        bound.map_or(Account::Pool(at.pool), |id| Account::Stateful(self.tables.get(id).instance))
    }

    /// Returns the source that determines the instance of an IPv6 packet. An error may come from a router, so
    /// the inside host that its quoted packet was sent to counts as its source.
    fn source6(&self, packet: &[u8], view: &Ipv6View, l4: L4) -> Ipv6Addr {
        match l4 {
            L4::IcmpError { .. } if self.rules.ruled => {
                icmp_6to4::embedded(packet, view).map_or(view.src, |embedded| embedded.view.dst)
            }
            _ => view.src,
        }
    }

    /// Returns the direction of a packet. A packet from outside to an unbound port has the direction of the
    /// first instance of its pool.
    #[inline]
    pub(crate) fn direction(&self, packet: &Packet<'_>) -> Direction {
        match packet.bytes().first().map(|b| b >> 4) {
            Some(4) if self.rules.nat44.is_empty() => Direction::FourToSix,
            Some(4) => self.direction4(packet.bytes(), packet.realm),
            _ => Direction::SixToFour,
        }
    }

    #[inline(never)]
    fn direction4(&self, packet: &[u8], realm: u8) -> Direction {
        let Ok(view) = Ipv4View::parse(packet) else { return Direction::FourToSix };
        let (rules, tables) = (self.rules, self.tables);
        if rules.inside44(view.src, realm).is_some() || rules.first44(view.dst).is_some() {
            return Direction::FourToFour;
        }
        let Some(at) = tables.locate(view.dst) else { return Direction::FourToSix };
        let account = view.l4(packet).map_or(Account::Pool(at.pool), |l4| self.account_at(at, l4));
        let number = match account {
            Account::Stateful(instance) => Some(instance),
            _ => rules.of_pool(tables, at.pool).next().map(|p| p.instance),
        };
        match number.and_then(|n| rules.get(n)) {
            Some(Instance::Nat44(_)) => Direction::FourToFour,
            _ => Direction::FourToSix,
        }
    }

    /// Returns the MTU of the NAT44 instance that a packet belongs to, or that of the first instance.
    pub(crate) fn mtu44(&self, packet: &Packet<'_>) -> u32 {
        let (rules, tables) = (self.rules, self.tables);
        let view = Ipv4View::parse(packet.bytes()).ok();
        let inside = view.and_then(|v| rules.inside44(v.src, packet.realm));
        let of_pool = || {
            let at = tables.locate(view?.dst)?;
            rules.nat44.iter().find(|n| tables.pool_of(n.policy.instance) == at.pool)
        };
        inside.or_else(of_pool).or(rules.nat44.first()).map_or(0, |n| n.link.mtu)
    }

    /// Returns the source whose rate of ICMP errors a packet counts for: its subscriber, or its /64 or IPv4
    /// address if it has none.
    pub(crate) fn error_source(&self, packet: &Packet<'_>) -> Source {
        let (packet, realm) = (packet.bytes(), packet.realm);
        if let Ok(view) = Ipv6View::parse_fixed(packet) {
            let nat64 = self.nat64_of(&view, realm);
            return Source::new(realm, view.src, nat64.map_or(Source::IPV6, |n| n.policy.subscriber_len));
        }
        let source = Ipv4View::parse(packet).map_or(Ipv4Addr::UNSPECIFIED, |view| view.src);
        let nat44 = self.rules.inside44(source, realm);
        let len = nat44.map_or(Source::IPV4, |n| n.policy.subscriber_len);
        Source::new(realm, source.to_ipv6_mapped(), len)
    }

    /// Returns the settings of the instance that a packet belongs to, as far as the packet can be read. For
    /// packets of no instance, it returns those of the first instance.
    pub(crate) fn settings(&self, packet: &Packet<'_>) -> Settings {
        let (packet, realm) = (packet.bytes(), packet.realm);
        let found = match packet.first().map(|b| b >> 4) {
            Some(6) => Ipv6View::parse_fixed(packet).ok().and_then(|view| self.settings6(&view, realm)),
            _ => Ipv4View::parse(packet).ok().and_then(|view| self.settings4(&view)),
        };
        found.unwrap_or(self.rules.settings)
    }

    fn settings6(&self, view: &Ipv6View, realm: u8) -> Option<Settings> {
        let stateful = self.nat64_of(view, realm).map(|nat| nat.settings);
        let siit = || self.rules.siit.iter().find(|siit| siit.claims6(view.dst));
        stateful.or_else(|| siit().map(|siit| *siit.settings()))
    }

    fn settings4(&self, view: &Ipv4View) -> Option<Settings> {
        let (rules, tables) = (self.rules, self.tables);
        match tables.locate(view.dst) {
            Some(at) => {
                let of_pool = |n: &&Nat64| tables.pool_of(n.policy.instance) == at.pool;
                rules.nat64.iter().find(of_pool).map(|n| n.settings)
            }
            None => rules.siit.iter().find(|siit| siit.claims4(view.dst)).map(|siit| *siit.settings()),
        }
    }

    fn nat64_of(&self, view: &Ipv6View, realm: u8) -> Option<&'r Nat64> {
        let (_, owner) = self.rules.prefixes.of_packet(view.src, view.dst, realm)?;
        self.rules.nat64(owner.instance)
    }
}
