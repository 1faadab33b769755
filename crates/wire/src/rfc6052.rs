//! IPv4 addresses inside IPv6 addresses (RFC 6052 2.2).
//!
//! ```text
//!  PL   0-------------32--40--48--56--64--72--80--88--96--104---------
//!  32   prefix        v4(32)          u   suffix
//!  40   prefix            v4(24)      u  (8) suffix
//!  48   prefix                v4(16)  u  (16)    suffix
//!  56   prefix                    (8) u  v4(24)      suffix
//!  64   prefix                        u  v4(32)          suffix
//!  96   prefix                                          v4(32)
//! ```

use core::net::{Ipv4Addr, Ipv6Addr};

/// Translation prefix (pool6): one of the six lengths of RFC 6052, host bits zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix64 {
    octets: [u8; 16],
    /// Mask with the first `len` bits set, in the byte order of an address in a packet.
    mask: [u8; 16],
    len: u8,
}

/// Reason why a prefix is not a translation prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefix64Error {
    /// The length is not 32, 40, 48, 56, 64 or 96.
    Length(u8),
    /// Bits after the length are set.
    HostBits,
    /// Bits 64 to 71 of a /96 are set.
    UOctet,
}

impl Prefix64 {
    /// 64:ff9b::/96, the well-known prefix.
    pub const WELL_KNOWN: Prefix64 =
        Prefix64::from_octets([0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 96);

    const fn from_octets(octets: [u8; 16], len: u8) -> Self {
        Prefix64 { octets, mask: (u128::MAX << (128 - len as u32)).to_be_bytes(), len }
    }

    /// Creates the prefix `address/len`.
    ///
    /// # Errors
    /// Names the rule of RFC 6052 2.2 that the prefix breaks.
    pub fn new(address: Ipv6Addr, len: u8) -> Result<Self, Prefix64Error> {
        if !matches!(len, 32 | 40 | 48 | 56 | 64 | 96) {
            return Err(Prefix64Error::Length(len));
        }
        let bits = u128::from(address);
        if bits << len != 0 {
            return Err(Prefix64Error::HostBits);
        }
        let octets = address.octets();
        if octets[8] != 0 {
            return Err(Prefix64Error::UOctet);
        }
        Ok(Prefix64::from_octets(octets, len))
    }

    /// The prefix's address.
    pub fn address(&self) -> Ipv6Addr {
        Ipv6Addr::from(self.octets)
    }

    /// The prefix's length in bits.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u8 {
        self.len
    }

    /// Checks whether the prefix contains an IPv6 address.
    #[inline]
    pub fn contains(&self, address: Ipv6Addr) -> bool {
        let word = u128::from_ne_bytes;
        (word(address.octets()) ^ word(self.octets)) & word(self.mask) == 0
    }

    /// Embeds `v4` into an IPv6 address. Bits 64 to 71 and the suffix are zero.
    #[inline]
    pub fn embed(&self, v4: Ipv4Addr) -> Ipv6Addr {
        let v4 = u128::from(u32::from(v4));
        let prefix = u128::from_be_bytes(self.octets);
        let u = match self.len {
            96 => v4,
            // The part before bit 64 stays in place. The rest moves by one octet.
            len => {
                let at = v4 << (96 - len); // as if the u octet did not exist
                let high = at & (u128::MAX << 64);
                let low = at & (u128::MAX >> 64);
                high | (low >> 8)
            }
        };
        Ipv6Addr::from(prefix | u)
    }

    /// Extracts the IPv4 address from `v6` if the prefix contains it. The u octet and the suffix are ignored,
    /// as RFC 6052 2.2 requires of receivers.
    #[inline]
    pub fn extract(&self, v6: Ipv6Addr) -> Option<Ipv4Addr> {
        self.contains(v6).then(|| self.extract_unchecked(v6))
    }

    /// Extracts the IPv4 address from its position in `v6` without comparing the prefix.
    #[inline]
    pub fn extract_unchecked(&self, v6: Ipv6Addr) -> Ipv4Addr {
        let bits = u128::from(v6);
        let v4 = match self.len {
            96 => bits as u32,
            len => {
                let joined = (bits & (u128::MAX << 64)) | ((bits & (u128::MAX >> 72)) << 8);
                (joined >> (96 - len)) as u32
            }
        };
        Ipv4Addr::from(v4)
    }
}

impl core::fmt::Display for Prefix64 {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}/{}", self.address(), self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6052 2.4, table 1.
    const VECTORS: [(&str, u8, &str); 7] = [
        ("2001:db8::", 32, "2001:db8:c000:221::"),
        ("2001:db8:100::", 40, "2001:db8:1c0:2:21::"),
        ("2001:db8:122::", 48, "2001:db8:122:c000:2:2100::"),
        ("2001:db8:122:300::", 56, "2001:db8:122:3c0:0:221::"),
        ("2001:db8:122:344::", 64, "2001:db8:122:344:c0:2:2100::"),
        ("2001:db8:122:344::", 96, "2001:db8:122:344::c000:221"),
        ("64:ff9b::", 96, "64:ff9b::c000:221"),
    ];

    // proves: A52-2
    #[test]
    fn the_vectors_of_rfc_6052_2_4() {
        for (prefix, len, expected) in VECTORS {
            let p = Prefix64::new(prefix.parse().unwrap(), len).unwrap();
            let v4 = Ipv4Addr::new(192, 0, 2, 33);
            let v6: Ipv6Addr = expected.parse().unwrap();
            assert_eq!(p.embed(v4), v6, "{p}");
            assert_eq!(p.extract(v6), Some(v4), "{p}");
        }
    }
}
