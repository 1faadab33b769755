//! Memory allocated in advance, so that no later access to a table can fail.

use super::{OutOfMemory, PAGE};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

static AT_ONCE: AtomicBool = AtomicBool::new(false);

/// Makes this process allocate the pages of a table when the table is created, not at the first access.
/// Applies to the whole process, like an allocator.
pub fn take_at_once() {
    AT_ONCE.store(true, Relaxed);
}

/// Returns whether tables allocate their pages when they are created.
pub fn is_taken_at_once() -> bool {
    AT_ONCE.load(Relaxed)
}

/// Allocates the pages of `bytes` bytes from `start` on, which are mapped, writable and not shared yet.
pub(super) fn populate(start: NonNull<u8>, bytes: usize) -> Result<(), OutOfMemory> {
    loop {
        // SAFETY: the range is mapped, and the advice does not change its contents.
        match unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxPopulateWrite) } {
            Ok(()) => return Ok(()),
            Err(Errno::INTR | Errno::AGAIN) => {}
            // Linux before 5.14 does not support this advice.
            Err(Errno::INVAL) => {
                touch(start, bytes);
                return Ok(());
            }
            Err(_) => return Err(OutOfMemory { bytes }),
        }
    }
}

/// Writes to each page.
fn touch(start: NonNull<u8>, bytes: usize) {
    for at in (0..bytes).step_by(PAGE) {
        // SAFETY: the address is below `bytes`, so it is inside the mapping. The page holds zeros, so the
        // write does not change its contents, and no other code has the memory yet.
        unsafe { start.byte_add(at).write_volatile(0) };
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
        const LEN: usize = 20 << 20;
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
        take_at_once();
        let whole = HugeVec::<u8>::new(LEN).unwrap();
        let part = HugeVec::<u8>::with_room(LEN, 10 * LEN).unwrap();
        let taken = resident() - before;
        assert!((2 * LEN as u64..3 * LEN as u64).contains(&taken), "{taken}");
        assert!(lazy.iter().chain(&*whole).chain(&*part).step_by(4096).all(|&byte| byte == 0));
    }

    #[test]
    fn pages_are_touched_if_the_kernel_cannot_populate_them() {
        let table = HugeVec::<u8>::new(10 << 20).unwrap();
        let before = resident();
        touch(NonNull::from(&table[0]), table.len());
        assert!(resident() - before >= 9 << 20);
    }
}
