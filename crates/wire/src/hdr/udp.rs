//! UDP (RFC 768).

/// Header length in bytes.
pub const LEN: usize = 8;
/// Offset of Length.
pub const LENGTH: usize = 4;
/// Offset of the checksum.
pub const CHECKSUM: usize = 6;
