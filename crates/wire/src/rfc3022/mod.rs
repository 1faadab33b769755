//! RFC 3022 4: IPv4 to IPv4, in place. The caller decides on addresses, ports and identification. The rest of
//! the packet stays unchanged, except for the TTL, which decreases by one (RFC 1812 5.3.1).
//!
//! Nothing moves, and no sum is recomputed: header and transport checksums change by difference (RFC 3022
//! 4.2), so a wrong transport checksum stays wrong by the same amount. Options stay (RFC 5508 REQ-3 only
//! requires that options of quoted packets are skipped).

pub mod icmp_error;

use crate::checksum::{Delta, fold};
use crate::hdr::{icmpv4, ipv4, put16};
use crate::rfc7915::{Ports, Whole, mtu, transport};
use crate::{DropReason, Ipv4View, L4, Packet, mss, proto};
use core::net::Ipv4Addr;

/// New addresses and ports of an IPv4 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rewrite {
    /// Source.
    pub src: Ipv4Addr,
    /// Destination.
    pub dst: Ipv4Addr,
    /// Ports.
    pub ports: Ports,
    /// New identification, or `None` to keep the old one. Many hosts share one address after translation,
    /// and that address must not repeat identifications (RFC 6864 5.3.1).
    pub id: Option<u16>,
    /// Change of a checksum that covers the two addresses: see [`address_delta`].
    pub addresses: Delta,
}

/// Delta of replacing one pair of addresses (source, destination) by another.
#[inline]
pub fn address_delta(from: (Ipv4Addr, Ipv4Addr), to: (Ipv4Addr, Ipv4Addr)) -> Delta {
    let sum = |pair: (Ipv4Addr, Ipv4Addr)| fold(u64::from(u32::from(pair.0)) + u64::from(u32::from(pair.1)));
    Delta::of(sum(from), sum(to))
}

impl Rewrite {
    /// Rewrite of a packet from `from.0` to `from.1`. Its identification stays.
    #[inline]
    pub fn new(from: (Ipv4Addr, Ipv4Addr), to: (Ipv4Addr, Ipv4Addr), ports: Ports) -> Self {
        Rewrite { src: to.0, dst: to.1, ports, id: None, addresses: address_delta(from, to) }
    }
}

/// Link on which a packet is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// MTU in bytes.
    pub mtu: u32,
    /// Largest segment size that a SYN may announce, bytes. Larger values are lowered to it.
    pub mss_max: u16,
}

/// Rewrites the packet in place.
///
/// # Errors
/// The packet is unchanged after an error:
///
/// - `ttl`, `v4_opt_srcroute`, `v6_ah`;
/// - `too_big4` for a packet with DF above the MTU;
/// - `icmp_unknown_type` for ICMP errors (see [`icmp_error`]) and other messages that are not echo messages;
/// - `mtu_unfragmentable` for a super-packet of datagrams, which [`crate::segment`] has to cut first.
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
    let partial = packet.offload.partial_field(l4_at)?;

    packet.replace_header(l4_at, l4_at, l4_len)?; // cuts off padding
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

/// Checks for headers that are never forwarded, whatever the packet carries.
fn check_header(packet: &[u8], view: &Ipv4View) -> Result<(), DropReason> {
    if usize::from(view.l4_offset) > ipv4::LEN && view.has_source_route(packet) {
        return Err(DropReason::SourceRoute); // nobody translates the addresses of the route's hops
    }
    if view.ttl <= 1 {
        return Err(DropReason::TtlExceeded);
    }
    Ok(())
}

/// Writes addresses and identification, decrements the TTL and updates the checksum by the differences.
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

/// Rewrites the transport header as far as it is present.
fn rewrite_transport(bytes: &mut [u8], l4: L4, to: &Rewrite, partial: Option<usize>) {
    match l4 {
        L4::Echo { request, id } => {
            let kind = if request { icmpv4::ECHO_REQUEST } else { icmpv4::ECHO_REPLY };
            transport::rewrite_echo(bytes, kind, id, to.ports, Delta::default());
        }
        _ => transport::rewrite(bytes, l4, to.ports, to.addresses, partial),
    }
}
