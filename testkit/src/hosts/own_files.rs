//! Files of daemons that share one configuration: each finds its own in the same directory.

use super::run;
use crate::Error;
use std::process::Command;

/// Directory of a daemon's files, as the daemon sees it.
pub const OWN_FILES: &str = "/run/node";

/// Makes a daemon's directory `own` with `files`, the certificates of another directory, and `state`, a file
/// system in memory. One that the daemon mounts by itself would end with its view of the files.
///
/// # Errors
/// What the shell said.
pub fn make_own_files(own: &str, certificates: &str) -> Result<(), Error> {
    let script = format!(
        "mkdir -p {own}/files {own}/state {OWN_FILES} && cp {certificates}/* {own}/files/ && \
         {{ mountpoint -q {own}/state || mount -t tmpfs -o mode=700 state {own}/state; }}"
    );
    run(Command::new("sh").args(["-c", &script])).map(drop)
}

/// Words before those of a command, so that it sees `own` as [`OWN_FILES`].
#[must_use]
pub fn own_files_view(own: &str) -> [String; 6] {
    let view = format!("mount --rbind {own} {OWN_FILES} && exec \"$@\"");
    ["unshare", "-m", "sh", "-c", &view, "sh"].map(str::to_owned)
}
