//! Routes: longest prefix match.
//!
//! [`Prefixes`] holds the configured routes. [`Routes`] of one family are made from them: the address space
//! is cut wherever the answer changes, so that a look-up is one binary search, whatever the prefixes.
//!
//! ```text
//!   0.0.0.0/0 -> A, 10.0.0.0/8 -> B:     first   0.0.0.0   10.0.0.0   11.0.0.0
//!                                        target  A         B          A
//! ```

use crate::address::{Key, mask};
use alloc::vec::Vec;

/// Action for packets to a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteTarget {
    /// No route.
    NoRoute,
    /// The destination is on this port's link.
    OnLink { port: u8 },
    /// The router, by its index in the neighbour cache.
    Gateway { port: u8, neighbour: u32 },
    /// An address of our own: the packet would come back.
    Own,
    /// Broadcast address of a link.
    Broadcast,
}

/// Routes of one family. `A` is an address as a number.
#[derive(Clone, Debug)]
pub(crate) struct Routes<A> {
    /// First address of each range, in order. The first range begins at zero.
    firsts: Vec<A>,
    targets: Vec<RouteTarget>,
    /// Range of the last look-up. The next packet usually goes to the same range.
    last: usize,
}

impl<A: Copy + Ord> Routes<A> {
    /// Route of the longest prefix that contains the address.
    #[inline]
    pub(crate) fn find(&mut self, address: A) -> RouteTarget {
        if !self.is_in(self.last, address) {
            self.last = self.firsts.partition_point(|first| *first <= address).wrapping_sub(1);
        }
        self.targets.get(self.last).copied().unwrap_or(RouteTarget::NoRoute)
    }

    /// Checks whether the range with this index contains the address.
    #[inline]
    fn is_in(&self, stretch: usize, address: A) -> bool {
        self.firsts.get(stretch).is_some_and(|first| *first <= address)
            && self.firsts.get(stretch + 1).is_none_or(|next| address < *next)
    }
}

/// Prefixes with their targets, grouped by length.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prefixes {
    /// Longest first.
    lengths: Vec<PrefixesOfLength>,
}

#[derive(Clone, Debug)]
struct PrefixesOfLength {
    len: u8,
    routes: Vec<(u128, RouteTarget)>,
}

impl Prefixes {
    /// Adds a route unless there is one to the same prefix. `len` counts the bits of a [`Key`].
    pub(crate) fn add(&mut self, key: Key, len: u8, target: RouteTarget) {
        let at = self.lengths.partition_point(|l| l.len > len);
        if self.lengths.get(at).is_none_or(|l| l.len != len) {
            self.lengths.insert(at, PrefixesOfLength { len, routes: Vec::new() });
        }
        let Some(length) = self.lengths.get_mut(at) else { return };
        let first = key.0 & mask(len);
        if let Err(place) = length.routes.binary_search_by_key(&first, |r| r.0) {
            length.routes.insert(place, (first, target));
        }
    }

    /// Builds the table of the addresses from `zero` on. `number` converts keys to numbers.
    pub(crate) fn routes<A>(&self, zero: Key, number: impl Fn(u128) -> A) -> Routes<A> {
        let mut firsts: Vec<u128> = alloc::vec![zero.0];
        for length in &self.lengths {
            for (first, _) in &length.routes {
                // No range begins after the last address.
                let after = (first | !mask(length.len))
                    .checked_add(1)
                    .filter(|after| after >> 32 == zero.0 >> 32 || zero.0 == 0);
                firsts.extend(after.into_iter().chain([*first]));
            }
        }
        firsts.sort_unstable();
        let mut stretches: Vec<(u128, RouteTarget)> = firsts.into_iter().map(|f| (f, self.find(f))).collect();
        stretches.dedup_by(|next, kept| next.0 == kept.0 || next.1 == kept.1);
        let targets = stretches.iter().map(|s| s.1).collect();
        Routes { firsts: stretches.into_iter().map(|s| number(s.0)).collect(), targets, last: 0 }
    }

    /// All prefixes with their lengths and targets.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, u8, RouteTarget)> {
        let of_length = |length: &PrefixesOfLength| {
            let len = length.len;
            length.routes.clone().into_iter().map(move |(first, target)| (Key(first), len, target))
        };
        self.lengths.iter().flat_map(of_length)
    }

    fn find(&self, address: u128) -> RouteTarget {
        let found = self.lengths.iter().find_map(|length| {
            let place = length.routes.binary_search_by_key(&(address & mask(length.len)), |r| r.0).ok()?;
            length.routes.get(place).map(|r| r.1)
        });
        found.unwrap_or(RouteTarget::NoRoute)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use proptest::prelude::*;

    /// Addresses that often coincide, at both ends of the address space.
    fn spread(seed: u8) -> u128 {
        (u128::from(seed >> 4) * 0x1111_1111) << 96 | u128::from(seed & 15) << 3 | (u128::from(seed & 1) * 7)
    }

    fn list_of(routes: &[(u128, u8)]) -> Vec<(u128, u8, RouteTarget)> {
        let mut list: Vec<(u128, u8, RouteTarget)> = Vec::new();
        for ((address, len), port) in routes.iter().zip(0u8..) {
            let first = address & mask(*len);
            if !list.iter().any(|r| (r.0, r.1) == (first, *len)) {
                list.push((first, *len, RouteTarget::OnLink { port }));
            }
        }
        list
    }

    fn naive(list: &[(u128, u8, RouteTarget)], address: u128) -> RouteTarget {
        let best = list.iter().filter(|r| address & mask(r.1) == r.0).max_by_key(|r| r.1);
        best.map_or(RouteTarget::NoRoute, |r| r.2)
    }

    proptest! {
        #[test]
        fn the_longest_match_wins_like_a_linear_search(
            routes in proptest::collection::vec((any::<u8>(), 0..=128u8), 0..40),
            wanted in proptest::collection::vec(any::<u8>(), 1..40),
        ) {
            let routes: Vec<_> = routes.into_iter().map(|(seed, len)| (spread(seed), len)).collect();
            let mut prefixes = Prefixes::default();
            for ((address, len), port) in routes.iter().zip(0u8..) {
                prefixes.add(Key(*address), *len, RouteTarget::OnLink { port });
            }
            let (mut table, list) = (prefixes.routes(Key(0), |n| n), list_of(&routes));
            let edges = list.iter().flat_map(|r| {
                let last = r.0 | !mask(r.1);
                [r.0, r.0.wrapping_sub(1), last, last.wrapping_add(1)]
            });
            for address in wanted.into_iter().map(spread).chain(edges).chain([0, u128::MAX]) {
                prop_assert_eq!(table.find(address), naive(&list, address), "{:x}", address);
            }
        }

        #[test]
        fn the_same_for_ipv4(
            routes in proptest::collection::vec((any::<u32>(), 0..=32u8), 0..40),
            wanted in proptest::collection::vec(any::<u32>(), 1..40),
        ) {
            let key = |n: u32| Key::v4(Ipv4Addr::from(n));
            let routes: Vec<_> = routes.into_iter().map(|(n, len)| (key(n).0, len + 96)).collect();
            let mut prefixes = Prefixes::default();
            for ((address, len), port) in routes.iter().zip(0u8..) {
                prefixes.add(Key(*address), *len, RouteTarget::OnLink { port });
            }
            let (mut table, list) = (prefixes.routes(key(0), |n| n as u32), list_of(&routes));
            let edges = list.iter().flat_map(|r| {
                [r.0 as u32, (r.0 as u32).wrapping_sub(1), (r.0 | !mask(r.1)) as u32]
            });
            for address in wanted.into_iter().chain(edges).chain([0, u32::MAX]) {
                prop_assert_eq!(table.find(address), naive(&list, key(address).0), "{:x}", address);
            }
        }
    }
}
