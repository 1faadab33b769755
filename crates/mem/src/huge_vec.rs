//! Fixed-length array in memory from the kernel.

mod at_once;
mod footprint;
mod in_file;
mod shared;
mod wrapping;

pub use at_once::{is_taken_at_once, take_at_once, take_room};
pub use footprint::Footprint;
pub use in_file::{NotMapped, bytes_written};
pub use shared::SharedRecords;
pub use wrapping::WrappingTable;

use core::ffi::c_void;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, flock};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use zerocopy::FromZeros;

/// Alignment of transparent huge pages on supported machines.
const HUGE_PAGE: usize = 2 << 20;
/// Minimum alignment of a mapping.
const PAGE: usize = 4096;

/// Error: the kernel refused the memory, or the size overflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Requested bytes; `usize::MAX` if the size overflows.
    pub bytes: usize,
}

impl core::fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "cannot get {} bytes of memory", self.bytes)
    }
}

impl core::error::Error for OutOfMemory {}

/// A fixed number of `T` in private anonymous memory of its own. All bytes are zero at first.
///
/// The kernel allocates pages at their first access, or all at once if the process has called
/// [`take_at_once`]. An array of 2 MB or more is on huge pages, which halve the cost of a random access to a
/// large table. It uses huge pages that the operator has reserved (`vm.nr_hugepages`) if there are enough.
/// Otherwise it uses transparent huge pages, as far as the kernel has any. Reserved pages do not count as
/// resident memory; `/proc/self/status` lists them as `HugetlbPages`.
pub struct HugeVec<T> {
    start: NonNull<T>,
    len: usize,
    /// Bytes mapped at `start`; 0 if nothing is mapped.
    mapped: usize,
    /// Locked file that is mapped; `None` for anonymous memory. It is unlocked after the memory is
    /// unmapped.
    file: Option<OwnedFd>,
    owns: PhantomData<T>,
}

// SAFETY: the memory belongs to this value alone, as that of a Box<[T]> does; nothing is tied to a thread.
unsafe impl<T: Send> Send for HugeVec<T> {}
// SAFETY: as for Box<[T]>: `&HugeVec<T>` only gives access to `&[T]`.
unsafe impl<T: Sync> Sync for HugeVec<T> {}

impl<T> Default for HugeVec<T> {
    /// Creates an empty array.
    fn default() -> Self {
        HugeVec { start: NonNull::dangling(), len: 0, mapped: 0, file: None, owns: PhantomData }
    }
}

impl<T: Copy + FromZeros> HugeVec<T> {
    /// Creates an array of `len` zeroes.
    ///
    /// # Errors
    /// Returns an error if the kernel does not have that much memory or address space.
    pub fn new(len: usize) -> Result<Self, OutOfMemory> {
        let bytes = Self::bytes_of(len)?;
        let whole = bytes.checked_next_multiple_of(HUGE_PAGE).ok_or(OutOfMemory { bytes })?;
        if bytes > HUGE_PAGE - PAGE
            && let Some(start) = map_from_pool(whole)
        {
            let v = HugeVec { start: start.cast(), len, mapped: whole, file: None, owns: PhantomData };
            return v.taken(whole);
        }
        let v = Self::sparse(len)?;
        let mapped = v.mapped;
        v.taken(mapped)
    }

    /// Allocates the memory of the first `bytes` if the process allocates tables at once.
    fn taken(self, bytes: usize) -> Result<Self, OutOfMemory> {
        if bytes > 0 && is_taken_at_once() {
            at_once::populate(self.start.cast(), bytes.min(self.mapped))?;
        }
        Ok(self)
    }

    /// Memory use of a table of `len` elements.
    pub fn footprint(len: usize) -> Footprint {
        Footprint::of_table(len.saturating_mul(size_of::<T>()))
    }

    /// Creates an array of `room` zeroes of which only the first `used` will be used soon. It never takes
    /// reserved huge pages, because these would be allocated from the beginning. It uses transparent huge
    /// pages only if `used` fills whole ones.
    ///
    /// # Errors
    /// Same as [`HugeVec::new`].
    pub fn with_room(used: usize, room: usize) -> Result<Self, OutOfMemory> {
        let v = Self::sparse(room.max(used))?;
        let used = Self::bytes_of(used)?;
        if used < HUGE_PAGE && v.mapped >= HUGE_PAGE {
            // SAFETY: `sparse` has mapped exactly this range. The advice does not change the contents; if it
            // is refused, pages are larger than necessary.
            let _ = unsafe { madvise(v.start.as_ptr().cast(), v.mapped, Advice::LinuxNoHugepage) };
        }
        v.taken(used.next_multiple_of(PAGE))
    }

    fn sparse(len: usize) -> Result<Self, OutOfMemory> {
        const { assert!(align_of::<T>() <= PAGE && size_of::<T>() > 0) };
        let bytes = Self::bytes_of(len)?;
        if bytes == 0 {
            return Ok(HugeVec::default());
        }
        let mapped = bytes.checked_next_multiple_of(PAGE).ok_or(OutOfMemory { bytes })?;
        let start = if mapped < HUGE_PAGE { map(mapped)? } else { map_at_huge_page(mapped)? };
        Ok(HugeVec { start: start.cast(), len, mapped, file: None, owns: PhantomData })
    }

    fn bytes_of(len: usize) -> Result<usize, OutOfMemory> {
        len.checked_mul(size_of::<T>()).ok_or(OutOfMemory { bytes: usize::MAX })
    }
}

/// Returns whether `bytes` of a table would be on reserved huge pages. It touches no page.
pub fn pages_set_aside(bytes: usize) -> bool {
    let probe = bytes.checked_next_multiple_of(HUGE_PAGE).filter(|_| bytes > HUGE_PAGE - PAGE);
    let Some((start, mapped)) = probe.and_then(|whole| Some((map_from_pool(whole)?, whole))) else {
        return false;
    };
    // This unmaps the memory again.
    drop(HugeVec::<u8> { start: start.cast(), len: bytes, mapped, file: None, owns: PhantomData });
    true
}

/// Maps `bytes` of zeroes at a page boundary. `bytes` is a nonzero multiple of [`PAGE`].
fn map(bytes: usize) -> Result<NonNull<c_void>, OutOfMemory> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: without MAP_FIXED and with a null hint, the kernel chooses an unused range.
    let at = unsafe { mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) };
    at.ok().and_then(NonNull::new).ok_or(OutOfMemory { bytes })
}

/// Same as [`map`], from reserved huge pages (`vm.nr_hugepages`), if enough are left. They belong to the
/// process from then on, so no later access can fail. `bytes` is a multiple of [`HUGE_PAGE`].
fn map_from_pool(bytes: usize) -> Option<NonNull<c_void>> {
    let flags = MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_2MB;
    // SAFETY: as in `map`.
    let at = unsafe { mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) };
    at.ok().and_then(NonNull::new)
}

/// Same as [`map`], at a huge page boundary: maps one huge page more and unmaps the ends.
fn map_at_huge_page(bytes: usize) -> Result<NonNull<c_void>, OutOfMemory> {
    let padded = bytes.checked_add(HUGE_PAGE).ok_or(OutOfMemory { bytes })?;
    let base = map(padded)?;
    let head = base.align_offset_bytes(HUGE_PAGE);
    let tail = HUGE_PAGE - head;
    // SAFETY: `head <= HUGE_PAGE`, so all three pieces are inside the mapping made above. No other code knows
    // this mapping yet, and the ends are not used again. Unmapping and advice fail only for bad arguments.
    // Then the ends stay mapped, or the pages are small, and the middle is still usable.
    unsafe {
        let start = base.byte_add(head);
        if head > 0 {
            let _ = munmap(base.as_ptr(), head);
        }
        if tail > 0 {
            let _ = munmap(start.byte_add(bytes).as_ptr(), tail);
        }
        let _ = madvise(start.as_ptr(), bytes, Advice::LinuxHugepage);
        Ok(start)
    }
}

/// Distance to the next multiple of a power of two.
trait AlignOffsetBytes {
    fn align_offset_bytes(self, align: usize) -> usize;
}

impl AlignOffsetBytes for NonNull<c_void> {
    fn align_offset_bytes(self, align: usize) -> usize {
        self.addr().get().wrapping_neg() & (align - 1)
    }
}

impl<T> Drop for HugeVec<T> {
    fn drop(&mut self) {
        if self.mapped > 0 {
            // SAFETY: `start` and `mapped` describe the mapping made by `new`, and nothing borrows it any
            // more. `T` is Copy, so no element has to be dropped.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.mapped) };
        }
        // A child between fork(2) and execve(2) has a copy of the descriptor, so closing it is not enough.
        if let Some(file) = &self.file {
            let _ = flock(file, FlockOperation::Unlock);
        }
    }
}

impl<T> Deref for HugeVec<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `new` mapped room for `len` of `T` at `start` (dangling and 0 if none), aligned to a page.
        // All bytes were zero, which is a valid `T` by FromZeros, and only `&mut [T]` has changed them.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for HugeVec<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `&mut self` is the only access to the memory.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T> core::fmt::Debug for HugeVec<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("HugeVec").field("len", &self.len).field("mapped", &self.mapped).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zero_writable_to_its_last_element_and_freed() {
        for len in [0, 1, 1023, 1024, 1025, (HUGE_PAGE / 8) - 1, HUGE_PAGE / 8, 3 * HUGE_PAGE / 8 + 1] {
            let mut v = HugeVec::<u64>::new(len).unwrap();
            assert_eq!(v.len(), len);
            assert!(v.iter().all(|&x| x == 0));
            v.iter_mut().enumerate().for_each(|(i, x)| *x = i as u64);
            assert!(v.iter().enumerate().all(|(i, &x)| x == i as u64));
        }
    }

    #[test]
    fn unused_room_costs_no_memory_and_is_zero_and_writable() {
        let mut v = HugeVec::<u32>::with_room(10, 1 << 30).unwrap();
        assert_eq!(v.len(), 1 << 30);
        v[(1 << 30) - 1] = 3;
        assert_eq!((v[0], v[1 << 29], v[(1 << 30) - 1]), (0, 0, 3));
        assert_eq!(HugeVec::<u32>::with_room(3, 2).unwrap().len(), 3);
        assert!(HugeVec::<u64>::with_room(1, usize::MAX).is_err());
    }

    #[test]
    fn large_tables_start_at_a_huge_page() {
        let v = HugeVec::<[u8; 64]>::new(100_000).unwrap();
        assert_eq!(v.as_ptr() as usize % HUGE_PAGE, 0);
    }

    /// Returns the line of /proc/self/maps for an address.
    fn mapping_of(address: usize) -> std::string::String {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let holds = |line: &&str| {
            let (first, rest) = line.split_once('-').unwrap();
            let (end, _) = rest.split_once(' ').unwrap();
            let hex = |text| usize::from_str_radix(text, 16).unwrap();
            (hex(first)..hex(end)).contains(&address)
        };
        maps.lines().find(holds).unwrap_or_default().into()
    }

    const SETTING: &str = "/proc/sys/vm/nr_hugepages";

    fn free_huge_pages() -> usize {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap();
        let free = |line: &str| line.strip_prefix("HugePages_Free:")?.trim().parse().ok();
        text.lines().find_map(free).unwrap_or(0)
    }

    /// Huge pages that are reserved for a test and freed at its end. The value is their previous number.
    struct SetAside(usize);

    impl SetAside {
        /// Reserves enough huge pages for so many free ones, if possible: existing ones, or new ones with
        /// root rights.
        fn new(wanted: usize) -> Option<SetAside> {
            let before: usize = std::fs::read_to_string(SETTING).ok()?.trim().parse().ok()?;
            let set = SetAside(before);
            let more = wanted.saturating_sub(free_huge_pages());
            if more > 0 {
                std::fs::write(SETTING, std::format!("{}", before + more)).ok()?;
            }
            (free_huge_pages() >= wanted).then_some(set)
        }
    }

    impl Drop for SetAside {
        fn drop(&mut self) {
            let _ = std::fs::write(SETTING, std::format!("{}", self.0));
        }
    }

    #[test]
    fn reserved_huge_pages_are_used_first() {
        const PAGES: usize = 3;
        // More pages than the test uses, because other tests take some meanwhile.
        let Some(_set_aside) = SetAside::new(64) else {
            return gatun_testkit::skip(
                "it needs 64 free huge pages (sysctl vm.nr_hugepages=64), or root and 128 MB",
            );
        };
        let mut v = HugeVec::<u64>::new((PAGES * HUGE_PAGE - 8) / 8).unwrap();
        v.fill(7);
        let mapping = mapping_of(v.as_ptr() as usize);
        assert!(mapping.contains("hugepage"), "{mapping}");
        assert!(v.iter().all(|&x| x == 7));
    }

    #[test]
    fn memory_returns_to_the_kernel_on_drop() {
        // If the memory were kept, the address space would not suffice for a thousand arrays.
        for _ in 0..1000 {
            HugeVec::<u8>::new(1 << 45).unwrap();
        }
    }

    #[test]
    fn a_table_may_be_sent_to_another_thread() {
        let mut v = HugeVec::<u32>::new(5000).unwrap();
        v[4999] = 7;
        let back = std::thread::spawn(move || {
            v[0] = v[4999];
            v
        });
        assert_eq!(back.join().unwrap()[0], 7);
    }

    #[test]
    fn too_much_memory_is_an_error() {
        assert_eq!(HugeVec::<u64>::new(usize::MAX).unwrap_err(), OutOfMemory { bytes: usize::MAX });
        assert!(HugeVec::<u8>::new(1 << 60).is_err());
        assert!(HugeVec::<u8>::new(usize::MAX).is_err());
    }
}
