//! Simulated disk that can fail after any operation, and records to write.

use gatun_logstore::{
    AllocationInForce, Disk, Entry, Hash, InstanceInForce, LogError, Mark, PlanInForce, PoolInForce,
    RangeInForce, Reader, Record, RecordKind,
};
use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};
use std::sync::{Arc, Mutex};

#[derive(Clone, Default)]
struct File {
    bytes: Vec<u8>,
    /// Bytes that survive a power failure.
    synced: Vec<u8>,
}

#[derive(Default)]
struct World {
    files: Vec<File>,
    names: BTreeMap<String, usize>,
    synced_names: BTreeMap<String, usize>,
    operations: u64,
    /// Operations in this range of numbers fail; the first of them does half of its work.
    fails: (u64, u64),
}

/// Kind of crash.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    /// The process is killed: all written bytes are there.
    Killed,
    /// Power failure: some unsynced bytes are there; names are the old or the new ones.
    PowerLoss { bytes: Unsynced, new_names: bool },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Unsynced {
    None,
    Half,
    /// The length is updated, the bytes are zero.
    Zeros,
}

pub(crate) const ENDINGS: [Ending; 6] = [
    Ending::Killed,
    Ending::PowerLoss { bytes: Unsynced::None, new_names: false },
    Ending::PowerLoss { bytes: Unsynced::None, new_names: true },
    Ending::PowerLoss { bytes: Unsynced::Half, new_names: true },
    Ending::PowerLoss { bytes: Unsynced::Half, new_names: false },
    Ending::PowerLoss { bytes: Unsynced::Zeros, new_names: true },
];

#[derive(Clone, Default)]
pub(crate) struct Memory(Arc<Mutex<World>>);

impl Memory {
    pub(crate) fn new() -> Memory {
        let memory = Memory::default();
        memory.fail(u64::MAX, u64::MAX);
        memory
    }

    /// Makes the operations `from` to `to` fail.
    pub(crate) fn fail(&self, from: u64, to: u64) {
        self.0.lock().unwrap().fails = (from, to);
    }

    pub(crate) fn operations(&self) -> u64 {
        self.0.lock().unwrap().operations
    }

    pub(crate) fn bytes_of(&self, name: &str) -> Vec<u8> {
        let world = self.0.lock().unwrap();
        world.files[world.names[name]].bytes.clone()
    }

    pub(crate) fn set(&self, name: &str, bytes: Vec<u8>) {
        let mut world = self.0.lock().unwrap();
        let file = world.names[name];
        world.files[file] = File { synced: bytes.clone(), bytes };
    }

    /// The disk after a crash.
    pub(crate) fn after(&self, ending: Ending) -> Memory {
        let world = self.0.lock().unwrap();
        let (bytes, names) = match ending {
            Ending::Killed => return copy(&world, &world.names, |file| file.bytes.clone()),
            Ending::PowerLoss { bytes, new_names } => (bytes, new_names),
        };
        let names = if names { &world.names } else { &world.synced_names };
        copy(&world, names, |File { bytes: written, synced }| {
            let mut left = synced.clone();
            // A truncation that was not synced may be undone, and later bytes may have been written.
            if let Some(more) = written.get(synced.len()..) {
                match bytes {
                    Unsynced::None => {}
                    Unsynced::Half => left.extend_from_slice(&more[..more.len() / 2]),
                    Unsynced::Zeros => left.resize(written.len(), 0),
                }
            }
            left
        })
    }

    /// Counts an operation; returns if it fails, and if it is the first one to fail.
    fn step(&self) -> (std::sync::MutexGuard<'_, World>, Option<bool>) {
        let mut world = self.0.lock().unwrap();
        let n = world.operations;
        world.operations += 1;
        let (from, to) = world.fails;
        let fails = (from..to).contains(&n).then_some(n == from);
        (world, fails)
    }
}

fn copy(world: &World, names: &BTreeMap<String, usize>, left: impl Fn(&File) -> Vec<u8>) -> Memory {
    let memory = Memory::new();
    let mut new = memory.0.lock().unwrap();
    new.files = world.files.iter().map(&left).map(|bytes| File { synced: bytes.clone(), bytes }).collect();
    (new.names, new.synced_names) = (names.clone(), names.clone());
    drop(new);
    memory
}

fn full<T>() -> Result<T> {
    Err(ErrorKind::StorageFull.into())
}

impl World {
    fn file(&mut self, name: &str) -> Result<&mut File> {
        let at = *self.names.get(name).ok_or(Error::from(ErrorKind::NotFound))?;
        Ok(&mut self.files[at])
    }
}

impl Disk for Memory {
    fn names(&self) -> Result<Vec<String>> {
        Ok(self.0.lock().unwrap().names.keys().cloned().collect())
    }

    fn len(&self, name: &str) -> Result<u64> {
        Ok(self.0.lock().unwrap().file(name)?.bytes.len() as u64)
    }

    fn read_at(&self, name: &str, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let mut world = self.0.lock().unwrap();
        let from = world.file(name)?.bytes.get(offset as usize..).unwrap_or_default();
        bytes.copy_from_slice(from.get(..bytes.len()).ok_or(Error::from(ErrorKind::UnexpectedEof))?);
        Ok(())
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let (mut world, fails) = self.step();
        if fails == Some(false) {
            return full();
        }
        if !world.names.contains_key(name) {
            let new = world.files.len();
            world.files.push(File::default());
            world.names.insert(name.to_owned(), new);
        }
        let len = if fails.is_some() { bytes.len() / 2 } else { bytes.len() };
        world.file(name)?.bytes.extend_from_slice(&bytes[..len]);
        if fails.is_some() { full() } else { Ok(()) }
    }

    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        let (mut world, fails) = self.step();
        if fails == Some(false) {
            return full();
        }
        let len = if fails.is_some() { bytes.len() / 2 } else { bytes.len() };
        let at = offset as usize;
        world.file(name)?.bytes[at..at + len].copy_from_slice(&bytes[..len]);
        if fails.is_some() { full() } else { Ok(()) }
    }

    fn truncate(&mut self, name: &str, len: u64) -> Result<()> {
        let (mut world, fails) = self.step();
        if fails.is_some() {
            return full();
        }
        world.file(name)?.bytes.truncate(len as usize);
        Ok(())
    }

    fn sync(&mut self, name: &str) -> Result<()> {
        let (mut world, fails) = self.step();
        if fails.is_some() {
            return full();
        }
        let file = world.file(name)?;
        file.synced.clone_from(&file.bytes);
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        let (mut world, fails) = self.step();
        if fails.is_some() {
            return full();
        }
        let file = world.names.remove(from).ok_or(Error::from(ErrorKind::NotFound))?;
        world.names.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&mut self, name: &str) -> Result<()> {
        let (mut world, fails) = self.step();
        if fails.is_some() {
            return full();
        }
        world.names.remove(name).map(drop).ok_or(ErrorKind::NotFound.into())
    }

    fn sync_names(&mut self) -> Result<()> {
        let (mut world, fails) = self.step();
        if fails.is_some() {
            return full();
        }
        world.synced_names = world.names.clone();
        Ok(())
    }
}

/// Record of block number `block` with 256 ports at 192.0.2.1, assigned to or released by subscriber `n`.
pub(crate) fn block(at_ms: u64, begins: bool, block: u16, n: u16) -> Record {
    Record {
        at_ms,
        kind: if begins { RecordKind::BlockAssigned } else { RecordKind::BlockReleased },
        transports: 7,
        instance: 0,
        pool: 0,
        outside: "192.0.2.1".parse().unwrap(),
        first: block * 256,
        last: block * 256 + 255,
        inside: subscriber(n).parse().unwrap(),
        inside_port: 0,
    }
}

pub(crate) fn subscriber(n: u16) -> String {
    format!("2001:db8:{n:x}::")
}

pub(crate) fn start(at_ms: u64) -> Mark {
    Mark::Start { at_ms, version: "1".into(), keeps_state: false }
}

pub(crate) fn config(at_ms: u64, name: &str, allocation: AllocationInForce) -> Mark {
    let range = RangeInForce {
        first: "192.0.2.0".parse().unwrap(),
        last: "192.0.2.3".parse().unwrap(),
        ports: (1024, 65_535),
        transports: [true; 3],
    };
    let pool = PoolInForce { name: "res".into(), allocation, ranges: vec![range] };
    let instance =
        InstanceInForce { name: name.into(), pool: 0, subscriber_len: 64, static_bindings: Vec::new() };
    let plan = PlanInForce { instances: vec![instance], pools: vec![pool], siit: Vec::new() };
    Mark::Config { at_ms, hash: Hash::of(&[name.as_bytes()]), plan: Box::new(plan) }
}

pub(crate) fn reader(disk: &Memory) -> Reader {
    Reader::open(Box::new(disk.clone())).unwrap()
}

/// All records, by file, in chronological order in each.
pub(crate) fn records(disk: &Memory) -> Vec<Record> {
    let mut all = Vec::new();
    let each = |entry: Entry<'_>| {
        if let Entry::Record(record, _) = entry {
            all.push(*record);
        }
        Ok::<(), LogError>(())
    };
    reader(disk).show((0, u64::MAX), each).unwrap();
    all
}

pub(crate) fn faults(disk: &Memory) -> Vec<String> {
    reader(disk).verify(None).unwrap().faults
}
