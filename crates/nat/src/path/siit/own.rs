//! The translator's own addresses in the form that an instance sees: IPv4 addresses (see
//! [`crate::path::own_address`]).

use super::addresses::{Addresses, MappingRule};
use crate::base::special::{FirstOctets, illegal_destination4};
use core::net::{Ipv4Addr, Ipv6Addr};

/// `own4`, and the IPv4 address that represents `own6`.
#[derive(Debug)]
pub(super) struct OwnAddresses {
    all: [Option<Ipv4Addr>; 2],
    /// Addresses that are in no pool. Packets to a pool's address are for the pool.
    alone: [Option<Ipv4Addr>; 2],
    /// True if the mapping table has one of them. Then every IPv4 packet takes the slow path.
    pub(super) is_mapped: bool,
    /// Mask of the bits that are the same in all of them, and the values of these bits.
    mask: u32,
    bits: u32,
    /// First octets of all of them, and of illegal destinations.
    suspect: FirstOctets,
}

impl OwnAddresses {
    pub(super) fn new(addresses: &Addresses, own4: Option<Ipv4Addr>, own6: Option<Ipv6Addr>) -> Self {
        let of6 = own6.and_then(|own6| addresses.ipv4_of(own6));
        let all = [own4, of6.map(|mapped| mapped.address)];
        let is_mapped = own4.is_some_and(|own4| addresses.eamt.covers_v4(own4))
            || of6.is_some_and(|mapped| mapped.via == MappingRule::Eam);
        // The broadcast address is no valid destination.
        let [a, b] = match all {
            [Some(a), Some(b)] => [a, b],
            [Some(a), None] | [None, Some(a)] => [a, a],
            [None, None] => [Ipv4Addr::BROADCAST; 2],
        };
        let mask = !(u32::from(a) ^ u32::from(b));
        let mut suspect = FirstOctets::ILLEGAL;
        all.into_iter().flatten().for_each(|own| suspect.add(own));
        OwnAddresses { all, alone: all, is_mapped, mask, bits: u32::from(a), suspect }
    }

    /// Excludes the addresses of pools.
    pub(super) fn leave(&mut self, is_pools: impl Fn(Ipv4Addr) -> bool) {
        self.alone = self.all.map(|own| own.filter(|a| !is_pools(*a)));
    }

    /// Returns whether a packet to this address ends here.
    #[inline]
    pub(super) fn contains(&self, a: Ipv4Addr) -> bool {
        self.alone.contains(&Some(a))
    }

    /// Returns whether an address may be an own one, even one of a pool. This is a single comparison, so it
    /// is also true for some similar addresses.
    #[inline(always)]
    pub(super) fn may_contain(&self, a: Ipv4Addr) -> bool {
        (u32::from(a) ^ self.bits) & self.mask == 0
    }

    /// Returns whether an address is an own one, even one of a pool, or an illegal destination.
    #[inline(always)]
    pub(super) fn end_or_refuse(&self, a: Ipv4Addr) -> bool {
        self.suspect.contain(a) && self.end_or_refuse_suspect(a)
    }

    #[cold]
    fn end_or_refuse_suspect(&self, a: Ipv4Addr) -> bool {
        illegal_destination4(a) || self.all.contains(&Some(a))
    }

    /// Returns the IPv4 address that represents `own6`.
    pub(super) fn of6(&self) -> Option<Ipv4Addr> {
        self.all[1]
    }
}
