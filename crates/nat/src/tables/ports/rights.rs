//! Ports that one of two members of a pair may assign (decision 0102). Each address has one interval of them.
//! Bindings that exist keep their ports, in the interval or not.

use alloc::vec::Vec;
use core::ops::RangeInclusive;
use gatun_wire::DropReason;

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

/// Right to the ports of an address, and the shard of the address.
#[derive(Clone, Copy, Debug)]
struct AddressRight {
    right: PortRight,
    shard: u8,
}

/// Rights by address number. An address without a right gives no port.
#[derive(Debug, Default)]
pub(crate) struct Rights {
    by_address: Vec<AddressRight>,
    /// Numbers of the addresses of each shard, in order.
    by_shard: Vec<Vec<u32>>,
}

impl Rights {
    pub(crate) fn set(&mut self, ix: u32, right: PortRight, shard: u8) {
        let (at, of) = (ix as usize, usize::from(shard));
        let before = self.by_address.get(at).map(|address| usize::from(address.shard));
        if let Some(list) = before.filter(|before| *before != of).and_then(|n| self.by_shard.get_mut(n))
            && let Ok(place) = list.binary_search(&ix)
        {
            list.remove(place);
        }
        if self.by_address.len() <= at {
            self.by_address.resize(at + 1, AddressRight { right: PortRight::NONE, shard });
        }
        if let Some(place) = self.by_address.get_mut(at) {
            *place = AddressRight { right, shard };
        }
        if self.by_shard.len() <= of {
            self.by_shard.resize(of + 1, Vec::new());
        }
        if let Some(list) = self.by_shard.get_mut(of)
            && let Err(place) = list.binary_search(&ix)
        {
            list.insert(place, ix);
        }
    }

    pub(crate) fn of(&self, ix: u32) -> PortRight {
        self.by_address.get(ix as usize).map_or(PortRight::NONE, |address| address.right)
    }

    /// Returns the shard of an address.
    pub(crate) fn shard_of(&self, ix: u32) -> u8 {
        self.by_address.get(ix as usize).map_or(0, |address| address.shard)
    }

    /// Returns whether there is a right to any port.
    pub(crate) fn has_some(&self) -> bool {
        self.by_address.iter().any(|address| !address.right.is_none())
    }

    /// Returns the reason why a shard's subscriber gets no port, if all ports with a right are in use.
    pub(crate) fn refusal(&self, shard: u8, exhausted: DropReason) -> DropReason {
        let has_some = |&ix: &u32| !self.of(ix).is_none();
        match self.by_shard.get(usize::from(shard)).is_some_and(|all| all.iter().any(has_some)) {
            true => exhausted,
            false => DropReason::PortRightNone,
        }
    }

    /// Returns whether a port may be assigned.
    pub(crate) fn allows(&self, ix: u32, ports: &RangeInclusive<u16>) -> bool {
        let right = self.of(ix);
        right.first <= *ports.start() && *ports.end() <= right.last
    }

    /// Iterates over the addresses that may have a port for a subscriber of a shard, the best one first: the
    /// wish if it is owned or if the subscriber is `paired` with it; the owned ones from there on; then those
    /// of which only an own range may be used. `is_bound`: no address but the wish.
    pub(crate) fn candidates(
        &self,
        shard: u8,
        wish: u32,
        is_paired: bool,
        is_bound: bool,
    ) -> impl Iterator<Item = u32> {
        let all = self.by_shard.get(usize::from(shard)).map_or(&[][..], Vec::as_slice);
        let is_mine = self.shard_of(wish) == shard;
        // A wish elsewhere selects an address of the shard: wishes are spread over all addresses.
        let scaled = || wish as usize * all.len() / self.by_address.len().max(1);
        let from = if is_mine { all.partition_point(|ix| *ix < wish) } else { scaled() };
        let (before, after) = all.split_at_checked(from).unwrap_or((all, &[]));
        let around = move || after.iter().chain(before).copied();
        let is_first = is_mine && !self.of(wish).is_none() && (is_paired || self.of(wish).is_owner);
        let others = move |owned: bool| {
            let some = around().filter(move |&ix| !(is_first && ix == wish));
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
    use std::vec;

    #[test]
    fn owned_addresses_come_first_and_a_paired_one_before_all() {
        let mut rights = Rights::default();
        let right = |is_owner| PortRight { first: 1024, last: 2047, is_owner };
        [false, true, false, true].into_iter().zip(0..).for_each(|(own, ix)| rights.set(ix, right(own), 0));
        rights.set(2, PortRight::NONE, 0);
        let of = |wish, paired, bound| rights.candidates(0, wish, paired, bound).collect::<Vec<_>>();
        assert_eq!(of(0, false, false), [1, 3, 0]);
        assert_eq!(of(3, false, false), [3, 1, 0]);
        assert_eq!(of(0, true, false), [0, 1, 3]);
        assert_eq!(of(0, true, true), [0]);
        assert_eq!(of(2, true, true), [0; 0]);
        assert!(rights.allows(1, &(1024..=2047)) && !rights.allows(1, &(1024..=2048)));
        assert!(!rights.allows(2, &(1..=1)) && !rights.allows(9, &(0..=0)));
    }

    #[test]
    fn a_subscriber_gets_addresses_of_its_shard_alone_and_subscribers_are_spread_over_them() {
        let mut rights = Rights::default();
        let right = PortRight { first: 1024, last: 2047, is_owner: true };
        // The numbers of a shard's addresses may have gaps after a change.
        [1u8, 0, 0, 1, 2, 1].into_iter().zip(0..).for_each(|(shard, ix)| rights.set(ix, right, shard));
        let list =
            |rights: &Rights, shard, wish| rights.candidates(shard, wish, false, false).collect::<Vec<_>>();
        let of = |shard, wish| list(&rights, shard, wish);
        assert_eq!((of(1, 3), of(1, 5), of(0, 2)), (vec![3, 5, 0], vec![5, 0, 3], vec![2, 1]));
        let firsts: Vec<_> = (0..6).map(|wish| of(0, wish)[0]).collect();
        assert_eq!(firsts, [1, 1, 2, 2, 2, 2]);
        assert_eq!((of(2, 0), of(3, 0)), (vec![4], vec![]));
        rights.set(4, PortRight::NONE, 2);
        assert!(list(&rights, 2, 4).is_empty());
        assert!(rights.candidates(1, 1, true, true).next().is_none(), "paired in another shard");
        // A number goes to an address of another shard.
        rights.set(3, right, 2);
        assert_eq!((list(&rights, 1, 0), list(&rights, 2, 3)), (vec![0, 5], vec![3]));
    }
}
