//! ICMPv6 (RFC 4443): types, codes and fields by name.
#![allow(missing_docs)]

use crate::{checksum, proto};

pub const LEN: usize = 8;
pub const CHECKSUM: usize = 2;
pub const ECHO_ID: usize = 4;
/// Offset of the length of the original datagram in 64-bit words (RFC 4884 4.2).
pub const EXT_LENGTH: usize = 4;

pub const UNREACHABLE: u8 = 1;
pub const PACKET_TOO_BIG: u8 = 2;
pub const TIME_EXCEEDED: u8 = 3;
pub const PARAMETER_PROBLEM: u8 = 4;
pub const ECHO_REQUEST: u8 = 128;
pub const ECHO_REPLY: u8 = 129;
pub const REDIRECT: u8 = 137;

/// Codes of Destination Unreachable.
pub mod unreachable {
    pub const NO_ROUTE: u8 = 0;
    pub const ADMIN_PROHIBITED: u8 = 1;
    pub const BEYOND_SCOPE: u8 = 2;
    pub const ADDRESS: u8 = 3;
    pub const PORT: u8 = 4;
}

/// Codes of Parameter Problem.
pub mod parameter {
    pub const ERRONEOUS_FIELD: u8 = 0;
    pub const UNKNOWN_NEXT_HEADER: u8 = 1;
}

/// Checks whether a message of this type is an error: the high bit is zero (RFC 4443 2.1).
#[inline]
pub const fn is_error(kind: u8) -> bool {
    kind < 128
}

/// Checks whether a message of this type is limited to one link: MLD (130-132, 143), neighbour discovery
/// (133-137) (RFC 7915 5.2), inverse discovery (141, 142) and SEND (148, 149).
#[inline]
pub const fn is_single_hop(kind: u8) -> bool {
    matches!(kind, 130..=137 | 141..=143 | 148 | 149)
}

/// Checks whether an error of this type has the length attribute of RFC 4884.
#[inline]
pub const fn has_length(kind: u8) -> bool {
    matches!(kind, UNREACHABLE | TIME_EXCEEDED)
}

/// Recomputes the checksum of the message at `at` in `packet`, which begins with its IPv6 header.
pub fn set_checksum(packet: &mut [u8], at: usize) {
    let Some((ip, icmp)) = packet.split_at_mut_checked(at) else { return };
    let addresses = ip.get(super::ipv6::ADDRESSES..super::ipv6::LEN).unwrap_or_default();
    super::put16(icmp, CHECKSUM, 0);
    let pseudo = checksum::pseudo(addresses, icmp.len() as u32, proto::ICMPV6);
    super::put16(icmp, CHECKSUM, !checksum::add(pseudo, checksum::sum(icmp)));
}
