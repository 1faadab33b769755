//! A keyed hash of 32 bytes.
//!
//! Whoever does not know the key cannot choose inputs that fall together more often than chance has it:
//! a client must not be able to fill one bucket of a table. It is not a cipher and no signature: outputs
//! must not be shown to anybody.
//!
//! With AES instructions (AES-NI), the two halves `x`, `y` of the input go through three AES rounds each,
//! side by side, under keys of their own; their sum goes through two more:
//!
//! ```text
//! x ^ k0 -> round k1 -> round k2 -> round k3 \
//!                                             ^ -> round k8 -> round k9 -> low 64 bits
//! y ^ k4 -> round k5 -> round k6 -> round k7 /
//! ```
//!
//! Two inputs collide before the last two rounds only where the differences of the halves cancel out after
//! three rounds. A differential trail over three rounds of AES passes at least 9 active S-boxes, each with
//! a probability of at most 2^-6; over two rounds, as a bound without trails, no difference has an
//! expected probability above 2^-28. Either is below what a table of 2^26 buckets sees by chance. Then the
//! permutation of the last two rounds spreads every bit over all 128. Keys come from the seed by SipHash.
//! Elsewhere the hash is SipHash-1-3 over the same 32 bytes.

/// A keyed hash of four words.
#[derive(Clone, Copy)]
pub struct Hasher64 {
    sip_key: [u64; 2],
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    round_keys: [[u64; 2]; ROUND_KEYS],
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    aes: bool,
}

const ROUND_KEYS: usize = 10;

impl Hasher64 {
    /// A hash under the key `seed`, which nobody must be able to guess. Finds out once whether the
    /// processor has AES instructions.
    pub fn new(seed: [u64; 4]) -> Self {
        let mut hasher = Self::portable(seed);
        hasher.aes = has_aes();
        hasher
    }

    /// As [`Hasher64::new`], without special instructions; its hashes differ from those of the other.
    pub fn portable(seed: [u64; 4]) -> Self {
        let [a, b, c, d] = seed;
        let word = |key: [u64; 2], i: usize| siphash13(key, [i as u64, a, b, c ^ d.rotate_left(32)]);
        let round_keys = core::array::from_fn(|i| [word([a, b], i), word([c, d], i)]);
        let sip_key = [word([a, b], ROUND_KEYS), word([c, d], ROUND_KEYS)];
        Hasher64 { sip_key, round_keys, aes: false }
    }

    /// The hash of 32 bytes: enough for the 5-tuple of an IPv6 source and an embedded IPv4 destination,
    /// and what else is to be told apart.
    #[inline(always)]
    pub fn hash4(&self, words: [u64; 4]) -> u64 {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.aes {
            // SAFETY: `aes` is set only by `new`, where the processor said that it has the instructions.
            return unsafe { x86::hash(&self.round_keys, words) };
        }
        siphash13(self.sip_key, words)
    }
}

impl core::fmt::Debug for Hasher64 {
    /// Without the key.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Hasher64").field("aes", &self.aes).finish_non_exhaustive()
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn has_aes() -> bool {
    // Leaf 1, ECX bit 25. The legacy encoding needs no more of the system than SSE2, which is always there.
    core::arch::x86_64::__cpuid(1).ecx & (1 << 25) != 0
}

#[cfg(any(miri, not(target_arch = "x86_64")))]
fn has_aes() -> bool {
    false
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use super::ROUND_KEYS;
    use core::arch::x86_64::{__m128i, _mm_aesenc_si128, _mm_cvtsi128_si64, _mm_set_epi64x, _mm_xor_si128};

    #[inline]
    #[target_feature(enable = "aes")]
    pub(super) fn hash(keys: &[[u64; 2]; ROUND_KEYS], words: [u64; 4]) -> u64 {
        let k = |i: usize| vector(keys[i][0], keys[i][1]);
        let mut x = _mm_xor_si128(vector(words[0], words[1]), k(0));
        let mut y = _mm_xor_si128(vector(words[2], words[3]), k(4));
        x = _mm_aesenc_si128(x, k(1));
        y = _mm_aesenc_si128(y, k(5));
        x = _mm_aesenc_si128(x, k(2));
        y = _mm_aesenc_si128(y, k(6));
        x = _mm_aesenc_si128(x, k(3));
        y = _mm_aesenc_si128(y, k(7));
        let z = _mm_aesenc_si128(_mm_aesenc_si128(_mm_xor_si128(x, y), k(8)), k(9));
        _mm_cvtsi128_si64(z) as u64
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn vector(low: u64, high: u64) -> __m128i {
        _mm_set_epi64x(high as i64, low as i64)
    }
}

/// SipHash-1-3 of exactly 32 bytes, given as little-endian words.
fn siphash13(key: [u64; 2], words: [u64; 4]) -> u64 {
    let mut v = [
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    // The last block of a message is its length in the top byte, behind what is left of it: here nothing.
    for m in words.into_iter().chain([32 << 56]) {
        v[3] ^= m;
        sip_round(&mut v);
        v[0] ^= m;
    }
    v[2] ^= 0xff;
    for _ in 0..3 {
        sip_round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

#[inline(always)]
fn sip_round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}
