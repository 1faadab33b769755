//! Ports, identifiers and checksums of transport headers: code shared by both directions and by quoted
//! packets.
//!
//! Checksums change only by difference, so a wrong one stays wrong by the same amount. A header that a
//! quotation cut off is changed as far as it is present.

use super::Ports;
use crate::checksum::{self, Delta};
use crate::hdr::{get16, icmpv4, put16, tcp, udp};
use crate::{DropReason, L4};

/// Rewrites the transport header at the beginning of `bytes` for new addresses and ports. For echo messages,
/// see [`rewrite_echo`].
#[inline(always)]
pub(crate) fn rewrite(bytes: &mut [u8], l4: L4, ports: Ports, addresses: Delta, partial: Option<usize>) {
    match l4 {
        L4::Tcp { src_port, dst_port, .. } => {
            let ports = set_ports(bytes, src_port, dst_port, ports);
            if let Some(h) = bytes.first_chunk_mut::<{ tcp::CHECKSUM + 2 }>() {
                let field = u16::from_be_bytes([h[16], h[17]]);
                [h[16], h[17]] = match partial {
                    None => !sum_after(field, addresses, ports),
                    Some(_) => addresses.apply_partial(field),
                }
                .to_be_bytes();
            }
        }
        L4::Udp { src_port, dst_port, no_checksum } => {
            let ports = set_ports(bytes, src_port, dst_port, ports);
            if let Some(h) = bytes.first_chunk_mut::<{ udp::LEN }>() {
                let field = u16::from_be_bytes([h[6], h[7]]);
                [h[6], h[7]] = match partial {
                    None if no_checksum => field, // RFC 768: there is none to adjust
                    None => match !sum_after(field, addresses, ports) {
                        0 => 0xffff, // zero would mean that there is none
                        field => field,
                    },
                    Some(_) => addresses.apply_partial(field),
                }
                .to_be_bytes();
            }
        }
        // The device sums this protocol's pseudo-header too, whatever the protocol.
        L4::Other => {
            if let Some(at) = partial {
                update(bytes, at, |field| addresses.apply_partial(field));
            }
        }
        L4::Echo { .. } | L4::IcmpError { .. } | L4::IcmpOther { .. } | L4::LaterFragment => {}
    }
}

/// Sum of the bytes under a checksum after both changes (RFC 1624), folded once.
#[inline]
fn sum_after(field: u16, addresses: Delta, ports: u32) -> u16 {
    checksum::fold32(u32::from(!field) + u32::from(addresses.0) + ports) // below 6 * 65,536
}

/// Changes an echo message to type `kind`. `pseudo` is the change by the pseudo-header, which only ICMPv6
/// has: its sum if it is added, the inverse if it is removed.
#[inline]
pub(crate) fn rewrite_echo(bytes: &mut [u8], kind: u8, id: u16, ports: Ports, pseudo: Delta) {
    let Some(head) = bytes.first_chunk_mut::<8>() else { return };
    let new_id = match ports {
        Ports::EchoId(new) | Ports::EchoPiece { id: new, .. } => new,
        _ => id,
    };
    let types = Delta::of(u16::from(head[0]) << 8, u16::from(kind) << 8);
    let delta = pseudo.plus(types).plus(Delta::of(id, new_id));
    head[0] = kind;
    put16(head, icmpv4::ECHO_ID, new_id);
    update(head, icmpv4::CHECKSUM, |field| delta.apply(field));
    icmpv4::sum_of_nothing(bytes);
}

/// Computes the checksum of a UDP datagram that had none (RFC 7915 4.5). `pseudo_addresses` is the sum of
/// both addresses.
pub(super) fn compute_udp(bytes: &mut [u8], pseudo_addresses: u16) {
    let Ok(len) = udp_len(bytes) else { return };
    let Some(datagram) = bytes.get_mut(..usize::from(len)) else { return };
    put16(datagram, udp::CHECKSUM, 0);
    let pseudo = checksum::pseudo(&[], u32::from(len), crate::proto::UDP);
    let sum = !checksum::add(checksum::add(pseudo_addresses, pseudo), checksum::sum(datagram));
    put16(datagram, udp::CHECKSUM, if sum == 0 { 0xffff } else { sum });
}

/// Length field of a UDP datagram.
///
/// # Errors
/// `bad_len` if it is shorter than its header or longer than `bytes`.
pub(super) fn udp_len(bytes: &[u8]) -> Result<u16, DropReason> {
    let len = get16(bytes, udp::LENGTH).ok_or(DropReason::L4Truncated)?;
    if usize::from(len) < udp::LEN || usize::from(len) > bytes.len() {
        return Err(DropReason::BadLength);
    }
    Ok(len)
}

/// Writes the ports and returns the change of a sum, not folded.
#[inline]
fn set_ports(bytes: &mut [u8], old_src: u16, old_dst: u16, ports: Ports) -> u32 {
    let Ports::Set { src, dst } = ports else { return 0 };
    if let Some(field) = bytes.first_chunk_mut::<4>() {
        *field = (u32::from(src) << 16 | u32::from(dst)).to_be_bytes();
    }
    u32::from(!old_src) + u32::from(!old_dst) + u32::from(src) + u32::from(dst)
}

#[inline]
fn update(bytes: &mut [u8], at: usize, change: impl FnOnce(u16) -> u16) {
    if let Some(field) = bytes.get_mut(at..).and_then(|b| b.first_chunk_mut::<2>()) {
        *field = change(u16::from_be_bytes(*field)).to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_reply_of_zeroes_has_a_checksum() {
        // An ICMPv6 reply whose identifier, number and data are zero. The sum of its pseudo-header is 0x1234.
        let mut reply = [129, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let sum = !checksum::add(checksum::sum(&reply), 0x1234);
        put16(&mut reply, icmpv4::CHECKSUM, sum);
        rewrite_echo(&mut reply, icmpv4::ECHO_REPLY, 0, Ports::EchoId(0), Delta(0x1234).inverse());
        assert_eq!(reply, [0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0]);
    }
}
