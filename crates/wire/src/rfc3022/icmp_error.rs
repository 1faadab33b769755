//! ICMPv4 errors (RFC 3022 4.3, RFC 5508 4). The quoted packet is rewritten as far as it was quoted. Type,
//! code and second word of the error stay. Sizes do not change, so MTU values stay valid and extensions (RFC
//! 4884) stay in place.

use super::{Rewrite, check_header, rewrite_header, rewrite_transport, write_addresses};
use crate::checksum::{self, Delta};
use crate::hdr::{get16, icmpv4, ipv4, put16};
use crate::rfc7915::icmp_4to6::{self, Embedded4};
use crate::rfc7915::{Whole, mtu};
use crate::{DropReason, Ipv4View, L4, Packet};

/// Largest part of a quoted transport header that is changed: up to the urgent pointer of TCP.
const TRANSPORT_MAX: usize = 20;

/// Reads the packet quoted in an ICMPv4 error. Verifies the checksums of the error and of the quoted IPv4
/// header, but no transport checksum (RFC 5508 REQ-3). Accepts the errors that hosts act on according to RFC
/// 5508 REQ-10 and RFC 792: Destination Unreachable, Time Exceeded, Parameter Problem.
///
/// # Errors
/// `icmp_unknown_type` (also for Source Quench: RFC 6633), `icmp_single_hop` (Redirect), `frag_icmp`,
/// `bad_l4csum`,
/// `bad_l3csum`, `icmp_inner_short`, `icmp_double_error`, `icmp_inner_untranslatable`, `icmp_ext_bad`.
pub fn embedded(packet: &[u8], view: &Ipv4View) -> Result<Embedded4, DropReason> {
    let kind = icmp_4to6::message(packet, view)?.first().copied().ok_or(DropReason::L4Truncated)?;
    match kind {
        icmpv4::UNREACHABLE | icmpv4::TIME_EXCEEDED | icmpv4::PARAMETER_PROBLEM => {}
        kind if icmpv4::is_single_hop(kind) => return Err(DropReason::IcmpSingleHop),
        _ => return Err(DropReason::IcmpUnknownType),
    }
    icmp_4to6::quoted(packet, view)
}

/// Rewrites the error by `outer`, whose ports are ignored, and the quoted packet by `inner`, whose
/// identification stays: the original one of the inside host is no longer known. `mtu` is as in
/// [`super::translate`].
///
/// # Errors
/// `ttl`, `v4_opt_srcroute`, `too_big4`. The packet is unchanged then.
pub fn translate(
    packet: &mut Packet<'_>,
    view: &Ipv4View,
    embedded: &Embedded4,
    outer: &Rewrite,
    inner: &Rewrite,
    mtu: u32,
) -> Result<Whole, DropReason> {
    check_header(packet.bytes(), view)?;
    let icmp_at = usize::from(view.l4_offset);
    let icmp_len = icmp_4to6::message(packet.bytes(), view)?.len();
    let quoted_len = icmp_4to6::quoted_len(packet.bytes(), view, embedded)?;
    let fit = mtu::fit_4to4(view, L4::Other, packet, mtu)?;

    packet.replace_header(icmp_at, icmp_at, icmp_len)?;
    if let Some((header, icmp)) = packet.bytes_mut().split_at_mut_checked(icmp_at) {
        rewrite_header(header, outer);
        let quoted = icmp.get_mut(icmpv4::LEN..icmpv4::LEN + quoted_len).unwrap_or_default();
        let delta = rewrite_quoted(quoted, embedded, inner);
        if let Some(field) = get16(icmp, icmpv4::CHECKSUM) {
            put16(icmp, icmpv4::CHECKSUM, delta.apply(field));
        }
    }
    Ok(fit.whole)
}

/// Rewrites the quoted packet and returns the change of its sum.
fn rewrite_quoted(quoted: &mut [u8], embedded: &Embedded4, to: &Rewrite) -> Delta {
    let l4_at = usize::from(embedded.view.l4_offset);
    let end = quoted.len().min(l4_at + TRANSPORT_MAX);
    let Some(changed) = quoted.get_mut(..end) else { return Delta::default() };
    let before = checksum::sum(changed);
    if let Some((header, rest)) = changed.split_at_mut_checked(l4_at) {
        if let Some(h) = header.first_chunk_mut::<{ ipv4::LEN }>() {
            let field = get16(h, ipv4::CHECKSUM).unwrap_or(0);
            put16(h, ipv4::CHECKSUM, to.addresses.apply(field));
            write_addresses(h, to);
        }
        rewrite_transport(rest, embedded.l4, to, None);
    }
    Delta::of(before, checksum::sum(changed))
}
