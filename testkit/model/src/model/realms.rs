//! Realms (RFC 2663 2.1, decision 0051): the origin of a packet decides whose it is. Hosts of two realms may
//! have equal addresses, and still are two hosts.

use super::addresses::{lies_in, v6};
use super::rules::Kind;
use super::{Model, icmp};
use crate::wire::{Header, L4};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

impl Model {
    /// Realm of an instance's hosts.
    pub(super) fn realm_of(&self, instance: usize) -> u8 {
        self.rules[instance].realm
    }

    /// The NAT44 instance that serves this address in this realm.
    pub(super) fn inside44(&self, realm: u8, a: Ipv4Addr) -> Option<usize> {
        let mut all = (0..self.rules.len()).filter(|&n| self.kind(n) == Kind::Four);
        all.find(|&n| self.realm_of(n) == realm && self.serves44(n, a))
    }

    /// A NAT44 instance that serves this address in any realm.
    pub(super) fn host44(&self, a: Ipv4Addr) -> Option<usize> {
        (0..self.rules.len()).find(|&n| self.kind(n) == Kind::Four && self.serves44(n, a))
    }

    /// Returns true if an address is inside a NAT44 instance.
    pub(super) fn serves44(&self, instance: usize, a: Ipv4Addr) -> bool {
        self.nat44(instance).inside.iter().any(|net| net.contains(a))
    }

    /// Instance and number of the prefix for an IPv6 packet from a realm. The longest prefix wins (A52-8);
    /// of several instances with one prefix, the one that serves `host`, otherwise the first, which then
    /// refuses the packet.
    pub(super) fn owner6(&self, realm: u8, host: Ipv6Addr, dst: Ipv6Addr) -> Option<(usize, usize)> {
        let meant = self.meant6(realm, dst);
        meant.iter().find(|&&(n, _)| self.lists(n, host)).or(meant.first()).copied()
    }

    /// Instances of a realm with the longest prefix of a destination.
    fn meant6(&self, realm: u8, dst: Ipv6Addr) -> Vec<(usize, usize)> {
        let there = (0..self.plan.nat64.len()).filter(|&n| self.realm_of(n) == realm);
        let mut meant: Vec<(usize, usize)> =
            there.filter_map(|n| Some((n, self.prefix_with(n, dst)?))).collect();
        let len = |&(n, p): &(usize, usize)| self.plan.nat64[n].pool6[p].len();
        let longest = meant.iter().map(len).max();
        meant.retain(|owner| Some(len(owner)) == longest);
        meant
    }

    /// The host that decides whose an IPv6 packet is: its sender, or for an error, which a router may have
    /// sent, the inner packet's host.
    pub(super) fn host_of(&self, h: &Header<'_>, l4: L4) -> Ipv6Addr {
        let about = match l4 {
            L4::Error { .. } => icmp::inner_of(h).ok().map(|(inner, _)| v6(inner.dst)),
            _ => None,
        };
        about.unwrap_or(v6(h.src))
    }

    /// Number of the instance's prefix that contains an address.
    pub(super) fn prefix_with(&self, instance: usize, a: Ipv6Addr) -> Option<usize> {
        let all = self.plan.nat64[instance].pool6.iter().enumerate();
        all.filter(|(_, prefix)| lies_in(prefix, a)).max_by_key(|(_, prefix)| prefix.len()).map(|(p, _)| p)
    }

    /// Returns true if any instance's prefix contains an address.
    pub(super) fn is_translated(&self, a: Ipv6Addr) -> bool {
        (0..self.plan.nat64.len()).any(|n| self.prefix_with(n, a).is_some())
    }

    /// Returns true if the sources of a NAT64 instance contain a host.
    pub(super) fn lists(&self, instance: usize, host: Ipv6Addr) -> bool {
        let sources = &self.plan.nat64[instance].sources;
        sources.is_empty() || sources.iter().any(|net| net.contains(host))
    }

    /// Marks coverage of a packet from inside.
    pub(super) fn mark_choice(&mut self, realm: u8, ends: (IpAddr, IpAddr)) {
        match ends {
            (IpAddr::V6(_), IpAddr::V6(dst)) if self.meant6(realm, dst).len() > 1 => {
                self.coverage.mark("a host chooses among instances of one prefix");
            }
            (IpAddr::V4(src), _) if self.inside44(realm, src).is_none() && self.host44(src).is_some() => {
                self.coverage.mark("an inside address in another realm belongs to no instance");
            }
            _ => {}
        }
    }

    /// Marks a new binding whose inside end another realm's host has too.
    pub(super) fn mark_twins(&mut self, instance: usize, transport: usize, inside: (Ipv6Addr, u16)) {
        let is_twin = |n: usize| n != instance && self.realm_of(n) != self.realm_of(instance);
        let mut all = self.bindings.iter();
        if all.any(|b| (b.transport, b.inside) == (transport, inside) && is_twin(b.instance)) {
            self.coverage.mark("hosts of two realms with one address have bindings of one port");
        }
    }

    /// Marks coverage of a forwarded packet.
    pub(super) fn mark_crossing(&mut self, from: u8, to: u8, hairpinned: bool) {
        match (from, to) {
            _ if hairpinned && from != to => self.coverage.mark("a packet is hairpinned to another realm"),
            (0, 1..) => self.coverage.mark("a packet from outside goes to a realm"),
            (1.., 0) => self.coverage.mark("a packet from a realm leaves"),
            _ => {}
        }
    }
}
