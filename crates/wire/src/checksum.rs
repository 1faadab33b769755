//! The Internet checksum (RFC 1071) and its update by difference (RFC 1624).
//! Sums are folded to 16 bits, as values in network byte order: `0x1234` stands for the bytes 12 34.

/// Change of a checksum when covered bytes change: `~old + new`, folded. Deltas of independent changes add up
/// ([`Delta::plus`]). [`Delta::inverse`] undoes a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delta(pub u16);

/// Folds a sum of 16-, 32- or 64-bit words to 16 bits, including end-around carries.
#[inline]
pub const fn fold(sum: u64) -> u16 {
    let (half, carry) = (sum as u32).overflowing_add((sum >> 32) as u32);
    fold32(half + carry as u32) // a sum that carried is below 2^32 - 1
}

/// Folds a 32-bit sum, like [`fold`].
#[inline]
pub const fn fold32(sum: u32) -> u16 {
    add(sum as u16, (sum >> 16) as u16)
}

/// Folded sum of `bytes`. An odd last byte is the high half of a word.
#[inline]
pub fn sum(bytes: &[u8]) -> u16 {
    let mut acc = 0u64;
    let (words, rest) = bytes.as_chunks::<4>();
    for w in words {
        acc += u64::from(u32::from_be_bytes(*w));
    }
    let mut tail = [0u8; 4];
    for (t, b) in tail.iter_mut().zip(rest) {
        *t = *b;
    }
    acc += u64::from(u32::from_be_bytes(tail));
    fold(acc)
}

/// Adds two folded sums; the result is folded.
#[inline]
pub const fn add(a: u16, b: u16) -> u16 {
    let (s, carry) = a.overflowing_add(b);
    s + carry as u16
}

impl Delta {
    /// Delta of replacing bytes whose sum is `old` with bytes whose sum is `new`.
    #[inline]
    pub const fn of(old: u16, new: u16) -> Delta {
        Delta(add(!old, new))
    }

    /// Delta of both changes together.
    #[inline]
    pub const fn plus(self, other: Delta) -> Delta {
        Delta(add(self.0, other.0))
    }

    /// Delta of the opposite change.
    #[inline]
    pub const fn inverse(self) -> Delta {
        Delta(!self.0)
    }

    /// Applies the change to a complete checksum field (RFC 1624 equation 3). A wrong checksum stays wrong by
    /// the same amount.
    #[inline]
    pub const fn apply(self, field: u16) -> u16 {
        !add(!field, self.0)
    }

    /// Applies a change of the pseudo-header to a partial field (the uncomplemented pseudo-header sum).
    #[inline]
    pub const fn apply_partial(self, field: u16) -> u16 {
        add(field, self.0)
    }

    /// Like [`apply`](Self::apply), for UDP: a result of zero would mean "no checksum", so it is sent as all
    /// ones (RFC 768).
    #[inline]
    pub const fn apply_udp(self, field: u16) -> u16 {
        match self.apply(field) {
            0 => 0xffff,
            c => c,
        }
    }
}

/// Sum of an IPv4 or IPv6 pseudo-header: addresses, length and protocol.
#[inline]
pub fn pseudo(addresses: &[u8], l4_len: u32, protocol: u8) -> u16 {
    fold(
        u64::from(sum(addresses))
            + u64::from(l4_len >> 16)
            + u64::from(l4_len & 0xffff)
            + u64::from(protocol),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One's complement arithmetic by remainder. The result is zero only if all words are zero.
    fn naive(sum: u128) -> u16 {
        match sum % 0xffff {
            0 if sum > 0 => 0xffff,
            rest => rest as u16,
        }
    }

    #[test]
    fn folding_keeps_every_carry() {
        let edges = [0, 1, 0xfffe, 0xffff, 0x1_0000, 0xffff_fffe, 0xffff_ffff, 0x1_0000_0000, u64::MAX];
        for a in edges {
            for b in edges {
                for sum in [a, b, a.wrapping_add(b), a ^ (b << 16), a ^ (b << 32)] {
                    assert_eq!(fold(sum), naive(u128::from(sum)), "{sum:#x}");
                    assert_eq!(fold32(sum as u32), naive(u128::from(sum as u32)), "{sum:#x}");
                }
            }
        }
    }

    #[test]
    fn a_long_run_of_ones_and_an_odd_end_are_summed_exactly() {
        for len in [1, 2, 3, 4, 5, 1499, 65_535] {
            let ones = std::vec![0xff; len];
            let words = (len / 2) as u128 * 0xffff + (len % 2) as u128 * 0xff00;
            assert_eq!(sum(&ones), naive(words));
        }
    }
}
