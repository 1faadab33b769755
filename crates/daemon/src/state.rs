//! Directory in memory that saves sessions for the next process.
//!
//! ```text
//!   lock                   held by the daemon that uses the directory
//!   names.json             names behind the numbers in records, and the generation of the files; replaced
//!   atomically
//!   sessions.GEN.WORKER    the records of each worker's engine (gatun_nat::session_file)
//! ```
//! The next process restores the old files until `names.json` names new ones, so a process that is killed
//! while it starts loses nothing. `names.json` also names the old files until all of their sessions are in
//! the new ones.

use crate::killed::once_released;
use crate::privileges::User;
use gatun_config::{Bytes, StateDir};
use gatun_mem::bytes_written;
use gatun_nat::workers::AddressShare;
use rustix::fs::{
    AtFlags, FallocateFlags, FlockOperation, Gid, Mode, OFlags, Uid, fallocate, fchown, flock, fstatfs,
    ftruncate, openat, renameat, unlinkat,
};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount, mount_remount};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Default path.
pub const USUAL: &str = "/run/gatun/state";
/// Longest time that a killed process may take to release the directory.
const LET_GO_MAX: Duration = Duration::from_millis(1_000);
/// `TMPFS_MAGIC` of `linux/magic.h`.
const TMPFS: i64 = 0x0102_1994;
/// Unit of `st_blocks`, independent of the file system's block size (stat(2)).
const BLOCK: u64 = 512;
/// Additional bytes in the file system for files other than records.
const ROOM_BESIDE: u64 = 16 << 20;
/// Largest accepted size of `names.json`, far more than names need.
const NAMES_MAX: u64 = 64 << 20;
/// Number of processes that may be killed in sequence before all sessions of the previous one are restored.
/// After more, the next process restores all sessions before the first packet.
pub(crate) const EARLIER_MAX: usize = 2;

/// Names behind the numbers in records. They are extended and never renumbered while a process runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// Generation of the files with the records.
    pub generation: u64,
    /// Number of workers; each has one file of records.
    pub workers: usize,
    /// Instances by number.
    pub instances: Vec<InstanceNames>,
    /// Key that distributes subscribers over workers.
    pub steering: [u64; 4],
    /// Public addresses of each worker.
    #[serde(default, alias = "dealt")]
    pub address_shares: Vec<AddressShare>,
    /// Ranges of public addresses that get no new bindings, each with its first and last one, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drained: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// Hash of the stateful instances and pools whose sessions the kernel may have. `None` while they change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offloaded: Option<u64>,
    /// Previous processes whose sessions are not all restored, the latest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Names>,
}

impl Names {
    /// All processes with saved sessions, the latest first.
    pub fn sources(&self) -> impl Iterator<Item = &Names> {
        std::iter::once(self).chain(&self.earlier)
    }
}

/// Names of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceNames {
    /// `nat64` or `nat44`.
    pub kind: String,
    /// Name in the configuration.
    pub name: String,
    /// Translation prefixes, by number.
    pub prefixes: Vec<String>,
}

/// Open and locked directory.
pub struct Directory {
    path: PathBuf,
    directory: File,
    /// True if Gatun has mounted the file system, with room for the records of several processes.
    is_own: bool,
    _lock: File,
}

/// Opens the configured directory, for engines whose records take `bytes`. `Ok(Err(_))` has the reason why
/// the default directory cannot be used.
///
/// # Errors
/// Returns an error if the configured directory cannot be used.
pub(crate) fn open(
    settings: &StateDir,
    bytes: u64,
    user: Option<&User>,
) -> anyhow::Result<Option<Result<Directory, String>>> {
    match settings {
        StateDir::Off => Ok(None),
        StateDir::Usual => Ok(Some(Directory::open(Path::new(USUAL), bytes, user))),
        StateDir::Path(path) => {
            let opened = Directory::open(path, bytes, user);
            opened
                .map(|directory| Some(Ok(directory)))
                .map_err(|why| anyhow::anyhow!("[state] directory: {why}"))
        }
    }
}

/// Reads the names and the workers' records in a directory, which a daemon may use meanwhile, also those of
/// earlier processes that have sessions.
///
/// # Errors
/// Returns an error if the directory has no saved sessions.
pub fn read(path: &Path) -> Result<Vec<(Names, Vec<File>)>, String> {
    let none = |e: &dyn std::fmt::Display| format!("{}: no saved sessions of gatun ({e})", path.display());
    let directory = open_directory(path).map_err(|e| none(&e))?;
    let names = read_names(&directory).map_err(|e| none(&e))?;
    let files = |names: &Names| {
        let files = (0..names.workers).map(|worker| open_records(&directory, names.generation, worker));
        files.collect::<io::Result<Vec<File>>>().map_err(|e| none(&e))
    };
    names.sources().map(|names| Ok((names.clone(), files(names)?))).collect()
}

/// Changes the owner of an open directory.
fn give(directory: &File, user: &User) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(user.uid()), Gid::from_raw(user.gid()));
    Ok(fchown(directory, Some(uid), Some(gid))?)
}

/// Changes the owner of a directory.
pub(crate) fn chown_to(path: &Path, user: &User) -> io::Result<()> {
    give(&open_directory(path)?, user)
}

fn open_directory(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags((OFlags::DIRECTORY | OFlags::NOFOLLOW).bits() as i32).open(path)
}

/// Opens a regular file without other hard links in a directory: the directory's owner may have planted the
/// file.
fn open_in(directory: &File, name: &str, flags: OFlags) -> io::Result<File> {
    // Does not block on a pipe.
    let safe = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(directory, name, flags | safe, Mode::RUSR | Mode::WUSR)?);
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.nlink() > 1 {
        return Err(io::Error::other(format!("{name} is not a regular file, or has several links")));
    }
    Ok(file)
}

/// Creates a file in a directory and replaces an existing one.
fn make_in(directory: &File, name: &str) -> io::Result<File> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => open_in(directory, name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL),
        Err(error) => Err(error.into()),
    }
}

/// Replaces a file as a whole.
fn replace_in(directory: &File, name: &str, text: &[u8]) -> io::Result<()> {
    let new = format!("{name}.new");
    make_in(directory, &new)?.write_all(text)?;
    Ok(renameat(directory, &new, directory, name)?)
}

fn read_in(directory: &File, name: &str) -> io::Result<String> {
    let mut text = String::new();
    open_in(directory, name, OFlags::RDONLY)?.take(NAMES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

fn read_names(directory: &File) -> io::Result<Names> {
    Ok(serde_json::from_str(&read_in(directory, "names.json")?)?)
}

/// Small file in the directory of the state.
pub(crate) struct NamedFile {
    directory: File,
    name: &'static str,
}

impl NamedFile {
    /// Reads the text.
    ///
    /// # Errors
    /// Returns an error if there is no such file, or it is no text.
    pub(crate) fn read(&self) -> io::Result<String> {
        read_in(&self.directory, self.name)
    }

    /// Replaces the file as a whole.
    ///
    /// # Errors
    /// Returns an error if it cannot be written. The previous contents then stay.
    pub(crate) fn replace(&self, text: &[u8]) -> io::Result<()> {
        replace_in(&self.directory, self.name, text)
    }
}

// Private mappings of shared memory are writable, so the file has to be opened for writing.
fn open_records(directory: &File, generation: u64, worker: usize) -> io::Result<File> {
    open_in(directory, &records(generation, worker), OFlags::RDWR)
}

/// File name of a worker's records.
fn records(generation: u64, worker: usize) -> String {
    format!("sessions.{generation}.{worker}")
}

impl Directory {
    /// Creates the directory if needed and locks it, for records of `bytes`. `user` will write to it later.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be created or locked.
    pub fn open(path: &Path, bytes: u64, user: Option<&User>) -> Result<Directory, String> {
        let shown = path.display();
        // The API's socket may be next to it, for other users too.
        let parents = path.parent().map_or(Ok(()), fs::create_dir_all);
        let made = parents.and_then(|()| fs::DirBuilder::new().mode(0o700).create(path));
        made.or_else(|e| if path.is_dir() { Ok(()) } else { Err(e) })
            .map_err(|e| format!("cannot create {shown}: {e}"))?;
        let mounted = mount_memory(path, bytes);
        let directory = open_directory(path).map_err(|e| format!("cannot open {shown}: {e}"))?;
        let system = fstatfs(&directory).map_err(|e| format!("{shown}: {e}"))?;
        if system.f_type != TMPFS {
            return Err(format!(
                "{shown} is not in memory: name a directory on tmpfs, such as one under /run or /dev/shm"
            ));
        }
        let lock = lock(&directory, path)?;
        if let Some(user) = user {
            // The later user has to write to it when the configuration changes.
            give(&directory, user).map_err(|e| format!("{shown}: {e}"))?;
        }
        Ok(Directory { path: path.to_owned(), directory, is_own: mounted, _lock: lock })
    }

    /// Names left by the previous process, if there was one.
    pub fn names(&self) -> Option<Names> {
        read_names(&self.directory).ok()
    }

    /// Replaces the names for the next process.
    ///
    /// # Errors
    /// Returns an error if they cannot be written. The next process then finds the previous names.
    pub fn set_names(&self, names: &Names) -> io::Result<()> {
        replace_in(&self.directory, "names.json", serde_json::to_string(names)?.as_bytes())
    }

    /// Returns a handle of a small file beside the names, which a thread of its own replaces.
    ///
    /// # Errors
    /// Returns an error if the process has reached its limit of open files.
    pub(crate) fn named_file(&self, name: &'static str) -> io::Result<NamedFile> {
        Ok(NamedFile { directory: self.directory.try_clone()?, name })
    }

    /// Returns true if there is room for the records of several processes.
    pub fn has_room_for_several(&self) -> bool {
        self.is_own
    }

    /// Frees memory that other processes have reserved for records and never used. Returns the bytes that
    /// their files still have.
    pub fn trim(&self, names: &Names) -> u64 {
        let mut left = 0;
        for of in names.sources() {
            for worker in 0..of.workers {
                let Ok(file) = self.records(of.generation, worker) else { continue };
                give_back_unwritten(&file);
                left += file.metadata().map_or(0, |m| m.blocks() * BLOCK);
            }
        }
        left
    }

    /// Removes all records except those of the processes in `names`.
    pub fn remove_all_but(&self, names: &Names) {
        let Ok(entries) = fs::read_dir(&self.path) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let of = name.to_str().and_then(|name| name.strip_prefix("sessions.")?.split_once('.'));
            let is_named = |number: &str| names.sources().any(|of| number == of.generation.to_string());
            if of.is_some_and(|(number, _)| !is_named(number)) {
                // A file that cannot be removed only takes memory. The next start tries again.
                let _ = unlinkat(&self.directory, &name, AtFlags::empty());
            }
        }
    }

    /// Opens the records of a worker.
    pub fn records(&self, generation: u64, worker: usize) -> io::Result<File> {
        open_records(&self.directory, generation, worker)
    }

    /// Creates a file of `bytes` zeros for a worker's records and allocates all of its memory: a page that is
    /// missing later would end the process.
    ///
    /// # Errors
    /// Returns an error if the file system has no room. Then no file is left.
    pub fn new_records(&self, generation: u64, worker: usize, bytes: u64) -> Result<File, NoRoom> {
        let name = records(generation, worker);
        let made = self.allocated(&name, bytes);
        made.map_err(|error| {
            let _ = unlinkat(&self.directory, &name, AtFlags::empty());
            let free = free_bytes(&self.directory);
            NoRoom { directory: self.path.clone(), needed: bytes, free, error }
        })
    }

    fn allocated(&self, name: &str, bytes: u64) -> io::Result<File> {
        let file = make_in(&self.directory, name)?;
        ftruncate(&file, bytes)?;
        fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
        Ok(file)
    }
}

/// Error: the file system has no room for records.
#[derive(Debug)]
pub struct NoRoom {
    directory: PathBuf,
    needed: u64,
    /// Free bytes of the file system.
    pub free: u64,
    error: io::Error,
}

impl std::fmt::Display for NoRoom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let NoRoom { directory, needed, free, error } = self;
        let (needed, free) = (Bytes(*needed), Bytes(*free));
        write!(f, "{}: no room for {needed} of sessions, only {free} free ({error})", directory.display())
    }
}

impl std::error::Error for NoRoom {}

fn free_bytes(directory: &File) -> u64 {
    rustix::fs::fstatvfs(directory).map_or(0, |system| system.f_bavail.saturating_mul(system.f_frsize))
}

/// Mounts a tmpfs at `path` with room for the records of all processes that may have some, or resizes an
/// existing one. Returns true if it is mounted. It uses huge pages, which halve the cost of reading a large
/// table.
fn mount_memory(path: &Path, bytes: u64) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|m| m.dev()).ok();
    let size = bytes.saturating_mul(2 + EARLIER_MAX as u64).saturating_add(ROOM_BESIDE);
    if device(path) != path.parent().and_then(device) {
        return mount_remount(path, MountFlags::empty(), format!("size={size}")).is_ok();
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    // The directory that was checked, even if its name was replaced meanwhile.
    let Ok(directory) = open_directory(path) else { return false };
    let place = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let with = |more: &str| {
        let options = std::ffi::CString::new(format!("mode=0700,size={size}{more}")).ok();
        mount("gatun-state", &place, "tmpfs", flags, options.as_deref())
    };
    match with(",huge=within_size") {
        // A kernel without huge pages does not know the option.
        Err(Errno::INVAL) => with("").is_ok(),
        other => other.is_ok(),
    }
}

/// Frees the memory of a file that was reserved for records and never used. The length stays. Only for files
/// that nobody uses: later writes may find no memory.
pub fn give_back_unwritten(file: &File) {
    let (Ok(used), Ok(metadata)) = (bytes_written(file.as_fd()), file.metadata()) else { return };
    let unwritten = metadata.len().saturating_sub(used);
    if unwritten > 0 {
        // If this fails, the memory stays reserved.
        let _ = fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, used, unwritten);
    }
}

fn lock(directory: &File, path: &Path) -> Result<File, String> {
    let file = open_in(directory, "lock", OFlags::RDWR | OFlags::CREATE);
    let file = file.map_err(|e| format!("cannot write to {}: {e}", path.display()))?;
    let is_taken = |error: &Errno| *error == Errno::WOULDBLOCK;
    let lock = || flock(&file, FlockOperation::NonBlockingLockExclusive);
    match once_released(LET_GO_MAX, is_taken, lock) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(format!(
            "{} is in use by another running gatun: give each its own [state] directory",
            path.display()
        )),
        Err(e) => Err(format!("cannot lock {}: {e}", path.display())),
    }
}
