//! Which stateful instance an IPv6 destination is for: the translation prefixes of all of them in one
//! list, so that a packet looks at one place and not at every instance's.

use crate::base::plan::{self, Net6};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::net::Ipv6Addr;
use gatun_wire::Prefix64;

/// The instance and the prefix that an address lies in.
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
    /// By instance: what of a packet has to be so beside its destination.
    rules: Vec<SourceRule>,
    /// Whether some instance has the same prefix as another, or a realm.
    ruled: bool,
}

/// Conditions of an instance beside the destination.
struct SourceRule {
    realm: u8,
    sources: Vec<Net6>,
}

impl Prefixes {
    /// Prefixes that instances have, with their numbers there. `plans` are those of the instances.
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

    /// The longest prefix that an address lies in, and whose that is: where destinations alone tell.
    #[inline]
    pub(crate) fn of(&self, address: Ipv6Addr) -> Option<(&Prefix64, PrefixOwner)> {
        self.list.iter().find(|(prefix, _)| prefix.contains(address)).map(|(prefix, owner)| (prefix, *owner))
    }

    /// As [`of`](Self::of), of a packet from `source` in a realm. Where no instance serves the source, one that is
    /// meant by all else: it says so.
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
