//! Memory allocated in advance, so that no later access to a table can fail.

use super::{AlignOffsetBytes as _, HUGE_PAGE, OutOfMemory, PAGE};
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};
use std::thread;
use std::vec::Vec;

/// Least share of a thread in bytes: starting a thread takes as long as allocating about a megabyte.
const SHARE_MIN: usize = 16 << 20;

/// Number of threads that allocate the memory of a table; 0 if it is allocated at the first access.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Makes this process allocate the pages of a table when the table is created, not at the first access. Up to
/// `threads` threads share the work. Applies to the whole process, like an allocator.
pub fn take_at_once(threads: usize) {
    THREADS.store(threads.max(1), Relaxed);
}

/// Returns whether tables allocate their pages when they are created.
pub fn is_taken_at_once() -> bool {
    THREADS.load(Relaxed) > 0
}

/// Allocates the pages of uninitialised elements if the process allocates tables at once. Whole huge pages
/// are allocated as such if the kernel has any.
///
/// # Errors
/// Returns an error if there is no memory.
pub fn take_room<T>(room: &mut [MaybeUninit<T>]) -> Result<(), OutOfMemory> {
    let bytes = size_of_val(room);
    if !is_taken_at_once() || bytes == 0 {
        return Ok(());
    }
    let start = NonNull::from(room).cast::<u8>();
    let head = start.cast().align_offset_bytes(HUGE_PAGE);
    let huge = bytes.saturating_sub(head) / HUGE_PAGE * HUGE_PAGE;
    if huge > 0 {
        // SAFETY: `head + huge <= bytes`, so the range is inside `room`. The advice does not change contents;
        // if it is refused, pages are small.
        let _ = unsafe { madvise(start.byte_add(head).as_ptr().cast(), huge, Advice::LinuxHugepage) };
    }
    populate(start, bytes)
}

/// Allocates the pages of `bytes` bytes from `start` on, which are mapped, writable, and accessed by no other
/// code meanwhile. They hold zeros, or nothing that is needed.
pub(super) fn populate(start: NonNull<u8>, bytes: usize) -> Result<(), OutOfMemory> {
    let threads = THREADS.load(Relaxed).min(bytes / SHARE_MIN).max(1);
    let share = bytes.div_ceil(threads).next_multiple_of(HUGE_PAGE);
    let part = |at: usize| {
        // SAFETY: `at` is at most `bytes`.
        let start = unsafe { start.byte_add(at) };
        Part { start, bytes: share.min(bytes - at) }
    };
    thread::scope(|scope| {
        let others: Vec<_> = (share..bytes)
            .step_by(share)
            .map(|at| {
                let part = part(at);
                let started = thread::Builder::new().spawn_scoped(scope, move || part.populate());
                started.map_err(|_| part)
            })
            .collect();
        let own = part(0).populate();
        let others = others.into_iter().map(|other| match other {
            Ok(thread) => thread.join().unwrap_or(Err(OutOfMemory { bytes })),
            Err(part) => part.populate(),
        });
        others.fold(own, Result::and)
    })
}

/// Part of the memory, for one thread.
#[derive(Clone, Copy)]
struct Part {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: no other code accesses the memory while `populate` runs, and the parts do not overlap.
unsafe impl Send for Part {}

impl Part {
    fn populate(self) -> Result<(), OutOfMemory> {
        let before = self.start.addr().get() % PAGE;
        let first = self.start.as_ptr().wrapping_byte_sub(before);
        let len = (before + self.bytes).next_multiple_of(PAGE);
        loop {
            // SAFETY: each of the pages contains bytes of the part, so it is mapped. The advice does not
            // change contents.
            match unsafe { madvise(first.cast(), len, Advice::LinuxPopulateWrite) } {
                Ok(()) => return Ok(()),
                Err(Errno::INTR | Errno::AGAIN) => {}
                // Linux before 5.14 does not support this advice.
                Err(Errno::INVAL) => {
                    self.touch();
                    return Ok(());
                }
                Err(_) => return Err(OutOfMemory { bytes: self.bytes }),
            }
        }
    }

    /// Writes to each page.
    fn touch(self) {
        for at in (0..self.bytes).step_by(PAGE).chain([self.bytes - 1]) {
            // SAFETY: the address is below `bytes`, so it is inside the part. No other code accesses the
            // part, and its contents are zero or not needed.
            unsafe { self.start.byte_add(at).write_volatile(0) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HugeVec;
    use std::process::Command;

    /// Resident bytes of this process, including reserved huge pages.
    fn resident() -> u64 {
        let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
        let kib = |name: &str| -> u64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        (kib("Rss:") + kib("Private_Hugetlb:")) * 1024
    }

    /// The switch applies to the process, so each test runs in its own process.
    fn in_a_process_of_its_own(name: &str, variable: &str) {
        if std::env::var_os(variable).is_some() {
            return;
        }
        let own = Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture", "--test-threads=1"])
            .env(variable, "1")
            .output()
            .unwrap();
        let shown = std::string::String::from_utf8_lossy(&own.stdout);
        assert!(own.status.success() && shown.contains("1 passed"), "{shown}");
    }

    #[test]
    fn a_table_has_all_its_memory_if_the_process_asks_for_it() {
        // Two threads share it.
        const LEN: usize = 40 << 20;
        let variable = "GATUN_TEST_AT_ONCE";
        in_a_process_of_its_own(
            "huge_vec::at_once::tests::a_table_has_all_its_memory_if_the_process_asks_for_it",
            variable,
        );
        if std::env::var_os(variable).is_none() {
            return;
        }
        let before = resident();
        let lazy = HugeVec::<u8>::new(LEN).unwrap();
        assert!(resident() - before < LEN as u64 / 2, "taken before it was asked for");
        take_at_once(2);
        let whole = HugeVec::<u8>::new(LEN).unwrap();
        let part = HugeVec::<u8>::with_room(LEN, 10 * LEN).unwrap();
        let taken = resident() - before;
        assert!((2 * LEN as u64..3 * LEN as u64).contains(&taken), "{taken}");
        let mut room = Vec::<u8>::with_capacity(LEN);
        take_room(room.spare_capacity_mut()).unwrap();
        assert!(resident() - before - taken >= LEN as u64, "{}", resident() - before);
        assert!(lazy.iter().chain(&*whole).chain(&*part).step_by(4096).all(|&byte| byte == 0));
    }

    #[test]
    fn pages_are_touched_if_the_kernel_cannot_populate_them() {
        let table = HugeVec::<u8>::new(10 << 20).unwrap();
        let before = resident();
        Part { start: NonNull::from(&table[0]), bytes: table.len() }.touch();
        assert!(resident() - before >= 9 << 20);
    }
}
