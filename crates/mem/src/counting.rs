//! Counting allocator, used to show that the data path allocates nothing.

use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

static ENABLED: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// Wrapper of another allocator that counts the allocations of all threads while [`count_allocations`] is on.
/// When off, it costs the test of a flag.
pub struct Counting<A>(pub A);

/// Switches counting on or off. Returns the number of allocations counted so far.
pub fn count_allocations(on: bool) -> u64 {
    ENABLED.store(on, Relaxed);
    ALLOCATIONS.load(Relaxed)
}

#[inline]
fn note() {
    if ENABLED.load(Relaxed) {
        ALLOCATIONS.fetch_add(1, Relaxed);
    }
}

// SAFETY: every call passes the caller's arguments to the inner allocator and returns its result unchanged,
// so each side's guarantees hold for the other.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: as above.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { self.0.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: as above.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: as above.
        unsafe { self.0.realloc(at, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::alloc::System;

    #[test]
    fn allocations_are_counted_only_while_switched_on() {
        let allocator = Counting(System);
        let layout = Layout::new::<u64>();
        let round = || {
            // SAFETY: the layout is not empty, and the memory is freed with the same layout.
            unsafe {
                let at = allocator.alloc(layout);
                assert!(!at.is_null());
                allocator.dealloc(at, layout);
            }
        };
        let before = count_allocations(false);
        round();
        assert_eq!(count_allocations(true), before);
        round();
        assert_eq!(count_allocations(false), before + 1);
    }
}
