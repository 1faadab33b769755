//! An array that lies in a file, so that it outlives the process that wrote it.

use super::{HugeVec, OutOfMemory, PAGE};
use core::marker::PhantomData;
use core::ptr::{self, NonNull};
use rustix::fd::BorrowedFd;
use rustix::fs::fstat;
use rustix::mm::{MapFlags, ProtFlags, mmap};
use zerocopy::FromBytes;

/// What becomes of what is written to an array in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is in the file at once, and stays when the process ends, however that is.
    ToFile,
    /// It is this process's own; the file stays as it is.
    Nowhere,
}

impl<T: Copy + FromBytes> HugeVec<T> {
    /// `len` of `T` as they stand in `file` from byte `offset` on, a multiple of 4096. Nobody else may write to the
    /// file or shorten it meanwhile; on huge pages where the file is.
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
        let flags = match written {
            Written::ToFile => MapFlags::SHARED | MapFlags::NORESERVE,
            Written::Nowhere => MapFlags::PRIVATE | MapFlags::NORESERVE,
        };
        let mapped = bytes.checked_next_multiple_of(PAGE).ok_or(refused)?;
        // SAFETY: without MAP_FIXED and with a null hint the kernel picks a place where nothing is mapped. All that
        // may stand in the file is a valid `T` by FromBytes; that nobody else writes there is the caller's promise,
        // who keeps the file locked.
        let at =
            unsafe { mmap(ptr::null_mut(), mapped, ProtFlags::READ | ProtFlags::WRITE, flags, file, offset) };
        let start = at.ok().and_then(NonNull::new).ok_or(refused)?;
        Ok(HugeVec { start: start.cast(), len, mapped, set_aside: false, owns: PhantomData })
    }
}

/// How many bytes of a file have memory; where it was written from its beginning on, nothing stands behind them.
///
/// # Errors
/// What the kernel says of a file that it does not know.
pub fn bytes_with_memory(file: BorrowedFd<'_>) -> Result<u64, rustix::io::Errno> {
    // The unit of st_blocks, whatever the file system's own is (stat(2)).
    Ok(u64::try_from(fstat(file)?.st_blocks).unwrap_or(0) * 512)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd as _;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

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
}
