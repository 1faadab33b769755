//! IPv4 and IPv6 networks.

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
