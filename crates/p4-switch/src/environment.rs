//! DPDK's environment: memory and drivers, once per process.

use crate::error::SwitchError;
use crate::sys;
use std::ffi::{CStr, c_int};
use std::sync::OnceLock;

/// Configuration of the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentConfig {
    /// Memory for packet buffers and tables with masks, MB. Exact tables have memory of their own, as much as
    /// their entries need.
    pub memory_mb: u32,
    /// Further arguments for the environment, such as network cards (`-a`), whose memory is in huge pages
    /// then.
    pub arguments: Vec<String>,
}

/// The running environment.
#[derive(Clone, Copy, Debug)]
pub struct Environment {
    _private: (),
}

impl Environment {
    /// Starts the environment. Later calls return the first result.
    ///
    /// # Errors
    /// The libraries are missing, or the environment does not start.
    pub fn start(config: &EnvironmentConfig) -> Result<Environment, SwitchError> {
        static STARTED: OnceLock<Result<(), String>> = OnceLock::new();
        sys::load()?;
        let started = STARTED.get_or_init(|| start(config));
        started.clone().map(|()| Environment { _private: () }).map_err(SwitchError::Environment)
    }

    /// Version of the library, as "22.11.11".
    pub(crate) fn version(self) -> String {
        // SAFETY: the shim is loaded; the text is constant and ends with a zero.
        let text = unsafe { CStr::from_ptr(sys::version()) }.to_string_lossy().into_owned();
        text.trim_start_matches("DPDK ").to_owned()
    }
}

fn start(config: &EnvironmentConfig) -> Result<(), String> {
    let memory = config.memory_mb.to_string();
    let mut words: Vec<String> =
        ["gatun", "-l", "0", "--no-telemetry", "--log-level=warning"].map(str::to_owned).into();
    words[2] = first_processor().to_string();
    words.extend(["--no-shconf", "-m", &memory].map(str::to_owned));
    if !config.arguments.iter().any(|word| word == "-a") {
        words.extend(["--no-huge", "--no-pci", "--iova-mode=va"].map(str::to_owned));
    }
    words.extend(config.arguments.iter().cloned());
    let mut arguments = gatun_dpdk_shim::arguments(words).ok_or("an argument has a zero byte")?;
    // SAFETY: the given number of pointers to strings that are never freed.
    match unsafe { sys::start(arguments.len() as c_int, arguments.as_mut_ptr()) } {
        0 => Ok(()),
        error => Err(std::io::Error::from_raw_os_error(-error).to_string()),
    }
}

/// Number of a processor that the thread may use.
fn first_processor() -> usize {
    // SAFETY: no arguments; the number of the processor or -1.
    usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}
