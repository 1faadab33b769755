//! Cutting a translated packet into fragments.

use crate::{DropReason, Packet};

/// Cuts an IPv6 packet that has a Fragment header into fragments of at most `max` bytes. The first
/// stays in `packet`; `emit` gets each further one, in order, as a slice to copy from in two parts:
/// headers and payload.
///
/// # Errors
/// `mtu_unfragmentable`; nothing was emitted then. An error of `emit` is returned as it is.
pub fn split6(
    _packet: &mut Packet<'_>,
    _max: u32,
    _emit: impl FnMut(&[u8], &[u8]) -> Result<(), DropReason>,
) -> Result<(), DropReason> {
    Err(DropReason::Unfragmentable)
}

/// The same for an IPv4 packet without DF.
///
/// # Errors
/// As [`split6`].
pub fn split4(
    _packet: &mut Packet<'_>,
    _max: u32,
    _emit: impl FnMut(&[u8], &[u8]) -> Result<(), DropReason>,
) -> Result<(), DropReason> {
    Err(DropReason::Unfragmentable)
}
