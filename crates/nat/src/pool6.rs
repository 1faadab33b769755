//! Which stateful instance an IPv6 destination is for: the translation prefixes of all of them in one
//! list, so that a packet looks at one place and not at every instance's.

use crate::nat64::Nat64;
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
    pub(crate) fn new(instances: &[Nat64]) -> Self {
        let mut owners = Vec::new();
        for nat in instances {
            let instance = nat.policy.instance;
            let owned = |(pool6, &prefix): (u8, &Prefix64)| (prefix, Owner { instance, pool6 });
            owners.extend(nat.prefixes().map(owned));
        }
        owners.sort_by_key(|(prefix, _)| Reverse(prefix.len()));
        Owners(owners)
    }

    /// The longest prefix that an address lies in, and whose that is.
    #[inline]
    pub(crate) fn of(&self, address: Ipv6Addr) -> Option<(&Prefix64, Owner)> {
        self.0.iter().find(|(prefix, _)| prefix.contains(address)).map(|(prefix, owner)| (prefix, *owner))
    }
}
