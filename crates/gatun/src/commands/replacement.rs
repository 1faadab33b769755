//! Replacement of a file by a complete new one.

use anyhow::{Context as _, anyhow};
use gatun_daemon::replace;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};

/// Replacement of a file, put in place once it is complete.
pub(super) struct Replacement<'p> {
    path: PathBuf,
    target: &'p Path,
    file: fs::File,
    is_done: bool,
}

impl<'p> Replacement<'p> {
    /// Creates the new file beside the old one, for the owner of the directory.
    ///
    /// # Errors
    /// Returns an error if it exists or cannot be created.
    pub(super) fn begin(target: &'p Path, mode: u32) -> anyhow::Result<Replacement<'p>> {
        let mut name = target.file_name().context("not a file name")?.to_owned();
        name.push(".new");
        let path = target.with_file_name(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path);
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                let path = path.display();
                anyhow!(
                    "{path} exists: another `gatun` is writing it; if that was interrupted, remove the file"
                )
            }
            _ => anyhow!("cannot write {}: {error}", path.display()),
        })?;
        super::give_to_owner_of_directory(&file, &path);
        Ok(Replacement { path, target, file, is_done: false })
    }

    /// Gives the new file to the user and the group of the old one.
    ///
    /// # Errors
    /// Returns an error if this process must not.
    pub(super) fn keep_owner(&self, old: &fs::Metadata) -> anyhow::Result<()> {
        let new = self.file.metadata()?;
        if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
            let kept = fchown(&self.file, Some(old.uid()), Some(old.gid()));
            kept.with_context(|| format!("cannot keep the owner of {}", self.target.display()))?;
        }
        Ok(())
    }

    /// Writes the new file and puts it in place.
    ///
    /// # Errors
    /// Returns an error if it cannot be written. The old file then stays.
    pub(super) fn finish(mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let written = replace::fill(&self.file, bytes);
        let moved = written.and_then(|()| replace::take_place(&self.path, self.target));
        moved.with_context(|| format!("cannot write {}", self.target.display()))?;
        self.is_done = true;
        Ok(())
    }
}

impl Drop for Replacement<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            let _ = fs::remove_file(&self.path);
        }
    }
}
