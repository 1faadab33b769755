//! Prefetch of cache lines.

/// Prefetches the cache line of `table[index]` for reading. Does nothing for an index past the end, and on
/// machines without such an instruction.
#[inline(always)]
pub fn prefetch_read<T>(table: &[T], index: usize) {
    let Some(at) = table.get(index) else { return };
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the address comes from a live reference; a prefetch has no visible effect.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(at).cast()) };
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: the address comes from a live reference; a prefetch only changes the cache.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{0}]", in(reg) core::ptr::from_ref(at),
            options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = at;
}

/// Like [`prefetch_read`], for writing: no other processor keeps the line.
#[inline(always)]
pub fn prefetch_write<T>(table: &[T], index: usize) {
    let Some(at) = table.get(index) else { return };
    // The compiler's intrinsic prefetches for reading unless the target is a newer processor. Older
    // processors treat this instruction as a no-op.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the address comes from a live reference; a prefetch only changes the cache.
    unsafe {
        core::arch::asm!("prefetchw byte ptr [{0}]", in(reg) core::ptr::from_ref(at),
            options(nostack, preserves_flags, readonly));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("prfm pstl1keep, [{0}]", in(reg) core::ptr::from_ref(at),
            options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = at;
}

#[cfg(test)]
mod tests {
    #[test]
    fn any_index_can_be_prefetched() {
        let table = [1u64, 2, 3];
        for index in [0, 2, 3, usize::MAX] {
            super::prefetch_read(&table, index);
            super::prefetch_write(&table, index);
        }
        super::prefetch_read::<u8>(&[], 0);
    }
}
