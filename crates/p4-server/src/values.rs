//! Byte strings of P4Runtime: big-endian numbers of any length that fit the object's width.

/// Reads a number of up to 64 bits. `None`: it is empty, or does not fit `bits`.
pub(crate) fn number(bytes: &[u8], bits: u32) -> Option<u64> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let digits = bytes.get(zeros..)?;
    if bytes.is_empty() || digits.len() > 8 {
        return None;
    }
    let value = digits.iter().fold(0, |value: u64, byte| value << 8 | u64::from(*byte));
    (value & !largest(bits) == 0).then_some(value)
}

/// Largest number of this width, up to 64 bits.
pub(crate) fn largest(bits: u32) -> u64 {
    match bits {
        0 => 0,
        1..64 => (1 << bits) - 1,
        _ => u64::MAX,
    }
}

/// Writes a number in the shortest form (P4Runtime 1.4, 8.4): no leading zeros, one byte for zero.
pub(crate) fn bytes(value: u64) -> Vec<u8> {
    let all = value.to_be_bytes();
    let zeros = (value.leading_zeros() / 8).min(7) as usize;
    all[zeros..].to_vec()
}

/// Mask of the first `prefix` of `bits` bits.
pub(crate) fn prefix_mask(prefix: u32, bits: u32) -> u64 {
    largest(bits) & !largest(bits.saturating_sub(prefix))
}

/// Packs numbers and widths, the first one in the highest bits. The widths are whole bytes together.
pub(crate) fn pack(fields: impl Iterator<Item = (u64, u32)>) -> Vec<u8> {
    let (mut out, mut rest, mut held) = (Vec::new(), 0u128, 0);
    for (value, bits) in fields {
        rest = rest << bits | u128::from(value & largest(bits));
        held += bits;
        while held >= 8 {
            held -= 8;
            out.push((rest >> held) as u8);
            rest &= (1 << held) - 1;
        }
    }
    out
}

/// Takes numbers of these widths, of up to 64 bits each, from bytes that have enough of them.
pub(crate) fn unpack(bytes: &[u8], widths: impl Iterator<Item = u32>) -> Vec<u64> {
    let mut at = 0;
    let mut next = |bits: u32| {
        let bit = |n: u32| bytes.get((n / 8) as usize).map_or(0, |byte| u64::from(byte >> (7 - n % 8) & 1));
        let value = (at..at + bits).fold(0, |value, n| value << 1 | bit(n));
        at += bits;
        value
    };
    widths.map(&mut next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_may_have_leading_zeros_and_has_to_fit() {
        for (text, bits, value) in [
            (&[0][..], 8, Some(0)),
            (&[0, 0, 0, 0, 0, 0, 0, 0, 0, 1], 8, Some(1)),
            (&[1, 0], 9, Some(256)),
            (&[2, 0], 9, None),
            (&[0xff; 8], 64, Some(u64::MAX)),
            (&[1; 9], 64, None),
            (&[], 8, None),
        ] {
            assert_eq!(number(text, bits), value, "{text:?} in {bits} bits");
        }
    }

    #[test]
    fn the_shortest_form_has_at_least_one_byte() {
        for (value, text) in [(0, &[0][..]), (1, &[1]), (0x100, &[1, 0]), (u64::MAX, &[0xff; 8])] {
            assert_eq!(bytes(value), text);
            assert_eq!(number(text, 64), Some(value));
        }
    }

    #[test]
    fn packed_fields_come_back() {
        let fields = [(5, 3), (0x1ff, 9), (0, 4), (u64::MAX, 64), (0x1234, 16)];
        let packed = pack(fields.into_iter());
        assert_eq!(packed.len(), 12);
        assert_eq!(packed[..2], [0b101_11111, 0b1111_0000]);
        assert_eq!(unpack(&packed, fields.iter().map(|f| f.1)), fields.map(|f| f.0));
    }

    #[test]
    fn a_prefix_mask_has_the_highest_bits() {
        assert_eq!(prefix_mask(24, 32), 0xffff_ff00);
        assert_eq!([prefix_mask(0, 64), prefix_mask(64, 64)], [0, u64::MAX]);
    }
}
