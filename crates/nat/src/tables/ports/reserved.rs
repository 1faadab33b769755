//! Ports that are free in the tables but reserved.

use super::address_map::AddressMap;
use core::net::Ipv4Addr;
use core::ops::RangeInclusive;

/// Reservations for the ports of sessions that are not in the tables yet.
pub(crate) trait Reservations {
    /// Returns whether such a session has one of these ports.
    fn has(&self, address: Ipv4Addr, ports: &RangeInclusive<u16>, transports: [bool; 3]) -> bool;
}

/// Reservations by the numbers of a pool's addresses.
#[derive(Clone, Copy)]
pub(crate) struct ReservedPorts<'a> {
    by: Option<&'a dyn Reservations>,
    map: &'a AddressMap,
}

impl<'a> ReservedPorts<'a> {
    pub(crate) fn new(by: Option<&'a dyn Reservations>, map: &'a AddressMap) -> Self {
        ReservedPorts { by, map }
    }

    /// The pool's addresses.
    pub(crate) fn map(&self) -> &'a AddressMap {
        self.map
    }

    /// Returns whether nothing is reserved.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.by.is_none()
    }

    /// Returns whether one of these ports is reserved.
    #[inline]
    pub(crate) fn any(&self, ix: u32, ports: RangeInclusive<u16>, transports: [bool; 3]) -> bool {
        self.by.is_some_and(|by| by.has(self.map.address(ix), &ports, transports))
    }
}
