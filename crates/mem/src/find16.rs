//! Search among sixteen 16-bit words with one comparison.

/// Bit mask of the `words` that equal `wanted`, starting with the lowest bit.
#[inline(always)]
pub fn find16(words: &[u16; 16], wanted: u16) -> u16 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    return x86::find16(words, wanted);
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    portable(words, wanted)
}

#[cfg(any(test, miri, not(target_arch = "x86_64")))]
fn portable(words: &[u16; 16], wanted: u16) -> u16 {
    words.iter().enumerate().fold(0, |mask, (i, &w)| mask | u16::from(w == wanted) << i)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use core::arch::x86_64::{
        __m128i, _mm_cmpeq_epi16, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_set1_epi16,
    };

    #[inline(always)]
    pub(super) fn find16(words: &[u16; 16], wanted: u16) -> u16 {
        // SAFETY: every x86-64 processor has SSE2, and both loads of 16 bytes lie inside the 32 bytes of
        // `words`.
        unsafe {
            let at: *const __m128i = words.as_ptr().cast();
            let wanted = _mm_set1_epi16(wanted as i16);
            let low = _mm_cmpeq_epi16(_mm_loadu_si128(at), wanted);
            let high = _mm_cmpeq_epi16(_mm_loadu_si128(at.add(1)), wanted);
            _mm_movemask_epi8(_mm_packs_epi16(low, high)) as u16
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn find16_finds_every_place_and_nothing_else() {
        for wanted in [0u16, 1, 0x7fff, 0x8000, 0xffff] {
            for places in [0u16, 1, 0x8000, 0x5aa5, 0xffff] {
                let words = core::array::from_fn(|i| if places >> i & 1 == 1 { wanted } else { !wanted });
                assert_eq!(find16(&words, wanted), places);
                assert_eq!(portable(&words, wanted), places);
            }
        }
    }
}
