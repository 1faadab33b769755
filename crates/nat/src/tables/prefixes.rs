//! Map from an IPv6 destination to its stateful instance. One list contains the translation prefixes of all
//! instances, so that a packet needs one look-up instead of one per instance.

use crate::base::plan::{self, Net6};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::net::Ipv6Addr;
use gatun_wire::Prefix64;

/// Instance and prefix of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PrefixOwner {
    /// Number of the instance.
    pub(crate) instance: u8,
    /// Number of the prefix among the instance's.
    pub(crate) pool6: u8,
}

/// The prefixes of all instances, longest first.
pub(crate) struct Prefixes {
    list: Vec<(Prefix64, PrefixOwner)>,
    /// Indexed by instance: conditions on a packet in addition to its destination.
    rules: Vec<SourceRule>,
    /// True if some instance shares a prefix with another, or has a realm.
    ruled: bool,
}

/// Conditions of an instance in addition to the destination.
struct SourceRule {
    realm: u8,
    sources: Vec<Net6>,
}

impl Prefixes {
    /// Builds the list from prefixes with their instance and number. `plans` are those of the instances.
    pub(crate) fn new(mut list: Vec<(Prefix64, PrefixOwner)>, plans: &[plan::Nat64]) -> Self {
        list.sort_by_key(|(prefix, _)| (Reverse(prefix.len()), prefix.address()));
        let ruled = list.windows(2).any(|pair| matches!(pair, [(a, _), (b, _)] if a == b));
        let rules: Vec<SourceRule> = plans
            .iter()
            .map(|plan| SourceRule { realm: plan.realm, sources: plan.sources.clone() })
            .collect();
        let ruled = ruled || rules.iter().any(|rule| rule.realm != 0);
        Prefixes { list, rules, ruled }
    }

    /// Returns the longest prefix that contains an address, and its owner, by the destination alone.
    #[inline]
    pub(crate) fn of(&self, address: Ipv6Addr) -> Option<(&Prefix64, PrefixOwner)> {
        self.list.iter().find(|(prefix, _)| prefix.contains(address)).map(|(prefix, owner)| (prefix, *owner))
    }

    /// Returns the prefix and the owner for a packet from `source` in `realm` to `address`. If the instances
    /// have no realms and share no prefix, this is the same as [`of`](Self::of). Otherwise only instances in
    /// `realm` count: it returns the longest prefix whose instance serves `source`. If no such instance
    /// serves `source`, it returns the longest prefix in the realm, and that instance then refuses the
    /// source.
    #[inline]
    pub(crate) fn of_packet(
        &self,
        source: Ipv6Addr,
        address: Ipv6Addr,
        realm: u8,
    ) -> Option<(&Prefix64, PrefixOwner)> {
        if self.ruled { self.by_rules(source, address, realm) } else { self.of(address) }
    }

    fn by_rules(&self, source: Ipv6Addr, address: Ipv6Addr, realm: u8) -> Option<(&Prefix64, PrefixOwner)> {
        let mut meant = None;
        for (prefix, owner) in self.list.iter().filter(|(prefix, _)| prefix.contains(address)) {
            let rule = self.rules.get(usize::from(owner.instance)).filter(|rule| rule.realm == realm);
            let Some(SourceRule { sources, .. }) = rule else { continue };
            if sources.is_empty() || sources.iter().any(|net| net.contains(source)) {
                return Some((prefix, *owner));
            }
            meant = meant.or(Some((prefix, *owner)));
        }
        meant
    }
}
