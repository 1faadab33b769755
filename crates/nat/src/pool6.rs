//! Which stateful instance an IPv6 destination is for: the translation prefixes of all of them in one
//! list, so that a packet looks at one place and not at every instance's.

use crate::nat64::Nat64;
use crate::plan;
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
pub(crate) struct Owners(Vec<(Prefix64, Owner)>);

impl Owners {
    /// Those that instances have now, by the numbers that they have in each.
    pub(crate) fn new(instances: &[Nat64]) -> Self {
        let of = |nat: &Nat64| {
            let instance = nat.policy.instance;
            let owned = |(pool6, &prefix): (u8, &Prefix64)| (prefix, Owner { instance, pool6 });
            nat.prefixes().map(owned).collect::<Vec<_>>()
        };
        Self::sorted(instances.iter().flat_map(of).collect())
    }

    /// Those of a plan, by their places in it.
    pub(crate) fn of_plans(plans: &[plan::Nat64]) -> Self {
        let of = |(instance, plan): (u8, &plan::Nat64)| {
            let owned = |(pool6, &prefix): (u8, &Prefix64)| (prefix, Owner { instance, pool6 });
            (0..=u8::MAX).zip(&plan.pool6).map(owned).collect::<Vec<_>>()
        };
        Self::sorted((0..=u8::MAX).zip(plans).flat_map(of).collect())
    }

    fn sorted(mut owners: Vec<(Prefix64, Owner)>) -> Self {
        owners.sort_by_key(|(prefix, _)| Reverse(prefix.len()));
        Owners(owners)
    }

    /// The longest prefix that an address lies in, and whose that is.
    #[inline]
    pub(crate) fn of(&self, address: Ipv6Addr) -> Option<(&Prefix64, Owner)> {
        self.0.iter().find(|(prefix, _)| prefix.contains(address)).map(|(prefix, owner)| (prefix, *owner))
    }
}
