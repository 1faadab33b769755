//! Packet buffers, and the queues of a device.

use crate::sys::{self, Mempool, RawFrame};
use arrayvec::ArrayVec;
use gatun_io::BURST_MAX;
use std::ffi::c_uint;
use std::ptr::{self, NonNull};

/// Packet buffer owned by this process, with a frame in it; freed when dropped.
#[repr(transparent)]
pub(crate) struct Frame(RawFrame);

// SAFETY: the owner of a `Frame` is the only owner of its buffer, and DPDK's buffers belong to no thread.
unsafe impl Send for Frame {}

impl Frame {
    /// Whole buffer.
    #[inline]
    pub(crate) fn buffer(&mut self) -> &mut [u8] {
        if self.0.mbuf.is_null() {
            return &mut [];
        }
        // SAFETY: the driver or the pool gave the buffer of `room` bytes to this process, and `self` is its
        // only owner until it is sent or dropped. Its memory is initialised, like the pool's pages.
        unsafe { std::slice::from_raw_parts_mut(self.0.buffer, usize::from(self.0.room)) }
    }

    /// Offset of the frame in the buffer.
    #[inline]
    pub(crate) fn start(&self) -> usize {
        usize::from(self.0.start)
    }

    /// Length in bytes; 0 if the frame spans several buffers, which is not supported.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        usize::from(self.0.len)
    }

    /// Takes the frame out with its new position in the buffer, and leaves an empty one.
    #[inline]
    pub(crate) fn take(&mut self, start: u16, len: u16) -> Frame {
        let mut raw = RawFrame { start, len, ..self.0 };
        if usize::from(start) + usize::from(len) > usize::from(raw.room) {
            raw.len = 0;
        }
        self.0.mbuf = ptr::null_mut();
        Frame(raw)
    }
}

impl Drop for Frame {
    #[inline]
    fn drop(&mut self) {
        if !self.0.mbuf.is_null() {
            // SAFETY: as above; nobody owns it afterwards.
            unsafe { sys::gatun_frames_free(&self.0, 1) }
        }
    }
}

/// Pool of packet buffers of one queue of one device. It lives as long as the process.
#[derive(Clone, Copy)]
pub(crate) struct Pool(NonNull<Mempool>);

// SAFETY: several threads may use a DPDK pool.
unsafe impl Send for Pool {}

impl Pool {
    pub(crate) fn of(pool: *mut Mempool) -> Option<Pool> {
        NonNull::new(pool).map(Pool)
    }

    pub(crate) fn as_ptr(self) -> *mut Mempool {
        self.0.as_ptr()
    }

    /// Creates a frame with these bytes. `None` if no buffer is free or they do not fit.
    pub(crate) fn copy(self, bytes: &[u8]) -> Option<Frame> {
        let mut raw = RawFrame::EMPTY;
        // SAFETY: pools are never freed; the function writes a whole `RawFrame` if it succeeds.
        if unsafe { sys::gatun_frame_new(self.as_ptr(), &mut raw) } != 0 {
            return None;
        }
        let mut frame = Frame(raw);
        let start = frame.start();
        frame.buffer().get_mut(start..)?.get_mut(..bytes.len())?.copy_from_slice(bytes);
        frame.0.len = bytes.len() as u16;
        Some(frame)
    }

    /// Recovers the buffers that a device has forgotten with its peer: those it was to send and, if the pool
    /// is its `own`, those it was to receive into. No frame of this pool may be staged. Returns the
    /// number of buffers.
    pub(crate) fn recover(self, queue: &Queue, own: bool) -> u32 {
        // SAFETY: only this thread uses the pool and the queue, whose device has no peer; the pool's device
        // marks buffers that it takes (`Device::marks_buffers`), so nobody owns the buffers found.
        unsafe { sys::gatun_pool_recover(self.as_ptr(), queue.port, own.into()) }
    }

    /// Number of free buffers.
    pub(crate) fn free(self) -> u32 {
        // SAFETY: as above.
        unsafe { sys::gatun_pool_free(self.as_ptr()) }
    }
}

impl RawFrame {
    const EMPTY: RawFrame =
        RawFrame { mbuf: ptr::null_mut(), buffer: ptr::null_mut(), room: 0, start: 0, len: 0 };
}

/// One queue of a device, each way. Only its owner may use it.
pub(crate) struct Queue {
    pub(crate) port: u16,
    pub(crate) number: u16,
}

impl Queue {
    /// Appends waiting frames as far as there is room. Returns their number.
    #[inline]
    pub(crate) fn receive(&mut self, frames: &mut ArrayVec<Frame, BURST_MAX>) -> usize {
        let (before, room) = (frames.len(), frames.remaining_capacity());
        // SAFETY: there is room for `room` frames after the first `before`, `Frame` is a `RawFrame`, and the
        // function writes as many whole ones as it returns. The device was started with this queue, and
        // nobody else uses it.
        unsafe {
            let place = frames.as_mut_ptr().add(before).cast();
            let count = usize::from(sys::gatun_receive(self.port, self.number, place, room as u16));
            frames.set_len(before + count.min(room));
            count
        }
    }

    /// Gives frames to the device in order and drops those that it does not accept. Returns the number of
    /// accepted frames and their bytes.
    #[inline]
    pub(crate) fn send(&mut self, frames: &mut ArrayVec<Frame, BURST_MAX>) -> (u64, u64) {
        let mut rest = &mut frames[..];
        let (mut sent, mut bytes) = (0, 0);
        while !rest.is_empty() {
            // SAFETY: `Frame` is a `RawFrame`; each has its buffer and a position inside it. The driver owns
            // those that the function reports as accepted.
            let count =
                unsafe { sys::gatun_send(self.port, self.number, rest.as_ptr().cast(), rest.len() as u16) };
            let count = usize::from(count).min(rest.len());
            if count == 0 {
                break;
            }
            for frame in &mut rest[..count] {
                bytes += u64::from(frame.0.len);
                frame.0.mbuf = ptr::null_mut();
            }
            sent += count as u64;
            rest = &mut rest[count..];
        }
        frames.clear();
        (sent, bytes)
    }
}

const _: () = assert!(size_of::<Frame>() == size_of::<RawFrame>() && BURST_MAX <= c_uint::MAX as usize);
