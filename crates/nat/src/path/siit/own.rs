//! The translator's own addresses as an instance sees them: as IPv4 addresses (see [`crate::path::own_address`]).

use super::addresses::{Addresses, Via};
use crate::base::special::{FirstOctets, illegal_destination4};
use core::net::{Ipv4Addr, Ipv6Addr};

/// `own4`, and what stands for `own6`.
#[derive(Debug)]
pub(super) struct OwnAddresses {
    all: [Option<Ipv4Addr>; 2],
    /// Those that lie in no pool: what comes to a pool's address is the pool's matter.
    alone: [Option<Ipv4Addr>; 2],
    /// True if the mapping table has one: then every packet of a mapped host is looked at the long way.
    pub(super) is_mapped: bool,
    /// The bits in which all of them agree, and how they are there.
    mask: u32,
    bits: u32,
    /// First octets of all of them, and of addresses that nothing is sent to.
    suspect: FirstOctets,
}

impl OwnAddresses {
    pub(super) fn new(addresses: &Addresses, own4: Option<Ipv4Addr>, own6: Option<Ipv6Addr>) -> Self {
        let of6 = own6.and_then(|own6| addresses.ipv4_of(own6));
        let all = [own4, of6.map(|mapped| mapped.address)];
        let is_mapped = own4.is_some_and(|own4| addresses.eamt.covers_v4(own4))
            || of6.is_some_and(|mapped| mapped.via == Via::Eam);
        // No packet is for the broadcast address.
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

    /// Leaves addresses to pools.
    pub(super) fn leave(&mut self, is_pools: impl Fn(Ipv4Addr) -> bool) {
        self.alone = self.all.map(|own| own.filter(|a| !is_pools(*a)));
    }

    /// Returns whether a packet to this address ends here.
    #[inline]
    pub(super) fn contains(&self, a: Ipv4Addr) -> bool {
        self.alone.contains(&Some(a))
    }

    /// Checks whether an address may be an own one, a pool's too: at one look, and sometimes of another that is like them.
    #[inline(always)]
    pub(super) fn may_contain(&self, a: Ipv4Addr) -> bool {
        (u32::from(a) ^ self.bits) & self.mask == 0
    }

    /// Returns whether an address is an own one, a pool's too, or one that nothing is sent to.
    #[inline(always)]
    pub(super) fn end_or_refuse(&self, a: Ipv4Addr) -> bool {
        self.suspect.contain(a) && self.end_or_refuse_suspect(a)
    }

    #[cold]
    fn end_or_refuse_suspect(&self, a: Ipv4Addr) -> bool {
        illegal_destination4(a) || self.all.contains(&Some(a))
    }

    /// IPv4 address that stands for `own6`.
    pub(super) fn of6(&self) -> Option<Ipv4Addr> {
        self.all[1]
    }
}
