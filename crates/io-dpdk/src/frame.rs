//! Packet buffers, and the queues that they come from and go to.

use crate::sys::{self, Mempool, RawFrame};
use arrayvec::ArrayVec;
use gatun_io::BURST_MAX;
use std::ffi::c_uint;
use std::ptr::{self, NonNull};

/// A packet buffer that is this process's, with a frame in it; given back when dropped.
#[repr(transparent)]
pub(crate) struct Frame(RawFrame);

// SAFETY: whoever has a `Frame` is the only one who has its buffer, and DPDK's buffers belong to no thread.
unsafe impl Send for Frame {}

impl Frame {
    /// The whole buffer.
    #[inline]
    pub(crate) fn buffer(&mut self) -> &mut [u8] {
        if self.0.mbuf.is_null() {
            return &mut [];
        }
        // SAFETY: the driver or the pool gave the buffer of `room` bytes to this process, and `self` is the only one
        // who has it until it is sent or dropped; it is initialised memory, as the pool's pages are.
        unsafe { std::slice::from_raw_parts_mut(self.0.buffer, usize::from(self.0.room)) }
    }

    /// Where the frame begins in the buffer.
    #[inline]
    pub(crate) fn start(&self) -> usize {
        usize::from(self.0.start)
    }

    /// Its length, bytes; 0 where it is in several buffers, and of no use.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        usize::from(self.0.len)
    }

    /// Takes it out and leaves nothing, with where the frame now lies in its buffer.
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
            // SAFETY: as above; nobody has it after this.
            unsafe { sys::gatun_frames_free(&self.0, 1) }
        }
    }
}

/// A pool of packet buffers, of one queue of one device. It lives as long as the process.
#[derive(Clone, Copy)]
pub(crate) struct Pool(NonNull<Mempool>);

// SAFETY: DPDK's pools may be used by several threads.
unsafe impl Send for Pool {}

impl Pool {
    pub(crate) fn of(pool: *mut Mempool) -> Option<Pool> {
        NonNull::new(pool).map(Pool)
    }

    pub(crate) fn as_ptr(self) -> *mut Mempool {
        self.0.as_ptr()
    }

    /// A frame of these bytes; `None` where no buffer is free, or they do not fit.
    pub(crate) fn copy(self, bytes: &[u8]) -> Option<Frame> {
        let mut raw = RawFrame::NOTHING;
        // SAFETY: pools are never freed; the function writes a whole `RawFrame` where it succeeds.
        if unsafe { sys::gatun_frame_new(self.as_ptr(), &mut raw) } != 0 {
            return None;
        }
        let mut frame = Frame(raw);
        let start = frame.start();
        frame.buffer().get_mut(start..)?.get_mut(..bytes.len())?.copy_from_slice(bytes);
        frame.0.len = bytes.len() as u16;
        Some(frame)
    }

    /// Takes back the buffers that a device has forgotten with its peer: those that were to be sent by it, and where
    /// the pool is `own`, those that it was to receive into. No frame of this pool may be staged. Returns how many there
    /// were.
    pub(crate) fn recover(self, queue: &Queue, own: bool) -> u32 {
        // SAFETY: the pool is used by this thread alone, as is the queue, whose device has no peer; the pool's device marks
        // buffers that it takes (`Device::marks_buffers`), so what is found is nobody's.
        unsafe { sys::gatun_pool_recover(self.as_ptr(), queue.port, own.into()) }
    }

    /// Buffers that nobody has.
    pub(crate) fn free(self) -> u32 {
        // SAFETY: as above.
        unsafe { sys::gatun_pool_free(self.as_ptr()) }
    }
}

impl RawFrame {
    const NOTHING: RawFrame =
        RawFrame { mbuf: ptr::null_mut(), buffer: ptr::null_mut(), room: 0, start: 0, len: 0 };
}

/// One queue of a device, each way. Whoever has it is the only one to use it.
pub(crate) struct Queue {
    pub(crate) port: u16,
    pub(crate) number: u16,
}

impl Queue {
    /// Adds frames that wait, as far as there is room. Returns how many.
    #[inline]
    pub(crate) fn receive(&mut self, frames: &mut ArrayVec<Frame, BURST_MAX>) -> usize {
        let (before, room) = (frames.len(), frames.remaining_capacity());
        // SAFETY: there is room for `room` frames behind the first `before`, `Frame` is a `RawFrame`, and the function
        // writes as many whole ones as it returns. The device was started with this queue, and nobody else uses it.
        unsafe {
            let place = frames.as_mut_ptr().add(before).cast();
            let count = usize::from(sys::gatun_receive(self.port, self.number, place, room as u16));
            frames.set_len(before + count.min(room));
            count
        }
    }

    /// Gives frames to the device, in their order, and drops those that it does not take. Returns how many it
    /// took, and their bytes.
    #[inline]
    pub(crate) fn send(&mut self, frames: &mut ArrayVec<Frame, BURST_MAX>) -> (u64, u64) {
        let mut rest = &mut frames[..];
        let (mut sent, mut bytes) = (0, 0);
        while !rest.is_empty() {
            // SAFETY: `Frame` is a `RawFrame`; each has its buffer, and a place inside it. Those that the function says
            // it took are the driver's from here on.
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
