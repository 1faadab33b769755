//! Loading the program.

use crate::entries;
use crate::error::{FastPathError, step};
use crate::maps::{MAPS, NAMES};
use crate::sys;
use aya::maps::Map;
use aya::programs::{ProgramError, ProgramFd, SchedClassifier, Xdp};
use aya::{Ebpf, EbpfLoader};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// The program, compiled from `bpf/`.
const OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/fastpath.o");
/// Name of the program, and of its filter.
pub(crate) const NAME: &str = "gatun_fastpath";
/// Name of the program for network interfaces.
const XDP_NAME: &str = "gatun_xdp";

/// Loads the device's program with new maps, for tests. `globals`: other values of global variables.
#[cfg(test)]
pub(crate) fn load(
    capacity: u32,
    hosts: u32,
    globals: &[(&'static str, u32)],
) -> Result<Ebpf, FastPathError> {
    let mut ebpf = create_maps(capacity, hosts, globals, None)?;
    load_device(&mut ebpf)?;
    Ok(ebpf)
}

/// Creates the maps for `capacity` sessions and `hosts` mapped hosts. With `pins`, maps that are pinned there
/// are used, and others are pinned there. The program is not loaded: the kernel would refuse it with maps of
/// another version.
pub(crate) fn create_maps(
    capacity: u32,
    hosts: u32,
    globals: &[(&'static str, u32)],
    pins: Option<&Path>,
) -> Result<Ebpf, FastPathError> {
    let mut loader = EbpfLoader::new();
    for name in NAMES {
        if let Some(pins) = pins {
            loader.map_pin_path(name, pins.join(name));
        }
    }
    loader.map_max_entries("entries", entries::entries_of(capacity));
    let of_hosts = NAMES.into_iter().filter(|name| name.starts_with("hosts"));
    of_hosts.for_each(|name| {
        loader.map_max_entries(name, hosts.max(1));
    });
    globals.iter().for_each(|(name, value)| {
        loader.override_global(name, value, true);
    });
    loader.load(OBJECT).map_err(|e| FastPathError::Program(in_words(&e)))
}

/// Loads the device's program.
pub(crate) fn load_device(ebpf: &mut Ebpf) -> Result<(), FastPathError> {
    let program = program(ebpf)?;
    load_undisturbed(|| program.load())
}

/// Loads a program. The kernel's verifier, which takes a tenth of a second, gives up at each signal of its
/// thread: one that a child has ended is enough. So signals wait.
fn load_undisturbed(load: impl FnOnce() -> Result<(), ProgramError>) -> Result<(), FastPathError> {
    let _waiting = sys::WaitingSignals::new();
    load().map_err(load_error)
}

fn load_error(error: ProgramError) -> FastPathError {
    match error {
        ProgramError::LoadError { io_error, verifier_log } => {
            let log = verifier_log.to_string();
            let last: Vec<&str> = log.trim().lines().rev().take(3).collect();
            FastPathError::Program(format!("{io_error}; verifier log: {}", last.join(" <- ")))
        }
        other => FastPathError::Program(in_words(&other)),
    }
}

/// The program for network interfaces. It is loaded when it is asked for the first time.
pub(crate) fn xdp(ebpf: &mut Ebpf) -> Result<&mut Xdp, FastPathError> {
    let program =
        ebpf.program_mut(XDP_NAME).ok_or_else(|| FastPathError::Program(format!("no {XDP_NAME}")))?;
    let program: &mut Xdp = program.try_into().map_err(|e| FastPathError::Program(in_words(&e)))?;
    if program.fd().is_err() {
        load_undisturbed(|| program.load())?;
    }
    Ok(program)
}

/// The program of a loaded object.
pub(crate) fn program(ebpf: &mut Ebpf) -> Result<&mut SchedClassifier, FastPathError> {
    let program = ebpf.program_mut(NAME).ok_or_else(|| FastPathError::Program(format!("no {NAME}")))?;
    program.try_into().map_err(|e| FastPathError::Program(in_words(&e)))
}

/// File of the device's program.
pub(crate) fn device_file(ebpf: &mut Ebpf) -> Result<OwnedFd, FastPathError> {
    copy(program(ebpf)?.fd())
}

/// File of the program for network interfaces.
pub(crate) fn xdp_file(ebpf: &mut Ebpf) -> Result<OwnedFd, FastPathError> {
    copy(xdp(ebpf)?.fd())
}

fn copy(file: Result<&ProgramFd, ProgramError>) -> Result<OwnedFd, FastPathError> {
    let file = file.map_err(|e| FastPathError::Program(in_words(&e)))?;
    file.as_fd().try_clone_to_owned().map_err(step("keeping the file of a program"))
}

/// Files of the maps of a loaded object.
pub(crate) fn files(ebpf: &Ebpf) -> Result<[OwnedFd; MAPS], FastPathError> {
    let mut files = Vec::new();
    for name in NAMES {
        let data = match ebpf.map(name) {
            Some(Map::Array(data) | Map::PerCpuArray(data) | Map::LpmTrie(data) | Map::HashMap(data)) => data,
            _ => return Err(FastPathError::Map { name, why: "the object has no such map".to_owned() }),
        };
        let file = data.fd().as_fd().try_clone_to_owned();
        files.push(file.map_err(|error| FastPathError::Step { step: "keeping a map", error })?);
    }
    files.try_into().map_err(|_| FastPathError::Program("not all maps".to_owned()))
}

/// An error with all its causes.
pub(crate) fn in_words(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_words = cause.to_string();
        if !words.contains(&cause_words) {
            words = format!("{words}: {cause_words}");
        }
        next = cause.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    extern "C" fn ignore(_signal: libc::c_int) {}

    #[test]
    fn a_program_is_loaded_while_signals_arrive() {
        if let Some(why) = crate::exactness_tests::refusal() {
            return gatun_testkit::skip(&why);
        }
        // SAFETY: the handler does nothing. The thread that is signalled lives until the end of the scope.
        let loader = unsafe {
            libc::signal(libc::SIGUSR1, ignore as extern "C" fn(libc::c_int) as libc::sighandler_t);
            libc::pthread_self()
        };
        let is_loaded = AtomicBool::new(false);
        let loaded = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_loaded.load(Ordering::Relaxed) {
                    // SAFETY: as above.
                    unsafe { libc::pthread_kill(loader, libc::SIGUSR1) };
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            let loaded = load(64, 1, &[]);
            is_loaded.store(true, Ordering::Relaxed);
            loaded
        });
        assert!(loaded.is_ok(), "{:?}", loaded.err());
    }
}
