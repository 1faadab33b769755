//! Variable-length integers (LEB128): seven bits a byte, the lowest first; the sign of a difference is its
//! lowest bit (zigzag). These are the integers of postcard's wire format, which is stable.

use serde::Serialize;

/// Bytes of the largest integer.
const LEN_MAX: usize = 128_usize.div_ceil(7);

/// Writes a number.
pub(crate) fn put(out: &mut Vec<u8>, n: u128) {
    put_integer(out, n);
}

/// Writes a difference.
pub(crate) fn put_signed(out: &mut Vec<u8>, n: i64) {
    put_integer(out, n);
}

fn put_integer(out: &mut Vec<u8>, n: impl Serialize) {
    // Serialization cannot fail: the buffer holds the largest number.
    if let Ok(bytes) = postcard::to_slice(&n, &mut [0; LEN_MAX]) {
        out.extend_from_slice(bytes);
    }
}

/// Bytes, read from the front.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    /// Reads a number; `None` if there is none, or one above 128 bits.
    pub(crate) fn next(&mut self) -> Option<u128> {
        let (n, rest) = postcard::take_from_bytes(self.0).ok()?;
        self.0 = rest;
        Some(n)
    }

    /// Reads a number; `None` if it does not fit.
    pub(crate) fn number<T: TryFrom<u128>>(&mut self) -> Option<T> {
        T::try_from(self.next()?).ok()
    }

    /// Reads a difference.
    pub(crate) fn signed(&mut self) -> Option<i64> {
        let (n, rest) = postcard::take_from_bytes(self.0).ok()?;
        self.0 = rest;
        Some(n)
    }

    /// Takes `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    /// Takes the bytes of an array.
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn integers_round_trip(n: u128, d: i64) {
            let mut out = Vec::new();
            put(&mut out, n);
            put_signed(&mut out, d);
            let mut bytes = Bytes(&out);
            prop_assert_eq!((bytes.next(), bytes.signed(), bytes.next()), (Some(n), Some(d), None));
        }
    }

    #[test]
    fn the_encoding_matches_existing_files() {
        let written = |n| {
            let mut out = Vec::new();
            put(&mut out, n);
            out
        };
        assert_eq!([0, 1, 127].map(written), [[0], [1], [0x7f]]);
        assert_eq!([128, 300, 0x3fff].map(written), [[0x80, 1], [0xac, 2], [0xff, 0x7f]]);
        assert_eq!(written(u64::MAX.into()), [&[0xff; 9][..], &[1]].concat());
        assert_eq!(written(u128::MAX), [&[0xff; 18][..], &[3]].concat());
        let mut differences = Vec::new();
        [0, -1, 1, -64, 64].into_iter().for_each(|n| put_signed(&mut differences, n));
        assert_eq!(differences, [0, 1, 2, 0x7f, 0x80, 1]);
        differences.clear();
        put_signed(&mut differences, i64::MIN);
        assert_eq!(differences, [&[0xff; 9][..], &[1]].concat());
    }

    #[test]
    fn endless_and_too_large_numbers_are_refused() {
        assert_eq!(Bytes(&[0xff; 40]).next(), None);
        assert_eq!(Bytes(&[0xff; 40]).signed(), None);
        let mut largest = Vec::new();
        put(&mut largest, u128::MAX);
        assert_eq!(largest.len(), LEN_MAX);
        *largest.last_mut().unwrap() = 4;
        assert_eq!(Bytes(&largest).next(), None);
        assert_eq!(Bytes(&[0x80, 0x02]).number::<u8>(), None);
        let of_65_bits = [&[0xff; 9][..], &[2]].concat();
        assert_eq!(Bytes(&of_65_bits).signed(), None);
    }
}
