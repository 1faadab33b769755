//! Cycle counter of the processor.

/// Ticks of a counter with a constant rate: the time stamp counter of x86-64, the virtual counter of aarch64.
/// `None` on other machines. Surrounding instructions may be reordered with it, so it is only suitable for
/// durations of some hundred nanoseconds and more.
#[inline(always)]
pub fn cycles() -> Option<u64> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 processor has this instruction, and it only reads the counter.
    return Some(unsafe { core::arch::x86_64::_rdtsc() });
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    {
        let count: u64;
        // SAFETY: Linux lets programs read this register, and reading changes nothing.
        unsafe {
            core::arch::asm!("mrs {0}, cntvct_el0", out(reg) count, options(nomem, nostack, preserves_flags));
        }
        return Some(count);
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    #[test]
    fn cycle_counter_increases() {
        let before = cycles().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(5));
        let passed = cycles().unwrap().wrapping_sub(before);
        // Five milliseconds at 10 MHz to 100 GHz.
        assert!((50_000..500_000_000_000).contains(&passed), "{passed}");
    }
}
