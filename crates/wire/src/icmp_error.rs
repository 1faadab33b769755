//! ICMP messages that the translator makes itself: errors about a packet, and echo replies.
//! They are built in the packet's own buffer.

use crate::{DropReason, Ipv4View, Ipv6View, L4, Packet};
use core::net::{Ipv4Addr, Ipv6Addr};

/// An ICMP error to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// The second word: an MTU, a pointer (ICMPv4 12/0: in its first byte), or zero.
    pub word: u32,
}

/// Whether RFC 4443 2.4 (e) lets an error answer this packet: no ICMP error, no multicast
/// (but Packet Too Big and Parameter Problem 2 may), no source that names nobody.
pub fn may_answer6(_view: &Ipv6View, _l4: L4) -> bool {
    false
}

/// Whether RFC 1812 4.3.2.7 lets an error answer this packet.
pub fn may_answer4(_view: &Ipv4View, _l4: L4) -> bool {
    false
}

/// Makes the packet an ICMPv6 error from `src` to its sender, quoting as much of it as fits 1280 bytes.
///
/// # Errors
/// `no_headroom`; the packet is unchanged then.
pub fn error6(_packet: &mut Packet<'_>, _src: Ipv6Addr, _message: Message) -> Result<(), DropReason> {
    Err(DropReason::NoHeadroom)
}

/// Makes the packet an ICMPv4 error from `src` to its sender, quoting as much of it as fits `max` bytes.
///
/// # Errors
/// `no_headroom`; the packet is unchanged then.
pub fn error4(
    _packet: &mut Packet<'_>,
    _src: Ipv4Addr,
    _message: Message,
    _id: u16,
    _max: u16,
) -> Result<(), DropReason> {
    Err(DropReason::NoHeadroom)
}

/// Makes an echo request its reply, addresses swapped, TTL 64.
///
/// # Errors
/// `bad_l4csum`; the packet is unchanged then.
pub fn echo_reply6(_packet: &mut Packet<'_>, _view: &Ipv6View) -> Result<(), DropReason> {
    Err(DropReason::BadL4Checksum)
}

/// As [`echo_reply6`].
///
/// # Errors
/// `bad_l4csum`; the packet is unchanged then.
pub fn echo_reply4(_packet: &mut Packet<'_>, _view: &Ipv4View) -> Result<(), DropReason> {
    Err(DropReason::BadL4Checksum)
}
