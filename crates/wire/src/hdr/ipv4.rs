//! IPv4 (RFC 791 3.1).
//!
//! ```text
//!  0 version ihl | 1 tos | 2 total length | 4 id | 6 flags, fragment offset
//!  8 ttl | 9 protocol | 10 checksum | 12 source | 16 destination | 20 options
//! ```

use crate::checksum;
use core::net::Ipv4Addr;

/// Length in bytes of a header without options.
pub const LEN: usize = 20;
/// Offset of Total Length.
pub const TOTAL_LEN: usize = 2;
/// Offset of Identification.
pub const ID: usize = 4;
/// Offset of the flags and the fragment offset.
pub const FLAGS: usize = 6;
/// Offset of the time to live.
pub const TTL: usize = 8;
/// Offset of the header checksum.
pub const CHECKSUM: usize = 10;
/// Offset of the two addresses.
pub const ADDRESSES: usize = 12;
/// Don't Fragment.
pub const DF: u16 = 0x4000;
/// More Fragments.
pub const MF: u16 = 0x2000;
/// Fragment offset, in units of eight bytes.
pub const OFFSET_MASK: u16 = 0x1fff;

/// Header without options, to be written.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Type of service.
    pub tos: u8,
    /// Total Length, bytes.
    pub total_len: u16,
    /// Identification.
    pub id: u16,
    /// Flags and fragment offset as encoded in the header.
    pub flags: u16,
    /// Time to live.
    pub ttl: u8,
    /// Protocol.
    pub proto: u8,
    /// Source.
    pub src: Ipv4Addr,
    /// Destination.
    pub dst: Ipv4Addr,
}

impl Header {
    /// Writes the header and its checksum.
    #[inline(always)]
    pub fn write(self, out: &mut [u8; LEN]) {
        let first = 0x4500_0000_0000_0000
            | u64::from(self.tos) << 48
            | u64::from(self.total_len) << 32
            | u64::from(self.id) << 16
            | u64::from(self.flags);
        let (src, dst) = (u32::from(self.src), u32::from(self.dst));
        let second = u64::from(self.ttl) << 56 | u64::from(self.proto) << 48 | u64::from(src);
        // Two words at a time: the sum cannot overflow 64 bits, so `fold` takes it directly.
        let halves = |w: u64| (w >> 32) + (w & 0xffff_ffff);
        let checksum = !checksum::fold(halves(first) + halves(second) + u64::from(dst));
        let second = second | u64::from(checksum) << 32;
        // The code writes whole words from registers. A header built in memory would be read back before the
        // stores finish.
        if let (words, [d0, d1, d2, d3]) = out.as_chunks_mut::<8>()
            && let [w0, w1] = words
        {
            *w0 = first.to_be_bytes();
            *w1 = second.to_be_bytes();
            [*d0, *d1, *d2, *d3] = dst.to_be_bytes();
        }
    }
}

/// Checks the checksum of a header without options.
#[inline(always)]
pub fn sum_is_right(header: &[u8; LEN]) -> bool {
    // Native byte order works: a sum of all ones is the same in both byte orders (RFC 1071 2 B).
    let (words, _) = header.as_chunks::<4>();
    let word = |w: &[u8; 4]| u64::from(u32::from_ne_bytes(*w));
    checksum::fold(words.iter().map(word).sum()) == 0xffff
}

/// Recomputes and stores the checksum of a header, including options.
pub fn set_checksum(header: &mut [u8]) {
    super::put16(header, CHECKSUM, 0);
    let sum = checksum::sum(header);
    super::put16(header, CHECKSUM, !sum);
}
