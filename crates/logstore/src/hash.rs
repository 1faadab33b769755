//! SHA-256, which seals a log that may serve as evidence: anybody can recompute it.

use sha2::{Digest as _, Sha256};
use std::fmt;
use std::str::FromStr;

/// SHA-256.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// Hash of several pieces, as if concatenated.
    pub fn of(pieces: &[&[u8]]) -> Hash {
        let mut sha = Sha256::new();
        pieces.iter().for_each(|piece| sha.update(piece));
        Hash(sha.finalize().into())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Hash {
    type Err = String;

    /// Parses 64 hexadecimal digits.
    fn from_str(text: &str) -> Result<Hash, String> {
        let wrong = || format!("\"{text}\" is not a hash of 64 hexadecimal digits");
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let mut bytes = [0; 32];
        if pairs.len() != bytes.len() || !rest.is_empty() {
            return Err(wrong());
        }
        for (byte, pair) in bytes.iter_mut().zip(pairs) {
            let digit = |c: u8| char::from(c).to_digit(16).ok_or_else(wrong);
            *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
        }
        Ok(Hash(bytes))
    }
}

impl serde::Serialize for Hash {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Hash {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Hash, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_sha_256_and_round_trips() {
        // FIPS 180-2, B.1.
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let hash = Hash::of(&[b"a", b"", b"bc"]);
        assert_eq!(hash.to_string(), text);
        assert_eq!(text.parse(), Ok(hash));
        for wrong in ["", &text[1..], &text.replace('b', "g"), "é"] {
            assert!(wrong.parse::<Hash>().is_err());
        }
    }
}
