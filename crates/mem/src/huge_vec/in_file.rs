//! Array in a file, so that it outlives the process that wrote it.
//!
//! No two arrays share memory: each holds a lock of the whole file (flock(2)) on an open file description
//! that no other code has. An array that is accessed as `&mut [T]` holds an exclusive lock.
//! [`SharedRecords`](super::SharedRecords) hold shared locks and access the memory by atomic words alone.
//! Code that writes to such a file by other means than this crate (write(2), its own mapping) is comparable
//! to a debugger that writes to the memory.

use super::{HugeVec, OutOfMemory, PAGE};
use core::fmt::Write as _;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};
use rustix::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, SeekFrom, flock, fstat, openat, seek};
use rustix::io::{Errno, pread};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use zerocopy::FromBytes;

/// Reason why an array cannot be in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotMapped {
    /// The file is shorter than the array, the offset is not at a page boundary, or there is no address
    /// space.
    Memory(OutOfMemory),
    /// Another array is in the file, in this process or in another one.
    InUse,
    /// The file cannot be opened again, or cannot be locked.
    Refused(Errno),
}

impl core::fmt::Display for NotMapped {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            NotMapped::Memory(short) => short.fmt(f),
            NotMapped::InUse => write!(f, "the file is already in use, by this process or another one"),
            NotMapped::Refused(error) => write!(f, "cannot open and lock the file: {error}"),
        }
    }
}

impl core::error::Error for NotMapped {}

impl From<OutOfMemory> for NotMapped {
    fn from(short: OutOfMemory) -> Self {
        NotMapped::Memory(short)
    }
}

impl<T: Copy + FromBytes> HugeVec<T> {
    /// Maps `len` of `T` in `file` from byte `offset` on, which is a multiple of 4096. The array is on huge
    /// pages if the file is. Writes reach the file at once, and stay there however the process ends.
    ///
    /// # Errors
    /// Returns an error if the file is not that long, there is no address space, or another array lies in the
    /// file.
    pub fn in_file(file: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Self, NotMapped> {
        Self::mapped(file, offset, len, FlockOperation::NonBlockingLockExclusive)
    }

    /// Copies `len` of `T` in `file` from byte `offset` on. Later writes to the file do not change the copy.
    ///
    /// # Errors
    /// Returns an error if the file is not that long, or there is no memory.
    pub fn copy_of(file: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Self, OutOfMemory> {
        let bytes = Self::place(file, offset, len)?;
        let refused = OutOfMemory { bytes };
        let mut copy = Self::sparse(len)?;
        // Parts of the file that were never written are zero, as in the copy.
        let written = bytes_written(file).unwrap_or(u64::MAX).saturating_sub(offset);
        let bytes = usize::try_from(written).unwrap_or(usize::MAX).min(bytes);
        // SAFETY: `sparse` has mapped the bytes of `len` elements, and all of them are initialised. Any bytes
        // make a valid `T` by FromBytes, and `copy` is borrowed exclusively.
        let mut rest = unsafe { core::slice::from_raw_parts_mut(copy.as_mut_ptr().cast::<u8>(), bytes) };
        let mut at = offset;
        while !rest.is_empty() {
            match pread(file, &mut *rest, at) {
                Ok(0) => return Err(refused),
                Ok(n) => {
                    at += n as u64;
                    rest = rest.split_at_mut(n).1;
                }
                Err(Errno::INTR) => {}
                Err(_) => return Err(refused),
            }
        }
        Ok(copy)
    }

    /// Returns the size of `len` of `T` in bytes, if the file has that many bytes from `offset` on.
    fn place(file: BorrowedFd<'_>, offset: u64, len: usize) -> Result<usize, OutOfMemory> {
        const { assert!(align_of::<T>() <= PAGE && size_of::<T>() > 0) };
        let bytes = Self::bytes_of(len)?;
        let refused = OutOfMemory { bytes };
        let end = offset.checked_add(bytes as u64).ok_or(refused)?;
        let has = fstat(file).map_err(|_| refused)?.st_size;
        if bytes == 0 || !offset.is_multiple_of(PAGE as u64) || u64::try_from(has).unwrap_or(0) < end {
            return Err(refused);
        }
        Ok(bytes)
    }

    /// Maps a part of the file. `lock` stays on the file while the array exists.
    pub(super) fn mapped(
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        lock: FlockOperation,
    ) -> Result<Self, NotMapped> {
        let file = open_again(file)?;
        flock(&file, lock).map_err(|error| match error {
            Errno::WOULDBLOCK => NotMapped::InUse,
            error => NotMapped::Refused(error),
        })?;
        let bytes = Self::place(file.as_fd(), offset, len)?;
        let refused = OutOfMemory { bytes };
        let mapped = bytes.checked_next_multiple_of(PAGE).ok_or(refused)?;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: without MAP_FIXED and with a null hint, the kernel chooses an unused range. Any content of
        // the file is a valid `T` by FromBytes. Other mappings of the file are made here and hold a lock for
        // their whole life. An exclusive lock excludes all others, and holders of shared locks use atomic
        // words alone.
        let at = unsafe { mmap(ptr::null_mut(), mapped, protection, flags, &file, offset) };
        let start = at.ok().and_then(NonNull::new).ok_or(refused)?;
        Ok(HugeVec { start: start.cast(), len, mapped, file: Some(file), owns: PhantomData })
    }
}

/// Opens another file description of the same file, so that the caller's locks and those of its copies are
/// different ones.
fn open_again(file: BorrowedFd<'_>) -> Result<OwnedFd, NotMapped> {
    let mut path = Path::default();
    write!(path, "/proc/self/fd/{}", file.as_raw_fd()).map_err(|_| NotMapped::Refused(Errno::NAMETOOLONG))?;
    openat(CWD, path.bytes(), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(NotMapped::Refused)
}

/// Short path, built without an allocator.
#[derive(Default)]
struct Path {
    buf: [u8; 32],
    len: usize,
}

impl Path {
    fn bytes(&self) -> &[u8] {
        self.buf.get(..self.len).unwrap_or_default()
    }
}

impl core::fmt::Write for Path {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let room = self.buf.get_mut(self.len..).and_then(|rest| rest.get_mut(..text.len()));
        room.ok_or(core::fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

/// Returns the length of the part of a tmpfs file, from its beginning on, after which nothing was ever
/// written. Memory that was only reserved counts as not written.
///
/// # Errors
/// Returns an error if the file system does not know which parts were written.
pub fn bytes_written(file: BorrowedFd<'_>) -> Result<u64, Errno> {
    let mut end = 0;
    loop {
        match seek(file, SeekFrom::Data(end)) {
            Ok(data) => end = seek(file, SeekFrom::Hole(data))?,
            // There is no further data.
            Err(Errno::NXIO) => return Ok(end),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SharedRecords;
    use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};

    fn file(pages: u64) -> OwnedFd {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, pages * 4096).unwrap();
        file
    }

    fn array(file: &OwnedFd) -> Result<HugeVec<u64>, NotMapped> {
        HugeVec::in_file(file.as_fd(), 4096, 1000)
    }

    #[test]
    fn writes_reach_the_file_and_writes_to_a_copy_do_not() {
        let file = file(3);
        let mut first = array(&file).unwrap();
        assert!(first.iter().all(|&n| n == 0));
        first[999] = 7;
        drop(first);
        let mut copy = HugeVec::<u64>::copy_of(file.as_fd(), 4096, 1000).unwrap();
        assert_eq!((copy[998], copy[999]), (0, 7));
        copy[999] = 8;
        assert_eq!((array(&file).unwrap()[999], copy[999]), (7, 8));
    }

    #[test]
    fn a_file_has_at_most_one_array() {
        let file = file(3);
        let copied = file.try_clone().unwrap();
        let first = array(&file).unwrap();
        assert_eq!(array(&file).unwrap_err(), NotMapped::InUse);
        assert_eq!(array(&copied).unwrap_err(), NotMapped::InUse);
        // The same for disjoint parts of the file, because the lock covers the whole file.
        assert_eq!(HugeVec::<u64>::in_file(file.as_fd(), 0, 1).unwrap_err(), NotMapped::InUse);
        let shared = |file: &OwnedFd| SharedRecords::<u64>::in_file(file.as_fd(), 4096, 1000).map(|_| ());
        assert_eq!(shared(&copied), Err(NotMapped::InUse));
        // The caller cannot release the lock.
        flock(&file, FlockOperation::Unlock).unwrap();
        flock(&copied, FlockOperation::Unlock).unwrap();
        assert_eq!(array(&file).unwrap_err(), NotMapped::InUse);
        drop(first);
        let records = SharedRecords::<u64>::in_file(file.as_fd(), 4096, 1000).unwrap();
        assert_eq!(shared(&copied), Ok(()));
        assert_eq!(array(&file).unwrap_err(), NotMapped::InUse);
        drop(records);
        assert!(array(&file).is_ok());
    }

    #[test]
    fn a_dropped_array_releases_the_file_although_a_child_has_its_descriptor() {
        let file = file(3);
        let first = array(&file).unwrap();
        let of_child = first.file.as_ref().unwrap().try_clone().unwrap();
        drop(first);
        assert!(array(&file).is_ok());
        drop(of_child);
    }

    #[test]
    fn a_file_that_is_too_short_or_a_place_between_pages_is_refused() {
        let file = file(2);
        let made = |offset, len| HugeVec::<u64>::in_file(file.as_fd(), offset, len).is_ok();
        assert!(made(4096, 512) && made(0, 1024));
        assert!(
            !made(4096, 513)
                && !made(8, 1)
                && !made(0, 0)
                && !made(u64::MAX - 4095, 1)
                && !made(0, usize::MAX)
        );
        let copied = |offset, len| HugeVec::<u64>::copy_of(file.as_fd(), offset, len).is_ok();
        assert!(copied(4096, 512) && !copied(4096, 513) && !copied(8, 1) && !copied(0, 0));
    }

    #[test]
    fn reserved_memory_counts_as_written_only_after_a_write() {
        let file = file(100);
        fallocate(&file, FallocateFlags::empty(), 0, 100 * 4096).unwrap();
        assert_eq!(bytes_written(file.as_fd()), Ok(0));
        let mut array = HugeVec::<u64>::in_file(file.as_fd(), 4096, 50 * 512).unwrap();
        array[0] = 1;
        array[20 * 512] = 1;
        assert_eq!(bytes_written(file.as_fd()), Ok(22 * 4096));
        // On older kernels, a read of a page that is only reserved may make it count as written, but never
        // the reverse.
        assert_eq!(fstat(&file).unwrap().st_blocks, 100 * 8);
    }
}
