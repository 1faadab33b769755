//! Rings that are shared with the kernel: one side writes, the other reads.
//!
//! ```text
//!   mapping:  producer:u32 ... consumer:u32 ... flags:u32 ... [ entry; size ]      places as the kernel says
//!
//!   entries consumer .. producer are full; both run on through all of u32, and size is a power of two
//! ```
//! Which side is the kernel differs: it reads fill and transmit rings ([`Producer`] here), and writes completion and
//! receive rings ([`Consumer`] here).

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::xdp::{XdpRingFlags, XdpRingOffset};
use std::ffi::c_void;
use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// What may be in a ring: any bytes of the kernel's are a value.
pub(crate) trait Entry: Copy {}
impl Entry for u64 {}

/// `struct xdp_desc`: a packet in the UMEM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Desc {
    /// Bytes from the beginning of the UMEM.
    pub(crate) addr: u64,
    /// Bytes.
    pub(crate) len: u32,
    pub(crate) options: u32,
}
impl Entry for Desc {}

/// A mapped ring of either direction, of which nothing was written or read yet.
pub(crate) struct Ring<T> {
    mapping: NonNull<u8>,
    mapped: usize,
    offsets: XdpRingOffset,
    mask: u32,
    entries: PhantomData<T>,
}

// SAFETY: the mapping is reached through this value alone, as far as this process goes, and from any thread alike.
unsafe impl<T: Entry> Send for Ring<T> {}

impl<T: Entry> Ring<T> {
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
        // SAFETY: a new mapping at an address of the kernel's choice, which nothing else of this process uses.
        let mapping = unsafe { mmap(std::ptr::null_mut(), mapped, prot, flags, socket, page_offset)? };
        let mapping = NonNull::new(mapping.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Ring { mapping, mapped, offsets, mask: size - 1, entries: PhantomData })
    }

    fn word(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the kernel's offsets are of aligned words inside the mapping, which lives as long as `self`, and which
        // the kernel too accesses as words only.
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
        // SAFETY: masked, the number is below the size, and so many entries are in the mapping from `desc` on, aligned.
        unsafe {
            let entries = self.mapping.add(self.offsets.desc as usize).cast::<T>();
            entries.add((number & self.mask) as usize).as_ptr()
        }
    }

    fn needs_wakeup(&self) -> bool {
        // Before Linux 5.4 there is no such word, and the kernel always has to be told.
        self.offsets.flags.is_none_or(|offset| {
            let flags = self.word(offset).load(Ordering::Relaxed);
            flags & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0
        })
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length; nothing that points into it outlives `self`. It cannot fail then.
        let _ = unsafe { munmap(self.mapping.as_ptr().cast::<c_void>(), self.mapped) };
    }
}

/// The writing end of a ring that the kernel reads.
pub(crate) struct Producer<T: Entry> {
    ring: Ring<T>,
    /// Written up to here, of which the kernel may know less.
    written: u32,
    /// Read by the kernel up to here, as last seen.
    seen: u32,
}

impl<T: Entry> Producer<T> {
    pub(crate) fn new(ring: Ring<T>) -> Self {
        Producer { ring, written: 0, seen: 0 }
    }

    /// Entries that can be written.
    #[inline]
    pub(crate) fn room(&mut self) -> u32 {
        let size = self.ring.mask + 1;
        if self.written.wrapping_sub(self.seen) == size {
            // The kernel has read an entry before it says so: Acquire.
            self.seen = self.ring.consumer().load(Ordering::Acquire);
        }
        size - self.written.wrapping_sub(self.seen)
    }

    /// The same, after a look at how far the kernel is.
    #[inline]
    pub(crate) fn room_now(&mut self) -> u32 {
        self.seen = self.ring.consumer().load(Ordering::Acquire);
        self.room()
    }

    /// Writes an entry, which the kernel does not see before [`publish`](Self::publish); `false` where none has room.
    #[inline]
    pub(crate) fn push(&mut self, value: T) -> bool {
        if self.room() == 0 {
            return false;
        }
        // SAFETY: the pointer is to an entry of the mapping; it is not published, so the kernel does not touch it.
        unsafe { self.ring.entry(self.written).write(value) };
        self.written = self.written.wrapping_add(1);
        true
    }

    /// Lets the kernel see all that was written.
    #[inline]
    pub(crate) fn publish(&mut self) {
        self.ring.producer().store(self.written, Ordering::Release);
    }

    /// Entries that the kernel has not read, among them those that it does not see yet.
    #[inline]
    pub(crate) fn waiting(&mut self) -> u32 {
        let size = self.ring.mask + 1;
        size - self.room_now()
    }

    /// Whether the kernel has to be told of new entries by a system call.
    #[inline]
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// The reading end of a ring that the kernel writes.
pub(crate) struct Consumer<T: Entry> {
    ring: Ring<T>,
    /// Read up to here, of which the kernel may know less.
    read: u32,
    /// Written by the kernel up to here, as last seen.
    seen: u32,
}

impl<T: Entry> Consumer<T> {
    pub(crate) fn new(ring: Ring<T>) -> Self {
        Consumer { ring, read: 0, seen: 0 }
    }

    /// The next entry, after a look at how far the kernel is where all that was seen is read.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.read == self.seen {
            // The kernel has written an entry before it says so: Acquire.
            self.seen = self.ring.producer().load(Ordering::Acquire);
            if self.read == self.seen {
                return None;
            }
        }
        // SAFETY: the pointer is to an entry of the mapping, which the kernel has written and leaves alone until it is
        // released; any bytes are a value (`Entry`).
        let value = unsafe { self.ring.entry(self.read).read() };
        self.read = self.read.wrapping_add(1);
        Some(value)
    }

    /// Gives the kernel back the places of all entries that were read.
    #[inline]
    pub(crate) fn release(&mut self) {
        self.ring.consumer().store(self.read, Ordering::Release);
    }
}
