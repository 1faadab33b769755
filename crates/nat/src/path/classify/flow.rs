//! Owners of flows: the subscriber or the public address whose state a packet needs, by its first bytes.

use crate::base::plan::sharding::Sharding;
use crate::path::rules::Rules;
use crate::path::rules::nat44::Nat44;
use crate::tables::subscriber::SubscriberKey;
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_wire::hdr::{ipv4, ipv6};
use gatun_wire::proto::{TCP, UDP};
use gatun_wire::{Ipv4View, Ipv6View, L4};

/// Party whose state a packet needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlowOwner {
    /// The subscriber that sends the packet, or whose packet an error quotes.
    Subscriber(SubscriberKey),
    /// The owner of this public address, if it is a public one.
    Address(Ipv4Addr),
}

impl FlowOwner {
    /// Returns whether the packet is from outside: to a public address.
    #[inline]
    pub(crate) fn is_outside(self) -> bool {
        matches!(self, FlowOwner::Address(_))
    }

    /// Returns the part of a division that has the state.
    #[inline]
    pub(crate) fn part(self, sharding: &Sharding) -> Option<usize> {
        match self {
            FlowOwner::Subscriber(subscriber) => Some(sharding.of_subscriber(subscriber)),
            FlowOwner::Address(address) => sharding.of_address(address),
        }
    }
}

/// Returns the owner of the flow of a packet from a realm; `None` if the packet needs no state.
#[inline]
pub(crate) fn owner(rules: &Rules, packet: &[u8], realm: u8) -> Option<FlowOwner> {
    match packet.first()? >> 4 {
        6 => owner6(rules, packet, realm),
        4 => owner4(rules, packet, realm),
        _ => None,
    }
}

fn owner6(rules: &Rules, packet: &[u8], realm: u8) -> Option<FlowOwner> {
    let header = packet.first_chunk::<{ ipv6::LEN }>()?;
    let address = |at: usize| header.get(at..)?.first_chunk::<16>().map(|b| Ipv6Addr::from(*b));
    let (source, destination) = (address(8)?, address(24)?);
    let inside = match header.get(6)? {
        &TCP | &UDP => source,
        // An error is about a packet to the inside host, and may come from a router on the path.
        _ => quoted_destination6(packet).unwrap_or(source),
    };
    let (prefix, owner) = rules.prefixes.of_packet(inside, destination, realm)?;
    if rules.is_own6(destination, prefix) {
        return None;
    }
    rules.subscriber(owner.instance, inside).map(FlowOwner::Subscriber)
}

fn owner4(rules: &Rules, packet: &[u8], realm: u8) -> Option<FlowOwner> {
    let header = packet.first_chunk::<{ ipv4::LEN }>()?;
    let destination = destination4(header)?;
    let source = Ipv4Addr::from(*header.get(12..)?.first_chunk::<4>()?);
    let subscriber = |nat: &Nat44, address: Ipv4Addr| {
        FlowOwner::Subscriber(nat.policy.subscriber(address.to_ipv6_mapped()))
    };
    let outside = FlowOwner::Address(destination);
    let Some(nat) = rules.inside44(source, realm) else { return Some(outside) };
    if rules.own4_apart == Some(destination) || is_exempt(nat, packet, destination) {
        return None;
    }
    let quoted = match header.get(9)? {
        &TCP | &UDP => None,
        _ => quoted_destination4(packet),
    };
    Some(match quoted {
        // The quoted packet was for an inside host. If the error is from a router with an inside address, the
        // quoted packet may have left with a public one.
        Some(quoted) => rules.inside44(quoted, realm).map_or(outside, |nat| subscriber(nat, quoted)),
        None => subscriber(nat, source),
    })
}

/// Returns whether a packet of an inside host passes untranslated.
fn is_exempt(nat: &Nat44, packet: &[u8], destination: Ipv4Addr) -> bool {
    let is_listed = || {
        let view = Ipv4View::parse(packet).ok()?;
        Some(nat.exempts(&view, view.l4(packet).ok()?))
    };
    nat.serves(destination) || nat.has_exemptions() && is_listed().unwrap_or(false)
}

#[inline]
pub(crate) fn destination4(packet: &[u8]) -> Option<Ipv4Addr> {
    packet.get(16..)?.first_chunk::<4>().map(|b| Ipv4Addr::from(*b))
}

/// Returns the destination of the packet that an ICMPv6 error quotes.
fn quoted_destination6(packet: &[u8]) -> Option<Ipv6Addr> {
    let view = Ipv6View::parse(packet).ok()?;
    let L4::IcmpError { .. } = view.l4(packet).ok()? else { return None };
    let quoted = packet.get(usize::from(view.l4_offset) + 8..)?;
    quoted.get(24..)?.first_chunk::<16>().map(|b| Ipv6Addr::from(*b))
}

/// Returns the destination of the packet that an ICMPv4 error quotes.
fn quoted_destination4(packet: &[u8]) -> Option<Ipv4Addr> {
    let view = Ipv4View::parse(packet).ok()?;
    let L4::IcmpError { .. } = view.l4(packet).ok()? else { return None };
    destination4(packet.get(usize::from(view.l4_offset) + 8..)?)
}
