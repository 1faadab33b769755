//! ICMPv6 errors to ICMPv4 errors (RFC 7915 5.2, 5.3).

use super::{Settings, To4};
use crate::{DropReason, Ipv6View, L4, Packet};
use core::net::Ipv4Addr;

/// The packet inside an ICMPv6 error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Embedded6 {
    /// Its headers; offsets count from its own first byte.
    pub view: Ipv6View,
    /// Its transport header. TCP flags are zero where they were cut off.
    pub l4: L4,
    /// Where it begins, in bytes from the outer packet's first byte.
    pub at: u16,
}

/// Reads the packet inside an ICMPv6 error, and verifies the error's own checksum.
///
/// # Errors
/// `bad_l4csum`, `icmp_inner_short`, `icmp_double_error`, `icmp_inner_untranslatable`, `icmp_ext_bad`.
pub fn embedded(_packet: &[u8], _view: &Ipv6View) -> Result<Embedded6, DropReason> {
    Err(DropReason::IcmpInnerShort)
}

/// Makes the ICMPv6 error an ICMPv4 error from `outer.0` to `outer.1`, the packet inside it by
/// `inner`. `id` is the identification to use.
///
/// # Errors
/// `ttl`, `icmp_unknown_type`, `icmp_ptr_untranslatable`, `icmp_inner_untranslatable`, ...; the packet is unchanged then.
pub fn translate(
    _packet: &mut Packet<'_>,
    _view: &Ipv6View,
    _embedded: &Embedded6,
    _outer: (Ipv4Addr, Ipv4Addr),
    _inner: &To4,
    _id: u16,
    _settings: &Settings,
) -> Result<(), DropReason> {
    Err(DropReason::IcmpUnknownType)
}
