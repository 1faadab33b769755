//! Records that several threads read and clear at the same time.

use super::{HugeVec, NotMapped};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use rustix::fd::BorrowedFd;
use rustix::fs::FlockOperation;
use zerocopy::FromBytes;

const WORD: usize = size_of::<u64>();

/// A fixed number of `T` in a file or in a copy of one. They are read by value and changed by whole words,
/// always atomically. So several threads, and several mappings of one file, do not race, and no reference
/// exists to memory that another thread changes.
pub struct SharedRecords<T> {
    /// Never borrowed as a slice: only [`SharedRecords::word`] accesses its memory.
    memory: HugeVec<T>,
}

impl<T: Copy + FromBytes> SharedRecords<T> {
    const WORDS: usize = size_of::<T>() / WORD;

    /// Maps `len` of `T` in `file` from byte `offset` on, which is a multiple of 4096. A cleared word is
    /// cleared in the file, and for all that share it.
    ///
    /// # Errors
    /// Returns an error if the file is not that long, if there is no address space, or if a [`HugeVec`] is in
    /// the file.
    pub fn in_file(file: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Self, NotMapped> {
        let memory = HugeVec::mapped(file, offset, len, FlockOperation::NonBlockingLockShared)?;
        Ok(SharedRecords { memory })
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.memory.len
    }

    /// Returns whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the record of that number. Each of its words has the value of some moment during the call.
    #[inline]
    pub fn get(&self, index: usize) -> Option<T> {
        let mut record = MaybeUninit::<T>::uninit();
        for word in 0..Self::WORDS {
            let value = self.word(index, word)?.load(Relaxed);
            // SAFETY: below `WORDS`, so inside the record. The alignment is that of `T`, a multiple of a
            // word's.
            unsafe { record.as_mut_ptr().cast::<u64>().add(word).write(value) };
        }
        // SAFETY: `WORDS` words are all of `T`'s bytes, and any bytes make a valid `T` by FromBytes.
        Some(unsafe { record.assume_init() })
    }

    /// Clears a word of a record, counted from its first one. Returns its previous value; `None` past the
    /// ends.
    #[inline]
    pub fn clear_word(&self, index: usize, word: usize) -> Option<u64> {
        Some(self.word(index, word)?.swap(0, Relaxed))
    }

    #[inline]
    fn word(&self, index: usize, word: usize) -> Option<&AtomicU64> {
        const { assert!(align_of::<T>() >= WORD && size_of::<T>().is_multiple_of(WORD)) };
        if index >= self.memory.len || word >= Self::WORDS {
            return None;
        }
        // SAFETY: the word is inside the mapping of `len` records, which lives as long as `self`, and aligned
        // by the assertion above. All accesses to the memory go through such words: the mapping belongs to
        // this value alone, or to a file that no code has as a slice (because of the lock that `memory`
        // holds).
        Some(unsafe { AtomicU64::from_ptr(self.memory.start.as_ptr().add(index).cast::<u64>().add(word)) })
    }
}

impl<T: Copy + FromBytes> From<HugeVec<T>> for SharedRecords<T> {
    fn from(memory: HugeVec<T>) -> Self {
        SharedRecords { memory }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd as _;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    type Record = [u64; 4];

    #[test]
    fn a_cleared_word_is_cleared_for_all_and_in_the_file() {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 2 * 4096).unwrap();
        let mut before = HugeVec::<Record>::in_file(file.as_fd(), 4096, 128).unwrap();
        (before[0], before[127]) = ([1, 2, 3, 4], [5, 6, 7, 8]);
        drop(before);
        let [one, other] = [0; 2].map(|_| SharedRecords::<Record>::in_file(file.as_fd(), 4096, 128).unwrap());
        let copy = SharedRecords::from(HugeVec::<Record>::copy_of(file.as_fd(), 4096, 128).unwrap());
        assert_eq!(one.clear_word(127, 2), Some(7));
        assert_eq!(other.clear_word(127, 2), Some(0));
        assert_eq!((one.get(127), other.get(127)), (Some([5, 6, 0, 8]), Some([5, 6, 0, 8])));
        assert_eq!(copy.get(127), Some([5, 6, 7, 8]));
        drop((one, other));
        let after = HugeVec::<Record>::in_file(file.as_fd(), 4096, 128).unwrap();
        assert_eq!((after[0], after[127]), ([1, 2, 3, 4], [5, 6, 0, 8]));
    }

    #[test]
    fn indices_past_the_end_have_no_record() {
        let records = SharedRecords::from(HugeVec::<Record>::new(3).unwrap());
        assert!(!records.is_empty() && records.get(2).is_some() && records.get(3).is_none());
        assert_eq!((records.clear_word(2, 4), records.clear_word(3, 0)), (None, None));
        assert!(SharedRecords::from(HugeVec::<Record>::new(0).unwrap()).is_empty());
    }

    #[test]
    fn only_one_thread_clears_a_word() {
        const RECORDS: usize = 10_000;
        let mut memory = HugeVec::<Record>::new(RECORDS).unwrap();
        memory.iter_mut().for_each(|record| *record = [9; 4]);
        let records = SharedRecords::from(memory);
        let cleared = || (0..RECORDS).filter(|&n| records.clear_word(n, 1) == Some(9)).count();
        let seen =
            || (0..RECORDS).filter_map(|n| records.get(n)).all(|record| record[1] == 9 || record[1] == 0);
        let all = std::thread::scope(|scope| {
            let readers = [0; 2].map(|_| scope.spawn(seen));
            let all: usize =
                [0; 3].map(|_| scope.spawn(cleared)).map(|thread| thread.join().unwrap()).iter().sum();
            assert!(readers.map(|thread| thread.join().unwrap()).iter().all(|&fine| fine));
            all
        });
        assert_eq!(all, RECORDS);
        assert!((0..RECORDS).all(|n| records.get(n) == Some([9, 0, 9, 9])));
    }
}
