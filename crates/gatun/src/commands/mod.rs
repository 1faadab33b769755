//! Commands, one file each: arguments in `Args`, implementation in `execute`.

pub(crate) mod ask;
pub(crate) mod certificates;
pub(crate) mod check;
pub(crate) mod clear;
pub(crate) mod cluster;
mod colour;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod doctor;
pub(crate) mod drain;
pub(crate) mod explain;
pub(crate) mod fastpath;
pub(crate) mod health;
pub(crate) mod init;
pub(crate) mod log;
pub(crate) mod log_level;
pub(crate) mod man;
pub(crate) mod map;
pub(crate) mod offload;
pub(crate) mod p4;
pub(crate) mod peer;
mod replacement;
pub(crate) mod run;
mod selectors;
pub(crate) mod show;
pub(crate) mod snapshot;
pub(crate) mod token;
pub(crate) mod top;
pub(crate) mod trace;
pub(crate) mod translate;
mod volume;
pub(crate) mod web;
pub(crate) mod who;

use crate::show::{Output, as_json};
use anyhow::bail;
pub(crate) use gatun_daemon::print_bytes;
use serde::Serialize;
use std::fs::File;
use std::io::{IsTerminal as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

/// Changes the owner of a file created by root to that of its directory, so that the daemon's user can read
/// files in /etc/gatun.
pub(crate) fn give_to_owner_of_directory(file: &File, path: &Path) {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Ok(owner) = directory.metadata()
        && rustix::process::geteuid().is_root()
        && owner.uid() != 0
    {
        // If it stays root's, the daemon reports that it cannot read it.
        let _ = fchown(file, Some(owner.uid()), Some(owner.gid()));
    }
}

/// Prints a state, unless it is good and `is_quiet`. The exit status tells if it is good.
///
/// # Errors
/// Returns an error if it cannot be written.
pub(crate) fn report<T: Serialize>(
    state: &T,
    (is_good, is_quiet): (bool, bool),
    output: Output,
    text: impl FnOnce() -> String,
) -> anyhow::Result<ExitCode> {
    match output {
        _ if is_good && is_quiet => {}
        Output::Json | Output::Ndjson => print_bytes(&as_json(state, output)?)?,
        Output::Table | Output::Csv => print_bytes(text().as_bytes())?,
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Time, seconds since 1970.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Asks for confirmation.
///
/// # Errors
/// Returns an error if standard input is not a terminal.
pub(crate) fn confirmed(question: &str) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("stdin is not a terminal; pass --yes");
    }
    eprint!("{question} [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
