//! Rings shared with the kernel: one side writes, the other reads.
//!
//! ```text
//!   mapping:  producer:u32 ... consumer:u32 ... flags:u32 ... [ entry; size ]      places as the kernel says
//!
//!   entries consumer .. producer are full; both run on through all of u32, and size is a power of two
//! ```
//! The kernel's side differs: it reads the fill and transmit rings ([`Producer`] here) and writes the
//! completion and receive rings ([`Consumer`] here).

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::xdp::{XdpRingFlags, XdpRingOffset};
use std::ffi::c_void;
use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Type of a ring's entries. Any bytes from the kernel are a valid value.
pub(crate) trait RingEntry: Copy {}
impl RingEntry for u64 {}

/// `struct xdp_desc`: a packet in the UMEM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Desc {
    /// Offset in bytes from the beginning of the UMEM.
    pub(crate) addr: u64,
    /// Length in bytes.
    pub(crate) len: u32,
    pub(crate) options: u32,
}
impl RingEntry for Desc {}

/// Mapped ring of either direction, not used yet.
pub(crate) struct Ring<T> {
    mapping: NonNull<u8>,
    mapped: usize,
    offsets: XdpRingOffset,
    mask: u32,
    entries: PhantomData<T>,
}

// SAFETY: within this process, the mapping is accessed only through this value, and any thread may access it.
unsafe impl<T: RingEntry> Send for Ring<T> {}

impl<T: RingEntry> Ring<T> {
    /// Maps the ring of `size` entries at `page_offset` of a socket.
    pub(crate) fn map(
        socket: BorrowedFd<'_>,
        page_offset: u64,
        offsets: XdpRingOffset,
        size: u32,
    ) -> io::Result<Self> {
        debug_assert!(size.is_power_of_two());
        let mapped = offsets.desc as usize + size as usize * size_of::<T>();
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses and that nothing else in this process
        // uses.
        let mapping = unsafe { mmap(std::ptr::null_mut(), mapped, prot, flags, socket, page_offset)? };
        let mapping = NonNull::new(mapping.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Ring { mapping, mapped, offsets, mask: size - 1, entries: PhantomData })
    }

    fn word(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the kernel's offsets are of aligned words inside the mapping, which lives as long as
        // `self`. The kernel also accesses them only as words.
        unsafe { self.mapping.add(offset as usize).cast::<AtomicU32>().as_ref() }
    }

    fn producer(&self) -> &AtomicU32 {
        self.word(self.offsets.producer)
    }

    fn consumer(&self) -> &AtomicU32 {
        self.word(self.offsets.consumer)
    }

    #[inline]
    fn entry(&self, number: u32) -> *mut T {
        // SAFETY: the masked number is below the size, and the mapping has that many aligned entries from
        // `desc` on.
        unsafe {
            let entries = self.mapping.add(self.offsets.desc as usize).cast::<T>();
            entries.add((number & self.mask) as usize).as_ptr()
        }
    }

    fn needs_wakeup(&self) -> bool {
        // Before Linux 5.4 this word does not exist, and the kernel must always be woken.
        self.offsets.flags.is_none_or(|offset| {
            let flags = self.word(offset).load(Ordering::Relaxed);
            flags & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0
        })
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length; nothing that points into it outlives `self`. The call
        // cannot fail then.
        let _ = unsafe { munmap(self.mapping.as_ptr().cast::<c_void>(), self.mapped) };
    }
}

/// Writing end of a ring that the kernel reads.
pub(crate) struct Producer<T: RingEntry> {
    ring: Ring<T>,
    /// Position up to which entries are written; the kernel may know less.
    written: u32,
    /// Position up to which the kernel has read, as last seen.
    seen: u32,
}

impl<T: RingEntry> Producer<T> {
    pub(crate) fn new(ring: Ring<T>) -> Self {
        Producer { ring, written: 0, seen: 0 }
    }

    /// Number of entries that can be written.
    #[inline]
    pub(crate) fn room(&mut self) -> u32 {
        let size = self.ring.mask + 1;
        if self.written.wrapping_sub(self.seen) == size {
            // The kernel reads an entry before it advances this counter, hence Acquire.
            self.seen = self.ring.consumer().load(Ordering::Acquire);
        }
        size - self.written.wrapping_sub(self.seen)
    }

    /// Number of entries that can be written, after reading the kernel's position.
    #[inline]
    pub(crate) fn room_now(&mut self) -> u32 {
        self.seen = self.ring.consumer().load(Ordering::Acquire);
        self.room()
    }

    /// Writes an entry, invisible to the kernel before [`publish`](Self::publish). Returns false if the ring
    /// is full.
    #[inline]
    pub(crate) fn push(&mut self, value: T) -> bool {
        if self.room() == 0 {
            return false;
        }
        // SAFETY: the pointer is to an entry of the mapping. It is not published, so the kernel does not
        // access it.
        unsafe { self.ring.entry(self.written).write(value) };
        self.written = self.written.wrapping_add(1);
        true
    }

    /// Makes all written entries visible to the kernel.
    #[inline]
    pub(crate) fn publish(&mut self) {
        self.ring.producer().store(self.written, Ordering::Release);
    }

    /// Number of entries that the kernel has not read, including unpublished ones.
    #[inline]
    pub(crate) fn waiting(&mut self) -> u32 {
        let size = self.ring.mask + 1;
        size - self.room_now()
    }

    /// Checks whether the kernel needs a system call to notice new entries.
    #[inline]
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// Reading end of a ring that the kernel writes.
pub(crate) struct Consumer<T: RingEntry> {
    ring: Ring<T>,
    /// Position up to which entries are read; the kernel may know less.
    read: u32,
    /// Position up to which the kernel has written, as last seen.
    seen: u32,
}

impl<T: RingEntry> Consumer<T> {
    pub(crate) fn new(ring: Ring<T>) -> Self {
        Consumer { ring, read: 0, seen: 0 }
    }

    /// Next entry. Reads the kernel's position if all seen entries are read.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.read == self.seen {
            // The kernel writes an entry before it advances this counter, hence Acquire.
            self.seen = self.ring.producer().load(Ordering::Acquire);
            if self.read == self.seen {
                return None;
            }
        }
        // SAFETY: the pointer is to an entry of the mapping that the kernel has written and does not change
        // until it is released; any bytes are a valid value (`RingEntry`).
        let value = unsafe { self.ring.entry(self.read).read() };
        self.read = self.read.wrapping_add(1);
        Some(value)
    }

    /// Returns the slots of all read entries to the kernel.
    #[inline]
    pub(crate) fn release(&mut self) {
        self.ring.consumer().store(self.read, Ordering::Release);
    }
}
