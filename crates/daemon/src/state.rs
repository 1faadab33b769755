//! The directory in memory where sessions are kept for the next process.
//!
//! ```text
//!   lock                   held by the daemon whose directory it is
//!   names.json             whose numbers the records use, and which files they are in; replaced as a whole
//!   sessions.GEN.WORKER    the records of each worker's engine (gatun_nat::kept)
//! ```
//! Until `names.json` names new files, the old ones are what the next process takes over: one that is killed while it
//! starts has lost nothing. It names the old ones too until all of their sessions are in the new.

use crate::privileges::User;
use gatun_config::{Bytes, StateDir};
use gatun_mem::bytes_written;
use gatun_nat::workers::Dealt;
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
use std::time::{Duration, Instant};

/// Default path.
pub const USUAL: &str = "/run/gatun/state";
/// Longest time that a killed process may take to release the directory.
const LET_GO_MAX: Duration = Duration::from_millis(1_000);
/// `TMPFS_MAGIC` of `linux/magic.h`.
const TMPFS: i64 = 0x0102_1994;
/// The unit of `st_blocks`, whatever the file system's own is (stat(2)).
const BLOCK: u64 = 512;
/// Room in the file system beside the records.
const ROOM_BESIDE: u64 = 16 << 20;
/// Bytes of `names.json` that are read at most; far more than names take.
const NAMES_MAX: u64 = 64 << 20;
/// Processes that may have been killed one after the other before all sessions of the one before were in their own files,
/// without their successor taking its time.
pub(crate) const EARLIER_MAX: usize = 2;

/// Names behind the numbers in records. It grows and is never renumbered while a process runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// Which files the records are in.
    pub generation: u64,
    /// Number of workers; each has one file of records.
    pub workers: usize,
    /// By number.
    pub instances: Vec<InstanceNames>,
    /// By what subscribers are dealt out to workers.
    pub steering: [u64; 4],
    /// Public addresses of each worker.
    #[serde(default)]
    pub dealt: Vec<Dealt>,
    /// Public addresses that get no new bindings: the first and the last of each range, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drained: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// Processes before this one whose sessions are not all in its own files yet, the latest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Names>,
}

impl Names {
    /// All processes that have sessions, the latest first.
    pub fn sources(&self) -> impl Iterator<Item = &Names> {
        std::iter::once(self).chain(&self.earlier)
    }
}

/// An instance by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceNames {
    /// `nat64` or `nat44`.
    pub kind: String,
    /// As the configuration names it.
    pub name: String,
    /// Translation prefixes, by number.
    pub prefixes: Vec<String>,
}

/// The directory, held.
pub struct Directory {
    path: PathBuf,
    directory: File,
    /// Whether the file system is ours, with room for the records of several processes at a time.
    is_own: bool,
    _lock: File,
}

/// Opens the directory that the configuration names, for engines whose records take `bytes`. `Ok(Err(_))`: the usual
/// one cannot be had, and why.
///
/// # Errors
/// If the one that the configuration names cannot be had.
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

/// Reads what a daemon keeps in a directory, which it may have open: its names, and each worker's records; and so of
/// processes before it that have sessions too.
///
/// # Errors
/// If there is none.
pub fn read(path: &Path) -> Result<Vec<(Names, Vec<File>)>, String> {
    let none =
        |e: &dyn std::fmt::Display| format!("{}: no gatun keeps its sessions there ({e})", path.display());
    let directory = open_directory(path).map_err(|e| none(&e))?;
    let names = read_names(&directory).map_err(|e| none(&e))?;
    let files = |names: &Names| {
        let files = (0..names.workers).map(|worker| open_records(&directory, names.generation, worker));
        files.collect::<io::Result<Vec<File>>>().map_err(|e| none(&e))
    };
    names.sources().map(|names| Ok((names.clone(), files(names)?))).collect()
}

fn open_directory(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags((OFlags::DIRECTORY | OFlags::NOFOLLOW).bits() as i32).open(path)
}

/// Opens a regular file of a directory, if it has no other name: whoever owns the directory may have put it there.
fn open_in(directory: &File, name: &str, flags: OFlags) -> io::Result<File> {
    // Where it is a pipe, nobody is waited for.
    let safe = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(directory, name, flags | safe, Mode::RUSR | Mode::WUSR)?);
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.nlink() > 1 {
        return Err(io::Error::other(format!("{name} is not a regular file, or has a second name")));
    }
    Ok(file)
}

/// Makes a file in a directory, instead of what has its name.
fn make_in(directory: &File, name: &str) -> io::Result<File> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => open_in(directory, name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL),
        Err(error) => Err(error.into()),
    }
}

fn read_names(directory: &File) -> io::Result<Names> {
    let mut text = String::new();
    open_in(directory, "names.json", OFlags::RDONLY)?.take(NAMES_MAX).read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}

// Private mappings of shared memory are writable, so the file has to be.
fn open_records(directory: &File, generation: u64, worker: usize) -> io::Result<File> {
    open_in(directory, &records(generation, worker), OFlags::RDWR)
}

/// The name of a worker's records.
fn records(generation: u64, worker: usize) -> String {
    format!("sessions.{generation}.{worker}")
}

impl Directory {
    /// Makes it where there is none, and holds it, for records of `bytes`. `user` is to write there later.
    ///
    /// # Errors
    /// If it cannot be made or locked.
    pub fn open(path: &Path, bytes: u64, user: Option<&User>) -> Result<Directory, String> {
        let shown = path.display();
        // The API's socket may be beside it, for others too.
        let parents = path.parent().map_or(Ok(()), fs::create_dir_all);
        let made = parents.and_then(|()| fs::DirBuilder::new().mode(0o700).create(path));
        made.or_else(|e| if path.is_dir() { Ok(()) } else { Err(e) })
            .map_err(|e| format!("{shown} cannot be made: {e}"))?;
        let mounted = mount_memory(path, bytes);
        let directory = open_directory(path).map_err(|e| format!("{shown} cannot be opened: {e}"))?;
        let system = fstatfs(&directory).map_err(|e| format!("{shown}: {e}"))?;
        if system.f_type != TMPFS {
            return Err(format!(
                "{shown} is not in memory: name a directory on tmpfs, such as one under /run or /dev/shm"
            ));
        }
        let lock = lock(&directory, path)?;
        if let Some(user) = user {
            // Whoever it becomes has to write there, where the configuration changes.
            let (uid, gid) = (Uid::from_raw(user.uid()), Gid::from_raw(user.gid()));
            fchown(&directory, Some(uid), Some(gid)).map_err(|e| format!("{shown}: {e}"))?;
        }
        Ok(Directory { path: path.to_owned(), directory, is_own: mounted, _lock: lock })
    }

    /// Names that the previous process left, if there was one.
    pub fn names(&self) -> Option<Names> {
        read_names(&self.directory).ok()
    }

    /// Replaces the names that the next process finds.
    ///
    /// # Errors
    /// If it cannot be written; then it finds what it would have found before.
    pub fn set_names(&self, names: &Names) -> io::Result<()> {
        let mut new = make_in(&self.directory, "names.new")?;
        new.write_all(serde_json::to_string(names)?.as_bytes())?;
        Ok(renameat(&self.directory, "names.new", &self.directory, "names.json")?)
    }

    /// Whether there is room for the records of several processes at a time.
    pub fn has_room_for_several(&self) -> bool {
        self.is_own
    }

    /// Gives memory back that other processes have reserved for their records and never used. Returns the bytes that
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

    /// Removes all records but those of the processes that `names` tells of.
    pub fn remove_all_but(&self, names: &Names) {
        let Ok(entries) = fs::read_dir(&self.path) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let of = name.to_str().and_then(|name| name.strip_prefix("sessions.")?.split_once('.'));
            let is_named = |number: &str| names.sources().any(|of| number == of.generation.to_string());
            if of.is_some_and(|(number, _)| !is_named(number)) {
                // What cannot be removed is in nobody's way but memory's, and tried again at the next start.
                let _ = unlinkat(&self.directory, &name, AtFlags::empty());
            }
        }
    }

    /// Opens a worker's records to be read.
    pub fn records(&self, generation: u64, worker: usize) -> io::Result<File> {
        open_records(&self.directory, generation, worker)
    }

    /// Makes a file of `bytes` zeroes for a worker's records, all of which have memory: a page that cannot be had later
    /// would end the process.
    ///
    /// # Errors
    /// If the file system has no room: then no file is left.
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

/// A file system that has no memory for records.
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
        write!(f, "{}: no room for {needed} of sessions, {free} are free ({error})", directory.display())
    }
}

impl std::error::Error for NoRoom {}

fn free_bytes(directory: &File) -> u64 {
    rustix::fs::fstatvfs(directory).map_or(0, |system| system.f_bavail.saturating_mul(system.f_frsize))
}

/// Mounts memory at `path`, with room for the records of all processes that may have some at a time, or gives the one that
/// is there that much. Says whether it is there. On huge pages, which halve the cost of a look at a large table.
fn mount_memory(path: &Path, bytes: u64) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|m| m.dev()).ok();
    let size = bytes.saturating_mul(2 + EARLIER_MAX as u64).saturating_add(ROOM_BESIDE);
    if device(path) != path.parent().and_then(device) {
        return mount_remount(path, MountFlags::empty(), format!("size={size}")).is_ok();
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    // The directory that was looked at, whatever its name leads to by now.
    let Ok(directory) = open_directory(path) else { return false };
    let place = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let with = |more: &str| {
        let options = std::ffi::CString::new(format!("mode=0700,size={size}{more}")).ok();
        mount("gatun-state", &place, "tmpfs", flags, options.as_deref())
    };
    match with(",huge=within_size") {
        // A kernel without huge pages does not know the word.
        Err(Errno::INVAL) => with("").is_ok(),
        other => other.is_ok(),
    }
}

/// Gives the memory back that was reserved for records and never used; the file is as long as before. For nobody's
/// records: whoever writes there later may find no memory.
pub fn give_back_unwritten(file: &File) {
    let (Ok(used), Ok(metadata)) = (bytes_written(file.as_fd()), file.metadata()) else { return };
    let unwritten = metadata.len().saturating_sub(used);
    if unwritten > 0 {
        // What cannot be given back stays reserved.
        let _ = fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, used, unwritten);
    }
}

fn lock(directory: &File, path: &Path) -> Result<File, String> {
    let file = open_in(directory, "lock", OFlags::RDWR | OFlags::CREATE);
    let file = file.map_err(|e| format!("{} cannot be written to: {e}", path.display()))?;
    let begin = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) if begin.elapsed() < LET_GO_MAX => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(Errno::WOULDBLOCK) => {
                return Err(format!(
                    "{} is another gatun's, which runs: give each a [state] directory of its own",
                    path.display()
                ));
            }
            Err(e) => return Err(format!("{} cannot be locked: {e}", path.display())),
        }
    }
}
