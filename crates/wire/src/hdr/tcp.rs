//! TCP (RFC 9293 3.1): the fields that translation and segmentation use.

/// Length in bytes of a header without options.
pub const LEN: usize = 20;
/// Offset of the sequence number.
pub const SEQUENCE: usize = 4;
/// Offset of the byte whose high half is the header length in words.
pub const DATA_OFFSET: usize = 12;
/// Offset of the flags byte.
pub const FLAGS: usize = 13;
/// Offset of the checksum.
pub const CHECKSUM: usize = 16;
/// No more data.
pub const FIN: u8 = 0x01;
/// Opens a connection.
pub const SYN: u8 = 0x02;
/// Resets a connection.
pub const RST: u8 = 0x04;
/// Push.
pub const PSH: u8 = 0x08;
/// The acknowledgment number is valid.
pub const ACK: u8 = 0x10;
/// Congestion window reduced.
pub const CWR: u8 = 0x80;

/// Header length in bytes, if the field is valid and the header lies inside `segment`.
#[inline]
pub fn header_len(segment: &[u8]) -> Option<usize> {
    let len = usize::from(segment.get(DATA_OFFSET)? >> 4) * 4;
    (len >= LEN && len <= segment.len()).then_some(len)
}
