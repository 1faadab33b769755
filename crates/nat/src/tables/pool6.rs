//! Which stateful instance an IPv6 destination is for: the translation prefixes of all of them in one
//! list, so that a packet looks at one place and not at every instance's.

use crate::base::plan::{self, Net6};
use crate::path::nat64::Nat64;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::net::Ipv6Addr;
use gatun_wire::Prefix64;

/// Whose an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// Number of the instance.
    pub(crate) instance: u8,
    /// Number of the prefix among the instance's.
    pub(crate) pool6: u8,
}

/// The prefixes of all instances, longest first.
pub(crate) struct Owners {
    list: Vec<(Prefix64, Owner)>,
    /// By instance: what of a packet has to be so beside its destination.
    rules: Vec<Rule>,
    /// Whether some instance has the same prefix as another, or a realm.
    ruled: bool,
}

struct Rule {
    realm: u8,
    sources: Vec<Net6>,
}

impl Owners {
    /// Those that instances have now, by the numbers that they have in each. `plans` are theirs.
    pub(crate) fn new(instances: &[Nat64], plans: &[plan::Nat64]) -> Self {
        let of = |nat: &Nat64| {
            let instance = nat.policy.instance;
            let owned = |(pool6, &prefix): (u8, &Prefix64)| (prefix, Owner { instance, pool6 });
            nat.prefixes().map(owned).collect::<Vec<_>>()
        };
        Self::sorted(instances.iter().flat_map(of).collect(), plans)
    }

    /// Those of a plan, by their places in it.
    pub(crate) fn of_plans(plans: &[plan::Nat64]) -> Self {
        let of = |(instance, plan): (u8, &plan::Nat64)| {
            let owned = |(pool6, &prefix): (u8, &Prefix64)| (prefix, Owner { instance, pool6 });
            (0..=u8::MAX).zip(&plan.pool6).map(owned).collect::<Vec<_>>()
        };
        Self::sorted((0..=u8::MAX).zip(plans).flat_map(of).collect(), plans)
    }

    fn sorted(mut list: Vec<(Prefix64, Owner)>, plans: &[plan::Nat64]) -> Self {
        list.sort_by_key(|(prefix, _)| (Reverse(prefix.len()), prefix.address()));
        let ruled = list.windows(2).any(|pair| matches!(pair, [(a, _), (b, _)] if a == b));
        let rules: Vec<Rule> =
            plans.iter().map(|plan| Rule { realm: plan.realm, sources: plan.sources.clone() }).collect();
        let ruled = ruled || rules.iter().any(|rule| rule.realm != 0);
        Owners { list, rules, ruled }
    }

    /// The longest prefix that an address lies in, and whose that is: where destinations alone tell.
    #[inline]
    pub(crate) fn of(&self, address: Ipv6Addr) -> Option<(&Prefix64, Owner)> {
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
    ) -> Option<(&Prefix64, Owner)> {
        if self.ruled { self.by_rules(source, address, realm) } else { self.of(address) }
    }

    fn by_rules(&self, source: Ipv6Addr, address: Ipv6Addr, realm: u8) -> Option<(&Prefix64, Owner)> {
        let mut meant = None;
        for (prefix, owner) in self.list.iter().filter(|(prefix, _)| prefix.contains(address)) {
            let rule = self.rules.get(usize::from(owner.instance)).filter(|rule| rule.realm == realm);
            let Some(Rule { sources, .. }) = rule else { continue };
            if sources.is_empty() || sources.iter().any(|net| net.contains(source)) {
                return Some((prefix, *owner));
            }
            meant = meant.or(Some((prefix, *owner)));
        }
        meant
    }
}
