//! One file, one command: its arguments as `Args`, its work as `execute`.

pub(crate) mod ask;
pub(crate) mod check;
mod choices;
pub(crate) mod clear;
mod colour;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod doctor;
pub(crate) mod drain;
pub(crate) mod explain;
pub(crate) mod init;
pub(crate) mod log;
pub(crate) mod log_level;
pub(crate) mod man;
pub(crate) mod map;
pub(crate) mod run;
pub(crate) mod show;
pub(crate) mod snapshot;
pub(crate) mod token;
pub(crate) mod top;
pub(crate) mod trace;
pub(crate) mod translate;
mod volume;
pub(crate) mod web;
pub(crate) mod who;

use anyhow::bail;
pub(crate) use gatun_daemon::print_bytes;
use std::fs::File;
use std::io::{IsTerminal as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::Path;

/// Gives a new file that root has made to the owner of its directory: what is made in /etc/gatun, the daemon's user can read.
pub(crate) fn give_to_owner_of_directory(file: &File, path: &Path) {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Ok(owner) = directory.metadata()
        && rustix::process::geteuid().is_root()
        && owner.uid() != 0
    {
        // Where it stays root's, the daemon says that it cannot read it.
        let _ = fchown(file, Some(owner.uid()), Some(owner.gid()));
    }
}

/// Asks whether that is meant.
///
/// # Errors
/// Where nobody is there to be asked.
pub(crate) fn confirmed(question: &str) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("nobody is there to be asked: say --yes");
    }
    eprint!("{question} [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
