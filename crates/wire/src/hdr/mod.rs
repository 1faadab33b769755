//! Field offsets, readers and writers of the headers, one file per header.
//!
//! If the caller has checked the length once, readers take fixed-size arrays, so that the packet path has one
//! bounds check per header. The functions below read and write single fields at computed offsets.

pub mod fragment;
pub mod icmpv4;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
pub mod tcp;
pub mod udp;

/// Reads the 16-bit field at `at`, if it lies inside `bytes`.
#[inline]
pub fn get16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|b| u16::from_be_bytes(*b))
}

/// Reads the 32-bit field at `at`, if it lies inside `bytes`.
#[inline]
pub fn get32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_be_bytes(*b))
}

/// Writes the 16-bit field at `at`. Does nothing if `bytes` end before it (a truncated quotation).
#[inline]
pub fn put16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(field) = bytes.get_mut(at..).and_then(|b| b.first_chunk_mut()) {
        *field = value.to_be_bytes();
    }
}

/// Writes the 32-bit field at `at`. Does nothing if `bytes` end before it.
#[inline]
pub fn put32(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(field) = bytes.get_mut(at..).and_then(|b| b.first_chunk_mut()) {
        *field = value.to_be_bytes();
    }
}
