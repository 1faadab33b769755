//! ICMPv4 errors to ICMPv6 errors (RFC 7915 4.2, 4.3).

use super::{Settings, To6};
use crate::{DropReason, Ipv4View, L4, Packet};
use core::net::Ipv6Addr;

/// The packet inside an ICMPv4 error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Embedded4 {
    /// Its headers; offsets count from its own first byte.
    pub view: Ipv4View,
    /// Its transport header. TCP flags are zero where they were cut off.
    pub l4: L4,
    /// Where it begins, in bytes from the outer packet's first byte.
    pub at: u16,
}

/// Reads the packet inside an ICMPv4 error, and verifies the error's own checksum.
///
/// # Errors
/// `bad_l4csum`, `icmp_inner_short`, `icmp_double_error`, `icmp_inner_untranslatable`, `icmp_ext_bad`.
pub fn embedded(_packet: &[u8], _view: &Ipv4View) -> Result<Embedded4, DropReason> {
    Err(DropReason::IcmpInnerShort)
}

/// Makes the ICMPv4 error an ICMPv6 error from `outer.0` to `outer.1`, the packet inside it by
/// `inner`.
///
/// # Errors
/// `ttl`, `icmp_unknown_type`, `icmp_ptr_untranslatable`, `icmp_inner_untranslatable`, ...; the packet is unchanged then.
pub fn translate(
    _packet: &mut Packet<'_>,
    _view: &Ipv4View,
    _embedded: &Embedded4,
    _outer: (Ipv6Addr, Ipv6Addr),
    _inner: &To6,
    _settings: &Settings,
) -> Result<(), DropReason> {
    Err(DropReason::IcmpUnknownType)
}
