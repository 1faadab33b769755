//! IPv4 (RFC 791 3.1).
//!
//! ```text
//!  0 version ihl | 1 tos | 2 total length | 4 id | 6 flags, fragment offset
//!  8 ttl | 9 protocol | 10 checksum | 12 source | 16 destination | 20 options
//! ```

use crate::checksum;
use core::net::Ipv4Addr;

/// Bytes of a header without options.
pub const LEN: usize = 20;
/// Offset of Total Length.
pub const TOTAL_LEN: usize = 2;
/// Offset of Identification.
pub const ID: usize = 4;
/// Offset of the flags and the fragment offset.
pub const FLAGS: usize = 6;
/// Offset of the header checksum.
pub const CHECKSUM: usize = 10;
/// Offset of the two addresses.
pub const ADDRESSES: usize = 12;
/// Don't Fragment.
pub const DF: u16 = 0x4000;
/// More Fragments.
pub const MF: u16 = 0x2000;
/// The fragment offset, in units of eight bytes.
pub const OFFSET_MASK: u16 = 0x1fff;

/// A header without options, to be written.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Type of service.
    pub tos: u8,
    /// Total Length, bytes.
    pub total_len: u16,
    /// Identification.
    pub id: u16,
    /// Flags and fragment offset as they stand in the header.
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
    /// The header's bytes, its checksum included.
    #[inline]
    pub fn to_bytes(self) -> [u8; LEN] {
        let src = u32::from(self.src);
        let dst = u32::from(self.dst);
        let words = [
            0x4500_0000 | u32::from(self.tos) << 16 | u32::from(self.total_len),
            u32::from(self.id) << 16 | u32::from(self.flags),
            u32::from(self.ttl) << 24 | u32::from(self.proto) << 16,
            src,
            dst,
        ];
        let sum = words.iter().fold(0u64, |s, w| s + u64::from(*w));
        let checksum = !checksum::fold(sum);
        let mut out = [0; LEN];
        let words = [words[0], words[1], words[2] | u32::from(checksum), src, dst];
        for (bytes, word) in out.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *bytes = word.to_be_bytes();
        }
        out
    }
}

/// Computes the checksum of a header (options included) anew and stores it.
pub fn set_checksum(header: &mut [u8]) {
    super::put16(header, CHECKSUM, 0);
    let sum = checksum::sum(header);
    super::put16(header, CHECKSUM, !sum);
}
