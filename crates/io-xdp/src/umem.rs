//! UMEM: memory for received and sent packets, shared with the kernel by all ports of a worker.
//!
//! ```text
//!   frame:  [ 256 bytes that the kernel leaves | packet ........................ ]     2048 or 4096 bytes
//!             '-- room in front, HEADROOM and more
//! ```
//! A [`Frame`] is the exclusive right to a frame's bytes. It is created once, cannot be copied, and is
//! consumed when the frame goes into a ring and becomes the kernel's. A frame that comes out of a ring is a
//! [`Frame`] again. It knows its [`Umem`], and no other one accepts it.

use gatun_wire::HEADROOM;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Bytes that the kernel leaves before a received packet (`XDP_PACKET_HEADROOM`).
pub(crate) const KERNEL_HEADROOM: usize = 256;

const _: () = assert!(KERNEL_HEADROOM >= HEADROOM);

/// Exclusive right to the bytes of one frame of a [`Umem`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    number: u32,
    /// Identity of its [`Umem`].
    id: u32,
}

impl Frame {
    /// Number of the frame, below the count of frames.
    #[inline]
    pub(crate) fn number(&self) -> usize {
        self.number as usize
    }
}

/// Frames of one size, a power of two.
pub(crate) struct Umem {
    area: NonNull<u8>,
    len: usize,
    shift: u32,
    frames: u32,
    /// Unique in this process.
    id: u32,
}

/// Identity of the next [`Umem`].
static NEXT_ID: AtomicU32 = AtomicU32::new(0);

// SAFETY: the area is ordinary memory of the process. `Frame`s decide which bytes may be accessed, and they
// move between threads only with the whole backend.
unsafe impl Send for Umem {}
// SAFETY: a shared `Umem` only gives access to the bytes of a `Frame`, which is borrowed exclusively.
unsafe impl Sync for Umem {}

impl Umem {
    /// Allocates an area with this many frames of this many bytes, and returns all frames.
    pub(crate) fn new(frames: u32, frame_len: usize) -> io::Result<(Self, Vec<Frame>)> {
        assert!(frame_len.is_power_of_two(), "the size of frames is a power of two");
        let len = frames as usize * frame_len;
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let area = unsafe { mmap_anonymous(std::ptr::null_mut(), len, prot, flags)? };
        let area = NonNull::new(area.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let next = |id: u32| id.checked_add(1);
        // A repeated number would let frames of one area be used with another.
        let id = NEXT_ID.fetch_update(Relaxed, Relaxed, next).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let umem = Umem { area, len, shift: frame_len.trailing_zeros(), frames, id };
        Ok((umem, (0..frames).map(|number| Frame { number, id }).collect()))
    }

    /// Address of the area, for the kernel.
    pub(crate) fn address(&self) -> u64 {
        self.area.as_ptr() as u64
    }

    /// Size of all frames in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Size of a frame in bytes.
    pub(crate) fn frame_len(&self) -> usize {
        1 << self.shift
    }

    /// Address of a byte of a frame, as used in rings.
    #[inline]
    pub(crate) fn address_of(&self, frame: &Frame, at: usize) -> u64 {
        // Otherwise the kernel would write to a frame with other content.
        assert!(frame.id == self.id, "a frame of another umem");
        (u64::from(frame.number) << self.shift) + at as u64
    }

    /// Frame that contains an address from a ring, and the offset in it.
    ///
    /// # Safety
    /// No [`Frame`] of it may exist: it was put into a ring of this umem's sockets, and the kernel has
    /// returned it.
    #[inline]
    pub(crate) unsafe fn frame_at(&self, address: u64) -> Option<(Frame, usize)> {
        let number = u32::try_from(address >> self.shift).ok().filter(|number| *number < self.frames)?;
        Some((Frame { number, id: self.id }, address as usize & (self.frame_len() - 1)))
    }

    /// Frame with this number.
    ///
    /// # Safety
    /// No [`Frame`] of it may exist: the kernel held it for a socket that is closed.
    pub(crate) unsafe fn recover(&self, number: usize) -> Option<Frame> {
        let number = u32::try_from(number).ok().filter(|number| *number < self.frames)?;
        Some(Frame { number, id: self.id })
    }

    /// Bytes of a frame.
    #[inline]
    pub(crate) fn bytes<'f>(&'f self, frame: &'f mut Frame) -> &'f mut [u8] {
        assert!(frame.id == self.id, "a frame of another umem");
        // SAFETY: the assertion shows that the frame belongs to this umem, and its number is below the count,
        // so the bytes are inside the area. Only one `Frame` exists for them, which whoever recreates a frame
        // guarantees. The frame and the area are borrowed for as long as the bytes are.
        unsafe {
            let begin = self.area.as_ptr().add(frame.number() << self.shift);
            std::slice::from_raw_parts_mut(begin, self.frame_len())
        }
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length. The kernel keeps the pages for sockets that use them.
        let _ = unsafe { munmap(self.area.as_ptr().cast::<c_void>(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "a frame of another umem")]
    fn a_frame_cannot_be_used_with_another_umem() {
        let (large, mut frames) = Umem::new(4, 4096).unwrap();
        let (small, _) = Umem::new(1, 2048).unwrap();
        let mut last = frames.pop().unwrap();
        large.bytes(&mut last).fill(1);
        // The write would be after the end of the small area.
        small.bytes(&mut last).fill(2);
    }

    #[test]
    #[should_panic(expected = "a frame of another umem")]
    fn a_frame_cannot_enter_a_ring_of_another_umem() {
        let (one, mut frames) = Umem::new(4, 2048).unwrap();
        let (other, _others) = Umem::new(4, 2048).unwrap();
        let last = frames.pop().unwrap();
        assert_eq!(one.address_of(&last, 256), 3 * 2048 + 256);
        // The other area has a frame with this number, and somebody else owns it.
        other.address_of(&last, 256);
    }
}
