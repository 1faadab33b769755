//! Reads and writes at offsets of a frame that may end earlier.

use crate::Mac;
use core::net::{Ipv4Addr, Ipv6Addr};

#[inline]
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[inline]
pub(crate) fn mac(bytes: &[u8], at: usize) -> Option<Mac> {
    array(bytes, at).map(Mac)
}

#[inline]
pub(crate) fn v4(bytes: &[u8], at: usize) -> Option<Ipv4Addr> {
    array::<4>(bytes, at).map(Ipv4Addr::from)
}

#[inline]
pub(crate) fn v6(bytes: &[u8], at: usize) -> Option<Ipv6Addr> {
    array::<16>(bytes, at).map(Ipv6Addr::from)
}

/// Writes `what` at `at`. Does nothing if the bytes end earlier.
#[inline]
pub(crate) fn put(bytes: &mut [u8], at: usize, what: &[u8]) {
    if let Some(place) = bytes.get_mut(at..).and_then(|b| b.get_mut(..what.len())) {
        place.copy_from_slice(what);
    }
}
