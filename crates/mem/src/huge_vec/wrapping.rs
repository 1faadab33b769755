//! Table with a wrapping index, so that a look-up needs no branch.

use super::{Footprint, HugeVec, OutOfMemory};
use zerocopy::FromZeros;

/// Table that has an element at any index: indices wrap at a power of two. Only the memory that will be used
/// is allocated; the rest is address space.
pub struct WrappingTable<T> {
    /// Elements; their number is a power of two, and at least one.
    memory: HugeVec<T>,
    mask: usize,
}

impl<T: Copy + FromZeros> WrappingTable<T> {
    /// Creates a table of zeroes, of which `used` will be used.
    ///
    /// # Errors
    /// Same as [`HugeVec::new`].
    pub fn new(used: usize) -> Result<Self, OutOfMemory> {
        let len = used.max(1).checked_next_power_of_two().ok_or(OutOfMemory { bytes: usize::MAX })?;
        Ok(WrappingTable { memory: HugeVec::with_room(used, len)?, mask: len - 1 })
    }

    /// Memory use of such a table.
    pub fn footprint(used: usize) -> Footprint {
        Footprint::of_bytes(used.saturating_mul(size_of::<T>()) as u64)
    }
}

impl<T> WrappingTable<T> {
    /// Returns the element at an index.
    #[inline(always)]
    pub fn at(&self, index: usize) -> &T {
        debug_assert!(self.memory.len() == self.mask + 1);
        // SAFETY: `mask` is the length minus one, and neither ever changes. The length is at least one.
        unsafe { self.memory.get_unchecked(index & self.mask) }
    }

    /// Prefetches the element at an index.
    #[inline(always)]
    pub fn prefetch(&self, index: usize) {
        crate::prefetch_read(core::slice::from_ref(self.at(index)), 0);
    }

    /// Mutable version of [`at`](Self::at).
    #[inline(always)]
    pub fn at_mut(&mut self, index: usize) -> &mut T {
        let index = index & self.mask;
        debug_assert!(self.memory.len() == self.mask + 1);
        // SAFETY: as in `at`.
        unsafe { self.memory.get_unchecked_mut(index) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_has_an_element() {
        for used in [0, 1, 3, 4, 5, 1000, 100_000] {
            let mut table = WrappingTable::<u64>::new(used).unwrap();
            let len = used.max(1).next_power_of_two();
            for n in 0..used {
                *table.at_mut(n) = n as u64 + 1;
            }
            assert!((0..used).all(|n| *table.at(n) == n as u64 + 1 && *table.at(n + len) == n as u64 + 1));
            assert_eq!(*table.at(usize::MAX), *table.at(len - 1));
        }
        assert!(WrappingTable::<u64>::new(usize::MAX).is_err());
    }
}
