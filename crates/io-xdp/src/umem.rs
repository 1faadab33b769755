//! The memory that packets are received into and sent from, shared with the kernel by every port of a worker.
//!
//! ```text
//!   frame:  [ 256 bytes that the kernel leaves | packet ........................ ]     2048 or 4096 bytes
//!             '-- room in front, HEADROOM and more
//! ```
//! A [`Frame`] is the right to a frame's bytes: it is made once, cannot be copied, and goes into a ring when the frame
//! becomes the kernel's. What comes out of a ring is one again.

use gatun_wire::HEADROOM;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;

/// Bytes that the kernel leaves in front of what it receives (`XDP_PACKET_HEADROOM`).
pub(crate) const ROOM_IN_FRONT: usize = 256;

const _: () = assert!(ROOM_IN_FRONT >= HEADROOM + 22);

/// The right to the bytes of one frame of a [`Umem`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame(u32);

impl Frame {
    /// Its number, below the count of frames.
    #[inline]
    pub(crate) fn number(&self) -> usize {
        self.0 as usize
    }
}

/// Frames, all of one size, a power of two.
pub(crate) struct Umem {
    area: NonNull<u8>,
    len: usize,
    shift: u32,
    frames: u32,
}

// SAFETY: the area is memory of the process like any other; who may touch which bytes is the matter of `Frame`s, which
// are given from thread to thread only with the whole backend.
unsafe impl Send for Umem {}
// SAFETY: through a shared `Umem` nothing but the bytes of a `Frame` is reached, and that is borrowed exclusively.
unsafe impl Sync for Umem {}

impl Umem {
    /// An area with so many frames of so many bytes each, and all the frames.
    pub(crate) fn new(frames: u32, frame_len: usize) -> io::Result<(Self, Vec<Frame>)> {
        assert!(frame_len.is_power_of_two(), "the size of frames is a power of two");
        let len = frames as usize * frame_len;
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let area = unsafe { mmap_anonymous(std::ptr::null_mut(), len, prot, flags)? };
        let area = NonNull::new(area.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let umem = Umem { area, len, shift: frame_len.trailing_zeros(), frames };
        Ok((umem, (0..frames).map(Frame).collect()))
    }

    /// Where it is, for the kernel.
    pub(crate) fn address(&self) -> u64 {
        self.area.as_ptr() as u64
    }

    /// Bytes of all frames.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of a frame.
    pub(crate) fn frame_len(&self) -> usize {
        1 << self.shift
    }

    /// The address of a byte of a frame, as rings have it.
    #[inline]
    pub(crate) fn address_of(&self, frame: &Frame, at: usize) -> u64 {
        (u64::from(frame.0) << self.shift) + at as u64
    }

    /// The frame that an address from a ring is in, and where; the kernel returns what it was given.
    #[inline]
    pub(crate) fn frame_at(&self, address: u64) -> Option<(Frame, usize)> {
        let number = u32::try_from(address >> self.shift).ok().filter(|number| *number < self.frames)?;
        Some((Frame(number), address as usize & (self.frame_len() - 1)))
    }

    /// The frame of that number, which nobody has any more: it was the kernel's for a socket that is closed.
    pub(crate) fn recover(&self, number: usize) -> Option<Frame> {
        u32::try_from(number).ok().filter(|number| *number < self.frames).map(Frame)
    }

    /// The bytes of a frame.
    #[inline]
    pub(crate) fn bytes<'f>(&'f self, frame: &'f mut Frame) -> &'f mut [u8] {
        // SAFETY: a `Frame` is only made with its `Umem` or from what a ring returned, with a number below the count, so
        // the bytes are in the area. There is one `Frame` for them, and it is borrowed for as long as they are.
        // The area lives longer than any frame: `Ports` owns both, and drops the area last.
        unsafe {
            let begin = self.area.as_ptr().add(frame.number() << self.shift);
            std::slice::from_raw_parts_mut(begin, self.frame_len())
        }
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length. The kernel keeps the pages for sockets that have them.
        let _ = unsafe { munmap(self.area.as_ptr().cast::<c_void>(), self.len) };
    }
}
