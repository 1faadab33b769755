//! Views of packet headers: small `Copy` structs, made once per packet.
//!
//! Offsets are in bytes from the packet's first byte. A view does not mean that the addresses are legal. It
//! means that the headers are consistent and lie inside the packet.

use crate::hdr::fragment::{self, FragmentInfo};
use crate::hdr::{icmpv4, icmpv6, ipv4, ipv6, tcp};
use crate::{DropReason, checksum, proto};
use core::net::{Ipv4Addr, Ipv6Addr};

/// Largest number of extension headers before the transport header. A packet with more is dropped.
pub const EXTENSION_HEADERS_MAX: usize = 16;

/// Bytes of transport header that an ICMP error must quote after the IP header (RFC 792).
const QUOTED_MIN: u32 = 8;

/// Fields of an IPv4 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4View {
    /// Source.
    pub src: Ipv4Addr,
    /// Destination.
    pub dst: Ipv4Addr,
    /// Type of service, all eight bits.
    pub tos: u8,
    /// Time to live.
    pub ttl: u8,
    /// Protocol.
    pub proto: u8,
    /// Don't Fragment.
    pub dont_fragment: bool,
    /// Identification.
    pub id: u16,
    /// Total Length. Padding after it is not part of the packet. For a segmented super-packet, this is the
    /// true length, because a device may leave the 16-bit field short.
    pub total_len: u32,
    /// Header length including options: the offset of the transport header.
    pub l4_offset: u16,
    /// Fragment information, if More Fragments is set or the offset is not zero.
    pub fragment: Option<FragmentInfo>,
}

/// Fields of an IPv6 header and of the extension headers before the transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6View {
    /// Source.
    pub src: Ipv6Addr,
    /// Destination.
    pub dst: Ipv6Addr,
    /// Traffic class, all eight bits.
    pub traffic_class: u8,
    /// Flow label.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// First protocol that is not an extension header skipped by the translator (RFC 7915 5.1).
    pub proto: u8,
    /// 40 + Payload Length. Bytes after it are not part of the packet.
    pub total_len: u32,
    /// Offset of the transport header.
    pub l4_offset: u16,
    /// Offset of the Next Header byte that named `proto`: the pointer of ICMPv6 4/1.
    pub next_header_at: u16,
    /// Fragment header, if present, including an atomic one.
    pub fragment: Option<FragmentInfo>,
}

/// Fields of the transport header that translation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum L4 {
    /// TCP.
    Tcp {
        /// Source port.
        src_port: u16,
        /// Destination port.
        dst_port: u16,
        /// The flags byte (FIN 1, SYN 2, RST 4, ACK 16).
        flags: u8,
    },
    /// UDP.
    Udp {
        /// Source port.
        src_port: u16,
        /// Destination port.
        dst_port: u16,
        /// The checksum field is zero.
        no_checksum: bool,
    },
    /// Echo request or reply of the address family's own ICMP.
    Echo {
        /// Request if true, reply if false.
        request: bool,
        /// Identifier.
        id: u16,
    },
    /// ICMP error of the address family's own ICMP. It quotes a packet.
    IcmpError {
        /// Type.
        kind: u8,
        /// Code.
        code: u8,
    },
    /// Any other ICMP message of the family's own ICMP.
    IcmpOther {
        /// Type.
        kind: u8,
    },
    /// Fragment other than the first, without a transport header.
    LaterFragment,
    /// Any other protocol.
    Other,
}

impl Ipv4View {
    /// Reads an IPv4 header and checks its lengths and its checksum.
    ///
    /// # Errors
    /// `short_l3`, `bad_version`, `bad_hlen`, `bad_len`, `bad_l3csum`.
    #[inline(always)]
    pub fn parse(packet: &[u8]) -> Result<Self, DropReason> {
        let view = Self::read(packet)?;
        if view.total_len as usize > packet.len() {
            return Err(DropReason::BadLength);
        }
        if !view.header_sum_is_right(packet) {
            return Err(DropReason::BadL3Checksum); // RFC 7915 4.1: dropped silently
        }
        if let Some(f) = view.fragment {
            check_fragment(f, view.total_len - u32::from(view.l4_offset))?;
        }
        Ok(view)
    }

    /// Reads the header of a packet quoted in an ICMP error. The quoted packet may be cut off after the IP
    /// header and eight bytes. Its Total Length is the original one. RFC 7915 does not require a right header
    /// checksum, but RFC 5508 REQ-3 does (`check`).
    ///
    /// # Errors
    /// `icmp_inner_short` if there are fewer bytes than the IP header + 8 (or the whole packet, if it was
    /// shorter), and the errors of [`parse`](Self::parse).
    pub fn parse_inner(packet: &[u8], check: bool) -> Result<Self, DropReason> {
        let view = Self::read(packet).map_err(short_is_inner_short)?;
        let payload = view.total_len - u32::from(view.l4_offset);
        inner_is_long_enough(packet, view.l4_offset, payload)?;
        if check && !view.header_sum_is_right(packet) {
            return Err(DropReason::BadL3Checksum);
        }
        Ok(view)
    }

    /// Reads the transport header.
    ///
    /// # Errors
    /// `l4_truncated`, or `frag_tiny` for a first fragment.
    #[inline]
    pub fn l4(&self, packet: &[u8]) -> Result<L4, DropReason> {
        if self.fragment.is_some_and(|f| !f.is_first()) {
            return Ok(L4::LaterFragment);
        }
        let l4 = packet.get(usize::from(self.l4_offset)..self.total_len as usize).unwrap_or_default();
        transport(l4, self.proto, proto::ICMP, icmp4).ok_or_else(|| too_short(self.fragment))
    }

    /// Reads the transport header of a packet quoted in an ICMP error. Eight bytes are enough. TCP flags that
    /// were cut off are zero.
    ///
    /// # Errors
    /// `icmp_inner_short`.
    pub fn l4_inner(&self, packet: &[u8]) -> Result<L4, DropReason> {
        let l4 = packet.get(usize::from(self.l4_offset)..).unwrap_or_default();
        transport_inner(l4, self.fragment, self.proto, proto::ICMP, icmp4)
    }

    /// Checks whether a strict or loose source route option has hops left (RFC 7915 4.1).
    pub fn has_source_route(&self, packet: &[u8]) -> bool {
        const END: u8 = 0;
        const NOP: u8 = 1;
        const LSRR: u8 = 131;
        const SSRR: u8 = 137;
        let mut rest = packet.get(ipv4::LEN..usize::from(self.l4_offset)).unwrap_or_default();
        // The options have at most 40 bytes, and each turn consumes one or more. A malformed option ends the
        // walk: a router would not follow a route after it either.
        while let [kind, tail @ ..] = rest {
            match (*kind, tail) {
                (END, _) => return false,
                (NOP, _) => rest = tail,
                (LSRR | SSRR, [len, pointer, ..]) if pointer <= len => return true,
                (_, [len, ..]) if *len >= 2 => rest = rest.get(usize::from(*len)..).unwrap_or_default(),
                _ => return false,
            }
        }
        false
    }

    /// Reads the fields and checks that they are consistent. Does not check the packet's end.
    #[inline]
    fn read(packet: &[u8]) -> Result<Self, DropReason> {
        let h = packet.first_chunk::<{ ipv4::LEN }>().ok_or(DropReason::ShortL3)?;
        if h[0] >> 4 != 4 {
            return Err(DropReason::BadVersion);
        }
        let l4_offset = u16::from(h[0] & 0xf) * 4;
        if l4_offset < 20 || usize::from(l4_offset) > packet.len() {
            return Err(DropReason::BadHeaderLength);
        }
        let total_len = u32::from(u16::from_be_bytes([h[2], h[3]]));
        if total_len < u32::from(l4_offset) {
            return Err(DropReason::BadLength);
        }
        let id = u16::from_be_bytes([h[4], h[5]]);
        let flags = u16::from_be_bytes([h[6], h[7]]);
        let fragment = (flags & (ipv4::MF | ipv4::OFFSET_MASK) != 0).then_some(FragmentInfo {
            offset: flags << 3,
            more: flags & ipv4::MF != 0,
            id: u32::from(id),
        });
        Ok(Ipv4View {
            src: Ipv4Addr::from([h[12], h[13], h[14], h[15]]),
            dst: Ipv4Addr::from([h[16], h[17], h[18], h[19]]),
            tos: h[1],
            ttl: h[8],
            proto: h[9],
            dont_fragment: flags & ipv4::DF != 0,
            id,
            total_len,
            l4_offset,
            fragment,
        })
    }

    #[inline]
    fn header_sum_is_right(&self, packet: &[u8]) -> bool {
        match (self.l4_offset, packet.first_chunk::<{ ipv4::LEN }>()) {
            (20, Some(header)) => ipv4::sum_is_right(header),
            (len, _) => checksum::sum(packet.get(..usize::from(len)).unwrap_or_default()) == 0xffff,
        }
    }
}

impl Ipv6View {
    /// Reads an IPv6 header, walks a bounded number of extension headers and checks lengths.
    ///
    /// # Errors
    /// `short_l3`, `bad_version`, `bad_len`, `v6_ext_chain_too_long`, `v6_rh_segleft`, `v6_ext_after_frag`,
    /// `v6_ah`.
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<Self, DropReason> {
        let (h, total_len) = fixed_header(packet)?;
        let chain = match h[ipv6::NEXT_HEADER] {
            proto @ (proto::TCP | proto::UDP | proto::ICMPV6) => Chain::none(proto),
            proto => walk_whole(packet, proto, total_len)?,
        };
        Ok(Self::read(h, total_len, chain))
    }

    /// Reads only the fixed header: `proto` is its Next Header, even if that is an extension header. An ICMP
    /// error uses this to answer a packet whose extension headers [`parse`](Self::parse) refused.
    ///
    /// # Errors
    /// `short_l3`, `bad_version`, `bad_len`.
    #[inline]
    pub fn parse_fixed(packet: &[u8]) -> Result<Self, DropReason> {
        let (h, total_len) = fixed_header(packet)?;
        Ok(Self::read(h, total_len, Chain::none(h[ipv6::NEXT_HEADER])))
    }

    /// Offset of the Segments Left byte that made [`parse`](Self::parse) refuse a packet with
    /// `v6_rh_segleft`: the pointer of the ICMPv6 4/0 that answers it (RFC 7915 5.1).
    pub fn segments_left_at(packet: &[u8]) -> Option<u32> {
        let (h, _) = fixed_header(packet).ok()?;
        match walk(packet, h[ipv6::NEXT_HEADER]) {
            Err(Stop { reason: DropReason::RoutingSegmentsLeft, at }) => Some(u32::from(at) + 3),
            _ => None,
        }
    }

    /// Like [`Ipv4View::parse_inner`].
    ///
    /// # Errors
    /// `icmp_inner_short`, and those of [`parse`](Self::parse).
    pub fn parse_inner(packet: &[u8]) -> Result<Self, DropReason> {
        let (h, total_len) = version6(packet).map_err(short_is_inner_short)?;
        let chain = walk(packet, h[ipv6::NEXT_HEADER]).map_err(|stop| match stop.reason {
            DropReason::BadLength => DropReason::IcmpInnerShort, // the chain was cut off
            reason => reason,
        })?;
        let payload = total_len.checked_sub(u32::from(chain.l4_offset)).ok_or(DropReason::BadLength)?;
        inner_is_long_enough(packet, chain.l4_offset, payload)?;
        Ok(Self::read(h, total_len, chain))
    }

    /// Reads the transport header.
    ///
    /// # Errors
    /// `l4_truncated`, or `frag_tiny` for a first fragment.
    #[inline]
    pub fn l4(&self, packet: &[u8]) -> Result<L4, DropReason> {
        if self.fragment.is_some_and(|f| !f.is_first()) {
            return Ok(L4::LaterFragment);
        }
        let l4 = packet.get(usize::from(self.l4_offset)..self.total_len as usize).unwrap_or_default();
        transport(l4, self.proto, proto::ICMPV6, icmp6).ok_or_else(|| too_short(self.fragment))
    }

    /// Like [`Ipv4View::l4_inner`].
    ///
    /// # Errors
    /// `icmp_inner_short`.
    pub fn l4_inner(&self, packet: &[u8]) -> Result<L4, DropReason> {
        let l4 = packet.get(usize::from(self.l4_offset)..).unwrap_or_default();
        transport_inner(l4, self.fragment, self.proto, proto::ICMPV6, icmp6)
    }

    #[inline]
    fn read(h: &[u8; ipv6::LEN], total_len: u32, chain: Chain) -> Self {
        let word = u32::from_be_bytes([h[0], h[1], h[2], h[3]]);
        Ipv6View {
            src: address_at::<8>(h),
            dst: address_at::<24>(h),
            traffic_class: (word >> 20) as u8,
            flow_label: word & 0xf_ffff,
            hop_limit: h[7],
            proto: chain.proto,
            total_len,
            l4_offset: chain.l4_offset,
            next_header_at: chain.next_header_at,
            fragment: chain.fragment,
        }
    }
}

/// Fixed header and length of a packet that is at least as long as its header says.
#[inline]
fn fixed_header(packet: &[u8]) -> Result<(&[u8; ipv6::LEN], u32), DropReason> {
    let (h, total_len) = version6(packet)?;
    if total_len as usize > packet.len() { Err(DropReason::BadLength) } else { Ok((h, total_len)) }
}

#[inline]
fn version6(packet: &[u8]) -> Result<(&[u8; ipv6::LEN], u32), DropReason> {
    let h = packet.first_chunk::<{ ipv6::LEN }>().ok_or(DropReason::ShortL3)?;
    if h[0] >> 4 != 6 {
        return Err(DropReason::BadVersion);
    }
    Ok((h, 40 + u32::from(u16::from_be_bytes([h[4], h[5]]))))
}

#[inline]
fn address_at<const AT: usize>(h: &[u8; ipv6::LEN]) -> Ipv6Addr {
    let octets = h.split_at_checked(AT).and_then(|(_, rest)| rest.first_chunk::<16>());
    Ipv6Addr::from(u128::from_be_bytes(octets.copied().unwrap_or_default()))
}

/// Extension headers between the fixed header and the transport header. The struct is small, so that the view
/// of a packet without extension headers stays in registers.
#[derive(Clone, Copy)]
struct Chain {
    proto: u8,
    l4_offset: u16,
    next_header_at: u16,
    fragment: Option<FragmentInfo>,
}

impl Chain {
    #[inline]
    fn none(proto: u8) -> Self {
        let (l4_offset, next_header_at) = (ipv6::LEN as u16, ipv6::NEXT_HEADER as u16);
        Chain { proto, l4_offset, next_header_at, fragment: None }
    }

    fn step(&mut self, next: u8, len: u16) {
        self.next_header_at = self.l4_offset;
        self.l4_offset += len;
        self.proto = next;
    }
}

/// Reason and offset at which the walk over the extension headers ended early.
struct Stop {
    reason: DropReason,
    at: u16,
}

/// Walks the extension headers of a packet that is not cut off.
#[inline(never)]
fn walk_whole(packet: &[u8], proto: u8, total_len: u32) -> Result<Chain, DropReason> {
    let whole = packet.get(..total_len as usize).unwrap_or_default();
    let chain = walk(whole, proto).map_err(|stop| stop.reason)?;
    if let Some(f) = chain.fragment {
        check_fragment(f, total_len - u32::from(chain.l4_offset))?;
    }
    Ok(chain)
}

/// Skips the extension headers that RFC 7915 5.1 skips, inside `packet`.
fn walk(packet: &[u8], proto: u8) -> Result<Chain, Stop> {
    let mut chain = Chain::none(proto);
    for _ in 0..=EXTENSION_HEADERS_MAX {
        let at = chain.l4_offset; // at most 40 + 17 * 2048
        let stop = |reason| Err(Stop { reason, at });
        let header = packet.get(usize::from(at)..).and_then(|b| b.first_chunk::<8>());
        match (chain.proto, header) {
            (proto::HOP_BY_HOP | proto::DEST_OPTIONS | proto::ROUTING, Some(h)) => {
                if chain.proto == proto::ROUTING && h[3] != 0 {
                    return stop(DropReason::RoutingSegmentsLeft); // RFC 7915 5.1
                }
                chain.step(h[0], 8 * (u16::from(h[1]) + 1));
            }
            (proto::FRAGMENT, Some(h)) => {
                if is_extension(h[0]) {
                    return stop(DropReason::ExtensionAfterFragment); // RFC 7915 5.1.1
                }
                chain.fragment = Some(fragment::read(h));
                chain.step(h[0], fragment::LEN as u16);
            }
            (proto::HOP_BY_HOP | proto::DEST_OPTIONS | proto::ROUTING | proto::FRAGMENT, None) => {
                return stop(DropReason::BadLength);
            }
            (proto::AH, _) => return stop(DropReason::AuthenticationHeader),
            _ if usize::from(at) > packet.len() => return stop(DropReason::BadLength),
            _ => return Ok(chain),
        }
    }
    Err(Stop { reason: DropReason::ExtensionChainTooLong, at: chain.l4_offset })
}

/// Extension headers that must not follow a Fragment header: all except ESP (RFC 7915 5.1.1).
fn is_extension(next_header: u8) -> bool {
    const MOBILITY: u8 = 135;
    const HIP: u8 = 139;
    const SHIM6: u8 = 140;
    matches!(
        next_header,
        proto::HOP_BY_HOP
            | proto::ROUTING
            | proto::FRAGMENT
            | proto::AH
            | proto::DEST_OPTIONS
            | MOBILITY
            | HIP
            | SHIM6
    )
}

/// Checks that a fragment with more fragments after it is a multiple of eight bytes long and that no fragment
/// ends after byte 65,535 (RFC 791 3.2, RFC 8200 4.5).
fn check_fragment(f: FragmentInfo, payload: u32) -> Result<(), DropReason> {
    let cut_badly = f.more && !payload.is_multiple_of(8);
    let too_far = u32::from(f.offset) + payload > 65_535;
    if cut_badly || too_far { Err(DropReason::BadLength) } else { Ok(()) }
}

fn inner_is_long_enough(packet: &[u8], l4_offset: u16, payload: u32) -> Result<(), DropReason> {
    let need = usize::from(l4_offset) + payload.min(QUOTED_MIN) as usize;
    if packet.len() < need { Err(DropReason::IcmpInnerShort) } else { Ok(()) }
}

fn short_is_inner_short(reason: DropReason) -> DropReason {
    match reason {
        DropReason::ShortL3 | DropReason::BadHeaderLength => DropReason::IcmpInnerShort,
        reason => reason,
    }
}

fn too_short(fragment: Option<FragmentInfo>) -> DropReason {
    match fragment {
        Some(f) if !f.is_atomic() => DropReason::FragmentTiny, // RFC 1858 3
        _ => DropReason::L4Truncated,
    }
}

#[inline]
fn transport(l4: &[u8], proto: u8, own_icmp: u8, icmp: fn(&[u8; 8]) -> L4) -> Option<L4> {
    match proto {
        proto::TCP => {
            let h = l4.first_chunk::<{ tcp::LEN }>()?;
            Some(L4::Tcp {
                src_port: u16::from_be_bytes([h[0], h[1]]),
                dst_port: u16::from_be_bytes([h[2], h[3]]),
                flags: h[tcp::FLAGS],
            })
        }
        proto::UDP => {
            let h = l4.first_chunk::<8>()?;
            Some(L4::Udp {
                src_port: u16::from_be_bytes([h[0], h[1]]),
                dst_port: u16::from_be_bytes([h[2], h[3]]),
                no_checksum: h[6] | h[7] == 0,
            })
        }
        p if p == own_icmp => l4.first_chunk::<8>().map(icmp),
        _ => Some(L4::Other),
    }
}

fn transport_inner(
    l4: &[u8],
    fragment: Option<FragmentInfo>,
    proto: u8,
    own_icmp: u8,
    icmp: fn(&[u8; 8]) -> L4,
) -> Result<L4, DropReason> {
    if fragment.is_some_and(|f| !f.is_first()) {
        return Ok(L4::LaterFragment);
    }
    if let (proto::TCP, Some(h)) = (proto, l4.first_chunk::<8>()) {
        return Ok(L4::Tcp {
            src_port: u16::from_be_bytes([h[0], h[1]]),
            dst_port: u16::from_be_bytes([h[2], h[3]]),
            flags: l4.get(tcp::FLAGS).copied().unwrap_or(0),
        });
    }
    transport(l4, proto, own_icmp, icmp).ok_or(DropReason::IcmpInnerShort)
}

#[inline]
fn icmp4(h: &[u8; 8]) -> L4 {
    let id = u16::from_be_bytes([h[4], h[5]]);
    match (h[0], h[1]) {
        (icmpv4::ECHO_REQUEST, 0) => L4::Echo { request: true, id },
        (icmpv4::ECHO_REPLY, 0) => L4::Echo { request: false, id },
        (kind, code) if icmpv4::is_error(kind) => L4::IcmpError { kind, code },
        (kind, _) => L4::IcmpOther { kind },
    }
}

#[inline]
fn icmp6(h: &[u8; 8]) -> L4 {
    let id = u16::from_be_bytes([h[4], h[5]]);
    match (h[0], h[1]) {
        (icmpv6::ECHO_REQUEST, 0) => L4::Echo { request: true, id },
        (icmpv6::ECHO_REPLY, 0) => L4::Echo { request: false, id },
        (kind, code) if icmpv6::is_error(kind) => L4::IcmpError { kind, code },
        (kind, _) => L4::IcmpOther { kind },
    }
}
