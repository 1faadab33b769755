//! DPDK's environment (EAL): memory, processors, threads.

use crate::error::DpdkError;
use crate::sys;
use gatun_io::{OtherProcessors, Processor};
use rustix::io::fcntl_dupfd_cloexec;
use std::ffi::{CStr, c_int, c_uint};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Configuration of the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EalConfig {
    /// Page size of packet buffers.
    pub huge_pages: HugePages,
    /// Processors of the workers. Empty: the last ones that the process may use.
    pub cores: Vec<u16>,
    /// Further arguments, appended to the generated ones.
    pub arguments: Vec<String>,
}

/// Page size of packet buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// Huge pages, if enough are free.
    #[default]
    Auto,
    /// Huge pages only; start-up fails without them.
    Always,
    /// Ordinary pages.
    Never,
}

/// Checks whether the processor supports the instructions that DPDK's libraries use.
///
/// # Errors
/// Returns an error if instructions are missing. The error names them.
pub fn supported() -> Result<(), DpdkError> {
    Ok(gatun_dpdk_shim::supported()?)
}

/// Memory in MB for the environment and its drivers, in addition to packet buffers.
const OVERHEAD_MB: u64 = 48;

/// Memory in MB of an environment whose packet buffers have this size.
pub(crate) fn needed_mb(buffers_mb: u64) -> u64 {
    buffers_mb + OVERHEAD_MB
}

/// Text of an error of a system call or of DPDK.
pub(crate) fn text(error: c_int) -> String {
    // SAFETY: the function accepts any number, and its text stays valid until the thread's next call.
    let text = unsafe { CStr::from_ptr(sys::gatun_strerror(error)) };
    text.to_string_lossy().into_owned()
}

/// `--lcores` argument: a thread of its own that may run on any of these.
fn lcores(others: &OtherProcessors) -> String {
    let others: Vec<String> = others.numbers().map(|number| number.to_string()).collect();
    format!("0@({})", others.join(","))
}

/// Starts the environment, once per process. `buffers_mb` is the size of the packet buffers; `pci` are the
/// addresses of the network cards among the devices. Returns whether it uses huge pages.
pub(crate) fn start(
    config: &EalConfig,
    others: &OtherProcessors,
    buffers_mb: u64,
    pci: &[&str],
) -> Result<bool, DpdkError> {
    static STARTED: AtomicBool = AtomicBool::new(false);
    sys::load()?;
    let needed_mb = needed_mb(buffers_mb);
    let free_mb = free_huge_mb();
    let huge = match config.huge_pages {
        HugePages::Always if free_mb < needed_mb => return Err(DpdkError::HugePages { needed_mb, free_mb }),
        HugePages::Always => true,
        HugePages::Auto => free_mb >= needed_mb,
        HugePages::Never => false,
    };
    if STARTED.swap(true, Ordering::Relaxed) {
        return Err(DpdkError::SecondStart);
    }
    let mut words: Vec<String> = ["gatun", "--lcores"].map(str::to_owned).into();
    words.push(lcores(others));
    // A memif that shares its buffers with its peer needs them in one file.
    words.extend(["--no-telemetry", "--single-file-segments"].map(str::to_owned));
    words.extend(["--log-level=warning", "--log-level=pmd.net.memif:critical"].map(str::to_owned));
    // No other process may attach to this one, and no file stays behind.
    match huge {
        true => words.push("--in-memory".to_owned()),
        false => words.extend(["--no-shconf", "--no-huge", "-m", &needed_mb.to_string()].map(str::to_owned)),
    }
    match pci.is_empty() {
        true => words.extend(["--no-pci", "--iova-mode=va"].map(str::to_owned)),
        false => words.extend(pci.iter().flat_map(|address| ["-a".to_owned(), (*address).to_owned()])),
    }
    words.extend(config.arguments.iter().cloned());
    let arguments = gatun_dpdk_shim::arguments(words);
    let zero = || DpdkError::Environment("an argument has a zero byte".to_owned());
    let mut arguments = arguments.ok_or_else(zero)?;
    // SAFETY: the given number of pointers to strings that are never freed.
    let error = unsafe { sys::gatun_eal_init(arguments.len() as c_int, arguments.as_mut_ptr()) };
    if error != 0 {
        return Err(DpdkError::Environment(text(error)));
    }
    Ok(huge)
}

/// Longest wait for the interrupt thread's present work, ms.
const SETTLE_MAX_MS: c_uint = 1000;

/// Waits until the environment's interrupt thread has finished its present work. When a memif's peer
/// disappears, this thread reports the link as down before it unmaps the peer's memory (22.11); closing the
/// device in between would unmap it twice.
pub(crate) fn settle() {
    // SAFETY: the environment is running; one thread does this.
    unsafe { sys::gatun_interrupts_settle(SETTLE_MAX_MS) }
}

/// Keeps the files of packet buffers open, and restores the descriptor numbers that the environment knows if
/// a driver has closed them. Call it once all pools exist, and before and after a memif client connects.
pub(crate) fn keep_files() {
    // SAFETY: the environment is running; one thread does this.
    unsafe { sys::gatun_memory_files() }
}

/// Occupies the low descriptor numbers until dropped, so that files opened by the environment meanwhile get
/// higher ones. While such a file is closed for a moment (see [`keep_files`]), no other code gets its number,
/// because lower ones are free.
pub(crate) struct LowNumbers {
    _files: Vec<OwnedFd>,
}

impl LowNumbers {
    pub(crate) fn take() -> LowNumbers {
        const HIGH: i32 = 256;
        let null = std::fs::File::open("/dev/null").ok();
        let more = || null.as_ref().and_then(|null| fcntl_dupfd_cloexec(null, 0).ok());
        let low = std::iter::from_fn(more).take_while(|file| file.as_raw_fd() < HIGH);
        LowNumbers { _files: low.collect() }
    }
}

/// Free huge pages of all sizes in MB.
fn free_huge_mb() -> u64 {
    let Ok(sizes) = std::fs::read_dir("/sys/kernel/mm/hugepages") else { return 0 };
    let free = sizes.filter_map(|size| {
        let size = size.ok()?;
        let name = size.file_name().into_string().ok()?;
        let kb: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let free = std::fs::read_to_string(size.path().join("free_hugepages")).ok()?;
        Some(free.trim().parse::<u64>().ok()? * kb / 1024)
    });
    free.sum()
}

/// Registration of a thread with the environment, until dropped.
pub(crate) struct Registration {
    thread: std::thread::ThreadId,
    registered: bool,
}

impl Registration {
    /// Registers the calling thread with the environment, on that processor. If this fails, everything works,
    /// but slower: pools keep no cache of buffers for the thread.
    pub(crate) fn new(processor: Processor) -> Registration {
        // If pinning is refused, the scheduler chooses.
        let _ = processor.pin_thread();
        // SAFETY: the environment is running; a thread may call this at any time.
        let registered = unsafe { sys::gatun_thread_register() } == 0;
        Registration { thread: std::thread::current().id(), registered }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.registered && self.thread == std::thread::current().id() {
            // SAFETY: this thread registered itself.
            unsafe { sys::gatun_thread_unregister() }
        }
    }
}
