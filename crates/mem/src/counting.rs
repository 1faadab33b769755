//! An allocator that counts, to show that the data path allocates nothing.

use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

static ENABLED: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// Another allocator, its allocations counted while [`count_allocations`] is on, of all threads together.
/// Off, it costs the test of one flag.
pub struct Counting<A>(pub A);

/// Switches counting on or off and returns how many allocations have been counted so far.
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

// SAFETY: every call goes to the inner allocator with the caller's own arguments and its answer comes back
// unchanged, so that the caller's promises and the inner allocator's are each other's.
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
            // SAFETY: the layout is not empty, and what was allocated is given back with it.
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
