//! Segment, a sealed file: records sorted by address and port, so that a port is found by reading few bytes.
//!
//! ```text
//!   head   "GATUNLOG" kind version 0 0 0 0 0 0        16 bytes; kind 'S' segment, 'C' carried over
//!   chunks                                            see chunk.rs, up to 4096 records each
//!   marks                                             see mark.rs
//!   index  first key, last key, records, bytes, SHA-256      54 bytes a chunk
//!   tail   number, SHA-256 of the segment before, of the journal's last frame, records, first and last time,
//!          lengths and SHA-256 of marks and index, SHA-256 of head and tail, "GATUNEND"
//! ```
//! The last hash covers every byte, directly or through the hashes of index, marks and chunks. A reader of
//! one chunk checks that chunk, the index and the tail only. Numbers are little-endian.

use crate::chunk;
use crate::disk::{Disk, read};
use crate::error::{LogError, Result};
use crate::hash::Hash;
use crate::mark::{self, Mark};
use crate::record::{Key, Record};
use crate::varint::Bytes;

pub(crate) const MAGIC: &[u8; 8] = b"GATUNLOG";
/// Version of the format. Version 1, without receipts (`receipt.rs`), can still be read.
pub(crate) const VERSION: u8 = 2;
const END: &[u8; 8] = b"GATUNEND";
pub(crate) const HEAD_LEN: usize = 16;
const TAIL_LEN: usize = 8 + 32 + 32 + 8 + 8 + 8 + 8 + 4 + 32 + 4 + 32 + 32 + 8;
const ENTRY_LEN: usize = 7 + 7 + 4 + 4 + 32;
/// Records per chunk: larger chunks compress better, smaller ones are read faster.
const CHUNK_RECORDS: usize = 4096;
/// Largest index or marks, in bytes: limits a reader's memory.
const PART_LEN_MAX: u32 = 64 << 20;
/// Maximum number of chunks to try for an index of unknown length.
const INDEX_TRIES: usize = 4096;

/// Kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Segment,
    Carried,
}

impl FileKind {
    fn letter(self) -> u8 {
        if self == FileKind::Segment { b'S' } else { b'C' }
    }
}

pub(crate) fn head(kind: u8, version: u8) -> [u8; HEAD_LEN] {
    let mut head = [0; HEAD_LEN];
    head[..8].copy_from_slice(MAGIC);
    (head[8], head[9]) = (kind, version);
    head
}

/// Version of a file, from its first bytes; `None` if this program cannot read it.
pub(crate) fn version_of(bytes: &[u8], kind: u8) -> Option<u8> {
    (1..=VERSION).find(|version| bytes == head(kind, *version))
}

/// Tail of a file, with the hash of its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    pub(crate) number: u64,
    /// Hash of the previous segment.
    pub(crate) previous: Hash,
    /// Digest of the last frame of its journal.
    pub(crate) journal: Hash,
    pub(crate) records: u64,
    /// Times of the first and last entry; zero without entries.
    pub(crate) times_ms: (u64, u64),
    chunks_len: u64,
    marks: (u32, Hash),
    index: (u32, Hash),
    pub(crate) hash: Hash,
}

impl Tail {
    /// Encodes all fields but the hash.
    fn fields(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(TAIL_LEN);
        out.extend(self.number.to_le_bytes());
        out.extend(self.previous.0);
        out.extend(self.journal.0);
        for number in [self.records, self.times_ms.0, self.times_ms.1, self.chunks_len] {
            out.extend(number.to_le_bytes());
        }
        for (len, hash) in [self.marks, self.index] {
            out.extend(len.to_le_bytes());
            out.extend(hash.0);
        }
        out
    }

    /// Decodes a tail; the flag is true if its end marker is correct.
    fn read(bytes: &[u8]) -> Option<(Tail, bool)> {
        let mut bytes = Bytes(bytes);
        let number = u64::from_le_bytes(bytes.array()?);
        let (previous, journal) = (Hash(bytes.array()?), Hash(bytes.array()?));
        let mut next = || bytes.array().map(u64::from_le_bytes);
        let (records, times_ms, chunks_len) = (next()?, (next()?, next()?), next()?);
        let mut part = || Some((bytes.array().map(u32::from_le_bytes)?, Hash(bytes.array()?)));
        let (marks, index) = (part()?, part()?);
        let hash = Hash(bytes.array()?);
        let is_end = bytes.0 == END;
        let tail = Tail { number, previous, journal, records, times_ms, chunks_len, marks, index, hash };
        Some((tail, is_end))
    }

    fn expected_len(&self) -> Option<u64> {
        let parts = u64::from(self.marks.0) + u64::from(self.index.0) + (HEAD_LEN + TAIL_LEN) as u64;
        self.chunks_len.checked_add(parts)
    }
}

/// Index entry of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) first: Key,
    pub(crate) last: Key,
    pub(crate) records: u32,
    offset: u64,
    len: u32,
    hash: Hash,
}

/// Writer of a file; records must come in the order of their keys.
pub(crate) struct Writer<'d> {
    disk: &'d mut dyn Disk,
    name: String,
    kind: FileKind,
    waiting: Vec<Record>,
    index: Vec<u8>,
    records: u64,
    times_ms: Option<(u64, u64)>,
    chunks_len: u64,
}

impl<'d> Writer<'d> {
    /// Begins a file, which must not exist.
    pub(crate) fn new(disk: &'d mut dyn Disk, name: &str, kind: FileKind) -> Result<Writer<'d>> {
        disk.append(name, &head(kind.letter(), VERSION)).map_err(LogError::io(name))?;
        let waiting = Vec::with_capacity(CHUNK_RECORDS);
        let (name, index) = (name.to_owned(), Vec::new());
        Ok(Writer { disk, name, kind, waiting, index, records: 0, times_ms: None, chunks_len: 0 })
    }

    pub(crate) fn push(&mut self, record: &Record) -> Result<()> {
        self.waiting.push(*record);
        self.saw(record.at_ms);
        if self.waiting.len() >= CHUNK_RECORDS { self.put_chunk() } else { Ok(()) }
    }

    fn saw(&mut self, at_ms: u64) {
        let (first, last) = self.times_ms.unwrap_or((at_ms, at_ms));
        self.times_ms = Some((first.min(at_ms), last.max(at_ms)));
    }

    fn put_chunk(&mut self) -> Result<()> {
        let (Some(first), Some(last)) = (self.waiting.first(), self.waiting.last()) else { return Ok(()) };
        let bytes = chunk::encode(&self.waiting);
        for key in [first.key(), last.key()] {
            self.index.push(key.class);
            self.index.extend(key.address.to_le_bytes());
            self.index.extend(key.slot.to_le_bytes());
        }
        self.index.extend((self.waiting.len() as u32).to_le_bytes());
        self.index.extend((bytes.len() as u32).to_le_bytes());
        self.index.extend(Hash::of(&[&bytes]).0);
        self.records += self.waiting.len() as u64;
        self.chunks_len += bytes.len() as u64;
        self.waiting.clear();
        self.disk.append(&self.name, &bytes).map_err(LogError::io(&self.name))
    }

    /// Ends the file and waits until it would survive a power failure.
    pub(crate) fn finish(
        mut self,
        number: u64,
        previous: Hash,
        journal: Hash,
        marks: &[Mark],
    ) -> Result<Tail> {
        self.put_chunk()?;
        marks.iter().for_each(|mark| self.saw(mark.at_ms()));
        let marks = mark::encode(marks);
        let mut tail = Tail {
            number,
            previous,
            journal,
            records: self.records,
            times_ms: self.times_ms.unwrap_or_default(),
            chunks_len: self.chunks_len,
            marks: (marks.len() as u32, Hash::of(&[&marks])),
            index: (self.index.len() as u32, Hash::of(&[&self.index])),
            hash: Hash::default(),
        };
        let fields = tail.fields();
        tail.hash = Hash::of(&[&head(self.kind.letter(), VERSION), &fields]);
        let end = [&marks[..], &self.index, &fields, &tail.hash.0, END].concat();
        self.disk.append(&self.name, &end).map_err(LogError::io(&self.name))?;
        self.disk.sync(&self.name).map_err(LogError::io(&self.name))?;
        Ok(tail)
    }
}

/// File with its tail.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) name: String,
    pub(crate) tail: Tail,
    pub(crate) len: u64,
    pub(crate) version: u8,
}

impl Segment {
    /// Opens a file and reads its tail.
    pub(crate) fn open(disk: &dyn Disk, name: &str, kind: FileKind) -> Result<Segment> {
        let len = disk.len(name).map_err(LogError::io(name))?;
        let short = || LogError::damaged(name, format!("too short for a segment: {len} bytes"));
        let at = len.checked_sub(TAIL_LEN as u64).filter(|at| *at >= HEAD_LEN as u64).ok_or_else(short)?;
        let head = read(disk, name, 0, HEAD_LEN).map_err(LogError::io(name))?;
        let bytes = read(disk, name, at, TAIL_LEN).map_err(LogError::io(name))?;
        let wrong = || LogError::damaged(name, "wrong head: not a segment of a known version");
        let version = version_of(&head, kind.letter()).ok_or_else(wrong)?;
        let tail = Tail::read(&bytes).filter(|(_, is_end)| *is_end).map(|(tail, _)| tail);
        let tail = tail.ok_or_else(|| LogError::damaged(name, "wrong end: not a segment"))?;
        if Hash::of(&[&head, &tail.fields()]) != tail.hash {
            return Err(LogError::damaged(name, "its tail was changed: the hash differs"));
        }
        if tail.expected_len() != Some(len) || tail.marks.0.max(tail.index.0) > PART_LEN_MAX {
            return Err(LogError::damaged(name, "its length differs from the one in its tail"));
        }
        Ok(Segment { name: name.to_owned(), tail, len, version })
    }

    fn part(&self, disk: &dyn Disk, offset: u64, part: (u32, Hash), what: &str) -> Result<Vec<u8>> {
        let bytes = read(disk, &self.name, offset, part.0 as usize).map_err(LogError::io(&self.name))?;
        match Hash::of(&[&bytes]) == part.1 {
            true => Ok(bytes),
            false => Err(LogError::damaged(&self.name, format!("{what} was changed: the hash differs"))),
        }
    }

    pub(crate) fn marks(&self, disk: &dyn Disk) -> Result<Vec<Mark>> {
        let bytes = self.part(disk, HEAD_LEN as u64 + self.tail.chunks_len, self.tail.marks, "its marks")?;
        let wrong = || LogError::damaged(&self.name, "cannot read its marks: written by another version");
        mark::decode(&bytes).ok_or_else(wrong)
    }

    pub(crate) fn index(&self, disk: &dyn Disk) -> Result<Vec<Entry>> {
        let offset = HEAD_LEN as u64 + self.tail.chunks_len + u64::from(self.tail.marks.0);
        let bytes = self.part(disk, offset, self.tail.index, "its index")?;
        let wrong = || LogError::damaged(&self.name, "its index does not match its chunks");
        let (entries, rest) = bytes.as_chunks::<ENTRY_LEN>();
        let mut at = HEAD_LEN as u64;
        let mut index = Vec::with_capacity(entries.len());
        for entry in entries {
            let entry = Entry::read(entry, at).ok_or_else(wrong)?;
            at += u64::from(entry.len);
            index.push(entry);
        }
        let records: u64 = index.iter().map(|entry| u64::from(entry.records)).sum();
        let fits = rest.is_empty() && at == HEAD_LEN as u64 + self.tail.chunks_len;
        if fits && records == self.tail.records { Ok(index) } else { Err(wrong()) }
    }

    /// Reads the records of a chunk.
    pub(crate) fn chunk(&self, disk: &dyn Disk, entry: &Entry) -> Result<Vec<Record>> {
        let bytes = self.part(disk, entry.offset, (entry.len, entry.hash), "a chunk")?;
        let wrong = || LogError::damaged(&self.name, "cannot read a chunk: written by another version");
        chunk::decode(&bytes).filter(|records| records.len() == entry.records as usize).ok_or_else(wrong)
    }

    /// Reads all records.
    pub(crate) fn records(&self, disk: &dyn Disk) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        for entry in self.index(disk)? {
            records.extend(self.chunk(disk, &entry)?);
        }
        Ok(records)
    }

    /// Reads and checks every byte.
    pub(crate) fn verify(&self, disk: &dyn Disk) -> Result<()> {
        self.marks(disk)?;
        let mut last = Key::default();
        for entry in self.index(disk)? {
            let records = self.chunk(disk, &entry)?;
            let keys = records.iter().map(Record::key);
            let ends = (records.first().map(Record::key), records.last().map(Record::key));
            if ends != (Some(entry.first), Some(entry.last)) || entry.first < last || !keys.is_sorted() {
                return Err(LogError::damaged(&self.name, "its records are not in order"));
            }
            last = entry.last;
        }
        Ok(())
    }

    /// Appends the records under `keys` (ascending) to `found`; returns the number of chunks read.
    pub(crate) fn find(&self, disk: &dyn Disk, keys: &[Key], found: &mut Vec<Record>) -> Result<usize> {
        let mut chunks = 0;
        for entry in &self.index(disk)? {
            let at = keys.partition_point(|key| *key < entry.first);
            if keys.get(at).is_some_and(|key| *key <= entry.last) {
                chunks += 1;
                let records = self.chunk(disk, entry)?;
                found.extend(records.into_iter().filter(|r| keys.binary_search(&r.key()).is_ok()));
            }
        }
        Ok(chunks)
    }
}

impl Entry {
    fn read(bytes: &[u8; ENTRY_LEN], offset: u64) -> Option<Entry> {
        let mut bytes = Bytes(bytes);
        let mut key = || {
            let class = bytes.array::<1>()?[0];
            let address = u32::from_le_bytes(bytes.array()?);
            Some(Key { class, address, slot: u16::from_le_bytes(bytes.array()?) })
        };
        let (first, last) = (key()?, key()?);
        let mut number = || bytes.array().map(u32::from_le_bytes);
        let (records, len) = (number()?, number()?);
        Some(Entry { first, last, records, offset, len, hash: Hash(bytes.array()?) })
    }
}

/// Intact chunks and marks of a changed file.
#[derive(Debug, Default)]
pub(crate) struct IntactParts {
    pub(crate) records: Vec<Record>,
    pub(crate) marks: Vec<Mark>,
}

/// Reads the intact chunks and marks of a changed file.
///
/// The index is before the tail. If the tail does not give its length, every length is tried until the first
/// or last chunk matches its hash.
///
/// Nothing is read from an intact file with another number than `number`.
pub(crate) fn salvage(disk: &dyn Disk, name: &str, number: u64) -> Result<IntactParts> {
    let len = disk.len(name).map_err(LogError::io(name))?;
    let bytes = read(disk, name, 0, len as usize).map_err(LogError::io(name))?;
    let Some((body, end)) =
        len.checked_sub(TAIL_LEN as u64).and_then(|at| bytes.split_at_checked(at as usize))
    else {
        return Ok(IntactParts::default());
    };
    let tail = Tail::read(end).map(|(tail, _)| tail);
    let is_other = |tail: &Tail| {
        let head = bytes.get(..HEAD_LEN).unwrap_or_default();
        tail.number != number && Hash::of(&[head, &tail.fields()]) == tail.hash
    };
    if tail.as_ref().is_some_and(is_other) {
        return Ok(IntactParts::default());
    }
    let recorded = tail.iter().map(|tail| (tail.index.0 as usize, Some(tail.marks.0 as usize)));
    let tried = (1..=INDEX_TRIES).map(|entries| (entries * ENTRY_LEN, None));
    for (index_len, marks_len) in recorded.chain(tried) {
        let Some((before, index)) = body.len().checked_sub(index_len).map(|at| body.split_at(at)) else {
            break;
        };
        let records = whole_chunks(before, index, marks_len);
        if !records.is_empty() {
            let marks = tail.as_ref().and_then(|tail| whole_marks(before, tail)).unwrap_or_default();
            return Ok(IntactParts { records, marks });
        }
    }
    let marks = tail
        .as_ref()
        .and_then(|tail| whole_marks(body.get(..body.len().checked_sub(tail.index.0 as usize)?)?, tail));
    Ok(IntactParts { records: Vec::new(), marks: marks.unwrap_or_default() })
}

/// Records of the chunks that match the hashes of an index, from the front and from the back.
fn whole_chunks(before: &[u8], index: &[u8], marks_len: Option<usize>) -> Vec<Record> {
    let (entries, _) = index.as_chunks::<ENTRY_LEN>();
    let entries: Vec<Entry> = entries.iter().filter_map(|entry| Entry::read(entry, 0)).collect();
    let mut found: Vec<Option<Vec<Record>>> = vec![None; entries.len()];
    let read = |entry: &Entry, at: usize| {
        let bytes = before.get(at..at.checked_add(entry.len as usize)?)?;
        (Hash::of(&[bytes]) == entry.hash).then(|| chunk::decode(bytes))?
    };
    let mut at = HEAD_LEN;
    for (entry, found) in entries.iter().zip(&mut found) {
        *found = read(entry, at);
        at = at.saturating_add(entry.len as usize);
        // With a guessed length, no chunk matches after one that does not.
        if found.is_none() && marks_len.is_none() {
            break;
        }
    }
    let mut at = before.len().saturating_sub(marks_len.unwrap_or(0));
    for (entry, found) in entries.iter().zip(&mut found).rev() {
        let Some(from) = at.checked_sub(entry.len as usize) else { break };
        at = from;
        if found.is_none() && marks_len.is_some() {
            *found = read(entry, at);
        }
    }
    found.into_iter().flatten().flatten().collect()
}

fn whole_marks(before: &[u8], tail: &Tail) -> Option<Vec<Mark>> {
    let at = before.len().checked_sub(tail.marks.0 as usize)?;
    let bytes = before.get(at..).filter(|bytes| Hash::of(&[bytes]) == tail.marks.1)?;
    mark::decode(bytes)
}

/// Iterator over the records of a file, with one chunk in memory.
pub(crate) struct Records<'a> {
    disk: &'a dyn Disk,
    segment: &'a Segment,
    index: std::vec::IntoIter<Entry>,
    chunk: std::vec::IntoIter<Record>,
}

impl<'a> Records<'a> {
    pub(crate) fn of(disk: &'a dyn Disk, segment: &'a Segment) -> Result<Records<'a>> {
        let index = segment.index(disk)?.into_iter();
        Ok(Records { disk, segment, index, chunk: Vec::new().into_iter() })
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        loop {
            if let Some(record) = self.chunk.next() {
                return Some(Ok(record));
            }
            match self.segment.chunk(self.disk, &self.index.next()?) {
                Ok(records) => self.chunk = records.into_iter(),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
