//! Whose a packet is, by where it comes from (RFC 2663 2.1, decision 0051): hosts of two realms may have the same
//! addresses, and are two hosts all the same.

use super::addresses::{lies_in, v6};
use super::rules::Kind;
use super::{Model, icmp};
use crate::wire::{Header, L4};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

impl Model {
    /// Where the hosts of an instance are.
    pub(super) fn realm_of(&self, instance: usize) -> u8 {
        self.rules[instance].realm
    }

    /// The NAT44 instance whose host sends from this address, coming from this realm.
    pub(super) fn inside44(&self, realm: u8, a: Ipv4Addr) -> Option<usize> {
        let mut all = (0..self.rules.len()).filter(|&n| self.kind(n) == Kind::Four);
        all.find(|&n| self.realm_of(n) == realm && self.serves44(n, a))
    }

    /// A NAT44 instance that has a host with this address, in whatever realm.
    pub(super) fn host44(&self, a: Ipv4Addr) -> Option<usize> {
        (0..self.rules.len()).find(|&n| self.kind(n) == Kind::Four && self.serves44(n, a))
    }

    /// Whether an address is inside of a NAT44 instance.
    pub(super) fn serves44(&self, instance: usize, a: Ipv4Addr) -> bool {
        self.nat44(instance).inside.iter().any(|net| net.contains(a))
    }

    /// The instance that an IPv6 packet from a realm belongs to, and the number of its prefix: of those there, that of
    /// the longest prefix (A52-8); of several with one prefix, the one that serves `host`. Where none does, the first
    /// one says so.
    pub(super) fn owner6(&self, realm: u8, host: Ipv6Addr, dst: Ipv6Addr) -> Option<(usize, usize)> {
        let meant = self.meant6(realm, dst);
        meant.iter().find(|&&(n, _)| self.lists(n, host)).or(meant.first()).copied()
    }

    /// The instances of a realm with the longest prefix that a destination lies in.
    fn meant6(&self, realm: u8, dst: Ipv6Addr) -> Vec<(usize, usize)> {
        let there = (0..self.plan.nat64.len()).filter(|&n| self.realm_of(n) == realm);
        let mut meant: Vec<(usize, usize)> =
            there.filter_map(|n| Some((n, self.prefix_with(n, dst)?))).collect();
        let len = |&(n, p): &(usize, usize)| self.plan.nat64[n].pool6[p].len();
        let longest = meant.iter().map(len).max();
        meant.retain(|owner| Some(len(owner)) == longest);
        meant
    }

    /// The host that tells whose an IPv6 packet is: its sender, or, of an error, which may be a router's, the host that
    /// it is about.
    pub(super) fn host_of(&self, h: &Header<'_>, l4: L4) -> Ipv6Addr {
        let about = match l4 {
            L4::Error { .. } => icmp::inner_of(h).ok().map(|(inner, _)| v6(inner.dst)),
            _ => None,
        };
        about.unwrap_or(v6(h.src))
    }

    /// The number of the instance's prefix that an address lies in.
    pub(super) fn prefix_with(&self, instance: usize, a: Ipv6Addr) -> Option<usize> {
        let all = self.plan.nat64[instance].pool6.iter().enumerate();
        all.filter(|(_, prefix)| lies_in(prefix, a)).max_by_key(|(_, prefix)| prefix.len()).map(|(p, _)| p)
    }

    /// Whether an address lies in any instance's prefix.
    pub(super) fn is_translated(&self, a: Ipv6Addr) -> bool {
        (0..self.plan.nat64.len()).any(|n| self.prefix_with(n, a).is_some())
    }

    /// Whether the sources of a NAT64 instance have a host.
    pub(super) fn lists(&self, instance: usize, host: Ipv6Addr) -> bool {
        let sources = &self.plan.nat64[instance].sources;
        sources.is_empty() || sources.iter().any(|net| net.contains(host))
    }

    /// A packet from inside was looked at.
    pub(super) fn mark_choice(&mut self, realm: u8, ends: (IpAddr, IpAddr)) {
        match ends {
            (IpAddr::V6(_), IpAddr::V6(dst)) if self.meant6(realm, dst).len() > 1 => {
                self.coverage.mark("a host chooses among instances of one prefix");
            }
            (IpAddr::V4(src), _) if self.inside44(realm, src).is_none() && self.host44(src).is_some() => {
                self.coverage.mark("an inside address by another port is nobody's");
            }
            _ => {}
        }
    }

    /// A new binding: perhaps another host has the same inside end.
    pub(super) fn mark_twins(&mut self, instance: usize, transport: usize, inside: (Ipv6Addr, u16)) {
        let is_twin = |n: usize| n != instance && self.realm_of(n) != self.realm_of(instance);
        let mut all = self.bindings.iter();
        if all.any(|b| (b.transport, b.inside) == (transport, inside) && is_twin(b.instance)) {
            self.coverage.mark("hosts of two realms with one address have bindings of one port");
        }
    }

    /// A packet was forwarded.
    pub(super) fn mark_crossing(&mut self, from: u8, to: u8, hairpinned: bool) {
        match (from, to) {
            _ if hairpinned && from != to => self.coverage.mark("a packet is turned round to another realm"),
            (0, 1..) => self.coverage.mark("a packet from outside goes to a realm"),
            (1.., 0) => self.coverage.mark("a packet from a realm leaves"),
            _ => {}
        }
    }
}
