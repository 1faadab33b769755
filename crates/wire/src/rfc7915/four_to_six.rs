//! IPv4 to IPv6 (RFC 7915 4.1), everything but ICMP errors.

use super::{Settings, To6, Whole};
use crate::{DropReason, Ipv4View, L4, Packet};

/// Makes the IPv4 packet an IPv6 packet, in place: the payload stays where it is.
///
/// # Errors
/// `ttl`, `fragneeded_sent`, `udp_zero_csum`, `frag_icmp`, ...; the packet is unchanged then.
pub fn translate(
    _packet: &mut Packet<'_>,
    _view: &Ipv4View,
    _l4: L4,
    _to: &To6,
    _settings: &Settings,
) -> Result<Whole, DropReason> {
    Err(DropReason::UnsupportedProtocol)
}
