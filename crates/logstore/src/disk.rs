//! Files of a store, with few operations, so that a test can simulate a crash after each of them.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Directory of files.
///
/// Written bytes survive a power failure once [`Disk::sync`] has returned; created, renamed or removed names
/// once [`Disk::sync_names`] has.
pub trait Disk: Send {
    /// Lists the names of all files.
    ///
    /// # Errors
    /// Returns errors of the system, as all other operations do.
    fn names(&self) -> io::Result<Vec<String>>;
    /// Length of a file in bytes.
    ///
    /// # Errors
    /// Returns `NotFound` if the file does not exist.
    fn len(&self, name: &str) -> io::Result<u64>;
    /// Fills `bytes` from `offset` on.
    ///
    /// # Errors
    /// Returns `UnexpectedEof` if the file is shorter.
    fn read_at(&self, name: &str, offset: u64, bytes: &mut [u8]) -> io::Result<()>;
    /// Appends to a file and creates it if needed. After an error, a part may be written.
    ///
    /// # Errors
    /// Returns errors of the system, for example a full disk.
    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;
    /// Overwrites bytes of a file within one sector.
    ///
    /// # Errors
    /// Returns errors of the system; a part may be written.
    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Truncates a file to `len` bytes.
    ///
    /// # Errors
    /// Returns errors of the system.
    fn truncate(&mut self, name: &str, len: u64) -> io::Result<()>;
    /// Waits until the bytes of a file would survive a power failure.
    ///
    /// # Errors
    /// Returns errors of the system; then the state of everything written since the last sync is unknown.
    fn sync(&mut self, name: &str) -> io::Result<()>;
    /// Renames a file atomically.
    ///
    /// # Errors
    /// Returns errors of the system.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    ///
    /// # Errors
    /// Returns errors of the system.
    fn remove(&mut self, name: &str) -> io::Result<()>;
    /// Waits until names would survive a power failure.
    ///
    /// # Errors
    /// Returns errors of the system.
    fn sync_names(&mut self) -> io::Result<()>;
}

/// Reads a part of a file.
pub(crate) fn read(disk: &dyn Disk, name: &str, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    disk.read_at(name, offset, &mut bytes)?;
    Ok(bytes)
}

/// Directory of the file system.
pub struct Directory {
    path: PathBuf,
    /// Files open for appending.
    open: HashMap<String, File>,
    /// Files open for overwriting.
    in_place: HashMap<String, File>,
    /// Lock file, held by a writer: there can be only one.
    _lock: Option<File>,
}

/// Name of the lock file.
const LOCK: &str = "lock";

impl Directory {
    /// Opens a directory for reading.
    pub fn to_read(path: &Path) -> Directory {
        Directory { path: path.to_owned(), open: HashMap::new(), in_place: HashMap::new(), _lock: None }
    }

    /// Opens a directory for writing and creates it if needed, readable by its owner's group.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be created or has another writer.
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

    /// Path of the directory.
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
        // Bytes written to a file open for appending go to its end.
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
