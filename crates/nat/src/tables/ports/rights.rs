//! Ports that one of two members of a pair may assign (decision 0102). Each address has one interval of them.
//! Bindings that exist keep their ports, in the interval or not.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

/// Ports of an address that this member may assign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRight {
    /// First port.
    pub first: u16,
    /// Last port. The interval is empty if it is below the first one.
    pub last: u16,
    /// True if the member owns the address: new subscribers get it before others.
    pub is_owner: bool,
}

impl PortRight {
    /// No right to any port.
    pub const NONE: PortRight = PortRight { first: 1, last: 0, is_owner: false };

    pub(crate) fn ports(self) -> RangeInclusive<u16> {
        self.first..=self.last
    }

    fn is_none(self) -> bool {
        self.last < self.first
    }
}

/// Rights by address number. An address without a right gives no port.
#[derive(Debug, Default)]
pub(crate) struct Rights {
    by_address: Vec<PortRight>,
}

impl Rights {
    pub(crate) fn set(&mut self, ix: u32, right: PortRight) {
        let at = ix as usize;
        if self.by_address.len() <= at {
            self.by_address.resize(at + 1, PortRight::NONE);
        }
        if let Some(place) = self.by_address.get_mut(at) {
            *place = right;
        }
    }

    pub(crate) fn of(&self, ix: u32) -> PortRight {
        self.by_address.get(ix as usize).copied().unwrap_or(PortRight::NONE)
    }

    /// Returns whether there is a right to any port.
    pub(crate) fn has_some(&self) -> bool {
        self.by_address.iter().any(|right| !right.is_none())
    }

    /// Returns whether a port may be assigned.
    pub(crate) fn allows(&self, ix: u32, ports: &RangeInclusive<u16>) -> bool {
        let right = self.of(ix);
        right.first <= *ports.start() && *ports.end() <= right.last
    }

    /// Iterates over the addresses that may have a port for a subscriber, the best one first: the wish if it
    /// is owned or if the subscriber is `paired` with it; the owned ones from there on; then those of which
    /// only an own range may be used. `is_bound`: no address but the wish.
    pub(crate) fn candidates(&self, wish: u32, is_paired: bool, is_bound: bool) -> impl Iterator<Item = u32> {
        let n = self.by_address.len() as u32;
        let around = move |from: u32| (0..n).map(move |step| from.wrapping_add(step) % n.max(1));
        let is_first = !self.of(wish).is_none() && (is_paired || self.of(wish).is_owner);
        let others = move |owned: bool| {
            let some = around(wish).filter(move |&ix| !(is_first && ix == wish));
            some.filter(move |&ix| self.of(ix).is_owner == owned && !self.of(ix).is_none())
        };
        let rest = others(true).take(TRIES_MAX).chain(others(false).take(TRIES_MAX));
        is_first.then_some(wish).into_iter().chain(rest.filter(move |_| !is_bound))
    }
}

/// Maximum number of addresses of a kind that are tried for a port.
const TRIES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owned_addresses_come_first_and_a_paired_one_before_all() {
        let mut rights = Rights::default();
        let right = |is_owner| PortRight { first: 1024, last: 2047, is_owner };
        [false, true, false, true].into_iter().zip(0..).for_each(|(own, ix)| rights.set(ix, right(own)));
        rights.set(2, PortRight::NONE);
        let of = |wish, paired, bound| rights.candidates(wish, paired, bound).collect::<Vec<_>>();
        assert_eq!(of(0, false, false), [1, 3, 0]);
        assert_eq!(of(3, false, false), [3, 1, 0]);
        assert_eq!(of(0, true, false), [0, 1, 3]);
        assert_eq!(of(0, true, true), [0]);
        assert_eq!(of(2, true, true), [0; 0]);
        assert!(rights.allows(1, &(1024..=2047)) && !rights.allows(1, &(1024..=2048)));
        assert!(!rights.allows(2, &(1..=1)) && !rights.allows(9, &(0..=0)));
    }
}
