//! Destination of events: standard output, or a file, which is reopened after it was moved or removed, as by
//! log rotation. A truncated file needs nothing: every write appends.

use gatun_config::EventSink;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

pub(super) enum EventFile {
    Stdout(io::Stdout),
    File { path: PathBuf, file: File },
}

impl EventFile {
    /// Opens the destination.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened or created.
    pub(super) fn open(sink: &EventSink) -> io::Result<EventFile> {
        match sink {
            EventSink::Stdout => Ok(EventFile::Stdout(io::stdout())),
            EventSink::File(path) => Ok(EventFile::File { path: path.clone(), file: open(path)? }),
        }
    }

    /// Name for the log.
    pub(super) fn name(&self) -> String {
        match self {
            EventFile::Stdout(_) => "standard output".to_owned(),
            EventFile::File { path, .. } => path.display().to_string(),
        }
    }

    /// Reopens the file if its path leads to another file or to none. Returns true if it did.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened or created. Then the old one is still written.
    pub(super) fn follow(&mut self) -> io::Result<bool> {
        let EventFile::File { path, file } = self else { return Ok(false) };
        let same = |a: &Metadata, b: &Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
        match (&path.metadata(), &file.metadata()) {
            (Ok(there), Ok(here)) if same(there, here) => Ok(false),
            _ => {
                *file = open(path)?;
                Ok(true)
            }
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    // Opening a pipe blocks without a reader. This reader is held until the file is open, so that the pipe's
    // own reader sees no end.
    let is_pipe = path.metadata().is_ok_and(|found| found.file_type().is_fifo());
    let at_once = || OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path);
    let _reader = is_pipe.then(at_once).transpose()?;
    OpenOptions::new().create(true).append(true).open(path)
}

impl Write for EventFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            EventFile::Stdout(out) => out.write(bytes),
            EventFile::File { file, .. } => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            EventFile::Stdout(out) => out.flush(),
            EventFile::File { file, .. } => file.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_moved_or_removed_file_is_created_again() {
        let dir = std::env::temp_dir().join(format!("gatun-event-file-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let (path, old) = (dir.join("events"), dir.join("events.1"));
        let mut file = EventFile::open(&EventSink::File(path.clone())).unwrap();
        file.write_all(b"one\n").unwrap();
        assert!(!file.follow().unwrap(), "it is where it was");
        fs::rename(&path, &old).unwrap();
        file.write_all(b"two\n").unwrap();
        assert!(file.follow().unwrap() && !file.follow().unwrap());
        file.write_all(b"three\n").unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "one\ntwo\n", "nothing is lost");
        assert_eq!(fs::read_to_string(&path).unwrap(), "three\n");
        // Somebody has put another in its place already.
        fs::rename(&path, &old).unwrap();
        fs::write(&path, "zero\n").unwrap();
        assert!(file.follow().unwrap());
        file.write_all(b"four\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "zero\nfour\n");
        // Nothing can be made where the directory is gone; then what was open goes on.
        fs::remove_dir_all(&dir).unwrap();
        assert!(file.follow().is_err());
        file.write_all(b"five\n").unwrap();
        fs::create_dir_all(&dir).unwrap();
        assert!(file.follow().unwrap());
        file.write_all(b"six\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "six\n");
        fs::remove_dir_all(&dir).unwrap();
    }
}
