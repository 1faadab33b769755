//! IPv4 and IPv6 networks.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

/// An IPv4 network: host bits are zero, `len` at most 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Net4 {
    /// First address.
    pub addr: Ipv4Addr,
    /// Prefix length.
    pub len: u8,
}

/// An IPv6 network: host bits are zero, `len` at most 128.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Net6 {
    /// First address.
    pub addr: Ipv6Addr,
    /// Prefix length.
    pub len: u8,
}

impl Net4 {
    /// Creates a network. Returns `None` if `len` is too long or host bits are set.
    pub fn new(addr: Ipv4Addr, len: u8) -> Option<Self> {
        let host = u32::MAX.checked_shr(u32::from(len)).unwrap_or(0);
        (len <= 32 && u32::from(addr) & host == 0).then_some(Net4 { addr, len })
    }

    /// The fewest networks that cover the addresses from the first to the last one: at most 62.
    pub fn covering(first: Ipv4Addr, last: Ipv4Addr) -> Vec<Net4> {
        let (mut at, last) = (u64::from(u32::from(first)), u64::from(u32::from(last)));
        let mut all = Vec::new();
        while at <= last {
            let aligned = at.trailing_zeros().min(32);
            let fits = (last - at + 1).ilog2();
            let bits = aligned.min(fits);
            all.push(Net4 { addr: Ipv4Addr::from(at as u32), len: (32 - bits) as u8 });
            at += 1 << bits;
        }
        all
    }

    /// Returns whether the network contains an address.
    #[inline]
    pub fn contains(&self, a: Ipv4Addr) -> bool {
        let diff = u32::from(a) ^ u32::from(self.addr);
        diff.checked_shr(32 - u32::from(self.len)).unwrap_or(0) == 0
    }
}

impl Net6 {
    /// Creates a network. Returns `None` if `len` is too long or host bits are set.
    pub fn new(addr: Ipv6Addr, len: u8) -> Option<Self> {
        let host = u128::MAX.checked_shr(u32::from(len)).unwrap_or(0);
        (len <= 128 && u128::from(addr) & host == 0).then_some(Net6 { addr, len })
    }

    /// Returns whether the network contains an address.
    #[inline]
    pub fn contains(&self, a: Ipv6Addr) -> bool {
        let diff = u128::from(a) ^ u128::from(self.addr);
        diff.checked_shr(128 - u32::from(self.len)).unwrap_or(0) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn a_range_is_covered_by_networks() {
        let of = |first: &str, last: &str| {
            let all = Net4::covering(first.parse().unwrap(), last.parse().unwrap());
            all.iter().map(|net| format!("{}/{}", net.addr, net.len)).collect::<Vec<_>>()
        };
        assert_eq!(of("192.0.2.1", "192.0.2.1"), ["192.0.2.1/32"]);
        assert_eq!(
            of("192.0.2.1", "192.0.2.6"),
            ["192.0.2.1/32", "192.0.2.2/31", "192.0.2.4/31", "192.0.2.6/32"]
        );
        assert_eq!(of("0.0.0.0", "255.255.255.255"), ["0.0.0.0/0"]);
    }
}
