//! The Internet checksum (RFC 1071), word by word.

use std::net::IpAddr;

/// The ones' complement sum of 16-bit words; an odd last byte is padded with zero.
pub fn sum(bytes: &[u8]) -> u16 {
    sum_from(0, bytes)
}

/// Like [`sum`], starting from another sum.
pub fn sum_from(start: u16, bytes: &[u8]) -> u16 {
    let mut total = u64::from(start);
    for pair in bytes.chunks(2) {
        total += u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0));
    }
    fold(total)
}

fn fold(mut total: u64) -> u16 {
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// The bytes of a pseudo-header, which have the same sum in both families.
pub fn pseudo(src: IpAddr, dst: IpAddr, length: usize, proto: u8) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(40);
    for address in [src, dst] {
        match address {
            IpAddr::V4(a) => bytes.extend(a.octets()),
            IpAddr::V6(a) => bytes.extend(a.octets()),
        }
    }
    bytes.extend((length as u32).to_be_bytes());
    bytes.extend([0, 0, 0, proto]);
    bytes
}

/// A checksum field after covered bytes changed from `old` to `new`, as right or wrong as before (RFC 1624
/// 3).
pub fn adjusted(field: u16, old: &[u8], new: &[u8]) -> u16 {
    !fold(u64::from(!field) + u64::from(!sum(old)) + u64::from(sum(new)))
}
