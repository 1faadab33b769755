//! Logs of boxes on disks of their own, which become full.

use anyhow::{Context as _, ensure};
use gatun_api::client::Client;
use gatun_api::types::LogStore;
use gatun_testkit::wait_until;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Log of a box.
#[derive(Clone, Debug)]
pub(super) struct BoxLog {
    pub(super) directory: String,
    /// Socket of the box's API.
    pub(super) socket: String,
}

impl BoxLog {
    /// Gives the log a disk, unless it has one.
    pub(super) fn mount(&self) -> anyhow::Result<()> {
        let log = &self.directory;
        let script =
            format!("mkdir -p {log} && {{ mountpoint -q {log} || mount -t tmpfs -o size=384m log {log}; }}");
        gatun_testkit::run(Command::new("sh").args(["-c", &script]))?;
        Ok(())
    }

    /// Moves the files of the log out of its directory: a former program need not read those of a newer one.
    pub(super) fn set_aside(&self) -> anyhow::Result<()> {
        let count = self.directories().len();
        let (log, aside) = (&self.directory, format!("{}-{count}", self.directory));
        let script =
            format!("mkdir {aside} && find {log} -mindepth 1 -maxdepth 1 -exec mv -t {aside} {{}} +");
        gatun_testkit::run(Command::new("sh").args(["-c", &script]))?;
        Ok(())
    }

    /// Directories of all files of the log, the oldest first.
    pub(super) fn directories(&self) -> Vec<String> {
        let aside = (1..).map(|n| format!("{}-{n}", self.directory));
        let mut all: Vec<String> = aside.take_while(|one| Path::new(one).is_dir()).collect();
        all.push(self.directory.clone());
        all
    }

    fn filler(&self) -> String {
        format!("{}/filler", self.directory)
    }

    fn fill(&self) -> anyhow::Result<()> {
        let full = fs::write(self.filler(), vec![0; 512 << 20]);
        ensure!(full.is_err_and(|error| error.kind() == ErrorKind::StorageFull), "the disk has room");
        Ok(())
    }

    /// Returns whether the box can write the log, and has written all of it.
    fn is_written(&self) -> bool {
        let log = Client::new(&self.socket).get::<LogStore>("/v1/log");
        log.is_ok_and(|log| log.kept && log.writable && log.waiting == 0)
    }
}

/// Fills the disks, and opens sessions until a box cannot write its log.
pub(super) fn fill_all(logs: &[BoxLog], max: Duration, ping: impl Fn() -> bool) -> anyhow::Result<()> {
    logs.iter().try_for_each(BoxLog::fill)?;
    let is_felt = || ping() && !logs.iter().all(BoxLog::is_written);
    Ok(wait_until("a box cannot write its log", max, is_felt)?)
}

/// Makes room on the disks, and waits until all logs are written.
pub(super) fn free_all(logs: &[BoxLog], max: Duration) -> anyhow::Result<()> {
    for log in logs {
        fs::remove_file(log.filler()).with_context(|| log.filler())?;
    }
    let is_written = || logs.iter().all(BoxLog::is_written);
    Ok(wait_until("all boxes have written their logs", max, is_written)?)
}
