//! IPv6 (RFC 8200 3).
//!
//! ```text
//!  0 version, traffic class, flow label | 4 payload length | 6 next header | 7 hop limit
//!  8 source | 24 destination | 40
//! ```

use core::net::Ipv6Addr;

/// Header length in bytes.
pub const LEN: usize = 40;
/// Smallest MTU of an IPv6 link, bytes (RFC 8200 5).
pub const MTU_MIN: u32 = 1280;
/// Offset of Payload Length.
pub const PAYLOAD_LEN: usize = 4;
/// Offset of Next Header.
pub const NEXT_HEADER: usize = 6;
/// Offset of the two addresses.
pub const ADDRESSES: usize = 8;

/// Header to be written. Its flow label is zero (RFC 7915 4.1).
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Traffic class.
    pub traffic_class: u8,
    /// Payload Length, bytes.
    pub payload_len: u16,
    /// Next Header.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source.
    pub src: Ipv6Addr,
    /// Destination.
    pub dst: Ipv6Addr,
}

impl Header {
    /// Writes the header.
    #[inline(always)]
    pub fn write(self, out: &mut [u8; LEN]) {
        let head = 0x6000_0000_0000_0000
            | u64::from(self.traffic_class) << 52
            | u64::from(self.payload_len) << 16
            | u64::from(self.next_header) << 8
            | u64::from(self.hop_limit);
        let (words, _) = out.as_chunks_mut::<8>();
        if let [first, s0, s1, d0, d1] = words {
            let (src, dst) = (u128::from(self.src), u128::from(self.dst));
            *first = head.to_be_bytes();
            *s0 = ((src >> 64) as u64).to_be_bytes();
            *s1 = (src as u64).to_be_bytes();
            *d0 = ((dst >> 64) as u64).to_be_bytes();
            *d1 = (dst as u64).to_be_bytes();
        }
    }
}
