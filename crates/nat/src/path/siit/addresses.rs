//! Addresses of one instance: explicit mappings first, then the translation prefixes (RFC 7757 3.3).

use crate::base::plan::{Net4, Net6, Siit};
use crate::base::special::non_global4;
use crate::tables::eamt::{Eamt, TagLookup};
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_wire::{DropReason, Prefix64};

/// Number of one of an instance's prefixes. It is small because it is stored with every address.
pub(super) type PrefixIx = u16;

/// No prefix. A reserved number costs one comparison, an `Option` costs two.
const NO_PREFIX: PrefixIx = PrefixIx::MAX;

/// Rule that maps one address to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MappingRule {
    /// An explicit mapping.
    Eam,
    /// RFC 6052, with this prefix.
    Prefix(PrefixIx),
}

/// Translated address, and the rule that it was translated by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mapped<A> {
    pub(super) address: A,
    pub(super) via: MappingRule,
}

/// Mappings, prefixes, and addresses that must not be translated.
#[derive(Debug)]
pub(super) struct Addresses {
    pub(super) eamt: Eamt,
    /// Longest first.
    prefixes: Vec<Prefix64>,
    /// The prefix for IPv4 addresses without mapping, or [`NO_PREFIX`].
    first: PrefixIx,
    /// True if no mapping has an IPv6 address inside one of the prefixes. Then prefixes can be checked
    /// first, which is faster.
    prefixes_apart: bool,
    /// The well-known prefix if it must not represent addresses that are not global, otherwise
    /// [`NO_PREFIX`].
    restricted: PrefixIx,
    denied4: Ranges<u32>,
    denied6: Ranges<u128>,
    /// True if a denylist has an entry.
    denies: bool,
}

impl Addresses {
    pub(super) fn new(plan: &Siit, eamt: Eamt) -> Self {
        let mut prefixes = plan.pool6.clone();
        prefixes.sort_by_key(|p| core::cmp::Reverse(p.len()));
        let first = plan.pool6.first().and_then(|first| prefixes.iter().position(|p| p == first));
        let restricted = prefixes.iter().position(|p| *p == Prefix64::WELL_KNOWN);
        let inside = |net: &Net6| prefixes.iter().any(|p| p.contains(net.addr) || net.contains(p.address()));
        Addresses {
            eamt,
            first: first.map_or(NO_PREFIX, |ix| ix as PrefixIx),
            prefixes_apart: !plan.eamt.iter().any(|eam| inside(&eam.v6)),
            restricted: restricted.filter(|_| !plan.wkp_non_global).map_or(NO_PREFIX, |ix| ix as PrefixIx),
            prefixes,
            denied4: Ranges::new(plan.denylist4.iter().map(range4)),
            denied6: Ranges::new(plan.denylist6.iter().map(range6)),
            denies: !plan.denylist4.is_empty() || !plan.denylist6.is_empty(),
        }
    }

    /// Returns whether an IPv6 address has an IPv4 address, even if a rule forbids its use.
    #[inline]
    pub(super) fn covers6(&self, a: Ipv6Addr) -> bool {
        self.prefix_of(a).is_some() || self.eamt.v6_to_v4(a).is_some()
    }

    /// Returns whether an IPv4 address has an IPv6 address, even if a rule forbids its use.
    #[inline]
    pub(super) fn covers4(&self, a: Ipv4Addr) -> bool {
        self.has_first_prefix() || self.eamt.covers_v4(a)
    }

    /// Returns the IPv4 address for an IPv6 address.
    ///
    /// # Errors
    /// Returns `missing` if there is none, or `wkp_nonglobal` or `denylist`.
    #[inline]
    pub(super) fn to4(&self, a: Ipv6Addr, missing: DropReason) -> Result<Mapped<Ipv4Addr>, DropReason> {
        let mapped = self.ipv4_of(a).ok_or(missing)?;
        if let MappingRule::Prefix(ix) = mapped.via {
            self.check_well_known(ix, mapped.address)?;
        }
        self.check_denied(mapped.address, a)?;
        Ok(mapped)
    }

    /// Returns the IPv4 address for an IPv6 address, even if a rule forbids its use.
    #[inline]
    pub(super) fn ipv4_of(&self, a: Ipv6Addr) -> Option<Mapped<Ipv4Addr>> {
        let by_prefix = self.prefix_of(a);
        let by_mapping = match by_prefix {
            Some(_) if self.prefixes_apart => None,
            _ => self.eamt.v6_to_v4(a),
        };
        match (by_mapping, by_prefix) {
            (Some(address), _) => Some(Mapped { address, via: MappingRule::Eam }),
            (None, Some((ix, prefix))) => {
                Some(Mapped { address: prefix.extract_unchecked(a), via: MappingRule::Prefix(ix) })
            }
            (None, None) => None,
        }
    }

    /// Returns the IPv6 address for an IPv4 address.
    ///
    /// # Errors
    /// Same as [`to4`](Self::to4).
    #[inline]
    pub(super) fn to6(&self, a: Ipv4Addr, missing: DropReason) -> Result<Mapped<Ipv6Addr>, DropReason> {
        let Some(address) = self.eamt.v4_to_v6(a) else {
            return self.embed(self.first().ok_or(missing)?, a);
        };
        self.check_denied(a, address)?;
        Ok(Mapped { address, via: MappingRule::Eam })
    }

    /// Returns the IPv6 address for an IPv4 address by the first prefix, even if the table has an entry. Uses
    /// the table if there is no prefix.
    #[inline]
    pub(super) fn to6_by_prefix(
        &self,
        a: Ipv4Addr,
        missing: DropReason,
    ) -> Result<Mapped<Ipv6Addr>, DropReason> {
        match self.first() {
            Some(prefix) => self.embed(prefix, a),
            None => self.to6(a, missing),
        }
    }

    /// Returns the IPv6 address for an IPv4 address by a certain prefix.
    #[inline]
    pub(super) fn embed(&self, ix: PrefixIx, a: Ipv4Addr) -> Result<Mapped<Ipv6Addr>, DropReason> {
        let prefix = self.prefixes.get(usize::from(ix)).ok_or(DropReason::NoEam)?;
        self.check_well_known(ix, a)?;
        let address = prefix.embed(a);
        self.check_denied(a, address)?;
        Ok(Mapped { address, via: MappingRule::Prefix(ix) })
    }

    /// Looks up an IPv6 address: its place in the mapping table, or the prefix that contains it.
    #[inline(always)]
    pub(super) fn look6(&self, a: Ipv6Addr) -> TagLookup {
        if self.prefixes_apart {
            return self.look_prefixes(a).unwrap_or_else(|| self.eamt.look6(a));
        }
        match self.eamt.look6(a) {
            TagLookup::ABSENT => self.look_prefixes(a).unwrap_or(TagLookup::ABSENT),
            look => look,
        }
    }

    #[inline(always)]
    fn look_prefixes(&self, a: Ipv6Addr) -> Option<TagLookup> {
        self.prefix_of(a).map(|(number, _)| TagLookup::prefix(number))
    }

    /// Same as [`to4`](Self::to4), for an address that has been looked up: returns the IPv4 address, and true
    /// if a mapping gave it. Returns `None` if there is no usable one.
    #[inline(always)]
    pub(super) fn plain4(&self, a: Ipv6Addr, look: TagLookup) -> Option<(Ipv4Addr, bool)> {
        if let Some(number) = look.prefix_number() {
            let address = self.prefixes.get(usize::from(number))?.extract_unchecked(a);
            self.check_well_known(number, address).ok()?;
            self.check_denied(address, a).ok()?;
            return Some((address, false));
        }
        // If the tag was that of another address, a prefix may still contain the address: the slow path
        // decides.
        let address = self.eamt.v6_to_v4_at(look, a)?;
        self.check_denied(address, a).ok()?;
        Some((address, true))
    }

    /// Same as [`to6`](Self::to6), for an address that has been looked up. Returns `None` for an address
    /// without a mapping that `may_be` an own one.
    #[inline(always)]
    pub(super) fn plain6(
        &self,
        a: Ipv4Addr,
        look: TagLookup,
        may_be: impl FnOnce(Ipv4Addr) -> bool,
    ) -> Option<Ipv6Addr> {
        let address = match self.eamt.v4_to_v6_at(look, a) {
            Some(address) => address,
            None if may_be(a) => return None,
            None => {
                // `first` is no valid index if there is no prefix.
                let prefix = self.prefixes.get(usize::from(self.first))?;
                self.check_well_known(self.first, a).ok()?;
                prefix.embed(a)
            }
        };
        self.check_denied(a, address).ok()?;
        Some(address)
    }

    /// Returns whether every IPv4 address has an IPv6 address.
    #[inline]
    pub(super) fn has_first_prefix(&self) -> bool {
        self.first != NO_PREFIX
    }

    fn first(&self) -> Option<PrefixIx> {
        Some(self.first).filter(|first| *first != NO_PREFIX)
    }

    /// Returns the longest prefix that contains an address.
    #[inline(always)]
    fn prefix_of(&self, a: Ipv6Addr) -> Option<(PrefixIx, &Prefix64)> {
        self.prefixes.iter().enumerate().find(|(_, p)| p.contains(a)).map(|(ix, p)| (ix as PrefixIx, p))
    }

    /// Checks the rule of RFC 6052 3.1: 64:ff9b::/96 must not represent addresses that are not global.
    #[inline(always)]
    fn check_well_known(&self, prefix: PrefixIx, a: Ipv4Addr) -> Result<(), DropReason> {
        if self.restricted == prefix && non_global4(a) {
            return Err(DropReason::WellKnownNonGlobal);
        }
        Ok(())
    }

    /// Checks the denylists, which override mappings and prefixes.
    #[inline(always)]
    fn check_denied(&self, v4: Ipv4Addr, v6: Ipv6Addr) -> Result<(), DropReason> {
        if self.denies && (self.denied4.contain(v4.into()) || self.denied6.contain(v6.into())) {
            return Err(DropReason::Denylist);
        }
        Ok(())
    }
}

fn range4(net: &Net4) -> (u32, u32) {
    let host = u32::MAX.checked_shr(u32::from(net.len)).unwrap_or(0);
    (u32::from(net.addr) & !host, u32::from(net.addr) | host)
}

fn range6(net: &Net6) -> (u128, u128) {
    let host = u128::MAX.checked_shr(u32::from(net.len)).unwrap_or(0);
    (u128::from(net.addr) & !host, u128::from(net.addr) | host)
}

/// Sorted ranges of addresses, none beginning inside another, for binary search.
#[derive(Debug)]
struct Ranges<T>(Vec<(T, T)>);

impl<T: Copy + Ord> Ranges<T> {
    /// Creates ranges of networks that are disjoint or nested, and leaves out the inner ones.
    fn new(networks: impl Iterator<Item = (T, T)>) -> Self {
        let mut all: Vec<(T, T)> = networks.collect();
        all.sort_unstable_by_key(|&(first, last)| (first, core::cmp::Reverse(last)));
        let mut kept: Vec<(T, T)> = Vec::new();
        for range in all {
            if kept.last().is_none_or(|before| before.1 < range.0) {
                kept.push(range);
            }
        }
        Ranges(kept)
    }

    #[inline(never)]
    fn contain(&self, a: T) -> bool {
        let after = self.0.partition_point(|r| r.0 <= a);
        self.0.get(..after).and_then(<[_]>::last).is_some_and(|r| a <= r.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_contain_what_one_of_the_networks_contains(
            nets in proptest::collection::vec((any::<u16>(), 16u8..=32), 0..20),
            picks in proptest::collection::vec(any::<u16>(), 1..40),
        ) {
            let at = |low: u16| 0xc000_0000 | u32::from(low);
            let nets: Vec<Net4> = nets.into_iter().map(|(low, len)| {
                let host = u32::MAX.checked_shr(len.into()).unwrap_or(0);
                Net4 { addr: Ipv4Addr::from(at(low) & !host), len }
            }).collect();
            let ranges = Ranges::new(nets.iter().map(range4));
            for a in picks.into_iter().map(at) {
                prop_assert_eq!(ranges.contain(a), nets.iter().any(|n| n.contains(a.into())));
            }
        }
    }

    #[test]
    fn ranges_know_the_ends_of_the_address_space() {
        let ranges = Ranges::new([(0u128, 1), (u128::MAX - 1, u128::MAX)].into_iter());
        assert!(ranges.contain(0) && ranges.contain(1) && ranges.contain(u128::MAX));
        assert!(!ranges.contain(2) && !ranges.contain(u128::MAX - 2));
        assert!(!Ranges::new(core::iter::empty::<(u32, u32)>()).contain(0));
    }
}
