//! Whose a packet is: the translator itself, a stateful instance, a stateless one, or nobody.

use crate::bib::Tables;
use crate::counters::Direction;
use crate::engine::Core;
use crate::nat64::four_to_six::From4;
use crate::nat64::six_to_four::endpoints;
use crate::nat64::{self, From6, Nat64, Query};
use crate::pool6::Owner;
use crate::step::Step;
use crate::time::Instant;
use core::net::Ipv6Addr;
use gatun_wire::{DropReason, Ipv4View, Ipv6View, L4, Packet, Settings, icmp_error};

/// Which way a packet goes, by its first four bits.
#[inline]
pub(crate) fn direction(packet: &Packet<'_>) -> Direction {
    match packet.bytes().first().map(|b| b >> 4) {
        Some(4) => Direction::FourToSix,
        _ => Direction::SixToFour,
    }
}

impl Core {
    /// Gives a packet to whom it belongs.
    #[inline(never)]
    pub(crate) fn dispatch(&mut self, now: Instant, packet: &mut Packet<'_>) -> Result<Step, DropReason> {
        match packet.bytes().first().map(|b| b >> 4) {
            Some(6) => self.six(now, packet),
            Some(4) => self.four(now, packet),
            Some(_) => Err(DropReason::BadVersion),
            None => Err(DropReason::ShortL3),
        }
    }

    /// An IPv6 packet.
    fn six(&mut self, now: Instant, packet: &mut Packet<'_>) -> Result<Step, DropReason> {
        let bytes = packet.bytes();
        let view = Ipv6View::parse(bytes)?;
        let l4 = view.l4(bytes)?;
        if let Some((_, Owner { instance, pool6 })) = self.owners.of(view.dst) {
            return self.stateful6(now, packet, From6 { view, l4, instance, pool6 });
        }
        let sh = &mut self.shared;
        if is_ping(l4) && sh.own6 == Some(view.dst) {
            return icmp_error::echo_reply6(packet, &view).map(|()| Step::Echo);
        }
        let siit = self.siit.iter().find(|s| s.claims6(view.dst)).ok_or(DropReason::DestinationNotPool6)?;
        siit.six_to_four(packet, &view, l4, sh.idents.next(flow(view.src, view.dst)))
    }

    /// Any packet from inside to a stateful instance.
    #[inline(never)]
    fn stateful6(&mut self, now: Instant, packet: &mut Packet<'_>, from: From6) -> Result<Step, DropReason> {
        let from = &from;
        let sh = &mut self.shared;
        let Some(nat) = self.nat64.get(usize::from(from.instance)) else { return Err(DropReason::NoSession) };
        if from.view.fragment.is_some_and(|f| !f.is_atomic()) {
            return nat64::fragments::six_to_four(&self.nat64, sh, now, packet, from);
        }
        let behind = nat.prefix(from.pool6).extract_unchecked(from.view.dst);
        if is_ping(from.l4) && (sh.own6 == Some(from.view.dst) || sh.own4 == Some(behind)) {
            return icmp_error::echo_reply6(packet, &from.view).map(|()| Step::Echo);
        }
        if let Some(query) = Query::of(from.l4, true) {
            let hash = hash_of(&sh.tables, nat, from, &query);
            return nat64::six_to_four::query(&self.nat64, sh, now, packet, from, &query, hash);
        }
        match from.l4 {
            L4::IcmpError { .. } => nat64::icmp::six_to_four(&self.nat64, sh, packet, from),
            l4 => {
                nat.check_source(from.view.src)?;
                Err(nat64::icmp::unusable(l4))
            }
        }
    }

    /// An IPv4 packet.
    fn four(&mut self, now: Instant, packet: &mut Packet<'_>) -> Result<Step, DropReason> {
        let bytes = packet.bytes();
        let view = Ipv4View::parse(bytes)?;
        let l4 = view.l4(bytes)?;
        let sh = &mut self.shared;
        if let Some(place) = sh.tables.locate(view.dst) {
            return self.stateful4(now, packet, From4 { view, l4, place });
        }
        if is_ping(l4) && sh.own4 == Some(view.dst) {
            return icmp_error::echo_reply4(packet, &view).map(|()| Step::Echo);
        }
        let siit = self.siit.iter().find(|s| s.claims4(view.dst)).ok_or(DropReason::NotInPool)?;
        siit.four_to_six(packet, &view, l4)
    }

    /// Any packet to a pool address.
    #[inline(never)]
    fn stateful4(&mut self, now: Instant, packet: &mut Packet<'_>, from: From4) -> Result<Step, DropReason> {
        let from = &from;
        let sh = &mut self.shared;
        if from.view.fragment.is_some() {
            return nat64::fragments::four_to_six(&self.nat64, sh, now, packet, from);
        }
        if is_ping(from.l4) && sh.own4 == Some(from.view.dst) {
            return icmp_error::echo_reply4(packet, &from.view).map(|()| Step::Echo);
        }
        if let Some(query) = Query::of(from.l4, false) {
            return nat64::four_to_six::query(&self.nat64, sh, now, packet, from, &query);
        }
        match from.l4 {
            L4::IcmpError { .. } => nat64::icmp::four_to_six(&self.nat64, sh, packet, from),
            l4 => Err(nat64::icmp::unusable(l4)),
        }
    }

    /// The settings of the instance that a packet belongs to, as far as it can be read; the first
    /// instance's for packets of none.
    pub(crate) fn settings_of(&self, packet: &[u8]) -> Settings {
        let found = match packet.first().map(|b| b >> 4) {
            Some(6) => Ipv6View::parse_fixed(packet).ok().and_then(|view| {
                let owner = self.owners.of(view.dst).map(|(_, owner)| usize::from(owner.instance));
                let stateful = owner.and_then(|instance| self.nat64.get(instance)).map(|n| n.settings);
                stateful.or_else(|| self.siit.iter().find(|s| s.claims6(view.dst)).map(|s| *s.settings()))
            }),
            _ => Ipv4View::parse(packet).ok().and_then(|view| match self.shared.tables.locate(view.dst) {
                Some(place) => {
                    let of_pool = |n: &&Nat64| self.shared.tables.pool_of(n.index) == place.pool;
                    self.nat64.iter().find(of_pool).map(|n| n.settings)
                }
                None => self.siit.iter().find(|s| s.claims4(view.dst)).map(|s| *s.settings()),
            }),
        };
        found.unwrap_or(self.settings)
    }
}

fn is_ping(l4: L4) -> bool {
    matches!(l4, L4::Echo { request: true, .. })
}

#[inline]
fn hash_of(tables: &Tables, nat: &Nat64, from: &From6, query: &Query) -> u64 {
    let (inside, remote) = endpoints(nat, from, query);
    tables.session_hash(&inside, remote)
}

/// Tells flows apart that need identifications of their own, where there is no session to do it.
#[inline]
pub(crate) fn flow(src: Ipv6Addr, dst: Ipv6Addr) -> u64 {
    let mixed = u128::from(src).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u128::from(dst);
    (mixed as u64) ^ ((mixed >> 64) as u64).rotate_left(32)
}
