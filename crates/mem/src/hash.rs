//! Keyed hash of 32 bytes.
//!
//! Without the key, nobody can choose inputs that collide more often than by chance: a client must not be
//! able to fill one bucket of a table. This is not a cipher and not a signature: outputs must not be
//! disclosed.
//!
//! With AES instructions (AES-NI), the two halves `x`, `y` of the input go through three AES rounds each, in
//! parallel and with separate keys. Their sum goes through two more:
//!
//! ```text
//! x ^ k0 -> round k1 -> round k2 -> round k3 \
//!                                             ^ -> round k8 -> round k9 -> low 64 bits
//! y ^ k4 -> round k5 -> round k6 -> round k7 /
//! ```
//!
//! Two inputs collide before the last two rounds only if the differences of the halves cancel out after three
//! rounds. A differential trail over three AES rounds passes at least 9 active S-boxes, each with a
//! probability of at most 2^-6; over two rounds, as a bound without trails, no difference has an expected
//! probability above 2^-28. Both are below the chance collisions of a table with 2^26 buckets. The
//! permutation of the last two rounds then spreads every bit over all 128. SipHash derives the keys from the
//! seed. On other processors, the hash is SipHash-1-3 of the same 32 bytes.

/// Keyed hash of four words.
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
    /// Creates a hash with the key `seed`, which must be unpredictable. Checks once if the processor has AES
    /// instructions.
    pub fn new(seed: [u64; 4]) -> Self {
        let mut hasher = Self::portable(seed);
        hasher.aes = has_aes();
        hasher
    }

    /// Like [`Hasher64::new`], without special instructions. Its hashes differ from those of the other
    /// variant.
    pub fn portable(seed: [u64; 4]) -> Self {
        let [a, b, c, d] = seed;
        let word = |key: [u64; 2], i: usize| siphash13(key, [i as u64, a, b, c ^ d.rotate_left(32)]);
        let round_keys = core::array::from_fn(|i| [word([a, b], i), word([c, d], i)]);
        let sip_key = [word([a, b], ROUND_KEYS), word([c, d], ROUND_KEYS)];
        Hasher64 { sip_key, round_keys, aes: false }
    }

    /// Hash of 32 bytes: enough for the 5-tuple of an IPv6 source and an embedded IPv4 destination, with some
    /// bits to spare.
    #[inline(always)]
    pub fn hash4(&self, words: [u64; 4]) -> u64 {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.aes {
            // SAFETY: only `new` sets `aes`, if the processor has the instructions.
            return unsafe { x86::hash(&self.round_keys, words) };
        }
        siphash13(self.sip_key, words)
    }
}

impl core::fmt::Debug for Hasher64 {
    /// Omits the key.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Hasher64").field("aes", &self.aes).finish_non_exhaustive()
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn has_aes() -> bool {
    // Leaf 1, ECX bit 25. The legacy encoding only needs SSE2 support from the system, which is always
    // present.
    core::arch::x86_64::__cpuid(1).ecx & (1 << 25) != 0
}

#[cfg(any(miri, not(target_arch = "x86_64")))]
fn has_aes() -> bool {
    false
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use super::ROUND_KEYS;
    use core::arch::asm;
    use core::arch::x86_64::{__m128i, _mm_cvtsi128_si64, _mm_set_epi64x, _mm_xor_si128};

    /// # Safety
    /// The processor must have AES instructions.
    #[inline(always)]
    pub(super) unsafe fn hash(keys: &[[u64; 2]; ROUND_KEYS], words: [u64; 4]) -> u64 {
        // SAFETY: every x86-64 processor has SSE2; the caller guarantees AES.
        unsafe {
            let k = |i: usize| vector(keys[i][0], keys[i][1]);
            let mut x = _mm_xor_si128(vector(words[0], words[1]), k(0));
            let mut y = _mm_xor_si128(vector(words[2], words[3]), k(4));
            x = round(x, k(1));
            y = round(y, k(5));
            x = round(x, k(2));
            y = round(y, k(6));
            x = round(x, k(3));
            y = round(y, k(7));
            let z = round(round(_mm_xor_si128(x, y), k(8)), k(9));
            _mm_cvtsi128_si64(z) as u64
        }
    }

    /// One AES round. Inline assembly replaces the intrinsic: a function with its own target feature is not
    /// inlined into callers without it, and the call costs three times the hash (4.0 ns against 1.2 in a
    /// burst).
    ///
    /// # Safety
    /// The processor must have AES instructions.
    #[inline(always)]
    unsafe fn round(mut state: __m128i, key: __m128i) -> __m128i {
        // SAFETY: the caller guarantees the instruction; it only accesses its two registers.
        unsafe {
            asm!("aesenc {0}, {1}", inout(xmm_reg) state, in(xmm_reg) key,
                options(pure, nomem, nostack, preserves_flags));
        }
        state
    }

    #[inline(always)]
    fn vector(low: u64, high: u64) -> __m128i {
        // SAFETY: every x86-64 processor has SSE2.
        unsafe { _mm_set_epi64x(high as i64, low as i64) }
    }
}

/// SipHash-1-3 of exactly 32 bytes, as little-endian words.
fn siphash13(key: [u64; 2], words: [u64; 4]) -> u64 {
    let mut v = [
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    // The last block of a message has the length in its top byte after the remaining bytes, of which there
    // are none here.
    let [a, b, c, d] = words;
    for m in [a, b, c, d, 32 << 56] {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::vec;
    use std::vec::Vec;

    const SEED: [u64; 4] = [1, 2, 3, 4];

    /// Both variants, if this machine supports both.
    fn hashers() -> Vec<Hasher64> {
        vec![Hasher64::new(SEED), Hasher64::portable(SEED)]
    }

    #[test]
    fn siphash_agrees_with_the_standard_library() {
        // The default hasher's algorithm is SipHash-1-3 under the key 0 (an implementation detail of the
        // standard library that has not changed since 2016).
        use std::hash::Hasher;
        for words in [[0; 4], SEED, [u64::MAX, 5, 0xdead_beef, 1 << 63]] {
            let mut std = std::hash::DefaultHasher::new();
            words.iter().for_each(|w| std.write(&w.to_le_bytes()));
            assert_eq!(siphash13([0, 0], words), std.finish());
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_rounds_are_those_of_aes() {
        if !has_aes() {
            return gatun_testkit::skip("it needs a processor with AES instructions");
        }
        // FIPS 197 appendix B: cipher example, state at the start of round 1, its round key, and at the
        // start of round 2.
        let words = |bytes: u128| {
            let b = bytes.to_be_bytes();
            let at = |i: usize| u64::from_le_bytes(b[i..i + 8].try_into().unwrap());
            [at(0), at(8)]
        };
        let start = words(0x193de3bea0f4e22b9ac68d2ae9f84808);
        let key1 = words(0xa0fafe1788542cb123a339392a6c7605);
        let round2 = words(0xa49c7ff2689f352b6b5bea43026a5049);
        // Equal halves cancel out under equal keys. Key 8 then supplies the start of the example to the last
        // round, whose key is the example's minus what that round adds itself.
        let mut keys = [[0u64; 2]; ROUND_KEYS];
        // One round of zero yields 0x63 everywhere.
        keys[8] = start.map(|w| w ^ 0x6363_6363_6363_6363);
        keys[9] = key1;
        // SAFETY: the processor has the instructions, as checked above.
        assert_eq!(unsafe { x86::hash(&keys, [7, 8, 7, 8]) }, round2[0]);
    }

    #[test]
    fn every_input_bit_flips_half_of_the_output_bits() {
        for hasher in hashers() {
            for bit in 0..256usize {
                let mut flips = [0u32; 64];
                for n in 0..1000u64 {
                    let base = [n, n << 32, n.wrapping_mul(0x9e37_79b9), 7];
                    let mut other = base;
                    other[bit / 64] ^= 1 << (bit % 64);
                    let diff = hasher.hash4(base) ^ hasher.hash4(other);
                    flips.iter_mut().enumerate().for_each(|(i, f)| *f += (diff >> i & 1) as u32);
                }
                // Half of 1000, more than six standard deviations either way.
                assert!(flips.iter().all(|f| (400..600).contains(f)), "{hasher:?} bit {bit}: {flips:?}");
            }
        }
    }

    #[test]
    fn consecutive_addresses_and_ports_spread_like_random_ones() {
        for hasher in hashers() {
            let mut buckets = vec![0u32; 4096];
            for i in 0..65_536u64 {
                let hash = hasher.hash4([0x2001_0db8, i >> 4, 0xc000_0201, (i & 15) << 16 | 443]);
                buckets[(hash >> 52) as usize] += 1;
            }
            let chi2: f64 = buckets.iter().map(|&b| (f64::from(b) - 16.0).powi(2) / 16.0).sum();
            // 4095 degrees of freedom, standard deviation 90.
            assert!((3600.0..4600.0).contains(&chi2), "{hasher:?}: {chi2}");
        }
    }

    #[test]
    fn inputs_that_collide_under_one_key_do_not_under_another() {
        let make = [Hasher64::new, Hasher64::portable];
        for new in make {
            let (one, other) = (new(SEED), new([1, 2, 3, 5]));
            let top = |h: &Hasher64, n: u64| h.hash4([n, 0, 0, 0]) >> 54;
            let together: Vec<u64> = (0..200_000).filter(|&n| top(&one, n) == 0).collect();
            assert!(together.len() > 100);
            let spread: BTreeSet<u64> = together.iter().map(|&n| top(&other, n)).collect();
            assert!(spread.len() > together.len() * 3 / 4, "{} of {}", spread.len(), together.len());
        }
    }

    #[test]
    fn every_word_of_the_seed_counts() {
        for new in [Hasher64::new, Hasher64::portable] {
            let mut seen = BTreeSet::new();
            for word in 0..4 {
                for bit in [0, 17, 63] {
                    let mut seed = SEED;
                    seed[word] ^= 1 << bit;
                    assert!(seen.insert(new(seed).hash4([9; 4])));
                }
            }
            assert!(seen.insert(new(SEED).hash4([9; 4])));
        }
    }
}
