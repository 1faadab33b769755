//! An array that lies in a file, so that it outlives the process that wrote it.

use super::{HugeVec, OutOfMemory, PAGE};
use core::marker::PhantomData;
use core::ptr::{self, NonNull};
use rustix::fd::BorrowedFd;
use rustix::fs::{SeekFrom, fstat, seek};
use rustix::io::{Errno, pread};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use zerocopy::FromBytes;

/// What becomes of what is written to an array in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is in the file at once, and stays when the process ends, however that is.
    ToFile,
    /// It is in a copy, made at once; the file stays as it is, and may be written to by others.
    Nowhere,
}

impl<T: Copy + FromBytes> HugeVec<T> {
    /// `len` of `T` as they stand in `file` from byte `offset` on, a multiple of 4096; on huge pages where the file is.
    /// Where it is written to, nobody else may write there or shorten the file meanwhile.
    ///
    /// # Errors
    /// Where the file is not that long, or there is no address space.
    pub fn in_file(
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        written: Written,
    ) -> Result<Self, OutOfMemory> {
        const { assert!(align_of::<T>() <= PAGE && size_of::<T>() > 0) };
        let bytes = Self::bytes_of(len)?;
        let refused = OutOfMemory { bytes };
        let end = offset.checked_add(bytes as u64).ok_or(refused)?;
        let has = fstat(file).map_err(|_| refused)?.st_size;
        if bytes == 0 || !offset.is_multiple_of(PAGE as u64) || u64::try_from(has).unwrap_or(0) < end {
            return Err(refused);
        }
        if written == Written::Nowhere {
            return Self::copied(file, offset, len);
        }
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        let mapped = bytes.checked_next_multiple_of(PAGE).ok_or(refused)?;
        // SAFETY: without MAP_FIXED and with a null hint the kernel picks a place where nothing is mapped. All that
        // may stand in the file is a valid `T` by FromBytes; that nobody else writes there is the caller's promise,
        // who keeps the file locked.
        let at =
            unsafe { mmap(ptr::null_mut(), mapped, ProtFlags::READ | ProtFlags::WRITE, flags, file, offset) };
        let start = at.ok().and_then(NonNull::new).ok_or(refused)?;
        Ok(HugeVec { start: start.cast(), len, mapped, owns: PhantomData })
    }
}

impl<T: Copy + FromBytes> HugeVec<T> {
    /// A copy of what is in the file now: whoever writes there meanwhile changes nothing that is borrowed here.
    fn copied(file: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Self, OutOfMemory> {
        let mut copy = Self::sparse(len)?;
        let bytes = Self::bytes_of(len)?;
        let refused = OutOfMemory { bytes };
        // What was never written is zero, as the copy is.
        let written = bytes_written(file).unwrap_or(u64::MAX).saturating_sub(offset);
        let bytes = usize::try_from(written).unwrap_or(usize::MAX).min(bytes);
        // SAFETY: `sparse` has mapped the bytes of `len` elements, all of them initialised; any bytes make a valid `T`
        // by FromBytes; and `copy` is borrowed exclusively.
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
}

/// Length of the part of a file on tmpfs, from its beginning on, behind which nothing was ever written. Memory that was
/// only reserved there counts as not written.
///
/// # Errors
/// Where the file system does not know what was written.
pub fn bytes_written(file: BorrowedFd<'_>) -> Result<u64, Errno> {
    let mut end = 0;
    loop {
        match seek(file, SeekFrom::Data(end)) {
            Ok(data) => end = seek(file, SeekFrom::Hole(data))?,
            // Nothing more.
            Err(Errno::NXIO) => return Ok(end),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd as _;
    use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};

    #[test]
    fn what_is_written_is_in_the_file_or_nowhere() {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 3 * 4096).unwrap();
        let array = |written| HugeVec::<u64>::in_file(file.as_fd(), 4096, 1000, written).unwrap();
        let mut first = array(Written::ToFile);
        assert!(first.iter().all(|&n| n == 0));
        first[999] = 7;
        drop(first);
        let mut second = array(Written::Nowhere);
        assert_eq!((second[998], second[999]), (0, 7));
        second[999] = 8;
        assert_eq!((array(Written::ToFile)[999], second[999]), (7, 8));
    }

    #[test]
    fn a_file_that_is_too_short_or_a_place_between_pages_is_refused() {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 2 * 4096).unwrap();
        let made = |offset, len| HugeVec::<u64>::in_file(file.as_fd(), offset, len, Written::ToFile).is_ok();
        assert!(made(4096, 512) && made(0, 1024));
        assert!(
            !made(4096, 513)
                && !made(8, 1)
                && !made(0, 0)
                && !made(u64::MAX - 4095, 1)
                && !made(0, usize::MAX)
        );
    }

    #[test]
    fn memory_that_was_reserved_counts_as_written_only_once_it_is() {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 100 * 4096).unwrap();
        fallocate(&file, FallocateFlags::empty(), 0, 100 * 4096).unwrap();
        assert_eq!(bytes_written(file.as_fd()), Ok(0));
        let mut array = HugeVec::<u64>::in_file(file.as_fd(), 4096, 50 * 512, Written::ToFile).unwrap();
        array[0] = 1;
        array[20 * 512] = 1;
        assert_eq!(bytes_written(file.as_fd()), Ok(22 * 4096));
        // Reading a page that is only reserved may make it count, as on older kernels: never the other way round.
        assert_eq!(fstat(&file).unwrap().st_blocks, 100 * 8);
    }
}
