//! Hexadecimal form of hashes, tokens and packets.

use std::fmt::Write as _;

/// Encodes bytes as lower-case digits, two per byte.
pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Parses a SHA-256: exactly 64 digits, of either case.
pub fn decode_hash(text: &str) -> Option<[u8; 32]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let mut hash = [0; 32];
    if pairs.len() != hash.len() || !rest.is_empty() {
        return None;
    }
    let digit = |c: u8| char::from(c).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    for (byte, [high, low]) in hash.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_round_trip_and_invalid_ones_are_refused() {
        let hash = std::array::from_fn(|n| (n * 37) as u8);
        let text = encode(&hash);
        assert!(text.starts_with("00254a6f94b9de03"), "{text}");
        assert_eq!(decode_hash(&text), Some(hash));
        assert_eq!(decode_hash(&text.to_uppercase()), Some(hash));
        for wrong in ["", &text[1..], &format!("{text}0"), &format!("{text}00"), &text.replace('f', "g"), "é"]
        {
            assert_eq!(decode_hash(wrong), None, "{wrong}");
        }
    }
}
