//! Ping: answers echo requests to the ports' own addresses, in place.

use crate::Dropped;
use crate::address::{is_host4, is_host6};
use crate::bytes::{array, put, v4, v6};
use crate::ndp::sum_is_right;
use gatun_wire::checksum::{self, Delta};
use gatun_wire::hdr::{get16, icmpv4, icmpv6, ipv4, ipv6, put16};
use gatun_wire::proto;

/// TTL and hop limit of replies.
const TTL: u8 = 64;
const PROTOCOL: usize = 9;
/// First byte of an IPv4 header without options.
const VERSION_IHL: u8 = 0x45;

/// Checks whether an IPv4 packet is an echo request that is answered here: whole, without options.
pub(crate) fn is_request4(packet: &[u8]) -> bool {
    let whole = get16(packet, ipv4::FLAGS).is_some_and(|f| f & (ipv4::MF | ipv4::OFFSET_MASK) == 0);
    whole
        && packet.first() == Some(&VERSION_IHL)
        && packet.get(PROTOCOL) == Some(&proto::ICMP)
        && packet.get(ipv4::LEN) == Some(&icmpv4::ECHO_REQUEST)
}

/// Turns the request into its reply (RFC 792, RFC 1122 3.2.2.6).
///
/// # Errors
/// Returns an error if the request is malformed. It is unchanged then.
pub(crate) fn answer4(packet: &mut [u8]) -> Result<(), Dropped> {
    let malformed = Dropped::EchoMalformed;
    let head: [u8; ipv4::LEN] = array(packet, 0).ok_or(malformed)?;
    let len = get16(&head, ipv4::TOTAL_LEN).map_or(0, usize::from);
    let packet = packet.get_mut(..len).ok_or(malformed)?;
    let message = packet.get(ipv4::LEN..).ok_or(malformed)?;
    let (src, dst) = (v4(&head, 12).ok_or(malformed)?, v4(&head, 16).ok_or(malformed)?);
    let right = ipv4::sum_is_right(&head) && message.len() >= icmpv4::LEN && checksum::sum(message) == 0xffff;
    // A reply must not go to a group, to nobody or to ourselves (RFC 1122 3.2.1.3).
    if !right || !is_host4(src) || src == dst || message.get(1) != Some(&0) {
        return Err(malformed);
    }
    let field = get16(message, icmpv4::CHECKSUM).unwrap_or(0);
    let changed = Delta::of(u16::from(icmpv4::ECHO_REQUEST) << 8, u16::from(icmpv4::ECHO_REPLY) << 8);
    put(packet, ipv4::TTL, &[TTL]);
    put(packet, 12, &dst.octets());
    put(packet, 16, &src.octets());
    ipv4::set_checksum(packet.get_mut(..ipv4::LEN).unwrap_or_default());
    put(packet, ipv4::LEN, &[icmpv4::ECHO_REPLY]);
    put16(packet, ipv4::LEN + icmpv4::CHECKSUM, changed.apply(field));
    Ok(())
}

/// Checks whether an IPv6 packet is an echo request directly after the header.
pub(crate) fn is_request6(packet: &[u8]) -> bool {
    packet.get(ipv6::NEXT_HEADER) == Some(&proto::ICMPV6)
        && packet.get(ipv6::LEN) == Some(&icmpv6::ECHO_REQUEST)
}

/// Turns the request into its reply (RFC 4443 4.2).
///
/// # Errors
/// Returns an error if the request is malformed. It is unchanged then.
pub(crate) fn answer6(packet: &mut [u8]) -> Result<(), Dropped> {
    let malformed = Dropped::EchoMalformed;
    let head: [u8; ipv6::LEN] = array(packet, 0).ok_or(malformed)?;
    let len = get16(&head, ipv6::PAYLOAD_LEN).map_or(0, usize::from);
    let message = packet.get(ipv6::LEN..).and_then(|m| m.get(..len)).ok_or(malformed)?;
    let (src, dst) = (v6(&head, 8).ok_or(malformed)?, v6(&head, 24).ok_or(malformed)?);
    let right = message.len() >= icmpv6::LEN && sum_is_right(&head, message);
    if !right || !is_host6(src) || src == dst || message.get(1) != Some(&0) {
        return Err(malformed);
    }
    let field = get16(message, icmpv6::CHECKSUM).unwrap_or(0);
    let changed = Delta::of(u16::from(icmpv6::ECHO_REQUEST) << 8, u16::from(icmpv6::ECHO_REPLY) << 8);
    put(packet, 7, &[TTL]);
    put(packet, 8, &dst.octets());
    put(packet, 24, &src.octets());
    put(packet, ipv6::LEN, &[icmpv6::ECHO_REPLY]);
    // Swapping the two addresses does not change their sum.
    put16(packet, ipv6::LEN + icmpv6::CHECKSUM, changed.apply(field));
    Ok(())
}
