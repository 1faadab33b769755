//! Where packets go: the longest prefix that matches.
//!
//! One table for each family, its prefixes by length; those of one length are sorted. A look-up is a binary search
//! for each length that occurs: some for a host with a default route and a few networks.

use crate::address::{Key, mask};
use alloc::vec::Vec;

/// What is done with packets to a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The destination is on this port's link.
    OnLink { port: u8 },
    /// The router has this place in the table of neighbours.
    Gateway { port: u8, neighbour: u32 },
    /// The packet would come back.
    Ourselves,
    /// A link's broadcast address.
    Broadcast,
    /// No route leads there, not even a default route.
    Nowhere,
}

/// Routes of one family.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes {
    lengths: Vec<Length>,
}

#[derive(Clone, Debug)]
struct Length {
    len: u8,
    mask: u128,
    routes: Vec<(u128, Target)>,
}

impl Routes {
    /// Adds a route, where there is none to the same prefix yet. `len` counts the bits of a [`Key`].
    pub(crate) fn add(&mut self, key: Key, len: u8, target: Target) {
        // Longest first.
        let at = self.lengths.partition_point(|l| l.len > len);
        if self.lengths.get(at).is_none_or(|l| l.len != len) {
            self.lengths.insert(at, Length { len, mask: mask(len), routes: Vec::new() });
        }
        let Some(length) = self.lengths.get_mut(at) else { return };
        let first = key.0 & length.mask;
        if let Err(place) = length.routes.binary_search_by_key(&first, |r| r.0) {
            length.routes.insert(place, (first, target));
        }
    }

    /// The route of the longest prefix that contains the address.
    #[inline]
    pub(crate) fn find(&self, key: Key) -> Option<Target> {
        self.lengths.iter().find_map(|length| {
            let place = length.routes.binary_search_by_key(&(key.0 & length.mask), |r| r.0).ok()?;
            length.routes.get(place).map(|r| r.1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_longest_match_wins_as_a_look_at_every_route_finds(
            routes in proptest::collection::vec((any::<u8>(), 0..=128u8), 0..40),
            wanted in proptest::collection::vec(any::<u8>(), 1..40),
        ) {
            let address = |seed: u8| Key(u128::from(seed >> 4) << 124 | u128::from(seed & 15) << 3);
            let mut table = Routes::default();
            let mut list: Vec<(u128, u8, u8)> = Vec::new();
            for (i, (seed, len)) in routes.iter().enumerate() {
                let first = address(*seed).0 & mask(*len);
                table.add(address(*seed), *len, Target::OnLink { port: i as u8 });
                if !list.iter().any(|r| (r.0, r.1) == (first, *len)) {
                    list.push((first, *len, i as u8));
                }
            }
            for seed in wanted {
                let key = address(seed);
                let best = list.iter().filter(|r| key.0 & mask(r.1) == r.0).max_by_key(|r| r.1);
                prop_assert_eq!(table.find(key), best.map(|r| Target::OnLink { port: r.2 }));
            }
        }
    }
}
