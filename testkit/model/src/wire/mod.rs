//! Naive reading and writing of packets: every field by hand, every checksum over all bytes. It shares only
//! the names of drop reasons and settings with the engine's wire layer.

pub mod errors;
pub mod parse;
pub mod sum;
pub mod to4;
pub mod to44;
pub mod to6;

use std::net::IpAddr;

/// Protocol numbers.
#[allow(missing_docs)]
pub mod proto {
    pub const HOP_BY_HOP: u8 = 0;
    pub const ICMP: u8 = 1;
    pub const IGMP: u8 = 2;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const ROUTING: u8 = 43;
    pub const FRAGMENT: u8 = 44;
    pub const ESP: u8 = 50;
    pub const AH: u8 = 51;
    pub const ICMPV6: u8 = 58;
    pub const NO_NEXT: u8 = 59;
    pub const DEST_OPTIONS: u8 = 60;
    /// Mobility, HIP, Shim6: these are not skipped.
    pub const FURTHER_EXTENSIONS: [u8; 3] = [135, 139, 140];
}

/// Position of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Bytes of the datagram before it.
    pub offset: usize,
    /// True if more fragments follow.
    pub more: bool,
    /// Identification.
    pub id: u32,
}

/// Header fields of both families, without options and extension headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// TOS or traffic class.
    pub tos: u8,
    /// TTL or hop limit.
    pub ttl: u8,
    /// Protocol of the payload.
    pub proto: u8,
    /// Source.
    pub src: IpAddr,
    /// Destination.
    pub dst: IpAddr,
    /// Present bytes of the transport header and the data.
    pub payload: &'a [u8],
    /// Bytes of the payload by the length fields: more than present in a packet that an ICMP error quotes.
    pub length: usize,
    /// Position of a fragment; IPv6 packets with a Fragment header have one too.
    pub piece: Option<Piece>,
    /// Don't Fragment.
    pub df: bool,
    /// IPv4 identification.
    pub ident: u16,
    /// Bytes before the payload.
    pub header_len: usize,
    /// True if an IPv4 source route has hops left.
    pub source_route: bool,
}

impl Header<'_> {
    /// Returns true if the transport header begins here.
    pub fn is_first(&self) -> bool {
        self.piece.is_none_or(|p| p.offset == 0)
    }

    /// Returns true if this is the whole datagram; an atomic fragment is (RFC 6946).
    pub fn is_whole(&self) -> bool {
        self.piece.is_none_or(|p| p.offset == 0 && !p.more)
    }
}

/// Fields of the transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum L4 {
    Tcp { src: u16, dst: u16, flags: u8 },
    Udp { src: u16, dst: u16, no_checksum: bool },
    Echo { request: bool, id: u16 },
    Error { kind: u8, code: u8 },
    OtherIcmp { kind: u8 },
    Later,
    Other,
}

/// New ports (for echo, the identifier twice); `None` for packets without ports.
pub type NewPorts = Option<(u16, u16)>;

/// The 16 bits at `at`.
pub fn get16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The 32 bits at `at`.
pub fn get32(bytes: &[u8], at: usize) -> u32 {
    u32::from(get16(bytes, at)) << 16 | u32::from(get16(bytes, at + 2))
}

/// Writes 16 bits.
pub fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
