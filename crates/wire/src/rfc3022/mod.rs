//! RFC 3022 4: IPv4 to IPv4, in place. Addresses, ports and identification are the caller's decision; the
//! rest of the packet stays as it is, but for the TTL, which falls by one (RFC 1812 5.3.1).
//!
//! Nothing moves and nothing is summed anew: header and transport checksums change by difference
//! (RFC 3022 4.2), so that a wrong transport checksum leaves equally wrong. Options stay (RFC 5508 REQ-3
//! wants those of quoted packets stepped over, no more).

pub mod icmp_error;

use crate::checksum::{Delta, fold};
use crate::hdr::{icmpv4, ipv4, put16};
use crate::rfc7915::{Ports, Whole, mtu, transport};
use crate::{DropReason, Ipv4View, L4, Packet, mss, proto};
use core::net::Ipv4Addr;

/// The addresses and ports that an IPv4 packet gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rewrite {
    /// Source.
    pub src: Ipv4Addr,
    /// Destination.
    pub dst: Ipv4Addr,
    /// Ports.
    pub ports: Ports,
    /// A new identification: many hosts' become one's, and that one may not repeat them (RFC 6864 5.3.1).
    /// `None` keeps the old one.
    pub id: Option<u16>,
    /// What the change of the two addresses does to a checksum that covers them: see [`address_delta`].
    pub addresses: Delta,
}

/// The delta of replacing one pair of addresses (source, destination) by another.
#[inline]
pub fn address_delta(from: (Ipv4Addr, Ipv4Addr), to: (Ipv4Addr, Ipv4Addr)) -> Delta {
    let sum = |pair: (Ipv4Addr, Ipv4Addr)| fold(u64::from(u32::from(pair.0)) + u64::from(u32::from(pair.1)));
    Delta::of(sum(from), sum(to))
}

impl Rewrite {
    /// For a packet from `from.0` to `from.1`; its identification stays.
    #[inline]
    pub fn new(from: (Ipv4Addr, Ipv4Addr), to: (Ipv4Addr, Ipv4Addr), ports: Ports) -> Self {
        Rewrite { src: to.0, dst: to.1, ports, id: None, addresses: address_delta(from, to) }
    }
}

/// The link that a packet leaves by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its MTU, bytes.
    pub mtu: u32,
    /// The largest segment size that a SYN may announce, bytes; a larger one is lowered to it.
    pub mss_max: u16,
}

/// Rewrites the packet, in place.
///
/// # Errors
/// `ttl`, `v4_opt_srcroute`, `v6_ah`, `too_big4` for a packet with DF above the MTU, `icmp_unknown_type`
/// for ICMP errors ([`icmp_error`] is for them) and what else is no echo message, `mtu_unfragmentable` for a
/// super-packet of datagrams that has to be cut by [`crate::rfc7915::segment`] first. The packet is
/// unchanged then.
#[inline]
pub fn translate(
    packet: &mut Packet<'_>,
    view: &Ipv4View,
    l4: L4,
    to: &Rewrite,
    link: Link,
) -> Result<Whole, DropReason> {
    match l4 {
        L4::IcmpError { .. } | L4::IcmpOther { .. } => return Err(DropReason::IcmpUnknownType),
        L4::Other if view.proto == proto::AH => return Err(DropReason::AuthenticationHeader),
        _ => {}
    }
    check_header(packet.bytes(), view)?;
    let l4_at = usize::from(view.l4_offset);
    let l4_len = (view.total_len as usize).checked_sub(l4_at).ok_or(DropReason::BadLength)?;
    let fit = mtu::fit_4to4(view, l4, packet, link.mtu)?;
    let partial = transport::partial_field(&packet.offload, l4_at)?;

    packet.replace_header(l4_at, l4_at, l4_len)?; // cuts padding off
    fit.shrink_segments(&mut packet.offload);
    mss::clamp(packet, l4_at, l4, link.mss_max, partial.is_some());
    if matches!(l4, L4::Echo { .. }) {
        packet.complete_checksum();
    }
    if let Some((header, rest)) = packet.bytes_mut().split_at_mut_checked(l4_at) {
        rewrite_header(header, to);
        rewrite_transport(rest, l4, to, partial);
    }
    if fit.whole != Whole::Yes {
        packet.complete_checksum();
    }
    Ok(fit.whole)
}

/// Why a packet is not forwarded whatever it carries.
fn check_header(packet: &[u8], view: &Ipv4View) -> Result<(), DropReason> {
    if usize::from(view.l4_offset) > ipv4::LEN && view.has_source_route(packet) {
        return Err(DropReason::SourceRoute); // the route's hops are addresses that nobody translates
    }
    if view.ttl <= 1 {
        return Err(DropReason::TtlExceeded);
    }
    Ok(())
}

/// Writes addresses, identification and the TTL less one, and updates the checksum by what that changes.
#[inline(always)]
pub(crate) fn rewrite_header(header: &mut [u8], to: &Rewrite) {
    let Some(h) = header.first_chunk_mut::<{ ipv4::LEN }>() else { return };
    let old_id = u16::from_be_bytes([h[ipv4::ID], h[ipv4::ID + 1]]);
    let id = to.id.unwrap_or(old_id);
    let ttl = h[ipv4::TTL].saturating_sub(1);
    let delta = to
        .addresses
        .plus(Delta::of(old_id, id))
        .plus(Delta::of(u16::from(h[ipv4::TTL]) << 8, u16::from(ttl) << 8));
    let checksum = delta.apply(u16::from_be_bytes([h[ipv4::CHECKSUM], h[ipv4::CHECKSUM + 1]]));
    put16(h, ipv4::ID, id);
    h[ipv4::TTL] = ttl;
    put16(h, ipv4::CHECKSUM, checksum);
    write_addresses(h, to);
}

#[inline(always)]
fn write_addresses(header: &mut [u8; ipv4::LEN], to: &Rewrite) {
    let pair = u64::from(u32::from(to.src)) << 32 | u64::from(u32::from(to.dst));
    if let Some(place) = header.last_chunk_mut() {
        *place = pair.to_be_bytes();
    }
}

/// Rewrites the transport header as far as it is there.
fn rewrite_transport(bytes: &mut [u8], l4: L4, to: &Rewrite, partial: Option<usize>) {
    match l4 {
        L4::Echo { request, id } => {
            let kind = if request { icmpv4::ECHO_REQUEST } else { icmpv4::ECHO_REPLY };
            transport::rewrite_echo(bytes, kind, id, to.ports, Delta::default());
        }
        _ => transport::rewrite(bytes, l4, to.ports, to.addresses, partial),
    }
}
