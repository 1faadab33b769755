//! What a packet's headers say: small `Copy` views, made once per packet.
//!
//! Offsets are in bytes from the packet's first byte. A view says nothing about addresses being legal;
//! it says that the headers are consistent and inside the packet.

use crate::DropReason;
use core::net::{Ipv4Addr, Ipv6Addr};

/// A packet's place in its datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentInfo {
    /// Offset of this fragment's payload in bytes, a multiple of 8.
    pub offset: u16,
    /// More fragments follow.
    pub more: bool,
    /// The identification: 16 bits of IPv4 or 32 of IPv6.
    pub id: u32,
}

impl FragmentInfo {
    /// Offset zero: the fragment with the transport header.
    #[inline]
    pub fn is_first(&self) -> bool {
        self.offset == 0
    }

    /// Offset zero and nothing follows: a whole packet with a Fragment header (RFC 6946).
    #[inline]
    pub fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }
}

/// An IPv4 header.
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
    /// Total Length: padding after it is not part of the packet. A segmented super-packet's true length
    /// (a device may leave the 16-bit field short).
    pub total_len: u32,
    /// Header length with options; the transport header begins here.
    pub l4_offset: u16,
    /// Present where More Fragments is set or the offset is not zero.
    pub fragment: Option<FragmentInfo>,
}

/// An IPv6 header with the extension headers before the transport header.
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
    /// The first protocol that is no extension header the translator steps over (RFC 7915 5.1).
    pub proto: u8,
    /// 40 + Payload Length: what follows is not part of the packet.
    pub total_len: u32,
    /// Where the transport header begins.
    pub l4_offset: u16,
    /// Where the Next Header byte that named `proto` stands, for ICMPv6 4/1's pointer.
    pub next_header_at: u16,
    /// The Fragment header, if there is one; an atomic one too.
    pub fragment: Option<FragmentInfo>,
}

/// The transport header, as far as translation wants to know it.
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
    /// An echo request or reply of the address family's own ICMP.
    Echo {
        /// Request, not reply.
        request: bool,
        /// Identifier.
        id: u16,
    },
    /// An ICMP error of the address family's own ICMP: it holds a packet.
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
    /// A fragment that is not the first: no transport header.
    LaterFragment,
    /// Any other protocol.
    Other,
}

impl Ipv4View {
    /// Reads an IPv4 header and checks its lengths and its checksum.
    ///
    /// # Errors
    /// `short_l3`, `bad_version`, `bad_hlen`, `bad_len`, `bad_l3csum`.
    pub fn parse(_packet: &[u8]) -> Result<Self, DropReason> {
        Err(DropReason::ShortL3)
    }

    /// Reads the header of a packet inside an ICMP error: it may be cut off after the IP header and
    /// eight bytes, its Total Length is the original one, and its checksum is not required to be right
    /// by RFC 7915 but by RFC 5508 REQ-3 (`check`).
    ///
    /// # Errors
    /// `icmp_inner_short` where not even IP header + 8 bytes are there, and those of [`parse`](Self::parse).
    pub fn parse_inner(_packet: &[u8], _check: bool) -> Result<Self, DropReason> {
        Err(DropReason::ShortL3)
    }

    /// Reads the transport header.
    ///
    /// # Errors
    /// `l4_truncated`, or `frag_tiny` for a first fragment.
    pub fn l4(&self, _packet: &[u8]) -> Result<L4, DropReason> {
        Err(DropReason::L4Truncated)
    }
}

impl Ipv6View {
    /// Reads an IPv6 header, walks its extension headers (bounded), checks lengths.
    ///
    /// # Errors
    /// `short_l3`, `bad_version`, `bad_len`, `v6_ext_chain_too_long`, `v6_rh_segleft`, `v6_ext_after_frag`, `v6_ah`.
    pub fn parse(_packet: &[u8]) -> Result<Self, DropReason> {
        Err(DropReason::ShortL3)
    }

    /// As [`Ipv4View::parse_inner`].
    ///
    /// # Errors
    /// `icmp_inner_short`, and those of [`parse`](Self::parse).
    pub fn parse_inner(_packet: &[u8]) -> Result<Self, DropReason> {
        Err(DropReason::ShortL3)
    }

    /// Reads the transport header.
    ///
    /// # Errors
    /// `l4_truncated`, or `frag_tiny` for a first fragment.
    pub fn l4(&self, _packet: &[u8]) -> Result<L4, DropReason> {
        Err(DropReason::L4Truncated)
    }
}
