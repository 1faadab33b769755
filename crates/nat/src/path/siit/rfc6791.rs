//! Sources for ICMP errors whose own source has no translation (RFC 6791).
//!
//! A router between Gatun and the destination may have any address. Its messages (Packet Too Big, Time
//! Exceeded) must arrive nevertheless, from an address that the other side does not drop.

use crate::base::plan::{IcmpPoolMode, Net4, Net6, Siit};
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_mem::hash::Hasher64;

/// Seed of the hash. It is not secret: a router gets the same address in all workers, and after a restart.
const SEED: [u64; 4] = [0x6791; 4];

/// Pools, and the addresses used if a pool is empty.
#[derive(Debug)]
pub(super) struct ErrorSources {
    pool4: Vec<Net4>,
    pool6: Vec<Net6>,
    mode: IcmpPoolMode,
    own4: Option<Ipv4Addr>,
    own6: Option<Ipv6Addr>,
    hasher: Hasher64,
}

impl ErrorSources {
    pub(super) fn new(plan: &Siit, own4: Option<Ipv4Addr>, own6: Option<Ipv6Addr>) -> Self {
        ErrorSources {
            pool4: plan.icmp_pool4.clone(),
            pool6: plan.icmp_pool6.clone(),
            mode: plan.icmp_pool4_mode,
            own4,
            own6,
            hasher: Hasher64::portable(SEED),
        }
    }

    /// Returns the IPv4 source for an error from an IPv6 `router`, received with `hop_limit`: an address of
    /// the pool, chosen by a hash of the router's address or by its distance, or the own address if the pool
    /// is empty.
    pub(super) fn source4(&self, router: Ipv6Addr, hop_limit: u8) -> Option<Ipv4Addr> {
        let total: u64 = self.pool4.iter().map(count4).sum();
        let number = match self.mode {
            IcmpPoolMode::Hash => self.hash(u128::from(router)),
            IcmpPoolMode::HopLimit => u64::from(hop_limit),
        };
        let Some(mut index) = number.checked_rem(total) else { return self.own4 };
        for net in &self.pool4 {
            match index.checked_sub(count4(net)) {
                Some(rest) => index = rest,
                None => return Some(Ipv4Addr::from(u32::from(net.addr) | index as u32)),
            }
        }
        self.own4
    }

    /// Returns the IPv6 source for an error from an IPv4 `router`. In a pool of a /96 or more, the last 32
    /// bits of the source are the router's address, so that a traceroute is readable. In a smaller pool, a
    /// hash chooses it.
    pub(super) fn source6(&self, router: Ipv4Addr) -> Option<Ipv6Addr> {
        if let Some(net) = self.pool6.iter().find(|n| n.len <= 96) {
            return Some(Ipv6Addr::from(u128::from(net.addr) | u128::from(u32::from(router))));
        }
        let total: u64 = self.pool6.iter().map(count6).sum();
        let Some(mut index) = self.hash(u32::from(router).into()).checked_rem(total) else {
            return self.own6;
        };
        for net in &self.pool6 {
            match index.checked_sub(count6(net)) {
                Some(rest) => index = rest,
                None => return Some(Ipv6Addr::from(u128::from(net.addr) | u128::from(index))),
            }
        }
        self.own6
    }

    fn hash(&self, router: u128) -> u64 {
        self.hasher.hash4([(router >> 64) as u64, router as u64, 0, 0])
    }
}

fn count4(net: &Net4) -> u64 {
    1 << (32 - net.len.min(32))
}

/// Number of addresses of a network longer than /96.
fn count6(net: &Net6) -> u64 {
    1 << (128 - net.len.clamp(97, 128))
}
