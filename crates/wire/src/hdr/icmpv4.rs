//! ICMPv4 (RFC 792): types, codes and fields by name.
#![allow(missing_docs)]

use crate::checksum;

pub const LEN: usize = 8;
pub const CHECKSUM: usize = 2;
pub const ECHO_ID: usize = 4;
/// Offset of the length of the original datagram in 32-bit words (RFC 4884 4.1).
pub const EXT_LENGTH: usize = 5;

pub const ECHO_REPLY: u8 = 0;
pub const UNREACHABLE: u8 = 3;
pub const SOURCE_QUENCH: u8 = 4;
pub const REDIRECT: u8 = 5;
pub const ECHO_REQUEST: u8 = 8;
pub const ROUTER_ADVERTISEMENT: u8 = 9;
pub const ROUTER_SOLICITATION: u8 = 10;
pub const TIME_EXCEEDED: u8 = 11;
pub const PARAMETER_PROBLEM: u8 = 12;

/// Codes of Destination Unreachable.
pub mod unreachable {
    pub const HOST: u8 = 1;
    pub const PROTOCOL: u8 = 2;
    pub const PORT: u8 = 3;
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    pub const SOURCE_ROUTE_FAILED: u8 = 5;
    pub const HOST_PROHIBITED: u8 = 10;
    pub const ADMIN_PROHIBITED: u8 = 13;
}

/// Checks whether a message of this type quotes a packet. An ICMP error must not be answered with another
/// error.
#[inline]
pub const fn is_error(kind: u8) -> bool {
    matches!(kind, UNREACHABLE | SOURCE_QUENCH | REDIRECT | TIME_EXCEEDED | PARAMETER_PROBLEM)
}

/// Checks whether a message of this type is limited to one link (RFC 7915 4.2).
#[inline]
pub const fn is_single_hop(kind: u8) -> bool {
    matches!(kind, REDIRECT | ROUTER_ADVERTISEMENT | ROUTER_SOLICITATION)
}

/// Recomputes the checksum of the message at `at` in `packet`.
pub fn set_checksum(packet: &mut [u8], at: usize) {
    let Some(icmp) = packet.get_mut(at..) else { return };
    super::put16(icmp, CHECKSUM, 0);
    let sum = checksum::sum(icmp);
    super::put16(icmp, CHECKSUM, !sum);
}

/// Sets the checksum of an all-zero message to 0xffff. Updates by difference leave the other zero there
/// (RFC 1624 3), which no receiver accepts.
#[inline]
pub(crate) fn sum_of_nothing(message: &mut [u8]) {
    if message.iter().all(|b| *b == 0) {
        super::put16(message, CHECKSUM, 0xffff);
    }
}
