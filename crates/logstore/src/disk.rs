//! The files of a store: few operations, so that a test can stop the world after each of them.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// A directory of files that only grow.
///
/// What was written is there after a loss of power only once [`Disk::sync`] has returned, and a name that was made,
/// changed or removed once [`Disk::sync_names`] has.
pub trait Disk: Send {
    /// The names of all files.
    ///
    /// # Errors
    /// Whatever the system says; so for all others.
    fn names(&self) -> io::Result<Vec<String>>;
    /// Bytes of a file.
    ///
    /// # Errors
    /// `NotFound` where there is none.
    fn len(&self, name: &str) -> io::Result<u64>;
    /// Fills `bytes` from `offset` on.
    ///
    /// # Errors
    /// `UnexpectedEof` where the file is shorter.
    fn read_at(&self, name: &str, offset: u64, bytes: &mut [u8]) -> io::Result<()>;
    /// Writes at the end of a file, which is made where there is none. After an error some of it may be there.
    ///
    /// # Errors
    /// Such as a full disk.
    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;
    /// Writes over bytes of a file that are there; they lie in one sector.
    ///
    /// # Errors
    /// Whatever the system says. After an error some of it may be there.
    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Cuts a file to `len` bytes.
    ///
    /// # Errors
    /// Whatever the system says.
    fn truncate(&mut self, name: &str, len: u64) -> io::Result<()>;
    /// Waits until the bytes of a file would outlast a loss of power.
    ///
    /// # Errors
    /// Whatever the system says: then nothing is known of what was written since the last time.
    fn sync(&mut self, name: &str) -> io::Result<()>;
    /// Gives a file another name, atomically.
    ///
    /// # Errors
    /// Whatever the system says.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;
    /// Takes a file away.
    ///
    /// # Errors
    /// Whatever the system says.
    fn remove(&mut self, name: &str) -> io::Result<()>;
    /// Waits until names would outlast a loss of power.
    ///
    /// # Errors
    /// Whatever the system says.
    fn sync_names(&mut self) -> io::Result<()>;
}

/// A whole file, or a part of it.
pub(crate) fn read(disk: &dyn Disk, name: &str, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    disk.read_at(name, offset, &mut bytes)?;
    Ok(bytes)
}

/// A directory of the system's.
pub struct Directory {
    path: PathBuf,
    /// Files that are written to.
    open: HashMap<String, File>,
    /// Files that are written over.
    in_place: HashMap<String, File>,
    /// Locked as long as this writes: two writers would spoil each other's work.
    _lock: Option<File>,
}

/// The file that a writer holds locked.
const LOCK: &str = "lock";

impl Directory {
    /// To read from.
    pub fn to_read(path: &Path) -> Directory {
        Directory { path: path.to_owned(), open: HashMap::new(), in_place: HashMap::new(), _lock: None }
    }

    /// To write to; it is made where there is none, for its owner's group to read and for nobody else.
    ///
    /// # Errors
    /// Where it cannot be made, or another process writes to it.
    pub fn to_write(path: &Path) -> io::Result<Directory> {
        fs::DirBuilder::new().recursive(true).mode(0o750).create(path)?;
        let lock = options().open(path.join(LOCK))?;
        lock.try_lock().map_err(|error| match error {
            fs::TryLockError::WouldBlock => {
                io::Error::new(io::ErrorKind::ResourceBusy, "another process writes to it")
            }
            fs::TryLockError::Error(error) => error,
        })?;
        Ok(Directory { _lock: Some(lock), ..Directory::to_read(path) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn writer(&mut self, name: &str) -> io::Result<&File> {
        if !self.open.contains_key(name) {
            self.open.insert(name.to_owned(), options().open(self.path.join(name))?);
        }
        self.open.get(name).ok_or(io::ErrorKind::NotFound.into())
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o640);
    options
}

impl Disk for Directory {
    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            names.extend(entry?.file_name().into_string());
        }
        names.retain(|name| name != LOCK);
        Ok(names)
    }

    fn len(&self, name: &str) -> io::Result<u64> {
        Ok(fs::metadata(self.path.join(name))?.len())
    }

    fn read_at(&self, name: &str, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        File::open(self.path.join(name))?.read_exact_at(bytes, offset)
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        use io::Write as _;
        let mut file = self.writer(name)?;
        file.write_all(bytes)
    }

    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        // A file that is open to append would take them at its end.
        if !self.in_place.contains_key(name) {
            let file = OpenOptions::new().write(true).open(self.path.join(name))?;
            self.in_place.insert(name.to_owned(), file);
        }
        self.in_place.get(name).ok_or(io::ErrorKind::NotFound)?.write_all_at(bytes, offset)
    }

    fn truncate(&mut self, name: &str, len: u64) -> io::Result<()> {
        self.writer(name)?.set_len(len)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        match self.in_place.get(name) {
            Some(file) => file.sync_data(),
            None => self.writer(name)?.sync_all(),
        }
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        for name in [from, to] {
            self.open.remove(name);
            self.in_place.remove(name);
        }
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.open.remove(name);
        self.in_place.remove(name);
        fs::remove_file(self.path.join(name))
    }

    fn sync_names(&mut self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}
