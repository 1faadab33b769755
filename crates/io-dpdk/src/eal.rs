//! DPDK's environment (EAL): memory, processors, threads.

use crate::error::DpdkError;
use crate::sys;
use gatun_io::{Others, Processor};
use rustix::io::fcntl_dupfd_cloexec;
use std::ffi::{CStr, CString, c_int, c_uint};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// How the environment is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EalConfig {
    /// What packet buffers lie on.
    pub huge_pages: HugePages,
    /// Processors of the workers; none: the last ones that the process may use.
    pub cores: Vec<u16>,
    /// Further arguments, after those that are made from the rest.
    pub arguments: Vec<String>,
}

/// What packet buffers lie on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// Huge pages, where enough are free.
    #[default]
    Auto,
    /// Huge pages, or nothing works.
    Always,
    /// Ordinary pages.
    Never,
}

/// MB that the environment and its drivers need beside the packet buffers.
const OVERHEAD_MB: u64 = 48;

/// What a system call or DPDK calls an error.
pub(crate) fn text(error: c_int) -> String {
    // SAFETY: the function takes any number, and its text stays until the thread asks again.
    let text = unsafe { CStr::from_ptr(sys::gatun_strerror(error)) };
    text.to_string_lossy().into_owned()
}

/// As the environment wants them: a thread of its own that may run on any of these.
fn lcores(others: &Others) -> String {
    let others: Vec<String> = others.numbers().map(|number| number.to_string()).collect();
    format!("0@({})", others.join(","))
}

/// Starts the environment, once in a process. `buffers_mb` is what packet buffers will take; `pci` are the addresses of
/// the network cards among the devices. Returns whether it has huge pages.
pub(crate) fn start(
    config: &EalConfig,
    others: &Others,
    buffers_mb: u64,
    pci: &[&str],
) -> Result<bool, DpdkError> {
    static STARTED: AtomicBool = AtomicBool::new(false);
    sys::load()?;
    let needed_mb = buffers_mb + OVERHEAD_MB;
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
    // Nothing of this process is for another one to find, and nothing of it stays behind.
    match huge {
        true => words.push("--in-memory".to_owned()),
        false => words.extend(["--no-shconf", "--no-huge", "-m", &needed_mb.to_string()].map(str::to_owned)),
    }
    match pci.is_empty() {
        true => words.extend(["--no-pci", "--iova-mode=va"].map(str::to_owned)),
        false => words.extend(pci.iter().flat_map(|address| ["-a".to_owned(), (*address).to_owned()])),
    }
    words.extend(config.arguments.iter().cloned());
    let words: Result<Vec<CString>, _> = words.into_iter().map(CString::new).collect();
    let words = words.map_err(|_| DpdkError::Environment("an argument has a zero byte".to_owned()))?;
    let mut pointers: Vec<_> = words.into_iter().map(CString::into_raw).collect();
    // SAFETY: as many pointers to texts as it says. The environment may keep them and change them: they are never
    // freed.
    let error = unsafe { sys::gatun_eal_init(pointers.len() as c_int, pointers.as_mut_ptr()) };
    if error != 0 {
        return Err(DpdkError::Environment(text(error)));
    }
    Ok(huge)
}

/// How long what the interrupt thread is at may take, ms.
const SETTLE_MAX_MS: c_uint = 1000;

/// Waits until the environment's interrupt thread has ended what it is at: a memif whose peer has gone says that its link is down
/// before that thread takes the peer's memory away (22.11), and who closes the device meanwhile takes it away as well.
pub(crate) fn settle() {
    // SAFETY: the environment is there; one thread does this.
    unsafe { sys::gatun_interrupts_settle(SETTLE_MAX_MS) }
}

/// Keeps the files that packet buffers are in, and gives them back the numbers that the environment knows them by where
/// a driver has closed these. To be called once all pools are there, and before and after a memif client connects.
pub(crate) fn keep_files() {
    // SAFETY: the environment is there; one thread does this.
    unsafe { sys::gatun_memory_files() }
}

/// Takes the low numbers of files until it is dropped: those that the environment opens meanwhile get higher ones. Where such
/// a number is closed for a while (see [`keep_files`]), nobody else gets it, as there are lower ones.
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

/// MB of huge pages of all sizes that are free.
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

/// A thread that is known to the environment, for as long as this lives.
pub(crate) struct Registration {
    thread: std::thread::ThreadId,
    registered: bool,
}

impl Registration {
    /// Makes the calling thread one of the environment's, on that processor. Where that fails, it works all the same:
    /// slower, as pools keep no buffers at hand for it.
    pub(crate) fn new(processor: Processor) -> Registration {
        // The scheduler's choice where it is refused.
        let _ = processor.stay();
        // SAFETY: the environment is there; a thread may ask at any time.
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
