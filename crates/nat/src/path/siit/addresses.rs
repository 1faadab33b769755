//! Addresses of one instance: explicit mappings first, then the translation prefixes (RFC 7757 3.3).

use crate::base::plan::{Net4, Net6, Siit};
use crate::base::special::non_global4;
use crate::tables::eamt::{Eamt, Look};
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_wire::{DropReason, Prefix64};

/// Number of one of an instance's prefixes. Small on purpose: it goes with every address.
pub(super) type PrefixIx = u16;

/// No prefix. A number that none has is told apart by one comparison, an `Option` by two.
const NO_PREFIX: PrefixIx = PrefixIx::MAX;

/// Rule that maps one address to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Via {
    /// An explicit mapping.
    Eam,
    /// RFC 6052, with this prefix.
    Prefix(PrefixIx),
}

/// A translated address and its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mapped<A> {
    pub(super) address: A,
    pub(super) via: Via,
}

/// The mappings, the prefixes and what must not be translated.
#[derive(Debug)]
pub(super) struct Addresses {
    pub(super) eamt: Eamt,
    /// Longest first.
    prefixes: Vec<Prefix64>,
    /// The one for IPv4 addresses without mapping, or [`NO_PREFIX`].
    first: PrefixIx,
    /// No mapping has an IPv6 address inside one of the prefixes, so the prefixes can be asked first: they
    /// answer at once.
    prefixes_apart: bool,
    /// The well-known prefix, where it must not stand for addresses that are not global, or [`NO_PREFIX`].
    restricted: PrefixIx,
    denied4: Ranges<u32>,
    denied6: Ranges<u128>,
    /// True if one of them has a network.
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

    /// Returns whether an IPv6 address has an IPv4 address, leaving aside what forbids its use.
    #[inline]
    pub(super) fn covers6(&self, a: Ipv6Addr) -> bool {
        self.prefix_of(a).is_some() || self.eamt.v6_to_v4(a).is_some()
    }

    /// Checks whether an IPv4 address has an IPv6 address, leaving aside what forbids its use.
    #[inline]
    pub(super) fn covers4(&self, a: Ipv4Addr) -> bool {
        self.has_first_prefix() || self.eamt.covers_v4(a)
    }

    /// The IPv4 address for an IPv6 address.
    ///
    /// # Errors
    /// `missing` where there is none; `wkp_nonglobal`, `denylist`.
    #[inline]
    pub(super) fn to4(&self, a: Ipv6Addr, missing: DropReason) -> Result<Mapped<Ipv4Addr>, DropReason> {
        let mapped = self.ipv4_of(a).ok_or(missing)?;
        if let Via::Prefix(ix) = mapped.via {
            self.check_well_known(ix, mapped.address)?;
        }
        self.check_denied(mapped.address, a)?;
        Ok(mapped)
    }

    /// The IPv4 address for an IPv6 address, leaving aside what forbids its use.
    #[inline]
    pub(super) fn ipv4_of(&self, a: Ipv6Addr) -> Option<Mapped<Ipv4Addr>> {
        let by_prefix = self.prefix_of(a);
        let by_mapping = match by_prefix {
            Some(_) if self.prefixes_apart => None,
            _ => self.eamt.v6_to_v4(a),
        };
        match (by_mapping, by_prefix) {
            (Some(address), _) => Some(Mapped { address, via: Via::Eam }),
            (None, Some((ix, prefix))) => {
                Some(Mapped { address: prefix.extract_unchecked(a), via: Via::Prefix(ix) })
            }
            (None, None) => None,
        }
    }

    /// The IPv6 address for an IPv4 address.
    ///
    /// # Errors
    /// As of [`to4`](Self::to4).
    #[inline]
    pub(super) fn to6(&self, a: Ipv4Addr, missing: DropReason) -> Result<Mapped<Ipv6Addr>, DropReason> {
        let Some(address) = self.eamt.v4_to_v6(a) else {
            return self.embed(self.first().ok_or(missing)?, a);
        };
        self.check_denied(a, address)?;
        Ok(Mapped { address, via: Via::Eam })
    }

    /// The IPv6 address for an IPv4 address by the first prefix, whatever the table says; by the table
    /// where there is no prefix.
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

    /// The IPv6 address for an IPv4 address by a certain prefix.
    #[inline]
    pub(super) fn embed(&self, ix: PrefixIx, a: Ipv4Addr) -> Result<Mapped<Ipv6Addr>, DropReason> {
        let prefix = self.prefixes.get(usize::from(ix)).ok_or(DropReason::NoEam)?;
        self.check_well_known(ix, a)?;
        let address = prefix.embed(a);
        self.check_denied(a, address)?;
        Ok(Mapped { address, via: Via::Prefix(ix) })
    }

    /// Where an IPv6 address stands in the mapping table, or which prefix is for it.
    #[inline(always)]
    pub(super) fn look6(&self, a: Ipv6Addr) -> Look {
        if self.prefixes_apart {
            return self.look_prefixes(a).unwrap_or_else(|| self.eamt.look6(a));
        }
        match self.eamt.look6(a) {
            Look::ABSENT => self.look_prefixes(a).unwrap_or(Look::ABSENT),
            look => look,
        }
    }

    #[inline(always)]
    fn look_prefixes(&self, a: Ipv6Addr) -> Option<Look> {
        self.prefix_of(a).map(|(number, _)| Look::prefix(number))
    }

    /// As [`to4`](Self::to4), for an address that has been looked up: the IPv4 address, and whether by a
    /// mapping. `None` where there is none to be used.
    #[inline(always)]
    pub(super) fn short4(&self, a: Ipv6Addr, look: Look) -> Option<(Ipv4Addr, bool)> {
        if let Some(number) = look.prefix_number() {
            let address = self.prefixes.get(usize::from(number))?.extract_unchecked(a);
            self.check_well_known(number, address).ok()?;
            self.check_denied(address, a).ok()?;
            return Some((address, false));
        }
        // Where its tag was another's, a prefix may be for it yet: the general way finds out.
        let address = self.eamt.v6_to_v4_at(look, a)?;
        self.check_denied(address, a).ok()?;
        Some((address, true))
    }

    /// As [`to6`](Self::to6), for an address that has been looked up; none that `may_be` an own one and has no mapping.
    #[inline(always)]
    pub(super) fn short6(
        &self,
        a: Ipv4Addr,
        look: Look,
        may_be: impl FnOnce(Ipv4Addr) -> bool,
    ) -> Option<Ipv6Addr> {
        let address = match self.eamt.v4_to_v6_at(look, a) {
            Some(address) => address,
            None if may_be(a) => return None,
            None => {
                // There is none of that number where there is no prefix.
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

    /// The longest prefix that an address lies in.
    #[inline(always)]
    fn prefix_of(&self, a: Ipv6Addr) -> Option<(PrefixIx, &Prefix64)> {
        self.prefixes.iter().enumerate().find(|(_, p)| p.contains(a)).map(|(ix, p)| (ix as PrefixIx, p))
    }

    /// RFC 6052 3.1: 64:ff9b::/96 does not stand for addresses that are not global.
    #[inline(always)]
    fn check_well_known(&self, prefix: PrefixIx, a: Ipv4Addr) -> Result<(), DropReason> {
        if self.restricted == prefix && non_global4(a) {
            return Err(DropReason::WellKnownNonGlobal);
        }
        Ok(())
    }

    /// The denylist beats mappings and prefixes.
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

/// Ranges of addresses, in order, none beginning inside another: a look-up halves.
#[derive(Debug)]
struct Ranges<T>(Vec<(T, T)>);

impl<T: Copy + Ord> Ranges<T> {
    /// Networks are disjoint or one inside the other; the inner ones are left out.
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
