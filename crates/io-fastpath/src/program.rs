//! Loading the program.

use crate::entries;
use crate::error::FastPathError;
use crate::maps::{MAPS, NAMES};
use aya::maps::Map;
use aya::programs::{ProgramError, SchedClassifier, Xdp};
use aya::{Ebpf, EbpfLoader};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// The program, compiled from `bpf/`.
const OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/fastpath.o");
/// Name of the program, and of its filter.
pub(crate) const NAME: &str = "gatun_fastpath";
/// Name of the program for network interfaces.
const XDP_NAME: &str = "gatun_xdp";

/// Loads the program with maps for `capacity` sessions and `hosts` mapped hosts. With `pins`, maps that are
/// pinned there are used, and others are pinned there. `globals`: other values of global variables, for
/// tests.
pub(crate) fn load(
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
    let mut ebpf = loader.load(OBJECT).map_err(|e| FastPathError::Program(in_words(&e)))?;
    let program = program(&mut ebpf)?;
    load_patiently(|| program.load())?;
    Ok(ebpf)
}

/// Attempts to load a program.
const ATTEMPTS: u32 = 100;

/// Loads a program again if a signal has interrupted the kernel's verifier, which then answers EAGAIN.
fn load_patiently(mut load: impl FnMut() -> Result<(), ProgramError>) -> Result<(), FastPathError> {
    let is_interrupted = |error: &ProgramError| match error {
        ProgramError::LoadError { io_error, .. } => io_error.kind() == std::io::ErrorKind::WouldBlock,
        _ => false,
    };
    for _ in 1..ATTEMPTS {
        match load() {
            Err(error) if is_interrupted(&error) => {}
            other => return other.map_err(load_error),
        }
    }
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
        load_patiently(|| program.load())?;
    }
    Ok(program)
}

/// The program of a loaded object.
pub(crate) fn program(ebpf: &mut Ebpf) -> Result<&mut SchedClassifier, FastPathError> {
    let program = ebpf.program_mut(NAME).ok_or_else(|| FastPathError::Program(format!("no {NAME}")))?;
    program.try_into().map_err(|e| FastPathError::Program(in_words(&e)))
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
