//! Numbers of few bytes where they are small: seven bits a byte, the lowest first (LEB128).

/// Writes a number.
pub(crate) fn put(out: &mut Vec<u8>, mut n: u128) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Writes a difference: its sign goes into the lowest bit.
pub(crate) fn put_signed(out: &mut Vec<u8>, n: i64) {
    put(out, u128::from((n << 1 ^ n >> 63) as u64));
}

/// Bytes that are read from the front.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    /// The next number; `None` where there is none, or one above 128 bits.
    pub(crate) fn next(&mut self) -> Option<u128> {
        let (mut n, mut shift) = (0u128, 0u32);
        loop {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            let bits = u128::from(byte & 0x7f);
            if shift >= 128 || (bits << shift) >> shift != bits {
                return None;
            }
            n |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(n);
            }
            shift += 7;
        }
    }

    /// The next number, where it fits.
    pub(crate) fn number<T: TryFrom<u128>>(&mut self) -> Option<T> {
        T::try_from(self.next()?).ok()
    }

    /// The next difference.
    pub(crate) fn signed(&mut self) -> Option<i64> {
        let n: u64 = self.number()?;
        Some((n >> 1) as i64 ^ -((n & 1) as i64))
    }

    /// The next `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    /// The next bytes, as many as an array has.
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
        fn what_is_written_is_read(n: u128, d: i64) {
            let mut out = Vec::new();
            put(&mut out, n);
            put_signed(&mut out, d);
            let mut bytes = Bytes(&out);
            prop_assert_eq!((bytes.next(), bytes.signed(), bytes.next()), (Some(n), Some(d), None));
        }
    }

    #[test]
    fn a_number_that_never_ends_or_is_too_large_is_none() {
        assert_eq!(Bytes(&[0xff; 40]).next(), None);
        let mut largest = Vec::new();
        put(&mut largest, u128::MAX);
        assert_eq!(largest.len(), 19);
        *largest.last_mut().unwrap() = 4;
        assert_eq!(Bytes(&largest).next(), None);
        assert_eq!(Bytes(&[0x80, 0x02]).number::<u8>(), None);
    }
}
