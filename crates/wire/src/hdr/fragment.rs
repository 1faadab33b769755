//! Position of a fragment, and the IPv6 Fragment header (RFC 8200 4.5).
//!
//! ```text
//!  0 next header | 1 reserved | 2 offset (13 bits), reserved (2), M | 4 identification | 8
//! ```

/// Header length in bytes.
pub const LEN: usize = 8;
/// Mask of the offset in its field. Masked in place, the value is in bytes.
pub const OFFSET_MASK: u16 = 0xfff8;
/// More fragments follow.
pub const MORE: u16 = 1;

/// Position of a fragment in its datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentInfo {
    /// Offset of this fragment's payload in bytes, a multiple of 8.
    pub offset: u16,
    /// More fragments follow.
    pub more: bool,
    /// Identification: 16 bits in IPv4, 32 in IPv6.
    pub id: u32,
}

impl FragmentInfo {
    /// Returns true for offset zero: the fragment with the transport header.
    #[inline]
    pub fn is_first(&self) -> bool {
        self.offset == 0
    }

    /// Returns true for offset zero without more fragments: a whole packet with a Fragment header (RFC 6946).
    #[inline]
    pub fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }
}

/// Reads the fragment's position from the header.
#[inline]
pub fn read(header: &[u8; LEN]) -> FragmentInfo {
    let field = u16::from_be_bytes([header[2], header[3]]);
    FragmentInfo {
        offset: field & OFFSET_MASK,
        more: field & MORE != 0,
        id: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
    }
}

/// Header bytes. Reserved fields are zero.
#[inline]
pub fn to_bytes(next_header: u8, info: FragmentInfo) -> [u8; LEN] {
    let field = (info.offset & OFFSET_MASK) | if info.more { MORE } else { 0 };
    let [f0, f1] = field.to_be_bytes();
    let [i0, i1, i2, i3] = info.id.to_be_bytes();
    [next_header, 0, f0, f1, i0, i1, i2, i3]
}
