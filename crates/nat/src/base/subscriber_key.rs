//! Identity of a subscriber.

use core::net::Ipv6Addr;

/// Identity of a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriberKey {
    /// Inside address with its host bits cleared.
    pub prefix: u128,
    /// Number of the instance.
    pub instance: u8,
}

impl SubscriberKey {
    /// Returns the subscriber of an inside address, identified by its first `len` bits.
    #[inline]
    pub(crate) fn of(instance: u8, inside: Ipv6Addr, len: u8) -> Self {
        let host_bits = u128::MAX.checked_shr(len.into()).unwrap_or(0);
        SubscriberKey { prefix: u128::from(inside) & !host_bits, instance }
    }
}
